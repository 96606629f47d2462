/* A step that never ends is noticed by its deadline; one that only seems old because nobody watched is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "serve/watch.h"

static const es_engine_stats idle = {.steps = 7}, working = {.steps = 7, .step_seconds = 0.1};

/* Seconds until the watch says something, hearing `said` every tenth of one; at most `limit`. */
static double watch_for(es_watch *watch, const es_engine_stats *said, double limit, es_watch_word *word)
{
    double passed = 0;
    do {
        if (said) es_watch_hear(watch, said);
        passed += 0.1;
        *word = es_watch_pass(watch, 0.1);
    } while (*word == ES_WATCH_FINE && passed < limit);
    return passed;
}

static void a_step_without_an_end_is_told_by_its_deadline(void **state)
{
    (void)state;
    es_watch watch = {.deadline = 5};
    es_watch_word word;
    const double at = watch_for(&watch, &working, 100, &word);
    assert_int_equal(word, ES_WATCH_STEP);
    assert_true(at > 5 && at < 5.3);
}

static void steps_that_end_and_idle_engines_are_left_alone(void **state)
{
    (void)state;
    es_watch watch = {.deadline = 5};
    es_watch_word word;
    watch_for(&watch, &idle, 100, &word);
    assert_int_equal(word, ES_WATCH_FINE);
    es_engine_stats steps = working;
    for (int i = 0; i < 20; i++) {
        steps.steps++;
        watch_for(&watch, &steps, 4, &word);
        assert_int_equal(word, ES_WATCH_FINE);
    }
}

static void silence_is_told_too(void **state)
{
    (void)state;
    es_watch watch = {.deadline = 5};
    es_watch_word word;
    es_watch_hear(&watch, &idle);
    const double at = watch_for(&watch, NULL, 100, &word);
    assert_int_equal(word, ES_WATCH_SILENT);
    assert_true(at > 5 && at < 5.3);
}

/* Ctrl-Z for an hour, then fg. */
static void time_that_nobody_watched_does_not_count(void **state)
{
    (void)state;
    es_watch watch = {.deadline = 5};
    es_watch_hear(&watch, &working);
    assert_int_equal(es_watch_pass(&watch, 3600), ES_WATCH_FINE);
    assert_int_equal(es_watch_pass(&watch, 0.1), ES_WATCH_FINE);
}

static void the_deadline_follows_the_budget(void **state)
{
    (void)state;
    assert_true(es_watch_deadline(0, 0.02) == 30);
    assert_true(es_watch_deadline(0, 1.5) == 150);
    assert_true(es_watch_deadline(0, 0) == 300);
    assert_true(es_watch_deadline(2.5, 1.5) == 2.5);
    assert_true(es_watch_deadline(-1, 1.5) == 0);
    es_watch never = {.deadline = 0};
    es_watch_word word;
    watch_for(&never, &working, 1000, &word);
    assert_int_equal(word, ES_WATCH_FINE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_an_end_is_told_by_its_deadline),
        cmocka_unit_test(steps_that_end_and_idle_engines_are_left_alone),
        cmocka_unit_test(silence_is_told_too),
        cmocka_unit_test(time_that_nobody_watched_does_not_count),
        cmocka_unit_test(the_deadline_follows_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
