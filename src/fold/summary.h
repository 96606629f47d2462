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

/* BF16 items have a faster way: x, x², x³ and x⁴ in float32, about 0, in 16 lanes; a lane adds ES_POWERS_ROWS items in order
 * (x³ and x⁴ by fused steps) and then goes into its float64 sum. A float32 holds such an item's square and cube exactly and
 * rounds sums of them by 2^-25, so the error is below 3e-7 of Σ|x|^k even if all of it pointed one way. Blocks whose moments
 * would suffer are done over: those further from 0 than they are wide, and very great or small numbers. */
#define ES_POWERS_ROWS 8

/** Powers of `count` ≥ 1 items. False, and nothing useful in *out, when some item (or the sum) is not finite. */
typedef bool (*es_powers_fn)(const void *items, int64_t count, es_powers *out);

/** Kernels of an instruction set; NULL for types that it has none for. */
es_powers_fn es_powers_avx2(es_item_type type);
es_powers_fn es_powers_avx512(es_item_type type);
/** The faster way, for BF16; NULL for other types. Always returns true; s2 is not finite when an item is not. */
es_powers_fn es_fast_powers_avx2(es_item_type type);
es_powers_fn es_fast_powers_avx512(es_item_type type);

/** What an operator's context is. */
typedef struct es_summary_kernel {
    es_item_type type;
    es_powers_fn powers; /**< NULL: the plain-C one */
    es_powers_fn fast;   /**< of BF16; NULL: the plain-C one */
} es_summary_kernel;

/** The summary of one block by a given kernel; any `count` ≥ 1. */
void es_summary_block(const es_summary_kernel *kernel, const void *items, int64_t count, es_summary *out);
/** "reference", "avx2", "avx512" or NULL for the best; NULL where this machine lacks it. */
const es_summary_kernel *es_summary_kernel_of(es_item_type type, const char *instruction_set);
/** The best that this machine has, or what $ES_INSTRUCTION_SET names. */
const es_summary_kernel *es_summary_kernel_best(es_item_type type);

#endif
