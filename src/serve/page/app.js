/* app.js: the page's state and what the user does with it. */

const app = {
    conversation: null,
    model: "",
    context: 0,
    files: [],           /* attached, not sent yet */
    views: new Map(),    /* node id → MessageView, of the path on show */
    answers: new Map(),  /* conversation id → Answer on its way */
    follow: true,        /* keep the end in sight */
};

const FILE_MAX = 4 << 20;

/* ---- showing ---- */

function branchesOf(node) {
    const all = childrenOf(app.conversation, node.parent);
    return {index: all.indexOf(node), count: all.length};
}

const actions = {
    branches: branchesOf,
    isLast: (node) => activePath(app.conversation).at(-1) === node,

    choose(node, step) {
        const all = childrenOf(app.conversation, node.parent), next = all[clamp(all.indexOf(node) + step, 0, all.length - 1)];
        app.conversation.selected[node.parent] = next.id;
        keep(app.conversation);
        showConversation();
        app.views.get(next.id)?.article.focus();
    },

    again(node) {
        if (!answering()) startAnswer(node.parent);
    },

    edited(node, content) {
        if (answering() || (content === node.content && node.role === "assistant")) return;
        const {role, files, calls} = node;
        const own = addNode(app.conversation, node.parent, {role, content, files, ...(calls && {calls})});
        keep(app.conversation);
        showConversation();
        if (role === "user") startAnswer(own.id);
    },

    results(node, results) {
        let parent = node.id;
        for (const {call, content} of results) parent = addNode(app.conversation, parent, {role: "tool", call, content}).id;
        startAnswer(parent);
    },
};

function showConversation() {
    const path = activePath(app.conversation), box = byId("messages"), answer = app.answers.get(app.conversation.id);
    app.views = new Map(path.map((node) => [node.id, app.views.get(node.id)?.node === node ? app.views.get(node.id) : new MessageView(node, actions)]));
    box.replaceChildren(...[...app.views.values()].map((view) => view.article));
    for (const view of app.views.values()) view.update(answer?.node === view.node);
    byId("welcome").hidden = path.length > 0;
    byId("title").textContent = titleOf(app.conversation);
    document.title = path.length ? titleOf(app.conversation) + " · evenshare" : "evenshare";
    showContext(path.findLast((node) => node.stats?.prompt)?.stats, app.context);
    showComposer();
}

function showComposer() {
    const busy = answering(), send = byId("send");
    send.setAttribute("aria-label", busy ? "Stop" : "Send");
    send.title = busy ? "Stop (Esc)" : "Send (Enter)";
    send.querySelector("use").setAttribute("href", busy ? "#i-stop" : "#i-send");
    send.disabled = !busy && !byId("input").value.trim() && !app.files.length;
    send.classList.toggle("busy", busy);
    byId("files").replaceChildren(...app.files.map((file, i) =>
        el("li", {}, icon("clip"), file.name, el("span", {class: "quiet"}, fileSize(file.text.length)),
           iconButton("close", `Remove ${file.name}`, () => {
               app.files.splice(i, 1);
               showComposer();
           }))));
}

async function showList() {
    const heads = await store.list();
    byId("conversations").replaceChildren(...heads.map((head) =>
        el("li", {class: head.id === app.conversation.id && "current"},
           el("button", {class: "row-button", "aria-current": head.id === app.conversation.id && "page", onclick: () => openConversation(head.id)},
              el("span", {}, head.title)),
           iconButton("trash", `Delete “${head.title}”`, () => removeConversation(head)))));
}

function scrollToEnd(force) {
    if (force) app.follow = true;
    const box = byId("scroll");
    if (app.follow) box.scrollTop = box.scrollHeight;
}

/* ---- conversations ---- */

function keep(conversation) {
    store.save(conversation).then(showList, () => announce("This conversation could not be saved"));
}

function show(conversation) {
    app.conversation = conversation;
    app.files = [];
    memory.set("current", conversation.id);
    showConversation();
    showList();
    showSidebar(false);
    scrollToEnd(true);
}

function startConversation() {
    show(newConversation(defaultSettings()));
    byId("input").focus();
}

async function openConversation(id) {
    const running = app.answers.get(id);
    const found = running ? running.conversation : await store.load(id);
    if (found) show(found);
    else startConversation();
}

