/* The ready-made operators: their answers, and what they make of NaN, infinities, −0, ties and nothing at all. */
#include "unit/fold_help.h"

#include <float.h>
#include <math.h>

#include "base/half.h"

static es_team *three;

static int open_team(void **state)
{
    (void)state;
    return es_team_open(3, &three) == ES_OK ? 0 : -1;
}

static int close_team(void **state)
{
    (void)state;
    es_team_close(three);
    return 0;
}

/* One and three workers must agree bit for bit; every call here checks that. */
static void fold_into(es_operator op, const void *items, size_t item, int64_t count, const void *initial, void *answer)
{
    const es_source source = es_source_array(items, item, count);
    assert_int_equal(es_fold(NULL, &op, &source, initial, answer), ES_OK);
    void *again = malloc(op.answer);
    assert_int_equal(es_fold(three, &op, &source, initial, again), ES_OK);
    assert_memory_equal(answer, again, op.answer);
    free(again);
}

static float signalling_nan(void)
{
    return es_float_from_bits(0x7FA00000);
}

enum { MOST = 20000 };
static float numbers[MOST];

static void fill_numbers(int count)
{
    for (int i = 0; i < count; i++) numbers[i] = (float)((double)(mix((uint64_t)i) >> 11) / 9007199254740992.0 * 2 - 1);
}

static void sums(void **state)
{
    (void)state;
    double answer;
    fold_into(es_operator_sum(ES_ITEM_F32), numbers, 4, 0, NULL, &answer);
    assert_true(answer == 0 && !signbit(answer));
    fill_numbers(MOST);
    long double exact = 0;
    for (int i = 0; i < MOST; i++) exact += numbers[i];
    fold_into(es_operator_sum(ES_ITEM_F32), numbers, 4, MOST, NULL, &answer);
    assert_true(fabsl(answer - exact) < 1e-11L);
    const double initial = DBL_MAX;
    fold_into(es_operator_sum(ES_ITEM_F32), numbers, 4, 100, &initial, &answer);
    assert_true(answer == DBL_MAX);
    numbers[777] = signalling_nan();
    fold_into(es_operator_sum(ES_ITEM_F32), numbers, 4, MOST, NULL, &answer);
    assert_true(isnan(answer));
    const int32_t integers[] = {INT32_MAX, INT32_MAX, 3, INT32_MIN};
    fold_into(es_operator_sum(ES_ITEM_I32), integers, 4, 4, NULL, &answer);
    assert_true(answer == (double)INT32_MAX + 2);
}

/* 2^60 + many ones − 2^60: a plain sum loses the ones, this one keeps them all. */
static void compensated_sums_keep_what_rounding_loses(void **state)
{
    (void)state;
    static double x[MOST];
    for (int i = 0; i < MOST; i++) x[i] = 1;
    x[10] = 0x1p60, x[15000] = -0x1p60;
    double answer;
    fold_into(es_operator_compensated_sum(ES_ITEM_F64), x, 8, MOST, NULL, &answer);
    assert_true(answer == MOST - 2);
    x[3] = INFINITY;
    fold_into(es_operator_compensated_sum(ES_ITEM_F64), x, 8, MOST, NULL, &answer);
    assert_true(answer == INFINITY);
    x[4] = -INFINITY;
    fold_into(es_operator_compensated_sum(ES_ITEM_F64), x, 8, MOST, NULL, &answer);
    assert_true(isnan(answer));
    fold_into(es_operator_compensated_sum(ES_ITEM_F64), x, 8, 0, NULL, &answer);
    assert_true(answer == 0);
}

