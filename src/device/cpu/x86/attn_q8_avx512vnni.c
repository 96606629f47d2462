/* attn_q8_avx512vnni.c: attention over 8-bit keys and values with AVX-512 and VNNI.
 *
 * A cache line of K holds four channels of sixteen keys, a line of V four keys of sixteen channels: one instruction multiplies a
 * line by four bytes of a row. VNNI multiplies unsigned bytes by signed ones. Keys are stored 128 too high for that; a key's weight
 * in the sum of values is two unsigned bytes, whose sums are added at the end. A few query rows share each line that is read. */
#include "device/cpu/x86/vector_avx512.h"

static inline v16 v_load_halves(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

#include "device/cpu/x86/attn_q8_softmax.h"

#define ROWS 4 /* query rows that share a read */
#define GROUP ES_ATTN_Q8_GROUP
#define GROUP_BYTES (ES_ATTN_BLOCK * GROUP) /* of sixteen keys */
#define QUADS (ES_ATTN_TILE / 4)

/* The weights of one row's keys as bytes: quad i of keys stands at PLACE(i). */
typedef struct weights {
    int8_t high[ES_ATTN_TILE], low[ES_ATTN_TILE];
} weights;
#define PLACE(i) ((i) % 4 * 16 + (i) / 4 * 4)

INLINE __m512i four_bytes(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm512_set1_epi32(word);
}

/* Scores of R rows against B blocks of 16 keys. */
INLINE void scores(const es_attn_tile_q8 *tile, int32_t row, int32_t block, const int R, const int B)
{
    const int32_t dim = tile->head_dim, groups = dim / GROUP;
    __m512 s[ROWS][ES_ATTN_TILE_BLOCKS];
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) s[r][b] = _mm512_setzero_ps();
    for (int32_t g = 0; g < groups; g++) {
        __m512i sum[ROWS][ES_ATTN_TILE_BLOCKS];
        for (int r = 0; r < R; r++)
            for (int b = 0; b < B; b++) sum[r][b] = _mm512_set1_epi32(tile->q_zero[(row + r) * groups + g]);
#pragma GCC unroll 8
        for (int c = 0; c < GROUP / 4; c++) {
            __m512i k[ES_ATTN_TILE_BLOCKS];
            for (int b = 0; b < B; b++) {
                const int32_t at = g * GROUP_BYTES + c * 64;
                k[b] = _mm512_loadu_si512(tile->k[block + b] + at);
                if (row == 0) _mm_prefetch(tile->v[block + b] + at, _MM_HINT_T1);
            }
            for (int r = 0; r < R; r++) {
                const __m512i q = four_bytes(tile->q + (int64_t)(row + r) * dim + g * GROUP + 4 * c);
                for (int b = 0; b < B; b++) sum[r][b] = _mm512_dpbusd_epi32(sum[r][b], k[b], q);
            }
        }
        for (int b = 0; b < B; b++) {
            const __m512 k_scale = q8_scales(tile->k[block + b], dim, g);
            for (int r = 0; r < R; r++)
                s[r][b] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(tile->q_scale[(row + r) * groups + g]), k_scale),
                                          _mm512_cvtepi32_ps(sum[r][b]), s[r][b]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int b = 0; b < B; b++) _mm512_storeu_ps(tile->p + (row + r) * ES_ATTN_TILE + (block + b) * ES_ATTN_BLOCK, s[r][b]);
}

INLINE __m512i weight(const float *p, const float *share)
{
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p), _mm512_loadu_ps(share)));
}

