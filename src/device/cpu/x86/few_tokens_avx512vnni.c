/* few_tokens_avx512vnni.c: mode int8 for two to eight tokens, with Q8_0 up to sixteen, straight from stored weights.
 *
 * A step of a few sequences still waits for memory more than for products: as with one token, sixteen rows are turned into the
 * lanes as they are stored, and unpacked there, once for all tokens, whose accumulators stay in registers. Nothing is written
 * out before it is multiplied. The number of tokens is known to the compiler: addresses need no registers. With AMX, too: tiles
 * would hold a few tokens of sixteen, and vectors beside tile instructions take twice their time. The sums and their order are
 * those of product.h. */
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

#include "device/cpu/blocks.h"
#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/turn_avx512.h"

#define UNROLL _Pragma("GCC unroll 16")

/* Sixteen stored rows and the tokens. */
typedef struct few {
    const uint8_t *rows;
    int64_t stride, columns;
    const es_panel *panel;
} few;

/* Fetch as much of the sixteen rows after these as bytes [from, to) of a row are of these. */
INLINE void fetch_next(const few *f, size_t from, size_t to)
{
    es_fetch_ahead(f->rows + ES_PRODUCT_ROWS * f->stride, ES_PRODUCT_ROWS * from, ES_PRODUCT_ROWS * to);
}

/* z + Σ w · x for token t of n, over words [first, first + words) of block b. */
INLINE __m512i dots(const few *f, const __m512i *w, int64_t b, const int first, const int words, const int t, const int n, __m512i z)
{
    const int8_t *x = (const int8_t *)f->panel->data + ((b * 8 + first) * n + t) * 4;
    UNROLL for (int k = 0; k < words; k++) z = _mm512_dpbusd_epi32(z, w[k], es_four_inputs(x + k * n * 4));
    return z;
}

INLINE void store(const __m512 *acc, const int n, float *out)
{
    UNROLL for (int t = 0; t < n; t++) _mm512_storeu_ps(out + t * ES_PRODUCT_ROWS, acc[t]);
}

INLINE void few_q8_0(const few *f, const int n, float *out)
{
    const size_t bytes = sizeof(es_block_q8_0);
    const es_panel *panel = f->panel;
    __m512 acc[ES_FEW_TOKENS];
    UNROLL for (int t = 0; t < n; t++) acc[t] = _mm512_setzero_ps();
    for (int64_t b = 0; b < f->columns / 32; b++) {
        const size_t at = (size_t)b * bytes;
        int32_t start[ES_FEW_TOKENS]; /* VNNI multiplies unsigned by signed: w + 128, and 128 · Σx less */
        __m512i w[8];
        fetch_next(f, at, at + bytes);
        es_turn_rows(f->rows + at + 2, f->stride, 8, w);
        UNROLL for (int k = 0; k < 8; k++) w[k] = _mm512_xor_si512(w[k], _mm512_set1_epi8((char)128));
        const __m512i sums = _mm512_cvtps_epi32(_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), panel->sum + b * n));
        _mm512_storeu_si512(start, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sums, 7)));
        const __m512 scale = es_low_halves(es_four_bytes(f->rows + at, f->stride));
        UNROLL for (int t = 0; t < n; t++) acc[t] =
            es_add_sum(acc[t], scale, panel->scale[b * n + t],
                    _mm512_cvtepi32_ps(dots(f, w, b, 0, 8, t, n, _mm512_set1_epi32(start[t]))));
    }
    store(acc, n, out);
}

/* Both groups of 32 that 32 bytes of a row hold in their nibbles: w[0 … 7] of the first, w[8 … 15] of the second. Without fifth
 * bits the second ones stay where they are, sixteen times as much. Bits 0 and 1 of a byte of `high` are the fifth ones. */
