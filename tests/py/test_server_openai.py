"""`evenshare serve` with a real engine, driven by the openai client. An oracle model (no tokenizer, prompts as token numbers)
is always there; where a model that can chat is there too ($ES_MODEL or models/), it chats."""
import json
import os
import signal
import subprocess
import threading
import time

import openai

import serving
from serving import real_server

QUESTION = [{"role": "user", "content": "The code of the red door is 4719. What is the code of the red door?"}]


def client(server, key="none"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=120)


def prompt_of(i):
    return [1 + (7 * i + 3 * k) % 200 for k in range(5 + 11 * i)]


def greedy(api, prompt, count=24, stream=False):
    """(token numbers, log-probabilities, finish_reason) of a greedy answer."""
    reply = api.completions.create(model="x", prompt=prompt, temperature=0, max_tokens=count, logprobs=0, stream=stream,
                                   extra_body={"ignore_eos": True, "return_token_ids": True})
    if not stream:
        choice = reply.choices[0]
        assert reply.usage.completion_tokens == count and reply.usage.prompt_tokens == len(prompt)
        return choice.token_ids, choice.logprobs.token_logprobs, choice.finish_reason
    tokens, logprobs, finish, events = [], [], None, 0
    for chunk in reply:
        choice = chunk.choices[0]
        if choice.token_ids:
            events += 1
            tokens += choice.token_ids
            logprobs += choice.logprobs.token_logprobs
        finish = choice.finish_reason or finish
    assert events == count, "one event per token"
    return tokens, logprobs, finish


def eight_clients_at_once_get_what_each_gets_alone():
    with real_server(serving.oracle_model(), "--parallel", "4", "--ctx", "512") as server:
        alone = [greedy(client(server), prompt_of(i)) for i in range(8)]
        assert all(len(a[0]) == 24 and a[2] == "length" for a in alone)
        together = [None] * 8

        def one(i):
            together[i] = greedy(client(server), prompt_of(i), stream=i % 2 == 0)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        assert together == alone


