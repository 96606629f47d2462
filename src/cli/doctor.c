/* doctor.c: `evenshare doctor` says what this machine has, and which kernels can be trusted on it. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/gate.h"
#include "cli/probe.h"
#include "cli/read_pass.h"
#include "cli/settings.h"
#include "device/cpu/check.h"
#include "device/cpu/trust.h"
#include "device/machine.h"
#include "share/pool.h"
#include "share/team.h"

typedef struct settings {
    const char *only, *probe, *profile;
    double deadline;
    bool json, quick, kept, timed;
} settings;

static const es_option own[] = {
    {"only", 0, ES_OPTION_TEXT, "NAME", offsetof(settings, only), .help = "only kernels with NAME in theirs, like avx2/dot"},
    {"deadline", 0, ES_OPTION_FLOAT, "SECONDS", offsetof(settings, deadline), .fallback = "30", .min = 0.01, .max = 3600,
     .help = "how long one kernel may take before its process is abandoned"},
    {"quick", 0, ES_OPTION_FLAG, NULL, offsetof(settings, quick),
     .help = "right or wrong only: no kernel is timed, no bandwidth measured"},
    {"kept", 0, ES_OPTION_FLAG, NULL, offsetof(settings, kept), .help = "show the verdicts that are kept, run nothing"},
    {"profile", 0, ES_OPTION_TEXT, "FILE", offsetof(settings, profile),
     .help = "write what was measured as a device profile for evenshare plan"},
    {"json", 0, ES_OPTION_FLAG, NULL, offsetof(settings, json), .help = "one JSON object instead of tables"},
    {"probe", 0, ES_OPTION_TEXT, "SET:ROWS", offsetof(settings, probe),
     .help = "used by the program itself: be the child that runs these kernels"},
    {"timed", 0, ES_OPTION_FLAG, NULL, offsetof(settings, timed), .help = "with --probe: time them, too"},
    {0}};
static const es_option_group groups[] = {{NULL, own, 0}, {0}};

static int doctor(int argc, char **argv);
const es_command es_command_doctor = {
    "doctor", "tell what this machine has, and which kernels can be trusted on it",
    "Runs every kernel in a child process with a deadline and compares it with the plain-C reference, bit by bit. The "
    "verdicts:\n\n"
    "trusted (ran, and equals the reference), wrong (ran, and does not), crashed, hung (did not come back: its process is "
    "abandoned; if it cannot even be killed, nothing more is launched on the device), absent (this processor lacks it), never "
    "run here (known to be fatal on this device). They are kept in $XDG_CACHE_HOME/evenshare for this device, driver and "
    "build; "
    "serve and run use trusted kernels only.\n\n"
    "Ends with exit code 1 when a kernel is wrong, crashed or hung.",
    groups, doctor};

/* --- measurements --- */

typedef struct measured {
    size_t bytes;                    /* of the memory that was read; 0: not measured */
    double one, all;                 /* bytes per second of one worker, and of all */
    double meet;                     /* seconds for a barrier */
} measured;

static double seconds_now(void)
{
    const es_clock clock = es_clock_monotonic();
    return (double)es_clock_now(&clock) * 1e-9;
}

enum { RUNS = 3, SLICES = 32 };

/* The best of many slices, one after the other: what the machine can do when nobody else uses it. */
static es_status best_rate(es_team *team, const unsigned char *data, size_t bytes, double *rate)
{
    const size_t slice = bytes / SLICES;
    for (int i = 0; i < RUNS * SLICES; i++) {
        const double start = seconds_now();
        ES_TRY(es_read_pass(team, data + (size_t)(i % SLICES) * slice, slice));
        *rate = fmax(*rate, (double)slice / (seconds_now() - start));
    }
    return ES_OK;
}

enum { MEETINGS = 2000 };

static void meet_often(void *argument, int worker)
{
    (void)worker;
    es_team *team = argument;
    for (int i = 0; i < MEETINGS; i++) es_pool_meet(team->pool);
}

