/* stats.c: `evenshare stats` tells what the numbers in a model (or any array) are like. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/read_pass.h"
#include "cli/settings.h"
#include "cli/stats.h"
#include "hub/name.h"
#include "share/pool.h"

typedef struct settings {
    es_model_settings model;
    const char *only, *type, *html, *device;
    int64_t columns, threads, repeat;
    bool json, no_histogram;
} settings;

static const es_option own[] = {
    {"only", 0, ES_OPTION_TEXT, "TEXT", offsetof(settings, only), .help = "only tensors with TEXT in their name"},
    {"type", 0, ES_OPTION_TEXT, "TYPE", offsetof(settings, type),
     .help = "the file is nothing but numbers: f64, f32, f16, bf16, i8 to i64, u8 to u64, bool"},
    {"columns", 0, ES_OPTION_INT, "N", offsetof(settings, columns), .min = 1, .max = ES_ANY,
     .help = "with --type: numbers in a row [all]"},
    {"threads", 't', ES_OPTION_INT, "N", offsetof(settings, threads), .fallback = "0", .min = 0, .max = ES_POOL_MOST_WORKERS,
     .help = "threads that compute; 0 is the CPUs this process may use; changes no bit"},
    {"device", 0, ES_OPTION_CHOICE, "cpu|cuda", offsetof(settings, device), .fallback = "cpu",
     .help = "where to compute; a GPU leaves integers and doubles to the CPU"},
    {"html", 0, ES_OPTION_TEXT, "FILE", offsetof(settings, html),
     .help = "write a report with plots, one file, for a browser"},
    {"no-histogram", 0, ES_OPTION_FLAG, NULL, offsetof(settings, no_histogram), .help = "moments, counts and rows only"},
    {"bandwidth", 0, ES_OPTION_INT, "RUNS", offsetof(settings, repeat), .fallback = "0", .min = 0, .max = 1000,
     .help = "also time RUNS passes each of reading only, moments, and moments with histogram"},
    {"json", 0, ES_OPTION_FLAG, NULL, offsetof(settings, json), .help = "one JSON object instead of a table"},
    {0}};
static const es_option_group groups[] = {{"Model", es_model_options, offsetof(settings, model)}, {NULL, own, 0}, {0}};

static int stats(int argc, char **argv);
const es_command es_command_stats = {
    "stats", "tell what the numbers of a model, or of any array, are like",
    "One pass over every tensor of a model (.gguf, .safetensors, a folder), a .npy file or, with --type, a file of plain "
    "numbers: how many, least and greatest, mean, standard deviation, skewness and excess kurtosis (of the population, over "
    "the finite numbers), zeros, NaN, infinities, a histogram, and the rows that stand out. Quantised tensors are decoded.\n\n"
    "The notes name what a broken download or a tensor that quantises badly looks like: NaN, rows of zeros at the end, rows "
    "whose root mean square is 4 times the median row's or whose largest magnitude is 8 times, peaks past 40 deviations.",
    groups, stats};

/* --- the run --- */

static double seconds_now(void)
{
    const es_clock clock = es_clock_monotonic();
    return (double)es_clock_now(&clock) * 1e-9;
}

static bool is_wanted(const es_stats_item *item, const settings *s)
{
    return !s->only || strstr(item->name, s->only);
}

static es_status run_once(es_team *team, es_stats_file *file, bool histogram, double *seconds)
{
    const double start = seconds_now();
    for (size_t i = 0; i < file->count; i++) {
        es_stats_item *item = &file->item[i];
        es_tensor_stats_free(&item->stats);
        ES_TRY(es_tensor_stats_compute(team, &item->input, &(es_stats_options){.histogram = histogram, .gpu = file->gpu},
                                       &item->stats));
    }
    *seconds = seconds_now() - start;
    return ES_OK;
}

/* Names that were not asked for leave the list. */
static void keep_wanted(es_stats_file *file, const settings *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < file->count; i++) {
        if (is_wanted(&file->item[i], s)) file->item[kept++] = file->item[i];
        else free(file->item[i].name);
    }
    file->count = kept;
    for (size_t i = 0; i < kept; i++) file->bytes += file->item[i].bytes;
}

static es_status read_once(es_team *team, const es_stats_file *file, double *seconds)
{
    const double start = seconds_now();
    for (size_t i = 0; i < file->count; i++) ES_TRY(es_read_pass(team, file->item[i].input.data, file->item[i].bytes));
    *seconds = seconds_now() - start;
    return ES_OK;
}

typedef struct bandwidth {
    double read, moments, histogram; /* best seconds for the whole file; 0: not measured */
} bandwidth;