static void extremes(void **state)
{
    (void)state;
    es_extremes e;
    const float all_nan[] = {NAN, -NAN, signalling_nan()};
    fold_into(es_operator_extremes(ES_ITEM_F32), all_nan, 4, 3, NULL, &e);
    assert_true(e.count == 0 && e.min == INFINITY && e.max == -INFINITY);
    const float zeros[] = {0.0f, -0.0f, NAN, 0.0f};
    fold_into(es_operator_extremes(ES_ITEM_F32), zeros, 4, 4, NULL, &e);
    assert_true(e.count == 3 && e.min == 0 && signbit(e.min) && e.max == 0 && !signbit(e.max));
    /* All negative: a maximum that starts from the smallest positive number would be wrong. */
    const float negative[] = {-3, -FLT_MAX, -FLT_TRUE_MIN};
    fold_into(es_operator_extremes(ES_ITEM_F32), negative, 4, 3, NULL, &e);
    assert_true(e.min == -(double)FLT_MAX && e.max == -(double)FLT_TRUE_MIN);
    fill_numbers(MOST);
    numbers[0] = signalling_nan(), numbers[19000] = 5, numbers[1234] = -5;
    fold_into(es_operator_extremes(ES_ITEM_F32), numbers, 4, MOST, NULL, &e);
    assert_true(e.count == MOST - 1 && e.min == -5 && e.max == 5);
    const es_extremes initial = {-DBL_MAX, DBL_MAX, 0};
    fold_into(es_operator_extremes(ES_ITEM_F32), numbers, 4, MOST, &initial, &e);
    assert_true(e.min == -DBL_MAX && e.max == DBL_MAX);
}

static void args(void **state)
{
    (void)state;
    es_arg a;
    static float same[5000];
    const float values[] = {INFINITY, -INFINITY, 1};
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < 5000; i++) same[i] = values[v];
        same[0] = NAN;
        fold_into(es_operator_arg_min(ES_ITEM_F32), same, 4, 5000, NULL, &a);
        assert_true(a.index == 1 && a.value == (double)values[v]);
        fold_into(es_operator_arg_max(ES_ITEM_F32), same, 4, 5000, NULL, &a);
        assert_true(a.index == 1 && a.value == (double)values[v]);
    }
    for (int i = 0; i < 5000; i++) same[i] = i % 2 ? -0.0f : 0.0f;
    fold_into(es_operator_arg_min(ES_ITEM_F32), same, 4, 5000, NULL, &a);
    assert_true(a.index == 0);
    same[4999] = -1, same[1024] = 2, same[3000] = 2;
    fold_into(es_operator_arg_min(ES_ITEM_F32), same, 4, 5000, NULL, &a);
    assert_true(a.index == 4999 && a.value == -1);
    fold_into(es_operator_arg_max(ES_ITEM_F32), same, 4, 5000, NULL, &a);
    assert_true(a.index == 1024 && a.value == 2);
    for (int i = 0; i < 5000; i++) same[i] = NAN;
    fold_into(es_operator_arg_max(ES_ITEM_F32), same, 4, 5000, NULL, &a);
    assert_true(a.index == -1);
    fold_into(es_operator_arg_max(ES_ITEM_F32), same, 4, 0, NULL, &a);
    assert_true(a.index == -1);
}

static void log_sum_exps(void **state)
{
    (void)state;
    double answer;
    fold_into(es_operator_log_sum_exp(ES_ITEM_F32), numbers, 4, 0, NULL, &answer);
    assert_true(answer == -INFINITY);
    float x[3000];
    for (int i = 0; i < 3000; i++) x[i] = -INFINITY;
    fold_into(es_operator_log_sum_exp(ES_ITEM_F32), x, 4, 3000, NULL, &answer);
    assert_true(answer == -INFINITY);
    x[1500] = 12.5f;
    fold_into(es_operator_log_sum_exp(ES_ITEM_F32), x, 4, 3000, NULL, &answer);
    assert_true(answer == 12.5);
    x[2] = x[2900] = INFINITY;
    fold_into(es_operator_log_sum_exp(ES_ITEM_F32), x, 4, 3000, NULL, &answer);
    assert_true(answer == INFINITY);
    x[1400] = signalling_nan();
    fold_into(es_operator_log_sum_exp(ES_ITEM_F32), x, 4, 3000, NULL, &answer);
    assert_true(isnan(answer));
    fill_numbers(MOST);
    long double exact = 0;
    for (int i = 0; i < MOST; i++) exact += expl((long double)(numbers[i] *= 300) - 300);
    fold_into(es_operator_log_sum_exp(ES_ITEM_F32), numbers, 4, MOST, NULL, &answer);
    assert_true(fabsl(answer - (300 + logl(exact))) < 1e-11L);
}

