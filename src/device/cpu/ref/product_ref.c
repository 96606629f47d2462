/* product_ref.c: the reference of the products in modes bf16, bf16dp and int8; see product.h for their definition. */
#include "device/cpu/product.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/blocks.h"

static void encode_bf16_ref(const float *const *x, int32_t tokens, int64_t columns, uint16_t *data)
{
    const int64_t padded = (columns + ES_PRODUCT_BLOCK - 1) / ES_PRODUCT_BLOCK * ES_PRODUCT_BLOCK;
    for (int32_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < padded; i++)
            data[(i / 2 * tokens + t) * 2 + i % 2] = i < columns ? es_float_to_bfloat(x[t][i]) : 0;
}

/* Adding 1.5·2^23 rounds to an integer, ties to even. */
static float round_to_integer(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

static void encode_int8_ref(const float *const *x, int32_t tokens, int64_t columns, int8_t *data, float *scale, float *sum)
{
    for (int64_t b = 0; b < columns / ES_PRODUCT_BLOCK; b++)
        for (int32_t t = 0; t < tokens; t++) {
            const float *block = x[t] + b * ES_PRODUCT_BLOCK;
            float most = 0;
            int total = 0;
            for (int i = 0; i < ES_PRODUCT_BLOCK; i++)
                if (fabsf(block[i]) > most) most = fabsf(block[i]);
            const float inverse = most > 0 ? 127.0f / most : 0.0f;
            for (int i = 0; i < ES_PRODUCT_BLOCK; i++) {
                float v = block[i] * inverse;
                v = v > -127.0f ? v : -127.0f; /* a NaN becomes −127 */
                v = v < 127.0f ? v : 127.0f;
                const int q = (int)round_to_integer(v);
                data[((b * 8 + i / 4) * tokens + t) * 4 + i % 4] = (int8_t)q;
                total += q;
            }
            scale[b * tokens + t] = most / 127.0f;
            sum[b * tokens + t] = (float)total;
        }
}

static float dot_bf16(const uint16_t *w, const uint16_t *x, int32_t tokens, int64_t blocks)
{
    float c = 0;
    for (int64_t b = 0; b < blocks; b++) {
        float e = 0, o = 0;
        for (int64_t i = b * 16; i < b * 16 + 16; i++) {
            e = fmaf(es_bfloat_to_float(w[2 * i]), es_bfloat_to_float(x[i * tokens * 2]), e);
            o = fmaf(es_bfloat_to_float(w[2 * i + 1]), es_bfloat_to_float(x[i * tokens * 2 + 1]), o);
        }
        c = c + (e + o);
    }
    return c;
}

static void bf16_ref(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    for (int32_t p = 0; p < panels; p++)
        for (int32_t t = 0; t < panel[p].tokens; t++)
            for (int32_t r = 0; r < rows->rows; r++)
                out[(p * ES_PANEL_TOKENS + t) * ES_PRODUCT_ROWS + r] = dot_bf16(
                    rows->w + r * rows->stride, (const uint16_t *)panel[p].data + 2 * t, panel[p].tokens, rows->blocks);
}

static float dot_bf16dp(const uint16_t *w, const uint16_t *x, int64_t blocks)
{
    float a[16] = {0};
    for (int64_t b = 0; b < blocks; b++, w += ES_PRODUCT_BLOCK, x += ES_PRODUCT_BLOCK)
        for (int j = 0; j < 16; j++) {
            a[j] = fmaf(es_bfloat_to_float(w[2 * j + 1]), es_bfloat_to_float(x[2 * j + 1]), a[j]);
            a[j] = fmaf(es_bfloat_to_float(w[2 * j]), es_bfloat_to_float(x[2 * j]), a[j]);
        }
    for (int half = 8; half > 0; half /= 2)
        for (int j = 0; j < half; j++) a[j] = a[j] + a[j + half];
    return a[0];
}

void es_product_bf16dp_ref(const es_bf16_rows *rows, const es_bf16_tokens *tokens, float *out)
{
    for (int32_t t = 0; t < tokens->count; t++)
        for (int32_t r = 0; r < rows->rows; r++)
            out[t * ES_PRODUCT_ROWS + r] =
                dot_bf16dp(rows->w + r * rows->stride, tokens->x + t * tokens->stride, rows->blocks);
}

static float dot_int8(const es_int8_rows *rows, int32_t r, const es_panel *panel, int32_t t)
{
    float acc = 0;
    const int32_t n = panel->tokens, span = ES_PRODUCT_BLOCK / rows->halves;
    for (int64_t b = 0; b < rows->blocks; b++) {
        const int8_t *w = rows->q + r * rows->row_stride + b * rows->block_stride;
        const int8_t *x = (const int8_t *)panel->data + (b * 8 * n + t) * 4;
        const float x_scale = panel->scale[b * n + t];
        for (int32_t h = 0; h < rows->halves; h++) {
            int32_t sum = 0;
            for (int32_t i = h * span; i < (h + 1) * span; i++) sum += w[i] * x[i / 4 * n * 4 + i % 4];
            acc = fmaf(rows->scale[(b * rows->halves + h) * ES_PRODUCT_ROWS + r] * x_scale, (float)sum, acc);
        }
        if (rows->offset) acc = fmaf(rows->offset[b * ES_PRODUCT_ROWS + r] * x_scale, panel->sum[b * n + t], acc);
    }
    return acc;
}

static void int8_ref(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    for (int32_t p = 0; p < panels; p++)
        for (int32_t t = 0; t < panel[p].tokens; t++)
            for (int32_t r = 0; r < rows->rows; r++)
                out[(p * ES_PANEL_TOKENS + t) * ES_PRODUCT_ROWS + r] = dot_int8(rows, r, &panel[p], t);
}

/* Integers, scales and offsets of 32 elements of one row; `part` counts groups of 32 inside a block of 256. */
typedef struct unpacked {
    int8_t *q;
    float scale[2], offset;
} unpacked;

static void unpack_q8_0(const void *block, int part, unpacked *u)
{
    const es_block_q8_0 *b = block;
    (void)part;
    memcpy(u->q, b->q, sizeof b->q);
    u->scale[0] = es_block_half(b->d);
}

static void unpack_q4_0(const void *block, int part, unpacked *u)
{
    const es_block_q4_0 *b = block;
    (void)part;
    for (int i = 0; i < 16; i++) u->q[i] = (int8_t)((b->q[i] & 0x0F) - 8), u->q[i + 16] = (int8_t)((b->q[i] >> 4) - 8);
    u->scale[0] = es_block_half(b->d);
}

static void unpack_q4_1(const void *block, int part, unpacked *u)
{
    const es_block_q4_1 *b = block;
    (void)part;
    for (int i = 0; i < 16; i++) u->q[i] = b->q[i] & 0x0F, u->q[i + 16] = (int8_t)(b->q[i] >> 4);
    u->scale[0] = es_block_half(b->d);
    u->offset = es_block_half(b->m);
}

static void unpack_fives(const uint8_t high[4], const uint8_t *q, int zero, int8_t *out)
{
    const uint32_t bits = es_block_bits(high);
    for (int i = 0; i < 16; i++) {
        out[i] = (int8_t)(((q[i] & 0x0F) | (bits >> i & 1) << 4) - (uint32_t)zero);
        out[i + 16] = (int8_t)((((uint32_t)q[i] >> 4) | (bits >> (i + 16) & 1) << 4) - (uint32_t)zero);
    }
}

static void unpack_q5_0(const void *block, int part, unpacked *u)
{
    const es_block_q5_0 *b = block;
    (void)part;
    unpack_fives(b->high, b->q, 16, u->q);
    u->scale[0] = es_block_half(b->d);
}

static void unpack_q5_1(const void *block, int part, unpacked *u)
{
    const es_block_q5_1 *b = block;
    (void)part;
    unpack_fives(b->high, b->q, 0, u->q);
    u->scale[0] = es_block_half(b->d);
    u->offset = es_block_half(b->m);
}

static void k_scales(const uint8_t packed[12], const uint8_t d[2], const uint8_t m[2], int part, unpacked *u)
{
    uint8_t scale[8], minimum[8];
    es_block_k_scales(packed, scale, minimum);
    u->scale[0] = es_block_half(d) * (float)scale[part];
    u->offset = -(es_block_half(m) * (float)minimum[part]);
}

static void unpack_q4_k(const void *block, int part, unpacked *u)
{
    const es_block_q4_k *b = block;
    for (int i = 0; i < 32; i++) u->q[i] = (int8_t)(b->q[part / 2 * 32 + i] >> (part % 2 * 4) & 0x0F);
    k_scales(b->scales, b->d, b->m, part, u);
}

static void unpack_q5_k(const void *block, int part, unpacked *u)
{
    const es_block_q5_k *b = block;
    for (int i = 0; i < 32; i++)
        u->q[i] = (int8_t)((b->q[part / 2 * 32 + i] >> (part % 2 * 4) & 0x0F) | (b->high[i] >> part & 1) << 4);
    k_scales(b->scales, b->d, b->m, part, u);
}

static void unpack_q6_k(const void *block, int part, unpacked *u)
{
    const es_block_q6_k *b = block;
    const uint8_t *low = b->low + part / 4 * 64 + part % 2 * 32, *high = b->high + part / 4 * 32;
    for (int i = 0; i < 32; i++)
        u->q[i] = (int8_t)(((low[i] >> (part % 4 / 2 * 4) & 0x0F) | (high[i] >> (part % 4 * 2) & 3) << 4) - 32);
    for (int h = 0; h < 2; h++) u->scale[h] = es_block_half(b->d) * (float)b->scales[2 * part + h];
}

/* Rows that are missing get zeros: whole tiles can be read, and nobody looks at what they give. */
static void unpack_rows(const void *rows, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,
                        es_int8_rows *out, es_dtype type, void (*unpack)(const void *, int, unpacked *), int halves,
                        bool offsets)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    const int64_t parts = info->block / ES_PRODUCT_BLOCK, blocks = columns / ES_PRODUCT_BLOCK;
    for (int32_t r = 0; r < ES_PRODUCT_ROWS; r++)
        for (int64_t b = 0; b < blocks; b++) {
            unpacked u = {.q = room->q + r * columns + b * ES_PRODUCT_BLOCK};
            if (r < count)
                unpack((const uint8_t *)rows + (size_t)r * row_bytes + (size_t)(b / parts * info->block_bytes),
                       (int)(b % parts), &u);
            else
                memset(u.q, 0, ES_PRODUCT_BLOCK);
            for (int h = 0; h < halves; h++) room->scale[(b * halves + h) * ES_PRODUCT_ROWS + r] = u.scale[h];
            if (offsets) room->offset[b * ES_PRODUCT_ROWS + r] = u.offset;
        }
    *out = (es_int8_rows){
        room->q, columns, ES_PRODUCT_BLOCK, count, blocks, halves, room->scale, offsets ? room->offset : NULL, NULL, 0, type};
}

