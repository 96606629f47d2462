"""long_score.py: recall at long lengths through `evenshare score`, one pass over each document.

    python long_score.py EVENSHARE MODEL.gguf [--lengths 65536,131072] [--documents 1] [--questions 30]

A document is followed by many questions as turns of one conversation, with their right answers; the logits of those last
tokens tell for each answer whether every token of it was the model's first choice, which is what greedy decoding would have
said at that turn. So a document of 128 K tokens is computed once for all its questions."""
import argparse
import json
import os
import subprocess
import tempfile

import numpy as np

import evaluate
import generate
import recall
from chatml import chat, render
from world import Rng


def last_logits(path):
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        entry = json.loads(f.read(size))["logits"]
        return np.frombuffer(f.read(), "<f4").reshape(entry["shape"])


def one(program, model, encode, length, number, questions, threads):
    r = Rng(880000 + length + number)
    scale = 1.25                                # documents come out shorter than asked for
    while True:
        r = Rng(880000 + length + number)
        text, facts, _, ledger = evaluate.document(r, max(300, (length - questions * 40) * scale))
        if len(facts) > questions // 2 and len(encode.tokenizer.encode(text).ids) < length - questions * 40 - 100:
            break
        number += 0 if len(facts) > questions // 2 else 1000
        scale -= 0.04 if len(facts) > questions // 2 else 0
    asked = []
    for i in range(questions):
        if i % 5 == 4:
            asked.append((ledger.near_miss(facts).ask(r), recall.UNKNOWN, None))
        else:
            at = min(0.999, (i + r.random()) / questions)
            fact = facts[min(len(facts) - 1, int(at * len(facts)))]
            asked.append((fact.ask(r), fact.answer(), at))
    r.shuffle(asked)
    turns = sum(([q, a] for q, a, _ in asked), [])
    turns[0] = "Read this text.\n\n" + text + "\n\n" + turns[0]
    ids, weights = encode(render(Rng(0), chat(*turns), plain_history=False)[:-2])
    runs, i = [], 0
    while i < len(ids):
        if weights[i] >= 99:
            j = i
            while j < len(ids) and weights[j] >= 99:
                j += 1
            runs.append((i, j))
            i = j
        i += 1
    assert len(runs) == len(asked)
    last = len(ids) - runs[0][0] + 1
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "ids"), os.path.join(folder, "logits")
        with open(source, "w") as f:
            f.write(" ".join(map(str, ids)))
        subprocess.run([program, "score", "-m", model, "--ids", source, "--logits", target, "--last", str(last), "--parallel", "1",
                        "--threads", str(threads)], check=True, stdout=subprocess.DEVNULL)
        first = last_logits(target).argmax(-1)
    base = len(ids) - last
    out = []
    for (a, b), (q, answer, at) in zip(runs, asked):
        ok = all(first[p - 1 - base] == ids[p] for p in range(a, b))
        out.append(dict(ok=ok, depth=at, question=q, answer=answer))
    return len(ids), out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("--lengths", default="65536,131072")
    p.add_argument("--documents", type=int, default=1)
    p.add_argument("--questions", type=int, default=30)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokenizer", default="tokenizer.json")
    p.add_argument("--verbose", action="store_true")
    args = p.parse_args()
    encode = generate.Encoder(args.tokenizer)
    for length in [int(x) for x in args.lengths.split(",")]:
        known, unknown, sizes, depth = [], [], [], {}
        for d in range(args.documents):
            n, rows = one(args.program, args.model, encode, length, d, args.questions, args.threads)
            sizes.append(n)
            for row in rows:
                (unknown if row["depth"] is None else known).append(row["ok"])
                if row["depth"] is not None:
                    depth.setdefault(int(row["depth"] * 10), []).append(row["ok"])
                if args.verbose and not row["ok"]:
                    print("  missed:", row, flush=True)
        print(json.dumps(dict(length=length, tokens=sizes, recall=round(sum(known) / len(known), 4), asked=len(known),
                              depth=[round(sum(depth[i]) / len(depth[i]), 3) if i in depth else None for i in range(10)],
                              unknown=round(sum(unknown) / len(unknown), 4), unknown_asked=len(unknown))), flush=True)


if __name__ == "__main__":
    main()
