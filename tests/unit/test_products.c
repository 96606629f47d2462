/* The products of modes bf16, bf16dp and int8: every instruction set equals the plain-C reference bit for bit, and a token's result
 * does not depend on how many tokens there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "base/random.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

#define MOST_TOKENS 70
#define MOST_COLUMNS 1024

static uint64_t draws;

static float random_float(void)
{
    return (float)(es_random_unit(7, 0, draws++, 0) * 4 - 2);
}

typedef struct bench_input {
    float x[MOST_TOKENS][MOST_COLUMNS];
    const float *rows[MOST_TOKENS];
    uint8_t weights[16 * MOST_COLUMNS * 4];
} bench_input;

static const es_dtype quantised[] = {ES_Q8_0, ES_Q4_0, ES_Q4_1, ES_Q5_0, ES_Q5_1, ES_Q4_K, ES_Q5_K, ES_Q6_K};

/* Random bytes are valid blocks of every type, but for scales that are no numbers: those are made small. */
static void fill(bench_input *in, es_dtype type, int64_t columns)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    for (int t = 0; t < MOST_TOKENS; t++) {
        in->rows[t] = in->x[t];
        for (int64_t i = 0; i < columns; i++) in->x[t][i] = random_float() * (t % 7 == 3 ? 1e-3f : 1.0f);
        if (t % 9 == 5) memset(in->x[t] + 32, 0, 32 * sizeof(float));
    }
    const size_t row = es_dtype_bytes(type, columns);
    for (size_t i = 0; i < 16 * row; i++) in->weights[i] = (uint8_t)(es_random_unit(9, 1, draws++, 0) * 256);
    for (size_t i = 0; i < 16 * row; i += (size_t)info->block_bytes) {
        const size_t at = type == ES_Q6_K ? (size_t)info->block_bytes - 2 : 0;
        for (size_t k = 0; k < 4; k += 2) {
            if (k == 2 && (type == ES_Q8_0 || type == ES_Q4_0 || type == ES_Q5_0 || type == ES_Q6_K)) break;
            const uint16_t half = es_float_to_half(random_float() * 0.01f);
            memcpy(in->weights + i + at + k, &half, 2);
        }
    }
}

typedef struct room {
    int8_t q[16 * MOST_COLUMNS];
    float scale[MOST_COLUMNS], offset[MOST_COLUMNS];
    int8_t data[MOST_TOKENS * MOST_COLUMNS * 2];
    float panel_scale[MOST_TOKENS * MOST_COLUMNS / 32], panel_sum[MOST_TOKENS * MOST_COLUMNS / 32];
} room;

/* Encodes tokens into panels of up to 16, as the device does. */
static int32_t make_panels(const es_products *p, const bench_input *in, int32_t tokens, int64_t columns, bool int8, room *r,
                           es_panel *panel)
{
    const int64_t blocks = (columns + 31) / 32;
    int32_t count = 0;
    for (int32_t t = 0; t < tokens; t += 16, count++) {
        const int32_t n = tokens - t < 16 ? tokens - t : 16;
        int8_t *data = r->data + t * blocks * 32 * (int8 ? 1 : 2);
        float *scale = r->panel_scale + t * blocks, *sum = r->panel_sum + t * blocks;
        if (int8)
            p->encode_int8(in->rows + t, n, columns, data, scale, sum);
        else
            p->encode_bf16(in->rows + t, n, columns, (uint16_t *)(void *)data);
        panel[count] = (es_panel){n, blocks, data, scale, sum};
    }
    return count;
}

static void run_int8(const es_products *p, const bench_input *in, es_dtype type, int32_t count, int32_t tokens, int64_t columns,
                     float *out)
{
    room *r = calloc(1, sizeof *r);
    es_panel panel[MOST_TOKENS / 16 + 1];
    es_int8_rows rows;
    const es_unpack_room place = {r->q, r->scale, r->offset};
    const int32_t panels = make_panels(p, in, tokens, columns, true, r, panel);
    p->unpack[type](in->weights, es_dtype_bytes(type, columns), count, columns, &place, &rows);
    p->int8(&rows, panel, panels, out);
    if (p->one[type] && tokens == 1 && count == 16) { /* the same, in one go */
        float one[16];
        p->one[type](in->weights, es_dtype_bytes(type, columns), columns, panel, one);
        if (memcmp(one, out, sizeof one) != 0) fail_msg("%s: one token in one go differs", es_dtype_get_info(type)->name);
    }
    free(r);
}