/* More than caches hold, where the machine has it: half a gigabyte, or an eighth of what is free. */
static es_status measure(const es_machine *machine, measured *m)
{
    int64_t bytes = machine->memory_available / 8;
    if (bytes > (int64_t)512 << 20) bytes = (int64_t)512 << 20;
    if (bytes < (int64_t)1 << 20) return ES_OK;
    es_team *team;
    ES_TRY(es_team_open(0, &team));
    void *data = malloc((size_t)bytes);
    es_status status = data ? ES_OK : es_fail(ES_NO_MEMORY, "no memory to measure with");
    if (data) {
        memset(data, 1, (size_t)bytes);
        status = best_rate(NULL, data, (size_t)bytes, &m->one);
        if (status == ES_OK) status = best_rate(team, data, (size_t)bytes, &m->all);
        const double start = seconds_now();
        es_team_run(team, meet_often, team);
        m->meet = (seconds_now() - start) / MEETINGS;
        m->bytes = (size_t)bytes;
    }
    free(data);
    es_team_close(team);
    return status;
}

static es_status write_profile(const char *path, const es_verdicts *v, const es_machine *machine, const measured *m)
{
    json_t *o = json_pack("{s:s,s:i,s:i,s:i,s:f,s:f,s:f,s:f,s:f}", "name", v->device, "workers", machine->cpus, "unit_tokens",
                          512, "element_bytes", 4, "worker_gb_per_second", m->one / 1e9, "gb_per_second", m->all / 1e9,
                          "unit_microseconds", 0.2, "meet_microseconds", m->meet * 1e6, "merge_gb_per_second", m->one / 1e9);
    const int code = o ? json_dump_file(o, path, JSON_INDENT(1) | JSON_REAL_PRECISION(4)) : -1;
    json_decref(o);
    return code == 0 ? ES_OK : es_fail(ES_IO, "--profile %s: cannot be written", path);
}

/* --- output --- */

static void print_machine(const es_verdicts *v, const es_machine *machine, const measured *m)
{
    const char *set;
    printf("processor         %s\nsystem            %s\ninstruction sets  ", v->device, v->driver);
    for (int s = 0; (set = es_kernels_set_name(s)); s++) {
        es_kernels kernels;
        if (es_kernels_of_set(set, &kernels) == ES_OK) printf("%s ", set);
    }
    printf("reference\ncpus              %d of %d, %d NUMA node%s\n", machine->cpus, machine->cpus_in_all, machine->numa_nodes,
           machine->numa_nodes == 1 ? "" : "s");
    printf("huge pages        transparent: %s, %s; %lld reserved\n", machine->huge_pages,
           machine->huge_pages_given ? "given to caches" : "not given to caches", (long long)machine->huge_pages_reserved);
    printf("memory            %.1f GB, %.1f GB available", (double)machine->memory / 1e9,
           (double)machine->memory_available / 1e9);
    if (machine->memory_limit) printf(", limited to %.1f GB", (double)machine->memory_limit / 1e9);
    putchar('\n');
    if (m->bytes)
        printf("read bandwidth    %.1f GB/s with one worker, %.1f GB/s with %d; a barrier takes %.1f us\n", m->one / 1e9,
               m->all / 1e9, machine->cpus, m->meet * 1e6);
    if (machine->gpus == 0) printf("GPUs              none\n");
    for (int g = 0; g < machine->gpus; g++) printf("GPU %d             %s (%s)\n", g, machine->gpu[g], machine->gpu_driver);
}

static bool is_failure(es_verdict verdict)
{
    return verdict == ES_VERDICT_WRONG || verdict == ES_VERDICT_CRASHED || verdict == ES_VERDICT_HUNG;
}

static int count_failures(const es_verdicts *v)
{
    int count = v->device_hung;
    for (int i = 0; i < v->count; i++) count += is_failure(v->row[i].verdict);
    return count;
}

