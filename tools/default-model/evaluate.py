"""evaluate.py: what a checkpoint can do, by PyTorch: recall by length and depth, questions without an answer, and every skill.

    python evaluate.py CHECKPOINT.pt [--lengths 1024,8192,...] [--count 60] [--device cuda]

An answer counts only if every token of it is the model's first choice after the right ones before it, which is the same as
greedy decoding giving exactly that answer. Documents and questions are drawn with seeds that training never used."""
import argparse
import json

import torch

import generate
import recall
import stories
import tasks
from chatml import chat, render
from model import Model
from tooltasks import tool_talk
from world import Rng

DEPTHS = 10


def document(r, tokens):
    return recall.build(r, int(tokens * 0.9) - 60, r.pick((0.05, 0.15, 0.3)), stories.filler)


def prompt(text, ask, answer):
    return render(Rng(0), chat("Read this text.\n\n" + text + "\n\n" + ask, answer))


def right(model, encode, pieces, device):
    """Whether all of the last turn's spoken tokens are first choices; the number of tokens."""
    ids, weights = encode(pieces)
    last = len(ids)
    while weights[last - 1] < 99:
        last -= 1
    first = last
    while first and weights[first - 1] >= 99:
        first -= 1
    x = torch.tensor([ids[:last]], device=device)
    with torch.no_grad():
        hidden, _ = model.trunk(x)
        norm, embed = model.w["model.norm.weight"], model.w["model.embed_tokens.weight"]
        got = model.fn["head"](hidden[first - 1:last - 1], norm, embed, model.dtype).float().argmax(-1)
    return bool((got.cpu() == torch.tensor(ids[first:last])).all()), len(ids)


def by_depth(model, encode, length, count, device):
    hits = [[0, 0] for _ in range(DEPTHS)]
    unknown = [0, 0]
    sizes = []
    documents = max(5, count // 10)
    for d in range(documents):
        r = Rng(770000 + length * 31 + d)
        text, facts, _, ledger = document(r, length)
        for i in range(max(1, count // documents)):
            bin_ = (d * 7 + i) % DEPTHS
            if not facts:
                continue
            fact = facts[min(len(facts) - 1, int((bin_ + r.random()) / DEPTHS * len(facts)))]
            ok, n = right(model, encode, prompt(text, fact.ask(r), fact.answer()), device)
            sizes.append(n)
            hits[bin_][0] += ok
            hits[bin_][1] += 1
        for _ in range(4):
            miss = ledger.near_miss(facts)
            ok, _ = right(model, encode, prompt(text, miss.ask(r), recall.UNKNOWN), device)
            unknown[0] += ok
            unknown[1] += 1
    total = sum(h for h, _ in hits), sum(n for _, n in hits)
    return dict(length=length, tokens=sum(sizes) // max(1, len(sizes)), recall=round(total[0] / total[1], 4), asked=total[1],
                depth=[round(h / n, 3) if n else None for h, n in hits], unknown=round(unknown[0] / unknown[1], 4), unknown_asked=unknown[1])


def skills(model, encode, count, device):
    out = {}
    for kind in [f for f, _ in generate.CHATS] + [tool_talk]:
        good = n = 0
        for i in range(count):
            r = Rng(990000 + i)
            made = kind(r)
            messages, tools = made if kind is tool_talk else (made, None)
            ok, _ = right(model, encode, render(r, messages, tools), device)
            good += ok
            n += 1
        out[kind.__name__] = round(good / n, 3)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("--lengths", default="1024,8192,32768,65536,131072")
    p.add_argument("--count", type=int, default=60)
    p.add_argument("--skills", type=int, default=60)
    p.add_argument("--device", default="cuda")
    p.add_argument("--tokenizer", default="tokenizer.json")
    args = p.parse_args()
    checkpoint = torch.load(args.checkpoint, map_location="cpu")
    model = Model(checkpoint["config"], dtype=torch.bfloat16 if args.device == "cuda" else torch.float32)
    model.load_named({k: v.float() for k, v in checkpoint["tensors"].items()})
    model.prepare(args.device, train=False)
    encode = generate.Encoder(args.tokenizer)
    for length in [int(x) for x in args.lengths.split(",") if x]:
        print(json.dumps(by_depth(model, encode, length, args.count, args.device)), flush=True)
    if args.skills:
        print(json.dumps(skills(model, encode, args.skills, args.device)), flush=True)


if __name__ == "__main__":
    main()
