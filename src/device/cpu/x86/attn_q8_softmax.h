/* attn_q8_softmax.h: what the kernels of attention over 8-bit keys and values do in float32, written once over sixteen lanes:
 * scores become exponentials, scales of values become shares of the largest. Included after a vector header. */
#ifndef ES_CPU_ATTN_Q8_SOFTMAX_H
#define ES_CPU_ATTN_Q8_SOFTMAX_H

#include "device/cpu/kernels.h"
#include "device/cpu/math.h"
#include "device/cpu/x86/exp_body.h"

#define INLINE static inline __attribute__((always_inline))
#define MOST_WEIGHT 32767.0f
#define MOST_GROUPS (1024 / ES_ATTN_Q8_GROUP)

/* What the tile's values are to all rows that see as many of its keys. */
typedef struct q8_values {
    int32_t valid;
    float unit[MOST_GROUPS];                /* the group's largest scale, over 32767 */
    float share[MOST_GROUPS][ES_ATTN_TILE]; /* each key's scale times 32767 over the largest; 0 for keys that are not seen */
} q8_values;

/* Sixteen scales of binary16. */
INLINE v16 q8_scales(const uint8_t *block, int32_t dim, int32_t group)
{
    return v_load_halves(block + ES_ATTN_BLOCK * dim + group * ES_ATTN_BLOCK * (int32_t)sizeof(uint16_t));
}

static void q8_prepare_values(const es_attn_tile_q8 *tile, int32_t valid, q8_values *values)
{
    const v16 zero = v_set(0.0f);
    values->valid = valid;
    for (int32_t g = 0; g < tile->head_dim / ES_ATTN_Q8_GROUP; g++) {
        v16 scale[ES_ATTN_TILE_BLOCKS], top = zero;
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
            const int32_t seen = valid - b * ES_ATTN_BLOCK;
            scale[b] = zero;
            if (seen > 0) scale[b] = q8_scales(tile->v[b], tile->head_dim, g);
            if (seen > 0 && seen < ES_ATTN_BLOCK) scale[b] = v_keep_first(scale[b], seen, zero);
            top = v_max(scale[b], top);
        }
        const float most = v_greatest(top), inverse = most > 0 ? MOST_WEIGHT / most : 0.0f;
        values->unit[g] = most / MOST_WEIGHT;
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++)
            v_store(values->share[g] + b * ES_ATTN_BLOCK, v_max(v_mul(scale[b], v_set(inverse)), zero));
    }
}

/* How many rows from this one on, at most `most`, see the same keys, for whom the tile's values are then prepared; 0: this one
 * sees none. */
static int32_t q8_rows_alike(const es_attn_tile_q8 *tile, int32_t row, int32_t most, q8_values *values)
{
    const int32_t valid = tile->valid[row] < ES_ATTN_TILE ? tile->valid[row] : ES_ATTN_TILE;
    if (valid <= 0) return 0;
    int32_t alike = 1;
    while (alike < most && row + alike < tile->rows &&
           (tile->valid[row + alike] < ES_ATTN_TILE ? tile->valid[row + alike] : ES_ATTN_TILE) == valid)
        alike++;
    if (valid != values->valid) q8_prepare_values(tile, valid, values);
    return alike;
}

/* Turns a row's scores into exponentials, zero for keys that it may not see, and brings m and l up to date. Gives the factors of
 * what was there before and of what this tile adds. */
INLINE void q8_softmax(const es_attn_tile_q8 *tile, int32_t row, int32_t valid, float *correction, float *factor)
{
    float *p = tile->p + row * ES_ATTN_TILE, *l = tile->l + row * ES_LANES;
    const v16 lowest = v_set(-INFINITY), zero = v_set(0.0f);
    v16 s[ES_ATTN_TILE_BLOCKS], top = lowest, sum = zero;
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
        const int32_t seen = valid - b * ES_ATTN_BLOCK;
        s[b] = lowest;
        if (seen > 0) s[b] = v_load(p + b * ES_ATTN_BLOCK);
        if (seen > 0 && seen < ES_ATTN_BLOCK) s[b] = v_keep_first(s[b], seen, lowest);
        top = v_max(s[b], top);
    }
    const float t = v_greatest(top) + 0.0f, before = tile->m[row], m = t > before ? t : before;
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
        const v16 e = v_max(v_exp(v_sub(s[b], v_set(t))), zero);
        v_store(p + b * ES_ATTN_BLOCK, e);
        sum = v_add(sum, e);
    }
    *correction = before == -INFINITY ? 0.0f : es_exp(before - m);
    *factor = t == -INFINITY ? 0.0f : es_exp(t - m);
    tile->m[row] = m;
    v_store(l, v_fma(v_set(*factor), sum, v_mul(v_load(l), v_set(*correction))));
}

#endif
