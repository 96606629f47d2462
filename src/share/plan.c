/* plan.c: cuts of equal cost, and a cost model simple enough to be checked by hand. */
#include "share/plan.h"

#include "evenshare/share.h"

int32_t es_plan_weight(int32_t rows)
{
    return 8 + rows;
}

static const es_plan_item *item_of(const es_plan_list *list, int32_t i)
{
    return (const es_plan_item *)(const void *)((const char *)list->items + (size_t)i * list->stride);
}

/* The last item that starts at or before `cost`. */
static int32_t item_at(const es_plan_list *list, int64_t cost)
{
    int32_t low = 0, high = list->count;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (item_of(list, middle)->before <= cost) low = middle;
        else high = middle;
    }
    return low;
}

void es_plan_cut(const es_plan_list *list, int64_t unit, int worker, int32_t *item, int64_t *partition)
{
    *item = list->count, *partition = 0;
    if (worker >= list->workers || list->count == 0) return;
    /* Cost is divided without overflow: quotient and remainder apart. */
    const int64_t cost = list->cost / list->workers * worker + list->cost % list->workers * worker / list->workers;
    *item = item_at(list, cost);
    const es_plan_item *it = item_of(list, *item);
    int64_t inside = (cost - it->before + it->weight / 2) / it->weight;
    if (unit == 0) inside = 2 * inside >= it->partitions ? it->partitions : 0;
    else inside = (inside + unit / 2) / unit * unit;
    if (inside >= it->partitions) (*item)++;
    else *partition = inside;
}

/* Seconds until the busiest worker is done and what was split is merged. */
static double seconds_with(const es_plan_list *list, const es_plan_costs *costs, int64_t unit)
{
    int64_t most = 0, previous = 0;
    int32_t longest = 0;
    for (int w = 1; w <= list->workers; w++) {
        int32_t item;
        int64_t partition;
        es_plan_cut(list, unit, w, &item, &partition);
        const es_plan_item *it = item < list->count ? item_of(list, item) : NULL;
        const int64_t at = it ? it->before + partition * it->weight : list->cost;
        if (at - previous > most) most = at - previous;
        if (partition > 0 && it->partitions > longest) longest = it->partitions;
        previous = at;
    }
    int height = 1;
    while (longest >> height) height++;
    return (double)most * costs->cost + (longest ? costs->meet + 2 * height * costs->node : 0);
}

int64_t es_plan_choose(const es_plan_list *list, const es_plan_costs *costs)
{
    int64_t chosen = 0;
    if (list->workers < 2 || list->count == 0) return 0;
    double best = seconds_with(list, costs, 0);
    for (int64_t unit = ES_PLAN_WORST_UNIT; unit > 0; unit /= 2) {
        const double seconds = seconds_with(list, costs, unit);
        if (seconds < best) best = seconds, chosen = unit;
    }
    return chosen;
}

int es_plan_check(const es_plan_shape *s, const es_profile *p, int64_t workers, int64_t unit_tokens)
{
    const int64_t limit = (int64_t)1 << 40;
    int64_t bytes;
    if (s->tokens < 1 || s->sequences < 1 || s->kv_heads < 1 || s->query_heads < 1 || s->head_dim < 1 || workers < 1 ||
        unit_tokens < 1 || s->query_heads % s->kv_heads)
        return 0;
    return s->tokens <= limit && s->head_dim <= 65536 && s->query_heads <= 65536 && s->sequences <= 1 << 20 &&
           workers <= 1 << 20 && p->worker_bandwidth > 0 && p->bandwidth > 0 && p->merge_bandwidth > 0 &&
           p->unit_seconds >= 0 && p->meet_seconds >= 0 && p->element_bytes >= 1 && p->element_bytes <= 8 &&
           !__builtin_mul_overflow(s->sequences * s->kv_heads, s->tokens, &bytes) && bytes < (int64_t)1 << 60;
}

/* Bytes per second that each of `active` workers gets. */
static double rate(const es_profile *p, int64_t active)
{
    const double fair = p->bandwidth / (double)active;
    return fair < p->worker_bandwidth ? fair : p->worker_bandwidth;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

es_estimate es_plan_estimate(const es_plan_shape *s, const es_profile *p, int64_t workers, int64_t unit_tokens)
{
    es_estimate e = {.units = (s->tokens - 1) / unit_tokens + 1, .items = s->sequences * s->kv_heads};
    e.total = e.units * e.items;
    const es_share share = es_share_plan(e.total, 1, workers);
    e.workers = share.workers;
    e.per_worker = (double)e.total / (double)workers;
    e.waves = (e.total - 1) / workers + 1;
    e.big = share.big, e.big_units = share.normal + 1;
    e.normal = share.workers - share.big, e.normal_units = share.normal;
    e.balance = e.per_worker / (double)e.waves;

    /* A unit: keys and values of one KV head, read once for the query heads that share them. */
    const int64_t group = s->query_heads / s->kv_heads;
    const double bytes = 2.0 * (double)unit_tokens * (double)s->head_dim * (double)p->element_bytes;
    const double work = (double)es_plan_weight((int32_t)group) / (double)es_plan_weight(1);
    const int64_t items_each = (e.items - 1) / workers + 1;
    e.v1_walk = items_each * e.units;
    e.v1_seconds = (double)e.v1_walk * (p->unit_seconds + work * bytes / rate(p, least(e.items, workers)));

    /* V2 publishes the maximal aligned nodes of every piece: two of each height of the tree, for every worker and item. */
    int64_t height = 1;
    while (((int64_t)1 << height) < e.units) height++;
    const int64_t split = least(e.workers + e.items, 2 * e.workers); /* pieces: a worker cuts at most two items */
    e.partial_bytes = group * (s->head_dim + 2) * 4;
    e.nodes = least(split * 2 * height, e.total);
    e.workspace = e.nodes * e.partial_bytes;
    e.v2_seconds = (double)e.waves * (p->unit_seconds + work * bytes / rate(p, e.workers)) + p->meet_seconds +
                   (double)e.workspace / p->merge_bandwidth;
    return e;
}
