/* random_blocks.c: see random_blocks.h. The layouts are GGUF's; src/device/cpu/blocks.h names their fields. */
#include "device/random_blocks.h"

#include <string.h>

#include "base/half.h"
#include "device/device.h"

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): an odd step, then a mixing function. */
uint64_t es_bits_next(es_bits *bits)
{
    uint64_t z = bits->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

float es_bits_between(es_bits *bits, float low, float high)
{
    return low + (high - low) * (float)(es_bits_next(bits) >> 40) * 0x1p-24f;
}

static void fill(es_bits *bits, unsigned char *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = es_bits_next(bits);
        memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static void put_half(unsigned char *to, float value)
{
    const uint16_t half = es_float_to_half(value);
    memcpy(to, &half, sizeof half);
}

/* Eight scales of 6 bits, and as many minima, in 12 bytes; both are 32 to 63, and equal. */
static void put_k_scales(es_bits *bits, unsigned char packed[12])
{
    uint64_t word = es_bits_next(bits);
    uint8_t scale[8];
    for (int i = 0; i < 8; i++, word >>= 5) scale[i] = (uint8_t)(32 + (word & 31));
    for (int i = 0; i < 4; i++) {
        packed[i] = packed[i + 4] = (unsigned char)(scale[i] | (scale[i + 4] >> 4) << 6);
        packed[i + 8] = (unsigned char)((scale[i + 4] & 15) | (scale[i + 4] & 15) << 4);
    }
}

/* What a uniform integer of so many values spreads: sqrt((n² − 1) / 12). */
#define SPREAD_16 4.61f
#define SPREAD_32 9.23f
#define SPREAD_64 18.47f
#define SPREAD_256 73.9f
#define MEAN_K_SCALE 47.5f

static void one_block(es_bits *bits, es_dtype type, float spread, unsigned char *out, size_t bytes)
{
    fill(bits, out, bytes);
    const float vary = es_bits_between(bits, 0.75f, 1.25f) * spread;
    switch (type) {
    case ES_Q8_0: put_half(out, vary / SPREAD_256); break;
    case ES_Q4_0: put_half(out, vary / SPREAD_16); break;
    case ES_Q5_0: put_half(out, vary / SPREAD_32); break;
    case ES_Q4_1:
        put_half(out, vary / SPREAD_16);
        put_half(out + 2, -7.5f * vary / SPREAD_16);
        break;
    case ES_Q5_1:
        put_half(out, vary / SPREAD_32);
        put_half(out + 2, -15.5f * vary / SPREAD_32);
        break;
    case ES_Q4_K:
        put_half(out, vary / (SPREAD_16 * MEAN_K_SCALE));
        put_half(out + 2, 7.5f * vary / (SPREAD_16 * MEAN_K_SCALE));
        put_k_scales(bits, out + 4);
        break;
    case ES_Q5_K:
        put_half(out, vary / (SPREAD_32 * MEAN_K_SCALE));
        put_half(out + 2, 15.5f * vary / (SPREAD_32 * MEAN_K_SCALE));
        put_k_scales(bits, out + 4);
        break;
    case ES_Q6_K: {
        uint64_t word = es_bits_next(bits);
        for (int i = 0; i < 16; i++, word >>= 3) out[192 + i] = (unsigned char)(8 + (word & 7));
        put_half(out + 208, vary / (SPREAD_64 * 11.5f));
        break;
    }
    default: break;
    }
}

static void plain(es_bits *bits, es_dtype type, int64_t count, float spread, unsigned char *out)
{
    const float width = spread * 1.7320508f; /* of a uniform value to each side */
    for (int64_t i = 0; i < count; i++) {
        const float value = es_bits_between(bits, -width, width);
        const uint16_t half = type == ES_F16 ? es_float_to_half(value) : es_float_to_bfloat(value);
        if (type == ES_F32) memcpy(out + i * 4, &value, 4);
        else memcpy(out + i * 2, &half, 2);
    }
}

void es_random_blocks(es_bits *bits, es_dtype type, int64_t blocks, float spread, unsigned char *out)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    if (info->block == 1) {
        plain(bits, type, blocks, spread, out);
        return;
    }
    for (int64_t b = 0; b < blocks; b++)
        one_block(bits, type, spread, out + b * info->block_bytes, (size_t)info->block_bytes);
}

void es_random_kv(es_bits *bits, es_kv_type type, size_t bytes, float spread, unsigned char *out)
{
    if (type != ES_KV_Q8_0) {
        const es_dtype stored = es_kv_dtype(type);
        es_random_blocks(bits, stored, (int64_t)bytes / es_dtype_get_info(stored)->block_bytes, spread, out);
        return;
    }
    for (size_t i = 0; i + 2 <= bytes; i += 2) {
        const uint16_t half = (uint16_t)(0x2000 | (es_bits_next(bits) & 0x3FF)); /* 2^-7 to 2^-6 */
        memcpy(out + i, &half, sizeof half);
    }
}
