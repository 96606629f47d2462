/* transcript.c: see transcript.h.
 *
 * A stream is lines; "data:" lines up to an empty one are an event; an event is "[DONE]" or a JSON chunk. Whatever is not so
 * is noted once and reading goes on: a phase that only counts tokens can still do so. */
#include "check/transcript.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void __attribute__((format(printf, 2, 3))) note_fault(es_transcript *t, const char *format, ...)
{
    if (t->fault[0]) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->fault, sizeof t->fault, format, arguments);
    va_end(arguments);
}

void es_transcript_init(es_transcript *transcript, bool chat)
{
    *transcript =
        (es_transcript){.chat = chat, .prompt_tokens = -1, .completion_tokens = -1, .total_tokens = -1, .cached_tokens = -1};
    transcript->line.limit = transcript->data.limit = ES_TRANSCRIPT_LINE_MAX;
}

void es_transcript_free(es_transcript *transcript)
{
    es_text_free(&transcript->text);
    es_text_free(&transcript->reasoning);
    es_text_free(&transcript->line);
    es_text_free(&transcript->data);
    es_numbers_free(&transcript->times);
    es_numbers_free(&transcript->logprobs);
}

/* ---- pieces that streams and whole replies share ---- */

static void take_text(es_text *out, const json_t *value)
{
    if (json_is_string(value)) es_text_append(out, json_string_value(value), json_string_length(value));
}

static int64_t count_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

static void take_usage(es_transcript *t, const json_t *usage)
{
    if (!json_is_object(usage)) return;
    t->usages++;
    t->prompt_tokens = count_of(usage, "prompt_tokens");
    t->completion_tokens = count_of(usage, "completion_tokens");
    t->total_tokens = count_of(usage, "total_tokens");
    t->cached_tokens = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    if (t->prompt_tokens < 0 || t->completion_tokens < 0 || t->total_tokens != t->prompt_tokens + t->completion_tokens)
        note_fault(t, "usage does not add up");
}

static void take_logprobs(es_transcript *t, const json_t *logprobs)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(logprobs, "content"), i, entry)
    {
        const json_t *value = json_object_get(entry, "logprob");
        if (json_is_number(value)) es_numbers_add(&t->logprobs, json_number_value(value));
    }
    json_array_foreach(json_object_get(logprobs, "token_logprobs"), i, entry) if (json_is_number(entry))
        es_numbers_add(&t->logprobs, json_number_value(entry));
}

static void take_error(es_transcript *t, const json_t *error)
{
    if (!json_is_object(error)) return;
    t->error = true;
    const char *message = json_string_value(json_object_get(error, "message"));
    t->error_message = message && *message;
    t->error_numbers = message && strpbrk(message, "0123456789");
    const char *code = json_string_value(json_object_get(error, "code"));
    if (code) snprintf(t->error_code, sizeof t->error_code, "%s", code);
    for (char *c = t->error_code; *c; c++) *c = *c > ' ' && *c < 0x7F ? *c : '_';
}

static void take_finish(es_transcript *t, const json_t *choice)
{
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (!finish) return;
    t->finishes++;
    snprintf(t->finish, sizeof t->finish, "%s", finish);
    for (char *c = t->finish; *c; c++) *c = *c > ' ' && *c < 0x7F ? *c : '_';
}

static void check_identity(es_transcript *t, const json_t *root, const char *object)
{
    const char *id = json_string_value(json_object_get(root, "id"));
    const char *kind = json_string_value(json_object_get(root, "object"));
    if (!id || !*id)
        note_fault(t, "a reply without an id");
    else if (t->id[0] && strncmp(t->id, id, sizeof t->id - 1) != 0)
        note_fault(t, "the id changes inside a stream");
    else
        snprintf(t->id, sizeof t->id, "%s", id);
    if (!kind || strcmp(kind, object) != 0) note_fault(t, "\"object\" is not \"%s\"", object);
    if (!json_is_string(json_object_get(root, "model"))) note_fault(t, "a reply without \"model\"");
    if (!json_is_integer(json_object_get(root, "created"))) note_fault(t, "a reply without \"created\"");
}

/* ---- streams ---- */

static void take_delta(es_transcript *t, const json_t *choice, double now)
{
    const json_t *delta = t->chat ? json_object_get(choice, "delta") : choice;
    const bool role = t->chat && json_is_string(json_object_get(delta, "role"));
    if (!json_is_object(delta)) note_fault(t, "a choice without a delta");
    if (t->chat && t->chunks == 0 && !role) note_fault(t, "the first delta does not name the role");
    t->roles += role;
    t->chunks++;
    const size_t before = t->text.bytes + t->reasoning.bytes;
    const bool ended = t->finishes > 0;
    take_text(&t->text, json_object_get(delta, t->chat ? "content" : "text"));
    take_text(&t->reasoning, json_object_get(delta, "reasoning_content"));
    take_text(&t->reasoning, json_object_get(delta, "reasoning"));
    take_logprobs(t, json_object_get(choice, "logprobs"));
    take_finish(t, choice);
    const bool grew = t->text.bytes + t->reasoning.bytes > before;
    if (ended && grew) note_fault(t, "text comes after the finish_reason");
    if (t->finishes > 1) note_fault(t, "more than one finish_reason");
    if (grew || (!role && t->finishes == 0)) es_numbers_add(&t->times, now);
}

