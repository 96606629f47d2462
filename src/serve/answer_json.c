/* answer_json.c: answers in OpenAI's shapes. Members stand in the order in which OpenAI sends them. */
#include <stdio.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/sse.h"
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

static json_t *likeliest_json(const es_answer *answer, const es_event *event)
{
    json_t *top = json_object();
    for (int i = 0; i < event->top_count; i++) {
        json_t *name = token_text(answer, event->top[i].token);
        /* two tokens may look the same once their bytes are made printable: the likelier one keeps the name */
        if (name && !json_object_get(top, json_string_value(name)))
            json_object_set_new_nocheck(top, json_string_value(name), logprob_json(event->top[i].logprob));
        json_decref(name);
    }
    return top;
}

/* `event` NULL: a prompt's first token, of which nothing is known but which it is. */
static void add_completion_logprobs(const es_answer *answer, es_choice *choice, es_token token, const es_event *event)
{
    const bool top = event && answer->call.request.top_logprobs > 0;
    if (!choice->logprobs) choice->logprobs = json_object();
    append_to(choice->logprobs, "tokens", token_text(answer, token));
    append_to(choice->logprobs, "token_logprobs", event ? logprob_json(event->logprob) : json_null());
    append_to(choice->logprobs, "top_logprobs", top ? likeliest_json(answer, event) : json_null());
    append_to(choice->logprobs, "text_offset", json_integer((json_int_t)choice->characters));
}

