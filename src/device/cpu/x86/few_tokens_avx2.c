/* few_tokens_avx2.c: mode int8 for two to sixteen tokens (two or three with K-quants) with AVX2 alone, straight from stored weights.
 *
 * For a few tokens unpacking weights for many takes as long as the products, in a pass of its own. So, as with one token, eight rows are turned
 * into the lanes as they are stored and unpacked there, a block of 32 inputs at a time, and then serve all tokens from a
 * kilobyte of stack; up to four tokens' sums are in registers together. The sums and their order are product.h's. Integers of
 * Q8_0 below zero complement their inputs (several_tokens_avx2.c says how); others around zero are moved up until none is
 * below it, and what that adds comes off again. All exact. */
#include <stdbool.h>
#include <stddef.h>

#include "device/cpu/x86/eight_rows_avx2.h"

enum { GROUP = 4 }; /* tokens whose sums are in registers together */

/* Thirty-two integers of eight rows, or sixteen of them, and what belongs to them. */
typedef struct part {
    const __m256i *size, *below; /* [words]; below: all bits where a weight is below zero, or NULL: none is */
    const int8_t *x;             /* of the first token; words lie `tokens` words apart */
    const float *x_scale, *x_sum;
    const int32_t *start;        /* [tokens] what the sums begin with, or NULL: `behind` */
    __m256i behind;
    __m256 scale;
    const __m256 *offset;        /* times Σx, or NULL */
} part;

/* Adds `words` words to tokens [t, t + count) of n; 16 bits hold `run` pairs of products. */
INLINE void add_some(const part *p, int64_t n, int64_t t, const int words, const int run, const int count, __m256 *acc)
{
    __m256i sum[GROUP], pairs[GROUP];
    UNROLL for (int j = 0; j < words; j++)
    {
        UNROLL for (int i = 0; i < count; i++)
        {
            __m256i four = es_four_inputs(p->x + (j * n + t + i) * 4);
            if (p->below) four = _mm256_xor_si256(four, p->below[j]);
            const __m256i products = _mm256_maddubs_epi16(p->size[j], four);
            pairs[i] = j % run == 0 ? products : es_in_order(_mm256_add_epi16(pairs[i], products));
            if (j % run < run - 1 && j < words - 1) continue;
            sum[i] = j < run ? widen(pairs[i]) : es_in_order(_mm256_add_epi32(sum[i], widen(pairs[i])));
        }
    }
    UNROLL for (int i = 0; i < count; i++)
    {
        const __m256i begin = p->start ? _mm256_set1_epi32(p->start[t + i]) : p->behind;
        const __m256 whole = _mm256_cvtepi32_ps(_mm256_add_epi32(sum[i], begin));
        acc[t + i] = add_sum(acc[t + i], p->scale, p->x_scale[t + i], whole);
        if (p->offset) acc[t + i] = add_sum(acc[t + i], *p->offset, p->x_scale[t + i], _mm256_set1_ps(p->x_sum[t + i]));
    }
}

INLINE void add_part(const part *p, int64_t n, const int words, const int run, __m256 *acc)
{
    int64_t t = 0;
    for (; t + GROUP <= n; t += GROUP) add_some(p, n, t, words, run, GROUP, acc);
    if (n - t == 3) add_some(p, n, t, words, run, 3, acc);
    if (n - t == 2) add_some(p, n, t, words, run, 2, acc);
    if (n - t == 1) add_some(p, n, t, words, run, 1, acc);
}

/* The inputs of block b. */
INLINE part part_of(const eight *s, int64_t b, const __m256i *size)
{
    const es_panel *panel = s->panel;
    const int64_t n = panel->tokens;
    return (part){.size = size, .x = (const int8_t *)panel->data + b * ES_PRODUCT_BLOCK * n, .x_scale = panel->scale + b * n,
                  .x_sum = panel->sum + b * n, .behind = _mm256_setzero_si256()};
}

INLINE void few_q8_0(const eight *s, int64_t columns, __m256 *acc)
{
    const size_t bytes = sizeof(es_block_q8_0);
    for (int64_t b = 0; b < columns / 32; b++) {
        const size_t at = (size_t)b * bytes;
        fetch_later(s, at, at + bytes);
        __m256i w[8], size[8], below[8], pairs = _mm256_setzero_si256();
        four_words(s, at + 2, w);
        four_words(s, at + 18, w + 4);
        UNROLL for (int j = 0; j < 8; j++) pairs = _mm256_add_epi16(pairs, es_part_signs(w[j], &size[j], &below[j]));
        part p = part_of(s, b, size);
        p.below = below;
        p.behind = widen(pairs);
        p.scale = es_low_halves(es_first_word(s->rows + at, s->row_bytes));
        add_part(&p, s->panel->tokens, 8, 1, acc);
    }
}

