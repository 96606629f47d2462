"""generate.py: mixes the kinds of samples, packs them into rows of one length and writes shards of 131,072 tokens.

    python generate.py text  --chars 6000000 > corpus.txt     # what the tokenizer is trained on
    python generate.py show  --length 1024 --count 3          # look at samples
    python generate.py serve --out DATA --tokenizer tokenizer.json --workers 15

`serve` keeps some shards of every length ahead of the trainer, which writes what it has consumed into DATA/state.json.
A shard's content depends on its name alone (length, worker, number). A shard is an .npy array of uint16 [2, 131072]:
token ids and weights in hundredths."""
import argparse
import json
import multiprocessing
import os
import sys
import time
import zlib

import recall
import stories
import tasks
from chatml import END, GIVEN, chat, render
from tooltasks import tool_talk
from world import Rng

SHARD = 131072
LENGTHS = (1024, 8192, 32768, 131072)

READ = ["Here is a text.", "Read this text.", "Read this:", "This is a report.", "Please read the following text.", "Text:", "Notes:", "",
        "Here are some notes.", "I have a text for you.", "Answer my questions about this text."]
SYSTEM = ["Answer from this text.", "You know only what this text says:", "Use the following document to answer.", "Document:", "Here is what you know:",
          "You answer questions about a text. The text:"]
READY = ["I have read it. What would you like to know?", "What do you want to know about it?", "I have read the text. Ask me.", "Done. What is your question?"]


def recall_sample(r, tokens):
    """A document with many questions, in about `tokens` tokens altogether."""
    per = 42
    share = r.pick((0.25, 0.35, 0.5)) if tokens < 2000 else r.pick((0.15, 0.25)) if tokens < 20000 else 0.12
    count = max(1, min(400, int(tokens * share / per)))
    density = r.pick((0.1, 0.3, 0.6, 0.9, 1.0)) if tokens < 20000 else r.pick((0.03, 0.1, 0.3, 0.5))
    relations = None
    if r.flip(0.3):
        relations = r.sample(recall.RELATIONS, r.span(1, 4) if tokens < 4000 else 6)
    text, facts, collections, ledger = recall.build(r, max(30, tokens - count * per - 30), density, stories.filler, relations)
    asked = recall.questions(r, facts, collections, ledger, count)
    given = 0.05 if tokens < 4000 else 0.02
    k = r.random()
    if k < 0.08:
        pieces = [(text + "\n\n", given)]
        q, a = r.pick((("Question: ", "Answer: "), ("Q: ", "A: ")))
        for ask, answer, _ in asked:
            pieces += [(q + ask + "\n" + a.rstrip(), 0.05), (" " + answer, 1.0), ("\n", 0.05)]
        return pieces + [(END, 0.1)]
    thinking = r.flip(0.15)

    def turn(ask, answer, think):
        out = chat(ask, answer)
        if thinking and r.flip(0.7):
            out[-1]["think"] = think
        return out

    messages = []
    if k < 0.30:
        messages.append({"role": "system", "content": r.pick(SYSTEM) + "\n\n" + text})
    elif k < 0.50:
        messages += chat((r.pick(READ) + "\n\n" + text).strip(), r.pick(READY))
    elif k < 0.58:
        ask, answer, think = asked.pop()
        messages += turn(ask + "\n\n" + text, answer, think)
    else:
        ask, answer, think = asked.pop()
        messages += turn((r.pick(READ) + "\n\n" + text + "\n\n" + r.pick(("", "", "Question: ")) + ask).strip(), answer, think)
    for triple in asked:
        messages += turn(*triple)
    if not any(m["role"] == "user" for m in messages):
        messages += chat("Hello", "Hello! How can I help you?")
    for m in messages:
        if len(m["content"]) > 400:
            m["weight"] = given
    return render(r, messages, given=given)


