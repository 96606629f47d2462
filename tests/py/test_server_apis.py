"""The Responses API as the openai client reads it, the Messages API as the anthropic client does, and the small paths that clients
of llama.cpp's server ask. First an engine that says what the prompt asks it to, then the default model."""
import json
import os

import anthropic
import openai

import serving
from serving import fake_server, real_server

MODEL = os.path.join(serving.SOURCE, "models", "evenshare-default.gguf")
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "description": "the name of the city"}, "days": {"type": "integer"}},
              "required": ["city"]}
TOOL = {"type": "function", "name": "get_weather", "description": "Tells the weather of a place.", "parameters": PARAMETERS}
USE = {"name": "get_weather", "description": "Tells the weather of a place.", "input_schema": PARAMETERS}
CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
ANSWER = f"<think>\nhm\n</think>\n\nI look.\n\n{CALL}"


def say(text):
    return f"[[[{text}]]]"


def refused(error, make):
    try:
        make()
    except error as seen:
        return seen
    raise AssertionError("it was not refused")


# ---- Responses ----

def a_response_holds_reasoning_text_and_calls(server):
    api = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=30)
    made = api.responses.create(model="x", input=say(ANSWER), tools=[TOOL], instructions="Be brief.", metadata={"a": "b"}, temperature=0.5)
    assert [item.type for item in made.output] == ["reasoning", "message", "function_call"] and made.status == "completed"
    assert made.output[0].content[0].text == "hm" and made.output_text == "I look."
    assert json.loads(made.output[2].arguments) == {"city": "Rome", "days": 3} and made.output[2].name == "get_weather"
    assert made.instructions == "Be brief." and made.metadata == {"a": "b"} and made.temperature == 0.5 and made.tools[0].name == "get_weather"
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    assert made.usage.output_tokens_details.reasoning_tokens > 0
    cut = api.responses.create(model="x", input=say(ANSWER), tools=[TOOL], max_output_tokens=100)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens" and cut.output[2].status == "incomplete"


def a_streamed_response_is_the_same(server):
    api = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=30)
    whole = api.responses.create(model="x", input=say(ANSWER), tools=[TOOL])
    events = list(api.responses.create(model="x", input=say(ANSWER), tools=[TOOL], stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:4]] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert events[-1].type == "response.completed"
    joined = {}
    for event in events:
        if event.type.endswith(".delta"):
            joined[event.type] = joined.get(event.type, "") + event.delta
    assert joined == {"response.reasoning_text.delta": "hm", "response.output_text.delta": "I look.",
                      "response.function_call_arguments.delta": whole.output[2].arguments}

    def plain(response):
        return [{k: v for k, v in item.to_dict().items() if not k.endswith("id")} for item in response.output]
    assert plain(events[-1].response) == plain(whole)
    # the client's own accumulation of a stream
    with api.responses.stream(model="x", input=say(ANSWER), tools=[TOOL]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.output_text.done" in kinds and final.output_text == whole.output_text
    assert final.output[2].arguments == whole.output[2].arguments and final.usage.output_tokens == whole.usage.output_tokens


def a_conversation_goes_back_as_items(server):
    api = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=30)
    items = [{"role": "user", "content": [{"type": "input_text", "text": "first"}]}]
    items += [item.to_dict() for item in api.responses.create(model="x", input=say(ANSWER), tools=[TOOL]).output]
    items += [{"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "17"}, {"role": "user", "content": say("ok")}]
    assert api.responses.create(model="x", input=items).output_text == "ok"
    for wrong, param in (({"previous_response_id": "resp_1"}, "previous_response_id"), ({"background": True}, "background"),
                         ({"input": [{"type": "item_reference", "id": "x"}]}, "input"), ({"tools": [{"name": "f"}]}, "tools"),
                         ({"truncation": "auto"}, "truncation"), ({"input": []}, "input")):
        error = refused(openai.BadRequestError, lambda: api.responses.create(**{"model": "x", "input": "x", **wrong}))  # pylint: disable=cell-var-from-loop
        assert error.param == param, error


def tools_that_others_run_are_left_out(server):
    status, headers, _ = server.post("/v1/responses", {"input": say("x"), "tools": [{"type": "web_search"}, TOOL]})
    assert status == 200 and headers["x-evenshare-ignored"] == "tools.web_search"
    status, headers, _ = server.post("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": say("x")}],
                                                      "tools": [{"type": "web_search_20250305", "name": "web_search"}]})
    assert status == 200 and headers["x-evenshare-ignored"] == "tools.web_search_20250305"


