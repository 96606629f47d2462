/* token_trie.h: a vocabulary as a tree of bytes, laid out in the order in which it is walked.
 *
 * A mask needs to know of each token whether its bytes may come next. Tokens that begin alike are asked together: the tree is
 * walked, and where a byte cannot come, everything below it is skipped.
 *
 * Most tokens of a vocabulary consist of ordinary characters only: all but control characters, the quotation mark and the
 * backslash. Inside a JSON string they may all come, as long as the string may be so long. So there are two trees, and for the
 * ordinary tokens masks by their length in characters: there a mask is one look at the smaller tree and one copy. */
#ifndef ES_TEXT_TOKEN_TRIE_H
#define ES_TEXT_TOKEN_TRIE_H

#include "text/grammar.h"

enum { ES_TRIE_LEVELS = 16, ES_TRIE_TOKEN_MAX = 255 };

typedef struct es_trie_node {
    uint32_t skip;       /**< number of the first node that is not below this one */
    es_token token;      /**< whose last byte this is, or ES_NO_TOKEN */
    uint8_t byte, depth; /**< bytes before it */
} es_trie_node;

typedef struct es_trie_tree {
    es_trie_node *nodes; /**< [count] each before those below it */
    uint32_t count;
} es_trie_tree;

typedef struct es_trie_long {
    es_token token;
    uint32_t characters;
} es_trie_long;

struct es_token_trie {
    const es_tokenizer *tokenizer;
    int32_t vocabulary;
    size_t mask_bytes; /**< (vocabulary + 7) / 8 */
    uint8_t writable[32];
    es_trie_tree ordinary, rest;
    uint8_t *level[ES_TRIE_LEVELS + 1]; /**< [n]: mask of ordinary tokens of at most n characters; [0]: of all of them */
    es_trie_long *longer; /**< [longer_count] ordinary tokens of more than ES_TRIE_LEVELS characters, shortest first */
    uint32_t longer_count;
    uint32_t longest; /**< characters of the longest ordinary token */
};

#endif
