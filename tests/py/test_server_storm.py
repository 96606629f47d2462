"""Bad clients of every kind at once, with good ones between them, while the engine is killed again and again: every accepted
request ends exactly once, the good clients' counts and the metrics agree, and nothing is left behind. Two seconds; with
ES_LONG=1 a minute, and another one of the program with the address sanitizer, if there is one: it tells of leaks too."""
import json
import os
import random
import signal
import socket
import threading
import time

import serving
from test_server_process import ask, children, health, is_up, metrics, wait_for

SECONDS = 60 if os.environ.get("ES_LONG") else 2
HELLO = [{"role": "user", "content": "hello"}]
ENDLESS = {"messages": HELLO, "stream": True, "ignore_eos": True, "max_tokens": 4000}
NONSENSE = [b"", b"{", b"[1,2", b'{"messages":' + b"[" * 5000, b'{"messages":[]}' * 2, b'{"a":1,"a":2}', b"\x00" * 50,
            b'{"messages":[{"role":"user","content":"\xff\xfe"}]}', b'{"messages":[{"role":"user","content":"\\ud800"}]}',
            json.dumps({"messages": HELLO}).encode()[:-3], b'{"max_tokens":' + b"9" * 400 + b"}"]


def raw(body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data


class Storm:
    def __init__(self, server):
        self.server, self.lock, self.failures = server, threading.Lock(), []
        self.counts = {}
        self.until = time.monotonic() + SECONDS

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def good(self, dice):
        body = {"messages": HELLO, "max_tokens": dice.choice([1, 5, 26]), "stream": dice.random() < 0.5,
                "heartbeat": dice.random() < 0.5, "n": dice.choice([1, 1, 3])}
        status, headers, reply = ask(self.server, "/v1/chat/completions", body)
        if status != 200:
            assert status in (429, 500, 503) and json.loads(reply)["error"]["message"], (status, reply)
            assert status == 500 or headers["retry-after"]
            self.count("refused" if status == 429 else "failed")
        elif body["stream"]:
            done, broken = reply.count(b"data: [DONE]"), reply.count(b'data: {"error"')
            assert done + broken == 1, reply[-500:]
            self.count("whole" if done else "failed")
        else:
            self.count("failed" if "error" in json.loads(reply) else "whole")

    def nonsense(self, dice):
        status, _, reply = self.server.post("/v1/chat/completions", dice.choice(NONSENSE))
        assert status == 400 and b'"error"' in reply, (status, reply)
        self.count("refused")

    def vanisher(self, dice):
        request = raw(ENDLESS)
        whole = dice.random() < 0.5
        with self.server.connect() as s:
            s.sendall(request if whole else request[:dice.randrange(len(request))])
            time.sleep(dice.random() * 0.02)
            if dice.random() < 0.5:  # a reset instead of an orderly end
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        if whole:
            self.count("vanished")

    def stalled(self, dice):
        with self.server.connect() as s:
            s.sendall(raw(ENDLESS))
            time.sleep(dice.random() * 0.5)
        self.count("vanished")

    def idler(self, dice):
        with self.server.connect() as s:
            s.sendall(b"POST /v1/chat/comp"[:dice.randrange(19)])
            time.sleep(dice.random() * 0.3)

    def large(self):
        status, _, _ = self.server.post("/v1/chat/completions", b"[" * (65 << 20), 120)
        if status != 413:
            self.failures.append(("large", status))

    def watcher(self, _dice):
        assert health(self.server)[0] in (200, 503)
        assert metrics(self.server)["evenshare_requests_received_total"] >= 0

    def run(self, kind, seed):
        dice = random.Random(seed)
        try:
            while time.monotonic() < self.until:
                kind(dice)
        except Exception as error:  # pylint: disable=broad-except
            self.failures.append((kind.__name__, error))

    def rage(self):
        kinds = [self.good] * 8 + [self.nonsense] * 2 + [self.vanisher] * 4 + [self.stalled] * 3 + [self.idler, self.watcher]
        threads = [threading.Thread(target=self.run, args=(kind, i)) for i, kind in enumerate(kinds)]
        for t in threads:
            t.start()
        large = threading.Thread(target=self.large)
        large.start()
        killed = set()
        for _ in range(4):
            time.sleep(SECONDS / 5)
            for engine in children(self.server.process.pid):
                os.kill(engine, signal.SIGKILL)
                killed.add(engine)
        for t in threads + [large]:
            t.join(120)
            assert not t.is_alive()
        assert not self.failures, self.failures[:3]
        return len(killed)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def rage_at(program, prefix=()):
    options = ["processes=2", "capacity=24", "step_us=300", "output_limit=100000", "keep_alive=0.05"]
    with serving.Server([*prefix, program, *options]) as server:
        assert is_up(server)
        before = descriptors(server.process.pid)
        storm = Storm(server)
        deaths = storm.rage()
        assert deaths >= 2 and wait_for(lambda: is_up(server) and health(server)[1]["engine_restarts"] == deaths), deaths
        assert wait_for(lambda: (lambda h: h["requests"] == 0 and h["running"] == 0 and h["connections"] == 1)(health(server)[1]))
        assert wait_for(lambda: descriptors(server.process.pid) <= before + 2), (before, descriptors(server.process.pid))
        assert len(children(server.process.pid)) == 1
        seen = metrics(server)
        ends = {how: seen[f'evenshare_requests_ended_total{{how="{how}"}}'] for how in ("whole", "refused", "failed", "left")}
        counts = {how: storm.counts.get(how, 0) for how in ("whole", "refused", "failed", "vanished")}
        received = seen["evenshare_requests_received_total"]
        told = (ends, counts, received)
        assert received == sum(ends.values()), told
        # who vanished may still have been answered, refused, or never read
        good = counts["whole"] + counts["refused"] + counts["failed"]
        assert good <= received <= good + counts["vanished"], told
        assert ends["whole"] == counts["whole"], told # nobody can vanish and have so long an answer whole
        for how in "refused", "failed":
            assert counts[how] <= ends[how] <= counts[how] + counts["vanished"], told
        assert counts["whole"] > 10 and counts["failed"] > 0, told
        print(told)


def nothing_is_left_behind_by_a_storm():
    rage_at(os.path.join(serving.BUILD, "tests", "fake_server"))


def no_byte_either():
    # sanitizers of this age cannot map their shadow where newer kernels scatter addresses widely
    program = os.path.join(serving.SOURCE, "build", "asan", "tests", "fake_server")
    if os.environ.get("ES_LONG") and os.path.exists(program):
        rage_at(program, ["setarch", "--addr-no-randomize"])


if __name__ == "__main__":
    if not os.path.exists(os.path.join(serving.BUILD, "tests", "fake_server")):
        serving.skip("tests/tools/fake_server was not built")
    serving.run([nothing_is_left_behind_by_a_storm, no_byte_either])
