"""recall.py: documents with facts in them, and questions about those facts.

A relation says how a fact is drawn, how it may be stated, asked and answered. A document is a shuffled pile of facts in
sentences, tables, records or letters, with as much other text between them as wanted; its questions are about facts that
are there (the answer repeats the fact) or that are not ("The text does not say."). Keys never repeat inside a document
unless a relation collects ("owns"), so that every answer is right."""
from world import (ADJ, an, ANIMALS, CLUBS, CODEWORDS, COLORS, CONTAINERS, DAYS, FOODS, HOBBIES, INSTRUMENTS, JOBS, MATERIALS,
                   NOUN, ROOMS, article, cap, clock_time, code, date, digits, invented, join, person, place, thing, title)

UNKNOWN = "The text does not say."


class Relation:
    def __init__(self, name, key, value, states, asks, answer, back=(), back_answer="", value_name=""):
        self.name, self.key, self.value, self.states, self.asks = name, key, value, states, asks
        self.answer, self.back, self.back_answer, self.value_name = answer, back, back_answer, value_name


def number_between(low, high):
    return lambda r: str(r.span(low, high))


def phone(r):
    return digits(r, 3) + "-" + digits(r, 4)


def spot(r):
    k = r.below(3)
    if k == 0:
        return "in the " + r.pick(ADJ) + " " + r.pick(CONTAINERS)
    if k == 1:
        return "under the " + thing(r)
    return "in the " + r.pick(ROOMS)


