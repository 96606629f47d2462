"""Every stored type decodes exactly, bit by bit, as the Python package gguf does: 10,000 random blocks each, one in four with
special numbers (zeros, subnormals, infinities, NaNs) where the scales are. A NaN has to be a NaN, whatever its payload."""
import os
import subprocess
import sys

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = os.path.join(os.environ["ES_BUILD"], "tests", "decode_blocks")
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0xFE00, 0x3C00], "<u2")
BLOCKS = 10_000


def make_blocks(name, rng):
    qtype = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[qtype]
    if name == "F16":                                   # every pattern there is
        return np.arange(65536, dtype="<u2").view(np.uint8).reshape(-1, 2)
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for b in range(0, BLOCKS, 4):
        blocks[b, :2] = SPECIAL[b // 4 % 12 : b // 4 % 12 + 1].view(np.uint8)
        blocks[b, -2:] = blocks[b, :2]
        if size >= 4:
            blocks[b, 2:4] = SPECIAL[b // 48 % 12 : b // 48 % 12 + 1].view(np.uint8)
    return blocks


def main():
    rng = np.random.default_rng(2024)
    failures = 0
    for name in TYPES:
        blocks = make_blocks(name, rng)
        with np.errstate(all="ignore"):
            expect = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).astype(np.float32).ravel()
        for instructions in ["ref", "avx2", "avx512"]:
            run = subprocess.run([TOOL, name, instructions], input=blocks.tobytes(), stdout=subprocess.PIPE)
            if run.returncode == 77 and instructions != "ref":
                print(f"{name:5} {instructions:7} not on this processor")
                continue
            got = np.frombuffer(run.stdout, np.float32)
            if run.returncode or got.size != expect.size:
                print(f"{name:5} {instructions:7} FAILED: exit code {run.returncode}, {got.size} of {expect.size} numbers")
                failures += 1
                continue
            wrong = (got.view(np.uint32) != expect.view(np.uint32)) & ~(np.isnan(got) & np.isnan(expect))
            print(f"{name:5} {instructions:7} {got.size} numbers, {np.isnan(expect).sum()} NaN, {wrong.sum()} differ")
            failures += bool(wrong.any())
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
