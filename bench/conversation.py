#!/usr/bin/env python3
"""A conversation of twenty turns with our server and with llama.cpp's, on the same machine, model file and number of threads.

    bench/conversation.py MODEL.gguf [--turns 20] [--words 120] [--threads 2] [--json OUT.json] [--plot OUT.png] [--only ours]

For each turn: how many tokens the prompt has, how many of them came from the server's cache, and the time from the request to
the first token of its answer. The whole history is sent each turn, as clients do, with the model's own chat template: one that
leaves old reasoning out makes each prompt part from the one before inside its end. Each server keeps its own history, since
answers may differ in a token.

Theirs is the server inside xllamacpp (PyPI), whose code is prebuilt and leaves instruction sets unused: its times are marked so,
its cached tokens are what they are. The two take turns, a turn of the conversation each, so that a machine that drifts drifts for
both. The plot needs matplotlib."""
import argparse
import json
import os
import platform
import subprocess
import sys
import time
import urllib.request

PROGRAM = os.environ.get("EVENSHARE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release", "evenshare"))
NAMES = {"ours": "evenshare", "theirs": "llama.cpp's server (xllamacpp, prebuilt)"}


def serve_theirs(model, threads, context):
    """In a process of its own: tells its address, and goes when its standard input ends."""
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.port = model, context, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.use_jinja = True
    server = xllamacpp.Server(params)
    print(json.dumps({"url": server.listening_address}), flush=True)
    sys.stdin.read()
    os._exit(0)  # its threads need not be waited for


class Served:
    """A server in a process of its own."""

    def __init__(self, who, args):
        if who == "ours":
            command = [PROGRAM, "serve", "-m", args.model, "--port", "0", "--json", "--threads", str(args.threads), "--ctx", str(args.ctx)]
        else:
            command = [sys.executable, os.path.abspath(__file__), args.model, "--serve-theirs", "--threads", str(args.threads),
                       "--ctx", str(args.ctx)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=None if args.verbose else subprocess.DEVNULL)
        for line in self.process.stdout:
            if line.startswith("{") and "url" in line:
                self.url = json.loads(line)["url"]
                return
        sys.exit(f"{NAMES[who]} did not start (--verbose shows why)")

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(30)

    def ask(self, messages, tokens):
        """(the answer, its row of figures)."""
        body = json.dumps({"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                           "stream_options": {"include_usage": True}}).encode()
        request = urllib.request.Request(self.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
        began, first, text, usage, timings = time.perf_counter(), None, "", {}, {}
        with urllib.request.urlopen(request, timeout=3600) as reply:
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                usage, timings = chunk.get("usage") or usage, chunk.get("timings") or timings
                for choice in chunk.get("choices", []):
                    delta = choice.get("delta", {})
                    if first is None and (delta.get("content") or delta.get("reasoning_content")):
                        first = time.perf_counter() - began
                    text += delta.get("content") or ""
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        return text, {"prompt_tokens": usage.get("prompt_tokens"), "first_token_seconds": first,
                      "cached_tokens": timings.get("cache_n", 0) if cached is None else cached,
                      "seconds": time.perf_counter() - began}


def question(turn, words):
    """Made-up sentences, others each turn."""
    parts, colours = [], ["red", "blue", "green", "grey", "old", "small", "round", "last"]
    for i in range(max(1, words // 12)):
        n = turn * 1009 + i * 37
        parts.append(f"Box {n % 911} is {colours[n % 8]} and holds {n % 97} coins, {n % 13} keys and a note.")
    return " ".join(parts) + " Which box holds the most coins?"


def plot(rows, path):
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("no plot: matplotlib is not there", file=sys.stderr)
        return
    figure, (share, first) = plt.subplots(2, 1, figsize=(7, 6), sharex=True)
    for who, turns in rows.items():
        x = [i + 1 for i in range(len(turns))]
        share.plot(x, [100 * t["cached_tokens"] / t["prompt_tokens"] for t in turns], "o-", label=NAMES[who])
        first.plot(x, [1000 * (t["first_token_seconds"] or float("nan")) for t in turns], "o-", label=NAMES[who])
    share.set_ylabel("prompt from the cache, %")
    share.set_ylim(-3, 103)
    share.legend()
    first.set_ylabel("first token, ms")
    first.set_ylim(bottom=0)
    first.set_xlabel("turn")
    for axis in (share, first):
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--words", type=int, default=120, help="of each question, about")
    parser.add_argument("--answer", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ctx", type=int, default=16384)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--json")
    parser.add_argument("--plot")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--serve-theirs", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_theirs:
        serve_theirs(args.model, args.threads, args.ctx)
    who = [args.only] if args.only else list(NAMES)
    servers = {w: Served(w, args) for w in who}
    rows, history = {w: [] for w in who}, {w: [] for w in who}
    try:
        for w in who:  # weights are read, and nothing of the conversation is known yet
            servers[w].ask([{"role": "user", "content": "Hello."}], 4)
        print(f"{'turn':>4} {'':>8} {'prompt':>8} {'cached':>8} {'share':>7} {'first token':>12}")
        for turn in range(args.turns):
            for w in who:
                history[w].append({"role": "user", "content": question(turn, args.words)})
                text, row = servers[w].ask(history[w], args.answer)
                history[w].append({"role": "assistant", "content": text or "-"})
                rows[w].append(row)
                print(f"{turn + 1:4} {w:>8} {row['prompt_tokens']:8} {row['cached_tokens']:8} "
                      f"{100 * row['cached_tokens'] / row['prompt_tokens']:6.1f}% {1000 * (row['first_token_seconds'] or 0):9.1f} ms",
                      flush=True)
    finally:
        for server in servers.values():
            server.close()
    # What a turn could have found is what the turn before it had: its own question is new.
    for w in who:
        could = sum(row["prompt_tokens"] for row in rows[w][:-1])
        print(f"{NAMES[w]}: of {could} tokens that the turns before had, {sum(r['cached_tokens'] for r in rows[w][1:])} came from the cache")
    if args.json:
        with open(args.json, "w", encoding="utf8") as file:
            json.dump({"machine": platform.processor() or platform.machine(), "model": os.path.basename(args.model),
                       "threads": args.threads, "turns": args.turns, "answer_tokens": args.answer,
                       "servers": {w: {"name": NAMES[w], "turns": rows[w]} for w in who}}, file, indent=1)
            file.write("\n")
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
