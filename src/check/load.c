/* load.c: the phases in which requests meet: concurrency, stall, disconnect, overload. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/phases.h"

enum { MANY = 256 };

typedef struct crowd {
    es_reply *reply[MANY];
    size_t count;
} crowd;

static bool all_ended(void *user)
{
    const crowd *all = user;
    for (size_t i = 0; i < all->count; i++)
        if (!all->reply[i]->ended) return false;
    return true;
}

static bool all_begun(void *user)
{
    const crowd *all = user;
    for (size_t i = 0; i < all->count; i++)
        if (!all->reply[i]->ended && all->reply[i]->transcript.times.count == 0) return false;
    return true;
}

static es_reply *ask_for_count(es_trial *c, size_t from, int64_t tokens, bool endless)
{
    char text[120];
    snprintf(text, sizeof text, "Count upwards from %zu in words, one number on each line, and do not stop.", 3 + 17 * from);
    return es_trial_ask(c, &(es_question){.text = text, .max_tokens = tokens, .stream = true, .ignore_eos = endless});
}

/* Long enough to be left in the middle, short enough to be let in beside others. */
static int64_t endless_tokens(es_trial *c)
{
    const int64_t context = es_find_context(c), share = context / 2;
    return context && share < 4096 ? share : 4096;
}

/* ---- concurrency ---- */

void es_phase_concurrency(es_trial *c, es_trial_result *r)
{
    const int64_t tokens = c->options.quick ? 24 : 64;
    const bool endless = es_can_ignore_eos(c);
    es_reply *single = ask_for_count(c, 0, tokens, endless);
    if (!es_trial_await_answer(c, r, single)) return;
    const double alone = single->closed - single->began;
    crowd all = {.count = (size_t)c->options.parallel};
    if (all.count > MANY) all.count = MANY;
    const double began = es_client_now(c->client);
    for (size_t i = 0; i < all.count; i++) all.reply[i] = ask_for_count(c, 1 + i, tokens, endless);
    es_client_run(c->client, es_time_left(c), all_ended, &all);
    const double together = es_client_now(c->client) - began;
    int64_t made = 0;
    double first = 0;
    for (size_t i = 0; i < all.count; i++) {
        if (!es_trial_await_answer(c, r, all.reply[i])) return;
        const es_transcript *t = &all.reply[i]->transcript;
        if (t->usages != 1) es_fail_phase(r, "request %zu of %zu has no usage", i + 1, all.count);
        if (endless && t->completion_tokens != tokens)
            es_fail_phase(r, "request %zu of %zu ended after %" PRId64 " of %" PRId64 " tokens", i + 1, all.count,
                          t->completion_tokens, tokens);
        made += t->completion_tokens > 0 ? t->completion_tokens : 0;
        if (t->times.count) first = fmax(first, t->times.item[0] - all.reply[i]->began);
    }
    es_trial_figure_add(r, "requests", (double)all.count);
    es_trial_figure_add(r, "alone_tokens_per_s", (double)single->transcript.completion_tokens / alone);
    es_trial_figure_add(r, "together_tokens_per_s", (double)made / together);
    es_trial_figure_add(r, "slowest_first_token_ms", 1e3 * first);
    if (!c->options.no_timing && endless && together > 1.5 * (double)all.count * alone + 1)
        es_fail_phase(r, "%zu requests together took %.1f s, one after the other they would take %.1f s", all.count, together,
                      (double)all.count * alone);
}

/* ---- stall ---- */

typedef struct watch {
    const es_reply *stream, *prompt;
    size_t chunks; /* that the stream must have */
    es_trial *c;
    es_reply *health;
    double slowest, asked; /* answer of /health; when it was asked last */
    bool no_health;
} watch;

static bool has_chunks(void *user)
{
    const watch *w = user;
    return w->stream->ended || w->stream->transcript.times.count >= w->chunks;
}

/* Asks /health now and then while the long prompt is computed: again and again, client and server together would take a core
 * from what is measured. */
static bool prompt_is_done(void *user)
{
    watch *w = user;
    if (w->health && w->health->ended) {
        w->slowest = fmax(w->slowest, w->health->closed - w->health->began);
        if (w->health->status != 200) w->no_health = true;
        es_client_drop(w->c->client, w->health);
        w->health = NULL;
    }
    const bool done = w->prompt->ended || w->prompt->transcript.times.count > 0;
    const double now = es_client_now(w->c->client);
    if (!w->health && !w->no_health && !done && now - w->asked >= 0.1) {
        w->asked = now;
        w->health = es_trial_fetch(w->c, "/health");
    }
    return done;
}