# ---- Messages ----

def claude(server, **more):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=30, **more)


def a_message_holds_thinking_text_and_uses(server):
    api = claude(server)
    made = api.messages.create(model="x", max_tokens=500, messages=[{"role": "user", "content": say(ANSWER)}], tools=[USE], system="Be brief.",
                               thinking={"type": "enabled", "budget_tokens": 1024})
    assert [b.type for b in made.content] == ["thinking", "text", "tool_use"] and made.stop_reason == "tool_use"
    assert made.content[0].thinking == "hm" and made.content[1].text == "I look." and made.content[2].input == {"city": "Rome", "days": 3}
    assert made.usage.input_tokens and made.usage.cache_read_input_tokens and made.usage.output_tokens == len(ANSWER)
    stopped = api.messages.create(model="x", max_tokens=500, messages=[{"role": "user", "content": say("yes")}])
    assert stopped.stop_reason == "end_turn" and stopped.content[0].text == "yes"
    assert api.messages.create(model="x", max_tokens=2, messages=[{"role": "user", "content": say("yes")}]).stop_reason == "max_tokens"


def a_streamed_message_is_the_same(server):
    api = claude(server)
    request = {"model": "x", "max_tokens": 500, "messages": [{"role": "user", "content": say(ANSWER)}], "tools": [USE]}
    whole = api.messages.create(**request)
    with api.messages.stream(**request) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop" and kinds.count("content_block_start") == kinds.count("content_block_stop") == 3

    def plain(message):
        return [{k: v for k, v in block.to_dict().items() if k != "id"} for block in message.content]
    assert plain(final) == plain(whole) and final.stop_reason == "tool_use"
    assert final.usage.output_tokens == whole.usage.output_tokens and final.usage.input_tokens == whole.usage.input_tokens


def a_conversation_goes_back_as_blocks(server):
    api = claude(server)
    made = api.messages.create(model="x", max_tokens=500, messages=[{"role": "user", "content": say(ANSWER)}], tools=[USE])
    messages = [{"role": "user", "content": "first"}, {"role": "assistant", "content": made.content},
                {"role": "user", "content": [{"type": "text", "text": say("ok")},
                                             {"type": "tool_result", "tool_use_id": made.content[2].id, "content": [{"type": "text", "text": "17"}]}]}]
    assert api.messages.create(model="x", max_tokens=50, messages=messages, tools=[USE]).content[0].text == "ok"
    counted = api.messages.count_tokens(model="x", messages=messages, tools=[USE]).input_tokens
    usage = api.messages.create(model="x", max_tokens=50, messages=messages, tools=[USE]).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    hello = [{"role": "user", "content": "x"}]
    for wrong in ({"messages": [{"role": "user", "content": [image]}]}, {"messages": hello + [{"role": "assistant", "content": " "}]},
                  {"tools": [{"name": "f"}]}, {"messages": []}):
        error = refused(anthropic.BadRequestError, lambda: api.messages.create(**{"model": "x", "max_tokens": 9, "messages": hello, **wrong}))  # pylint: disable=cell-var-from-loop
        assert error.body["type"] == "error" and error.body["error"]["type"] == "invalid_request_error", error.body


def models_are_listed(server):
    listed = list(claude(server).models.list())
    assert [m.id for m in listed] == ["fake"] and listed[0].type == "model" and listed[0].created_at.year > 2000
    assert claude(server).models.retrieve("fake").display_name == "fake"


