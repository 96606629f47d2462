"""world.py: the words of a small invented world, and people, places, things and numbers drawn from them.

Everything the default model ever reads is made from these lists by the generator; nothing here was taken from a text
corpus. Names and places are also composed from syllables, so that most of what a document says is new to the model and
has to be looked up rather than remembered."""
import random
import re

A_VOWEL = re.compile(r"\b([Aa]) (?=[aeiou])")


def words(text):
    return text.split()


FIRST = words("""Ada Alba Alma Amir Ana Anton Ara Arlo Asa Aster Ava Bela Ben Bianca Bram Bruno Carla Carlo Cato Cleo Clara
Cora Dara David Della Dina Dora Edda Edgar Elena Eli Elin Ella Elsa Emil Emma Enzo Erik Esra Eva Ezra Fay Felix Finn Fiona
Flora Frida Gil Greta Gus Hana Hanna Henry Hugo Ida Igor Ilse Ines Ira Iris Ivan Ivo Jack Jana Jasper Joan Jonas Jora Josef
Juna Kai Kara Karl Kim Kira Lara Lars Lea Lena Leo Lia Lily Lina Liv Lou Luca Lucy Luis Luna Mabel Magda Malik Mara Marco
Maria Mark Marta Max Maya Mila Milo Mina Mira Mona Nadia Nico Nils Nina Noah Nora Olaf Olga Oli Omar Orla Oscar Otto Paul
Pavel Peter Petra Pia Pim Rafa Rana Rita Robin Rosa Ruben Ruth Sam Sana Sara Selma Sina Sofia Stella Sven Tara Tess Theo
Tilda Tim Tina Tom Tomas Ugo Uma Una Vera Victor Vito Walt Wanda Wim Yara Yuri Zara Zeno Zoe""")
NAME_A = words("Bar Bel Bren Cal Cor Dal Dor El Fal Fen Gar Gol Har Hel Jor Kal Kel Lan Lor Mar Mel Mor Nal Nor Or Pel Quin "
               "Rav Rel Ros Sal Sel Tal Tel Tor Ul Val Vel Ver Wen Wil Yor Zan Zel")
NAME_B = words("a e i o u an en in on ar er or al el il am em um")
NAME_C = words("berg dan dell den dor fer field gan garth gin holt kov ler lin man mar mond na nek nova par rick ro sen ska son "
               "stein sti ta tan ter ton vak ver vik vin wood yan zak zen")
PLACE_A = words("Ash Birch Black Bren Bright Brook Cedar Clay Cold Crow Deep Dun East Elm Ember Fair Fern Flint Fox Frost Glen Gold "
                "Gray Green Hazel Heron High Hill Iron Ivy Kings Lake Lark Long Low Maple Marsh Mill Mist Moss North Oak Otter "
                "Pine Quarry Raven Red Reed River Rock Rose Salt Sand Silver Snow South Stone Storm Sun Swan Thorn Vale West "
                "White Wild Willow Wind Winter Wolf Wren")
PLACE_B = words("bank bay bridge brook burn by cliff cross dale den fall fell field ford gate grove ham harbor haven hill holm hurst "
                "land leigh mere mill moor mouth point pool port ridge shire side stead stow ton vale view ville wall water well "
                "wick wood worth")
COLORS = words("red blue green yellow white black brown gray purple orange pink golden silver violet crimson scarlet amber ivory "
               "copper teal")
ADJ = words("old new small large tall short round square wide narrow heavy light broken shiny dusty quiet loud empty full warm cold "
            "wet dry soft hard rough smooth bright dark plain fancy rusty wooden iron glass stone paper leather woolen cotton bronze "
            "marble velvet painted carved folded hidden locked open crooked straight striped spotted tiny huge thin thick sharp "
            "dull clean dirty fresh rare common simple strange lucky secret famous royal ancient modern curved hollow solid "
            "gentle clever lazy brave proud sleepy hungry happy sad angry kind shy polite wise") + COLORS
