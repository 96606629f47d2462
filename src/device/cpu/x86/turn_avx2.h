/* turn_avx2.h: weight rows brought into lanes. Eight rows stand in the lanes of a register, so that sums never cross lanes. */
#ifndef ES_CPU_X86_TURN_AVX2_H
#define ES_CPU_X86_TURN_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Sixteen bytes of rows r and r + 4. */
INLINE __m256i es_two_rows(const uint8_t *at, int64_t stride)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)at)),
                                   _mm_loadu_si128((const __m128i *)(at + 4 * stride)), 1);
}

/* out[apart · j] = bytes [4j, 4j + 4) of eight rows, j from 0 to 3. */
INLINE void es_turn_eight(const uint8_t *at, int64_t stride, __m256i *out, const int apart)
{
    const __m256i z0 = es_two_rows(at, stride), z1 = es_two_rows(at + stride, stride);
    const __m256i z2 = es_two_rows(at + 2 * stride, stride), z3 = es_two_rows(at + 3 * stride, stride);
    const __m256i a = _mm256_unpacklo_epi32(z0, z1), b = _mm256_unpackhi_epi32(z0, z1);
    const __m256i c = _mm256_unpacklo_epi32(z2, z3), d = _mm256_unpackhi_epi32(z2, z3);
    out[0] = _mm256_unpacklo_epi64(a, c), out[apart] = _mm256_unpackhi_epi64(a, c);
    out[2 * apart] = _mm256_unpacklo_epi64(b, d), out[3 * apart] = _mm256_unpackhi_epi64(b, d);
}

/* out[2j + h] = bytes [4j, 4j + 4) of rows 8h to 8h + 7, for `words` words of each. */
INLINE void es_turn_sixteen(const uint8_t *at, int64_t stride, const int words, __m256i *out)
{
    for (int j = 0; j < words; j += 4)
        for (int h = 0; h < 2; h++) es_turn_eight(at + 8 * h * stride + 4 * j, stride, out + 2 * j + h, 2);
}

/* Four bytes in every lane. */
INLINE __m256i es_four_inputs(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm256_set1_epi32(word);
}

/* Adds up in the order it is written in: left to itself, the compiler keeps all products of a sum for a balanced tree, and has no
 * registers for them. */
INLINE __m256i es_in_order(__m256i x)
{
    __asm__("" : "+x"(x));
    return x;
}

/* The first numbers of eight pairs of bfloat16, and the second ones. */
INLINE __m256 es_even_part(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

INLINE __m256 es_odd_part(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xFFFF0000)));
}

#endif
