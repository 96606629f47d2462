/* answer.js: one answer on its way: asks, reads the stream, fills the node. Knows no node of the page: it calls changed(). */

class Answer {
    constructor(conversation, node, model, changed) {
        Object.assign(this, {conversation, node, model, changed});
        this.abort = new AbortController();
        this.pace = new Pace();
    }

    stop() {
        this.abort.abort();
    }

    /* Resolves when it has ended, however it ended; only a missing key is thrown. */
    async run() {
        const {node} = this;
        try {
            const path = pathTo(this.conversation, this.conversation.nodes[node.parent]);
            const reply = await ask("/v1/chat/completions", {body: requestOf(path, this.conversation.settings, this.model), signal: this.abort.signal});
            for await (const chunk of events(reply)) this.take(chunk);
        } catch (error) {
            if (error.name === "AbortError") node.finish = "stopped";
            else if (error.status === 401) throw error;
            else node.error = error instanceof ApiError ? error.message : "The page could not read the answer: " + error.message;
        } finally {
            delete node.waiting;
            node.stats = {...this.pace.stats(), ...this.usage, thought: this.thought};
        }
    }

    take(chunk) {
        const {node} = this;
        if (chunk.error) throw new ApiError(chunk.error.message ?? "The answer failed.", 500);
        if (chunk.usage) this.takeUsage(chunk.usage);
        if (chunk.prompt_progress) {
            this.takeProgress(chunk.prompt_progress);
            return;
        }
        const choice = chunk.choices?.[0];
        if (!choice) return;
        const delta = choice.delta ?? {};
        const reasoning = delta.reasoning_content ?? delta.reasoning;
        if (typeof delta.content === "string" && !delta.role) this.pace.token();
        else if (reasoning || delta.tool_calls) this.pace.token();
        if (reasoning) node.reasoning = (node.reasoning ?? "") + reasoning;
        if (delta.content) node.content += delta.content;
        for (const call of delta.tool_calls ?? []) this.takeCall(call);
        if (!this.thought && (node.reasoning || node.content.includes("</think>")) && (delta.content || delta.tool_calls))
            this.thought = (performance.now() - (this.pace.first ?? this.pace.began)) / 1000;
        if (choice.finish_reason) node.finish = choice.finish_reason;
        this.changed();
    }

    takeCall(call) {
        const calls = (this.node.calls ??= []), index = call.index ?? 0;
        const own = (calls[index] ??= {id: call.id ?? newId(), name: "", arguments: ""});
        if (call.id) own.id = call.id;
        if (call.function?.name) own.name += call.function.name;
        if (call.function?.arguments) own.arguments += call.function.arguments;
    }

    /* How far the prompt is read, until the first token comes. */
    takeProgress({total, processed}) {
        if (!(total > 0)) return;
        this.node.waiting = `Reading ${thousands(total)} tokens, ${Math.floor((100 * (processed ?? 0)) / total)} %`;
        this.changed();
    }

    takeUsage(usage) {
        this.usage = {prompt: usage.prompt_tokens ?? 0, made: usage.completion_tokens ?? 0,
                      cached: usage.prompt_tokens_details?.cached_tokens ?? 0};
        this.node.stats = {...this.node.stats, ...this.usage};
    }
}
