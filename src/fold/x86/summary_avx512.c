/* summary_avx512.c: powers of a block with AVX-512. */
#include <immintrin.h>

#include "fold/summary.h"

#define WIDTH 8
typedef __m512d D;
typedef __m512 F;

static inline D set_d(double x)
{
    return _mm512_set1_pd(x);
}
static inline D load_d(const void *p)
{
    return _mm512_loadu_pd(p);
}
static inline void store_d(double *p, D x)
{
    _mm512_storeu_pd(p, x);
}
static inline D add_d(D a, D b)
{
    return _mm512_add_pd(a, b);
}
static inline D sub_d(D a, D b)
{
    return _mm512_sub_pd(a, b);
}
static inline D mul_d(D a, D b)
{
    return _mm512_mul_pd(a, b);
}
static inline D fma_d(D a, D b, D c)
{
    return _mm512_fmadd_pd(a, b, c);
}
static inline D min_d(D a, D b)
{
    return _mm512_min_pd(a, b);
}
static inline D max_d(D a, D b)
{
    return _mm512_max_pd(a, b);
}
static inline int count_zeros_d(D x)
{
    return __builtin_popcount(_mm512_cmp_pd_mask(x, _mm512_setzero_pd(), _CMP_EQ_OQ));
}
static inline F set_f(float x)
{
    return _mm512_set1_ps(x);
}
static inline F load_f32(const void *p)
{
    return _mm512_loadu_ps(p);
}
static inline F load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline F load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline F min_f(F a, F b)
{
    return _mm512_min_ps(a, b);
}
static inline F max_f(F a, F b)
{
    return _mm512_max_ps(a, b);
}
static inline int count_zeros_f(F x)
{
    return __builtin_popcount(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ));
}
static inline D low_half(F x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
static inline D high_half(F x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
static inline double least_f(F x)
{
    return (double)_mm512_reduce_min_ps(x);
}
static inline double greatest_f(F x)
{
    return (double)_mm512_reduce_max_ps(x);
}
static inline F add_f(F a, F b)
{
    return _mm512_add_ps(a, b);
}
static inline F mul_f(F a, F b)
{
    return _mm512_mul_ps(a, b);
}
static inline F fma_f(F a, F b, F c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#include "fold/x86/summary_body.h"

/* --- what summary_raw_body.h uses --- */

#define FLOATS 16
typedef __m512i I;

static inline I load_items(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline I zero_items(void)
{
    return _mm512_setzero_si512();
}
static inline I magnitude_bits(void)
{
    return _mm512_set1_epi16(0x7FFF);
}
static inline I and_items(I a, I b)
{
    return _mm512_and_si512(a, b);
}
static inline F even_items(I x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
static inline F odd_items(I x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xFFFF0000)));
}
static inline I max_signed(I a, I b)
{
    return _mm512_max_epi16(a, b);
}
static inline I max_unsigned(I a, I b)
{
    return _mm512_max_epu16(a, b);
}
/* Zeros of either sign. */
static inline int64_t count_zero_items(I x)
{
    return __builtin_popcount(_mm512_testn_epi16_mask(x, _mm512_set1_epi16(0x7FFF)));
}
/* Of numbers without sign. */
static inline __m256i greater_half(I x)
{
    return _mm256_max_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
}
/* Lane j + lane j + 8 of sum k. */
static inline __m256 eight_lanes(F unit[1][4], int k)
{
    return _mm256_add_ps(_mm512_castps512_ps256(unit[0][k]), _mm512_extractf32x8_ps(unit[0][k], 1));
}
/* Four lanes of Σ x, in float64 from the start. */
static inline __m256d four_doubles(F unit[1][4])
{
    const D eight = _mm512_add_pd(low_half(unit[0][0]), high_half(unit[0][0]));
    return _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
}

#include "fold/x86/summary_raw_body.h"

es_powers_fn es_powers_avx512(es_item_type type)
{
    return powers_of(type);
}

bool es_raw_powers_avx512(const void *items, int64_t parts, int64_t count, size_t stride, es_raw_powers *sum, es_part_size *size)
{
    return raw_powers(items, parts, count, stride, sum, size);
}
