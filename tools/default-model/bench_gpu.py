"""bench_gpu.py: a first look at a GPU: is the scan right, which attention is quickest, what does a step cost at each length."""
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from model import Model


def timed(f, n=3):
    f()
    torch.cuda.synchronize()
    t = time.time()
    for _ in range(n):
        f()
    torch.cuda.synchronize()
    return (time.time() - t) / n * 1000


def main():
    t0 = time.time()
    torch.manual_seed(0)
    ids = torch.randint(0, 4000, (2, 640))
    exact = Model(dtype=torch.float32).prepare("cpu").logits(ids)
    fast = Model(dtype=torch.bfloat16).prepare("cuda")
    got = fast.logits(ids.cuda()).cpu()
    print("bf16 on the GPU against float32 here: relative error %.4f" % ((got - exact).norm() / exact.norm()).item(), "%.1fs" % (time.time() - t0), flush=True)
    for length in (1024, 131072):
        q, k, v = (torch.randn(131072 // length, 4, length, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
            try:
                with sdpa_kernel(getattr(SDPBackend, name)):
                    def both():
                        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
                    print("attention", length, name, "%.1f ms" % timed(both, 2), flush=True)
            except Exception as e:
                print("attention", length, name, "failed", str(e)[:200], flush=True)
    del q, k, v
    lengths = [int(x) for x in sys.argv[1].split(",")]
    fast.compile()
    for length in lengths:
        ids = torch.randint(0, 4000, (131072 // length, length), device="cuda")
        w = torch.ones(ids.shape, device="cuda")

        def step():
            total, balance, _, _ = fast.loss(ids, w)
            (total / 131072 + balance).backward()
        t = time.time()
        step()
        torch.cuda.synchronize()
        first = time.time() - t
        ms = timed(step)
        print("step at %d: first %.1f s, then %.1f ms, %.0f tokens/s, memory %.1f GB" %
              (length, first, ms, 131072 / ms * 1000, torch.cuda.max_memory_allocated() / 1e9), flush=True)


if __name__ == "__main__":
    main()
