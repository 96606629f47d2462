/* same.c: the phases about answers that must not change: repeatability, cache. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/phases.h"

/* ---- repeatability ---- */

typedef struct answer {
    es_reply *reply;
    const char *how;
} answer;

static es_reply *ask_subject(es_trial *c, const char *text, bool logprobs)
{
    return es_trial_ask(
        c, &(es_question){
               .text = text, .max_tokens = c->options.quick ? 24 : 64, .ignore_eos = c->can_ignore_eos, .logprobs = logprobs});
}

static bool same_numbers(const es_numbers *a, const es_numbers *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->item, b->item, a->count * sizeof *a->item) == 0);
}

static double greatest_difference(const es_numbers *a, const es_numbers *b)
{
    double most = 0;
    for (size_t i = 0; i < a->count && i < b->count; i++) most = fmax(most, fabs(a->item[i] - b->item[i]));
    return most;
}

static bool differs(const es_reply *a, const es_reply *b)
{
    return !es_same_text(&a->transcript.text, &b->transcript.text) ||
           !es_same_text(&a->transcript.reasoning, &b->transcript.reasoning);
}

/* Long and short neighbours, so that batches and prompt chunks of many shapes pass by. */
static void add_company(es_trial *c, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        es_text text = {0};
        es_write_document(c, 40 + 90 * (int64_t)i, &text);
        es_trial_ask(c, &(es_question){.text = text.data ? text.data : "Go on.",
                                       .max_tokens = 48 + 16 * (int64_t)i,
                                       .stream = true,
                                       .ignore_eos = c->can_ignore_eos});
        es_text_free(&text);
    }
}

static void compare_answers(es_trial_result *r, const answer *answers, size_t count)
{
    size_t distinct = 1;
    double off = 0;
    for (size_t i = 1; i < count; i++) {
        bool new = true;
        for (size_t k = 0; k < i; k++) new &= differs(answers[i].reply, answers[k].reply);
        distinct += new;
        if (differs(answers[0].reply, answers[i].reply))
            es_fail_phase(r, "the answer %s is not the one alone", answers[i].how);
        const es_numbers *a = &answers[0].reply->transcript.logprobs, *b = &answers[i].reply->transcript.logprobs;
        off = fmax(off, greatest_difference(a, b));
        if (!same_numbers(a, b)) es_fail_phase(r, "the log-probabilities %s are not those alone", answers[i].how);
    }
    es_trial_figure_add(r, "answers", (double)count);
    es_trial_figure_add(r, "distinct_answers", (double)distinct);
    es_trial_figure_add(r, "logprobs", (double)answers[0].reply->transcript.logprobs.count);
    es_trial_figure_add(r, "logprobs_off_by", off);
}

void es_phase_repeatability(es_trial *c, es_trial_result *r)
{
    es_text text = {0};
    es_can_ignore_eos(c);
    if (!es_write_document(c, c->options.quick ? 100 : 300, &text)) {
        es_fail_phase(r, "short prompts are not answered, or without usage");
        es_text_free(&text);
        return;
    }
    es_text_puts(&text, "\nTell what happened, in your own words.");
    answer answers[] = {
        {NULL, "alone"             },
        {NULL, "again, warm"       },
        {NULL, "in company"        },
        {NULL, "in company, second"},
        {NULL, "after the company" }
    };
    enum { ANSWERS = sizeof answers / sizeof *answers };
    bool logprobs = true;
    for (size_t i = 0; i < ANSWERS; i++) {
        if (i == 2) add_company(c, (size_t)c->options.parallel > 8 ? 8 : (size_t)c->options.parallel);
        answers[i].reply = ask_subject(c, text.data, logprobs);
        if (!es_trial_await(c, r, answers[i].reply)) break;
        if (i == 0 && answers[0].reply->status >= 400 && answers[0].reply->status < 500) {
            logprobs = false; /* refused with log-probabilities: without them? */
            es_note_phase(r, "no log-probabilities here; texts were compared");
            answers[0].reply = ask_subject(c, text.data, false);
        }
        if (!es_trial_await_answer(c, r, answers[i].reply)) break;
    }
    es_text_free(&text);
    if (r->verdict != ES_TRIAL_PASS) return;
    if (logprobs && answers[0].reply->transcript.logprobs.count == 0)
        es_note_phase(r, "log-probabilities were asked for and do not come; texts were compared");
    compare_answers(r, answers, ANSWERS);
}

/* ---- cache ---- */

static bool first_token(const es_reply *reply, double *seconds)
{
    if (reply->transcript.times.count == 0) return false;
    *seconds = reply->transcript.times.item[0] - reply->began;
    return true;
}

static void judge_reuse(es_trial *c, es_trial_result *r, const es_transcript *cold, const es_transcript *next, double before,
                        double after)
{
    const bool told = next->cached_tokens >= 0;
    const double share = told ? fmin((double)next->cached_tokens / (double)cold->prompt_tokens, 1) : 0;
    es_trial_figure_add(r, "prompt_tokens", (double)cold->prompt_tokens);
    if (told) es_trial_figure_add(r, "cached_tokens", (double)next->cached_tokens);
    if (told) es_trial_figure_add(r, "reused_share", share);
    es_trial_figure_add(r, "first_token_cold_ms", 1e3 * before);
    es_trial_figure_add(r, "first_token_next_turn_ms", 1e3 * after);
    if (next->cached_tokens > next->prompt_tokens || cold->cached_tokens > cold->prompt_tokens)
        es_fail_phase(r, "more tokens are cached than the prompt has");
    else if (told && next->cached_tokens > 0 && share < 0.5)
        es_fail_phase(r, "of a conversation that only went on, %.0f %% was reused", 100 * share);
    else if (told && next->cached_tokens == 0)
        es_unsupported_phase(r, "the server says that it reuses nothing");
    else if (!told && c->options.no_timing)
        es_unsupported_phase(r, "usage does not tell cached_tokens, and without timing nothing else shows them");
    else if (!told && after > 0.5 * before)
        es_unsupported_phase(r, "usage does not tell cached_tokens, and the next turn is not faster: nothing is reused");
}

void es_phase_cache(es_trial *c, es_trial_result *r)
{
    const int64_t tokens = es_long_prompt(c, 256);
    es_text text = {0};
    if (!es_write_document(c, tokens, &text)) {
        es_fail_phase(r, "short prompts are not answered, or without usage");
        es_text_free(&text);
        return;
    }
    es_text_puts(&text, "\nWhat is this about?");
    const es_question question = {.text = text.data, .max_tokens = 16, .stream = true};
    es_question more = {.text = text.data, .max_tokens = 8, .stream = true, .then = "And who is mentioned first?"};
    double before = 0, after = 0;
    es_reply *cold = es_trial_ask(c, &question);
    bool good = es_trial_await_answer(c, r, cold);
    more.answered = good && cold->transcript.text.data ? cold->transcript.text.data : "";
    es_reply *next = good ? es_trial_ask(c, &more) : NULL;
    good = good && es_trial_await_answer(c, r, next);
    es_reply *warm = good ? es_trial_ask(c, &question) : NULL;
    good = good && es_trial_await_answer(c, r, warm);
    es_text_free(&text);
    if (!good) return;
    if (cold->transcript.usages != 1 || !first_token(cold, &before) || !first_token(next, &after)) {
        es_fail_phase(r, "an answer without usage or without a token");
        return;
    }
    if (differs(cold, warm)) es_fail_phase(r, "the same request has another answer when it is warm");
    judge_reuse(c, r, &cold->transcript, &next->transcript, before, after);
}
