"""Reasoning and calls of tools, as the openai client sees them: first an engine that says what the prompt asks it to, then the
default model in a loop with a tool."""
import json
import os

import openai

import serving
from serving import fake_server, real_server

MODEL = os.path.join(serving.SOURCE, "models", "evenshare-default.gguf")
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Tells the weather of a place.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "the name of the city"}, "days": {"type": "integer"}},
    "required": ["city"]}}}]
CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nNew \"York\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
ARGUMENTS = {"city": "New \"York\"", "days": 3}


def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)


def say(text):
    return [{"role": "user", "content": f"[[[{text}]]]"}]


def streamed(api, **request):
    """A stream put together again: (reasoning, content, [(id, name, arguments)], finish_reason, most pieces of one call)."""
    reasoning, content, calls, finish, pieces = "", "", [], None, {}
    for chunk in api.chat.completions.create(model="x", stream=True, **request):
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        content += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            if call.index == len(calls):
                assert call.id and call.type == "function" and call.function.name
                calls.append([call.id, call.function.name, ""])
            else:
                assert call.id is None and call.function.name is None
            calls[call.index][2] += call.function.arguments
            pieces[call.index] = pieces.get(call.index, 0) + bool(call.function.arguments)
    return reasoning, content, calls, finish, max(pieces.values(), default=0)


def whole(api, **request):
    choice = api.chat.completions.create(model="x", **request).choices[0]
    message = choice.message
    calls = [[c.id, c.function.name, c.function.arguments] for c in message.tool_calls or []]
    return getattr(message, "reasoning_content", None) or "", message.content, calls, choice.finish_reason


def a_stream_and_a_whole_answer_say_the_same(api):
    text = f"<think>\nhm\n</think>\n\nI look.\n\n{CALL}\n{CALL}"
    reasoning, content, calls, finish, pieces = streamed(api, messages=say(text), tools=TOOLS)
    assert (reasoning, content, finish) == ("hm", "I look.", "tool_calls"), (reasoning, content, finish)
    assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [("get_weather", ARGUMENTS)] * 2
    assert calls[0][0] != calls[1][0] and pieces > 5, "arguments come in pieces"
    again = whole(api, messages=say(text), tools=TOOLS)
    assert again[:2] == ("hm", "I look.") and again[3] == "tool_calls"
    assert [c[1:] for c in again[2]] == [c[1:] for c in calls]
    # only a call: no content at all
    assert whole(api, messages=say(CALL), tools=TOOLS)[1] is None


def arguments_in_json_come_while_they_are_written(api):
    arguments = '{"city": "New \\"York\\"", "days": 3}'
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'
    _, content, calls, finish, pieces = streamed(api, messages=say(f"I look.\n{call}\n{call}"), tools=TOOLS)
    assert (content, finish) == ("I look.", "tool_calls") and [c[1:] for c in calls] == [["get_weather", arguments]] * 2, calls
    assert pieces > len(arguments) / 2, "each token of the arguments comes by itself"


def without_tools_a_call_is_text(api):
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": []}):
        assert whole(api, messages=say(CALL), **more) == ("", CALL, [], "stop")
    broken = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \"city\": }\n</tool_call>"
    assert whole(api, messages=say(broken), tools=TOOLS) == ("", broken, [], "stop")
    assert streamed(api, messages=say(broken), tools=TOOLS)[:4] == ("", broken, [], "stop")


def one_call_is_enough_where_parallel_ones_are_not_wanted(api):
    text = f"{CALL}\n{CALL} and more"
    answer = api.chat.completions.create(model="x", messages=say(text), tools=TOOLS, parallel_tool_calls=False)
    assert len(answer.choices[0].message.tool_calls) == 1 and answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.completion_tokens < len(text), "the rest was not generated"
    assert len(streamed(api, messages=say(text), tools=TOOLS, parallel_tool_calls=False)[2]) == 1
    both = api.chat.completions.create(model="x", messages=say(text), tools=TOOLS, n=2)
    ids = [c.id for choice in both.choices for c in choice.message.tool_calls]
    assert len(ids) == 4 and len(set(ids)) == 4


