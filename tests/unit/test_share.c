/* The even-share plan covers every item exactly once, and the pool runs every worker exactly once. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "evenshare/share.h"
#include "share/pool.h"

static void check_plan(int64_t items, int64_t tile, int64_t workers)
{
    const es_share plan = es_share_plan(items, tile, workers);
    int64_t next = 0, least = INT64_MAX, most = 0;
    for (int64_t w = 0; w < plan.workers; w++) {
        const es_range r = es_share_range(&plan, w);
        assert_int_equal(r.begin, next);
        assert_true(r.end > r.begin);
        const int64_t tiles = (r.end - r.begin - 1) / tile + 1;
        if (tiles < least) least = tiles;
        if (tiles > most) most = tiles;
        next = r.end;
    }
    assert_int_equal(next, items > 0 && tile > 0 && workers > 0 ? items : 0);
    if (plan.workers) assert_true(most - least <= 1);
    const es_range none = es_share_range(&plan, plan.workers);
    assert_int_equal(none.end - none.begin, 0);
}

static void shares_are_even_and_cover_everything(void **state)
{
    (void)state;
    const int64_t sizes[] = {-1, 0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 1000, 100000, (1ll << 31) + 5, (1ll << 32) + 7, INT64_MAX};
    const int64_t tiles[] = {-1, 0, 1, 2, 3, 16, 512, 1ll << 40};
    const int64_t counts[] = {-1, 0, 1, 2, 3, 7, 16, 132};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof tiles / sizeof *tiles; j++)
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) check_plan(sizes[i], tiles[j], counts[k]);
}

/* 100,000 tokens on 16 multiprocessors: the figures the planner was born from. */
static void the_worked_figures_come_out(void **state)
{
    (void)state;
    es_share p = es_share_plan(100000, 512, 16);
    assert_int_equal(p.tiles, 196);
    assert_int_equal(p.normal + (p.big > 0), 13);
    p = es_share_plan(100000, 1024, 16);
    assert_int_equal(p.tiles, 98);
    assert_int_equal(p.normal + (p.big > 0), 7);
}

static void strips_cover_every_tile_once(void **state)
{
    (void)state;
    const es_share plan = es_share_plan(1003, 10, 7);
    unsigned char seen[1003] = {0};
    for (int64_t w = 0; w < plan.workers; w++)
        for (int64_t s = 0;; s++) {
            const es_range r = es_share_strip(&plan, w, s);
            if (r.begin == r.end) break;
            for (int64_t i = r.begin; i < r.end; i++) seen[i]++;
        }
    for (int i = 0; i < 1003; i++) assert_int_equal(seen[i], 1);
}

typedef struct counted {
    es_pool *pool;
    _Atomic int sum;
    int slot[8];
    int wrong;
} counted;

static void count_job(void *argument, int worker)
{
    counted *c = argument;
    for (int round = 1; round <= 50; round++) {
        c->slot[worker] = round;
        es_pool_meet(c->pool);
        for (int i = 0; i < es_pool_workers(c->pool); i++)
            if (c->slot[i] != round) atomic_fetch_add(&c->sum, 1000000);
        es_pool_meet(c->pool);
    }
    atomic_fetch_add(&c->sum, 1);
}

static void workers_meet_at_barriers(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 7; workers++) {
        counted c = {0};
        assert_int_equal(es_pool_open(workers, &c.pool), ES_OK);
        for (int run = 0; run < 20; run++) es_pool_run(c.pool, count_job, &c);
        assert_int_equal(c.sum, 20 * workers);
        es_pool_close(c.pool);
    }
}

/* Operations of all sizes; the last worker dawdles, so that others take what is left of its share. */
enum { OPERATIONS = 300, MOST_UNITS = 150 };

typedef struct taken {
    es_pool *pool;
    _Atomic int times[OPERATIONS][MOST_UNITS];
    _Atomic int64_t beyond, dawdled, units; /* outside of the range; what the last worker took; what there was */
} taken;

