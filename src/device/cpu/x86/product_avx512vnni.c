/* product_avx512vnni.c: the products of modes bf16 and int8 with AVX-512 and VNNI, sixteen weight rows in the lanes.
 *
 * Here stands what encodes tokens and unpacks weights, and the products of a single token: a block of 32 integers of 16 rows
 * is multiplied by VNNI, its sums are brought into row order, and one fused step adds them to the sixteen accumulators.
 * Several tokens go through several_tokens_avx512vnni.c, a few straight from stored weights (few_tokens_avx512vnni.c). */
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/blocks.h"
#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/turn_avx512.h"

enum { AHEAD = 4 }; /* blocks of a row */

#define UNROLL _Pragma("GCC unroll 16")

static void encode_int8(const float *const *x, int32_t tokens, int64_t columns, int8_t *data, float *scale, float *sum)
{
    const __m512 magnitude = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FFFFFFF));
    const __m512 lowest = _mm512_set1_ps(-127.0f), highest = _mm512_set1_ps(127.0f);
    for (int64_t b = 0; b < columns / ES_PRODUCT_BLOCK; b++)
        for (int32_t t = 0; t < tokens; t++) {
            const float *block = x[t] + b * ES_PRODUCT_BLOCK;
            /* Rows lie kilobytes apart: no prefetcher of the machine follows sixteen of them. */
            __builtin_prefetch(block + AHEAD * ES_PRODUCT_BLOCK);
            __builtin_prefetch(block + AHEAD * ES_PRODUCT_BLOCK + 16);
            const __m512 low = _mm512_loadu_ps(block), high = _mm512_loadu_ps(block + 16);
            /* max_ps gives its second operand for a NaN: it is passed over, as in the reference. */
            __m512 m = _mm512_max_ps(_mm512_and_ps(low, magnitude), _mm512_setzero_ps());
            m = _mm512_max_ps(_mm512_and_ps(high, magnitude), m);
            const float most = _mm512_reduce_max_ps(m);
            const __m512 inverse = _mm512_set1_ps(most > 0 ? 127.0f / most : 0.0f);
            const __m512i q0 = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(low, inverse), lowest), highest));
            const __m512i q1 = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(high, inverse), lowest), highest));
            int32_t quads[8];
            _mm_storeu_si128((__m128i *)quads, _mm512_cvtepi32_epi8(q0));
            _mm_storeu_si128((__m128i *)(quads + 4), _mm512_cvtepi32_epi8(q1));
            for (int i = 0; i < 8; i++) memcpy(data + ((b * 8 + i) * tokens + t) * 4, &quads[i], 4);
            scale[b * tokens + t] = most / 127.0f;
            sum[b * tokens + t] = (float)_mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
        }
}

/* Rounds 16 floats to bfloat16, ties to even; a NaN stays one. */
INLINE __m256i to_bf16(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, _mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(rounded);
}

static void encode_bf16(const float *const *x, int32_t tokens, int64_t columns, uint16_t *data)
{
    const int64_t padded = (columns + ES_PRODUCT_BLOCK - 1) / ES_PRODUCT_BLOCK * ES_PRODUCT_BLOCK;
    for (int32_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < padded; i += 16) {
            const int64_t left = columns - i;
            const __mmask16 mask = (__mmask16)(left >= 16 ? 0xFFFFu : left > 0 ? (1u << left) - 1 : 0u);
            const __m256i packed = to_bf16(_mm512_maskz_loadu_ps(mask, x[t] + i));
            uint32_t pairs[8];
            if (tokens == 1) {
                _mm256_storeu_si256((__m256i *)(data + i), packed);
                continue;
            }
            _mm256_storeu_si256((__m256i *)pairs, packed);
            for (int k = 0; k < 8; k++) memcpy(data + ((i / 2 + k) * tokens + t) * 2, &pairs[k], 4);
        }
}

/* Sixteen registers' worth of 8 partial sums each (row r in the lower half of z[r mod 4 …], row r + 4 in the upper half)
 * become the sixteen rows' sums, in order. */
