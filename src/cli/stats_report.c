/* stats_report.c: the figures as one HTML file: plots are inline SVG, nothing is loaded from anywhere.
 *
 * Names come from the file and are escaped; numbers are printed by us. The few lines of script only sort the table. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/stats.h"

static const char style[] =
    "<style>:root{color-scheme:light "
    "dark;--ink:#1c2128;--soft:#646c76;--line:#d8dde3;--paper:#fff;--card:#f5f7f9;--blue:#2f6fdb;"
    "--red:#c8382c}@media(prefers-color-scheme:dark){:root{--ink:#e3e7ec;--soft:#98a2ae;--line:#343b44;--paper:#14181d;"
    "--card:#1d2229;--blue:#6ea2f5;--red:#f0766b}}body{font:14px/1.45 "
    "system-ui,sans-serif;color:var(--ink);background:var(--paper);"
    "margin:2rem auto;max-width:1280px;padding:0 "
    "1rem}h1{font-size:1.4rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.05rem;"
    "margin:2rem 0 .4rem}p{margin:.3rem 0;color:var(--soft)}.cards{display:flex;flex-wrap:wrap;gap:.7rem;margin:1rem 0}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem;min-width:7.5rem}"
    ".card b{display:block;font-size:1.2rem}.card span{color:var(--soft)}.bad b{color:var(--red)}"
    "svg{display:block}svg text{fill:var(--soft);font:11px system-ui,sans-serif}.plot{width:100%;height:auto}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .55rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th{color:var(--soft);font-weight:600;cursor:pointer;position:sticky;top:0;background:var(--paper)}"
    "td.name{min-width:16rem;max-width:26rem;overflow-wrap:anywhere;white-space:normal}td.note{color:var(--red);white-space:"
    "normal;min-width:"
    "11rem}"
    ".name,.note,.type{text-align:left}</style>";

static const char script[] =
    "<script>document.querySelectorAll('th').forEach((h,i)=>h.onclick=()=>{const b=document.querySelector('tbody'),"
    "d=h.dataset.d=h.dataset.d=='1'?-1:1,v=r=>{const c=r.cells[i];return c.dataset.v??c.textContent};"
    "[...b.rows].sort((p,q)=>{const x=v(p),y=v(q),n=x-y;return d*(isNaN(n)?x.localeCompare(y):n)}).forEach(r=>b.append(r))});"
    "</script>";

/* --- a histogram in the size of a word --- */

enum { BARS = 48, BAR_WIDTH = 3, SPARK_HEIGHT = 30 };

/* The magnitude that all but a thousandth of the numbers stay below. */
static double usual_reach(const uint64_t *histogram)
{
    uint64_t total = 0, seen = 0;
    for (int b = 0; b < ES_STATS_BINS; b++) total += histogram[b];
    const int half = ES_STATS_BINS / 2;
    for (int place = half; place < ES_STATS_BINS; place++) {
        int bin;
        double low, high;
        if (!es_stats_bin(place, &bin, &low, &high)) break;
        seen += histogram[bin] + histogram[bin + half];
        if ((double)seen >= 0.999 * (double)total) return isfinite(high) ? high : low;
    }
    return 0;
}

/* Bins are finer than bars near zero and coarser far out: each is spread evenly over what it covers. */
static void spread(const uint64_t *histogram, double reach, double bar[BARS])
{
    const double width = 2 * reach / BARS;
    for (int place = 0; place < ES_STATS_BINS; place++) {
        int bin;
        double low, high;
        if (!es_stats_bin(place, &bin, &low, &high) || histogram[bin] == 0 || low >= reach || high <= -reach) continue;
        const double from = (fmax(low, -reach) + reach) / width, to = (fmin(high, reach) + reach) / width;
        const double share = (double)histogram[bin] / (high - low) * width;
        for (int b = (int)from; b < BARS && b < to; b++)
            bar[b] += share * (fmin(to, b + 1.0) - fmax(from, b));
    }
}

