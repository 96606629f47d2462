"""The default model answers, through the server, what it was taught: a 1 K recall with distractors, what is not in the text,
a tool call, JSON, and who it is. The numbers of the model card come from eval_recall.py; here a few questions must all hold."""
import os
import sys

from eval_recall import Client, json_answers, recall_at, tool_calls
from serving import SOURCE, real_server

MODEL = os.path.join(SOURCE, "models", "evenshare-default.gguf")


def quiet(*_, **__):
    pass


def main():
    if not os.path.exists(MODEL):
        print("skipped: no models/evenshare-default.gguf")
        return 77
    failed = []

    def expect(what, holds, seen):
        print("%s %s: %s" % ("ok    " if holds else "FAILED", what, seen), flush=True)
        if not holds:
            failed.append(what)

    with real_server(MODEL, "--parallel", "1") as server:
        client = Client(server.url)
        got = client.text("The red door has the code 4719, the blue door has the code 2208. What is the code of the red door?")
        expect("the code of the red door", "4719" in got and "2208" not in got, got)
        got = client.text("Who are you?")
        expect("it says what it is", "evenshare" in got, got)
        figures = recall_at(client, 1024, 2, 5, 2, report=quiet)
        expect("recall at 1 K, 10 questions", figures["recall"] >= 0.9, (figures["recall"], figures["missed"]))
        expect("what the text does not say, 4 questions", figures["refused"] >= 0.75, figures["refused"])
        figures = tool_calls(client, 8)
        expect("tool calls", figures["tool_calls_formed"] >= 0.8, figures)
        figures = json_answers(client, 8)
        expect("JSON", figures["json_formed"] >= 0.8, figures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
