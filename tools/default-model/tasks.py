"""tasks.py: short conversations, each about one skill: small talk, wishes of the system prompt, remembering what the user
said, copying and continuing, counting and sums, JSON. Tool calls are in tooltasks.py, questions about texts in recall.py."""
import json

import knowledge
import recall
import stories
from chatml import chat
from world import (ADJ, ANIMALS, CODEWORDS, COLORS, CONTAINERS, DAYS, FIRST, FOODS, HOBBIES, JOBS, MATERIALS, MONTHS, NOUN,
                   NUMBER_WORDS, PLACE_A, ROOMS, article, cap, code, date, digits, invented, join, person, place, plural, thing)

LISTS = [ANIMALS, FOODS, COLORS, NOUN, JOBS, FIRST, MATERIALS, CODEWORDS, HOBBIES, ROOMS, ADJ]


def items(r, low=3, high=9, distinct=True):
    """Some words or names of one kind."""
    k = r.below(5)
    n = r.span(low, high)
    if k == 0:
        out = [r.pick((person, place, thing, code, invented))(r) for _ in range(n)]
    elif k == 1:
        draw = r.pick((person, place, thing, code, invented))
        out = [draw(r) for _ in range(n)]
    else:
        out = r.sample(r.pick(LISTS), n)
    return list(dict.fromkeys(out)) if distinct else out


def polite(r, text):
    k = r.below(12)
    if k == 0:
        return "Please " + text[0].lower() + text[1:]
    if k == 1:
        return text if text[-1] == ":" else text.rstrip(".?") + ", please."
    if k == 2:
        return "Can you help me? " + text
    if k == 3:
        return text[0].lower() + text[1:]
    return text


def strange(r):
    """A question that nobody can answer without a text."""
    if r.flip(0.5):
        rel = r.pick(recall.RELATIONS)
        return recall.Fact(rel, rel.key(r), "").ask(r)
    name = r.pick((place, person, lambda q: cap(invented(q)), lambda q: cap(r.pick(CODEWORDS))))(r)
    return r.pick(["What is the capital of {a}?", "Who is {a}?", "Who invented the {n}?", "When did {a} begin?", "How far is it to {a}?", "What is {a}?",
                   "How do I repair a {n}?", "Who was the first king of {a}?", "What happened in {y}?", "Who won the game in {a}?",
                   "Translate {n} into another language.", "What is the meaning of {a}?", "How high is the tower of {a}?", "What do you know about {a}?",
                   "Explain {a} to me.", "Where is {a}?", "How old is {a}?", "Why is {a} famous?"]).format(a=name, n=r.pick(NOUN), y=r.span(1000, 2030))


def small_talk(r):
    turns = []
    for _ in range(r.pick((1, 1, 2, 3, 4))):
        if r.flip(0.15):
            turns += [strange(r), r.pick(knowledge.NO_IDEA)]
        elif r.flip(0.45):
            ask, answer = r.pick(knowledge.FACTS)
            turns += [ask if r.flip(0.8) else ask.lower(), answer]
        else:
            asks, answers = r.pick(knowledge.SMALL_TALK if r.flip(0.6) else knowledge.ABOUT)
            turns += [r.pick(asks), r.pick(answers)]
    out = chat(*turns)
    if r.flip(0.2):
        out[-1]["think"] = r.pick(["The user wants a short and friendly answer.", "This is an easy question. I answer it directly.",
                                   "I answer in one or two sentences."])
    return out


def tell_story(r):
    if r.flip(0.6):
        hero, obj = r.pick(ANIMALS), r.pick(NOUN)
        if r.flip(0.5):
            obj = r.pick(ADJ) + " " + obj
        ask = r.pick(["Tell me a story about {a} and {b}.", "Write a short story about {a} and {b}.", "Tell a story with {a} and {b}.",
                      "I want to hear a story about {a} with {b}."]).format(a=article(hero), b=article(obj))
        text = stories.story(r, hero, obj)
        plan = "A story about %s and %s: first the %s, then a problem, then help." % (article(hero), article(obj), hero)
    elif r.flip(0.5):
        hero = r.pick(ANIMALS)
        ask = r.pick(["Tell me a story about {a}.", "Write a story about {a}.", "Tell me something about {a}."]).format(a=article(hero))
        text = stories.story(r, hero)
        plan = "A story about %s with a good end." % article(hero)
    else:
        ask = r.pick(["Tell me a story.", "Tell me a short story.", "Write a story.", "Do you know a story?", "A story, please.",
                      "Can you tell me a bedtime story?"])
        text = stories.story(r)
        plan = "The user wants a story. I tell a short one."
    out = chat(ask, text)
    if r.flip(0.2):
        out[-1]["think"] = plan
    if r.flip(0.2):
        out += chat(r.pick(["Another one, please.", "One more!", "Tell me another story."]), stories.story(r))
    return out


