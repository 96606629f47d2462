/* several_tokens_avx2.c: the products of modes bf16 and int8 for more than one token, with AVX2 alone.
 *
 * Sixteen weight rows stand in the lanes of two registers, so that no sum ever crosses lanes: four neighbouring inputs (int8)
 * or one (bf16) of every row are brought into a lane, once per block of weights, and then serve all tokens; a token's inputs
 * are broadcast from the panel. Weights are turned a chunk at a time into a few kilobytes of stack that stay in the
 * first-level cache, and the accumulators of all tokens pass through `out` between chunks. The sums and their order are
 * product.h's.
 *
 * Integers: AVX2 multiplies unsigned bytes by signed ones and adds pairs in 16 bits, where they would saturate. Where a weight is
 * below zero its input is complemented: w · x = |w| · (−x − 1) + |w|, and what was added behind is the same for all tokens, so that
 * it is summed up once. (An instruction that negates by sign waits for the ports of multiplications.) How many pairs fit 16 bits before they have to be widened depends
 * on how large the weights of a type can be: one of Q8_0, four of Q6_K, eight where there are four bits. */
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/turn_avx2.h"

/* Accumulators are registers only where the loops over them are unrolled. */
#define UNROLL _Pragma("GCC unroll 16")

enum { INT8_CHUNK = 16, BF16_CHUNK = 3 }; /* blocks of 32 inputs whose weights are turned at once: 16 KiB, 6 KiB */
enum { GROUP = 4, BF16_GROUP = 3 };       /* tokens whose accumulators are in registers together */
/* Their inputs are widened at once: 18 KiB, and no group of three is short. */
enum { BF16_PANELS = 3, BF16_TOKENS = BF16_PANELS * ES_PANEL_TOKENS };

/* Blocks [from, to) of the weights, turned: their magnitudes and, where they have signs, all bits of those below zero, and
 * the magnitudes of these summed up, for each row of each half of a block. */
typedef struct int8_group {
    const es_int8_rows *rows;
    const es_panel *panel;
    const __m256i *size, *below, *behind;
    int64_t from, to;
    float *out;
} int8_group;

/* What a type's integers are like: known to the compiler. */
typedef struct integers {
    bool negative; /* some are below zero */
    int run;       /* pairs of products that 16 bits hold */
    int halves;
    bool offsets;
} integers;

/* Sums of `words` words of 16 rows and `count` tokens whose inputs lie n words apart. */
INLINE void dots(const __m256i *size, const __m256i *below, const __m256i *behind, const int8_t *x, const int32_t n, const int words,
                 const int count, const integers k, __m256i sum[GROUP][2])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs[GROUP][2];
    UNROLL for (int j = 0; j < words; j++)
    {
        UNROLL for (int i = 0; i < count; i++)
        {
            const __m256i four = es_four_inputs(x + (j * n + i) * 4);
            UNROLL for (int h = 0; h < 2; h++)
            {
                const __m256i inputs = k.negative ? _mm256_xor_si256(four, below[2 * j + h]) : four;
                const __m256i products = _mm256_maddubs_epi16(size[2 * j + h], inputs);
                pairs[i][h] = j % k.run == 0 ? products : es_in_order(_mm256_add_epi16(pairs[i][h], products));
                if (j % k.run < k.run - 1 && j < words - 1) continue;
                const __m256i wide = _mm256_madd_epi16(pairs[i][h], ones);
                if (j < k.run) sum[i][h] = k.negative ? _mm256_add_epi32(behind[h], wide) : wide;
                else sum[i][h] = es_in_order(_mm256_add_epi32(sum[i][h], wide));
            }
        }
    }
}

/* Tokens [t, t + count) of a panel of n. */
INLINE void multiply_int8(const int8_group *g, const int32_t n, int32_t t, const int count, const integers k)
{
    const es_int8_rows *rows = g->rows;
    const int64_t from = g->from, to = g->to;
    const int8_t *x = (const int8_t *)g->panel->data + (from * 8 * n + t) * 4;
    const float *x_scale = g->panel->scale + from * n + t, *x_sum = g->panel->sum + from * n + t;
    const float *scale = rows->scale + from * k.halves * ES_PRODUCT_ROWS;
    const float *offset = k.offsets ? rows->offset + from * ES_PRODUCT_ROWS : NULL;
    const __m256i *size = g->size, *below = g->below, *behind = g->behind;
    float *out = g->out + t * ES_PRODUCT_ROWS;
    __m256 acc[GROUP][2];
    UNROLL for (int i = 0; i < 2 * count; i++) acc[i / 2][i % 2] = from ? _mm256_loadu_ps(out + 8 * i) : _mm256_setzero_ps();
    for (int64_t b = from; b < to; b++, size += 16, below += 16, x += 32 * n, x_scale += n, x_sum += n) {
        UNROLL for (int half = 0; half < k.halves; half++, scale += ES_PRODUCT_ROWS, behind += 2)
        {
            const int words = 8 / k.halves;
            __m256i sum[GROUP][2];
            dots(size + 2 * words * half, below + 2 * words * half, behind, x + words * half * n * 4, n, words, count, k, sum);
            UNROLL for (int i = 0; i < 2 * count; i++) acc[i / 2][i % 2] =
                _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(scale + 8 * (i % 2)), _mm256_set1_ps(x_scale[i / 2])),
                                _mm256_cvtepi32_ps(sum[i / 2][i % 2]), acc[i / 2][i % 2]);
        }
        if (!k.offsets) continue;
        UNROLL for (int i = 0; i < 2 * count; i++) acc[i / 2][i % 2] =
            _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(offset + 8 * (i % 2)), _mm256_set1_ps(x_scale[i / 2])),
                            _mm256_set1_ps(x_sum[i / 2]), acc[i / 2][i % 2]);
        offset += ES_PRODUCT_ROWS;
    }
    UNROLL for (int i = 0; i < 2 * count; i++) _mm256_storeu_ps(out + 8 * i, acc[i / 2][i % 2]);
}