/* Sixty-four weights as two planes of bytes. Packing takes four words of each register in turn: see PLACE. */
INLINE void make_weights(const float *p, const float *share, weights *w)
{
    const __m512i a = _mm512_packus_epi32(weight(p, share), weight(p + 16, share + 16));
    const __m512i b = _mm512_packus_epi32(weight(p + 32, share + 32), weight(p + 48, share + 48));
    const __m512i low = _mm512_set1_epi16(0xFF);
    _mm512_storeu_si512(w->high, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
    _mm512_storeu_si512(w->low, _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
}

/* o ← c·o + the values of one group of channels, for R rows over the first `quads` quads of keys. Keys of a last quad that a row
 * may not see weigh nothing. */
INLINE void add_values(const es_attn_tile_q8 *tile, int32_t row, int32_t g, int32_t quads, const weights *w,
                       const float *correction, const float *unit, const int R)
{
    __m512i high[ROWS][2], low[ROWS][2];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 2; c++) high[r][c] = low[r][c] = _mm512_setzero_si512();
    for (int32_t i = 0; i < quads; i++) {
        const int32_t at = g * GROUP_BYTES + i % 4 * 128;
        const uint8_t *v = tile->v[i / 4] + at;
        const __m512i v0 = _mm512_loadu_si512(v), v1 = _mm512_loadu_si512(v + 64);
        if (row == 0 && tile->next_k[i / 4]) {
            _mm_prefetch(tile->next_k[i / 4] + at, _MM_HINT_T1);
            _mm_prefetch(tile->next_k[i / 4] + at + 64, _MM_HINT_T1);
        }
        for (int r = 0; r < R; r++) {
            const __m512i h = four_bytes(w[r].high + PLACE(i)), l = four_bytes(w[r].low + PLACE(i));
            high[r][0] = _mm512_dpbusd_epi32(high[r][0], h, v0), high[r][1] = _mm512_dpbusd_epi32(high[r][1], h, v1);
            low[r][0] = _mm512_dpbusd_epi32(low[r][0], l, v0), low[r][1] = _mm512_dpbusd_epi32(low[r][1], l, v1);
        }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 2; c++) {
            float *o = tile->o + (int64_t)(row + r) * tile->head_dim + g * GROUP + c * 16;
            const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high[r][c], 8), low[r][c]));
            const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(o), _mm512_set1_ps(correction[r]));
            _mm512_storeu_ps(o, _mm512_fmadd_ps(_mm512_set1_ps(unit[r]), sum, old));
        }
}

/* R rows that see the same keys. */
INLINE void rows_together(const es_attn_tile_q8 *tile, int32_t row, const q8_values *values, const int R)
{
    const int32_t valid = values->valid, blocks = (valid + ES_ATTN_BLOCK - 1) / ES_ATTN_BLOCK, wide = R > 2 ? 2 : 4;
    float correction[ROWS], factor[ROWS], unit[ROWS];
    weights w[ROWS];
    int32_t b = 0;
    for (; b + wide <= blocks; b += wide) scores(tile, row, b, R, wide);
    for (; b < blocks; b++) scores(tile, row, b, R, 1);
    for (int r = 0; r < R; r++) q8_softmax(tile, row + r, valid, &correction[r], &factor[r]);
    for (int32_t g = 0; g < tile->head_dim / GROUP; g++) {
        for (int r = 0; r < R; r++) {
            make_weights(tile->p + (row + r) * ES_ATTN_TILE, values->share[g], &w[r]);
            unit[r] = factor[r] * values->unit[g];
        }
        add_values(tile, row, g, (valid + 3) / 4, w, correction, unit, R);
    }
}

static void attn_tile_q8(const es_attn_tile_q8 *tile)
{
    q8_values values;
    values.valid = 0;
    for (int32_t row = 0; row < tile->rows;) {
        const int32_t alike = q8_rows_alike(tile, row, ROWS, &values);
        if (alike == 4)
            rows_together(tile, row, &values, 4);
        else if (alike == 3)
            rows_together(tile, row, &values, 3);
        else if (alike == 2)
            rows_together(tile, row, &values, 2);
        else if (alike == 1)
            rows_together(tile, row, &values, 1);
        row += alike ? alike : 1;
    }
}

void es_attn_q8_avx512(es_kernels *kernels)
{
    kernels->attn_tile_q8 = attn_tile_q8;
}
