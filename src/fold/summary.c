/* summary.c: {count, min, max, mean, M2, M3, M4} as an operator, and the plain-C kernel that defines its bits. */
#include "fold/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

/* Items of a block: 16 KiB of bf16, so that what a block costs at its end is spread thin. */
#define SUMMARY_BLOCK 8192

/* --- one block --- */

/* Finite items only; the others are counted. Zero when there is none. */
static void powers_ref(es_item_type type, const void *items, int64_t count, es_powers *p, es_summary *out)
{
    double s1[ES_FOLD_LANES] = {0}, s2[ES_FOLD_LANES] = {0}, s3[ES_FOLD_LANES] = {0}, s4[ES_FOLD_LANES] = {0};
    *p = (es_powers){.min = INFINITY, .max = -INFINITY};
    for (int64_t i = 0; i < count; i++) {
        const double x = es_item_load(type, items, i);
        if (!isfinite(x)) {
            out->nans += isnan(x), out->plus_infs += x == INFINITY, out->minus_infs += x == -INFINITY;
            continue;
        }
        if (p->count == 0) p->pivot = x;
        const int lane = (int)(p->count++ % ES_FOLD_LANES);
        const double d = x - p->pivot, d2 = d * d;
        s1[lane] += d;
        s2[lane] += d2;
        s3[lane] = fma(d2, d, s3[lane]);
        s4[lane] = fma(d2, d2, s4[lane]);
        p->min = x < p->min ? x : p->min;
        p->max = x > p->max ? x : p->max;
        p->zeros += x == 0;
    }
    p->s1 = es_fold_lanes_f64(s1), p->s2 = es_fold_lanes_f64(s2);
    p->s3 = es_fold_lanes_f64(s3), p->s4 = es_fold_lanes_f64(s4);
}

/* The faster way in plain C. */
static void fast_powers_ref(es_item_type type, const void *items, int64_t count, es_powers *p)
{
    double s1[ES_FOLD_LANES] = {0}, s2[ES_FOLD_LANES] = {0}, s3[ES_FOLD_LANES] = {0}, s4[ES_FOLD_LANES] = {0};
    *p = (es_powers){.min = INFINITY, .max = -INFINITY, .count = count};
    const int64_t group = ES_FOLD_LANES * ES_POWERS_ROWS;
    for (int64_t first = 0; first < count; first += group) {
        const int64_t end = count - first < group ? count : first + group;
        for (int lane = 0; lane < ES_FOLD_LANES; lane++) {
            float a1 = 0, a2 = 0, a3 = 0, a4 = 0;
            for (int64_t i = first + lane; i < end; i += ES_FOLD_LANES) {
                const float x = (float)es_item_load(type, items, i), q = x * x;
                a1 = a1 + x;
                a2 = a2 + q;
                a3 = fmaf(q, x, a3);
                a4 = fmaf(q, q, a4);
                p->min = (double)x < p->min ? (double)x : p->min;
                p->max = (double)x > p->max ? (double)x : p->max;
                p->zeros += x == 0;
            }
            s1[lane] += (double)a1, s2[lane] += (double)a2, s3[lane] += (double)a3, s4[lane] += (double)a4;
        }
    }
    p->s1 = es_fold_lanes_f64(s1), p->s2 = es_fold_lanes_f64(s2);
    p->s3 = es_fold_lanes_f64(s3), p->s4 = es_fold_lanes_f64(s4);
}

/* Whether moments about the mean come out well from powers about 0 that are right to 3e-7. */
static bool are_good(const es_powers *p)
{
    const double largest = p->max > -p->min ? p->max : -p->min;
    if (!isfinite(p->s2) || !(largest >= 0x1p-30 && largest <= 0x1p30)) return false;
    return p->s2 - p->s1 / (double)p->count * p->s1 >= p->s2 / 2;
}

static bool fast_powers(const es_summary_kernel *kernel, const void *items, int64_t count, es_powers *p)
{
    if (kernel->type != ES_ITEM_BF16) return false;
    if (kernel->fast) kernel->fast(items, count, p);
    else fast_powers_ref(kernel->type, items, count, p);
    return are_good(p);
}