def one_use_is_enough_where_parallel_ones_are_not_wanted(server):
    made = claude(server).messages.create(model="x", max_tokens=900, messages=[{"role": "user", "content": say(CALL + CALL)}], tools=[USE],
                                          tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [b.type for b in made.content] == ["tool_use"]


# ---- llama.cpp's ----

def the_small_paths_answer(server):
    def ask(path, body):
        status, _, reply = server.post(path, body)
        return status, json.loads(reply)
    assert ask("/tokenize", {"content": "abc"}) == (200, {"tokens": [97, 98, 99]})
    assert ask("/tokenize", {"content": "ab", "with_pieces": True})[1]["tokens"][1] == {"id": 98, "piece": "b"}
    assert ask("/detokenize", {"tokens": [97, 98]}) == (200, {"content": "ab"})
    assert ask("/apply-template", {"messages": [{"role": "user", "content": "hi"}]}) == (200, {"prompt": "[user]hi\n"})
    for path, body in (("/tokenize", {}), ("/detokenize", {"tokens": [300]}), ("/detokenize", {"tokens": "x"}), ("/apply-template", {})):
        assert ask(path, body)[0] == 400, path
    status, reply = ask("/v1/embeddings", {"input": "x"})
    assert status == 501 and "embeddings" in reply["error"]["message"]
    status, reply = ask("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]})
    assert (status, reply) == (200, {"input_tokens": len("[user]hi\n")})


def on_an_engine_that_says_what_it_is_told():
    with fake_server("tools=xml", "reasoning=think", "context=8192", "step_us=0") as server:
        for test in (a_response_holds_reasoning_text_and_calls, a_streamed_response_is_the_same, a_conversation_goes_back_as_items, tools_that_others_run_are_left_out,
                     a_message_holds_thinking_text_and_uses, a_streamed_message_is_the_same, a_conversation_goes_back_as_blocks,
                     one_use_is_enough_where_parallel_ones_are_not_wanted, models_are_listed, the_small_paths_answer):
            test(server)


def the_default_model_answers_both():
    key_file = os.path.join(serving.BUILD, "test_apis_key")
    with open(key_file, "w", encoding="utf8") as out:
        out.write("none\n")
    with real_server(MODEL, "--parallel", "1", "--ctx", "2048", "--api-key-file", key_file) as server:
        api = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)
        items = [{"role": "user", "content": "What is the weather in Oakham?"}]
        made = api.responses.create(model="x", input=items, tools=[{**TOOL, "parameters": {**PARAMETERS, "properties": {"city": PARAMETERS["properties"]["city"]}}}],
                                    temperature=0)
        assert made.output[0].type == "function_call" and json.loads(made.output[0].arguments) == {"city": "Oakham"}, made.output
        with claude(server).messages.stream(model="x", max_tokens=100, extra_body={"temperature": 0}, thinking={"type": "enabled", "budget_tokens": 1024},
                                            messages=[{"role": "user", "content": "What is 23 + 45?"}]) as stream:
            final = stream.get_final_message()
        assert [b.type for b in final.content] == ["thinking", "text"] and "68" in final.content[1].text, final.content
        # an answer that has begun is gone on with
        begun = [{"role": "user", "content": "The red door has the code 4719. What is the code of the red door?"},
                 {"role": "assistant", "content": "The code of the red door is 47 "}]
        on = api.chat.completions.create(model="x", messages=begun, temperature=0, max_tokens=20, extra_body={"continue_final_message": True})
        also = claude(server).messages.create(model="x", max_tokens=20, messages=begun, extra_body={"temperature": 0})
        assert on.choices[0].message.content == also.content[0].text and on.choices[0].message.content.startswith("19"), (on, also)
        colour = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
        asked = "Say something about a door."
        for text in (api.responses.create(model="x", input=asked, temperature=0, max_output_tokens=60,
                                          text={"format": {"type": "json_schema", "name": "c", "schema": colour}}).output_text,
                     claude(server).messages.create(model="x", max_tokens=60, messages=[{"role": "user", "content": asked}],
                                                    extra_body={"output_config": {"format": {"type": "json_schema", "schema": colour}}}).content[0].text):
            assert json.loads(text)["colour"] in ("red", "blue"), text
        refused(anthropic.AuthenticationError, lambda: anthropic.Anthropic(base_url=server.url, api_key="no", max_retries=0).messages.create(
            model="x", max_tokens=1, messages=[{"role": "user", "content": "x"}]))
        status, _, reply = server.post("/tokenize", {"content": "Grüße <|im_end|>"}, headers=["X-Api-Key: none"])
        tokens = json.loads(reply)["tokens"]
        status, _, reply = server.post("/detokenize", {"tokens": tokens}, headers=["X-Api-Key: none"])
        assert status == 200 and json.loads(reply)["content"] == "Grüße <|im_end|>"


if __name__ == "__main__":
    tests = [on_an_engine_that_says_what_it_is_told]
    if os.path.exists(MODEL):
        tests.append(the_default_model_answers_both)
    serving.run(tests)
