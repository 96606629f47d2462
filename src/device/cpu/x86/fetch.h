/* fetch.h: bytes that will be needed soon, brought into the second-level cache: weight rows follow each other, so that those
 * of the next block are one stretch behind those of this one, and prefetchers of the machine stop at each 4 KiB. */
#ifndef ES_CPU_X86_FETCH_H
#define ES_CPU_X86_FETCH_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cpu/product.h"

/** Fetch bytes [from, to) behind `base`, which need not be there: nothing is read. */
static inline __attribute__((always_inline)) void es_fetch(const void *base, size_t from, size_t to)
{
    for (size_t at = from & ~(size_t)63; at < to; at += 64) _mm_prefetch((const char *)base + at, _MM_HINT_T1);
}

/** The same, each line once; and halfway through a page the first two lines of the next one, which start the machine's own
 *  prefetcher there before it is needed. */
static inline __attribute__((always_inline)) void es_fetch_ahead(const void *base, size_t from, size_t to)
{
    enum { LINE = 64, PAGE = 4096 };
    const uintptr_t first = (uintptr_t)base, end = first + to;
    for (uintptr_t at = (first + from + LINE - 1) / LINE * LINE; at < end; at += LINE) {
        _mm_prefetch((const char *)at, _MM_HINT_T1);
        if (at % PAGE != PAGE / 2) continue;
        _mm_prefetch((const char *)at + PAGE / 2, _MM_HINT_T1);
        _mm_prefetch((const char *)at + PAGE / 2 + LINE, _MM_HINT_T1);
    }
}

/** Fetch block b's share of the rows that come next: without, unpacking them waits for memory while nobody multiplies. */
static inline __attribute__((always_inline)) void es_fetch_share(const es_int8_rows *rows, int64_t b)
{
    const size_t blocks = (size_t)rows->blocks;
    es_fetch(rows->next, rows->next_bytes * (size_t)b / blocks, rows->next_bytes * (size_t)(b + 1) / blocks);
}

#endif
