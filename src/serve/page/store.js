/* store.js: conversations, kept in this browser (IndexedDB).
 *
 * A conversation is a tree: editing a message or asking again makes a sibling, and `selected` says which child goes on. What
 * is sent and shown is one path from the root down.
 *
 *   node {id, parent, role, content, files: [{name, text}], reasoning, calls: [{id, name, arguments}], call, stats, finish,
 *         error, time}
 *
 * A browser that has no database (private windows of some) keeps them until the tab is closed. */

const ROOT = "";

function newConversation(settings) {
    const now = Date.now();
    return {id: newId(), title: "", created: now, updated: now, settings: {...settings}, nodes: {}, selected: {}};
}

function addNode(conversation, parent, fields) {
    const node = {id: newId(), parent, time: Date.now(), content: "", ...fields};
    conversation.nodes[node.id] = node;
    conversation.selected[parent] = node.id;
    return node;
}

/* Insertion order is the order of the branches. */
function childrenOf(conversation, parent) {
    return Object.values(conversation.nodes).filter((node) => node.parent === parent);
}

/* The chosen path, first message first. */
function activePath(conversation) {
    const path = [], children = new Map();
    for (const node of Object.values(conversation.nodes)) {
        if (!children.has(node.parent)) children.set(node.parent, []);
        children.get(node.parent).push(node);
    }
    for (let at = ROOT; children.has(at);) {
        const all = children.get(at);
        const node = all.find((child) => child.id === conversation.selected[at]) ?? all[all.length - 1];
        path.push(node);
        at = node.id;
    }
    return path;
}

/* The messages above a node, and the node. */
function pathTo(conversation, node) {
    const path = [];
    for (let at = node; at; at = conversation.nodes[at.parent]) path.unshift(at);
    return path;
}

function titleOf(conversation) {
    if (conversation.title) return conversation.title;
    const first = Object.values(conversation.nodes).find((node) => node.role === "user");
    if (!first) return "New conversation";
    const lines = first.content.trim().split("\n");
    const text = (first.content.length > 200 ? lines[lines.length - 1] : lines[0]) || first.files?.[0]?.name || "";
    return text.length > 60 ? text.slice(0, 57).trimEnd() + "…" : text || "New conversation";
}

/* ---- the database: heads for the list, bodies one at a time ---- */

const store = {
    database: null,
    spare: new Map(),

    open() {
        return new Promise((resolve) => {
            let request;
            try {
                request = indexedDB.open("evenshare", 1);
            } catch {
                resolve();
                return;
            }
            request.onupgradeneeded = () => {
                request.result.createObjectStore("heads", {keyPath: "id"});
                request.result.createObjectStore("bodies", {keyPath: "id"});
            };
            request.onsuccess = () => {
                this.database = request.result;
                resolve();
            };
            request.onerror = request.onblocked = () => resolve();
        });
    },

    /* work(heads, bodies) inside one transaction; resolves with what its request gives. */
    run(mode, work) {
        return new Promise((resolve, reject) => {
            const transaction = this.database.transaction(["heads", "bodies"], mode);
            const request = work(transaction.objectStore("heads"), transaction.objectStore("bodies"));
            transaction.oncomplete = () => resolve(request?.result);
            transaction.onerror = transaction.onabort = () => reject(transaction.error);
        });
    },

    /* [{id, title, updated}], the newest first. */
    async list() {
        const heads = this.database ? await this.run("readonly", (all) => all.getAll())
                                    : [...this.spare.values()].map((c) => ({id: c.id, title: titleOf(c), updated: c.updated}));
        return heads.sort((a, b) => b.updated - a.updated);
    },

    async load(id) {
        return this.database ? this.run("readonly", (_, bodies) => bodies.get(id)) : this.spare.get(id);
    },

    async save(conversation) {
        conversation.updated = Date.now();
        if (!this.database) {
            this.spare.set(conversation.id, conversation);
            return;
        }
        await this.run("readwrite", (heads, bodies) => {
            heads.put({id: conversation.id, title: titleOf(conversation), updated: conversation.updated});
            return bodies.put(conversation);
        });
    },

    async remove(id) {
        this.spare.delete(id);
        if (this.database) await this.run("readwrite", (heads, bodies) => (heads.delete(id), bodies.delete(id)));
    },

    async clear() {
        this.spare.clear();
        if (this.database) await this.run("readwrite", (heads, bodies) => (heads.clear(), bodies.clear()));
    },
};
