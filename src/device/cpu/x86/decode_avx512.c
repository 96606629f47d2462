/* decode_avx512.c: decoding with AVX-512, bit-equal to decode_ref.c.
 *
 * Four and five bits can only say 16 or 32 things: a group's values are computed once, each by the multiplication (and at most
 * one addition) of the reference, and the elements look them up. A permutation reads four bits of each 32-bit lane (of two
 * tables, five) and ignores the others, so that bytes are widened once for both of their nibbles, and nothing is masked. */
#include <immintrin.h>

#include "device/cpu/blocks.h"
#include "device/cpu/decode.h"

/* 16 bytes, one to a lane. */
static inline __m512i widen16(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes));
}

/* A binary16 number in every lane. F16C knows no denormals-are-zero. */
static inline __m512 halves(const uint8_t bytes[2])
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)(bytes[0] | bytes[1] << 8)));
}

/* first, first + 1, ... */
static inline __m512 count_from(float first)
{
    const __m512 count = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_ps(count, _mm512_set1_ps(first));
}

static inline void put16(float *out, __m512i index, __m512 table)
{
    _mm512_storeu_ps(out, _mm512_permutexvar_ps(index, table));
}

/* 32 elements from the nibbles of 16 bytes: the low ones, then the high ones. */
static inline void put_nibbles(float *out, const uint8_t *q, __m512 table)
{
    const __m512i index = widen16(q);
    put16(out, index, table);
    put16(out + 16, _mm512_srli_epi32(index, 4), table);
}

/* Stores sixteen factors to be read back one by one. Loading one into all lanes is free of the permutation port, which is the
 * narrow place here; a compiler that sees the store would permute the register instead. */
static inline void put_factors(float factor[16], __m512 all)
{
    _mm512_storeu_ps(factor, all);
    __asm__("" : "+m"(*(float(*)[16])factor));
}

/* What five bits may say. */
typedef struct table32 {
    __m512 low, high;
} table32;

/* The fifth bit of an index is bit 4 of `fifth`. */
static inline void put16_of_32(float *out, __m512i index, __m512i fifth, table32 table)
{
    const __m512i five = _mm512_ternarylogic_epi32(_mm512_set1_epi32(16), fifth, index, 0xCA); /* bit 4 of one, else other */
    _mm512_storeu_ps(out, _mm512_permutex2var_ps(table.low, five, table.high));
}

/* 32 elements from the nibbles of 16 bytes and 32 fifth bits, which are turned to bit 4 of their lanes. */
static inline void put_nibbles_and_bits(float *out, const uint8_t *q, const uint8_t bits[4], table32 table)
{
    const __m512i turn = _mm512_setr_epi32(28, 29, 30, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    const __m512i index = widen16(q), high = _mm512_set1_epi32((int)es_block_bits(bits));
    put16_of_32(out, index, _mm512_rorv_epi32(high, turn), table);
    put16_of_32(out + 16, _mm512_srli_epi32(index, 4), _mm512_rorv_epi32(high, _mm512_add_epi32(turn, _mm512_set1_epi32(16))),
                table);
}

static void decode_f32(const void *blocks, float *out, int64_t elements)
{
    memcpy(out, blocks, (size_t)elements * sizeof *out);
}

/* A mask of the first `count` of 16 lanes. */
static inline __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= 16 ? 0xFFFFu : (1u << count) - 1);
}

static void decode_f16(const void *blocks, float *out, int64_t elements)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < elements; i += 16) {
        const __mmask16 mask = first_lanes(elements - i);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p + 2 * i)));
    }
}

static void decode_bf16(const void *blocks, float *out, int64_t elements)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < elements; i += 16) {
        const __mmask16 mask = first_lanes(elements - i);
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p + 2 * i));
        _mm512_mask_storeu_ps(out + i, mask, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
    }
}

static void decode_q8_0(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q8_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const __m512 d = halves(b->d);
        for (int i = 0; i < 32; i += 16) {
            const __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(b->q + i));
            _mm512_storeu_ps(out + i, _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q))));
        }
    }
}

static void decode_q4_0(const void *blocks, float *out, int64_t elements)
{
    const __m512 values = count_from(-8);
    for (const es_block_q4_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32)
        put_nibbles(out, b->q, _mm512_mul_ps(halves(b->d), values));
}

static void decode_q4_1(const void *blocks, float *out, int64_t elements)
{
    const __m512 values = count_from(0);
    for (const es_block_q4_1 *b = blocks; elements > 0; b++, out += 32, elements -= 32)
        put_nibbles(out, b->q, _mm512_add_ps(_mm512_mul_ps(halves(b->d), values), halves(b->m)));
}

static void decode_q5_0(const void *blocks, float *out, int64_t elements)
{
    const __m512 low = count_from(-16), high = count_from(0);
    for (const es_block_q5_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const __m512 d = halves(b->d);
        put_nibbles_and_bits(out, b->q, b->high, (table32){_mm512_mul_ps(d, low), _mm512_mul_ps(d, high)});
    }
}

/* scale · q + offset for q from 0 to 31. x − y is x + (−y) in every bit. */
static inline table32 affine32(__m512 scale, __m512 offset)
{
    return (table32){_mm512_add_ps(_mm512_mul_ps(scale, count_from(0)), offset),
                     _mm512_add_ps(_mm512_mul_ps(scale, count_from(16)), offset)};
}

