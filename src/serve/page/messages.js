/* messages.js: how a conversation looks: one article per message of the chosen path. */

/* <tool_call> in the text, from servers that do not split calls off. */
const RAW_CALL = /<tool_call>([^]*?)(?:<\/tool_call>|$)/g;

function prettyArguments(text) {
    try {
        return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
        return text;
    }
}

function callCard(name, argumentsText) {
    return el("details", {class: "call", open: true}, el("summary", {}, el("span", {class: "tag"}, "tool call"), " ", el("code", {}, name || "…")),
              el("pre", {tabindex: "0"}, el("code", {}, highlight(prettyArguments(argumentsText), "json"))));
}

function rawCallName(text) {
    return text.match(/<function=([\w.-]{1,100})/)?.[1] ?? text.match(/"name"\s*:\s*"([^"\n]{1,100})"/)?.[1] ?? "";
}

/* A message being shown: its article, and update() to show what its node holds now. */
class MessageView {
    constructor(node, actions) {
        this.node = node;
        this.actions = actions;
        this.body = el("div", {class: "body"});
        this.foot = el("div", {class: "foot"});
        this.article = el("article", {class: "message " + node.role, "data-id": node.id, tabindex: "-1",
                                      "aria-label": {user: "You", assistant: "Answer", tool: "Result of a tool"}[node.role]}, this.body, this.foot);
        this.update(false);
    }

    update(live) {
        this.article.classList.toggle("live", live);
        this.article.setAttribute("aria-busy", live);
        if (this.node.role === "assistant") this.updateAnswer(live);
        else this.updateText();
        if (!live) this.updateFoot();
    }

    updateText() {
        const files = (this.node.files ?? []).map((file) => el("li", {}, icon("clip"), file.name, el("span", {class: "quiet"}, fileSize(file.text.length))));
        this.body.replaceChildren(...(files.length ? [el("ul", {class: "files"}, ...files)] : []));
        if (this.node.role === "tool") this.body.append(el("div", {class: "tag"}, "tool result"));
        if (this.node.content) this.body.append(el("div", {class: "text"}, this.node.content));
    }

    updateAnswer(live) {
        const {node} = this, split = splitThinking(node.content);
        const thinking = node.reasoning || split.thinking;
        const answer = split.answer.replace(RAW_CALL, "").trimEnd();
        this.updateThinking(thinking, live && !answer && !node.calls?.length);
        this.text ??= this.body.appendChild(el("div", {class: "markdown"}));
        renderMarkdown(this.text, answer);
        this.updateCalls([...split.answer.matchAll(RAW_CALL)]);
        this.updateNotes(live, !thinking && !answer);
    }

    updateThinking(text, open) {
        if (!text) return;
        if (!this.thinking) {
            this.thinkingText = el("div", {class: "thought"});
            this.thinking = el("details", {class: "thinking"}, el("summary"), this.thinkingText);
            this.body.prepend(this.thinking);
        }
        const seconds = this.node.stats?.thought;
        this.thinking.firstChild.textContent = open ? "Thinking…" : seconds ? `Thought for ${duration(seconds)}` : "Thoughts";
        this.thinkingText.textContent = text;
    }

    updateCalls(raw) {
        const calls = (this.node.calls ?? []).map((call) => [call.name, call.arguments]);
        for (const found of raw) calls.push([rawCallName(found[1]), found[1].trim()]);
        const source = JSON.stringify(calls);
        if (source === (this.callSource ?? "[]")) return;
        this.callSource = source;
        this.callBox ??= this.body.appendChild(el("div", {class: "calls"}));
        this.callBox.replaceChildren(...calls.map(([name, text]) => callCard(name, text)));
    }

    /* What stands below the text: waiting, errors, why it ended. */
    updateNotes(live, empty) {
        this.note?.remove();
        this.note = null;
        const {node} = this;
        if (live && empty) this.note = el("p", {class: "waiting quiet"}, el("span", {class: "dots", "aria-hidden": "true"}), node.waiting ?? "Waiting…");
        else if (node.error) this.note = el("p", {class: "error", role: "alert"}, node.error);
        else if (!live && node.finish === "length") this.note = el("p", {class: "quiet"}, "Cut off: the limit of tokens was reached.");
        else if (!live && node.finish === "stopped") this.note = el("p", {class: "quiet"}, "Stopped.");
        if (this.note) this.body.append(this.note);
    }

    updateFoot() {
        const {node, actions} = this;
        const {index, count} = actions.branches(node);
        this.foot.replaceChildren();
        if (node.stats) this.foot.append(statsLine(node.stats));
        const buttons = el("div", {class: "buttons"});
        if (count > 1)
            buttons.append(el("span", {class: "branches"}, iconButton("left", "Earlier version", () => actions.choose(node, -1)),
                              el("span", {class: "quiet", "aria-label": `version ${index + 1} of ${count}`}, `${index + 1}/${count}`),
                              iconButton("right", "Later version", () => actions.choose(node, 1))));
        buttons.append(copyButton(() => (node.role === "assistant" ? splitThinking(node.content).answer : contentOf(node)), "Copy the message"));
        if (node.role !== "tool") buttons.append(iconButton("edit", "Edit as a new version", () => this.edit()));
        if (node.role === "assistant") buttons.append(iconButton("again", "Answer again", () => actions.again(node)));
        this.foot.append(buttons);
        if (node.role === "assistant" && node.calls?.length && actions.isLast(node)) this.foot.append(this.resultForm());
    }

    /* The user's own hands are the tools: results typed here go back to the model. */
    resultForm() {
        const fields = this.node.calls.map((call) => ({call, field: el("textarea", {rows: "2", "aria-label": `Result of ${call.name}`, placeholder: `What ${call.name} gives back`})}));
        return el("form", {class: "results", onsubmit: (event) => {
            event.preventDefault();
            this.actions.results(this.node, fields.map(({call, field}) => ({call: call.id, content: field.value})));
        }}, ...fields.map(({field}) => field), el("button", {class: "primary"}, "Send the result"));
    }

    edit() {
        const {node} = this;
        const field = el("textarea", {"aria-label": "Edited message"});
        field.value = node.role === "assistant" ? splitThinking(node.content).answer : node.content;
        const done = (save) => {
            form.remove();
            this.body.hidden = this.foot.hidden = false;
            if (save) this.actions.edited(node, field.value);
        };
        const form = el("form", {class: "edit", onsubmit: (event) => {
            event.preventDefault();
            done(true);
        }}, field, el("div", {class: "actions"}, el("button", {type: "button", class: "plain", onclick: () => done(false)}, "Cancel"),
                                           el("button", {class: "primary"}, node.role === "user" ? "Send" : "Keep")));
        field.addEventListener("keydown", (event) => {
            if (event.key === "Escape") {
                event.stopPropagation();
                done(false);
            } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && node.role === "user") {
                event.preventDefault();
                done(true);
            }
        });
        this.body.hidden = this.foot.hidden = true;
        this.article.append(form);
        fitHeight(field);
        field.addEventListener("input", () => fitHeight(field));
        field.focus();
    }
}

function fitHeight(field) {
    field.style.height = "auto";
    field.style.height = Math.min(field.scrollHeight + 2, window.innerHeight * 0.45) + "px";
}
