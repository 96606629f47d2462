/* summary.c: {count, min, max, mean, M2, M3, M4} as an operator, and the plain-C kernel that defines its bits. */
#include "fold/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "fold/summary_merge.h"

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

/* --- the faster way --- */

enum { UNIT = ES_RAW_GROUP * ES_RAW_GROUPS };

/* Lanes of a group's sums: [4][lanes]; `bits` may be cut short. */
static void add_group_ref(const uint16_t bits[ES_RAW_GROUP], float sum[4][ES_RAW_LANES])
{
    for (int j = 0; j < ES_RAW_LANES; j++) {
        float s1 = 0, s2 = 0, x3 = 0, y3 = 0, x4 = 0, y4 = 0;
        for (int i = 2 * j; i < ES_RAW_GROUP; i += ES_RAW_LINE) {
            const float x = es_bfloat_to_float(bits[i]), y = es_bfloat_to_float(bits[i + 1]), xx = x * x, yy = y * y;
            s1 = s1 + (x + y);
            s2 = s2 + (xx + yy);
            x3 = fmaf(xx, x, x3), y3 = fmaf(yy, y, y3);
            x4 = fmaf(xx, xx, x4), y4 = fmaf(yy, yy, y4);
        }
        sum[0][j] = s1, sum[1][j] = s2, sum[2][j] = x3 + y3, sum[3][j] = x4 + y4;
    }
}

/* Sixteen lanes in halves: in float32 down to `singles` of them, then in float64. */
static double fold_lanes_ref(const float lane[ES_RAW_LANES], int singles)
{
    float narrow[ES_RAW_LANES];
    double wide[ES_RAW_LANES];
    memcpy(narrow, lane, sizeof narrow);
    for (int width = ES_RAW_LANES / 2; width >= singles; width /= 2)
        for (int i = 0; i < width; i++) narrow[i] = narrow[i] + narrow[i + width];
    for (int i = 0; i < singles; i++) wide[i] = (double)narrow[i];
    for (int width = singles / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) wide[i] = wide[i] + wide[i + width];
    return wide[0];
}

