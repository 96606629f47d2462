/* check_case.c: inputs, guarded outputs, comparison and timing for the harness. */
#include "device/cpu/check_case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"

/* A NaN that no kernel computes: what stands around outputs, and in them before they are written. */
#define PATTERN 0x7FE5A5A5u

void *es_case_alloc(es_case *c, int64_t bytes)
{
    void *block = NULL;
    if (c->status == ES_OK && c->blocks < ES_CASE_BLOCKS && bytes >= 0) block = malloc((size_t)bytes + (bytes == 0));
    if (!block) {
        if (c->status == ES_OK)
            c->status = es_fail(ES_NO_MEMORY, "checking %s: no memory for %" PRId64 " bytes", c->row->operation, bytes);
        return NULL;
    }
    c->block[c->blocks++] = block;
    return block;
}

void es_case_end(es_case *c)
{
    for (int i = 0; i < c->blocks; i++) free(c->block[i]);
    c->blocks = c->outputs = 0;
}

static uint32_t next_bits(es_case *c)
{
    const uint32_t key[2] = {20, 26}, counter[4] = {c->draw++, 0, 0, 0};
    return es_philox(key, counter).word[0];
}

int32_t es_case_draw(es_case *c, int32_t below)
{
    return (int32_t)(next_bits(c) % (uint32_t)below);
}

void es_case_fill_bytes(es_case *c, void *to, int64_t bytes)
{
    const uint32_t key[2] = {20, 27};
    for (int64_t i = 0; i < bytes; i += 16) {
        const es_philox_block r = es_philox(key, (const uint32_t[4]){c->draw++, 1, 0, 0});
        memcpy((unsigned char *)to + i, r.word, bytes - i < 16 ? (size_t)(bytes - i) : 16);
    }
}

static float value_of(uint32_t bits, es_case_values values)
{
    static const float special[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 1.17549435e-38f, -1.17549435e-38f, 1e-30f, -1e-30f,
                                    1e-20f, -1e-20f, 1e18f, -1e18f, 1.0f, -1.0f, 88.0f, -88.0f};
    const float unit = (float)(bits >> 8) * 0x1p-24f;
    if (values == ES_VALUES_UNIT) return unit;
    if (values == ES_VALUES_TINY) return 2e-25f * (unit - 0.5f);
    if (values == ES_VALUES_WIDE) return 200.0f * unit - 100.0f;
    if (values == ES_VALUES_SPECIAL && bits % 4 == 0) return special[bits >> 2 & 15];
    return 4.0f * unit - 2.0f;
}

void es_case_fill(es_case *c, float *to, int64_t floats, es_case_values values)
{
    if (!to) return;
    es_case_fill_bytes(c, to, floats * (int64_t)sizeof *to);
    for (int64_t i = 0; i < floats; i++) to[i] = value_of(es_float_bits(to[i]), values);
}

float *es_case_input(es_case *c, int64_t floats, es_case_values values)
{
    float *p = es_case_alloc(c, floats * (int64_t)sizeof *p);
    es_case_fill(c, p, floats, values);
    return p;
}

const es_case_output *es_case_new_output(es_case *c, const char *name, int64_t floats, const float *initial)
{
    es_case_output *o = &c->output[c->outputs++];
    *o = (es_case_output){.name = name, .floats = floats};
    for (int side = 0; side < 2; side++) {
        float *p = es_case_alloc(c, (floats + 2 * ES_CASE_GUARD) * (int64_t)sizeof *p);
        if (!p) return o;
        for (int64_t i = 0; i < floats + 2 * ES_CASE_GUARD; i++) p[i] = es_float_from_bits(PATTERN);
        o->side[side] = p + ES_CASE_GUARD;
        if (initial) memcpy(o->side[side], initial, (size_t)floats * sizeof *initial);
    }
    return o;
}

/* Any NaN equals any other, but for the pattern, which says that nobody wrote. */
static bool same(float a, float b)
{
    const uint32_t x = es_float_bits(a), y = es_float_bits(b);
    return x == y || (isnan(a) && isnan(b) && x != PATTERN && y != PATTERN);
}

static void compare_output(es_case *c, const es_case_output *o, const char *which)
{
    es_check_row *row = c->row;
    for (int64_t i = -ES_CASE_GUARD; i < o->floats + ES_CASE_GUARD && row->equal; i++) {
        const float got = o->side[0][i], expected = o->side[1][i];
        if (same(got, expected)) continue;
        row->equal = false;
        if (i < 0 || i >= o->floats)
            snprintf(row->difference, sizeof row->difference, "%s: writes outside of %s, at %" PRId64 " of %" PRId64, which,
                     o->name, i, o->floats);
        else
            snprintf(row->difference, sizeof row->difference, "%s: %s[%" PRId64 "] is %a, the reference says %a", which,
                     o->name, i, (double)got, (double)expected);
    }
}

