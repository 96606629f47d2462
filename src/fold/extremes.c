/* extremes.c: the least, the greatest, where they are, and the k greatest. Nothing here rounds. */
#include <math.h>

#include "fold/items.h"

/* --- least and greatest --- */

static void extremes_identity(const void *context, void *partial)
{
    (void)context;
    *(es_extremes *)partial = (es_extremes){INFINITY, -INFINITY, 0};
}

/* Comparison where −0 < +0; neither is NaN. */
static bool is_less(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static void include(es_extremes *e, double x)
{
    if (isnan(x)) return;
    if (is_less(x, e->min)) e->min = x;
    if (is_less(e->max, x)) e->max = x;
    e->count++;
}

static void extremes_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)index;
    extremes_identity(NULL, partial);
    include(partial, es_item_load(es_item_type_of(context), item, 0));
}

static void extremes_merge(const void *context, void *left, const void *right)
{
    (void)context;
    es_extremes *l = left;
    const es_extremes *r = right;
    if (is_less(r->min, l->min)) l->min = r->min;
    if (is_less(l->max, r->max)) l->max = r->max;
    l->count += r->count;
}

static void extremes_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)first;
    es_extremes e;
    extremes_identity(NULL, &e);
    for (int64_t i = 0; i < count; i++) include(&e, es_item_load(es_item_type_of(context), items, i));
    *(es_extremes *)partial = e;
}

es_operator es_operator_extremes(es_item_type type)
{
    const es_operator op = {.name = "extremes", .partial = sizeof(es_extremes), .answer = sizeof(es_extremes),
                            .identity = extremes_identity, .leaf = extremes_leaf, .merge = extremes_merge,
                            .fold_block = extremes_block};
    return es_operator_of_type(type, &op);
}

/* --- where: sign = 1 looks for the greatest, −1 for the least --- */

static void arg_identity(const void *context, void *partial)
{
    (void)context;
    *(es_arg *)partial = (es_arg){NAN, -1};
}

static bool is_better(const es_arg *a, const es_arg *b, double sign)
{
    if (a->index < 0 || b->index < 0) return a->index >= 0 && b->index < 0;
    if (a->value != b->value) return sign * a->value > sign * b->value;
    return a->index < b->index;
}

static void arg_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    const double x = es_item_load(es_item_type_of(context), item, 0);
    *(es_arg *)partial = isnan(x) ? (es_arg){NAN, -1} : (es_arg){x, index};
}

static void arg_block(const void *context, const void *items, int64_t first, int64_t count, double sign, es_arg *best)
{
    arg_identity(NULL, best);
    for (int64_t i = 0; i < count; i++) {
        const double x = es_item_load(es_item_type_of(context), items, i);
        if (isnan(x)) continue;
        if (best->index < 0 || sign * x > sign * best->value) *best = (es_arg){x, first + i};
    }
}

static void arg_min_merge(const void *context, void *left, const void *right)
{
    (void)context;
    if (is_better(right, left, -1)) *(es_arg *)left = *(const es_arg *)right;
}

static void arg_max_merge(const void *context, void *left, const void *right)
{
    (void)context;
    if (is_better(right, left, 1)) *(es_arg *)left = *(const es_arg *)right;
}

static void arg_min_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    arg_block(context, items, first, count, -1, partial);
}

static void arg_max_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    arg_block(context, items, first, count, 1, partial);
}

es_operator es_operator_arg_min(es_item_type type)
{
    const es_operator op = {.name = "arg-min", .partial = sizeof(es_arg), .answer = sizeof(es_arg),
                            .identity = arg_identity, .leaf = arg_leaf, .merge = arg_min_merge, .fold_block = arg_min_block};
    return es_operator_of_type(type, &op);
}

es_operator es_operator_arg_max(es_item_type type)
{
    const es_operator op = {.name = "arg-max", .partial = sizeof(es_arg), .answer = sizeof(es_arg),
                            .identity = arg_identity, .leaf = arg_leaf, .merge = arg_max_merge, .fold_block = arg_max_block};
    return es_operator_of_type(type, &op);
}

/* --- the k greatest, in order --- */

static void top_identity(const void *context, void *partial)
{
    const es_top_shape *shape = context;
    for (int32_t i = 0; i < shape->k; i++) arg_identity(NULL, (es_arg *)partial + i);
}

static void insert(es_arg *top, int32_t k, es_arg candidate)
{
    if (!is_better(&candidate, &top[k - 1], 1)) return;
    int32_t at = k - 1;
    for (; at > 0 && is_better(&candidate, &top[at - 1], 1); at--) top[at] = top[at - 1];
    top[at] = candidate;
}

static void top_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    const es_top_shape *shape = context;
    top_identity(context, partial);
    for (int64_t i = 0; i < count; i++) {
        const double x = es_item_load(shape->type, items, i);
        if (!isnan(x)) insert(partial, shape->k, (es_arg){x, first + i});
    }
}

static void top_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    top_block(context, item, index, 1, partial);
}

/* Of both sorted lists the first k, merged in place from the back: a place is written only after it was read. */
static void top_merge(const void *context, void *left, const void *right)
{
    const int32_t k = ((const es_top_shape *)context)->k;
    es_arg *l = left;
    const es_arg *r = right;
    int32_t i = 0, j = 0;
    while (i + j < k) {
        if (is_better(&r[j], &l[i], 1)) j++;
        else i++;
    }
    for (int32_t to = k - 1; j > 0; to--) {
        if (i > 0 && is_better(&r[j - 1], &l[i - 1], 1)) l[to] = l[--i];
        else l[to] = r[--j];
    }
}

es_operator es_operator_top(const es_top_shape *shape)
{
    const size_t item = es_item_bytes(shape->type);
    if (shape->k < 1 || item == 0) return (es_operator){.name = "the k greatest, with k < 1 or of an unknown item type"};
    const size_t bytes = (size_t)shape->k * sizeof(es_arg);
    return (es_operator){.name = "top", .item = item, .partial = bytes, .answer = bytes, .context = shape,
                         .identity = top_identity, .leaf = top_leaf, .merge = top_merge, .fold_block = top_block};
}
