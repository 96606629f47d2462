"""The oracle models written as GGUF give the reference's answers in llama.cpp: that shows that oracle_gguf.py makes what the
public converter makes. Teacher-forced over the 65-token prompt: top-1 equal wherever the reference's margin exceeds 0.01, and
log-probabilities close (float32 weights and KV)."""
import json
import os
import random
import sys
import tempfile
import urllib.request

try:
    import gguf                                         # noqa: F401  oracle_gguf needs it
    import numpy as np
    import xllamacpp as llama
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import serving
from oracle_gguf import read_safetensors, write_gguf

DATA = os.path.join(os.environ["ES_SOURCE"], "tests", "data", "oracle")
FAMILIES = ["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"]
MARGIN = 0.01
CLOSE = 5e-3                                            # of log-probabilities; 6e-4 was seen


def start(path):
    params = llama.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.warmup = 256, 1, False
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return llama.Server(params)


def check_family(family, folder):
    path = os.path.join(folder, family + ".gguf")
    write_gguf(os.path.join(DATA, family), path, whole_characters=True)
    server = start(path)
    reference = read_safetensors(os.path.join(DATA, family, "reference.safetensors"))
    ids = reference["len65.ids"].ravel().tolist()
    logits = reference["len65.logits"].reshape(len(ids), -1).astype(np.float64)
    expect = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    decided = agreed = 0
    worst = 0.0
    for position, row in enumerate(expect):
        answer = server.handle_completions({"prompt": ids[: position + 1], "max_tokens": 1, "logprobs": row.size,
                                            "n_probs": row.size, "temperature": 0.0, "cache_prompt": False})
        found = {t["id"]: t["logprob"] for t in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
        assert len(found) == row.size, f"{len(found)} of {row.size} probabilities"
        worst = max(worst, max(abs(found[i] - row[i]) for i in found))
        second, first = np.argsort(row)[-2:]
        if row[first] - row[second] > MARGIN:
            decided += 1
            agreed += max(found, key=found.get) == first
    good = agreed == decided and worst < CLOSE
    print(f"{'ok    ' if good else 'FAILED'} {family:12} top-1 {agreed} of {decided}, "
          f"max |log-probability difference| {worst:.1e}", flush=True)
    return good


def tokens(url, text):
    request = urllib.request.Request(url + "/tokenize", json.dumps({"content": text}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)["tokens"]


def check_default_split(folder):
    """Where tokenizer.ggml.pre is "default" both cut words alike. Any two of some characters that mean something to it are a token,
    so that each cut shows."""
    path = os.path.join(folder, "default.gguf")
    letters = "abs12 .'$(\n\t_~^|"
    write_gguf(os.path.join(DATA, "llama"), path, pre="default", letters=letters)
    server, draw = start(path), random.Random(5)
    texts = ["".join(draw.choice(letters) for _ in range(draw.randint(1, 24))) for _ in range(300)]
    with serving.real_server(path, "--ctx", "256") as ours:
        differ = [text for text in texts if tokens(server.listening_address, text) != tokens(ours.url, text)]
    print(f"{'FAILED' if differ else 'ok    '} default split: {len(differ)} of {len(texts)} texts differ {differ[:3]}", flush=True)
    return not differ


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = [check_family(family, folder) for family in FAMILIES] + [check_default_split(folder)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
