/* check.c: the table of phases, and what runs one. See check.h. */
#include "check/phases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct phase {
    const char *name;
    int weight;                /* 0: not one of all, only when it is named */
    double limit, quick_limit; /* seconds */
    void (*run)(es_trial *c, es_trial_result *r);
    const char *about;
} phase;

static const phase phases[] = {
    {"alive", 4, 30, 30, es_phase_alive, "the server answers at all"},
    {"models", 2, 30, 30, es_phase_models, "/v1/models names the model"},
    {"chat", 6, 300, 120, es_phase_chat, "a whole answer, in OpenAI's shape, with usage that adds up"},
    {"stream", 6, 300, 120, es_phase_stream, "a stream: role, text, one finish_reason, usage, [DONE]"},
    {"stop", 4, 600, 120, es_phase_stop, "a stop string ends the answer and is no part of it"},
    {"truncation", 12, 7200, 600, es_phase_truncation, "a long prompt and a long answer arrive whole"},
    {"overflow", 6, 300, 120, es_phase_overflow, "a prompt that can never fit gets status 400 and a reason"},
    {"recall", 4, 3600, 600, es_phase_recall, "a fact from a long document is still known at its end"},
    {"concurrency", 8, 900, 300, es_phase_concurrency, "several requests at once, each whole"},
    {"stall", 12, 3600, 600, es_phase_stall, "a stream keeps running while a long prompt arrives"},
    {"behind", 0, 3600, 600, es_phase_behind, "a short prompt does not wait behind a long one"},
    {"disconnect", 8, 900, 300, es_phase_disconnect, "work for a client that left ends, and its place is free again"},
    {"repeatability", 10, 1800, 300, es_phase_repeatability, "one request, one answer: alone, in company, and warm"},
    {"cache", 4, 1800, 300, es_phase_cache, "a conversation that goes on is not computed from its start"},
    {"malformed", 6, 300, 120, es_phase_malformed, "nonsense gets a 4xx with a reason, and harms nobody"},
    {"overload", 8, 900, 300, es_phase_overload, "more requests than places: each is answered or told to come back"},
};
enum { PHASES = sizeof phases / sizeof *phases };
_Static_assert((int)PHASES <= (int)ES_TRIAL_PHASES_MAX, "room for each phase");

const char *es_trial_verdict_name(es_trial_verdict verdict)
{
    static const char *const names[] = {"not_run", "pass", "fail", "unsupported"};
    return names[verdict];
}

const char *es_trial_phase_name(size_t i)
{
    return i < PHASES ? phases[i].name : NULL;
}

/* ---- verdicts ---- */

static void __attribute__((format(printf, 2, 0))) write_note(es_trial_result *r, const char *format, va_list arguments)
{
    vsnprintf(r->note, sizeof r->note, format, arguments);
}

void es_fail_phase(es_trial_result *r, const char *format, ...)
{
    if (r->verdict == ES_TRIAL_FAIL) return;
    r->verdict = ES_TRIAL_FAIL;
    va_list arguments;
    va_start(arguments, format);
    write_note(r, format, arguments);
    va_end(arguments);
}

void es_unsupported_phase(es_trial_result *r, const char *format, ...)
{
    if (r->verdict == ES_TRIAL_FAIL || r->verdict == ES_TRIAL_UNSUPPORTED) return;
    r->verdict = ES_TRIAL_UNSUPPORTED;
    va_list arguments;
    va_start(arguments, format);
    write_note(r, format, arguments);
    va_end(arguments);
}

void es_note_phase(es_trial_result *r, const char *format, ...)
{
    if (r->note[0]) return;
    va_list arguments;
    va_start(arguments, format);
    write_note(r, format, arguments);
    va_end(arguments);
}

void es_trial_figure_add(es_trial_result *r, const char *name, double value)
{
    if (!isfinite(value) || r->figures == ES_TRIAL_FIGURES) return;
    r->figure[r->figures++] = (es_trial_figure){name, value};
}

/* ---- opening ---- */

static const phase *find_phase(const char *name, size_t bytes)
{
    for (size_t i = 0; i < PHASES; i++)
        if (strlen(phases[i].name) == bytes && memcmp(phases[i].name, name, bytes) == 0) return &phases[i];
    return NULL;
}