/* Whole panels know at compile time how far the inputs of a token lie apart: addresses need no registers. */
INLINE void int8_panel(const int8_group *g, const integers k)
{
    const int32_t n = g->panel->tokens;
    int32_t t = 0;
    if (n == ES_PANEL_TOKENS)
        for (; t < ES_PANEL_TOKENS; t += GROUP) multiply_int8(g, ES_PANEL_TOKENS, t, GROUP, k);
    for (; t + GROUP <= n; t += GROUP) multiply_int8(g, n, t, GROUP, k);
    if (n - t >= 2) multiply_int8(g, n, t, 2, k), t += 2;
    if (n - t >= 1) multiply_int8(g, n, t, 1, k);
}

/* One function for each kind of integers. */
#define INT8_PANEL(name, negative, run, halves, offsets)                                                                      \
    static void panel_##name(const int8_group *g)                                                                             \
    {                                                                                                                         \
        int8_panel(g, (integers){negative, run, halves, offsets});                                                            \
    }
INT8_PANEL(eight_bits, true, 1, 1, false)
INT8_PANEL(six_bits, true, 4, 2, false)
INT8_PANEL(five_bits, true, 8, 1, false)
INT8_PANEL(five_bits_up, false, 4, 1, true)
INT8_PANEL(four_bits_up, false, 8, 1, true)

static void (*panel_of(es_dtype type))(const int8_group *)
{
    switch (type) {
    case ES_Q4_1:
    case ES_Q4_K: return panel_four_bits_up;
    case ES_Q5_1:
    case ES_Q5_K: return panel_five_bits_up;
    case ES_Q4_0:
    case ES_Q5_0: return panel_five_bits;
    case ES_Q6_K: return panel_six_bits;
    default: return panel_eight_bits; /* Q8_0: any integers around zero */
    }
}

/* Turned weights (in `below`) become what int8_group says, a block of them. */
static void part_block(int halves, __m256i *size, __m256i *below, __m256i *behind)
{
    const __m256i zero = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1);
    for (int half = 0; half < halves; half++, behind += 2) {
        behind[0] = behind[1] = zero;
        for (int j = 0; j < 16 / halves; j++, size++, below++) {
            const __m256i pairs = es_part_signs(*below, size, below);
            behind[j % 2] = _mm256_add_epi32(behind[j % 2], _mm256_madd_epi16(pairs, ones));
        }
    }
}

void es_several_tokens_int8_avx2(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    void (*const multiply)(const int8_group *) = panel_of(rows->type);
    __m256i size[INT8_CHUNK * 16], below[INT8_CHUNK * 16], behind[INT8_CHUNK * 4];
    for (int64_t from = 0; from < rows->blocks; from += INT8_CHUNK) {
        const int64_t to = rows->blocks - from < INT8_CHUNK ? rows->blocks : from + INT8_CHUNK;
        for (int64_t b = from; b < to; b++) {
            __m256i *w = below + (b - from) * 16, *s = size + (b - from) * 16;
            es_turn_sixteen((const uint8_t *)rows->q + b * rows->block_stride, rows->row_stride, 8, rows->offset ? s : w);
            if (!rows->offset) part_block(rows->halves, s, w, behind + (b - from) * 2 * rows->halves);
            if (rows->next) es_fetch_share(rows, b);
        }
        for (int32_t p = 0; p < panels; p++) {
            const int8_group g = {
                rows, &panel[p], size, below, behind, from, to, out + (int64_t)p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS};
            multiply(&g);
        }
    }
}

/* --- bfloat16 --- */

