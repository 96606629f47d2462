/* answer.c: see answer.h. */
#include "serve/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/sse.h"
#include "serve/strict_json.h"

enum { CHOICE_BITS = 16, UNIQUE_DIGITS = 24 /* of an answer's id */ };

uint64_t es_answer_key(const es_answer *answer, size_t choice)
{
    return answer->serial << CHOICE_BITS | choice;
}

uint64_t es_answer_serial_of_key(uint64_t key)
{
    return key >> CHOICE_BITS;
}

const es_shape *es_shape_of(es_call_kind kind)
{
    switch (kind) {
    case ES_CALL_RESPONSE: return &es_shape_responses;
    case ES_CALL_EMBEDDING: return &es_shape_embeddings;
    case ES_CALL_MESSAGE:
    case ES_CALL_COUNT_TOKENS: return &es_shape_messages;
    default: return &es_shape_openai;
    }
}

static const char *id_prefix(es_call_kind kind)
{
    switch (kind) {
    case ES_CALL_CHAT: return "chatcmpl-";
    case ES_CALL_RESPONSE: return "resp_";
    case ES_CALL_MESSAGE: return "msg_";
    case ES_CALL_EMBEDDING: return "embd-";
    default: return "cmpl-";
    }
}

es_answer *es_answer_new(const es_api_context *api, es_metrics *metrics, es_http_connection *connection, es_call_kind kind,
                         uint64_t serial, uint64_t unique)
{
    es_answer *answer = calloc(1, sizeof *answer);
    if (!answer) return NULL;
    answer->serial = serial;
    answer->api = api;
    answer->metrics = metrics;
    answer->began = es_metrics_now(metrics);
    answer->connection = connection;
    answer->kind = kind;
    answer->created = (int64_t)time(NULL);
    answer->shape = es_shape_of(kind);
    snprintf(answer->id, sizeof answer->id, "%s%016" PRIx64 "%08" PRIx64, id_prefix(kind), unique, serial);
    return answer;
}

void es_answer_free(es_answer *answer)
{
    if (!answer) return;
    for (size_t i = 0; i < answer->choice_count; i++) {
        es_message_free(&answer->choices[i].message);
        free(answer->choices[i].stop_string);
        free(answer->choices[i].embedding);
        json_decref(answer->choices[i].logprobs);
        json_decref(answer->choices[i].token_ids);
    }
    free(answer->choices);
    es_call_free(&answer->call);
    es_text_free(&answer->out);
    free(answer);
}

/* ---- sending ---- */

static void count_end(es_answer *answer, es_ended how)
{
    if (!answer->finished) es_metrics_end(answer->metrics, how, es_metrics_now(answer->metrics) - answer->began);
    answer->finished = true;
}

/* The reply is complete: the connection goes its own way, perhaps straight into its next request. */
static es_http_connection *release_connection(es_answer *answer, es_ended how)
{
    es_http_connection *connection = answer->connection;
    answer->connection = NULL;
    count_end(answer, how);
    if (connection) es_http_set_user(connection, NULL);
    return connection;
}

void es_answer_flush(es_answer *answer)
{
    es_text *out = &answer->out;
    if (answer->connection && !out->failed) es_http_stream_write(answer->connection, out->data, out->bytes);
    answer->sent = es_metrics_now(answer->metrics);
    es_text_clear(out);
}

void es_answer_send(es_answer *answer, const char *name, json_t *json)
{
    es_sse_json(&answer->out, name, json);
    json_decref(json);
    es_answer_flush(answer);
}

static void cancel_rest(const es_answer *answer, size_t submitted)
{
    const es_backend *backend = answer->api->backend;
    for (size_t i = 0; i < submitted; i++)
        if (!answer->choices[i].ended) backend->cancel(backend->self, es_answer_key(answer, i));
}

static void write_error(const es_answer *answer, const es_api_error *error, es_text *out)
{
    json_t *json = answer->shape->error(error);
    es_json_write(out, json);
    es_text_putc(out, '\n');
    json_decref(json);
}

static void send_error(es_answer *answer, const es_api_error *error)
{
    const bool streaming = answer->streaming;
    const es_ended how = streaming || answer->beating || error->status >= 500 ? ES_ENDED_FAILED : ES_ENDED_REFUSED;
    if (streaming && answer->connection) answer->shape->fail(answer, error);
    es_http_connection *connection = release_connection(answer, how);
    if (!connection) return;
    if (!streaming && !answer->beating) es_metrics_reject(answer->metrics, error->status, error->code);
    es_text out = {0};
    if (streaming) {
        es_http_stream_end(connection);
    } else if (answer->beating) {
        write_error(answer, error, &out);
        es_http_stream_write(connection, out.data, out.bytes);
        es_http_stream_end(connection);
    } else {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", error->retry_after);
        if (error->retry_after) es_http_add_header(connection, "Retry-After", seconds);
        write_error(answer, error, &out);
        es_http_reply(connection, error->status, "application/json", out.data ? out.data : "", out.bytes);
    }
    es_text_free(&out);
}

void es_answer_fail(es_answer *answer, const es_api_error *error)
{
    cancel_rest(answer, answer->choice_count);
    send_error(answer, error);
}

