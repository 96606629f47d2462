/* limits.h: loops that do nothing but reach a limit of this machine: fused steps, tile products, reading memory.
 *
 * Each runs on one thread for a while and says what it did; `bench` runs one on every worker at once and takes the time. */
#ifndef ES_CPU_LIMITS_H
#define ES_CPU_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Per second, all workers together. 0 where the machine has no such thing. */
typedef struct es_limits {
    int threads;
    double read_bytes;               /**< reading memory, far past every cache a worker has of its own */
    double fma_flops;                /**< float32 fused steps in vectors, two operations each */
    double bf16_flops, int8_ops;     /**< AMX tile products */
} es_limits;

/** Operations done in `rounds` rounds; the loops of one instruction set. */
double es_limit_fma_avx512(int64_t rounds);
double es_limit_fma_avx2(int64_t rounds);
double es_limit_bf16_amx(int64_t rounds);
double es_limit_int8_amx(int64_t rounds);
/** Read bytes, a multiple of 512, and return something that depends on them. */
uint64_t es_limit_read_avx512(const void *data, size_t bytes);
uint64_t es_limit_read_plain(const void *data, size_t bytes);

/** The best of them that runs here; NULL where none does. */
typedef struct es_limit_loops {
    double (*fma)(int64_t rounds), (*bf16)(int64_t rounds), (*int8)(int64_t rounds);
    uint64_t (*read)(const void *data, size_t bytes);
} es_limit_loops;
void es_limit_loops_select(es_limit_loops *loops);

#endif
