/* attn_bf16_body.h: attention over bfloat16 keys and values, written once over sixteen lanes.
 *
 * A cache line of K holds a pair of channels of sixteen keys, a line of V a pair of keys of sixteen channels: shifting and
 * masking gives the two chains of the mode's sum. A few query rows share each line that is read. While the first rows read
 * keys, the values of the same places are fetched, and while they read values, the next tile's keys: prefetchers of the machine
 * stop at every page of 4 KiB. Included after a vector header by the file of each instruction set. */
#ifndef ES_CPU_ATTN_BF16_BODY_H
#define ES_CPU_ATTN_BF16_BODY_H

#include "device/cpu/kernels.h"
#include "device/cpu/math.h"
#include "device/cpu/x86/exp_body.h"

#define INLINE static inline __attribute__((always_inline))
#define GROUP 32 /* inputs of one tile step */

/* Scores of R rows against B blocks of 16 keys. */
INLINE void scores(const es_attn_tile *tile, int32_t row, int32_t block, const int R, const int B)
{
    v16 c[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) c[r][b] = v_set(0.0f);
    for (int32_t first = 0; first < tile->head_dim; first += GROUP) {
        const int32_t end = first + GROUP < tile->head_dim ? first + GROUP : tile->head_dim;
        v16 e[ATTN_BF16_ROWS][ATTN_BF16_WIDE], o[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
        for (int r = 0; r < R; r++)
            for (int b = 0; b < B; b++) e[r][b] = o[r][b] = v_set(0.0f);
        for (int32_t d = first; d < end; d += 2) {
            v16 ke[ATTN_BF16_WIDE], ko[ATTN_BF16_WIDE];
            for (int b = 0; b < B; b++) {
                v_load_pairs(tile->k16[block + b] + d * ES_ATTN_BLOCK, &ke[b], &ko[b]);
                if (row == 0) _mm_prefetch(tile->v16[block + b] + d * ES_ATTN_BLOCK, _MM_HINT_T1);
            }
            for (int r = 0; r < R; r++) {
                const v16 qe = v_set(tile->q[row + r][d]), qo = v_set(tile->q[row + r][d + 1]);
                for (int b = 0; b < B; b++) e[r][b] = v_fma(qe, ke[b], e[r][b]), o[r][b] = v_fma(qo, ko[b], o[r][b]);
            }
        }
        for (int r = 0; r < R; r++)
            for (int b = 0; b < B; b++) c[r][b] = v_add(c[r][b], v_add(e[r][b], o[r][b]));
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) v_store(tile->p + (row + r) * ES_ATTN_TILE + (block + b) * ES_ATTN_BLOCK, c[r][b]);
}

/* Turns a row's scores into exponentials, zero for keys it may not see; corrects m and l. Returns the factor for o. */
INLINE float softmax(const es_attn_tile *tile, int32_t row, int32_t valid, int32_t most)
{
    float *p = tile->p + row * ES_ATTN_TILE, *l = tile->l + row * ES_LANES;
    const v16 lowest = v_set(-INFINITY);
    v16 top = lowest;
    for (int32_t j = 0; j < valid; j += ES_LANES)
        top = v_max(valid - j >= ES_LANES ? v_load(p + j) : v_keep_first(v_load(p + j), valid - j, lowest), top);
    float lane[ES_LANES], m = tile->m[row];
    v_store(lane, top);
    for (int i = 0; i < ES_LANES; i++)
        if (lane[i] > m) m = lane[i];
    const float correction = tile->m[row] == -INFINITY ? 0.0f : es_exp(tile->m[row] - m);
    tile->m[row] = m;
    v16 sum = v_mul(v_load(l), v_set(correction));
    for (int32_t j = 0; j < most; j += ES_LANES) {
        v16 e = v_set(0.0f);
        if (j < valid) e = v_round_bf16(v_exp(v_sub(v_load(p + j), v_set(m))));
        if (valid - j < ES_LANES) e = v_keep_first(e, valid - j > 0 ? valid - j : 0, v_set(0.0f));
        v_store(p + j, e);
        if (j < valid) sum = v_add(sum, e);
    }
    v_store(l, sum);
    return correction;
}

/* o ← c·o + Σ p·v for R rows and C vectors of channels over the first `keys` keys. Keys that a row may not see have p = 0
 * and a written v; the odd half of a last pair that nobody wrote is left out. */
INLINE void values(const es_attn_tile *tile, int32_t row, const float *correction, int32_t channel, int32_t keys, const int R,
                   const int C)
{
    const int32_t dim = tile->head_dim;
    v16 sum[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            sum[r][c] = v_mul(v_load(tile->o + (int64_t)(row + r) * dim + channel + c * ES_LANES), v_set(correction[r]));
    for (int32_t first = 0; first < keys; first += GROUP) {
        const int32_t end = first + GROUP < keys ? first + GROUP : keys;
        v16 e[ATTN_BF16_ROWS][ATTN_BF16_WIDE], o[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) e[r][c] = o[r][c] = v_set(0.0f);
        int32_t j = first;
        for (; j + 1 < end; j += 2) {
            const int64_t at = (j % ES_ATTN_BLOCK / 2 * dim + channel) * 2;
            const uint16_t *v = tile->v16[j / ES_ATTN_BLOCK] + at, *next = tile->next_k[j / ES_ATTN_BLOCK];
            v16 ve[ATTN_BF16_WIDE], vo[ATTN_BF16_WIDE];
            for (int c = 0; c < C; c++) {
                if (row == 0 && next) _mm_prefetch(next + at + c * 2 * ES_LANES, _MM_HINT_T1);
                v_load_pairs(v + c * 2 * ES_LANES, &ve[c], &vo[c]);
            }
            for (int r = 0; r < R; r++) {
                const float *p = tile->p + (row + r) * ES_ATTN_TILE + j;
                const v16 pe = v_set(p[0]), po = v_set(p[1]);
                for (int c = 0; c < C; c++) e[r][c] = v_fma(pe, ve[c], e[r][c]), o[r][c] = v_fma(po, vo[c], o[r][c]);
            }
        }
        if (j < end) {
            const uint16_t *v = tile->v16[j / ES_ATTN_BLOCK] + (j % ES_ATTN_BLOCK / 2 * dim + channel) * 2;
            for (int c = 0; c < C; c++) {
                v16 ve, unwritten;
                v_load_pairs(v + c * 2 * ES_LANES, &ve, &unwritten);
                for (int r = 0; r < R; r++)
                    e[r][c] = v_fma(v_set(tile->p[(row + r) * ES_ATTN_TILE + j]), ve, e[r][c]);
            }
        }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) sum[r][c] = v_add(sum[r][c], v_add(e[r][c], o[r][c]));
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) v_store(tile->o + (int64_t)(row + r) * dim + channel + c * ES_LANES, sum[r][c]);
}

INLINE void rows_together(const es_attn_tile *tile, int32_t row, const int R)
{
    float correction[ATTN_BF16_ROWS];
    int32_t most = 0, valid[ATTN_BF16_ROWS];
    for (int r = 0; r < R; r++) {
        valid[r] = tile->valid[row + r] < ES_ATTN_TILE ? tile->valid[row + r] : ES_ATTN_TILE;
        if (valid[r] > most) most = valid[r];
    }
    const int32_t blocks = (most + ES_ATTN_BLOCK - 1) / ES_ATTN_BLOCK;
    int32_t b = 0;
    for (; b + ATTN_BF16_WIDE <= blocks; b += ATTN_BF16_WIDE) scores(tile, row, b, R, ATTN_BF16_WIDE);
    for (; b < blocks; b++) scores(tile, row, b, R, 1);
    for (int r = 0; r < R; r++) correction[r] = softmax(tile, row + r, valid[r], most);
    int32_t c = 0;
    for (; c + ATTN_BF16_WIDE * ES_LANES <= tile->head_dim; c += ATTN_BF16_WIDE * ES_LANES)
        values(tile, row, correction, c, most, R, ATTN_BF16_WIDE);
    for (; c < tile->head_dim; c += ES_LANES) values(tile, row, correction, c, most, R, 1);
}

/* Channels come in whole vectors here; the reference takes other head sizes. Rows that see no key are left untouched. */
static void attn_tile_bf16(const es_attn_tile *tile)
{
    for (int32_t row = 0; row < tile->rows;) {
        int32_t together = 0;
        while (together < ATTN_BF16_ROWS && row + together < tile->rows && tile->valid[row + together] > 0) together++;
        if (together == ATTN_BF16_ROWS)
            rows_together(tile, row, ATTN_BF16_ROWS);
        else if (together >= 2)
            rows_together(tile, row, 2);
        else if (together == 1)
            rows_together(tile, row, 1);
        row += together == ATTN_BF16_ROWS ? ATTN_BF16_ROWS : together >= 2 ? 2 : 1;
    }
}

#endif
