"""tooltasks.py: conversations with tools: choosing a function, filling its parameters from what the user said, using the
result, and doing without where no function fits. Some functions are fixed, most are made up on the spot."""
import json

import knowledge
from chatml import chat
from world import (ANIMALS, CODEWORDS, COLORS, DAYS, FIRST, FOODS, JOBS, NOUN, ROOMS, WEATHER, cap, clock_time, code, digits, invented,
                   person, place, thing)

# name, description, parameters {name: (type, description, draw)}, ways to ask, result(r, args), answer(args, result)
FIXED = [
    ("get_weather", "Tells the weather of a place.", {"city": ("string", "the name of the city", place)},
     ["What is the weather in {city}?", "How is the weather in {city}?", "Is it cold in {city}?", "Tell me the weather of {city}."],
     lambda r, a: {"temperature": r.span(-9, 35), "sky": r.pick(WEATHER)},
     lambda a, x: "In %s it is %s with %d degrees." % (a["city"], x["sky"], x["temperature"])),
    ("get_price", "Looks up the price of an item.", {"item": ("string", "the item", thing)},
     ["How much is the {item}?", "What does the {item} cost?", "Look up the price of the {item}."],
     lambda r, a: {"price": r.span(1, 999), "currency": "coins"}, lambda a, x: "The %s costs %d coins." % (a["item"], x["price"])),
    ("find_person", "Finds the address of a person.", {"name": ("string", "full name", person)},
     ["Where does {name} live?", "Find the address of {name}.", "Look up {name}, please."],
     lambda r, a: {"town": place(r), "phone": digits(r, 3) + "-" + digits(r, 4)},
     lambda a, x: "%s lives in %s. The phone number is %s." % (a["name"], x["town"], x["phone"])),
    ("add", "Adds two numbers.", {"a": ("integer", "first number", lambda r: r.span(0, 9999)), "b": ("integer", "second number", lambda r: r.span(0, 9999))},
     ["What is {a} + {b}?", "Add {a} and {b}.", "How much is {a} plus {b}?"], lambda r, a: {"result": a["a"] + a["b"]},
     lambda a, x: "%d + %d = %d" % (a["a"], a["b"], x["result"])),
    ("set_alarm", "Sets an alarm.", {"time": ("string", "time of day, as 7:30", clock_time)},
     ["Wake me at {time}.", "Set an alarm for {time}.", "I want to get up at {time}."], lambda r, a: {"status": "ok"},
     lambda a, x: "The alarm is set for %s." % a["time"]),
    ("send_message", "Sends a message to a person.", {"to": ("string", "who gets it", lambda r: r.pick(FIRST)),
                                                     "text": ("string", "the message", lambda r: "I will come on " + r.pick(DAYS))},
     ["Send {to} this message: {text}", "Tell {to}: {text}", "Write to {to}: {text}"], lambda r, a: {"status": "sent"},
     lambda a, x: "I sent the message to %s." % a["to"]),
    ("set_light", "Changes the light in a room.", {"room": ("string", "the room", lambda r: r.pick(ROOMS)),
                                                 "color": ("string", "color of the light", lambda r: r.pick(COLORS))},
     ["Make the light in the {room} {color}.", "Set the light in the {room} to {color}.", "I want {color} light in the {room}."],
     lambda r, a: {"ok": True}, lambda a, x: "The light in the %s is %s now." % (a["room"], a["color"])),
    ("search", "Searches the library.", {"query": ("string", "what to look for", lambda r: r.pick((thing, place, person))(r))},
     ["Search for {query}.", "Look for {query} in the library.", "What does the library have about {query}?"],
     lambda r, a: {"results": [cap(thing(r)), cap(thing(r))]}, lambda a, x: "I found: %s and %s." % tuple(x["results"])),
    ("book_table", "Books a table at a restaurant.", {"people": ("integer", "number of people", lambda r: r.span(1, 12)),
                                                    "day": ("string", "day of the week", lambda r: r.pick(DAYS)),
                                                    "time": ("string", "time of day", clock_time)},
     ["Book a table for {people} on {day} at {time}.", "We are {people} people and want to eat on {day} at {time}."],
     lambda r, a: {"table": r.span(1, 40)}, lambda a, x: "Your table for %d on %s at %s is booked. It is table %d." % (a["people"], a["day"], a["time"], x["table"])),
    ("get_time", "Tells the time of day.", {}, ["What time is it?", "Tell me the time.", "How late is it?"], lambda r, a: {"time": clock_time(r)},
     lambda a, x: "It is %s." % x["time"]),
]
ACTS = [("open", "Opens"), ("close", "Closes"), ("find", "Finds"), ("count", "Counts"), ("check", "Checks"), ("start", "Starts"), ("stop", "Stops"),
        ("get", "Gets"), ("read", "Reads"), ("move", "Moves"), ("clean", "Cleans"), ("repair", "Repairs"), ("measure", "Measures"), ("lock", "Locks"),
        ("delete", "Deletes"), ("order", "Orders"), ("draw", "Draws"), ("call", "Calls")]
