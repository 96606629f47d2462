/* markdown.js: a model's Markdown becomes DOM nodes.
 *
 * The text is hostile: a web page, a file or another model may have written it. So there is no HTML in it: tags are shown as
 * they stand. Links lead to http, https and mailto only; images become links, since loading one would tell its server that it
 * was read. Nesting is bounded, and no input takes more than (nearly) linear time.
 *
 * renderMarkdown(parent, text) may be called for every token: blocks whose source has not changed keep their nodes, so a
 * selection inside them survives, and only the last block is made anew. */

const MARKDOWN_DEPTH = 10, EMPHASIS_DEPTH = 24, LABEL_MAX = 1500;

const isBlank = (line) => /^\s*$/.test(line);
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`{]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|\t|$)/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_RULE = /^\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/;

const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

/* ---- lines to blocks; each reader returns [block, next line] ---- */

function readFence(lines, at) {
    const [, fence, language] = lines[at].match(FENCE);
    const end = new RegExp("^ {0,3}" + fence[0] + "{" + fence.length + ",}\\s*$");
    let to = at + 1;
    while (to < lines.length && !end.test(lines[to])) to++;
    return [{kind: "code", language: language.toLowerCase(), text: lines.slice(at + 1, to).join("\n")}, to + 1];
}

function readQuote(lines, at) {
    let to = at;
    while (to < lines.length && (QUOTE.test(lines[to]) || (!isBlank(lines[to]) && !startsBlock(lines[to])))) to++;
    return [{kind: "quote", text: lines.slice(at, to).map((line) => line.replace(QUOTE, "")).join("\n")}, to];
}

const pastBlanks = (lines, at) => {
    while (at < lines.length && isBlank(lines[at])) at++;
    return at;
};

/* The first line from `at` on that does not belong to an item whose text begins in column `width`. */
function endOfItem(lines, at, width) {
    const inside = (line) => indentOf(line) >= Math.min(width, 2);
    while (at < lines.length) {
        const next = pastBlanks(lines, at);
        if (next >= lines.length || !(inside(lines[next]) || (next === at && !startsBlock(lines[at])))) return at;
        at = next + 1;
    }
    return at;
}

const indentOf = (line) => line.replace(/\t/g, "    ").match(/^ */)[0].length;

function dedent(line, width) {
    const plain = line.replace(/^\t/, "    ");
    return plain.slice(Math.min(width, plain.match(/^ */)[0].length));
}

function readList(lines, at) {
    const ordered = /\d/.test(lines[at].match(ITEM)[2]);
    const list = {kind: "list", ordered, start: parseInt(lines[at].match(ITEM)[2], 10) || 0, items: []};
    while (at < lines.length) {
        const found = lines[at].match(ITEM);
        if (!found || /\d/.test(found[2]) !== ordered || RULE.test(lines[at])) break;
        const width = found[0].length + (found[3] === "" ? 1 : 0);
        const end = endOfItem(lines, at + 1, width);
        list.items.push([lines[at].slice(found[0].length), ...lines.slice(at + 1, end).map((line) => dedent(line, width))].join("\n"));
        at = end;
        const next = pastBlanks(lines, at);
        if (next < lines.length && ITEM.test(lines[next]) && !RULE.test(lines[next])) at = next;
    }
    return [list, at];
}

function splitRow(line) {
    const cells = [""];
    const row = line.trim().replace(/^\|/, "").replace(/\|$/, "");
    for (let i = 0; i < row.length; i++) {
        if (row[i] === "\\" && row[i + 1] === "|") cells[cells.length - 1] += row[++i];
        else if (row[i] === "|") cells.push("");
        else cells[cells.length - 1] += row[i];
    }
    return cells.map((cell) => cell.trim());
}

const isTable = (lines, at) =>
    lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && TABLE_RULE.test(lines[at + 1].trim()) &&
    splitRow(lines[at]).length === splitRow(lines[at + 1]).length;

function readTable(lines, at) {
    const align = splitRow(lines[at + 1]).map((cell) =>
        cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left");
    const head = splitRow(lines[at]), rows = [];
    for (at += 2; at < lines.length && !isBlank(lines[at]) && lines[at].includes("|"); at++) rows.push(splitRow(lines[at]));
    return [{kind: "table", align, head, rows}, at];
}

function readParagraph(lines, at) {
    let to = at + 1;
    while (to < lines.length && !isBlank(lines[to]) && !startsBlock(lines[to]) && !isTable(lines, to)) to++;
    return [{kind: "paragraph", text: lines.slice(at, to).join("\n")}, to];
}

function readBlock(lines, at, depth) {
    const line = lines[at];
    if (FENCE.test(line)) return readFence(lines, at);
    if (HEADING.test(line)) {
        const [, marks, text = ""] = line.match(HEADING);
        return [{kind: "heading", level: marks.length, text: text.trim().replace(/(^|\s)#+$/, "")}, at + 1];
    }
    if (RULE.test(line)) return [{kind: "rule"}, at + 1];
    if (depth < MARKDOWN_DEPTH && QUOTE.test(line)) return readQuote(lines, at);
    if (depth < MARKDOWN_DEPTH && ITEM.test(line)) return readList(lines, at);
    if (isTable(lines, at)) return readTable(lines, at);
    return readParagraph(lines, at);
}

function readBlocks(text, depth) {
    const lines = text.split("\n"), blocks = [];
    for (let at = 0; at < lines.length;) {
        if (isBlank(lines[at])) {
            at++;
            continue;
        }
        const [block, next] = readBlock(lines, at, depth);
        block.source = lines.slice(at, next).join("\n");
        blocks.push(block);
        at = next;
    }
    return blocks;
}

/* ---- inside a block ---- */

function safeAddress(address) {
    try {
        const url = new URL(address);
        return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

function link(address, ...children) {
    const href = safeAddress(address);
    return href ? el("a", {href, target: "_blank", rel: "noopener noreferrer nofollow", title: href}, ...children) : null;
}

/* [label](address "title") at `at`: {label, address, end}, or null. Labels are bounded, so that many "[" stay cheap. */
function findLink(text, at) {
    let depth = 0, end = at;
    const most = Math.min(text.length, at + LABEL_MAX);
    for (; end < most; end++) {
        if (text[end] === "\\") end++;
        else if (text[end] === "[") depth++;
        else if (text[end] === "]" && --depth === 0) break;
    }
    if (end >= most || text[end + 1] !== "(") return null;
    const rest = text.slice(end + 2, end + 2 + LABEL_MAX);
    const found = rest.match(/^\s*(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/);
    if (!found) return null;
    return {label: text.slice(at + 1, end), address: found[1] ?? found[2], end: end + 2 + found[0].length};
}

/* A run of * _ or ~ becomes a text node that may open or close emphasis. */
function pushDelimiter(into, stack, text, at, run) {
    const before = text[at - 1] ?? " ", after = text[at + run.length] ?? " ";
    const wordBefore = /[\p{L}\p{N}]/u.test(before), wordAfter = /[\p{L}\p{N}]/u.test(after);
    let opens = !/\s/.test(after), closes = !/\s/.test(before);
    if (run[0] === "_") {
        opens &&= !wordBefore;
        closes &&= !wordAfter;
    }
    const node = document.createTextNode(run);
    into.append(node);
    if (run.length > 3 || (run[0] === "~" && run.length !== 2)) return;
    if (closes) closeEmphasis(stack, node);
    if (opens && node.data && node.data.length <= 3 && stack.length < EMPHASIS_DEPTH) stack.push(node);
}

function closeEmphasis(stack, closer) {
    while (closer.data) {
        let i = stack.length - 1;
        while (i >= 0 && stack[i].data[0] !== closer.data[0]) i--;
        if (i < 0) return;
        const opener = stack[i], mark = opener.data[0];
        const used = opener.data.length >= 2 && closer.data.length >= 2 ? 2 : 1;
        if (mark === "~" && used !== 2) return;
        stack.length = i + 1;
        const node = document.createElement(mark === "~" ? "del" : used === 2 ? "strong" : "em");
        while (opener.nextSibling !== closer) node.append(opener.nextSibling);
        closer.before(node);
        opener.data = opener.data.slice(used);
        closer.data = closer.data.slice(used);
        if (!opener.data) stack.pop();
    }
}

/* `code`: the index behind it, or -1. A length of backticks that has no partner is looked for once only. */
function readCode(into, text, at, run, missing) {
    if (missing.has(run.length)) return -1;
    const end = new RegExp("(?<!`)`{" + run.length + "}(?!`)", "g");
    end.lastIndex = at + run.length;
    const found = end.exec(text);
    if (!found) {
        missing.add(run.length);
        return -1;
    }
    const code = text.slice(at + run.length, found.index).replace(/\n/g, " ");
    into.append(el("code", {}, /^ .*\S.* $/.test(code) ? code.slice(1, -1) : code));
    return found.index + run.length;
}

