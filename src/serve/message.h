/* message.h: what one choice of an answer has come to so far: blocks of reasoning, content and calls of tools, in order.
 *
 *   es_message_open(&message, format, tools, id, keep);
 *   es_message_add(&message, text, bytes);      // per event: pieces[] are what it added, in order
 *   ...send them...
 *   es_message_clear_pieces(&message);
 *
 * All APIs that answer a conversation are written from this; none of them looks at the model's text itself. */
#ifndef ES_SERVE_MESSAGE_H
#define ES_SERVE_MESSAGE_H

#include "base/text.h"
#include "text/answer_parser.h"

typedef struct es_block {
    es_part kind; /**< ES_PART_REASONING, ES_PART_CONTENT or ES_PART_CALL */
    es_text text; /**< reasoning, content, or a call's arguments (JSON, cut off where the answer was); empty unless kept */
    bool ended;   /**< a call that is whole */
    /* calls */
    size_t call; /**< its number */
    char id[48];
    es_text name;
} es_block;

/** Something new. Its text is data + offset of `fresh`. */
typedef struct es_piece {
    es_part part;
    size_t block; /**< index into blocks */
    size_t offset, bytes;
} es_piece;

typedef struct es_message {
    es_answer_parser *parser; /**< NULL: everything is content */
    const char *id;           /**< calls get an id made from this and `number` */
    size_t number;
    bool keep;     /**< the blocks' texts are kept */
    bool one_call; /**< what comes behind the first call is left out */
    es_block *blocks;
    size_t block_count, call_count;
    es_text fresh;
    es_piece *pieces; /**< since es_message_clear_pieces() */
    size_t piece_count, piece_room;
    int64_t reasoning_tokens; /**< how often es_message_add() was called while the model reasoned */
    bool failed;              /**< memory was short */
} es_message;

/** `id` must outlive the message; `tools` NULL: no calls. */
es_status es_message_open(es_message *message, es_answer_format format, json_t *tools, const char *id, bool keep);
/** A message without form. */
void es_message_open_plain(es_message *message, bool keep);
void es_message_free(es_message *message);

/** A token's text. ES_NO_MEMORY. */
es_status es_message_add(es_message *message, const char *text, size_t bytes);
/** No more text comes. */
es_status es_message_finish(es_message *message);
void es_message_clear_pieces(es_message *message);
/** The first call is whole, and no other is wanted. */
bool es_message_is_full(const es_message *message);

static inline const char *es_piece_text(const es_message *message, const es_piece *piece)
{
    return piece->bytes ? message->fresh.data + piece->offset : "";
}
/** All blocks of one kind, joined; NULL when there is none (or memory is short). */
json_t *es_message_text(const es_message *message, es_part kind);

#endif
