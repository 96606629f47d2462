/* basic.c: the phases without which nothing else means anything: alive, models, chat, stream, stop. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "check/phases.h"

static const char question[] = "List the seven days of the week, then the twelve months of the year, one on each line.";

void es_phase_alive(es_trial *c, es_trial_result *r)
{
    es_reply *models = es_trial_fetch(c, "/v1/models");
    if (!es_trial_await(c, r, models)) return;
    if (models->status >= 500) es_fail_phase(r, "/v1/models: status %d", models->status);
    if (models->status == 401 || models->status == 403)
        es_fail_phase(r, "status %d: it wants a key (--api-key)", models->status);
    es_reply *health = es_trial_fetch(c, "/health");
    if (!es_trial_await(c, r, health)) return;
    es_trial_figure_add(r, "answer_ms", 1e3 * (models->closed - models->began));
    if (health->status == 200)
        es_trial_figure_add(r, "health_ms", 1e3 * (health->closed - health->began));
    else if (health->status != 404 && health->status != 405)
        es_fail_phase(r, "/health: status %d", health->status);
    else
        es_note_phase(r, "there is no /health");
}

/* One entry of the list; whether it is the wanted model. */
static bool read_model(es_trial *c, es_trial_result *r, const json_t *model)
{
    const char *id = json_string_value(json_object_get(model, "id"));
    if (!id || !*id) {
        es_fail_phase(r, "an entry without an id");
        return false;
    }
    const char *object = json_string_value(json_object_get(model, "object"));
    if (!object || strcmp(object, "model") != 0) es_fail_phase(r, "an entry whose \"object\" is not \"model\"");
    if (!c->model[0]) snprintf(c->model, sizeof c->model, "%s", id);
    return strcmp(c->model, id) == 0;
}

void es_phase_models(es_trial *c, es_trial_result *r)
{
    es_reply *reply = es_trial_fetch(c, "/v1/models");
    if (!es_trial_await(c, r, reply)) return;
    if (reply->status == 404) {
        es_unsupported_phase(r, "there is no /v1/models");
        return;
    }
    json_t *root = json_loadb(reply->body.data ? reply->body.data : "", reply->body.bytes, 0, NULL);
    const json_t *data = json_object_get(root, "data");
    const char *object = json_string_value(json_object_get(root, "object"));
    bool found = false;
    size_t i;
    json_t *model;
    json_array_foreach(data, i, model) found |= read_model(c, r, model);
    if (reply->status != 200)
        es_fail_phase(r, "status %d", reply->status);
    else if (!object || strcmp(object, "list") != 0 || json_array_size(data) == 0)
        es_fail_phase(r, "not a list of models");
    else if (!found)
        es_fail_phase(r, "the model that was asked for is not among the %zu there are", json_array_size(data));
    es_trial_figure_add(r, "models", (double)json_array_size(data));
    if (es_find_context(c)) es_trial_figure_add(r, "context_tokens", (double)c->context);
    json_decref(root);
}

static void check_type(es_trial_result *r, const es_reply *reply, const char *type)
{
    if (strncasecmp(reply->type, type, strlen(type)) != 0) es_fail_phase(r, "the Content-Type is not %s", type);
}

static void check_length(es_trial_result *r, const es_transcript *t, int64_t most)
{
    if (t->completion_tokens > most || t->completion_tokens < 1)
        es_fail_phase(r, "usage tells %lld tokens of an answer that may have %lld", (long long)t->completion_tokens,
                      (long long)most);
    if (strcmp(t->finish, "stop") != 0 && strcmp(t->finish, "length") != 0)
        es_fail_phase(r, "the finish_reason is neither \"stop\" nor \"length\"");
    if (strcmp(t->finish, "length") == 0 && t->completion_tokens != most)
        es_fail_phase(r, "finish_reason \"length\" after %lld of %lld tokens", (long long)t->completion_tokens,
                      (long long)most);
}

/* A model without a chat template may still complete texts: then all that follows is asked that way. */
static bool chats(es_trial *c, es_trial_result *r, es_reply *chat)
{
    if (chat->status < 400 || chat->status >= 500 || chat->status == 401 || chat->status == 429) return true;
    c->completions = true;
    es_reply *reply = es_trial_ask(c, &(es_question){.text = question, .max_tokens = 16});
    es_client_finish(c->client, reply, es_time_left(c));
    c->completions = reply->status == 200;
    if (c->completions)
        es_unsupported_phase(r, "chat is refused with status %d; the other phases ask for completions", chat->status);
    return !c->completions;
}

