/* attn_f32_body.h: attention in float32 over keys and values in float32 or binary16, written once over sixteen lanes.
 *
 * A line of K holds a channel of sixteen keys (two channels in binary16), a line of V sixteen channels of a key: each vector is
 * loaded, widened where it is binary16, and multiplied for all query rows that are taken together. How many rows and vectors those
 * are is the instruction set's affair and no sum can see it: every output has its own accumulator from its first term to its last.
 * While the first rows read keys, the values of the same places are fetched, and while they read values, the next tile's keys:
 * prefetchers of the machine stop at every page of 4 KiB. Included by kernels_body.h. */
#ifndef ES_CPU_ATTN_F32_BODY_H
#define ES_CPU_ATTN_F32_BODY_H

#include "device/cpu/kernels.h"
#include "device/cpu/math.h"
#include "device/cpu/x86/exp_body.h"

#define INLINE static inline __attribute__((always_inline))

enum { MOST_WIDE = ES_ATTN_TILE_BLOCKS };

/* Fetches the line that begins `at` numbers behind `from`, a multiple of sixteen; in binary16 only every other one begins a line. */
INLINE void attn_fetch(const void *from, int64_t at, const bool half)
{
    if (!half) _mm_prefetch((const float *)from + at, _MM_HINT_T1);
    else if (at % (2 * ES_LANES) == 0) _mm_prefetch((const uint16_t *)from + at, _MM_HINT_T1);
}

