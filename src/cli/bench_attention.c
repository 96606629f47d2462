/* bench_attention.c: `bench attention`: the attention of one layer alone, one new token of each sequence, over caches filled with
 * random numbers: context × batch × heads × type of keys and values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_limits.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "device/device.h"
#include "device/random_blocks.h"

enum { MOST_RUNS = 1000, PAGE = 64, PIECE = 1 << 20 };

typedef struct settings {
    const char *depth, *heads, *kv_type, *attention;
    int64_t threads, batch, runs;
    bool json;
} settings;

static const es_option own[] = {
    {"depth", 'd', ES_OPTION_TEXT, "LIST", offsetof(settings, depth), .fallback = "1K,16K,100K",
     .help = "keys of each sequence, the new token's included"},
    {"batch", 'b', ES_OPTION_INT, "N", offsetof(settings, batch), .fallback = "1", .min = 1, .max = 256, .help = "sequences"},
    {"heads", 0, ES_OPTION_TEXT, "Q/KV/D", offsetof(settings, heads), .fallback = "8/2/256",
     .help = "query heads, KV heads, channels of a head"},
    {"kv-type", 0, ES_OPTION_CHOICE, "f32|bf16|f16|q8_0", offsetof(settings, kv_type), .fallback = "bf16",
     .help = "how keys and values are kept, and so the arithmetic"},
    {"attention", 0, ES_OPTION_CHOICE, "auto|v1|v2", offsetof(settings, attention), .fallback = "auto",
     .help = "who walks a long sequence"},
    {"threads", 't', ES_OPTION_INT, "N", offsetof(settings, threads), .min = 1, .max = 512,
     .help = "threads that compute [the CPUs this process may use]"},
    {"runs", 'r', ES_OPTION_INT, "N", offsetof(settings, runs), .fallback = "16", .min = 1, .max = MOST_RUNS,
     .help = "timed runs of each row, after one that is not"},
    {"json", 0, ES_OPTION_FLAG, NULL, offsetof(settings, json), .help = "one JSON object instead of a table"},
    {0}};
static const es_option_group groups[] = {{NULL, own, 0}, {0}};

static int attention(int argc, char **argv);
const es_command es_command_bench_attention = {
    "bench attention", "time one layer's attention alone",
    "One new token of each sequence attends to all its keys. The bound of a row is reading every key and value once at the rate "
    "that is measured first; caches are filled with random numbers, not computed.",
    groups, attention};

/* A device with one layer's cache. */
typedef struct layer {
    es_attn_shape shape;
    es_kv_type kv_type;
    int32_t batch;
    int64_t pages; /* of one sequence */
    es_device *device;
    es_buffer *q, *out, *cache[2];
    es_program program;
    es_span *span;
    int32_t *page, *tokens;
} layer;

static es_status parse_heads(const char *text, es_attn_shape *shape)
{
    char rest;
    *shape = (es_attn_shape){.page = PAGE};
    if (sscanf(text, "%5d/%5d/%5d%c", &shape->query_heads, &shape->kv_heads, &shape->head_dim, &rest) != 3 ||
        shape->query_heads < 1 || shape->kv_heads < 1 || shape->head_dim < 2 || shape->query_heads % shape->kv_heads)
        return es_fail(ES_INVALID, "--heads %s: like 8/2/256 is expected, query heads a multiple of KV heads", text);
    return ES_OK;
}

static void close_layer(layer *l)
{
    if (l->device) {
        es_buffer *const all[] = {l->q, l->out, l->cache[0], l->cache[1]};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) es_device_release(l->device, all[i]);
    }
    es_device_close(l->device);
    es_program_free(&l->program);
    free(l->span);
    free(l->page);
    free(l->tokens);
}

