/* The prefix tree finds the longest beginning that was computed, gives up what is old first, and loses no page and no slot:
 * after any history, dropping everything leaves the pools full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "cache/prefix.h"

#define PAGE 4

typedef struct fixture {
    es_pages pages, slots;
    es_prefix *tree;
} fixture;

static void start(fixture *f, int64_t pages, int64_t slots, bool recurrent)
{
    assert_int_equal(es_pages_open(pages, &f->pages), ES_OK);
    assert_int_equal(es_pages_open(slots, &f->slots), ES_OK);
    assert_int_equal(es_prefix_open(&f->pages, &f->slots, PAGE, recurrent, 16, &f->tree), ES_OK);
}

static void stop(fixture *f)
{
    es_prefix_close(f->tree);
    assert_int_equal(f->pages.free_count, f->pages.total);
    assert_int_equal(f->slots.free_count, f->slots.total);
    es_pages_close(&f->pages);
    es_pages_close(&f->slots);
}

static int32_t highest(const int32_t *list, int count)
{
    int32_t most = -1;
    for (int i = 0; i < count; i++)
        if (list[i] > most) most = list[i];
    return most;
}

/* Numbers that were had before come first, so that memory never used stays unused. */
static void numbers_had_before_come_first(void **state)
{
    (void)state;
    es_pages p;
    int32_t list[5];
    assert_int_equal(es_pages_open(8, &p), ES_OK);
    assert_true(es_pages_take(&p, 3, list));
    assert_int_equal(highest(list, 3), 2);
    es_pages_drop(&p, list, 3);
    assert_true(es_pages_take(&p, 2, list));
    assert_int_equal(highest(list, 2), 1);
    assert_true(es_pages_take(&p, 3, list + 2));
    assert_int_equal(highest(list, 5), 4);
    es_pages_close(&p);
}

/* Computes a text as a sequence would: takes pages, remembers the whole, lets go. */
static void compute(fixture *f, const es_token *tokens, int64_t count, bool keep_state)
{
    int32_t table[64], slot = -1;
    const int64_t pages = (count + PAGE - 1) / PAGE;
    assert_true(es_prefix_take_pages(f->tree, pages, table));
    if (keep_state) assert_true(es_prefix_take_slot(f->tree, &slot));
    es_prefix_insert(f->tree, tokens, count, table, slot, false);
    es_pages_drop(&f->pages, table, pages);
}

static void drop_hit(fixture *f, const es_prefix_hit *hit, const int32_t *table)
{
    es_pages_drop(&f->pages, table, hit->full);
}

static const es_token text[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};

static void a_classic_model_goes_on_anywhere(void **state)
{
    (void)state;
    fixture f;
    int32_t table[64];
    start(&f, 16, 4, false);
    es_prefix_hit hit = es_prefix_find(f.tree, text, 12, table);
    assert_int_equal(hit.position, 0);
    compute(&f, text, 10, false);
    hit = es_prefix_find(f.tree, text, 13, table);
    assert_int_equal(hit.position, 10);
    assert_int_equal(hit.full, 2);
    assert_true(hit.tail_page >= 0);
    drop_hit(&f, &hit, table);
    hit = es_prefix_find(f.tree, text, 9, table); /* the tail would be too long */
    assert_int_equal(hit.position, 8);
    drop_hit(&f, &hit, table);
    const es_token other[] = {1, 2, 3, 4, 5, 6, 0, 8, 9, 10};
    hit = es_prefix_find(f.tree, other, 10, table);
    assert_int_equal(hit.position, 4);
    drop_hit(&f, &hit, table);
    stop(&f);
}

static void a_hybrid_goes_on_at_marks_only(void **state)
{
    (void)state;
    fixture f;
    int32_t table[64];
    start(&f, 16, 4, true);
    compute(&f, text, 6, true);
    compute(&f, text, 12, false); /* keys and values without a state are no use */
    es_prefix_hit hit = es_prefix_find(f.tree, text, 13, table);
    assert_int_equal(hit.position, 6);
    assert_true(hit.slot >= 0);
    drop_hit(&f, &hit, table);
    hit = es_prefix_find(f.tree, text, 5, table);
    assert_int_equal(hit.position, 0);
    assert_int_equal(hit.slot, -1);
    stop(&f);
}