static void add_stall_figures(es_trial *c, es_trial_result *r, const watch *w, double from, double to, double alone_first)
{
    const es_numbers *times = &w->stream->transcript.times;
    es_numbers alone = {0}, during = {0};
    es_numbers_gaps(times, times->item[0], from, &alone, NULL);
    es_numbers_gaps(times, from, to, &during, NULL);
    const double median = es_numbers_quantile(&alone, 0.5), worst = es_numbers_max(&during);
    const double first = w->prompt->transcript.times.item[0] - w->prompt->began;
    es_trial_figure_add(r, "prompt_tokens", (double)w->prompt->transcript.prompt_tokens);
    es_trial_figure_add(r, "gap_alone_median_ms", 1e3 * median);
    es_trial_figure_add(r, "gap_alone_p99_ms", 1e3 * es_numbers_quantile(&alone, 0.99));
    es_trial_figure_add(r, "gap_alone_max_ms", 1e3 * es_numbers_max(&alone));
    es_trial_figure_add(r, "gap_during_median_ms", 1e3 * es_numbers_quantile(&during, 0.5));
    es_trial_figure_add(r, "gap_during_p99_ms", 1e3 * es_numbers_quantile(&during, 0.99));
    es_trial_figure_add(r, "gap_during_max_ms", 1e3 * worst);
    es_trial_figure_add(r, "max_over_median", worst / median);
    es_trial_figure_add(r, "first_token_ms", 1e3 * first);
    es_trial_figure_add(r, "first_token_alone_ms", 1e3 * alone_first);
    if (!w->no_health) es_trial_figure_add(r, "health_slowest_ms", 1e3 * w->slowest);
    /* nobody notices a quarter of a second, and on a fast server six gaps are less than the network's noise */
    const double bound = fmax(6 * median, 0.25);
    r->plot = (es_trial_plot){.title = "Gaps of a running stream; shaded: a long prompt arrives",
                              .x_name = "s",
                              .y_name = "ms since the chunk before",
                              .band_from = from - times->item[0],
                              .band_to = to - times->item[0],
                              .line = 1e3 * bound};
    for (size_t i = 1; i < times->count; i++) {
        es_numbers_add(&r->plot.x, times->item[i] - times->item[0]);
        es_numbers_add(&r->plot.y, 1e3 * (times->item[i] - times->item[i - 1]));
    }
    if (!c->options.no_timing && worst > bound)
        es_fail_phase(r, "a gap of %.2f s while the prompt arrived; %.3f s is the median alone", worst, median);
    else if (!c->options.no_timing && first > 1.6 * alone_first + 0.25)
        es_fail_phase(r, "beside the stream the prompt's first token took %.2f s, alone %.2f s", first, alone_first);
    else if (!c->options.no_timing && !w->no_health && w->slowest > 1)
        es_fail_phase(r, "/health took %.1f s while the prompt arrived", w->slowest);
    es_numbers_free(&alone);
    es_numbers_free(&during);
}

/* Long enough to outlive a prompt that gets no more than a few tokens a step, and no longer than the context. */
static int64_t stream_tokens(es_trial *c, int64_t prompt)
{
    const int64_t context = es_find_context(c), usual = 2 * endless_tokens(c) - 128;
    if (prompt <= usual) return usual;
    return context && context - 128 < prompt ? context - 128 : prompt;
}

/* A document of so many tokens and a question about it. */
static es_reply *ask_document(es_trial *c, es_trial_result *r, int64_t tokens)
{
    es_text text = {0};
    es_reply *reply = NULL;
    if (es_write_document(c, tokens, &text)) {
        es_text_puts(&text, "\nWho is mentioned most often?");
        reply = es_trial_ask(c, &(es_question){.text = text.data ? text.data : "", .max_tokens = 4, .stream = true});
    } else {
        es_fail_phase(r, "short prompts are not answered, or without usage");
    }
    es_text_free(&text);
    return reply;
}