INLINE void k_values(const few *f, size_t at, const __m512i *high, const bool fifth, __m512i w[16])
{
    __m512i packed[8];
    es_turn_rows(f->rows + at, f->stride, 8, packed);
    UNROLL for (int k = 0; k < 8; k++)
    {
        if (fifth) {
            w[k] = es_bits_of_bytes(es_join_nibbles(packed[k], _mm512_slli_epi16(high[k], 4)), 31);
            w[8 + k] = es_bits_of_bytes(
                es_join_nibbles(_mm512_srli_epi16(packed[k], 4), _mm512_slli_epi16(high[k], 3)), 31);
        } else {
            w[k] = es_bits_of_bytes(packed[k], 15), w[8 + k] = es_bits_of_bytes(packed[k], 0xF0);
        }
    }
}

INLINE void few_k(const few *f, const int n, const bool fifth, const size_t bytes, float *out)
{
    const es_panel *panel = f->panel;
    __m512 acc[ES_FEW_TOKENS];
    UNROLL for (int t = 0; t < n; t++) acc[t] = _mm512_setzero_ps();
    for (int64_t i = 0; i < f->columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        __m512 scale[8], offset[8];
        __m512i high[8];
        const es_k_head k = es_k_head_of(f->rows + at, f->stride);
        UNROLL for (int g = 0; g < 8; g++) scale[g] = es_k_scale(&k, g), offset[g] = es_k_offset(&k, g);
        if (fifth) es_turn_rows(f->rows + at + 16, f->stride, 8, high);
        for (int j = 0; j < 4; j++) {
            const int64_t b = i * 8 + 2 * j;
            __m512i w[16];
            fetch_next(f, at + (size_t)j * bytes / 4, at + (size_t)(j + 1) * bytes / 4);
            k_values(f, at + (fifth ? 48 : 16) + (size_t)(32 * j), high, fifth, w);
            for (int q = 0; q < 8 && fifth; q++) high[q] = _mm512_srli_epi16(high[q], 2);
            UNROLL for (int t = 0; t < n; t++) UNROLL for (int g = 0; g < 2; g++)
            {
                const float x_scale = panel->scale[(b + g) * n + t];
                __m512i sum = dots(f, w + 8 * g, b + g, 0, 8, t, n, _mm512_setzero_si512());
                if (g && !fifth) sum = _mm512_srai_epi32(sum, 4);
                acc[t] = es_add_sum(acc[t], scale[2 * j + g], x_scale, _mm512_cvtepi32_ps(sum));
                acc[t] = es_add_sum(acc[t], offset[2 * j + g], x_scale, _mm512_set1_ps(panel->sum[(b + g) * n + t]));
            }
        }
    }
    store(acc, n, out);
}

/* Integers of Q6_K lie around 32: minus 32 · Σx of the sixteen halves of the 8 blocks from b on, for each token. */
INLINE void start_q6(const few *f, int64_t b, const int n, int32_t start[16][ES_FEW_TOKENS])
{
    const int8_t *x = (const int8_t *)f->panel->data + b * 8 * n * 4;
    const __mmask8 some = (__mmask8)((1u << n) - 1);
    for (int h = 0; h < 16; h++) {
        __m256i sum = _mm256_setzero_si256();
        UNROLL for (int k = 0; k < 4; k++, x += n * 4) sum =
            _mm256_dpbusd_epi32(sum, _mm256_set1_epi8(32), _mm256_maskz_loadu_epi32(some, x));
        _mm256_storeu_si256((__m256i *)start[h], _mm256_sub_epi32(_mm256_setzero_si256(), sum));
    }
}

