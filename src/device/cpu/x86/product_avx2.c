/* product_avx2.c: the products of modes bf16 and int8 with AVX2, for machines without AVX-512 VNNI.
 *
 * Integers: AVX2 multiplies unsigned bytes by signed ones and adds pairs in 16 bits, where they would saturate. The weight gives
 * its sign to the input first: |w| ≤ 128 times ±x with |x| ≤ 127 makes pairs of at most 32,512, so that every sum is exact.
 * bfloat16: pairs of inputs of eight rows are turned into lanes once per block of 32, and then serve all tokens. The sums and
 * their order are product.h's. */
#include <immintrin.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/blocks.h"
#include "device/cpu/product.h"

#define INLINE static inline __attribute__((always_inline))

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

/* Eight rows of eight pairs become eight registers of one pair of each row. */
INLINE void turn_pairs(const uint16_t *w, int64_t stride, int32_t rows, __m256i out[8])
{
    __m256i z[8], a[8];
    for (int r = 0; r < 8; r++) z[r] = r < rows ? load_bytes(w + r * stride) : _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(z[2 * i], z[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(z[2 * i], z[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            z[4 * i + 2 * k] = _mm256_unpacklo_epi64(a[4 * i + k], a[4 * i + 2 + k]);
            z[4 * i + 2 * k + 1] = _mm256_unpackhi_epi64(a[4 * i + k], a[4 * i + 2 + k]);
        }
    for (int i = 0; i < 4; i++) {
        out[i] = _mm256_permute2x128_si256(z[i], z[4 + i], 0x20);
        out[4 + i] = _mm256_permute2x128_si256(z[i], z[4 + i], 0x31);
    }
}

INLINE __m256 even_part(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

INLINE __m256 odd_part(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xFFFF0000)));
}

/* One block of 32 inputs of sixteen rows and T tokens: w[i] and w[16 + i] hold pair i of rows 0–7 and 8–15; `n` tokens to a row
 * of x. Two tokens are eight chains of fused steps, which hide that each step waits for the one before. */
INLINE void add_bf16_block(const __m256i w[32], const uint16_t *x, int32_t n, float *out, const int T)
{
    __m256 e[2][2], o[2][2];
    for (int t = 0; t < T; t++) e[t][0] = e[t][1] = o[t][0] = o[t][1] = _mm256_setzero_ps();
    for (int i = 0; i < 16; i++)
        for (int t = 0; t < T; t++) {
            const uint16_t *pair = x + (i * n + t) * 2;
            const __m256 xe = _mm256_set1_ps(es_bfloat_to_float(pair[0])), xo = _mm256_set1_ps(es_bfloat_to_float(pair[1]));
            for (int h = 0; h < 2; h++) {
                e[t][h] = _mm256_fmadd_ps(even_part(w[16 * h + i]), xe, e[t][h]);
                o[t][h] = _mm256_fmadd_ps(odd_part(w[16 * h + i]), xo, o[t][h]);
            }
        }
    for (int t = 0; t < T; t++)
        for (int h = 0; h < 2; h++) {
            float *c = out + t * ES_PRODUCT_ROWS + 8 * h;
            _mm256_storeu_ps(c, _mm256_add_ps(_mm256_loadu_ps(c), _mm256_add_ps(e[t][h], o[t][h])));
        }
}

static void bf16_product(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    for (int32_t p = 0; p < panels; p++)
        memset(out + p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS, 0, (size_t)panel[p].tokens * ES_PRODUCT_ROWS * sizeof *out);
    for (int64_t b = 0; b < rows->blocks; b++) {
        __m256i w[32];
        for (int h = 0; h < 2; h++)
            for (int k = 0; k < 2; k++)
                turn_pairs(rows->w + 8 * h * rows->stride + b * ES_PRODUCT_BLOCK + 16 * k, rows->stride, rows->rows - 8 * h,
                           w + 16 * h + 8 * k);
        for (int32_t p = 0; p < panels; p++) {
            const int32_t n = panel[p].tokens;
            const uint16_t *x = (const uint16_t *)panel[p].data + b * 16 * n * 2;
            float *place = out + p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS;
            int32_t t = 0;
            for (; t + 2 <= n; t += 2) add_bf16_block(w, x + 2 * t, n, place + t * ES_PRODUCT_ROWS, 2);
            if (t < n) add_bf16_block(w, x + 2 * t, n, place + t * ES_PRODUCT_ROWS, 1);
        }
    }
}

/* Four rows' dot products with x, each in two halves of 16 inputs: the first halves in the lower four words. */
INLINE __m256i four_rows(const int8_t *q, int64_t stride, __m256i x)
{
    __m256i z[4];
    for (int r = 0; r < 4; r++) {
        const __m256i w = load_bytes(q + r * stride);
        z[r] = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1));
    }
    return _mm256_hadd_epi32(_mm256_hadd_epi32(z[0], z[1]), _mm256_hadd_epi32(z[2], z[3]));
}

