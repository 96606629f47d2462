/* The promise of fold.h: one order, stated in the header, whoever does the work. */
#include "unit/fold_help.h"

#include "evenshare/team.h"
#include "share/pool.h"

static const int thread_counts[] = {1, 2, 3, 5, 16};
enum { TEAMS = sizeof thread_counts / sizeof *thread_counts };

static es_team *team[TEAMS + 1]; /* the last is NULL: the caller alone */

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

static void fill(uint32_t *items, int64_t count)
{
    for (int64_t i = 0; i < count; i++) items[i] = (uint32_t)mix((uint64_t)i + 11);
}

/* Sizes around powers of two, block edges and workers · block edges. */
static void the_tree_is_the_one_in_the_header(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    static uint32_t items[MOST];
    fill(items, MOST);
    static const int64_t blocks[] = {1, 2, 3, 16, 100};
    static const int64_t sizes[] = {1,   2,   3,   4,    5,    7,    8,    9,    15,   16,   17,   31,   32,
                                    33,  63,  64,  65,   99,   100,  101,  127,  128,  129,  255,  256,  257,
                                    499, 500, 501, 1023, 1024, 1025, 1599, 1600, 1601, 4095, 4096, 4097, 4999};
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int t = 0; t <= TEAMS; t++) {
                const es_operator op = mark_operator(blocks[b], sizeof(uint32_t));
                const es_source source = es_source_array(items, sizeof(uint32_t), sizes[s]);
                uint64_t answer = 0;
                assert_int_equal(es_fold(team[t], &op, &source, NULL, &answer), ES_OK);
                assert_true(answer == mark_tree(items, 0, sizes[s], blocks[b]).hash);
            }
}

static void generate(const void *context, int64_t first, int64_t count, void *items)
{
    memcpy(items, (const uint32_t *)context + first, (size_t)count * sizeof(uint32_t));
}

/* Dense, misaligned, strided, backwards and generated items: the same answer; and nothing past it is written. */
static void where_items_come_from_changes_nothing(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static uint32_t items[COUNT], backwards[COUNT], spread[COUNT * 3];
    static unsigned char moved[COUNT * 4 + 128];
    fill(items, COUNT);
    for (int i = 0; i < COUNT; i++) backwards[COUNT - 1 - i] = items[i], spread[3 * i] = items[i];
    const es_operator op = mark_operator(64, 4);
    const uint64_t expected = mark_tree(items, 0, COUNT, 64).hash;
    static const int shifts[] = {0, 1, 3, 4, 7, 8, 11, 12, 16, 28, 44, 48};
    for (int t = 0; t <= TEAMS; t++) {
        es_source sources[4 + sizeof shifts / sizeof *shifts] = {
            es_source_strided(spread, 4, 12, COUNT), es_source_strided(backwards + COUNT - 1, 4, -4, COUNT),
            es_source_generator(generate, items, 4, COUNT), es_source_array(items, 4, COUNT)};
        for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
            if (i >= 4) {
                memcpy(moved + shifts[i - 4], items, sizeof items);
                sources[i] = es_source_array(moved + shifts[i - 4], 4, COUNT);
            }
            uint64_t answer[3] = {1, 2, 3};
            assert_int_equal(es_fold(team[t], &op, &sources[i], NULL, &answer[1]), ES_OK);
            assert_true(answer[1] == expected && answer[0] == 1 && answer[2] == 3);
        }
    }
}

static void empty_folds_give_the_identity_or_the_initial(void **state)
{
    (void)state;
    const es_operator op = mark_operator(8, 4);
    uint32_t items[100];
    fill(items, 100);
    const mark initial = mark_of(77);
    for (int t = 0; t <= TEAMS; t++) {
        uint64_t answer;
        es_source source = es_source_array(NULL, 4, 0);
        assert_int_equal(es_fold(team[t], &op, &source, NULL, &answer), ES_OK);
        assert_true(answer == 0xE);
        assert_int_equal(es_fold(team[t], &op, &source, &initial, &answer), ES_OK);
        assert_true(answer == 77);
        source = es_source_array(items, 4, 100);
        assert_int_equal(es_fold(team[t], &op, &source, &initial, &answer), ES_OK);
        assert_true(answer == mark_join(initial, mark_tree(items, 0, 100, 8)).hash);
    }
}

