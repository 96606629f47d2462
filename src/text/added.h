/* added.h: finding added tokens ("<|im_end|>") in a text before anything else looks at it.
 *
 * Matches run from left to right, the longest at each place, and never overlap; a match that a token's conditions turn down
 * is passed over whole. That is what the tokenizers library does, and what models were trained behind. */
#ifndef ES_TEXT_ADDED_H
#define ES_TEXT_ADDED_H

#include "base/error.h"
#include "evenshare/tokenizer.h"
#include "text/tables.h"

typedef struct es_added_token {
    es_token token;
    bool special; /**< plain text unless ES_ENCODE_SPECIAL is given */
    bool lstrip, rstrip, single_word;
} es_added_token;

/** A trie of their texts. */
typedef struct es_added_set {
    es_pair_table edges;    /**< (node, byte) → child node */
    int32_t *token_of_node; /**< [node] index into tokens, or −1; owned */
    int32_t nodes, node_limit;
    es_added_token *tokens; /**< owned */
    int32_t count;
    bool first[256]; /**< bytes a match can begin with */
} es_added_set;

/** Room for `count` tokens of `bytes` bytes in all. */
es_status es_added_open(es_added_set *set, size_t count, size_t bytes);
void es_added_close(es_added_set *set);
/** Add one. An empty text is ignored; of two equal ones the first stays. False when the room opened does not suffice. */
bool es_added_add(es_added_set *set, const char *text, size_t bytes, const es_added_token *token);

/** A place where an added token stands. */
typedef struct es_added_match {
    size_t begin, end; /**< with the space that lstrip and rstrip take in */
    es_token token;
} es_added_match;

/** The next match at or after *scan; `floor` is the end of the match before. False when there is none. */
bool es_added_next(const es_added_set *set, const unsigned char *text, size_t bytes, bool specials, size_t *scan, size_t floor,
                   es_added_match *match);

#endif