/* Sums of eight rows: of the first halves, and of the second. */
INLINE void eight_rows(const int8_t *q, int64_t stride, __m256i x, __m256i *first, __m256i *second)
{
    const __m256i a = four_rows(q, stride, x), b = four_rows(q + 4 * stride, stride, x);
    *first = _mm256_permute2x128_si256(a, b, 0x20);
    *second = _mm256_permute2x128_si256(a, b, 0x31);
}

INLINE __m256i token_block(const es_panel *panel, int64_t block, int32_t t)
{
    const int32_t n = panel->tokens;
    const int8_t *x = (const int8_t *)panel->data + (block * 8 * n + t) * 4;
    if (n == 1) return load_bytes(x);
    int32_t quads[8];
    for (int i = 0; i < 8; i++) memcpy(&quads[i], x + i * n * 4, 4);
    return load_bytes(quads);
}

INLINE __m256 add_sum(__m256 acc, const float *scale, __m256 x_scale, __m256 sum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(scale), x_scale), sum, acc);
}

INLINE void int8_token(const es_int8_rows *rows, const es_panel *panel, int32_t t, float *out, const int halves)
{
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    const int32_t n = panel->tokens;
    for (int64_t b = 0; b < rows->blocks; b++) {
        const __m256i x = token_block(panel, b, t);
        const __m256 x_scale = _mm256_set1_ps(panel->scale[b * n + t]), x_sum = _mm256_set1_ps(panel->sum[b * n + t]);
        for (int h = 0; h < 2; h++) {
            __m256i first, second;
            eight_rows(rows->q + 8 * h * rows->row_stride + b * rows->block_stride, rows->row_stride, x, &first, &second);
            const float *scale = rows->scale + b * halves * ES_PRODUCT_ROWS + 8 * h;
            if (halves == 1) {
                acc[h] = add_sum(acc[h], scale, x_scale, _mm256_cvtepi32_ps(_mm256_add_epi32(first, second)));
            } else {
                acc[h] = add_sum(acc[h], scale, x_scale, _mm256_cvtepi32_ps(first));
                acc[h] = add_sum(acc[h], scale + ES_PRODUCT_ROWS, x_scale, _mm256_cvtepi32_ps(second));
            }
            if (rows->offset) acc[h] = add_sum(acc[h], rows->offset + b * ES_PRODUCT_ROWS + 8 * h, x_scale, x_sum);
        }
    }
    for (int h = 0; h < 2; h++) _mm256_storeu_ps(out + 8 * h, acc[h]);
}

static void int8_product(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    for (int32_t p = 0; p < panels; p++)
        for (int32_t t = 0; t < panel[p].tokens; t++) {
            float *place = out + (p * ES_PANEL_TOKENS + t) * ES_PRODUCT_ROWS;
            if (rows->halves == 1)
                int8_token(rows, &panel[p], t, place, 1);
            else
                int8_token(rows, &panel[p], t, place, 2);
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
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)es_block_bits(high)),
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

#define UNPACK_32(name, block_type, integers, offset_of)                                                                   \
    static void unpack_##name(const void *data, size_t row_bytes, int32_t count, int64_t columns,                         \
                              const es_unpack_room *room, es_int8_rows *out)                                              \
    {                                                                                                                     \
        const int64_t blocks = columns / ES_PRODUCT_BLOCK;                                                                \
        const bool offsets = (offset_of) != 0;                                                                            \
        clear(room, count, columns, 1, offsets);                                                                          \
        for (int32_t r = 0; r < count; r++)                                                                               \
            for (int64_t i = 0; i < blocks; i++) {                                                                        \
                const block_type *b = (const block_type *)(const void *)((const uint8_t *)data + (size_t)r * row_bytes) + i; \
                put(room->q + r * columns + i * ES_PRODUCT_BLOCK, integers);                                              \
                room->scale[i * ES_PRODUCT_ROWS + r] = es_block_half(b->d);                                               \
                if (offsets) room->offset[i * ES_PRODUCT_ROWS + r] = es_block_half((const uint8_t *)b + (offset_of));     \
            }                                                                                                             \
        *out = (es_int8_rows){room->q, columns, ES_PRODUCT_BLOCK, count, blocks, 1, room->scale,                          \
                              offsets ? room->offset : NULL, NULL, 0};                                                             \
    }
