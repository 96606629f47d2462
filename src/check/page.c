/* page.c: results as one HTML file for people: nothing is loaded from anywhere, plots are inline SVG. */
#include <math.h>
#include <string.h>

#include "check/check.h"

static const char style[] =
    "<style>:root{color-scheme:light dark;--ink:#1c2128;--soft:#5d6670;--line:#d8dde3;--paper:#fff;--card:#f5f7f9;"
    "--pass:#1f7a45;--fail:#c0322b;--skip:#7a6a1f;--mark:#2f6fdb;--band:#f0b34a}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e3e7ec;--soft:#98a2ae;--line:#343b44;--paper:#14181d;--card:#1d2229;"
    "--pass:#58c184;--fail:#f0766b;--skip:#d8c15a;--mark:#6ea2f5;--band:#8a6420}}"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;max-width:980px;"
    "padding:0 1rem}h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:0}p{margin:.25rem 0;color:var(--soft)}"
    ".score{font-size:2.6rem;font-weight:700;margin:.6rem 0 0}.bad{color:var(--fail)}.good{color:var(--pass)}"
    "section{border:1px solid var(--line);border-left:5px solid var(--edge);border-radius:6px;background:var(--card);"
    "padding:.7rem 1rem;margin:.7rem "
    "0}.pass{--edge:var(--pass)}.fail{--edge:var(--fail)}.unsupported,.not_run{--edge:var(--skip)}"
    ".verdict{float:right;color:var(--edge);font-weight:600}.note{color:var(--edge)}"
    "dl{display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;margin:.4rem 0 0}dl div{display:flex;gap:.4rem}dt{color:var(--soft)}"
    "dd{margin:0;font-variant-numeric:tabular-nums}svg{width:100%;height:auto;margin-top:.5rem}"
    "svg text{fill:var(--soft);font:12px system-ui,sans-serif}</style>";

enum { WIDTH = 940, HEIGHT = 220, LEFT = 64, RIGHT = 8, TOP = 22, BOTTOM = 34 };

/* Where values fall: x is even, y by powers of ten, since one long gap among short ones is what matters. */
typedef struct scale {
    double x0, x1, low, high; /* low and high: log10 of y */
} scale;

static double place_x(const scale *s, double x)
{
    return LEFT + (x - s->x0) / (s->x1 - s->x0) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const scale *s, double y)
{
    const double at = y > 0 ? log10(y) : s->low;
    return HEIGHT - BOTTOM - (fmin(fmax(at, s->low), s->high) - s->low) / (s->high - s->low) * (HEIGHT - TOP - BOTTOM);
}

static scale make_scale(const es_trial_plot *plot)
{
    double low = INFINITY, high = plot->line;
    for (size_t i = 0; i < plot->y.count; i++) {
        if (plot->y.item[i] > 0) low = fmin(low, plot->y.item[i]);
        high = fmax(high, plot->y.item[i]);
    }
    if (!(high > 0) || !isfinite(low)) low = high = 1;
    scale s = {plot->x.item[0], plot->x.item[plot->x.count - 1], floor(log10(low)), ceil(log10(high))};
    if (s.x1 <= s.x0) s.x1 = s.x0 + 1;
    s.low = fmax(s.low, -2);
    if (s.high <= s.low) s.high = s.low + 1;
    return s;
}

static void put_axes(es_text *out, const es_trial_plot *plot, const scale *s)
{
    for (double power = s->low; power <= s->high; power++)
        es_text_printf(
            out, "<path stroke=\"var(--line)\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>",
            LEFT, place_y(s, pow(10, power)), WIDTH - RIGHT, LEFT - 6, place_y(s, pow(10, power)) + 4, pow(10, power));
    for (int i = 0; i <= 4; i++) {
        const double x = s->x0 + (s->x1 - s->x0) * i / 4;
        es_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.3g</text>", place_x(s, x), HEIGHT - BOTTOM + 16,
                       i == 0   ? "start"
                       : i == 4 ? "end"
                                : "middle",
                       x);
    }
    es_text_printf(out, "<text x=\"%d\" y=\"13\">%s</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", LEFT,
                   plot->y_name, WIDTH - RIGHT, HEIGHT - 4, plot->x_name);
}