/* Scores of R rows against B blocks of 16 keys: one accumulator for each (row, block), channels in order. */
INLINE void attn_scores(const es_attn_tile *tile, int32_t row, int32_t block, const int R, const int B, const bool half)
{
    v16 sum[ATTN_BLOCK_ROWS][MOST_WIDE];
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) sum[r][b] = v_set(0.0f);
    for (int32_t d = 0; d < tile->head_dim; d++) {
        v16 k[MOST_WIDE];
        for (int b = 0; b < B; b++) {
            const int32_t at = d * ES_ATTN_BLOCK;
            if (row == 0) attn_fetch(half ? (const void *)tile->v16[block + b] : tile->v[block + b], at, half);
            k[b] = half ? v_load_half(tile->k16[block + b] + at) : v_load(tile->k[block + b] + at);
        }
        for (int r = 0; r < R; r++) {
            const v16 q = v_set(tile->q[row + r][d]);
            for (int b = 0; b < B; b++) sum[r][b] = v_fma(q, k[b], sum[r][b]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++)
            v_store(tile->p + (row + r) * ES_ATTN_TILE + (block + b) * ES_ATTN_BLOCK, sum[r][b]);
}

INLINE void attn_scores_rows(const es_attn_tile *tile, int32_t row, int32_t blocks, const int R, const bool half)
{
    const int B = ATTN_WIDE_FOR(R);
    int32_t b = 0;
    for (; b + B <= blocks; b += B) attn_scores(tile, row, b, R, B, half);
    for (; b < blocks; b++) attn_scores(tile, row, b, R, 1, half);
}

/* Turns a row's scores into exponentials, and corrects m and l. Returns the factor that o has to be multiplied by. */
INLINE float attn_softmax(const es_attn_tile *tile, int32_t row, int32_t valid)
{
    float *p = tile->p + row * ES_ATTN_TILE, *l = tile->l + row * ES_LANES;
    const v16 lowest = v_set(-INFINITY);
    v16 most = lowest;
    for (int32_t j = 0; j < valid; j += ES_LANES) {
        const v16 s = valid - j >= ES_LANES ? v_load(p + j) : v_keep_first(v_load(p + j), valid - j, lowest);
        most = v_max(s, most);
    }
    /* The greatest of the lanes, none of which is NaN, in any order: a zero becomes +0, as in the reference. */
    const float greatest = v_greatest(most);
    const float m = (greatest > tile->m[row] ? greatest : tile->m[row]) + 0.0f;
    const float correction = tile->m[row] == -INFINITY ? 0.0f : es_exp(tile->m[row] - m);
    tile->m[row] = m;
    v16 sum = v_mul(v_load(l), v_set(correction));
    for (int32_t j = 0; j < valid; j += ES_LANES) {
        v16 e = v_exp(v_sub(v_load(p + j), v_set(m)));
        if (valid - j < ES_LANES) e = v_keep_first(e, valid - j, v_set(0.0f));
        v_store(p + j, e);
        sum = v_add(sum, e);
    }
    v_store(l, sum);
    return correction;
}

/* D vectors of a key's value, from a channel on. */
INLINE void attn_load_value(const es_attn_tile *tile, int32_t row, int32_t key, int32_t channel, v16 *v, const int D,
                            const bool half)
{
    const int32_t block = key / ES_ATTN_BLOCK;
    const int64_t at = (int64_t)(key % ES_ATTN_BLOCK) * tile->head_dim + channel;
    const void *next = row == 0 ? tile->next_k[block] : NULL;
    for (int d = 0; d < D; d++) {
        if (next) attn_fetch(next, at + d * ES_LANES, half);
        v[d] = half ? v_load_half(tile->v16[block] + at + d * ES_LANES) : v_load(tile->v[block] + at + d * ES_LANES);
    }
}

/* o ← c·o + Σ p_j·v_j for R rows and D vectors of channels, keys in order from `first` to `last`. */
INLINE void attn_values(const es_attn_tile *tile, int32_t row, const float *correction, int32_t channel, int32_t first,
                        int32_t last, const int R, const int D, const bool half)
{
    const int32_t dim = tile->head_dim;
    v16 sum[ATTN_BLOCK_ROWS][MOST_WIDE];
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++) {
            sum[r][d] = v_load(tile->o + (int64_t)(row + r) * dim + channel + d * ES_LANES);
            if (correction) sum[r][d] = v_mul(sum[r][d], v_set(correction[r]));
        }
    for (int32_t j = first; j < last; j++) {
        v16 v[MOST_WIDE];
        attn_load_value(tile, row, j, channel, v, D, half);
        for (int r = 0; r < R; r++) {
            const v16 p = v_set(tile->p[(row + r) * ES_ATTN_TILE + j]);
            for (int d = 0; d < D; d++) sum[r][d] = v_fma(p, v[d], sum[r][d]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++)
            v_store(tile->o + (int64_t)(row + r) * dim + channel + d * ES_LANES, sum[r][d]);
}

INLINE void attn_values_rows(const es_attn_tile *tile, int32_t row, const float *correction, int32_t first, int32_t last,
                             const int R, const bool half)
{
    const int D = ATTN_WIDE_FOR(R);
    int32_t c = 0;
    for (; c + D * ES_LANES <= tile->head_dim; c += D * ES_LANES) attn_values(tile, row, correction, c, first, last, R, D, half);
    for (; c < tile->head_dim; c += ES_LANES) attn_values(tile, row, correction, c, first, last, R, 1, half);
}

INLINE void attn_rows(const es_attn_tile *tile, int32_t row, const int R, const bool half)
{
    float correction[ATTN_BLOCK_ROWS];
    int32_t valid[ATTN_BLOCK_ROWS], most = 0, least = ES_ATTN_TILE;
    for (int r = 0; r < R; r++) {
        valid[r] = tile->valid[row + r] < ES_ATTN_TILE ? tile->valid[row + r] : ES_ATTN_TILE;
        if (valid[r] > most) most = valid[r];
        if (valid[r] < least) least = valid[r];
    }
    attn_scores_rows(tile, row, (most + ES_ATTN_BLOCK - 1) / ES_ATTN_BLOCK, R, half);
    for (int r = 0; r < R; r++) correction[r] = attn_softmax(tile, row + r, valid[r]);
    attn_values_rows(tile, row, correction, 0, least, R, half);
    for (int r = 0; r < R; r++)
        if (valid[r] > least) attn_values_rows(tile, row + r, NULL, least, valid[r], 1, half);
}

/* Channels come in whole vectors here; the reference takes other head sizes. A block of rows is taken together when each of
 * them sees a key, so that a row that sees none is left untouched. */
INLINE void attn_fold(const es_attn_tile *tile, const bool half)
{
    for (int32_t row = 0, together; row < tile->rows; row += together) {
        together = 0;
        while (together < ATTN_BLOCK_ROWS && row + together < tile->rows && tile->valid[row + together] > 0) together++;
        switch (together) {
        case 0: together = 1; break; /* this one sees nothing */
        case 2: attn_rows(tile, row, 2, half); break;
        case 3: attn_rows(tile, row, 3, half); break;
        case 4: attn_rows(tile, row, 4, half); break;
        case 5: attn_rows(tile, row, 5, half); break;
        case 6: attn_rows(tile, row, 6, half); break;
        default: attn_rows(tile, row, 1, half); break;
        }
    }
}

static void attn_tile(const es_attn_tile *tile)
{
    attn_fold(tile, false);
}

static void attn_tile_f16(const es_attn_tile *tile)
{
    attn_fold(tile, true);
}

#endif
