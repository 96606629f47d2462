/* answer_json.c: answers in OpenAI's shapes. Members stand in the order in which OpenAI sends them. */
#include <stdio.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/strict_json.h"

/* ---- log-probabilities ---- */

/* A token's bytes; for a model without a tokenizer its number stands for it. */
static const char *token_bytes(const es_answer *answer, es_token token, char number[32], size_t *bytes)
{
    const es_backend *backend = answer->api->backend;
    const char *piece = backend->piece(backend->self, token, bytes);
    if (piece) return piece;
    *bytes = (size_t)snprintf(number, 32, "token_id:%d", (int)token);
    return number;
}

static json_t *token_text(const es_answer *answer, es_token token)
{
    char number[32];
    size_t bytes;
    const char *piece = token_bytes(answer, token, number, &bytes);
    return es_json_text(piece, bytes);
}

/* JSON knows no infinity; −9999 is what OpenAI sends for "never". */
static json_t *logprob_json(float logprob)
{
    return json_real(logprob > -9999.0f ? (double)logprob : -9999.0);
}

static json_t *chat_entry(const es_answer *answer, es_token token, float logprob)
{
    char number[32];
    size_t bytes;
    const char *piece = token_bytes(answer, token, number, &bytes);
    json_t *list = json_array();
    for (size_t i = 0; i < bytes; i++) json_array_append_new(list, json_integer((unsigned char)piece[i]));
    json_t *entry = json_object();
    json_object_set_new(entry, "token", es_json_text(piece, bytes));
    json_object_set_new(entry, "logprob", logprob_json(logprob));
    json_object_set_new(entry, "bytes", list);
    return entry;
}

static void add_chat_logprobs(const es_answer *answer, es_choice *choice, const es_event *event)
{
    if (!choice->logprobs) choice->logprobs = json_array();
    json_t *entry = chat_entry(answer, event->token, event->logprob);
    json_t *top = json_array();
    for (int i = 0; i < event->top_count; i++)
        json_array_append_new(top, chat_entry(answer, event->top[i].token, event->top[i].logprob));
    json_object_set_new(entry, "top_logprobs", top);
    json_array_append_new(choice->logprobs, entry);
}

static void append_to(json_t *object, const char *name, json_t *value)
{
    if (!json_object_get(object, name)) json_object_set_new(object, name, json_array());
    json_array_append_new(json_object_get(object, name), value);
}

static void add_completion_logprobs(const es_answer *answer, es_choice *choice, const es_event *event)
{
    if (!choice->logprobs) choice->logprobs = json_object();
    append_to(choice->logprobs, "tokens", token_text(answer, event->token));
    append_to(choice->logprobs, "token_logprobs", logprob_json(event->logprob));
    json_t *top = json_object();
    for (int i = 0; i < event->top_count; i++) {
        json_t *name = token_text(answer, event->top[i].token);
        /* two tokens may look the same once their bytes are made printable: the likelier one keeps the name */
        if (name && !json_object_get(top, json_string_value(name)))
            json_object_set_new_nocheck(top, json_string_value(name), logprob_json(event->top[i].logprob));
        json_decref(name);
    }
    append_to(choice->logprobs, "top_logprobs", answer->call.request.top_logprobs > 0 ? top : json_null());
    if (answer->call.request.top_logprobs == 0) json_decref(top);
    append_to(choice->logprobs, "text_offset", json_integer((json_int_t)choice->characters));
}

void es_choice_add_token(const es_answer *answer, es_choice *choice, const es_event *event)
{
    if (answer->call.return_token_ids) {
        if (!choice->token_ids) choice->token_ids = json_array();
        json_array_append_new(choice->token_ids, json_integer(event->token));
    }
    if (!answer->call.request.logprobs) return;
    if (answer->kind == ES_CALL_CHAT) add_chat_logprobs(answer, choice, event);
    else add_completion_logprobs(answer, choice, event);
}

/* Takes the choice's list; null when nothing was asked for. */
static json_t *take_logprobs(const es_answer *answer, es_choice *choice)
{
    json_t *list = choice->logprobs;
    choice->logprobs = NULL;
    if (!list) return json_null();
    if (answer->kind == ES_CALL_COMPLETION) return list;
    json_t *object = json_object();
    json_object_set_new(object, "content", list);
    json_object_set_new(object, "refusal", json_null());
    return object;
}

/* ---- replies ---- */

static json_t *new_reply(const es_answer *answer, const char *object)
{
    const es_backend *backend = answer->api->backend;
    const char *fingerprint = backend->info(backend->self)->fingerprint;
    json_t *reply = json_object();
    json_object_set_new(reply, "id", json_string(answer->id));
    json_object_set_new(reply, "object", json_string(object));
    json_object_set_new(reply, "created", json_integer(answer->created));
    json_object_set_new(reply, "model", es_json_text(answer->api->alias, strlen(answer->api->alias)));
    json_object_set_new(reply, "system_fingerprint", fingerprint ? json_string(fingerprint) : json_null());
    return reply;
}

