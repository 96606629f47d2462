/* vector_avx512.h: sixteen float32 lanes in one AVX-512 register. See kernels_body.h for who uses it. */
#ifndef ES_CPU_VECTOR_AVX512_H
#define ES_CPU_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 v16;

/* Blocks of accumulators that fit 32 registers. */
#define DOT_MOST_ROWS 8
#define DOT_MOST_TOKENS 6
#define DOT_ROWS_FOR(tokens) ((tokens) <= 3 ? 8 : 4)
#define DELTA_WIDE 4 /* vectors of columns at once */
#define ATTN_BLOCK_ROWS 6 /* or fewer */
#define ATTN_WIDE_FOR(rows) 4 /* blocks of keys, or vectors of channels */
#define ATTN_BF16_ROWS 6 /* or 4, as many query heads as often share a KV head, or fewer */
#define ATTN_BF16_USUAL ATTN_BF16_ROWS
#define ATTN_BF16_TAKEN(rows) ((rows) == 6 ? 6 : (rows) >= 4 ? 4 : (rows) >= 2 ? 2 : (rows))
#define ATTN_BF16_WIDE 2 /* registers of keys, or of channels */
#define ATTN_BF16_WIDE_FOR(rows) 2

/* Sixteen lanes are one register. */
typedef v16 vr;
#define VR_LANES 16
#define vr_load v_load
#define vr_store v_store
#define vr_set v_set
#define vr_add v_add
#define vr_mul v_mul
#define vr_fma v_fma
#define vr_load_even v_load_even
#define vr_load_odd v_load_odd

static inline v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline v16 v_load_part(const float *p, int n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
static inline void v_store_part(float *p, v16 a, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }
static inline v16 v_set(float a) { return _mm512_set1_ps(a); }
static inline v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
/* a where a > b, else b: a NaN in a is passed over, as in `if (s > m) m = s`. */
static inline v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
static inline v16 v_keep_first(v16 a, int n, v16 rest) { return _mm512_mask_mov_ps(rest, (__mmask16)((1u << n) - 1), a); }

/* The greatest lane; there is no NaN. */
static inline float v_greatest(v16 a) { return _mm512_reduce_max_ps(a); }

static inline float v_fold(v16 a)
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

/* Sixteen sums of sixteen lanes: the tree of v_fold, for pairs of sums side by side. Each level halves the lanes of a sum and
 * doubles the sums of a register. */
static inline void v_fold_16(const float *lanes, float *out)
{
    __m512 a[8], b[4];
    for (int i = 0; i < 8; i++) { /* sums i, i + 8: lanes 0–7 of one, then of the other */
        const __m512 x = _mm512_loadu_ps(lanes + 16 * i), y = _mm512_loadu_ps(lanes + 16 * (i + 8));
        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
    }
    for (int i = 0; i < 4; i++) /* quarters: sums i, i + 8, i + 4, i + 12 */
        b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88), _mm512_shuffle_f32x4(a[i], a[i + 4], 0xDD));
    /* Inside each quarter: lanes 0, 1 of two sums, then one lane of four. */
    const __m512 c0 = _mm512_add_ps(_mm512_shuffle_ps(b[0], b[1], 0x44), _mm512_shuffle_ps(b[0], b[1], 0xEE));
    const __m512 c1 = _mm512_add_ps(_mm512_shuffle_ps(b[2], b[3], 0x44), _mm512_shuffle_ps(b[2], b[3], 0xEE));
    const __m512 d = _mm512_add_ps(_mm512_shuffle_ps(c0, c1, 0x88), _mm512_shuffle_ps(c0, c1, 0xDD));
    /* Quarters hold sums 0–3, 8–11, 4–7, 12–15. */
    _mm512_storeu_ps(out, _mm512_shuffle_f32x4(d, d, 0xD8));
}

/* 2^n from the rounding constant's sum t: its low bits, shifted into the exponent. */
static inline v16 v_power_of_two(v16 t)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23), _mm512_set1_epi32(0x3F800000)));
}
/* value where low ≤ x ≤ high (or x is NaN), 0 below, infinity above. */
static inline v16 v_clamp_exp(v16 value, v16 x, float low, float high)
{
    value = _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(x, v_set(low), _CMP_LT_OQ), _mm512_setzero_ps());
    return _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(x, v_set(high), _CMP_GT_OQ), v_set(__builtin_inff()));
}

/* Sixteen pairs of bfloat16: the first of each, or the second. */
static inline __attribute__((always_inline)) v16 v_load_even(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline __attribute__((always_inline)) v16 v_load_odd(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xFFFF0000)));
}

/* Sixteen binary16 to float32, exactly; and to them, ties to even. Subnormals of binary16 are kept either way. */
static inline __attribute__((always_inline)) v16 v_load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void v_store_half(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* To bfloat16 and back: ties to even. No NaN, or one that stays one. */
static inline __attribute__((always_inline)) v16 v_round_bf16(v16 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32((int)0xFFFF0000)));
}

#endif