static void decode_q5_1(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q5_1 *b = blocks; elements > 0; b++, out += 32, elements -= 32)
        put_nibbles_and_bits(out, b->q, b->high, affine32(halves(b->d), halves(b->m)));
}

/* The scale and the negated minimum of each group of a Q4_K or Q5_K block: es_block_k_scales(), four bytes at a time. */
static inline void group_factors(const uint8_t *d, const uint8_t *m, const uint8_t *packed, float factor[16])
{
    const uint32_t first = es_block_bits(packed), second = es_block_bits(packed + 4), third = es_block_bits(packed + 8);
    const __m128i bytes = _mm_setr_epi32((int)(first & 0x3F3F3F3F), (int)((third & 0x0F0F0F0F) | (first >> 2 & 0x30303030)),
                                         (int)(second & 0x3F3F3F3F),
                                         (int)((third >> 4 & 0x0F0F0F0F) | (second >> 2 & 0x30303030)));
    /* Lanes 0–7 are scales, 8–15 minima, whose negation changes the sign only. */
    const __m512 super = _mm512_mask_xor_ps(halves(d), 0xFF00, halves(m), _mm512_set1_ps(-0.0f));
    put_factors(factor, _mm512_mul_ps(super, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))));
}

/* scale · q + offset for q from 0 to 15. */
static inline __m512 affine16(float scale, float offset)
{
    return _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(scale), count_from(0)), _mm512_set1_ps(offset));
}

static void decode_q4_k(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q4_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        float factor[16];
        group_factors(b->d, b->m, b->scales, factor);
        for (int g = 0; g < 8; g += 2) {
            const __m512i first = widen16(b->q + 16 * g), second = widen16(b->q + 16 * g + 16);
            const __m512 low = affine16(factor[g], factor[8 + g]), high = affine16(factor[g + 1], factor[9 + g]);
            put16(out + 32 * g, first, low);
            put16(out + 32 * g + 16, second, low);
            put16(out + 32 * g + 32, _mm512_srli_epi32(first, 4), high);
            put16(out + 32 * g + 48, _mm512_srli_epi32(second, 4), high);
        }
    }
}

static void decode_q5_k(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q5_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        float factor[16];
        group_factors(b->d, b->m, b->scales, factor);
        /* Bit g of a byte is the fifth bit of group g: bytes move down past bit 4, group by group. */
        __m512i high0 = _mm512_slli_epi32(widen16(b->high), 4), high1 = _mm512_slli_epi32(widen16(b->high + 16), 4);
        for (int g = 0; g < 8; g++) {
            const table32 table = affine32(_mm512_set1_ps(factor[g]), _mm512_set1_ps(factor[8 + g]));
            const __m512i first = widen16(b->q + g / 2 * 32), second = widen16(b->q + g / 2 * 32 + 16);
            put16_of_32(out + 32 * g, g % 2 ? _mm512_srli_epi32(first, 4) : first, high0, table);
            put16_of_32(out + 32 * g + 16, g % 2 ? _mm512_srli_epi32(second, 4) : second, high1, table);
            high0 = _mm512_srli_epi32(high0, 1);
            high1 = _mm512_srli_epi32(high1, 1);
        }
    }
}

/* Sixteen elements of six bits: four in the nibbles `low`, two at bits 4 and 5 of `high`. */
static inline void put16_of_64(float *out, __m512i low, __m512i high, float scale)
{
    const __m512i four = _mm512_and_epi32(low, _mm512_set1_epi32(15));
    const __m512i six = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x30), high, four, 0xEA); /* (mask & high) | four */
    const __m512i value = _mm512_sub_epi32(six, _mm512_set1_epi32(32));
    _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_cvtepi32_ps(value)));
}

static void decode_q6_k(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q6_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        float scale[16];
        const __m128i scales = _mm_loadu_si128((const __m128i *)(const void *)b->scales);
        put_factors(scale, _mm512_mul_ps(halves(b->d), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales))));
        for (int part = 0; part < 4; part++) { /* 16 of each quarter: part % 2 of half part / 2 */
            const int half = part / 2, i = part % 2 * 16;
            float *to = out + 128 * half + i, *s = scale + 8 * half + part % 2;
            const __m512i low0 = widen16(b->low + 64 * half + i), low1 = widen16(b->low + 64 * half + 32 + i);
            const __m512i high = widen16(b->high + 32 * half + i);
            put16_of_64(to, low0, _mm512_slli_epi32(high, 4), s[0]);
            put16_of_64(to + 32, low1, _mm512_slli_epi32(high, 2), s[2]);
            put16_of_64(to + 64, _mm512_srli_epi32(low0, 4), high, s[4]);
            put16_of_64(to + 96, _mm512_srli_epi32(low1, 4), _mm512_srli_epi32(high, 2), s[6]);
        }
    }
}

es_decode_fn es_decode_avx512(es_dtype type)
{
    static const es_decode_fn table[ES_DTYPES] = {
        [ES_F32] = decode_f32,   [ES_F16] = decode_f16,   [ES_BF16] = decode_bf16, [ES_Q8_0] = decode_q8_0,
        [ES_Q4_0] = decode_q4_0, [ES_Q4_1] = decode_q4_1, [ES_Q5_0] = decode_q5_0, [ES_Q5_1] = decode_q5_1,
        [ES_Q4_K] = decode_q4_k, [ES_Q5_K] = decode_q5_k, [ES_Q6_K] = decode_q6_k,
    };
    return table[type];
}
