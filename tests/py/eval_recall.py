"""What the default model answers through an evenshare server: recall by length and depth of the fact, "the text does not say",
tool calls and JSON. Not a test by itself (test_default_model.py asks a little of this in every run); it makes the figures and
the picture of the model card.

    ES_BUILD=build/release ES_SOURCE=. python tests/py/eval_recall.py [--lengths 1024,8192,...] [--documents 5] [--questions 10]
        [--skills 50] [--url http://127.0.0.1:8080] [--out build/recall]

Each document is asked several questions, one request each over the same beginning, so a server with a prefix cache computes
it once. Documents come from tools/default-model with seeds that training never used. Needs no package but matplotlib, and
that only for the picture."""
import argparse
import json
import os
import re
import sys
import time
import urllib.request

SOURCE = os.environ.setdefault("ES_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
os.environ.setdefault("ES_BUILD", os.path.join(SOURCE, "build", "release"))
sys.path.insert(0, os.path.join(SOURCE, "tools", "default-model"))

import recall                                                   # noqa: E402
import stories                                                  # noqa: E402
import tasks                                                    # noqa: E402
import tooltasks                                                # noqa: E402
from world import Rng                                           # noqa: E402

CHARACTERS = 3.55           # a token of such documents, on average; kept low so that a length is not exceeded
DEPTHS = 10


class Client:
    """POST /v1/chat/completions, greedy."""

    def __init__(self, url, timeout=3600):
        self.url, self.timeout = url.rstrip("/"), timeout

    def ask(self, messages, **more):
        body = dict(messages=messages, temperature=0, max_tokens=200, **more)
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self.timeout) as reply:
            answer = json.load(reply)
        self.prompt_tokens = answer["usage"]["prompt_tokens"]
        return answer["choices"][0]["message"]

    def text(self, prompt):
        return (self.ask([{"role": "user", "content": prompt}]).get("content") or "").strip()


def document(r, tokens):
    """About `tokens` tokens of stories and talk with facts in between."""
    density = r.pick((0.05, 0.15, 0.3))
    while True:
        text, facts, _, ledger = recall.build(r, int(tokens * CHARACTERS / 3.6) - 60, density, stories.filler)
        if len(facts) >= DEPTHS:
            return text, facts, ledger
        density = min(1.0, density * 2)


def question(text, ask):
    return "Read this text.\n\n" + text + "\n\n" + ask


def recall_at(client, length, documents, questions, unknown=2, report=print):
    """Figures for one length: recall, recall by depth, and refusals of what isn't in the text."""
    hits = [[0, 0] for _ in range(DEPTHS)]
    refused, asked, sizes, missed = 0, 0, [], []
    for d in range(documents):
        r = Rng(660000 + 17 * length + d)
        text, facts, ledger = document(r, length)
        for i in range(questions):
            depth = (i * DEPTHS // questions + d) % DEPTHS
            fact = facts[min(len(facts) - 1, int((depth + r.random()) / DEPTHS * len(facts)))]
            ask = fact.ask(r)
            got = client.text(question(text, ask))
            sizes.append(client.prompt_tokens)
            hits[depth][0] += got == fact.answer()
            hits[depth][1] += 1
            if got != fact.answer():
                missed.append((ask, fact.answer(), got))
        for _ in range(unknown):
            refused += client.text(question(text, ledger.near_miss(facts).ask(r))) == recall.UNKNOWN
            asked += 1
        report("  %d: document %d of %d" % (length, d + 1, documents), file=sys.stderr, flush=True)
    right, total = sum(h for h, _ in hits), sum(n for _, n in hits)
    return dict(length=length, tokens=sum(sizes) // len(sizes), recall=right / total, asked=total, refused=refused / max(1, asked), refusals_asked=asked,
                depth=[h / n if n else None for h, n in hits], missed=missed[:20])


CALL = re.compile(r"<tool_call>\n<function=([^>\n]+)>\n((?:<parameter=[^>\n]+>\n.*?\n</parameter>\n)*)</function>\n</tool_call>", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)


def calls_of(message, specs):
    """[(name, arguments)]: as the server parsed them or, from a server that doesn't, as the model wrote them."""
    parsed = message.get("tool_calls")
    if parsed:
        return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in parsed]
    text = (message.get("content") or "").strip()
    if CALL.sub("", text).strip():
        return []                                               # something beside the calls
    out = []
    for name, inside in CALL.findall(text):
        known = specs[name]["function"]["parameters"]["properties"]
        out.append((name, {k: v if known[k]["type"] == "string" else json.loads(v) for k, v in PARAMETER.findall(inside)}))
    return out


