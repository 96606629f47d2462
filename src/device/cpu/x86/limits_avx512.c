/* limits_avx512.c: the most fused steps, and the most bytes read, with AVX-512. */
#include <immintrin.h>

#include "device/cpu/limits.h"

/* Without it the compiler keeps the chains in memory: a third of what the processor can. */
#define UNROLL _Pragma("GCC unroll 12")

double es_limit_fma_avx512(int64_t rounds)
{
    __m512 a[12];
    const __m512 x = _mm512_set1_ps(0.999999f), y = _mm512_set1_ps(1e-7f);
    UNROLL for (int i = 0; i < 12; i++) a[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < 12; i++) a[i] = _mm512_fmadd_ps(a[i], x, y);
        __asm__ volatile("" : "+v"(a[0])); /* rounds are not merged */
    }
    UNROLL for (int i = 1; i < 12; i++) a[0] = _mm512_add_ps(a[0], a[i]);
    __asm__ volatile("" : : "v"(a[0]));
    return (double)rounds * 12 * 16 * 2;
}

uint64_t es_limit_read_avx512(const void *data, size_t bytes)
{
    const char *at = data;
    __m512i s[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i + 512 <= bytes; i += 512)
        for (int k = 0; k < 8; k++) {
            _mm_prefetch(at + i + 4096 + k * 64, _MM_HINT_T0);
            s[k % 4] = _mm512_xor_si512(s[k % 4], _mm512_loadu_si512(at + i + k * 64));
        }
    s[0] = _mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3]));
    return (uint64_t)_mm512_reduce_or_epi64(s[0]);
}
