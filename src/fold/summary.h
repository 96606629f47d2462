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

/* BF16 items have a faster way: powers about 0 in float32. 32 items are a line, eight lines a group, four groups a unit; what
 * is missing from the last one counts as +0. Lane j of 16 takes of each line the items x = 2j and y = 2j + 1, and adds over the
 * lines of a group, in order, to sums that begin at 0:
 *   x + y;  x² + y²;  x³ = fma(x², x, ·) and x⁴ = fma(x², x², ·), those of y apart, and the two sums are added at the end.
 * Groups of a unit are added in pairs, (0 + 1) + (2 + 3); the lanes of a unit fold in halves, from 16 to 4 in float32 and then
 * in float64, but Σ x in float64 throughout; units are added in order.
 *
 * A float32 holds such an item's square and cube exactly, and each item passes through at most 13 roundings of 2^-24: so
 * the error is below 8e-7 of Σ|x|^k even if all of it pointed one way, and a hundredth of that in practice. Σ x, whose addends
 * have 8 bits, is all but exact: a mean near 0 needs that. */
#define ES_RAW_LANES 16
#define ES_RAW_LINE 32
#define ES_RAW_LINES 8
#define ES_RAW_GROUP (ES_RAW_LINE * ES_RAW_LINES)
#define ES_RAW_GROUPS 4

typedef struct es_raw_powers {
    double s1, s2, s3, s4;
    int64_t zeros;
    int high; /**< the items' greatest bit pattern read as int16_t, 0 when that is negative */
    int low;  /**< and read as uint16_t: of a negative item once it is past 0x8000 */
} es_raw_powers;

/** How great a part's items are: Σ x² and max |x|. */
typedef struct es_part_size {
    double energy, largest;
} es_part_size;

/** Whether float32 holds the powers of items up to a bit pattern: it is 0, or from 2^-28 to 2^28. */
static inline bool es_raw_is_good(int largest)
{
    return largest == 0 || (largest >= (127 - 28) << 7 && largest <= (127 + 28) << 7);
}

/** Powers of `count` ≥ 1 items. False, and nothing useful in *out, when some item (or the sum) is not finite. */
typedef bool (*es_powers_fn)(const void *items, int64_t count, es_powers *out);

/** Kernels of an instruction set; NULL for types that it has none for. */
es_powers_fn es_powers_avx2(es_item_type type);
es_powers_fn es_powers_avx512(es_item_type type);

/** Powers about 0 of `parts` times `count` ≥ 1 BF16 items, a part every `stride` bytes, each summed for itself; the sums are
 *  then added in order. False, and nothing useful in *sum and size[parts], when some part's largest item is not good. */
typedef bool (*es_raw_powers_fn)(const void *items, int64_t parts, int64_t count, size_t stride, es_raw_powers *sum,
                                 es_part_size *size);
bool es_raw_powers_avx2(const void *items, int64_t parts, int64_t count, size_t stride, es_raw_powers *sum, es_part_size *size);
bool es_raw_powers_avx512(const void *items, int64_t parts, int64_t count, size_t stride, es_raw_powers *sum,
                          es_part_size *size);

/** What an operator's context is. */
typedef struct es_summary_kernel {
    es_item_type type;
    es_powers_fn powers;   /**< NULL: the plain-C one */
    es_raw_powers_fn raw;  /**< of BF16; NULL: the plain-C one */
} es_summary_kernel;

/** Parts of a block the faster way: `parts` times `count` ≥ 1 items, a part every `stride` bytes. False, and nothing useful in
 *  *out and size[parts], when that would not be right, and es_summary_block() has to do each: items of another type or not
 *  finite, very great or small ones, or such as lie further from 0 than they are wide. */
bool es_summary_parts(const es_summary_kernel *kernel, const void *items, int64_t parts, int64_t count, size_t stride,
                      es_summary *out, es_part_size *size);

/** The summary of one block by a given kernel; any `count` ≥ 1. */
void es_summary_block(const es_summary_kernel *kernel, const void *items, int64_t count, es_summary *out);
/** "reference", "avx2", "avx512" or NULL for the best; NULL where this machine lacks it. */
const es_summary_kernel *es_summary_kernel_of(es_item_type type, const char *instruction_set);
/** The best that this machine has, or what $ES_INSTRUCTION_SET names. */
const es_summary_kernel *es_summary_kernel_best(es_item_type type);

#endif
