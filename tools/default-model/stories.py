"""stories.py: small stories with a consistent state, descriptions and dialogues; also what stands between the facts of a
long document. A story is drawn from a plot: characters, a thing, places and feelings stay the same from start to end."""
from world import (ADJ, an, ANIMALS, CODEWORDS, COLORS, CONTAINERS, DAYS, DIRECTIONS, FEEL, FIRST, FOODS, HOBBIES, INSTRUMENTS, JOBS,
                   MATERIALS, NOUN, PARTS, ROOMS, SEASONS, VERBS, WEATHER, article, cap, join, place, plural)


class Cast:
    """The things a story is about; every one can be given, the rest is drawn."""

    def __init__(self, r, hero=None, thing=None):
        self.r = r
        self.animal = False
        if hero is None:
            if r.flip(0.5):
                self.hero, self.he = r.pick(FIRST), r.pick(("he", "she"))
                self.intro = r.pick(("a %s called %s" % (r.pick(JOBS), self.hero), "a child called %s" % self.hero,
                                     "a %s child named %s" % (r.pick(("small", "brave", "shy", "curious", "clever")), self.hero)))
                self.intro = self.intro.replace("a a", "an a").replace("a e", "an e")
            else:
                self.animal = True
                kind = r.pick(ANIMALS)
                self.hero, self.he = "the " + kind, "it"
                self.intro = article(r.pick(("small", "young", "old", "clever", "lazy", "brave", "gray", "hungry", "lonely")) + " " + kind)
        else:
            self.animal = True
            self.hero, self.he = "the " + hero, "it"
            self.intro = article(r.pick(("small", "young", "old", "clever", "brave", "hungry", "lonely")) + " " + hero)
        self.him = {"he": "him", "she": "her", "it": "it"}[self.he]
        self.his = {"he": "his", "she": "her", "it": "its"}[self.he]
        while True:
            self.friend = r.pick(FIRST) if r.flip(0.5) else "the " + r.pick(ANIMALS)
            if self.friend != self.hero:
                break
        self.thing = thing or (r.pick(ADJ) + " " + r.pick(NOUN))
        self.town = place(r)
        self.box = r.pick(CONTAINERS)
        self.room = r.pick(ROOMS)
        self.food = r.pick(FOODS)
        self.part = r.pick(PARTS)
        self.season = r.pick(SEASONS)
        self.day = r.pick(DAYS)
        self.weather = r.pick(WEATHER)

    def say(self, text):
        text = (text.replace("[Hero]", cap(self.hero)).replace("[hero]", self.hero).replace("[intro]", self.intro)
                .replace("[He]", cap(self.he)).replace("[he]", self.he).replace("[him]", self.him).replace("[his]", self.his)
                .replace("[His]", cap(self.his)).replace("[Friend]", cap(self.friend)).replace("[friend]", self.friend)
                .replace("[a thing]", article(self.thing)).replace("[thing]", self.thing).replace("[town]", self.town)
                .replace("[box]", self.box).replace("[room]", self.room).replace("[a food]", article(self.food))
                .replace("[food]", self.food).replace("[foods]", plural(self.food)).replace("[part]", self.part)
                .replace("[season]", self.season).replace("[day]", self.day).replace("[weather]", self.weather))
        return text


OPEN = ["Once upon a time there was [intro].", "In [town] there lived [intro].", "There was once [intro] who lived near [town].",
        "One [weather] [part], [intro] walked through [town].", "Long ago, in [season], [intro] came to [town].",
        "Near the old bridge of [town] lived [intro]."]

