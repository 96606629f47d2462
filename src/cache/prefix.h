/* prefix.h: what has been computed before, as a tree over tokens.
 *
 * A node is one full page of tokens after its parent's; it holds the KV page in which they were computed. A mark is a place
 * where a sequence may go on: a node, some tail tokens in a partly filled page, and for hybrid models the recurrent state
 * there. Keys and values alone can be cut anywhere, a recurrent state only where it was kept: a hybrid goes on at marks, a
 * model without recurrent layers at any full page too.
 *
 * The tree keeps numbers of pages and slots, and gives them up, least recently used first, when a sequence needs them. It
 * never touches device memory and, once open, never allocates. One thread (the engine's) uses it. */
#ifndef ES_CACHE_PREFIX_H
#define ES_CACHE_PREFIX_H

#include "cache/pages.h"
#include "evenshare/tokenizer.h"

typedef struct es_prefix es_prefix;

/** Where a new sequence can go on. */
typedef struct es_prefix_hit {
    int64_t position;  /**< tokens that need not be computed */
    int64_t full;      /**< full pages among them: their numbers were written to the block table, and are held */
    int32_t tail_page; /**< a page whose first position mod page tokens are wanted too: copy it; −1: none */
    int32_t slot;      /**< state to copy; −1: none */
} es_prefix_hit;

/** Pools are shared with the sequences and must outlive the tree. `recurrent`: only marks will do. `marks`: how many may
 *  be kept at most. */
es_status es_prefix_open(es_pages *pages, es_pages *slots, int32_t page, bool recurrent, int32_t marks, es_prefix **prefix);
/** Gives back all pages and slots. */
void es_prefix_close(es_prefix *prefix);

/** The longest usable beginning of tokens[0 … limit). Full pages go to table[0 …) and are held once more. */
es_prefix_hit es_prefix_find(es_prefix *prefix, const es_token *tokens, int64_t limit, int32_t *table);

/** Remember that tokens[0 … position) are computed in the pages of `table`. With `slot` ≥ 0 the state there becomes a mark,
 *  and the slot the tree's (it is given back when there is no room). `thin`: this mark is one of many inside a long text;
 *  of those before it, one per doubling of distance stays. */
void es_prefix_insert(es_prefix *prefix, const es_token *tokens, int64_t position, const int32_t *table, int32_t slot, bool thin);

/** Take pages or a slot, giving up what was used least recently where the pool has too few. False: still not enough. */
bool es_prefix_take_pages(es_prefix *prefix, int64_t count, int32_t *out);
bool es_prefix_take_slot(es_prefix *prefix, int32_t *slot);
int64_t es_prefix_node_count(const es_prefix *prefix);
int64_t es_prefix_mark_count(const es_prefix *prefix);

#endif
