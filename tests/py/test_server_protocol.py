"""The server's protocol as the openai client and hostile ones see it, in front of an engine that is only arithmetic."""
import json
import os
import signal
import socket
import subprocess
import threading
import time

import openai

import serving
from serving import fake_server

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
HELLO = [{"role": "user", "content": "hello"}]


def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=30)


def in_threads(count, work):
    """Run work(i) in `count` threads; the results in order. The first failure is raised."""
    results, errors = [None] * count, []

    def one(i):
        try:
            results[i] = work(i)
        except Exception as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    if errors:
        raise errors[0]
    return results


def the_openai_client_completes_and_streams():
    with fake_server() as server:
        api = client(server)
        assert [m.id for m in api.models.list()] == ["fake"]
        assert api.models.retrieve("fake").id == "fake"
        whole = api.chat.completions.create(model="x", messages=HELLO, logprobs=True, top_logprobs=2)
        assert whole.choices[0].message.content == ALPHABET and whole.choices[0].finish_reason == "stop"
        assert len(whole.choices[0].logprobs.content) == 26
        assert whole.choices[0].logprobs.content[0].top_logprobs[1].token == "z"
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + 26
        assert whole.usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens // 2
        stream = api.chat.completions.create(model="x", messages=HELLO, stream=True, max_tokens=9, n=2,
                                             stream_options={"include_usage": True})
        chunks = list(stream)
        assert len({c.id for c in chunks}) == 1
        texts = ["", ""]
        for chunk in chunks[:-1]:
            assert chunk.usage is None
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        assert texts == [ALPHABET[:9]] * 2
        assert [c.choices[0].finish_reason for c in chunks[:-1]].count("length") == 2
        assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 18
        text = api.completions.create(model="x", prompt=["a", "b"], max_tokens=4, logprobs=1)
        assert [c.text for c in text.choices] == ["abcd"] * 2
        assert text.choices[0].logprobs.tokens == list("abcd") and text.choices[0].logprobs.text_offset == [0, 1, 2, 3]
        ids = [c.id for c in (api.completions.create(model="x", prompt=[1, 2], max_tokens=1) for _ in range(20))]
        assert len(set(ids)) == 20


def errors_arrive_as_the_clients_own():
    with fake_server() as server:
        api = client(server)
        try:
            api.chat.completions.create(model="x", messages=HELLO, temperature=9)
            assert False
        except openai.BadRequestError as error:
            assert error.param == "temperature" and error.type == "invalid_request_error"
        try:
            api.chat.completions.create(model="x", messages=HELLO, max_tokens=100000)
            assert False
        except openai.BadRequestError as error:
            assert error.code == "context_length_exceeded" and "4096" in error.message
        try:
            api.embeddings.create(model="x", input="x")
            assert False
        except openai.APIStatusError as error:
            assert error.status_code == 501


def eight_clients_at_once_get_whole_answers():
    with fake_server() as server:
        def one(i):
            api = client(server)
            for _ in range(5):
                stream = api.chat.completions.create(model="x", messages=HELLO, stream=True)
                assert "".join(c.choices[0].delta.content or "" for c in stream) == ALPHABET
                assert api.completions.create(model="x", prompt="x", max_tokens=26).choices[0].text == ALPHABET
            return i
        assert in_threads(8, one) == list(range(8))
        assert server.health()["finished"] == 80


def a_closed_stream_stops_its_generation():
    with fake_server("step_us=2000") as server:
        stream = client(server).chat.completions.create(model="x", messages=HELLO, stream=True, max_tokens=4000,
                                                        extra_body={"ignore_eos": True})
        next(iter(stream))
        assert server.health()["running"] == 1
        stream.close()
        assert server.wait_until(lambda h: h["running"] == 0 and h["cancelled"] == 1 and h["requests"] == 0, 2)


def a_full_engine_turns_clients_away_and_every_request_ends_once():
    with fake_server("capacity=4", "step_us=1000") as server:
        outcomes = in_threads(200, lambda i: server.post("/v1/chat/completions", {"messages": HELLO, "stream": i % 2 == 0}))
        good = [o for o in outcomes if o[0] == 200]
        busy = [o for o in outcomes if o[0] == 429]
        assert len(good) + len(busy) == 200 and len(good) >= 4, (len(good), len(busy))
        assert all(o[1]["retry-after"] == "1" and b'"queue_full"' in o[2] for o in busy)
        assert all(b"[DONE]" in o[2] or b'"usage"' in o[2] for o in good)
        assert server.health()["finished"] == len(good) and server.health()["running"] == 0


def a_thousand_idle_connections_disturb_nobody():
    with fake_server() as server:
        idle = [server.connect() for _ in range(1000)]
        begin = time.monotonic()
        assert client(server).completions.create(model="x", prompt="x", max_tokens=3).choices[0].text == "abc"
        assert time.monotonic() - begin < 5
        assert server.health()["connections"] >= 1000
        for s in idle:
            s.close()
        # the client above keeps one, and the question itself is another
        assert server.wait_until(lambda h: h["connections"] <= 2)


def large_bodies_are_refused_politely():
    with fake_server() as server:
        # a client that sends everything before it reads must still see why
        status, _, body = server.post("/v1/chat/completions", b"[" * 100_000_000)
        assert status == 413 and json.loads(body)["error"]["code"] == "body_too_large"
        chunk = b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\n"
        with server.connect() as s:
            try:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(70):
                    s.sendall(chunk)
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert serving.read_reply(s)[0] == 413
        assert server.health()["status"] == "ok"


