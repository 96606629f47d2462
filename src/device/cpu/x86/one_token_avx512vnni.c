/* one_token_avx512vnni.c: mode int8 for a single token, straight from stored weights.
 *
 * Decoding reads every weight once, so nothing may come between memory and the dot products: integers are unpacked in registers,
 * scales of sixteen rows are gathered into lanes, and the lines of the rows after these are fetched while these are multiplied.
 * K-quants are brought into the lanes as they are stored and unpacked there: half as much has to be turned as with bytes, and no
 * sum crosses lanes. The sums and their order are those of product.h. */
#include <immintrin.h>

#include "base/half.h"
#include "device/cpu/blocks.h"
#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/turn_avx512.h"

#define UNROLL _Pragma("GCC unroll 8")

enum { SHORT_ROW = 1024 }; /* bytes */

/* Sixteen rows of a matrix, and where the rows begin that are fetched meanwhile: the next sixteen, or the sixteen after those
 * where rows are so short that memory would not have answered by then. */
typedef struct sixteen {
    const uint8_t *rows, *ahead;
    size_t row_bytes;
} sixteen;

INLINE sixteen sixteen_rows(const void *rows, size_t row_bytes)
{
    const uint8_t *first = rows, *ahead = first + (row_bytes < SHORT_ROW ? 32 : 16) * row_bytes;
    return (sixteen){first, ahead, row_bytes};
}

/* Fetch bytes [from, to) of sixteen rows that come later. */
INLINE void fetch_next(const sixteen *s, size_t from, size_t to)
{
    es_fetch_ahead(s->ahead, from, to);
}

INLINE __m512i pair(__m256i lower, __m256i upper)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
}

/* 32 bytes of two rows. Register i of eight holds rows ROW(i) and ROW(i) + 4: what sums_of() puts in order. */
#define ROW(i) ((i) % 4 + (i) / 4 * 8)
INLINE __m512i two_rows(const sixteen *s, int i, size_t at)
{
    const uint8_t *lower = s->rows + (size_t)ROW(i) * s->row_bytes + at;
    return pair(_mm256_loadu_si256((const __m256i *)lower), _mm256_loadu_si256((const __m256i *)(lower + 4 * s->row_bytes)));
}

/* Eight registers of 8 partial sums of two rows each become the sums of sixteen rows. */
INLINE __m512 sums_of(const __m512i z[8])
{
    __m512i p[4], q[2];
    for (int i = 0; i < 4; i++)
        p[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(z[2 * i], z[2 * i + 1]), _mm512_unpackhi_epi32(z[2 * i], z[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        q[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(p[2 * i], p[2 * i + 1]), _mm512_unpackhi_epi64(p[2 * i], p[2 * i + 1]));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_shuffle_i32x4(q[0], q[1], _MM_SHUFFLE(2, 0, 2, 0)),
                                               _mm512_shuffle_i32x4(q[0], q[1], _MM_SHUFFLE(3, 1, 3, 1))));
}

/* A block of 32 inputs, twice. */
INLINE __m512i inputs(const es_panel *panel, int64_t b)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)((const int8_t *)panel->data + b * 32)));
}

/* VNNI multiplies unsigned by signed: weights that lie around zero are moved up by `zero`, and zero · x is taken off first. */
INLINE __m512i less_zero(__m512i x, int zero)
{
    const __m512i z = _mm512_set1_epi8((char)zero);
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_dpbusd_epi32(_mm512_setzero_si512(), z, x));
}

static void one_q8_0(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)
{
    const sixteen s = sixteen_rows(rows, row_bytes);
    const size_t bytes = sizeof(es_block_q8_0);
    __m512 acc = _mm512_setzero_ps();
    for (int64_t b = 0; b < columns / 32; b++) {
        const size_t at = (size_t)b * bytes;
        fetch_next(&s, 16 * at, 16 * (at + bytes));
        const __m512i x = inputs(panel, b), start = less_zero(x, 128);
        __m512i z[8];
        for (int i = 0; i < 8; i++)
            z[i] = _mm512_dpbusd_epi32(start, _mm512_xor_si512(two_rows(&s, i, at + 2), _mm512_set1_epi8((char)128)), x);
        acc = es_add_sum(acc, es_low_halves(es_four_bytes(s.rows + at, (int64_t)row_bytes)), panel->scale[b], sums_of(z));
    }
    _mm512_storeu_ps(out, acc);
}

/* Sixteen bytes of two rows as 32 nibbles each: the low ones first. */
INLINE __m512i two_rows_of_nibbles(const sixteen *s, int i, size_t at)
{
    const uint8_t *lower = s->rows + (size_t)ROW(i) * s->row_bytes + at;
    const __m128i a = _mm_loadu_si128((const __m128i *)lower);
    const __m128i b = _mm_loadu_si128((const __m128i *)(lower + 4 * s->row_bytes));
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(a), _mm_srli_epi16(a, 4), 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(b), _mm_srli_epi16(b, 4), 1);
    return _mm512_and_si512(pair(low, high), _mm512_set1_epi8(15));
}