INLINE __m512i sums_of_rows(const __m512i z[8])
{
    __m512i pair[4], quad[2];
    for (int i = 0; i < 4; i++)
        pair[i] =
            _mm512_add_epi32(_mm512_unpacklo_epi32(z[2 * i], z[2 * i + 1]), _mm512_unpackhi_epi32(z[2 * i], z[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        quad[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]),
                                   _mm512_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(quad[0], quad[1], _MM_SHUFFLE(2, 0, 2, 0)),
                            _mm512_shuffle_i32x4(quad[0], quad[1], _MM_SHUFFLE(3, 1, 3, 1)));
}

INLINE __m512i two_rows(const int8_t *lower, const int8_t *upper)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)lower)),
                              _mm256_loadu_si256((const __m256i *)upper), 1);
}

/* VNNI multiplies unsigned by signed: w + 128 is unsigned, and 128·Σx comes off again, all exact. `keep` selects the
 * inputs of this sum (a half of the block, or all). */
INLINE __m512i block_sums(const int8_t *q, int64_t stride, __m512i x, int32_t sum_of_x)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i z[8];
    for (int i = 0; i < 8; i++) {
        const int row = i / 4 * 8 + i % 4;
        const __m512i w = _mm512_xor_si512(two_rows(q + row * stride, q + (row + 4) * stride), flip);
        z[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x);
    }
    return _mm512_sub_epi32(sums_of_rows(z), _mm512_set1_epi32(128 * sum_of_x));
}

INLINE int32_t sum_of_bytes(__m256i x)
{
    const __m256i ones = _mm256_set1_epi8(1);
    const __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, x);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xB1)));
}

/* The panel's only token. */
INLINE void int8_token(const es_int8_rows *rows, const es_panel *panel, float *out, const int halves)
{
    __m512 acc = _mm512_setzero_ps();
    for (int64_t b = 0; b < rows->blocks; b++) {
        const int8_t *q = rows->q + b * rows->block_stride;
        const __m256i x = _mm256_loadu_si256((const __m256i *)((const int8_t *)panel->data + b * ES_PRODUCT_BLOCK));
        const __m512 x_scale = _mm512_set1_ps(panel->scale[b]);
        for (int h = 0; h < halves; h++) {
            const __m256i half = halves == 1 ? x
                                 : h == 0    ? _mm256_inserti128_si256(_mm256_setzero_si256(), _mm256_castsi256_si128(x), 0)
                                          : _mm256_inserti128_si256(_mm256_setzero_si256(), _mm256_extracti128_si256(x, 1), 1);
            const int32_t sum = halves == 1 ? (int32_t)panel->sum[b] : sum_of_bytes(half);
            const __m512i dots = block_sums(q, rows->row_stride, _mm512_broadcast_i64x4(half), sum);
            const __m512 w_scale = _mm512_loadu_ps(rows->scale + (b * halves + h) * ES_PRODUCT_ROWS);
            acc = _mm512_fmadd_ps(_mm512_mul_ps(w_scale, x_scale), _mm512_cvtepi32_ps(dots), acc);
        }
        if (rows->offset)
            acc = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(rows->offset + b * ES_PRODUCT_ROWS), x_scale),
                                  _mm512_set1_ps(panel->sum[b]), acc);
    }
    _mm512_mask_storeu_ps(out, (__mmask16)((1u << rows->rows) - 1), acc);
}

void es_product_int8_vnni(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    if (panels > 1 || panel->tokens > 1)
        es_several_tokens_int8(rows, panel, panels, out);
    else if (rows->halves == 1)
        int8_token(rows, panel, out, 1);
    else
        int8_token(rows, panel, out, 2);
}

/* Sixteen rows of sixteen pairs become sixteen registers of one pair of each row. */
INLINE void transpose_pairs(__m512i z[16])
{
    __m512i a[16], b[16];
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_epi32(z[2 * i], z[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(z[2 * i], z[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            b[4 * i + 2 * k] = _mm512_unpacklo_epi64(a[4 * i + k], a[4 * i + 2 + k]);
            b[4 * i + 2 * k + 1] = _mm512_unpackhi_epi64(a[4 * i + k], a[4 * i + 2 + k]);
        }
    for (int k = 0; k < 4; k++) {
        a[k] = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x88), a[4 + k] = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xDD);
        a[8 + k] = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x88),
              a[12 + k] = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xDD);
    }
    for (int k = 0; k < 4; k++) {
        z[k] = _mm512_shuffle_i32x4(a[k], a[8 + k], 0x88), z[8 + k] = _mm512_shuffle_i32x4(a[k], a[8 + k], 0xDD);
        z[4 + k] = _mm512_shuffle_i32x4(a[4 + k], a[12 + k], 0x88),
              z[12 + k] = _mm512_shuffle_i32x4(a[4 + k], a[12 + k], 0xDD);
    }
}

