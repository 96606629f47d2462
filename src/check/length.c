/* length.c: the phases about long texts: truncation, overflow, recall. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check/phases.h"

/* ---- truncation: what the first server died of ---- */

static void plot_gaps(es_trial_result *r, const es_numbers *times, const char *title)
{
    r->plot.title = title;
    r->plot.x_name = "chunk";
    r->plot.y_name = "ms since the chunk before";
    for (size_t i = 1; i < times->count; i++) {
        es_numbers_add(&r->plot.x, (double)i);
        es_numbers_add(&r->plot.y, 1e3 * (times->item[i] - times->item[i - 1]));
    }
}

static void add_gap_figures(es_trial_result *r, const es_numbers *times)
{
    if (times->count < 8) return;
    const double begin = times->item[0], end = times->item[times->count - 1];
    es_numbers all = {0}, late = {0};
    es_numbers_gaps(times, begin, end, &all, NULL);
    es_numbers_gaps(times, times->item[times->count * 3 / 4], end, &late, NULL);
    es_trial_figure_add(r, "gap_median_ms", 1e3 * es_numbers_quantile(&all, 0.5));
    es_trial_figure_add(r, "gap_p99_ms", 1e3 * es_numbers_quantile(&all, 0.99));
    es_trial_figure_add(r, "gap_max_ms", 1e3 * es_numbers_max(&all));
    es_trial_figure_add(r, "gap_median_last_quarter_ms", 1e3 * es_numbers_quantile(&late, 0.5));
    es_numbers_free(&all);
    es_numbers_free(&late);
}

void es_phase_truncation(es_trial *c, es_trial_result *r)
{
    int64_t answer = c->options.truncation;
    const int64_t context = es_find_context(c);
    if (context > 0 && answer > context / 2) answer = context / 2;
    const int64_t prompt = es_long_prompt(c, answer);
    es_text text = {0};
    if (!es_write_document(c, prompt, &text)) {
        es_fail_phase(r, "short prompts are not answered, or without usage");
        es_text_free(&text);
        return;
    }
    es_text_puts(&text, "\nGo on with this chronicle in the same manner, day after day, as long as you can.");
    const bool endless = es_can_ignore_eos(c);
    es_reply *reply =
        es_trial_ask(c, &(es_question){.text = text.data, .max_tokens = answer, .stream = true, .ignore_eos = endless});
    es_text_free(&text);
    const bool whole = es_trial_await_answer(c, r, reply);
    const es_transcript *t = &reply->transcript;
    es_trial_figure_add(r, "asked_tokens", (double)answer);
    if (t->times.count) es_trial_figure_add(r, "first_token_s", t->times.item[0] - reply->began);
    add_gap_figures(r, &t->times);
    plot_gaps(r, &t->times, "Gaps of a long answer");
    if (!whole) {
        es_trial_figure_add(r, "chunks_before_it_broke", (double)t->times.count);
        return;
    }
    es_trial_figure_add(r, "prompt_tokens", (double)t->prompt_tokens);
    es_trial_figure_add(r, "completion_tokens", (double)t->completion_tokens);
    if (t->usages != 1)
        es_fail_phase(r, "no usage at the end of the stream");
    else if (t->prompt_tokens < prompt / 2)
        es_fail_phase(r, "usage tells %" PRId64 " prompt tokens for about %" PRId64 ": the prompt was cut", t->prompt_tokens,
                      prompt);
    else if (t->completion_tokens > answer || t->completion_tokens < 1)
        es_fail_phase(r, "usage tells %" PRId64 " tokens where %" PRId64 " were asked for", t->completion_tokens, answer);
    else if (strcmp(t->finish, "length") == 0 && t->completion_tokens != answer)
        es_fail_phase(r, "finish_reason \"length\" after %" PRId64 " of %" PRId64 " tokens", t->completion_tokens, answer);
    else if (strcmp(t->finish, "length") != 0 && endless)
        es_fail_phase(r, "the answer ended by itself after %" PRId64 " of %" PRId64 " tokens, with ignore_eos",
                      t->completion_tokens, answer);
    else if (strcmp(t->finish, "length") != 0)
        es_note_phase(r, "the model ended by itself after %" PRId64 " of %" PRId64 " tokens", t->completion_tokens, answer);
}

/* ---- overflow ---- */