static es_status fill(const layer *l, es_buffer *buffer, size_t bytes, es_kv_type type)
{
    unsigned char *piece = malloc(PIECE);
    if (!piece) return es_fail(ES_NO_MEMORY, "no memory for random numbers");
    es_bits bits = {17};
    es_random_kv(&bits, type, PIECE, 1.0f, piece);
    es_status status = ES_OK;
    for (size_t at = 0; at < bytes && status == ES_OK; at += PIECE)
        status = es_device_write(l->device, buffer, at, piece, bytes - at < PIECE ? bytes - at : PIECE);
    free(piece);
    return status;
}

static es_status open_layer(layer *l, const settings *s, int64_t context)
{
    const es_attn_shape *a = &l->shape;
    l->pages = (context + PAGE - 1) / PAGE;
    const es_device_options options = {
        .threads = s->threads == ES_UNSET ? 0 : (int)s->threads, .rows = l->batch, .spans = l->batch, .context = context,
        .columns = (int64_t)a->query_heads * a->head_dim, .attn = *a, .numeric = ES_NUMERIC_F32, .kv_type = l->kv_type,
        .attention = strcmp(s->attention, "v1") == 0 ? ES_ATTENTION_V1
                     : strcmp(s->attention, "v2") == 0 ? ES_ATTENTION_V2 : ES_ATTENTION_AUTO};
    ES_TRY(es_device_open_cpu(&options, &l->device));
    const size_t row = (size_t)l->batch * (size_t)a->query_heads * (size_t)a->head_dim * sizeof(float);
    const size_t cache = es_kv_page_bytes(a, l->kv_type) * (size_t)l->pages * (size_t)l->batch;
    ES_TRY(es_device_alloc(l->device, row, &l->q));
    ES_TRY(es_device_alloc(l->device, row, &l->out));
    ES_TRY(fill(l, l->q, row, ES_KV_F32));
    for (int i = 0; i < 2; i++) {
        ES_TRY(es_device_alloc(l->device, cache, &l->cache[i]));
        ES_TRY(fill(l, l->cache[i], cache, l->kv_type));
    }
    l->span = calloc((size_t)l->batch, sizeof *l->span);
    l->tokens = calloc((size_t)l->batch, sizeof *l->tokens);
    l->page = calloc((size_t)l->batch * (size_t)l->pages, sizeof *l->page);
    if (!l->span || !l->tokens || !l->page) return es_fail(ES_NO_MEMORY, "no memory for %d sequences", l->batch);
    for (int64_t i = 0; i < l->batch * l->pages; i++) l->page[i] = (int32_t)i;
    es_op op = {ES_OP_ATTN, .as.attn = {.shape = *a, .q = {l->q, 0}, .k_cache = {l->cache[0], 0}, .v_cache = {l->cache[1], 0},
                                        .out = {l->out, 0}}};
    es_program_add(&l->program, op);
    op.kind = ES_OP_ATTN_MERGE;
    es_program_add(&l->program, op);
    return l->program.failed ? es_fail(ES_NO_MEMORY, "no memory for a program of two operations") : ES_OK;
}

static es_status run_once(layer *l, int64_t depth)
{
    for (int32_t b = 0; b < l->batch; b++)
        l->span[b] = (es_span){.first_row = b, .rows = 1, .start = depth - 1, .slot = b, .pages = l->page + b * l->pages};
    const es_batch batch = {.rows = l->batch, .spans = l->batch, .tokens = l->tokens, .span = l->span};
    return es_device_submit(l->device, &l->program, &batch);
}