static void old_pages_and_states_make_room(void **state)
{
    (void)state;
    fixture f;
    int32_t table[64];
    start(&f, 8, 2, true);
    for (es_token k = 0; k < 20; k++) {
        es_token own[8] = {100 + k, 2, 3, 4, 5, 6, 7, 8};
        compute(&f, own, 8, true);
        const es_prefix_hit hit = es_prefix_find(f.tree, own, 8, table);
        assert_int_equal(hit.position, 8);
        drop_hit(&f, &hit, table);
    }
    assert_true(es_prefix_mark_count(f.tree) <= 2);
    assert_true(es_prefix_take_pages(f.tree, 8, table)); /* everything goes when it must */
    assert_int_equal(es_prefix_node_count(f.tree), 0);
    es_pages_drop(&f.pages, table, 8);
    stop(&f);
}

static void pages_in_use_are_not_given_up(void **state)
{
    (void)state;
    fixture f;
    int32_t table[64], more[64];
    start(&f, 4, 2, false);
    compute(&f, text, 8, false);
    const es_prefix_hit hit = es_prefix_find(f.tree, text, 8, table); /* a sequence holds both pages */
    assert_int_equal(hit.full, 2);
    assert_false(es_prefix_take_pages(f.tree, 3, more));
    assert_true(es_prefix_take_pages(f.tree, 2, more));
    es_pages_drop(&f.pages, more, 2);
    drop_hit(&f, &hit, table);
    stop(&f);
}

static void long_texts_keep_one_state_per_doubling(void **state)
{
    (void)state;
    fixture f;
    static es_token tokens[PAGE * 64];
    int32_t table[64], slot;
    start(&f, 64, 16, true);
    for (int i = 0; i < PAGE * 64; i++) tokens[i] = i;
    assert_true(es_prefix_take_pages(f.tree, 64, table));
    for (int64_t at = 8; at <= PAGE * 64; at += 8) {
        assert_true(es_prefix_take_slot(f.tree, &slot));
        es_prefix_insert(f.tree, tokens, at, table, slot, true);
    }
    assert_true(es_prefix_mark_count(f.tree) <= 7); /* the last, and distances 8 … 255 in powers of two */
    es_pages_drop(&f.pages, table, 64);
    stop(&f);
}

/* Random histories against the obvious: the longest common beginning with anything inserted. */
static void random_histories_lose_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        fixture f;
        uint64_t draw = 0;
        start(&f, 24, 6, seed % 2 == 0);
        for (int round = 0; round < 200; round++) {
            es_token own[20];
            int32_t table[64];
            const int64_t count = 1 + (int64_t)(es_random_unit(seed, 0, draw++, 0) * 19);
            for (int64_t i = 0; i < count; i++) own[i] = (es_token)(es_random_unit(seed, 0, draw++, 0) * 2);
            const es_prefix_hit hit = es_prefix_find(f.tree, own, count, table);
            assert_true(hit.position <= count);
            const int64_t pages = (count + PAGE - 1) / PAGE;
            if (es_prefix_take_pages(f.tree, pages - hit.full, table + hit.full)) {
                int32_t slot = -1;
                if (es_random_unit(seed, 0, draw++, 0) < 0.7 && !es_prefix_take_slot(f.tree, &slot)) slot = -1;
                es_prefix_insert(f.tree, own, count, table, slot, round % 3 == 0);
                es_pages_drop(&f.pages, table, pages);
            } else {
                es_pages_drop(&f.pages, table, hit.full);
            }
        }
        stop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_had_before_come_first),
        cmocka_unit_test(a_classic_model_goes_on_anywhere),
        cmocka_unit_test(a_hybrid_goes_on_at_marks_only),
        cmocka_unit_test(old_pages_and_states_make_room),
        cmocka_unit_test(pages_in_use_are_not_given_up),
        cmocka_unit_test(long_texts_keep_one_state_per_doubling),
        cmocka_unit_test(random_histories_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
