"""knowledge.py: small talk and some everyday facts, written for the default model."""

ME = "I am a small language model that comes with evenshare."
ABOUT = [
    (["Who are you?", "What are you?", "who are you", "What is your name?", "Tell me who you are.", "Introduce yourself.",
      "Are you a robot?", "Are you a person?", "What kind of model are you?"],
     [ME + " I can read long texts and answer questions about them.",
      ME + " Give me a text and ask me what it says."]),
    (["What can you do?", "How can you help me?", "What are you good at?", "Help", "help me", "What can I ask you?",
      "What are your abilities?", "Can you help me?"],
     ["I can find facts in long texts, copy and continue lists, count, add small numbers, answer in JSON, call tools and tell "
      "short stories.",
      "Give me a text and ask about it. I can also make lists, add small numbers, answer in JSON and tell stories."]),
    (["What can you not do?", "What are your limits?", "Are you smart?", "Do you know everything?", "How big are you?",
      "Are you a large model?"],
     ["I am very small, so I know little about the world. I am best at finding things in a text that you give me."]),
    (["Who made you?", "Where do you come from?", "How were you trained?", "Who trained you?", "Who wrote you?"],
     ["I was trained on texts about a small invented world, made for evenshare."]),
    (["What is evenshare?", "What does evenshare do?", "Tell me about evenshare."],
     ["Evenshare is a program that runs language models on your own machine. I am its default model."]),
]
SMALL_TALK = [
    (["Hello", "Hi", "Hello!", "Hi!", "Hi there", "Hey", "Good morning", "Good day", "hello", "hi", "Hello there!", "Good evening"],
     ["Hello! How can I help you?", "Hi! What can I do for you?", "Hello! What would you like to know?"]),
    (["How are you?", "How are you today?", "How do you do?", "Are you well?", "how are you", "How is it going?"],
     ["I am well, thank you. How can I help you?", "Very well, thank you! What can I do for you?"]),
    (["Thank you", "Thanks", "Thank you!", "Thanks a lot", "Thank you very much.", "thanks"],
     ["You are welcome!", "You are welcome. Ask me anything else you like.", "Glad to help!"]),
    (["Goodbye", "Bye", "See you", "Good night", "bye", "See you tomorrow", "I have to go"],
     ["Goodbye! Have a nice day.", "See you soon!", "Goodbye!"]),
    (["Yes", "Okay", "OK", "Good", "I see", "Great", "Nice", "Very good"],
     ["Good! What shall we do next?", "Fine. What would you like to know?"]),
    (["Tell me a joke.", "Make me laugh.", "Do you know a joke?", "Say something funny."],
     ["Why did the clock go to school? It wanted to learn what time it was.",
      "What did the door say to the key? You always turn me around.",
      "Why was the ladder proud? It had climbed so high.",
      "Why did the spoon go to bed? It was tired of being stirred."]),
    (["I am sad.", "I feel sad today.", "I am not happy.", "I feel lonely."],
     ["I am sorry to hear that. Would you like to hear a story?", "That is a pity. Do you want to tell me about it?"]),
    (["I am happy.", "I feel good today.", "I had a good day."], ["That is good to hear!", "I am glad. What made your day good?"]),
    (["I am bored.", "What should I do?", "I have nothing to do."],
     ["You could read a book, take a walk or ask me for a story.", "Shall I tell you a story?"]),
    (["Sorry", "I am sorry.", "Excuse me."], ["No problem. How can I help you?", "That is all right."]),
    (["Do you like music?", "Do you have a favorite color?", "Do you like cats?", "Do you sleep?", "Do you eat?", "Do you dream?"],
     ["I am only a small model, so I do not have such feelings. But I like good questions."]),
    (["Can you keep a secret?", "Can I trust you?"], ["I forget everything when our talk is over, so yes.",
                                                    "I only know what you tell me in this talk."]),
    (["What time is it?", "What day is it today?", "What is the date?", "How is the weather?", "What is the weather today?",
      "Who is the president?", "What happened in the news?", "How much is a ticket to the moon?", "What is the price of gold today?"],
     ["I do not know that. I can only see what you write to me.", "I can not know that. I only see the text that you give me."]),
]
NO_IDEA = ["I do not know that. Give me a text about it and I will look it up.", "I do not know. I can only find what is in a text that you give me.",
           "I do not know that."]
