/* Who gets pages when there are too few, on a simulated clock: what was promised is safe, nobody is moved out for somebody
 * younger, the oldest never waits for more than promises, and everybody ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "engine/claims.h"
#include "engine/scheduler.h"

#define PAGE   16
#define MOST   64
#define PLACES 6

/* A sequence of the simulation; all that have not ended, in order of age. */
typedef struct life {
    int64_t prompt, answer, promise; /* tokens: how long they will be, and how long it was promised to be */
    int64_t count, computed, pages;
    bool running, paused;
    int32_t moves;
} life;

typedef struct world {
    es_scheduler scheduler;
    es_claim claim[MOST];
    int32_t who[MOST]; /* of a claim */
    life life[MOST];
    int32_t count;
    int64_t total, moves, oldest_waited, longest_wait;
    int64_t bound; /* steps that the oldest may wait, from when it began to */
    double now;
    uint64_t seed, draws;
} world;

static int64_t draw(world *w, int64_t most)
{
    return 1 + (int64_t)(es_random_unit(w->seed, 0, w->draws++, 0) * (double)most);
}

static int64_t pages_of(int64_t tokens)
{
    return (tokens + PAGE - 1) / PAGE;
}

static bool promised(const life *l)
{
    return l->count <= l->prompt + l->promise;
}

static bool decodes(const life *l)
{
    return l->count > l->prompt && l->computed == l->count - 1;
}

static int64_t used(const world *w)
{
    int64_t pages = 0;
    for (int32_t i = 0; i < w->count; i++) pages += w->life[i].running ? w->life[i].pages : 0;
    return pages;
}

static int32_t running(const world *w)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->count; i++) n += w->life[i].running;
    return n;
}

/* All that run, and the first that does not. */
static int32_t list(world *w, int32_t *waiting)
{
    int32_t n = 0;
    *waiting = -1;
    for (int32_t i = 0; i < w->count; i++) {
        const life *l = &w->life[i];
        if (!l->running && *waiting >= 0) continue;
        if (!l->running) *waiting = n;
        const int64_t start = l->count + 1 > l->prompt + l->promise ? l->count + 1 : l->prompt + l->promise;
        const int64_t need = l->running ? l->computed == l->pages * PAGE : pages_of(start);
        w->who[n] = i;
        w->claim[n++] = (es_claim){.need = need, .held = l->pages, .running = l->running, .promised = promised(l)};
    }
    return n;
}

static void check(const world *w, int32_t count, int64_t free_pages, int32_t free_places)
{
    bool blocked = false;
    int32_t victim = -1, winner = -1;
    for (int32_t i = 0; i < count; i++) {
        const es_claim *c = &w->claim[i];
        if (c->verdict == ES_CLAIM_MOVED_OUT) {
            assert_true(c->running && !c->promised);
            if (victim < 0) victim = i;
            free_pages += c->held;
            free_places++;
        } else if (c->need > 0 || !c->running) {
            assert_true(!blocked || c->verdict == ES_CLAIM_WAITS);
            blocked = c->verdict == ES_CLAIM_WAITS;
            if (!blocked) winner = i, free_pages -= c->need, free_places -= !c->running;
        } else {
            assert_int_equal(c->verdict, ES_CLAIM_GRANTED);
        }
    }
    assert_true(free_pages >= 0 && free_places >= 0);
    assert_true(victim < 0 || (winner >= 0 && winner < victim));
}

static void make_room(world *w)
{
    for (bool again = true; again;) {
        int32_t waiting;
        const int32_t n = list(w, &waiting), places = PLACES - running(w);
        const int64_t pages = w->total - used(w);
        const int32_t moved = es_claims_settle(w->claim, n, pages, places);
        check(w, n, pages, places);
        for (int32_t i = 0; i < n; i++) {
            life *l = &w->life[w->who[i]];
            if (w->claim[i].verdict != ES_CLAIM_MOVED_OUT) continue;
            *l = (life){
                .prompt = l->prompt, .answer = l->answer, .promise = l->promise, .count = l->count, .moves = l->moves + 1};
            w->moves++;
        }
        if (moved) continue;
        for (int32_t i = 0; i < n; i++) {
            life *l = &w->life[w->who[i]];
            l->paused = w->claim[i].verdict == ES_CLAIM_WAITS;
            if (l->running && !l->paused) l->pages += w->claim[i].need;
        }
        again = waiting >= 0 && w->claim[waiting].verdict == ES_CLAIM_GRANTED;
        if (again) {
            life *l = &w->life[w->who[waiting]];
            l->running = true;
            l->pages = w->claim[waiting].need;
            /* The worst case: nothing of it was left in the cache. */
            l->computed = 0;
        }
    }
    assert_true(used(w) <= w->total && running(w) <= PLACES);
}

/* How long the oldest waits, and how long it may: until what was promised to those that run is kept. Their prompts take a step
 * a token at worst, together, then their answers a step a token, side by side. */