void es_phase_stall(es_trial *c, es_trial_result *r)
{
    enum { BEFORE = 40, AFTER = 4 };
    const int64_t tokens = es_long_prompt(c, 64);
    if (!es_can_ignore_eos(c)) es_note_phase(r, "without ignore_eos the stream may end by itself");
    es_reply *lone = ask_document(c, r, tokens);
    if (!lone || !es_trial_await_answer(c, r, lone) || lone->transcript.times.count == 0) {
        es_fail_phase(r, "the long prompt alone got no answer");
        return;
    }
    const double alone_first = lone->transcript.times.item[0] - lone->began;
    watch w = {.c = c, .chunks = BEFORE};
    es_reply *stream = ask_for_count(c, 5, stream_tokens(c, tokens), c->can_ignore_eos);
    w.stream = stream;
    es_client_run(c->client, es_time_left(c), has_chunks, &w);
    if (stream->ended && stream->status == 200) {
        es_unsupported_phase(r, "the stream ended by itself before the prompt came");
        return;
    }
    if (stream->ended || stream->transcript.times.count < BEFORE) {
        es_fail_phase(r, "the stream did not come going (status %d)", stream->status);
        return;
    }
    es_reply *prompt = ask_document(c, r, tokens);
    if (!prompt) return;
    w.prompt = prompt;
    const double from = es_client_now(c->client);
    es_client_run(c->client, es_time_left(c), prompt_is_done, &w);
    const double to = es_client_now(c->client);
    if (prompt->transcript.times.count == 0) {
        es_fail_phase(r, "the long prompt got no first token beside the stream (status %d)", prompt->status);
        return;
    }
    w.chunks = stream->transcript.times.count + AFTER;
    es_client_run(c->client, es_time_left(c), has_chunks, &w);
    if (!es_trial_await_answer(c, r, prompt)) return;
    if (stream->ended && (stream->status != 200 || stream->problem[0] || stream->transcript.fault[0]))
        es_fail_phase(r, "the stream broke off while the prompt arrived");
    if (stream->ended && stream->transcript.times.item[stream->transcript.times.count - 1] < to)
        es_unsupported_phase(r, "the stream ended by itself while the prompt arrived");
    else
        add_stall_figures(c, r, &w, from, to, alone_first);
}

/* ---- behind ---- */

void es_phase_behind(es_trial *c, es_trial_result *r)
{
    const int64_t tokens = es_long_prompt(c, 64), few = c->options.short_prompt ? c->options.short_prompt : 100;
    es_reply *alone = ask_document(c, r, few);
    if (!alone || !es_trial_await_answer(c, r, alone) || alone->transcript.times.count == 0) {
        es_fail_phase(r, "the short prompt alone got no answer");
        return;
    }
    const double alone_first = alone->transcript.times.item[0] - alone->began;
    es_reply *before = ask_document(c, r, tokens);
    if (!before) return;
    /* Until it is in the middle: as long as the short one took, at least. */
    es_client_run(c->client, fmax(alone_first, 0.05), NULL, NULL);
    es_reply *behind = ask_document(c, r, few);
    if (!behind || !es_trial_await_answer(c, r, behind) || behind->transcript.times.count == 0) {
        es_fail_phase(r, "the short prompt behind a long one got no answer");
        return;
    }
    const double first = behind->transcript.times.item[0] - behind->began;
    if (!es_trial_await_answer(c, r, before)) return;
    es_trial_figure_add(r, "short_first_token_alone_ms", 1e3 * alone_first);
    es_trial_figure_add(r, "short_first_token_behind_ms", 1e3 * first);
    if (before->transcript.times.count && before->transcript.times.item[0] < behind->began)
        es_unsupported_phase(r, "the long prompt was done before the short one came");
    else if (!c->options.no_timing && first > 3 * alone_first + 1)
        es_fail_phase(r, "behind a long prompt the first token took %.2f s, alone %.2f s", first, alone_first);
}

/* ---- disconnect ---- */

static double time_short(es_trial *c, es_trial_result *r)
{
    es_reply *reply = es_trial_ask(c, &(es_question){.text = "Say yes.", .max_tokens = 4});
    if (!es_trial_await_answer(c, r, reply)) return -1;
    const double seconds = reply->closed - reply->began;
    es_client_drop(c->client, reply);
    return seconds;
}