/* A token's inputs are widened a block at a time and broadcast from there: as scalars they would cost more than the products.
 */
static void bf16_token(const es_bf16_rows *rows, const es_panel *panel, int32_t t, float *out)
{
    const __m512i odd = _mm512_set1_epi32((int)0xFFFF0000);
    const int32_t n = panel->tokens;
    const uint32_t *pairs = (const uint32_t *)panel->data + t;
    __m512 c = _mm512_setzero_ps();
    for (int64_t b = 0; b < rows->blocks; b++, pairs += 16 * n) {
        _Alignas(64) uint32_t x[16], xe[16], xo[16];
        __m512i z[16];
        es_fetch(rows->w + 16 * rows->stride, (size_t)b * 1024, (size_t)(b + 1) * 1024); /* the sixteen rows after these */
        if (n > 1)
            for (int i = 0; i < 16; i++) x[i] = pairs[i * n];
        const __m512i both = n > 1 ? _mm512_load_si512(x) : _mm512_loadu_si512(pairs);
        _mm512_store_si512(xe, _mm512_slli_epi32(both, 16));
        _mm512_store_si512(xo, _mm512_and_si512(both, odd));
        for (int r = 0; r < 16; r++)
            z[r] = r < rows->rows ? _mm512_loadu_si512(rows->w + r * rows->stride + b * ES_PRODUCT_BLOCK)
                                  : _mm512_setzero_si512();
        transpose_pairs(z);
        __m512 e = _mm512_setzero_ps(), o = _mm512_setzero_ps();
        for (int i = 0; i < 16; i++) {
            const __m512 even = _mm512_castsi512_ps(_mm512_set1_epi32((int)xe[i]));
            e = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(z[i], 16)), even, e);
            o = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(z[i], odd)),
                                _mm512_castsi512_ps(_mm512_set1_epi32((int)xo[i])), o);
        }
        c = _mm512_add_ps(c, _mm512_add_ps(e, o));
    }
    _mm512_mask_storeu_ps(out, (__mmask16)((1u << rows->rows) - 1), c);
}

static void bf16_product(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    /* Rows that are not there cannot be read, and there is one such block in a matrix at most. */
    if (rows->rows == ES_PRODUCT_ROWS && (panels > 1 || panel->tokens > 1)) {
        es_several_tokens_bf16(rows, panel, panels, out);
        return;
    }
    for (int32_t p = 0; p < panels; p++)
        for (int32_t t = 0; t < panel[p].tokens; t++)
            bf16_token(rows, &panel[p], t, out + (p * ES_PANEL_TOKENS + t) * ES_PRODUCT_ROWS);
}

/* The scales of sixteen rows, one block's: halves `stride` bytes apart, with at least two bytes of the block after each. Rows
 * past `count` repeat the first one. Sixteen stores of two bytes, loaded as one, would wait for the stores to reach the cache.
 */
INLINE __m512 sixteen_halves(const uint8_t *first, size_t stride, int32_t count)
{
    if (count == 16 && stride <= (size_t)1 << 26) {
        const __m512i r = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        const __m512i words = _mm512_i32gather_epi32(_mm512_mullo_epi32(r, _mm512_set1_epi32((int)stride)), first, 1);
        return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
    }
    uint16_t halves[16];
    for (int32_t r = 0; r < 16; r++) memcpy(&halves[r], first + (r < count ? (size_t)r * stride : 0), 2);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves));
}

/* Q8_0 is used as it lies in memory; only its scales are gathered. A last block of fewer than 16 rows is copied, so that
 * whole tiles can be read. */
