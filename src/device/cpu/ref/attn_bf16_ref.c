/* attn_bf16_ref.c: the reference of attention over bfloat16 keys and values, in the order of AMX's tile product. */
#include "base/half.h"
#include "device/cpu/kernels.h"
#include "device/cpu/math.h"

#define GROUP 32 /* inputs of one tile step */

/* Σ q·k_j: per 32 channels an even and an odd chain from zero, then c = c + (e + o). */
static float score(const float *q, const uint16_t *k, int32_t dim)
{
    float c = 0;
    for (int32_t first = 0; first < dim; first += GROUP) {
        float e = 0, o = 0;
        for (int32_t d = first; d < first + GROUP && d < dim; d += 2) {
            e = fmaf(q[d], es_bfloat_to_float(k[d * ES_ATTN_BLOCK]), e);
            o = fmaf(q[d + 1], es_bfloat_to_float(k[d * ES_ATTN_BLOCK + 1]), o);
        }
        c = c + (e + o);
    }
    return c;
}

static void attn_row(const es_attn_tile *tile, int32_t row)
{
    const int32_t dim = tile->head_dim, valid = tile->valid[row] < ES_ATTN_TILE ? tile->valid[row] : ES_ATTN_TILE;
    float *l = tile->l + row * ES_LANES, *out = tile->o + (int64_t)row * dim, *p = tile->p + row * ES_ATTN_TILE;
    float m = tile->m[row];
    for (int32_t j = 0; j < valid; j++) {
        p[j] = score(tile->q[row], tile->k16[j / ES_ATTN_BLOCK] + 2 * (j % ES_ATTN_BLOCK), dim);
        if (p[j] > m) m = p[j];
    }
    const float correction = tile->m[row] == -INFINITY ? 0.0f : es_exp(tile->m[row] - m);
    tile->m[row] = m;
    for (int i = 0; i < ES_LANES; i++) l[i] = l[i] * correction;
    for (int32_t j = 0; j < valid; j++) {
        p[j] = es_bfloat_to_float(es_float_to_bfloat(es_exp(p[j] - m)));
        l[j % ES_LANES] = l[j % ES_LANES] + p[j];
    }
    for (int32_t d = 0; d < dim; d++) {
        float sum = out[d] * correction;
        for (int32_t first = 0; first < valid; first += GROUP) {
            float e = 0, o = 0;
            for (int32_t j = first; j < first + GROUP && j < valid; j++) {
                const int32_t inside = j % ES_ATTN_BLOCK;
                const float v = es_bfloat_to_float(tile->v16[j / ES_ATTN_BLOCK][(inside / 2 * dim + d) * 2 + inside % 2]);
                if (j % 2 == 0)
                    e = fmaf(p[j], v, e);
                else
                    o = fmaf(p[j], v, o);
            }
            sum = sum + (e + o);
        }
        out[d] = sum;
    }
}

void es_attn_tile_bf16_ref(const es_attn_tile *tile)
{
    for (int32_t row = 0; row < tile->rows; row++)
        if (tile->valid[row] > 0) attn_row(tile, row);
}
