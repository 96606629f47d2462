/* Summary statistics: right to float64's last digits, and the same bits from every kernel, alignment and team. */
#include "unit/fold_help.h"

#include <fenv.h>
#include <math.h>

#include "base/half.h"
#include "fold/summary.h"

enum { MOST = 70000 };

static double uniform(uint64_t i)
{
    return (double)(mix(i) >> 11) / 9007199254740992.0;
}

static void store(es_item_type type, void *items, int64_t i, double x)
{
    const float f = (float)x;
    const uint16_t half = type == ES_ITEM_F16 ? es_float_to_half(f) : es_float_to_bfloat(f);
    const int32_t whole = (int32_t)x;
    unsigned char *p = (unsigned char *)items + i * (int64_t)es_item_bytes(type);
    if (type == ES_ITEM_F64) memcpy(p, &x, 8);
    else if (type == ES_ITEM_F32) memcpy(p, &f, 4);
    else if (type == ES_ITEM_I32) memcpy(p, &whole, 4);
    else memcpy(p, &half, 2);
}

static void fill(es_item_type type, void *items, int64_t count, double center, double spread)
{
    for (int64_t i = 0; i < count; i++) {
        const uint64_t u = (uint64_t)i * 8;
        const double x = uniform(u) + uniform(u + 1) + uniform(u + 2) - 1.5;
        store(type, items, i, center + spread * (x + x * x));
    }
}

static void check_within(double got, long double exact, long double error)
{
    if (!(fabsl(got - exact) <= error)) fail_msg("%.17g is not %.17Lg", got, exact);
}

/* Against two passes in long double. */
static void check_against_two_passes(es_item_type type, const void *items, int64_t count, const es_summary *s,
                                     long double error)
{
    long double sum = 0, m2 = 0, m3 = 0, m4 = 0;
    double min = INFINITY, max = -INFINITY;
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++) {
        const double x = es_item_load(type, items, i);
        sum += x, zeros += x == 0;
        min = x < min ? x : min, max = x > max ? x : max;
    }
    const long double mean = sum / count;
    for (int64_t i = 0; i < count; i++) {
        const long double d = es_item_load(type, items, i) - mean;
        m2 += d * d, m3 += d * d * d, m4 += d * d * d * d;
    }
    assert_true(s->count == count && s->zeros == zeros && s->min == min && s->max == max);
    check_within(s->mean, mean, error * (fabsl(mean) + sqrtl(m2 / count)));
    check_within(s->m2, m2, error * m2);
    check_within(s->m3, m3, error * (fabsl(m3) + sqrtl(m2) * m2 / sqrtl((long double)count)));
    check_within(s->m4, m4, error * m4);
}

static const es_item_type types[] = {ES_ITEM_F64, ES_ITEM_F32, ES_ITEM_F16, ES_ITEM_BF16, ES_ITEM_I32};
static const char *const sets[] = {"avx2", "avx512"};

static void the_figures_are_right(void **state)
{
    (void)state;
    static double items[MOST];
    static const struct {
        double center, spread;
    } shapes[] = {{0, 1}, {0, 0.02}, {1, 0.01}, {-300, 40}, {1e4, 1}};
    static const int64_t sizes[] = {1, 2, 3, 15, 16, 17, 8191, 8192, 8193, 16385, MOST};
    for (int t = 0; t < 5; t++)
        for (int k = 0; k < 5; k++)
            for (int n = 0; n < 11; n++) {
                fill(types[t], items, sizes[n], shapes[k].center, shapes[k].spread);
                const es_operator op = es_operator_summary(types[t]);
                const es_source source = es_source_array(items, es_item_bytes(types[t]), sizes[n]);
                es_summary s;
                assert_int_equal(es_fold(NULL, &op, &source, NULL, &s), ES_OK);
                check_against_two_passes(types[t], items, sizes[n], &s, types[t] == ES_ITEM_BF16 ? 3e-7L : 1e-10L);
            }
}

/* An outlier as the first item, which is the pivot: what cancels is at most the block's count times what stays. */
static void a_wild_pivot_costs_three_digits(void **state)
{
    (void)state;
    static double items[9000];
    const double wild[] = {1e3, -1e6, 1e12, 0};
    for (int w = 0; w < 4; w++) {
        fill(ES_ITEM_F64, items, 9000, 0, 1e-3);
        items[0] = items[8192] = wild[w];
        const es_operator op = es_operator_summary(ES_ITEM_F64);
        const es_source source = es_source_array(items, 8, 9000);
        es_summary s;
        assert_int_equal(es_fold(NULL, &op, &source, NULL, &s), ES_OK);
        check_against_two_passes(ES_ITEM_F64, items, 9000, &s, 1e-8L);
    }
}