def tool_calls(client, count):
    """Share of first turns that call the right function with exactly the right arguments, and share that call well-formed."""
    formed = right = 0
    for i in range(count):
        r = Rng(550000 + i)
        chosen = [r.pick(tooltasks.FIXED) if r.flip(0.4) else tooltasks.made_up(r) for _ in range(r.span(1, 4))]
        tool = r.pick(chosen)
        ask, arguments = tooltasks.draw_call(r, tool)
        specs = {t[0]: tooltasks.spec(r, t, 0) for t in chosen}
        specs[tool[0]] = tooltasks.spec(r, tool, 0)
        try:
            got = calls_of(client.ask([{"role": "user", "content": ask}], tools=list(specs.values())), specs)
        except (ValueError, KeyError, TypeError):
            got = []
        formed += len(got) == 1 and got[0][0] in specs
        right += got == [(tool[0], arguments)]
    return dict(tool_calls_formed=formed / count, tool_calls_right=right / count, tool_calls_asked=count)


def shape(value):
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shape(v) for v in value]
    return type(value).__name__


def json_answers(client, count):
    """Share of answers that are JSON of the asked shape, and share that are wholly right."""
    formed = right = n = 0
    for i in range(count):
        made = tasks.json_task(Rng(440000 + i))
        got = client.text(made[0]["content"])
        want = json.loads(made[1]["content"])
        n += 1
        try:
            value = json.loads(got)
        except ValueError:
            continue
        formed += shape(value) == shape(want)
        right += value == want
    return dict(json_formed=formed / n, json_right=right / n, json_asked=n)


def picture(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    grid = [[row["depth"][d] if row["depth"][d] is not None else float("nan") for row in rows] for d in range(DEPTHS)]
    figure, axes = plt.subplots(figsize=(1.6 + 1.1 * len(rows), 4.2))
    image = axes.imshow(grid, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
    axes.set_xticks(range(len(rows)), ["%d K\n%.0f %%" % (row["length"] // 1024, 100 * row["recall"]) for row in rows])
    axes.set_yticks(range(DEPTHS), ["%d–%d %%" % (10 * d, 10 * d + 10) for d in range(DEPTHS)])
    axes.set_xlabel("length in tokens; recall")
    axes.set_ylabel("where the fact stands")
    for d in range(DEPTHS):
        for x in range(len(rows)):
            if grid[d][x] == grid[d][x]:
                axes.text(x, d, "%.0f" % (100 * grid[d][x]), ha="center", va="center", fontsize=8)
    figure.colorbar(image, ax=axes)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lengths", default="1024,8192,32768")
    p.add_argument("--documents", type=int, default=5)
    p.add_argument("--questions", type=int, default=10)
    p.add_argument("--unknown", type=int, default=4)
    p.add_argument("--skills", type=int, default=50)
    p.add_argument("--url")
    p.add_argument("--model", default=os.path.join(SOURCE, "models", "evenshare-default.gguf"))
    p.add_argument("--out", default=os.path.join(SOURCE, "build", "recall"))
    args = p.parse_args()

    def measure(url):
        client = Client(url)
        result = {}
        if args.skills:
            result.update(tool_calls(client, args.skills))
            result.update(json_answers(client, args.skills))
            print(json.dumps(result), flush=True)
        rows = []
        for length in [int(x) for x in args.lengths.split(",") if x]:
            start = time.time()
            rows.append(recall_at(client, length, args.documents, args.questions, args.unknown))
            print(json.dumps(dict(rows[-1], seconds=round(time.time() - start))), flush=True)
            result["recall"] = rows
            with open(args.out + ".json", "w") as f:
                json.dump(result, f, indent=1)
        if rows:
            picture(rows, args.out + ".png")

    if args.url:
        measure(args.url)
    else:
        import serving
        with serving.real_server(args.model, "--parallel", "1") as server:
            measure(server.url)


if __name__ == "__main__":
    main()
