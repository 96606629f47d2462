/* evenshare/operators.h: operators that are ready to use.
 *
 *   const es_operator summary = es_operator_summary(ES_ITEM_BF16);
 *   const es_source weights = es_source_array(tensor, 2, count);
 *   es_summary s;
 *   es_fold(team, &summary, &weights, NULL, &s);
 *   printf("mean %g, deviation %g\n", s.mean, es_summary_deviation(&s));
 *
 * Each one's partial and answer are a struct below, computed in float64 unless it says otherwise. What becomes of NaN (quiet
 * or signalling, they are treated alike) and of −0 is said at each. */
#ifndef EVENSHARE_OPERATORS_H
#define EVENSHARE_OPERATORS_H

#include "evenshare/fold.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** How an item is stored. */
typedef enum es_item_type {
    ES_ITEM_F64,
    ES_ITEM_F32,
    ES_ITEM_F16,  /**< IEEE binary16 */
    ES_ITEM_BF16, /**< the upper half of a float32 */
    ES_ITEM_I32,
} es_item_type;
/** Bytes of an item; 0 for a value that is no es_item_type. */
size_t es_item_bytes(es_item_type type);

/** Σ x as double, in 16 lanes: item i of a block goes to lane i mod 16, and lanes fold in a fixed tree. NaN and infinities
 *  do what addition does. An empty sum is +0. */
es_operator es_operator_sum(es_item_type type);

/** Σ x with a running compensation of what rounding lost (Neumaier): the answer, a double, is as good as if summed in twice
 *  the precision and rounded once. An infinite sum is infinite, not NaN. */
typedef struct es_compensated {
    double sum, lost;
} es_compensated;
es_operator es_operator_compensated_sum(es_item_type type);

/** Smallest and greatest. NaN is passed over; −0 is less than +0. `count` = 0: there was no number, min = +inf, max = −inf. */
typedef struct es_extremes {
    double min, max;
    int64_t count; /**< numbers, NaN not counted */
} es_extremes;
es_operator es_operator_extremes(es_item_type type);

/** Where the least (or greatest) is: ties, and −0 against +0, go to the lowest index; NaN is passed over. `index` = −1: there
 *  was no number. */
typedef struct es_arg {
    double value;
    int64_t index;
} es_arg;
es_operator es_operator_arg_min(es_item_type type);
es_operator es_operator_arg_max(es_item_type type);

/** ln Σ e^x, a double. Nothing, or only −inf, gives −inf; +inf gives +inf; NaN gives NaN. */
typedef struct es_log_sum {
    double max, sum; /**< Σ e^(x − max) */
} es_log_sum;
es_operator es_operator_log_sum_exp(es_item_type type);

/** Summary statistics in one pass. NaN and infinities are counted and take no part in anything else; a zero minimum or maximum
 *  is +0. m2, m3, m4 are Σ (x − mean)^k over the finite items. */
typedef struct es_summary {
    int64_t count;                       /**< finite items */
    int64_t zeros, nans, plus_infs, minus_infs;
    double min, max;                     /**< +inf and −inf when count = 0 */
    double mean, m2, m3, m4;
} es_summary;
es_operator es_operator_summary(es_item_type type);
/** Of the population (divided by count, as numpy does). 0 where it is not defined: no items, or all equal. */
double es_summary_deviation(const es_summary *summary);
double es_summary_skewness(const es_summary *summary);
/** The excess over the normal distribution's 3. */
double es_summary_kurtosis(const es_summary *summary);
/** left ← left ⊕ right, for those who keep summaries of parts. */
void es_summary_merge(es_summary *left, const es_summary *right);

/** How many items are what. */
typedef struct es_counts {
    int64_t items, negative, zeros, positive, nans, plus_infs, minus_infs, subnormals;
} es_counts;
es_operator es_operator_counts(es_item_type type);

/** A histogram of [low, high) in bins of equal width. Partial and answer: an int64_t for each bin, then ES_HISTOGRAM_EXTRA
 *  more in the order of the constants below. `shape` must live as long as the operator is used; bins ≥ 1 and finite
 *  low < high, or else the operator is refused when it runs. */
typedef struct es_histogram_shape {
    double low, high;
    int32_t bins;
    es_item_type type;
} es_histogram_shape;
enum { ES_HISTOGRAM_BELOW, ES_HISTOGRAM_ABOVE, ES_HISTOGRAM_NAN, ES_HISTOGRAM_EXTRA };
es_operator es_operator_histogram(const es_histogram_shape *shape);
/** The bin that a number belongs to; −1 outside of [low, high) and for NaN. */
int32_t es_histogram_bin(const es_histogram_shape *shape, double x);

/** The k greatest, greatest first, ties to the lowest index; NaN is passed over. Partial and answer: k es_arg, those past
 *  the last number with index −1. `shape` must live as long as the operator is used; k ≥ 1. */
typedef struct es_top_shape {
    int32_t k;
    es_item_type type;
} es_top_shape;
es_operator es_operator_top(const es_top_shape *shape);

/** Softmax-weighted mean of vectors (attention): an item is a score and a vector, float[1 + dim]; the answer is
 *  Σ e^score · v / Σ e^score, float[dim]. A score of −inf takes no part, whatever its vector holds; a fold of nothing gives
 *  zeros; NaN in a score or a vector that takes part gives NaN. The partial is {max, sum, output}, float[2 + dim]; an empty
 *  one merged with any other gives the other, bit for bit. `shape` must live as long as the operator is used; dim ≥ 1. */
typedef struct es_attention_fold {
    int32_t dim;
} es_attention_fold;
es_operator es_operator_attention(const es_attention_fold *shape);

/** S ← a·S + b as a scan over pairs: an item, partial and answer is an es_gated. Scanned from {1, S0} (or without initial
 *  partial from S = 0), the b of answer i is the state after item i. */
typedef struct es_gated {
    double a, b;
} es_gated;
es_operator es_operator_gated(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