UNPACK_32(few_q8_0, es_block_q8_0, load_bytes(b->q), 0)
UNPACK_32(q4_0, es_block_q4_0, _mm256_sub_epi8(nibbles(b->q), _mm256_set1_epi8(8)), 0)
UNPACK_32(q4_1, es_block_q4_1, nibbles(b->q), 2)
UNPACK_32(q5_0, es_block_q5_0, _mm256_sub_epi8(_mm256_or_si256(nibbles(b->q), fifth_bits(b->high)), _mm256_set1_epi8(16)), 0)
UNPACK_32(q5_1, es_block_q5_1, _mm256_or_si256(nibbles(b->q), fifth_bits(b->high)), 2)

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
    for (int32_t r = 0; r < ES_PRODUCT_ROWS; r++)
        for (int64_t b = 0; b < blocks; b++)
            room->scale[b * ES_PRODUCT_ROWS + r] = es_block_half(rows + (size_t)r * row_bytes + (size_t)b * sizeof(es_block_q8_0));
    *out = (es_int8_rows){(const int8_t *)rows + 2, (int64_t)row_bytes, sizeof(es_block_q8_0), count, blocks, 1, room->scale, NULL,
                          NULL, 0};
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

#define UNPACK_K(name, block_type, high)                                                                                   \
    static void unpack_##name(const void *data, size_t row_bytes, int32_t count, int64_t columns,                         \
                              const es_unpack_room *room, es_int8_rows *out)                                              \
    {                                                                                                                     \
        clear(room, count, columns, 1, true);                                                                             \
        for (int32_t r = 0; r < count; r++)                                                                               \
            for (int64_t i = 0; i < columns / 256; i++) {                                                                 \
                const block_type *b = (const block_type *)(const void *)((const uint8_t *)data + (size_t)r * row_bytes) + i; \
                uint8_t scale[8], minimum[8];                                                                             \
                nibbles_k(b->q, high, room->q + r * columns + i * 256);                                                   \
                es_block_k_scales(b->scales, scale, minimum);                                                             \
                for (int g = 0; g < 8; g++) {                                                                             \
                    room->scale[(i * 8 + g) * ES_PRODUCT_ROWS + r] = es_block_half(b->d) * (float)scale[g];               \
                    room->offset[(i * 8 + g) * ES_PRODUCT_ROWS + r] = -(es_block_half(b->m) * (float)minimum[g]);         \
                }                                                                                                         \
            }                                                                                                             \
        *out = (es_int8_rows){room->q, columns, ES_PRODUCT_BLOCK, count, columns / ES_PRODUCT_BLOCK, 1, room->scale,      \
                              room->offset, NULL, 0};                                                                              \
    }
UNPACK_K(q4_k, es_block_q4_k, NULL)
UNPACK_K(q5_k, es_block_q5_k, b->high)

static void unpack_q6_k(const void *data, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,
                        es_int8_rows *out)
{
    const __m256i low = _mm256_set1_epi8(0x0F), three = _mm256_set1_epi8(3), zero = _mm256_set1_epi8(32);
    clear(room, count, columns, 2, false);
    for (int32_t r = 0; r < count; r++)
        for (int64_t i = 0; i < columns / 256; i++) {
            const es_block_q6_k *b = (const es_block_q6_k *)(const void *)((const uint8_t *)data + (size_t)r * row_bytes) + i;
            for (int part = 0; part < 8; part++) {
                const __m256i l = load_bytes(b->low + part / 4 * 64 + part % 2 * 32), h = load_bytes(b->high + part / 4 * 32);
                const __m256i four = _mm256_and_si256(_mm256_srli_epi16(l, part % 4 / 2 * 4), low);
                const __m256i two = _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(h, part % 4 * 2), three), 4);
                put(room->q + r * columns + i * 256 + 32 * part, _mm256_sub_epi8(_mm256_or_si256(four, two), zero));
            }
            for (int h = 0; h < 16; h++)
                room->scale[(i * 16 + h) * ES_PRODUCT_ROWS + r] = es_block_half(b->d) * (float)b->scales[h];
        }
    *out = (es_int8_rows){room->q, columns, ES_PRODUCT_BLOCK, count, columns / ES_PRODUCT_BLOCK, 2, room->scale, NULL, NULL, 0};
}

void es_products_avx2(es_products *products)
{
    products->encode_bf16 = encode_bf16;
    products->encode_int8 = encode_int8;
    products->bf16 = bf16_product;
    products->int8 = int8_product;
    products->unpack[ES_Q8_0] = unpack_q8_0;
    products->unpack[ES_Q4_0] = unpack_q4_0;
    products->unpack[ES_Q4_1] = unpack_q4_1;
    products->unpack[ES_Q5_0] = unpack_q5_0;
    products->unpack[ES_Q5_1] = unpack_q5_1;
    products->unpack[ES_Q4_K] = unpack_q4_k;
    products->unpack[ES_Q5_K] = unpack_q5_k;
    products->unpack[ES_Q6_K] = unpack_q6_k;
}
