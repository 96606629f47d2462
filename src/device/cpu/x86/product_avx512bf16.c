/* product_avx512bf16.c: the products of mode bf16dp with AVX512_BF16.
 *
 * vdpbf16ps multiplies 32 inputs of a weight row by the same 32 of a token and adds pairs of them to sixteen accumulators, so
 * both are read as they lie in memory, and only the sixteen accumulators of an output have to be folded at its end.
 *
 * One token is taken row after row, as memory is read. Several are taken three at a time, against eight rows: 24 accumulators,
 * and eleven loads for 24 products. */
#include <stdbool.h>
#include <stddef.h>

#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/vector_avx512.h"

#define INLINE static inline __attribute__((always_inline))
/* Accumulators are registers only where the loops over them are unrolled. */
#define UNROLL _Pragma("GCC unroll 24")

enum { LANES = 16, WIDE = 3, TALL = 8, MOST = WIDE * TALL }; /* tokens, rows and accumulators together */

typedef struct operands {
    const uint16_t *w, *x, *next; /* next: rows to be fetched meanwhile, which need not be there, or NULL */
    int64_t w_stride, x_stride, blocks;
} operands;

INLINE __m512bh load_pairs(const uint16_t *at)
{
    return (__m512bh)_mm512_loadu_si512(at);
}

/* lanes[t][16 rows][16] of `height` rows and `width` tokens. */
INLINE void multiply(const operands *in, const int height, const int width, float *lanes)
{
    const uint16_t *w = in->w, *x = in->x;
    __m512 a[MOST];
    __m512bh token[WIDE];
    UNROLL for (int i = 0; i < height * width; i++) a[i] = _mm512_setzero_ps();
    for (int64_t b = 0; b < in->blocks; b++, w += ES_PRODUCT_BLOCK, x += ES_PRODUCT_BLOCK) {
        if (in->next) es_fetch(in->next, (size_t)(b * height) * 64, (size_t)((b + 1) * height) * 64);
        UNROLL for (int t = 0; t < width; t++) token[t] = load_pairs(x + t * in->x_stride);
        UNROLL for (int r = 0; r < height; r++)
        {
            const __m512bh row = load_pairs(w + r * in->w_stride);
            UNROLL for (int t = 0; t < width; t++) a[r * width + t] = _mm512_dpbf16_ps(a[r * width + t], row, token[t]);
        }
    }
    UNROLL for (int r = 0; r < height; r++) UNROLL for (int t = 0; t < width; t++)
        _mm512_store_ps(lanes + (t * ES_PRODUCT_ROWS + r) * LANES, a[r * width + t]);
}

/* `width` tokens, from the operands' on. One token takes row after row: memory is read in one stream, which the machine's own
 * prefetchers follow best, and chains of several rows overlap in the core. */
INLINE void multiply_rows(operands in, const es_bf16_rows *rows, const int width, float *out)
{
    _Alignas(64) float lanes[WIDE * ES_PRODUCT_ROWS * LANES];
    const bool whole = rows->rows == ES_PRODUCT_ROWS;
    if (width == 1 || !whole) {
        for (int32_t r = 0; r < rows->rows; r++, in.w += in.w_stride) multiply(&in, 1, width, lanes + r * LANES);
    } else {
        for (int r = 0; r < ES_PRODUCT_ROWS; r += TALL, in.w += TALL * in.w_stride) {
            multiply(&in, TALL, width, lanes + r * LANES);
            if (in.next) in.next += TALL * in.w_stride;
        }
    }
    for (int t = 0; t < width; t++) {
        const float *from = lanes + t * ES_PRODUCT_ROWS * LANES;
        if (whole) v_fold_16(from, out + t * ES_PRODUCT_ROWS);
        for (int32_t r = 0; r < rows->rows && !whole; r++) out[t * ES_PRODUCT_ROWS + r] = v_fold(v_load(from + r * LANES));
    }
}

void es_product_bf16dp_avx512bf16(const es_bf16_rows *rows, const es_bf16_tokens *tokens, float *out)
{
    operands in = {rows->w, tokens->x, NULL, rows->stride, tokens->stride, rows->blocks};
    /* Eight rows at once are too many streams to be foreseen: while the first tokens are multiplied, the next rows are fetched. */
    if (tokens->count > 1 && rows->rows == ES_PRODUCT_ROWS) in.next = rows->w + ES_PRODUCT_ROWS * rows->stride;
    int32_t t = 0;
    for (; t + WIDE <= tokens->count; t += WIDE, in.x += WIDE * in.x_stride, in.next = NULL)
        multiply_rows(in, rows, WIDE, out + t * ES_PRODUCT_ROWS);
    if (tokens->count - t == 2) multiply_rows(in, rows, 2, out + t * ES_PRODUCT_ROWS);
    if (tokens->count - t == 1) multiply_rows(in, rows, 1, out + t * ES_PRODUCT_ROWS);
}
