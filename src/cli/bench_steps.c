/* bench_steps.c: `bench decode`, `bench prefill` and `bench batch`: how long a step takes at a depth, and what it could take.
 *
 * A row is the median of some runs of one step, held against what the machine can read and compute, which is measured first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/bench.h"
#include "cli/bench_limits.h"
#include "cli/bench_operations.h"
#include "cli/bench_rig.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "model/random_model.h"

enum { MOST_RUNS = 1000 };

typedef struct settings {
    es_model_settings model;
    const char *depth, *numeric, *kv_type, *attention, *weights, *device, *shape, *type, *choose;
    int64_t threads, tokens, chunk, sequences, runs, page;
    bool operations, json;
} settings;

#define COMMON                                                                                                              \
    {"depth", 'd', ES_OPTION_TEXT, "LIST", offsetof(settings, depth), .fallback = "0",                                      \
     .help = "tokens computed before the step, like 0,16384,100000; their cache is filled with random numbers"},            \
        {"threads", 't', ES_OPTION_INT, "N", offsetof(settings, threads), .min = 1, .max = 512,                             \
         .help = "threads that compute [the CPUs this process may use]"},                                                   \
        {"device", 0, ES_OPTION_CHOICE, "auto|cpu|cuda", offsetof(settings, device), .fallback = "auto",                    \
         .environment = "ES_DEVICE", .help = "where to compute"},                                                           \
        {"shape", 0, ES_OPTION_TEXT, "SHAPE", offsetof(settings, shape),                                                    \
         .help = "random weights in a published shape instead of a model (bench make-model lists them); a GPU makes its own"}, \
        {"type", 0, ES_OPTION_TEXT, "TYPE", offsetof(settings, type), .fallback = "q8_0", .help = "of its matrices"},       \
        {"numeric", 0, ES_OPTION_TEXT, "MODE", offsetof(settings, numeric), .help = "auto, f32, bf16, bf16dp or int8 [auto]"},      \
        {"kv-type", 0, ES_OPTION_CHOICE, "auto|f32|bf16|f16|q8_0", offsetof(settings, kv_type), .fallback = "auto",              \
         .help = "how keys and values are kept"},                                                                           \
        {"attention", 0, ES_OPTION_CHOICE, "auto|v1|v2", offsetof(settings, attention), .fallback = "auto",                 \
         .help = "who walks a long sequence"},                                                                              \
        {"page", 0, ES_OPTION_INT, "N", offsetof(settings, page), .fallback = "64", .min = 16, .max = 512,                  \
         .help = "tokens in one page of the cache"},                                                                        \
        {"weights", 0, ES_OPTION_CHOICE, "auto|mapped|copied", offsetof(settings, weights), .fallback = "auto",             \
         .help = "where a CPU reads weights: in their file, or copied into huge pages; auto copies where memory is plenty"}, \
        {"operations", 0, ES_OPTION_FLAG, NULL, offsetof(settings, operations),                                             \
         .help = "also what each operation of a step takes, waiting for each other included; on a CPU"},                    \
        {"json", 0, ES_OPTION_FLAG, NULL, offsetof(settings, json), .help = "one JSON object instead of a table"}

#define RUNS(n)                                                                                                             \
    {"runs", 'r', ES_OPTION_INT, "N", offsetof(settings, runs), .fallback = n, .min = 1, .max = MOST_RUNS,                  \
     .help = "timed runs of each row, after one that is not"}

#define CHOOSE                                                                                                              \
    {"choose", 0, ES_OPTION_CHOICE, "no|picked|row", offsetof(settings, choose), .fallback = "no",                          \
     .help = "also choose a token of each sequence: from what the device picks, or from all of its logits"}

static const es_option decode_rows[] = {COMMON, CHOOSE, RUNS("16"), {0}};
static const es_option prefill_rows[] = {
    {"tokens", 'n', ES_OPTION_INT, "N", offsetof(settings, tokens), .fallback = "512", .min = 1, .max = 1 << 20,
     .help = "tokens of the prompt"},
    {"chunk", 0, ES_OPTION_INT, "N", offsetof(settings, chunk), .fallback = "512", .min = 1, .max = 8192,
     .help = "most tokens in one step"},
    COMMON, RUNS("5"), {0}};
static const es_option batch_rows[] = {
    {"sequences", 'b', ES_OPTION_INT, "N", offsetof(settings, sequences), .fallback = "8", .min = 1, .max = 256,
     .help = "sequences that each get a token"},
    COMMON, CHOOSE, RUNS("16"), {0}};
static const es_option_group decode_groups[] = {{NULL, decode_rows, 0}, {"Model", es_model_options, offsetof(settings, model)}, {0}};
static const es_option_group prefill_groups[] = {{NULL, prefill_rows, 0}, {"Model", es_model_options, offsetof(settings, model)}, {0}};
static const es_option_group batch_groups[] = {{NULL, batch_rows, 0}, {"Model", es_model_options, offsetof(settings, model)}, {0}};

#define ABOUT                                                                                                               \
    "The limits of the machine are measured first. The bound of a row is what reading every byte once, or computing at the " \
    "peak, would allow: products with weights at the peak of their own arithmetic (int8, bf16 or float32, by mode and type), " \
    "attention over keys and values in q8_0 at that of int8, in bf16 at that of bf16, all else at that of float32. Its share is the median over the bound. Choosing a token is no part of a step unless asked for.\n\n"      \
    "The machine should be quiet; the fastest run and the CPU time per step stand beside the median because it seldom is."

static int decode(int argc, char **argv);
static int prefill(int argc, char **argv);
static int batch(int argc, char **argv);
const es_command es_command_bench_decode = {
    "bench decode", "time one token of one sequence at some depths", ABOUT, decode_groups, decode};
const es_command es_command_bench_prefill = {
    "bench prefill", "time a prompt at some depths", ABOUT, prefill_groups, prefill};
const es_command es_command_bench_batch = {
    "bench batch", "time one token of several sequences at some depths", ABOUT, batch_groups, batch};

typedef struct run {
    const es_command *command;
    const char *name;
    const settings *settings;
    int64_t depth[ES_BENCH_MOST_DEPTHS];
    int depths;
    es_rig_choice choice;
    int32_t sequences, tokens, chunk; /* tokens of each sequence in a row; most of them in a step */
    es_limits limits;
    es_bench_operations operations; /* of the row that is being measured, where they are asked for */
    json_t *rows;
} run;

