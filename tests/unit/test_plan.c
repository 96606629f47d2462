/* The planner's arithmetic: the worked figures, cuts that cover everything once, and a cost model that can be done by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "share/plan.h"

static const es_profile card = {.name = "card", .workers = 16, .unit_tokens = 512, .element_bytes = 2,
                                .worker_bandwidth = 40e9, .bandwidth = 320e9, .unit_seconds = 1e-6,
                                .meet_seconds = 10e-6, .merge_bandwidth = 1e9};

static void the_worked_figures_come_out(void **state)
{
    (void)state;
    const es_plan_shape shape = {.tokens = 100000, .sequences = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 128};
    es_estimate e = es_plan_estimate(&shape, &card, 16, 512);
    assert_true(e.units == 196 && e.total == 196 && e.per_worker == 12.25 && e.waves == 13);
    assert_true(e.big == 4 && e.big_units == 13 && e.normal == 12 && e.normal_units == 12);
    e = es_plan_estimate(&shape, &card, 16, 1024);
    assert_true(e.units == 98 && e.per_worker == 6.125 && e.waves == 7);
    assert_true(e.big == 2 && e.big_units == 7 && e.normal == 14 && e.normal_units == 6);
}

static int is_near(double a, double b)
{
    return a > b * (1 - 1e-12) && a < b * (1 + 1e-12);
}

static void the_cost_model_can_be_done_by_hand(void **state)
{
    (void)state;
    /* 2 · 512 · 128 · 2 = 262,144 bytes a unit; 4 query heads to a KV head: 12/9 of the read. */
    const es_plan_shape shape = {.tokens = 100000, .sequences = 1, .query_heads = 8, .kv_heads = 2, .head_dim = 128};
    const es_estimate e = es_plan_estimate(&shape, &card, 16, 512);
    assert_true(e.items == 2 && e.total == 392 && e.waves == 25 && e.v1_walk == 196);
    assert_true(is_near(e.v1_seconds, 196 * (1e-6 + 262144.0 / 40e9 * 12 / 9)));
    assert_true(e.partial_bytes == 4 * 130 * 4);
    assert_true(e.nodes == 18 * 2 * 8); /* 16 + 2 pieces, a tree of height 8 */
    assert_true(e.workspace == e.nodes * e.partial_bytes);
    assert_true(is_near(e.v2_seconds, 25 * (1e-6 + 262144.0 / 20e9 * 12 / 9) + 10e-6 + (double)e.workspace / 1e9));
    /* A short context is V1's: there is nothing to share that pays for the barrier. */
    const es_plan_shape brief = {.tokens = 1000, .sequences = 1, .query_heads = 8, .kv_heads = 2, .head_dim = 128};
    const es_estimate b = es_plan_estimate(&brief, &card, 16, 512);
    assert_true(b.v1_seconds < b.v2_seconds && b.workers == 4);
}

static void what_cannot_be_planned_is_refused(void **state)
{
    (void)state;
    const es_plan_shape good = {1000, 1, 4, 2, 64};
    assert_true(es_plan_check(&good, &card, 4, 128));
    es_plan_shape bad = good;
    bad.tokens = 0;
    assert_false(es_plan_check(&bad, &card, 4, 128));
    bad = good, bad.query_heads = 3;
    assert_false(es_plan_check(&bad, &card, 4, 128));
    bad = good, bad.tokens = (int64_t)1 << 40, bad.sequences = 1 << 20, bad.kv_heads = bad.query_heads = 65536;
    assert_false(es_plan_check(&bad, &card, 4, 128));
    assert_false(es_plan_check(&good, &card, 0, 128));
    assert_false(es_plan_check(&good, &card, 4, 0));
    es_profile broken = card;
    broken.bandwidth = 0;
    assert_false(es_plan_check(&good, &broken, 4, 128));
}

/* Cuts never fall, start at the first item and end past the last, at whole units. */
static void cuts_cover_every_partition_once(void **state)
{
    (void)state;
    enum { ITEMS = 40 };
    static const int64_t units[] = {0, 1, 4};
    es_plan_item item[ITEMS];
    for (int seed = 1; seed < 30; seed++) {
        int64_t cost = 0;
        for (int i = 0; i < ITEMS; i++) {
            item[i] = (es_plan_item){cost, 1 + seed * (i * 7 + 3) % 97, es_plan_weight(1 + (i * seed) % 64)};
            cost += (int64_t)item[i].partitions * item[i].weight;
        }
        for (int workers = 1; workers < 50; workers += 3)
            for (int u = 0; u < 3; u++) {
                const es_plan_list list = {item, sizeof *item, ITEMS, cost, workers};
                int32_t at, previous = 0;
                int64_t partition, before = 0;
                es_plan_cut(&list, units[u], 0, &at, &partition);
                assert_true(at == 0 && partition == 0);
                for (int w = 1; w <= workers; w++) {
                    es_plan_cut(&list, units[u], w, &at, &partition);
                    assert_true(at > previous || (at == previous && partition >= before));
                    assert_true(partition == 0 || (at < ITEMS && partition < item[at].partitions));
                    if (units[u] == 0) assert_true(partition == 0);
                    else assert_true(partition % units[u] == 0);
                    previous = at, before = partition;
                }
                assert_true(at == ITEMS && partition == 0);
            }
    }
}

