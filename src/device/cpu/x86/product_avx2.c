/* product_avx2.c: what the products of modes bf16 and int8 read, made with AVX2: tokens encoded, stored weights as integers.
 * The products themselves are several_tokens_avx2.c and, straight from stored weights, one_token_avx2.c. */
#include <immintrin.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/blocks.h"
#include "device/cpu/product.h"
#include "device/cpu/x86/turn_avx2.h"

INLINE __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256 magnitude(__m256 x)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)));
}

INLINE float greatest(__m256 x)
{
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

INLINE int32_t sum_of_eight(__m256i x)
{
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xB1)));
}

static void encode_int8(const float *const *x, int32_t tokens, int64_t columns, int8_t *data, float *scale, float *sum)
{
    for (int64_t b = 0; b < columns / ES_PRODUCT_BLOCK; b++)
        for (int32_t t = 0; t < tokens; t++) {
            __m256 v[4], most = _mm256_setzero_ps();
            for (int i = 0; i < 4; i++) {
                v[i] = _mm256_loadu_ps(x[t] + b * ES_PRODUCT_BLOCK + 8 * i);
                most = _mm256_max_ps(magnitude(v[i]), most); /* max_ps gives its second operand for a NaN: it is passed over */
            }
            const float top = greatest(most);
            const __m256 inverse = _mm256_set1_ps(top > 0 ? 127.0f / top : 0.0f);
            __m256i q[4], total = _mm256_setzero_si256();
            for (int i = 0; i < 4; i++) {
                const __m256 scaled = _mm256_max_ps(_mm256_mul_ps(v[i], inverse), _mm256_set1_ps(-127.0f));
                q[i] = _mm256_cvtps_epi32(_mm256_min_ps(scaled, _mm256_set1_ps(127.0f)));
                total = _mm256_add_epi32(total, q[i]);
            }
            /* Packing works inside halves of a register: words come out as 0, 2, 4, 6, 1, 3, 5, 7. */
            const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
            int32_t quads[8];
            _mm256_storeu_si256((__m256i *)quads,
                                _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
            for (int i = 0; i < 8; i++) memcpy(data + ((b * 8 + i) * tokens + t) * 4, &quads[i], 4);
            scale[b * tokens + t] = top / 127.0f;
            sum[b * tokens + t] = (float)sum_of_eight(total);
        }
}

/* Rounds eight floats to bfloat16, ties to even, each in the lower half of a word; a NaN stays one. */
INLINE __m256i to_bf16(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
}

static void encode_bf16(const float *const *x, int32_t tokens, int64_t columns, uint16_t *data)
{
    const int64_t padded = (columns + ES_PRODUCT_BLOCK - 1) / ES_PRODUCT_BLOCK * ES_PRODUCT_BLOCK;
    for (int32_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < padded; i += 8) {
            float some[8] = {0};
            const int64_t left = columns - i;
            if (left > 0) memcpy(some, x[t] + i, (size_t)(left < 8 ? left : 8) * sizeof *some);
            uint32_t word[8];
            _mm256_storeu_si256((__m256i *)word, to_bf16(_mm256_loadu_ps(some)));
            for (int k = 0; k < 4; k++) {
                const uint32_t pair = word[2 * k] | word[2 * k + 1] << 16;
                memcpy(data + ((i / 2 + k) * tokens + t) * 2, &pair, 4);
            }
        }
}

/* --- stored weights as integers --- */

/* Sixteen bytes hold 32 nibbles: the low ones first. */
INLINE __m256i nibbles(const uint8_t *q)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)q);
    return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1),
                            _mm256_set1_epi8(0x0F));
}

/* Bit i of the word as 16 or nothing in byte i. */
INLINE __m256i fifth_bits(const uint8_t high[4])
{
    const __m256i spread =
        _mm256_shuffle_epi8(_mm256_set1_epi32((int)es_block_bits(high)),
                            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16));
}

