/* turn_avx512.h: weight rows brought into lanes. Sixteen rows stand in the lanes of a register, so that sums never cross lanes. */
#ifndef ES_CPU_X86_TURN_AVX512_H
#define ES_CPU_X86_TURN_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Sixteen bytes of rows r, r + 4, r + 8 and r + 12. A broadcast from memory into some lanes needs no permutation, an insertion
 * does. */
INLINE __m512i es_four_rows(const uint8_t *at, int64_t stride)
{
    __m512i z = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)at));
    z = _mm512_mask_broadcast_i32x4(z, 0x00F0, _mm_loadu_si128((const __m128i *)(at + 4 * stride)));
    z = _mm512_mask_broadcast_i32x4(z, 0x0F00, _mm_loadu_si128((const __m128i *)(at + 8 * stride)));
    return _mm512_mask_broadcast_i32x4(z, 0xF000, _mm_loadu_si128((const __m128i *)(at + 12 * stride)));
}

/* out[j] = bytes [4j, 4j + 4) of sixteen rows, j below `words`, a multiple of four. */
INLINE void es_turn_rows(const uint8_t *at, int64_t stride, const int words, __m512i *out)
{
    for (int j = 0; j < words; j += 4, at += 16) {
        const __m512i z0 = es_four_rows(at, stride), z1 = es_four_rows(at + stride, stride);
        const __m512i z2 = es_four_rows(at + 2 * stride, stride), z3 = es_four_rows(at + 3 * stride, stride);
        const __m512i a = _mm512_unpacklo_epi32(z0, z1), b = _mm512_unpackhi_epi32(z0, z1);
        const __m512i c = _mm512_unpacklo_epi32(z2, z3), d = _mm512_unpackhi_epi32(z2, z3);
        out[j] = _mm512_unpacklo_epi64(a, c), out[j + 1] = _mm512_unpackhi_epi64(a, c);
        out[j + 2] = _mm512_unpacklo_epi64(b, d), out[j + 3] = _mm512_unpackhi_epi64(b, d);
    }
}

/* Four bytes of each of sixteen rows. */
INLINE __m512i es_four_bytes(const uint8_t *at, int64_t stride)
{
    const __m512i r = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_i32gather_epi32(_mm512_mullo_epi32(r, _mm512_set1_epi32((int)stride)), at, 1);
}

/* Four bytes in every lane. */
INLINE __m512i es_four_inputs(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm512_set1_epi32(word);
}

/* acc + (scale · x_scale) · sum. */
INLINE __m512 es_add_sum(__m512 acc, __m512 scale, float x_scale, __m512 sum)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(scale, _mm512_set1_ps(x_scale)), sum, acc);
}

/* The lower or upper halves of sixteen words as floats. */
INLINE __m512 es_low_halves(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}

INLINE __m512 es_high_halves(__m512i words)
{
    return es_low_halves(_mm512_srli_epi32(words, 16));
}

INLINE __m512i es_bits_of_bytes(__m512i words, int mask)
{
    return _mm512_and_si512(words, _mm512_set1_epi8((char)mask));
}

/* The lower four bits of every byte from `low`, the others from `high`. */
INLINE __m512i es_join_nibbles(__m512i low, __m512i high)
{
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, high, 0xCA);
}

/* Byte n of sixteen words as floats: none below zero, or signed. */
INLINE __m512 es_unsigned_byte(__m512i words, int n)
{
    const __m512i moved = _mm512_srli_epi32(words, (unsigned)(8 * n));
    return _mm512_cvtepi32_ps(n == 3 ? moved : _mm512_and_si512(moved, _mm512_set1_epi32(255)));
}

INLINE __m512 es_signed_byte(__m512i words, int n)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, (unsigned)(24 - 8 * n)), 24));
}

/* Factors of a block of Q4_K or Q5_K: byte n of scale[h] and minimum[h] is group 4h + n's. */
typedef struct es_k_head {
    __m512 d, minus_m;
    __m512i scale[2], minimum[2];
} es_k_head;

INLINE es_k_head es_k_head_of(const uint8_t *blocks, int64_t stride)
{
    __m512i head[4];
    es_turn_rows(blocks, stride, 4, head);
    const __m512i scales = _mm512_srli_epi32(head[1], 2), minima = _mm512_srli_epi32(head[2], 2);
    return (es_k_head){
        es_low_halves(head[0]),
        _mm512_xor_ps(es_high_halves(head[0]), _mm512_set1_ps(-0.0f)),
        {es_bits_of_bytes(head[1], 63), es_bits_of_bytes(es_join_nibbles(head[3], scales), 63)},
        {es_bits_of_bytes(head[2], 63), es_bits_of_bytes(es_join_nibbles(_mm512_srli_epi32(head[3], 4), minima), 63)},
    };
}

INLINE __m512 es_k_scale(const es_k_head *k, int group)
{
    return _mm512_mul_ps(k->d, es_unsigned_byte(k->scale[group / 4], group % 4));
}

INLINE __m512 es_k_offset(const es_k_head *k, int group)
{
    return _mm512_mul_ps(k->minus_m, es_unsigned_byte(k->minimum[group / 4], group % 4));
}

/* The fifth bits of groups 2j and 2j + 1 (`upper`) of a block of Q5_K, where a fifth bit is; others beside them. */
INLINE __m512i es_k_fifth(__m512i high, const int j, const int upper)
{
    const int up = 4 - 2 * j - upper;
    return up >= 0 ? _mm512_slli_epi16(high, (unsigned)up) : _mm512_srli_epi16(high, (unsigned)-up);
}

/* Sixty-four values of Q6_K have their low bits in `low`, one in each nibble, and four share a byte of `high`: those of `part`,
 * 0 to 63. */
INLINE __m512i es_q6_values(__m512i low, __m512i high, const int part)
{
    const int up = 4 - 2 * part;
    const __m512i two = up >= 0 ? _mm512_slli_epi16(high, (unsigned)up) : _mm512_srli_epi16(high, (unsigned)-up);
    return es_bits_of_bytes(es_join_nibbles(part < 2 ? low : _mm512_srli_epi16(low, 4), two), 63);
}

#endif
