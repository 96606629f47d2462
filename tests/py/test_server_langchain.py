"""langchain-openai against the server: tools bound to a model, their results sent back, structured output, streams."""
# long
import json
import os
import sys
import typing

import serving
from serving import fake_server, real_server

try:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import BaseModel
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

MODEL = os.path.join(serving.SOURCE, "models", "evenshare-default.gguf")
CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"


@tool
def get_weather(city: str) -> str:
    """Tells the weather of a place."""
    return json.dumps({"temperature": len(city) + 11, "sky": "rain"})


class Code(BaseModel):
    """The code of a door."""
    door: typing.Literal["red", "blue"]
    code: typing.Literal[2208, 4719]


def chat(server, **more):
    return ChatOpenAI(base_url=server.url + "/v1", api_key="none", model="x", temperature=0, max_retries=0, **more)


def bound_tools_are_called_whole_and_in_a_stream():
    with fake_server("tools=xml", "context=8192", "step_us=0") as server:
        bound = chat(server).bind_tools([get_weather])
        asked = [HumanMessage(f"[[[I look.\n{CALL}]]]")]
        whole = bound.invoke(asked)
        assert whole.content == "I look." and [(c["name"], c["args"]) for c in whole.tool_calls] == [("get_weather", {"city": "Rome"})], whole
        joined = None
        for chunk in bound.stream(asked):
            joined = chunk if joined is None else joined + chunk
        assert joined.content == whole.content and joined.tool_calls[0]["args"] == {"city": "Rome"}, joined


def the_default_model_goes_round_with_a_tool_and_keeps_to_a_form():
    with real_server(MODEL, "--parallel", "1", "--ctx", "2048") as server:
        bound = chat(server).bind_tools([get_weather])
        messages = [HumanMessage("What is the weather in Oakham?")]
        messages.append(bound.invoke(messages))
        call = messages[-1].tool_calls[0]
        messages.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
        assert "17" in bound.invoke(messages).content
        forced = chat(server).bind_tools([get_weather], tool_choice="get_weather").invoke("How is Rome?")
        assert forced.tool_calls[0]["name"] == "get_weather"
        for method in ("json_schema", "function_calling"):
            found = chat(server).with_structured_output(Code, method=method).invoke("The red door has the code 4719. What is the code of the red door?")
            assert isinstance(found, Code), (method, found)


if __name__ == "__main__":
    tests = [bound_tools_are_called_whole_and_in_a_stream]
    if os.path.exists(MODEL):
        tests.append(the_default_model_goes_round_with_a_tool_and_keeps_to_a_form)
    serving.run(tests)
