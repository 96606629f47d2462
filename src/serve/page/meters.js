/* meters.js: numbers as pictures: how full the context is, how evenly tokens came, a course over time. */

const GAPS_KEPT = 160;

/* Times of one answer, taken as its tokens come. */
class Pace {
    constructor() {
        this.began = performance.now();
        this.first = this.last = null;
        this.tokens = 0;
        this.gaps = [];
    }

    token() {
        const now = performance.now();
        if (this.last === null) this.first = now;
        else this.gaps.push(now - this.last);
        this.last = now;
        this.tokens++;
    }

    /* Plain data for the store; long answers keep the longest gap of each stretch, since that is what is felt. */
    stats() {
        const each = Math.ceil(this.gaps.length / GAPS_KEPT) || 1, gaps = [];
        for (let i = 0; i < this.gaps.length; i += each) gaps.push(Math.round(10 * Math.max(...this.gaps.slice(i, i + each))) / 10);
        const seconds = this.first === null ? 0 : (this.last - this.first) / 1000;
        return {
            first: this.first === null ? null : (this.first - this.began) / 1000,
            tokens: this.tokens,
            rate: this.tokens > 1 && seconds > 0 ? (this.tokens - 1) / seconds : null,
            longest: this.gaps.reduce((most, gap) => Math.max(most, gap), 0),
            gaps,
        };
    }
}

/* values as a line; `limit` is drawn dashed when it lies within reach. */
function sparkline(values, {width = 96, height = 18, limit = 0, label = ""} = {}) {
    const top = Math.max(...values, limit, 1e-9);
    const x = (i) => (values.length > 1 ? (i / (values.length - 1)) * (width - 2) : 0) + 1;
    const y = (v) => height - 1.5 - (v / top) * (height - 3);
    const picture = svg("svg", {class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label});
    if (limit) picture.append(svg("path", {class: "limit", d: `M0 ${y(limit).toFixed(1)}H${width}`}));
    picture.append(svg("path", {class: "course", d: "M" + values.map((v, i) => `${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("L")}));
    return picture;
}

/* The numbers below an answer. */
function statsLine(stats) {
    const line = el("div", {class: "stats quiet"});
    const put = (text, title) => line.append(el("span", {title}, text));
    if (stats.rate) put(`${stats.rate < 100 ? stats.rate.toFixed(1) : thousands(stats.rate)} tokens/s`, "after the first token");
    if (stats.first !== null && stats.first !== undefined) put(`first token ${duration(stats.first)}`, "from sending to the first token");
    if (stats.prompt) put(`${thousands(stats.prompt)} read${stats.cached ? `, ${Math.round((100 * stats.cached) / stats.prompt)} % from cache` : ""}`,
                          "tokens of the prompt, and how many of them did not have to be computed again");
    if (stats.made) put(`${thousands(stats.made)} written`, "tokens of the answer");
    if (stats.gaps?.length > 3) {
        const label = `time between tokens; longest ${duration(stats.longest / 1000)}`;
        const holder = el("span", {class: "gaps", title: label}, sparkline(stats.gaps, {label}));
        line.append(holder);
    }
    return line;
}

/* The bar below the message field. usage: {prompt, cached, made} of the last answer. */
function showContext(usage, context) {
    const box = byId("context");
    box.hidden = !usage || !context;
    if (box.hidden) return;
    const used = usage.prompt + usage.made, share = (n) => clamp((100 * n) / context, 0, 100) + "%";
    const [cached, read, made] = box.querySelectorAll("i");
    cached.style.width = share(usage.cached);
    read.style.width = share(usage.prompt - usage.cached);
    made.style.width = share(usage.made);
    const part = (100 * used) / context;
    box.querySelector(".figures").textContent = `${thousands(used)} of ${thousands(context)} tokens`;
    const label = `Context: ${thousands(used)} of ${thousands(context)} tokens used (${part.toFixed(part < 10 ? 1 : 0)} %); of the last ` +
        `prompt ${thousands(usage.cached)} came from the cache, ${thousands(usage.prompt - usage.cached)} were computed, and ` +
        `${thousands(usage.made)} were written`;
    box.title = label;
    box.querySelector(".bar").setAttribute("aria-label", label);
}