static void unpack_q8_0(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,
                        es_int8_rows *out)
{
    const uint8_t *rows = data;
    const int64_t blocks = columns / ES_PRODUCT_BLOCK;
    for (int64_t b = 0; b < blocks; b++)
        _mm512_storeu_ps(room->scale + b * ES_PRODUCT_ROWS,
                         sixteen_halves(rows + (size_t)b * sizeof(es_block_q8_0), row_bytes, count));
    *out = (es_int8_rows){(const int8_t *)rows + 2,
                          (int64_t)row_bytes,
                          sizeof(es_block_q8_0),
                          count,
                          blocks,
                          1,
                          room->scale,
                          NULL,
                          NULL,
                          0,
                          ES_Q8_0};
    if (count == ES_PRODUCT_ROWS) return;
    for (int32_t r = 0; r < ES_PRODUCT_ROWS; r++)
        for (int64_t b = 0; b < blocks; b++) {
            int8_t *place = room->q + r * columns + b * ES_PRODUCT_BLOCK;
            if (r < count)
                memcpy(place, rows + (size_t)r * row_bytes + (size_t)b * sizeof(es_block_q8_0) + 2, ES_PRODUCT_BLOCK);
            else
                memset(place, 0, ES_PRODUCT_BLOCK);
        }
    out->q = room->q, out->row_stride = columns, out->block_stride = ES_PRODUCT_BLOCK;
}

/* Integers of one row of Q4_K: 32 bytes hold two groups of 32. */
INLINE void row_q4_k(const es_block_q4_k *b, int8_t *q)
{
    const __m256i low = _mm256_set1_epi8(0x0F);
    for (int i = 0; i < 4; i++) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(b->q + 32 * i));
        _mm256_storeu_si256((__m256i *)(q + 64 * i), _mm256_and_si256(bytes, low));
        _mm256_storeu_si256((__m256i *)(q + 64 * i + 32), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low));
    }
}

INLINE void row_q5_k(const es_block_q5_k *b, int8_t *q)
{
    const __m256i low = _mm256_set1_epi8(0x0F), one = _mm256_set1_epi8(1);
    const __m256i high = _mm256_loadu_si256((const __m256i *)b->high);
    for (int i = 0; i < 4; i++) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(b->q + 32 * i));
        const __m256i h0 = _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(high, 2 * i), one), 4);
        const __m256i h1 = _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(high, 2 * i + 1), one), 4);
        _mm256_storeu_si256((__m256i *)(q + 64 * i), _mm256_or_si256(_mm256_and_si256(bytes, low), h0));
        _mm256_storeu_si256((__m256i *)(q + 64 * i + 32),
                            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), low), h1));
    }
}

INLINE void row_q6_k(const es_block_q6_k *b, int8_t *q)
{
    const __m256i low = _mm256_set1_epi8(0x0F), three = _mm256_set1_epi8(3), zero = _mm256_set1_epi8(32);
    for (int part = 0; part < 8; part++) {
        const __m256i l = _mm256_loadu_si256((const __m256i *)(b->low + part / 4 * 64 + part % 2 * 32));
        const __m256i h = _mm256_loadu_si256((const __m256i *)(b->high + part / 4 * 32));
        const __m256i four = _mm256_and_si256(_mm256_srli_epi16(l, part % 4 / 2 * 4), low);
        const __m256i two = _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(h, part % 4 * 2), three), 4);
        _mm256_storeu_si256((__m256i *)(q + 32 * part), _mm256_sub_epi8(_mm256_or_si256(four, two), zero));
    }
}

/* The 8 scales and minima of a block times its factors, as [8] floats each. */
INLINE void k_factors(const uint8_t packed[12], const uint8_t d[2], const uint8_t m[2], __m256 *scale, __m256 *offset)
{
    uint8_t scales[8], minima[8];
    es_block_k_scales(packed, scales, minima);
    const __m256 s = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)scales)));
    const __m256 o = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)minima)));
    *scale = _mm256_mul_ps(_mm256_set1_ps(es_block_half(d)), s);
    *offset = _mm256_xor_ps(_mm256_mul_ps(_mm256_set1_ps(es_block_half(m)), o), _mm256_set1_ps(-0.0f));
}

/* Scatters eight groups' values of one row into [group][16 rows]. */
INLINE void put_column(float *column, __m256 values)
{
    float v[8];
    _mm256_storeu_ps(v, values);
    for (int g = 0; g < 8; g++) column[g * ES_PRODUCT_ROWS] = v[g];
}

