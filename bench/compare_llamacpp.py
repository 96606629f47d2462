#!/usr/bin/env python3
"""Evenshare against llama.cpp on the same machine, the same GGUF and the same number of threads, in alternating runs.

    bench/compare_llamacpp.py --models FOLDER [--quick] [--threads 2] [--json OUT.json] [--plot OUT.png] [--only NAME]

FOLDER gets random-weight models (`evenshare bench make-model`) unless they are there already. Each row alternates: one run of
ours, one of theirs with flash attention off, one with it on; then again. What is printed are medians, and the ratio of the
medians to the better of their two settings: on a machine that drifts, that ratio is the figure that counts.

llama-cpp-python, compiled natively by pip, is used when it can be imported; else xllamacpp, whose prebuilt code leaves
instruction sets unused. The rows then say "prebuilt": they show that the script works, not who is faster.

At a depth ours fills its cache with random numbers. Theirs computes a prompt of 512 tokens once per setting; its keys and values,
repeated up to the depth, are put back before every run (those of several sequences are computed whole). Neither is part of what is
timed. --compute has theirs compute the whole
prompt instead, which takes many minutes and shows that the times are the same."""
import argparse
import ctypes
import json
import os
import statistics
import struct
import subprocess
import sys
import time

PROGRAM = os.environ.get("EVENSHARE", os.path.join(os.path.dirname(__file__), "..", "build", "release", "evenshare"))
# name, shape, type, what, depth, target ratio
ROWS = [
    ("decode Q8_0", "qwen3.5-0.8b", "q8_0", "decode", 0, 1.05),
    ("decode Q8_0", "qwen3.5-0.8b", "q8_0", "decode", 16384, 1.25),
    ("decode Q8_0", "qwen3.5-0.8b", "q8_0", "decode", 32768, 1.25),
    ("decode Q8_0", "qwen3.5-0.8b", "q8_0", "decode", 100000, 1.8),
    ("decode BF16", "qwen3.5-0.8b", "bf16", "decode", 0, 1.05),
    ("decode BF16", "qwen3.5-0.8b", "bf16", "decode", 100000, 1.8),
    ("decode Q4_K_M", "qwen3.5-0.8b", "q4_k_m", "decode", 0, 1.7),
    ("Qwen3-0.6B Q8_0", "qwen3-0.6b", "q8_0", "decode", 16384, 1.25),
    ("Qwen3-0.6B Q8_0", "qwen3-0.6b", "q8_0", "decode", 32768, 1.25),
    ("prefill of 512 Q8_0", "qwen3.5-0.8b", "q8_0", "prefill", 0, 2.5),
    ("prefill of 512 BF16", "qwen3.5-0.8b", "bf16", "prefill", 0, 2.5),
    ("prefill of 512 Q4_K_M", "qwen3.5-0.8b", "q4_k_m", "prefill", 0, 2.5),
    ("8 sequences Q8_0", "qwen3.5-0.8b", "q8_0", "batch", 1024, 2.5),
]
QUICK_DEPTH = 1024
PROMPT, SEQUENCES, DECODED = 512, 8, 8


def ours(model, what, depth, threads):
    """Tokens per second of one run, and the bound that the machine's limits set."""
    command = [PROGRAM, "bench", what, model, "--depth", str(depth), "--threads", str(threads), "--json",
               "--runs", str(DECODED if what != "prefill" else 1)]
    command += ["-n", str(PROMPT)] if what == "prefill" else ["-b", str(SEQUENCES)] if what == "batch" else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    row = json.loads(done.stdout)["rows"][0]
    return row["tokens_per_second"], row["bound_tokens_per_second"]