RELATIONS = [
    Relation("code", thing, code,
             ["The code of the {k} is {v}.", "The {k} has the code {v}.", "To open the {k}, use the code {v}.",
              "Remember: the code of the {k} is {v}.", "The code for the {k} is {v}.", "One needs the code {v} for the {k}."],
             ["What is the code of the {k}?", "What was the code of the {k}?", "Which code does the {k} have?",
              "Tell me the code of the {k}.", "What code opens the {k}?", "I need the code for the {k}.",
              "Do you know the code of the {k}?", "code of the {k}?"],
             "The code of the {k} is {v}.", ["What has the code {v}?", "Which thing has the code {v}?"],
             "The {k} has the code {v}.", "code"),
    Relation("password", lambda r: r.pick(ADJ) + " " + r.pick(ROOMS), code,
             ["The password of the {k} is {v}.", "The password for the {k} is {v}.", "Say {v} to enter the {k}.",
              "Whoever wants to enter the {k} must know the password {v}."],
             ["What is the password of the {k}?", "What is the password for the {k}?", "Which password do I need for the {k}?",
              "How can I enter the {k}? Tell me the password.", "What password does the {k} have?"],
             "The password of the {k} is {v}.", ["What is the password {v} for?"], "{v} is the password of the {k}.", "password"),
    Relation("magic", lambda r: invented(r), lambda r: digits(r, r.span(4, 7)),
             ["The secret number of {k} is {v}.", "The magic number for {k} is {v}.", "One of the special magic numbers for {k} is: {v}.",
              "The number of {k} is {v}."],
             ["What is the secret number of {k}?", "What is the magic number for {k}?", "What is the number of {k}?",
              "What is the special magic number for {k} mentioned in the text?"],
             "The number of {k} is {v}.", ["Whose number is {v}?"], "{v} is the number of {k}.", "number"),
    Relation("lives", person, place,
             ["{k} lives in {v}.", "{k} has a house in {v}.", "The home of {k} is in {v}.", "{v} is where {k} lives.",
              "Since last year {k} has lived in {v}."],
             ["Where does {k} live?", "In which town does {k} live?", "Where is the home of {k}?", "What town is {k} from?",
              "Which place does {k} live in?", "where does {k} live"],
             "{k} lives in {v}.", ["Who lives in {v}?", "Who has a house in {v}?"], "{k} lives in {v}.", "town"),
    Relation("job", person, lambda r: r.pick(JOBS),
             ["{k} works as a {v}.", "{k} is a {v}.", "For many years {k} has been a {v}.", "People know {k} as a good {v}."],
             ["What does {k} do for a living?", "What is the job of {k}?", "What work does {k} do?", "What is {k}'s job?",
              "As what does {k} work?"],
             "{k} works as a {v}.", (), "", "job"),
    Relation("phone", person, phone,
             ["The phone number of {k} is {v}.", "You can call {k} at {v}.", "{k} has the phone number {v}.", "Call {k}: {v}."],
             ["What is the phone number of {k}?", "How can I call {k}?", "Which number must I dial for {k}?",
              "What is {k}'s phone number?", "Give me the number of {k}."],
             "The phone number of {k} is {v}.", ["Whose phone number is {v}?"], "{v} is the phone number of {k}.", "phone"),
    Relation("price", thing, number_between(2, 999),
             ["The {k} costs {v} coins.", "The price of the {k} is {v} coins.", "They sell the {k} for {v} coins.",
              "Someone paid {v} coins for the {k}."],
             ["How much is the {k}?", "What does the {k} cost?", "What is the price of the {k}?", "How many coins does the {k} cost?"],
             "The {k} costs {v} coins.", (), "", "price"),
    Relation("where", thing, spot,
             ["The {k} is {v}.", "Someone put the {k} {v}.", "You will find the {k} {v}.", "The {k} lies {v}.", "They keep the {k} {v}."],
             ["Where is the {k}?", "Where can I find the {k}?", "Where did they put the {k}?", "Where is the {k} kept?"],
             "The {k} is {v}.", (), "", "place"),
    Relation("box", lambda r: "box " + str(r.span(10, 9999)), lambda r: thing(r),
             ["In {k} there is a {v}.", "{K} holds a {v}.", "{K} contains a {v}.", "Inside {k} lies a {v}."],
             ["What is in {k}?", "What does {k} hold?", "What does {k} contain?", "What can I find inside {k}?"],
             "{K} holds a {v}.", ["Which box holds the {v}?", "In which box is the {v}?"], "The {v} is in {k}.", "content"),
    Relation("age", person, number_between(6, 99),
             ["{k} is {v} years old.", "{k} turned {v} this year.", "The age of {k} is {v}."],
             ["How old is {k}?", "What is the age of {k}?", "What age is {k}?"], "{k} is {v} years old.", (), "", "age"),
    Relation("color", person, lambda r: r.pick(COLORS),
             ["The favorite color of {k} is {v}.", "{k} likes the color {v} best.", "{k}'s favorite color is {v}."],
             ["What is the favorite color of {k}?", "Which color does {k} like best?", "What is {k}'s favorite color?"],
             "The favorite color of {k} is {v}.", (), "", "color"),
    Relation("food", person, lambda r: r.pick(ADJ) + " " + r.pick(FOODS),
             ["{k} loves to eat {v}.", "The favorite food of {k} is {v}.", "Every day {k} eats {v}."],
             ["What is the favorite food of {k}?", "What does {k} love to eat?", "What does {k} like to eat?"],
             "The favorite food of {k} is {v}.", (), "", "food"),
    Relation("pet", person, lambda r: "a " + r.pick(ANIMALS) + " called " + cap(invented(r)),
             ["{k} has {v}.", "{k} keeps {v}.", "At home {k} has {v}."],
             ["Which pet does {k} have?", "What animal does {k} keep?", "What is the pet of {k} and what is it called?"],
             "{k} has {v}.", (), "", "pet"),
    Relation("hobby", person, lambda r: r.pick(HOBBIES),
             ["The hobby of {k} is {v}.", "{k} spends every free hour with {v}.", "In the evening {k} enjoys {v}."],
             ["What is the hobby of {k}?", "What does {k} enjoy?", "What does {k} do in every free hour?"],
             "The hobby of {k} is {v}.", (), "", "hobby"),
    Relation("plays", person, lambda r: r.pick(INSTRUMENTS),
             ["{k} plays the {v}.", "{k} learned to play the {v}."],
             ["Which instrument does {k} play?", "What does {k} play?", "What instrument did {k} learn?"],
             "{k} plays the {v}.", (), "", "instrument"),
    Relation("born", person, date,
             ["{k} was born on {v}.", "The birthday of {k} is {v}.", "{k} has a birthday on {v}."],
             ["When is the birthday of {k}?", "When was {k} born?", "On which day does {k} have a birthday?"],
             "The birthday of {k} is {v}.", ["Whose birthday is {v}?", "Who was born on {v}?"], "{k} was born on {v}.", "birthday"),
    Relation("club", lambda r: r.pick(CLUBS) + " club of " + place(r), lambda r: r.pick(DAYS) + " at " + clock_time(r),
             ["The {k} meets on {v}.", "The meeting of the {k} is on {v}.", "Members of the {k} come together on {v}."],
             ["When does the {k} meet?", "When is the meeting of the {k}?", "On which day and at what time does the {k} meet?"],
             "The {k} meets on {v}.", (), "", "meeting"),
    Relation("train", place, clock_time,
             ["The train to {k} leaves at {v}.", "At {v} there is a train to {k}.", "The next train for {k} departs at {v}."],
             ["When does the train to {k} leave?", "At what time is the train to {k}?", "When does the train for {k} depart?"],
             "The train to {k} leaves at {v}.", ["Where does the train at {v} go?"], "The train at {v} goes to {k}.", "time"),
    Relation("book", lambda r: '"' + title(r) + '"', person,
             ["{k} was written by {v}.", "The author of {k} is {v}.", "{v} wrote the book {k}.", "{v} is the author of {k}."],
             ["Who wrote {k}?", "Who is the author of {k}?", "Who is the writer of the book {k}?"],
             "{k} was written by {v}.", ["What did {v} write?", "Which book is by {v}?"], "{v} wrote {k}.", "author"),
    Relation("made", thing, lambda r: r.pick(MATERIALS),
             ["The {k} is made of {v}.", "{v} was used to make the {k}.", "They made the {k} out of {v}."],
             ["What is the {k} made of?", "Which material is the {k} made of?", "Out of what did they make the {k}?"],
             "The {k} is made of {v}.", (), "", "material"),
    Relation("leader", place, person,
             ["The mayor of {k} is {v}.", "{v} is the mayor of {k}.", "In {k} the people chose {v} as their mayor."],
             ["Who is the mayor of {k}?", "What is the name of the mayor of {k}?", "Whom did the people of {k} choose as mayor?"],
             "The mayor of {k} is {v}.", ["Of which town is {v} the mayor?"], "{v} is the mayor of {k}.", "mayor"),
    Relation("people", place, lambda r: digits(r, r.span(3, 5)),
             ["{k} has {v} inhabitants.", "In {k} there live {v} people.", "The town of {k} counts {v} people."],
             ["How many people live in {k}?", "How many inhabitants does {k} have?", "What is the population of {k}?"],
             "{k} has {v} inhabitants.", (), "", "population"),
    Relation("setting", lambda r: r.pick(NOUN) + "_" + r.pick(CODEWORDS), lambda r: digits(r, r.span(1, 5)),
             ["{k} = {v}", "{k}: {v}", "set {k} to {v}", "The value of {k} is {v}."],
             ["What is the value of {k}?", "What is {k} set to?", "{k}?", "Which value does {k} have?"],
             "The value of {k} is {v}.", (), "", "value"),
    Relation("owner", thing, person,
             ["The {k} belongs to {v}.", "{v} owns the {k}.", "The owner of the {k} is {v}."],
             ["Who owns the {k}?", "To whom does the {k} belong?", "Who is the owner of the {k}?", "Whose is the {k}?"],
             "The {k} belongs to {v}.", ["What belongs to {v}?", "What does {v} own?"], "The {k} belongs to {v}.", "owner"),
    Relation("room", person, lambda r: digits(r, r.span(2, 3)),
             ["{k} sleeps in room {v}.", "{k} has room {v}.", "Room {v} was given to {k}."],
             ["Which room does {k} have?", "In which room does {k} sleep?", "What is the room number of {k}?"],
             "{k} has room {v}.", ["Who has room {v}?", "Who sleeps in room {v}?"], "{k} has room {v}.", "room"),
    Relation("goal", person, lambda r: "to " + r.pick(["buy", "find", "repair", "paint", "sell", "build"]) + " a " + thing(r),
             ["{k} wants {v}.", "The wish of {k} is {v}.", "This year {k} plans {v}."],
             ["What does {k} want?", "What is the wish of {k}?", "What does {k} plan?"], "{k} wants {v}.", (), "", "wish"),
]
CODE = RELATIONS[0]
BY_NAME = {rel.name: rel for rel in RELATIONS}


