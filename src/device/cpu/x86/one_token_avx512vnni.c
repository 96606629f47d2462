/* one_token_avx512vnni.c: mode int8 for a single token, straight from stored weights.
 *
 * Decoding reads every weight once, so nothing may come between memory and the dot products: integers are unpacked in registers,
 * scales of sixteen rows are gathered into lanes, and the lines of the rows after these are fetched while these are multiplied.
 * The sums and their order are those of product.h. */
#include <immintrin.h>

#include "base/half.h"
#include "device/cpu/blocks.h"
#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"

#define INLINE static inline __attribute__((always_inline))

enum { SHORT_ROW = 1024 }; /* bytes */

/* Sixteen rows of a matrix, and where the rows begin that are fetched meanwhile: the next sixteen, or the sixteen after those
 * where rows are so short that memory would not have answered by then. */
typedef struct sixteen {
    const uint8_t *rows, *ahead;
    size_t row_bytes;
    __m512i index; /* r · row_bytes */
} sixteen;

INLINE sixteen sixteen_rows(const void *rows, size_t row_bytes)
{
    const __m512i r = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const uint8_t *first = rows, *ahead = first + (row_bytes < SHORT_ROW ? 32 : 16) * row_bytes;
    return (sixteen){first, ahead, row_bytes, _mm512_mullo_epi32(r, _mm512_set1_epi32((int)row_bytes))};
}

/* Four bytes of each row. */
INLINE __m512i four_bytes(const sixteen *s, size_t at)
{
    return _mm512_i32gather_epi32(s->index, s->rows + at, 1);
}

/* The lower or upper halves of sixteen words as floats. */
INLINE __m512 low_halves(__m512i words)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}

INLINE __m512 high_halves(__m512i words)
{
    return low_halves(_mm512_srli_epi32(words, 16));
}

/* Fetch bytes [from, to) of sixteen rows that come later. */
INLINE void fetch_next(const sixteen *s, size_t from, size_t to)
{
    es_fetch(s->ahead, from, to);
}

INLINE __m512i pair(__m256i lower, __m256i upper)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
}

/* 32 bytes of two rows. Register i of eight holds rows ROW(i) and ROW(i) + 4: what sums_of_halves() puts in order. */
#define ROW(i) ((i) % 4 + (i) / 4 * 8)
INLINE __m512i two_rows(const sixteen *s, int i, size_t at)
{
    const uint8_t *lower = s->rows + (size_t)ROW(i) * s->row_bytes + at;
    return pair(_mm256_loadu_si256((const __m256i *)lower), _mm256_loadu_si256((const __m256i *)(lower + 4 * s->row_bytes)));
}

