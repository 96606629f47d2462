/* attn_bf16_body.h: attention over bfloat16 keys and values, written once over registers of VR_LANES.
 *
 * A cache line of K holds a pair of channels of sixteen keys, a line of V a pair of keys of sixteen channels: shifting and
 * masking gives the two chains of the mode's sum. A few query rows share each line that is read. While the first rows read
 * keys, the values of the same places are fetched, and while they read values, the next tile's keys: prefetchers of the machine
 * stop at every page of 4 KiB. Included after a vector header by the file of each instruction set. */
#ifndef ES_CPU_ATTN_BF16_BODY_H
#define ES_CPU_ATTN_BF16_BODY_H

#include <stdbool.h>

#include "device/cpu/kernels.h"
#include "device/cpu/math.h"
#include "device/cpu/x86/exp_body.h"

#define INLINE static inline __attribute__((always_inline))
#define GROUP 32 /* inputs of one tile step */
#define REGISTERS (ES_ATTN_BLOCK / VR_LANES) /* to a line of sixteen pairs */
/* What waits while a group fills the registers with its own sums: else the compiler may put some of those into memory. */
#define LEAVE_IN_MEMORY(array) __asm__("" : "+m"(array))

/* Channels [first, first + n) of R rows and B registers of keys: c ← c + (e + o). `fetch`: where the values of the same places lie,
 * or NULL. A line of sixteen keys may be two registers; it is fetched with the first. */