/* From powers about the pivot to central moments; δ is the mean's distance from the pivot. */
static void center(const es_powers *p, es_summary *out)
{
    const double n = (double)p->count, delta = p->s1 / n;
    out->count = p->count, out->zeros = p->zeros;
    out->min = p->min + 0.0, out->max = p->max + 0.0; /* −0 + 0 = +0 */
    out->mean = p->pivot + delta;
    const double m2 = fma(-delta, p->s1, p->s2);
    out->m2 = m2 > 0 ? m2 : m2 == m2 ? 0 : m2;
    out->m3 = p->s3 - 3 * delta * p->s2 + 2 * delta * delta * p->s1;
    const double m4 = p->s4 - 4 * delta * p->s3 + 6 * delta * delta * p->s2 - 3 * delta * delta * delta * p->s1;
    out->m4 = m4 > 0 ? m4 : m4 == m4 ? 0 : m4;
}

static void summary_identity(const void *context, void *partial)
{
    (void)context;
    *(es_summary *)partial = (es_summary){.min = INFINITY, .max = -INFINITY};
}

void es_summary_block(const es_summary_kernel *kernel, const void *items, int64_t count, es_summary *out)
{
    es_powers p;
    summary_identity(NULL, out);
    if (!fast_powers(kernel, items, count, &p) && (!kernel->powers || !kernel->powers(items, count, &p)))
        powers_ref(kernel->type, items, count, &p, out);
    if (p.count > 0) center(&p, out);
}

/* --- the operator --- */

static void summary_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)first;
    es_summary_block(context, items, count, partial);
}

static void summary_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)index;
    const es_summary_kernel one = {.type = ((const es_summary_kernel *)context)->type};
    es_summary_block(&one, item, 1, partial);
}

/* δ = μb − μa, n = na + nb; the formulas stand in docs/folds.md. Multiplications are grouped so that nothing overflows for
 * counts up to 2^63: shares a = na/n and b = nb/n instead of counts. */
static void merge_moments(es_summary *l, const es_summary *r)
{
    const double na = (double)l->count, nb = (double)r->count, n = na + nb;
    const double a = na / n, b = nb / n, delta = r->mean - l->mean, d2 = delta * delta;
    const double m2 = l->m2 + r->m2 + d2 * a * nb;
    const double m3 = l->m3 + r->m3 + d2 * delta * a * nb * (a - b) + 3 * delta * (a * r->m2 - b * l->m2);
    const double m4 = l->m4 + r->m4 + d2 * d2 * a * nb * (a * a - a * b + b * b) +
                      6 * d2 * (a * a * r->m2 + b * b * l->m2) + 4 * delta * (a * r->m3 - b * l->m3);
    l->mean += delta * b;
    l->m2 = m2, l->m3 = m3, l->m4 = m4;
}

void es_summary_merge(es_summary *l, const es_summary *r)
{
    if (r->count > 0) {
        if (l->count > 0) merge_moments(l, r);
        else l->mean = r->mean, l->m2 = r->m2, l->m3 = r->m3, l->m4 = r->m4;
        l->min = r->min < l->min ? r->min : l->min;
        l->max = r->max > l->max ? r->max : l->max;
        l->count += r->count;
    }
    l->zeros += r->zeros, l->nans += r->nans, l->plus_infs += r->plus_infs, l->minus_infs += r->minus_infs;
}

static void summary_merge(const void *context, void *left, const void *right)
{
    (void)context;
    es_summary_merge(left, right);
}

double es_summary_deviation(const es_summary *s)
{
    return s->count > 0 ? sqrt(s->m2 / (double)s->count) : 0;
}

double es_summary_skewness(const es_summary *s)
{
    const double n = (double)s->count;
    return s->m2 > 0 ? s->m3 / n / pow(s->m2 / n, 1.5) : 0;
}

double es_summary_kurtosis(const es_summary *s)
{
    const double n = (double)s->count;
    return s->m2 > 0 ? s->m4 / n / (s->m2 / n * (s->m2 / n)) - 3 : 0;
}

/* --- which kernel --- */

#if !defined(__x86_64__)
es_powers_fn es_powers_avx2(es_item_type type)
{
    (void)type;
    return NULL;
}

es_powers_fn es_powers_avx512(es_item_type type)
{
    (void)type;
    return NULL;
}

