/* decode_ref.c: decoding in plain C, the reference that every other decoder must equal bit by bit.
 *
 * Each element is one formula of blocks.h, in the rounding order of the Python package `gguf`. */
#include "device/cpu/blocks.h"
#include "device/cpu/decode.h"

static void decode_f32(const void *blocks, float *out, int64_t elements)
{
    memcpy(out, blocks, (size_t)elements * sizeof *out);
}

static void decode_f16(const void *blocks, float *out, int64_t elements)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < elements; i++) out[i] = es_block_half(p + 2 * i);
}

static void decode_bf16(const void *blocks, float *out, int64_t elements)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < elements; i++) out[i] = es_bfloat_to_float((uint16_t)(p[2 * i] | p[2 * i + 1] << 8));
}

static void decode_q8_0(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q8_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const float d = es_block_half(b->d);
        for (int i = 0; i < 32; i++) out[i] = d * (float)b->q[i];
    }
}

static void decode_q4_0(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q4_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const float d = es_block_half(b->d);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((b->q[i] & 0x0F) - 8);
            out[i + 16] = d * (float)((b->q[i] >> 4) - 8);
        }
    }
}

static void decode_q4_1(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q4_1 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const float d = es_block_half(b->d), m = es_block_half(b->m);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(b->q[i] & 0x0F) + m;
            out[i + 16] = d * (float)(b->q[i] >> 4) + m;
        }
    }
}

static void decode_q5_0(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q5_0 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const float d = es_block_half(b->d);
        const uint32_t high = es_block_bits(b->high);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((int)((b->q[i] & 0x0F) | (high >> i & 1) << 4) - 16);
            out[i + 16] = d * (float)((int)((b->q[i] >> 4) | (high >> (i + 16) & 1) << 4) - 16);
        }
    }
}

static void decode_q5_1(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q5_1 *b = blocks; elements > 0; b++, out += 32, elements -= 32) {
        const float d = es_block_half(b->d), m = es_block_half(b->m);
        const uint32_t high = es_block_bits(b->high);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(int)((b->q[i] & 0x0F) | (high >> i & 1) << 4) + m;
            out[i + 16] = d * (float)(int)((b->q[i] >> 4) | (high >> (i + 16) & 1) << 4) + m;
        }
    }
}

static void decode_q4_k(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q4_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        const float d = es_block_half(b->d), m = es_block_half(b->m);
        uint8_t scale[8], minimum[8];
        es_block_k_scales(b->scales, scale, minimum);
        for (int g = 0; g < 8; g++) {
            const float dg = d * (float)scale[g], mg = m * (float)minimum[g];
            const uint8_t *q = b->q + g / 2 * 32;
            for (int i = 0; i < 32; i++) out[32 * g + i] = dg * (float)(q[i] >> (g % 2 * 4) & 0x0F) - mg;
        }
    }
}

static void decode_q5_k(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q5_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        const float d = es_block_half(b->d), m = es_block_half(b->m);
        uint8_t scale[8], minimum[8];
        es_block_k_scales(b->scales, scale, minimum);
        for (int g = 0; g < 8; g++) {
            const float dg = d * (float)scale[g], mg = m * (float)minimum[g];
            const uint8_t *q = b->q + g / 2 * 32;
            for (int i = 0; i < 32; i++) {
                const int value = (q[i] >> (g % 2 * 4) & 0x0F) | (b->high[i] >> g & 1) << 4;
                out[32 * g + i] = dg * (float)value - mg;
            }
        }
    }
}

static void decode_q6_k(const void *blocks, float *out, int64_t elements)
{
    for (const es_block_q6_k *b = blocks; elements > 0; b++, out += 256, elements -= 256) {
        const float d = es_block_half(b->d);
        for (int part = 0; part < 8; part++) { /* 32 elements each: quarter part % 4 of half part / 4 */
            const uint8_t *low = b->low + part / 4 * 64 + part % 2 * 32, *high = b->high + part / 4 * 32;
            for (int i = 0; i < 32; i++) {
                const float dg = d * (float)b->scales[2 * part + i / 16];
                const int value = (low[i] >> (part % 4 / 2 * 4) & 0x0F) | (high[i] >> (part % 4 * 2) & 3) << 4;
                out[32 * part + i] = dg * (float)(value - 32);
            }
        }
    }
}

es_decode_fn es_decode_ref(es_dtype type)
{
    static const es_decode_fn table[ES_DTYPES] = {
        [ES_F32] = decode_f32,   [ES_F16] = decode_f16,   [ES_BF16] = decode_bf16, [ES_Q8_0] = decode_q8_0,
        [ES_Q4_0] = decode_q4_0, [ES_Q4_1] = decode_q4_1, [ES_Q5_0] = decode_q5_0, [ES_Q5_1] = decode_q5_1,
        [ES_Q4_K] = decode_q4_k, [ES_Q5_K] = decode_q5_k, [ES_Q6_K] = decode_q6_k,
    };
    return table[type];
}