static json_t *usage_json(const es_answer *answer)
{
    int64_t prompt = 0, cached = 0, completion = 0;
    const size_t n = (size_t)answer->call.n;
    for (size_t p = 0; p < answer->call.prompt_count; p++) {
        /* the prompt of several choices counts once, as its first choice found it */
        prompt += (int64_t)answer->call.prompts[p].count;
        cached += answer->choices[p * n].cached_tokens;
    }
    for (size_t i = 0; i < answer->choice_count; i++) completion += answer->choices[i].completion_tokens;
    json_t *details = json_object();
    json_object_set_new(details, "cached_tokens", json_integer(cached));
    json_t *usage = json_object();
    json_object_set_new(usage, "prompt_tokens", json_integer(prompt));
    json_object_set_new(usage, "completion_tokens", json_integer(completion));
    json_object_set_new(usage, "total_tokens", json_integer(prompt + completion));
    json_object_set_new(usage, "prompt_tokens_details", details);
    return usage;
}

static const char *chunk_name(const es_answer *answer)
{
    return answer->kind == ES_CALL_CHAT ? "chat.completion.chunk" : "text_completion";
}

static void set_token_ids(const es_answer *answer, es_choice *choice, json_t *object)
{
    if (!answer->call.return_token_ids) return;
    json_object_set_new(object, "token_ids", choice->token_ids ? choice->token_ids : json_array());
    choice->token_ids = NULL;
}

json_t *es_answer_chunk(const es_answer *answer, size_t index, bool role, const char *finish)
{
    es_choice *choice = &answer->choices[index];
    json_t *text = finish || role ? json_string("") : es_json_text(choice->delta.data, choice->delta.bytes);
    json_t *object = json_object();
    json_object_set_new(object, "index", json_integer((json_int_t)index));
    if (answer->kind == ES_CALL_CHAT) {
        json_t *delta = json_object();
        if (role) json_object_set_new(delta, "role", json_string("assistant"));
        if (finish) json_decref(text);
        else json_object_set_new(delta, "content", text);
        json_object_set_new(object, "delta", delta);
    } else {
        json_object_set_new(object, "text", text);
    }
    if (!role) {
        json_object_set_new(object, "logprobs", take_logprobs(answer, choice));
        set_token_ids(answer, choice, object);
        es_text_clear(&choice->delta);
    } else {
        json_object_set_new(object, "logprobs", json_null());
    }
    json_object_set_new(object, "finish_reason", finish ? json_string(finish) : json_null());
    json_t *choices = json_array();
    json_array_append_new(choices, object);
    json_t *chunk = new_reply(answer, chunk_name(answer));
    json_object_set_new(chunk, "choices", choices);
    if (answer->call.include_usage) json_object_set_new(chunk, "usage", json_null());
    return chunk;
}

json_t *es_answer_usage_chunk(const es_answer *answer)
{
    json_t *chunk = new_reply(answer, chunk_name(answer));
    json_object_set_new(chunk, "choices", json_array());
    json_object_set_new(chunk, "usage", usage_json(answer));
    return chunk;
}

static json_t *whole_choice(const es_answer *answer, size_t index)
{
    es_choice *choice = &answer->choices[index];
    json_t *text = es_json_text(choice->text.data, choice->text.bytes);
    json_t *object = json_object();
    json_object_set_new(object, "index", json_integer((json_int_t)index));
    if (answer->kind == ES_CALL_CHAT) {
        json_t *message = json_object();
        json_object_set_new(message, "role", json_string("assistant"));
        json_object_set_new(message, "content", text);
        json_object_set_new(message, "refusal", json_null());
        json_object_set_new(object, "message", message);
    } else {
        json_object_set_new(object, "text", text);
    }
    json_object_set_new(object, "logprobs", take_logprobs(answer, choice));
    json_object_set_new(object, "finish_reason", json_string(choice->finish == ES_FINISH_LENGTH ? "length" : "stop"));
    set_token_ids(answer, choice, object);
    return object;
}

json_t *es_answer_whole(const es_answer *answer)
{
    json_t *reply = new_reply(answer, answer->kind == ES_CALL_CHAT ? "chat.completion" : "text_completion");
    json_t *choices = json_array();
    for (size_t i = 0; i < answer->choice_count; i++) json_array_append_new(choices, whole_choice(answer, i));
    json_object_set_new(reply, "choices", choices);
    json_object_set_new(reply, "usage", usage_json(answer));
    return reply;
}