void es_phase_overflow(es_trial *c, es_trial_result *r)
{
    const int64_t context = es_find_context(c);
    if (!context) {
        es_unsupported_phase(r, "the server does not tell its context; say it with --context");
        return;
    }
    es_text text = {0};
    if (!es_write_document(c, context + context / 8 + 256, &text))
        es_fail_phase(r, "short prompts are not answered, or without usage");
    es_reply *reply =
        r->verdict == ES_TRIAL_PASS ? es_trial_ask(c, &(es_question){.text = text.data, .max_tokens = 16}) : NULL;
    es_text_free(&text);
    if (!reply || !es_trial_await(c, r, reply)) return;
    const es_transcript *t = &reply->transcript;
    es_trial_figure_add(r, "context_tokens", (double)context);
    es_trial_figure_add(r, "status", reply->status);
    es_trial_figure_add(r, "refused_after_ms", 1e3 * (reply->closed - reply->began));
    if (reply->status == 200)
        es_fail_phase(r, "it was answered all the same: some of the prompt was dropped in silence");
    else if (reply->status != 400)
        es_fail_phase(r, "status %d, not 400", reply->status);
    else if (!t->error || !t->error_message)
        es_fail_phase(r, "status 400 without an error object that says why");
    else if (!t->error_numbers)
        es_fail_phase(r, "the error does not say how many tokens there are and how many fit");
    else if (!t->error_code[0])
        es_note_phase(r, "the error has no code (OpenAI's is context_length_exceeded)");
}

/* ---- recall ---- */

enum { FACTS = 3 };
static const int places[FACTS] = {10, 50, 90}; /* per cent of the document */

/* A document of `tokens` with one number in it, and the question for it; true when the answer has the number. */
static bool recall_once(es_trial *c, es_trial_result *r, int64_t tokens, int place, bool *found)
{
    es_text document = {0}, text = {0};
    const unsigned secret = 1000 + (c->seed * 7919u + (unsigned)place * 131u) % 9000;
    *found = false;
    if (!es_write_document(c, tokens, &document)) {
        es_fail_phase(r, "short prompts are not answered, or without usage");
        es_text_free(&document);
        return false;
    }
    size_t at = document.bytes * (size_t)place / 100;
    while (at && document.data[at - 1] != '.') at--;
    es_text_append(&text, document.data, at);
    es_text_printf(&text, " The secret number of the lighthouse is %u. ", secret);
    es_text_append(&text, document.data + at, document.bytes - at);
    es_text_puts(&text, "\nWhat is the secret number of the lighthouse? Answer with the number only.");
    es_reply *reply =
        es_trial_ask(c, &(es_question){.text = text.data ? text.data : "", .max_tokens = c->completions ? 16 : 400});
    es_text_free(&document);
    es_text_free(&text);
    if (!es_trial_await_answer(c, r, reply)) return false;
    char digits[16];
    snprintf(digits, sizeof digits, "%u", secret);
    *found = reply->transcript.text.data && strstr(reply->transcript.text.data, digits);
    es_client_drop(c->client, reply);
    return true;
}

static bool recall_facts(es_trial *c, es_trial_result *r, int64_t tokens, int *count)
{
    *count = 0;
    for (int i = 0; i < FACTS; i++) {
        bool found;
        if (!recall_once(c, r, tokens, places[i], &found)) return false;
        *count += found;
    }
    return true;
}

void es_phase_recall(es_trial *c, es_trial_result *r)
{
    const int64_t most = es_long_prompt(c, 500), asked = c->options.recall > 0 ? c->options.recall : most;
    if (asked > most && es_find_context(c) && asked > es_find_context(c) - 500) {
        es_unsupported_phase(r, "%" PRId64 " tokens do not fit the context of %" PRId64, asked, es_find_context(c));
        return;
    }
    int near, far;
    if (!recall_facts(c, r, 128, &near)) return;
    es_trial_figure_add(r, "found_in_128_tokens", near);
    if (near == 0 && c->options.recall <= 0) {
        es_unsupported_phase(r, "this model does not find a fact in a short text either");
        return;
    }
    if (!recall_facts(c, r, asked, &far)) return;
    es_trial_figure_add(r, "document_tokens", (double)asked);
    es_trial_figure_add(r, "found", far);
    es_trial_figure_add(r, "planted", FACTS);
    if (far < FACTS && c->options.recall > 0)
        es_fail_phase(r, "%d of %d facts were found in %" PRId64 " tokens", far, FACTS, asked);
    else if (far < FACTS)
        es_unsupported_phase(r,
                             "the model found %d of %d facts in %" PRId64
                             " tokens (%d in a short text); a small model may not "
                             "find more, so this is judged only with --recall",
                             far, FACTS, asked, near);
}