/* Phases run in the table's order, whatever the list's. */
static es_status choose_phases(es_trial *c)
{
    bool wanted[PHASES];
    const char *list = c->options.phases;
    for (size_t i = 0; i < PHASES; i++) wanted[i] = !list && phases[i].weight > 0;
    while (list && *list) {
        const size_t n = strcspn(list, ",");
        const phase *found = find_phase(list, n);
        if (!found && n) {
            es_text names = {0};
            for (size_t i = 0; i < PHASES; i++) es_text_printf(&names, "%s%s", i ? ", " : "", phases[i].name);
            const es_status status = es_fail(ES_INVALID, "there is no phase \"%.*s\"; there are: %s", (int)(n < 40 ? n : 40),
                                             list, names.data ? names.data : "");
            es_text_free(&names);
            return status;
        }
        if (found) wanted[found - phases] = true;
        list += list[n] ? n + 1 : n;
    }
    for (size_t i = 0; i < PHASES; i++) {
        if (!wanted[i]) continue;
        const phase *p = &phases[i];
        const double limit = c->options.limit > 0 ? c->options.limit : c->options.quick ? p->quick_limit : p->limit;
        c->run[c->count] = p->run;
        c->results[c->count++] = (es_trial_result){.name = p->name, .about = p->about, .weight = p->weight, .limit = limit};
    }
    return c->count ? ES_OK : es_fail(ES_INVALID, "no phase is left to run");
}

es_status es_trial_open(const es_trial_options *options, es_trial **out)
{
    es_trial *c = calloc(1, sizeof *c);
    if (!c) return es_fail(ES_NO_MEMORY, "no memory for a check");
    c->options = *options;
    const bool quick = options->quick;
    if (c->options.prompt <= 0) c->options.prompt = quick ? 512 : 8192;
    if (c->options.truncation <= 0) c->options.truncation = quick ? 128 : 8192;
    if (c->options.parallel <= 0) c->options.parallel = 4;
    if (c->options.overload <= 0) c->options.overload = 32;
    c->context = options->context > 0 ? options->context : 0;
    c->asked_context = c->context > 0;
    es_status status = choose_phases(c);
    if (status == ES_OK) status = es_client_open(options->url, options->key, &c->client);
    if (status != ES_OK) {
        free(c);
        return status;
    }
    if (options->model) snprintf(c->model, sizeof c->model, "%s", options->model);
    /* new documents for each run, so that a cache warmed by the last one does not answer */
    c->seed = (uint32_t)(((uintptr_t)c >> 4) ^ (uint64_t)(es_client_now(c->client) * 1e9));
    *out = c;
    return ES_OK;
}

void es_trial_close(es_trial *check)
{
    if (!check) return;
    for (size_t i = 0; i < check->count; i++) {
        es_numbers_free(&check->results[i].plot.x);
        es_numbers_free(&check->results[i].plot.y);
    }
    es_client_close(check->client);
    free(check);
}

/* ---- running ---- */

/* Any answer will do: what harms a server shows in that there is none. */
static void check_still_there(es_trial *c, es_trial_result *r)
{
    es_reply *reply = es_trial_fetch(c, "/v1/models");
    es_client_finish(c->client, reply, 30);
    if (reply->status) c->reached = true;
    if (!reply->ended)
        es_fail_phase(r, "after this phase the server does not answer within 30 s");
    else if (!reply->status)
        es_fail_phase(r, "after this phase the server is gone: %s", reply->problem);
    es_client_drop(c->client, reply);
}

const es_trial_result *es_trial_phase(es_trial *check, size_t i)
{
    es_trial_result *r = &check->results[i];
    const double began = es_client_now(check->client);
    check->deadline = began + r->limit;
    r->verdict = ES_TRIAL_PASS;
    check->run[i](check, r);
    es_client_drop_all(check->client);
    r->seconds = es_client_now(check->client) - began;
    check_still_there(check, r);
    return r;
}

size_t es_trial_count(const es_trial *check)
{
    return check->count;
}

const es_trial_result *es_trial_get(const es_trial *check, size_t i)
{
    return &check->results[i];
}

bool es_trial_unreachable(const es_trial *check)
{
    return !check->reached;
}

double es_trial_score(const es_trial *check)
{
    int passed = 0, judged = 0;
    for (size_t i = 0; i < check->count; i++) {
        const es_trial_result *r = &check->results[i];
        if (r->verdict == ES_TRIAL_PASS) passed += r->weight;
        if (r->verdict == ES_TRIAL_PASS || r->verdict == ES_TRIAL_FAIL) judged += r->weight;
    }
    return judged ? 100.0 * passed / judged : 100;
}

size_t es_trial_tally(const es_trial *check, es_trial_verdict verdict)
{
    size_t n = 0;
    for (size_t i = 0; i < check->count; i++) n += check->results[i].verdict == verdict;
    return n;
}

const char *es_trial_url(const es_trial *check)
{
    return es_client_url(check->client);
}

const char *es_trial_model(const es_trial *check)
{
    return check->model;
}
