"""`evenshare check` against servers: whole ones pass, and each way of being broken turns its phase red.

The fake server below knows the API well enough to pass every phase. A token is a word. `faults` breaks it in one way each."""
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import serving

BINARY = os.path.join(serving.BUILD, "evenshare")
CONTEXT, PLACES = 3000, 8
NAMES = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima"]


class Fake(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, faults=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults, self.running, self.lock, self.seen = set(faults), 0, threading.Lock(), []
        self.stalled = threading.Event()
        self.stalled.set()

    def handle_error(self, request, client_address):
        pass  # clients that leave are what is tested


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, *_):
        pass

    def fault(self, name):
        return name in self.server.faults

    def reply(self, status, body, headers=(), kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for key, value in [("Content-Type", kind), ("Content-Length", str(len(data))), *headers]:
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def error(self, status, message, code=None, headers=()):
        self.reply(status, {"error": {"message": message, "type": "invalid_request_error", "code": code}}, headers)

    def do_GET(self):
        if self.path == "/health":
            self.reply(500 if self.fault("sick") else 200, {"running": self.server.running})
        elif self.path == "/v1/models":
            model = {"id": "fake", "object": "model", "max_model_len": CONTEXT}
            self.reply(200, {"object": "list", "data": [] if self.fault("no models") else [model]})
        else:
            self.error(404, "nothing here")

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.running += 1
            full = self.server.running > PLACES
        gone = False
        try:
            if full and self.fault("drops"):
                self.close_connection = True
                return
            if full:
                self.error(429, "full", headers=[("Retry-After", "1")])
                return
            self.answer(data)
        except (BrokenPipeError, ConnectionResetError):
            gone = True
            self.close_connection = True
        finally:
            if not (gone and self.fault("works on")):
                with self.server.lock:
                    self.server.running -= 1

    def refuse(self, why):
        if self.fault("breaks at nonsense"):
            self.reply(500, {"error": {"message": why}})
        elif self.fault("plain refusals"):
            self.reply(400, why.encode(), kind="text/plain")
        elif self.fault("hangs up at nonsense"):
            self.close_connection = True
            self.connection.shutdown(2)
        else:
            self.error(400, why)

    @staticmethod
    def read(data):
        body = json.loads(data.decode("utf8"), parse_constant=lambda _: 1 / 0)
        text = " ".join(m["role"] + " " + m["content"] for m in body["messages"])
        for name, kinds in (("max_tokens", int), ("temperature", (int, float)), ("top_p", (int, float)), ("stream", bool),
                            ("stop", (str, list))):
            if name in body and not isinstance(body[name], kinds) or body.get(name) == float("inf"):
                raise ValueError(name)
        return body, text

    def answer(self, data):
        try:
            body, text = self.read(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError):
            self.refuse("this is nonsense")
            return
        words = text.split()
        prompt = len(words) + 3
        if prompt + body["max_tokens"] > CONTEXT:
            if self.fault("cuts in silence"):
                words = words[:100]
            elif self.fault("breaks at long prompts"):
                self.error(500, f"{prompt} is more than {CONTEXT}")
                return
            else:
                self.error(400, f"{prompt} tokens are more than {CONTEXT}", "context_length_exceeded")
                return
        if prompt > 300 and self.fault("one at a time"):
            self.server.stalled.clear()
            time.sleep(1.2)
            self.server.stalled.set()
        self.generate(body, words, prompt)

    def make_words(self, body, words, warm):
        busy = self.server.running > 1
        start = sum(map(len, words)) % 7
        if (self.fault("warm is different") and warm) or (self.fault("company matters") and busy):
            start += 1
        count, finish = body["max_tokens"], "length"
        if not body.get("ignore_eos") and count > 40:
            count, finish = 40, "stop"
        if self.fault("short in company") and busy:
            count = min(count, 5)
        made = [NAMES[(start + i * (1 + i % 3)) % len(NAMES)] + " " for i in range(count)]
        secret = [words[i + 2] for i, w in enumerate(words[:-2]) if w == "lighthouse" and words[i + 1] == "is"]
        if secret and not (self.fault("forgets") and len(words) > 200):
            made[0] = secret[0].strip(".") + " "
        return made, finish

    def cached(self, words):
        best = 0
        with self.server.lock:
            for old in self.server.seen:
                n = 0
                while n < len(old) and n < len(words) and old[n] == words[n]:
                    n += 1
                best = max(best, n)
            self.server.seen = [*self.server.seen[-40:], words]
        return best

    def generate(self, body, words, prompt):
        cached = self.cached(words)
        made, finish = self.make_words(body, words, cached == len(words))
        stop = (body.get("stop") or [None])[0]
        text = "".join(made)
        if stop and stop in text:
            text = text[:text.index(stop) + (len(stop) if self.fault("keeps the stop string") else 0)]
            made, finish = [w + " " for w in text.split(" ")], "stop"
            made[-1] = made[-1][:-1]
        usage = {"prompt_tokens": 5 if self.fault("counts wrong") else prompt, "completion_tokens": max(len(made), 1)}
        usage["total_tokens"] = sum(usage.values()) + self.fault("adds wrong")
        usage["prompt_tokens_details"] = {"cached_tokens": 99999 if self.fault("boasts") else cached}
        logprob = -0.5 - 1e-7 * (self.fault("noisy logprobs") and self.server.running > 1)
        logprobs = [{"token": w, "logprob": logprob, "top_logprobs": []} for w in made] if body.get("logprobs") else None
        if body.get("stream"):
            self.stream(body, made, finish, usage)
            return
        time.sleep(0.15 if body["max_tokens"] == 8 else 0.002)  # the overload phase asks for 8: let them pile up
        choice = {"index": 0, "message": {"role": "assistant", "content": "".join(made)}, "finish_reason": finish,
                  "logprobs": {"content": logprobs}}
        if self.fault("does not finish"):
            choice["finish_reason"] = None
        self.reply(200, {"id": "c", "object": "chat.completion", "created": 1, "model": "fake", "choices": [choice],
                         "usage": usage})

    def send(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def chunk(self, choices, **more):
        self.send("data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake",
                                         "choices": choices, **more}) + "\n\n")

    def delta(self, delta, finish=None):
        self.chunk([{"index": 0, "delta": delta, "finish_reason": finish}])

    def stream(self, body, made, finish, usage):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain" if self.fault("wrong type") else "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if not self.fault("no role"):
            self.delta({"role": "assistant", "content": ""})
        for i, word in enumerate(made):
            self.server.stalled.wait(10)
            if self.fault("dies in long answers") and i == 50:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.delta({"content": word})
            time.sleep(0.002)
        if self.fault("bad JSON"):
            self.send("data: {oops\n\n")
        self.delta({}, finish)
        if self.fault("finishes twice"):
            self.delta({}, finish)
        if self.fault("talks on"):
            self.delta({"content": "and"})
        if body.get("stream_options", {}).get("include_usage") and not self.fault("no usage"):
            self.chunk([], usage=usage)
        if not self.fault("no [DONE]"):
            self.send("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def fake(*faults):
    server = Fake(faults)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def check(url, *options, code=None):
    """The results by phase name, and the whole JSON."""
    done = subprocess.run([BINARY, "check", url, "--json", *options], capture_output=True, text=True, timeout=1700)
    assert code is None or done.returncode == code, (options, done.returncode, done.stdout[-3000:], done.stderr[-1000:])
    whole = json.loads(done.stdout) if done.stdout else {}
    return {p["name"]: p for p in whole.get("phases", [])}, whole


def a_whole_server_passes_every_phase():
    with fake() as url:
        phases, whole = check(url + "/v1/", "--quick", "--recall", "400", "--no-timing", code=0)
        assert len(phases) == 15 and all(p["verdict"] == "pass" for p in phases.values()), phases
        assert whole["score"] == 100 and whole["model"] == "fake" and whole["failed"] == 0
        assert phases["repeatability"]["figures"]["distinct_answers"] == 1
        assert phases["overload"]["figures"]["refused"] > 0 and phases["overload"]["figures"]["answered"] > 0
        assert phases["recall"]["figures"]["found"] == 3


# phase, what is broken, a word of the note
BROKEN = [
    ("alive", "sick", "500"),
    ("models", "no models", "list"),
    ("chat", "adds wrong", "add up"),
    ("chat", "does not finish", "finish_reason"),
    ("stream", "no role", "role"),
    ("stream", "no usage", "usage"),
    ("stream", "no [DONE]", "[DONE]"),
    ("stream", "finishes twice", "finish_reason"),
    ("stream", "talks on", "after the finish_reason"),
    ("stream", "bad JSON", "JSON"),
    ("stream", "wrong type", "text/event-stream"),
    ("stop", "keeps the stop string", "stop string"),
    ("truncation", "dies in long answers", "broke off"),
    ("truncation", "no usage", "usage"),
    ("overflow", "cuts in silence", "in silence"),
    ("overflow", "breaks at long prompts", "500"),
    ("recall", "forgets", "0 of 3"),
    ("concurrency", "short in company", "ended after 5"),
    ("stall", "one at a time", "a gap of"),
    ("disconnect", "works on", "still works"),
    ("repeatability", "company matters", "in company"),
    ("repeatability", "noisy logprobs", "log-probabilities in company"),
    ("repeatability", "warm is different", "warm"),
    ("cache", "boasts", "more tokens are cached"),
    ("cache", "warm is different", "when it is warm"),
    ("malformed", "breaks at nonsense", "status 500"),
    ("malformed", "plain refusals", "without an error object"),
    ("malformed", "hangs up at nonsense", "broke"),
    ("overload", "drops", "broke off"),
]


def each_way_of_being_broken_turns_its_phase_red():
    for phase, fault, word in BROKEN:
        with fake(fault) as url:
            phases, whole = check(url, "--quick", "--recall", "400", "--phases", phase, code=1)
            found = phases[phase]
            assert found["verdict"] == "fail" and word in found["note"], (phase, fault, found)
            assert whole["score"] == 0 and whole["failed"] == 1


def no_timing_judges_behaviour_only():
    with fake("one at a time") as url:
        phases, _ = check(url, "--quick", "--phases", "stall", "--no-timing", code=0)
        assert phases["stall"]["verdict"] == "pass" and phases["stall"]["figures"]["gap_during_max_ms"] > 500


def what_a_model_cannot_recall_is_told_and_not_judged():
    with fake("forgets") as url:
        phases, whole = check(url, "--quick", "--phases", "recall", code=0)
        found = phases["recall"]
        assert found["verdict"] == "unsupported" and "0 of 3" in found["note"] and whole["unsupported"] == 1


def said(text):
    """Whether any word of the fake server's answers, which differ from run to run, is in the text."""
    return any(f"{word} " in text for word in NAMES)


def reports_are_whole_and_quote_nobody():
    with fake("no [DONE]") as url, tempfile.TemporaryDirectory() as folder:
        junit, html = os.path.join(folder, "a.xml"), os.path.join(folder, "a.html")
        options = ["--quick", "--no-timing", "--phases", "truncation,stall,stream,cache", "--junit", junit, "--html", html]
        done = subprocess.run([BINARY, "check", url, *options], capture_output=True, text=True, timeout=300)
        assert done.returncode == 1 and "FAIL  stream" in done.stdout and "score" in done.stdout
        suite = xml.etree.ElementTree.parse(junit).getroot()
        assert suite.get("tests") == "4" and int(suite.get("failures")) == len(suite.findall("testcase/failure")) > 0
        page = open(html, encoding="utf8").read()
        assert "<svg" in page and "http" not in page.replace(url, "") and page.count("<section") == 4
        everything = done.stdout + done.stderr + page + open(junit, encoding="utf8").read()
        assert "miller" not in everything and not said(everything)
        loud = subprocess.run([BINARY, "check", url, *options[:4], "--verbose"], capture_output=True, text=True, timeout=300)
        assert "miller" in loud.stderr and said(loud.stderr) and "miller" not in loud.stdout


def bad_use_and_nobody_there_end_with_code_2():
    with fake() as url:
        for options in (["--phases", "alive,frob"], ["--phases", ""], ["--frob"],
                        ["--junit", "/no/such/folder/x", "--phases", "alive"]):
            check(url, *options, code=2)
    for address in ("ftp://127.0.0.1", "nonsense://", "http://127.0.0.1:1"):
        done = subprocess.run([BINARY, "check", address, "--quick"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr, (address, done)


def our_server_front_passes():
    # its engine knows neither stop strings nor facts, and a byte is a token
    phases = "alive,models,chat,stream,truncation,overflow,concurrency,stall,disconnect,repeatability,cache,malformed,overload"
    with serving.fake_server() as server:
        results, _ = check(server.url, "--quick", "--no-timing", "--phases", phases, code=0)
        assert all(p["verdict"] == "pass" for p in results.values()), results
    with serving.fake_server("capacity=6", "step_us=5000") as server:
        results, _ = check(server.url, "--quick", "--phases", "overload", "--overload", "60", code=0)
        assert results["overload"]["figures"]["refused"] > 0


def our_server_with_a_model_passes():
    with serving.real_server(serving.find_model(), "--ctx", "2048") as server:
        results, whole = check(server.url, "--quick", "--no-timing", "--limit", "1200", code=0)
        assert whole["failed"] == 0
        assert results["truncation"]["figures"]["completion_tokens"] == 128
        assert results["repeatability"]["figures"]["logprobs"] > 0


def stalls_are_measured_against_any_server():
    def stall(*options, code=0):
        done = subprocess.run([BINARY, "bench", "stall", "--json", *options], capture_output=True, text=True, timeout=600)
        assert done.returncode == code, (options, done.returncode, done.stdout[-2000:], done.stderr[-1000:])
        return json.loads(done.stdout) if done.stdout else done.stderr

    wanted = {"gap_alone_median_ms", "gap_alone_p99_ms", "gap_during_max_ms", "first_token_ms", "first_token_alone_ms",
              "short_first_token_alone_ms", "short_first_token_behind_ms"}
    with serving.fake_server("step_us=2000") as server:
        whole = stall(server.url, "--prompts", "200,400", "--runs", "2")
        assert [row["prompt"] for row in whole["rows"]] == [200, 400] and whole["runs"] == 2
        for row in whole["rows"]:
            assert wanted <= set(row["figures"]), row
            for name in wanted:
                assert len(row["figures"][name]["runs"]) == 2, (name, row)
        assert "one is named" in stall(server.url, "--model", "x", code=2)
    with fake() as url:
        assert stall(url, "--prompts", "200", "--runs", "1")["model"] == "fake"
    with fake("no role") as url:  # a stream that is none is no measurement
        assert "role" in stall(url, "--prompts", "200", "--runs", "1", code=1)
    if serving.find_model():
        whole = stall("--model", serving.find_model(), "--ctx", "2K", "--prompts", "300", "--runs", "1", "--short", "50")
        assert wanted <= set(whole["rows"][0]["figures"]) and whole["url"] == "started here"


if __name__ == "__main__":
    asked = subprocess.run([BINARY, "check", "http://127.0.0.1:1"], capture_output=True, text=True, timeout=60)
    if "libcurl" in asked.stderr:
        serving.skip("this build has no libcurl")
    todo = [a_whole_server_passes_every_phase, each_way_of_being_broken_turns_its_phase_red, no_timing_judges_behaviour_only,
            what_a_model_cannot_recall_is_told_and_not_judged, reports_are_whole_and_quote_nobody,
            bad_use_and_nobody_there_end_with_code_2, our_server_front_passes,
            stalls_are_measured_against_any_server]
    if serving.find_model():
        todo.append(our_server_with_a_model_passes)
    else:
        print("no model to chat with: our_server_with_a_model_passes is left out (./dev serve fetches one)")
    serving.run(todo)
