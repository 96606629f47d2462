/* summary.h: the kernels under the summary statistics: sums of powers about a pivot, over one block. Internal to fold/.
 *
 * Item i of the block's finite items goes to lane i mod 16; d = x − pivot, the pivot being the first finite item, and each
 * lane adds d, d², d³ = fma(d², d, ·) and d⁴ = fma(d², d², ·) in order; lanes fold in the fixed tree. Vector kernels do just
 * that, so they equal the plain-C one bit for bit. With an item of the block as pivot the central moments that follow are
 * good: since the pivot's own distance from the mean is part of each moment, what cancels is at most `count` times what
 * stays. */
#ifndef ES_FOLD_SUMMARY_H
#define ES_FOLD_SUMMARY_H

#include "fold/items.h"

typedef struct es_powers {
    double pivot, s1, s2, s3, s4;
    double min, max;
    int64_t count, zeros;
} es_powers;

/** Powers of `count` ≥ 1 items. False, and nothing useful in *out, when some item (or the sum) is not finite. */
typedef bool (*es_powers_fn)(const void *items, int64_t count, es_powers *out);

/** Kernels of an instruction set; NULL for types that it has none for. */
es_powers_fn es_powers_avx2(es_item_type type);
es_powers_fn es_powers_avx512(es_item_type type);

/** What an operator's context is. */
typedef struct es_summary_kernel {
    es_item_type type;
    es_powers_fn powers; /**< NULL: the plain-C one */
} es_summary_kernel;

/** The summary of one block by a given kernel; any `count` ≥ 1. */
void es_summary_block(const es_summary_kernel *kernel, const void *items, int64_t count, es_summary *out);
/** "reference", "avx2", "avx512" or NULL for the best; NULL where this machine lacks it. */
const es_summary_kernel *es_summary_kernel_of(es_item_type type, const char *instruction_set);
/** The best that this machine has, or what $ES_INSTRUCTION_SET names. */
const es_summary_kernel *es_summary_kernel_best(es_item_type type);

#endif
