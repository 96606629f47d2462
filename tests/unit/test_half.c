/* 16-bit floats: exact to float, nearest-even back, for every pattern and around every tie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "base/half.h"

/* The value of a finite binary16 pattern, from the definition. */
static double value_of(unsigned half)
{
    const int exponent = (int)(half >> 10 & 0x1F), fraction = (int)(half & 0x3FF);
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -size : size;
}

static void every_half_becomes_its_value_and_comes_back(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        const float f = es_half_to_float((uint16_t)h);
        if ((h & 0x7C00) == 0x7C00) {
            assert_true((h & 0x3FF) ? isnan(f) : isinf(f));
            assert_int_equal(es_float_bits(f) >> 31, h >> 15);
            assert_int_equal(es_float_to_half(f), (h & 0x3FF) ? (h | 0x200) : h);
            continue;
        }
        assert_true((double)f == value_of(h));
        assert_int_equal(es_float_to_half(f), h); /* also tells −0 from 0 */
    }
}

static void floats_round_to_the_nearest_half_and_ties_to_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7BFF; h++) {
        /* A float is exact at the middle of two halves. */
        const float middle = (float)((value_of(h) + value_of(h + 1)) / 2);
        const unsigned even = h & 1 ? h + 1 : h;
        assert_int_equal(es_float_to_half(middle), even);
        assert_int_equal(es_float_to_half(-middle), even | 0x8000);
        assert_int_equal(es_float_to_half(nextafterf(middle, 0)), h);
        assert_int_equal(es_float_to_half(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(es_float_to_half(65519.996f), 0x7BFF);
    assert_int_equal(es_float_to_half(65520.0f), 0x7C00);
    assert_int_equal(es_float_to_half(3e38f), 0x7C00);
    assert_int_equal(es_float_to_half(-INFINITY), 0xFC00);
    assert_int_equal(es_float_to_half(1e-45f), 0);
}

static void bfloats_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x7F7F; b++) {
        const uint32_t even = b & 1 ? b + 1 : b;
        assert_int_equal(es_float_to_bfloat(es_float_from_bits(b << 16)), b);
        assert_int_equal(es_float_to_bfloat(es_float_from_bits(b << 16 | 0x8000)), even);
        assert_int_equal(es_float_to_bfloat(es_float_from_bits(b << 16 | 0x7FFF)), b);
        assert_int_equal(es_float_to_bfloat(es_float_from_bits(b << 16 | 0x8001)), b + 1);
        assert_int_equal(es_float_to_bfloat(es_float_from_bits(0x80000000 | b << 16 | 0x8000)), 0x8000 | even);
    }
    assert_int_equal(es_float_to_bfloat(INFINITY), 0x7F80);
    assert_int_equal(es_float_to_bfloat(es_float_from_bits(0x7F7FFFFF)), 0x7F80);
    assert_true(isnan(es_bfloat_to_float(es_float_to_bfloat(es_float_from_bits(0x7F800001)))));
    assert_true(isnan(es_bfloat_to_float(es_float_to_bfloat(es_float_from_bits(0xFFFFFFFF)))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_becomes_its_value_and_comes_back),
        cmocka_unit_test(floats_round_to_the_nearest_half_and_ties_to_even),
        cmocka_unit_test(bfloats_round_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
