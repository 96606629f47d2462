/* limits_avx2.c: the most fused steps, and the most integer products, with AVX2. */
#include <immintrin.h>

#include "device/cpu/limits.h"

/* Without it the compiler keeps the chains in memory: a third of what the processor can. */
#define UNROLL _Pragma("GCC unroll 12")

double es_limit_fma_avx2(int64_t rounds)
{
    __m256 a[12];
    const __m256 x = _mm256_set1_ps(0.999999f), y = _mm256_set1_ps(1e-7f);
    UNROLL for (int i = 0; i < 12; i++) a[i] = _mm256_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < 12; i++) a[i] = _mm256_fmadd_ps(a[i], x, y);
        __asm__ volatile("" : "+x"(a[0])); /* rounds are not merged */
    }
    UNROLL for (int i = 1; i < 12; i++) a[0] = _mm256_add_ps(a[0], a[i]);
    __asm__ volatile("" : : "x"(a[0]));
    return (double)rounds * 12 * 8 * 2;
}

/* Bytes to pairs, pairs to fours, and added: 32 multiplications in three instructions. */
double es_limit_int8_avx2(int64_t rounds)
{
    __m256i a[8];
    const __m256i ones = _mm256_set1_epi16(1), y = _mm256_set1_epi8(-5);
    __m256i x = _mm256_set1_epi8(3);
    UNROLL for (int i = 0; i < 8; i++) a[i] = _mm256_set1_epi32(i);
    for (int64_t r = 0; r < rounds; r++)
        UNROLL for (int i = 0; i < 8; i++) {
            __asm__ volatile("" : "+x"(x)); /* another x, for all the compiler knows: no product is done once for all */
            a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
        }
    UNROLL for (int i = 1; i < 8; i++) a[0] = _mm256_add_epi32(a[0], a[i]);
    __asm__ volatile("" : : "x"(a[0]));
    return (double)rounds * 8 * 32 * 2;
}
