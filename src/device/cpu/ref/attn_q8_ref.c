/* attn_q8_ref.c: the reference of attention over keys and values in 8 bits. kernels.h has the formulas. */
#include "base/half.h"
#include "device/cpu/kernels.h"
#include "device/cpu/math.h"

#define GROUP ES_ATTN_Q8_GROUP
#define MOST_WEIGHT 32767.0f /* of a key in the sum of a group's values */

/* Adding 1.5·2^23 rounds to an integer, ties to even. */
static int32_t round_to_integer(float x)
{
    return (int32_t)((x + 12582912.0f) - 12582912.0f);
}

/* The scales of a block of keys or values follow its integers. */
static float scale_of(const uint8_t *block, int32_t dim, int32_t group, int32_t key)
{
    uint16_t half;
    memcpy(&half, block + ES_ATTN_BLOCK * dim + (group * ES_ATTN_BLOCK + key) * (int32_t)sizeof half, sizeof half);
    return es_half_to_float(half);
}

static float score(const es_attn_tile_q8 *tile, int32_t row, int32_t j)
{
    const int32_t dim = tile->head_dim, groups = dim / GROUP, key = j % ES_ATTN_BLOCK;
    const uint8_t *block = tile->k[j / ES_ATTN_BLOCK];
    const int8_t *q = tile->q + (int64_t)row * dim;
    float s = 0;
    for (int32_t g = 0; g < groups; g++) {
        int32_t sum = tile->q_zero[row * groups + g];
        for (int32_t d = g * GROUP; d < (g + 1) * GROUP; d++) sum += q[d] * block[(d / 4 * ES_ATTN_BLOCK + key) * 4 + d % 4];
        s = fmaf(tile->q_scale[row * groups + g] * scale_of(block, dim, g, key), (float)sum, s);
    }
    return s;
}

/* Adds the tile's values of one group of channels to o. */
static void add_values(const es_attn_tile_q8 *tile, int32_t valid, const float *p, int32_t g, float correction, float factor,
                       float *o)
{
    const int32_t dim = tile->head_dim;
    float most = 0;
    int32_t weight[ES_ATTN_TILE];
    for (int32_t j = 0; j < valid; j++) {
        const float scale = scale_of(tile->v[j / ES_ATTN_BLOCK], dim, g, j % ES_ATTN_BLOCK);
        if (scale > most) most = scale;
    }
    const float inverse = most > 0 ? MOST_WEIGHT / most : 0.0f;
    for (int32_t j = 0; j < valid; j++) {
        const float share = scale_of(tile->v[j / ES_ATTN_BLOCK], dim, g, j % ES_ATTN_BLOCK) * inverse;
        weight[j] = round_to_integer(p[j] * (share > 0 ? share : 0.0f));
    }
    const float unit = factor * (most / MOST_WEIGHT);
    for (int32_t d = 0; d < GROUP; d++) {
        int32_t sum = 0;
        for (int32_t j = 0; j < valid; j++) {
            const int32_t key = j % ES_ATTN_BLOCK;
            sum += weight[j] * (int8_t)tile->v[j / ES_ATTN_BLOCK][((g * 4 + key / 4) * GROUP + d) * 4 + key % 4];
        }
        o[g * GROUP + d] = fmaf(unit, (float)sum, correction * o[g * GROUP + d]);
    }
}

static void attn_row(const es_attn_tile_q8 *tile, int32_t row)
{
    const int32_t valid = tile->valid[row] < ES_ATTN_TILE ? tile->valid[row] : ES_ATTN_TILE;
    float *l = tile->l + row * ES_LANES, *p = tile->p + row * ES_ATTN_TILE, lane[ES_LANES] = {0};
    float top = -INFINITY;
    for (int32_t j = 0; j < valid; j++) {
        p[j] = score(tile, row, j);
        if (p[j] > top) top = p[j];
    }
    top = top + 0.0f; /* a zero is +0 */
    for (int32_t j = 0; j < valid; j++) {
        const float e = es_exp(p[j] - top);
        p[j] = e > 0 ? e : 0.0f;
        lane[j % ES_LANES] = lane[j % ES_LANES] + p[j];
    }
    const float before = tile->m[row], m = top > before ? top : before;
    const float correction = before == -INFINITY ? 0.0f : es_exp(before - m);
    const float factor = top == -INFINITY ? 0.0f : es_exp(top - m);
    tile->m[row] = m;
    for (int i = 0; i < ES_LANES; i++) l[i] = fmaf(factor, lane[i], correction * l[i]);
    for (int32_t g = 0; g < tile->head_dim / GROUP; g++)
        add_values(tile, valid, p, g, correction, factor, tile->o + (int64_t)row * tile->head_dim);
}

void es_attn_tile_q8_ref(const es_attn_tile_q8 *tile)
{
    for (int32_t row = 0; row < tile->rows; row++)
        if (tile->valid[row] > 0) attn_row(tile, row);
}
