/* sums.c: plain and compensated sums, log-sum-exp, and the gated recurrence. */
#include <math.h>

#include "fold/items.h"

/* --- the plain sum: a double --- */

static void sum_identity(const void *context, void *partial)
{
    (void)context;
    *(double *)partial = 0;
}

static void sum_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)index;
    *(double *)partial = es_item_load(es_item_type_of(context), item, 0);
}

static void sum_merge(const void *context, void *left, const void *right)
{
    (void)context;
    *(double *)left += *(const double *)right;
}

static void sum_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)first;
    double lane[ES_FOLD_LANES] = {0}, tile[ES_FOLD_TILE];
    for (int64_t at = 0; at < count; at += ES_FOLD_TILE) {
        const int64_t n = count - at < ES_FOLD_TILE ? count - at : ES_FOLD_TILE;
        es_items_load(es_item_type_of(context), items, at, n, tile);
        for (int64_t i = 0; i < n; i++) lane[i % ES_FOLD_LANES] += tile[i];
    }
    *(double *)partial = es_fold_lanes_f64(lane);
}

es_operator es_operator_sum(es_item_type type)
{
    const es_operator op = {.name = "sum", .partial = sizeof(double), .answer = sizeof(double), .identity = sum_identity,
                            .leaf = sum_leaf, .merge = sum_merge, .fold_block = sum_block};
    return es_operator_of_type(type, &op);
}

/* --- the compensated sum --- */

/* Neumaier: what the greater of the two loses by the addition is exactly known. */
static void add_compensated(es_compensated *to, double x, double lost)
{
    const double sum = to->sum + x;
    if (isfinite(sum)) lost += fabs(to->sum) >= fabs(x) ? (to->sum - sum) + x : (x - sum) + to->sum;
    to->sum = sum;
    to->lost += lost;
}

static void compensated_identity(const void *context, void *partial)
{
    (void)context;
    *(es_compensated *)partial = (es_compensated){0};
}

static void compensated_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)index;
    *(es_compensated *)partial = (es_compensated){es_item_load(es_item_type_of(context), item, 0), 0};
}

static void compensated_merge(const void *context, void *left, const void *right)
{
    (void)context;
    const es_compensated *r = right;
    add_compensated(left, r->sum, r->lost);
}

static void compensated_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)first;
    es_compensated lane[ES_FOLD_LANES] = {{0}};
    for (int64_t i = 0; i < count; i++)
        add_compensated(&lane[i % ES_FOLD_LANES], es_item_load(es_item_type_of(context), items, i), 0);
    for (int width = ES_FOLD_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) add_compensated(&lane[i], lane[i + width].sum, lane[i + width].lost);
    *(es_compensated *)partial = lane[0];
}

static void compensated_finish(const void *context, const void *partial, void *answer)
{
    (void)context;
    const es_compensated *p = partial;
    *(double *)answer = isfinite(p->sum) ? p->sum + p->lost : p->sum;
}

es_operator es_operator_compensated_sum(es_item_type type)
{
    const es_operator op = {.name = "compensated sum", .partial = sizeof(es_compensated), .answer = sizeof(double),
                            .identity = compensated_identity, .leaf = compensated_leaf, .merge = compensated_merge,
                            .finish = compensated_finish, .fold_block = compensated_block};
    return es_operator_of_type(type, &op);
}

/* --- log-sum-exp --- */

static void log_sum_identity(const void *context, void *partial)
{
    (void)context;
    *(es_log_sum *)partial = (es_log_sum){-INFINITY, 0};
}

static void log_sum_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)index;
    const double x = es_item_load(es_item_type_of(context), item, 0);
    *(es_log_sum *)partial = isnan(x) ? (es_log_sum){NAN, NAN} : (es_log_sum){x, x == -INFINITY ? 0.0 : 1.0};
}

/* e^(x − max), where equal infinities count as equal. */
static double scaled(double x, double max)
{
    return x == max ? 1.0 : es_fold_exp(x - max);
}

static void log_sum_merge(const void *context, void *left, const void *right)
{
    (void)context;
    es_log_sum *l = left;
    const es_log_sum *r = right;
    if (r->max == -INFINITY || isnan(l->sum)) return;
    if (l->max == -INFINITY || isnan(r->sum)) {
        *l = *r;
        return;
    }
    const double max = l->max > r->max ? l->max : r->max;
    *l = (es_log_sum){max, l->sum * scaled(l->max, max) + r->sum * scaled(r->max, max)};
}

static void log_sum_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)first;
    const es_item_type type = es_item_type_of(context);
    double max = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        const double x = es_item_load(type, items, i);
        if (isnan(x)) {
            *(es_log_sum *)partial = (es_log_sum){NAN, NAN};
            return;
        }
        max = x > max ? x : max;
    }
    double lane[ES_FOLD_LANES] = {0};
    if (max != -INFINITY)
        for (int64_t i = 0; i < count; i++) lane[i % ES_FOLD_LANES] += scaled(es_item_load(type, items, i), max);
    *(es_log_sum *)partial = (es_log_sum){max, es_fold_lanes_f64(lane)};
}

static void log_sum_finish(const void *context, const void *partial, void *answer)
{
    (void)context;
    const es_log_sum *p = partial;
    *(double *)answer = p->sum > 0 ? p->max + log(p->sum) : p->max;
}

es_operator es_operator_log_sum_exp(es_item_type type)
{
    const es_operator op = {.name = "log-sum-exp", .partial = sizeof(es_log_sum), .answer = sizeof(double),
                            .identity = log_sum_identity, .leaf = log_sum_leaf, .merge = log_sum_merge,
                            .finish = log_sum_finish, .fold_block = log_sum_block};
    return es_operator_of_type(type, &op);
}

/* --- the gated recurrence: first left, then right: S ← ar·(al·S + bl) + br --- */

static void gated_identity(const void *context, void *partial)
{
    (void)context;
    *(es_gated *)partial = (es_gated){1, 0};
}

static void gated_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)context, (void)index;
    memcpy(partial, item, sizeof(es_gated));
}

static void gated_merge(const void *context, void *left, const void *right)
{
    (void)context;
    es_gated *l = left;
    const es_gated *r = right;
    *l = (es_gated){l->a * r->a, fma(r->a, l->b, r->b)};
}

es_operator es_operator_gated(void)
{
    return (es_operator){.name = "gated recurrence", .item = sizeof(es_gated), .partial = sizeof(es_gated),
                         .answer = sizeof(es_gated), .identity = gated_identity, .leaf = gated_leaf, .merge = gated_merge};
}
