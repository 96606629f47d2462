/* eight_rows_avx2.h: eight rows of stored weights, brought into the lanes of a register as they are stored and unpacked there: half as
 * much has to be turned, and no sum crosses lanes. For the kernels that read weights once: one_token_avx2.c, few_tokens_avx2.c. */
#ifndef ES_CPU_X86_EIGHT_ROWS_AVX2_H
#define ES_CPU_X86_EIGHT_ROWS_AVX2_H

#include "device/cpu/blocks.h"
#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/turn_avx2.h"

#define UNROLL _Pragma("GCC unroll 16")

enum { EIGHT = 8 };

/* Eight rows of a matrix, and where the rows begin that are fetched meanwhile: the next eight. */
typedef struct eight {
    const uint8_t *rows, *ahead;
    int64_t row_bytes;
    const es_panel *panel;
} eight;

INLINE eight eight_rows(const void *rows, size_t row_bytes, int h, const es_panel *panel)
{
    const uint8_t *first = (const uint8_t *)rows + (size_t)(EIGHT * h) * row_bytes;
    return (eight){first, first + EIGHT * row_bytes, (int64_t)row_bytes, panel};
}

/* Fetch as much of the rows that come later as bytes [from, to) of a row are of these eight. */
INLINE void fetch_later(const eight *s, size_t from, size_t to)
{
    es_fetch(s->ahead, EIGHT * from, EIGHT * to);
}

/* words[j] = bytes [at + 4j, at + 4j + 4) of the eight rows. */
INLINE void four_words(const eight *s, size_t at, __m256i words[4])
{
    es_turn_eight(s->rows + at, s->row_bytes, words, 1);
}

/* Pairs of 16 bits added up to words. */
INLINE __m256i widen(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

INLINE __m256 add_sum(__m256 acc, __m256 scale, float x_scale, __m256 sum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_set1_ps(x_scale)), sum, acc);
}

INLINE __m256i low_nibbles(__m256i w)
{
    return _mm256_and_si256(w, _mm256_set1_epi8(15));
}

INLINE __m256i high_nibbles(__m256i w)
{
    return low_nibbles(_mm256_srli_epi16(w, 4));
}

/* Bits 4j to 4j + 3 of eight words as 16 or nothing, each in a byte. */
INLINE __m256i fifth_bits(__m256i words, const int j)
{
    const int place = j / 2, upper = j % 2 * 4;
    const __m256i spread =
        _mm256_add_epi8(_mm256_set1_epi8((char)place),
                        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C));
    const __m256i bit = _mm256_set1_epi32(upper ? (int)0x80402010 : 0x08040201);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(words, spread), bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

/* The 32 integers of each row's block in four bits, or five with `fifth`, whose word of bits is at `high`; none is below zero. */
INLINE void words_of_nibbles(const eight *s, size_t nibbles, size_t high, const bool fifth, __m256i w[8])
{
    __m256i packed[4];
    four_words(s, nibbles, packed);
    UNROLL for (int j = 0; j < 4; j++) w[j] = low_nibbles(packed[j]), w[4 + j] = high_nibbles(packed[j]);
    if (!fifth) return;
    const __m256i bits = es_first_word(s->rows + high, s->row_bytes);
    UNROLL for (int j = 0; j < 8; j++) w[j] = _mm256_or_si256(w[j], fifth_bits(bits, j));
}

/* Groups 2j and 2j + 1 of a block of Q4_K or, with `fifth`, Q5_K, whose bits are `high`: w[g] is a group's 32 integers. */
INLINE void words_of_k(const eight *s, size_t at, const int j, const __m256i high[8], const bool fifth, __m256i w[2][8])
{
    const __m256i bit = _mm256_set1_epi8(16);
    __m256i packed[8];
    four_words(s, at + (fifth ? 48 : 16) + (size_t)(32 * j), packed);
    four_words(s, at + (fifth ? 64 : 32) + (size_t)(32 * j), packed + 4);
    UNROLL for (int q = 0; q < 8; q++)
    {
        w[0][q] = low_nibbles(packed[q]), w[1][q] = high_nibbles(packed[q]);
        if (!fifth) continue;
        const __m256i up = j < 2 ? _mm256_slli_epi16(high[q], 4 - 2 * j) : _mm256_srli_epi16(high[q], 2 * j - 4);
        const __m256i next = j < 2 ? _mm256_slli_epi16(high[q], 3 - 2 * j) : _mm256_srli_epi16(high[q], 2 * j - 3);
        w[0][q] = _mm256_or_si256(w[0][q], _mm256_and_si256(up, bit));
        w[1][q] = _mm256_or_si256(w[1][q], _mm256_and_si256(next, bit));
    }
}

/* Word q of a part of Q6_K: four bits in `low`, two in `high`; integers around 32. */
INLINE __m256i word_of_q6(__m256i low, __m256i high, const int part)
{
    const int low_shift = part / 2 * 4, high_shift = part * 2;
    const __m256i moved = high_shift <= 4 ? _mm256_slli_epi16(high, 4 - high_shift) : _mm256_srli_epi16(high, 2);
    return _mm256_or_si256(low_nibbles(_mm256_srli_epi16(low, low_shift)), _mm256_and_si256(moved, _mm256_set1_epi8(48)));
}

#endif
