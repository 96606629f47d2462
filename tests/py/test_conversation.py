"""A conversation is not computed twice: of what two prompts share, 99 % and more comes from the cache over twenty turns, with a
template that strips old reasoning too; an edit goes on from the nearest state before it; a client that gave up and comes back
goes on where its prompt was; a restart loses nothing, not a bit; and a full disk takes nothing but the next restart's cache."""
import contextlib
import hashlib
import json
import os
import re
import resource
import sys
import tempfile
import time

import serving

MODEL = os.path.join(serving.SOURCE, "models", "evenshare-default.gguf")
TURNS = 20
OPENING = "<|im_start|>assistant\n"


def ask(server, path, body):
    status, _, reply = server.post(path, body, 120)
    assert status == 200, reply[:500]
    return json.loads(reply)


def tokens_of(server, text):
    return ask(server, "/v1/completions", {"prompt": text, "max_tokens": 0})["usage"]["prompt_tokens"]


def chat(server, messages, **more):
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": True, "top_logprobs": 5}
    return ask(server, "/v1/chat/completions", {**body, **more})


def cached_of(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def bits_of(reply):
    return hashlib.sha256(json.dumps(reply["choices"], sort_keys=True).encode()).hexdigest()


def question(turn, what="door"):
    return (f"Question {turn}: " + " ".join(f"the {what} number {turn * 7 + i} has the code {turn * 131 + i * 17}" for i in range(4))
            + ". Which of them is the first?")


def reasoning_is_stripped_and_the_rest_is_there(server):
    """The generation prompt ends in reasoning tags that the next turn's history does not have: there the prompts part."""
    parting = tokens_of(server, OPENING + "<think>\n\n</think>\n\n") - tokens_of(server, OPENING)
    messages, shared, cached, sizes = [], 0, 0, []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": question(turn)})
        reply = chat(server, messages)
        if sizes:
            shared += sizes[-1] - parting
            cached += cached_of(reply)
        sizes.append(reply["usage"]["prompt_tokens"])
        content = reply["choices"][0]["message"]["content"] or "-"
        messages.append({"role": "assistant", "content": content, "reasoning_content": "It was thought about at length."})
    print(f"{shared} tokens before the first divergence, {cached} from the cache, the last prompt has {sizes[-1]}")
    assert 0.99 * shared <= cached <= shared + TURNS, (shared, cached)
    again = chat(server, messages[:-1])
    assert cached_of(again) == sizes[-1] - 1, again["usage"]
    # The tenth question becomes another one: all that came before it is there.
    edited = [dict(m) for m in messages[:-1]]
    edited[20]["content"] = question(10, "window")
    reply = chat(server, edited)
    assert sizes[9] - parting - tokens_of(server, OPENING) <= cached_of(reply) < sizes[10], (sizes[9], reply["usage"])
    return messages[:-1], bits_of(again)


def tokens_that_only_grow_are_all_there(server):
    prompt, known = [5 + i % 300 for i in range(50)], 0
    for turn in range(TURNS):
        reply = ask(server, "/v1/completions",
                    {"prompt": prompt, "max_tokens": 10, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
        assert cached_of(reply) == known, (turn, reply["usage"])
        answer = reply["choices"][0]["token_ids"]
        known = len(prompt) + len(answer) - 1
        prompt = prompt + answer + [7 + (turn * 11 + i) % 300 for i in range(30)]


def who_gave_up_goes_on_where_it_was(server):
    body = json.dumps({"prompt": [9 + i * i % 311 for i in range(3000)], "max_tokens": 1, "temperature": 0}).encode()
    done = 0
    with server.connect() as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        end = time.monotonic() + 60
        while done < 600 and time.monotonic() < end:
            with serving.urllib.request.urlopen(server.url + "/slots", timeout=20) as reply:
                slots = json.load(reply)
            done = max([done] + [slot["prompt_tokens_done"] for slot in slots])
            if not slots and done:
                break
    assert server.wait_until(lambda h: h["requests"] == 0 and h["running"] == 0)
    reply = ask(server, "/v1/completions", json.loads(body))
    assert done > 0 and cached_of(reply) >= done, (done, reply["usage"])


@contextlib.contextmanager
def no_file_may_grow():
    """Stands for a full disk, for processes started meanwhile."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def failed_writes(server):
    with serving.urllib.request.urlopen(server.url + "/metrics", timeout=20) as reply:
        found = re.search(r'disk_pieces_total\{what="failed"\} (\d+)', reply.read().decode())
    return int(found.group(1))


def asks_and_still_finds_in_memory(server):
    body = {"prompt": [5 + i * i % 307 for i in range(1500)], "max_tokens": 4, "temperature": 0}
    first = ask(server, "/v1/completions", body)
    end = time.monotonic() + 60
    while failed_writes(server) == 0 and time.monotonic() < end:
        time.sleep(0.05)
    assert failed_writes(server) > 0
    again = ask(server, "/v1/completions", body)
    assert cached_of(again) >= 1400 and again["choices"] == first["choices"], again


def main():
    if not os.path.exists(MODEL):
        serving.skip("no models/evenshare-default.gguf")
    with tempfile.TemporaryDirectory() as folder:
        options = ("--parallel", "2", "--ctx", "8K", "--memory", "1G", "--cache-dir", os.path.join(folder, "cache"))
        left = {}

        def first_server():
            with serving.real_server(MODEL, *options) as server:
                left["messages"], left["bits"] = reasoning_is_stripped_and_the_rest_is_there(server)
                tokens_that_only_grow_are_all_there(server)
                who_gave_up_goes_on_where_it_was(server)

        def a_restart_loses_nothing():
            with serving.real_server(MODEL, *options) as server:
                reply = chat(server, left["messages"])
                usage = reply["usage"]
                assert cached_of(reply) >= 0.99 * (usage["prompt_tokens"] - 1), usage
                assert bits_of(reply) == left["bits"]

        def a_full_disk_stops_nobody():
            full = os.path.join(folder, "full")
            with no_file_may_grow(), serving.real_server(MODEL, *options[:-1], full) as server:
                asks_and_still_finds_in_memory(server)
            assert not [name for name in os.listdir(full) if os.path.getsize(os.path.join(full, name))]
        serving.run([first_server, a_restart_loses_nothing, a_full_disk_stops_nobody])


if __name__ == "__main__":
    sys.exit(main())
