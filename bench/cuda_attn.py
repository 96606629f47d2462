#!/usr/bin/env python3
"""Decode attention on a GPU beside PyTorch's: graph replays over inputs rotated past the second-level cache, medians.

usage: cuda_attn.py LIBRARY OUT.json [sweep|table]

sweep tries ways of running on a few shapes; table takes the best one (what zeros in the tuning mean) and the peers. PyTorch reads
contiguous keys and values, we read shuffled pages, and so does FlashInfer, where it can be imported (it compiles its kernels on
first use). Results of the first input set are compared with theirs.
"""
import ctypes
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import flashinfer
except ImportError:
    flashinfer = None

I32, I64, P = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


class Setting(ctypes.Structure):
    _fields_ = [(n, I32) for n in ("query_heads", "kv_heads", "head_dim", "page", "row_tile", "blocks", "unit", "sequences",
                                   "stages", "copy16", "keep", "loose", "overlap", "second")]
    _fields_ += [("table_pages", I64), ("k", P), ("v", P), ("q", P), ("pages", P), ("out", P)]


lib = ctypes.CDLL(sys.argv[1])
lib.bench_open.restype = P
lib.bench_open.argtypes = [ctypes.POINTER(Setting), P, P]
lib.bench_launch.argtypes = [P, P]
lib.bench_close.argtypes = [P]
lib.bench_workspace.argtypes = [P]
lib.bench_workspace.restype = I64
lib.bench_read.argtypes = [P, I64, P, I32, P]
device = torch.device("cuda")
records = []


def stream():
    return torch.cuda.current_stream().cuda_stream


def timed(call, sets, microseconds):
    """Median time of one call, in µs: graphs that walk the input sets, replayed."""
    for i in range(sets):
        call(i)
    torch.cuda.synchronize()
    repeats = max(sets, min(200, int(4000 / microseconds)) // sets * sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(repeats):
            call(i % sets)
    times = []
    for i in range(13):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) * 1000 / repeats)
    return statistics.median(times)


