/* evenshare/fold.h: fold any number of items with any associative operator; the answer never depends on who did the work.
 *
 *   static void leaf(const void *context, const void *item, int64_t index, void *partial) {
 *       *(double *)partial = *(const float *)item;
 *   }
 *   static void merge(const void *context, void *left, const void *right) {
 *       *(double *)left += *(const double *)right;
 *   }
 *   static void zero(const void *context, void *partial) { *(double *)partial = 0; }
 *
 *   const es_operator sum = {.name = "sum", .item = sizeof(float), .partial = sizeof(double), .answer = sizeof(double),
 *                            .identity = zero, .leaf = leaf, .merge = merge};
 *   const es_source numbers = es_source_array(data, sizeof(float), count);
 *   double answer;
 *   es_fold(team, &sum, &numbers, NULL, &answer);
 *
 * An operator turns an item into a partial (leaf), joins two partials (merge, associative, not necessarily commutative), and
 * turns the last partial into an answer (finish). evenshare/operators.h has ready ones.
 *
 * The order: items [k·B, (k+1)·B) are one block, folded one after the other (B = the operator's `block`). Blocks merge in
 * the binary tree of their index: node (h, j) covers blocks [j·2^h, (j+1)·2^h), left before right; a missing right child
 * changes nothing. That depends on the count and the operator only: the answer has the same bits for any number of
 * workers, any alignment and any run, and whether items come from an array, from a strided one or from a generator.
 *
 * Memory: (workers + 1) · 2 · (log2(blocks) + 1) partials and, unless the source is a dense array, one block of items for each
 * worker. Functions run under the default floating-point environment (nearest even, denormals kept), whatever the caller's. */
#ifndef EVENSHARE_FOLD_H
#define EVENSHARE_FOLD_H

#include <stddef.h>
#include <stdint.h>

#include "evenshare/team.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** Items of a block when an operator does not say. */
#define ES_FOLD_BLOCK 1024

/** An operator: a struct to fill in, or one of evenshare/operators.h. Its functions are called from several threads at once
 *  and must depend on their arguments alone. Partials are aligned to 64 bytes; items only as the source has them. */
typedef struct es_operator {
    const char *name;    /**< for messages */
    size_t item;         /**< bytes of an item; 0 when leaf looks at the index only */
    size_t partial;      /**< bytes of a partial */
    size_t answer;       /**< bytes of an answer */
    int64_t block;       /**< items folded one after the other; 0 = ES_FOLD_BLOCK. Part of the order, hence of the bits */
    const void *context; /**< handed to every function */

    /** The partial of no items: what an empty fold gives. Merging it with another must give the other. */
    void (*identity)(const void *context, void *partial);
    /** The partial of one item. `index` counts from the start of the source. */
    void (*leaf)(const void *context, const void *item, int64_t index, void *partial);
    /** left ← left ⊕ right. */
    void (*merge)(const void *context, void *left, const void *right);
    /** NULL: the answer is the partial. */
    void (*finish)(const void *context, const void *partial, void *answer);
    /** The partial of `count` ≥ 1 items that lie side by side: what folds use instead of leaf where it is there, so it may
     *  have an order of its own, as long as that depends on `count` only. NULL: leaf and merge, item by item. */
    void (*fold_block)(const void *context, const void *items, int64_t first, int64_t count, void *partial);
} es_operator;

/** Where items come from; make one with the functions below. */
typedef struct es_source {
    int64_t count;       /**< how many items */
    size_t item;         /**< bytes of an item */
    const void *data;    /**< the first item; NULL for generated ones */
    ptrdiff_t stride;    /**< bytes from an item to the next; may be negative or 0 */
    void (*generate)(const void *context, int64_t first, int64_t count, void *items);
    const void *context; /**< handed to generate */
} es_source;

/** Items side by side, at any alignment. */
es_source es_source_array(const void *data, size_t item, int64_t count);
/** Items `stride` bytes apart. */
es_source es_source_strided(const void *data, size_t item, ptrdiff_t stride, int64_t count);
/** Items made when they are needed: generate(context, first, count, items) writes items [first, first + count). It must
 *  be a pure function of the index, and may be called from several threads at once. */
es_source es_source_generator(void (*generate)(const void *context, int64_t first, int64_t count, void *items),
                              const void *context, size_t item, int64_t count);
/** No data at all: leaf gets NULL and the index 0, 1, …, count − 1. */
es_source es_source_counting(int64_t count);

/** Fold all items. With an `initial` partial the answer is finish(initial ⊕ items); NULL: none. ES_INVALID for a negative
 *  count or an operator that does not fit the source, ES_NO_MEMORY. */
es_status es_fold(es_team *team, const es_operator *op, const es_source *source, const void *initial, void *answer);

/** Fold each of `segments` segments: segment s is the items [offsets[s], offsets[s + 1]), and answers[s] has the bits that
 *  es_fold() over those items alone would give (indexes still count from the start of the source). Work is shared evenly,
 *  whether there are many short segments or a long one. `offsets` has segments + 1 entries that never fall. */
es_status es_fold_segments(es_team *team, const es_operator *op, const es_source *source, const int64_t *offsets,
                           int64_t segments, const void *initial, void *answers);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