static es_status measure(es_team *team, es_stats_file *file, int64_t runs, bandwidth *best)
{
    *best = (bandwidth){INFINITY, INFINITY, INFINITY};
    for (int64_t r = 0; r < runs; r++) {
        double seconds;
        ES_TRY(read_once(team, file, &seconds));
        best->read = fmin(best->read, seconds);
        ES_TRY(run_once(team, file, false, &seconds));
        best->moments = fmin(best->moments, seconds);
        ES_TRY(run_once(team, file, true, &seconds));
        best->histogram = fmin(best->histogram, seconds);
    }
    return ES_OK;
}

/* --- output --- */

/* A name from a file, without what could drive a terminal. */
static void print_name(const char *name)
{
    for (; *name; name++) putchar((unsigned char)*name < ' ' || *name == 0x7F ? '?' : *name);
}

static void print_table(const es_stats_file *file)
{
    size_t widest = 6;
    for (size_t i = 0; i < file->count; i++) {
        const size_t n = strlen(file->item[i].name);
        widest = n > widest ? n : widest;
    }
    if (widest > 60) widest = 60;
    printf("%-*s %-5s %12s %11s %11s %11s %11s %9s %9s %9s %5s %5s  %s\n", (int)widest, "tensor", "type", "count", "min",
           "max", "mean", "std", "skew", "kurtosis", "zeros", "NaN", "Inf", "notes");
    for (size_t i = 0; i < file->count; i++) {
        const es_stats_item *item = &file->item[i];
        const es_summary *s = &item->stats.summary;
        const size_t n = strlen(item->name);
        print_name(item->name);
        for (size_t k = n; k < widest; k++) putchar(' ');
        printf(" %-5s %12" PRId64 " %11.4g %11.4g %11.4g %11.4g %9.3g %9.3g %9" PRId64 " %5" PRId64 " %5" PRId64 "  %s\n",
               item->type, s->count + s->nans + s->plus_infs + s->minus_infs, s->count ? s->min : (double)NAN,
               s->count ? s->max : (double)NAN, s->mean, es_summary_deviation(s), es_summary_skewness(s),
               es_summary_kurtosis(s), s->zeros, s->nans, s->plus_infs + s->minus_infs,
               item->notes.data ? item->notes.data : "");
        for (int64_t k = 0; k < item->stats.outlier_rows && k < ES_STATS_OUTLIERS; k++) {
            const es_outlier_row *row = &item->stats.outlier[k];
            printf("%*s   row %" PRId64 ": rms %.4g, largest %.4g, %.1f times the median row\n", (int)widest, "", row->row,
                   row->rms, row->largest, row->ratio);
        }
    }
    for (size_t i = 0; i < file->skipped_count; i++) {
        fputs("skipped, of a type that is not read: ", stdout);
        print_name(file->skipped[i]);
        putchar('\n');
    }
    printf("%zu tensors, %.1f MB in %.2f s (%.1f GB/s) ", file->count, (double)file->bytes / 1e6, file->seconds,
           (double)file->bytes / 1e9 / file->seconds);
    if (file->gpu) puts("on a GPU");
    else printf("with %d threads\n", file->threads);
}

static void print_bandwidth(const es_stats_file *file, const bandwidth *b)
{
    const double gb = (double)file->bytes / 1e9;
    printf("best of the runs: reading only %.2f GB/s; moments and counts %.2f GB/s (%.0f %%); with histogram %.2f GB/s (%.0f "
           "%%)\n",
           gb / b->read, gb / b->moments, 100 * b->read / b->moments, gb / b->histogram, 100 * b->read / b->histogram);
}

static json_t *number_json(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *histogram_json(const uint64_t *histogram)
{
    json_t *bins = json_array();
    for (int place = 0; place < ES_STATS_BINS; place++) {
        int bin;
        double low, high;
        if (!es_stats_bin(place, &bin, &low, &high) || histogram[bin] == 0 || isinf(low)) continue;
        json_array_append_new(bins, json_pack("[f,f,I]", low, high, (json_int_t)histogram[bin]));
    }
    return bins;
}

static json_t *item_json(const es_stats_item *item)
{
    const es_tensor_stats *stats = &item->stats;
    const es_summary *s = &stats->summary;
    json_t *shape = json_array(), *rows = json_array();
    for (int i = 0; i < item->rank; i++) json_array_append_new(shape, json_integer(item->shape[i]));
    for (int64_t k = 0; k < stats->outlier_rows && k < ES_STATS_OUTLIERS; k++) {
        const es_outlier_row *row = &stats->outlier[k];
        json_array_append_new(rows, json_pack("{s:I,s:o,s:o,s:o}", "row", (json_int_t)row->row, "rms", number_json(row->rms),
                                              "largest", number_json(row->largest), "ratio", number_json(row->ratio)));
    }
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(item->name));
    json_object_set_new(o, "type", json_string(item->type));
    json_object_set_new(o, "shape", shape);
    json_object_set_new(o, "bytes", json_integer((json_int_t)item->bytes));
    json_object_set_new(o, "count", json_integer(s->count + s->nans + s->plus_infs + s->minus_infs));
    json_object_set_new(o, "finite", json_integer(s->count));
    json_object_set_new(o, "zeros", json_integer(s->zeros));
    json_object_set_new(o, "nan", json_integer(s->nans));
    json_object_set_new(o, "plus_inf", json_integer(s->plus_infs));
    json_object_set_new(o, "minus_inf", json_integer(s->minus_infs));
    json_object_set_new(o, "min", number_json(s->min));
    json_object_set_new(o, "max", number_json(s->max));
    json_object_set_new(o, "mean", number_json(s->mean));
    json_object_set_new(o, "std", number_json(es_summary_deviation(s)));
    json_object_set_new(o, "skewness", number_json(es_summary_skewness(s)));
    json_object_set_new(o, "kurtosis", number_json(es_summary_kurtosis(s)));
    json_object_set_new(o, "median_row_rms", number_json(stats->median_rms));
    json_object_set_new(o, "median_row_largest", number_json(stats->median_largest));
    json_object_set_new(o, "outlier_rows", json_integer(stats->outlier_rows));
    json_object_set_new(o, "worst_rows", rows);
    json_object_set_new(o, "notes", json_string(item->notes.data ? item->notes.data : ""));
    if (stats->histogram) json_object_set_new(o, "histogram", histogram_json(stats->histogram));
    return o;
}