void es_phase_chat(es_trial *c, es_trial_result *r)
{
    es_reply *reply = es_trial_ask(c, &(es_question){.text = question, .max_tokens = 16});
    if (!es_trial_await(c, r, reply) || !chats(c, r, reply) || !es_trial_await_answer(c, r, reply)) return;
    check_type(r, reply, "application/json");
    check_length(r, &reply->transcript, 16);
    if (reply->transcript.text.bytes + reply->transcript.reasoning.bytes == 0) es_fail_phase(r, "the answer is empty");
    es_trial_figure_add(r, "answer_ms", 1e3 * (reply->closed - reply->began));
    es_trial_figure_add(r, "prompt_tokens", (double)reply->transcript.prompt_tokens);
    es_trial_figure_add(r, "completion_tokens", (double)reply->transcript.completion_tokens);
}

void es_phase_stream(es_trial *c, es_trial_result *r)
{
    es_reply *reply = es_trial_ask(c, &(es_question){.text = question, .max_tokens = 32, .stream = true});
    if (!es_trial_await(c, r, reply)) return;
    if (reply->status == 200 && !reply->streamed) es_fail_phase(r, "the Content-Type is not text/event-stream");
    if (!es_trial_await_answer(c, r, reply)) return;
    const es_transcript *t = &reply->transcript;
    if (t->usages != 1)
        es_fail_phase(r, "include_usage was asked for, and no chunk has usage");
    else
        check_length(r, t, 32);
    if (t->chat && t->roles != 1) es_fail_phase(r, "%d deltas name a role, not one", t->roles);
    if (t->text.bytes + t->reasoning.bytes == 0) es_fail_phase(r, "the answer is empty");
    es_trial_figure_add(r, "headers_ms", 1e3 * (reply->headed - reply->began));
    if (t->times.count) es_trial_figure_add(r, "first_token_ms", 1e3 * (t->times.item[0] - reply->began));
    es_trial_figure_add(r, "chunks", t->chunks);
    es_reply *plain = es_trial_ask(c, &(es_question){.text = question, .max_tokens = 4, .stream = true, .no_usage = true});
    if (!es_trial_await_answer(c, r, plain)) return;
    if (plain->transcript.usages && !r->note[0]) es_note_phase(r, "usage comes in streams that did not ask for it");
}

/* Four plain characters from the middle of the text, where no shorter answer could end by chance. */
static bool choose_stop(const es_text *text, char stop[5])
{
    for (size_t i = text->bytes / 2; text->bytes >= 12 && i + 4 < text->bytes; i++) {
        bool plain = true;
        for (size_t k = i; k < i + 4; k++) plain &= text->data[k] >= ' ' && text->data[k] < 0x7F;
        if (!plain || text->data[i] == ' ') continue;
        memcpy(stop, text->data + i, 4);
        stop[4] = 0;
        return true;
    }
    return false;
}

static bool stop_once(es_trial *c, es_trial_result *r, const es_text *whole, const char *stop, bool stream)
{
    es_reply *reply = es_trial_ask(c, &(es_question){.text = question, .max_tokens = 64, .stop = stop, .stream = stream});
    if (!es_trial_await_answer(c, r, reply)) return false;
    const es_transcript *t = &reply->transcript;
    const char *text = t->text.data ? t->text.data : "", *expected_end = strstr(whole->data, stop);
    const size_t expected = expected_end ? (size_t)(expected_end - whole->data) : 0;
    if (strstr(text, stop))
        es_fail_phase(r, "the stop string is in the %s", stream ? "stream" : "answer");
    else if (strcmp(t->finish, "stop") != 0)
        es_fail_phase(r, "finish_reason is \"%s\", not \"stop\"", t->finish);
    else if (t->text.bytes != expected || memcmp(text, whole->data, expected) != 0)
        es_fail_phase(r, "the stopped %s is not what comes before the stop string", stream ? "stream" : "answer");
    return r->verdict == ES_TRIAL_PASS;
}

void es_phase_stop(es_trial *c, es_trial_result *r)
{
    es_reply *whole = es_trial_ask(c, &(es_question){.text = question, .max_tokens = 64});
    es_reply *again = NULL;
    if (!es_trial_await_answer(c, r, whole)) return;
    again = es_trial_ask(c, &(es_question){.text = question, .max_tokens = 64});
    if (!es_trial_await_answer(c, r, again)) return;
    char stop[5];
    if (!es_same_text(&whole->transcript.text, &again->transcript.text))
        es_unsupported_phase(r, "the same greedy request gives different answers, so none can be compared");
    else if (!choose_stop(&whole->transcript.text, stop))
        es_unsupported_phase(r, "the answer is too short to stop inside it");
    else if (stop_once(c, r, &whole->transcript.text, stop, false))
        stop_once(c, r, &whole->transcript.text, stop, true);
}