/* The fifth bits of two rows, four bytes each, where their nibbles are. */
INLINE __m512i two_rows_of_fifths(const sixteen *s, int i, size_t at)
{
    const uint8_t *lower = s->rows + (size_t)ROW(i) * s->row_bytes + at;
    const __mmask64 set = (__mmask64)es_block_bits(lower) | (__mmask64)es_block_bits(lower + 4 * s->row_bytes) << 32;
    return _mm512_maskz_set1_epi8(set, 16);
}

/* Blocks of 32 in four or five bits: a half for the scale, with `offsets` another one, with `fifth` a word of bits, then nibbles. */
INLINE void one_nibbles(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out, const bool offsets,
                        const bool fifth)
{
    const sixteen s = sixteen_rows(rows, row_bytes);
    const size_t high = offsets ? 4 : 2, nibbles = high + (fifth ? 4 : 0), bytes = nibbles + 16;
    __m512 acc = _mm512_setzero_ps();
    for (int64_t b = 0; b < columns / 32; b++) {
        const size_t at = (size_t)b * bytes;
        fetch_next(&s, 16 * at, 16 * (at + bytes));
        const __m512i x = inputs(panel, b), words = es_four_bytes(s.rows + at, (int64_t)row_bytes);
        const __m512i start = offsets ? _mm512_setzero_si512() : less_zero(x, fifth ? 16 : 8);
        __m512i z[8];
        for (int i = 0; i < 8; i++) {
            __m512i q = two_rows_of_nibbles(&s, i, at + nibbles);
            if (fifth) q = _mm512_or_si512(q, two_rows_of_fifths(&s, i, at + high));
            z[i] = _mm512_dpbusd_epi32(start, q, x);
        }
        acc = es_add_sum(acc, es_low_halves(words), panel->scale[b], sums_of(z));
        if (offsets) acc = es_add_sum(acc, es_high_halves(words), panel->scale[b], _mm512_set1_ps(panel->sum[b]));
    }
    _mm512_storeu_ps(out, acc);
}

#define ONE_NIBBLES(name, offsets, fifth)                                                                                 \
    static void one_##name(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)        \
    {                                                                                                                     \
        one_nibbles(rows, row_bytes, columns, panel, out, offsets, fifth);                                                \
    }
ONE_NIBBLES(q4_0, false, false)
ONE_NIBBLES(q4_1, true, false)
ONE_NIBBLES(q5_0, false, true)
ONE_NIBBLES(q5_1, true, true)

/* Inputs 4j to 4j + 3 of block b, in every lane. */
INLINE __m512i four_inputs(const es_panel *panel, int64_t b, int j)
{
    return es_four_inputs((const int8_t *)panel->data + b * ES_PRODUCT_BLOCK + 4 * j);
}

/* Sums of the two groups of 32 whose nibbles, and with `fifth` whose fifth bits, stand in the lanes. Upper nibbles stay where they
 * are: sixteen times as much, until the sum is there. */
INLINE void k_sums(const __m512i packed[8], const __m512i high[8], const int j, const bool fifth, const es_panel *panel, int64_t b,
                   __m512i sum[2])
{
    sum[0] = sum[1] = _mm512_setzero_si512();
    UNROLL for (int w = 0; w < 8; w++)
    {
        __m512i q0 = packed[w], q1 = packed[w];
        if (fifth) {
            q0 = es_bits_of_bytes(es_join_nibbles(q0, es_k_fifth(high[w], j, 0)), 31);
            q1 = es_bits_of_bytes(es_join_nibbles(_mm512_srli_epi16(q1, 4), es_k_fifth(high[w], j, 1)), 31);
        } else {
            q0 = es_bits_of_bytes(q0, 15), q1 = es_bits_of_bytes(q1, 0xF0);
        }
        sum[0] = _mm512_dpbusd_epi32(sum[0], q0, four_inputs(panel, b, w));
        sum[1] = _mm512_dpbusd_epi32(sum[1], q1, four_inputs(panel, b + 1, w));
    }
    if (!fifth) sum[1] = _mm512_srai_epi32(sum[1], 4);
}