async function removeConversation(head) {
    if (!confirm(`Delete “${head.title}”?`)) return;
    app.answers.get(head.id)?.stop();
    app.answers.delete(head.id);
    await store.remove(head.id);
    if (head.id === app.conversation.id) startConversation();
    else showList();
}

async function exportAll() {
    const all = [];
    for (const head of await store.list()) all.push(await store.load(head.id));
    const address = URL.createObjectURL(new Blob([JSON.stringify(all, null, 1)], {type: "application/json"}));
    el("a", {href: address, download: "evenshare-conversations.json"}).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/* ---- asking ---- */

const answering = () => app.answers.has(app.conversation.id);

function sendMessage() {
    const field = byId("input"), content = field.value.trim();
    if (answering() || (!content && !app.files.length)) return;
    const parent = activePath(app.conversation).at(-1)?.id ?? ROOT;
    const node = addNode(app.conversation, parent, {role: "user", content, files: app.files});
    app.files = [];
    field.value = "";
    fitHeight(field);
    startAnswer(node.id);
}

/* An answer below `parent`. Frames are drawn as fast as they can be drawn, and saved every two seconds. */
async function startAnswer(parent) {
    const {conversation} = app, node = addNode(conversation, parent, {role: "assistant"});
    let drawn = 0, cost = 0, saved = performance.now(), waiting = false;
    const draw = () => {
        waiting = false;
        if (app.conversation !== conversation || !app.answers.has(conversation.id)) return;
        const begin = performance.now();
        app.views.get(node.id)?.update(true);
        scrollToEnd();
        drawn = performance.now();
        cost = drawn - begin;
    };
    const changed = () => {
        const now = performance.now();
        if (now - saved > 2000) {
            saved = now;
            store.save(conversation).catch(() => {});
        }
        if (waiting) return;
        waiting = true;
        /* a long text is drawn less often, so that drawing takes a third of the time at most */
        setTimeout(() => requestAnimationFrame(draw), Math.max(0, 2 * cost - (now - drawn)));
    };
    const answer = new Answer(conversation, node, app.model, changed);
    app.answers.set(conversation.id, answer);
    keep(conversation);
    showConversation();
    scrollToEnd(true);
    announce("Answering");
    let key = false;
    try {
        await answer.run();
    } catch {
        key = true;
        node.error = "This server wants a key.";
    }
    app.answers.delete(conversation.id);
    keep(conversation);
    if (app.conversation === conversation) showConversation();
    scrollToEnd();
    announce(node.error ?? (node.finish === "stopped" ? "Stopped" : "Answer complete"));
    if (key && (await askForKey()) && app.conversation === conversation) {
        delete conversation.nodes[node.id];
        startAnswer(parent);
    }
}

/* ---- the server ---- */

/* True when a key was given. */
function askForKey() {
    const dialog = byId("key"), input = byId("key-input");
    if (dialog.open) return Promise.resolve(false);
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((resolve) => dialog.addEventListener("close", async () => {
        if (dialog.returnValue !== "ok" || !input.value) return resolve(false);
        memory.set("key", input.value, byId("key-keep").checked);
        input.value = "";
        await loadModel();
        resolve(true);
    }, {once: true}));
}

async function loadModel() {
    const line = byId("model");
    try {
        const [model] = (await (await ask("/v1/models")).json()).data;
        app.model = model.id;
        app.context = model.max_model_len ?? model.context_length ?? 0;
        line.textContent = app.model + (app.context ? ` · ${thousands(app.context)} tokens` : "");
        fillWelcome(byId("welcome"), app.model, app.context, usePrompt);
    } catch (error) {
        line.textContent = error.message;
        if (error.status === 401) return askForKey();
        setTimeout(loadModel, 5000);
    }
    return true;
}

function usePrompt(prompt) {
    byId("input").value = prompt;
    sendMessage();
}

/* ---- files ---- */

async function attach(list) {
    for (const file of list) {
        try {
            if (file.size > FILE_MAX) throw new Error(`it has more than ${fileSize(FILE_MAX)}`);
            const text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
            if (text.includes("\0")) throw new Error("it is not a text file");
            app.files.push({name: file.name, text});
        } catch (error) {
            alert(`${file.name} was not attached: ${error instanceof TypeError ? "it is not a text file (UTF-8)" : error.message}.`);
        }
    }
    showComposer();
    byId("input").focus();
}

/* ---- the page's own controls ---- */

function showSidebar(open) {
    document.body.classList.toggle("sidebar-open", open);
    byId("open-sidebar").setAttribute("aria-expanded", open);
    if (open) byId("new").focus();
}

const THEMES = {"": "as the system", light: "light", dark: "dark"};

function setTheme(theme) {
    memory.set("theme", theme || null);
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    byId("theme-name").textContent = "Theme: " + THEMES[theme];
}

function changeSettings() {
    openSettings(app.conversation.settings, (settings) => {
        app.conversation.settings = settings;
        if (Object.keys(app.conversation.nodes).length) keep(app.conversation);
    });
}

function editLast() {
    const last = activePath(app.conversation).findLast((node) => node.role === "user");
    if (last && !answering()) app.views.get(last.id).edit();
}

function onKey(event) {
    const inField = event.target.closest?.("input, textarea, select, dialog"), control = event.ctrlKey || event.metaKey;
    if (event.key === "Escape" && !event.target.closest?.("dialog")) {
        if (document.body.classList.contains("sidebar-open")) showSidebar(false);
        else app.answers.get(app.conversation.id)?.stop();
    } else if (control && event.shiftKey && event.key.toLowerCase() === "o") startConversation();
    else if (control && event.key === ",") changeSettings();
    else if (event.key === "/" && !inField && !control) byId("input").focus();
    else return;
    event.preventDefault();
}

function onInputKey(event) {
    if (event.isComposing) return;
    const touch = matchMedia("(pointer: coarse)").matches;
    if (event.key === "Enter" && !event.shiftKey && !touch) {
        event.preventDefault();
        sendMessage();
    } else if (event.key === "ArrowUp" && !event.target.value) {
        event.preventDefault();
        editLast();
    }
}

function bindComposer() {
    const input = byId("input");
    input.addEventListener("input", () => {
        fitHeight(input);
        showComposer();
    });
    input.addEventListener("keydown", onInputKey);
    input.addEventListener("paste", (event) => {
        if (!event.clipboardData.files.length) return;
        event.preventDefault();
        attach(event.clipboardData.files);
    });
    byId("composer").addEventListener("submit", (event) => {
        event.preventDefault();
        if (answering()) app.answers.get(app.conversation.id).stop();
        else sendMessage();
    });
    byId("attach").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", async (event) => {
        await attach([...event.target.files]);
        event.target.value = "";
    });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
        event.preventDefault();
        attach(event.dataTransfer.files);
    });
}