/* Eight registers of 8 partial sums of two rows each become the sums of the first and of the last four, row by row. */
INLINE void sums_of_halves(const __m512i z[8], __m512i *first, __m512i *last)
{
    __m512i p[4], q[2];
    for (int i = 0; i < 4; i++)
        p[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(z[2 * i], z[2 * i + 1]), _mm512_unpackhi_epi32(z[2 * i], z[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        q[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(p[2 * i], p[2 * i + 1]), _mm512_unpackhi_epi64(p[2 * i], p[2 * i + 1]));
    *first = _mm512_shuffle_i32x4(q[0], q[1], _MM_SHUFFLE(2, 0, 2, 0));
    *last = _mm512_shuffle_i32x4(q[0], q[1], _MM_SHUFFLE(3, 1, 3, 1));
}

INLINE __m512 sums_of(const __m512i z[8])
{
    __m512i first, last;
    sums_of_halves(z, &first, &last);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(first, last));
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

INLINE __m512 add_sum(__m512 acc, __m512 scale, float x_scale, __m512 sum)
{
    return _mm512_fmadd_ps(_mm512_mul_ps(scale, _mm512_set1_ps(x_scale)), sum, acc);
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
        acc = add_sum(acc, low_halves(four_bytes(&s, at)), panel->scale[b], sums_of(z));
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
        const __m512i x = inputs(panel, b), words = four_bytes(&s, at);
        const __m512i start = offsets ? _mm512_setzero_si512() : less_zero(x, fifth ? 16 : 8);
        __m512i z[8];
        for (int i = 0; i < 8; i++) {
            __m512i q = two_rows_of_nibbles(&s, i, at + nibbles);
            if (fifth) q = _mm512_or_si512(q, two_rows_of_fifths(&s, i, at + high));
            z[i] = _mm512_dpbusd_epi32(start, q, x);
        }
        acc = add_sum(acc, low_halves(words), panel->scale[b], sums_of(z));
        if (offsets) acc = add_sum(acc, high_halves(words), panel->scale[b], _mm512_set1_ps(panel->sum[b]));
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

/* Factors of a block of Q4_K or Q5_K, sixteen rows in the lanes. */
typedef struct k_block {
    __m512 d, m;
    __m512i s[3]; /* the twelve bytes of scales and minima */
} k_block;

INLINE k_block k_block_of(const sixteen *s, size_t at)
{
    const __m512i dm = four_bytes(s, at);
    return (k_block){low_halves(dm), high_halves(dm), {four_bytes(s, at + 4), four_bytes(s, at + 8), four_bytes(s, at + 12)}};
}

INLINE __m512i bits_of(__m512i words, int shift, int mask)
{
    return _mm512_and_si512(_mm512_srli_epi32(words, (unsigned)shift), _mm512_set1_epi32(mask));
}

INLINE __m512 k_scale(const k_block *k, int g)
{
    const __m512i n = g < 4 ? bits_of(k->s[0], 8 * g, 63)
                            : _mm512_or_si512(bits_of(k->s[2], 8 * (g - 4), 15),
                                              _mm512_slli_epi32(bits_of(k->s[0], 8 * (g - 4) + 6, 3), 4));
    return _mm512_mul_ps(k->d, _mm512_cvtepi32_ps(n));
}

INLINE __m512 k_offset(const k_block *k, int g)
{
    const __m512i n = g < 4 ? bits_of(k->s[1], 8 * g, 63)
                            : _mm512_or_si512(bits_of(k->s[2], 8 * (g - 4) + 4, 15),
                                              _mm512_slli_epi32(bits_of(k->s[1], 8 * (g - 4) + 6, 3), 4));
    return _mm512_xor_ps(_mm512_mul_ps(k->m, _mm512_cvtepi32_ps(n)), _mm512_set1_ps(-0.0f));
}

INLINE __m512 add_k_group(__m512 acc, const k_block *k, int g, const es_panel *panel, int64_t b, const __m512i z[8])
{
    acc = add_sum(acc, k_scale(k, g), panel->scale[b], sums_of(z));
    return add_sum(acc, k_offset(k, g), panel->scale[b], _mm512_set1_ps(panel->sum[b]));
}

/* 32 bytes hold two groups of 32 in their nibbles; Q5_K has a bit more for each, 32 bytes before. */
INLINE void one_k(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out, const bool fifth,
                  const size_t bytes)
{
    const sixteen s = sixteen_rows(rows, row_bytes);
    const __m512i low = _mm512_set1_epi8(15), bit = _mm512_set1_epi8(16);
    __m512 acc = _mm512_setzero_ps();
    for (int64_t i = 0; i < columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        const k_block k = k_block_of(&s, at);
        for (int j = 0; j < 4; j++) {
            fetch_next(&s, 16 * at + (size_t)j * 4 * bytes, 16 * at + (size_t)(j + 1) * 4 * bytes);
            const __m512i x0 = inputs(panel, i * 8 + 2 * j), x1 = inputs(panel, i * 8 + 2 * j + 1);
            __m512i z0[8], z1[8];
            for (int r = 0; r < 8; r++) {
                const __m512i q = two_rows(&s, r, at + (fifth ? 48 : 16) + (size_t)(32 * j));
                __m512i q0 = _mm512_and_si512(q, low), q1 = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
                if (fifth) {
                    const __m512i high = two_rows(&s, r, at + 16);
                    const __m512i h0 = j < 2 ? _mm512_slli_epi16(high, (unsigned)(4 - 2 * j))
                                             : _mm512_srli_epi16(high, (unsigned)(2 * j - 4));
                    const __m512i h1 = j < 2 ? _mm512_slli_epi16(high, (unsigned)(3 - 2 * j))
                                             : _mm512_srli_epi16(high, (unsigned)(2 * j - 3));
                    q0 = _mm512_or_si512(q0, _mm512_and_si512(h0, bit));
                    q1 = _mm512_or_si512(q1, _mm512_and_si512(h1, bit));
                }
                z0[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q0, x0);
                z1[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q1, x1);
            }
            acc = add_k_group(acc, &k, 2 * j, panel, i * 8 + 2 * j, z0);
            acc = add_k_group(acc, &k, 2 * j + 1, panel, i * 8 + 2 * j + 1, z1);
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

/* Byte n of sixteen words, signed, as floats. */
INLINE __m512 signed_byte(__m512i words, int n)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, (unsigned)(24 - 8 * n)), 24));
}

/* 32 of a row's 256: four bits in `low`, two in `high`; the two halves of 16 have a scale each. */
INLINE __m512 add_q6_part(__m512 acc, const sixteen *s, size_t at, int part, __m512 d, __m512i scales, const es_panel *panel,
                          int64_t b)
{
    const __m512i x = inputs(panel, b), start = less_zero(x, 32);
    const unsigned low_shift = part % 4 / 2 * 4, high_shift = part % 4 * 2;
    __m512i z[8], first, last;
    for (int r = 0; r < 8; r++) {
        const __m512i low = two_rows(s, r, at + (size_t)(part / 4 * 64 + part % 2 * 32));
        const __m512i high = two_rows(s, r, at + 128 + (size_t)(part / 4 * 32));
        const __m512i four = _mm512_and_si512(_mm512_srli_epi16(low, low_shift), _mm512_set1_epi8(15));
        const __m512i moved = high_shift <= 4 ? _mm512_slli_epi16(high, 4 - high_shift) : _mm512_srli_epi16(high, high_shift - 4);
        z[r] = _mm512_dpbusd_epi32(start, _mm512_or_si512(four, _mm512_and_si512(moved, _mm512_set1_epi8(48))), x);
    }
    sums_of_halves(z, &first, &last);
    const int n = part % 2 * 2;
    acc = add_sum(acc, _mm512_mul_ps(d, signed_byte(scales, n)), panel->scale[b], _mm512_cvtepi32_ps(first));
    return add_sum(acc, _mm512_mul_ps(d, signed_byte(scales, n + 1)), panel->scale[b], _mm512_cvtepi32_ps(last));
}

static void one_q6_k(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out)
{
    const sixteen s = sixteen_rows(rows, row_bytes);
    const size_t bytes = sizeof(es_block_q6_k);
    __m512 acc = _mm512_setzero_ps();
    for (int64_t i = 0; i < columns / 256; i++) {
        const size_t at = (size_t)i * bytes;
        const __m512 d = high_halves(four_bytes(&s, at + 206)); /* the last word ends with the block */
        for (int p = 0; p < 8; p += 2) {
            fetch_next(&s, 16 * at + (size_t)p * 2 * bytes, 16 * at + (size_t)(p + 2) * 2 * bytes);
            const __m512i scales = four_bytes(&s, at + 192 + (size_t)(2 * p));
            acc = add_q6_part(acc, &s, at, p, d, scales, panel, i * 8 + p);
            acc = add_q6_part(acc, &s, at, p + 1, d, scales, panel, i * 8 + p + 1);
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