NOUN = words("""door gate key box chest drawer shelf table chair bench lamp candle clock mirror bell book letter map card coin ring
crown cup bowl plate spoon fork knife kettle pot pan bottle jar basket bag sack barrel bucket broom brush rope chain hammer saw
nail wheel cart wagon boat ship sail anchor oar bridge tower wall window roof stair cellar attic kitchen garden fence well pump
mill oven stove hat coat scarf glove boot shoe shirt belt button needle thread blanket pillow carpet curtain painting statue vase
drum flute violin piano guitar trumpet harp whistle kite ball doll puzzle dice pencil pen ink notebook envelope stamp parcel
suitcase trunk safe vault cabinet locker crate tray ladder shovel rake axe lantern torch compass telescope microscope radio
camera engine motor robot machine tractor truck bicycle train bus tram balloon feather shell pebble crystal pearl ruby emerald
diamond sapphire medal trophy flag banner shield sword helmet mask drawbridge lighthouse windmill fountain greenhouse barn stable
shed tent cottage cabin castle palace temple library museum school station harbor market bakery""")
CONTAINERS = words("box chest drawer cabinet basket bag trunk jar crate suitcase safe locker barrel sack bucket cupboard")
ANIMALS = words("""cat dog fox bear wolf rabbit hare mouse rat horse pony donkey cow goat sheep pig duck goose hen owl crow raven
swan heron eagle falcon sparrow robin finch parrot frog toad turtle snake lizard fish salmon trout whale seal otter beaver badger
squirrel hedgehog mole deer moose elk lion tiger leopard monkey elephant camel zebra giraffe panda koala bee ant spider beetle
butterfly moth snail crab lobster octopus penguin dolphin shark""")
FOODS = words("""apple pear plum peach cherry grape melon lemon orange banana berry fig date nut almond walnut bread cake pie soup
stew rice pasta cheese butter honey jam milk cream egg bean pea carrot potato onion garlic tomato pepper cabbage spinach corn
mushroom pumpkin salad pancake waffle cookie biscuit chocolate tea coffee juice yogurt porridge noodle dumpling""")
JOBS = words("""baker teacher doctor nurse farmer sailor captain pilot driver painter singer dancer writer poet potter tailor weaver
carpenter mason miller miner fisher hunter gardener cook waiter judge lawyer guard soldier smith jeweler printer engineer chemist
astronomer librarian postman plumber barber butcher florist shepherd beekeeper clockmaker mechanic musician actor clerk banker
sculptor photographer translator tutor""")
HOBBIES = words("chess painting singing dancing fishing swimming running reading cooking gardening knitting sailing hiking cycling "
                "climbing drawing skating writing baking birdwatching pottery archery")
INSTRUMENTS = words("drum flute violin piano guitar trumpet harp cello clarinet oboe banjo organ")
MATERIALS = words("wood stone iron glass paper clay wool cotton silk copper silver gold bronze leather marble brick sand straw wax "
                  "amber")
ROOMS = words("kitchen hall cellar attic bedroom library office workshop bathroom nursery pantry study garage stable greenhouse "
              "laundry lobby")
VERBS = [("carry", "carried"), ("find", "found"), ("paint", "painted"), ("clean", "cleaned"), ("repair", "repaired"),
         ("sell", "sold"), ("buy", "bought"), ("hide", "hid"), ("lose", "lost"), ("borrow", "borrowed"), ("lift", "lifted"),
         ("open", "opened"), ("close", "closed"), ("move", "moved"), ("draw", "drew"), ("wash", "washed"), ("watch", "watched"),
         ("measure", "measured"), ("describe", "described"), ("push", "pushed"), ("pull", "pulled"), ("drop", "dropped"),
         ("break", "broke"), ("fix", "fixed"), ("polish", "polished"), ("count", "counted"), ("wrap", "wrapped"),
         ("send", "sent"), ("fetch", "fetched"), ("keep", "kept"), ("admire", "admired"), ("forget", "forgot")]
