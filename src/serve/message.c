/* message.c: see message.h. */
#include "serve/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_piece(es_message *message, es_part part, const char *text, size_t bytes)
{
    if (message->piece_count == message->piece_room) {
        const size_t room = message->piece_room ? message->piece_room * 2 : 4;
        es_piece *pieces = realloc(message->pieces, room * sizeof *pieces);
        if (!pieces) {
            message->failed = true;
            return;
        }
        message->pieces = pieces;
        message->piece_room = room;
    }
    const size_t call = message->call_count ? message->call_count - 1 : 0;
    message->pieces[message->piece_count++] = (es_piece){part, call, message->fresh.bytes, bytes};
    es_text_append(&message->fresh, text, bytes);
}

static es_tool_call *add_call(es_message *message)
{
    es_tool_call *calls = realloc(message->calls, (message->call_count + 1) * sizeof *calls);
    if (!calls) {
        message->failed = true;
        return NULL;
    }
    message->calls = calls;
    es_tool_call *call = &calls[message->call_count];
    *call = (es_tool_call){.ended = false};
    snprintf(call->id, sizeof call->id, "call_%.24s%02zx%02zx", message->id, message->number, message->call_count++);
    return call;
}

static void on_part(void *user, es_part part, const char *text, size_t bytes)
{
    es_message *message = user;
    if (message->failed || es_message_is_full(message)) return;
    es_tool_call *call = message->call_count ? &message->calls[message->call_count - 1] : NULL;
    switch (part) {
    case ES_PART_CONTENT:
        if (message->keep) es_text_append(&message->content, text, bytes);
        break;
    case ES_PART_REASONING:
        if (message->keep) es_text_append(&message->reasoning, text, bytes);
        break;
    case ES_PART_CALL:
        call = add_call(message);
        if (call) es_text_append(&call->name, text, bytes);
        break;
    case ES_PART_ARGUMENTS:
        if (message->keep) es_text_append(&call->arguments, text, bytes);
        break;
    case ES_PART_CALL_END: break;
    }
    if (!message->failed) add_piece(message, part, text, bytes);
    if (part == ES_PART_CALL_END) call->ended = true;
}

es_status es_message_open(es_message *message, es_answer_format format, json_t *tools, const char *id, bool keep)
{
    *message = (es_message){.id = id, .keep = keep};
    return es_answer_parser_open(format, tools, on_part, message, &message->parser);
}

void es_message_open_plain(es_message *message, bool keep)
{
    *message = (es_message){.id = "", .keep = keep};
}

void es_message_free(es_message *message)
{
    es_answer_parser_close(message->parser);
    for (size_t i = 0; i < message->call_count; i++) {
        es_text_free(&message->calls[i].name);
        es_text_free(&message->calls[i].arguments);
    }
    free(message->calls);
    free(message->pieces);
    es_text_free(&message->content);
    es_text_free(&message->reasoning);
    es_text_free(&message->fresh);
    *message = (es_message){.id = ""};
}

/* One flag for all texts, however they were filled. */
static es_status check(es_message *message)
{
    bool failed = message->failed || message->content.failed || message->reasoning.failed || message->fresh.failed;
    for (size_t i = 0; i < message->call_count; i++)
        failed |= message->calls[i].name.failed || message->calls[i].arguments.failed;
    return failed ? es_fail(ES_NO_MEMORY, "no memory for the whole answer; ask for a stream") : ES_OK;
}

es_status es_message_add(es_message *message, const char *text, size_t bytes)
{
    if (message->parser) {
        message->reasoning_tokens += es_answer_parser_is_reasoning(message->parser);
        ES_TRY(es_answer_parser_add(message->parser, text, bytes));
    } else if (bytes) {
        on_part(message, ES_PART_CONTENT, text, bytes);
    }
    return check(message);
}

es_status es_message_finish(es_message *message)
{
    if (message->parser) ES_TRY(es_answer_parser_finish(message->parser));
    return check(message);
}

void es_message_clear_pieces(es_message *message)
{
    message->piece_count = 0;
    es_text_clear(&message->fresh);
}

bool es_message_is_full(const es_message *message)
{
    return message->one_call && message->call_count > 0 && message->calls[0].ended;
}