static void fail_status(es_answer *answer, es_status status)
{
    es_api_error error;
    es_api_refuse_status(&error, status);
    es_answer_fail(answer, &error);
}

void es_answer_abandon(es_answer *answer)
{
    cancel_rest(answer, answer->choice_count);
    answer->connection = NULL;
    count_end(answer, ES_ENDED_LEFT);
}

/* ---- from call to events ---- */

static es_status open_message(es_answer *answer, size_t index)
{
    const es_call *call = &answer->call;
    es_message *message = &answer->choices[index].message;
    /* the Responses API says at the end of a stream once more what was in it */
    const bool keep = !call->stream || call->kind == ES_CALL_RESPONSE;
    if (call->kind == ES_CALL_COMPLETION || call->kind == ES_CALL_EMBEDDING)
        es_message_open_plain(message, keep);
    else
        ES_TRY(es_message_open(message, call->format, call->tools, answer->id + strlen(answer->id) - UNIQUE_DIGITS, keep));
    message->number = index;
    message->one_call = call->one_call;
    const es_text *echo = &call->prompts[index / (size_t)call->n].text;
    return echo->bytes ? es_message_add(message, echo->data, echo->bytes) : ES_OK;
}

static es_status make_choices(es_answer *answer)
{
    const es_call *call = &answer->call;
    const size_t count = call->prompt_count * (size_t)call->n;
    answer->choices = calloc(count, sizeof *answer->choices);
    if (!answer->choices) return es_fail(ES_NO_MEMORY, "no memory for the answer");
    answer->choice_count = count;
    for (size_t i = 0; i < count; i++) {
        ES_TRY(open_message(answer, i));
        if (call->request.prompt_logprobs) es_choice_add_prompt(answer, i, 0, NULL);
    }
    return ES_OK;
}

void es_answer_start(es_answer *answer, es_call *call)
{
    const es_backend *backend = answer->api->backend;
    answer->call = *call;
    *call = (es_call){0};
    es_status status = make_choices(answer);
    size_t submitted = 0;
    while (status == ES_OK && submitted < answer->choice_count) {
        es_request request = es_call_request(&answer->call, submitted);
        request.progress = true;
        status = backend->submit(backend->self, es_answer_key(answer, submitted), &request);
        if (status == ES_OK) submitted++;
    }
    if (status != ES_OK) {
        es_api_error error;
        es_api_refuse_status(&error, status);
        cancel_rest(answer, submitted);
        send_error(answer, &error);
        return;
    }
    if (answer->call.ignored.bytes) es_http_add_header(answer->connection, "X-Evenshare-Ignored", answer->call.ignored.data);
    answer->sent = es_metrics_now(answer->metrics);
    if (!answer->call.stream) return;
    answer->streaming = true;
    es_http_stream_begin(answer->connection, 200, ES_SSE_TYPE);
    es_sse_comment(&answer->out, "waiting");
    es_answer_flush(answer);
    if (answer->shape->start) answer->shape->start(answer);
}

void es_answer_reply(es_answer *answer, const json_t *json)
{
    es_json_write(&answer->out, json);
    es_text_putc(&answer->out, '\n');
    if (answer->out.failed) {
        fail_status(answer, es_fail(ES_NO_MEMORY, "no memory for the reply"));
        return;
    }
    es_http_reply(release_connection(answer, ES_ENDED_WHOLE), 200, "application/json", answer->out.data, answer->out.bytes);
}

static void begin_choice(es_answer *answer, size_t index)
{
    es_choice *choice = &answer->choices[index];
    if (!choice->begun && answer->shape->begin) answer->shape->begin(answer, index);
    choice->begun = true;
}

static void count_characters(es_choice *choice, const es_event *event)
{
    for (size_t i = 0; i < event->text_bytes; i++) choice->characters += ((unsigned char)event->text[i] & 0xC0) != 0x80;
}

static void time_token(es_answer *answer, es_choice *choice)
{
    es_metrics *metrics = answer->metrics;
    const uint64_t now = es_metrics_now(metrics);
    if (choice->tokens++)
        es_histogram_add(&metrics->token_gap, now - choice->last_token);
    else
        es_histogram_add(&metrics->first_token, now - answer->began);
    choice->last_token = now;
}

static void on_token(es_answer *answer, size_t index, const es_event *event)
{
    es_choice *choice = &answer->choices[index];
    time_token(answer, choice);
    if (choice->cut) return;
    if (answer->streaming) begin_choice(answer, index);
    const es_status status = es_message_add(&choice->message, event->text, event->text_bytes);
    if (status != ES_OK) {
        fail_status(answer, status);
        return;
    }
    es_choice_add_token(answer, choice, event);
    count_characters(choice, event);
    if (answer->streaming) answer->shape->more(answer, index);
    es_message_clear_pieces(&choice->message);
    if (!es_message_is_full(&choice->message)) return;
    choice->cut = true;
    answer->api->backend->cancel(answer->api->backend->self, es_answer_key(answer, index));
}

