/* limits_avx512bf16.c: the most bfloat16 dot products: 32 multiplications and additions an instruction, no loads. */
#include <immintrin.h>

#include "device/cpu/limits.h"

/* Without it the compiler keeps the chains in memory: a third of what the processor can. */
#define UNROLL _Pragma("GCC unroll 12")

double es_limit_bf16_avx512bf16(int64_t rounds)
{
    __m512 a[12];
    const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3F70), y = (__m512bh)_mm512_set1_epi16(0x3380); /* 0.94 and 6e-8 */
    UNROLL for (int i = 0; i < 12; i++) a[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        UNROLL for (int i = 0; i < 12; i++) a[i] = _mm512_dpbf16_ps(a[i], x, y);
        __asm__ volatile("" : "+v"(a[0])); /* rounds are not merged */
    }
    UNROLL for (int i = 1; i < 12; i++) a[0] = _mm512_add_ps(a[0], a[i]);
    __asm__ volatile("" : : "v"(a[0]));
    return (double)rounds * 12 * 32 * 2;
}
