/* pages.h: numbers of KV pages and state slots: who holds which, and how many are left.
 *
 * Only numbers are kept here; the memory behind them is the network's. Pages are reference-counted, so that sequences can
 * share a prefix: a page is free again when its last holder lets go. Sequences pin what they hold besides: a page without a
 * pin is held by the prefix cache alone, and can be had. One thread (the engine's) uses a pool. */
#ifndef ES_CACHE_PAGES_H
#define ES_CACHE_PAGES_H

#include "base/error.h"

typedef struct es_pages {
    int32_t *free;     /**< [total] stack of free numbers */
    uint32_t *holders; /**< [total] */
    uint16_t *pins;    /**< [total] sequences that hold it */
    int64_t total, free_count;
    int64_t pinned;    /**< numbers with a pin */
} es_pages;

/** A pool of `total` numbers, all free. */
es_status es_pages_open(int64_t total, es_pages *pages);
void es_pages_close(es_pages *pages);
/** Take `count` numbers, each held once; all or none (false: not enough are free). */
bool es_pages_take(es_pages *pages, int64_t count, int32_t *out);
/** Hold a number once more. */
void es_pages_hold(es_pages *pages, int32_t page);
/** Let go of `count` numbers. */
void es_pages_drop(es_pages *pages, const int32_t *list, int64_t count);
/** Say that a sequence holds these, or no longer does; holding them is still es_pages_hold()'s and es_pages_take()'s affair. */
void es_pages_pin(es_pages *pages, const int32_t *list, int64_t count);
void es_pages_unpin(es_pages *pages, const int32_t *list, int64_t count);

#endif