/* The same for a whole block of sixteen rows, which stand in the lanes: nothing is scattered. */
static void factors_of_sixteen(const uint8_t *blocks, size_t row_bytes, float *scale, float *offset)
{
    const es_k_head k = es_k_head_of(blocks, (int64_t)row_bytes);
    UNROLL for (int g = 0; g < 8; g++)
    {
        _mm512_storeu_ps(scale + g * ES_PRODUCT_ROWS, es_k_scale(&k, g));
        _mm512_storeu_ps(offset + g * ES_PRODUCT_ROWS, es_k_offset(&k, g));
    }
}

#define UNPACK_K(name, dtype, block_type)                                                                                     \
    static void unpack_##name(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room, \
                              es_int8_rows *out)                                                                              \
    {                                                                                                                         \
        const bool whole = count == ES_PRODUCT_ROWS;                                                                          \
        if (!whole) memset(room->q, 0, (size_t)columns *ES_PRODUCT_ROWS);                                                     \
        for (int32_t r = 0; r < count; r++) {                                                                                 \
            const block_type *b = (const void *)((const uint8_t *)data + (size_t)r * row_bytes);                              \
            for (int64_t i = 0; i < columns / 256; i++) {                                                                     \
                __m256 scale, offset;                                                                                         \
                row_##name(&b[i], room->q + r * columns + i * 256);                                                           \
                if (whole) continue;                                                                                          \
                k_factors(b[i].scales, b[i].d, b[i].m, &scale, &offset);                                                      \
                put_column(room->scale + i * 8 * ES_PRODUCT_ROWS + r, scale);                                                 \
                put_column(room->offset + i * 8 * ES_PRODUCT_ROWS + r, offset);                                               \
            }                                                                                                                 \
        }                                                                                                                     \
        for (int64_t i = 0; i < columns / 256 && whole; i++)                                                                  \
            factors_of_sixteen((const uint8_t *)data + (size_t)i * sizeof(block_type), row_bytes,                             \
                               room->scale + i * 8 * ES_PRODUCT_ROWS, room->offset + i * 8 * ES_PRODUCT_ROWS);                \
        *out = (es_int8_rows){room->q, columns,     ES_PRODUCT_BLOCK, count, columns / ES_PRODUCT_BLOCK,                      \
                              1,       room->scale, room->offset,     NULL,  0,                                               \
                              dtype};                                                                                         \
    }
UNPACK_K(q4_k, ES_Q4_K, es_block_q4_k)
UNPACK_K(q5_k, ES_Q5_K, es_block_q5_k)

/* The sixteen scales of a block of Q6_K in each of sixteen rows. The block's last sixteen bytes end with its factor. */
static void scales_of_sixteen(const uint8_t *blocks, size_t row_bytes, float *scale)
{
    __m512i scales[4], last[4];
    es_turn_rows(blocks + offsetof(es_block_q6_k, scales), (int64_t)row_bytes, 4, scales);
    es_turn_rows(blocks + sizeof(es_block_q6_k) - 16, (int64_t)row_bytes, 4, last);
    const __m512 d = es_high_halves(last[3]);
    UNROLL for (int h = 0; h < 16; h++)
        _mm512_storeu_ps(scale + h * ES_PRODUCT_ROWS, _mm512_mul_ps(d, es_signed_byte(scales[h / 4], h % 4)));
}

static void unpack_q6_k(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,
                        es_int8_rows *out)
{
    const bool whole = count == ES_PRODUCT_ROWS;
    if (!whole) memset(room->q, 0, (size_t)columns * ES_PRODUCT_ROWS);
    for (int32_t r = 0; r < count; r++) {
        const es_block_q6_k *b = (const void *)((const uint8_t *)data + (size_t)r * row_bytes);
        for (int64_t i = 0; i < columns / 256; i++) {
            row_q6_k(&b[i], room->q + r * columns + i * 256);
            const float d = es_block_half(b[i].d);
            for (int h = 0; h < 16 && !whole; h++) room->scale[(i * 16 + h) * ES_PRODUCT_ROWS + r] = d * (float)b[i].scales[h];
        }
    }
    for (int64_t i = 0; i < columns / 256 && whole; i++)
        scales_of_sixteen((const uint8_t *)data + (size_t)i * sizeof(es_block_q6_k), row_bytes,
                          room->scale + i * 16 * ES_PRODUCT_ROWS);
    *out = (es_int8_rows){room->q, columns, ES_PRODUCT_BLOCK, count, columns / ES_PRODUCT_BLOCK, 2, room->scale, NULL,
                          NULL,    0,       ES_Q6_K};
}