function bindScrolling() {
    const box = byId("scroll"), jump = byId("jump");
    box.addEventListener("scroll", () => {
        app.follow = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
        jump.hidden = app.follow;
    });
    jump.addEventListener("click", () => scrollToEnd(true));
    new ResizeObserver(() => scrollToEnd()).observe(box);
}

function bindControls() {
    const status = new StatusView(byId("status"), () => toggleStatus(false));
    const toggleStatus = (open) => {
        status.show(open);
        byId("open-status").setAttribute("aria-expanded", open);
        if (!open) byId("open-status").focus();
    };
    byId("open-status").addEventListener("click", () => toggleStatus(byId("status").hidden));
    byId("open-settings").addEventListener("click", changeSettings);
    byId("new").addEventListener("click", startConversation);
    byId("open-sidebar").addEventListener("click", () => showSidebar(true));
    for (const id of ["close-sidebar", "veil"]) byId(id).addEventListener("click", () => showSidebar(false));
    byId("theme").addEventListener("click", () => {
        const names = Object.keys(THEMES);
        setTheme(names[(names.indexOf(memory.get("theme", "")) + 1) % names.length]);
    });
    byId("key-cancel").addEventListener("click", () => byId("key").close(""));
    byId("open-help").addEventListener("click", () => byId("help").showModal());
    byId("export").addEventListener("click", exportAll);
    byId("forget").addEventListener("click", async () => {
        if (!confirm("Delete every conversation in this browser?")) return;
        for (const answer of app.answers.values()) answer.stop();
        await store.clear();
        byId("help").close();
        startConversation();
    });
    document.addEventListener("keydown", onKey);
}

async function start() {
    setTheme(memory.get("theme", ""));
    bindComposer();
    bindScrolling();
    bindControls();
    await store.open();
    const last = memory.get("current"), found = last && (await store.load(last).catch(() => null));
    const model = loadModel();
    if (found) show(found);
    else startConversation();
    await model;
    showConversation();
    document.body.dataset.ready = "yes";
}

start();