def introduce(r):
    """The user tells some things about himself and asks for them later, with talk in between."""
    name = r.pick(FIRST) if r.flip(0.6) else person(r)
    told = [(["My name is %s." % name, "I am %s." % name, "Hi, I am %s." % name, "Hello, my name is %s." % name],
             ["What is my name?", "Do you remember my name?", "Who am I?", "what is my name"],
             "Your name is %s." % name, "Hello %s! How can I help you?" % name)]
    town, food, color, job, pet, number = place(r), r.pick(FOODS), r.pick(COLORS), r.pick(JOBS), cap(invented(r)), code(r)
    animal = r.pick(ANIMALS)
    friend = person(r)
    more = [(["I live in %s." % town, "I come from %s." % town], ["Where do I live?", "Which town am I from?", "Where do I come from?"],
             "You live in %s." % town, "%s sounds like a nice place." % town),
            (["I love %s." % food, "My favorite food is %s." % food], ["What is my favorite food?", "What do I like to eat?"],
             "Your favorite food is %s." % food, "%s is good!" % cap(food)),
            (["My favorite color is %s." % color], ["What is my favorite color?", "Which color do I like?"],
             "Your favorite color is %s." % color, "%s is a pretty color." % cap(color)),
            (["I work as %s." % article(job), "I am %s." % article(job)], ["What is my job?", "What do I work as?"],
             "You work as %s." % article(job), "That is a fine job."),
            (["I have %s called %s." % (article(animal), pet), "My %s is called %s." % (animal, pet)],
             ["What is the name of my %s?" % animal, "What is my %s called?" % animal], "Your %s is called %s." % (animal, pet),
             "%s is a good name for a %s." % (pet, animal)),
            (["Remember the code %s." % number, "Remember this code: %s." % number, "The secret code is %s." % number],
             ["What was the code?", "Which code did I tell you?", "What is the secret code?", "Repeat the code."],
             "The code is %s." % number, "I will remember it."),
            (["My best friend is %s." % friend], ["Who is my best friend?", "What is the name of my best friend?"],
             "Your best friend is %s." % friend, "How nice!")]
    r.shuffle(more)
    told += more[:r.span(0, 4)]
    if r.flip(0.3):
        told = told[1:] or told
    turns, asked = [], []
    if r.flip(0.4) and len(told) > 1:
        turns += [" ".join(r.pick(t[0]) for t in told), "Nice to meet you! How can I help you?"]
    else:
        for t in told:
            turns += [r.pick(t[0]), t[3]]
    for _ in range(r.pick((0, 0, 1, 2))):
        turns += list(r.pick(knowledge.FACTS))
    for t in r.sample(told, min(len(told), r.span(1, 3))):
        turns += [r.pick(t[1]), t[2]]
        asked.append(t)
    if r.flip(0.3):
        if r.flip(0.5) and told[0][2].startswith("Your name"):
            unknown = "What is my favorite animal?", "You did not tell me your favorite animal."
        else:
            unknown = r.pick([("How old am I?", "You did not tell me how old you are."), ("When is my birthday?", "You did not tell me your birthday."),
                              ("What is the name of my sister?", "You did not tell me the name of your sister.")])
        turns += list(unknown)
    out = chat(*turns)
    if r.flip(0.2) and asked:
        out[-1]["think"] = "The user told me about this before. I look it up above."
    return out