es_status es_bench_depths(const char *text, int64_t depth[ES_BENCH_MOST_DEPTHS], int *depths)
{
    *depths = 0;
    for (const char *at = text; *at;) {
        char item[24];
        const size_t bytes = strcspn(at, ",");
        if (*depths == ES_BENCH_MOST_DEPTHS) return es_fail(ES_INVALID, "--depth: more than %d depths", ES_BENCH_MOST_DEPTHS);
        snprintf(item, sizeof item, "%.*s", (int)(bytes < sizeof item ? bytes : sizeof item), at);
        if (bytes >= sizeof item || !es_parse_size(item, &depth[*depths]) || depth[*depths] > 1 << 30)
            return es_fail(ES_INVALID, "--depth %s: a list of numbers like 0,16384,100K is expected", text);
        (*depths)++;
        at += bytes + (at[bytes] == ',');
    }
    return *depths ? ES_OK : es_fail(ES_INVALID, "--depth: the list is empty");
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All steps of a row, once: a prompt comes in chunks. */
static es_status run_once(es_rig *rig, const run *r, int64_t depth)
{
    for (int32_t done = 0; done < r->tokens;) {
        const int32_t some = r->tokens - done < r->chunk ? r->tokens - done : r->chunk;
        const es_rig_step step = {depth + done, r->sequences, some, done + some == r->tokens, r->choice};
        ES_TRY(es_rig_run(rig, &step));
        done += some;
    }
    return ES_OK;
}

typedef struct measured {
    int64_t depth, tokens;
    es_bench_spread seconds;
    double cpu, barriers, bound; /* bound: seconds */
    es_rig_work work;
} measured;

static void count_row(const es_rig *rig, const run *r, measured *row)
{
    for (int32_t done = 0; done < r->tokens;) {
        const int32_t some = r->tokens - done < r->chunk ? r->tokens - done : r->chunk;
        const es_rig_step step = {row->depth + done, r->sequences, some, done + some == r->tokens, ES_RIG_CHOOSE_NOTHING};
        const es_rig_work work = es_rig_count(rig, &step);
        row->bound += es_rig_bound(rig, &work, &r->limits);
        row->work.bytes += work.bytes, row->work.products += work.products, row->work.others += work.others;
        row->work.attention += work.attention;
        done += some;
    }
}

static es_status measure(es_rig *rig, run *r, measured *row)
{
    const es_clock clock = es_clock_monotonic();
    double seconds[MOST_RUNS];
    const int runs = (int)r->settings->runs;
    ES_TRY(es_rig_fill(rig, row->depth));
    ES_TRY(run_once(rig, r, row->depth));
    row->cpu = 1e9;
    r->operations.count = 0;
    const uint64_t before = rig->device->info.meetings;
    for (int i = 0; i < runs; i++) {
        const double cpu = cpu_seconds();
        const uint64_t start = es_clock_now(&clock);
        ES_TRY(run_once(rig, r, row->depth));
        seconds[i] = (double)(es_clock_now(&clock) - start) * 1e-9;
        const double used = cpu_seconds() - cpu;
        if (used < row->cpu) row->cpu = used;
    }
    row->barriers = (double)(rig->device->info.meetings - before) / runs;
    row->seconds = es_bench_spread_of(seconds, runs);
    row->tokens = (int64_t)r->tokens * r->sequences;
    count_row(rig, r, row);
    return ES_OK;
}

static void put_row(const es_rig *rig, run *r, const measured *row)
{
    const double tokens = (double)row->tokens, bound = tokens / row->bound, median = tokens / row->seconds.median;
    if (!r->rows) {
        printf("%-8s %8" PRId64 " %5d %9.2f %9.2f %9.2f %9.2f %6.1f%% %10.3f %10.3f %8.0f %9.1f %9.2f\n", r->name, row->depth,
               r->sequences, median, tokens / row->seconds.most, tokens / row->seconds.least, bound, 100 * median / bound,
               row->seconds.median * 1e3, row->cpu * 1e3, row->barriers, row->work.bytes * 1e-6,
               (row->work.products + row->work.attention + row->work.others) * 1e-9);
        if (r->settings->operations) es_bench_operations_print(&r->operations, (int)r->settings->runs);
        fflush(stdout);
        return;
    }
    json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:i,s:I,s:b}", "bench", r->name, "model", rig->model->info.name, "numeric",
                          es_numeric_name(rig->sizes.numeric), "kv_type", es_kv_type_name(rig->sizes.kv_type), "arithmetic", es_limit_name(es_rig_arithmetic(rig)),
                          "instruction_set", rig->device->info.instruction_set, "depth",
                          (json_int_t)row->depth, "batch", r->sequences, "tokens", (json_int_t)row->tokens, "cache_filled",
                          row->depth > 0);
    const struct {
        const char *key;
        double value;
    } figures[] = {
        {"tokens_per_second", median}, {"min", tokens / row->seconds.most}, {"max", tokens / row->seconds.least},
        {"bound_tokens_per_second", bound}, {"share", median / bound}, {"seconds", row->seconds.median},
        {"cpu_seconds", row->cpu}, {"barriers", row->barriers}, {"bytes", row->work.bytes},
        {"product_operations", row->work.products}, {"other_operations", row->work.attention + row->work.others},
        {"huge_page_bytes", (double)es_memory_in_huge_pages()},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(o, figures[i].key, json_real(figures[i].value));
    if (r->settings->operations)
        json_object_set_new(o, "operations", es_bench_operations_json(&r->operations, (int)r->settings->runs));
    json_array_append_new(r->rows, o);
}

