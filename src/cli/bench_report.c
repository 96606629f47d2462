/* bench_report.c: `bench report`: decode, prefill and the gaps between tokens of one model in one go, as JSON, CSV and a page.
 *
 * A measurement is worth what is known of the machine: it stands in the report. --from draws the files again from an earlier
 * report's JSON, ours or somebody else's. */
#include "cli/bench_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/bench_limits.h"
#include "cli/bench_rig.h"
#include "cli/commands.h"
#include "cli/settings.h"

enum { RUNS_MOST = 1000, GAPS_MOST = 4096, FROM_MAX = 64 << 20 };

typedef struct settings {
    es_model_settings model;
    const char *depth, *numeric, *kv_type, *device, *json, *csv, *html, *from;
    int64_t threads, tokens, gaps, runs;
} settings;

#define FIELD(name) offsetof(settings, name)
static const es_option rows[] = {
    {"json",                                                             0, ES_OPTION_TEXT, "FILE", FIELD(json), .help = "write the results as JSON; - is standard output"},
    {"csv",                                                    0, ES_OPTION_TEXT, "FILE", FIELD(csv), .help = "write them as a table, a line for each row and each gap"},
    {"html",                                                       0, ES_OPTION_TEXT, "FILE", FIELD(html), .help = "write them as a page with plots"},
    {"from",                                                                  0, ES_OPTION_TEXT, "FILE", FIELD(from), .help = "measure nothing: take the results of an earlier --json"},
    {"depth",              'd', ES_OPTION_TEXT, "LIST", FIELD(depth), .fallback = "0,1K,4K,16K",
     .help = "tokens computed before; their cache is filled with random numbers"},
    {"tokens",                                                            'n', ES_OPTION_INT, "N", FIELD(tokens), .fallback = "512", .min = 1, .max = 8192, .help = "tokens of a prompt"},
    {"gaps", 0, ES_OPTION_INT, "N", FIELD(gaps), .fallback = "256", .min = 0, .max = GAPS_MOST,
     .help = "tokens written one after the other, at the first and the last depth; 0 leaves them out"},
    {"runs",                                                             'r', ES_OPTION_INT, "N", FIELD(runs), .fallback = "8", .min = 1, .max = RUNS_MOST,
     .help = "timed runs of each row"},
    {"threads",                                                    't', ES_OPTION_INT, "N", FIELD(threads), .min = 1, .max = 512,
     .help = "threads that compute [the CPUs this process may use]"},
    {"device",                                                       0, ES_OPTION_CHOICE, "auto|cpu|cuda", FIELD(device), .fallback = "auto", .environment = "ES_DEVICE",
     .help = "where to compute"},
    {"numeric",                                                                  0, ES_OPTION_TEXT, "MODE", FIELD(numeric), .help = "auto, f32, bf16, bf16dp or int8 [auto]"},
    {"kv-type", 0, ES_OPTION_CHOICE, "auto|f32|bf16|f16|q8_0", FIELD(kv_type), .fallback = "auto", .help = "how keys and values are kept"},
    {0}
};
#undef FIELD
static const es_option_group groups[] = {
    {NULL,    rows, 0},
    {"Model",      es_model_options, offsetof(settings, model)},
    {0}
};

typedef struct measuring {
    const settings *settings;
    es_rig rig;
    es_limits limits;
    int64_t depth[ES_BENCH_MOST_DEPTHS];
    int depths;
    json_t *report, *rows, *gaps;
} measuring;

/* ---- measuring ---- */

static es_status time_step(measuring *m, const es_rig_step *step, double *seconds)
{
    const es_clock clock = es_clock_monotonic();
    const uint64_t start = es_clock_now(&clock);
    ES_TRY(es_rig_run(&m->rig, step));
    *seconds = (double)(es_clock_now(&clock) - start) * 1e-9;
    return ES_OK;
}

