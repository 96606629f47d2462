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

#include "fold/x86/summary_body.h"

es_powers_fn es_powers_avx512(es_item_type type)
{
    return powers_of(type);
}
