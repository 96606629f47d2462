/* decode_avx512.c: decoding with AVX-512, bit-equal to decode_ref.c.
 *
 * Bytes are unpacked as in decode_avx2.c (blocks of 32 fit 256-bit registers), then widened and scaled 16 at a time; bits turn
 * into bytes through mask registers. */
#include <immintrin.h>

#include "device/cpu/blocks.h"
#include "device/cpu/decode.h"

/* 16 signed bytes to floats. */
static inline __m512 widen16(__m128i bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* out[i] = scale · q[i] for 16 signed bytes. */
static inline void put16(float *out, __m128i q, __m512 scale)
{
    _mm512_storeu_ps(out, _mm512_mul_ps(scale, widen16(q)));
}

static inline void put32(float *out, __m256i q, __m512 scale)
{
    put16(out, _mm256_castsi256_si128(q), scale);
    put16(out + 16, _mm256_extracti128_si256(q, 1), scale);
}

/* out[i] = scale · q[i] + offset for 32 signed bytes. */
static inline void put32_affine(float *out, __m256i q, __m512 scale, __m512 offset)
{
    const __m512 first = widen16(_mm256_castsi256_si128(q)), second = widen16(_mm256_extracti128_si256(q, 1));
    _mm512_storeu_ps(out, _mm512_add_ps(_mm512_mul_ps(scale, first), offset));
    _mm512_storeu_ps(out + 16, _mm512_add_ps(_mm512_mul_ps(scale, second), offset));
}

/* es_block_half() in one instruction; F16C knows no denormals-are-zero. */
static inline float half(const uint8_t bytes[2])
{
    return _cvtsh_ss((unsigned short)(bytes[0] | bytes[1] << 8));
}

static inline __m256i load32(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* The nibbles of 16 bytes: the low ones, then the high ones. */
static inline __m256i nibbles(const uint8_t *q)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q);
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    return _mm256_and_si256(both, _mm256_set1_epi8(0x0F));
}

/* 32 bits to 32 bytes, each 0 or 16. */
static inline __m256i fifth_bits(const uint8_t bits[4])
{
    return _mm256_maskz_set1_epi8(es_block_bits(bits), 16);
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
    for (const es_block_q8_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32)
        put32(out, load32(b->q), _mm512_set1_ps(half(b->d)));
}

static void decode_q4_0(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q4_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32)
        put32(out, _mm256_sub_epi8(nibbles(b->q), _mm256_set1_epi8(8)), _mm512_set1_ps(half(b->d)));
}

static void decode_q4_1(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q4_1 *b = blocks; elements > 0; b++, out += 32, elements -= 32)
        put32_affine(out, nibbles(b->q), _mm512_set1_ps(half(b->d)), _mm512_set1_ps(half(b->m)));
}

static void decode_q5_0(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q5_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const __m256i q = _mm256_or_si256(nibbles(b->q), fifth_bits(b->high));
        put32(out, _mm256_sub_epi8(q, _mm256_set1_epi8(16)), _mm512_set1_ps(half(b->d)));
    }
}

static void decode_q5_1(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q5_1 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const __m256i q = _mm256_or_si256(nibbles(b->q), fifth_bits(b->high));
        put32_affine(out, q, _mm512_set1_ps(half(b->d)), _mm512_set1_ps(half(b->m)));
    }
}

/* The scale and the negated minimum of each group of a Q4_K or Q5_K block. */
static inline void group_factors(const uint8_t *d, const uint8_t *m, const uint8_t *packed, float scale[8], float offset[8])
{
    const float super = half(d), least = half(m);
    uint8_t s[8], n[8];
    es_block_k_scales(packed, s, n);
    for (int g = 0; g < 8; g++) {
        scale[g] = super * (float)s[g];
        offset[g] = -(least * (float)n[g]);
    }
}

static void decode_q4_k(const void *blocks, float *out, int64_t elements)
{
    const __m256i nibble = _mm256_set1_epi8(0x0F);
    for (const es_block_q4_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        float scale[8], offset[8];
        group_factors(b->d, b->m, b->scales, scale, offset);
        for (int g = 0; g < 8; g += 2) {
            const __m256i q = load32(b->q + 16 * g);
            put32_affine(out + 32 * g, _mm256_and_si256(q, nibble), _mm512_set1_ps(scale[g]), _mm512_set1_ps(offset[g]));
            put32_affine(out + 32 * g + 32, _mm256_and_si256(_mm256_srli_epi16(q, 4), nibble), _mm512_set1_ps(scale[g + 1]),
                         _mm512_set1_ps(offset[g + 1]));
        }
    }
}

static void decode_q5_k(const void *blocks, float *out, int64_t elements)
{
    const __m256i nibble = _mm256_set1_epi8(0x0F), sixteen = _mm256_set1_epi8(16);
    for (const es_block_q5_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        float scale[8], offset[8];
        group_factors(b->d, b->m, b->scales, scale, offset);
        const __m256i high = load32(b->high);
        for (int g = 0; g < 8; g++) {
            const __m256i bytes = load32(b->q + g / 2 * 32);
            const __m256i low = _mm256_and_si256(g % 2 ? _mm256_srli_epi16(bytes, 4) : bytes, nibble);
            const __mmask32 set = _mm256_test_epi8_mask(high, _mm256_set1_epi8((char)(1 << g)));
            put32_affine(out + 32 * g, _mm256_mask_add_epi8(low, set, low, sixteen), _mm512_set1_ps(scale[g]),
                         _mm512_set1_ps(offset[g]));
        }
    }
}

static void decode_q6_k(const void *blocks, float *out, int64_t elements)
{
    const __m256i nibble = _mm256_set1_epi8(0x0F), two = _mm256_set1_epi8(0x30), middle = _mm256_set1_epi8(32);
    for (const es_block_q6_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        const float d = half(b->d);
        for (int half = 0; half < 2; half++) {
            const __m256i low0 = load32(b->low + 64 * half), low1 = load32(b->low + 64 * half + 32);
            const __m256i high = load32(b->high + 32 * half);
            const __m256i q[4] = {
                _mm256_or_si256(_mm256_and_si256(low0, nibble), _mm256_and_si256(_mm256_slli_epi16(high, 4), two)),
                _mm256_or_si256(_mm256_and_si256(low1, nibble), _mm256_and_si256(_mm256_slli_epi16(high, 2), two)),
                _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low0, 4), nibble), _mm256_and_si256(high, two)),
                _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low1, 4), nibble),
                                _mm256_and_si256(_mm256_srli_epi16(high, 2), two)),
            };
            for (int quarter = 0; quarter < 4; quarter++) {
                const int8_t *s = b->scales + 8 * half + 2 * quarter;
                const __m256i value = _mm256_sub_epi8(q[quarter], middle);
                float *to = out + 128 * half + 32 * quarter;
                put16(to, _mm256_castsi256_si128(value), _mm512_set1_ps(d * (float)s[0]));
                put16(to + 16, _mm256_extracti128_si256(value, 1), _mm512_set1_ps(d * (float)s[1]));
            }
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