/* Rows past `count` are zeros, in integers and in factors: whole tiles can be read, and nobody looks at what they give. */
static void clear(const es_unpack_room *room, int32_t count, int64_t columns, int halves, bool offsets)
{
    if (count == ES_PRODUCT_ROWS) return;
    memset(room->q, 0, (size_t)columns * ES_PRODUCT_ROWS);
    memset(room->scale, 0, (size_t)(columns / ES_PRODUCT_BLOCK * halves) * ES_PRODUCT_ROWS * sizeof *room->scale);
    if (offsets) memset(room->offset, 0, (size_t)(columns / ES_PRODUCT_BLOCK) * ES_PRODUCT_ROWS * sizeof *room->offset);
}

INLINE void put(int8_t *q, __m256i bytes)
{
    _mm256_storeu_si256((__m256i *)q, bytes);
}

/* The scales of sixteen rows' blocks, and the offsets where they follow them: [16]. */
static void factors(const uint8_t *block, int64_t stride, float *scale, float *offset)
{
    for (int h = 0; h < 2; h++) {
        const __m256i words = es_first_word(block + 8 * h * stride, stride);
        _mm256_storeu_ps(scale + 8 * h, es_low_halves(words));
        if (offset) _mm256_storeu_ps(offset + 8 * h, es_high_halves(words));
    }
}

#define UNPACK_32(name, dtype, block_type, integers, offset_of)                                                               \
    static void unpack_##name(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room, \
                              es_int8_rows *out)                                                                              \
    {                                                                                                                         \
        const int64_t blocks = columns / ES_PRODUCT_BLOCK;                                                                    \
        const bool offsets = (offset_of) != 0;                                                                                \
        clear(room, count, columns, 1, offsets);                                                                              \
        for (int64_t i = 0; i < blocks && count == ES_PRODUCT_ROWS; i++)                                                      \
            factors((const uint8_t *)data + (size_t)i * sizeof(block_type), (int64_t)row_bytes,                               \
                    room->scale + i * ES_PRODUCT_ROWS, offsets ? room->offset + i * ES_PRODUCT_ROWS : NULL);                  \
        for (int32_t r = 0; r < count; r++)                                                                                   \
            for (int64_t i = 0; i < blocks; i++) {                                                                            \
                const block_type *b = (const block_type *)(const void *)((const uint8_t *)data + (size_t)r * row_bytes) + i;  \
                put(room->q + r * columns + i * ES_PRODUCT_BLOCK, integers);                                                  \
                if (count == ES_PRODUCT_ROWS) continue;                                                                       \
                room->scale[i * ES_PRODUCT_ROWS + r] = es_block_half(b->d);                                                   \
                if (offsets) room->offset[i * ES_PRODUCT_ROWS + r] = es_block_half((const uint8_t *)b + (offset_of));         \
            }                                                                                                                 \
        *out =                                                                                                                \
            (es_int8_rows){                                                                                                   \
                room->q, columns, ES_PRODUCT_BLOCK, count, blocks, 1, room->scale, offsets ? room->offset : NULL, NULL,       \
                0,       dtype};                                                                                              \
    }
UNPACK_32(few_q8_0, ES_Q8_0, es_block_q8_0, load_bytes(b->q), 0)
UNPACK_32(q4_0, ES_Q4_0, es_block_q4_0, _mm256_sub_epi8(nibbles(b->q), _mm256_set1_epi8(8)), 0)
UNPACK_32(q4_1, ES_Q4_1, es_block_q4_1, nibbles(b->q), 2)
UNPACK_32(q5_0, ES_Q5_0, es_block_q5_0,
          _mm256_sub_epi8(_mm256_or_si256(nibbles(b->q), fifth_bits(b->high)), _mm256_set1_epi8(16)), 0)
UNPACK_32(q5_1, ES_Q5_1, es_block_q5_1, _mm256_or_si256(nibbles(b->q), fifth_bits(b->high)), 2)

