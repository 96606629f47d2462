/* counts.c: how many items are what, by their bits; and histograms. Integers throughout: no order could change them. */
#include <math.h>

#include "fold/items.h"

/* How a floating-point type is laid out. */
typedef struct layout {
    int bytes, fraction_bits, exponent_bits;
} layout;

static const layout layouts[ES_ITEM_TYPES] = {
    [ES_ITEM_F64] = {8, 52, 11}, [ES_ITEM_F32] = {4, 23, 8}, [ES_ITEM_F16] = {2, 10, 5}, [ES_ITEM_BF16] = {2, 7, 8}};

static void counts_identity(const void *context, void *partial)
{
    (void)context;
    *(es_counts *)partial = (es_counts){0};
}

static uint64_t bits_of(const unsigned char *item, int bytes)
{
    uint64_t wide;
    uint32_t word;
    uint16_t half;
    if (bytes == 8) return memcpy(&wide, item, 8), wide;
    if (bytes == 4) return memcpy(&word, item, 4), word;
    return memcpy(&half, item, 2), half;
}

static void count_float(es_counts *c, const layout *form, uint64_t bits)
{
    const uint64_t fraction = bits & ((1ull << form->fraction_bits) - 1);
    const uint64_t full = (1ull << form->exponent_bits) - 1, exponent = bits >> form->fraction_bits & full;
    const bool minus = bits >> (form->fraction_bits + form->exponent_bits) & 1;
    if (exponent == full && fraction) c->nans++;
    else if (exponent == full) minus ? c->minus_infs++ : c->plus_infs++;
    else if (exponent == 0 && fraction == 0) c->zeros++;
    else {
        minus ? c->negative++ : c->positive++;
        c->subnormals += exponent == 0;
    }
}

static void counts_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)first;
    const es_item_type type = es_item_type_of(context);
    es_counts c = {.items = count};
    for (int64_t i = 0; i < count; i++) {
        if (type != ES_ITEM_I32) {
            const layout *form = &layouts[type];
            count_float(&c, form, bits_of((const unsigned char *)items + i * form->bytes, form->bytes));
            continue;
        }
        const double x = es_item_load(type, items, i);
        c.negative += x < 0, c.zeros += x == 0, c.positive += x > 0;
    }
    *(es_counts *)partial = c;
}

static void counts_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    counts_block(context, item, index, 1, partial);
}

static void counts_merge(const void *context, void *left, const void *right)
{
    (void)context;
    es_counts *l = left;
    const es_counts *r = right;
    l->items += r->items, l->negative += r->negative, l->zeros += r->zeros, l->positive += r->positive;
    l->nans += r->nans, l->plus_infs += r->plus_infs, l->minus_infs += r->minus_infs, l->subnormals += r->subnormals;
}

es_operator es_operator_counts(es_item_type type)
{
    const es_operator op = {.name = "counts", .partial = sizeof(es_counts), .answer = sizeof(es_counts),
                            .identity = counts_identity, .leaf = counts_leaf, .merge = counts_merge,
                            .fold_block = counts_block};
    return es_operator_of_type(type, &op);
}

/* --- histogram: int64_t[bins + ES_HISTOGRAM_EXTRA] --- */

int32_t es_histogram_bin(const es_histogram_shape *shape, double x)
{
    if (!(x >= shape->low && x < shape->high)) return -1;
    const double place = (x - shape->low) / (shape->high - shape->low) * shape->bins;
    return place < shape->bins ? (int32_t)place : shape->bins - 1; /* just below `high`, rounding can reach it */
}

static void histogram_identity(const void *context, void *partial)
{
    const es_histogram_shape *shape = context;
    memset(partial, 0, ((size_t)shape->bins + ES_HISTOGRAM_EXTRA) * sizeof(int64_t));
}

static void histogram_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)first;
    const es_histogram_shape *shape = context;
    int64_t *bin = partial, *extra = bin + shape->bins;
    histogram_identity(context, partial);
    for (int64_t i = 0; i < count; i++) {
        const double x = es_item_load(shape->type, items, i);
        const int32_t b = es_histogram_bin(shape, x);
        if (b >= 0) bin[b]++;
        else extra[isnan(x) ? ES_HISTOGRAM_NAN : x < shape->low ? ES_HISTOGRAM_BELOW : ES_HISTOGRAM_ABOVE]++;
    }
}

static void histogram_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    histogram_block(context, item, index, 1, partial);
}

static void histogram_merge(const void *context, void *left, const void *right)
{
    const es_histogram_shape *shape = context;
    int64_t *l = left;
    const int64_t *r = right;
    for (int64_t i = 0; i < (int64_t)shape->bins + ES_HISTOGRAM_EXTRA; i++) l[i] += r[i];
}

es_operator es_operator_histogram(const es_histogram_shape *shape)
{
    const size_t item = es_item_bytes(shape->type);
    if (shape->bins < 1 || !(shape->low < shape->high) || !isfinite(shape->high - shape->low) || item == 0)
        return (es_operator){.name = "a histogram without bins, with an empty or infinite range, or of an unknown item type"};
    const size_t bytes = ((size_t)shape->bins + ES_HISTOGRAM_EXTRA) * sizeof(int64_t);
    return (es_operator){.name = "histogram", .item = item, .partial = bytes, .answer = bytes, .block = 65536,
                         .context = shape, .identity = histogram_identity, .leaf = histogram_leaf,
                         .merge = histogram_merge, .fold_block = histogram_block};
}
