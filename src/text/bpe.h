/* bpe.h: the merges of one word.
 *
 * Whatever the word, the result is that of the definition: again and again the best-ranked pair of neighbours (the leftmost
 * of equals) becomes one. Short words search for it; long ones keep the pairs in a heap, O(n log n). */
#ifndef ES_TEXT_BPE_H
#define ES_TEXT_BPE_H

#include "base/error.h"
#include "evenshare/tokenizer.h"
#include "text/tables.h"

typedef struct es_bpe {
    es_pair_table merges;  /**< pair of tokens → rank, token made of them */
    es_token byte[256];    /**< the token of each single byte, or ES_NO_TOKEN */
    es_token unknown;      /**< stands for a byte without a token; ES_NO_TOKEN: such bytes are dropped */
    bool fuse_unknown;     /**< one such token for a run of them */
} es_bpe;

/** Tokens under way. Grows as needed; `failed` once memory was short. */
typedef struct es_token_list {
    es_token *data; /**< owned */
    size_t count, capacity;
    bool failed;
} es_token_list;

void es_token_list_add(es_token_list *list, es_token token);

/** Append the tokens of a word. ES_NO_MEMORY. */
es_status es_bpe_word(const es_bpe *bpe, const unsigned char *word, size_t bytes, es_token_list *out);

#endif