class Fact:
    __slots__ = ("rel", "k", "v", "said")

    def __init__(self, rel, k, v):
        self.rel, self.k, self.v, self.said = rel, k, v, None

    def fill(self, form):
        text = an(form.format(k=self.k, v=self.v, K=cap(self.k)))
        return text if self.rel.name == "setting" else cap(text)

    def state(self, r):
        self.said = self.fill(r.pick(self.rel.states))
        return self.said

    def ask(self, r):
        return self.fill(r.pick(self.rel.asks))

    def answer(self):
        return self.fill(self.rel.answer)


class Ledger:
    """Draws facts whose keys (and, where asked backwards, values) are unique in one document."""

    def __init__(self, r, relations=None):
        self.r, self.used = r, set()
        self.relations = relations or RELATIONS

    def draw(self, rel=None):
        r = self.r
        rel = rel or r.pick(self.relations)
        for _ in range(20):
            k = rel.key(r)
            if (rel.name, k) in self.used:
                continue
            v = rel.value(r)
            if rel.back and ("=", rel.name, v) in self.used:
                continue
            self.used.add((rel.name, k))
            self.used.add(("=", rel.name, v))
            return Fact(rel, k, v)
        return None

    def near_miss(self, facts):
        """A fact that is not in the document; often about a key that is there, or one that looks like one."""
        r = self.r
        for _ in range(20):
            if facts and r.flip(0.4):
                rel = r.pick(facts).rel
            else:
                rel = r.pick(self.relations)
            k = rel.key(r)
            if facts and r.flip(0.3):
                other = r.pick(facts)
                if other.rel.key is rel.key:
                    k = other.k
            if (rel.name, k) not in self.used:
                return Fact(rel, k, "")
        return None