/* Seconds until the server says that nothing runs; −1: never within the bound. */
static double wait_for_rest(es_trial *c, double most)
{
    const double began = es_client_now(c->client);
    while (es_client_now(c->client) - began < most && es_time_left(c) > 0) {
        if (es_count_running(c) == 0) return es_client_now(c->client) - began;
        es_client_run(c->client, 0.02, NULL, NULL);
    }
    return -1;
}

/* Leaves in the middle of `all`; then the places must come back. */
static bool leave(es_trial *c, es_trial_result *r, crowd *all, bool counted, double usual, const char *when)
{
    for (size_t i = 0; i < all->count; i++) es_client_drop(c->client, all->reply[i]);
    if (counted) {
        const double seconds = wait_for_rest(c, 15);
        if (seconds < 0) {
            es_fail_phase(r, "15 s after the clients left %s the server still works for them", when);
            return false;
        }
        es_trial_figure_add(r, strcmp(when, "in mid-answer") == 0 ? "rest_after_answer_ms" : "rest_after_prompt_ms",
                            1e3 * seconds);
    }
    const double again = time_short(c, r);
    if (again < 0) return false;
    if (!counted && !c->options.no_timing && again > 3 * usual + 2) {
        es_fail_phase(r, "after the clients left %s a short request takes %.1f s instead of %.1f s", when, again, usual);
        return false;
    }
    return true;
}

void es_phase_disconnect(es_trial *c, es_trial_result *r)
{
    const double usual = time_short(c, r);
    if (usual < 0) return;
    const bool endless = es_can_ignore_eos(c);
    const bool counted = es_count_running(c) >= 0 && wait_for_rest(c, 10) >= 0;
    if (!counted && c->options.no_timing) {
        es_unsupported_phase(r, "the server does not tell what it is running, and without timing nothing else shows it");
        return;
    }
    if (!counted) es_note_phase(r, "the server does not tell what it is running; judged by the time of a short request");
    crowd all = {.count = c->options.parallel > MANY ? MANY : (size_t)c->options.parallel};
    for (size_t i = 0; i < all.count; i++) all.reply[i] = ask_for_count(c, i, endless_tokens(c), endless);
    es_client_run(c->client, fmin(es_time_left(c), 60), all_begun, &all);
    if (!leave(c, r, &all, counted, usual, "in mid-answer")) return;
    all.count = 1;
    all.reply[0] = ask_document(c, r, es_long_prompt(c, 64));
    if (!all.reply[0]) return;
    es_client_run(c->client, 0.1, all_begun, &all);
    leave(c, r, &all, counted, usual, "during the prompt");
    es_trial_figure_add(r, "short_request_ms", 1e3 * usual);
}

/* ---- overload ---- */

void es_phase_overload(es_trial *c, es_trial_result *r)
{
    crowd all = {.count = c->options.overload > MANY ? MANY : (size_t)c->options.overload};
    for (size_t i = 0; i < all.count; i++) {
        char text[80];
        snprintf(text, sizeof text, "Name %zu animals.", i + 2);
        all.reply[i] = es_trial_ask(c, &(es_question){.text = text, .max_tokens = 8});
    }
    const double began = es_client_now(c->client);
    es_client_run(c->client, es_time_left(c), all_ended, &all);
    size_t answered = 0, refused = 0;
    for (size_t i = 0; i < all.count; i++) {
        const es_reply *reply = all.reply[i];
        if (!reply->ended)
            es_fail_phase(r, "request %zu of %zu was never answered", i + 1, all.count);
        else if (!reply->status)
            es_fail_phase(r, "request %zu of %zu broke off: %s", i + 1, all.count, reply->problem);
        else if (reply->status == 429 || reply->status == 503) {
            refused++;
            if (!reply->transcript.error)
                es_fail_phase(r, "a %d without an error object", reply->status);
            else if (!reply->retry_after)
                es_note_phase(r, "a %d without Retry-After", reply->status);
        } else if (reply->status != 200)
            es_fail_phase(r, "a request ended in status %d", reply->status);
        else if (reply->problem[0] || reply->transcript.fault[0])
            es_fail_phase(r, "an answer is not whole");
        else
            answered++;
    }
    es_trial_figure_add(r, "requests", (double)all.count);
    es_trial_figure_add(r, "answered", (double)answered);
    es_trial_figure_add(r, "refused", (double)refused);
    es_trial_figure_add(r, "all_ended_s", es_client_now(c->client) - began);
    if (answered == 0) es_fail_phase(r, "not one request was answered");
}