/* One part on top of *sum; how large it is. */
static int add_part_ref(const unsigned char *items, int64_t count, es_raw_powers *sum, double *energy)
{
    double s1 = 0, s2 = 0, s3 = 0, s4 = 0;
    int largest = 0;
    for (int64_t first = 0; first < count; first += UNIT) {
        const int64_t here = count - first < UNIT ? count - first : UNIT;
        uint16_t bits[UNIT] = {0};
        float group[ES_RAW_GROUPS][4][ES_RAW_LANES], unit[4][ES_RAW_LANES];
        memcpy(bits, items + first * 2, (size_t)here * 2);
        for (int g = 0; g < ES_RAW_GROUPS; g++) add_group_ref(bits + g * ES_RAW_GROUP, group[g]);
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < ES_RAW_LANES; j++)
                unit[k][j] = (group[0][k][j] + group[1][k][j]) + (group[2][k][j] + group[3][k][j]);
        s1 += fold_lanes_ref(unit[0], 16);
        s2 += fold_lanes_ref(unit[1], 4), s3 += fold_lanes_ref(unit[2], 4), s4 += fold_lanes_ref(unit[3], 4);
        for (int64_t i = 0; i < here; i++) {
            const int pattern = bits[i], with_sign = (int16_t)bits[i], magnitude = pattern & 0x7FFF;
            sum->high = with_sign > sum->high ? with_sign : sum->high;
            sum->low = pattern > sum->low ? pattern : sum->low;
            sum->zeros += magnitude == 0;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    sum->s1 += s1, sum->s2 += s2, sum->s3 += s3, sum->s4 += s4;
    *energy = s2;
    return largest;
}

static bool raw_powers_ref(const void *items, int64_t parts, int64_t count, size_t stride, es_raw_powers *sum,
                           es_part_size *size)
{
    *sum = (es_raw_powers){0};
    for (int64_t i = 0; i < parts; i++) {
        const int largest = add_part_ref((const unsigned char *)items + (size_t)i * stride, count, sum, &size[i].energy);
        if (!es_raw_is_good(largest)) return false;
        size[i].largest = (double)es_bfloat_to_float((uint16_t)largest);
    }
    return true;
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

/* Without both signs or a zero, least and greatest are not known; such items lie further from 0 than they are wide, or nearly. */
static bool raw_to_summary(const es_raw_powers *sum, int64_t count, es_summary *out)
{
    const bool positive = sum->high > 0, negative = sum->low > 0x8000;
    if (sum->zeros == 0 && !(positive && negative)) return false;
    if (!(sum->s2 - sum->s1 / (double)count * sum->s1 >= sum->s2 / 2)) return false;
    const es_powers p = {.s1 = sum->s1, .s2 = sum->s2, .s3 = sum->s3, .s4 = sum->s4, .zeros = sum->zeros, .count = count,
                         .min = negative ? (double)es_bfloat_to_float((uint16_t)sum->low) : 0,
                         .max = positive ? (double)es_bfloat_to_float((uint16_t)sum->high) : 0};
    summary_identity(NULL, out);
    center(&p, out);
    return true;
}

bool es_summary_parts(const es_summary_kernel *kernel, const void *items, int64_t parts, int64_t count, size_t stride,
                      es_summary *out, es_part_size *size)
{
    if (kernel->type != ES_ITEM_BF16) return false;
    es_raw_powers sum;
    const es_raw_powers_fn raw = kernel->raw ? kernel->raw : raw_powers_ref;
    return raw(items, parts, count, stride, &sum, size) && raw_to_summary(&sum, parts * count, out);
}

void es_summary_block(const es_summary_kernel *kernel, const void *items, int64_t count, es_summary *out)
{
    es_part_size size;
    if (es_summary_parts(kernel, items, 1, count, 0, out, &size)) return;
    es_powers p;
    summary_identity(NULL, out);
    if (!kernel->powers || !kernel->powers(items, count, &p)) powers_ref(kernel->type, items, count, &p, out);
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

void es_summary_merge(es_summary *l, const es_summary *r)
{
    es_summary_join(l, r);
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

#define es_raw_powers_avx2 NULL
#define es_raw_powers_avx512 NULL
#endif

/* An operator's context must outlive it: so there is one constant for each type and level, whose function asks the level's
 * file for the kernel when it is first needed. */
#define KERNEL(TYPE, LEVEL)                                                                          \
    static bool powers_##TYPE##_##LEVEL(const void *items, int64_t count, es_powers *out)            \
    {                                                                                                \
        const es_powers_fn powers = es_powers_##LEVEL(TYPE);                                         \
        return powers && powers(items, count, out);                                                  \
    }
#define KERNELS(LEVEL)                                                                               \
    KERNEL(ES_ITEM_F64, LEVEL)                                                                       \
    KERNEL(ES_ITEM_F32, LEVEL)                                                                       \
    KERNEL(ES_ITEM_F16, LEVEL)                                                                       \
    KERNEL(ES_ITEM_BF16, LEVEL)                                                                      \
    static const es_summary_kernel kernels_##LEVEL[ES_ITEM_TYPES] = {                                \
        [ES_ITEM_F64] = {ES_ITEM_F64, powers_ES_ITEM_F64_##LEVEL, NULL},                             \
        [ES_ITEM_F32] = {ES_ITEM_F32, powers_ES_ITEM_F32_##LEVEL, NULL},                             \
        [ES_ITEM_F16] = {ES_ITEM_F16, powers_ES_ITEM_F16_##LEVEL, NULL},                             \
        [ES_ITEM_BF16] = {ES_ITEM_BF16, powers_ES_ITEM_BF16_##LEVEL, es_raw_powers_##LEVEL},         \
        [ES_ITEM_I32] = {ES_ITEM_I32, NULL, NULL},                                                   \
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