PARAMS = {"name": person, "town": place, "code": code, "color": lambda r: r.pick(COLORS), "number": lambda r: r.span(1, 999), "animal": lambda r: r.pick(ANIMALS),
          "day": lambda r: r.pick(DAYS), "time": clock_time, "food": lambda r: r.pick(FOODS), "room": lambda r: r.pick(ROOMS), "level": lambda r: r.span(0, 10),
          "item": thing, "job": lambda r: r.pick(JOBS), "word": lambda r: r.pick(CODEWORDS), "key": invented, "force": lambda r: r.flip(0.5)}
RESULTS = ["status", "result", "count", "code", "place", "color", "state", "answer", "name"]


def type_of(v):
    return "boolean" if isinstance(v, bool) else "integer" if isinstance(v, int) else "string"


def made_up(r):
    """A function nobody has seen before, in the same shape as the fixed ones."""
    verb, does = r.pick(ACTS)
    noun = r.pick(NOUN)
    names = r.sample(list(PARAMS), r.pick((0, 1, 1, 1, 2, 2, 3)))
    params = {}
    for n in names:
        sample = PARAMS[n](r)
        params[n] = (type_of(sample), "the " + n, PARAMS[n])
    asks = [" and ".join(["%s the %s" % (cap(verb), noun)] if not names else
                         ["%s the %s with %s" % (cap(verb), noun, ", ".join("%s {%s}" % (n, n) for n in names))]) + ".",
            "I want to %s the %s%s." % (verb, noun, "".join(r.pick((", the %s is {%s}", ", %s: {%s}")) % (n, n) for n in names))]
    key = r.pick(RESULTS)

    def result(r, a):
        value = {"count": lambda: r.span(0, 500), "status": lambda: r.pick(("ok", "done", "ready")), "state": lambda: r.pick(("open", "closed", "ready")),
                 "place": lambda: place(r), "color": lambda: r.pick(COLORS), "name": lambda: person(r)}.get(key, lambda: code(r))()
        return {key: value}

    return ("%s_%s" % (verb, noun), "%s the %s." % (does, noun), params, asks, result, lambda a, x: "The %s of the %s is %s." % (key, noun, x[key]))


def spec(r, tool, style):
    name, description, params = tool[:3]
    schema = {"type": "object", "properties": {n: {"type": t, "description": d} for n, (t, d, _) in params.items()}, "required": list(params)}
    if style == 1:
        for p in schema["properties"].values():
            p.pop("description")
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def draw_call(r, tool):
    args = {n: draw(r) for n, (_, _, draw) in tool[2].items()}
    said = {n: ("yes" if v else "no") if isinstance(v, bool) else v for n, v in args.items()}
    return r.pick(tool[3]).format(**said), args


def tool_talk(r):
    """Messages and tool specifications of one conversation."""
    chosen = {}
    for _ in range(r.pick((1, 1, 2, 3, 4))):
        t = r.pick(FIXED) if r.flip(0.4) else made_up(r)
        chosen.setdefault(t[0], t)
    tools = list(chosen.values())
    style = r.below(3)
    out = [{"role": "system", "content": r.pick(["You are a helpful assistant.", "Use the tools when they help.", "Be brief."])}] if r.flip(0.3) else []
    for turn in range(r.pick((1, 1, 1, 2, 2, 3))):
        if r.flip(0.15):
            ask, answer = r.pick(knowledge.FACTS) if r.flip(0.6) else [r.pick(x) for x in r.pick(knowledge.SMALL_TALK[:3])]
            out += chat(ask, answer)
            if r.flip(0.2):
                out[-1]["think"] = "No function is needed for this."
            continue
        tool = r.pick(tools)
        ask, args = draw_call(r, tool)
        call = {"role": "assistant", "content": "", "calls": [(tool[0], args)]}
        think = r.flip(0.25)
        if think:
            call["think"] = "I need the function %s." % tool[0]
        out += [{"role": "user", "content": ask}, call]
        if r.flip(0.12):
            ask2, args2 = draw_call(r, tool)
            if args2 != args and args:
                out[-2]["content"] = ask + " " + ask2
                call["calls"].append((tool[0], args2))
                res = [tool[4](r, args), tool[4](r, args2)]
                body = "\n</tool_response>\n<tool_response>\n".join(json.dumps(x) for x in res)
                out += [{"role": "tool", "content": body},
                        {"role": "assistant", "content": tool[5](args, res[0]) + " " + tool[5](args2, res[1])}]
                continue
        if turn == 0 and r.flip(0.25):
            continue_with_result = False
        else:
            continue_with_result = True
        if not continue_with_result:
            break
        if r.flip(0.08):
            out += [{"role": "tool", "content": json.dumps({"error": r.pick(["not found", "no answer", "try again later"])})},
                    {"role": "assistant", "content": "I am sorry, that did not work."}]
            continue
        res = tool[4](r, args)
        text = json.dumps(res)
        out += [{"role": "tool", "content": text}, {"role": "assistant", "content": tool[5](args, res)}]
        if think:
            out[-1]["think"] = "The function answered. I tell the user the result."
    return out, [spec(r, t, style) for t in tools]