function readLink(into, text, at, depth) {
    const image = text[at] === "!";
    const found = findLink(text, at + (image ? 1 : 0));
    if (!found) return -1;
    const node = link(found.address);
    if (!node) return -1;
    if (image) node.append("image: " + (found.label || found.address));
    else node.append(inline(found.label, depth + 1, true));
    into.append(node);
    return found.end;
}

const SPECIAL = /[\\`*_~[<\n]|!\[|https?:\/\//g;

function inline(text, depth = 0, inLink = false) {
    const into = document.createDocumentFragment(), stack = [], missing = new Set();
    if (depth > 4) {
        into.append(text);
        return into;
    }
    let at = 0;
    while (at < text.length) {
        SPECIAL.lastIndex = at;
        const found = SPECIAL.exec(text), next = found ? found.index : text.length;
        if (next > at) into.append(text.slice(at, next));
        if (!found) break;
        at = readSpecial(into, stack, missing, text, next, depth, inLink);
    }
    into.normalize();
    return into;
}

/* One special character or what begins with it; returns the index behind. */
function readSpecial(into, stack, missing, text, at, depth, inLink) {
    const c = text[at];
    let end = -1;
    if (c === "\n") {
        into.append(el("br"));
        return at + 1;
    }
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
        into.append(text[at + 1]);
        return at + 2;
    }
    if (c === "*" || c === "_" || c === "~") {
        let to = at + 1;
        while (text[to] === c) to++;
        pushDelimiter(into, stack, text, at, text.slice(at, to));
        return to;
    }
    if (c === "`") {
        let to = at + 1;
        while (text[to] === "`") to++;
        end = readCode(into, text, at, text.slice(at, to), missing);
        if (end < 0) into.append(text.slice(at, to));
        return end < 0 ? to : end;
    }
    if (!inLink && (c === "[" || c === "!")) end = readLink(into, text, at, depth);
    else if (!inLink && (c === "h" || c === "<")) end = readAddress(into, text, at);
    if (end >= 0) return end;
    into.append(c);
    return at + 1;
}