def repeat_state(state, computed, depth):
    """A sequence's saved state with its cells repeated up to `depth`. Laid out as magic, version, streams, cells; then a record for
    each cell (its position first), whether values are transposed, layers; then each layer's keys and values, and for a hybrid the
    recurrent state with the position of its own cell."""
    def whole(part):
        return part * (depth // computed) + part[:len(part) // computed * (depth % computed)]
    layers, width = None, 0
    for width in range(8, 40, 4):  # of a cell's record: position, sequences, and what a model's positions ask for besides
        transposed, layers, kind = struct.unpack_from("<III", state, 16 + width * computed)
        if transposed <= 1 and 0 < layers < 256 and kind < 64:
            break
    assert struct.unpack_from("<II", state, 8) == (1, computed) and layers, "a state of another version of llama.cpp"
    cells = bytearray(whole(state[16:16 + width * computed]))
    for i in range(depth):
        struct.pack_into("<i", cells, i * width, i)
    at = 16 + width * computed + 8
    out = [state[:12], struct.pack("<I", depth), bytes(cells), state[at - 8:at]]
    for part in range(2 * layers):
        if part < layers or not transposed:
            _, row = struct.unpack_from("<IQ", state, at)
            out += [state[at:at + 12], whole(state[at + 12:at + 12 + row * computed])]
            at += 12 + row * computed
            continue
        _, size, channels = struct.unpack_from("<III", state, at)
        out.append(state[at:at + 12])
        for channel in range(channels):
            start = at + 12 + channel * size * computed
            out.append(whole(state[start:start + size * computed]))
        at += 12 + channels * size * computed
    rest = bytearray(state[at:])
    if rest:
        struct.pack_into("<i", rest, 4, depth - 1)
    return b"".join(out) + bytes(rest)


class Native:
    """llama.cpp through llama-cpp-python's low-level interface: llama_decode() alone is timed."""
    marked = ""
    compute = False

    def __init__(self, module):
        self.lib = module
        module.llama_backend_init()
        self.info = module.llama_print_system_info().decode()

    def open(self, path, what, depth, threads, flash):
        lib = self.lib
        sequences = SEQUENCES if what == "batch" else 1
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        context = lib.llama_context_default_params()
        context.n_ctx = (depth + PROMPT + DECODED) * sequences
        context.n_batch = context.n_ubatch = PROMPT
        context.n_seq_max = sequences
        context.n_threads = context.n_threads_batch = threads
        if hasattr(context, "flash_attn_type"):
            context.flash_attn_type = 1 if flash else 0
        else:
            context.flash_attn = flash
        self.context = lib.llama_init_from_model(self.model, context)
        if not self.model or not self.context:
            sys.exit(f"llama.cpp cannot open {path}")
        self.memory = lib.llama_get_memory(self.context)
        self.batch = lib.llama_batch_init(PROMPT, 0, 1)
        self.what, self.depth, self.sequences = what, depth, sequences
        computed = depth if Native.compute or sequences > 1 or depth < PROMPT else PROMPT
        for at in range(0, computed, PROMPT):
            for s in range(sequences):
                self.decode([(1000 + i, i, s) for i in range(at, min(at + PROMPT, computed))])
        self.saved = [self.save(s) for s in range(sequences)] if depth else None
        if computed < depth:
            repeated = [repeat_state(bytes(room), computed, depth) for room in self.saved]
            self.saved = [(ctypes.c_uint8 * len(state)).from_buffer_copy(state) for state in repeated]

    def save(self, sequence):
        size = self.lib.llama_state_seq_get_size(self.context, sequence)
        room = (ctypes.c_uint8 * size)()
        self.lib.llama_state_seq_get_data(self.context, room, size, sequence)
        return room

    def restore(self):
        self.lib.llama_memory_clear(self.memory, True)
        for s, room in enumerate(self.saved or []):
            if self.lib.llama_state_seq_set_data(self.context, room, len(room), s) != len(room):
                sys.exit("llama.cpp did not take a state back: try --compute")

    def decode(self, entries):
        batch, vocabulary = self.batch, 1500
        batch.n_tokens = len(entries)
        for i, (token, position, sequence) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token % vocabulary, position, 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = self.what == "batch" or i == len(entries) - 1
        if self.lib.llama_decode(self.context, batch):
            sys.exit("llama_decode failed")
        self.lib.llama_synchronize(self.context)

    def run(self):
        self.restore()
        if self.what == "prefill":
            start = time.perf_counter()
            self.decode([(1000 + i, self.depth + i, 0) for i in range(PROMPT)])
            return PROMPT / (time.perf_counter() - start)
        seconds = []
        for step in range(DECODED):
            start = time.perf_counter()
            self.decode([(1000 + step, self.depth + step, s) for s in range(self.sequences)])
            seconds.append(time.perf_counter() - start)
        return self.sequences / statistics.median(seconds)

    def close(self):
        self.saved = None
        self.lib.llama_batch_free(self.batch)
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)