/* Sixteen rows of Q8_0 are used as they lie in memory; only their scales are gathered. */
static void unpack_q8_0(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,
                        es_int8_rows *out)
{
    if (count < ES_PRODUCT_ROWS) {
        unpack_few_q8_0(data, row_bytes, count, columns, room, out);
        return;
    }
    const uint8_t *rows = data;
    const int64_t blocks = columns / ES_PRODUCT_BLOCK;
    for (int64_t b = 0; b < blocks; b++)
        factors(rows + (size_t)b * sizeof(es_block_q8_0), (int64_t)row_bytes, room->scale + b * ES_PRODUCT_ROWS, NULL);
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
}

/* Integers of one row's block of 256: 32 bytes hold two groups of 32; Q5_K has a bit more for each in `high`. */
INLINE void nibbles_k(const uint8_t *q, const uint8_t *high, int8_t *out)
{
    const __m256i low = _mm256_set1_epi8(0x0F), one = _mm256_set1_epi8(1);
    for (int i = 0; i < 4; i++) {
        const __m256i bytes = load_bytes(q + 32 * i);
        __m256i first = _mm256_and_si256(bytes, low), second = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
        if (high) {
            const __m256i h = load_bytes(high);
            first = _mm256_or_si256(first, _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(h, 2 * i), one), 4));
            second = _mm256_or_si256(second, _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(h, 2 * i + 1), one), 4));
        }
        put(out + 64 * i, first);
        put(out + 64 * i + 32, second);
    }
}

/* The factors of sixteen rows' blocks of Q4_K or Q5_K: [8 groups][16 rows]. */
static void k_factors(const uint8_t *block, int64_t stride, float *scale, float *offset)
{
    for (int h = 0; h < 2; h++) {
        __m256i head[4];
        es_turn_eight(block + 8 * h * stride, stride, head, 1);
        const __m256 d = es_low_halves(head[0]), m = es_minus(es_high_halves(head[0]));
        for (int g = 0; g < 8; g++) {
            _mm256_storeu_ps(scale + g * ES_PRODUCT_ROWS + 8 * h, es_k_factor(d, head + 1, g, false));
            _mm256_storeu_ps(offset + g * ES_PRODUCT_ROWS + 8 * h, es_k_factor(m, head + 1, g, true));
        }
    }
}

#define UNPACK_K(name, dtype, block_type, high)                                                                               \
    static void unpack_##name(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room, \
                              es_int8_rows *out)                                                                              \
    {                                                                                                                         \
        clear(room, count, columns, 1, true);                                                                                 \
        for (int64_t i = 0; i < columns / 256 && count == ES_PRODUCT_ROWS; i++)                                               \
            k_factors((const uint8_t *)data + (size_t)i * sizeof(block_type), (int64_t)row_bytes,                             \
                      room->scale + i * 8 * ES_PRODUCT_ROWS, room->offset + i * 8 * ES_PRODUCT_ROWS);                         \
        for (int32_t r = 0; r < count; r++)                                                                                   \
            for (int64_t i = 0; i < columns / 256; i++) {                                                                     \
                const block_type *b = (const block_type *)(const void *)((const uint8_t *)data + (size_t)r * row_bytes) + i;  \
                uint8_t scale[8], minimum[8];                                                                                 \
                nibbles_k(b->q, high, room->q + r * columns + i * 256);                                                       \
                if (count == ES_PRODUCT_ROWS) continue;                                                                       \
                es_block_k_scales(b->scales, scale, minimum);                                                                 \
                for (int g = 0; g < 8; g++) {                                                                                 \
                    room->scale[(i * 8 + g) * ES_PRODUCT_ROWS + r] = es_block_half(b->d) * (float)scale[g];                   \
                    room->offset[(i * 8 + g) * ES_PRODUCT_ROWS + r] = -(es_block_half(b->m) * (float)minimum[g]);             \
                }                                                                                                             \
            }                                                                                                                 \
        *out = (es_int8_rows){room->q, columns,     ES_PRODUCT_BLOCK, count, columns / ES_PRODUCT_BLOCK,                      \
                              1,       room->scale, room->offset,     NULL,  0,                                               \
                              dtype};                                                                                         \
    }