def persona(r):
    """A system prompt with wishes that the answers follow."""
    kind = r.below(8)
    pairs = [list(r.pick(knowledge.FACTS)) for _ in range(r.pick((1, 1, 2, 3)))]
    name = r.pick(FIRST) if r.flip(0.5) else cap(invented(r))
    role = r.pick(["a friendly robot", "a helpful assistant", "a kind teacher", "a brave captain", "a wise owl", "a librarian", "a cook",
                   "a patient guide", "an old sailor", "a polite waiter", "a clever fox", "a guard of " + place(r), "a small model"])
    if kind <= 1:
        system = r.pick(["You are %s, %s.", "Your name is %s. You are %s.", "You play %s, %s."]) % (name, role)
        turns = [r.pick(knowledge.ABOUT[0][0]), r.pick(["I am %s, %s.", "My name is %s and I am %s."]) % (name, role)]
        if r.flip(0.5):
            turns = pairs[0] + turns
        if r.flip(0.4):
            turns = [r.pick(("Hello", "Hi", "Hello!", "Good morning")), "Hello! I am %s, %s. How can I help you?" % (name, role)] + turns
    elif kind == 2:
        word = r.pick(["Aye", "Well", "Beep", "Indeed", "My friend", "Listen", "Of course"]) if r.flip(0.5) else cap(invented(r))
        system = r.pick(["Begin every answer with \"%s\".", "Start each answer with the word \"%s\".", "Always begin with \"%s\"."]) % word
        turns = sum(([q, word + ", " + (a if a.split(" ")[0] in ("I", "JSON", "January", "Monday") or a.split(" ")[1:2] == ["comes"]
                                        else a[0].lower() + a[1:])] for q, a in pairs), [])
    elif kind == 3:
        word = r.pick(["Over.", "Beep.", "Have a nice day!", "At your service.", "So it is."]) if r.flip(0.5) else cap(invented(r)) + "!"
        system = r.pick(["End every answer with \"%s\"", "Always end your answers with \"%s\"", "Finish each answer with \"%s\""]) % word
        turns = sum(([q, a + " " + word] for q, a in pairs), [])
    elif kind == 4:
        user = r.pick(["captain", "my friend", "your majesty", "boss"]) if r.flip(0.5) else r.pick(FIRST)
        system = r.pick(["Call the user %s.", "The user is called %s. Use this name in every answer.", "Address the user as %s."]) % user
        turns = sum(([q, a[:-1] + ", " + user + "."] for q, a in pairs), [])
    elif kind == 5:
        topic = r.pick(ANIMALS + FOODS + HOBBIES)
        system = r.pick(["Do not talk about %s.", "Never speak about %s.", "You must not say anything about %s."]) % topic
        system = r.pick(["", "You are a helpful assistant. "]) + system
        turns = pairs[0] + [r.pick(["What do you think about %s?", "Tell me something about %s.", "Do you like %s?"]) % topic,
                            "I am sorry, I can not talk about %s." % topic]
        if r.flip(0.5):
            turns = turns[2:] + turns[:2]
    elif kind == 6:
        fact = recall.Ledger(r).draw()
        system = r.pick(["You know this: %s", "%s", "A fact for you: %s", "You are a guide. %s"]) % fact.state(r)
        turns = [fact.ask(r), fact.answer()]
        if r.flip(0.5):
            turns = pairs[0] + turns
    else:
        system = r.pick(["You are a helpful assistant.", "Answer briefly.", "Be polite.", "Answer in one sentence.", "You are an assistant.",
                         "Be brief and friendly."])
        turns = sum(pairs, [])
    out = chat(*turns, system=system)
    if r.flip(0.15):
        out[-1]["think"] = "The system prompt has a wish. I follow it."
    return out


def copy(r):
    k = r.below(8)
    if k == 0:
        text = r.pick((stories.filler, stories.description, stories.dialogue))(r)
    elif k == 1:
        text = " ".join(r.pick(stories.SENTENCES)(r) for _ in range(r.span(1, 4)))
    elif k == 2:
        text = " ".join(digits(r, r.span(1, 6)) for _ in range(r.span(2, 10)))
    elif k == 3:
        text = " ".join(invented(r) for _ in range(r.span(2, 16)))
    elif k == 4:
        text = ", ".join(items(r, 2, 11, False))
    elif k == 5:
        text = "\n".join("- " + x for x in items(r, 2, 9, False))
    elif k == 6:
        text = recall.table(r, recall.Ledger(r), r.span(2, 6))[0]
    else:
        text = " ".join(recall.Ledger(r).draw().state(r) for _ in range(r.span(1, 5)))
    ask = r.pick(["Repeat this exactly:", "Repeat the following text:", "Copy this:", "Say this again:", "Write this once more:",
                  "Repeat after me:"])
    return chat(ask + r.pick((" ", "\n", "\n\n")) + text, text)