FEEL = words("happy sad tired proud calm angry curious worried excited lonely grateful surprised nervous cheerful bored hopeful")
WEATHER = words("sunny cloudy rainy windy foggy snowy stormy clear cold warm hot mild icy misty")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July August September October November December")
SEASONS = words("spring summer autumn winter")
DIRECTIONS = words("north south east west")
PARTS = ["morning", "afternoon", "evening", "night"]
NUMBER_WORDS = words("zero one two three four five six seven eight nine ten eleven twelve")
CODEWORDS = words("""ember falcon maple river thunder velvet comet harbor saffron willow granite lantern meadow cobalt juniper marble
nectar onyx pepper quartz raven saddle timber umber violet walnut zephyr anchor breeze cedar dagger eagle feather garnet hazel
indigo jasper kestrel lotus mango nickel opal pillow quiver ribbon sparrow tulip urchin vulture whisper yarrow acorn bramble
candle dragon echo forest glacier hammer island jungle kettle lemon mirror needle orchid pebble rocket shadow tunnel valley
window blossom canyon desert engine flame goblet hollow ivory jacket kernel ladder magnet nutmeg ocean planet""")
TITLES = words("garden harbor winter silver lost silent broken last hidden golden long secret little distant burning frozen")
SYLLABLES = words("ba be bi bo da de di do fa fe fi go ka ke ki ko la le li lo ma me mi mo na ne ni no pa pe po ra re ri ro sa se "
                  "si so ta te ti to va ve vi vo za ze zo")
CLUBS = words("garden chess choir hiking book sailing cooking history film science dance pottery drama tennis rowing bridge")
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


class Rng(random.Random):
    """random.Random with the few quick draws the generator uses everywhere."""

    def pick(self, seq):
        return seq[int(self.random() * len(seq))]

    def below(self, n):
        return int(self.random() * n)

    def span(self, low, high):
        """An integer in [low, high]."""
        return low + int(self.random() * (high - low + 1))

    def flip(self, p):
        return self.random() < p


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def an(text):
    """The text with 'a' before a vowel made 'an'."""
    return A_VOWEL.sub(r"\1n ", text)


def plural(noun):
    if noun.endswith("fe") and noun == "knife":
        return "knives"
    if noun.endswith("f") and noun in ("shelf", "wolf"):
        return noun[:-1] + "ves"
    if noun in ("mouse", "goose", "fish", "sheep", "deer", "moose", "salmon", "trout", "elk", "dice"):
        return {"mouse": "mice", "goose": "geese"}.get(noun, noun)
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def cap(text):
    return text[0].upper() + text[1:]


def join(items, last="and"):
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + " " + last + " " + items[-1]


def surname(r):
    return r.pick(NAME_A) + r.pick(NAME_B) + r.pick(NAME_C) if r.flip(0.5) else r.pick(NAME_A) + r.pick(NAME_C)


def person(r):
    return r.pick(FIRST) + " " + surname(r)


def place(r):
    return r.pick(PLACE_A) + r.pick(PLACE_B)


def thing(r):
    """An adjective and a noun, without article: 'copper kettle'."""
    return r.pick(ADJ) + " " + r.pick(NOUN)


def digits(r, n):
    return str(r.span(1, 9)) + "".join(str(r.below(10)) for _ in range(n - 1))


def clock_time(r):
    return "%d:%02d" % (r.span(0, 23), r.span(0, 59))


def date(r):
    return "%d %s" % (r.span(1, 28), r.pick(MONTHS))


def code(r):
    """A code in one of several looks; mostly digits, since those must be copied one by one."""
    k = r.below(8)
    if k < 3:
        return digits(r, r.span(3, 5))
    if k == 3:
        return digits(r, r.span(6, 8))
    if k == 4:
        return r.pick(LETTERS) + r.pick(LETTERS) + "-" + digits(r, r.span(2, 4))
    if k == 5:
        return r.pick(CODEWORDS) + "-" + r.pick(CODEWORDS)
    if k == 6:
        return r.pick(CODEWORDS) + digits(r, 2)
    return r.pick(LETTERS) + digits(r, 3) + r.pick(LETTERS)


def invented(r):
    """A word that means nothing."""
    return "".join(r.pick(SYLLABLES) for _ in range(r.span(2, 4)))


def title(r):
    k = r.below(4)
    if k == 0:
        return "The " + cap(r.pick(TITLES)) + " " + cap(r.pick(NOUN))
    if k == 1:
        return "A " + cap(r.pick(SEASONS)) + " in " + place(r)
    if k == 2:
        return "The " + cap(r.pick(NOUN)) + " of " + place(r)
    return "The " + cap(r.pick(ANIMALS)) + " and the " + cap(r.pick(NOUN))