def nonsense_gets_an_answer_and_harms_nobody():
    bodies = [b"", b"{", b"null", b'"x"', b"[1,2", b'{"messages":' + b"[" * 100000, b'{"messages":[]}' * 2,
              b'{"a":1,"a":2}', b'{"prompt":"\xff\xfe"}', b'{"prompt":"\\ud800"}', b"\x00" * 100, b"{}" + b" " * 100000,
              b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1e400}', b'{"prompt":' + b"9" * 400 + b"}",
              b'{"messages":[{"role":"user","content":"x"}],"temperature":{}}', b'{"stop":[[[]]],"prompt":"x"}',
              b'{"prompt":[' + b"1," * 5000000 + b"1]}"]
    with fake_server() as server:
        for path in ("/v1/chat/completions", "/v1/completions"):
            for body in bodies:
                status, headers, reply = server.post(path, body)
                assert status == 400, (status, body[:60])
                assert headers["content-type"] == "application/json" and json.loads(reply)["error"]["message"]
        for raw in (b"\r\n" * 40, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
                    b"GET / HTTP/1.1\r\n" + b"A" * 70000, b"\xff" * 1000 + b"\r\n\r\n",
                    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"):
            with server.connect() as s:
                s.sendall(raw)
                s.shutdown(socket.SHUT_WR)
                data = s.recv(65536)
                assert data == b"" or data.startswith(b"HTTP/1.1 4"), data[:80]
        assert server.health()["status"] == "ok"


def clients_that_vanish_at_every_stage_leave_nothing_behind():
    body = json.dumps({"messages": HELLO, "stream": True, "ignore_eos": True, "max_tokens": 4000}).encode()
    request = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
    with fake_server("step_us=1000") as server:
        for cut in range(0, len(request), 7):
            with server.connect() as s:
                s.sendall(request[:cut])
                # a reset instead of an orderly end, every other time
                if cut % 2:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        for wait in (0, 0.001, 0.01, 0.05):
            with server.connect() as s:
                s.sendall(request)
                time.sleep(wait)
        assert server.wait_until(lambda h: h["requests"] == 0 and h["running"] == 0 and h["connections"] == 1)


def a_stalled_reader_is_paused_then_dropped_and_others_are_not():
    with fake_server("step_us=10", "context=100000000", "output_limit=1000000", "write_seconds=1", "processes=2") as server:
        body = json.dumps({"messages": HELLO, "stream": True, "ignore_eos": True, "max_tokens": 10_000_000}).encode()
        with server.connect() as stalled:
            stalled.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
            stalled.sendall(body)
            assert server.wait_until(lambda h: h["running"] == 1)
            for _ in range(5):
                assert client(server).completions.create(model="x", prompt="x", max_tokens=3).choices[0].text == "abc"
            assert server.wait_until(lambda h: h["cancelled"] == 1 and h["running"] == 0, 60)


def sigterm_under_load_loses_nothing():
    with fake_server("step_us=100000") as server:
        outcomes, begun = [], []

        def one(i):
            text = ""
            for chunk in client(server).chat.completions.create(model="x", messages=HELLO, stream=True):
                if not text:
                    begun.append(i)
                text += chunk.choices[0].delta.content or ""
            outcomes.append(text)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
        for t in threads:
            t.start()
        assert server.wait_until(lambda h: len(set(begun)) == 16, 30) and len(outcomes) < 16
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        try:
            server.connect().close()
            assert False, "a stopping server accepted a connection"
        except ConnectionRefusedError:
            pass
        for t in threads:
            t.join(20)
        assert outcomes == [ALPHABET] * 16
        assert server.process.wait(10) == 0


def sigterm_tells_whom_it_cannot_wait_for():
    with fake_server("step_us=20000", "grace=0.3") as server:
        stream = client(server).chat.completions.create(model="x", messages=HELLO, stream=True, max_tokens=4000,
                                                        extra_body={"ignore_eos": True})
        next(iter(stream))
        server.process.send_signal(signal.SIGTERM)
        try:
            for _ in stream:
                pass
            assert False, "the stream ended as if it were whole"
        except openai.APIError as error:
            assert "shutting down" in str(error)
        stream.close()
        assert server.process.wait(10) == 0


def a_second_signal_ends_it_at_once():
    with fake_server("step_us=20000") as server:
        stream = client(server).chat.completions.create(model="x", messages=HELLO, stream=True, max_tokens=4000,
                                                        extra_body={"ignore_eos": True})
        next(iter(stream))
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 0


def curl_is_served_too():
    if not os.path.exists("/usr/bin/curl"):
        return
    with fake_server() as server:
        out = subprocess.run(["curl", "-sN", server.url + "/v1/chat/completions", "-d",
                              json.dumps({"messages": HELLO, "stream": True})],
                             capture_output=True, text=True, check=True).stdout
        assert out.startswith(": waiting\n\n") and out.endswith("data: [DONE]\n\n")


if __name__ == "__main__":
    if not os.path.exists(os.path.join(serving.BUILD, "tests", "fake_server")):
        serving.skip("tests/tools/fake_server was not built")
    serving.run([the_openai_client_completes_and_streams, errors_arrive_as_the_clients_own,
                 eight_clients_at_once_get_whole_answers, a_closed_stream_stops_its_generation,
                 a_full_engine_turns_clients_away_and_every_request_ends_once, a_thousand_idle_connections_disturb_nobody,
                 large_bodies_are_refused_politely, nonsense_gets_an_answer_and_harms_nobody,
                 clients_that_vanish_at_every_stage_leave_nothing_behind, a_stalled_reader_is_paused_then_dropped_and_others_are_not,
                 sigterm_under_load_loses_nothing, sigterm_tells_whom_it_cannot_wait_for, a_second_signal_ends_it_at_once,
                 curl_is_served_too])