static void take_job(void *argument, int worker)
{
    taken *t = argument;
    const int workers = es_pool_workers(t->pool);
    for (int op = 0; op < OPERATIONS; op++) {
        const int64_t units = op % MOST_UNITS;
        es_take take = op % 5 == 4 ? es_pool_take_in_order(t->pool, units, worker)
                       : op % 5 == 3 && units % 3 == 0
                           ? es_pool_take_whole(t->pool, units / 3, 3, worker)
                           : es_pool_take(t->pool, units, op % 3 ? op % 7 + 1 : ES_TAKE_SINGLY, worker);
        for (es_range piece; es_take_next(&take, &piece);) {
            if (piece.begin < 0 || piece.end > units || piece.begin >= piece.end) atomic_fetch_add(&t->beyond, 1);
            for (int64_t u = piece.begin; u < piece.end && u < MOST_UNITS; u++) atomic_fetch_add(&t->times[op][u], 1);
            if (worker == workers - 1) {
                atomic_fetch_add(&t->dawdled, piece.end - piece.begin);
                for (int i = 0; i < 50; i++) sched_yield();
            }
        }
        if (worker == 0) atomic_fetch_add(&t->units, units);
        es_pool_meet(t->pool);
    }
}

static void every_unit_is_taken_once(void **state)
{
    (void)state;
    static taken t;
    for (int workers = 1; workers <= 7; workers++) {
        memset(&t, 0, sizeof t);
        assert_int_equal(es_pool_open(workers, &t.pool), ES_OK);
        es_pool_run(t.pool, take_job, &t);
        for (int op = 0; op < OPERATIONS; op++)
            for (int u = 0; u < MOST_UNITS; u++) assert_int_equal(t.times[op][u], u < op % MOST_UNITS);
        assert_int_equal(t.beyond, 0);
        print_message("%d workers: the slowest took %.1f %%\n", workers, 100.0 * (double)t.dawdled / (double)t.units);
        es_pool_close(t.pool);
    }
}

/* Where each worker may run. */
static void look_where(void *argument, int worker)
{
    sched_getaffinity(0, sizeof(cpu_set_t), (cpu_set_t *)argument + worker);
}

static void workers_have_a_cpu_each_and_the_caller_is_free_again(void **state)
{
    (void)state;
    enum { MOST = 4 };
    const int workers = es_pool_cpus() < MOST ? es_pool_cpus() : MOST;
    cpu_set_t before, after, where[MOST], all;
    es_pool *pool;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(es_pool_open(workers, &pool), ES_OK);
    es_pool_run(pool, look_where, where);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    CPU_ZERO(&all);
    for (int w = 0; w < workers && workers > 1; w++) {
        assert_int_equal(CPU_COUNT(&where[w]), 1);
        CPU_OR(&all, &all, &where[w]);
    }
    if (workers > 1) assert_int_equal(CPU_COUNT(&all), workers);
    es_pool_close(pool);
    /* More workers than processors: nobody is held anywhere. */
    if (es_pool_cpus() >= MOST) return;
    assert_int_equal(es_pool_open(MOST, &pool), ES_OK);
    es_pool_run(pool, look_where, where);
    for (int w = 0; w < MOST; w++) assert_true(CPU_EQUAL(&before, &where[w]));
    es_pool_close(pool);
}

static void nonsense_pools_are_refused(void **state)
{
    (void)state;
    es_pool *pool;
    assert_int_equal(es_pool_open(-1, &pool), ES_INVALID);
    assert_int_equal(es_pool_open(513, &pool), ES_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_even_and_cover_everything),
        cmocka_unit_test(the_worked_figures_come_out),
        cmocka_unit_test(strips_cover_every_tile_once),
        cmocka_unit_test(workers_meet_at_barriers),
        cmocka_unit_test(every_unit_is_taken_once),
        cmocka_unit_test(workers_have_a_cpu_each_and_the_caller_is_free_again),
        cmocka_unit_test(nonsense_pools_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