static es_status run_rows(run *r, const es_model *model, es_rig *rig)
{
    if (!r->rows) {
        printf("%s, %s, numeric %s (products in %s), keys and values in %s, %s, %d threads\n", model->info.name, model->info.quantisation,
               es_numeric_name(rig->sizes.numeric), es_limit_name(es_rig_arithmetic(rig)),
               es_kv_type_name(rig->sizes.kv_type), rig->device->info.instruction_set, rig->device->info.threads);
        es_bench_limits_print(&r->limits);
        printf("caches are filled with random numbers up to the depth, not computed\n\n");
        printf("%-8s %8s %5s %9s %9s %9s %9s %7s %10s %10s %8s %9s %9s\n", "bench", "depth", "batch", "tokens/s", "min", "max",
               "bound", "share", "ms", "CPU ms", "barriers", "MB", "Gop");
    }
    for (int i = 0; i < r->depths; i++) {
        measured row = {.depth = r->depth[i]};
        ES_TRY(measure(rig, r, &row));
        put_row(rig, r, &row);
    }
    if (!r->rows) printf("\n%.0f MB of the process lie in huge pages\n", (double)es_memory_in_huge_pages() * 1e-6);
    return ES_OK;
}

/* A model of a published shape in a temporary file, which is gone when the model is closed. */
static es_status open_shape(const settings *s, bool outline, es_model **model)
{
    const es_model_shape *shape = es_model_shape_find(s->shape);
    if (!shape) return es_fail(ES_INVALID, "--shape %s: %s are", s->shape, es_model_shape_list());
    const char *folder = getenv("TMPDIR");
    char path[512];
    if (snprintf(path, sizeof path, "%s/evenshare-bench-%d.gguf", folder ? folder : "/tmp", (int)getpid()) >= (int)sizeof path)
        return es_fail(ES_INVALID, "TMPDIR: the path is too long");
    es_status status = outline ? es_random_model_outline(shape, s->type, path) : es_random_model_write(shape, s->type, 1, path);
    if (status == ES_OK) status = es_model_open(path, model);
    unlink(path);
    return status;
}

