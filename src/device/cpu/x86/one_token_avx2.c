/* one_token_avx2.c: the products of modes bf16 and int8 for a single token with AVX2 alone, straight from stored weights.
 *
 * Decoding reads every weight once, so nothing may come between memory and the products. Eight rows at a time are brought into
 * the lanes of a register as they are stored, four or five bits to a weight or eight, and unpacked there: half as much has to
 * be turned, and no sum crosses lanes. The next eight are fetched meanwhile. The sums and their order are product.h's;
 * integers that lie around zero are moved up until none is below it, and what that adds comes off again, all exact. */
#include <stdbool.h>

#include "device/cpu/x86/eight_rows_avx2.h"

/* Inputs 4j to 4j + 3 of block b, in every lane. */
INLINE __m256i inputs(const eight *s, int64_t b, int j)
{
    return es_four_inputs((const int8_t *)s->panel->data + b * ES_PRODUCT_BLOCK + 4 * j);
}

/* Takes zero · Σx off the block's sum. */
INLINE __m256i less_zero(const eight *s, int64_t b, int zero, __m256i sum)
{
    return _mm256_sub_epi32(sum, _mm256_set1_epi32(zero * (int32_t)s->panel->sum[b]));
}

/* Sum of a block whose integers, none below zero, are w[0 … 7]; 16 bits hold `run` pairs of products. */
INLINE __m256i dots(const eight *s, int64_t b, const __m256i w[8], const int run)
{
    __m256i pairs = _mm256_setzero_si256(), sum = _mm256_setzero_si256();
    UNROLL for (int j = 0; j < 8; j++)
    {
        const __m256i products = _mm256_maddubs_epi16(w[j], inputs(s, b, j));
        pairs = j % run == 0 ? products : _mm256_add_epi16(pairs, products);
        if (j % run == run - 1) sum = j < run ? widen(pairs) : _mm256_add_epi32(sum, widen(pairs));
    }
    return sum;
}

INLINE __m256 eight_q8_0(const eight *s, int64_t columns)
{
    const size_t bytes = sizeof(es_block_q8_0);
    __m256 acc = _mm256_setzero_ps();
    for (int64_t b = 0; b < columns / 32; b++) {
        const size_t at = (size_t)b * bytes;
        fetch_later(s, at, at + bytes);
        __m256i w[8], sum = _mm256_setzero_si256();
        four_words(s, at + 2, w);
        four_words(s, at + 18, w + 4);
        UNROLL for (int j = 0; j < 8; j++) /* |w| ≤ 128 times ±x with |x| ≤ 127: a pair makes at most 32,512 */
            sum = _mm256_add_epi32(
                sum, widen(_mm256_maddubs_epi16(_mm256_abs_epi8(w[j]), _mm256_sign_epi8(inputs(s, b, j), w[j]))));
        acc = add_sum(acc, es_low_halves(es_first_word(s->rows + at, s->row_bytes)), s->panel->scale[b],
                      _mm256_cvtepi32_ps(sum));
    }
    return acc;
}

/* Blocks of 32 in four or five bits: a half for the scale, with `offsets` another one, with `fifth` a word of bits, then
 * nibbles. */
INLINE __m256 eight_nibbles(const eight *s, int64_t columns, const bool offsets, const bool fifth)
{
    const size_t high = offsets ? 4 : 2, nibbles = high + (fifth ? 4 : 0), bytes = nibbles + 16;
    __m256 acc = _mm256_setzero_ps();
    for (int64_t b = 0; b < columns / 32; b++) {
        const size_t at = (size_t)b * bytes;
        const float x_scale = s->panel->scale[b];
        fetch_later(s, at, at + bytes);
        __m256i w[8];
        words_of_nibbles(s, at + nibbles, at + high, fifth, w);
        const __m256i factors = es_first_word(s->rows + at, s->row_bytes);
        __m256i sum = dots(s, b, w, fifth ? 4 : 8);
        if (!offsets) sum = less_zero(s, b, fifth ? 16 : 8, sum);
        acc = add_sum(acc, es_low_halves(factors), x_scale, _mm256_cvtepi32_ps(sum));
        if (offsets) acc = add_sum(acc, es_high_halves(factors), x_scale, _mm256_set1_ps(s->panel->sum[b]));
    }
    return acc;
}