static void run_bf16(const es_products *p, const bench_input *in, int32_t count, int32_t tokens, int64_t columns, float *out)
{
    static uint16_t w[16 * MOST_COLUMNS];
    const int64_t blocks = (columns + 31) / 32;
    room *r = calloc(1, sizeof *r);
    es_panel panel[MOST_TOKENS / 16 + 1];
    for (int row = 0; row < count; row++)
        for (int64_t i = 0; i < blocks * 32; i++)
            w[row * blocks * 32 + i] = i < columns ? es_float_to_bfloat((float)in->weights[row * columns + i] * 0.013f - 1.5f) : 0;
    const es_bf16_rows rows = {w, blocks * 32, count, blocks};
    const int32_t panels = make_panels(p, in, tokens, columns, false, r, panel);
    p->bf16(&rows, panel, panels, out);
    free(r);
}

static int instruction_sets(es_products list[3])
{
    int n = 0;
    for (const char *const *name = (const char *const[]){"avx512vnni", "amx", NULL}; *name; name++) {
        es_kernels kernels;
        if (es_kernels_select(*name, &kernels) == ES_OK)
            list[n++] = kernels.products;
        else
            print_message("skipped: %s\n", es_error_message());
    }
    return n;
}

static const int32_t token_counts[] = {1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 70};
#define TOKEN_COUNTS (sizeof token_counts / sizeof *token_counts)

static void assert_same_bits(const float *a, const float *b, int32_t tokens, int32_t rows, const char *what)
{
    for (int32_t t = 0; t < tokens; t++)
        if (memcmp(a + t * 16, b + t * 16, (size_t)rows * sizeof *a) != 0) fail_msg("%s: token %d of %d differs", what, t, tokens);
}

static void int8_equals_the_reference(void **state)
{
    (void)state;
    static bench_input in;
    es_products reference, set[3];
    es_products_reference(&reference);
    const int sets = instruction_sets(set);
    const unsigned mode = es_float_mode_enter();
    for (size_t q = 0; q < sizeof quantised / sizeof *quantised; q++)
        for (int64_t columns = 256; columns <= MOST_COLUMNS; columns *= 2) {
            fill(&in, quantised[q], columns);
            for (size_t k = 0; k < TOKEN_COUNTS; k++)
                for (int32_t rows = 16; rows >= 1; rows -= 5) {
                    static float expected[MOST_TOKENS * 16 + 256], out[MOST_TOKENS * 16 + 256];
                    run_int8(&reference, &in, quantised[q], rows, token_counts[k], columns, expected);
                    for (int s = 0; s < sets; s++) {
                        memset(out, 0xFF, sizeof out);
                        run_int8(&set[s], &in, quantised[q], rows, token_counts[k], columns, out);
                        assert_same_bits(expected, out, token_counts[k], rows, es_dtype_get_info(quantised[q])->name);
                    }
                }
        }
    es_float_mode_leave(mode);
}

static void bf16_equals_the_reference(void **state)
{
    (void)state;
    static bench_input in;
    es_products reference, set[3];
    es_products_reference(&reference);
    const int sets = instruction_sets(set);
    const unsigned mode = es_float_mode_enter();
    const int64_t widths[] = {32, 64, 80, 100, 256, 1000, 1024};
    for (size_t c = 0; c < sizeof widths / sizeof *widths; c++) {
        fill(&in, ES_Q8_0, 1024);
        for (size_t k = 0; k < TOKEN_COUNTS; k++)
            for (int32_t rows = 16; rows >= 1; rows -= 5) {
                static float expected[MOST_TOKENS * 16 + 256], out[MOST_TOKENS * 16 + 256];
                run_bf16(&reference, &in, rows, token_counts[k], widths[c], expected);
                for (int s = 0; s < sets; s++) {
                    memset(out, 0xFF, sizeof out);
                    run_bf16(&set[s], &in, rows, token_counts[k], widths[c], out);
                    assert_same_bits(expected, out, token_counts[k], rows, "bf16");
                }
            }
    }
    es_float_mode_leave(mode);
}