def plain_text(r):
    k = r.random()
    if k < 0.7:
        text = stories.story(r)
    elif k < 0.85:
        text = stories.description(r)
    else:
        text = "\n\n".join(stories.filler(r) for _ in range(r.span(1, 3)))
    return [(text, 0.4), (END, 0.4)]


CHATS = [(tasks.small_talk, 10), (tasks.tell_story, 9), (tasks.introduce, 12), (tasks.persona, 12), (tasks.copy, 10), (tasks.transform, 10),
         (tasks.continue_list, 6), (tasks.count, 8), (tasks.sums, 10), (tasks.json_task, 14), (tasks.yes_no, 4)]
THOUGHTS = {tasks.copy: ["I repeat the text word for word."], tasks.transform: ["I go through the list.", "I look at the list and do what is asked."],
            tasks.continue_list: ["I look for the rule and go on.", "I continue in the same way."],
            tasks.json_task: ["I write JSON in the shape that is asked for.", "The answer must be JSON."],
            tasks.tell_story: ["The user wants a story."], tasks.introduce: ["I look at what the user told me."]}
CHAT_TABLE = [f for f, n in CHATS for _ in range(n)]


def short_sample(r):
    k = r.random()
    if k < 0.08:
        return plain_text(r)
    if k < 0.28:
        messages, tools = tool_talk(r)
        return render(r, messages, tools)
    kind = r.pick(CHAT_TABLE)
    messages = kind(r)
    if k > 0.85 and messages[0]["role"] != "system":
        for _ in range(r.pick((1, 1, 2))):
            kind = r.pick(CHAT_TABLE)
            more = kind(r)
            if more[0]["role"] == "system" or (kind is tasks.introduce and any("name" in m["content"] for m in messages)):
                continue
            messages = messages + more
    if r.flip(0.12) and not any(m.get("think") for m in messages):
        messages[-1]["think"] = r.pick(THOUGHTS[kind]) if kind in THOUGHTS else "I answer directly."
    return render(r, messages)


def sample(r, length):
    """One sample that should fit a row of `length` tokens."""
    if length == 1024:
        if r.flip(0.42):
            return recall_sample(r, r.pick((120, 200, 300, 400, 500, 700, 900)))
        return short_sample(r)
    if length == 8192:
        if r.flip(0.5):
            return recall_sample(r, r.pick((1500, 2500, 4000, 6000, 7400)))
        return short_sample(r)
    if length == 32768:
        if r.flip(0.6):
            return recall_sample(r, r.pick((12000, 20000, 28000)))
        return short_sample(r)
    return recall_sample(r, r.pick((60000, 118000, 118000)))


class Encoder:
    """Token ids and weights of a sample; pieces are encoded apart, as they end where the markup begins a new token."""

    def __init__(self, path):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(path)
        self.end = self.tokenizer.token_to_id(END)

    def __call__(self, pieces):
        ids, weights = [], []
        for part, (_, w) in zip(self.tokenizer.encode_batch_fast([p for p, _ in pieces], add_special_tokens=False), pieces):
            ids += part.ids
            weights += [int(round(w * 100))] * len(part.ids)
        return ids, weights


def long_row(encode, r, length):
    """One row: documents as long as still fit, then short samples."""
    ids, weights, failed = [], [], 0
    sizes = (0.36, 0.6, 0.9, 0.9) if length == 32768 else (0.46, 0.9, 0.9)
    while failed < 6 and len(ids) < length - 100:
        left = length - len(ids)
        size = int(r.pick(sizes) * length)
        long = size < left and (not ids or r.flip(0.6))
        more, w = encode(recall_sample(r, size) if long else short_sample(r))
        if len(more) > left:
            failed += 1
            continue
        ids += more
        weights += w
    return ids, weights