/* Tokens whose inputs stand in `x`; w is [block][16 pairs][even, odd][16 rows], x the same with BF16_TOKENS. */
INLINE void multiply_bf16(const float *w, const float *x, int64_t blocks, bool first, const int count, float *out)
{
    __m256 c[BF16_GROUP][2];
    UNROLL for (int i = 0; i < 2 * count; i++) c[i / 2][i % 2] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(out + 8 * i);
    for (int64_t b = 0; b < blocks; b++) {
        __m256 sum[2][BF16_GROUP][2];
        UNROLL for (int i = 0; i < 4 * count; i++) sum[i % 2][i / 4][i / 2 % 2] = _mm256_setzero_ps();
        for (int k = 0; k < 16; k++, w += 32, x += 2 * BF16_TOKENS) UNROLL for (int odd = 0; odd < 2; odd++)
            {
                const __m256 low = _mm256_load_ps(w + 16 * odd), high = _mm256_load_ps(w + 16 * odd + 8);
                UNROLL for (int i = 0; i < count; i++)
                {
                    const __m256 input = _mm256_broadcast_ss(x + odd * BF16_TOKENS + i);
                    sum[odd][i][0] = _mm256_fmadd_ps(low, input, sum[odd][i][0]);
                    sum[odd][i][1] = _mm256_fmadd_ps(high, input, sum[odd][i][1]);
                }
            }
        UNROLL for (int i = 0; i < 2 * count; i++) c[i / 2][i % 2] =
            _mm256_add_ps(c[i / 2][i % 2], _mm256_add_ps(sum[0][i / 2][i % 2], sum[1][i / 2][i % 2]));
    }
    UNROLL for (int i = 0; i < 2 * count; i++) _mm256_storeu_ps(out + 8 * i, c[i / 2][i % 2]);
}

/* Blocks [from, to) of the weights as floats in lanes. Rows that are not there cannot be read: they are zeros. */
static void widen_rows(const es_bf16_rows *rows, int64_t from, int64_t to, float *w)
{
    uint16_t some[ES_PRODUCT_ROWS * BF16_CHUNK * ES_PRODUCT_BLOCK];
    const size_t count = (size_t)(to - from) * ES_PRODUCT_BLOCK;
    const uint16_t *at = rows->w + from * ES_PRODUCT_BLOCK;
    int64_t stride = rows->stride;
    if (rows->rows < ES_PRODUCT_ROWS) {
        memset(some, 0, sizeof some);
        for (int32_t r = 0; r < rows->rows; r++) memcpy(some + (size_t)r * count, at + r * stride, count * sizeof *some);
        at = some, stride = (int64_t)count;
    }
    for (int64_t b = from; b < to; b++, at += ES_PRODUCT_BLOCK) {
        __m256i pairs[32];
        es_turn_sixteen((const uint8_t *)at, stride * 2, 16, pairs);
        for (int i = 0; i < 32; i++, w += i % 2 ? 8 : 24) {
            _mm256_store_ps(w, es_even_part(pairs[i]));
            _mm256_store_ps(w + 16, es_odd_part(pairs[i]));
        }
    }
}

/* The inputs of blocks [from, to) as floats: [block][16 pairs][even, odd][BF16_TOKENS], of which 16 are this panel's. */
static void widen_inputs(const es_panel *panel, int64_t from, int64_t to, float *x)
{
    const int32_t n = panel->tokens, *data = (const int32_t *)panel->data + from * 16 * n;
    const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), place),
                  high = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), place);
    for (int64_t j = 0; j < (to - from) * 16; j++, data += n, x += 2 * BF16_TOKENS) {
        const bool whole = n == ES_PANEL_TOKENS;
        const __m256i a = whole ? _mm256_loadu_si256((const void *)data) : _mm256_maskload_epi32(data, low);
        const __m256i b = whole ? _mm256_loadu_si256((const void *)(data + 8)) : _mm256_maskload_epi32(data + 8, high);
        _mm256_store_ps(x, es_even_part(a)), _mm256_store_ps(x + 8, es_even_part(b));
        _mm256_store_ps(x + BF16_TOKENS, es_odd_part(a)), _mm256_store_ps(x + BF16_TOKENS + 8, es_odd_part(b));
    }
}

void es_several_tokens_bf16_avx2(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    if (panels == 1 && panel->tokens == 1 && rows->rows == ES_PRODUCT_ROWS) {
        es_one_token_bf16_avx2(rows, panel, out);
        return;
    }
    _Alignas(32) float w[BF16_CHUNK * 16 * 2 * ES_PRODUCT_ROWS], x[BF16_CHUNK * 16 * 2 * BF16_TOKENS];
    for (int64_t from = 0; from < rows->blocks; from += BF16_CHUNK) {
        const int64_t to = rows->blocks - from < BF16_CHUNK ? rows->blocks : from + BF16_CHUNK;
        widen_rows(rows, from, to, w);
        for (int32_t p = 0; p < panels; p += BF16_PANELS) {
            float *place = out + (int64_t)p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS;
            int32_t n = 0, t = 0;
            for (int32_t q = p; q < panels && q < p + BF16_PANELS; n += panel[q++].tokens) widen_inputs(&panel[q], from, to, x + n);
            /* Four left are two and two: one alone would wait for its own sums. */
            for (; n - t >= 3 && n - t != 4; t += 3)
                multiply_bf16(w, x + t, to - from, from == 0, 3, place + t * ES_PRODUCT_ROWS);
            for (; n - t >= 2; t += 2) multiply_bf16(w, x + t, to - from, from == 0, 2, place + t * ES_PRODUCT_ROWS);
            if (n - t == 1) multiply_bf16(w, x + t, to - from, from == 0, 1, place + t * ES_PRODUCT_ROWS);
        }
    }
}