UNPACK_K(q4_k, ES_Q4_K, es_block_q4_k, NULL)
UNPACK_K(q5_k, ES_Q5_K, es_block_q5_k, b->high)

/* The same of Q6_K: [16 halves of 32][16 rows]. */
static void six_bit_factors(const uint8_t *block, int64_t stride, float *scale)
{
    for (int h = 0; h < 2; h++) {
        __m256i bytes[4], last[4];
        es_turn_eight(block + 192 + 8 * h * stride, stride, bytes, 1);
        es_turn_eight(block + 194 + 8 * h * stride, stride, last, 1); /* the last word ends with the block */
        for (int i = 0; i < 16; i++)
            _mm256_storeu_ps(scale + i * ES_PRODUCT_ROWS + 8 * h,
                             _mm256_mul_ps(es_high_halves(last[3]), es_signed_byte(bytes[i / 4], i % 4)));
    }
}

static void unpack_q6_k(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,
                        es_int8_rows *out)
{
    const __m256i low = _mm256_set1_epi8(0x0F), three = _mm256_set1_epi8(3), zero = _mm256_set1_epi8(32);
    clear(room, count, columns, 2, false);
    for (int64_t i = 0; i < columns / 256 && count == ES_PRODUCT_ROWS; i++)
        six_bit_factors((const uint8_t *)data + (size_t)i * sizeof(es_block_q6_k), (int64_t)row_bytes,
                        room->scale + i * 16 * ES_PRODUCT_ROWS);
    for (int32_t r = 0; r < count; r++)
        for (int64_t i = 0; i < columns / 256; i++) {
            const es_block_q6_k *b = (const es_block_q6_k *)(const void *)((const uint8_t *)data + (size_t)r * row_bytes) + i;
            for (int part = 0; part < 8; part++) {
                const __m256i l = load_bytes(b->low + part / 4 * 64 + part % 2 * 32), h = load_bytes(b->high + part / 4 * 32);
                const __m256i four = _mm256_and_si256(_mm256_srli_epi16(l, part % 4 / 2 * 4), low);
                const __m256i two = _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(h, part % 4 * 2), three), 4);
                put(room->q + r * columns + i * 256 + 32 * part, _mm256_sub_epi8(_mm256_or_si256(four, two), zero));
            }
            for (int h = 0; h < 16 && count < ES_PRODUCT_ROWS; h++)
                room->scale[(i * 16 + h) * ES_PRODUCT_ROWS + r] = es_block_half(b->d) * (float)b->scales[h];
        }
    *out = (es_int8_rows){room->q, columns, ES_PRODUCT_BLOCK, count, columns / ES_PRODUCT_BLOCK, 2, room->scale, NULL,
                          NULL,    0,       ES_Q6_K};
}

void es_products_avx2(es_products *products)
{
    products->staying = 0;
    products->encode_bf16 = encode_bf16;
    products->encode_int8 = encode_int8;
    products->bf16 = es_several_tokens_bf16_avx2;
    products->int8 = es_several_tokens_int8_avx2;
    products->unpack[ES_Q8_0] = unpack_q8_0;
    products->unpack[ES_Q4_0] = unpack_q4_0;
    products->unpack[ES_Q4_1] = unpack_q4_1;
    products->unpack[ES_Q5_0] = unpack_q5_0;
    products->unpack[ES_Q5_1] = unpack_q5_1;
    products->unpack[ES_Q4_K] = unpack_q4_k;
    products->unpack[ES_Q5_K] = unpack_q5_k;
    products->unpack[ES_Q6_K] = unpack_q6_k;
    es_one_token_avx2(products);
    es_few_tokens_avx2(products);
}
