/* bench_page.c: a report as CSV and as one HTML file; see bench_report.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench_report.h"

static double number_of(const json_t *object, const char *key)
{
    const double value = json_number_value(json_object_get(object, key));
    return isfinite(value) ? value : 0;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- CSV ---- */

/* Names are words; what is not is kept from breaking the table. */
static void put_word(es_text *out, const char *text)
{
    for (; *text; text++) es_text_putc(out, strchr(",\"\r\n", *text) ? ' ' : *text);
}

void es_bench_write_csv(const json_t *report, es_text *out)
{
    size_t i, k;
    json_t *row, *gap;
    es_text_puts(out,
                 "bench,depth,index,tokens,seconds,least_seconds,most_seconds,tokens_per_second,bound_tokens_per_second\n");
    json_array_foreach(json_object_get(report, "rows"), i, row)
    {
        put_word(out, text_of(row, "bench"));
        es_text_printf(out, ",%.0f,0,%.0f,%.9g,%.9g,%.9g,%.6g,%.6g\n", number_of(row, "depth"), number_of(row, "tokens"),
                       number_of(row, "seconds"), number_of(row, "least_seconds"), number_of(row, "most_seconds"),
                       number_of(row, "tokens_per_second"), number_of(row, "bound_tokens_per_second"));
    }
    json_array_foreach(json_object_get(report, "gaps"), i, row)
    {
        json_array_foreach(json_object_get(row, "milliseconds"), k, gap)
        {
            const double seconds = json_number_value(gap) * 1e-3;
            es_text_printf(out, "gap,%.0f,%zu,1,%.9g,%.9g,%.9g,%.6g,0\n", number_of(row, "depth"), k, seconds, seconds,
                           seconds, seconds > 0 ? 1 / seconds : 0);
        }
    }
}

/* ---- HTML ---- */

static const char style[] =
    "<style>:root{color-scheme:light dark;--ink:light-dark(#1d2226,#e5e8ea);--soft:light-dark(#5c656c,#9aa4ac);"
    "--line:light-dark(#e2e2db,#2d343a);--paper:light-dark(#fdfdfb,#15181b);--mark:light-dark(#0b6b5f,#6ccdbd);"
    "--bound:light-dark(#b3261e,#f28b82)}body{font:15px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "margin:2.2rem auto;max-width:960px;padding:0 1.2rem}h1{font-size:1.5rem;letter-spacing:-.01em;margin:0}"
    "h2{font-size:1.05rem;margin:2.2rem 0 .3rem}p{margin:.2rem 0;color:var(--soft)}dl{display:flex;flex-wrap:wrap;"
    "gap:.2rem 1.8rem;margin:.8rem 0}dl div{display:flex;gap:.5rem}dt{color:var(--soft)}dd{margin:0}"
    "svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font:12px system-ui,sans-serif}"
    ".axis{stroke:var(--line)}.mark{fill:none;stroke:var(--mark);stroke-width:2;stroke-linejoin:round}"
    ".dots{fill:none;stroke:var(--mark);stroke-width:6;stroke-linecap:round}.spread{stroke:var(--mark);stroke-opacity:.35;"
    "stroke-width:5}.bound{fill:none;stroke:var(--bound);stroke-dasharray:5 4}table{border-collapse:collapse;width:100%;"
    "font-variant-numeric:tabular-nums}th,td{padding:.3rem .6rem .3rem 0;text-align:right;border-bottom:1px solid "
    "var(--line)}th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}</style>";

enum { WIDTH = 920, HEIGHT = 240, LEFT = 70, RIGHT = 14, TOP = 24, BOTTOM = 32 };

typedef struct plane {
    double x1, y1; /* what the far ends of the axes stand for; both begin at 0 */
} plane;

static double place_x(const plane *p, double x)
{
    return LEFT + x / p->x1 * (WIDTH - LEFT - RIGHT);
}

