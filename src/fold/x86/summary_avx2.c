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
/* Zeros of either sign among rows of 16 16-bit numbers. */
static inline int64_t count_zeros_16(const unsigned char *p, int64_t rows)
{
    int64_t zeros = 0;
    for (int64_t r = 0; r < rows; r++) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(p + r * 32));
        const __m256i same = _mm256_cmpeq_epi16(_mm256_slli_epi16(x, 1), _mm256_setzero_si256());
        zeros += __builtin_popcount((unsigned)_mm256_movemask_epi8(same)) / 2;
    }
    return zeros;
}

#include "fold/x86/summary_body.h"

es_powers_fn es_powers_avx2(es_item_type type)
{
    return powers_of(type);
}

es_powers_fn es_fast_powers_avx2(es_item_type type)
{
    return fast_of(type);
}