static es_status run_model(run *r)
{
    const settings *s = r->settings;
    es_rig_sizes sizes = {.sequences = r->sequences, .page = (int32_t)s->page, .rows = r->sequences * r->chunk,
                          .threads = s->threads == ES_UNSET ? 0 : (int)s->threads,
                          .device = es_device_resolve(es_device_kind_of(s->device))};
    ES_TRY(es_bench_depths(s->depth, r->depth, &r->depths));
    for (int i = 0; i < r->depths; i++)
        if (r->depth[i] + r->tokens > sizes.context) sizes.context = r->depth[i] + r->tokens;
    if (s->page & (s->page - 1)) return es_fail(ES_INVALID, "--page: must be a power of two from 16 to 512");
    if (s->numeric) ES_TRY(es_numeric_parse(s->numeric, &sizes.numeric));
    if (s->kv_type) ES_TRY(es_kv_type_parse(s->kv_type, &sizes.kv_type));
    sizes.weights = es_weights_of(s->weights);
    sizes.attention = strcmp(s->attention, "v1") == 0 ? ES_ATTENTION_V1
                      : strcmp(s->attention, "v2") == 0 ? ES_ATTENTION_V2 : ES_ATTENTION_AUTO;
    if (s->operations && sizes.device != ES_DEVICE_CPU)
        return es_fail(ES_UNSUPPORTED, "--operations: a GPU's step is one graph, whose operations are not timed; add --device cpu");
    if (s->operations) sizes.watch = es_bench_watch(&r->operations);
    es_model *model;
    sizes.random_weights = s->shape && sizes.device == ES_DEVICE_CUDA;
    ES_TRY(s->shape ? open_shape(s, sizes.random_weights, &model) : es_model_open(s->model.path, &model));
    es_rig rig;
    es_status status = es_bench_limits_of(sizes.device, sizes.threads, &r->limits);
    if (status == ES_OK) status = es_rig_open(model, &sizes, &rig);
    if (status == ES_OK) {
        status = run_rows(r, model, &rig);
        es_rig_close(&rig);
    }
    es_model_close(model);
    return status;
}

static int finish(run *r)
{
    if (r->settings->json) r->rows = json_array();
    json_t *machine = es_bench_machine();
    es_status status = ES_OK;
    if (!machine || (r->settings->json && !r->rows)) status = es_fail(ES_NO_MEMORY, "no memory for the report");
    if (status == ES_OK) status = run_model(r);
    int code = status == ES_OK ? 0 : es_command_fail(r->command, status);
    if (status == ES_OK && r->rows) {
        json_object_set_new(machine, "limits", es_bench_limits_json(&r->limits));
        json_t *all = json_pack("{s:O,s:O}", "machine", machine, "rows", r->rows);
        if (!es_bench_print(all)) code = 1;
    }
    json_decref(machine);
    json_decref(r->rows);
    return code;
}

static es_rig_choice choice_of(const char *name)
{
    return strcmp(name, "picked") == 0 ? ES_RIG_CHOOSE_PICKED : strcmp(name, "row") == 0 ? ES_RIG_CHOOSE_ROW : ES_RIG_CHOOSE_NOTHING;
}

static int decode(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_bench_decode, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    run r = {&es_command_bench_decode, "decode", &s, .choice = choice_of(s.choose), .sequences = 1, .tokens = 1, .chunk = 1};
    return finish(&r);
}

static int prefill(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_bench_prefill, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    run r = {&es_command_bench_prefill, "prefill", &s, .sequences = 1, .tokens = (int32_t)s.tokens,
             .chunk = (int32_t)(s.chunk < s.tokens ? s.chunk : s.tokens)};
    return finish(&r);
}

static int batch(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_bench_batch, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    run r = {&es_command_bench_batch, "batch", &s, .choice = choice_of(s.choose), .sequences = (int32_t)s.sequences, .tokens = 1,
             .chunk = 1};
    return finish(&r);
}