static size_t count_characters(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

void es_choice_add_prompt(const es_answer *answer, size_t index, size_t at, const es_event *event)
{
    es_choice *choice = &answer->choices[index];
    const es_prompt *prompt = &answer->call.prompts[index / (size_t)answer->call.n];
    const es_text *text = &prompt->text;
    const es_backend *backend = answer->api->backend;
    size_t bytes = 0;
    if (at >= prompt->count) return;
    const char *piece = backend->piece(backend->self, prompt->tokens[at], &bytes);
    add_completion_logprobs(answer, choice, prompt->tokens[at], event);
    /* what a tokenizer puts before a text is no part of it */
    if (piece && bytes <= text->bytes - choice->echoed && memcmp(text->data + choice->echoed, piece, bytes) == 0) {
        choice->characters += count_characters(piece, bytes);
        choice->echoed += bytes;
    }
    if (at + 1 == prompt->count) choice->characters = count_characters(text->data ? text->data : "", text->bytes);
}

void es_choice_add_token(const es_answer *answer, es_choice *choice, const es_event *event)
{
    if (answer->call.return_token_ids) {
        if (!choice->token_ids) choice->token_ids = json_array();
        json_array_append_new(choice->token_ids, json_integer(event->token));
    }
    if (!answer->call.request.logprobs) return;
    if (answer->kind == ES_CALL_CHAT)
        add_chat_logprobs(answer, choice, event);
    else
        add_completion_logprobs(answer, choice, event->token, event);
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

es_usage es_answer_usage(const es_answer *answer)
{
    es_usage usage = {0};
    const size_t n = (size_t)answer->call.n;
    for (size_t p = 0; p < answer->call.prompt_count; p++) {
        /* the prompt of several choices counts once, as its first choice found it */
        usage.prompt += (int64_t)answer->call.prompts[p].count;
        usage.cached += answer->choices[p * n].cached_tokens;
    }
    for (size_t i = 0; i < answer->choice_count; i++) {
        usage.completion += answer->choices[i].completion_tokens;
        usage.reasoning += answer->choices[i].message.reasoning_tokens;
    }
    return usage;
}

static json_t *usage_json(const es_answer *answer)
{
    const es_usage u = es_answer_usage(answer);
    json_t *details = json_object();
    json_object_set_new(details, "cached_tokens", json_integer(u.cached));
    json_t *usage = json_object();
    json_object_set_new(usage, "prompt_tokens", json_integer(u.prompt));
    json_object_set_new(usage, "completion_tokens", json_integer(u.completion));
    json_object_set_new(usage, "total_tokens", json_integer(u.prompt + u.completion));
    json_object_set_new(usage, "prompt_tokens_details", details);
    if (u.reasoning > 0) {
        json_t *made = json_object();
        json_object_set_new(made, "reasoning_tokens", json_integer(u.reasoning));
        json_object_set_new(usage, "completion_tokens_details", made);
    }
    return usage;
}

const char *es_choice_finish_reason(const es_choice *choice)
{
    if (choice->finish == ES_FINISH_LENGTH) return "length";
    return choice->message.call_count ? "tool_calls" : "stop";
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

/* What the pieces of one part add up to; NULL when there are none. */
static json_t *joined_text(const es_message *message, es_part part)
{
    es_text text = {0};
    bool any = false;
    for (size_t i = 0; i < message->piece_count; i++) {
        const es_piece *piece = &message->pieces[i];
        if (piece->part != part) continue;
        es_text_append(&text, es_piece_text(message, piece), piece->bytes);
        any = true;
    }
    json_t *value = any ? es_json_text(text.data ? text.data : "", text.bytes) : NULL;
    es_text_free(&text);
    return value;
}

static json_t *function_json(const es_text *name, const es_text *arguments)
{
    json_t *function = json_object();
    if (name) json_object_set_new(function, "name", es_json_text(name->data ? name->data : "", name->bytes));
    json_object_set_new(function, "arguments", es_json_text(arguments->data ? arguments->data : "", arguments->bytes));
    return function;
}

/* What a token adds to a call; NULL if nothing. Id and name come with the first piece only. */
static json_t *call_delta(const es_message *message, size_t index)
{
    const es_block *block = &message->blocks[index];
    es_text arguments = {0};
    bool begins = false, any = false;
    for (size_t i = 0; i < message->piece_count; i++) {
        const es_piece *piece = &message->pieces[i];
        if (piece->block != index || (piece->part != ES_PART_CALL && piece->part != ES_PART_ARGUMENTS)) continue;
        begins |= piece->part == ES_PART_CALL;
        any = true;
        if (piece->part == ES_PART_ARGUMENTS) es_text_append(&arguments, es_piece_text(message, piece), piece->bytes);
    }
    json_t *delta = any ? json_object() : NULL;
    json_object_set_new(delta, "index", json_integer((json_int_t)block->call));
    if (begins) {
        json_object_set_new(delta, "id", json_string(block->id));
        json_object_set_new(delta, "type", json_string("function"));
    }
    json_object_set_new(delta, "function", function_json(begins ? &block->name : NULL, &arguments));
    es_text_free(&arguments);
    return delta;
}

/* Even a token that adds nothing yet is a chunk: its content is empty then. */
static json_t *message_delta(const es_message *message)
{
    json_t *delta = json_object();
    json_t *reasoning = joined_text(message, ES_PART_REASONING), *content = joined_text(message, ES_PART_CONTENT);
    json_t *calls = json_array();
    for (size_t i = message->piece_count ? message->pieces[0].block : message->block_count; i < message->block_count; i++) {
        json_t *call = message->blocks[i].kind == ES_PART_CALL ? call_delta(message, i) : NULL;
        if (call) json_array_append_new(calls, call);
    }
    if (reasoning) json_object_set_new(delta, "reasoning_content", reasoning);
    if (content) json_object_set_new(delta, "content", content);
    if (json_array_size(calls)) json_object_set(delta, "tool_calls", calls);
    if (json_object_size(delta) == 0) json_object_set_new(delta, "content", json_string(""));
    json_decref(calls);
    return delta;
}

typedef enum moment { BEGIN, MORE, END } moment;

static json_t *make_chunk(const es_answer *answer, size_t index, moment when)
{
    es_choice *choice = &answer->choices[index];
    json_t *object = json_object();
    json_object_set_new(object, "index", json_integer((json_int_t)index));
    if (answer->kind == ES_CALL_COMPLETION) {
        json_t *text = when == MORE ? joined_text(&choice->message, ES_PART_CONTENT) : NULL;
        json_object_set_new(object, "text", text ? text : json_string(""));
    } else if (when == BEGIN) {
        json_object_set_new(object, "delta", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    } else {
        json_object_set_new(object, "delta", when == MORE ? message_delta(&choice->message) : json_object());
    }
    if (when != BEGIN) {
        json_object_set_new(object, "logprobs", take_logprobs(answer, choice));
        set_token_ids(answer, choice, object);
    } else {
        json_object_set_new(object, "logprobs", json_null());
    }
    json_object_set_new(object, "finish_reason", when == END ? json_string(es_choice_finish_reason(choice)) : json_null());
    json_t *choices = json_array();
    json_array_append_new(choices, object);
    json_t *chunk = new_reply(answer, chunk_name(answer));
    json_object_set_new(chunk, "choices", choices);
    if (answer->call.include_usage) json_object_set_new(chunk, "usage", json_null());
    return chunk;
}

/* A chat choice says first who speaks. */
static void begin(es_answer *answer, size_t choice)
{
    if (answer->kind == ES_CALL_CHAT) es_answer_send(answer, NULL, make_chunk(answer, choice, BEGIN));
}

static void more(es_answer *answer, size_t choice)
{
    es_answer_send(answer, NULL, make_chunk(answer, choice, MORE));
}

static void end(es_answer *answer, size_t choice)
{
    es_answer_send(answer, NULL, make_chunk(answer, choice, END));
}

/* As llama.cpp's server sends it: a chunk without text, and `prompt_progress` beside its choices. */
static void progress(es_answer *answer, size_t index, const es_event *event)
{
    const es_call *call = &answer->call;
    const uint64_t passed = es_metrics_now(answer->metrics) - answer->began;
    json_t *told = json_object();
    json_object_set_new(told, "total", json_integer((json_int_t)call->prompts[index / (size_t)call->n].count));
    json_object_set_new(told, "cache", json_integer(event->cached_tokens));
    json_object_set_new(told, "processed", json_integer(event->prompt_done));
    json_object_set_new(told, "time_ms", json_integer((json_int_t)(passed / 1000000)));
    json_t *chunk = make_chunk(answer, index, BEGIN);
    json_object_set_new(chunk, "prompt_progress", told);
    es_answer_send(answer, NULL, chunk);
}

static void finish(es_answer *answer)
{
    if (answer->call.include_usage) {
        json_t *chunk = new_reply(answer, chunk_name(answer));
        json_object_set_new(chunk, "choices", json_array());
        json_object_set_new(chunk, "usage", usage_json(answer));
        es_sse_json(&answer->out, NULL, chunk);
        json_decref(chunk);
    }
    es_sse_done(&answer->out);
    es_answer_flush(answer);
}

static void fail(es_answer *answer, const es_api_error *error)
{
    es_answer_send(answer, NULL, es_api_error_json(error));
}

static json_t *whole_message(const es_message *m)
{
    json_t *message = json_object(), *calls = json_array();
    for (size_t i = 0; i < m->block_count; i++) {
        const es_block *block = &m->blocks[i];
        if (block->kind != ES_PART_CALL) continue;
        json_t *call = json_object();
        json_object_set_new(call, "id", json_string(block->id));
        json_object_set_new(call, "type", json_string("function"));
        json_object_set_new(call, "function", function_json(&block->name, &block->text));
        json_array_append_new(calls, call);
    }
    json_t *content = es_message_text(m, ES_PART_CONTENT), *reasoning = es_message_text(m, ES_PART_REASONING);
    if (!content) content = m->call_count ? json_null() : json_string("");
    json_object_set_new(message, "role", json_string("assistant"));
    json_object_set_new(message, "content", content);
    json_object_set_new(message, "refusal", json_null());
    if (reasoning) json_object_set_new(message, "reasoning_content", reasoning);
    if (m->call_count) json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    return message;
}

static json_t *whole_text(const es_message *message)
{
    json_t *text = es_message_text(message, ES_PART_CONTENT);
    return text ? text : json_string("");
}

static json_t *whole_choice(const es_answer *answer, size_t index)
{
    es_choice *choice = &answer->choices[index];
    const es_message *message = &choice->message;
    json_t *object = json_object();
    json_object_set_new(object, "index", json_integer((json_int_t)index));
    if (answer->kind == ES_CALL_CHAT) json_object_set_new(object, "message", whole_message(message));
    else json_object_set_new(object, "text", whole_text(message));
    json_object_set_new(object, "logprobs", take_logprobs(answer, choice));
    json_object_set_new(object, "finish_reason", json_string(es_choice_finish_reason(choice)));
    set_token_ids(answer, choice, object);
    return object;
}

static json_t *whole(const es_answer *answer)
{
    json_t *reply = new_reply(answer, answer->kind == ES_CALL_CHAT ? "chat.completion" : "text_completion");
    json_t *choices = json_array();
    for (size_t i = 0; i < answer->choice_count; i++) json_array_append_new(choices, whole_choice(answer, i));
    json_object_set_new(reply, "choices", choices);
    json_object_set_new(reply, "usage", usage_json(answer));
    return reply;
}

const es_shape es_shape_openai = {NULL, begin, more, end, finish, fail, whole, es_api_error_json, progress};
