"""Answers of a certain form, asked for by the openai client: each is whole and follows its form, or is cut by max_tokens."""
import functools
import json
import re
import typing

import openai
import pydantic

import serving
from serving import real_server

QUESTION = [{"role": "user", "content": "The code of the red door is 4719. What is the code of the red door?"}]


class Door(pydantic.BaseModel):
    color: typing.Literal["red", "green"]
    code: int = pydantic.Field(ge=1000, le=9999)
    near: typing.Optional["Door"] = None
    notes: list[typing.Annotated[str, pydantic.Field(max_length=12)]] = pydantic.Field(max_length=2)


def ask(api, **more):
    reply = api.chat.completions.create(model="x", messages=QUESTION, max_tokens=200, **more)
    return [(c.message.content, c.finish_reason) for c in reply.choices]


def a_pydantic_model_comes_back(api):
    for seed in range(2):
        reply = api.chat.completions.parse(model="x", messages=QUESTION, response_format=Door, max_tokens=2000, seed=seed,
                                           temperature=0.7)
        assert reply.choices[0].finish_reason == "stop"
        assert isinstance(reply.choices[0].message.parsed, Door), reply


def several_choices_and_streams_keep_the_form(api):
    schema = {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 50}, "minItems": 2, "maxItems": 5}
    form = {"type": "json_schema", "json_schema": {"name": "numbers", "schema": schema, "strict": True}}
    for text, finish in ask(api, response_format=form, n=6, temperature=2, seed=1):
        numbers = json.loads(text)
        assert finish == "stop" and 2 <= len(numbers) <= 5 and all(-5 <= n <= 50 for n in numbers), text
    chunks = api.chat.completions.create(model="x", messages=QUESTION, max_tokens=200, response_format=form, stream=True)
    assert 2 <= len(json.loads("".join(c.choices[0].delta.content or "" for c in chunks))) <= 5


def other_servers_names_work(api):
    assert re.fullmatch(r"[0-9]{3}-[a-z]{2,5}", ask(api, extra_body={"guided_regex": "[0-9]{3}-[a-z]{2,5}"})[0][0])
    assert ask(api, extra_body={"guided_choice": ["yes", "no", "Ümläut"]})[0][0] in ("yes", "no", "Ümläut")
    grammar = 'root ::= "It is " code "."\ncode ::= [0-9]{4}'
    assert ask(api, temperature=0, extra_body={"grammar": grammar})[0] == ("It is 4719.", "stop")
    text = api.completions.create(model="x", prompt="Once", max_tokens=60, extra_body={"json_schema": {"enum": [1, "b", None]}})
    assert json.loads(text.choices[0].text) in (1, "b", None)


def max_tokens_cuts_a_beginning(api):
    reply = api.chat.completions.create(model="x", messages=QUESTION, max_tokens=3, response_format={"type": "json_object"})
    text, finish = reply.choices[0].message.content, reply.choices[0].finish_reason
    assert finish == "length" and text.startswith("{") and len(text) >= 2, (text, finish)


TOOL = {"name": "get_weather", "description": "Tells the weather of a place."}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "description": "the name of the city"}}, "required": ["city"]}
CODE = {"type": "object", "properties": {"code": {"type": "integer", "minimum": 1000, "maximum": 9999}}, "required": ["code"], "additionalProperties": False}
WEATHER = [{"role": "user", "content": "What is the weather in Oakham?"}]


def in_three_words(api, messages, **more):
    """(content, calls) of a chat, a streamed chat, a response and a message that were asked the same."""
    chat = {"model": "x", "messages": messages, "temperature": 0, "max_tokens": 200, "tools": [{"type": "function", "function": {**TOOL, "parameters": PARAMETERS}}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "code", "schema": CODE}}, **more}
    message = api.chat.completions.create(**chat).choices[0].message
    yield message.content or "", [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
    content, calls = "", []
    for chunk in api.chat.completions.create(stream=True, **chat):
        content += chunk.choices[0].delta.content or ""
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.function.name:
                calls.append((call.function.name, ""))
            calls[-1] = (calls[-1][0], calls[-1][1] + call.function.arguments)
    yield content, calls
    made = api.responses.create(model="x", input=messages, temperature=0, max_output_tokens=200, tools=[{"type": "function", **TOOL, "parameters": PARAMETERS}],
                                text={"format": {"type": "json_schema", "name": "code", "schema": CODE}}, **more)
    yield made.output_text, [(item.name, item.arguments) for item in made.output if item.type == "function_call"]
    choice = {"tool_choice": {"type": more["tool_choice"]}} if more else {}
    made = api.post("/messages", cast_to=object, body={"model": "x", "messages": messages, "temperature": 0, "max_tokens": 200, **choice,
                    "tools": [{**TOOL, "input_schema": PARAMETERS}], "output_config": {"format": {"type": "json_schema", "schema": CODE}}})
    yield ("".join(block["text"] for block in made["content"] if block["type"] == "text"),
           [(block["name"], json.dumps(block["input"], separators=(",", ":"))) for block in made["content"] if block["type"] == "tool_use"])


def beside_tools_a_form_is_one_of_two_ways_to_answer(api):
    for content, calls in in_three_words(api, WEATHER):
        assert not content and calls == [("get_weather", '{"city":"Oakham"}')], (content, calls)
    for content, calls in in_three_words(api, [{"role": "user", "content": "Write a list of colours."}]):
        assert not calls and 1000 <= json.loads(content)["code"] <= 9999, (content, calls)
    for content, calls in in_three_words(api, WEATHER, tool_choice="none"):
        assert not calls and 1000 <= json.loads(content)["code"] <= 9999, (content, calls)


def what_cannot_be_followed_is_refused(api):
    for more, words in [({"grammar": 'root ::= "a'}, "no closing quote"), ({"json_schema": {"items": {"not": {}}}}, 'json_schema.items: the keyword "not"'),
                        ({"guided_regex": "a(?=b)"}, "looking ahead"), ({"json_schema": False}, "no text can ever match")]:
        try:
            ask(api, extra_body=more)
        except openai.BadRequestError as refusal:
            assert words in refusal.message, refusal.message
        else:
            raise AssertionError(more)


if __name__ == "__main__":
    model = serving.find_model() or serving.skip("no model that can chat (models/ or $ES_MODEL)")
    with real_server(model, "--parallel", "3", "--ctx", "4096") as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
        tests = [a_pydantic_model_comes_back, several_choices_and_streams_keep_the_form, other_servers_names_work,
                 max_tokens_cuts_a_beginning, beside_tools_a_form_is_one_of_two_ways_to_answer, what_cannot_be_followed_is_refused]
        serving.run([functools.wraps(t)(functools.partial(t, client)) for t in tests])