static void the_attention_partial(void **state)
{
    (void)state;
    enum { DIM = 5, KEYS = 3000, ITEM = 1 + DIM };
    static float items[KEYS * ITEM];
    for (int i = 0; i < KEYS * ITEM; i++) items[i] = (float)(mix((uint64_t)i) % 1000) / 100 - 5;
    for (int k = 0; k < KEYS; k += 3) items[k * ITEM] = -INFINITY, items[k * ITEM + 2] = k % 2 ? NAN : INFINITY; /* masked */
    const es_attention_fold shape = {DIM};
    float answer[DIM];
    fold_into(es_operator_attention(&shape), items, ITEM * sizeof *items, KEYS, NULL, answer);
    for (int d = 0; d < DIM; d++) {
        long double sum = 0, out = 0;
        for (int k = 0; k < KEYS; k++) {
            if (items[k * ITEM] == -INFINITY) continue;
            const long double e = expl((long double)items[k * ITEM]);
            sum += e, out += e * items[k * ITEM + 1 + d];
        }
        assert_true(fabsl(answer[d] - out / sum) < 2e-5L);
    }
    for (int k = 0; k < KEYS; k++) items[k * ITEM] = -INFINITY;
    fold_into(es_operator_attention(&shape), items, ITEM * sizeof *items, KEYS, NULL, answer);
    for (int d = 0; d < DIM; d++) assert_true(answer[d] == 0);
    fold_into(es_operator_attention(&shape), items, ITEM * sizeof *items, 0, NULL, answer);
    for (int d = 0; d < DIM; d++) assert_true(answer[d] == 0);

    /* Empty merged with anything, on either side, gives the other bit for bit. */
    const es_operator op = es_operator_attention(&shape);
    float some[2 + DIM] = {-3.7f, 0.3f, 1, 2, 3, 4, -0.0f}, empty[2 + DIM], kept[2 + DIM];
    memcpy(kept, some, sizeof some);
    op.identity(op.context, empty);
    op.merge(op.context, some, empty);
    assert_memory_equal(some, kept, sizeof some);
    op.merge(op.context, empty, some);
    assert_memory_equal(empty, kept, sizeof some);
    op.identity(op.context, empty);
    op.identity(op.context, some);
    op.merge(op.context, empty, some);
    assert_memory_equal(empty, some, sizeof some);
}

static void counts(void **state)
{
    (void)state;
    static uint16_t bf16[10000];
    const uint16_t kinds[] = {0x0000, 0x8000, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x0001, 0x8001};
    for (int i = 0; i < 10000; i++) bf16[i] = kinds[i % 10];
    es_counts c;
    fold_into(es_operator_counts(ES_ITEM_BF16), bf16, 2, 10000, NULL, &c);
    const es_counts expected = {10000, 2000, 2000, 2000, 2000, 1000, 1000, 2000};
    assert_memory_equal(&c, &expected, sizeof c);
    const double f64[] = {DBL_TRUE_MIN, -DBL_MAX, NAN, -INFINITY, 0};
    fold_into(es_operator_counts(ES_ITEM_F64), f64, 8, 5, NULL, &c);
    const es_counts doubles = {5, 1, 1, 1, 1, 0, 1, 1};
    assert_memory_equal(&c, &doubles, sizeof c);
    const int32_t integers[] = {-5, 0, 7, INT32_MIN};
    fold_into(es_operator_counts(ES_ITEM_I32), integers, 4, 4, NULL, &c);
    const es_counts whole = {4, 2, 1, 1, 0, 0, 0, 0};
    assert_memory_equal(&c, &whole, sizeof c);
}

/* Counts past 2^24, where a count kept in a float would stop. */
static void counts_pass_2_24(void **state)
{
    (void)state;
    const int64_t n = (1 << 24) + 5;
    const uint16_t one = 0x3F80;
    const es_operator op = es_operator_counts(ES_ITEM_BF16), summary = es_operator_summary(ES_ITEM_BF16);
    const es_source source = es_source_strided(&one, 2, 0, n);
    es_counts c;
    es_summary s;
    assert_int_equal(es_fold(three, &op, &source, NULL, &c), ES_OK);
    assert_true(c.items == n && c.positive == n);
    assert_int_equal(es_fold(three, &summary, &source, NULL, &s), ES_OK);
    assert_true(s.count == n && s.mean == 1 && s.m2 == 0 && s.m4 == 0);
}

