/* product_share.h: how tiles of a wide product are shared among workers, so that none idles while another has a tile to do.
 *
 *   es_product_share share = es_product_share_plan(tiles, segments, workers);
 *   es_product_item item;
 *   for (int i = 0; es_product_share_item(&share, worker, i, &item); i++) ...
 *
 * A tile is a chain of segments of the inner dimension, whose sums are added in order. Whole waves of tiles go one to each
 * worker, neighbours side by side, so that they read the same rows at the same time. What is left, more than one tile and less
 * than two for each worker, is shared out evenly by segments: shares are contiguous, and a tile that falls into several is
 * begun by one worker and carried on by the next, which adds its segments to the sum so far. A worker walks its share from the
 * back: the tile that it only begins comes first, and the one that it carries on comes last, when the sum has long been there.
 * A worker waits only for the one in front of it. Who computes a segment is no part of the sum: bits are the same for any
 * number of workers.
 *
 * Pure arithmetic, on the host and on the device. */
#ifndef ES_CUDA_PRODUCT_SHARE_H
#define ES_CUDA_PRODUCT_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ES_BOTH static inline __host__ __device__
#else
#define ES_BOTH static inline
#endif

typedef struct es_product_share {
    int32_t tiles, segments, workers;
    int32_t waves; /**< tiles that each worker makes alone, before its share of what is left */
} es_product_share;

/** Segments [from, to) of a tile. from > 0: the worker in front left the sum of those before; to < segments: leave it to the
 *  next one. */
typedef struct es_product_item {
    int32_t tile, from, to;
} es_product_item;

/** Plan `tiles` tiles of `segments` segments over at most `workers` workers, each number at least 1. */
ES_BOTH es_product_share es_product_share_plan(int32_t tiles, int32_t segments, int32_t workers)
{
    es_product_share s = {tiles, segments, workers, tiles / workers};
    if (tiles % workers && s.waves > 0) s.waves--;
    if ((int64_t)tiles * segments < workers)
        s.workers = tiles * segments; /* everyone gets something, so whoever is in front did */
    return s;
}

/** Item `i` of a worker's list; false past its end. */
ES_BOTH bool es_product_share_item(const es_product_share *s, int32_t worker, int32_t i, es_product_item *item)
{
    if (i < s->waves) {
        item->tile = i * s->workers + worker;
        item->from = 0;
        item->to = s->segments;
        return true;
    }
    const int64_t first = (int64_t)s->waves * s->workers * s->segments, units = (int64_t)s->tiles * s->segments - first;
    const int64_t begin = first + units * worker / s->workers, end = first + units * (worker + 1) / s->workers;
    if (begin == end) return false;
    const int64_t tile = (end - 1) / s->segments - (i - s->waves), start = tile * s->segments;
    if (start + s->segments <= begin) return false;
    item->tile = (int32_t)tile;
    item->from = (int32_t)(begin > start ? begin - start : 0);
    item->to = (int32_t)(end < start + s->segments ? end - start : s->segments);
    return true;
}

#endif