static void finish_answer(es_answer *answer)
{
    if (answer->streaming) {
        answer->shape->finish(answer);
        es_http_stream_end(release_connection(answer, ES_ENDED_WHOLE));
        return;
    }
    json_t *json = answer->shape->whole(answer);
    es_json_write(&answer->out, json);
    json_decref(json);
    es_text_putc(&answer->out, '\n');
    if (answer->out.failed) {
        es_api_error error;
        es_api_refuse_status(&error, es_fail(ES_NO_MEMORY, "no memory for the whole answer; ask for a stream"));
        send_error(answer, &error);
        return;
    }
    if (answer->beating) {
        es_answer_flush(answer);
        es_http_stream_end(release_connection(answer, ES_ENDED_WHOLE));
        return;
    }
    es_http_reply(release_connection(answer, ES_ENDED_WHOLE), 200, "application/json", answer->out.data, answer->out.bytes);
}

static es_status keep_embedding(es_choice *choice, const es_event *event)
{
    const size_t bytes = (size_t)event->embedding_count * sizeof *event->embedding;
    choice->embedding = malloc(bytes);
    if (!choice->embedding) return es_fail(ES_NO_MEMORY, "no memory for an embedding");
    memcpy(choice->embedding, event->embedding, bytes);
    choice->embedding_count = event->embedding_count;
    return ES_OK;
}

static void on_done(es_answer *answer, size_t index, const es_event *event)
{
    es_choice *choice = &answer->choices[index];
    if (choice->ended) return;
    choice->ended = true;
    choice->finish = choice->cut ? ES_FINISH_STOP : event->finish;
    choice->cached_tokens = event->cached_tokens;
    if (event->cached_tokens > 0) atomic_fetch_add(&answer->metrics->cached_tokens, (uint64_t)event->cached_tokens);
    choice->completion_tokens = event->completion_tokens;
    if (choice->finish == ES_FINISH_CANCELLED) {
        fail_status(answer, es_fail(ES_CANCELLED, "the engine stopped before the answer was whole"));
        return;
    }
    es_status status = ES_OK;
    if (event->stop_string && !(choice->stop_string = strdup(event->stop_string)))
        status = es_fail(ES_NO_MEMORY, "out of memory");
    if (event->embedding_count > 0) status = keep_embedding(choice, event);
    if (status == ES_OK && event->text_bytes) status = es_message_add(&choice->message, event->text, event->text_bytes);
    if (status == ES_OK) status = es_message_finish(&choice->message);
    if (status != ES_OK) {
        fail_status(answer, status);
        return;
    }
    if (answer->streaming) {
        begin_choice(answer, index);
        if (choice->message.piece_count) answer->shape->more(answer, index);
        answer->shape->end(answer, index);
    }
    es_message_clear_pieces(&choice->message);
    if (++answer->ended == answer->choice_count) finish_answer(answer);
}

static void on_error(es_answer *answer, size_t index, const es_event *event)
{
    answer->choices[index].ended = true;
    es_api_error error;
    es_api_refuse_status(&error, es_fail(event->status, "%s", event->message ? event->message : "the engine gave up"));
    es_answer_fail(answer, &error);
}

static void on_progress(es_answer *answer, size_t index, const es_event *event)
{
    es_choice *choice = &answer->choices[index];
    choice->prompt_done = event->prompt_done;
    if (!answer->streaming || !answer->call.return_progress || !answer->shape->progress || choice->tokens) return;
    begin_choice(answer, index);
    answer->shape->progress(answer, index, event);
}

void es_answer_pause(es_answer *answer, bool paused)
{
    const es_backend *backend = answer->api->backend;
    for (size_t i = 0; i < answer->choice_count && backend->pause; i++)
        if (!answer->choices[i].ended) backend->pause(backend->self, es_answer_key(answer, i), paused);
}

void es_answer_keep_alive(es_answer *answer, uint64_t most)
{
    if (!answer->connection || !answer->choices || es_metrics_now(answer->metrics) - answer->sent < most) return;
    if (answer->streaming) {
        es_sse_comment(&answer->out, "waiting");
    } else if (answer->call.heartbeat) {
        /* the status is said before the answer is known: so not before the first silence has lasted */
        if (!answer->beating) es_http_stream_begin(answer->connection, 200, "application/json");
        answer->beating = true;
        es_text_putc(&answer->out, '\n');
    } else {
        return;
    }
    es_answer_flush(answer);
}

void es_answer_event(es_answer *answer, const es_event *event)
{
    const size_t index = (size_t)(event->request & ((1u << CHOICE_BITS) - 1));
    if (answer->finished || index >= answer->choice_count) return;
    answer->choices[index].moved_out = event->kind == ES_EVENT_MOVED;
    switch (event->kind) {
    case ES_EVENT_MOVED: break;
    case ES_EVENT_PROGRESS: on_progress(answer, index, event); break;
    case ES_EVENT_PROMPT: es_choice_add_prompt(answer, index, (size_t)event->prompt_done, event); break;
    case ES_EVENT_TOKEN: on_token(answer, index, event); break;
    case ES_EVENT_DONE: on_done(answer, index, event); break;
    case ES_EVENT_ERROR: on_error(answer, index, event); break;
    }
}
