/* api.js: requests to the server this page came from, and its event streams. */

class ApiError extends Error {
    constructor(message, status, code) {
        super(message);
        this.status = status;
        this.code = code;
    }
}

const apiKey = () => memory.get("key");

/* fetch() with the key; failures become an ApiError with the server's own sentence. */
async function ask(path, {body, signal} = {}) {
    const headers = {};
    if (apiKey()) headers.Authorization = "Bearer " + apiKey();
    if (body) headers["Content-Type"] = "application/json";
    let reply;
    try {
        reply = await fetch(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store"});
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ApiError("The server cannot be reached. Is it still running?", 0);
    }
    if (reply.ok) return reply;
    let said = {};
    try {
        said = (await reply.json()).error ?? {};
    } catch { /* not one of ours */ }
    const wait = reply.headers.get("Retry-After");
    throw new ApiError((said.message ?? `The server answered ${reply.status}.`) + (wait ? ` Try again in ${wait} s.` : ""),
                       reply.status, said.code);
}

/* The data of server-sent events, parsed, as they come. Ends at [DONE]; throws when the stream ends without it. */
async function* events(reply) {
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        let piece;
        try {
            piece = await reader.read();
        } catch (error) {
            if (error.name === "AbortError") throw error;
            throw new ApiError("The connection was lost before the answer was complete.", 0);
        }
        if (piece.done) throw new ApiError("The connection was closed before the answer was complete.", 0);
        const lines = (rest + piece.value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
            if (!line.startsWith("data:")) continue;
            const data = line.slice(5).trim();
            if (data === "[DONE]") return;
            yield JSON.parse(data);
        }
    }
}

/* ---- what a conversation asks ---- */

/* A text, and below it the files that came with it; the question stays last, where models look for it. */
function contentOf(node) {
    if (!node.files?.length) return node.content;
    return node.files.map((file) => `${file.name}:\n\n${file.text.trimEnd()}\n\n`).join("") + node.content;
}

function messageOf(node) {
    if (node.role === "tool") return {role: "tool", tool_call_id: node.call, content: node.content};
    if (node.role === "user") return {role: "user", content: contentOf(node)};
    const message = {role: "assistant", content: splitThinking(node.content).answer};
    if (node.calls?.length)
        message.tool_calls = node.calls.map((call) => ({id: call.id, type: "function", function: {name: call.name, arguments: call.arguments}}));
    return message;
}

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "max_tokens", "seed"];

function requestOf(path, settings, model) {
    const body = {model, messages: path.map(messageOf), stream: true, stream_options: {include_usage: true}, return_progress: true};
    if (settings.system) body.messages.unshift({role: "system", content: settings.system});
    for (const name of NUMBERS)
        if (Number.isFinite(settings[name])) body[name] = settings[name];
    if (settings.thinking) body.chat_template_kwargs = {enable_thinking: settings.thinking === "on"};
    if (settings.tools) body.tools = JSON.parse(settings.tools);
    return body;
}

/* Servers that do not split thinking off send it as <think>...</think> in the text, sometimes without the first tag. */
function splitThinking(text) {
    const end = text.indexOf("</think>");
    const begun = /^\s*<think>/.test(text);
    if (end < 0) return begun ? {thinking: text.replace(/^\s*<think>\s*/, ""), answer: "", open: true} : {thinking: "", answer: text};
    return {thinking: text.slice(0, end).replace(/^\s*<think>\s*/, "").trim(), answer: text.slice(end + 8).trimStart()};
}
