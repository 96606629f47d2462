/* welcome.js: the first screen: what the model can do, prompts that work, and the way to a bigger model. */

const NOTES = `Here are some notes.

The code of the red door is 4821. A letter for Ada lies in the blue box. The ferry to Norby leaves at 7:40. The code of the green door is 1960. Tom has gone to the harbour. Mara works as a baker in Norby.

What is the code of the green door?`;
const TABLE = `Turn this table into JSON:
name | animal | color
Ada | fox | red
Tom | owl | blue
Mara | cat | black`;

/* Tried against the model in models/: tests/py/test_page.py asks them. */
const OWN_PROMPTS = [
    ["Find a fact", "What is the code of the green door, by these notes?", NOTES],
    ["Make JSON", "Turn a small table into JSON.", TABLE],
    ["Tell a story", "About a fox and a lantern.", "Tell me a story about a fox and a lantern."],
];
const OTHER_PROMPTS = [
    ["Explain", "How a hash table works, with an example.", "Explain how a hash table works, with a short example in Python."],
    ["Write", "A friendly note that moves a meeting.", "Write a short, friendly note that moves our meeting from Tuesday to Thursday."],
    ["Plan", "Three days in a city I have never seen.", "Plan three unhurried days in Lisbon for somebody who likes museums and long walks. Use a table."],
];
const BIGGER = "evenshare pull hf:Qwen/Qwen3-4B-GGUF && evenshare serve -m hf:Qwen/Qwen3-4B-GGUF";

const isOwnModel = (name) => /^evenshare[ _-]default/.test(name);

function fillWelcome(box, model, context, use) {
    const own = isOwnModel(model), length = context ? `${thousands(context)} tokens` : "a long text";
    const cards = (own ? OWN_PROMPTS : OTHER_PROMPTS).map(([title, about, prompt]) =>
        el("button", {type: "button", class: "card", onclick: () => use(prompt)}, el("strong", {}, title), el("span", {}, about)));
    box.replaceChildren(
        svg("svg", {class: "mark", "aria-hidden": "true"}, svg("use", {href: "#i-mark"})),
        el("h2", {}, own ? "Ask about a text." : "What shall it be?"),
        el("p", {class: "lead"}, own
            ? `The model in here is small: 13 million parameters, made for this engine. It finds facts in texts of up to ${length}, remembers ` +
              "what you told it, adds small numbers, writes JSON, calls tools and tells little stories."
            : `${model} reads up to ${length}. Attach a text file with the paper clip, or drop it here.`),
        own && el("p", {class: "quiet"}, "It reads simple English, knows next to nothing of the world, and can’t write code or translate."),
        el("div", {class: "cards"}, ...cards),
        el("div", {class: "bigger"}, el("span", {class: "quiet"}, own ? "For a bigger model:" : "For another model:"),
           el("code", {}, BIGGER), copyButton(() => BIGGER, "Copy the command")));
}
