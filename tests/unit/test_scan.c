/* Scans: every prefix, in an order that is a function of the count. */
#include "unit/fold_help.h"

#include "evenshare/scan.h"

static const int thread_counts[] = {1, 2, 3, 16};
enum { TEAMS = sizeof thread_counts / sizeof *thread_counts, MOST = 3000 };
static es_team *team[TEAMS + 1];

static int open_teams(void **state)
{
    (void)state;
    for (int t = 0; t < TEAMS; t++)
        if (es_team_open(thread_counts[t], &team[t]) != ES_OK) return -1;
    return 0;
}

static int close_teams(void **state)
{
    (void)state;
    for (int t = 0; t < TEAMS; t++) es_team_close(team[t]);
    return 0;
}

static void brackets_have_every_prefix(void **state)
{
    (void)state;
    static char text[MOST];
    static brackets expected[MOST + 1], out[MOST + 1];
    expected[0] = (brackets){0, 0};
    for (int i = 0; i < MOST; i++) {
        brackets one;
        text[i] = mix((uint64_t)i + 5) % 2 ? '(' : ')';
        brackets_leaf(NULL, &text[i], i, &one);
        expected[i + 1] = expected[i];
        brackets_merge(NULL, &expected[i + 1], &one);
    }
    static const int64_t sizes[] = {0,  1,  2,   3,   4,   5,   7,   8,   9,    15,   16,   17,  63,
                                    64, 65, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, MOST};
    static const int64_t blocks[] = {2, 3, 8, 64, 1024};
    const brackets sentinel = {123, 456};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
            for (int t = 0; t <= TEAMS; t++)
                for (int inclusive = 0; inclusive < 2; inclusive++) {
                    const es_operator op = brackets_operator(blocks[b]);
                    const es_source source = es_source_array(text, 1, sizes[s]);
                    out[sizes[s]] = sentinel;
                    const es_scan_kind kind = inclusive ? ES_SCAN_INCLUSIVE : ES_SCAN_EXCLUSIVE;
                    assert_int_equal(es_scan(team[t], &op, &source, kind, NULL, out, sizeof *out), ES_OK);
                    if (sizes[s]) assert_memory_equal(out, expected + inclusive, (size_t)sizes[s] * sizeof *out);
                    assert_memory_equal(&out[sizes[s]], &sentinel, sizeof sentinel);
                }
}

/* Of an operator that is not associative: whatever the order is, it is one. */
static void the_order_does_not_depend_on_threads(void **state)
{
    (void)state;
    static uint32_t items[MOST];
    static uint64_t first[MOST], again[MOST];
    for (int i = 0; i < MOST; i++) items[i] = (uint32_t)mix((uint64_t)i);
    const mark initial = mark_of(5);
    for (int64_t block = 2; block < 100; block = block * 3 - 1)
        for (int with = 0; with < 2; with++) {
            const es_operator op = mark_operator(block, 4);
            const es_source source = es_source_array(items, 4, MOST);
            assert_int_equal(es_scan(NULL, &op, &source, ES_SCAN_INCLUSIVE, with ? &initial : NULL, first, 8), ES_OK);
            for (int t = 0; t < TEAMS; t++) {
                memset(again, 0, sizeof again);
                assert_int_equal(es_scan(team[t], &op, &source, ES_SCAN_INCLUSIVE, with ? &initial : NULL, again, 8), ES_OK);
                assert_memory_equal(again, first, sizeof again);
            }
        }
}

static void sums_scan_in_place_with_initial(void **state)
{
    (void)state;
    static double numbers[MOST];
    const es_operator op = es_operator_sum(ES_ITEM_F64);
    for (int t = 0; t <= TEAMS; t++) {
        for (int i = 0; i < MOST; i++) numbers[i] = i;
        const es_source source = es_source_array(numbers, sizeof *numbers, MOST);
        const double initial = 1000;
        assert_int_equal(es_scan(team[t], &op, &source, ES_SCAN_EXCLUSIVE, &initial, numbers, sizeof *numbers), ES_OK);
        for (int i = 0; i < MOST; i++) assert_true(numbers[i] == 1000 + (double)i * (i - 1) / 2);
        for (int i = 0; i < MOST; i++) numbers[i] = 1;
        assert_int_equal(es_scan(team[t], &op, &source, ES_SCAN_INCLUSIVE, NULL, numbers, sizeof *numbers), ES_OK);
        for (int i = 0; i < MOST; i++) assert_true(numbers[i] == i + 1);
    }
}

/* S ← a·S + b as a scan of pairs equals the loop. */
static void the_gated_recurrence_is_a_scan(void **state)
{
    (void)state;
    static es_gated pairs[MOST], out[MOST];
    for (int i = 0; i < MOST; i++) pairs[i] = (es_gated){(i % 7) * 0.125 + 0.1, (double)(i % 11) - 5};
    const es_operator op = es_operator_gated();
    const es_source source = es_source_array(pairs, sizeof *pairs, MOST);
    const es_gated start = {1, 3.5};
    for (int t = 0; t <= TEAMS; t++) {
        assert_int_equal(es_scan(team[t], &op, &source, ES_SCAN_INCLUSIVE, &start, out, sizeof *out), ES_OK);
        double state_now = 3.5;
        for (int i = 0; i < MOST; i++) {
            state_now = pairs[i].a * state_now + pairs[i].b;
            assert_true(out[i].b - state_now < 1e-9 && state_now - out[i].b < 1e-9);
        }
    }
}

static void strides_and_refusals(void **state)
{
    (void)state;
    double spread[64], out[64 * 2];
    for (int i = 0; i < 64; i++) spread[i] = i % 2 ? 1e9 : 1, out[2 * i] = out[2 * i + 1] = -1;
    const es_operator op = es_operator_sum(ES_ITEM_F64);
    const es_source source = es_source_strided(spread, 8, 16, 32);
    assert_int_equal(es_scan(team[2], &op, &source, ES_SCAN_INCLUSIVE, NULL, out + 1, 32), ES_OK);
    for (int i = 0; i < 32; i++) {
        assert_true(out[4 * i + 1] == i + 1);
        assert_true(out[4 * i] == -1 && out[4 * i + 2] == -1 && out[4 * i + 3] == -1);
    }
    es_operator bad = op;
    bad.leaf = NULL;
    assert_int_equal(es_scan(NULL, &bad, &source, ES_SCAN_INCLUSIVE, NULL, out, 8), ES_INVALID);
    bad = op, bad.block = 1;
    assert_int_equal(es_scan(NULL, &bad, &source, ES_SCAN_INCLUSIVE, NULL, out, 8), ES_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brackets_have_every_prefix), cmocka_unit_test(the_order_does_not_depend_on_threads),
        cmocka_unit_test(sums_scan_in_place_with_initial), cmocka_unit_test(the_gated_recurrence_is_a_scan),
        cmocka_unit_test(strides_and_refusals)};
    return cmocka_run_group_tests(tests, open_teams, close_teams);
}