def several_prompts_and_choices_come_back_in_order():
    with real_server(serving.oracle_model(), "--ctx", "512") as server:
        api = client(server)
        alone = [greedy(api, prompt_of(i), 6)[0] for i in range(3)]
        reply = api.completions.create(model="x", prompt=[prompt_of(i) for i in range(3)], n=2, temperature=0, max_tokens=6,
                                       extra_body={"ignore_eos": True, "return_token_ids": True})
        assert [c.index for c in reply.choices] == list(range(6))
        assert [c.token_ids for c in reply.choices] == [alone[i // 2] for i in range(6)]
        assert reply.usage.prompt_tokens == sum(len(prompt_of(i)) for i in range(3))


def a_seed_makes_an_answer_repeatable_and_choices_differ():
    with real_server(serving.oracle_model(), "--ctx", "512") as server:
        api = client(server)

        def sample(seed):
            reply = api.completions.create(model="x", prompt=prompt_of(1), temperature=1, top_p=1, n=2, seed=seed,
                                           max_tokens=12,
                                           extra_body={"ignore_eos": True, "return_token_ids": True, "top_k": 0})
            return [c.token_ids for c in reply.choices]
        first = sample(11)
        assert first == sample(11) and first != sample(12) and first[0] != first[1]


def what_can_never_fit_is_refused_with_numbers():
    with real_server(serving.oracle_model(), "--ctx", "512") as server:
        context = client(server).models.list().data[0].max_model_len
        assert context == 512
        for body in ({"prompt": [1] * 600}, {"prompt": [1] * 10, "max_tokens": 503}):
            status, _, reply = server.post("/v1/completions", body)
            error = json.loads(reply)["error"]
            assert status == 400 and error["code"] == "context_length_exceeded" and "512" in error["message"]
        status, _, reply = server.post("/v1/completions", {"prompt": [1] * 10, "max_tokens": 502, "ignore_eos": True})
        assert status == 200 and json.loads(reply)["usage"]["completion_tokens"] == 502
        status, _, reply = server.post("/v1/chat/completions", {"messages": QUESTION})
        assert status == 400 and "tokenizer" in json.loads(reply)["error"]["message"]


def a_client_that_leaves_frees_its_place_within_a_step():
    with real_server(serving.oracle_model(), "--parallel", "1", "--ctx", "4096") as server:
        stream = client(server).completions.create(model="x", prompt=[1, 2, 3], max_tokens=4000, stream=True,
                                                   extra_body={"ignore_eos": True})
        next(iter(stream))
        assert server.health()["running"] == 1
        stream.close()
        assert server.wait_until(lambda h: h["running"] == 0 and h["requests"] == 0, 3)
        made = server.health()["completion_tokens"]
        time.sleep(0.3)
        assert server.health()["completion_tokens"] == made
        assert len(greedy(client(server), [1, 2, 3], 4)[0]) == 4


def sigterm_under_load_ends_every_request_once():
    # two run, four wait for a place: all were accepted
    with real_server(serving.oracle_model(), "--parallel", "2", "--ctx", "4096", "--grace", "600") as server:
        streams = [client(server).completions.create(model="x", prompt=prompt_of(i), max_tokens=150, stream=True,
                                                     extra_body={"ignore_eos": True, "return_token_ids": True})
                   for i in range(6)]
        assert server.health()["requests"] > 0
        server.process.send_signal(signal.SIGTERM)
        for stream in streams:
            chunks = list(stream)
            assert sum(len(c.choices[0].token_ids) for c in chunks) == 150
            assert chunks[-1].choices[0].finish_reason == "length"
        assert server.process.wait(20) == 0


def a_key_is_asked_for_when_one_is_named():
    key_file = os.path.join(serving.BUILD, "test_keys")
    with open(key_file, "w", encoding="utf8") as out:
        out.write("first\nsecond\n")
    with real_server(serving.oracle_model(), "--ctx", "512", "--api-key-file", key_file, "--alias", "my/model",
                     "--strict") as server:
        try:
            client(server, "third").models.list()
            assert False
        except openai.AuthenticationError:
            pass
        api = client(server, "second")
        assert api.models.retrieve("my/model").id == "my/model"
        try:
            api.completions.create(model="other", prompt=[1])
            assert False
        except openai.NotFoundError as error:
            assert error.code == "model_not_found"
        assert api.completions.create(model="my/model", prompt=[1], max_tokens=1).usage.completion_tokens == 1


def bad_command_lines_end_with_code_2():
    binary, model = os.path.join(serving.BUILD, "evenshare"), serving.oracle_model()
    for options in (["--host", "0.0.0.0"], ["--port", "70000"], ["--frob"], ["--api-key", ""], ["--page", "17"],
                    ["--api-key-file", "/no/such/file"], ["-m", "/no/such/model"]):
        arguments = options if "-m" in options else ["-m", model, *options]
        done = subprocess.run([binary, "serve", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr.startswith("evenshare"), (options, done)


def a_model_chats():
    with real_server(serving.find_model(), "--ctx", "2048") as server:
        api = client(server)
        whole = api.chat.completions.create(model="x", messages=QUESTION, temperature=0, max_tokens=60)
        text = whole.choices[0].message.content
        assert "4719" in text and whole.choices[0].finish_reason == "stop", text
        stream = list(api.chat.completions.create(model="x", messages=QUESTION, temperature=0, max_tokens=60, stream=True,
                                                  stream_options={"include_usage": True}))
        assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == text
        assert stream[-1].usage.completion_tokens == whole.usage.completion_tokens
        stopped = api.chat.completions.create(model="x", messages=QUESTION, temperature=0, max_tokens=60, stop=["4719"])
        assert stopped.choices[0].message.content == text[:text.index("4719")]
        assert stopped.choices[0].finish_reason == "stop"
        parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
        again = api.chat.completions.create(model="x", messages=parts, temperature=0, max_tokens=60, logprobs=True,
                                            top_logprobs=3)
        assert again.choices[0].message.content == text
        entries = again.choices[0].logprobs.content
        assert all(e.top_logprobs[0].token == e.token and e.logprob <= 0 for e in entries)
        assert len(entries) == again.usage.completion_tokens
        unlikely = api.completions.create(model="x", prompt="The capital of France is", temperature=0, max_tokens=8,
                                          logprobs=5)
        assert len(unlikely.choices[0].logprobs.top_logprobs[0]) == 5
        assert unlikely.choices[0].text == "".join(unlikely.choices[0].logprobs.tokens)


def an_echo_tells_how_likely_its_prompt_was():
    text = "The letter for Ada lies in the blue box — not in the red one."
    done = subprocess.run([os.path.join(serving.BUILD, "evenshare"), "score", "-m", serving.find_model(), "--text", "-", "--tokens", "--json"],
                          input=text, capture_output=True, text=True, timeout=120, check=True)
    scored = json.loads(done.stdout)["token_logprobs"]
    with real_server(serving.find_model(), "--ctx", "2048", "--numeric", "f32", "--parallel", "2") as server:
        api = client(server)
        for run in range(2):  # the second time the prompt is in the cache
            reply = api.completions.create(model="x", prompt=text, max_tokens=0, echo=True, logprobs=3)
            choice, logprobs = reply.choices[0], reply.choices[0].logprobs
            assert choice.text == text and choice.finish_reason == "length" and reply.usage.completion_tokens == 0, choice
            parts = [t["text"].startswith("<0x") for t in scored]  # of a character
            assert [part or t["text"] == told for part, t, told in zip(parts, scored, logprobs.tokens, strict=True)].count(False) == 0
            assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None and logprobs.text_offset[0] == 0
            for i, one in enumerate(scored[1:], 1):
                assert abs(one["logprob"] - logprobs.token_logprobs[i]) < 1e-5, (run, i, one, logprobs.token_logprobs[i])
                top = logprobs.top_logprobs[i]
                assert len(top) == 3 and max(top.values()) >= logprobs.token_logprobs[i]
                assert parts[i] or text[logprobs.text_offset[i]:].startswith(logprobs.tokens[i])
        # the answer's own tokens stand behind, the same as without an echo; alone and in company, whole and streamed
        plain = api.completions.create(model="x", prompt=[text, "Once"], max_tokens=5, temperature=0, logprobs=0, n=2)
        both = api.completions.create(model="x", prompt=[text, "Once"], max_tokens=5, temperature=0, logprobs=0, n=2, echo=True)
        for told, said in zip(both.choices, plain.choices):
            count = len(said.logprobs.tokens)
            assert told.text.endswith(said.text) and told.logprobs.token_logprobs[-count:] == said.logprobs.token_logprobs
            assert told.text[told.logprobs.text_offset[-count]:] == said.text
        assert both.choices[0].logprobs.token_logprobs[:len(scored)] == logprobs.token_logprobs
        tokens, offsets, written = [], [], ""
        for chunk in api.completions.create(model="x", prompt=text, max_tokens=5, temperature=0, logprobs=0, echo=True, stream=True):
            written += chunk.choices[0].text
            if chunk.choices[0].logprobs:
                tokens += chunk.choices[0].logprobs.token_logprobs
                offsets += chunk.choices[0].logprobs.text_offset
        assert written == both.choices[0].text and tokens == both.choices[0].logprobs.token_logprobs
        assert offsets == both.choices[0].logprobs.text_offset


if __name__ == "__main__":
    tests = [eight_clients_at_once_get_what_each_gets_alone, several_prompts_and_choices_come_back_in_order,
             a_seed_makes_an_answer_repeatable_and_choices_differ, what_can_never_fit_is_refused_with_numbers,
             a_client_that_leaves_frees_its_place_within_a_step, sigterm_under_load_ends_every_request_once,
             a_key_is_asked_for_when_one_is_named, bad_command_lines_end_with_code_2]
    if serving.find_model():
        tests += [a_model_chats, an_echo_tells_how_likely_its_prompt_was]
    else:
        print("no model to chat with: a_model_chats is left out (./dev serve fetches one)")
    serving.run(tests)