class Prebuilt:
    """xllamacpp: its server's own timings. One sequence; the depth is a prompt that it keeps."""
    marked = "prebuilt"

    def __init__(self, module):
        self.lib = module
        self.info = module.get_system_info()

    def open(self, path, what, depth, threads, flash):
        params = self.lib.CommonParams()
        params.model.path = path
        params.n_ctx, params.n_parallel, params.warmup = depth + PROMPT + 64, 1, False
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        kind = self.lib.llama_flash_attn_type
        params.flash_attn_type = (kind.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else kind.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        self.server, self.what, self.depth = self.lib.Server(params), what, depth

    def run(self):
        length = PROMPT if self.what == "prefill" else max(self.depth, 1)
        answer = self.server.handle_completions({
            "prompt": [1000 + i % 500 for i in range(length)], "max_tokens": 1 if self.what == "prefill" else DECODED + 1,
            "temperature": 0.0, "ignore_eos": True, "cache_prompt": self.what != "prefill", "timings_per_token": True})
        return answer["timings"]["prompt_per_second" if self.what == "prefill" else "predicted_per_second"]

    def close(self):
        self.server = None


def find_peer():
    try:
        import llama_cpp
        return Native(llama_cpp)
    except ImportError:
        pass
    try:
        import xllamacpp
        return Prebuilt(xllamacpp)
    except ImportError:
        sys.exit("neither llama_cpp nor xllamacpp can be imported: pip install llama-cpp-python, into build/venv-bench")


def measure(peer, path, what, depth, threads, rounds):
    """Ours, theirs without and with flash attention, again and again: a context of theirs is opened once per setting."""
    figures = {"ours": [], "off": [], "on": []}
    peers = {}
    for name, flash in [("off", False), ("on", True)]:
        peers[name] = type(peer)(peer.lib)
        peers[name].open(path, what, depth, threads, flash)
        peers[name].run()
    bounds = []
    for _ in range(rounds):
        rate, bound = ours(path, what, depth, threads)
        figures["ours"].append(rate)
        bounds.append(bound)
        for name, other in peers.items():
            figures[name].append(other.run())
    for other in peers.values():
        other.close()
    return {name: statistics.median(values) for name, values in figures.items()}, statistics.median(bounds)


def plot(rows, path):
    """Decoding against depth, a panel for each model: ours, their better setting, and what the machine's limits allow ours."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    names = [name for name in dict.fromkeys(r["row"] for r in rows if r["what"] == "decode")
             if sum(r["row"] == name for r in rows) > 1]
    figure, axes = pyplot.subplots(1, len(names), figsize=(3.2 * len(names), 2.8), squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names):
        of_name = sorted((r for r in rows if r["row"] == name), key=lambda r: r["depth"])
        depths = [r["depth"] for r in of_name]
        axis.plot(depths, [r["bound"] for r in of_name], "--", color="0.5", label="limit of this machine")
        axis.plot(depths, [r["ours"] for r in of_name], "o-", color="C0", label="evenshare")
        axis.plot(depths, [max(r["off"], r["on"]) for r in of_name], "s-", color="C1", label="llama.cpp, the better setting")
        axis.set(title=name, xlabel="tokens before", ylim=(0, None))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}K")
    axes[0][0].set_ylabel("tokens per second")
    axes[0][0].legend(fontsize="x-small")
    figure.savefig(path, dpi=100)
    from PIL import Image
    Image.open(path).convert("RGB").quantize(24).save(path, optimize=True)  # a quarter of the bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", required=True, help="folder of the models; those that are missing are made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="3 rounds, only rows at a depth of up to 1,024: about ten minutes")
    parser.add_argument("--tiny", action="store_true", help="tiny models at small depths: shows that the script works")
    parser.add_argument("--only", help="rows whose name contains this")
    parser.add_argument("--json", help="write everything to this file too")
    parser.add_argument("--plot", metavar="OUT.png", help="decoding against depth; needs matplotlib")
    parser.add_argument("--compute", action="store_true", help="theirs computes its prompts whole")
    args = parser.parse_args()
    Native.compute = args.compute
    os.makedirs(args.models, exist_ok=True)
    peer = find_peer()
    print("llama.cpp:", peer.marked or "native", "|", peer.info.strip(), flush=True)
    print(f"{'row':24} {'depth':>7} {'ours':>9} {'bound':>9} {'theirs':>9} {'with FA':>9} {'ratio':>6} {'target':>7}")
    rows, made = [], {}
    for name, shape, kind, what, depth, target in ROWS:
        if args.only and args.only not in name:
            continue
        if args.tiny:
            shape, depth = ("tiny-dense" if shape.startswith("qwen3-") else "tiny-hybrid"), min(depth, 256)
        if args.quick and depth > QUICK_DEPTH or what == "batch" and peer.marked:
            continue
        path = os.path.join(args.models, f"{shape}-{kind}.gguf")
        if path not in made and not os.path.exists(path):
            subprocess.run([PROGRAM, "bench", "make-model", shape, "--type", kind, "-o", path], check=True)
        made[path] = True
        found, bound = measure(peer, path, what, depth, args.threads, 3 if args.quick or args.tiny else args.rounds)
        ratio = found["ours"] / max(found["off"], found["on"])
        print(f"{name:24} {depth:7} {found['ours']:9.2f} {bound:9.2f} {found['off']:9.2f} {found['on']:9.2f} {ratio:6.2f} "
              f"{'≥ ' + str(target):>7} {peer.marked}", flush=True)
        rows.append({"row": name, "depth": depth, "what": what, "bound": bound, "ratio": ratio, "target": target,
                     "peer": peer.marked or "native", **found})
    if args.plot:
        plot(rows, args.plot)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"system_info": peer.info, "threads": args.threads, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