#define UNPACK(name, type, halves, offsets)                                                                                   \
    static void rows_##name(const void *rows, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,   \
                            es_int8_rows *out)                                                                                \
    {                                                                                                                         \
        unpack_rows(rows, row_bytes, count, columns, room, out, type, unpack_##name, halves, offsets);                        \
    }
UNPACK(q8_0, ES_Q8_0, 1, false)
UNPACK(q4_0, ES_Q4_0, 1, false)
UNPACK(q4_1, ES_Q4_1, 1, true)
UNPACK(q5_0, ES_Q5_0, 1, false)
UNPACK(q5_1, ES_Q5_1, 1, true)
UNPACK(q4_k, ES_Q4_K, 1, true)
UNPACK(q5_k, ES_Q5_K, 1, true)
UNPACK(q6_k, ES_Q6_K, 2, false)

void es_products_reference(es_products *products)
{
    *products = (es_products){
        .encode_bf16 = encode_bf16_ref,
        .encode_int8 = encode_int8_ref,
        .bf16 = bf16_ref,
        .int8 = int8_ref,
        .unpack = {[ES_Q8_0] = rows_q8_0,
                   [ES_Q4_0] = rows_q4_0,
                   [ES_Q4_1] = rows_q4_1,
                   [ES_Q5_0] = rows_q5_0,
                   [ES_Q5_1] = rows_q5_1,
                   [ES_Q4_K] = rows_q4_k,
                   [ES_Q5_K] = rows_q5_k,
                   [ES_Q6_K] = rows_q6_k},
        .staying = 1 << 14, /* so that groups are compared with none */
    };
}
