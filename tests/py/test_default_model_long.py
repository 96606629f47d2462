# long
"""The default model finds facts in a document of 32 K tokens, through the server."""
import os
import sys

from eval_recall import Client, recall_at
from serving import SOURCE, real_server

MODEL = os.path.join(SOURCE, "models", "evenshare-default.gguf")


def main():
    if not os.path.exists(MODEL):
        print("skipped: no models/evenshare-default.gguf")
        return 77
    with real_server(MODEL, "--parallel", "1") as server:
        figures = recall_at(Client(server.url), 32768, 1, 10, 1)
    print(figures)
    return 0 if figures["recall"] >= 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
