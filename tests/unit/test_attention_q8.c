/* Keys and values in 8 bits: what attention gives is no further from the exact answer than their rounding explains.
 *
 * Queries, keys and values of random numbers go through the operations of a layer (prepare, attention, merge) in chunks; then
 * every output is held against attention in float64 over the numbers that were never rounded. A number in a group of 32 is rounded
 * by at most half the group's step, which is its largest number over 127 (and 1/2048 of that more, since the step is kept in
 * binary16): so a score is wrong by at most ε = Σ_d (|q_d|·step_k + |k_d|·step_q + step_k·step_q/2) / 2, a weight by at most a
 * factor e^(2ε), and an output by at most (e^(2ε) − 1)·max|v| + step_v/2, and 64·127·step_v / (2·32767) for the weights, which are
 * whole multiples of 1/32767 of a tile's largest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

#include "base/random.h"
#include "device/device.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 64, TOKENS = 300, PAGE = 32, GROUP = 32, Q = HEADS * DIM, KV = KV_HEADS * DIM };
#define BINARY16 (1 + 1.0 / 2048)

typedef struct layer {
    es_device *device;
    es_buffer *q, *k, *v, *rope, *turned, *cache[2], *out;
    es_program program;
} layer;

/* Mostly small numbers with some large ones among them, which spoil the step of their group. */
static float draw(uint32_t what, uint32_t row, uint32_t i)
{
    const double u = es_random_unit(9, what, row, i), big = es_random_unit(10, what, row, i);
    return (float)((u * 2 - 1) * (big < 0.02 ? 4 : 1));
}

static void fill(const layer *l, es_buffer *buffer, uint32_t what, int width, float *copy)
{
    for (uint32_t row = 0; row < TOKENS; row++)
        for (int i = 0; i < width; i++) copy[row * (uint32_t)width + (uint32_t)i] = draw(what, row, (uint32_t)i);
    assert_int_equal(es_device_write(l->device, buffer, 0, copy, (size_t)TOKENS * (size_t)width * sizeof *copy), ES_OK);
}

static es_buffer *room(const layer *l, size_t bytes)
{
    es_buffer *buffer = NULL;
    assert_int_equal(es_device_alloc(l->device, bytes, &buffer), ES_OK);
    return buffer;
}

