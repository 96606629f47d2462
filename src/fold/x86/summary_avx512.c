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
/* Zeros of either sign among rows of 16 16-bit numbers: two rows at a time. */
static inline int64_t count_zeros_16(const unsigned char *p, int64_t rows)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    int64_t zeros = 0, r = 0;
    for (; r + 2 <= rows; r += 2)
        zeros += __builtin_popcount(_mm512_testn_epi16_mask(_mm512_loadu_si512(p + r * 32), magnitude));
    if (r < rows) {
        const __m512i last = _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)(p + r * 32)));
        zeros += __builtin_popcount(_mm512_testn_epi16_mask(last, magnitude) & 0xFFFFu);
    }
    return zeros;
}

#include "fold/x86/summary_body.h"

es_powers_fn es_powers_avx512(es_item_type type)
{
    return powers_of(type);
}

es_powers_fn es_fast_powers_avx512(es_item_type type)
{
    return fast_of(type);
}
