/* gate.c: what run and serve do about kernels before they open an engine. */
#include "cli/gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/probe.h"
#include "device/cpu/trust.h"

#define SLOWEST  4.0  /* times; past that a step's time is another thing than what was promised */
#define DEADLINE 30.0 /* seconds for one kernel: generous, the machine may be busy */
enum { MOST = 64 };

/* Speed over the reference of a kernel that was not timed, in round numbers: as evenshare doctor measured them on a Sapphire
 * Rapids. Without the products of bf16 and int8, or their attention, auto takes f32, which is about half as fast;
 * without those of bf16dp it takes bf16, which is half as fast where there is no AMX. */
static const struct {
    const char *operation;
    double avx512, avx2;
} typical[] = {
    {"dot",            120, 55 },
    {"fold",           20,  15 },
    {"decode",         8,   5  },
    {"rmsnorm",        18,  17 },
    {"unit_length",    30,  17 },
    {"gated_norm",     55,  45 },
    {"swiglu",         65,  50 },
    {"axpy",           50,  50 },
    {"scale_gate",     60,  50 },
    {"conv_silu",      60,  45 },
    {"attn_tile",      400, 200},
    {"attn_merge",     26,  22 },
    {"delta_scan",     450, 260},
    {"attn_tile_bf16", 2,   1  },
    {"attn_tile_q8",   120, 50 },
    {"attn_tile_f16",  110, 65 },
    {"encode_f16",     30,  20 },
    {"products",       2,   1  },
    {"product_bf16dp", 2,   1  },
};

static double speed_of(const es_verdicts *verdicts, const char *set, const es_fallback *f, bool *measured)
{
    if (strcmp(set, "reference") == 0) return 1;
    char kernel[64];
    es_verdict_kernel(kernel, set, f->operation, f->type);
    const es_verdict_row *row = es_verdicts_find(verdicts, kernel);
    if (row && row->speedup > 0) return row->speedup;
    *measured = false;
    for (size_t i = 0; i < sizeof typical / sizeof *typical; i++)
        if (strcmp(typical[i].operation, f->operation) == 0)
            return strcmp(set, "avx2") == 0 ? typical[i].avx2 : typical[i].avx512;
    return 1;
}

/* The fastest level below `from` whose kernel of this entry is trusted; 0 is always there. */
static int next_trusted(const es_kernel_sets *sets, const es_verdicts *verdicts, int from, int entry)
{
    for (int level = from - 1; level > 0 && !verdicts->device_hung; level--)
        if (es_kernel_sets_owns(sets, level, entry) &&
            es_kernels_entry_verdict(verdicts, sets->name[level], entry) == ES_VERDICT_TRUSTED)
            return level;
    return 0;
}

int es_gate_fallbacks(const es_verdicts *verdicts, es_fallback *out, int room)
{
    es_kernel_sets sets;
    es_kernel_sets_here(&sets);
    int count = 0;
    for (int i = 0; i < es_kernels_entries(); i++) {
        int best = sets.count - 1;
        while (best > 0 && !es_kernel_sets_owns(&sets, best, i)) best--;
        if (best == 0) continue;
        es_fallback f = {.from = sets.name[best], .measured = true};
        f.verdict = es_kernels_entry_verdict(verdicts, f.from, i);
        if (f.verdict == ES_VERDICT_TRUSTED && !verdicts->device_hung) continue;
        es_kernels_entry(i, &f.operation, &f.type);
        f.to = sets.name[next_trusted(&sets, verdicts, best, i)];
        const double from = speed_of(verdicts, f.from, &f, &f.measured), to = speed_of(verdicts, f.to, &f, &f.measured);
        f.cost = from > to ? from / to : 1;
        if (count < room) out[count] = f;
        count++;
    }
    return count;
}

static bool is_trusted_up_to(const es_kernel_sets *sets, const es_verdicts *verdicts, int top)
{
    for (int level = 1; level <= top; level++)
        for (int i = 0; i < es_kernels_entries(); i++)
            if (es_kernel_sets_owns(sets, level, i) &&
                es_kernels_entry_verdict(verdicts, sets->name[level], i) != ES_VERDICT_TRUSTED)
                return false;
    return !verdicts->device_hung;
}

/* Verdicts that cannot be kept must still bind: then the engine is held to a set that is trusted as a whole. */
static void hold_to_trusted_set(const es_verdicts *verdicts)
{
    es_kernel_sets sets;
    es_kernel_sets_here(&sets);
    int level = sets.count - 1;
    while (level > 0 && !is_trusted_up_to(&sets, verdicts, level)) level--;
    es_log(ES_LOG_NOTICE, "verdicts cannot be kept (%s): this run uses the %s kernels", es_error_message(), sets.name[level]);
    setenv("ES_INSTRUCTION_SET", sets.name[level], 1);
}