/* One line for each kernel, one column for each instruction set. */
static void print_table(const es_verdicts *v)
{
    const char *set, *operation, *type;
    printf("\n%-20s", "kernel");
    for (int s = 0; (set = es_kernels_set_name(s)); s++) printf(" %-22s", set);
    putchar('\n');
    for (int i = 0; i < es_check_count(); i++) {
        es_check_name(i, &operation, &type);
        char name[64], cell[48];
        snprintf(name, sizeof name, "%s%s%s", operation, type ? " " : "", type ? type : "");
        int known = 0;
        for (int s = 0; (set = es_kernels_set_name(s)); s++)
            known += es_verdict_of(v, set, operation, type) != ES_VERDICT_UNKNOWN;
        if (!known) continue; /* not asked for */
        printf("%-20s", name);
        for (int s = 0; (set = es_kernels_set_name(s)); s++) {
            char kernel[64];
            es_verdict_kernel(kernel, set, operation, type);
            const es_verdict_row *row = es_verdicts_find(v, kernel);
            snprintf(cell, sizeof cell, "%s", row ? es_verdict_name(row->verdict) : "-");
            if (row && row->speedup > 0)
                snprintf(cell, sizeof cell, "%s, %.1f x", es_verdict_name(row->verdict), row->speedup);
            printf(" %-22s", cell);
        }
        putchar('\n');
    }
    for (int i = 0; i < v->count; i++)
        if (v->row[i].verdict != ES_VERDICT_TRUSTED && v->row[i].verdict != ES_VERDICT_ABSENT)
            printf("\n%s: %s: %s", v->row[i].kernel, es_verdict_name(v->row[i].verdict), v->row[i].detail);
    if (v->device_hung) printf("\nthe device does not answer: nothing more was launched on it");
    const int failures = count_failures(v);
    if (failures) printf("\n\n%d kernel%s cannot be used\n", failures, failures == 1 ? "" : "s");
    else printf("\nevery kernel that this machine can run is trusted\n");
}

/* One line for each of the GPU's operations, one column for each numeric mode. */
static void print_gpu(const es_verdicts *v)
{
    static const char *const modes[] = {"cuda-f32", "cuda-bf16"};
    printf("\nGPU               %s\ndriver            %s\n\n%-20s %-22s %s\n", v->device, v->driver, "operation", modes[0], modes[1]);
    for (int i = 0; i < v->count; i++) {
        const es_verdict_row *row = &v->row[i];
        const char *operation = strchr(row->kernel, '/');
        if (!operation || strncmp(row->kernel, modes[0], strlen(modes[0])) != 0) continue;
        char other[64];
        snprintf(other, sizeof other, "%s%s", modes[1], operation);
        const es_verdict_row *bf16 = es_verdicts_find(v, other);
        printf("%-20s %-22s %s\n", operation + 1, es_verdict_name(row->verdict), bf16 ? es_verdict_name(bf16->verdict) : "-");
    }
    for (int i = 0; i < v->count; i++)
        if (v->row[i].verdict != ES_VERDICT_TRUSTED)
            printf("%s: %s: %s\n", v->row[i].kernel, es_verdict_name(v->row[i].verdict), v->row[i].detail);
    if (es_verdicts_all_trusted(v)) printf("every operation is trusted: --device auto computes on this GPU\n");
    if (v->device_hung) printf("the GPU does not answer: nothing more was launched on it\n");
}

static void print_fallbacks(const es_verdicts *v)
{
    es_fallback f[64];
    const int count = es_gate_fallbacks(v, f, 64);
    for (int i = 0; i < count && i < 64; i++)
        printf("%s%s%s: %s serves in place of %s, %s%.1f times slower\n", f[i].operation, f[i].type ? " " : "",
               f[i].type ? f[i].type : "", f[i].to, f[i].from, f[i].measured ? "" : "typically ", f[i].cost);
}

static json_t *machine_json(const es_machine *machine)
{
    json_t *gpus = json_array(), *o = json_object();
    for (int g = 0; g < machine->gpus; g++) json_array_append_new(gpus, json_string(machine->gpu[g]));
    json_object_set_new(o, "cpus", json_integer(machine->cpus));
    json_object_set_new(o, "cpus_in_all", json_integer(machine->cpus_in_all));
    json_object_set_new(o, "numa_nodes", json_integer(machine->numa_nodes));
    json_object_set_new(o, "transparent_huge_pages", json_string(machine->huge_pages));
    json_object_set_new(o, "transparent_huge_pages_given", json_boolean(machine->huge_pages_given));
    json_object_set_new(o, "huge_pages", json_integer(machine->huge_pages_reserved));
    json_object_set_new(o, "memory", json_integer(machine->memory));
    json_object_set_new(o, "memory_available", json_integer(machine->memory_available));
    json_object_set_new(o, "memory_limit", json_integer(machine->memory_limit));
    json_object_set_new(o, "gpus", gpus);
    json_object_set_new(o, "gpu_driver", json_string(machine->gpu_driver));
    return o;
}

static void append_row(json_t *kernels, const es_verdict_row *row)
{
    json_array_append_new(kernels, json_pack("{s:s,s:s,s:s,s:f}", "kernel", row->kernel, "verdict", es_verdict_name(row->verdict),
                                             "detail", row->detail, "speedup", row->speedup));
}