COLLECT = [   # one key, several values scattered through the document
    (person, lambda r: article(thing(r)), ["{k} owns {v}.", "{v} belongs to {k}.", "{k} also owns {v}."],
     ["What does {k} own?", "List everything that {k} owns.", "Which things belong to {k}?"], "{k} owns {a}."),
    (place, person, ["{v} moved to {k}.", "{k} is the new home of {v}.", "Last week {v} moved to {k}."],
     ["Who moved to {k}?", "List all people who moved to {k}.", "Which people moved to {k}?"], "{a} moved to {k}."),
    (lambda r: r.pick(CLUBS) + " club", person, ["{v} joined the {k}.", "{v} is a member of the {k}."],
     ["Who are the members of the {k}?", "List the members of the {k}.", "Who joined the {k}?"], "The members of the {k} are {a}."),
    (lambda r: r.pick(ADJ) + " vault", code, ["A code of the {k} is {v}.", "One of the codes of the {k} is {v}.",
                                             "The {k} also has the code {v}."],
     ["What are the codes of the {k}?", "List all codes of the {k}.", "Which codes does the {k} have?"],
     "The codes of the {k} are {a}."),
    (person, lambda r: place(r), ["{k} travelled to {v}.", "Then {k} went to {v}.", "{k} visited {v}."],
     ["Which places did {k} visit?", "Where did {k} travel?", "List the places that {k} visited."], "{k} visited {a}."),
]


class Collection:
    def __init__(self, r, used):
        self.kind = r.pick(COLLECT)
        while True:
            self.k = self.kind[0](r)
            if ("*", self.k) not in used:
                break
        used.add(("*", self.k))
        self.values = []
        while len(self.values) < r.pick((2, 2, 3, 3, 4)):
            v = self.kind[1](r)
            if v not in self.values:
                self.values.append(v)

    def states(self, r):
        return [cap(r.pick(self.kind[2]).format(k=self.k, v=v)) for v in self.values]

    def ask(self, r):
        text = r.pick(self.kind[3]).format(k=self.k)
        number = {2: "two", 3: "three", 4: "four"}[len(self.values)]
        return text.replace("all codes", "all %s codes" % number) if r.flip(0.3) else text

    def answer(self):
        return cap(self.kind[4].format(k=self.k, a=join(self.values)))


def question(r, fact):
    """A question about a fact and its answer; now and then backwards, or with a wish about the answer's form."""
    rel = fact.rel
    k = r.random()
    if rel.back and k < 0.15:
        return fact.fill(r.pick(rel.back)), fact.fill(rel.back_answer)
    ask = fact.ask(r)
    if k < 0.30:
        hint = r.pick([" Answer with the %s only.", " Reply with only the %s.", " Just the %s, please.", " Give only the %s."])
        return ask + hint % r.pick([rel.value_name, "answer"]), fact.v
    if k < 0.36:
        name = rel.value_name
        return ask + ' Answer in JSON with the key "%s".' % name, '{"%s": %s}' % (name, quoted(fact.v))
    return ask, fact.answer()