INLINE void few_q6_k(const few *f, const int n, float *out)
{
    const size_t bytes = sizeof(es_block_q6_k);
    const es_panel *panel = f->panel;
    __m512 acc[ES_FEW_TOKENS];
    UNROLL for (int t = 0; t < n; t++) acc[t] = _mm512_setzero_ps();
    for (int64_t i = 0; i < f->columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        int32_t start[16][ES_FEW_TOKENS];
        __m512i scales[4];
        const __m512 d = es_high_halves(es_four_bytes(f->rows + at + bytes - 4, f->stride)); /* no more bytes need be there */
        es_turn_rows(f->rows + at + offsetof(es_block_q6_k, scales), f->stride, 4, scales);
        start_q6(f, i * 8, n, start);
        for (int k = 0; k < 2; k++) { /* a half of 128: four parts */
            __m512i low[2][8], high[8];
            es_turn_rows(f->rows + at + 64 * k, f->stride, 8, low[0]);
            es_turn_rows(f->rows + at + 64 * k + 32, f->stride, 8, low[1]);
            es_turn_rows(f->rows + at + 128 + 32 * k, f->stride, 8, high);
            UNROLL for (int part = 0; part < 4; part++)
            {
                const int64_t b = i * 8 + 4 * k + part;
                __m512i w[8];
                fetch_next(f, at + (size_t)(4 * k + part) * bytes / 8, at + (size_t)(4 * k + part + 1) * bytes / 8);
                UNROLL for (int q = 0; q < 8; q++) w[q] = es_q6_values(low[part % 2][q], high[q], part);
                UNROLL for (int h = 0; h < 2; h++)
                {
                    const __m512 scale = _mm512_mul_ps(d, es_signed_byte(scales[2 * k + part / 2], part % 2 * 2 + h));
                    UNROLL for (int t = 0; t < n; t++)
                    {
                        const __m512i from = _mm512_set1_epi32(start[8 * k + 2 * part + h][t]);
                        acc[t] = es_add_sum(acc[t], scale, panel->scale[b * n + t],
                                         _mm512_cvtepi32_ps(dots(f, w + 4 * h, b, 4 * h, 4, t, n, from)));
                    }
                }
            }
        }
    }
    store(acc, n, out);
}

INLINE void few_q4_k(const few *f, const int n, float *out)
{
    few_k(f, n, false, sizeof(es_block_q4_k), out);
}

INLINE void few_q5_k(const few *f, const int n, float *out)
{
    few_k(f, n, true, sizeof(es_block_q5_k), out);
}

/* One function for each number of tokens. */
#define FEW_OF(name, n)                                   \
    static void name##_##n(const few *f, float *out)      \
    {                                                     \
        few_##name(f, n, out);                            \
    }
#define FEW(name, ...)                                                                                                        \
    FEW_OF(name, 2)                                                                                                           \
    FEW_OF(name, 3)                                                                                                           \
    FEW_OF(name, 4)                                                                                                           \
    FEW_OF(name, 5)                                                                                                           \
    FEW_OF(name, 6)                                                                                                           \
    FEW_OF(name, 7)                                                                                                           \
    FEW_OF(name, 8)                                                                                                           \
    static void some_##name(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)           \
    {                                                                                                                         \
        static void (*const of[])(const few *, float *) = {name##_2, name##_3, name##_4, name##_5, name##_6, name##_7,        \
                                                           name##_8, __VA_ARGS__};                                            \
        const few f = {rows, (int64_t)row_bytes, columns, panel};                                                             \
        of[panel->tokens - 2](&f, out);                                                                                       \
    }
/* Accumulators of more than eight leave no registers for what K-quants unpack. */
FEW_OF(q8_0, 9)
FEW_OF(q8_0, 10)
FEW_OF(q8_0, 11)
FEW_OF(q8_0, 12)
FEW_OF(q8_0, 13)
FEW_OF(q8_0, 14)
FEW_OF(q8_0, 15)
FEW_OF(q8_0, 16)
FEW(q8_0, q8_0_9, q8_0_10, q8_0_11, q8_0_12, q8_0_13, q8_0_14, q8_0_15, q8_0_16)
FEW(q4_k, NULL)
FEW(q5_k, NULL)
FEW(q6_k, NULL)

void es_few_tokens_avx512(es_products *products)
{
    products->few[ES_Q8_0] = some_q8_0;
    products->few[ES_Q4_K] = some_q4_k;
    products->few[ES_Q5_K] = some_q5_k;
    products->few[ES_Q6_K] = some_q6_k;
    products->most_few[ES_Q8_0] = 16;
    products->most_few[ES_Q4_K] = products->most_few[ES_Q5_K] = products->most_few[ES_Q6_K] = 8;
}
