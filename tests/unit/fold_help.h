/* fold_help.h: operators whose answer betrays any other order of merging, and the order as the header states it. */
#ifndef TESTS_FOLD_HELP_H
#define TESTS_FOLD_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "evenshare/fold.h"
#include "evenshare/operators.h"

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Not associative at all: two answers are equal only if the same tree was built over the same items. `seal` is a function of
 * `hash`; a partial that nobody wrote does not have it. */
typedef struct mark {
    uint64_t hash, seal;
} mark;

static inline mark mark_of(uint64_t hash)
{
    return (mark){hash, mix(hash ^ 0x5EA1)};
}

static inline void check_written(const mark *s)
{
    if (s->seal != mix(s->hash ^ 0x5EA1)) abort(); /* from a worker: cmocka's assertions cannot be used */
}

static inline void mark_identity(const void *context, void *partial)
{
    (void)context;
    *(mark *)partial = mark_of(0xE);
}

static inline void mark_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)context;
    uint32_t value = 0;
    if (item) memcpy(&value, item, sizeof value);
    *(mark *)partial = mark_of(mix(value + 1) + mix((uint64_t)index * 3 + 7));
}

static inline mark mark_join(mark left, mark right)
{
    return mark_of(mix(left.hash * 5 + 1) ^ (right.hash + 0x9E3779B97F4A7C15u));
}

static inline void mark_merge(const void *context, void *left, const void *right)
{
    (void)context;
    check_written(left), check_written(right);
    *(mark *)left = mark_join(*(mark *)left, *(const mark *)right);
}

static inline void mark_finish(const void *context, const void *partial, void *answer)
{
    (void)context;
    check_written(partial);
    *(uint64_t *)answer = ((const mark *)partial)->hash;
}

static inline es_operator mark_operator(int64_t block, size_t item)
{
    return (es_operator){.name = "shape", .item = item, .partial = sizeof(mark), .answer = sizeof(uint64_t), .block = block,
                         .identity = mark_identity, .leaf = mark_leaf, .merge = mark_merge, .finish = mark_finish};
}

/* Items [first, end) as the header says: blocks in sequence, then the tree of their index. */
static inline mark mark_tree(const uint32_t *items, int64_t first, int64_t end, int64_t block)
{
    mark sum, next;
    if (end - first <= block) {
        mark_leaf(NULL, items ? items + first : NULL, first, &sum);
        for (int64_t i = first + 1; i < end; i++) {
            mark_leaf(NULL, items ? items + i : NULL, i, &next);
            sum = mark_join(sum, next);
        }
        return sum;
    }
    int64_t half = block;
    while (half < (end - first) - half) half *= 2;
    return mark_join(mark_tree(items, first, first + half, block), mark_tree(items, first + half, end, block));
}

/* The bicyclic monoid: brackets. Associative, not commutative. */
typedef struct brackets {
    uint64_t close, open; /* unmatched */
} brackets;

static inline void brackets_identity(const void *context, void *partial)
{
    (void)context;
    *(brackets *)partial = (brackets){0, 0};
}

static inline void brackets_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)context, (void)index;
    const char c = *(const char *)item;
    *(brackets *)partial = (brackets){c == ')', c == '('};
}

static inline void brackets_merge(const void *context, void *left, const void *right)
{
    (void)context;
    brackets *l = left;
    const brackets *r = right;
    const uint64_t matched = l->open < r->close ? l->open : r->close;
    *l = (brackets){l->close + r->close - matched, l->open + r->open - matched};
}

static inline es_operator brackets_operator(int64_t block)
{
    return (es_operator){.name = "brackets",
                         .item = 1,
                         .partial = sizeof(brackets),
                         .answer = sizeof(brackets),
                         .block = block,
                         .identity = brackets_identity,
                         .leaf = brackets_leaf,
                         .merge = brackets_merge};
}

#endif