/* An address in angle brackets or a bare one, without the punctuation behind it. */
function readAddress(into, text, at) {
    const angle = text[at] === "<";
    const pattern = angle ? /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y : /https?:\/\/[^\s<>"'`]{1,2000}/y;
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found || (!angle && /\w/.test(text[at - 1] ?? ""))) return -1;
    let address = angle ? found[1] : found[0].replace(/[.,;:!?*_~\])}]+$/, "");
    if (!angle && found[0][address.length] === ")" && address.includes("(")) address += ")";
    const node = link(address, address);
    if (!node) return -1;
    into.append(node);
    return at + (angle ? found[0].length : address.length);
}

/* ---- blocks to nodes ---- */

function codeBlock(language, text) {
    const code = el("code", {}, highlight(text, language));
    return el("div", {class: "code"},
              el("div", {class: "code-head"}, el("span", {}, language || "text"), copyButton(() => text, "Copy the code")),
              el("pre", {tabindex: "0"}, code));
}

function listNode(block, depth) {
    const list = el(block.ordered ? "ol" : "ul", {start: block.ordered && block.start !== 1 && block.start});
    for (const text of block.items) {
        const item = el("li"), task = text.match(/^\[([ xX])\]\s+/);
        if (task) {
            item.className = "task";
            item.append(el("input", {type: "checkbox", disabled: true, checked: task[1] !== " "}));
        }
        const body = task ? text.slice(task[0].length) : text;
        const blocks = readBlocks(body, depth + 1);
        /* one paragraph, and lists below it: no space between them */
        const tight = !/\n\s*\n/.test(body);
        for (const inner of blocks)
            item.append(tight && inner.kind === "paragraph" ? inline(inner.text) : blockNode(inner, depth + 1));
        list.append(item);
    }
    return list;
}

function tableNode(block) {
    const cell = (name, text, i) => {
        const node = el(name, {scope: name === "th" && "col"}, inline(text));
        node.style.textAlign = block.align[i] ?? "left";
        return node;
    };
    const row = (name, cells) => el("tr", {}, ...block.head.map((_, i) => cell(name, cells[i] ?? "", i)));
    return el("div", {class: "table", tabindex: "0"},
              el("table", {}, el("thead", {}, row("th", block.head)), el("tbody", {}, ...block.rows.map((r) => row("td", r)))));
}

function blockNode(block, depth) {
    switch (block.kind) {
    case "code": return codeBlock(block.language, block.text);
    /* the page has an h1 of its own */
    case "heading": return el("h" + clamp(block.level + 1, 2, 6), {}, inline(block.text));
    case "rule": return el("hr");
    case "list": return listNode(block, depth);
    case "table": return tableNode(block);
    case "quote": {
        const quote = el("blockquote");
        for (const inner of readBlocks(block.text, depth + 1)) quote.append(blockNode(inner, depth + 1));
        return quote;
    }
    default: return el("p", {}, inline(block.text));
    }
}

const renderedBlocks = new WeakMap();

function renderMarkdown(parent, text) {
    const blocks = readBlocks(text.replace(/\r\n?/g, "\n"), 0), old = renderedBlocks.get(parent) ?? [];
    let same = 0;
    while (same < blocks.length && same < old.length && blocks[same].source === old[same]) same++;
    while (parent.childNodes.length > same) parent.lastChild.remove();
    for (const block of blocks.slice(same)) parent.append(blockNode(block, 0));
    renderedBlocks.set(parent, blocks.map((block) => block.source));
}
