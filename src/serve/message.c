/* message.c: see message.h. */
#include "serve/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/strict_json.h"

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
    message->pieces[message->piece_count++] = (es_piece){part, message->block_count - 1, message->fresh.bytes, bytes};
    es_text_append(&message->fresh, text, bytes);
}

static es_block *add_block(es_message *message, es_part kind)
{
    es_block *blocks = realloc(message->blocks, (message->block_count + 1) * sizeof *blocks);
    if (!blocks) {
        message->failed = true;
        return NULL;
    }
    message->blocks = blocks;
    es_block *block = &blocks[message->block_count++];
    *block = (es_block){.kind = kind};
    if (kind != ES_PART_CALL) return block;
    block->call = message->call_count++;
    snprintf(block->id, sizeof block->id, "call_%.24s%02zx%02zx", message->id, message->number, block->call);
    return block;
}

static void on_part(void *user, es_part part, const char *text, size_t bytes)
{
    es_message *message = user;
    if (message->failed || es_message_is_full(message)) return;
    es_block *block = message->block_count ? &message->blocks[message->block_count - 1] : NULL;
    const bool begins =
        part == ES_PART_CALL || ((part == ES_PART_CONTENT || part == ES_PART_REASONING) && (!block || block->kind != part));
    if (begins && !(block = add_block(message, part))) return;
    if (part == ES_PART_CALL)
        es_text_append(&block->name, text, bytes);
    else if (part == ES_PART_CALL_END)
        block->ended = true;
    else if (message->keep)
        es_text_append(&block->text, text, bytes);
    message->failed |= block->name.failed || block->text.failed;
    add_piece(message, part, text, bytes);
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
    for (size_t i = 0; i < message->block_count; i++) {
        es_text_free(&message->blocks[i].text);
        es_text_free(&message->blocks[i].name);
    }
    free(message->blocks);
    free(message->pieces);
    es_text_free(&message->fresh);
    *message = (es_message){.id = ""};
}

static es_status check(const es_message *message)
{
    if (!message->failed && !message->fresh.failed) return ES_OK;
    return es_fail(ES_NO_MEMORY, "no memory for the whole answer; ask for a stream");
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
    if (!message->one_call || message->call_count == 0) return false;
    return message->call_count > 1 || message->blocks[message->block_count - 1].kind != ES_PART_CALL ||
           message->blocks[message->block_count - 1].ended;
}

json_t *es_message_text(const es_message *message, es_part kind)
{
    es_text joined = {0};
    bool any = false;
    for (size_t i = 0; i < message->block_count; i++) {
        const es_block *block = &message->blocks[i];
        if (block->kind != kind) continue;
        es_text_append(&joined, block->text.data ? block->text.data : "", block->text.bytes);
        any = true;
    }
    json_t *value = any && !joined.failed ? es_json_text(joined.data ? joined.data : "", joined.bytes) : NULL;
    es_text_free(&joined);
    return value;
}
