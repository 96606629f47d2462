/* turn_avx2.h: weight rows brought into lanes. Eight rows stand in the lanes of a register, so that sums never cross lanes. */
#ifndef ES_CPU_X86_TURN_AVX2_H
#define ES_CPU_X86_TURN_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
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

/* The first of the four words alone; all sixteen bytes have to be there. */
INLINE __m256i es_first_word(const uint8_t *at, int64_t stride)
{
    const __m256i a = _mm256_unpacklo_epi32(es_two_rows(at, stride), es_two_rows(at + stride, stride));
    const __m256i b = _mm256_unpacklo_epi32(es_two_rows(at + 2 * stride, stride), es_two_rows(at + 3 * stride, stride));
    return _mm256_unpacklo_epi64(a, b);
}

/* The lower or upper halves of eight words as floats. */
INLINE __m256 es_low_halves(__m256i words)
{
    const __m256i low = _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF));
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08)));
}

INLINE __m256 es_high_halves(__m256i words)
{
    return es_low_halves(_mm256_srli_epi32(words, 16));
}

INLINE __m256 es_minus(__m256 x)
{
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

INLINE __m256i es_bits_of(__m256i words, int shift, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi32(words, shift), _mm256_set1_epi32(mask));
}

/* Byte n of eight words, signed, as floats. */
INLINE __m256 es_signed_byte(__m256i words, int n)
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * n), 24));
}

/* d times group g's scale, from the three words that a block of Q4_K or Q5_K packs them in; with `minima`, its minimum. */
INLINE __m256 es_k_factor(__m256 d, const __m256i packed[3], const int g, const bool minima)
{
    const __m256i own = packed[minima], n = g < 4 ? es_bits_of(own, 8 * g, 63)
                                                  : _mm256_or_si256(es_bits_of(packed[2], 8 * (g - 4) + (minima ? 4 : 0), 15),
                                                                    _mm256_slli_epi32(es_bits_of(own, 8 * (g - 4) + 6, 3), 4));
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(n));
}

/* Four bytes in every lane. */
INLINE __m256i es_four_inputs(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm256_set1_epi32(word);
}

/* Bytes parted into *size, their magnitudes, and *below, all bits of those below zero. Returns the magnitudes of these, added up in
 * pairs of 16 bits: at most 256. */
INLINE __m256i es_part_signs(__m256i w, __m256i *size, __m256i *below)
{
    *size = _mm256_abs_epi8(w);
    *below = _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);
    return _mm256_maddubs_epi16(_mm256_and_si256(*size, *below), _mm256_set1_epi8(1));
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