def shard(encode, length, seed):
    """Rows of `length` tokens, SHARD tokens in all. Whole samples only: a sample that fits no open row opens a new one."""
    r = Rng(seed)
    rows = SHARD // length
    if rows <= 4:
        return finish(encode, [long_row(encode, r, length) for _ in range(rows)], length)
    done, open_rows = [], []
    limit = 6
    waiting = 0
    while len(done) < rows:
        ids, weights = encode(sample(r, length))
        if len(ids) > length:
            continue
        best = None
        for row in open_rows:
            if len(row[0]) + len(ids) <= length and (best is None or len(row[0]) > len(best[0])):
                best = row
        if best is None:
            if len(open_rows) >= limit:
                waiting += 1
                if waiting < 6:
                    continue
                waiting = 0
                open_rows.sort(key=lambda row: -len(row[0]))
                done.append(open_rows.pop(0))
                if len(done) >= rows:
                    break
            best = ([], [])
            open_rows.append(best)
        best[0].extend(ids)
        best[1].extend(weights)
        if len(best[0]) > length - (24 if length <= 1024 else 200):
            open_rows = [row for row in open_rows if row is not best]
            done.append(best)
            waiting = 0
    return finish(encode, done[:rows], length)


def finish(encode, done, length):
    import numpy
    out = numpy.zeros((2, SHARD // length, length), dtype=numpy.uint16)
    out[0, :, :] = encode.end
    for i, (ids, weights) in enumerate(done):
        out[0, i, :len(ids)] = ids
        out[1, i, :len(weights)] = weights
    return out.reshape(2, SHARD)


def produced(out, length):
    return sum(1 for name in os.listdir(os.path.join(out, str(length))) if name.endswith(".npy"))


def work(args, index):
    """One worker: makes the shard that is wanted most, until state.json says stop."""
    import numpy
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.nice(5)
    encode = Encoder(args.tokenizer)
    numbers = {length: 0 for length in LENGTHS}
    while True:
        state = {"used": {}, "ahead": {"1024": 300, "8192": 40, "32768": 12, "131072": 8}, "stop": False}
        try:
            with open(os.path.join(args.out, "state.json")) as f:
                state.update(json.load(f))
        except (OSError, ValueError):
            pass
        if state["stop"] or time.time() > args.until:
            return
        best, need = None, 1.0
        for length in LENGTHS:
            ahead = state["ahead"].get(str(length), 0)
            if ahead:
                ratio = (produced(args.out, length) - state["used"].get(str(length), 0)) / ahead
                if ratio < need:
                    best, need = length, ratio
        if best is None:
            time.sleep(0.3)
            continue
        name = "w%02d_%05d" % (index, numbers[best])
        numbers[best] += 1
        array = shard(encode, best, zlib.crc32(("%d %s %d" % (best, name, args.seed)).encode()))
        path = os.path.join(args.out, str(best), name)
        with open(path + ".part", "wb") as f:
            numpy.save(f, array)
        os.rename(path + ".part", path + ".npy")


def serve(args):
    for length in LENGTHS:
        os.makedirs(os.path.join(args.out, str(length)), exist_ok=True)
    args.until = time.time() + args.seconds
    workers = [multiprocessing.Process(target=work, args=(args, i)) for i in range(args.workers)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


def corpus(args):
    r = Rng(args.seed)
    size = 0
    while size < args.chars:
        text = "".join(p for p, _ in sample(r, r.pick((1024, 1024, 1024, 8192))))
        for mark in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"):
            text = text.replace(mark, "")
        size += len(text)
        sys.stdout.write(text + "\n")


def show(args):
    r = Rng(args.seed)
    for _ in range(args.count):
        for text, weight in sample(r, args.length):
            sys.stdout.write(text if weight < 0.3 else "\x1b[32m" + text + "\x1b[0m")
        sys.stdout.write("\n-----\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("text", "show", "serve"))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--chars", type=int, default=6000000)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--count", type=int, default=3)
    p.add_argument("--out", default="data")
    p.add_argument("--tokenizer", default="tokenizer.json")
    p.add_argument("--workers", type=int, default=15)
    p.add_argument("--seconds", type=float, default=3600)
    args = p.parse_args()
    {"text": corpus, "show": show, "serve": serve}[args.what](args)


if __name__ == "__main__":
    main()
