/* summary_avx2.c: powers of a block with AVX2. */
#include <immintrin.h>

#include "fold/summary.h"

#define WIDTH 4
typedef __m256d D;
typedef __m256 F;

static inline D set_d(double x)
{
    return _mm256_set1_pd(x);
}
static inline D load_d(const void *p)
{
    return _mm256_loadu_pd(p);
}
static inline void store_d(double *p, D x)
{
    _mm256_storeu_pd(p, x);
}
static inline D add_d(D a, D b)
{
    return _mm256_add_pd(a, b);
}
static inline D sub_d(D a, D b)
{
    return _mm256_sub_pd(a, b);
}
static inline D mul_d(D a, D b)
{
    return _mm256_mul_pd(a, b);
}
static inline D fma_d(D a, D b, D c)
{
    return _mm256_fmadd_pd(a, b, c);
}
static inline D min_d(D a, D b)
{
    return _mm256_min_pd(a, b);
}
static inline D max_d(D a, D b)
{
    return _mm256_max_pd(a, b);
}
static inline int count_zeros_d(D x)
{
    return __builtin_popcount((unsigned)_mm256_movemask_pd(_mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_EQ_OQ)));
}
static inline F set_f(float x)
{
    return _mm256_set1_ps(x);
}
static inline F load_f32(const void *p)
{
    return _mm256_loadu_ps(p);
}
static inline F load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
static inline F load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
static inline F min_f(F a, F b)
{
    return _mm256_min_ps(a, b);
}
static inline F max_f(F a, F b)
{
    return _mm256_max_ps(a, b);
}
static inline int count_zeros_f(F x)
{
    return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ)));
}
static inline D low_half(F x)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
static inline D high_half(F x)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
static inline double least_f(F x)
{
    float at[8];
    _mm256_storeu_ps(at, x);
    for (int i = 1; i < 8; i++) at[0] = at[i] < at[0] ? at[i] : at[0];
    return (double)at[0];
}
static inline double greatest_f(F x)
{
    float at[8];
    _mm256_storeu_ps(at, x);
    for (int i = 1; i < 8; i++) at[0] = at[i] > at[0] ? at[i] : at[0];
    return (double)at[0];
}
static inline F add_f(F a, F b)
{
    return _mm256_add_ps(a, b);
}
static inline F mul_f(F a, F b)
{
    return _mm256_mul_ps(a, b);
}
static inline F fma_f(F a, F b, F c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#include "fold/x86/summary_body.h"

/* --- what summary_raw_body.h uses --- */

#define FLOATS 8
typedef __m256i I;

static inline I load_items(const void *p)
{
    return _mm256_loadu_si256(p);
}
static inline I zero_items(void)
{
    return _mm256_setzero_si256();
}
static inline I magnitude_bits(void)
{
    return _mm256_set1_epi16(0x7FFF);
}
static inline I and_items(I a, I b)
{
    return _mm256_and_si256(a, b);
}
static inline F even_items(I x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
static inline F odd_items(I x)
{
    return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xFFFF0000)));
}
static inline I max_signed(I a, I b)
{
    return _mm256_max_epi16(a, b);
}
static inline I max_unsigned(I a, I b)
{
    return _mm256_max_epu16(a, b);
}
/* Zeros of either sign: doubling drops the sign. */
static inline int64_t count_zero_items(I x)
{
    const I same = _mm256_cmpeq_epi16(_mm256_add_epi16(x, x), _mm256_setzero_si256());
    return __builtin_popcount((unsigned)_mm256_movemask_epi8(same)) / 2;
}
/* A vector of 256 bits is what is left of one of 512 bits. */
static inline __m256i greater_half(I x)
{
    return x;
}
/* Lane j + lane j + 8 of sum k. */
static inline __m256 eight_lanes(F unit[2][4], int k)
{
    return _mm256_add_ps(unit[0][k], unit[1][k]);
}
/* Four lanes of Σ x, in float64 from the start. */
static inline __m256d four_doubles(F unit[2][4])
{
    const D low = _mm256_add_pd(low_half(unit[0][0]), low_half(unit[1][0]));
    return _mm256_add_pd(low, _mm256_add_pd(high_half(unit[0][0]), high_half(unit[1][0])));
}

#include "fold/x86/summary_raw_body.h"

es_powers_fn es_powers_avx2(es_item_type type)
{
    return powers_of(type);
}

bool es_raw_powers_avx2(const void *items, int64_t parts, int64_t count, size_t stride, es_raw_powers *sum, es_part_size *size)
{
    return raw_powers(items, parts, count, stride, sum, size);
}