void es_case_run(es_case *c, es_case_fn run, void *arguments, const char *format, ...)
{
    if (c->status == ES_OK) {
        char which[96];
        va_list args;
        va_start(args, format);
        vsnprintf(which, sizeof which, format, args);
        va_end(args);
        run(c->candidate, arguments, 0);
        run(&c->reference, arguments, 1);
        for (int i = 0; i < c->outputs; i++) compare_output(c, &c->output[i], which);
        c->row->cases++;
    }
    es_case_end(c);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A sample is as many calls as fill half a millisecond, so that the clock does not matter; samples are short, so that some
 * of them have the machine to themselves. */
es_case_seconds es_case_time(const es_kernels *kernels, es_case_fn run, void *arguments, int side)
{
    enum { MOST = 41, LEAST = 3 };
    const es_clock clock = es_clock_monotonic();
    double sample[MOST], total = 0;
    int64_t calls = 1;
    int samples = -1; /* the first one warms up, and tells how long a call is */
    while (samples < MOST && (samples < LEAST || total < 0.5)) {
        const uint64_t start = es_clock_now(&clock);
        for (int64_t n = 0; n < calls; n++) run(kernels, arguments, side);
        const double each = (double)(es_clock_now(&clock) - start) * 1e-9 / (double)calls;
        total += each * (double)calls;
        if (samples >= 0) sample[samples] = each;
        else if (each < 5e-4) calls = (int64_t)(5e-4 / (each > 1e-9 ? each : 1e-9)) + 1;
        samples++;
    }
    qsort(sample, (size_t)samples, sizeof *sample, compare_doubles);
    return (es_case_seconds){sample[samples / 2], sample[0]};
}

void es_case_run_timed(es_case *c, es_case_fn run, void *arguments, const char *shape, double bytes, double flops)
{
    if (c->timed && c->status == ES_OK) {
        c->row->shape = shape;
        c->row->bytes = bytes;
        c->row->flops = flops;
        void *kept[ES_CASE_BLOCKS];
        const int blocks = c->blocks;
        memcpy(kept, c->block, sizeof kept);
        c->blocks = 0; /* the comparison must not free what is timed next */
        es_case_run(c, run, arguments, "%s", shape);
        const es_case_seconds seconds = es_case_time(c->candidate, run, arguments, 0);
        c->row->seconds = seconds.median;
        c->row->best_seconds = seconds.best;
        c->row->reference_seconds = es_case_time(&c->reference, run, arguments, 1).median;
        memcpy(c->block, kept, sizeof kept);
        c->blocks = blocks;
        es_case_end(c);
        return;
    }
    es_case_run(c, run, arguments, "%s", shape);
}

static void put_half(unsigned char *to, float value)
{
    const uint16_t half = es_float_to_half(value);
    to[0] = (unsigned char)(half & 0xFF);
    to[1] = (unsigned char)(half >> 8);
}

unsigned char *es_case_weights(es_case *c, es_dtype type, int64_t elements)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    const int64_t bytes = (int64_t)es_dtype_bytes(type, elements);
    unsigned char *data = es_case_alloc(c, bytes);
    if (!data) return NULL;
    es_case_fill_bytes(c, data, bytes);
    const bool offset = type == ES_Q4_1 || type == ES_Q5_1 || type == ES_Q4_K || type == ES_Q5_K;
    for (int64_t i = 0; i * info->block < elements; i++) {
        unsigned char *block = data + i * info->block_bytes;
        const float unit = (float)block[info->block_bytes - 1] / 255.0f;
        const float value = (float)(block[0] | block[1] << 8) / 32768.0f - 1.0f;
        if (type == ES_F32) memcpy(block, &value, sizeof value);
        else if (type == ES_BF16) block[1] = (unsigned char)((block[1] & 0x80) | 0x3E); /* ±0.125 to ±0.5 */
        else if (type == ES_F16) put_half(block, value);
        else if (type == ES_Q6_K) put_half(block + 208, 0.001f + 0.001f * value);
        else put_half(block, 0.01f + 0.01f * unit);
        if (offset) put_half(block + 2, -0.1f * unit);
    }
    return data;
}