static es_status measure(layer *l, const settings *s, const es_limits *limits, int64_t depth, json_t *rows)
{
    const es_clock clock = es_clock_monotonic();
    const es_attn_shape *a = &l->shape;
    double seconds[MOST_RUNS];
    ES_TRY(run_once(l, depth));
    for (int i = 0; i < (int)s->runs; i++) {
        const uint64_t start = es_clock_now(&clock);
        ES_TRY(run_once(l, depth));
        seconds[i] = (double)(es_clock_now(&clock) - start) * 1e-9;
    }
    const es_bench_spread spread = es_bench_spread_of(seconds, (int)s->runs);
    const double bytes = 2.0 * (double)es_kv_page_bytes(a, l->kv_type) / PAGE * (double)depth * l->batch;
    const double operations = 4.0 * a->query_heads * a->head_dim * (double)depth * l->batch;
    const double reading = bytes / limits->read_bytes;
    const double peak = limits->peak[es_limit_of_attention(l->kv_type)].per_second;
    const double computing = peak > 0 ? operations / peak : 0;
    const double bound = l->batch / (reading > computing ? reading : computing), median = l->batch / spread.median;
    if (!rows) {
        printf("%8" PRId64 " %5d %10.1f %10.1f %10.1f %10.1f %6.1f%% %10.1f %8.2f\n", depth, l->batch, median,
               l->batch / spread.most, l->batch / spread.least, bound, 100 * median / bound, spread.median * 1e6,
               bytes / spread.median * 1e-9);
        return ES_OK;
    }
    return json_array_append_new(rows, json_pack(
               "{s:s,s:n,s:s,s:s,s:s,s:I,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "bench", "attention", "model", "heads", s->heads,
               "kv_type", s->kv_type, "instruction_set", l->device->info.instruction_set, "depth", (json_int_t)depth, "batch",
               l->batch, "tokens_per_second", median, "min", l->batch / spread.most, "max", l->batch / spread.least,
               "bound_tokens_per_second", bound, "share", median / bound, "seconds", spread.median, "bytes", bytes,
               "operations", operations)) == 0
               ? ES_OK : es_fail(ES_NO_MEMORY, "no memory for the report");
}

static es_status run_rows(const settings *s, es_limits *limits, json_t *rows)
{
    int64_t depth[ES_BENCH_MOST_DEPTHS], most = 1;
    int depths;
    layer l = {.batch = (int32_t)s->batch};
    ES_TRY(es_kv_type_parse(s->kv_type, &l.kv_type));
    ES_TRY(parse_heads(s->heads, &l.shape));
    ES_TRY(es_bench_depths(s->depth, depth, &depths));
    for (int i = 0; i < depths; i++) {
        if (depth[i] < 1) return es_fail(ES_INVALID, "--depth: a token sees itself, so there is at least one key");
        if (depth[i] > most) most = depth[i];
    }
    ES_TRY(es_bench_limits(s->threads == ES_UNSET ? 0 : (int)s->threads, limits));
    es_status status = open_layer(&l, s, most);
    if (status == ES_OK && !rows) {
        es_bench_limits_print(limits);
        printf("%s heads, %s, %s\n\n%8s %5s %10s %10s %10s %10s %7s %10s %8s\n", s->heads, s->kv_type,
               l.device->info.instruction_set, "depth", "batch", "tokens/s", "min", "max", "bound", "share", "us", "GB/s");
    }
    for (int i = 0; i < depths && status == ES_OK; i++) status = measure(&l, s, limits, depth[i], rows);
    close_layer(&l);
    return status;
}

static int attention(int argc, char **argv)
{
    const es_command *command = &es_command_bench_attention;
    settings s;
    const int done = es_options_parse(command, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    es_limits limits;
    json_t *machine = es_bench_machine(), *rows = s.json ? json_array() : NULL;
    es_status status = !machine || (s.json && !rows) ? es_fail(ES_NO_MEMORY, "no memory for the report")
                                                     : run_rows(&s, &limits, rows);
    int code = status == ES_OK ? 0 : es_command_fail(command, status);
    if (status == ES_OK && rows) {
        json_object_set_new(machine, "limits", es_bench_limits_json(&limits));
        json_t *all = json_pack("{s:O,s:O}", "machine", machine, "rows", rows);
        if (!es_bench_print(all)) code = 1;
    }
    json_decref(machine);
    json_decref(rows);
    return code;
}