static const char *const sets_of_bf16dp[] = {"avx512bf16", "amx"};

/* Weights are given as they lie in a file, tokens as the device lays them out. */
static void run_bf16dp(const es_kernels *kernels, const uint16_t *w, const es_bf16_tokens *tokens, int32_t rows, int64_t blocks,
                       float *out)
{
    const es_bf16_rows at = {w, blocks * ES_PRODUCT_BLOCK, rows, blocks};
    memset(out, 0xFF, (size_t)tokens->count * ES_PRODUCT_ROWS * sizeof *out);
    kernels->product_bf16dp(&at, tokens, out);
}

/* Numbers of every size, or such as give products near the least float: half of them are denormal. */
static uint16_t random_bfloat(bool tiny)
{
    const uint32_t sign = es_random_unit(5, 0, draws++, 0) < 0.5 ? 0x8000 : 0, fraction = (uint32_t)(es_random_unit(5, 1, draws++, 0) * 128);
    const uint32_t exponent = tiny ? 60 + (uint32_t)(es_random_unit(5, 2, draws++, 0) * 8) : 110 + (uint32_t)(es_random_unit(5, 2, draws++, 0) * 30);
    return (uint16_t)(sign | exponent << 7 | fraction);
}

/* What vdpbf16ps computes: for each pair a fused step of the odd input, then one of the even, denormals flushed in and out. The
 * mode rests on it: a processor that does otherwise must be found out. The fused steps are written out here once more. */
static void the_instruction_takes_odd_then_even(void **state)
{
    (void)state;
    enum { BLOCKS = 128, TIMES = 64 };
    const unsigned mode = es_float_mode_enter();
    for (size_t s = 0; s < sizeof sets_of_bf16dp / sizeof *sets_of_bf16dp; s++) {
        es_kernels kernels;
        if (es_kernels_select(sets_of_bf16dp[s], &kernels) != ES_OK) {
            print_message("skipped: %s\n", es_error_message());
            continue;
        }
        int flushed = 0;
        for (int n = 0; n < TIMES; n++) {
            static uint16_t w[BLOCKS * 32], x[BLOCKS * 32];
            float lane[16] = {0}, got[16];
            for (int i = 0; i < BLOCKS * 32; i++) w[i] = random_bfloat(n % 2), x[i] = random_bfloat(n % 2);
            if (n % 4 == 3) w[5] = 0x0041, x[5] = 0x7E00; /* a denormal that counts as zero, times a large number */
            for (int i = 0; i < BLOCKS * 32; i += 2) {
                const float odd = fmaf(es_bfloat_to_float(w[i + 1]), es_bfloat_to_float(x[i + 1]), lane[i / 2 % 16]);
                lane[i / 2 % 16] = fmaf(es_bfloat_to_float(w[i]), es_bfloat_to_float(x[i]), odd);
                flushed += odd == 0;
            }
            const es_bf16_tokens token = {x, BLOCKS * 32, 1};
            run_bf16dp(&kernels, w, &token, 1, BLOCKS, got);
            for (int half = 8; half > 0; half /= 2)
                for (int j = 0; j < half; j++) lane[j] = lane[j] + lane[j + half];
            assert_memory_equal(got, lane, sizeof *lane);
        }
        assert_true(flushed > 0);
    }
    es_float_mode_leave(mode);
}

