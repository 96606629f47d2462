/* grammar_internal.h: a grammar as it is read (grammar_parse.c), as it is compiled (grammar_build.c), and as it is matched
 * (grammar_match.c, grammar_mask.c). Nothing else should include this. */
#ifndef ES_TEXT_GRAMMAR_INTERNAL_H
#define ES_TEXT_GRAMMAR_INTERNAL_H

#include "base/text.h"
#include "text/grammar.h"

/* ---- as it is read: a tree for each rule ---- */

typedef enum es_gram_kind {
    ES_GRAM_LITERAL,      /* bytes of `bytes[first .. first + count)`; none: the empty text */
    ES_GRAM_CLASS,        /* one character of `ranges[first .. first + count)`, sorted and apart */
    ES_GRAM_REF,          /* rule number `first` */
    ES_GRAM_SEQUENCE,     /* children one after the other */
    ES_GRAM_ALTERNATIVES, /* one of the children */
    ES_GRAM_REPEAT,       /* the one child, min to max times */
} es_gram_kind;

typedef struct es_gram_node {
    uint8_t kind;
    uint32_t first, count;
    uint32_t child, next; /* 0: none */
    uint32_t min, max;    /* max ES_GRAM_NO_END: without end */
} es_gram_node;
#define ES_GRAM_NO_END UINT32_MAX

typedef struct es_gram_range {
    uint32_t first, last; /* code points */
} es_gram_range;

typedef struct es_gram_rule {
    const char *name; /* into the text */
    uint32_t name_bytes;
    uint32_t body;  /* node; 0 while it is only mentioned */
    uint32_t where; /* byte in the text of its first mention */
} es_gram_rule;

/* A growing array that never holds more than `limit` elements. */
typedef struct es_gram_list {
    void *data;
    uint32_t count, capacity, limit;
} es_gram_list;
/* Room for `more` elements of `size` bytes after the last, not yet counted in; NULL past the limit or without memory. */
void *es_gram_reserve(es_gram_list *list, uint32_t more, size_t size);

typedef struct es_gram_tree {
    const char *text;
    size_t bytes;
    es_gram_list nodes;  /* es_gram_node; number 0 is nobody's */
    es_gram_list ranges; /* es_gram_range */
    es_text literals;
    es_gram_list rules; /* es_gram_rule */
    uint32_t root;      /* rule number */
} es_gram_tree;

es_status es_gram_parse(const char *text, size_t bytes, es_gram_tree *tree);
void es_gram_tree_free(es_gram_tree *tree);
/* ES_INVALID with the line and column of a byte of the text. */
es_status es_gram_fail(const es_gram_tree *tree, size_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- as it is compiled: states, each in one rule ---- */

typedef enum es_gram_state_kind {
    ES_STATE_BYTES,  /* edges[first .. first + count): a byte of one of their ranges leads to their target */
    ES_STATE_SPLIT,  /* edges' targets, all of them, without a byte */
    ES_STATE_CALL,   /* rule `rule`, then `target` */
    ES_STATE_REPEAT, /* rule `rule` min to max times, then `target`; the matcher counts */
    ES_STATE_END,    /* of its rule */
    ES_STATE_ACCEPT, /* after the root rule */
} es_gram_state_kind;

typedef struct es_gram_edge {
    uint8_t first, last; /* classes of bytes, see es_grammar.class_of */
    uint32_t target;
} es_gram_edge;

#define ES_HEIGHT_NEVER UINT32_MAX

typedef struct es_gram_state {
    uint8_t kind;
    bool ordinary; /* repeat: any ordinary character (token_trie.h) is one unit of it */
    bool closed;   /* repeat: what follows it begins with a byte that no ordinary character has */
    uint8_t kinds; /* repeat: each byte of these kinds (token_trie.h) is one unit of it */
    uint32_t first, count;
    uint32_t target, rule;
    uint32_t min, max;
    uint32_t height; /* rules that must be opened on the shallowest way from here to its rule's end; ES_HEIGHT_NEVER: no way */
} es_gram_state;

typedef struct es_gram_routine {
    uint32_t start;
    uint32_t order; /* those that may be called before a byte is read come later */
    bool nullable;
} es_gram_routine;

struct es_grammar {
    es_gram_state *states;
    es_gram_edge *edges;
    es_gram_routine *rules;
    uint32_t *by_order; /* [rule_count] rule numbers */
    uint32_t state_count, edge_count, rule_count;
    uint32_t root, accept; /* rule, state */
    uint8_t class_of[256]; /* bytes in a row that no edge tells apart have one class */
};

/* From tree to states. */
es_status es_gram_build(const es_gram_tree *tree, const uint8_t *writable, unsigned flags, es_grammar *grammar);
/* Which rules can be empty, which call which before a byte (left recursion is refused), and how high each state is. */
es_status es_gram_analyse(const es_gram_tree *tree, es_grammar *grammar);

#endif