static void histograms(void **state)
{
    (void)state;
    const es_histogram_shape shape = {-1, 1, 10, ES_ITEM_F32};
    int64_t bins[10 + ES_HISTOGRAM_EXTRA], expected[10 + ES_HISTOGRAM_EXTRA] = {0};
    fill_numbers(MOST);
    numbers[0] = -1, numbers[1] = 1, numbers[2] = NAN, numbers[3] = INFINITY, numbers[4] = -INFINITY, numbers[5] = -0.0f;
    numbers[6] = nextafterf(1, 0), numbers[7] = signalling_nan();
    for (int i = 0; i < MOST; i++) {
        const int32_t bin = es_histogram_bin(&shape, (double)numbers[i]);
        if (bin >= 0) expected[bin]++;
    }
    expected[10 + ES_HISTOGRAM_BELOW] = 1, expected[10 + ES_HISTOGRAM_ABOVE] = 2, expected[10 + ES_HISTOGRAM_NAN] = 2;
    fold_into(es_operator_histogram(&shape), numbers, 4, MOST, NULL, bins);
    assert_memory_equal(bins, expected, sizeof bins);
    assert_int_equal(es_histogram_bin(&shape, -1), 0);
    assert_int_equal(es_histogram_bin(&shape, (double)nextafterf(1, 0)), 9);
    assert_int_equal(es_histogram_bin(&shape, 0), 5);
    const es_histogram_shape none = {0, 1, 0, ES_ITEM_F32}, empty = {1, 1, 4, ES_ITEM_F32},
                             infinite = {-INFINITY, 1, 4, ES_ITEM_F32};
    const es_histogram_shape *const bad[] = {&none, &empty, &infinite};
    const es_source source = es_source_array(numbers, 4, 1);
    for (int i = 0; i < 3; i++) {
        const es_operator op = es_operator_histogram(bad[i]);
        assert_int_equal(es_fold(NULL, &op, &source, NULL, bins), ES_INVALID);
    }
}

static int by_value(const void *a, const void *b)
{
    const es_arg *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void tops(void **state)
{
    (void)state;
    static es_arg sorted[MOST], answer[3000];
    for (int i = 0; i < MOST; i++) {
        numbers[i] = (float)(mix((uint64_t)i) % 700);
        sorted[i] = (es_arg){(double)numbers[i], i};
    }
    qsort(sorted, MOST, sizeof *sorted, by_value);
    static const int32_t ks[] = {1, 2, 3, 40, 3000};
    for (int i = 0; i < 5; i++) {
        const es_top_shape shape = {ks[i], ES_ITEM_F32};
        fold_into(es_operator_top(&shape), numbers, 4, MOST, NULL, answer);
        assert_memory_equal(answer, sorted, (size_t)ks[i] * sizeof *answer);
    }
    const es_top_shape shape = {4, ES_ITEM_F32};
    const float few[] = {NAN, 2, INFINITY};
    fold_into(es_operator_top(&shape), few, 4, 3, NULL, answer);
    assert_true(answer[0].index == 2 && answer[1].index == 1 && answer[2].index == -1 && answer[3].index == -1);
    const es_top_shape none = {0, ES_ITEM_F32};
    const es_operator bad = es_operator_top(&none);
    const es_source source = es_source_array(few, 4, 3);
    assert_int_equal(es_fold(NULL, &bad, &source, NULL, answer), ES_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums), cmocka_unit_test(compensated_sums_keep_what_rounding_loses), cmocka_unit_test(extremes),
        cmocka_unit_test(args), cmocka_unit_test(log_sum_exps), cmocka_unit_test(the_attention_partial),
        cmocka_unit_test(counts), cmocka_unit_test(counts_pass_2_24), cmocka_unit_test(histograms), cmocka_unit_test(tops)};
    return cmocka_run_group_tests(tests, open_team, close_team);
}