static double place_y(const plane *p, double y)
{
    return HEIGHT - BOTTOM - fmin(y / p->y1, 1) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that some four steps reach `most`. */
static double nice_step(double most)
{
    const double power = pow(10, floor(log10(most / 4)));
    const double rest = most / 4 / power;
    return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

static void begin_plot(es_text *out, plane *p, const char *x_name, const char *y_name)
{
    if (!(p->x1 > 0)) p->x1 = 1;
    if (!(p->y1 > 0)) p->y1 = 1;
    const double step = nice_step(p->y1), across = nice_step(p->x1);
    p->y1 = ceil(p->y1 / step) * step;
    es_text_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s by %s\"><text x=\"%d\" y=\"14\">%s</text>",
                   WIDTH, HEIGHT, y_name, x_name, LEFT, y_name);
    for (double y = 0; y <= p->y1 * 1.001; y += step)
        es_text_printf(out, "<path class=\"axis\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>",
                       LEFT, place_y(p, y), WIDTH - RIGHT, LEFT - 8, place_y(p, y) + 4, y);
    for (double x = 0; x <= p->x1 * 1.001; x += across)
        es_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>", place_x(p, x), HEIGHT - BOTTOM + 16,
                       x);
    es_text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", WIDTH - RIGHT, HEIGHT - 2, x_name);
}

static bool is_of(const json_t *row, const char *bench)
{
    return strcmp(text_of(row, "bench"), bench) == 0;
}

/* Tokens per second by depth: the median with its spread, and the bound. */
static void put_rates(es_text *out, const json_t *rows, const char *bench, const char *title)
{
    plane p = {0, 0};
    size_t i, count = 0;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (!is_of(row, bench)) continue;
        p.x1 = fmax(p.x1, number_of(row, "depth"));
        p.y1 = fmax(p.y1, fmax(number_of(row, "bound_tokens_per_second"), number_of(row, "tokens_per_second")));
        count++;
    }
    if (!count) return;
    es_text_printf(
        out,
        "<h2>%s</h2><p>Tokens per second by what the cache holds; the dashed line is what the machine's limits would "
        "allow, the bars reach from the slowest to the fastest run.</p>",
        title);
    begin_plot(out, &p, "tokens in the cache", "tokens/s");
    es_text mark = {0}, bound = {0}, dots = {0};
    json_array_foreach(rows, i, row)
    {
        if (!is_of(row, bench)) continue;
        const double x = place_x(&p, number_of(row, "depth")), tokens = number_of(row, "tokens");
        const double rate = number_of(row, "tokens_per_second"), most = number_of(row, "least_seconds"),
                     least = number_of(row, "most_seconds");
        es_text_printf(&mark, "%c%.1f %.1f", mark.bytes ? 'L' : 'M', x, place_y(&p, rate));
        es_text_printf(&dots, "M%.1f %.1fh0", x, place_y(&p, rate));
        es_text_printf(&bound, "%c%.1f %.1f", bound.bytes ? 'L' : 'M', x,
                       place_y(&p, number_of(row, "bound_tokens_per_second")));
        if (most > 0 && least > 0)
            es_text_printf(out, "<path class=\"spread\" d=\"M%.1f %.1fV%.1f\"/>", x, place_y(&p, tokens / least),
                           place_y(&p, tokens / most));
    }
    es_text_printf(out,
                   "<path class=\"bound\" d=\"%s\"/><path class=\"mark\" d=\"%s\"/><path class=\"dots\" d=\"%s\"/></svg>\n",
                   bound.data ? bound.data : "", mark.data ? mark.data : "", dots.data ? dots.data : "");
    out->failed |= mark.failed || bound.failed || dots.failed;
    es_text_free(&mark);
    es_text_free(&bound);
    es_text_free(&dots);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void put_percentiles(es_text *out, const json_t *gaps)
{
    const size_t n = json_array_size(gaps);
    double *sorted = calloc(n ? n : 1, sizeof *sorted);
    if (!sorted || !n) {
        free(sorted);
        return;
    }
    for (size_t i = 0; i < n; i++) sorted[i] = json_number_value(json_array_get(gaps, i));
    qsort(sorted, n, sizeof *sorted, by_value);
    es_text_printf(out, "<p>%zu steps; half within %.2f ms, 99 of 100 within %.2f ms, the longest %.2f ms</p>", n,
                   sorted[n / 2], sorted[(n - 1) * 99 / 100], sorted[n - 1]);
    free(sorted);
}