static void put_spark(es_text *out, const es_tensor_stats *stats)
{
    if (!stats->histogram) return;
    const double reach = usual_reach(stats->histogram);
    if (!(reach > 0)) return;
    double bar[BARS] = {0}, most = 0;
    spread(stats->histogram, reach, bar);
    for (int b = 0; b < BARS; b++) most = fmax(most, bar[b]);
    es_text_printf(out, "<svg width=\"%d\" height=\"%d\" role=\"img\"><title>from %.3g to %.3g</title>"
                   "<path fill=\"var(--blue)\" d=\"", BARS * BAR_WIDTH, SPARK_HEIGHT + 1, -reach, reach);
    for (int b = 0; b < BARS; b++) {
        const double height = most > 0 ? bar[b] / most * SPARK_HEIGHT : 0;
        if (bar[b] > 0)
            es_text_printf(out, "M%d %dv-%.1fh%dv%.1fz", b * BAR_WIDTH, SPARK_HEIGHT, fmax(height, 0.6), BAR_WIDTH,
                           fmax(height, 0.6));
    }
    es_text_printf(out, "\"/><path stroke=\"var(--line)\" d=\"M0 %d.5h%d\"/></svg>", SPARK_HEIGHT, BARS * BAR_WIDTH);
}

/* --- one dot for each tensor, in the file's order, on a logarithmic scale --- */

enum { PLOT_WIDTH = 1240, PLOT_HEIGHT = 210, LEFT = 62, BOTTOM = 16, TOP = 8 };

typedef double (*figure_fn)(const es_stats_item *item);

static double deviation_of(const es_stats_item *item)
{
    return es_summary_deviation(&item->stats.summary);
}

static double peak_of(const es_stats_item *item)
{
    const es_summary *s = &item->stats.summary;
    const double deviation = es_summary_deviation(s);
    return deviation > 0 ? fmax(fabs(s->max), fabs(s->min)) / deviation : 0;
}

static void put_plot(es_text *out, const es_stats_file *file, const char *title, const char *about, figure_fn figure)
{
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < file->count; i++) {
        const double y = figure(&file->item[i]);
        if (!(y > 0) || !isfinite(y)) continue;
        low = fmin(low, y), high = fmax(high, y);
    }
    if (!(high > 0)) return;
    const double bottom = floor(log10(low) + 1e-9), top = fmax(ceil(log10(high) - 1e-9), bottom + 1);
    const double unit = (PLOT_HEIGHT - BOTTOM - TOP) / (top - bottom), step = top - bottom > 8 ? 4 : 1;
    es_text_printf(out, "<h2>%s</h2><p>%s</p><svg class=\"plot\" viewBox=\"0 0 %d %d\">", title, about, PLOT_WIDTH,
                   PLOT_HEIGHT);
    for (double y = bottom; y <= top; y += step) {
        const double at = PLOT_HEIGHT - BOTTOM - (y - bottom) * unit;
        es_text_printf(out, "<path stroke=\"var(--line)\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g"
                       "</text>", LEFT, at, PLOT_WIDTH, LEFT - 8, at + 4, pow(10, y));
    }
    const double gap = (double)(PLOT_WIDTH - LEFT - 16) / (double)(file->count > 1 ? file->count - 1 : 1);
    for (size_t i = 0; i < file->count; i++) {
        const es_stats_item *item = &file->item[i];
        const double y = figure(item);
        if (!(y > 0) || !isfinite(y)) continue;
        es_text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"var(--%s)\" fill-opacity=\".75\"><title>",
                       LEFT + 8 + (double)i * gap, PLOT_HEIGHT - BOTTOM - (log10(y) - bottom) * unit,
                       item->notes.bytes ? "red" : "blue");
        es_text_put_escaped(out, item->name);
        es_text_printf(out, ": %.4g</title></circle>", y);
    }
    es_text_puts(out, "</svg>");
}

/* --- the page --- */

static void put_card(es_text *out, const char *kind, const char *label, const char *format, double value)
{
    es_text_printf(out, "<div class=\"card %s\"><b>", kind);
    char number[64];
    const char *unit = "";
    if (format[0] == 'n') { /* a count, in words' length */
        static const char *const units[] = {"", " K", " M", " G", " T"};
        int u = 0;
        for (; value >= 10000 && u < 4; u++) value /= 1000;
        unit = units[u];
        es_text_printf(out, "%.*f%s", value == floor(value) ? 0 : 1, value, unit);
    } else {
        const int n = snprintf(number, sizeof number, "%.2f", value);
        es_text_append(out, number, n > 0 ? (size_t)n : 0);
        es_text_puts(out, format);
    }
    es_text_printf(out, "</b><span>%s</span></div>", label);
}