static void put_plot(es_text *out, const es_trial_plot *plot)
{
    if (!plot->title || plot->x.count < 2 || plot->y.count != plot->x.count) return;
    const scale s = make_scale(plot);
    es_text_printf(out, "<p>%s</p><svg viewBox=\"0 0 %d %d\" role=\"img\">", plot->title, WIDTH, HEIGHT);
    if (plot->band_to > plot->band_from) {
        const double from = fmax(place_x(&s, plot->band_from), LEFT), to = fmin(place_x(&s, plot->band_to), WIDTH - RIGHT);
        es_text_printf(out,
                       "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"var(--band)\" fill-opacity=\".35\"/>",
                       from, TOP, fmax(to - from, 1), HEIGHT - TOP - BOTTOM);
    }
    put_axes(out, plot, &s);
    if (plot->line > 0)
        es_text_printf(out, "<path stroke=\"var(--fail)\" stroke-dasharray=\"5 4\" d=\"M%d %.1fH%d\"/>", LEFT,
                       place_y(&s, plot->line), WIDTH - RIGHT);
    es_text_puts(out, "<path fill=\"none\" stroke=\"var(--mark)\" stroke-width=\"3.6\" stroke-linecap=\"round\" d=\"");
    for (size_t i = 0; i < plot->x.count; i++)
        es_text_printf(out, "M%.1f %.1fh0", place_x(&s, plot->x.item[i]), place_y(&s, plot->y.item[i]));
    es_text_puts(out, "\"/></svg>");
}

/* "gap_max_ms" reads "gap max" with its unit behind the number; "tokens_per_s" keeps its own. */
static size_t unit_place(const char *name)
{
    const size_t n = strlen(name);
    if (n > 6 && strcmp(name + n - 6, "_per_s") == 0) return n;
    if (n > 3 && strcmp(name + n - 3, "_ms") == 0) return n - 3;
    return n > 2 && strcmp(name + n - 2, "_s") == 0 ? n - 2 : n;
}

static void put_figure(es_text *out, const es_trial_figure *figure)
{
    const size_t cut = unit_place(figure->name);
    const char *unit = figure->name[cut] ? figure->name + cut + 1 : "";
    es_text_puts(out, "<div><dt>");
    for (size_t i = 0; i < cut; i++) es_text_putc(out, figure->name[i] == '_' ? ' ' : figure->name[i]);
    const double x = figure->value;
    if (x == floor(x) && fabs(x) < 1e9)
        es_text_printf(out, "</dt><dd>%.0f %s</dd></div>", x, unit);
    else
        es_text_printf(out, "</dt><dd>%.*f %s</dd></div>", fabs(x) < 10 ? 3 : 1, x, unit);
}

static void put_phase(es_text *out, const es_trial_result *r)
{
    const char *verdict = es_trial_verdict_name(r->verdict);
    es_text_printf(out,
                   "<section class=\"%s\"><span class=\"verdict\">%s</span><h2>%s</h2><p>%s · weight %d · %.1f s of at most "
                   "%.0f s</p>",
                   verdict, r->verdict == ES_TRIAL_UNSUPPORTED ? "not supported" : verdict, r->name, r->about, r->weight,
                   r->seconds, r->limit);
    if (r->note[0]) {
        es_text_puts(out, "<p class=\"note\">");
        es_text_put_escaped(out, r->note);
        es_text_puts(out, "</p>");
    }
    es_text_puts(out, "<dl>");
    for (size_t i = 0; i < r->figures; i++) put_figure(out, &r->figure[i]);
    es_text_puts(out, "</dl>");
    put_plot(out, &r->plot);
    es_text_puts(out, "</section>\n");
}

void es_trial_write_html(const es_trial *check, es_text *out)
{
    const size_t failed = es_trial_tally(check, ES_TRIAL_FAIL);
    es_text_puts(out, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                      "content=\"width=device-width\"><title>evenshare check</title>");
    es_text_puts(out, style);
    es_text_puts(out, "</head><body><h1>");
    es_text_put_escaped(out, es_trial_model(check)[0] ? es_trial_model(check) : "a server without a model");
    es_text_puts(out, "</h1><p>");
    es_text_put_escaped(out, es_trial_url(check));
    es_text_printf(out,
                   "</p><p class=\"score %s\">%.0f of 100</p><p>%zu passed, %zu failed, %zu not supported. The score is the "
                   "weight of what passed in that of what passed or failed.</p>\n",
                   failed ? "bad" : "good", es_trial_score(check), es_trial_tally(check, ES_TRIAL_PASS), failed,
                   es_trial_tally(check, ES_TRIAL_UNSUPPORTED));
    for (size_t i = 0; i < es_trial_count(check); i++) put_phase(out, es_trial_get(check, i));
    es_text_puts(out, "</body></html>\n");
}