static es_status probe_now(es_verdicts *verdicts)
{
    es_log(ES_LOG_NOTICE, "trying this build's kernels in a child process, once (evenshare doctor shows the outcome)");
    verdicts->count = 0;
    ES_TRY(es_probe_kernels(verdicts, &(es_probe_options){.deadline = DEADLINE}));
    if (es_verdicts_save(verdicts) != ES_OK) hold_to_trusted_set(verdicts);
    return ES_OK;
}

static es_status report(const es_verdicts *verdicts, bool allow_slow)
{
    es_fallback fallback[MOST];
    int count = es_gate_fallbacks(verdicts, fallback, MOST);
    if (count > MOST) count = MOST;
    const es_fallback *worst = NULL;
    for (int i = 0; i < count; i++) {
        const es_fallback *f = &fallback[i];
        es_log(ES_LOG_NOTICE, "%s%s%s of %s is not trusted (%s): that of %s serves instead, %s%.1f times slower", f->operation,
               f->type ? " " : "", f->type ? f->type : "", f->from, es_verdict_name(f->verdict), f->to,
               f->measured ? "" : "typically ", f->cost);
        if (!worst || f->cost > worst->cost) worst = f;
    }
    if (!worst || worst->cost <= SLOWEST || allow_slow) return ES_OK;
    return es_fail(ES_UNSUPPORTED,
                   "%s would be %.0f times slower than it should be, and steps would take too long; "
                   "evenshare doctor tells why, --allow-slow starts nevertheless",
                   worst->operation, worst->cost);
}

es_status es_gate_kernels(bool allow_slow)
{
    const char *trust = getenv("ES_TRUST"), *set = getenv("ES_INSTRUCTION_SET");
    if ((trust && strcmp(trust, "all") == 0) || (set && *set)) return ES_OK; /* someone chose by hand */
    es_verdicts *verdicts;
    ES_TRY(es_verdicts_open(&verdicts));
    es_status status = ES_OK;
    if (es_verdicts_load(verdicts) != ES_OK || !es_probe_is_complete(verdicts)) status = probe_now(verdicts);
    if (status == ES_OK) status = report(verdicts, allow_slow);
    free(verdicts);
    return status;
}

static es_status refuse_gpu(const es_verdicts *v)
{
    if (v->device_hung)
        return es_fail(ES_UNSUPPORTED, "the GPU does not answer (evenshare doctor); --device cpu does not need it");
    for (int i = 0; i < v->count; i++)
        if (v->row[i].verdict != ES_VERDICT_TRUSTED)
            return es_fail(ES_UNSUPPORTED,
                           "%s is not trusted on %s (%s: %s); evenshare doctor shows all, --device cpu does without",
                           v->row[i].kernel, v->device, es_verdict_name(v->row[i].verdict), v->row[i].detail);
    return es_fail(ES_UNSUPPORTED, "no kernel of this GPU could be tried; evenshare doctor tells more");
}

es_status es_gate_budget(const es_engine_info *info, double given, bool allow_slow)
{
    if (allow_slow || !(given > 0) || info->decode_seconds <= given) return ES_OK;
    es_verdicts *verdicts;
    ES_TRY(es_verdicts_open(&verdicts));
    es_fallback worst = {0}, fallback[MOST];
    const int count = es_verdicts_load(verdicts) == ES_OK ? es_gate_fallbacks(verdicts, fallback, MOST) : 0;
    for (int i = 0; i < count && i < MOST; i++)
        if (!worst.operation || fallback[i].cost > worst.cost) worst = fallback[i];
    free(verdicts);
    if (!worst.operation) return ES_OK; /* the machine is that slow, and the steps say so */
    return es_fail(ES_UNSUPPORTED,
                   "a decode step takes %.2f ms where %s of %s is not trusted, longer than --step-budget %g; "
                   "evenshare doctor tells why, --allow-slow starts nevertheless",
                   info->decode_seconds * 1e3, worst.operation, worst.from, given * 1e3);
}

es_status es_gate_device(es_device_kind kind)
{
    const char *trust = getenv("ES_TRUST");
    if (kind != ES_DEVICE_CUDA || (trust && strcmp(trust, "all") == 0)) return ES_OK;
    es_verdicts *v;
    ES_TRY(es_verdicts_open_gpu(&v));
    es_status status = ES_OK;
    if (es_verdicts_load(v) != ES_OK) {
        es_log(ES_LOG_NOTICE, "trying this build's GPU kernels in a child process, once (evenshare doctor shows the outcome)");
        v->count = 0;
        status = es_probe_gpu(v, &(es_probe_options){.deadline = DEADLINE});
        if (status == ES_OK && es_verdicts_save(v) != ES_OK)
            es_log(ES_LOG_NOTICE, "verdicts cannot be kept: %s", es_error_message());
    }
    if (status == ES_OK && !es_verdicts_all_trusted(v)) status = refuse_gpu(v);
    free(v);
    return status;
}