static void put_cards(es_text *out, const es_stats_file *file)
{
    double numbers = 0, nans = 0, infinite = 0, noted = 0;
    for (size_t i = 0; i < file->count; i++) {
        const es_summary *s = &file->item[i].stats.summary;
        numbers += (double)(s->count + s->nans + s->plus_infs + s->minus_infs);
        nans += (double)s->nans, infinite += (double)(s->plus_infs + s->minus_infs);
        noted += file->item[i].notes.bytes > 0;
    }
    es_text_puts(out, "<div class=\"cards\">");
    put_card(out, "", "tensors", "n", (double)file->count);
    put_card(out, "", "numbers", "n", numbers);
    put_card(out, "", "size", " GB", (double)file->bytes / 1e9);
    put_card(out, nans > 0 ? "bad" : "", "NaN", "n", nans);
    put_card(out, infinite > 0 ? "bad" : "", "infinite", "n", infinite);
    put_card(out, noted > 0 ? "bad" : "", "tensors with notes", "n", noted);
    put_card(out, "", "read at", " GB/s", (double)file->bytes / 1e9 / file->seconds);
    es_text_puts(out, "</div>");
}

static void put_number(es_text *out, double x)
{
    es_text_printf(out, "<td data-v=\"%.17g\">%.4g</td>", isfinite(x) ? x : 0, x);
}

static void put_row(es_text *out, const es_stats_item *item)
{
    const es_tensor_stats *stats = &item->stats;
    const es_summary *s = &stats->summary;
    es_text_puts(out, "<tr><td class=\"name\">");
    es_text_put_escaped(out, item->name);
    es_text_printf(out, "</td><td class=\"type\">%s</td><td class=\"type\">", item->type);
    es_stats_put_shape(item, out);
    es_text_puts(out, "</td><td>");
    put_spark(out, stats);
    es_text_puts(out, "</td>");
    put_number(out, s->count ? s->min : (double)NAN), put_number(out, s->count ? s->max : (double)NAN);
    put_number(out, s->mean), put_number(out, es_summary_deviation(s));
    put_number(out, es_summary_skewness(s)), put_number(out, es_summary_kurtosis(s));
    es_text_printf(out, "<td>%" PRId64 "</td><td class=\"note\">", s->zeros);
    es_text_puts(out, item->notes.data ? item->notes.data : "");
    for (int64_t k = 0; k < stats->outlier_rows && k < ES_STATS_OUTLIERS; k++)
        es_text_printf(out, "%srow %" PRId64 " (%.1f×)", k ? ", " : ": ", stats->outlier[k].row, stats->outlier[k].ratio);
    es_text_puts(out, "</td></tr>\n");
}

void es_stats_report(const es_stats_file *file, es_text *out)
{
    es_text_puts(out, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
                      "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    es_text_put_escaped(out, file->path);
    es_text_puts(out, "</title>");
    es_text_puts(out, style);
    es_text_puts(out, "</head><body><h1>");
    es_text_put_escaped(out, file->path);
    es_text_puts(out, "</h1><p>What the numbers of each tensor are like. Red: something to look at.</p>");
    put_cards(out, file);
    put_plot(out, file, "Standard deviation", "One dot for each tensor, in order of names.", deviation_of);
    put_plot(out, file, "Largest magnitude, in standard deviations",
             "Far above 10, a few numbers decide the scale that all others are quantised with.", peak_of);
    es_text_puts(out,
                 "<h2>Tensors</h2><p>Click a heading to sort. Histograms span what 99.9 % of the numbers reach; moments are "
                 "of the population, over finite numbers; kurtosis is the excess over a normal distribution's.</p>"
                 "<div class=\"scroll\"><table><thead><tr><th class=\"name\">name</th><th class=\"type\">type</th>"
                 "<th class=\"type\">shape</th><th>histogram</th><th>min</th><th>max</th><th>mean</th><th>std</th>"
                 "<th>skewness</th><th>kurtosis</th><th>zeros</th><th class=\"note\">notes</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < file->count; i++) put_row(out, &file->item[i]);
    es_text_puts(out, "</tbody></table></div>");
    for (size_t i = 0; i < file->skipped_count; i++) {
        es_text_puts(out, "<p>skipped, of a type that is not read: ");
        es_text_put_escaped(out, file->skipped[i]);
        es_text_puts(out, "</p>");
    }
    es_text_puts(out, script);
    es_text_puts(out, "</body></html>\n");
}
