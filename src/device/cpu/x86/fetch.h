/* fetch.h: bytes that will be needed soon, brought into the second-level cache: weight rows follow each other, so that those
 * of the next block are one stretch behind those of this one, and prefetchers of the machine stop at each 4 KiB. */
#ifndef ES_CPU_X86_FETCH_H
#define ES_CPU_X86_FETCH_H

#include <immintrin.h>
#include <stddef.h>

#include "device/cpu/product.h"

/** Fetch bytes [from, to) behind `base`, which need not be there: nothing is read. */
static inline __attribute__((always_inline)) void es_fetch(const void *base, size_t from, size_t to)
{
    for (size_t at = from & ~(size_t)63; at < to; at += 64) _mm_prefetch((const char *)base + at, _MM_HINT_T1);
}

/** Fetch block b's share of the rows that come next: without, unpacking them waits for memory while nobody multiplies. */
static inline __attribute__((always_inline)) void es_fetch_share(const es_int8_rows *rows, int64_t b)
{
    const size_t blocks = (size_t)rows->blocks;
    es_fetch(rows->next, rows->next_bytes * (size_t)b / blocks, rows->next_bytes * (size_t)(b + 1) / blocks);
}

#endif