static void bf16dp_equals_the_reference(void **state)
{
    (void)state;
    static uint16_t w[16 * MOST_COLUMNS], x[MOST_TOKENS * (MOST_COLUMNS + ES_TOKENS_APART)];
    static float expected[MOST_TOKENS * 16], out[MOST_TOKENS * 16], alone[16];
    es_kernels reference;
    es_kernels_reference(&reference);
    const unsigned mode = es_float_mode_enter();
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) w[i] = random_bfloat(false);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = random_bfloat(false);
    for (int64_t blocks = 1; blocks <= MOST_COLUMNS / 32; blocks = blocks * 2 + 1)
        for (size_t k = 0; k < TOKEN_COUNTS; k++)
            for (int32_t rows = 16; rows >= 1; rows -= 5) {
                const es_bf16_tokens tokens = {x, blocks * 32 + ES_TOKENS_APART, token_counts[k]};
                run_bf16dp(&reference, w, &tokens, rows, blocks, expected);
                for (size_t s = 0; s < sizeof sets_of_bf16dp / sizeof *sets_of_bf16dp; s++) {
                    es_kernels kernels;
                    if (es_kernels_select(sets_of_bf16dp[s], &kernels) != ES_OK) continue;
                    run_bf16dp(&kernels, w, &tokens, rows, blocks, out);
                    assert_same_bits(expected, out, tokens.count, rows, "bf16dp");
                    for (int32_t t = 0; t < tokens.count; t++) { /* nor does a token see its company */
                        const es_bf16_tokens one = {x + t * tokens.stride, tokens.stride, 1};
                        run_bf16dp(&kernels, w, &one, rows, blocks, alone);
                        assert_memory_equal(alone, out + t * 16, (size_t)rows * sizeof *out);
                    }
                }
            }
    es_float_mode_leave(mode);
}

static void a_token_does_not_see_its_company(void **state)
{
    (void)state;
    static bench_input in;
    static float alone[256], together[MOST_TOKENS * 16 + 256];
    es_products set[3];
    const int sets = instruction_sets(set);
    fill(&in, ES_Q4_K, 512);
    for (int s = 0; s < sets; s++) {
        run_int8(&set[s], &in, ES_Q4_K, 16, 70, 512, together);
        for (int32_t t = 0; t < 70; t++) {
            bench_input *one = malloc(sizeof *one);
            memcpy(one, &in, sizeof in);
            one->rows[0] = in.x[t];
            run_int8(&set[s], one, ES_Q4_K, 16, 1, 512, alone);
            free(one);
            assert_memory_equal(alone, together + t * 16, 16 * sizeof(float));
        }
    }
}

/* Each set brings the mode that it is fastest in, and none takes one that only its reference serves. */
static void auto_takes_what_the_set_is_fast_in(void **state)
{
    (void)state;
    static const struct {
        const char *set;
        es_numeric halves, quantised;
    } wanted[] = {{"amx", ES_NUMERIC_BF16, ES_NUMERIC_INT8}, {"avx512bf16", ES_NUMERIC_BF16DP, ES_NUMERIC_INT8},
                  {"avx512vnni", ES_NUMERIC_BF16, ES_NUMERIC_INT8}, {"avx2", ES_NUMERIC_BF16, ES_NUMERIC_INT8},
                  {"reference", ES_NUMERIC_F32, ES_NUMERIC_F32}};
    setenv("ES_TRUST", "all", 1);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        es_kernels kernels;
        if (es_kernels_select(wanted[i].set, &kernels) != ES_OK) continue;
        setenv("ES_INSTRUCTION_SET", wanted[i].set, 1);
        assert_int_equal(es_device_best_numeric(ES_BF16), wanted[i].halves);
        assert_int_equal(es_device_best_numeric(ES_F16), wanted[i].halves);
        assert_int_equal(es_device_best_numeric(ES_Q4_K), wanted[i].quantised);
        assert_int_equal(es_device_best_numeric(ES_F32), ES_NUMERIC_F32);
    }
    unsetenv("ES_INSTRUCTION_SET");
    unsetenv("ES_TRUST");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_equals_the_reference),
        cmocka_unit_test(bf16_equals_the_reference),
        cmocka_unit_test(the_instruction_takes_odd_then_even),
        cmocka_unit_test(bf16dp_equals_the_reference),
        cmocka_unit_test(auto_takes_what_the_set_is_fast_in),
        cmocka_unit_test(a_token_does_not_see_its_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