/* Blocks of 32 in four or five bits, with or without an offset. */
INLINE void few_nibbles(const eight *s, int64_t columns, const bool offsets, const bool fifth, __m256 *acc)
{
    const size_t high = offsets ? 4 : 2, nibbles = high + (fifth ? 4 : 0), bytes = nibbles + 16;
    const int64_t n = s->panel->tokens;
    for (int64_t b = 0; b < columns / 32; b++) {
        const size_t at = (size_t)b * bytes;
        int32_t start[ES_PANEL_TOKENS];
        __m256i w[8];
        fetch_later(s, at, at + bytes);
        words_of_nibbles(s, at + nibbles, at + high, fifth, w);
        const __m256i factors = es_first_word(s->rows + at, s->row_bytes);
        const __m256 offset = es_high_halves(factors);
        part p = part_of(s, b, w);
        p.scale = es_low_halves(factors);
        p.offset = offsets ? &offset : NULL;
        p.start = offsets ? NULL : start;
        for (int64_t t = 0; t < n && !offsets; t++) start[t] = (fifth ? -16 : -8) * (int32_t)p.x_sum[t];
        add_part(&p, n, 8, fifth ? 4 : 8, acc);
    }
}

INLINE void few_q4_0(const eight *s, int64_t columns, __m256 *acc)
{
    few_nibbles(s, columns, false, false, acc);
}

INLINE void few_q4_1(const eight *s, int64_t columns, __m256 *acc)
{
    few_nibbles(s, columns, true, false, acc);
}

INLINE void few_q5_0(const eight *s, int64_t columns, __m256 *acc)
{
    few_nibbles(s, columns, false, true, acc);
}

INLINE void few_q5_1(const eight *s, int64_t columns, __m256 *acc)
{
    few_nibbles(s, columns, true, true, acc);
}

INLINE void few_k(const eight *s, int64_t columns, const bool fifth, const size_t bytes, __m256 *acc)
{
    for (int64_t i = 0; i < columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        __m256i head[4], high[8];
        four_words(s, at, head);
        const __m256 d = es_low_halves(head[0]), m = es_minus(es_high_halves(head[0]));
        if (fifth) four_words(s, at + 16, high), four_words(s, at + 32, high + 4);
        UNROLL for (int j = 0; j < 4; j++)
        {
            __m256i w[2][8];
            fetch_later(s, at + (size_t)j * bytes / 4, at + (size_t)(j + 1) * bytes / 4);
            words_of_k(s, at, j, high, fifth, w);
            for (int g = 0; g < 2; g++) {
                part p = part_of(s, i * 8 + 2 * j + g, w[g]);
                const __m256 offset = g ? es_k_factor(m, head + 1, 2 * j + 1, true) : es_k_factor(m, head + 1, 2 * j, true);
                p.scale = g ? es_k_factor(d, head + 1, 2 * j + 1, false) : es_k_factor(d, head + 1, 2 * j, false);
                p.offset = &offset;
                add_part(&p, s->panel->tokens, 8, fifth ? 4 : 8, acc);
            }
        }
    }
}

INLINE void few_q4_k(const eight *s, int64_t columns, __m256 *acc)
{
    few_k(s, columns, false, sizeof(es_block_q4_k), acc);
}

INLINE void few_q5_k(const eight *s, int64_t columns, __m256 *acc)
{
    few_k(s, columns, true, sizeof(es_block_q5_k), acc);
}

#define FEW(name)                                                                                                             \
    static void some_##name(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)           \
    {                                                                                                                         \
        for (int h = 0; h < 2; h++) {                                                                                         \
            const eight s = eight_rows(rows, row_bytes, h, panel);                                                            \
            __m256 acc[ES_PANEL_TOKENS];                                                                                      \
            for (int32_t t = 0; t < panel->tokens; t++) acc[t] = _mm256_setzero_ps();                                         \
            few_##name(&s, columns, acc);                                                                                     \
            for (int32_t t = 0; t < panel->tokens; t++) _mm256_storeu_ps(out + t * ES_PRODUCT_ROWS + EIGHT * h, acc[t]);      \
        }                                                                                                                     \
    }
FEW(q8_0)
FEW(q4_0)
FEW(q4_1)
FEW(q5_0)
FEW(q5_1)
FEW(q4_k)
FEW(q5_k)

void es_few_tokens_avx2(es_products *products)
{
    products->few[ES_Q8_0] = some_q8_0;
    products->few[ES_Q4_0] = some_q4_0;
    products->few[ES_Q4_1] = some_q4_1;
    products->few[ES_Q5_0] = some_q5_0;
    products->few[ES_Q5_1] = some_q5_1;
    products->few[ES_Q4_K] = some_q4_k;
    products->few[ES_Q5_K] = some_q5_k;
    for (int type = ES_Q8_0; type <= ES_Q5_1; type++) products->most_few[type] = ES_PANEL_TOKENS;
    products->most_few[ES_Q4_K] = products->most_few[ES_Q5_K] = 3; /* more gain by being unpacked once */
}