/* Every segment has the bits that it would have alone: empty ones, single items, all of it, and a long one among short
 * ones. */
static void segments_are_folds_of_their_own(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static uint32_t items[COUNT];
    fill(items, COUNT);
    static int64_t offsets[9][1200];
    int64_t segments[9] = {0};
    for (int i = 0; i <= 10; i++) offsets[0][i] = i * 200;      /* even */
    for (int i = 0; i <= 1000; i++) offsets[1][i] = i;          /* of one item, not to the end */
    offsets[2][0] = 0, offsets[2][1] = COUNT;                   /* full length */
    for (int i = 0; i <= 1000; i++) offsets[3][i] = 500;        /* all empty */
    for (int i = 0; i <= 20; i++) offsets[4][i] = i < 10 ? i : COUNT - 20 + i; /* long among short */
    int64_t at = 0;
    for (int i = 0; i <= 900; i++) {
        offsets[5][i] = at;
        at += (int64_t)(mix((uint64_t)i) % 5);
        if (at > COUNT) at = COUNT;
    }
    offsets[6][0] = 100, offsets[6][1] = 100, offsets[6][2] = 1999, offsets[6][3] = 1999;
    for (int i = 0; i <= 3; i++) offsets[7][i] = i * 640;       /* block and tree edges */
    for (int i = 0; i <= 7; i++) offsets[8][i] = i * 7 + (i > 3 ? 1500 : 0);
    const int64_t counts[9] = {10, 1000, 1, 1000, 20, 900, 3, 3, 7};
    memcpy(segments, counts, sizeof counts);
    static const int64_t blocks[] = {1, 4, 10, 64};
    static uint64_t answers[1201];
    for (int k = 0; k < 9; k++)
        for (int b = 0; b < 4; b++)
            for (int t = 0; t <= TEAMS; t++) {
                const es_operator op = mark_operator(blocks[b], 4);
                const es_source source = es_source_array(items, 4, COUNT);
                memset(answers, 0xAB, sizeof answers);
                assert_int_equal(es_fold_segments(team[t], &op, &source, offsets[k], segments[k], NULL, answers), ES_OK);
                for (int64_t s = 0; s < segments[k]; s++) {
                    const int64_t from = offsets[k][s], to = offsets[k][s + 1];
                    const uint64_t expected = from == to ? 0xE : mark_tree(items, from, to, blocks[b]).hash;
                    /* The tree stands on the segment's own blocks. */
                    assert_true(answers[s] == expected);
                }
                assert_true(answers[segments[k]] == 0xABABABABABABABABu);
            }
}

static void brackets_match_in_any_split(void **state)
{
    (void)state;
    enum { COUNT = 4001 };
    static char text[COUNT];
    brackets expected = {0, 0}, one;
    for (int i = 0; i < COUNT; i++) {
        text[i] = mix((uint64_t)i) % 2 ? '(' : ')';
        brackets_leaf(NULL, &text[i], i, &one);
        brackets_merge(NULL, &expected, &one);
    }
    for (int64_t block = 1; block < 200; block += 13)
        for (int t = 0; t <= TEAMS; t++) {
            const es_operator op = brackets_operator(block);
            const es_source source = es_source_array(text, 1, COUNT);
            brackets answer;
            assert_int_equal(es_fold(team[t], &op, &source, NULL, &answer), ES_OK);
            assert_memory_equal(&answer, &expected, sizeof answer);
        }
}

static void range_identity(const void *context, void *partial)
{
    (void)context;
    ((int64_t *)partial)[0] = ((int64_t *)partial)[1] = 0;
}

/* A cheap block over a counting source: how many, and the sum of indices modulo 2^64. */
static void range_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)context;
    if (items) abort();
    uint64_t *p = partial;
    p[0] = (uint64_t)count;
    p[1] = 0;
    for (int64_t i = first; i < first + count; i += 1 << 20) {
        const uint64_t n = (uint64_t)(first + count - i < 1 << 20 ? first + count - i : 1 << 20);
        p[1] += (uint64_t)i * n + n * (n - 1) / 2;
    }
}

static void range_merge(const void *context, void *left, const void *right)
{
    (void)context;
    ((uint64_t *)left)[0] += ((const uint64_t *)right)[0];
    ((uint64_t *)left)[1] += ((const uint64_t *)right)[1];
}

