"""An oracle model gives the same answers as GGUF: whatever the converter changes (RoPE's rows, norms, gates, the order of
value heads, stacked experts) the readers undo.

Written as F32 it keeps the tolerances that tests/unit/test_oracle.c explains; in the other types its logits are, bit for bit,
those of a file that holds the decoded numbers as F32. Where llama.cpp's Python package is there, both read the same file: the
likeliest token is the same wherever it is so by more than 0.01."""
import os
import subprocess
import sys
import tempfile

try:
    import gguf                                         # noqa: F401  oracle_gguf needs it
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

try:
    import xllamacpp                                    # noqa: F401
    from test_oracle_llamacpp import start
except ImportError:
    start = None

from oracle_exact import CLASSIC, DATA, HYBRID, SUFFIXES
from oracle_gguf import read_safetensors, write_gguf

TOLERANCE, REFERENCE_IS_EXACT, MARGIN = 2e-4, 5e-5, 0.01
# How long a prompt is does not ask the file; 4,096 tokens take most of the time.
LENGTHS = [1, 7, 65, 300] + [4096] * bool(os.environ.get("ES_LONG"))
TYPES = ["F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"]


def ours(model, ids, last, folder, *options):
    """Our logits of the last positions, through the command that people use."""
    ids_path, out = os.path.join(folder, "ids.txt"), os.path.join(folder, "logits.safetensors")
    with open(ids_path, "w", encoding="utf-8") as f:
        f.write(" ".join(map(str, ids)))
    program = os.path.join(os.environ["ES_BUILD"], "evenshare")
    run = subprocess.run([program, "score", model, "--ids", ids_path, "--logits", out, "--last", str(last), "-c", "4224", *options],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert run.returncode == 0, run.stdout.decode()
    return read_safetensors(out)["logits"]


def apart(a, b):
    return np.abs(a.astype(np.float64) - b).max(-1)


def check_float32(family, path, folder):
    reference = read_safetensors(os.path.join(DATA, family, "reference.safetensors"))
    exact = read_safetensors(os.path.join(DATA, family, "exact.safetensors")) if family in HYBRID else reference
    worst = {"exact": 0.0, "reference": 0.0, "safetensors": 0.0}
    for length in LENGTHS:
        name = next(f"len{length}.{s}" for s in SUFFIXES if f"len{length}.{s}" in reference)
        ids, expect = reference[f"len{length}.ids"].ravel(), reference[name]
        got = ours(path, ids, len(expect), folder)
        assert got.shape == expect.shape and np.isfinite(got).all(), (family, length)
        to_exact, to_reference, off = apart(got, exact[name]), apart(got, expect), apart(expect, exact[name])
        broken = (to_exact > TOLERANCE) | (to_reference > TOLERANCE + off) | \
            ((off <= REFERENCE_IS_EXACT) & (to_reference > TOLERANCE))
        assert not broken.any(), (family, length, np.nonzero(broken)[0], to_exact.max(), to_reference.max())
        folded = apart(got, ours(os.path.join(DATA, family), ids, len(expect), folder))
        for key, d in [("exact", to_exact), ("reference", to_reference), ("safetensors", folded)]:
            worst[key] = max(worst[key], d.max())
    print(f"{family:12} F32: furthest from the exact logits {worst['exact']:.1e}, "
          f"from the reference {worst['reference']:.1e}, from our own of the safetensors {worst['safetensors']:.1e}")


def check_type(family, dtype, folder):
    """Bit for bit the logits of a file that holds, as F32, the numbers that the blocks decode to."""
    path, decoded = os.path.join(folder, f"{family}.{dtype}.gguf"), os.path.join(folder, f"{family}.{dtype}.F32.gguf")
    write_gguf(os.path.join(DATA, family), path, dtype)
    write_gguf(os.path.join(DATA, family), decoded, dtype, decoded=True)
    assert os.path.getsize(path) < os.path.getsize(decoded)
    ids = read_safetensors(os.path.join(DATA, family, "reference.safetensors"))["len65.ids"].ravel()
    got = ours(path, ids, len(ids), folder, "--threads", "2")
    assert np.isfinite(got).all(), (family, dtype)
    for model, options in [(path, ["--threads", "1", "--chunk", "7"]), (decoded, ["--threads", "2"])]:
        again = ours(model, ids, len(ids), folder, *options)
        differ = (got.view(np.uint32) != again.view(np.uint32)).any(-1)
        assert not differ.any(), (family, dtype, model, options, np.nonzero(differ)[0])
    print(f"{family:12} {dtype}: bit for bit as its decoded weights in F32, for two plans", flush=True)


def check_llama_cpp(family, folder):
    """Teacher-forced over the 65-token prompt, in a file whose tokens are whole characters (llama.cpp holds back others)."""
    path = os.path.join(folder, family + ".whole.gguf")
    write_gguf(os.path.join(DATA, family), path, whole_characters=True)
    ids = read_safetensors(os.path.join(DATA, family, "reference.safetensors"))["len65.ids"].ravel().tolist()
    logits = ours(path, ids, len(ids), folder).astype(np.float64)
    server = start(path)
    decided = 0
    for position, row in enumerate(logits):
        answer = server.handle_completions({"prompt": ids[: position + 1], "max_tokens": 1, "logprobs": 1, "n_probs": 1,
                                            "temperature": 0.0, "cache_prompt": False})
        second, first = np.argsort(row)[-2:]
        if row[first] - row[second] > MARGIN:
            decided += 1
            found = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0]["id"]
            assert found == first, (family, position, found, first, row[first] - row[second])
    print(f"{family:12} as llama.cpp: the same likeliest token at the {decided} of {len(ids)} positions with a margin")


def main():
    families = HYBRID + CLASSIC
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            path = os.path.join(folder, family + ".gguf")
            write_gguf(os.path.join(DATA, family), path)
            check_float32(family, path, folder)
        for family in families:
            for dtype in TYPES if family in ["qwen3_5_moe", "llama"] else ["Q8_0", "Q4_1"]:
                check_type(family, dtype, folder)
        for family in families if start else []:
            check_llama_cpp(family, folder)
        if not start:
            print("llama.cpp's Python package is not there: not compared with it")


if __name__ == "__main__":
    main()