/* Every kernel equals the reference bit for bit: any count, alignment, and kinds of numbers. */
static void kernels_are_bit_equal(void **state)
{
    (void)state;
    enum { COUNT = 2300 }; /* more than two units of the faster way */
    static unsigned char room[COUNT * 8 + 128];
    static const int shifts[] = {0, 1, 3, 4, 7, 8, 11, 12, 16};
    for (int t = 0; t < 5; t++)
        for (int kind = 0; kind < 5; kind++)
            for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
                unsigned char *items = room + shifts[s];
                const int bytes = (int)es_item_bytes(types[t]);
                fill(types[t], items, COUNT, kind == 1 ? 500 : 0, 1);
                if (kind >= 3) /* any bits at all: NaN of both kinds, infinities, subnormals, huge numbers */
                    for (int64_t i = 0; i < COUNT * bytes; i += 2) {
                        const uint16_t bits = (uint16_t)mix((uint64_t)i + 99);
                        memcpy(items + i, &bits, 2);
                    }
                if (kind == 4) /* all small: subnormals count, whatever the caller's mode */
                    for (int64_t i = bytes - 1; i < COUNT * bytes; i += bytes) items[i] &= 0x80;
                if (kind == 2)
                    for (int i = 0; i < COUNT; i += 2) store(types[t], items, i, i % 4 ? 0.0 : -0.0);
                for (int64_t count = 1; count <= COUNT; count += count < 70 ? 1 : 131) {
                    es_summary expected, got;
                    memset(&expected, 0, sizeof expected), memset(&got, 0, sizeof got);
                    es_summary_block(es_summary_kernel_of(types[t], "reference"), items, count, &expected);
                    for (int k = 0; k < 2; k++) {
                        const es_summary_kernel *kernel = es_summary_kernel_of(types[t], sets[k]);
                        if (!kernel) continue;
                        es_summary_block(kernel, items, count, &got);
                        /* A NaN may be any NaN (both come from ∞ − ∞ of float64's overflow). */
                        if (got.m3 != got.m3 && expected.m3 != expected.m3) got.m3 = expected.m3;
                        if (got.m4 != got.m4 && expected.m4 != expected.m4) got.m4 = expected.m4;
                        if (got.m2 != got.m2 && expected.m2 != expected.m2) got.m2 = expected.m2;
                        if (got.mean != got.mean && expected.mean != expected.mean) got.mean = expected.mean;
                        assert_memory_equal(&got, &expected, sizeof got);
                    }
                }
            }
}

/* Parts that are summed together: the same bits from every kernel, right, and each part's own size. */
static void parts_are_bit_equal_and_right(void **state)
{
    (void)state;
    enum { PARTS = 7, STRIDE = 2050 };
    static uint16_t items[PARTS * STRIDE + 1], side_by_side[PARTS * STRIDE];
    static const int64_t counts[] = {1, 5, 31, 32, 255, 256, 257, 1000, 1024, 1025, STRIDE};
    const es_summary_kernel *plain = es_summary_kernel_of(ES_ITEM_BF16, "reference");
    fill(ES_ITEM_BF16, items, PARTS * STRIDE, 0, 1);
    for (int64_t i = 0; i < STRIDE; i++) items[STRIDE + i] = (uint16_t)(i % 2 * 0x8000); /* a part of zeros, of both signs */
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        es_summary expected, got;
        es_part_size size[PARTS], same[PARTS];
        const bool known = es_summary_parts(plain, items, PARTS, counts[c], STRIDE * 2, &expected, size);
        assert_true(known || counts[c] == 1);
        for (int k = 0; k < 2; k++) {
            const es_summary_kernel *kernel = es_summary_kernel_of(ES_ITEM_BF16, sets[k]);
            if (!kernel) continue;
            memset(&got, 0, sizeof got);
            assert_true(es_summary_parts(kernel, items, PARTS, counts[c], STRIDE * 2, &got, same) == known);
            if (known) assert_memory_equal(&got, &expected, sizeof got);
            if (known) assert_memory_equal(same, size, sizeof size);
        }
        if (!known) continue;
        for (int p = 0; p < PARTS; p++) {
            long double energy = 0;
            double largest = 0;
            memcpy(side_by_side + p * counts[c], items + p * STRIDE, (size_t)counts[c] * 2);
            for (int64_t i = 0; i < counts[c]; i++) {
                const double x = es_item_load(ES_ITEM_BF16, items, p * STRIDE + i);
                energy += x * x;
                largest = fabs(x) > largest ? fabs(x) : largest;
            }
            check_within(size[p].energy, energy, 1e-6L * energy);
            assert_true(size[p].largest == largest);
        }
        check_against_two_passes(ES_ITEM_BF16, side_by_side, PARTS * counts[c], &expected, 3e-7L);
    }
    /* One item that is not finite, or too great: another way has to be taken, whichever the kernel. */
    static const uint16_t odd[] = {0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x4D81, 0xCD81};
    for (size_t o = 0; o < sizeof odd / sizeof *odd; o++) {
        es_summary s;
        es_part_size size[PARTS];
        const uint16_t kept = items[3 * STRIDE + 77];
        items[3 * STRIDE + 77] = odd[o];
        for (int k = 0; k < 3; k++) {
            const es_summary_kernel *kernel = k == 2 ? plain : es_summary_kernel_of(ES_ITEM_BF16, sets[k]);
            if (kernel) assert_false(es_summary_parts(kernel, items, PARTS, 1000, STRIDE * 2, &s, size));
        }
        items[3 * STRIDE + 77] = kept;
    }
}

