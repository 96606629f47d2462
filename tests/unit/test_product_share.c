/* How a wide product's tiles are shared out on a GPU, walked on the host, and the order of a turned shadow's columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/cuda/product_share.h"
#include "device/cuda/shadow.h"

#define MOST_SEGMENTS 16384

/* Walks all workers' lists at once, as far as each can go: who carries a tile on waits until the worker in front of it has
 * left the sum. Every segment is done once, a tile's in order, and everybody arrives. Returns the most segments of one worker.
 */
static int walk(int32_t tiles, int32_t segments, int32_t most_workers)
{
    static int32_t done[MOST_SEGMENTS]; /* of a tile: segments in its sum so far */
    static int32_t next[256], left[256], work[256];
    const es_product_share share = es_product_share_plan(tiles, segments, most_workers);
    assert_true(share.workers >= 1 && share.workers <= most_workers);
    memset(done, 0, (size_t)tiles * sizeof *done);
    for (int32_t w = 0; w < share.workers; w++) next[w] = work[w] = 0, left[w] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t w = share.workers - 1; w >= 0; w--) { /* the last first: nobody may rely on an order */
            es_product_item item;
            if (!es_product_share_item(&share, w, next[w], &item)) continue;
            assert_in_range(item.tile, 0, tiles - 1);
            assert_true(0 <= item.from && item.from < item.to && item.to <= segments);
            if (item.from > 0) {
                assert_true(w > 0);
                if (left[w - 1] != item.tile) continue; /* not there yet */
                left[w - 1] = -2;                       /* read once */
            }
            assert_int_equal(done[item.tile], item.from);
            done[item.tile] = item.to;
            if (item.to < segments) {
                assert_int_equal(left[w], -1); /* there is one place for it */
                left[w] = item.tile;
            }
            work[w] += item.to - item.from;
            next[w]++;
            moved = true;
        }
    }
    int most = 0;
    for (int32_t w = 0; w < share.workers; w++) {
        es_product_item item;
        assert_false(es_product_share_item(&share, w, next[w], &item));
        assert_true(left[w] < 0);
        if (work[w] > most) most = work[w];
    }
    for (int32_t t = 0; t < tiles; t++) assert_int_equal(done[t], segments);
    return most;
}

static void every_segment_is_added_once_and_in_order(void **state)
{
    (void)state;
    static const int32_t workers[] = {1, 2, 7, 8, 66, 72};
    for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
        for (int32_t segments = 1; segments <= 8; segments++)
            for (int32_t tiles = 1; tiles <= 300; tiles++) {
                const int64_t units = (int64_t)tiles * segments;
                const int most = walk(tiles, segments, workers[w]);
                /* Even to a segment, beyond what whole waves give everybody alike. */
                assert_true(most <= (units + workers[w] - 1) / workers[w]);
            }
}

static void a_worker_begins_what_it_hands_on_before_it_carries_on(void **state)
{
    (void)state;
    const es_product_share share = es_product_share_plan(176, 8, 66); /* 4,096 rows, 2,048 tokens */
    for (int32_t w = 0; w < share.workers; w++) {
        es_product_item item;
        bool carried = false;
        for (int32_t i = 0; es_product_share_item(&share, w, i, &item); i++) {
            assert_false(carried); /* the tile of the worker in front comes last */
            carried = item.from > 0;
            if (item.to < share.segments) assert_int_equal(i, share.waves);
        }
    }
}

static void a_turned_group_keeps_the_columns_of_each_instruction_side_by_side(void **state)
{
    (void)state;
    bool taken[2 * ES_SHADOW_GROUP] = {false};
    for (int64_t c = 0; c < 2 * ES_SHADOW_GROUP; c++) {
        const int64_t at = es_shadow_column(c);
        assert_in_range(at, 0, 2 * ES_SHADOW_GROUP - 1);
        assert_false(taken[at]);
        taken[at] = true;
        assert_int_equal(at / ES_SHADOW_GROUP, c / ES_SHADOW_GROUP);
        /* Of a lane's eight neighbours the first four go to the first instruction of 16, the others to the second: its
         * operand's registers hold places 2·lane, 2·lane + 1, 2·lane + 8 and 2·lane + 9. */
        const int64_t lane = c % 32 / 8, half = c % 8 / 4, i = c % 4;
        assert_int_equal(at % ES_SHADOW_GROUP, 16 * half + 2 * lane + i % 2 + i / 2 * 8);
    }
    uint16_t data[2 * ES_SHADOW_GROUP];
    const es_cuda_shade plain = {data, ES_SHADOW_GROUP, false}, turned = {data, ES_SHADOW_GROUP, true};
    assert_ptr_equal(es_shadow_at(plain, 1, 5), data + ES_SHADOW_GROUP + 5);
    assert_ptr_equal(es_shadow_at(turned, 1, 5), data + ES_SHADOW_GROUP + es_shadow_column(5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_segment_is_added_once_and_in_order),
        cmocka_unit_test(a_worker_begins_what_it_hands_on_before_it_carries_on),
        cmocka_unit_test(a_turned_group_keeps_the_columns_of_each_instruction_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
