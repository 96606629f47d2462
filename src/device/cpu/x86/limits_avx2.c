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
    for (int64_t r = 0; r < rounds; r++) UNROLL for (int i = 0; i < 8; i++)
        {
            __asm__ volatile("" : "+x"(x)); /* another x, for all the compiler knows: no product is done once for all */
            a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
        }
    UNROLL for (int i = 1; i < 8; i++) a[0] = _mm256_add_epi32(a[0], a[i]);
    __asm__ volatile("" : : "x"(a[0]));
    return (double)rounds * 8 * 32 * 2;
}

/* Four stretches at once: one alone gets a half to three quarters of that from a processor whose prefetchers follow several.
 */
uint64_t es_limit_read_avx2(const void *data, size_t bytes)
{
    const size_t stretch = bytes / 4 / 64 * 64;
    const char *at = data;
    __m256i s[8];
    UNROLL for (int k = 0; k < 8; k++) s[k] = _mm256_setzero_si256();
    for (size_t i = 0; i + 64 <= stretch; i += 64)
        UNROLL for (int k = 0; k < 8; k++) s[k] = _mm256_xor_si256(
            s[k], _mm256_loadu_si256((const __m256i *)(at + (size_t)(k / 2) * stretch + i + (size_t)(k % 2) * 32)));
    UNROLL for (int k = 1; k < 8; k++) s[0] = _mm256_xor_si256(s[0], s[k]);
    return (uint64_t)(_mm256_extract_epi64(s[0], 0) ^ _mm256_extract_epi64(s[0], 1) ^ _mm256_extract_epi64(s[0], 2) ^
                      _mm256_extract_epi64(s[0], 3));
}
