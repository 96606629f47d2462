"""Front end and engine are two processes: the engine may be killed or hang under load, and every accepted request still ends
exactly once, the clients' counts and the metrics agree, and service comes back. Also: who waits hears something."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import serving

FAULTY = os.path.join(serving.BUILD, "tests", "evenshare_faulty")
LONG = {"prompt": [5, 6, 7, 8], "max_tokens": 100000, "ignore_eos": True}
SHORT = {"prompt": [5, 6, 7, 8], "max_tokens": 8, "ignore_eos": True, "temperature": 0, "logprobs": 1}


def children(pid):
    """Processes that some thread of `pid` has started."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except FileNotFoundError:
        pass
    return found


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def health(server):
    """(HTTP status, reply)"""
    try:
        with urllib.request.urlopen(server.url + "/health", timeout=20) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def is_up(server):
    return health(server)[0] == 200


def metrics(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=20) as reply:
        text = reply.read().decode()
    return {m[1]: float(m[2]) for m in re.finditer(r"^(evenshare_\S+) (\S+)$", text, re.M)}


def ask(server, path, body):
    """One request, on its own connection: (status, headers, body without its chunks)."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    return reply.status, {k.lower(): v for k, v in reply.getheaders()}, data


class Crowd:
    """Clients in threads, each with one request; counts how they ended as a client would see it."""

    def __init__(self, server, bodies, path="/v1/completions"):
        self.server, self.path, self.outcomes, self.lock = server, path, [], threading.Lock()
        self.threads = [threading.Thread(target=self.one, args=(body,)) for body in bodies]
        for t in self.threads:
            t.start()

    def one(self, body):
        status, headers, reply = ask(self.server, self.path, body)
        how = "whole"
        if status != 200:
            error = json.loads(reply)["error"]
            how = "refused" if status < 500 else "failed"
            assert error["message"] and (status == 500 or headers.get("retry-after")), (status, headers, error)
        elif body.get("stream"):
            ends = [line for line in reply.split(b"\n\n") if line.startswith((b"data: [DONE]", b'data: {"error"'))]
            assert len(ends) == 1, reply[-500:]
            how = "whole" if ends[0] == b"data: [DONE]" else "failed"
        with self.lock:
            self.outcomes.append((how, status, reply))

    def join(self):
        for t in self.threads:
            t.join(120)
            assert not t.is_alive(), "a request never ended"
        return self.outcomes

    def count(self, how):
        return sum(o[0] == how for o in self.outcomes)


class Faulty(serving.Server):
    """The real server with kernels that hang once the file `trap` exists."""

    def __init__(self, *options, deadline=4):
        self.trap = os.path.join(where, "trap")
        self.errors = os.path.join(where, "errors")
        faults = ",".join(f"{s}/rmsnorm=late" for s in ("avx512", "avx2", "reference"))
        self.environment = dict(os.environ, ES_TRUST="all", ES_FAULT=faults, ES_FAULT_FILE=self.trap)
        super().__init__([FAULTY, "serve", "-m", serving.oracle_model(), "--port", "0", "--json", "--ctx", "4096", "--parallel",
                          "2", "--step-deadline", str(deadline), *options])

    def start(self):
        # a group of its own: what a terminal sends to a group can be sent to it
        return subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=open(self.errors, "w", encoding="utf8"), text=True,
                                env=self.environment, start_new_session=True)

    def engine(self):
        found = []
        assert wait_for(lambda: found.extend(children(self.process.pid)) or found)
        return found[0]


def agree(server, crowds):
    """The metrics count what the clients counted."""
    assert wait_for(lambda: health(server)[1]["requests"] == 0)
    seen = metrics(server)
    for how in "whole", "failed", "refused":
        counted = sum(c.count(how) for c in crowds)
        assert seen[f'evenshare_requests_ended_total{{how="{how}"}}'] == counted, (how, counted, seen)
    assert seen['evenshare_requests_ended_total{how="left"}'] == 0
    assert seen["evenshare_requests_received_total"] == sum(len(c.outcomes) for c in crowds)
    return seen


def an_engine_that_is_killed_or_hangs_under_load_comes_back():
    with Faulty() as server:
        right = Crowd(server, [SHORT])
        (_, _, answer), = right.join()
        answer = json.loads(answer)["choices"]
        crowds = [right]
        # twice at once, so that the second time there is a pause in which everyone is told
        told = []
        for kill in range(2):
            assert wait_for(lambda: is_up(server))
            crowds.append(Crowd(server, [dict(LONG, max_tokens=4000, stream=i % 2 == 0) for i in range(9)]))
            assert wait_for(lambda: health(server)[1]["running"] == 2)
            os.kill(server.engine(), signal.SIGKILL)
            while not told or told[-1][1]["engine_restarts"] <= kill:
                told.append(health(server))
            crowds[-1].join()
            if kill == 1:
                down = [t for t in told if t[0] == 503]
                assert down and down[0][1]["status"] == "restarting" and "signal 9" in down[0][1]["reason"], down[0]
        assert sum(c.count("failed") for c in crowds) >= 4
        for how, status, reply in crowds[1].outcomes + crowds[2].outcomes:
            if how == "failed":
                assert status in (200, 500, 503) and b"engine" in reply, (status, reply[-300:])
        # a kernel that never returns
        assert wait_for(lambda: is_up(server))
        crowds.append(Crowd(server, [dict(LONG, max_tokens=4000, stream=i % 2 == 0) for i in range(6)]))
        assert wait_for(lambda: health(server)[1]["running"] == 2)
        before = health(server)[1]["engine_restarts"]
        open(server.trap, "w", encoding="utf8").close()
        assert wait_for(lambda: not os.path.exists(server.trap))
        begin = time.monotonic()
        assert is_up(server) and time.monotonic() - begin < 2 # not an instant of it is spent waiting for the engine
        crowds[-1].join()
        assert b"passed its deadline of 4 s" in b"".join(o[2] for o in crowds[-1].outcomes)
        assert wait_for(lambda: health(server)[1]["engine_restarts"] == before + 1)
        with open(server.errors, encoding="utf8") as file:
            said = file.read()
        assert re.search(r"deadline of 4 s: \d sequences, \d+ rows \(\d+ of prompts\), depth \d+", said), said
        # the same answer as before it all
        crowds.append(Crowd(server, [SHORT]))
        assert json.loads(crowds[-1].join()[0][2])["choices"] == answer
        seen = agree(server, crowds)
        assert seen["evenshare_engine_restarts_total"] == 3 and seen["evenshare_engine_up"] == 1


def the_engine_goes_with_its_front_end():
    with Faulty() as server:
        engine = server.engine()
        # what stops a front end for good is no business of its engine's, or answers would be cut off
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            os.kill(engine, number)
        crowd = Crowd(server, [dict(SHORT, stream=True)])
        assert crowd.join()[0][0] == "whole"
        server.process.kill()
        assert wait_for(lambda: not is_alive(engine))
        server.process.wait()
        server.process.returncode = 0
    for number in signal.SIGINT, signal.SIGHUP:
        with Faulty() as server:
            engine = server.engine()
            crowd = Crowd(server, [dict(LONG, max_tokens=100, stream=i % 2 == 0) for i in range(3)])
            # all of them have come: a server that stops accepts no more
            assert wait_for(lambda: health(server)[1]["requests"] + len(crowd.outcomes) >= len(crowd.threads))
            os.killpg(server.process.pid, number) # as a terminal would: both get it
            assert [o[0] for o in crowd.join()] == ["whole"] * 3
            assert server.process.wait(60) == 0 and wait_for(lambda: not is_alive(engine))


def a_full_queue_turns_away_before_anything_is_sent():
    with Faulty("--queue", "3", "--step-budget", "0.001") as server: # which no step can keep: one line tells of it
        crowd = Crowd(server, [dict(LONG, max_tokens=120, stream=i % 2 == 0) for i in range(16)])
        crowd.join()
        assert crowd.count("whole") >= 5 and crowd.count("refused") >= 1 and crowd.count("failed") == 0
        assert all(o[1] == 429 for o in crowd.outcomes if o[0] == "refused")
        agree(server, [crowd])
        with open(server.errors, encoding="utf8") as file:
            told = re.findall(r"a step took \d+ ms, \d+ times its budget of 0.001 ms: \d sequences, \d+ rows \(\d+ of prompts\), depth \d+",
                              file.read())
        assert len(told) >= 1, told


def who_waits_hears_something():
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    with serving.fake_server("keep_alive=0.05", "step_us=300000", "processes=2") as server:
        _, _, reply = ask(server, "/v1/chat/completions", dict(body, stream=True))
        assert reply.count(b": waiting\n\n") >= 3 and reply.endswith(b"data: [DONE]\n\n"), reply
        status, headers, reply = ask(server, "/v1/chat/completions", dict(body, heartbeat=True))
        assert status == 200 and headers["content-type"] == "application/json" and reply.startswith(b"\n\n"), reply
        assert json.loads(reply)["choices"][0]["message"]["content"] == "ab"
        status, _, reply = ask(server, "/v1/chat/completions", body)
        assert status == 200 and reply.startswith(b"{")
        # refused at once: the status is still the right one
        assert ask(server, "/v1/chat/completions", dict(body, heartbeat=True, max_tokens=10**6))[0] == 400
        engine, = children(server.process.pid)
        crowd = Crowd(server, [dict(body, heartbeat=True, max_tokens=1000)], "/v1/chat/completions")
        time.sleep(0.3)
        os.kill(engine, signal.SIGKILL)
        (_, status, reply), = crowd.join()
        assert status == 200 and json.loads(reply)["error"]["code"] in ("internal", "engine_restarting"), (status, reply)
        assert wait_for(lambda: is_up(server))


def progress_is_told_to_who_asks():
    options = ("--ctx", "2048", "--chunk", "64", "--one-process")
    with serving.real_server(serving.oracle_model(), *options) as server:
        body = {"prompt": [1 + i % 200 for i in range(1000)], "max_tokens": 2, "stream": True, "ignore_eos": True}
        assert b"prompt_progress" not in ask(server, "/v1/completions", body)[2]
        body["prompt"][0] = 99
        _, _, reply = ask(server, "/v1/completions", dict(body, return_progress=True))
        chunks = [json.loads(line[6:]) for line in reply.decode().split("\n\n") if line.startswith("data: {")]
        told = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
        assert len(told) > 3 and all(t["total"] == 1000 and t["cache"] == 0 for t in told), told
        done = [t["processed"] for t in told]
        assert done == sorted(done) and done[-1] >= 999, done
        assert all("choices" in c for c in chunks)


if __name__ == "__main__":
    if not os.path.exists(FAULTY):
        serving.skip("evenshare_faulty was not built")
    with tempfile.TemporaryDirectory() as where:
        serving.run([an_engine_that_is_killed_or_hangs_under_load_comes_back, the_engine_goes_with_its_front_end,
                     a_full_queue_turns_away_before_anything_is_sent, who_waits_hears_something, progress_is_told_to_who_asks])
    sys.exit(0)
