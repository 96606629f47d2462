/* Same bits where workers share what is large: attention over a long sequence, whole or in pieces of any size, and the choice from
 * one row of logits, which all of them read together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "device/device.h"
#include "device/pick.h"
#include "share/pool.h"

static const int threads_of[] = {2, 3, 7};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static es_buffer *room(es_device *device, size_t bytes)
{
    es_buffer *buffer = NULL;
    assert_int_equal(es_device_alloc(device, bytes, &buffer), ES_OK);
    return buffer;
}

static float *numbers(uint32_t what, size_t count)
{
    float *x = malloc(count * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) x[i] = (float)es_random_unit(5, what, (uint32_t)i, 0) * 2 - 1;
    return x;
}

enum { HEADS = 4, KV_HEADS = 2, DIM = 32, PAGE = 64, TOKENS = 3000, PAGES = (TOKENS + PAGE - 1) / PAGE };

/* A prompt in chunks, then tokens one by one: what attention gives for each of them. */
static float *attend(int threads, es_attention how)
{
    static const int chunks[] = {1300, 17, 700, 64, 500, 16, 300, 40, 61, 1, 1};
    const es_attn_shape shape = {HEADS, KV_HEADS, DIM, PAGE};
    const es_device_options options = {.threads = threads, .rows = 1300, .spans = 1, .context = TOKENS, .columns = HEADS * DIM,
                                       .attn = shape, .numeric = ES_NUMERIC_F32, .attention = how};
    es_device *device;
    es_program program = {0};
    assert_int_equal(es_device_open_cpu(&options, &device), ES_OK);
    const size_t q_row = HEADS * DIM, kv_row = KV_HEADS * DIM, cache = es_kv_page_bytes(&shape, ES_KV_F32) * PAGES;
    es_buffer *const b[] = {room(device, 1300 * q_row * 4), room(device, 1300 * kv_row * 4), room(device, 1300 * kv_row * 4),
                            room(device, 1300 * q_row * 4), room(device, 1300 * q_row * 4), room(device, 64),
                            room(device, cache), room(device, cache)};
    es_program_add(&program, (es_op){ES_OP_ATTN_PREPARE, .as.attn_prepare = {
        .shape = shape, .q = {b[0], 0}, .k = {b[1], 0}, .v = {b[2], 0}, .q_stride = (int64_t)q_row, .q_head_stride = DIM,
        .kv_stride = (int64_t)kv_row, .rope = {b[5], 0}, .scale = 1.0f, .q_out = {b[3], 0}, .k_cache = {b[6], 0}, .v_cache = {b[7], 0}}});
    es_op attn = {ES_OP_ATTN, .as.attn = {.shape = shape, .q = {b[3], 0}, .k_cache = {b[6], 0}, .v_cache = {b[7], 0}, .out = {b[4], 0}}};
    es_program_add(&program, attn);
    attn.kind = ES_OP_ATTN_MERGE;
    es_program_add(&program, attn);
    float *q = numbers(0, TOKENS * q_row), *k = numbers(1, TOKENS * kv_row), *v = numbers(2, TOKENS * kv_row);
    float *out = calloc(TOKENS * q_row, sizeof *out);
    int32_t pages[PAGES], tokens[1300] = {0};
    for (int i = 0; i < PAGES; i++) pages[i] = (i * 5 + 3) % PAGES;
    size_t at = 0;
    for (size_t i = 0; i < COUNT(chunks); at += (size_t)chunks[i++]) {
        const size_t count = (size_t)chunks[i];
        assert_int_equal(es_device_write(device, b[0], 0, q + at * q_row, count * q_row * sizeof *q), ES_OK);
        assert_int_equal(es_device_write(device, b[1], 0, k + at * kv_row, count * kv_row * sizeof *k), ES_OK);
        assert_int_equal(es_device_write(device, b[2], 0, v + at * kv_row, count * kv_row * sizeof *v), ES_OK);
        const es_span span = {.rows = chunks[i], .start = (int64_t)at, .pages = pages};
        const es_batch batch = {.rows = chunks[i], .spans = 1, .tokens = tokens, .span = &span};
        assert_int_equal(es_device_submit(device, &program, &batch), ES_OK);
        assert_int_equal(es_device_read(device, b[4], 0, out + at * q_row, count * q_row * sizeof *out), ES_OK);
    }
    assert_int_equal(at, TOKENS);
    for (size_t i = 0; i < COUNT(b); i++) es_device_release(device, b[i]);
    es_device_close(device);
    es_program_free(&program);
    free(q), free(k), free(v);
    return out;
}

