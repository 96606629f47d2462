/* Keys and values in binary16: every number is stored and read as base/half.h says, whatever instructions do it; and attention over
 * them is attention over the same numbers in float32, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

#include "base/half.h"
#include "base/random.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

static const char *const sets[] = {"reference", "avx2", "avx512"};
enum { SETS = sizeof sets / sizeof *sets, HALVES = 1 << 16 };

/* All halves, the floats about halfway between each and the next, and what is past the largest. */
static void every_number_is_stored_as_the_nearest_half(void **state)
{
    (void)state;
    float *x = malloc(HALVES * sizeof *x);
    uint16_t *got = malloc(HALVES * sizeof *got);
    assert_true(x && got);
    for (int s = 0; s < SETS; s++)
        for (int step = -1; step < 3; step++) {
            es_kernels kernels;
            if (es_kernels_select(sets[s], &kernels) != ES_OK) continue;
            for (uint32_t h = 0; h < HALVES; h++) {
                const bool last = (h & 0x7C00) == 0x7C00 || (h & 0x7FFF) == 0x7BFF;
                const float here = es_half_to_float((uint16_t)h), next = last ? here : es_half_to_float((uint16_t)(h + 1));
                const float middle = 0.5f * (here + next);
                x[h] = step == 2 ? here : last ? here * 1.5f : es_float_from_bits(es_float_bits(middle) + (uint32_t)step);
            }
            const unsigned saved = es_float_mode_enter();
            kernels.encode_f16(x, got, HALVES);
            es_float_mode_leave(saved);
            for (uint32_t h = 0; h < HALVES; h++) {
                const uint16_t largest = (uint16_t)((h & 0x8000) | 0x7BFF);
                const bool above = isinf(x[h]) || fabsf(x[h]) > ES_HALF_MOST;
                if (isnan(x[h])) assert_true((got[h] & 0x7FFF) > 0x7C00);
                else assert_int_equal(got[h], above ? largest : es_float_to_half(x[h]));
            }
        }
    free(x), free(got);
}

/* One key whose value is read with weight 1, and whose score is one of its channels. */
static void every_half_is_read_as_it_is(void **state)
{
    (void)state;
    enum { DIM = 256 };
    static uint16_t k[DIM * ES_ATTN_BLOCK], v[DIM * ES_ATTN_BLOCK];
    for (int s = 0; s < SETS; s++) {
        es_kernels kernels;
        if (es_kernels_select(sets[s], &kernels) != ES_OK) continue;
        const unsigned saved = es_float_mode_enter();
        for (uint32_t h = 0; h < HALVES; h++) {
            const uint32_t channel = h % DIM;
            float q[DIM] = {0}, m = -INFINITY, lanes[ES_DOT_LANES] = {0}, o[DIM] = {0}, p[ES_ATTN_TILE];
            const float *row = q;
            const int32_t valid = 1;
            q[channel] = 1.0f;
            memset(k, 0, sizeof k);
            k[channel * ES_ATTN_BLOCK] = (uint16_t)h;
            for (uint32_t d = 0; d < DIM; d++) v[d] = (uint16_t)(h / DIM * DIM + d);
            const es_attn_tile tile = {.q = &row, .valid = &valid, .rows = 1, .head_dim = DIM, .k16 = {k}, .v16 = {v}, .m = &m,
                                       .l = lanes, .o = o, .p = p};
            kernels.attn_tile_f16(&tile);
            const float expected = es_half_to_float((uint16_t)h);
            if (!isfinite(expected)) continue; /* the cache holds none */
            assert_true(m == expected); /* a zero is +0 */
            assert_int_equal(es_float_bits(o[channel]), es_float_bits(expected + 0.0f));
        }
        es_float_mode_leave(saved);
    }
}

enum { HEADS = 4, KV_HEADS = 2, TOKENS = 300, PAGE = 32, MOST_DIM = 64 };

typedef struct layer {
    es_device *device;
    es_buffer *q, *k, *v, *rope, *turned, *cache[2], *out;
    es_program program;
    int32_t dim;
} layer;

static es_buffer *room(const layer *l, size_t bytes)
{
    es_buffer *buffer = NULL;
    assert_int_equal(es_device_alloc(l->device, bytes, &buffer), ES_OK);
    return buffer;
}

static void open_layer(layer *l, const char *set, int threads, es_kv_type type, int32_t dim)
{
    const es_attn_shape shape = {HEADS, KV_HEADS, dim, PAGE};
    const es_device_options options = {.threads = threads, .rows = TOKENS, .spans = 1, .context = TOKENS, .columns = HEADS * dim,
                                       .attn = shape, .numeric = ES_NUMERIC_F32, .kv_type = type,
                                       .attention = threads > 1 ? ES_ATTENTION_V2 : ES_ATTENTION_V1, .instruction_set = set};
    *l = (layer){.dim = dim};
    assert_int_equal(es_device_open_cpu(&options, &l->device), ES_OK);
    assert_int_equal(es_kv_page_bytes(&shape, type), KV_HEADS * PAGE * dim * (type == ES_KV_F16 ? 2 : 4));
    const size_t cache = es_kv_page_bytes(&shape, type) * ((TOKENS + PAGE - 1) / PAGE), row = (size_t)dim * sizeof(float);
    l->q = room(l, TOKENS * HEADS * row), l->turned = room(l, TOKENS * HEADS * row), l->out = room(l, TOKENS * HEADS * row);
    l->k = room(l, TOKENS * KV_HEADS * row), l->v = room(l, TOKENS * KV_HEADS * row), l->rope = room(l, 64);
    l->cache[0] = room(l, cache), l->cache[1] = room(l, cache);
    const es_slice k_cache = {l->cache[0], 0}, v_cache = {l->cache[1], 0};
    es_program_add(&l->program, (es_op){ES_OP_ATTN_PREPARE, .as.attn_prepare = {
        .shape = shape, .q = {l->q, 0}, .k = {l->k, 0}, .v = {l->v, 0}, .q_stride = HEADS * dim, .q_head_stride = dim,
        .kv_stride = KV_HEADS * dim, .rope = {l->rope, 0}, .scale = 1.0f, .q_out = {l->turned, 0}, .k_cache = k_cache,
        .v_cache = v_cache}});
    es_op attn = {ES_OP_ATTN, .as.attn = {.shape = shape, .q = {l->turned, 0}, .k_cache = k_cache, .v_cache = v_cache,
                                          .out = {l->out, 0}}};
    es_program_add(&l->program, attn);
    attn.kind = ES_OP_ATTN_MERGE;
    es_program_add(&l->program, attn);
}