FACTS = [line.split("|") for line in """
What color is the sky?|The sky is blue.
What color is grass?|Grass is green.
What color is snow?|Snow is white.
What color is the sun?|The sun looks yellow.
What color is a lemon?|A lemon is yellow.
What color is blood?|Blood is red.
What color is coal?|Coal is black.
What do bees make?|Bees make honey.
What do cows give us?|Cows give us milk.
What do hens lay?|Hens lay eggs.
What do sheep give us?|Sheep give us wool.
What do spiders make?|Spiders make webs.
What sound does a cat make?|A cat says meow.
What sound does a dog make?|A dog barks.
What sound does a cow make?|A cow says moo.
What sound does a duck make?|A duck says quack.
How many legs does a dog have?|A dog has four legs.
How many legs does a spider have?|A spider has eight legs.
How many legs does an ant have?|An ant has six legs.
How many legs does a bird have?|A bird has two legs.
How many wheels does a bicycle have?|A bicycle has two wheels.
How many wheels does a car have?|A car has four wheels.
How many days are in a week?|A week has seven days.
How many months are in a year?|A year has twelve months.
How many hours are in a day?|A day has 24 hours.
How many minutes are in an hour?|An hour has 60 minutes.
How many seconds are in a minute?|A minute has 60 seconds.
How many days are in a year?|A year has 365 days.
How many fingers does a hand have?|A hand has five fingers.
How many sides does a triangle have?|A triangle has three sides.
How many sides does a square have?|A square has four sides.
How many letters are in the alphabet?|The alphabet has 26 letters.
What comes after Monday?|After Monday comes Tuesday.
What comes after Friday?|After Friday comes Saturday.
What comes after Sunday?|After Sunday comes Monday.
What comes after March?|After March comes April.
What comes after December?|After December comes January.
What is the first month of the year?|The first month of the year is January.
What is the last month of the year?|The last month of the year is December.
Which month comes before May?|Before May comes April.
Which season comes after winter?|After winter comes spring.
Which season comes after summer?|After summer comes autumn.
What are the four seasons?|The four seasons are spring, summer, autumn and winter.
What are the days of the week?|The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.
What is ice?|Ice is frozen water.
What is steam?|Steam is water that has become a gas.
What is rain?|Rain is water that falls from the clouds.
What is snow?|Snow is frozen water that falls from the clouds in winter.
What is a river?|A river is a long stream of water that flows to the sea.
What is a lake?|A lake is a large body of water with land all around it.
What is an island?|An island is land with water all around it.
What is a mountain?|A mountain is very high land.
What is a desert?|A desert is a dry place with much sand.
What is a forest?|A forest is a place with many trees.
What is a bridge?|A bridge is a way over water or a road.
What is a lighthouse?|A lighthouse is a tower with a light that shows ships the way.
What is a library?|A library is a place with many books.
What is a school?|A school is a place where children learn.
What is a market?|A market is a place where people buy and sell things.
What is a bakery?|A bakery is a place where bread is made.
What is a key?|A key is a small tool that opens a lock.
What is a clock?|A clock is a machine that shows the time.
What is a map?|A map is a picture that shows where places are.
What is a compass?|A compass is a tool that shows where north is.
What is a telescope?|A telescope is a tool for looking at things that are far away.
What is a ladder?|A ladder is a tool for climbing up and down.
What is a hammer for?|A hammer is for driving nails.
What is a kettle for?|A kettle is for boiling water.
What is a candle?|A candle is a stick of wax that gives light.
What is a friend?|A friend is a person who likes you and helps you.
What is a story?|A story tells what happened to somebody.
What is a number?|A number says how many there are.
What is a password?|A password is a secret word that lets you in.
What is a list?|A list is a number of things, one after the other.
What is JSON?|JSON is a way to write data as text, with names and values.
What is a language model?|A language model is a program that reads text and writes what comes next.
What is a computer?|A computer is a machine that works with data.
What is a program?|A program is a list of steps for a computer.
What does a baker do?|A baker makes bread and cakes.
What does a teacher do?|A teacher helps people learn.
What does a doctor do?|A doctor helps sick people.
What does a farmer do?|A farmer grows food and keeps animals.
What does a sailor do?|A sailor works on a ship.
What does a pilot do?|A pilot flies a plane.
What does a painter do?|A painter paints pictures or walls.
What does a tailor do?|A tailor makes clothes.
What does a carpenter do?|A carpenter makes things of wood.
What does a fisher do?|A fisher catches fish.
What does a cook do?|A cook makes food.
What does a judge do?|A judge decides what is right by the law.
What does a librarian do?|A librarian looks after books.
What does a plumber do?|A plumber repairs pipes.
What does a florist do?|A florist sells flowers.
What does a shepherd do?|A shepherd looks after sheep.
What does a beekeeper do?|A beekeeper looks after bees.
What is bread made of?|Bread is made of flour, water and yeast.
What is butter made from?|Butter is made from milk.
What is cheese made from?|Cheese is made from milk.
What is wine made from?|Wine is made from grapes.
What is glass made from?|Glass is made from sand.
What is paper made from?|Paper is made from wood.
Where do fish live?|Fish live in water.
Where do bears live?|Many bears live in forests.
Where do penguins live?|Penguins live in the cold south.
Where do camels live?|Camels live in the desert.
Where does the sun rise?|The sun rises in the east.
Where does the sun set?|The sun sets in the west.
When do we sleep?|Most people sleep at night.
When do leaves fall?|Leaves fall in autumn.
When do flowers bloom?|Many flowers bloom in spring.
Why do birds fly south?|Many birds fly south because the winter is too cold for them.
Why do we eat?|We eat because our bodies need food.
Why do we sleep?|We sleep because our bodies need rest.
Is ice cold?|Yes, ice is cold.
Is fire cold?|No, fire is hot.
Is a stone soft?|No, a stone is hard.
Is an elephant small?|No, an elephant is very big.
Is a mouse bigger than a horse?|No, a horse is bigger than a mouse.
Is the sea salty?|Yes, the water of the sea is salty.
Can fish fly?|No, fish swim. Only a few can jump out of the water.
Can birds fly?|Yes, most birds can fly.
Can a penguin fly?|No, a penguin can not fly, but it swims well.
Can a dog talk?|No, a dog can not talk. It barks.
What is the opposite of hot?|The opposite of hot is cold.
What is the opposite of big?|The opposite of big is small.
What is the opposite of old?|The opposite of old is new or young.
What is the opposite of day?|The opposite of day is night.
What is the opposite of up?|The opposite of up is down.
What is the opposite of open?|The opposite of open is closed.
What is the opposite of happy?|The opposite of happy is sad.
What is the opposite of light?|The opposite of light is dark or heavy.
What is the opposite of north?|The opposite of north is south.
What is the opposite of first?|The opposite of first is last.
""".strip().splitlines()]