class Shape:
    def __init__(self, query_heads, kv_heads, head_dim, lengths, page=64):
        self.heads = (query_heads, kv_heads, head_dim)
        self.lengths, self.page = lengths, page
        self.bytes = 2 * 2 * kv_heads * head_dim * sum(lengths)
        self.sets = max(2, -(-400_000_000 // self.bytes))
        self.floor = self.bytes / 4.3e6  # µs
        pages = [-(-n // page) for n in lengths]
        self.total = sum(pages)
        self.first = torch.tensor([sum(pages[:i]) for i in range(len(pages))], dtype=torch.int32)
        self.table = torch.randperm(self.total, device=device).to(torch.int32)
        size = (self.total, kv_heads, page, head_dim)
        self.k = [torch.randn(size, device=device, dtype=torch.bfloat16) for _ in range(self.sets)]
        self.v = [torch.randn(size, device=device, dtype=torch.bfloat16) for _ in range(self.sets)]
        self.q = [torch.randn((len(lengths), query_heads, head_dim), device=device, dtype=torch.bfloat16) * head_dim**-0.5
                  for _ in range(self.sets)]
        self.out = torch.empty((len(lengths), query_heads, head_dim), device=device, dtype=torch.bfloat16)

    def name(self):
        q, kv, d = self.heads
        n = self.lengths
        what = f"{n[0]} x {len(n)}" if len(set(n)) == 1 else f"{len(n)} of {min(n)}..{max(n)}"
        return f"{q}/{kv} x {d}, {what}" + (f", page {self.page}" if self.page != 64 else "")

    def ours(self, **how):
        calls = []
        lengths = torch.tensor(self.lengths, dtype=torch.int32)
        for i in range(self.sets):
            s = Setting(*self.heads, self.page, 8, how.get("blocks", 0), how.get("unit", 2**31 - 1), len(self.lengths), how.get("stages", 0),
                        how.get("copy16", 0), how.get("keep", 0), how.get("loose", 0), how.get("overlap", 0), how.get("second", 0),
                        self.total, self.k[i].data_ptr(), self.v[i].data_ptr(), self.q[i].data_ptr(), self.table.data_ptr(),
                        self.out.data_ptr())
            calls.append(lib.bench_open(ctypes.byref(s), lengths.data_ptr(), self.first.data_ptr()))
        if not all(calls):
            return None
        def call(i):
            if lib.bench_launch(calls[i], stream()):
                raise RuntimeError("launch")
        call(0)
        torch.cuda.synchronize()
        self.result = self.out.clone()
        time_us = timed(call, self.sets, self.floor + 5)
        for c in calls:
            lib.bench_close(c)
        self.note("ours", time_us, how)
        return time_us

    def note(self, who, time_us, how=None):
        record = {"shape": self.name(), "who": who, "how": how or {}, "us": round(time_us, 2), "bytes": self.bytes,
                  "gb_s": round(self.bytes / time_us / 1000, 1)}
        records.append(record)
        print(f"{record['shape']:34s} {who:14s} {str(record['how']):44s} {time_us:9.2f} us {record['gb_s']:8.1f} GB/s", flush=True)

    def in_order(self, cache):
        """Pages whose rows' channels stand as everybody else has them."""
        place = torch.arange(self.heads[2], device=device) ^ (torch.arange(self.page, device=device)[:, None] % 8 * 8)
        return cache.gather(3, place.expand(cache.shape))

    def contiguous(self, i):
        """[sequences][kv_heads][longest][head_dim] of input set i."""
        q, kv, d = self.heads
        longest = max(self.lengths)
        k = torch.zeros((len(self.lengths), kv, longest, d), device=device, dtype=torch.bfloat16)
        v = torch.zeros_like(k)
        for s, n in enumerate(self.lengths):
            pages = self.table[self.first[s]:self.first[s] + -(-n // self.page)].long()
            for cache, out in ((self.k[i], k), (self.v[i], v)):
                rows = self.in_order(cache[pages])
                out[s, :, :n] = rows.transpose(0, 1).reshape(kv, -1, d)[:, :n]
        return k, v

    def compare(self, who, result):
        if getattr(self, "result", None) is None:
            return
        error = ((result.float() - self.result.float()).norm() / result.float().norm()).item()
        if not error < 6e-3:
            print(f"WRONG {self.name()} against {who}: {error:.2e}", flush=True)

    def flashinfer(self):
        """Its wrapper for pages, with and without tensor cores; the better one counts."""
        q, kv, d = self.heads
        caches = [(self.in_order(self.k[i]), self.in_order(self.v[i])) for i in range(self.sets)]
        counts = torch.tensor([-(-n // self.page) for n in self.lengths], dtype=torch.int32)
        begin = torch.cat([torch.zeros(1, dtype=torch.int32), counts.cumsum(0).int()])
        last = torch.tensor([(n - 1) % self.page + 1 for n in self.lengths], dtype=torch.int32)
        for tensor_cores in (True, False):
            who = "flashinfer" + ("" if tensor_cores else " plain")
            try:
                room = torch.empty(256 << 20, dtype=torch.uint8, device=device)
                wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(room, "HND", use_tensor_cores=tensor_cores)
                wrapper.plan(begin.to(device), self.table, last.to(device), q, kv, d, self.page, q_data_type=torch.bfloat16,
                             kv_data_type=torch.bfloat16, sm_scale=1.0)
                self.compare(who, wrapper.run(self.q[0], caches[0]))
                self.note(who, timed(lambda i: wrapper.run(self.q[i], caches[i]), self.sets, self.floor + 20))
            except Exception as e:  # whatever its compilation or its kernels refuse
                print(self.name(), who, "refused:", (str(e).splitlines() or [repr(e)])[0][:150], flush=True)

    def peers(self):
        """PyTorch over sequences of one length, or padded to the longest (which is what it offers)."""
        kv = [self.contiguous(i) for i in range(self.sets)]
        q = [x.unsqueeze(2) for x in self.q]
        ragged = len(set(self.lengths)) > 1
        times = {}
        for who, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
            best = None
            def call(i):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q[i], *kv[i], enable_gqa=True, scale=1.0)
            try:
                result = call(0).squeeze(2)
                if not ragged:
                    self.compare(who, result)
                best = timed(call, self.sets, self.floor + 20)
                self.note(who + (" padded" if ragged else ""), best)
            except RuntimeError as e:
                print(self.name(), who, "refused:", str(e).splitlines()[0][:150], flush=True)
            times[who] = best
        if flashinfer:
            self.flashinfer()
        return times


def read_bandwidth():
    data = torch.randint(-2**31, 2**31 - 1, (1 << 30,), device=device, dtype=torch.int32)  # 4 GiB
    out = torch.zeros(4, device=device, dtype=torch.int32)
    best = 0
    for blocks in (132 * 2, 132 * 4, 132 * 16):
        t = timed(lambda i: lib.bench_read(data.data_ptr(), data.nbytes, out.data_ptr(), blocks, stream()), 1, 1000)
        best = max(best, data.nbytes / t / 1000)
        print(f"reading 4 GiB with {blocks} blocks: {data.nbytes / t / 1000:.1f} GB/s", flush=True)
    copy = torch.empty_like(data[: 1 << 28])
    t = timed(lambda i: copy.copy_(data[: 1 << 28]), 1, 500)
    print(f"copying 1 GiB: {2 * copy.nbytes / t / 1000:.1f} GB/s read and written", flush=True)
    records.append({"who": "read", "gb_s": best})
    return best


def ragged(count):
    torch.manual_seed(5)
    lengths = (100 * torch.exp(torch.rand(count) * torch.log(torch.tensor(1000.0)))).int().tolist()
    lengths[0], lengths[-1] = 100, 100000
    return lengths


def sweep():
    read_bandwidth()
    ways = [dict(), dict(second=1), dict(unit=2), dict(unit=4), dict(second=1, unit=2), dict(keep=1), dict(stages=4), dict(stages=5),
            dict(copy16=1), dict(copy16=1, stages=4), dict(overlap=1, second=1), dict(loose=1), dict(loose=1, second=1)]
    for shape in ((16, 2, 256, [8192]), (16, 2, 256, [32768]), (16, 2, 256, [102400]), (16, 2, 256, [262144]), (16, 2, 256, [102400] * 8),
                  (64, 8, 128, [32768])):
        s = Shape(*shape)
        more = [dict(blocks=264, stages=6), dict(blocks=264, stages=4), dict(blocks=264, stages=6, second=1)] if shape[2] == 128 else []
        for how in ways + more:
            try:
                s.ours(**how)
            except RuntimeError as e:
                print(s.name(), how, str(e).splitlines()[0], flush=True)
        if len(shape[3]) == 1:
            s.peers()
        del s
        torch.cuda.empty_cache()


def table():
    read_bandwidth()
    for heads in ((16, 2, 256), (16, 4, 256), (64, 8, 128)):
        for lengths in ([8192], [32768], [102400], [262144], [8192] * 8, [32768] * 8, [102400] * 8, [4096] * 32):
            if heads[1] * len(lengths) * lengths[0] * heads[2] * 4 > 8e9:
                continue
            s = Shape(*heads, lengths)
            s.ours()
            s.ours(unit=0)
            s.ours(loose=1)
            s.peers()
            del s
            torch.cuda.empty_cache()
    for page in (16, 32, 128, 512):
        for lengths in ([32768], [102400]):
            Shape(16, 2, 256, lengths, page).ours()
    for count in (16, 64):
        s = Shape(16, 2, 256, ragged(count))
        s.ours()
        s.ours(unit=0)
        s.ours(loose=1)
        if count == 16:
            s.peers()
        del s
        torch.cuda.empty_cache()


torch.manual_seed(1)
begun = time.time()
print("torch", torch.__version__, "cuda", torch.version.cuda, "cudnn", torch.backends.cudnn.version(), torch.cuda.get_device_name(),
      torch.cuda.get_device_properties(0).multi_processor_count, "multiprocessors", flush=True)
try:
    {"sweep": sweep, "table": table}[sys.argv[3]]()
finally:
    with open(sys.argv[2], "w") as f:
        json.dump(records, f, indent=1)
    print(f"{time.time() - begun:.0f} s")