/* The whole operator: teams, kernels, alignments, runs, and a caller with another rounding mode: one answer. */
static void one_answer(void **state)
{
    (void)state;
    static unsigned char room[MOST * 2 + 64];
    static uint16_t items[MOST];
    fill(ES_ITEM_BF16, items, MOST, 0, 1);
    es_summary first, again;
    const es_operator op = es_operator_summary(ES_ITEM_BF16);
    es_source source = es_source_array(items, 2, MOST);
    assert_int_equal(es_fold(NULL, &op, &source, NULL, &first), ES_OK);
    const int rounding = fegetround();
    static const int shifts[] = {1, 3, 4, 7, 8, 11, 12, 16, 0, 2};
    for (int run = 0; run < 10; run++) {
        es_team *team;
        assert_int_equal(es_team_open(run + 1, &team), ES_OK);
        memcpy(room + shifts[run], items, sizeof items);
        source = es_source_array(room + shifts[run], 2, MOST);
        fesetround(run % 2 ? FE_UPWARD : FE_TOWARDZERO);
        assert_int_equal(es_fold(team, &op, &source, NULL, &again), ES_OK);
        assert_int_equal(fegetround(), run % 2 ? FE_UPWARD : FE_TOWARDZERO);
        fesetround(rounding);
        assert_memory_equal(&again, &first, sizeof first);
        setenv("ES_INSTRUCTION_SET", "reference", 1);
        const es_operator plain = es_operator_summary(ES_ITEM_BF16);
        unsetenv("ES_INSTRUCTION_SET");
        assert_int_equal(es_fold(team, &plain, &source, NULL, &again), ES_OK);
        assert_memory_equal(&again, &first, sizeof first);
        es_team_close(team);
    }
}

static void not_finite_items_are_counted_apart(void **state)
{
    (void)state;
    const float items[] = {NAN, 1, INFINITY, es_float_from_bits(0x7FA00000), -INFINITY, 3, -0.0f, INFINITY};
    const es_operator op = es_operator_summary(ES_ITEM_F32);
    es_source source = es_source_array(items, 4, 8);
    es_summary s;
    assert_int_equal(es_fold(NULL, &op, &source, NULL, &s), ES_OK);
    assert_true(s.count == 3 && s.nans == 2 && s.plus_infs == 2 && s.minus_infs == 1 && s.zeros == 1);
    assert_true(s.min == 0 && !signbit(s.min) && s.max == 3);
    check_within(s.mean, 4.0L / 3, 1e-15L);
    source.count = 1; /* only NaN */
    assert_int_equal(es_fold(NULL, &op, &source, NULL, &s), ES_OK);
    assert_true(s.count == 0 && s.nans == 1 && s.mean == 0 && s.min == INFINITY);
    /* identity ⊕ identity is the identity, not 0/0. */
    es_summary a, b;
    op.identity(op.context, &a), op.identity(op.context, &b);
    es_summary_merge(&a, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(es_summary_deviation(&a) == 0 && es_summary_skewness(&a) == 0 && es_summary_kurtosis(&a) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_figures_are_right), cmocka_unit_test(a_wild_pivot_costs_three_digits),
        cmocka_unit_test(kernels_are_bit_equal), cmocka_unit_test(parts_are_bit_equal_and_right),
        cmocka_unit_test(one_answer),
        cmocka_unit_test(not_finite_items_are_counted_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