/* 32 bytes hold two groups of 32 in their nibbles; Q5_K has a bit more for each, 32 bytes before. */
INLINE void one_k(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out, const bool fifth,
                  const size_t bytes)
{
    const sixteen s = sixteen_rows(rows, row_bytes);
    const int64_t stride = (int64_t)row_bytes;
    __m512 acc = _mm512_setzero_ps();
    for (int64_t i = 0; i < columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        const es_k_head k = es_k_head_of(s.rows + at, stride);
        __m512i high[8];
        if (fifth) es_turn_rows(s.rows + at + 16, stride, 8, high);
        UNROLL for (int j = 0; j < 4; j++)
        {
            const int64_t b = i * 8 + 2 * j;
            __m512i packed[8], sum[2];
            fetch_next(&s, 16 * at + (size_t)j * 4 * bytes, 16 * at + (size_t)(j + 1) * 4 * bytes);
            es_turn_rows(s.rows + at + (fifth ? 48 : 16) + 32 * j, stride, 8, packed);
            k_sums(packed, high, j, fifth, panel, b, sum);
            UNROLL for (int g = 0; g < 2; g++)
            {
                acc = es_add_sum(acc, es_k_scale(&k, 2 * j + g), panel->scale[b + g], _mm512_cvtepi32_ps(sum[g]));
                acc = es_add_sum(acc, es_k_offset(&k, 2 * j + g), panel->scale[b + g], _mm512_set1_ps(panel->sum[b + g]));
            }
        }
    }
    _mm512_storeu_ps(out, acc);
}

static void one_q4_k(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)
{
    one_k(rows, row_bytes, columns, panel, out, false, sizeof(es_block_q4_k));
}

static void one_q5_k(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)
{
    one_k(rows, row_bytes, columns, panel, out, true, sizeof(es_block_q5_k));
}

/* Integers lie around 32: what their sums start from, for the sixteen halves of the 8 blocks from b on. Half n of the 256 inputs is
 * place n mod 4 of register n / 4, and has its start at [n mod 4][n / 4]. */
INLINE void start_q6(const es_panel *panel, int64_t b, int32_t start[4][4])
{
    const int8_t *x = (const int8_t *)panel->data + b * ES_PRODUCT_BLOCK;
    __m512i z[4], p[2];
    UNROLL for (int i = 0; i < 4; i++) z[i] =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(32), _mm512_loadu_si512(x + 64 * i));
    UNROLL for (int i = 0; i < 2; i++) p[i] =
        _mm512_add_epi32(_mm512_unpacklo_epi32(z[2 * i], z[2 * i + 1]), _mm512_unpackhi_epi32(z[2 * i], z[2 * i + 1]));
    const __m512i sum = _mm512_add_epi32(_mm512_unpacklo_epi64(p[0], p[1]), _mm512_unpackhi_epi64(p[0], p[1]));
    _mm512_storeu_si512(start, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
}

/* 32 of a row's 256, two halves of 16 with a scale each. */
INLINE __m512 add_q6_part(__m512 acc, const __m512i low[8], const __m512i high[8], const int part, __m512 d, const __m512i scales[4],
                          int32_t start[4][4], const es_panel *panel, int64_t b)
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        const int n = 2 * part + half;
        __m512i sum = _mm512_set1_epi32(start[n % 4][n / 4]);
        UNROLL for (int w = 4 * half; w < 4 * half + 4; w++) sum =
            _mm512_dpbusd_epi32(sum, es_q6_values(low[w], high[w], part % 4), four_inputs(panel, b, w));
        acc = es_add_sum(acc, _mm512_mul_ps(d, es_signed_byte(scales[n / 4], n % 4)), panel->scale[b], _mm512_cvtepi32_ps(sum));
    }
    return acc;
}

static void one_q6_k(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)
{
    const sixteen s = sixteen_rows(rows, row_bytes);
    const int64_t stride = (int64_t)row_bytes;
    const size_t bytes = sizeof(es_block_q6_k);
    __m512 acc = _mm512_setzero_ps();
    for (int64_t i = 0; i < columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        int32_t start[4][4];
        __m512i scales[4];
        const __m512 d = es_high_halves(es_four_bytes(s.rows + at + 206, (int64_t)row_bytes)); /* the last word ends with the block */
        es_turn_rows(s.rows + at + 192, stride, 4, scales);
        start_q6(panel, i * 8, start);
        UNROLL for (int k = 0; k < 2; k++) /* a half of 128: four parts */
        {
            __m512i low[2][8], high[8];
            es_turn_rows(s.rows + at + 64 * k, stride, 8, low[0]);
            es_turn_rows(s.rows + at + 64 * k + 32, stride, 8, low[1]);
            es_turn_rows(s.rows + at + 128 + 32 * k, stride, 8, high);
            UNROLL for (int part = 4 * k; part < 4 * k + 4; part++)
            {
                fetch_next(&s, 16 * at + (size_t)part * 2 * bytes, 16 * at + (size_t)(part + 1) * 2 * bytes);
                acc = add_q6_part(acc, low[part % 2], high, part, d, scales, start, panel, i * 8 + part);
            }
        }
    }
    _mm512_storeu_ps(out, acc);
}

void es_one_token_avx512(es_products *products)
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
