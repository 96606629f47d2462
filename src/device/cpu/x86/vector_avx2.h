/* vector_avx2.h: sixteen float32 lanes in two AVX2 registers. See kernels_body.h for who uses it. */
#ifndef ES_CPU_VECTOR_AVX2_H
#define ES_CPU_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "device/cpu/x86/turn_avx2.h"

typedef struct v16 {
    __m256 a, b; /* lanes 0–7 and 8–15 */
} v16;

/* Blocks of accumulators that fit 16 registers, two to a vector. */
#define DOT_MOST_ROWS 4
#define DOT_MOST_TOKENS 2
#define DOT_ROWS_FOR(tokens) ((tokens) == 1 ? 4 : 2)
#define DELTA_WIDE 2 /* vectors of columns at once */
#define ATTN_BLOCK_ROWS 6 /* or fewer */
#define ATTN_WIDE_FOR(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1) /* blocks of keys, or vectors of channels */

/* One register, where sixteen lanes at once would be more sums than fit. */
typedef __m256 vr;
#define VR_LANES 8
#define ATTN_BF16_ROWS 6  /* are looked at, and some of them taken together: */
#define ATTN_BF16_USUAL 3 /* times two registers: their sums leave just the room for what they take in */
#define ATTN_BF16_TAKEN(rows) ((rows) > 4 || (rows) == 3 ? ATTN_BF16_USUAL : (rows))
#define ATTN_BF16_WIDE 4 /* registers of keys, or of channels, at most */
#define ATTN_BF16_WIDE_FOR(rows) ((rows) == 1 ? 4 : (rows) < 4 ? 2 : 1)

static inline v16 v_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void v_store(float *p, v16 x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }

static inline __m256i v_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline v16 v_load_part(const float *p, int n)
{
    /* The upper half is touched only when it holds something: its address may lie outside the array. */
    return (v16){_mm256_maskload_ps(p, v_mask(n)), n > 8 ? _mm256_maskload_ps(p + 8, v_mask(n - 8)) : _mm256_setzero_ps()};
}
static inline void v_store_part(float *p, v16 x, int n)
{
    _mm256_maskstore_ps(p, v_mask(n), x.a);
    if (n > 8) _mm256_maskstore_ps(p + 8, v_mask(n - 8), x.b);
}
static inline v16 v_set(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline v16 v_add(v16 x, v16 y) { return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline v16 v_sub(v16 x, v16 y) { return (v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline v16 v_mul(v16 x, v16 y) { return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline v16 v_div(v16 x, v16 y) { return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
/* x where x > y, else y: a NaN in x is passed over, as in `if (s > m) m = s`. */
static inline v16 v_max(v16 x, v16 y) { return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline v16 v_min(v16 x, v16 y) { return (v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
static inline v16 v_keep_first(v16 x, int n, v16 rest)
{
    return (v16){_mm256_blendv_ps(rest.a, x.a, _mm256_castsi256_ps(v_mask(n))),
                 _mm256_blendv_ps(rest.b, x.b, _mm256_castsi256_ps(v_mask(n - 8)))};
}

/* The greatest lane; there is no NaN. */
static inline float v_greatest(v16 x)
{
    const __m256 half = _mm256_max_ps(x.a, x.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

static inline float v_fold(v16 x)
{
    const __m256 half = _mm256_add_ps(x.a, x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

/* Sixteen sums of sixteen lanes. */
static inline void v_fold_16(const float *lanes, float *out)
{
    for (int i = 0; i < 16; i++) out[i] = v_fold(v_load(lanes + 16 * i));
}

static inline __m256 v_power_of_two_half(__m256 t)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_set1_epi32(0x3F800000)));
}
/* 2^n from the rounding constant's sum t: its low bits, shifted into the exponent. */
static inline v16 v_power_of_two(v16 t) { return (v16){v_power_of_two_half(t.a), v_power_of_two_half(t.b)}; }

static inline __m256 v_clamp_exp_half(__m256 value, __m256 x, float low, float high)
{
    value = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(low), _CMP_LT_OQ), value);
    return _mm256_blendv_ps(value, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x, _mm256_set1_ps(high), _CMP_GT_OQ));
}
/* value where low ≤ x ≤ high (or x is NaN), 0 below, infinity above. */
static inline v16 v_clamp_exp(v16 value, v16 x, float low, float high)
{
    return (v16){v_clamp_exp_half(value.a, x.a, low, high), v_clamp_exp_half(value.b, x.b, low, high)};
}

static inline vr vr_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vr_store(float *p, vr x) { _mm256_storeu_ps(p, x); }
static inline vr vr_set(float x) { return _mm256_set1_ps(x); }
static inline vr vr_add(vr x, vr y) { return _mm256_add_ps(x, y); }
static inline vr vr_mul(vr x, vr y) { return _mm256_mul_ps(x, y); }
static inline vr vr_fma(vr x, vr y, vr z) { return _mm256_fmadd_ps(x, y, z); }

/* Eight pairs of bfloat16: the first of each, or the second. */
static inline vr vr_load_even(const uint16_t *p) { return es_even_part(_mm256_loadu_si256((const __m256i *)p)); }
static inline vr vr_load_odd(const uint16_t *p) { return es_odd_part(_mm256_loadu_si256((const __m256i *)p)); }

/* Sixteen binary16 to float32, exactly; and to them, ties to even. Subnormals of binary16 are kept either way. */
static inline v16 v_load_half(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline void v_store_half(uint16_t *p, v16 x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}

static inline __m256 v_round_bf16_half(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32((int)0xFFFF0000)));
}
/* To bfloat16 and back: ties to even. No NaN, or one that stays one. */
static inline v16 v_round_bf16(v16 x) { return (v16){v_round_bf16_half(x.a), v_round_bf16_half(x.b)}; }

#endif