static es_status measure_row(measuring *m, const char *name, int64_t depth, int32_t tokens)
{
    const es_rig_step step = {.depth = depth, .sequences = 1, .rows = tokens, .head = true};
    double seconds[RUNS_MOST];
    ES_TRY(es_rig_fill(&m->rig, depth));
    ES_TRY(es_rig_run(&m->rig, &step));
    const int runs = (int)m->settings->runs;
    for (int i = 0; i < runs; i++) ES_TRY(time_step(m, &step, &seconds[i]));
    const es_bench_spread spread = es_bench_spread_of(seconds, runs);
    const es_rig_work work = es_rig_count(&m->rig, &step);
    const double bound = es_rig_bound(&m->rig, &work, &m->limits);
    json_array_append_new(m->rows, json_pack("{s:s,s:I,s:i,s:f,s:f,s:f,s:f,s:f}", "bench", name, "depth", (json_int_t)depth,
                                             "tokens", tokens, "seconds", spread.median, "least_seconds", spread.least,
                                             "most_seconds", spread.most, "tokens_per_second", tokens / spread.median,
                                             "bound_tokens_per_second", tokens / bound));
    es_log(ES_LOG_NOTICE, "%-8s after %8" PRId64 ": %.1f tokens/s", name, depth, tokens / spread.median);
    return ES_OK;
}

/* As somebody would wait for them: each token one position further than the one before. */
static es_status measure_gaps(measuring *m, int64_t depth)
{
    json_t *list = json_array();
    es_status status = es_rig_fill(&m->rig, depth);
    for (int64_t i = 0; i < m->settings->gaps && status == ES_OK; i++) {
        const es_rig_step step = {.depth = depth + i, .sequences = 1, .rows = 1, .head = true};
        double seconds;
        status = time_step(m, &step, &seconds);
        if (status == ES_OK) json_array_append_new(list, json_real(seconds * 1e3));
    }
    json_array_append_new(m->gaps, json_pack("{s:I,s:o}", "depth", (json_int_t)depth, "milliseconds", list));
    return status;
}

static es_status measure_all(measuring *m)
{
    for (int i = 0; i < m->depths; i++) ES_TRY(measure_row(m, "decode", m->depth[i], 1));
    for (int i = 0; i < m->depths; i++) ES_TRY(measure_row(m, "prefill", m->depth[i], (int32_t)m->settings->tokens));
    if (!m->settings->gaps) return ES_OK;
    ES_TRY(measure_gaps(m, m->depth[0]));
    return m->depths > 1 ? measure_gaps(m, m->depth[m->depths - 1]) : ES_OK;
}

static json_t *machine_json(const measuring *m)
{
    json_t *machine = es_bench_machine();
    struct utsname system;
    if (uname(&system) == 0) json_object_set_new(machine, "kernel", json_string(system.release));
    json_object_set_new(machine, "memory_bytes", json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE)));
    json_object_set_new(machine, "limits", es_bench_limits_json(&m->limits));
    return machine;
}

static void describe(measuring *m)
{
    char now[32];
    const time_t t = time(NULL);
    struct tm utc;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
    const es_model_info *info = es_model_get_info(m->rig.model);
    json_object_set_new(m->report, "evenshare", json_string(ES_VERSION));
    json_object_set_new(m->report, "time", json_string(now));
    json_object_set_new(m->report, "machine", machine_json(m));
    json_object_set_new(m->report, "model",
                        json_pack("{s:s,s:s,s:s,s:s,s:s,s:i}", "name", info->name, "quantisation", info->quantisation, "numeric",
                                  es_numeric_name(m->rig.sizes.numeric), "kv_type", es_kv_type_name(m->rig.sizes.kv_type),
                                  "instruction_set",
                                  m->rig.device->info.instruction_set, "threads", m->rig.device->info.threads));
    json_object_set(m->report, "rows", m->rows);
    json_object_set(m->report, "gaps", m->gaps);
}

