/* record.h: the form in which a piece of the prefix tree lies in a file.
 *
 * A record is a node (a full page of tokens and its keys and values) or a mark (some tail tokens with their page, and a
 * recurrent state). It says which model, numeric mode, type of keys and values and build computed it, its own number and its
 * parent's; a checksum is over everything. Whoever reads one trusts nothing before es_record_parse() has said so. */
#ifndef ES_CACHE_RECORD_H
#define ES_CACHE_RECORD_H

#include <stddef.h>

#include "base/error.h"
#include "evenshare/tokenizer.h"

/** What every record of one model on one build has in common. */
typedef struct es_record_shape {
    uint64_t key[2]; /**< who computed it: model, numeric mode, type of keys and values, build, page */
    int32_t page;    /**< tokens of a page */
    int32_t vocabulary;
    size_t page_bytes;  /**< keys and values of a page, all layers */
    size_t state_bytes; /**< 0: the model has no recurrent state */
} es_record_shape;

typedef enum es_record_kind { ES_RECORD_NODE, ES_RECORD_MARK } es_record_kind;

typedef struct es_record {
    es_record_kind kind;
    uint64_t id;     /**< > 0, and greater than its parent's */
    uint64_t parent; /**< a node's number; 0: the beginning of a text */
    bool thin;       /**< as in es_prefix_insert() */
    int32_t count;   /**< a node: page; a mark: 0 to page − 1 */
    const es_token *tokens;
    const unsigned char *page;  /**< NULL where count is 0 */
    const unsigned char *state; /**< NULL where there is none */
} es_record;

/** Bytes of the largest record of a kind. */
size_t es_record_most(const es_record_shape *shape, es_record_kind kind);
/** Bytes of this one. page and state need only be NULL or not. */
size_t es_record_bytes(const es_record_shape *shape, const es_record *record);
/** Bytes from which es_record_peek() can tell what a record is, if a file has as many. */
size_t es_record_head(void);

/** Write the head and tokens of a record into `out`, and say where its page and state belong: the caller fills them in (NULL
 *  where there are none), then calls es_record_seal() with the whole. */
void es_record_lay_out(const es_record_shape *shape, const es_record *record, unsigned char *out, unsigned char **page,
                       unsigned char **state);
/** Put the checksum over `bytes` bytes of a record into it. */
void es_record_seal(unsigned char *out, size_t bytes);

/** What a record claims to be, from its first es_record_head() bytes: kind, id and parent; unchecked but for its form.
 *  ES_UNSUPPORTED: somebody else's (another model, mode, build or format). ES_BAD_FILE: damaged. */
es_status es_record_peek(const es_record_shape *shape, const unsigned char *data, size_t bytes, es_record *record);
/** A whole record, checked in full; its pointers lead into `data`, which must be aligned to 8 bytes. As es_record_peek(). */
es_status es_record_parse(const es_record_shape *shape, const unsigned char *data, size_t bytes, es_record *record);

#endif