static void print_json(const es_stats_file *file, const bandwidth *b)
{
    json_t *items = json_array(), *skipped = json_array();
    for (size_t i = 0; i < file->count; i++) json_array_append_new(items, item_json(&file->item[i]));
    for (size_t i = 0; i < file->skipped_count; i++) json_array_append_new(skipped, json_string(file->skipped[i]));
    json_t *o = json_pack("{s:s?,s:s,s:i,s:I,s:f,s:o,s:o}", "file", file->path, "device", file->gpu ? "cuda" : "cpu",
                          "threads", file->threads, "bytes",
                          (json_int_t)file->bytes, "seconds", file->seconds, "tensors", items, "skipped", skipped);
    if (b->read > 0)
        json_object_set_new(o, "bandwidth", json_pack("{s:f,s:f,s:f}", "read_seconds", b->read, "moments_seconds", b->moments,
                                                      "histogram_seconds", b->histogram));
    json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    putchar('\n');
    json_decref(o);
}

static es_status write_report(const es_stats_file *file, const char *path)
{
    es_text html = {0};
    es_stats_report(file, &html);
    if (html.failed) {
        es_text_free(&html);
        return es_fail(ES_NO_MEMORY, "no memory for the report");
    }
    FILE *out = fopen(path, "w");
    const bool written = out && fwrite(html.data, 1, html.bytes, out) == html.bytes;
    const bool closed = out && fclose(out) == 0;
    es_text_free(&html);
    return written && closed ? ES_OK : es_fail(ES_IO, "--html %s: the report cannot be written there", path);
}

static es_status work(const settings *s, const char *path, es_team *team, es_stats_file *file)
{
    ES_TRY(es_stats_file_open(path, s->type, s->columns == ES_UNSET ? 0 : s->columns, file));
    keep_wanted(file, s);
    if (file->count == 0 && s->only) return es_fail(ES_NOT_FOUND, "%s: no tensor has \"%s\" in its name", path, s->only);
    if (file->count == 0) return es_fail(ES_NOT_FOUND, "%s: no tensors", path);
    if (es_device_kind_of(s->device) == ES_DEVICE_CUDA) ES_TRY(es_stats_gpu_open(&file->gpu));
    file->threads = es_team_size(team);
    file->histogram = !s->no_histogram;
    bandwidth b = {0};
    if (s->repeat > 0) ES_TRY(measure(team, file, s->repeat, &b));
    ES_TRY(run_once(team, file, file->histogram, &file->seconds));
    for (size_t i = 0; i < file->count; i++) es_stats_take_notes(&file->item[i]);
    if (s->html) ES_TRY(write_report(file, s->html));
    if (s->json) {
        print_json(file, &b);
        return ES_OK;
    }
    print_table(file);
    if (s->repeat > 0) print_bandwidth(file, &b);
    return ES_OK;
}

static int stats(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_stats, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    const char *path = s.model.path ? s.model.path : es_model_default_path();
    if (!path) return es_command_refuse(&es_command_stats, "name a model or a file");
    if (s.columns != ES_UNSET && !s.type) return es_command_refuse(&es_command_stats, "--columns goes with --type");
    es_team *team = NULL;
    es_stats_file file = {0};
    char *found = NULL;
    es_status status = es_hub_is_name(path) ? es_model_find(path, &found) : ES_OK;
    if (found) path = found;
    if (status == ES_OK) status = es_team_open((int)s.threads, &team);
    if (status == ES_OK) status = work(&s, path, team, &file);
    es_stats_file_close(&file);
    es_team_close(team);
    free(found);
    return status == ES_OK ? 0 : es_command_fail(&es_command_stats, status);
}