PLOTS = [
    [["[Hero] had [a thing] and loved it very much.", "[Hero] owned [a thing], and it was the best thing [he] had."],
     ["One [part] the [thing] was gone.", "On [day] [hero] could not find the [thing]."],
     ["[He] looked in the [room], but it was not there.", "[He] looked under the table and behind the door, but found nothing."],
     ["[Hero] felt sad and sat down.", "[Hero] was worried and did not know what to do."],
     ["Then [friend] came and said, \"I will help you.\"", "\"Do not cry,\" said [friend]. \"We will look together.\""],
     ["Together they opened the [box], and there was the [thing].", "They looked into the [box] in the [room]. There lay the [thing]."],
     ["\"Thank you,\" said [hero]. \"You are a good friend.\"", "[Hero] laughed and thanked [friend]."],
     ["After that [hero] always kept the [thing] in a safe place.", "From that day on they were friends.",
      "That night [hero] slept well."]],
    [["[Hero] was hungry.", "[Hero] had not eaten since the day before."],
     ["[He] saw [a food] on a table in the [room].", "In the market there was [a food], and it smelled good."],
     ["\"May I have some?\" asked [hero].", "[Hero] asked, \"Whose [food] is this?\""],
     ["\"It is mine,\" said [friend], \"but I will share it with you.\"", "[Friend] said, \"Help me carry this [thing], and you may eat.\""],
     ["So [hero] helped, and the work was done before [part].", "They worked together until the sun went down."],
     ["Then they ate the [food] together.", "Then they sat down and ate."],
     ["[Hero] learned that sharing makes everything taste better.", "[Hero] was full and happy.", "It was the best meal of the whole [season]."]],
    [["[He] wanted to learn how to swim.", "[He] wanted to climb the high hill near [town].", "[He] wanted to repair the [thing]."],
     ["At first it was too hard.", "The first try went wrong.", "On [day] [he] tried and failed."],
     ["Everyone laughed, but [friend] did not.", "[Friend] watched and said, \"Try again tomorrow.\""],
     ["So [hero] tried again every [part].", "[Hero] did not give up and worked all [season]."],
     ["Little by little it went better.", "Each day it was a little easier."],
     ["At last it worked, and [hero] shouted with joy.", "One [weather] day it worked at last."],
     ["\"I knew you could do it,\" said [friend].", "\"You see,\" said [friend], \"slow steps go far.\""]],
    [["One [part] [hero] found [a thing] near the river.", "On the way to [town] [hero] found [a thing] on the road."],
     ["It was not [his] own, so [he] asked whose it was.", "\"Who lost this?\" [he] asked everyone."],
     ["Nobody knew.", "The baker did not know, and the guard did not know.", "For three days nobody came."],
     ["Then [friend] came and looked sad.", "On [day] [friend] came to [town]."],
     ["\"I lost my [thing],\" said [friend].", "\"Have you seen [a thing]?\" asked [friend]. \"I need it.\""],
     ["[Hero] gave it back at once.", "\"Here it is,\" said [hero]."],
     ["[Friend] was so glad that [he] got [a food] as a present.", "To say thank you, [friend] gave [him] [a food]."],
     ["And so both of them were happy.", "They waved to each other and went home."]],
    [["A storm came to [town], and the wind was loud.", "That [season] was the coldest in many years."],
     ["[Hero] sat alone in the [room] and was afraid.", "[Hero] had no warm place to sleep."],
     ["There was a knock at the door.", "Then somebody called from outside."],
     ["It was [friend], wet and cold.", "[Friend] stood there and asked for help."],
     ["\"Come in,\" said [hero]. \"There is room for two.\"", "[Hero] opened the door and brought a blanket."],
     ["They drank tea and told each other stories.", "They made a fire and shared [a food]."],
     ["When the [part] came, the storm was over.", "In the morning the sky was clear."],
     ["\"I was not afraid with you here,\" said [hero].", "Since then [friend] visits [hero] every [season]."]],
    [["[Hero] and [friend] both wanted the same [thing].", "[Friend] had [a thing], and [hero] wanted it too."],
     ["They pulled and shouted until it broke.", "They argued all [part]."],
     ["Then both were sorry.", "Then they looked at each other and were ashamed."],
     ["\"We can repair it,\" said [hero].", "\"Let us use it together,\" said [friend]."],
     ["They worked in the [room] until it was whole again.", "First one used it, then the other."],
     ["Now the [thing] belongs to both of them.", "It was much more fun that way.", "They never argued about the [thing] again."]],
    [["[He] had a secret: in the [box] there was [a thing].", "In the [room] stood a [box], and in the [box] was [a thing]."],
     ["One [part] [friend] asked, \"What is in the [box]?\"", "[Friend] wanted to know what was inside."],
     ["[Hero] did not want to tell.", "\"I can not tell you yet,\" said [hero]."],
     ["But on [day] it was the birthday of [friend].", "Then came [day], and everyone met in the [room]."],
     ["[Hero] opened the [box] and took out the [thing].", "\"Now look,\" said [hero] and opened the [box]."],
     ["\"It is for you,\" [he] said.", "The [thing] was a present for [friend]."],
     ["[Friend] had never been so happy.", "Everyone clapped, and then they ate [food]."]],
    [["[Hero] wanted to travel to [town].", "A letter came: [hero] had to go to [town] with [a thing]."],
     ["The way was long, and the weather was [weather].", "[He] walked for three days."],
     ["At a crossing [he] met [friend].", "Near a dark forest [friend] was waiting."],
     ["\"Which way is right?\" asked [hero].", "\"I am lost,\" said [hero]."],
     ["\"Follow the river,\" said [friend], \"and do not turn left.\"", "\"I know the way,\" said [friend]. \"Come with me.\""],
     ["By [part] they saw the lights of [town].", "Soon they heard the bells of [town]."],
     ["[Hero] gave the [thing] to the mayor, and everyone cheered.", "\"We did it,\" said [hero] with a smile."]],
]


