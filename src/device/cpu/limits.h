/* limits.h: loops that do nothing but reach a limit of this machine: fused steps, integer and tile products, reading memory.
 *
 * Each runs on one thread for a while and says what it did; `bench` runs one on every worker at once and takes the time. */
#ifndef ES_CPU_LIMITS_H
#define ES_CPU_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The arithmetic of products with weights: what numeric mode and weight type make of them. */
typedef enum es_limit_kind {
    ES_LIMIT_F32,    /**< float32 fused steps in vectors, which the recurrence takes in every mode, too */
    ES_LIMIT_BF16,   /**< AMX tile products; without AMX mode bf16 takes float32 fused steps, and so that is its peak */
    ES_LIMIT_BF16DP, /**< dot products of AVX512_BF16; without it float32 fused steps */
    ES_LIMIT_INT8,   /**< AMX tile products, else VNNI, else AVX2 in three steps */
    ES_LIMIT_KINDS
} es_limit_kind;

/** The most operations per second of one kind, all workers together; a multiplication and its addition count as two. */
typedef struct es_peak {
    double per_second; /**< 0 where there is no loop that reaches it */
    const char *by;    /**< the instructions, in words; "" where there is none */
} es_peak;

/** Per second, all workers together. */
typedef struct es_limits {
    int threads;
    double read_bytes; /**< reading memory, far past every cache a worker has of its own */
    es_peak peak[ES_LIMIT_KINDS];
    double sustained; /**< of a GPU's bf16 peak over a third of a second, under power and heat; 0: not measured */
} es_limits;

/** Operations done in `rounds` rounds; the loops of one instruction set. */
double es_limit_fma_avx512(int64_t rounds);
double es_limit_int8_avx2(int64_t rounds);
double es_limit_int8_avx512vnni(int64_t rounds);
double es_limit_fma_avx2(int64_t rounds);
double es_limit_bf16_avx512bf16(int64_t rounds);
double es_limit_bf16_amx(int64_t rounds);
double es_limit_int8_amx(int64_t rounds);
/** Read bytes, a multiple of 512, and return something that depends on them. */
uint64_t es_limit_read_avx512(const void *data, size_t bytes);
uint64_t es_limit_read_avx2(const void *data, size_t bytes);
uint64_t es_limit_read_plain(const void *data, size_t bytes);

/** A loop that does nothing but one kind of arithmetic. */
typedef struct es_limit_loop {
    double (*run)(int64_t rounds); /**< NULL where none runs here */
    const char *by;
} es_limit_loop;

/** The best of them that runs here. */
typedef struct es_limit_loops {
    es_limit_loop peak[ES_LIMIT_KINDS];
    uint64_t (*read)(const void *data, size_t bytes);
} es_limit_loops;
void es_limit_loops_select(es_limit_loops *loops);

#endif