INLINE __m256 eight_q4_0(const eight *s, int64_t columns)
{
    return eight_nibbles(s, columns, false, false);
}

INLINE __m256 eight_q4_1(const eight *s, int64_t columns)
{
    return eight_nibbles(s, columns, true, false);
}

INLINE __m256 eight_q5_0(const eight *s, int64_t columns)
{
    return eight_nibbles(s, columns, false, true);
}

INLINE __m256 eight_q5_1(const eight *s, int64_t columns)
{
    return eight_nibbles(s, columns, true, true);
}

/* 32 bytes hold two groups of 32 in their nibbles; Q5_K has a bit more for each, 32 bytes before. */
INLINE __m256 eight_k(const eight *s, int64_t columns, const bool fifth, const size_t bytes)
{
    const es_panel *panel = s->panel;
    __m256 acc = _mm256_setzero_ps();
    for (int64_t i = 0; i < columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        __m256i head[4], high[8];
        four_words(s, at, head);
        const __m256 d = es_low_halves(head[0]), m = es_minus(es_high_halves(head[0]));
        if (fifth) four_words(s, at + 16, high), four_words(s, at + 32, high + 4);
        UNROLL for (int j = 0; j < 4; j++)
        {
            const int64_t b = i * 8 + 2 * j;
            __m256i w[2][8];
            fetch_later(s, at + (size_t)j * bytes / 4, at + (size_t)(j + 1) * bytes / 4);
            words_of_k(s, at, j, high, fifth, w);
            UNROLL for (int g = 0; g < 2; g++)
            {
                const __m256 sum = _mm256_cvtepi32_ps(dots(s, b + g, w[g], fifth ? 4 : 8));
                acc = add_sum(acc, es_k_factor(d, head + 1, 2 * j + g, false), panel->scale[b + g], sum);
                acc = add_sum(acc, es_k_factor(m, head + 1, 2 * j + g, true), panel->scale[b + g],
                              _mm256_set1_ps(panel->sum[b + g]));
            }
        }
    }
    return acc;
}

INLINE __m256 eight_q4_k(const eight *s, int64_t columns)
{
    return eight_k(s, columns, false, sizeof(es_block_q4_k));
}

INLINE __m256 eight_q5_k(const eight *s, int64_t columns)
{
    return eight_k(s, columns, true, sizeof(es_block_q5_k));
}

/* 32 · Σx of each half of a block, both in one register. */
INLINE __m256i thirty_two_inputs(const eight *s, int64_t b)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)((const int8_t *)s->panel->data + b * ES_PRODUCT_BLOCK));
    __m256i sum = widen(_mm256_maddubs_epi16(_mm256_set1_epi8(32), x));
    sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4E));
    return _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xB1));
}

/* 32 of a row's 256, two halves of 16 with a scale each: four bits in `low`, two in `high`. Scale n of `scales` is byte n. */
INLINE __m256 add_q6_part(__m256 acc, const eight *s, const __m256i low[8], const __m256i high[8], const int part, __m256 d,
                          __m256i scales, int64_t b)
{
    const __m256i zero = thirty_two_inputs(s, b);
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i sum = half ? _mm256_permute4x64_epi64(zero, 0xFF) : _mm256_permute4x64_epi64(zero, 0x00);
        __m256i pairs = _mm256_setzero_si256();
        sum = _mm256_sub_epi32(_mm256_setzero_si256(), sum);
        UNROLL for (int q = 4 * half; q < 4 * half + 4; q++)
        {
            /* at most 16,002: two fit */
            const __m256i products = _mm256_maddubs_epi16(word_of_q6(low[q], high[q], part), inputs(s, b, q));
            if (q % 2 == 0)
                pairs = products;
            else
                sum = _mm256_add_epi32(sum, widen(_mm256_add_epi16(pairs, products)));
        }
        const __m256 scale = _mm256_mul_ps(d, es_signed_byte(scales, part % 2 * 2 + half));
        acc = add_sum(acc, scale, s->panel->scale[b], _mm256_cvtepi32_ps(sum));
    }
    return acc;
}

