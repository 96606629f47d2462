/* limits_avx2.c: the most fused steps with AVX2. */
#include <immintrin.h>

#include "device/cpu/limits.h"

double es_limit_fma_avx2(int64_t rounds)
{
    __m256 a[12];
    const __m256 x = _mm256_set1_ps(0.999999f), y = _mm256_set1_ps(1e-7f);
    for (int i = 0; i < 12; i++) a[i] = _mm256_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < 12; i++) a[i] = _mm256_fmadd_ps(a[i], x, y);
        __asm__ volatile("" : "+x"(a[0])); /* rounds are not merged */
    }
    for (int i = 1; i < 12; i++) a[0] = _mm256_add_ps(a[0], a[i]);
    __asm__ volatile("" : : "x"(a[0]));
    return (double)rounds * 12 * 8 * 2;
}