static void print_json(const es_verdicts *v, const es_verdicts *gpu, const es_machine *machine, const measured *m)
{
    json_t *kernels = json_array(), *fallbacks = json_array();
    for (int i = 0; i < v->count; i++) append_row(kernels, &v->row[i]);
    for (int i = 0; gpu && i < gpu->count; i++) append_row(kernels, &gpu->row[i]);
    es_fallback f[64];
    const int count = es_gate_fallbacks(v, f, 64);
    for (int i = 0; i < count && i < 64; i++)
        json_array_append_new(fallbacks,
                              json_pack("{s:s,s:s?,s:s,s:s,s:f,s:b}", "operation", f[i].operation, "type", f[i].type, "from",
                                        f[i].from, "to", f[i].to, "times_slower", f[i].cost, "measured", f[i].measured));
    json_t *o = json_pack("{s:s,s:s,s:s,s:b,s:o,s:o}", "device", v->device, "driver", v->driver, "build", v->build,
                          "device_hung", v->device_hung, "kernels", kernels, "fallbacks", fallbacks);
    json_object_set_new(o, "machine", machine_json(machine));
    if (m->bytes)
        json_object_set_new(
            o, "bandwidth",
            json_pack("{s:f,s:f,s:f}", "one_worker", m->one, "all_workers", m->all, "barrier_seconds", m->meet));
    json_dumpf(o, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(o);
}

/* --- the command --- */

/* Kernels that were not asked for keep the verdicts they had. */
static es_status find_verdicts(const settings *s, es_verdicts *v)
{
    if (s->kept) return es_verdicts_load(v);
    if (!s->only || es_verdicts_load(v) != ES_OK) v->count = 0;
    v->device_hung = false;
    ES_TRY(es_probe_kernels(v, &(es_probe_options){.deadline = s->deadline, .timed = !s->quick, .only = s->only}));
    if (s->only && !es_probe_is_complete(v)) return ES_OK; /* half a list would pass for the whole */
    if (es_verdicts_save(v) != ES_OK) fprintf(stderr, "evenshare doctor: verdicts are not kept: %s\n", es_error_message());
    return ES_OK;
}

/* The GPU's verdicts, or NULL where there is no GPU, or no library that could use it. */
static es_verdicts *find_gpu_verdicts(const settings *s)
{
    es_verdicts *v = NULL;
    if (es_verdicts_open_gpu(&v) != ES_OK) return NULL;
    const bool kept = es_verdicts_load(v) == ES_OK;
    if (s->kept) return v;
    if (!s->only || !kept) v->count = 0;
    v->device_hung = false;
    const es_probe_options options = {.deadline = s->deadline, .only = s->only};
    if (es_probe_gpu(v, &options) != ES_OK) fprintf(stderr, "evenshare doctor: GPU: %s\n", es_error_message());
    else if ((!s->only || kept) && es_verdicts_save(v) != ES_OK)
        fprintf(stderr, "evenshare doctor: verdicts are not kept: %s\n", es_error_message());
    return v;
}

static es_status work(const settings *s, es_verdicts *v, int *code)
{
    es_machine machine;
    measured m = {0};
    es_machine_look(&machine);
    ES_TRY(find_verdicts(s, v));
    if ((!s->quick && !s->kept) || s->profile) ES_TRY(measure(&machine, &m));
    if (s->profile) ES_TRY(write_profile(s->profile, v, &machine, &m));
    es_verdicts *gpu = find_gpu_verdicts(s);
    if (s->json) {
        print_json(v, gpu, &machine, &m);
    } else {
        print_machine(v, &machine, &m);
        print_table(v);
        if (!s->only) print_fallbacks(v);
        if (gpu) print_gpu(gpu);
    }
    *code = count_failures(v) || (gpu && count_failures(gpu)) ? 1 : 0;
    free(gpu);
    return ES_OK;
}

static int doctor(int argc, char **argv)
{
    settings s;
    const int done = es_options_parse(&es_command_doctor, argc, argv, &s);
    if (done != ES_GO_ON) return done;
    if (s.probe) return es_probe_child(s.probe, s.timed);
    es_verdicts *v = NULL;
    int code = 0;
    es_status status = es_verdicts_open(&v);
    if (status == ES_OK) status = work(&s, v, &code);
    free(v);
    return status == ES_OK ? code : es_command_fail(&es_command_doctor, status);
}