/* Sixteen bytes hold 32 nibbles: the low ones first. */
INLINE __m256i nibbles(const uint8_t *q)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)q);
    return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1),
                            _mm256_set1_epi8(0x0F));
}

INLINE __m256i fifth_bits(const uint8_t high[4])
{
    return _mm256_maskz_mov_epi8((__mmask32)es_block_bits(high), _mm256_set1_epi8(16));
}

INLINE __m256i ints_q4_0(const es_block_q4_0 *b)
{
    return _mm256_sub_epi8(nibbles(b->q), _mm256_set1_epi8(8));
}

INLINE __m256i ints_q4_1(const es_block_q4_1 *b)
{
    return nibbles(b->q);
}

INLINE __m256i ints_q5_0(const es_block_q5_0 *b)
{
    return _mm256_sub_epi8(_mm256_or_si256(nibbles(b->q), fifth_bits(b->high)), _mm256_set1_epi8(16));
}

INLINE __m256i ints_q5_1(const es_block_q5_1 *b)
{
    return _mm256_or_si256(nibbles(b->q), fifth_bits(b->high));
}

#define UNPACK_32(name, dtype, block_type, offset_at)                                                                         \
    static void unpack_##name(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room, \
                              es_int8_rows *out)                                                                              \
    {                                                                                                                         \
        const int64_t blocks = columns / ES_PRODUCT_BLOCK;                                                                    \
        const uint8_t *rows = data;                                                                                           \
        if (count < ES_PRODUCT_ROWS) memset(room->q, 0, (size_t)columns *ES_PRODUCT_ROWS);                                    \
        for (int32_t r = 0; r < count; r++) {                                                                                 \
            const block_type *b = (const void *)(rows + (size_t)r * row_bytes);                                               \
            for (int64_t i = 0; i < blocks; i++)                                                                              \
                _mm256_storeu_si256((__m256i *)(room->q + r * columns + i * ES_PRODUCT_BLOCK), ints_##name(&b[i]));           \
        }                                                                                                                     \
        for (int64_t i = 0; i < blocks; i++) {                                                                                \
            const uint8_t *at = rows + (size_t)i * sizeof(block_type);                                                        \
            _mm512_storeu_ps(room->scale + i * ES_PRODUCT_ROWS, sixteen_halves(at, row_bytes, count));                        \
            if (offset_at)                                                                                                    \
                _mm512_storeu_ps(room->offset + i * ES_PRODUCT_ROWS, sixteen_halves(at + (offset_at), row_bytes, count));     \
        }                                                                                                                     \
        *out = (es_int8_rows){                                                                                                \
            room->q, columns, ES_PRODUCT_BLOCK, count, blocks, 1, room->scale, (offset_at) ? room->offset : NULL, NULL,       \
            0,       dtype};                                                                                                  \
    }
UNPACK_32(q4_0, ES_Q4_0, es_block_q4_0, 0)
UNPACK_32(q4_1, ES_Q4_1, es_block_q4_1, 2)
UNPACK_32(q5_0, ES_Q5_0, es_block_q5_0, 0)
UNPACK_32(q5_1, ES_Q5_1, es_block_q5_1, 2)

void es_products_avx512(es_products *products)
{
    products->staying = 0;
    products->encode_bf16 = encode_bf16;
    products->encode_int8 = encode_int8;
    products->bf16 = bf16_product;
    products->int8 = es_product_int8_vnni;
    products->unpack[ES_Q8_0] = unpack_q8_0;
    products->unpack[ES_Q4_0] = unpack_q4_0;
    products->unpack[ES_Q4_1] = unpack_q4_1;
    products->unpack[ES_Q5_0] = unpack_q5_0;
    products->unpack[ES_Q5_1] = unpack_q5_1;
    products->unpack[ES_Q4_K] = unpack_q4_k;
    products->unpack[ES_Q5_K] = unpack_q5_k;
    products->unpack[ES_Q6_K] = unpack_q6_k;
    es_one_token_avx512(products);
    memset(products->few, 0, sizeof products->few); /* of types that have none here, those of AVX2 were never measured beside these */
    memset(products->most_few, 0, sizeof products->most_few);
    es_few_tokens_avx512(products);
}