static void take_chunk(es_transcript *t, const json_t *root, double now)
{
    take_error(t, json_object_get(root, "error"));
    if (t->error) {
        note_fault(t, "the stream ends in an error (code \"%s\")", t->error_code);
        return;
    }
    const json_t *choices = json_object_get(root, "choices");
    if (!json_is_array(choices)) {
        note_fault(t, "a chunk without choices");
        return;
    }
    check_identity(t, root, t->chat ? "chat.completion.chunk" : "text_completion");
    const json_t *usage = json_object_get(root, "usage");
    if (json_array_size(choices) == 0 && !json_is_object(usage) && t->chunks)
        note_fault(t, "a chunk with neither choices nor usage");
    if (json_array_size(choices) > 0) take_delta(t, json_array_get(choices, 0), now);
    if (json_is_object(usage) && t->finishes == 0) note_fault(t, "usage comes before the finish_reason");
    if (json_is_object(usage) && json_array_size(choices) > 0) note_fault(t, "usage comes in a chunk that has choices");
    take_usage(t, usage);
    if (t->usages > 1) note_fault(t, "more than one chunk with usage");
}

static void take_event(es_transcript *t, double now)
{
    const char *data = t->data.data ? t->data.data : "";
    if (t->data.failed) {
        note_fault(t, "an event of more than %d bytes", ES_TRANSCRIPT_LINE_MAX);
        return;
    }
    if (t->dones) note_fault(t, "an event comes after [DONE]");
    if (strcmp(data, "[DONE]") == 0) {
        t->dones++;
        return;
    }
    json_t *root = json_loadb(data, t->data.bytes, JSON_ALLOW_NUL, NULL);
    if (json_is_object(root))
        take_chunk(t, root, now);
    else
        note_fault(t, "an event is not a JSON object");
    json_decref(root);
}

static void take_line(es_transcript *t, double now)
{
    const char *line = t->line.data ? t->line.data : "";
    if (t->line.failed) note_fault(t, "a line of more than %d bytes", ES_TRANSCRIPT_LINE_MAX);
    if (t->line.bytes == 0) {
        if (t->has_data) take_event(t, now);
        es_text_clear(&t->data);
        t->has_data = false;
    } else if (line[0] == ':') {
        t->comments++;
    } else if (strncmp(line, "data:", 5) == 0) {
        const size_t skip = line[5] == ' ' ? 6 : 5;
        if (t->has_data) es_text_putc(&t->data, '\n');
        es_text_append(&t->data, line + skip, t->line.bytes - skip);
        t->has_data = true;
    } else if (strncmp(line, "event:", 6) != 0 && strncmp(line, "id:", 3) != 0 && strncmp(line, "retry:", 6) != 0) {
        note_fault(t, "a line that is no field of a server-sent event");
    }
    es_text_clear(&t->line);
}

void es_transcript_feed(es_transcript *transcript, const char *data, size_t bytes, double now)
{
    for (size_t i = 0; i < bytes;) {
        if (transcript->after_return && data[i] == '\n') i++;
        transcript->after_return = false;
        size_t end = i;
        while (end < bytes && data[end] != '\n' && data[end] != '\r') end++;
        es_text_append(&transcript->line, data + i, end - i);
        if (end < bytes) {
            transcript->after_return = data[end] == '\r';
            take_line(transcript, now);
        }
        i = end + 1;
    }
}

void es_transcript_end(es_transcript *transcript)
{
    if (transcript->line.bytes || transcript->has_data)
        note_fault(transcript, "the stream ends inside an event");
    else if (transcript->chunks == 0)
        note_fault(transcript, "the stream holds no chunk");
    else if (transcript->finishes == 0)
        note_fault(transcript, "the stream ends without a finish_reason");
    else if (transcript->dones == 0)
        note_fault(transcript, "the stream ends without [DONE]");
    if (transcript->text.failed || transcript->times.failed) note_fault(transcript, "no memory to keep the answer");
}

/* ---- whole replies ---- */

void es_transcript_whole(es_transcript *t, const char *body, size_t bytes)
{
    json_t *root = json_loadb(body, bytes, JSON_ALLOW_NUL, NULL);
    const json_t *error = json_object_get(root, "error");
    if (json_is_object(error)) {
        take_error(t, error);
    } else if (!json_is_object(root)) {
        note_fault(t, "the reply is not a JSON object");
    } else {
        check_identity(t, root, t->chat ? "chat.completion" : "text_completion");
        const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
        const json_t *message = t->chat ? json_object_get(choice, "message") : choice;
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!json_is_object(message))
            note_fault(t, "the reply has no choice with an answer");
        else if (t->chat && (!role || strcmp(role, "assistant") != 0))
            note_fault(t, "the message's role is not \"assistant\"");
        take_text(&t->text, json_object_get(message, t->chat ? "content" : "text"));
        take_text(&t->reasoning, json_object_get(message, "reasoning_content"));
        take_text(&t->reasoning, json_object_get(message, "reasoning"));
        take_logprobs(t, json_object_get(choice, "logprobs"));
        take_finish(t, choice);
        if (t->finishes != 1) note_fault(t, "the choice has no finish_reason");
        take_usage(t, json_object_get(root, "usage"));
        if (t->usages != 1) note_fault(t, "the reply has no usage");
        t->chunks = 1;
    }
    json_decref(root);
}