static void counts_pass_2_31_and_2_32(void **state)
{
    (void)state;
    static const int64_t counts[] = {(1ll << 24) + 1, (1ll << 31) - 1, (1ll << 31) + 3, (1ll << 32) + 5, (1ll << 33) - 7,
                                     (1ll << 40) + 9};
    const es_operator op = {.name = "range", .partial = 16, .answer = 16, .block = 1 << 20, .identity = range_identity,
                            .merge = range_merge, .fold_block = range_block};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int t = 0; t <= TEAMS; t += 2) {
            const es_source source = es_source_counting(counts[i]);
            uint64_t answer[2];
            assert_int_equal(es_fold(team[t], &op, &source, NULL, answer), ES_OK);
            const uint64_t n = (uint64_t)counts[i];
            assert_true(answer[0] == n);
            assert_true(answer[1] == (n % 2 ? (n - 1) / 2 * n : n / 2 * (n - 1)));
        }
}

static void ten_runs_are_one(void **state)
{
    (void)state;
    enum { COUNT = 100003 };
    float *items = malloc(COUNT * sizeof *items);
    for (int i = 0; i < COUNT; i++) items[i] = (float)(mix((uint64_t)i) % 2000001) * 1e-3f - 1000;
    const es_operator op = es_operator_sum(ES_ITEM_F32);
    const es_source source = es_source_array(items, sizeof *items, COUNT);
    double first, again;
    assert_int_equal(es_fold(NULL, &op, &source, NULL, &first), ES_OK);
    for (int run = 0; run < 10; run++)
        for (int t = 0; t <= TEAMS; t++) {
            assert_int_equal(es_fold(team[t], &op, &source, NULL, &again), ES_OK);
            assert_memory_equal(&again, &first, sizeof first);
        }
    free(items);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const es_operator op = mark_operator(8, 4);
    uint32_t items[8] = {0};
    uint64_t answer;
    es_source source = es_source_array(items, 4, -1);
    assert_int_equal(es_fold(NULL, &op, &source, NULL, &answer), ES_INVALID);
    source = es_source_array(items, 8, 1);
    assert_int_equal(es_fold(NULL, &op, &source, NULL, &answer), ES_INVALID);
    source = es_source_array(NULL, 4, 1);
    assert_int_equal(es_fold(NULL, &op, &source, NULL, &answer), ES_INVALID);
    source = es_source_array(items, 4, 8);
    es_operator bad = op;
    bad.merge = NULL;
    assert_int_equal(es_fold(NULL, &bad, &source, NULL, &answer), ES_INVALID);
    bad = op, bad.partial = SIZE_MAX / 8;
    assert_int_equal(es_fold(NULL, &bad, &source, NULL, &answer), ES_NO_MEMORY);
    bad = op, bad.block = -1;
    assert_int_equal(es_fold(NULL, &bad, &source, NULL, &answer), ES_INVALID);
    const int64_t outside[] = {0, 9}, falling[] = {0, 5, 3, 8}, negative[] = {-1, 3};
    uint64_t answers[3];
    assert_int_equal(es_fold_segments(NULL, &op, &source, outside, 1, NULL, answers), ES_INVALID);
    assert_int_equal(es_fold_segments(NULL, &op, &source, falling, 3, NULL, answers), ES_INVALID);
    assert_int_equal(es_fold_segments(team[2], &op, &source, falling, 3, NULL, answers), ES_INVALID);
    assert_int_equal(es_fold_segments(NULL, &op, &source, negative, 1, NULL, answers), ES_INVALID);
    assert_int_equal(es_fold_segments(NULL, &op, &source, outside, 0, NULL, answers), ES_OK);
    es_team *none;
    assert_int_equal(es_team_open(-1, &none), ES_INVALID);
    assert_int_equal(es_team_open(100000, &none), ES_INVALID);
    assert_int_equal(es_team_size(NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tree_is_the_one_in_the_header), cmocka_unit_test(where_items_come_from_changes_nothing),
        cmocka_unit_test(empty_folds_give_the_identity_or_the_initial), cmocka_unit_test(segments_are_folds_of_their_own),
        cmocka_unit_test(brackets_match_in_any_split), cmocka_unit_test(counts_pass_2_31_and_2_32),
        cmocka_unit_test(ten_runs_are_one), cmocka_unit_test(what_does_not_fit_is_refused)};
    return cmocka_run_group_tests(tests, open_teams, close_teams);
}
