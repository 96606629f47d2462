"""Embeddings, as the openai client gets them: pooled final states of a model, held against their exact evaluation in float64; the same
bytes alone and in company; and a clear refusal by a model that was not made for them."""
import base64
import json
import os
import tempfile
import threading

import numpy as np
import openai

import serving
from oracle_exact import Exact
from oracle_gguf import write_gguf
from serving import real_server

# Both compute in float32 what the other does in float64, through two layers: 1e-5 of a vector of length 1 is some hundred roundings.
TOLERANCE = 1e-5
TEXTS = [[1 + (7 * i + 3 * k) % 200 for k in range(3 + 29 * i)] for i in range(6)]


def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def unit(vector):
    return vector / np.sqrt((vector * vector).sum())


def exact(model, ids, pooling, dimensions=None):
    states = model.states(np.array(ids))
    return unit({"last": states[-1], "cls": states[0], "mean": states.mean(0)}[pooling][:dimensions])


def raw(server, texts):
    """The bytes of each embedding."""
    status, _, body = server.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"})
    assert status == 200, body
    return [base64.b64decode(one["embedding"]) for one in json.loads(body)["data"]]


def pooled_states_are_the_models_own():
    for family, pooling in (("qwen3", "last"), ("qwen3", "mean"), ("qwen3", "cls"), ("qwen3_5", "mean"), ("llama", "last")):
        model = Exact(family)
        with real_server(serving.oracle_model(family), "--ctx", "512", "--numeric", "f32", "--pooling", pooling) as server:
            reply = client(server).embeddings.create(model="x", input=TEXTS)
            assert reply.usage.prompt_tokens == reply.usage.total_tokens == sum(map(len, TEXTS))
            assert [one.index for one in reply.data] == list(range(len(TEXTS)))
            for ids, one in zip(TEXTS, reply.data):
                apart = np.abs(np.array(one.embedding) - exact(model, ids, pooling)).max()
                assert apart < TOLERANCE, (family, pooling, len(ids), apart)
            short = client(server).embeddings.create(model="x", input=TEXTS[2], dimensions=8, encoding_format="float").data[0].embedding
            assert len(short) == 8 and np.abs(np.array(short) - exact(model, TEXTS[2], pooling, 8)).max() < TOLERANCE


def company_and_caches_change_no_bit():
    for pooling in ("last", "mean"):
        with real_server(serving.oracle_model(), "--ctx", "512", "--parallel", "4", "--pooling", pooling) as server:
            alone = [raw(server, [text])[0] for text in TEXTS]
            assert len(set(alone)) == len(TEXTS)
            assert raw(server, TEXTS) == alone, "all at once, and what can be is in the cache now"
            talk = threading.Thread(target=lambda: client(server).completions.create(model="x", prompt=[5] * 40, max_tokens=300,
                                                                                     extra_body={"ignore_eos": True}))
            talk.start()
            assert raw(server, TEXTS[::-1]) == alone[::-1]
            talk.join()
        with real_server(serving.oracle_model(), "--ctx", "512", "--parallel", "1", "--chunk", "5", "--no-cache", "--pooling", pooling) as server:
            assert raw(server, TEXTS) == alone, "in other chunks"


def a_file_can_say_how():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "embedding.gguf")
        write_gguf(serving.oracle_model("llama"), path, pooling="LAST")
        model = Exact("llama")
        with real_server(path, "--ctx", "512", "--numeric", "f32", "--strict") as server:
            api = client(server)
            name = api.models.list().data[0].id
            ids = list(b"abcdefg")
            end = model.c["eos_token_id"]
            for value, tokens in ((ids, ids), ([ids, [3]], ids)):
                one = api.embeddings.create(model=name, input=value).data[0]
                assert np.abs(np.array(one.embedding) - exact(model, tokens, "last")).max() < TOLERANCE
            # a text is what its tokenizer makes of it, and this one's puts a token behind it
            status, _, body = server.post("/tokenize", {"content": "abc"})
            tokens = json.loads(body)["tokens"] + [end]
            reply = api.embeddings.create(model=name, input="abc")
            assert status == 200 and reply.usage.prompt_tokens == len(tokens)
            assert np.abs(np.array(reply.data[0].embedding) - exact(model, tokens, "last")).max() < TOLERANCE
            for more, param in (({"input": []}, "input"), ({"input": [[]]}, "input"), ({"input": 5}, "input"), ({}, "input"),
                                ({"input": "x", "dimensions": 0}, "dimensions"), ({"input": "x", "dimensions": 10**6}, "dimensions"),
                                ({"input": "x", "encoding_format": "hex"}, "encoding_format"), ({"input": [1] * 600}, "input"),
                                ({"input": ["x"] * 2000}, "input"), ({"input": "x", "temperature": 1}, "temperature")):
                status, _, body = server.post("/v1/embeddings", more)
                assert status == 400 and json.loads(body)["error"]["param"] == param, (more, body)
        with real_server(path, "--ctx", "512", "--pooling", "none") as server:
            refused_by(server)


def refused_by(server):
    try:
        client(server).embeddings.create(model="x", input="x")
        assert False
    except openai.APIStatusError as error:
        assert error.status_code == 501 and "embeddings" in error.message, error


def a_model_that_generates_text_has_none():
    with real_server(serving.oracle_model(), "--ctx", "512") as server:
        refused_by(server)


if __name__ == "__main__":
    serving.run([pooled_states_are_the_models_own, company_and_caches_change_no_bit, a_file_can_say_how, a_model_that_generates_text_has_none])