static es_status measure_model(measuring *m, const es_model *model)
{
    const settings *s = m->settings;
    es_rig_sizes sizes = {.sequences = 1,
                          .page = 64,
                          .rows = (int32_t)s->tokens,
                          .threads = s->threads == ES_UNSET ? 0 : (int)s->threads,
                          .device = es_device_resolve(es_device_kind_of(s->device))};
    if (s->numeric) ES_TRY(es_numeric_parse(s->numeric, &sizes.numeric));
    if (s->kv_type) ES_TRY(es_kv_type_parse(s->kv_type, &sizes.kv_type));
    const int64_t beyond = s->tokens > s->gaps ? s->tokens : s->gaps;
    for (int i = 0; i < m->depths; i++)
        if (m->depth[i] + beyond > sizes.context) sizes.context = m->depth[i] + beyond;
    ES_TRY(es_bench_limits(sizes.threads, &m->limits));
    ES_TRY(es_rig_open(model, &sizes, &m->rig));
    const es_status status = measure_all(m);
    if (status == ES_OK) describe(m);
    es_rig_close(&m->rig);
    return status;
}

static es_status measure(const settings *s, json_t *report)
{
    measuring m = {.settings = s, .report = report, .rows = json_array(), .gaps = json_array()};
    es_model *model = NULL;
    es_status status = es_bench_depths(s->depth, m.depth, &m.depths);
    if (status == ES_OK) status = es_model_open(s->model.path, &model);
    if (status == ES_OK) status = measure_model(&m, model);
    if (model) es_model_close(model);
    json_decref(m.rows);
    json_decref(m.gaps);
    return status;
}

/* ---- files ---- */

static es_status write_text(const char *path, const es_text *text)
{
    if (text->failed) return es_fail(ES_NO_MEMORY, "no memory for %s", path);
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (!file) return es_fail(ES_IO, "%s cannot be written", path);
    const bool bad = fwrite(text->data, 1, text->bytes, file) != text->bytes || fflush(file) != 0;
    if (file != stdout && fclose(file) != 0) return es_fail(ES_IO, "%s could not be written", path);
    return bad ? es_fail(ES_IO, "%s could not be written", path) : ES_OK;
}

static es_status write_with(const char *path, const json_t *report, void (*write)(const json_t *, es_text *))
{
    if (!path) return ES_OK;
    es_text text = {0};
    write(report, &text);
    const es_status status = write_text(path, &text);
    es_text_free(&text);
    return status;
}

static void write_json(const json_t *report, es_text *out)
{
    char *text = json_dumps(report, JSON_INDENT(1));
    if (text)
        es_text_puts(out, text);
    else
        out->failed = true;
    es_text_putc(out, '\n');
    free(text);
}

static es_status read_report(const char *path, json_t **report)
{
    char *text;
    size_t bytes;
    json_error_t error;
    ES_TRY(es_file_read(path, FROM_MAX, &text, &bytes));
    *report = json_loadb(text, bytes, 0, &error);
    free(text);
    if (!json_is_array(json_object_get(*report, "rows")))
        return es_fail(ES_BAD_FILE, "%s is no report of evenshare bench (--json writes one)", path);
    return ES_OK;
}

static int report(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_bench_report, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (!s.json && !s.csv && !s.html)
        return es_command_refuse(&es_command_bench_report, "name a file: --html, --json or --csv");
    json_t *found = s.from ? NULL : json_object();
    es_status status = s.from ? read_report(s.from, &found) : measure(&s, found);
    if (status == ES_OK) status = write_with(s.json, found, write_json);
    if (status == ES_OK) status = write_with(s.csv, found, es_bench_write_csv);
    if (status == ES_OK) status = write_with(s.html, found, es_bench_write_html);
    json_decref(found);
    return status == ES_OK ? 0 : es_command_fail(&es_command_bench_report, status);
}

const es_command es_command_bench_report = {"bench report", "measure a model and write JSON, CSV and a page with plots",
                                            "Writing by depth, reading by depth, and the gaps between tokens, with what is "
                                            "known of the machine and its limits. The machine "
                                            "should be quiet.",
                                            groups, report};
