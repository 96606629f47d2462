"""check_export.py: shows that an exported model is the trained one.

    python check_export.py CHECKPOINT.pt

1. model.py's float32 logits equal transformers' own classes'. 2. The chat template writes what training wrote (chatml.py).
3. A float32 GGUF gives the same log-probabilities in llama.cpp (PyPI's xllamacpp), as far as its byte handling lets one see."""
import sys
import tempfile

import jinja2
import numpy as np
import torch

import export
import generate
from chatml import END, chat, render
from model import Model, transformers_config
from tooltasks import tool_talk
from world import Rng


def text_ids(count):
    encode = generate.Encoder("tokenizer.json")
    r = Rng(99)
    ids = []
    while len(ids) < count:
        ids += encode(generate.sample(r, 1024))[0]
    return ids[:count]


def against_transformers(checkpoint, ids):
    from transformers.models.qwen3_5_moe import Qwen3_5MoeForCausalLM
    m = Model(checkpoint["config"], dtype=torch.float32)
    m.load_named({k: v.float() for k, v in checkpoint["tensors"].items()})
    m.prepare("cpu")
    hf = Qwen3_5MoeForCausalLM(transformers_config(m.c)).eval()
    hf.load_state_dict({k: v.detach() for k, v in m.named().items()}, strict=False)
    with torch.no_grad():
        a, b = m.logits(torch.tensor([ids]))[0], hf(torch.tensor([ids])).logits[0]
    print("transformers: largest logit difference %.2e, relative %.2e" % ((a - b).abs().max(), (a - b).norm() / b.norm()))
    return torch.log_softmax(a.double(), -1).numpy()


def as_messages(messages):
    out = []
    for m in messages:
        n = {"role": m["role"], "content": m.get("content", "")}
        if m.get("think"):
            n["reasoning_content"] = m["think"]
        if m.get("calls"):
            n["tool_calls"] = [{"type": "function", "function": {"name": a, "arguments": b}} for a, b in m["calls"]]
        out.append(n)
    return out


def template(cases=300):
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    import json
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    t = env.from_string(open("template.jinja").read())
    class Never:
        def flip(self, p):
            return True
    r = Rng(3)
    same = 0
    for _ in range(cases):
        if r.flip(0.5):
            messages, tools = tool_talk(r)
        else:
            messages, tools = r.pick(generate.CHAT_TABLE)(r), None
        if any(m["role"] == "tool" and "</tool_response>" in m["content"] for m in messages):
            cases -= 1
            continue
        got = t.render(messages=as_messages(messages), tools=tools, add_generation_prompt=False)
        want = "".join(p for p, _ in render(Never(), messages, tools)).replace(END, "")
        same += got == want
        if got != want and same > -1:
            print("DIFFERENT\n", got, "\n---\n", want)
            same = -10 ** 9
    print("template: %d of %d conversations written the same" % (same, cases))


def against_llamacpp(checkpoint, ids, expect, dtype):
    import xllamacpp as llama
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/model.gguf"
        export.write(checkpoint, path, dtype)
        params = llama.CommonParams()
        params.model.path = path
        params.n_ctx, params.n_parallel, params.warmup = 512, 1, False
        params.cpuparams.n_threads = 2
        params.cache_type_k = params.cache_type_v = llama.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        server = llama.Server(params)
        worst = top = 0
        rows = range(7, len(ids), 12)
        for at in rows:
            answer = server.handle_completions({"prompt": ids[:at + 1], "max_tokens": 1, "logprobs": 40, "n_probs": 40, "temperature": 0.0, "cache_prompt": False})
            content = answer["choices"][0]["logprobs"]["content"]
            if not content:                                     # it chose to end, and reports nothing then
                top += int(expect[at].argmax() >= 4087)
                continue
            found = {t["id"]: t["logprob"] for t in content[0]["top_logprobs"]}
            worst = max(worst, max(abs(found[i] - expect[at][i]) for i in found))
            top += max(found, key=found.get) == int(expect[at].argmax())
        print("llama.cpp %s: first choice the same %d of %d, largest log-probability difference %.2e" % (dtype, top, len(rows), worst))


def main():
    checkpoint = torch.load(sys.argv[1])
    ids = text_ids(160)
    template()
    expect = against_transformers(checkpoint, ids)
    against_llamacpp(checkpoint, ids, expect, "F32")
    against_llamacpp(checkpoint, ids, expect, "Q8_0")


if __name__ == "__main__":
    main()