INLINE __m256 eight_q6_k(const eight *s, int64_t columns)
{
    const size_t bytes = sizeof(es_block_q6_k);
    __m256 acc = _mm256_setzero_ps();
    for (int64_t i = 0; i < columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        __m256i scales[4], last[4];
        four_words(s, at + 192, scales);
        four_words(s, at + 194, last); /* the last word ends with the block */
        const __m256 d = es_high_halves(last[3]);
        UNROLL for (int k = 0; k < 2; k++) /* a half of 128: four parts */
        {
            __m256i low[2][8], high[8];
            fetch_later(s, at + (size_t)k * bytes / 2, at + (size_t)(k + 1) * bytes / 2);
            UNROLL for (int p = 0; p < 4; p++) four_words(s, at + (size_t)(64 * k + 16 * p), low[p / 2] + p % 2 * 4);
            four_words(s, at + 128 + (size_t)(32 * k), high);
            four_words(s, at + 144 + (size_t)(32 * k), high + 4);
            UNROLL for (int part = 0; part < 4; part++) acc =
                add_q6_part(acc, s, low[part % 2], high, part, d, scales[2 * k + part / 2], i * 8 + 4 * k + part);
        }
    }
    return acc;
}

#define ONE(name)                                                                                                             \
    static void one_##name(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)            \
    {                                                                                                                         \
        for (int h = 0; h < 2; h++) {                                                                                         \
            const eight s = eight_rows(rows, row_bytes, h, panel);                                                            \
            _mm256_storeu_ps(out + EIGHT * h, eight_##name(&s, columns));                                                     \
        }                                                                                                                     \
    }
ONE(q8_0)
ONE(q4_0)
ONE(q4_1)
ONE(q5_0)
ONE(q5_1)
ONE(q4_k)
ONE(q5_k)
ONE(q6_k)

void es_one_token_avx2(es_products *products)
{
    products->one[ES_Q8_0] = one_q8_0;
    products->one[ES_Q4_0] = one_q4_0;
    products->one[ES_Q4_1] = one_q4_1;
    products->one[ES_Q5_0] = one_q5_0;
    products->one[ES_Q5_1] = one_q5_1;
    products->one[ES_Q4_K] = one_q4_k;
    products->one[ES_Q5_K] = one_q5_k;
    products->one[ES_Q6_K] = one_q6_k;
}

/* Rows of bfloat16 lie as they are multiplied; there are always sixteen. */
void es_one_token_bf16_avx2(const es_bf16_rows *rows, const es_panel *panel, float *out)
{
    const int64_t stride = rows->stride * 2;
    for (int h = 0; h < 2; h++) {
        const uint8_t *at = (const uint8_t *)(rows->w + EIGHT * h * rows->stride);
        const uint16_t *x = panel->data;
        __m256 c = _mm256_setzero_ps();
        for (int64_t b = 0; b < rows->blocks; b++, at += 64, x += 32) {
            es_fetch((const uint8_t *)(rows->w + EIGHT * (h + 1) * rows->stride), (size_t)b * 512, (size_t)(b + 1) * 512);
            __m256 e = _mm256_setzero_ps(), o = _mm256_setzero_ps();
            UNROLL for (int j = 0; j < 16; j += 4)
            {
                __m256i w[4];
                es_turn_eight(at + 4 * j, stride, w, 1);
                UNROLL for (int i = 0; i < 4; i++)
                {
                    const __m256i pair = es_four_inputs((const int8_t *)(x + 2 * (j + i)));
                    e = _mm256_fmadd_ps(es_even_part(w[i]), es_even_part(pair), e);
                    o = _mm256_fmadd_ps(es_odd_part(w[i]), es_odd_part(pair), o);
                }
            }
            c = _mm256_add_ps(c, _mm256_add_ps(e, o));
        }
        _mm256_storeu_ps(out + EIGHT * h, c);
    }
}