es_powers_fn es_fast_powers_avx2(es_item_type type)
{
    (void)type;
    return NULL;
}

es_powers_fn es_fast_powers_avx512(es_item_type type)
{
    (void)type;
    return NULL;
}
#endif

/* An operator's context must outlive it: so there is one constant for each type and level, whose function asks the level's
 * file for the kernel when it is first needed. */
#define KERNEL(TYPE, LEVEL)                                                                          \
    static bool powers_##TYPE##_##LEVEL(const void *items, int64_t count, es_powers *out)            \
    {                                                                                                \
        const es_powers_fn powers = es_powers_##LEVEL(TYPE);                                         \
        return powers && powers(items, count, out);                                                  \
    }
#define FAST_KERNEL(TYPE, LEVEL)                                                                     \
    static bool fast_##TYPE##_##LEVEL(const void *items, int64_t count, es_powers *out)              \
    {                                                                                                \
        return es_fast_powers_##LEVEL(TYPE)(items, count, out);                                      \
    }
#define KERNELS(LEVEL)                                                                                        \
    KERNEL(ES_ITEM_F64, LEVEL)                                                                                \
    KERNEL(ES_ITEM_F32, LEVEL)                                                                                \
    KERNEL(ES_ITEM_F16, LEVEL)                                                                                \
    KERNEL(ES_ITEM_BF16, LEVEL)                                                                               \
    FAST_KERNEL(ES_ITEM_BF16, LEVEL)                                                                          \
    static const es_summary_kernel kernels_##LEVEL[ES_ITEM_TYPES] = {                                         \
        [ES_ITEM_F64] = {ES_ITEM_F64, powers_ES_ITEM_F64_##LEVEL, NULL},                                      \
        [ES_ITEM_F32] = {ES_ITEM_F32, powers_ES_ITEM_F32_##LEVEL, NULL},                                      \
        [ES_ITEM_F16] = {ES_ITEM_F16, powers_ES_ITEM_F16_##LEVEL, NULL},                                      \
        [ES_ITEM_BF16] = {ES_ITEM_BF16, powers_ES_ITEM_BF16_##LEVEL, fast_ES_ITEM_BF16_##LEVEL},              \
        [ES_ITEM_I32] = {ES_ITEM_I32, NULL, NULL},                                                                  \
    };
KERNELS(avx2)
KERNELS(avx512)

static const es_summary_kernel kernels_reference[ES_ITEM_TYPES] = {
    {ES_ITEM_F64, NULL, NULL}, {ES_ITEM_F32, NULL, NULL}, {ES_ITEM_F16, NULL, NULL}, {ES_ITEM_BF16, NULL, NULL},
    {ES_ITEM_I32, NULL, NULL}};

static const struct {
    const char *name;
    bool (*here)(void);
    const es_summary_kernel *kernels;
} levels[] = {{"avx512", es_cpu_has_avx512, kernels_avx512}, {"avx2", es_cpu_has_avx2, kernels_avx2}};

const es_summary_kernel *es_summary_kernel_of(es_item_type type, const char *instruction_set)
{
    if (instruction_set && strcmp(instruction_set, "reference") == 0) return &kernels_reference[type];
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if ((!instruction_set || strcmp(instruction_set, levels[i].name) == 0) && levels[i].here())
            return &levels[i].kernels[type];
    return instruction_set ? NULL : &kernels_reference[type];
}

const es_summary_kernel *es_summary_kernel_best(es_item_type type)
{
    const char *asked = getenv("ES_INSTRUCTION_SET");
    const es_summary_kernel *kernel = es_summary_kernel_of(type, asked && *asked ? asked : NULL);
    return kernel ? kernel : &kernels_reference[type];
}

es_operator es_operator_summary(es_item_type type)
{
    const es_operator op = {.name = "summary", .partial = sizeof(es_summary), .answer = sizeof(es_summary),
                            .block = SUMMARY_BLOCK, .identity = summary_identity, .leaf = summary_leaf,
                            .merge = summary_merge, .fold_block = summary_block};
    es_operator made = es_operator_of_type(type, &op);
    if (made.item > 0) made.context = es_summary_kernel_best(type);
    return made;
}
