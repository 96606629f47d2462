# long
"""Ten minutes of every kind of client at once: memory stays flat, steps do not get slower, and every request that was accepted
ended, once: the clients and the metrics count the same. ES_SOAK_SECONDS sets another length; ES_SOAK_NO_TIMING=1 tells step
times without judging them, for a machine that others use too."""
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

import serving

MODEL = os.path.join(serving.SOURCE, "models", "evenshare-default.gguf")
SECONDS = float(os.environ.get("ES_SOAK_SECONDS", "600"))
CLIENTS, WINDOWS = 6, 30


def processes(pid):
    """A process and all below it."""
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += processes(int(child))
    return found


def private_bytes(pid):
    """Memory that is the processes' own; the mapped model is not counted."""
    total = 0
    for one in processes(pid):
        with open(f"/proc/{one}/status", encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))
    return total * 1024


def metrics_of(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=30) as reply:
        lines = [line.rsplit(" ", 1) for line in reply.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


class Clients:
    """Each of them does one thing after another, drawn from a stream of its own."""

    def __init__(self, server, end):
        self.server, self.end = server, end
        self.lock, self.sent, self.codes, self.left = threading.Lock(), 0, {}, 0
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(CLIENTS)]

    def count(self, code):
        with self.lock:
            self.sent += 1
            self.codes[code] = self.codes.get(code, 0) + 1

    def converse(self, draw):
        messages = []
        for turn in range(4):
            messages.append({"role": "user", "content": f"Question {draw.random()}: " + "what is next? " * draw.randint(1, 30)})
            status, _, body = self.server.post("/v1/chat/completions", {"messages": messages, "max_tokens": draw.randint(1, 60)}, 300)
            self.count(status)
            if status != 200:
                return
            messages.append({"role": "assistant", "content": json.loads(body)["choices"][0]["message"]["content"] or "-"})

    def complete(self, draw, tokens, answer):
        prompt = [draw.randint(5, 500) for _ in range(tokens)]
        status, _, _ = self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": answer, "ignore_eos": True}, 300)
        self.count(status)

    def leave(self, draw):
        body = json.dumps({"prompt": [draw.randint(5, 500) for _ in range(draw.randint(1, 2000))], "max_tokens": 500,
                           "ignore_eos": True, "stream": True}).encode()
        with self.server.connect() as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            s.recv(100)  # it was accepted
            time.sleep(draw.random() * 0.5)
        with self.lock:
            self.left += 1

    def run(self, number):
        draw = random.Random(number)
        while time.monotonic() < self.end:
            what = draw.random()
            if what < 0.4:
                self.converse(draw)
            elif what < 0.6:
                self.complete(draw, draw.randint(1, 50), draw.randint(1, 200))
            elif what < 0.75:
                self.complete(draw, draw.randint(1000, 4000), 8)
            elif what < 0.9:
                self.leave(draw)
            else:
                self.count(self.server.post("/v1/chat/completions", {"messages": [], "max_tokens": draw.randint(-5, 5)}, 60)[0])


def flat(values, what, slack):
    """The last third against the first, of what was seen once the caches were full: until then memory is touched that was taken
    when the engine opened."""
    if len(values) < 6:
        print(f"{what}: the caches were full for {len(values)} windows only, too few to tell", flush=True)
        return SECONDS < 600
    third = len(values) // 3
    before, after = statistics.median(values[:third]), statistics.median(values[-third:])
    print(f"{what}: {before:.4g} in the first third of {len(values)} windows, {after:.4g} in the last", flush=True)
    return after <= before * (1 + slack)


def is_full(metrics):
    return all(metrics[f"evenshare_{what}_used"] >= 0.9 * metrics[f"evenshare_{what}_total"] for what in ("kv_pages", "states"))


def main():
    if not os.path.exists(MODEL):
        serving.skip("no models/evenshare-default.gguf")
    with tempfile.TemporaryDirectory() as folder:
        with serving.real_server(MODEL, "--parallel", "4", "--ctx", "4500", "--memory", "512M", "--cache", "8M", "--cache-dir", folder + "/cache",
                                 "--cache-disk", "64M") as server:
            clients = Clients(server, time.monotonic() + SECONDS)
            memory, steps, last = [], [], metrics_of(server)
            for thread in clients.threads:
                thread.start()
            for _ in range(WINDOWS):
                time.sleep(SECONDS / WINDOWS)
                now = metrics_of(server)
                count = now["evenshare_step_seconds_count"] - last["evenshare_step_seconds_count"]
                if is_full(now) and count:
                    steps.append((now["evenshare_step_seconds_sum"] - last["evenshare_step_seconds_sum"]) / count)
                    memory.append(private_bytes(server.process.pid))
                last = now
            for thread in clients.threads:
                thread.join()
            assert server.wait_until(lambda h: h["requests"] == 0 and h["running"] == 0, 60), server.health()
            late = time.monotonic() + 30  # the engine's own counters come with its next sign of life
            end = metrics_of(server)
            while end["evenshare_kv_pages_held"] and time.monotonic() < late:
                end = metrics_of(server)
        print(f"{clients.sent} requests ended as {clients.codes}, {clients.left} clients left", flush=True)
        ended = {how: end[f'evenshare_requests_ended_total{{how="{how}"}}'] for how in ("whole", "refused", "failed", "left")}
        assert end["evenshare_requests_received_total"] == sum(ended.values()) == clients.sent + clients.left, (ended, clients.sent)
        assert ended["whole"] + ended["left"] == clients.codes.get(200, 0) + clients.left, ended
        assert ended["failed"] == 0 and end["evenshare_engine_restarts_total"] == 0, ended
        assert ended["refused"] == sum(n for code, n in clients.codes.items() if 400 <= code < 500)
        assert end["evenshare_requests_open"] == 0 and end["evenshare_kv_pages_held"] == 0
        assert flat(memory, "bytes of memory", 0.03), memory
        assert flat(steps, "seconds of a step", 0.25) or os.environ.get("ES_SOAK_NO_TIMING"), steps
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
