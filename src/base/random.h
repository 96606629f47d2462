/* random.h: counter-based random numbers (Philox 4x32-10).
 *
 * A draw is a pure function of its key and counter: no state to keep, so a preempted, batched or resumed sequence draws
 * exactly what it would have drawn alone. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef ES_BASE_RANDOM_H
#define ES_BASE_RANDOM_H

#include <stdint.h>

typedef struct es_philox_block {
    uint32_t word[4];
} es_philox_block;

/** The 128 random bits at `counter` of the stream `key`. */
es_philox_block es_philox(const uint32_t key[2], const uint32_t counter[4]);

/** A float64 in [0, 1) with 53 random bits, for (seed, stream, position, draw). */
double es_random_unit(uint64_t seed, uint32_t stream, uint64_t position, uint32_t draw);

#endif
