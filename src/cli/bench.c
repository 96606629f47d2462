/* bench.c: measures this machine; what is not about kernels is in bench_*.c. `bench kernels` runs the harness of device/cpu/check.h: whether every kernel computes what
 * its reference computes, and how fast it is.
 *
 * A measurement without the machine it was taken on is worth nothing, so the machine is part of the output. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "device/cpu/check.h"
#include "share/pool.h"

typedef struct settings {
    const char *what, *instruction_set, *only;
    int64_t threads;
    bool json;
} settings;

static const es_option own[] = {
    {"what", 0, ES_OPTION_CHOICE, "kernels", offsetof(settings, what), .fallback = "kernels", .positional = true,
     .help = "what to measure"},
    {"instruction-set", 0, ES_OPTION_CHOICE, "amx|avx512bf16|avx512vnni|avx512|avx2|reference|all", offsetof(settings, instruction_set),
     .environment = "ES_INSTRUCTION_SET", .help = "whose kernels; without it the best that this machine has"},
    {"only", 0, ES_OPTION_TEXT, "NAME", offsetof(settings, only), .help = "only this operation: decode, dot, matmul, ..."},
    {"threads", 't', ES_OPTION_INT, "N", offsetof(settings, threads), .fallback = "1", .min = 1, .max = ES_POOL_MOST_WORKERS,
     .help = "workers of whole products (matvec, matmul); the other rows run on one"},
    {"json", 0, ES_OPTION_FLAG, NULL, offsetof(settings, json), .help = "one JSON object instead of a table"},
    {0}};
static const es_option_group groups[] = {{NULL, own, 0}, {0}};

static int bench(int argc, char **argv);
const es_command es_command_bench = {
    "bench", "measure kernels, steps and prompts on this machine",
    "`bench decode`, `bench prefill`, `bench batch`, `bench attention`, `bench stall`, `bench report` (JSON, CSV and a page with plots), "
    "`bench compare` and `bench make-model` have options of their own (bench decode --help). "
    "What follows is `bench kernels`.\n\n"
    "Runs every kernel on random inputs, compares it with the plain-C reference bit by bit, and times both: the median of "
    "several runs (us), and the best one, from which the rates are taken. GB/s count what has to be read and written at "
    "least, GFLOP/s a fused step as two; x ref is how many times faster than the reference.\n\n"
    "Ends with exit code 1 when a kernel differs from its reference.",
    groups, bench};

static const char *const instruction_sets[] = {"amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "reference"};
enum { SETS = sizeof instruction_sets / sizeof *instruction_sets };

/* "model name" of the first processor; "unknown" where the system does not say. */
static void read_cpu_model(char *name, size_t bytes)
{
    snprintf(name, bytes, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, bytes, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    fclose(file);
}

bool es_bench_print(json_t *report)
{
    const bool whole = report && json_dumpf(report, stdout, JSON_INDENT(1)) == 0;
    putchar('\n');
    json_decref(report);
    return whole;
}

json_t *es_bench_machine(void)
{
    char model[256];
    read_cpu_model(model, sizeof model);
    json_t *sets = json_array();
    for (int i = 0; i < SETS; i++) {
        es_kernels kernels;
        if (es_kernels_select(instruction_sets[i], &kernels) == ES_OK)
            json_array_append_new(sets, json_string(instruction_sets[i]));
    }
    return json_pack("{s:s,s:i,s:o}", "cpu", model, "cores", es_pool_cpus(), "instruction_sets", sets);
}

typedef struct report {
    json_t *rows; /* NULL: a table */
    int different;
} report;

static double per_second(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds * 1e-9 : 0;
}

static void put_json_row(json_t *rows, const es_check_row *row)
{
    json_t *object = json_pack("{s:s,s:s?,s:s?,s:s,s:s,s:s,s:b,s:s,s:I}", "operation", row->operation, "type", row->type,
                               "shape", row->shape, "numeric", "f32", "instruction_set", row->instruction_set, "reference",
                               row->reference, "equal", row->equal, "difference", row->difference, "cases",
                               (json_int_t)row->cases);
    if (!object) return;
    json_object_set_new(object, "seconds", json_real(row->seconds));
    json_object_set_new(object, "best_seconds", json_real(row->best_seconds));
    json_object_set_new(object, "reference_seconds", json_real(row->reference_seconds));
    json_object_set_new(object, "bytes", json_real(row->bytes));
    json_object_set_new(object, "flops", json_real(row->flops));
    json_array_append_new(rows, object);
}

/* A figure, or a dash where nothing was counted. */
static void put_figure(double value)
{
    if (value > 0) printf(" %8.2f", value);
    else printf(" %8s", "-");
}

static void on_row(const es_check_row *row, void *user)
{
    report *r = user;
    r->different += !row->equal;
    if (r->rows) {
        put_json_row(r->rows, row);
        return;
    }
    printf("%-12s %-5s %-10s %-6s %11.3f %11.3f", row->operation, row->type ? row->type : "", row->instruction_set,
           row->equal ? "equal" : "DIFFER", row->seconds * 1e6, row->best_seconds * 1e6);
    put_figure(per_second(row->bytes, row->best_seconds));
    put_figure(per_second(row->flops, row->best_seconds));
    put_figure(row->seconds > 0 ? row->reference_seconds / row->seconds : 0);
    printf("  %s\n", row->equal ? row->shape ? row->shape : "" : row->difference);
    fflush(stdout);
}

static es_status run_set(const settings *s, const char *name, report *r)
{
    es_kernels kernels;
    ES_TRY(es_kernels_select(name, &kernels));
    const es_check_options options = {.timed = true, .threads = (int)s->threads};
    int ran = 0;
    for (int i = 0; i < es_check_count(); i++) {
        const char *operation, *type;
        es_check_name(i, &operation, &type);
        if (s->only && strcmp(s->only, operation) != 0) continue;
        es_check_row row;
        ES_TRY(es_check_run(&kernels, i, &options, &row));
        on_row(&row, r);
        ran++;
    }
    return ran ? ES_OK : es_fail(ES_INVALID, "--only %s: there is no such operation", s->only);
}

static es_status run_kernels(const settings *s, report *r)
{
    if (!s->instruction_set || strcmp(s->instruction_set, "all") != 0) return run_set(s, s->instruction_set, r);
    for (int i = SETS - 1; i >= 0; i--) {
        es_kernels kernels;
        if (es_kernels_select(instruction_sets[i], &kernels) != ES_OK) continue; /* not on this machine */
        ES_TRY(run_set(s, instruction_sets[i], r));
    }
    return ES_OK;
}

es_bench_spread es_bench_spread_of(double *seconds, int count)
{
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && seconds[k] < seconds[k - 1]; k--) {
            const double moved = seconds[k];
            seconds[k] = seconds[k - 1], seconds[k - 1] = moved;
        }
    return (es_bench_spread){seconds[count / 2], seconds[0], seconds[count - 1]};
}