static void close_layer(layer *l)
{
    es_buffer *const all[] = {l->q, l->k, l->v, l->rope, l->turned, l->cache[0], l->cache[1], l->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) es_device_release(l->device, all[i]);
    es_device_close(l->device);
    es_program_free(&l->program);
}

/* Numbers of ordinary size, with some that are subnormal in binary16 and some past its largest; `rounded`: as it keeps them. */
static void fill(float *to, uint32_t what, int64_t count, bool rounded)
{
    for (int64_t i = 0; i < count; i++) {
        const double u = es_random_unit(9, what, (uint32_t)i, 0), size = es_random_unit(9, what, (uint32_t)i, 1);
        float x = (float)((u * 2 - 1) * (size < 0.05 ? 3e-6 : size > 0.998 ? 1e6 : 1));
        if (rounded) x = es_half_to_float(es_float_to_half(fmaxf(-ES_HALF_MOST, fminf(ES_HALF_MOST, x))));
        to[i] = x;
    }
}

/* Tokens come in chunks, as a prompt's do and then one by one. */
static void run_chunks(const char *set, int threads, es_kv_type type, int32_t dim, float *out)
{
    static const int chunks[] = {150, 100, 40, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static float q[TOKENS * HEADS * MOST_DIM], k[TOKENS * KV_HEADS * MOST_DIM], v[TOKENS * KV_HEADS * MOST_DIM];
    int32_t pages[(TOKENS + PAGE - 1) / PAGE], tokens[TOKENS] = {0};
    const size_t q_row = HEADS * (size_t)dim, kv_row = KV_HEADS * (size_t)dim;
    layer l;
    open_layer(&l, set, threads, type, dim);
    for (int i = 0; i < (int)(sizeof pages / sizeof *pages); i++) pages[i] = (i * 3 + 1) % (int)(sizeof pages / sizeof *pages);
    fill(q, 0, (int64_t)(TOKENS * q_row), true);
    fill(k, 1, (int64_t)(TOKENS * kv_row), type == ES_KV_F32);
    fill(v, 2, (int64_t)(TOKENS * kv_row), type == ES_KV_F32);
    for (size_t i = 0, at = 0; i < sizeof chunks / sizeof *chunks; at += (size_t)chunks[i++]) {
        const size_t count = (size_t)chunks[i];
        assert_int_equal(es_device_write(l.device, l.q, 0, q + at * q_row, count * q_row * sizeof *q), ES_OK);
        assert_int_equal(es_device_write(l.device, l.k, 0, k + at * kv_row, count * kv_row * sizeof *k), ES_OK);
        assert_int_equal(es_device_write(l.device, l.v, 0, v + at * kv_row, count * kv_row * sizeof *v), ES_OK);
        const es_span span = {.first_row = 0, .rows = chunks[i], .start = (int64_t)at, .pages = pages};
        const es_batch batch = {.rows = chunks[i], .spans = 1, .tokens = tokens, .span = &span};
        assert_int_equal(es_device_submit(l.device, &l.program, &batch), ES_OK);
        assert_int_equal(es_device_read(l.device, l.out, 0, out + at * q_row, count * q_row * sizeof *out), ES_OK);
    }
    close_layer(&l);
}

/* Heads of 64 channels are the vectors' affair, those of 21 the plain C's. */
static void attention_is_that_of_the_same_numbers_in_float32(void **state)
{
    (void)state;
    static const int32_t dims[] = {64, 21};
    static float first[TOKENS * HEADS * MOST_DIM], again[TOKENS * HEADS * MOST_DIM];
    for (int i = 0; i < 2; i++) {
        run_chunks("reference", 1, ES_KV_F32, dims[i], first);
        for (int j = 0; j < TOKENS * HEADS * dims[i]; j++) assert_true(isfinite(first[j]));
        for (int s = 0; s < SETS; s++) {
            es_kernels kernels;
            if (es_kernels_select(sets[s], &kernels) != ES_OK) continue;
            for (int threads = 1; threads <= 3; threads += 2) {
                run_chunks(sets[s], threads, ES_KV_F16, dims[i], again);
                assert_memory_equal(first, again, (size_t)(TOKENS * HEADS * dims[i]) * sizeof *first);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_stored_as_the_nearest_half),
        cmocka_unit_test(every_half_is_read_as_it_is),
        cmocka_unit_test(attention_is_that_of_the_same_numbers_in_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
