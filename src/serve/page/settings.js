/* settings.js: the system prompt and sampling of a conversation. An empty field means: as the model recommends. */

const SETTING_FIELDS = [
    ["temperature", "Temperature", "0: the likeliest token", {min: 0, max: 2, step: 0.05}],
    ["top_p", "Top p", "of the probability", {min: 0, max: 1, step: 0.01}],
    ["top_k", "Top k", "likeliest tokens", {min: 0, max: 1000, step: 1}],
    ["min_p", "Min p", "share of the likeliest", {min: 0, max: 1, step: 0.01}],
    ["repetition_penalty", "Repetition penalty", "1 is none", {min: 0.01, max: 10, step: 0.01}],
    ["presence_penalty", "Presence penalty", "0 is none", {min: -2, max: 2, step: 0.1}],
    ["max_tokens", "Longest answer", "in tokens", {min: 1, max: 10000000, step: 1}],
    ["seed", "Seed", "same seed, same answer", {min: 0, max: 4294967295, step: 1}],
];

function defaultSettings() {
    try {
        return JSON.parse(memory.get("settings", "{}"));
    } catch {
        return {};
    }
}

function checkTools(text) {
    if (!text.trim()) return "";
    try {
        return Array.isArray(JSON.parse(text)) ? "" : "This must be a JSON array of tools.";
    } catch (error) {
        return "This is not JSON: " + error.message;
    }
}

/* Shows the dialog; save(settings) when the user keeps the changes. */
function openSettings(settings, save) {
    const dialog = byId("settings");
    const field = (label, hint, input) => el("label", {class: "field"}, el("span", {}, label, hint && el("small", {class: "quiet"}, hint)), input);
    const system = el("textarea", {id: "set-system", rows: "4", placeholder: "You are …"});
    system.value = settings.system ?? "";
    const numbers = SETTING_FIELDS.map(([name, label, hint, limits]) => {
        const input = el("input", {id: "set-" + name, type: "number", placeholder: "model's own", inputmode: "decimal", ...limits, step: "any"});
        if (limits.step === 1) input.step = "1";
        if (Number.isFinite(settings[name])) input.value = settings[name];
        return [name, field(label, hint, input), input];
    });
    const thinking = el("select", {id: "set-thinking"}, el("option", {value: ""}, "model's own"), el("option", {value: "on"}, "on"), el("option", {value: "off"}, "off"));
    thinking.value = settings.thinking ?? "";
    const tools = el("textarea", {id: "set-tools", rows: "5", spellcheck: "false", class: "mono",
                                  placeholder: '[{"type": "function", "function": {"name": "get_weather", …}}]'});
    tools.value = settings.tools ?? "";
    tools.addEventListener("input", () => tools.setCustomValidity(checkTools(tools.value)));
    const everywhere = el("input", {id: "set-everywhere", type: "checkbox"});

    const form = el("form", {method: "dialog", onsubmit: () => {
        const out = {};
        if (system.value.trim()) out.system = system.value;
        for (const [name, , input] of numbers)
            if (input.value !== "") out[name] = Number(input.value);
        if (thinking.value) out.thinking = thinking.value;
        if (tools.value.trim()) out.tools = tools.value;
        if (everywhere.checked) memory.set("settings", JSON.stringify(out));
        save(out);
    }},
        el("h2", {id: "settings-title"}, "Settings of this conversation"),
        field("System prompt", "", system),
        el("div", {class: "grid"}, ...numbers.map(([, node]) => node), field("Thinking", "if the model can", thinking)),
        el("details", {open: Boolean(settings.tools)}, el("summary", {}, "Tools"),
           field("Functions the model may call, as JSON", "you give their results yourself", tools)),
        el("label", {class: "tick"}, everywhere, " Use for new conversations too"),
        el("div", {class: "actions"}, el("button", {type: "button", class: "plain", onclick: () => dialog.close()}, "Cancel"),
           el("button", {class: "primary"}, "Keep")));
    dialog.replaceChildren(form);
    dialog.showModal();
}