def quoted(v):
    import json
    return v if v.isdigit() and not v.startswith("0") and len(v) < 10 else json.dumps(v)


def table(r, ledger, rows):
    """A table with some attributes of people or things, as facts that are asked like any other."""
    people = ["lives", "job", "phone", "age", "color", "hobby", "plays", "born", "room"]
    things = ["code", "price", "made", "owner"]
    towns = ["leader", "people", "train"]
    names = r.pick([people, people, things, towns])
    rels = r.sample(names, min(len(names), r.span(2, 3)))
    key = {"lives": "name", "code": "thing", "leader": "town"}[names[0]]
    facts, lines = [], []
    for _ in range(rows):
        first = ledger.draw(BY_NAME[rels[0]])
        if first is None:
            continue
        row = [first]
        for name in rels[1:]:
            rel = BY_NAME[name]
            if (name, first.k) in ledger.used:
                row = None
                break
            v = rel.value(r)
            if rel.back and ("=", name, v) in ledger.used:
                row = None
                break
            ledger.used.add((name, first.k))
            ledger.used.add(("=", name, v))
            row.append(Fact(rel, first.k, v))
        if row is None:
            continue
        facts += row
        lines.append([first.k] + [f.v for f in row])
    head = [key] + [BY_NAME[n].value_name for n in rels]
    if r.flip(0.6):
        out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        out += ["| " + " | ".join(line) + " |" for line in lines]
    elif r.flip(0.5):
        out = [", ".join(head)] + [", ".join(line) for line in lines]
    else:
        out = ["- " + "; ".join("%s: %s" % pair for pair in zip(head, line)) for line in lines]
    return "\n".join(out), facts


def build(r, tokens, density, filler, relations=None):
    """A document of about `tokens` tokens. `density` is the share of fact sentences, `filler(r)` gives a paragraph of
    anything else. Returns text, facts in their order, collections, and the ledger (for questions without an answer)."""
    ledger = Ledger(r, relations)
    facts, collections, blocks = [], [], []
    size = 0
    budget = tokens * 3.6            # characters a token, near enough
    while size < budget:
        if r.random() >= density:
            block = filler(r)
        elif r.flip(0.08) and relations is None:
            block, rows = table(r, ledger, r.span(3, 9))
            facts += rows
        else:
            lines = []
            for _ in range(r.pick((1, 1, 1, 2, 2, 3, 4, 6))):
                fact = ledger.draw()
                if fact is None:
                    lines.append(filler(r))
                    continue
                facts.append(fact)
                lines.append(fact.state(r))
            block = r.pick((" ", " ", " ", "\n", "\n- ")).join(lines)
        blocks.append(block)
        size += len(block) + 1
    if r.flip(0.5):
        for _ in range(max(1, min(12, tokens // 1500))):
            c = Collection(r, ledger.used)
            spots = sorted(r.below(len(blocks) + 1) for _ in c.values)
            for offset, (at, line) in enumerate(zip(spots, c.states(r))):
                blocks.insert(at + offset, line)
            collections.append(c)
    glue = r.pick(("\n", "\n", "\n\n", " "))
    return glue.join(blocks), facts, collections, ledger


def questions(r, facts, collections, ledger, count, unknown=0.15):
    """`count` triples of question, answer and a thought that leads there, spread over the whole document (each stretch of
    it is asked about)."""
    out = []
    for i in range(count):
        if r.flip(unknown) or not facts:
            miss = ledger.near_miss(facts)
            if miss is not None:
                out.append((miss.ask(r), UNKNOWN, r.pick(["I do not find this in the text.", "I look for %s, but the text does not say this." % miss.k])))
                continue
        if collections and r.flip(0.12):
            c = r.pick(collections)
            out.append((c.ask(r), c.answer(), "I look for every sentence about %s." % c.k))
            continue
        low, high = i * len(facts) // count, (i + 1) * len(facts) // count
        fact = facts[min(len(facts) - 1, low + r.below(max(1, high - low)))]
        ask, answer = question(r, fact)
        out.append((ask, answer, 'The text says: "%s"' % (fact.said or fact.answer())))
    r.shuffle(out)
    return out