def story(r, hero=None, thing=None):
    cast = Cast(r, hero, thing)
    plot = r.pick(PLOTS)
    lines = [r.pick(OPEN)] + [r.pick(step) for step in plot if r.random() < 0.97]
    return an(" ".join(cast.say(line) for line in lines))


SENTENCES = [
    lambda r: "The %s near %s was %s that %s." % (r.pick(NOUN), place(r), r.pick(ADJ), r.pick(PARTS)),
    lambda r: "On %s it was %s, and the %s stayed at home." % (r.pick(DAYS), r.pick(WEATHER), plural(r.pick(JOBS))),
    lambda r: "%s %s the %s %s in the %s." % (r.pick(FIRST), r.pick(VERBS)[1], r.pick(ADJ), r.pick(NOUN), r.pick(ROOMS)),
    lambda r: "In %s the %s are %s and the %s sing." % (r.pick(SEASONS), plural(r.pick(NOUN)), r.pick(ADJ), plural(r.pick(ANIMALS))),
    lambda r: "Nobody knew why the %s was so %s." % (r.pick(ANIMALS), r.pick(FEEL)),
    lambda r: "A %s made of %s stood beside the %s." % (r.pick(NOUN), r.pick(MATERIALS), r.pick(NOUN)),
    lambda r: "%s and %s walked %s until they saw %s." % (r.pick(FIRST), r.pick(FIRST), r.pick(DIRECTIONS), article(r.pick(NOUN))),
    lambda r: "The %s asked the %s for %s." % (r.pick(JOBS), r.pick(JOBS), article(r.pick(ADJ) + " " + r.pick(NOUN))),
    lambda r: "There were %s and %s on the table." % (plural(r.pick(FOODS)), plural(r.pick(FOODS))),
    lambda r: "\"It is %s today,\" said %s, \"and I feel %s.\"" % (r.pick(WEATHER), r.pick(FIRST), r.pick(FEEL)),
    lambda r: "Every %s %s went to the %s to buy %s." % (r.pick(DAYS), r.pick(FIRST), r.pick(("market", "bakery", "harbor", "station")),
                                                        r.pick(FOODS)),
    lambda r: "The road from %s to %s is long and %s." % (place(r), place(r), r.pick(ADJ)),
    lambda r: "People say that %s is the best season for %s." % (r.pick(SEASONS), r.pick(HOBBIES)),
    lambda r: "%s %s slept in the %s all %s." % (cap(article(r.pick(ADJ))), r.pick(ANIMALS), r.pick(ROOMS), r.pick(PARTS)),
    lambda r: "Then the %s turned %s, and the %s rang." % (r.pick(("sky", "water", "light", "smoke")), r.pick(COLORS), r.pick(("bell", "clock"))),
    lambda r: "%s felt %s because the %s was %s." % (r.pick(FIRST), r.pick(FEEL), r.pick(NOUN), r.pick(ADJ)),
    lambda r: "The %s of the %s %s was heard in the %s." % (r.pick(("song", "sound", "music")), r.pick(ADJ), r.pick(INSTRUMENTS), r.pick(ROOMS)),
    lambda r: "It takes a good %s to repair %s." % (r.pick(JOBS), article(r.pick(NOUN))),
    lambda r: "Without %s, %s is not worth much." % (r.pick(MATERIALS), article(r.pick(NOUN))),
    lambda r: "The %s children of %s like %s." % (r.pick(ADJ), place(r), r.pick(HOBBIES)),
    lambda r: "%s wrote a long letter about %s and %s." % (r.pick(FIRST), plural(r.pick(ANIMALS)), plural(r.pick(NOUN))),
    lambda r: "If the %s comes, close the %s and light a candle." % (r.pick(("wind", "storm", "rain", "snow")), r.pick(("door", "gate", "window"))),
    lambda r: "A %s is not the same as a %s, even if both are %s." % (r.pick(NOUN), r.pick(NOUN), r.pick(ADJ)),
    lambda r: "Some say the word %s brings luck." % r.pick(CODEWORDS),
]