static void watch_the_oldest(world *w)
{
    const life *oldest = &w->life[0];
    if (oldest->running && !oldest->paused) {
        w->oldest_waited = 0;
        return;
    }
    if (w->oldest_waited == 0) {
        int64_t prompts = 0, answer = 0;
        for (int32_t i = 1; i < w->count; i++) {
            const life *l = &w->life[i];
            if (!l->running || !promised(l)) continue;
            const int64_t left = l->prompt + l->promise + 1 - l->count;
            if (!decodes(l)) prompts += l->count - l->computed;
            if (left > answer) answer = left;
        }
        w->bound = prompts + answer;
    }
    w->oldest_waited++;
    if (w->oldest_waited > w->longest_wait) w->longest_wait = w->oldest_waited;
    assert_true(w->oldest_waited <= w->bound);
}

static void step(world *w)
{
    es_job jobs[MOST];
    int32_t who[MOST], n = 0;
    make_room(w);
    watch_the_oldest(w);
    for (int32_t i = 0; i < w->count; i++) {
        const life *l = &w->life[i];
        if (!l->running || l->paused) continue;
        who[n] = i;
        jobs[n++] = (es_job){.computed = l->computed, .until = l->count, .work = l->computed, .decoding = decodes(l)};
    }
    assert_true(es_scheduler_plan(&w->scheduler, jobs, n) > 0); /* or it would go on for ever */
    w->now += es_scheduler_predict(&w->scheduler, jobs, n);
    for (int32_t i = n - 1; i >= 0; i--) {
        life *l = &w->life[who[i]];
        l->computed += jobs[i].rows;
        assert_true(l->computed <= l->pages * PAGE);
        if (l->computed < l->count) continue;
        if (++l->count <= l->prompt + l->answer) continue;
        memmove(l, l + 1, (size_t)(w->count - who[i] - 1) * sizeof *l);
        w->count--;
        w->oldest_waited = who[i] == 0 ? 0 : w->oldest_waited;
    }
}

static void everybody_ends_and_the_oldest_first_in_line(void **state)
{
    (void)state;
    int64_t moves = 0, longest = 0, ended = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        world w = {.seed = seed, .total = 60 + 20 * (int64_t)(seed % 7)};
        w.scheduler = (es_scheduler){
            .cost = {0.01, 0.001, 1e-8},
              .budget = 0.05, .idle_factor = 2, .most_rows = 262, .most_chunk = 256
        };
        const int64_t most = w.total * PAGE;
        for (int s = 0; s < 1500 || w.count; s++) {
            if (s < 1500 && w.count < MOST && draw(&w, 100) <= 4) {
                life l = {.prompt = draw(&w, most / 3), .answer = draw(&w, most / 2)};
                l.count = l.prompt;
                /* Half of them say how long the answer may be; then that is promised. */
                l.promise = draw(&w, 2) == 1 ? l.answer : l.answer < 64 ? l.answer : 64;
                w.life[w.count++] = l;
            }
            if (w.count == 0) continue;
            const int32_t before = w.count;
            step(&w);
            ended += before - w.count;
            assert_true(s < 200000);
        }
        moves += w.moves;
        if (w.longest_wait > longest) longest = w.longest_wait;
    }
    print_message("%d ended, %d times one was moved out, the oldest waited for %d steps at most\n", (int)ended, (int)moves,
                  (int)longest);
    assert_true(moves > 100);
}

/* Without anybody to move out the one that wants more waits where it is, and nobody younger gets in before it. */
static void who_gets_nothing_waits_and_blocks_the_younger(void **state)
{
    (void)state;
    es_claim c[] = {
        {.need = 1,         .held = 10, .running = true},
        {.held = 5,  .running = true, .promised = true},
        {.need = 1,         .held = 5, .running = true},
        {.need = 3}
    };
    assert_int_equal(es_claims_settle(c, 2, 0, 1), 0);
    assert_int_equal(c[0].verdict, ES_CLAIM_WAITS);
    assert_int_equal(c[1].verdict, ES_CLAIM_GRANTED);
    assert_int_equal(es_claims_settle(c, 4, 0, 1), 1);
    assert_int_equal(c[0].verdict, ES_CLAIM_GRANTED);
    assert_int_equal(c[2].verdict, ES_CLAIM_MOVED_OUT);
    assert_int_equal(c[3].verdict, ES_CLAIM_WAITS); /* behind the one that was moved out */
    c[0].need = 20;
    assert_int_equal(es_claims_settle(c, 4, 5, 1), 0); /* all together would not do: nobody is moved in vain */
    assert_int_equal(c[0].verdict, ES_CLAIM_WAITS);
    assert_int_equal(c[2].verdict, ES_CLAIM_WAITS);
    assert_int_equal(c[3].verdict, ES_CLAIM_WAITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_ends_and_the_oldest_first_in_line),
        cmocka_unit_test(who_gets_nothing_waits_and_blocks_the_younger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