static void open_layer(layer *l, const char *set, int threads)
{
    const es_attn_shape shape = {HEADS, KV_HEADS, DIM, PAGE};
    const es_device_options options = {.threads = threads, .rows = TOKENS, .spans = 1, .context = TOKENS, .columns = Q,
                                       .attn = shape, .numeric = ES_NUMERIC_F32, .kv_type = ES_KV_Q8_0,
                                       .attention = threads > 1 ? ES_ATTENTION_V2 : ES_ATTENTION_V1, .instruction_set = set};
    *l = (layer){0};
    assert_int_equal(es_device_open_cpu(&options, &l->device), ES_OK);
    const size_t cache = es_kv_page_bytes(&shape, ES_KV_Q8_0) * ((TOKENS + PAGE - 1) / PAGE);
    assert_int_equal(es_kv_page_bytes(&shape, ES_KV_Q8_0), KV_HEADS * PAGE * DIM * 34 / 32);
    l->q = room(l, TOKENS * Q * 4), l->turned = room(l, TOKENS * Q * 4), l->out = room(l, TOKENS * Q * 4);
    l->k = room(l, TOKENS * KV * 4), l->v = room(l, TOKENS * KV * 4), l->rope = room(l, 64);
    l->cache[0] = room(l, cache), l->cache[1] = room(l, cache);
    const es_slice k_cache = {l->cache[0], 0}, v_cache = {l->cache[1], 0};
    es_program_add(&l->program, (es_op){ES_OP_ATTN_PREPARE, .as.attn_prepare = {
        .shape = shape, .q = {l->q, 0}, .k = {l->k, 0}, .v = {l->v, 0}, .q_stride = Q, .q_head_stride = DIM, .kv_stride = KV,
        .rope = {l->rope, 0}, .scale = 1.0f, .q_out = {l->turned, 0}, .k_cache = k_cache, .v_cache = v_cache}});
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

static double step_of(const float *x, int d)
{
    double most = 0;
    for (int i = d / GROUP * GROUP; i < (d / GROUP + 1) * GROUP; i++) most = fmax(most, fabs((double)x[i]));
    return most / 127 * BINARY16;
}

/* How wrong a score may be. */
static double score_bound(const float *q, const float *k)
{
    double bound = 0;
    for (int d = 0; d < DIM; d++) {
        const double q_step = step_of(q, d), k_step = step_of(k, d);
        bound += (fabs((double)q[d]) * k_step + fabs((double)k[d]) * q_step + k_step * q_step / 2) / 2;
    }
    return bound;
}

typedef struct distances {
    double apart, outputs, worst; /* Σ of squares, of the exact ones too; the largest share of its bound */
} distances;

/* One head of one token: exact attention, and its bounds, against what came out. */
static void check_row(const float *q, const float *k, const float *v, int tokens, const float *got, distances *all)
{
    double score[TOKENS], most = -INFINITY, sum = 0, wrong = 0;
    for (int t = 0; t < tokens; t++) {
        score[t] = 0;
        for (int d = 0; d < DIM; d++) score[t] += (double)q[d] * (double)k[t * KV + d];
        most = fmax(most, score[t]);
        wrong = fmax(wrong, score_bound(q, k + t * KV));
    }
    for (int t = 0; t < tokens; t++) sum += score[t] = exp(score[t] - most);
    for (int d = 0; d < DIM; d++) {
        double exact = 0, largest = 0, step = 0;
        for (int t = 0; t < tokens; t++) {
            exact += score[t] / sum * (double)v[t * KV + d];
            largest = fmax(largest, fabs((double)v[t * KV + d]));
            step = fmax(step, step_of(v + t * KV, d));
        }
        const double bound = (exp(2 * wrong) - 1) * largest + step / 2 + 64 * 127 * step / (2 * 32767), apart = fabs((double)got[d] - exact);
        all->apart += apart * apart, all->outputs += exact * exact;
        all->worst = fmax(all->worst, apart / bound);
    }
}

/* Tokens come in chunks, as a prompt's do and then one by one. */
static void run_chunks(const layer *l, float *out)
{
    static const int chunks[] = {150, 100, 40, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    int32_t pages[(TOKENS + PAGE - 1) / PAGE], tokens[TOKENS] = {0};
    for (int i = 0; i < (int)(sizeof pages / sizeof *pages); i++) pages[i] = (i * 3 + 1) % (int)(sizeof pages / sizeof *pages);
    float *q = malloc(TOKENS * Q * sizeof *q), *k = malloc(TOKENS * KV * sizeof *k), *v = malloc(TOKENS * KV * sizeof *v);
    assert_true(q && k && v);
    fill(l, l->q, 0, Q, q), fill(l, l->k, 1, KV, k), fill(l, l->v, 2, KV, v);
    for (int i = 0, done = 0; i < (int)(sizeof chunks / sizeof *chunks); done += chunks[i++]) {
        const size_t at = (size_t)done;
        assert_int_equal(es_device_write(l->device, l->q, 0, q + at * Q, (size_t)chunks[i] * Q * 4), ES_OK);
        assert_int_equal(es_device_write(l->device, l->k, 0, k + at * KV, (size_t)chunks[i] * KV * 4), ES_OK);
        assert_int_equal(es_device_write(l->device, l->v, 0, v + at * KV, (size_t)chunks[i] * KV * 4), ES_OK);
        const es_span span = {.first_row = 0, .rows = chunks[i], .start = done, .pages = pages};
        const es_batch batch = {.rows = chunks[i], .spans = 1, .tokens = tokens, .span = &span};
        assert_int_equal(es_device_submit(l->device, &l->program, &batch), ES_OK);
        assert_int_equal(es_device_read(l->device, l->out, 0, out + at * Q, (size_t)chunks[i] * Q * 4), ES_OK);
    }
    distances all = {0};
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++) {
            const int kv = h / (HEADS / KV_HEADS) * DIM;
            check_row(q + t * Q + h * DIM, k + kv, v + kv, t + 1, out + t * Q + h * DIM, &all);
        }
    const double relative = sqrt(all.apart / all.outputs);
    print_message("outputs are off by %.2f %% in the mean of squares, and by %.1f %% of their bound at most\n", 100 * relative,
                  100 * all.worst);
    assert_true(all.worst <= 1);
    assert_true(relative < 0.025); /* 0.017 is seen */
    free(q), free(k), free(v);
}

static void outputs_are_as_near_as_rounding_allows(void **state)
{
    (void)state;
    float *first = malloc(TOKENS * Q * sizeof *first), *again = malloc(TOKENS * Q * sizeof *again);
    assert_true(first && again);
    layer l;
    open_layer(&l, "reference", 1);
    run_chunks(&l, first);
    close_layer(&l);
    open_layer(&l, NULL, 3);
    run_chunks(&l, again);
    close_layer(&l);
    assert_memory_equal(first, again, TOKENS * Q * sizeof *first);
    free(first), free(again);
}

static void heads_that_do_not_divide_are_refused(void **state)
{
    (void)state;
    const es_device_options options = {.threads = 1, .rows = 1, .spans = 1, .context = 16, .columns = 80, .attn = {1, 1, 80, 16},
                                       .numeric = ES_NUMERIC_F32, .kv_type = ES_KV_Q8_0};
    es_device *device = NULL;
    assert_int_equal(es_device_open_cpu(&options, &device), ES_UNSUPPORTED);
    assert_non_null(strstr(es_error_message(), "multiple of 32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_as_near_as_rounding_allows),
        cmocka_unit_test(heads_that_do_not_divide_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