static void put_gaps(es_text *out, const json_t *row)
{
    const json_t *gaps = json_object_get(row, "milliseconds");
    plane p = {(double)json_array_size(gaps), 0};
    size_t i;
    json_t *gap;
    if (!json_array_size(gaps)) return;
    json_array_foreach(gaps, i, gap) p.y1 = fmax(p.y1, json_number_value(gap));
    es_text_printf(out, "<h2>Gaps between tokens after %.0f</h2>", number_of(row, "depth"));
    put_percentiles(out, gaps);
    begin_plot(out, &p, "token", "ms");
    es_text_puts(out, "<path class=\"mark\" d=\"");
    json_array_foreach(gaps, i, gap)
        es_text_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', place_x(&p, (double)i), place_y(&p, json_number_value(gap)));
    es_text_puts(out, "\"/></svg>\n");
}

static void put_fact(es_text *out, const char *name, const json_t *value)
{
    es_text_printf(out, "<div><dt>%s</dt><dd>", name);
    if (json_is_string(value))
        es_text_put_escaped(out, json_string_value(value));
    else if (json_is_integer(value))
        es_text_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        es_text_printf(out, "%.4g", json_real_value(value));
    es_text_puts(out, "</dd></div>");
}

static void put_facts(es_text *out, const json_t *report)
{
    static const struct {
        const char *part, *key, *name;
    } facts[] = {
        {"machine", "cpu",             "processor"    },
        {"machine", "cores",           "CPUs"         },
        {"machine", "memory_bytes",    "memory, bytes"},
        {"machine", "kernel",          "kernel"       },
        {"model",   "quantisation",    "weights"      },
        {"model",   "numeric",         "numeric mode" },
        {"model",   "kv_type",         "keys, values" },
        {"model",   "instruction_set", "kernels"      },
        {"model",   "threads",         "threads"      },
        {NULL,      "evenshare",       "evenshare"    },
        {NULL,      "time",            "measured"     },
    };
    es_text_puts(out, "<dl>");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const json_t *part = facts[i].part ? json_object_get(report, facts[i].part) : report;
        const json_t *value = json_object_get(part, facts[i].key);
        if (value) put_fact(out, facts[i].name, value);
    }
    const json_t *limits = json_object_get(json_object_get(report, "machine"), "limits");
    if (limits)
        es_text_printf(out, "<div><dt>reads</dt><dd>%.1f GB/s</dd></div>", number_of(limits, "read_bytes_per_second") * 1e-9);
    es_text_puts(out, "</dl>\n");
}

static void put_table(es_text *out, const json_t *rows)
{
    size_t i;
    json_t *row;
    es_text_puts(
        out, "<h2>All rows</h2><table><thead><tr><th>what</th><th>depth</th><th>tokens</th><th>tokens/s</th><th>slowest</th>"
             "<th>fastest</th><th>bound</th><th>ms</th></tr></thead><tbody>");
    json_array_foreach(rows, i, row)
    {
        const double tokens = number_of(row, "tokens"), least = number_of(row, "least_seconds"),
                     most = number_of(row, "most_seconds");
        es_text_puts(out, "<tr><td>");
        es_text_put_escaped(out, text_of(row, "bench"));
        es_text_printf(
            out, "</td><td>%.0f</td><td>%.0f</td><td>%.1f</td><td>%.1f</td><td>%.1f</td><td>%.1f</td><td>%.3f</td></tr>",
            number_of(row, "depth"), tokens, number_of(row, "tokens_per_second"), most > 0 ? tokens / most : 0,
            least > 0 ? tokens / least : 0, number_of(row, "bound_tokens_per_second"), number_of(row, "seconds") * 1e3);
    }
    es_text_puts(out, "</tbody></table>\n");
}

void es_bench_write_html(const json_t *report, es_text *out)
{
    const json_t *rows = json_object_get(report, "rows");
    size_t i;
    json_t *row;
    es_text_puts(out, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                      "content=\"width=device-width\"><title>evenshare bench</title>");
    es_text_puts(out, style);
    es_text_puts(out, "</head><body><h1>");
    es_text_put_escaped(out, text_of(json_object_get(report, "model"), "name"));
    es_text_puts(out, "</h1><p>One sequence on one machine; caches are filled with random numbers up to the depth.</p>");
    put_facts(out, report);
    put_rates(out, rows, "decode", "Writing");
    put_rates(out, rows, "prefill", "Reading");
    json_array_foreach(json_object_get(report, "gaps"), i, row) put_gaps(out, row);
    put_table(out, rows);
    es_text_puts(out, "</body></html>\n");
}
