/* several_tokens_avx512vnni.c: the products of modes bf16 and int8 for more than one token, where there is no AMX.
 *
 * Sixteen weight rows stand in the sixteen lanes, so that no sum ever crosses lanes: four neighbouring inputs (int8) or two
 * (bf16) of every row are brought into one register, once per block of weights, and then serve all tokens; a token's inputs
 * are broadcast from the panel. Weights are turned a chunk at a time into a few kilobytes of stack that stay in the
 * first-level cache, and the accumulators of all tokens pass through `out` between chunks. The sums and their order are
 * product.h's. */
#include <immintrin.h>
#include <stdbool.h>

#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/turn_avx512.h"

/* Accumulators are registers only where the loops over them are unrolled. */
#define UNROLL _Pragma("GCC unroll 8")

enum { INT8_CHUNK = 16, BF16_CHUNK = 8 }; /* blocks of 32 inputs whose weights are turned at once: 8 KiB */
enum { GROUP = 8 };                       /* tokens whose accumulators are in registers together */

/* VNNI multiplies unsigned by signed. Weights with an offset are none below zero; the others become w + 128, and their sums
 * start at −128·Σx: for each block (and half) and token of a panel, all exact. */
typedef struct starts {
    int32_t of[INT8_CHUNK][2][ES_PANEL_TOKENS];
} starts;

static void fill_starts(const es_int8_rows *rows, const es_panel *panel, int64_t from, int64_t to, starts *s)
{
    const __m512i flipped = _mm512_set1_epi8((char)0x80), none = _mm512_setzero_si512();
    const int32_t n = panel->tokens, words = 8 / rows->halves;
    const __mmask16 some = (__mmask16)((1u << n) - 1);
    for (int64_t b = from; b < to; b++)
        for (int h = 0; h < rows->halves; h++) {
            __m512i sum = none;
            if (rows->halves == 1) /* known */
                sum = _mm512_slli_epi32(_mm512_cvtps_epi32(_mm512_maskz_loadu_ps(some, panel->sum + b * n)), 7);
            for (int j = h * words; j < (h + 1) * words && rows->halves > 1; j++)
                sum = _mm512_dpbusd_epi32(
                    sum, flipped, _mm512_maskz_loadu_epi32(some, (const int8_t *)panel->data + (b * 8 + j) * n * 4));
            _mm512_storeu_si512(s->of[b - from][h], _mm512_sub_epi32(none, sum));
        }
}

INLINE __m512 dots(const __m512i *w, const int8_t *x, const int32_t n, const int count, __m512i z)
{
    UNROLL for (int j = 0; j < count; j++) z = _mm512_dpbusd_epi32(z, w[j], es_four_inputs(x + j * n * 4));
    return _mm512_cvtepi32_ps(z);
}

/* Where a group of tokens begins, and for blocks [from, to) the weights, turned. */
typedef struct int8_group {
    const es_int8_rows *rows;
    const es_panel *panel;
    const __m512i *turned;
    const starts *start; /* of weights without an offset */
    int64_t from, to;
    float *out;
} int8_group;

/* Tokens [t, t + count) of a panel of n. */
INLINE void multiply_int8(const int8_group *g, const int32_t n, int32_t t, const int count, const int halves,
                          const bool offsets)
{
    const es_int8_rows *rows = g->rows;
    const int64_t from = g->from, to = g->to;
    const int8_t *x = (const int8_t *)g->panel->data + (from * 8 * n + t) * 4;
    const float *scale = g->panel->scale + from * n + t, *sum = g->panel->sum + from * n + t;
    const float *w_scale = rows->scale + from * halves * ES_PRODUCT_ROWS, *offset = rows->offset;
    const int32_t *start = &g->start->of[0][0][t];
    if (offsets) offset += from * ES_PRODUCT_ROWS;
    const __mmask16 some = (__mmask16)((1u << rows->rows) - 1);
    const __m512i *turned = g->turned;
    __m512 acc[GROUP];
    UNROLL for (int i = 0; i < count; i++) acc[i] =
        from ? _mm512_maskz_loadu_ps(some, g->out + (t + i) * ES_PRODUCT_ROWS) : _mm512_setzero_ps();
    for (int64_t b = from; b < to; b++, turned += 8, x += 32 * n, scale += n, sum += n, start += 2 * ES_PANEL_TOKENS) {
        UNROLL for (int h = 0; h < halves; h++, w_scale += ES_PRODUCT_ROWS)
        {
            const __m512 of_rows = _mm512_loadu_ps(w_scale);
            UNROLL for (int i = 0; i < count; i++)
            {
                const __m512i z = offsets ? _mm512_setzero_si512() : _mm512_set1_epi32(start[h * ES_PANEL_TOKENS + i]);
                acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(of_rows, _mm512_set1_ps(scale[i])),
                                         dots(turned + 4 * h, x + (4 * h * n + i) * 4, n, 8 / halves, z), acc[i]);
            }
        }
        if (offsets) {
            const __m512 of_rows = _mm512_loadu_ps(offset);
            UNROLL for (int i = 0; i < count; i++) acc[i] =
                _mm512_fmadd_ps(_mm512_mul_ps(of_rows, _mm512_set1_ps(scale[i])), _mm512_set1_ps(sum[i]), acc[i]);
            offset += ES_PRODUCT_ROWS;
        }
    }
    UNROLL for (int i = 0; i < count; i++) _mm512_mask_storeu_ps(g->out + (t + i) * ES_PRODUCT_ROWS, some, acc[i]);
}