static const struct {
    const char *word;
    const es_command *command;
} others[] = {
    {"decode", &es_command_bench_decode},
    {"prefill", &es_command_bench_prefill},
    {"batch", &es_command_bench_batch},
    {"attention", &es_command_bench_attention},
    {"stall", &es_command_bench_stall},
    {"make-model", &es_command_bench_make_model},
    {"report", &es_command_bench_report},
    {"compare", &es_command_bench_compare},
};

static int bench(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof others / sizeof *others && argc > 1; i++)
        if (strcmp(argv[1], others[i].word) == 0) return others[i].command->run(argc - 1, argv + 1);
    settings s;
    const int done = es_options_parse(&es_command_bench, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    report r = {.rows = s.json ? json_array() : NULL};
    json_t *machine = es_bench_machine();
    if (!machine || (s.json && !r.rows)) {
        json_decref(machine);
        return es_command_fail(&es_command_bench, es_fail(ES_NO_MEMORY, "no memory for the report"));
    }
    if (!s.json) {
        printf("%s, %d cores\n\n", json_string_value(json_object_get(machine, "cpu")), es_pool_cpus());
        printf("%-12s %-5s %-10s %-6s %11s %11s %8s %8s %8s  %s\n", "operation", "type", "set", "bits", "us", "best us",
               "GB/s", "GFLOP/s", "x ref", "timed on");
    }
    const es_status status = run_kernels(&s, &r);
    int code = r.different ? 1 : 0;
    if (status != ES_OK) code = es_command_fail(&es_command_bench, status);
    if (s.json && status == ES_OK) {
        json_t *all = json_pack("{s:O,s:i,s:O}", "machine", machine, "threads", (int)s.threads, "rows", r.rows);
        if (!es_bench_print(all)) code = 1;
    }
    json_decref(machine);
    json_decref(r.rows);
    return code;
}
