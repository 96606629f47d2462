/* run.h: what folds and scans have in common: checked arguments, blocks of items, a known floating-point environment. */
#ifndef ES_FOLD_RUN_H
#define ES_FOLD_RUN_H

#include <fenv.h>

#include "evenshare/fold.h"
#include "share/team.h"

/** A fold or scan in the making. */
typedef struct es_run {
    es_operator op;          /**< with `block` filled in */
    es_source source;
    const void *initial;
    es_team *team;     /**< never NULL */
    es_team *own;         /**< opened for this run, when the caller had none */
    size_t stride;           /**< bytes from one partial to the next in scratch memory */
    size_t gather;           /**< bytes of a block of items, 0 when they can be read where they are */
} es_run;

/** Check and complete; es_run_end() in any case once it succeeded. */
es_status es_run_begin(es_run *run, es_team *team, const es_operator *op, const es_source *source, const void *initial);
void es_run_end(es_run *run);

/** Items [first, first + count) side by side: in place, or brought to `buffer` (run->gather bytes). */
const void *es_run_items(const es_run *run, int64_t first, int64_t count, void *buffer);

/** partial = items [first, first + count) folded as one block, by fold_block or else leaf and merge. `one` is scratch for a
 *  partial. count ≥ 1. */
void es_run_block(const es_run *run, int64_t first, int64_t count, void *buffer, void *one, void *partial);

/** The answer of a partial, or of none when `partial` is NULL; `one` is scratch for a partial. */
void es_run_finish(const es_run *run, const void *partial, void *one, void *answer);

/** Every worker calls these around its part, so that no caller's rounding mode or flush-to-zero gets into the bits. */
static inline void es_run_enter(fenv_t *saved)
{
    fegetenv(saved);
    fesetenv(FE_DFL_ENV);
}

static inline void es_run_leave(const fenv_t *saved)
{
    fesetenv(saved);
}

/** floor(total · part / parts) without overflow, for part ≤ parts ≤ 2^31. */
static inline uint64_t es_run_cut(uint64_t total, int part, int parts)
{
    const uint64_t p = (uint64_t)part, n = (uint64_t)parts;
    return total / n * p + total % n * p / n;
}

/** One more range of `bytes` · `count` in scratch memory: false when the sum does not fit. */
static inline bool es_run_reserve(size_t *total, size_t bytes, size_t count)
{
    size_t product;
    return !__builtin_mul_overflow(bytes, count, &product) && !__builtin_add_overflow(*total, product, total) &&
           *total < SIZE_MAX / 2;
}

#endif
