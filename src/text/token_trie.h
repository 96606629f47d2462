/* token_trie.h: a vocabulary as a tree of bytes, laid out in the order in which it is walked.
 *
 * A mask needs to know of each token whether its bytes may come next. Tokens that begin alike are asked together: the tree is
 * walked, and where a byte cannot come, everything below it is skipped.
 *
 * Most tokens of a vocabulary consist of ordinary characters only: all but control characters, the quotation mark and the
 * backslash. Inside a JSON string they may all come, as long as the string may be so long. So there are two trees, and for the
 * ordinary tokens masks by their length in characters: there a mask is one look at the smaller tree and one copy.
 *
 * Narrower runs, such as the letters and digits of a name, are told by *kinds* of bytes: a node knows which kinds stand below it and
 * how far down it goes, so that where all of them may come its tokens are taken without a look at each byte. */
#ifndef ES_TEXT_TOKEN_TRIE_H
#define ES_TEXT_TOKEN_TRIE_H

#include "text/grammar.h"

enum { ES_TRIE_LEVELS = 16, ES_TRIE_TOKEN_MAX = 255 };

/** Kinds of bytes, as bits of a set. */
enum {
    ES_TRIE_LOWER = 1,
    ES_TRIE_UPPER = 2,
    ES_TRIE_DIGIT = 4,
    ES_TRIE_UNDERSCORE = 8,
    ES_TRIE_HYPHEN = 16,
    ES_TRIE_SPACE = 32,
    ES_TRIE_DOT = 64,
    ES_TRIE_OTHER = 128, /**< bytes of no kind that runs are told by */
};

typedef struct es_trie_node {
    uint32_t skip;       /**< number of the first node that is not below this one */
    es_token token;      /**< whose last byte this is, or ES_NO_TOKEN */
    uint32_t first;      /**< index into the tree's tokens of the first one below */
    uint8_t byte, depth; /**< bytes before it */
    uint8_t kinds;       /**< of the bytes below */
    uint8_t height;      /**< bytes of the longest way down from here */
} es_trie_node;

typedef struct es_trie_tree {
    es_trie_node *nodes; /**< [count] each before those below it; one more behind the last, whose `first` is token_count */
    es_token *tokens;    /**< [token_count] in the order of their nodes */
    uint32_t count, token_count;
} es_trie_tree;

static inline uint8_t es_trie_kind(unsigned char byte)
{
    if (byte >= 'a' && byte <= 'z') return ES_TRIE_LOWER;
    if (byte >= 'A' && byte <= 'Z') return ES_TRIE_UPPER;
    if (byte >= '0' && byte <= '9') return ES_TRIE_DIGIT;
    switch (byte) {
    case '_': return ES_TRIE_UNDERSCORE;
    case '-': return ES_TRIE_HYPHEN;
    case ' ': return ES_TRIE_SPACE;
    case '.': return ES_TRIE_DOT;
    default: return ES_TRIE_OTHER;
    }
}

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