static const es_plan_room plenty = {1 << 20, 1 << 20};

/* Whole items where splitting costs more than it saves; a split where one worker would walk alone, or one may be late. */
static void a_split_is_chosen_where_it_ends_first(void **state)
{
    (void)state;
    const es_plan_costs cheap = {1e-6, 1e-6, 1e-8}, dear = {1e-6, 1.0, 1e-8}, merges = {1e-6, 1e-6, 1.0};
    const es_plan_item one = {0, 800, 10}, even[] = {{0, 100, 10}, {1000, 100, 10}}, brief = {0, 3, 10};
    const es_plan_list alone = {&one, sizeof one, 1, 8000, 4}, two = {even, sizeof one, 2, 2000, 2}, few = {&brief, sizeof one, 1, 30, 2};
    /* 2,000 µs each, half a piece, 1 for the barrier, and for each piece 1/8 + 8 · 0.01 by four workers: with 2, 4 and 8 partitions to
     * a piece 2,031.5, 2,031.25 and 2,046. */
    assert_true(es_plan_grain(&alone, &cheap, plenty) == 40);
    assert_true(es_plan_grain(&alone, &dear, plenty) == 0);
    assert_true(es_plan_grain(&alone, &merges, plenty) == 0);
    /* 1,125 with one slower worker, or 1,000 and half a piece. */
    assert_true(es_plan_grain(&two, &cheap, plenty) > 0);
    const es_plan_costs fast = {1e-9, 1e-6, 1e-8};
    assert_true(es_plan_grain(&two, &fast, plenty) == 0);
    /* 33.75 µs alone; in three pieces 15, half a piece, and 1 + 3 · (1/8 + 8 · 0.01) / 2. */
    assert_true(es_plan_grain(&few, &cheap, plenty) == 10);
    const es_plan_costs slower = {1e-6, 12e-6, 1e-8};
    assert_true(es_plan_grain(&few, &slower, plenty) == 0);
    const es_plan_list nobody = {&one, sizeof one, 0, 0, 4}, single = {&one, sizeof one, 1, 8000, 1};
    assert_true(es_plan_grain(&nobody, &cheap, plenty) == 0 && es_plan_grain(&single, &cheap, plenty) == 0);
}

/* Pieces are powers of two and no dearer than the grain, they find room, and what stays whole is cheap or comes early. */
static void pieces_are_bounded(void **state)
{
    (void)state;
    enum { ITEMS = 40 };
    const es_plan_costs costs = {1e-6, 2e-6, 1e-8};
    es_plan_item item[ITEMS];
    int splits = 0;
    for (int seed = 1; seed < 200; seed++) {
        const es_plan_room room = {seed * 5, seed * 100};
        es_plan_list list = {item, sizeof *item, 1 + seed % ITEMS, 0, 2 + seed % 30};
        for (int i = 0; i < list.count; i++) {
            item[i] = (es_plan_item){list.cost, 1 + seed * (i * 7 + 3) % 997, es_plan_weight(1 + (i * seed) % 64)};
            list.cost += (int64_t)item[i].partitions * item[i].weight;
        }
        const int64_t grain = es_plan_grain(&list, &costs, room);
        int64_t pieces = 0, rows = 0;
        for (int i = 0; i < list.count; i++) {
            const int32_t unit = es_plan_unit(&list, i, grain);
            const int64_t cost = (int64_t)item[i].partitions * item[i].weight, behind = list.cost - item[i].before - cost;
            if (unit == 0) {
                assert_true(grain == 0 || cost <= grain || behind >= cost * list.workers || item[i].partitions == 1);
                continue;
            }
            assert_true((unit & (unit - 1)) == 0 && unit < item[i].partitions);
            assert_true(unit == 1 || (int64_t)unit * item[i].weight <= grain);
            pieces += (item[i].partitions - 1) / unit + 1;
            rows += ((item[i].partitions - 1) / unit + 1) * ((es_plan_rows(item[i].weight) + 7) / 8 * 8);
        }
        assert_true(pieces <= room.pieces && rows <= room.rows);
        splits += pieces > 0;
    }
    assert_true(splits > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_figures_come_out), cmocka_unit_test(the_cost_model_can_be_done_by_hand),
        cmocka_unit_test(what_cannot_be_planned_is_refused), cmocka_unit_test(cuts_cover_every_partition_once),
        cmocka_unit_test(a_split_is_chosen_where_it_ends_first), cmocka_unit_test(pieces_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
