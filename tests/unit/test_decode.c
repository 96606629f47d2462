/* Same bits: every decoder equals the reference on every type, also under flush-to-zero. (That the reference equals the Python
 * package is tests/py/test_quants.py.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/half.h"
#include "base/random.h"
#include "device/cpu/decode.h"

enum { BLOCKS = 10000 };

/* Patterns that random bytes seldom give: zeros, subnormals, the largest, infinities, NaNs of both signs. */
static const uint16_t special[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0xFE00,
                                   0x3C00};

/* Random blocks at an odd address, one in four with special numbers in its first or last bytes, where the scales are. */
static unsigned char *make_blocks(es_dtype type, int64_t blocks, unsigned char **allocation)
{
    const size_t each = (size_t)es_dtype_get_info(type)->block_bytes, total = each * (size_t)blocks;
    *allocation = malloc(total + 1);
    assert_non_null(*allocation);
    unsigned char *data = *allocation + 1;
    const uint32_t key[2] = {17, (uint32_t)type};
    for (size_t i = 0; i < total; i += 16) {
        const es_philox_block r = es_philox(key, (const uint32_t[4]){(uint32_t)i, 0, 0, 0});
        memcpy(data + i, r.word, total - i < 16 ? total - i : 16);
    }
    for (int64_t b = 0; b < blocks; b += 4) {
        const uint16_t first = special[(size_t)b / 4 % 12], second = special[(size_t)b / 48 % 12];
        unsigned char *p = data + (size_t)b * each;
        memcpy(p, &first, 2);
        if (each >= 4) memcpy(p + 2, &second, 2);
        memcpy(p + each - 2, &first, 2);
    }
    return data;
}

static bool same(float a, float b)
{
    return es_float_bits(a) == es_float_bits(b) || (a != a && b != b);
}

static void compare(es_dtype type, es_decode_fn decode, int64_t blocks)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    unsigned char *allocation, *data = make_blocks(type, blocks, &allocation);
    const int64_t elements = blocks * info->block;
    float *expect = malloc((size_t)elements * sizeof *expect), *got = malloc((size_t)(elements + 1) * sizeof *got);
    es_decode_ref(type)(data, expect, elements);
    got[elements] = 42;
    decode(data, got, elements);
    for (int64_t i = 0; i < elements; i++)
        if (!same(expect[i], got[i]))
            fail_msg("%s, element %lld: %a, the reference says %a", info->name, (long long)i, (double)got[i],
                     (double)expect[i]);
    assert_true(got[elements] == 42);
    free(expect);
    free(got);
    free(allocation);
}

static void compare_all(es_decode_fn (*decoders)(es_dtype type))
{
    for (int t = 0; t < ES_DTYPES; t++) {
        const es_dtype type = (es_dtype)t;
        assert_true((decoders(type) == NULL) == (es_decode_ref(type) == NULL));
        if (!decoders(type)) continue;
        compare(type, decoders(type), BLOCKS);
        for (int64_t blocks = 1; blocks < 35; blocks++) compare(type, decoders(type), blocks); /* tails of plain types */
    }
}

static void every_weight_type_has_a_reference(void **state)
{
    (void)state;
    for (int t = 0; t < ES_DTYPES; t++) assert_true((es_decode_ref((es_dtype)t) != NULL) == (t != ES_I32));
}

/* A block worked out by hand, so that the reference itself could be wrong. */
static void the_reference_follows_the_formula(void **state)
{
    (void)state;
    unsigned char block[18] = {0x00, 0x38}; /* d = 0.5 */
    float out[32];
    for (int i = 0; i < 16; i++) block[2 + i] = (unsigned char)(i | (15 - i) << 4);
    es_decode_ref(ES_Q4_0)(block, out, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == 0.5f * (float)(i - 8));
        assert_true(out[i + 16] == 0.5f * (float)(7 - i));
    }
}

/* Compute threads flush subnormals; whoever loads weights may not. */
static void the_reference_does_not_depend_on_the_rounding_mode(void **state)
{
    (void)state;
#if defined(__x86_64__)
    for (int t = 0; t < ES_DTYPES; t++) {
        const es_dtype type = (es_dtype)t;
        if (!es_decode_ref(type)) continue;
        unsigned char *allocation, *data = make_blocks(type, 1000, &allocation);
        const size_t elements = (size_t)es_dtype_get_info(type)->block * 1000;
        float *plain = malloc(elements * sizeof *plain), *flushed = malloc(elements * sizeof *flushed);
        es_decode_ref(type)(data, plain, (int64_t)elements);
        const unsigned mode = _mm_getcsr();
        _mm_setcsr(0x9FC0);
        es_decode_ref(type)(data, flushed, (int64_t)elements);
        _mm_setcsr(mode);
        for (size_t i = 0; i < elements; i++) assert_true(same(plain[i], flushed[i]));
        free(plain);
        free(flushed);
        free(allocation);
    }
#else
    skip();
#endif
}

static void avx2_equals_the_reference(void **state)
{
    (void)state;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        compare_all(es_decode_avx2);
        return;
    }
#endif
    skip();
}

static void avx512_equals_the_reference(void **state)
{
    (void)state;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        compare_all(es_decode_avx512);
        return;
    }
#endif
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_type_has_a_reference),
        cmocka_unit_test(the_reference_follows_the_formula),
        cmocka_unit_test(the_reference_does_not_depend_on_the_rounding_mode),
        cmocka_unit_test(avx2_equals_the_reference),
        cmocka_unit_test(avx512_equals_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
