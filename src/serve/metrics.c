/* metrics.c: see metrics.h. */
#include "serve/metrics.h"

#include <inttypes.h>
#include <string.h>

/* ---- histograms ---- */

enum { FIRST_BOUND = 500000 }; /* nanoseconds */

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t read(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

uint64_t es_histogram_bound(int i)
{
    return (uint64_t)FIRST_BOUND << i;
}

/* The first bucket whose bound is not less: by the place of the highest bit of (n − 1) / FIRST_BOUND. */
void es_histogram_add(es_histogram *histogram, uint64_t nanoseconds)
{
    const uint64_t units = nanoseconds ? (nanoseconds - 1) / FIRST_BOUND : 0;
    const int bits = units ? 64 - __builtin_clzll(units) : 0;
    count(&histogram->bucket[bits < ES_HISTOGRAM_BOUNDS ? bits : ES_HISTOGRAM_BOUNDS], 1);
    count(&histogram->nanoseconds, nanoseconds);
}

void es_metrics_family(es_text *out, const char *name, const char *type, const char *help)
{
    es_text_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void es_histogram_write(const es_histogram *histogram, const char *name, const char *help, es_text *out)
{
    es_metrics_family(out, name, "histogram", help);
    uint64_t total = 0;
    for (int i = 0; i < ES_HISTOGRAM_BOUNDS; i++) {
        total += read(&histogram->bucket[i]);
        es_text_printf(out, "%s_bucket{le=\"%.10g\"} %" PRIu64 "\n", name, (double)es_histogram_bound(i) * 1e-9, total);
    }
    total += read(&histogram->bucket[ES_HISTOGRAM_BOUNDS]);
    es_text_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9f\n%s_count %" PRIu64 "\n", name, total, name,
                   (double)read(&histogram->nanoseconds) * 1e-9, name, total);
}

/* ---- requests ---- */

/* Why requests are refused; what is none of the named ones falls to the last two. */
static const struct {
    const char *reason, *code; /* as in the error's "code" */
    int status;                /* or by status */
} reasons[] = {
    {"context_length_exceeded", "context_length_exceeded", 0  },
    {"queue_full",              "queue_full",              0  },
    {"unsupported",             "unsupported",             0  },
    {"no_memory",               "no_memory",               0  },
    {"stopping",                "stopping",                0  },
    {"engine_restarting",       "engine_restarting",       0  },
    {"key",                     NULL,                      401},
    {"not_allowed",             NULL,                      403},
    {"too_slow",                NULL,                      408},
    {"body_too_large",          NULL,                      413},
    {"head_too_large",          NULL,                      431},
    {"invalid",                 NULL,                      400}, /* every other 4xx */
    {"failed",                  NULL,                      500}, /* every other 5xx */
};
enum { REASONS = sizeof reasons / sizeof *reasons, INVALID = REASONS - 2, FAILED = REASONS - 1 };
_Static_assert((int)REASONS <= (int)ES_REASONS_MAX, "a counter for each reason");

void es_metrics_reject(es_metrics *metrics, int status, const char *code)
{
    if (status < 400) return;
    int row = 0;
    while (row < INVALID && !(code && reasons[row].code && strcmp(code, reasons[row].code) == 0) &&
           reasons[row].status != status)
        row++;
    if (row == INVALID && status >= 500) row = FAILED;
    count(&metrics->rejected[row], 1);
}

void es_metrics_init(es_metrics *metrics)
{
    memset(metrics, 0, sizeof *metrics);
    metrics->clock = es_clock_monotonic();
}

uint64_t es_metrics_now(const es_metrics *metrics)
{
    return es_clock_now(&metrics->clock);
}

void es_metrics_end(es_metrics *metrics, es_ended how, uint64_t nanoseconds)
{
    count(&metrics->ended[how], 1);
    if (how == ES_ENDED_WHOLE) es_histogram_add(&metrics->request, nanoseconds);
}

void es_metrics_write(const es_metrics *metrics, es_text *out)
{
    static const char *const ways[ES_ENDED_WAYS] = {"whole", "refused", "failed", "left"};
    es_metrics_family(out, "evenshare_requests_received_total", "counter", "Requests for an answer, chat and completions.");
    es_text_printf(out, "evenshare_requests_received_total %" PRIu64 "\n", read(&metrics->received));
    es_metrics_family(out, "evenshare_requests_ended_total", "counter", "How they ended, each in one way.");
    for (int i = 0; i < ES_ENDED_WAYS; i++)
        es_text_printf(out, "evenshare_requests_ended_total{how=\"%s\"} %" PRIu64 "\n", ways[i], read(&metrics->ended[i]));
    es_metrics_family(out, "evenshare_rejections_total", "counter",
                      "Requests of any kind that got an error as their reply, by reason.");
    for (int i = 0; i < REASONS; i++)
        es_text_printf(out, "evenshare_rejections_total{reason=\"%s\"} %" PRIu64 "\n", reasons[i].reason,
                       read(&metrics->rejected[i]));
    es_histogram_write(&metrics->first_token, "evenshare_time_to_first_token_seconds",
                       "From a request's last byte to the first token of each answer.", out);
    es_histogram_write(&metrics->token_gap, "evenshare_inter_token_seconds", "Between two tokens of an answer.", out);
    es_histogram_write(&metrics->request, "evenshare_request_seconds", "Whole answers, from the request's last byte.", out);
}
