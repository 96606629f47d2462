/* random_blocks.h: random weights of every type, written as blocks, without a matrix of floats that would be quantised.
 *
 * Quantised values are uniform over their integers, scales vary a little from block to block, and the whole has a mean of zero
 * and the spread that is asked for: activations of a network of them stay finite, and no kernel can take a short cut. */
#ifndef ES_DEVICE_RANDOM_BLOCKS_H
#define ES_DEVICE_RANDOM_BLOCKS_H

#include "device/dtype.h"
#include "evenshare/engine.h"

/** A stream of random bits; any state will do as a seed. */
typedef struct es_bits {
    uint64_t state;
} es_bits;
uint64_t es_bits_next(es_bits *bits);
/** Uniform in [low, high). */
float es_bits_between(es_bits *bits, float low, float high);

/** `blocks` blocks of a type with standard deviation `spread`. */
void es_random_blocks(es_bits *bits, es_dtype type, int64_t blocks, float spread, unsigned char *out);

/** Bytes that may stand anywhere in a cache of keys and values of a resolved type, with standard deviation `spread` unless they are
 *  8 bits: then every 16 bits are as good as two integers or as a scale. */
void es_random_kv(es_bits *bits, es_kv_type type, size_t bytes, float spread, unsigned char *out);

#endif