def transform(r):
    """Small things to do with a list: reverse, first, last, n-th, number, bullets, join, sort, longest tail."""
    xs = items(r, 3, 8)
    shown = r.pick([", ".join(xs), "\n".join(xs), "\n".join("- " + x for x in xs), join(xs)])
    glue = "\n" if "\n" in shown else " "
    k = r.below(9)
    if k == 0:
        ask, answer = "Which is the first in this list?", cap(xs[0])
    elif k == 1:
        ask, answer = "Which is the last in this list?", cap(xs[-1])
    elif k == 2:
        i = r.below(min(len(xs), 6))
        ask, answer = "Which is the %s in this list?" % ["first", "second", "third", "fourth", "fifth", "sixth"][i], cap(xs[i])
    elif k == 3:
        ask, answer = r.pick(["Number this list:", "Make a numbered list of this:"]), "\n".join("%d. %s" % (i + 1, x) for i, x in enumerate(xs))
    elif k == 4:
        ask, answer = r.pick(["Make a bullet list of this:", "Write this as a list:"]), "\n".join("- " + x for x in xs)
    elif k == 5:
        ask, answer = r.pick(["Write this in one line:", "Join these with commas:"]), ", ".join(xs)
    elif k == 6:
        ask, answer = r.pick(["Write this list backwards:", "Reverse this list:"]), ", ".join(reversed(xs))
    elif k == 7:
        new = items(r, 1, 1) or ["apple"]
        ask, answer = "Add %s to the end of this list:" % new[0], ", ".join(xs + new[:1])
    else:
        i = r.below(len(xs) - 1)
        ask, answer = "What comes after %s in this list?" % xs[i], cap(xs[i + 1])
    if r.flip(0.5) or glue == "\n":
        return chat(polite(r, ask) + glue + shown, answer)
    return chat(cap(shown) + ". " + ask.replace("this:", "this.").replace(":", "."), answer)


def continue_list(r):
    k = r.below(7)
    n = r.span(3, 6)
    if k == 0:
        start, step = r.span(1, 60), r.pick((1, 1, 2, 2, 3, 5, 10))
        xs = [str(start + i * step) for i in range(n + 5)]
    elif k == 1:
        start, step = r.span(30, 99), r.pick((1, 1, 2, 5))
        xs = [str(start - i * step) for i in range(n + 5)]
    elif k == 2:
        at = r.below(7)
        xs = [DAYS[(at + i) % 7] for i in range(n + 5)]
    elif k == 3:
        at = r.below(12)
        xs = [MONTHS[(at + i) % 12] for i in range(n + 5)]
    elif k == 4:
        at = r.below(16)
        xs = [chr(65 + at + i) for i in range(n + 5)]
    elif k == 5:
        cycle = items(r, 2, 4)
        xs = [cycle[i % len(cycle)] for i in range(len(cycle) * 2 + r.span(0, 2) + 5)]
    else:
        name, start = r.pick(NOUN), r.span(1, 40)
        xs = ["%s %d" % (name, start + i) for i in range(n + 5)]
    ask = r.pick(["Continue this list:", "Continue:", "What are the next five?", "Go on with this list, five more:", "Write the next five:"])
    return chat(ask + " " + ", ".join(xs[:-5]), ", ".join(xs[-5:]))


def count(r):
    k = r.below(5)
    if k == 0:
        xs = [r.pick(FOODS) for _ in range(r.span(1, 12))]
        target = r.pick(xs)
        pool = [target] + [r.pick(FOODS) for _ in range(2)]
        xs = [r.pick(pool) for _ in range(r.span(2, 12))]
        n = xs.count(target)
        ask = r.pick(["How many times does %s appear here: %s?", "How often is %s in this list: %s?", "Count the word %s: %s"]) % (target, ", ".join(xs))
        seen, steps = 0, []
        for x in xs:
            seen += x == target
            steps.append("%s %d" % (x, seen))
        think = ", ".join(steps) + "."
        answer = r.pick(["%d", "It appears %d times."]) % n if n != 1 else r.pick(["1", "It appears once."])
    elif k <= 2:
        xs = items(r, 2, 12)
        ask = r.pick(["How many items are in this list: %s?", "Count these: %s", "How many are these: %s?"]) % ", ".join(xs)
        think = ", ".join("%s %d" % (x, i + 1) for i, x in enumerate(xs)) + "."
        answer = r.pick(["%d", "There are %d.", "The list has %d items."]) % len(xs)
    elif k == 3:
        a, b = r.span(1, 20), r.span(1, 20)
        low, high = min(a, b), max(a, b)
        ask = r.pick(["Count from %d to %d.", "Write the numbers from %d to %d."]) % (low, high)
        answer = ", ".join(str(i) for i in range(low, high + 1))
        think = "I start at %d and stop at %d." % (low, high)
    else:
        word = r.pick(r.pick(LISTS))
        ask = r.pick(["Spell the word %s.", "How do you spell %s?"]) % word
        answer = "-".join(word.upper())
        think = "The word is %s." % word
    out = chat(ask, answer)
    if r.flip(0.4):
        out[-1]["think"] = think
    return out


