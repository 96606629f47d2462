/* metrics.h: what /metrics counts, in a form that costs a few nanoseconds to count.
 *
 *   es_histogram_add(&metrics->token_gap, nanoseconds);
 *   es_metrics_end(metrics, ES_ENDED_WHOLE, nanoseconds);
 *   es_metrics_write(metrics, &out);                      // Prometheus text
 *
 * Every number is an atomic of its own, added to without a lock from any thread and read without one: a reader may see a
 * histogram's sum a moment before its bucket, which the next scrape mends. No label comes from a request, so that nobody can
 * make the list grow. */
#ifndef ES_SERVE_METRICS_H
#define ES_SERVE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/text.h"

/** Bounds are 0.5 ms times powers of two, up to 262 s. */
enum { ES_HISTOGRAM_BOUNDS = 20 };

typedef struct es_histogram {
    _Atomic uint64_t bucket[ES_HISTOGRAM_BOUNDS + 1]; /**< each on its own; the last one has no bound */
    _Atomic uint64_t nanoseconds;                     /**< all of them together */
} es_histogram;

void es_histogram_add(es_histogram *histogram, uint64_t nanoseconds);
/** Nanoseconds that bucket i still takes. */
uint64_t es_histogram_bound(int i);
void es_histogram_write(const es_histogram *histogram, const char *name, const char *help, es_text *out);

/** How a request ended; each accepted one ends in exactly one way. */
typedef enum es_ended {
    ES_ENDED_WHOLE,   /**< the answer was handed over whole */
    ES_ENDED_REFUSED, /**< 4xx: the caller's fault, or full */
    ES_ENDED_FAILED,  /**< 5xx, or an error inside a stream */
    ES_ENDED_LEFT,    /**< the client was gone first */
    ES_ENDED_WAYS,
} es_ended;

enum { ES_REASONS_MAX = 16 };

typedef struct es_metrics {
    es_clock clock;
    _Atomic uint64_t received, ended[ES_ENDED_WAYS];
    _Atomic uint64_t rejected[ES_REASONS_MAX]; /**< by row of the table in metrics.c */
    _Atomic uint64_t cached_tokens;
    es_histogram first_token, token_gap, request;
} es_metrics;

void es_metrics_init(es_metrics *metrics);
uint64_t es_metrics_now(const es_metrics *metrics);
void es_metrics_end(es_metrics *metrics, es_ended how, uint64_t nanoseconds);
/** A refusal with this status and error code (NULL: none). Anything below 400 is not counted. */
void es_metrics_reject(es_metrics *metrics, int status, const char *code);
void es_metrics_write(const es_metrics *metrics, es_text *out);

/** "# HELP", "# TYPE" of a family; then the samples follow. */
void es_metrics_family(es_text *out, const char *name, const char *type, const char *help);

#endif
