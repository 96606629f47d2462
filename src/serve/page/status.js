/* status.js: what the server is doing, from /metrics and /slots once a second while it is looked at. Whatever a server does
 * not tell is left out. */

const STATUS_SAMPLES = 120;

/* Prometheus text: "name{labels}" → number. */
function parseMetrics(text) {
    const values = new Map();
    for (const line of text.split("\n")) {
        const found = line.match(/^([a-z_]+(?:\{[^}]*\})?) (\S+)$/);
        if (found) values.set(found[1], Number(found[2]));
    }
    return values;
}

class StatusView {
    constructor(panel, onclose) {
        this.panel = panel;
        this.samples = [];
        this.content = el("div", {class: "status-content"});
        panel.append(el("div", {class: "status-head"}, el("h2", {}, "Server"),
                        el("button", {class: "ghost", "aria-label": "Close", onclick: onclose}, icon("close"))), this.content);
    }

    show(open) {
        this.panel.hidden = !open;
        clearTimeout(this.timer);
        if (open) this.poll();
    }

    async poll() {
        try {
            if (!document.hidden) {
                const [metrics, slots] = await Promise.all([ask("/metrics").then((r) => r.text()), ask("/slots").then((r) => r.json())]);
                this.add(parseMetrics(metrics));
                this.draw(Array.isArray(slots) ? slots : []);
            }
        } catch (error) {
            this.samples = [];
            this.content.replaceChildren(el("p", {class: "error"}, error.message));
        }
        if (!this.panel.hidden) this.timer = setTimeout(() => this.poll(), 1000);
    }

    add(values) {
        const get = (name) => values.get("evenshare_" + name);
        const now = {time: performance.now() / 1000, running: get("requests_running"), waiting: get("requests_waiting"),
                     step: get("last_step_seconds"), budget: get("step_budget_seconds"), steps: get("steps_total"),
                     pages: get("kv_pages_used"), pagesTotal: get("kv_pages_total"),
                     stepSum: get("step_seconds_sum"), stepCount: get("step_seconds_count"),
                     read: get('tokens_total{kind="prompt"}'), cached: get('tokens_total{kind="cached"}'),
                     made: get('tokens_total{kind="generated"}'), up: get("engine_up"), restarts: get("engine_restarts_total")};
        const before = this.samples[this.samples.length - 1];
        if (before) {
            const seconds = Math.max(now.time - before.time, 0.2), steps = now.stepCount - before.stepCount;
            /* the engine's counters begin anew when it does */
            now.made_rate = Math.max(0, now.made - before.made) / seconds;
            now.read_rate = Math.max(0, now.read - before.read) / seconds;
            /* the mean of the steps since the last look; no step, no time */
            now.mean_step = steps > 0 ? (now.stepSum - before.stepSum) / steps : now.steps > before.steps ? now.step : 0;
        }
        this.samples.push(now);
        if (this.samples.length > STATUS_SAMPLES) this.samples.shift();
    }

    draw(slots) {
        const now = this.samples[this.samples.length - 1], rates = this.samples.filter((s) => s.made_rate !== undefined);
        const parts = [this.requests(now, slots), this.steps(now, rates), this.tokens(now, rates), this.cache(now)];
        this.content.replaceChildren(...parts.filter(Boolean));
    }

    requests(now, slots) {
        const list = slots.slice(0, 40).map((slot) => {
            const reading = slot.state !== "generating";
            const whole = reading ? slot.prompt_tokens : slot.max_tokens, done = reading ? slot.prompt_tokens_done : slot.generated_tokens;
            const words = {reading: "being read", waiting: "waits for a place", prompt: "prompt", generating: "writing"}[slot.state] ?? slot.state ?? "running";
            const text = reading ? (whole ? `${thousands(done ?? 0)} of ${thousands(whole)}` : "") : `${thousands(done ?? 0)} tokens`;
            const bar = el("i");
            bar.style.width = (whole > 0 ? clamp((100 * (done ?? 0)) / whole, 0, 100) : 0) + "%";
            return el("li", {}, el("div", {class: "slot"}, el("span", {}, words), el("span", {class: "quiet"}, text),
                                   el("span", {class: "quiet"}, slot.age_seconds === undefined ? "" : duration(slot.age_seconds))),
                      whole > 0 && el("div", {class: "bar"}, bar));
        });
        return el("section", {}, el("h3", {}, "Requests"),
                  figures([["running", now.running], ["waiting", now.waiting], now.restarts > 0 && ["engine restarts", now.restarts]]),
                  now.up === 0 && el("p", {class: "error"}, "The engine is being started anew."),
                  list.length > 0 && el("ul", {class: "slots"}, ...list));
    }

    steps(now, rates) {
        if (now.step === undefined) return null;
        const course = rates.map((s) => s.mean_step * 1000), budget = (now.budget ?? 0) * 1000;
        const label = `step time over the last ${rates.length} seconds` + (budget ? `; the dashed line is the budget of ${budget.toFixed(0)} ms` : "");
        return el("section", {}, el("h3", {}, "Step time"),
                  figures([["last", `${(now.step * 1000).toFixed(1)} ms`], budget > 0 && ["budget", `${budget.toFixed(0)} ms`], ["steps", thousands(now.steps ?? 0)]]),
                  course.length > 1 && sparkline(course, {width: 300, height: 64, limit: budget, label}));
    }

    tokens(now, rates) {
        if (now.made === undefined) return null;
        const last = rates[rates.length - 1], per = (x) => (x === undefined ? "–" : thousands(x));
        return el("section", {}, el("h3", {}, "Tokens per second"),
                  figures([["written", per(last?.made_rate)], ["read", per(last?.read_rate)]]),
                  rates.length > 1 && sparkline(rates.map((s) => s.made_rate), {width: 300, height: 40, label: "tokens written per second"}));
    }

    cache(now) {
        if (!now.pagesTotal) return null;
        const bar = el("i"), prompt = (now.read ?? 0) + (now.cached ?? 0);
        bar.style.width = (100 * now.pages) / now.pagesTotal + "%";
        return el("section", {}, el("h3", {}, "Cache"),
                  figures([["pages in use", `${thousands(now.pages)} of ${thousands(now.pagesTotal)}`],
                           prompt > 0 && now.cached !== undefined && ["prompt tokens found", `${Math.round((100 * now.cached) / prompt)} %`]]),
                  el("div", {class: "bar", role: "img", "aria-label": `${now.pages} of ${now.pagesTotal} pages in use`}, bar));
    }
}

function figures(rows) {
    return el("dl", {class: "figures"}, ...rows.filter((row) => row && row[1] !== undefined)
        .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
}