static void attention_is_the_same_whole_and_in_pieces(void **state)
{
    (void)state;
    const size_t bytes = (size_t)TOKENS * HEADS * DIM * sizeof(float);
    float *alone = attend(1, ES_ATTENTION_V1);
    for (size_t t = 0; t < COUNT(threads_of); t++)
        for (es_attention how = ES_ATTENTION_AUTO; how <= ES_ATTENTION_V2; how++) {
            float *shared = attend(threads_of[t], how);
            assert_memory_equal(alone, shared, bytes);
            free(shared);
        }
    free(alone);
}

enum { VOCABULARY = 20011, ROWS = 4 };

/* Peaked logits on a grid, so that there are ties, with some that are no number; in the last row there is nothing else. */
static void fill(float *logits)
{
    for (int i = 0; i < ROWS * VOCABULARY; i++) {
        const double u = es_random_unit(6, 0, (uint32_t)i, 0) * 2 - 1;
        logits[i] = (float)(int)(u * u * u * u * u * 1500) / 64;
        if (i % 91 == 17 || i / VOCABULARY == ROWS - 1) logits[i] = i % 2 ? NAN : -INFINITY;
    }
}

static void check_row(const float *logits, const es_pick *how, es_picked *picked)
{
    static es_candidate all[VOCABULARY];
    es_picked alone;
    es_pick_row(logits, VOCABULARY, how, VOCABULARY, all, &alone);
    assert_int_equal(picked->best, alone.best);
    assert_true(picked->most == alone.most && picked->total == alone.total && picked->count == alone.count);
    if (picked->count > ES_PICK_MOST) return;
    es_pick_sort(all, alone.count);
    es_pick_sort(picked->candidate, picked->count);
    assert_memory_equal(picked->candidate, all, (size_t)alone.count * sizeof *all);
}

static void a_row_read_together_gives_the_same_candidates(void **state)
{
    (void)state;
    static const es_pick ways[] = {
        {.wanted = 1, .share = 1},
        {.wanted = 1, .share = 0.95, .inverse_temperature = 1.0f},
        {.wanted = 0},
        {.wanted = 1, .share = 1, .inverse_temperature = 1.25f, .top = 40},
        {.wanted = 1, .share = 1, .inverse_temperature = 1.0f, .least = 0.05f},
        {.wanted = 1, .share = 0.999, .inverse_temperature = 0.1f},
        {.wanted = 1, .share = 0.5, .inverse_temperature = 100.0f},
    };
    static float logits[ROWS * VOCABULARY];
    fill(logits);
    for (size_t t = 0; t < COUNT(threads_of); t++) {
        const es_device_options options = {.threads = threads_of[t], .rows = ROWS, .spans = 1, .context = 64, .columns = 32,
                                           .numeric = ES_NUMERIC_F32};
        es_device *device;
        es_program program = {0};
        assert_int_equal(es_device_open_cpu(&options, &device), ES_OK);
        es_buffer *in = room(device, sizeof logits), *out = room(device, ROWS * sizeof(es_picked));
        assert_int_equal(es_device_write(device, in, 0, logits, sizeof logits), ES_OK);
        es_program_add(&program, (es_op){ES_OP_PICK, .as.pick = {.logits = {in, 0}, .vocabulary = VOCABULARY, .most_rows = ROWS, .out = {out, 0}}});
        for (size_t way = 0; way < COUNT(ways); way++)
            for (int32_t rows = 1; rows <= ROWS; rows++) {
                static es_picked picked[ROWS];
                es_pick pick[ROWS];
                for (int32_t r = 0; r < rows; r++) pick[r] = ways[(way + (size_t)r) % COUNT(ways)];
                const es_batch batch = {.outputs = rows, .pick = pick};
                assert_int_equal(es_device_submit(device, &program, &batch), ES_OK);
                assert_int_equal(es_device_read(device, out, 0, picked, sizeof picked), ES_OK);
                for (int32_t r = 0; r < rows; r++)
                    if (pick[r].wanted) check_row(logits + (size_t)r * VOCABULARY, &pick[r], &picked[r]);
            }
        es_device_release(device, in);
        es_device_release(device, out);
        es_device_close(device);
        es_program_free(&program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_is_the_same_whole_and_in_pieces),
                                       cmocka_unit_test(a_row_read_together_gives_the_same_candidates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