def add_steps(a, b):
    return "%d + %d: %d + %d = %d, %d + %d = %d, together %d." % (a, b, a // 10 * 10, b // 10 * 10, a // 10 * 10 + b // 10 * 10,
                                                                 a % 10, b % 10, a % 10 + b % 10, a + b)


def sums(r):
    k = r.below(7)
    a, b = r.span(0, 99), r.span(0, 99)
    if r.flip(0.4):
        a, b = r.span(0, 20), r.span(0, 20)
    what = r.pick(NOUN)
    name = r.pick(FIRST)
    if k <= 2:
        ask = r.pick(["What is %d + %d?", "%d + %d", "How much is %d plus %d?", "Add %d and %d.", "What is %d plus %d?", "%d + %d ="]) % (a, b)
        answer = r.pick(["%d + %d = %d", "%d plus %d is %d."]) % (a, b, a + b) if r.flip(0.7) else str(a + b)
        think = add_steps(a, b)
    elif k <= 4:
        a, b = max(a, b), min(a, b)
        ask = r.pick(["What is %d - %d?", "%d - %d", "How much is %d minus %d?", "What is %d minus %d?", "%d - %d ="]) % (a, b)
        answer = "%d - %d = %d" % (a, b, a - b) if r.flip(0.7) else str(a - b)
        think = "%d - %d is %d, because %d + %d = %d." % (a, b, a - b, a - b, b, a)
    elif k == 5:
        a, b = r.span(2, 30), r.span(2, 30)
        ask = "%s has %d %s and gets %d more. How many does %s have now?" % (name, a, plural(what), b, name)
        answer = "%s has %d %s now." % (name, a + b, plural(what))
        think = add_steps(a, b)
    else:
        a, b = r.span(0, 10), r.span(0, 10)
        ask = r.pick(["What is %d times %d?", "What is %d * %d?", "%d x %d"]) % (a, b)
        answer = "%d times %d is %d." % (a, b, a * b)
        think = "%d times %d is %d." % (a, b, a * b)
    if r.flip(0.2):
        a, b = r.span(0, 99), r.span(0, 99)
        ask, answer = "Which is larger, %d or %d?" % (a, b), "%d is larger." % max(a, b)
        think = "%d and %d: the larger one is %d." % (a, b, max(a, b))
        if a == b:
            answer = think = "They are equal."
    out = chat(ask, answer)
    if r.flip(0.45):
        out[-1]["think"] = think
    return out


FIELDS = {"name": person, "first_name": lambda r: r.pick(FIRST), "city": place, "town": place, "place": place, "home": place,
          "age": lambda r: r.span(5, 99), "year": lambda r: r.span(1500, 2099), "price": lambda r: r.span(1, 999),
          "count": lambda r: r.span(1, 99), "color": lambda r: r.pick(COLORS), "animal": lambda r: r.pick(ANIMALS),
          "food": lambda r: r.pick(FOODS), "job": lambda r: r.pick(JOBS), "item": thing, "title": lambda r: cap(thing(r)),
          "code": code, "id": lambda r: r.span(1, 9999), "date": date, "day": lambda r: r.pick(DAYS), "month": lambda r: r.pick(MONTHS),
          "hobby": lambda r: r.pick(HOBBIES), "open": lambda r: r.flip(0.5), "active": lambda r: r.flip(0.5), "email": lambda r: invented(r) + "@example.com",
          "size": lambda r: r.pick(("small", "medium", "large")), "material": lambda r: r.pick(MATERIALS), "room": lambda r: r.pick(ROOMS),
          "weight": lambda r: r.span(1, 200), "author": person, "owner": person, "container": lambda r: r.pick(CONTAINERS)}


def shown(v):
    return ("yes" if v else "no") if isinstance(v, bool) else str(v)


