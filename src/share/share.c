/* share.c: the even-share plan. Everything the engine splits among workers is split by these few lines. */
#include "evenshare/share.h"

es_share es_share_plan(int64_t items, int64_t tile, int64_t workers)
{
    es_share plan = {0};
    if (items <= 0 || tile <= 0 || workers <= 0) return plan;
    plan.items = items;
    plan.tile = tile;
    plan.tiles = (items - 1) / tile + 1;
    plan.workers = plan.tiles < workers ? plan.tiles : workers;
    plan.normal = plan.tiles / plan.workers;
    plan.big = plan.tiles - plan.normal * plan.workers;
    return plan;
}

/* Items before tile `tile`; tile · size may pass INT64_MAX only at the end, where the count of items stands in. */
static int64_t item_of_tile(const es_share *plan, int64_t tile)
{
    return tile >= plan->tiles ? plan->items : tile * plan->tile;
}

es_range es_share_range(const es_share *plan, int64_t worker)
{
    if (worker < 0 || worker >= plan->workers) return (es_range){0, 0};
    const int64_t extra = worker < plan->big ? worker : plan->big;
    const int64_t first = worker * plan->normal + extra;
    const int64_t count = plan->normal + (worker < plan->big);
    return (es_range){item_of_tile(plan, first), item_of_tile(plan, first + count)};
}

es_range es_share_strip(const es_share *plan, int64_t worker, int64_t step)
{
    if (worker < 0 || worker >= plan->workers || step < 0) return (es_range){0, 0};
    if (step > (plan->tiles - 1 - worker) / plan->workers) return (es_range){0, 0};
    const int64_t tile = worker + step * plan->workers;
    return (es_range){item_of_tile(plan, tile), item_of_tile(plan, tile + 1)};
}
