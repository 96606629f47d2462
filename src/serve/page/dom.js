"use strict";
/* dom.js: making nodes, small things to show, and copying. Everything on the page is built with these; there is no
 * innerHTML anywhere, and the page's policy (trusted types) would refuse it. */

const byId = (id) => document.getElementById(id);

/* el("a", {class: "x", onclick: f}, "text", node): functions become listeners, false and undefined are left out. */
function el(name, properties = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
        if (value === undefined || value === null || value === false) continue;
        if (typeof value === "function") node.addEventListener(key.slice(2), value);
        else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
    return node;
}

function svg(name, attributes = {}, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
}

function icon(name) {
    return svg("svg", {class: "icon", "aria-hidden": "true"}, svg("use", {href: "#i-" + name}));
}

/* A button that shows only an icon; `label` is what a screen reader says. */
function iconButton(name, label, onclick) {
    return el("button", {type: "button", class: "ghost small", "aria-label": label, title: label, onclick}, icon(name));
}

const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 10);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

/* 131072 → "131,072" */
const thousands = (n) => Math.round(n).toLocaleString("en-US");

function duration(seconds) {
    if (seconds < 1) return Math.round(seconds * 1000) + " ms";
    if (seconds < 90) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
    return Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) + " s";
}

function fileSize(bytes) {
    return bytes < 1024 ? bytes + " B" : bytes < 1 << 20 ? (bytes / 1024).toFixed(0) + " KB" : (bytes / (1 << 20)).toFixed(1) + " MB";
}

/* Said by screen readers, seen by nobody. */
function announce(text) {
    byId("announce").textContent = text;
}

async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        /* not a secure context (plain HTTP from another machine): the old way */
        const field = el("textarea", {class: "unseen", "aria-hidden": "true"});
        field.value = text;
        document.body.append(field);
        field.select();
        const done = document.execCommand("copy");
        field.remove();
        return done;
    }
}

/* A button that copies what text() gives and shows that it did. */
function copyButton(text, label = "Copy") {
    const button = iconButton("copy", label, async () => {
        const done = await copyText(text());
        const use = button.querySelector("use");
        use.setAttribute("href", done ? "#i-check" : "#i-close");
        announce(done ? "Copied" : "Could not copy");
        setTimeout(() => use.setAttribute("href", "#i-copy"), 1400);
    });
    return button;
}

/* Remembered in this browser; a browser that forbids it only forgets. */
const memory = {
    get(name, fallback = null) {
        try {
            return localStorage.getItem("evenshare." + name) ?? sessionStorage.getItem("evenshare." + name) ?? fallback;
        } catch {
            return fallback;
        }
    },
    set(name, value, keep = true) {
        try {
            localStorage.removeItem("evenshare." + name);
            sessionStorage.removeItem("evenshare." + name);
            if (value !== null) (keep ? localStorage : sessionStorage).setItem("evenshare." + name, value);
        } catch { /* private mode */ }
    },
};
