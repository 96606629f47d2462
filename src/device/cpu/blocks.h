/* blocks.h: how quantised blocks lie in memory.
 *
 * Byte arrays throughout: a block may begin at any address, and a file is little-endian whatever the machine. The layouts are
 * GGUF's; d and m are binary16 numbers. */
#ifndef ES_DEVICE_CPU_BLOCKS_H
#define ES_DEVICE_CPU_BLOCKS_H

#include "base/half.h"

/** 32 elements: d · q. */
typedef struct es_block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
} es_block_q8_0;

/** 32 elements: d · (q − 8); element i in the low nibble of byte i, element i + 16 in the high one. */
typedef struct es_block_q4_0 {
    uint8_t d[2], q[16];
} es_block_q4_0;

/** 32 elements: d · q + m. */
typedef struct es_block_q4_1 {
    uint8_t d[2], m[2], q[16];
} es_block_q4_1;

/** 32 elements: d · (q − 16); bit i of `high` is the fifth bit of element i. */
typedef struct es_block_q5_0 {
    uint8_t d[2], high[4], q[16];
} es_block_q5_0;

/** 32 elements: d · q + m. */
typedef struct es_block_q5_1 {
    uint8_t d[2], m[2], high[4], q[16];
} es_block_q5_1;

/** 256 elements in 8 groups of 32: (d · scale) · q − (m · minimum). Bytes 32 j ... of q hold group 2 j in their low
 *  nibbles and group 2 j + 1 in their high ones. */
typedef struct es_block_q4_k {
    uint8_t d[2], m[2], scales[12], q[128];
} es_block_q4_k;

/** As Q4_K; bit g of high[i] is the fifth bit of element i of group g. */
typedef struct es_block_q5_k {
    uint8_t d[2], m[2], scales[12], high[32], q[128];
} es_block_q5_k;

/** 256 elements in 16 groups of 16: (d · scale) · (q − 32). In each half of 128: element i of quarter 0 and 2 has its low four
 *  bits in the low and high nibble of low[i], of quarter 1 and 3 in those of low[i + 32]; two bits of high[i] for each. */
typedef struct es_block_q6_k {
    uint8_t low[128], high[64];
    int8_t scales[16];
    uint8_t d[2];
} es_block_q6_k;

static inline float es_block_half(const uint8_t bytes[2])
{
    return es_half_to_float((uint16_t)(bytes[0] | bytes[1] << 8));
}

static inline uint32_t es_block_bits(const uint8_t bytes[4])
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/** The 6-bit scale and minimum of each of the 8 groups of a Q4_K or Q5_K block. The last four take their upper two bits from
 *  the upper two of the first eight bytes. */
static inline void es_block_k_scales(const uint8_t packed[12], uint8_t scale[8], uint8_t minimum[8])
{
    for (int g = 0; g < 4; g++) {
        scale[g] = packed[g] & 0x3F;
        minimum[g] = packed[g + 4] & 0x3F;
        scale[g + 4] = (uint8_t)((packed[g + 8] & 0x0F) | (packed[g] >> 2 & 0x30));
        minimum[g + 4] = (uint8_t)(packed[g + 8] >> 4 | (packed[g + 4] >> 2 & 0x30));
    }
}

#endif
