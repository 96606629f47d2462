/* evenshare/share.h: how N items are shared among workers so that no two shares differ by more than one tile.
 *
 *   es_share plan = es_share_plan(100000, 512, 16);
 *   for (int64_t w = 0; w < plan.workers; w++) {
 *       es_range r = es_share_range(&plan, w);      // [r.begin, r.end), in items
 *       ...
 *   }
 *
 * Pure arithmetic: no threads, no allocation, no failure. Shares are contiguous and cover [0, items) exactly once.
 * Source: the even-share rule of CUB's grid mapping, in 64-bit counts throughout. */
#ifndef EVENSHARE_SHARE_H
#define EVENSHARE_SHARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** A plan. Read its fields freely; make one only with es_share_plan(). */
typedef struct es_share {
    int64_t items;   /**< N, the number of items shared out */
    int64_t tile;    /**< items that are never split */
    int64_t tiles;   /**< ceil(items / tile) */
    int64_t workers; /**< how many workers get a share: min(asked, tiles); 0 when there is nothing to do */
    int64_t normal;  /**< tiles of a normal share */
    int64_t big;     /**< the first `big` workers take one tile more than the others */
} es_share;

/** Items [begin, end). */
typedef struct es_range {
    int64_t begin, end;
} es_range;

/** Plan `items` over at most `workers` workers in tiles of `tile` items. Any argument ≤ 0 gives the empty plan. Never
 *  overflows, whatever the arguments. */
es_share es_share_plan(int64_t items, int64_t tile, int64_t workers);

/** The contiguous share of worker w (raking). Empty for w outside [0, workers). */
es_range es_share_range(const es_share *plan, int64_t worker);

/** Strip-mining: worker w takes the tiles w, w + workers, w + 2·workers, …; this is its `step`-th, empty when there is none. */
es_range es_share_strip(const es_share *plan, int64_t worker, int64_t step);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
