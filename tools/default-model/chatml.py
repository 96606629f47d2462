"""chatml.py: writes conversations in the chat markup, as template.jinja does, with a training weight beside every piece.

A sample is a list of (text, weight) pieces; weight 0 is never learned, 1 always. What the assistant says weighs 1; what
is said to it weighs little (it teaches the model English, but most of it can't be foreseen)."""
import json

END = "<|endoftext|>"
GIVEN = 0.05           # weight of system, user and tool text

TOOLS_HEAD = "# Tools\n\nYou can call these functions:\n\n<tools>"
TOOLS_TAIL = ("\n</tools>\n\nTo call a function, answer with nothing but:\n\n<tool_call>\n<function=name_of_the_function>\n"
              "<parameter=name_of_a_parameter>\nvalue\n</parameter>\n</function>\n</tool_call>\n\n"
              "Give every required parameter. If no function is needed, answer as usual.")


def tools_text(tools, system):
    text = TOOLS_HEAD + "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools) + TOOLS_TAIL
    return text + ("\n\n" + system if system else "")


def call_text(name, arguments):
    out = "<tool_call>\n<function=%s>\n" % name
    for key, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        out += "<parameter=%s>\n%s\n</parameter>\n" % (key, shown)
    return out + "</function>\n</tool_call>"


def render(r, messages, tools=None, given=GIVEN, spoken=1.0, plain_history=True):
    """Pieces of a conversation. An assistant turn is written as at its own time (with its <think> section, empty when
    thinking is off) or, if it isn't the last, perhaps as a later turn sees it (without)."""
    pieces = []
    start = 0
    system = ""
    if messages[0]["role"] == "system":
        system = messages[0]["content"]
        start = 1
    if tools:
        pieces.append(("<|im_start|>system\n" + tools_text(tools, system) + "<|im_end|>\n", given))
    elif system:
        pieces.append(("<|im_start|>system\n" + system + "<|im_end|>\n", given))
    last_user = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i, m in enumerate(messages[start:], start):
        if m["role"] == "user":
            pieces.append(("<|im_start|>user\n" + m["content"] + "<|im_end|>\n", m.get("weight", given)))
        elif m["role"] == "tool":
            pieces.append(("<|im_start|>user\n<tool_response>\n" + m["content"] + "\n</tool_response><|im_end|>\n", given))
        else:
            think = m.get("think")
            bare = i < last_user and plain_history and r.flip(0.4)
            head = "<|im_start|>assistant\n"
            text = m.get("content", "")
            if m.get("calls"):
                text += ("\n\n" if text else "") + "\n".join(call_text(*c) for c in m["calls"])
            if bare:
                pieces.append((head, given))
            elif think:
                pieces.append((head + "<think>\n", given))
                pieces.append((think + "\n</think>\n\n", spoken))
            else:
                pieces.append((head + "<think>\n\n</think>\n\n", given))
            pieces.append((text + "<|im_end|>", spoken * m.get("weight", 1.0)))
            pieces.append(("\n", given))
    pieces.append((END, given))
    return pieces


def chat(*turns, system=None):
    """Messages from alternating user and assistant texts."""
    out = [{"role": "system", "content": system}] if system else []
    for i, text in enumerate(turns):
        out.append({"role": "user" if i % 2 == 0 else "assistant", "content": text})
    return out