/* Whole panels know at compile time how far the inputs of a token lie apart: addresses need no registers. */
INLINE void int8_panel(const int8_group *g, const int halves, const bool offsets)
{
    const int32_t n = g->panel->tokens;
    int32_t t = 0;
    if (n == ES_PANEL_TOKENS) {
        for (; t < ES_PANEL_TOKENS; t += GROUP) multiply_int8(g, ES_PANEL_TOKENS, t, GROUP, halves, offsets);
        return;
    }
    if (n >= 8) multiply_int8(g, n, 0, 8, halves, offsets), t = 8;
    if (n - t >= 4) multiply_int8(g, n, t, 4, halves, offsets), t += 4;
    if (n - t >= 2) multiply_int8(g, n, t, 2, halves, offsets), t += 2;
    if (n - t >= 1) multiply_int8(g, n, t, 1, halves, offsets);
}

void es_several_tokens_int8(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i turned[INT8_CHUNK * 8];
    starts start;
    for (int64_t from = 0; from < rows->blocks; from += INT8_CHUNK) {
        const int64_t to = rows->blocks - from < INT8_CHUNK ? rows->blocks : from + INT8_CHUNK;
        for (int64_t b = from; b < to; b++) {
            __m512i *w = turned + (b - from) * 8;
            es_turn_rows((const uint8_t *)rows->q + b * rows->block_stride, rows->row_stride, 8, w);
            for (int j = 0; j < 8 && !rows->offset; j++) w[j] = _mm512_xor_si512(w[j], flip);
            if (rows->next) es_fetch_share(rows, b);
        }
        for (int32_t p = 0; p < panels; p++) {
            const int8_group g = {rows, &panel[p], turned, &start, from, to, out + (int64_t)p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS};
            if (!rows->offset) fill_starts(rows, &panel[p], from, to, &start);
            if (rows->offset) int8_panel(&g, 1, true);
            else if (rows->halves == 1) int8_panel(&g, 1, false);
            else int8_panel(&g, 2, false);
        }
    }
}

/* The inputs of blocks [from, to) as floats: [block][16 pairs][even, odd][16 tokens]. */
static void widen(const es_panel *panel, int64_t from, int64_t to, float *x)
{
    const __m512i odd = _mm512_set1_epi32((int)0xFFFF0000);
    const __mmask16 some = (__mmask16)((1u << panel->tokens) - 1);
    const uint16_t *data = (const uint16_t *)panel->data + from * 32 * panel->tokens;
    for (int64_t i = 0; i < (to - from) * 16; i++, x += 2 * ES_PANEL_TOKENS) {
        const __m512i pairs = _mm512_maskz_loadu_epi32(some, data + i * 2 * panel->tokens);
        _mm512_store_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
        _mm512_store_ps(x + ES_PANEL_TOKENS, _mm512_castsi512_ps(_mm512_and_si512(pairs, odd)));
    }
}

INLINE void bf16_group(const __m512i *turned, const float *x, int64_t blocks, bool first, int32_t t, const int count,
                       __mmask16 some, float *out)
{
    const __m512i odd = _mm512_set1_epi32((int)0xFFFF0000);
    __m512 c[GROUP];
    UNROLL for (int i = 0; i < count; i++) c[i] =
        first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(some, out + (t + i) * ES_PRODUCT_ROWS);
    for (int64_t b = 0; b < blocks; b++, turned += 16) {
        __m512 e[GROUP], o[GROUP];
        UNROLL for (int i = 0; i < count; i++) e[i] = o[i] = _mm512_setzero_ps();
        for (int k = 0; k < 16; k++, x += 2 * ES_PANEL_TOKENS) {
            const __m512 we = _mm512_castsi512_ps(_mm512_slli_epi32(turned[k], 16));
            const __m512 wo = _mm512_castsi512_ps(_mm512_and_si512(turned[k], odd));
            UNROLL for (int i = 0; i < count; i++)
            {
                e[i] = _mm512_fmadd_ps(we, _mm512_set1_ps(x[t + i]), e[i]);
                o[i] = _mm512_fmadd_ps(wo, _mm512_set1_ps(x[ES_PANEL_TOKENS + t + i]), o[i]);
            }
        }
        UNROLL for (int i = 0; i < count; i++) c[i] = _mm512_add_ps(c[i], _mm512_add_ps(e[i], o[i]));
    }
    UNROLL for (int i = 0; i < count; i++) _mm512_mask_storeu_ps(out + (t + i) * ES_PRODUCT_ROWS, some, c[i]);
}

void es_several_tokens_bf16(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    const __mmask16 some = (__mmask16)((1u << rows->rows) - 1);
    __m512i turned[BF16_CHUNK * 16];
    _Alignas(64) float x[BF16_CHUNK * 16 * 2 * ES_PANEL_TOKENS];
    for (int64_t from = 0; from < rows->blocks; from += BF16_CHUNK) {
        const int64_t to = rows->blocks - from < BF16_CHUNK ? rows->blocks : from + BF16_CHUNK;
        for (int64_t b = from; b < to; b++)
            es_turn_rows((const uint8_t *)(rows->w + b * ES_PRODUCT_BLOCK), rows->stride * 2, 16, turned + (b - from) * 16);
        for (int32_t p = 0; p < panels; p++) {
            float *place = out + (int64_t)p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS;
            widen(&panel[p], from, to, x);
            int32_t t = 0;
            for (; t + 8 <= panel[p].tokens; t += 8) bf16_group(turned, x, to - from, from == 0, t, 8, some, place);
            if (panel[p].tokens - t >= 4) bf16_group(turned, x, to - from, from == 0, t, 4, some, place), t += 4;
            if (panel[p].tokens - t >= 2) bf16_group(turned, x, to - from, from == 0, t, 2, some, place), t += 2;
            if (panel[p].tokens - t >= 1) bf16_group(turned, x, to - from, from == 0, t, 1, some, place);
        }
    }
}