def record(r, keys=None):
    keys = keys or r.sample(list(FIELDS), r.span(1, 4))
    if r.flip(0.1):
        keys = keys + [invented(r)]
    return {k: FIELDS.get(k, code)(r) for k in keys}


def as_json(r, value):
    return json.dumps(value, indent=2) if r.flip(0.12) else json.dumps(value)


def json_task(r):
    k = r.below(6)
    if k <= 1:
        rec = record(r)
        given = r.pick([", ".join("%s: %s" % (a, shown(v)) for a, v in rec.items()), "; ".join("%s = %s" % (a, shown(v)) for a, v in rec.items()),
                        "\n".join("%s: %s" % (a, shown(v)) for a, v in rec.items())])
        ask = r.pick(["Write this as JSON:", "Make a JSON object of this:", "Turn this into JSON:", "Give me this as a JSON object:"])
        return chat(ask + r.pick(("\n", " ")) + given, as_json(r, rec))
    if k == 2:
        xs = items(r, 2, 7)
        key = r.pick(["items", "names", "list", "values", "words"]) if r.flip(0.5) else None
        if key:
            return chat('Write a JSON object with the key "%s" that holds this list: %s' % (key, ", ".join(xs)), json.dumps({key: xs}))
        return chat(r.pick(["Write this list as JSON:", "Make a JSON array of this:", "Turn this into a JSON list:"]) + " " + ", ".join(xs), json.dumps(xs))
    if k == 3:
        rec = record(r, r.sample(["name", "city", "age", "job", "hobby", "color", "animal", "food"], r.span(2, 4)))
        forms = {"name": "This is {v}.", "city": "The home is in {v}.", "age": "The age is {v}.", "job": "The job is {v}.", "hobby": "The hobby is {v}.",
                 "color": "The favorite color is {v}.", "animal": "There is also a {v}.", "food": "The favorite food is {v}."}
        text = " ".join(forms[a].format(v=shown(v)) for a, v in rec.items() if a in forms)
        rec = {a: v for a, v in rec.items() if a in forms}
        keys = join(['"%s"' % a for a in rec])
        ask = r.pick(["Answer in JSON with the keys %s.", "Extract %s as JSON.", "Give me a JSON object with %s.", "Return JSON with the keys %s."]) % keys
        return chat(text + r.pick((" ", "\n", "\n\n")) + ask, as_json(r, rec))
    if k == 4:
        keys = r.sample(list(FIELDS), r.span(2, 3))
        recs = [record(r, keys) for _ in range(r.span(2, 3))]
        keys = list(recs[0])
        recs = [{a: rec.get(a, code(r)) for a in keys} for rec in recs]
        lines = [", ".join(keys)] + [", ".join(shown(rec[a]) for a in keys) for rec in recs]
        return chat(r.pick(["Write this table as a JSON array of objects:", "Turn this table into JSON:"]) + "\n" + "\n".join(lines), json.dumps(recs))
    facts = [recall.Ledger(r).draw(recall.BY_NAME[n]) for n in r.sample(["lives", "job", "age", "phone", "room", "hobby"], r.span(2, 4))]
    who = facts[0].k
    for f in facts:
        f.k = who
    r.shuffle(facts)
    text = " ".join(f.state(r) for f in facts)
    asked = r.sample(facts, r.span(1, len(facts)))
    shape = {"name": who}
    for f in asked:
        shape[f.rel.value_name] = int(f.v) if f.v.isdigit() else f.v
    ask = 'Answer only with JSON of this form: %s' % json.dumps({a: "..." for a in shape})
    return chat(text + "\n\n" + ask, json.dumps(shape))


def yes_no(r):
    """A statement checked against a short text."""
    text, facts, _, _ = recall.build(r, r.span(60, 250), 0.8, stories.filler)
    if not facts:
        return small_talk(r)
    fact = r.pick(facts)
    right = r.flip(0.5)
    claim = recall.Fact(fact.rel, fact.k, fact.v if right else fact.rel.value(r))
    right = claim.v == fact.v
    said = fact.fill(fact.rel.answer)
    ask = "Is this right? " + claim.answer() if r.flip(0.5) else "True or false: " + claim.answer()
    word = ("Yes" if right else "No") if ask.startswith("Is") else ("True" if right else "False")
    answer = word + "." if right else word + ". " + said
    out = chat(text + "\n\n" + ask, answer)
    if r.flip(0.3):
        out[-1]["think"] = "The text says: " + said
    return out