INLINE void score_group(const float *const *q, const uint16_t *const *k, const uint16_t *const *fetch, int32_t first, const int32_t n,
                        const int R, const int B, vr c[ATTN_BF16_ROWS][ATTN_BF16_WIDE])
{
    vr e[ATTN_BF16_ROWS][ATTN_BF16_WIDE], o[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) e[r][b] = o[r][b] = vr_set(0.0f);
    for (int32_t d = first; d < first + n; d += 2) {
        vr k_half[ATTN_BF16_WIDE];
        for (int b = 0; b < B; b++) {
            k_half[b] = vr_load_even(k[b] + d * ES_ATTN_BLOCK);
            if (fetch && b % REGISTERS == 0) _mm_prefetch(fetch[b] + d * ES_ATTN_BLOCK, _MM_HINT_T1);
        }
        for (int r = 0; r < R; r++) {
            const vr q_half = vr_set(q[r][d]);
            for (int b = 0; b < B; b++) e[r][b] = vr_fma(q_half, k_half[b], e[r][b]);
        }
        for (int b = 0; b < B; b++) k_half[b] = vr_load_odd(k[b] + d * ES_ATTN_BLOCK);
        for (int r = 0; r < R; r++) {
            const vr q_half = vr_set(q[r][d + 1]);
            for (int b = 0; b < B; b++) o[r][b] = vr_fma(q_half, k_half[b], o[r][b]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) c[r][b] = vr_add(c[r][b], vr_add(e[r][b], o[r][b]));
}

/* Scores of R rows against B registers of keys from `key` on. */
INLINE void scores(const es_attn_tile *tile, int32_t row, int32_t key, const int R, const int B)
{
    const bool fetching = row == 0 && key % ES_ATTN_BLOCK == 0;
    const float *q[ATTN_BF16_ROWS];
    const uint16_t *k[ATTN_BF16_WIDE], *v[ATTN_BF16_WIDE];
    vr c[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
    for (int r = 0; r < R; r++) q[r] = tile->q[row + r];
    for (int b = 0; b < B; b++) {
        const int32_t first = key + b * VR_LANES;
        k[b] = tile->k16[first / ES_ATTN_BLOCK] + first % ES_ATTN_BLOCK * 2;
        v[b] = tile->v16[first / ES_ATTN_BLOCK];
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) c[r][b] = vr_set(0.0f);
    int32_t first = 0;
    for (; first + GROUP <= tile->head_dim; first += GROUP) {
        LEAVE_IN_MEMORY(c);
        if (fetching) score_group(q, k, v, first, GROUP, R, B, c);
        else score_group(q, k, NULL, first, GROUP, R, B, c);
    }
    if (first < tile->head_dim) score_group(q, k, NULL, first, tile->head_dim - first, R, B, c);
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) vr_store(tile->p + (row + r) * ES_ATTN_TILE + key + b * VR_LANES, c[r][b]);
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

/* `pairs` pairs of keys of a block of 16: their share of e and o. `next`: as many lines of the next tile's keys, or NULL; they are
 * fetched in the order of their addresses, whatever the order of these values: memory answers a quarter faster. */
INLINE void value_pairs(const float *const *p, const uint16_t *v, const uint16_t *next, int64_t stride, const int pairs, const int R,
                        const int C, vr e[ATTN_BF16_ROWS][ATTN_BF16_WIDE], vr o[ATTN_BF16_ROWS][ATTN_BF16_WIDE])
{
    for (int j = 0; j < pairs; j++, v += stride) {
        vr v_half[ATTN_BF16_WIDE];
        for (int c = 0; c < C; c++) {
            if (next && c % REGISTERS == 0) _mm_prefetch(next + (c / REGISTERS * ES_ATTN_BLOCK / 2 + j) * 2 * ES_ATTN_BLOCK, _MM_HINT_T1);
            v_half[c] = vr_load_even(v + c * 2 * VR_LANES);
        }
        for (int r = 0; r < R; r++) {
            const vr p_half = vr_set(p[r][2 * j]);
            for (int c = 0; c < C; c++) e[r][c] = vr_fma(p_half, v_half[c], e[r][c]);
        }
        for (int c = 0; c < C; c++) v_half[c] = vr_load_odd(v + c * 2 * VR_LANES);
        for (int r = 0; r < R; r++) {
            const vr p_half = vr_set(p[r][2 * j + 1]);
            for (int c = 0; c < C; c++) o[r][c] = vr_fma(p_half, v_half[c], o[r][c]);
        }
    }
}

/* Keys [j, j + 16) of a group, or those before `keys`. The odd half of a last pair that nobody wrote is left out. */
INLINE void value_block(const es_attn_tile *tile, int32_t row, int32_t channel, int32_t j, int32_t keys, const int R, const int C,
                        vr e[ATTN_BF16_ROWS][ATTN_BF16_WIDE], vr o[ATTN_BF16_ROWS][ATTN_BF16_WIDE])
{
    const int64_t stride = (int64_t)tile->head_dim * 2;
    const uint16_t *v = tile->v16[j / ES_ATTN_BLOCK] + channel * 2, *next = tile->next_k[j / ES_ATTN_BLOCK];
    const float *p[ATTN_BF16_ROWS];
    for (int r = 0; r < R; r++) p[r] = tile->p + (row + r) * ES_ATTN_TILE + j;
    if (keys - j >= ES_ATTN_BLOCK) {
        if (next && row == 0 && channel % ES_LANES == 0) value_pairs(p, v, next + channel * ES_ATTN_BLOCK, stride, ES_ATTN_BLOCK / 2, R, C, e, o);
        else value_pairs(p, v, NULL, stride, ES_ATTN_BLOCK / 2, R, C, e, o);
        return;
    }
    const int32_t pairs = (keys - j) / 2;
    value_pairs(p, v, NULL, stride, pairs, R, C, e, o);
    for (int c = 0; c < C && (keys - j) % 2; c++) {
        const vr ve = vr_load_even(v + pairs * stride + c * 2 * VR_LANES);
        for (int r = 0; r < R; r++) e[r][c] = vr_fma(vr_set(p[r][2 * pairs]), ve, e[r][c]);
    }
}

/* o ← c·o + Σ p·v for R rows and C registers of channels over the first `keys` keys. Keys that a row may not see have p = 0
 * and a written v. */
INLINE void values(const es_attn_tile *tile, int32_t row, const float *correction, int32_t channel, int32_t keys, const int R,
                   const int C)
{
    const int32_t dim = tile->head_dim;
    vr sum[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            sum[r][c] = vr_mul(vr_load(tile->o + (int64_t)(row + r) * dim + channel + c * VR_LANES), vr_set(correction[r]));
    for (int32_t first = 0; first < keys; first += GROUP) {
        vr e[ATTN_BF16_ROWS][ATTN_BF16_WIDE], o[ATTN_BF16_ROWS][ATTN_BF16_WIDE];
        LEAVE_IN_MEMORY(sum);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) e[r][c] = o[r][c] = vr_set(0.0f);
        for (int32_t j = first; j < first + GROUP && j < keys; j += ES_ATTN_BLOCK) value_block(tile, row, channel, j, keys, R, C, e, o);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) sum[r][c] = vr_add(sum[r][c], vr_add(e[r][c], o[r][c]));
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) vr_store(tile->o + (int64_t)(row + r) * dim + channel + c * VR_LANES, sum[r][c]);
}

INLINE void rows_together(const es_attn_tile *tile, int32_t row, const int R)
{
    const int wide = ATTN_BF16_WIDE_FOR(R);
    float correction[ATTN_BF16_ROWS];
    int32_t most = 0, valid[ATTN_BF16_ROWS];
    for (int r = 0; r < R; r++) {
        valid[r] = tile->valid[row + r] < ES_ATTN_TILE ? tile->valid[row + r] : ES_ATTN_TILE;
        if (valid[r] > most) most = valid[r];
    }
    int32_t key = 0;
    for (; key + wide * VR_LANES <= most; key += wide * VR_LANES) scores(tile, row, key, R, wide);
    for (; key < most; key += VR_LANES) scores(tile, row, key, R, 1);
    for (int r = 0; r < R; r++) correction[r] = softmax(tile, row + r, valid[r], most);
    int32_t c = 0;
    for (; c + wide * VR_LANES <= tile->head_dim; c += wide * VR_LANES) values(tile, row, correction, c, most, R, wide);
    for (; c < tile->head_dim; c += VR_LANES) values(tile, row, correction, c, most, R, 1);
}

/* Channels come in whole vectors here; the reference takes other head sizes. Rows that see no key are left untouched. */
static void attn_tile_bf16(const es_attn_tile *tile)
{
    for (int32_t row = 0; row < tile->rows;) {
        int32_t together = 0;
        while (together < ATTN_BF16_ROWS && row + together < tile->rows && tile->valid[row + together] > 0) together++;
        together = ATTN_BF16_TAKEN(together);
        switch (together) {
        case 0: break;
        case 1: rows_together(tile, row, 1); break;
        case 2: rows_together(tile, row, 2); break;
        case 4: rows_together(tile, row, 4); break;
        default: rows_together(tile, row, ATTN_BF16_USUAL); break;
        }
        row += together > 0 ? together : 1;
    }
}

#endif
