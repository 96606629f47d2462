/* test_metrics.c: what /metrics counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "serve/metrics.h"

/* The bucket that one added value fell into. */
static int bucket_of(uint64_t nanoseconds)
{
    es_histogram h = {0};
    es_histogram_add(&h, nanoseconds);
    for (int i = 0; i <= ES_HISTOGRAM_BOUNDS; i++)
        if (h.bucket[i]) return i;
    return -1;
}

static void a_value_falls_into_the_first_bucket_that_takes_it(void **state)
{
    (void)state;
    assert_int_equal(bucket_of(0), 0);
    for (int i = 0; i < ES_HISTOGRAM_BOUNDS; i++) {
        assert_int_equal(bucket_of(es_histogram_bound(i)), i);
        assert_int_equal(bucket_of(es_histogram_bound(i) - 1), i);
        assert_int_equal(bucket_of(es_histogram_bound(i) + 1), i + 1);
    }
    assert_int_equal(bucket_of(UINT64_MAX), ES_HISTOGRAM_BOUNDS);
}

static void buckets_are_written_as_running_totals(void **state)
{
    (void)state;
    es_histogram h = {0};
    es_histogram_add(&h, 400000);
    es_histogram_add(&h, 1000000);
    es_histogram_add(&h, 1000000000000);
    es_text out = {0};
    es_histogram_write(&h, "x_seconds", "Help.", &out);
    assert_non_null(strstr(out.data, "# HELP x_seconds Help.\n# TYPE x_seconds histogram\n"));
    assert_non_null(strstr(out.data, "x_seconds_bucket{le=\"0.0005\"} 1\nx_seconds_bucket{le=\"0.001\"} 2\n"));
    assert_non_null(strstr(out.data, "x_seconds_bucket{le=\"262.144\"} 2\nx_seconds_bucket{le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(out.data, "x_seconds_sum 1000.001400000\nx_seconds_count 3\n"));
    es_text_free(&out);
}

static void every_error_has_one_reason(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *code, *line;
    } rows[] = {
        {400, "context_length_exceeded", "{reason=\"context_length_exceeded\"} 1"},
        {429, "queue_full", "{reason=\"queue_full\"} 1"},
        {401, "invalid_api_key", "{reason=\"key\"} 1"},
        {413, "body_too_large", "{reason=\"body_too_large\"} 1"},
        {400, NULL, "{reason=\"invalid\"} 1"},
        {404, "model_not_found", "{reason=\"invalid\"} 1"},
        {500, "internal", "{reason=\"failed\"} 1"},
        {599, NULL, "{reason=\"failed\"} 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        es_metrics metrics;
        es_metrics_init(&metrics);
        es_metrics_reject(&metrics, 200, NULL);
        es_metrics_reject(&metrics, rows[i].status, rows[i].code);
        es_text out = {0};
        es_metrics_write(&metrics, &out);
        const char *found = strstr(out.data, rows[i].line);
        if (!found) fail_msg("row %zu is not counted", i);
        uint64_t total = 0;
        for (int k = 0; k < ES_REASONS_MAX; k++) total += metrics.rejected[k];
        assert_int_equal(total, 1);
        es_text_free(&out);
    }
}

static void *add_many(void *metrics)
{
    for (int i = 0; i < 20000; i++) {
        es_histogram_add(&((es_metrics *)metrics)->token_gap, 1000);
        es_metrics_end(metrics, ES_ENDED_WHOLE, 1000);
    }
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    (void)state;
    es_metrics metrics;
    es_metrics_init(&metrics);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_many, &metrics), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(metrics.token_gap.bucket[0], 80000);
    assert_int_equal(metrics.token_gap.nanoseconds, 80000000);
    assert_int_equal(metrics.ended[ES_ENDED_WHOLE], 80000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_falls_into_the_first_bucket_that_takes_it),
        cmocka_unit_test(buckets_are_written_as_running_totals),
        cmocka_unit_test(every_error_has_one_reason),
        cmocka_unit_test(nothing_is_lost_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
