/* items.h: stored numbers as float64, and the fixed lanes in which the built-in operators sum. */
#ifndef ES_FOLD_ITEMS_H
#define ES_FOLD_ITEMS_H

#include <stdbool.h>

#include "base/half.h"
#include "evenshare/operators.h"

/** Items that are converted together. A multiple of ES_FOLD_LANES: lanes do not notice where a tile ends. */
#define ES_FOLD_TILE 256
/** Item i of a block belongs to lane i mod 16. */
#define ES_FOLD_LANES 16

enum { ES_ITEM_TYPES = ES_ITEM_I32 + 1 };

/** A constant for each type, to be the context of an operator. */
extern const es_item_type es_item_types[ES_ITEM_TYPES];
/** The type behind such a context. */
static inline es_item_type es_item_type_of(const void *context)
{
    return *(const es_item_type *)context;
}

/** Item `index` of an array at any alignment. Exact for every type. */
static inline double es_item_load(es_item_type type, const void *items, int64_t index)
{
    const unsigned char *p = items;
    uint16_t half;
    float single;
    double number = 0;
    int32_t integer;
    switch (type) {
    case ES_ITEM_F64: memcpy(&number, p + index * 8, 8); break;
    case ES_ITEM_F32: memcpy(&single, p + index * 4, 4); number = (double)single; break;
    case ES_ITEM_F16: memcpy(&half, p + index * 2, 2); number = (double)es_half_to_float(half); break;
    case ES_ITEM_BF16: memcpy(&half, p + index * 2, 2); number = (double)es_bfloat_to_float(half); break;
    case ES_ITEM_I32: memcpy(&integer, p + index * 4, 4); number = integer; break;
    }
    return number;
}

/** Items [first, first + count) of a block, count ≤ ES_FOLD_TILE. */
static inline void es_items_load(es_item_type type, const void *items, int64_t first, int64_t count, double *out)
{
    for (int64_t i = 0; i < count; i++) out[i] = es_item_load(type, items, first + i);
}

/** The fixed tree in which lanes become one: halves are added, four times. */
static inline double es_fold_lanes_f64(double lane[ES_FOLD_LANES])
{
    for (int width = ES_FOLD_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) lane[i] = lane[i] + lane[i + width];
    return lane[0];
}

/** An operator whose context is an item type; a type that is none gives one that is refused when it runs. */
es_operator es_operator_of_type(es_item_type type, const es_operator *op);

/** e^x for x ≤ 0, to within one unit in the last place, the same on every machine (libraries differ). NaN gives NaN. */
double es_fold_exp(double x);

#endif
