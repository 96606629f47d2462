/* attn_q8_avx2.c: attention over 8-bit keys and values with AVX2.
 *
 * Its only product of bytes saturates, so bytes are widened to sixteen bits: four channels of four keys (or four keys of four
 * channels) at a time, and two sums each, which are added at the end. Two query rows share each widened read. */
#include "device/cpu/x86/vector_avx2.h"

static inline v16 v_load_halves(const void *p)
{
    const __m256i halves = _mm256_loadu_si256((const __m256i *)p);
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

#include "device/cpu/x86/attn_q8_softmax.h"

#define ROWS 2 /* query rows that share a read */
#define GROUP ES_ATTN_Q8_GROUP
#define GROUP_BYTES (ES_ATTN_BLOCK * GROUP) /* of sixteen keys */
#define MOST_DIM (MOST_GROUPS * GROUP)

INLINE __m256i four_words(const int16_t *p)
{
    int64_t words;
    memcpy(&words, p, sizeof words);
    return _mm256_set1_epi64x(words);
}

/* Two registers of pairs of sums become eight sums in order. */
INLINE __m256i add_pairs(__m256i first, __m256i second)
{
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(first, second), _MM_SHUFFLE(3, 1, 2, 0));
}

INLINE v16 sixteen_sums(const __m256i sum[4], int32_t start)
{
    const __m256i zero = _mm256_set1_epi32(start);
    return (v16){_mm256_cvtepi32_ps(_mm256_add_epi32(add_pairs(sum[0], sum[1]), zero)),
                 _mm256_cvtepi32_ps(_mm256_add_epi32(add_pairs(sum[2], sum[3]), zero))};
}

/* Scores of R rows, whose integers are in q, against one block of 16 keys. */
INLINE void scores(const es_attn_tile_q8 *tile, int32_t row, int32_t block, const int16_t q[ROWS][MOST_DIM], const int R)
{
    const int32_t groups = tile->head_dim / GROUP;
    v16 s[ROWS];
    for (int r = 0; r < R; r++) s[r] = v_set(0.0f);
    for (int32_t g = 0; g < groups; g++) {
        __m256i sum[ROWS][4];
        for (int r = 0; r < R; r++)
            for (int i = 0; i < 4; i++) sum[r][i] = _mm256_setzero_si256();
        for (int c = 0; c < GROUP / 4; c++) {
            const uint8_t *line = tile->k[block] + g * GROUP_BYTES + c * 64;
            if (row == 0) _mm_prefetch(tile->v[block] + g * GROUP_BYTES + c * 64, _MM_HINT_T1);
            for (int i = 0; i < 4; i++) {
                const __m256i k = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(line + 16 * i)));
                for (int r = 0; r < R; r++)
                    sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(k, four_words(q[r] + g * GROUP + 4 * c)));
            }
        }
        const v16 k_scale = q8_scales(tile->k[block], tile->head_dim, g);
        for (int r = 0; r < R; r++)
            s[r] = v_fma(v_mul(v_set(tile->q_scale[(row + r) * groups + g]), k_scale),
                         sixteen_sums(sum[r], tile->q_zero[(row + r) * groups + g]), s[r]);
    }
    for (int r = 0; r < R; r++) v_store(tile->p + (row + r) * ES_ATTN_TILE + block * ES_ATTN_BLOCK, s[r]);
}

INLINE __m256i weights_of(const float *p, const float *share)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(share)));
}

static void make_weights(const float *p, const float *share, int16_t *w)
{
    for (int j = 0; j < ES_ATTN_TILE; j += 16) {
        const __m256i packed = _mm256_packs_epi32(weights_of(p + j, share + j), weights_of(p + j + 8, share + j + 8));
        _mm256_storeu_si256((__m256i *)(w + j), _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
    }
}

/* o ← c·o + the values of sixteen channels, for R rows over the first `quads` quads of keys. Keys of a last quad that a row may
 * not see weigh nothing. */
INLINE void add_values(const es_attn_tile_q8 *tile, int32_t row, int32_t channel, int32_t quads,
                       const int16_t w[ROWS][ES_ATTN_TILE], const float *correction, const float *unit, const int R)
{
    __m256i sum[ROWS][4];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++) sum[r][i] = _mm256_setzero_si256();
    for (int32_t quad = 0; quad < quads; quad++) {
        const int32_t at = channel / GROUP * GROUP_BYTES + quad % 4 * 128 + channel % GROUP * 4;
        const uint8_t *line = tile->v[quad / 4] + at;
        if (row == 0 && tile->next_k[quad / 4]) _mm_prefetch(tile->next_k[quad / 4] + at, _MM_HINT_T1);
        for (int i = 0; i < 4; i++) {
            const __m256i v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(line + 16 * i)));
            for (int r = 0; r < R; r++)
                sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(v, four_words(w[r] + 4 * quad)));
        }
    }
    for (int r = 0; r < R; r++) {
        float *o = tile->o + (int64_t)(row + r) * tile->head_dim + channel;
        v_store(o, v_fma(v_set(unit[r]), sixteen_sums(sum[r], 0), v_mul(v_load(o), v_set(correction[r]))));
    }
}

/* R rows that see the same keys. */
INLINE void rows_together(const es_attn_tile_q8 *tile, int32_t row, const q8_values *values, const int R)
{
    const int32_t dim = tile->head_dim, valid = values->valid;
    float correction[ROWS], factor[ROWS], unit[ROWS];
    int16_t q[ROWS][MOST_DIM], w[ROWS][ES_ATTN_TILE];
    for (int r = 0; r < R; r++)
        for (int32_t d = 0; d < dim; d += 16)
            _mm256_storeu_si256((__m256i *)(q[r] + d),
                                _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(tile->q + (int64_t)(row + r) * dim + d))));
    for (int32_t b = 0; b * ES_ATTN_BLOCK < valid; b++) scores(tile, row, b, (const int16_t(*)[MOST_DIM])q, R);
    for (int r = 0; r < R; r++) q8_softmax(tile, row + r, valid, &correction[r], &factor[r]);
    for (int32_t g = 0; g < dim / GROUP; g++) {
        for (int r = 0; r < R; r++) {
            make_weights(tile->p + (row + r) * ES_ATTN_TILE, values->share[g], w[r]);
            unit[r] = factor[r] * values->unit[g];
        }
        for (int half = 0; half < 2; half++)
            add_values(tile, row, g * GROUP + half * 16, (valid + 3) / 4, (const int16_t(*)[ES_ATTN_TILE])w, correction, unit, R);
    }
}

static void attn_tile_q8(const es_attn_tile_q8 *tile)
{
    q8_values values;
    values.valid = 0;
    for (int32_t row = 0; row < tile->rows;) {
        const int32_t alike = q8_rows_alike(tile, row, ROWS, &values);
        if (alike == 2)
            rows_together(tile, row, &values, 2);
        else if (alike == 1)
            rows_together(tile, row, &values, 1);
        row += alike ? alike : 1;
    }
}

void es_attn_q8_avx2(es_kernels *kernels)
{
    kernels->attn_tile_q8 = attn_tile_q8;
}