def description(r):
    k = r.below(3)
    if k == 0:
        town = place(r)
        out = ["%s is a %s town in the %s." % (town, r.pick(("small", "quiet", "old", "busy", "famous", "pretty")), r.pick(DIRECTIONS)),
               "It has a %s and %s." % (r.pick(NOUN), article(r.pick(ADJ) + " " + r.pick(NOUN))),
               "Most people there are %s and %s." % (plural(r.pick(JOBS)), plural(r.pick(JOBS))),
               "In %s it is often %s." % (r.pick(SEASONS), r.pick(WEATHER)),
               "Visitors like the %s and the %s." % (r.pick(FOODS), r.pick(FOODS))]
    elif k == 1:
        out = ["The %s was %s and %s." % (r.pick(ROOMS), r.pick(ADJ), r.pick(ADJ)),
               "In the middle stood %s of %s." % (article(r.pick(NOUN)), r.pick(MATERIALS)),
               "On the wall hung %s." % article(r.pick(COLORS) + " " + r.pick(NOUN)),
               "Through the window one could see %s." % article(r.pick(NOUN)),
               "It smelled of %s." % r.pick(FOODS)]
    else:
        name = r.pick(FIRST)
        he = r.pick(("he", "she"))
        out = ["%s was %s %s." % (name, article(r.pick(FEEL)), r.pick(JOBS)),
               "%s wore a %s %s and carried %s." % (cap(he), r.pick(COLORS), r.pick(("hat", "coat", "scarf", "shirt")), article(r.pick(NOUN))),
               "Every %s %s liked %s." % (r.pick(PARTS), he, r.pick(HOBBIES)),
               "%s never ate %s without %s." % (cap(he), r.pick(FOODS), r.pick(FOODS))]
    return an(" ".join(out))


def dialogue(r):
    a = r.pick(FIRST)
    b = r.pick([n for n in (r.pick(FIRST), r.pick(FIRST), r.pick(FIRST)) if n != a] or ["Bo"])
    thing = r.pick(ADJ) + " " + r.pick(NOUN)
    out = ['"Good %s, %s," said %s.' % (r.pick(PARTS), b, a),
           '"Have you seen the %s?" asked %s.' % (thing, b),
           r.pick(['"No, I have not," said %s.' % a, '"Yes, it is in the %s," said %s.' % (r.pick(ROOMS), a),
                   '"Ask the %s," answered %s.' % (r.pick(JOBS), a)]),
           r.pick(['"Thank you," said %s.' % b, '"What a pity," said %s.' % b, '"I need it on %s," said %s.' % (r.pick(DAYS), b)])]
    return r.pick((" ", "\n")).join(out)


def filler(r):
    """One paragraph of anything that states no asked-for fact."""
    k = r.random()
    if k < 0.45:
        return an(" ".join(r.pick(SENTENCES)(r) for _ in range(r.span(1, 5))))
    if k < 0.75:
        return story(r)
    if k < 0.9:
        return description(r)
    return dialogue(r)
