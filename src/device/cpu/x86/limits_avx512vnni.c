/* limits_avx512vnni.c: the most integer products with VNNI: 64 multiplications and additions an instruction, no loads. */
#include <immintrin.h>

#include "device/cpu/limits.h"

/* Without it the compiler keeps the chains in memory: a third of what the processor can. */
#define UNROLL _Pragma("GCC unroll 12")

double es_limit_int8_avx512vnni(int64_t rounds)
{
    __m512i a[12];
    const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-5);
    UNROLL for (int i = 0; i < 12; i++) a[i] = _mm512_set1_epi32(i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < 12; i++) a[i] = _mm512_dpbusd_epi32(a[i], x, y);
        __asm__ volatile("" : "+v"(a[0])); /* rounds are not merged */
    }
    UNROLL for (int i = 1; i < 12; i++) a[0] = _mm512_add_epi32(a[0], a[i]);
    __asm__ volatile("" : : "v"(a[0]));
    return (double)rounds * 12 * 64 * 2;
}