def a_cut_call_says_so(api):
    _, _, calls, finish = whole(api, messages=say(CALL), tools=TOOLS, max_tokens=70)
    assert finish == "length" and len(calls) == 1 and calls[0][2].startswith('{"city":"New ')
    try:
        json.loads(calls[0][2])
        assert False
    except ValueError:
        pass


def reasoning_is_counted(api):
    answer = api.chat.completions.create(model="x", messages=say("<think>12345</think>yes"))
    assert answer.usage.completion_tokens_details.reasoning_tokens == 5 + len("</think>")
    assert answer.choices[0].message.content == "yes"


def wrong_tools_are_refused_by_name(api):
    function = {"name": "f"}
    for tools, more in (([{"type": "retrieval"}], {}), ([{"type": "function"}], {}), ([{"type": "function", "function": {"name": ""}}], {}),
                        ([{"type": "function", "function": {"name": "a<b"}}], {}),
                        ([{"type": "function", "function": {"name": "f", "parameters": []}}], {}),
                        ([{"type": "function", "function": function}], {"parallel_tool_calls": "yes"})):
        try:
            api.chat.completions.create(model="x", messages=say("x"), tools=tools, extra_body=more)
            assert False, tools
        except openai.BadRequestError as error:
            assert error.param == (list(more) or ["tools"])[0], error


def on_an_engine_that_says_what_it_is_told():
    with fake_server("tools=xml", "reasoning=think", "context=8192", "step_us=0") as server:
        api = client(server)
        for test in (a_stream_and_a_whole_answer_say_the_same, arguments_in_json_come_while_they_are_written, without_tools_a_call_is_text, a_cut_call_says_so,
                     one_call_is_enough_where_parallel_ones_are_not_wanted, reasoning_is_counted, wrong_tools_are_refused_by_name):
            test(api)


def the_default_model_uses_a_tool_and_thinks():
    with real_server(MODEL, "--parallel", "1", "--ctx", "2048") as server:
        api = client(server)
        messages = [{"role": "user", "content": "What is the weather in Oakham?"}]
        _, content, calls, finish, _ = streamed(api, messages=messages, tools=TOOLS[:1], temperature=0)
        assert finish == "tool_calls" and not content and calls[0][1] == "get_weather", (content, calls)
        assert json.loads(calls[0][2])["city"] == "Oakham", calls
        answer = api.chat.completions.create(model="x", messages=messages, tools=TOOLS, temperature=0)
        message = answer.choices[0].message
        assert [c.function.arguments for c in message.tool_calls] == [calls[0][2]]
        # the client's own message goes back as it came
        messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": json.dumps({"temperature": 17, "sky": "rain"})}]
        told = api.chat.completions.create(model="x", messages=messages, tools=TOOLS, temperature=0).choices[0]
        assert told.finish_reason == "stop" and "17" in told.message.content, told.message
        # asked for no tool at all, it must call the one that is named, with arguments that follow its schema
        clock = {"type": "function", "function": {"name": "set_clock", "parameters": {
            "type": "object", "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}, "zone": {"enum": ["here", "there"]}},
            "required": ["hour", "zone"]}}}
        for choice, thinks in (("required", False), ({"type": "function", "function": {"name": "set_clock"}}, True)):
            reasoning, content, calls, finish, _ = streamed(api, messages=[{"role": "user", "content": "Who are you?"}], tools=[clock], tool_choice=choice,
                                                            temperature=0, max_tokens=200, parallel_tool_calls=False,
                                                            extra_body={"chat_template_kwargs": {"enable_thinking": thinks}})
            assert finish == "tool_calls" and not content and bool(reasoning) == thinks, (reasoning, content, finish)
            arguments = json.loads(calls[0][2])
            assert calls[0][1] == "set_clock" and 0 <= arguments["hour"] <= 23 and arguments["zone"] in ("here", "there"), calls
        question = [{"role": "user", "content": "What is 23 + 45?"}]
        for more in ({"chat_template_kwargs": {"enable_thinking": True}}, {"reasoning_effort": "low"}):
            reasoning, content, _, _ = whole(api, messages=question, temperature=0, extra_body=more)
            assert reasoning and "think>" not in content and "68" in content, (more, reasoning, content)


if __name__ == "__main__":
    tests = [on_an_engine_that_says_what_it_is_told]
    if os.path.exists(MODEL):
        tests.append(the_default_model_uses_a_tool_and_thinks)
    serving.run(tests)
