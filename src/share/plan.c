/* plan.c: cuts of equal cost, and a cost model simple enough to be checked by hand. */
#include "share/plan.h"

#include "evenshare/share.h"

int32_t es_plan_weight(int32_t rows)
{
    return 8 + rows;
}

int32_t es_plan_rows(int32_t weight)
{
    return weight - es_plan_weight(0);
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

int32_t es_plan_node_rows(int32_t rows)
{
    return (rows + 7) / 8 * 8;
}

static int64_t cost_of(const es_plan_item *it)
{
    return (int64_t)it->partitions * it->weight;
}

/* What comes behind the item keeps every other worker as busy as the item its own. */
static bool comes_early(const es_plan_list *list, const es_plan_item *it)
{
    const int64_t cost = cost_of(it);
    return (list->cost - it->before - cost) / list->workers >= cost;
}

int32_t es_plan_unit(const es_plan_list *list, int32_t i, int64_t grain)
{
    const es_plan_item *it = item_of(list, i);
    if (cost_of(it) <= grain || grain == 0 || comes_early(list, it)) return 0;
    int32_t unit = 1;
    while ((int64_t)2 * unit * it->weight <= grain) unit *= 2;
    return unit < it->partitions ? unit : 0;
}

/* What a grain makes of a list. */
typedef struct pieces {
    int64_t tasks, count, rows; /* to be taken; published, and rows of those */
    int64_t last;               /* cost of the dearest that may come last */
} pieces;

static pieces count_pieces(const es_plan_list *list, int64_t grain)
{
    pieces all = {0};
    for (int32_t i = 0; i < list->count; i++) {
        const es_plan_item *it = item_of(list, i);
        const int32_t unit = es_plan_unit(list, i, grain), count = unit ? (it->partitions - 1) / unit + 1 : 1;
        const int64_t cost = unit ? (int64_t)unit * it->weight : cost_of(it);
        if ((unit || !comes_early(list, it)) && cost > all.last) all.last = cost;
        all.tasks += count;
        if (!unit) continue;
        all.count += count;
        all.rows += (int64_t)count * es_plan_node_rows(es_plan_rows(it->weight));
    }
    return all;
}

static bool find_room(const pieces *all, es_plan_room room)
{
    return all->count <= room.pieces && all->rows <= room.rows;
}

bool es_plan_fits(const es_plan_list *list, int64_t grain, es_plan_room room)
{
    const pieces all = count_pieces(list, grain);
    return find_room(&all, room);
}

/* Seconds until the last worker is done and what was split is merged. */
static double seconds_with(const es_plan_list *list, const es_plan_costs *costs, const pieces *all)
{
    const double last = (double)all->last, workers = list->workers;
    const double folds = all->tasks <= list->workers ? last + last / 8 : (double)list->cost / workers + last / 2;
    const double merges = (double)all->count * costs->meet / 8 + (double)all->rows * costs->row;
    return folds * costs->cost + (all->count ? costs->meet + merges / workers : 0);
}

int64_t es_plan_grain(const es_plan_list *list, const es_plan_costs *costs, es_plan_room room)
{
    int64_t chosen = 0, units = 1;
    int32_t longest = 1, heaviest = 1;
    if (list->workers < 2 || list->count == 0) return 0;
    for (int32_t i = 0; i < list->count; i++) {
        const es_plan_item *it = item_of(list, i);
        if (it->partitions > longest) longest = it->partitions;
        if (it->weight > heaviest) heaviest = it->weight;
    }
    pieces all = count_pieces(list, 0);
    double best = seconds_with(list, costs, &all);
    while (2 * units < longest) units *= 2;
    for (; units > 0; units /= 2) {
        all = count_pieces(list, units * heaviest);
        if (!find_room(&all, room)) break;
        const double seconds = seconds_with(list, costs, &all);
        if (seconds < best) best = seconds, chosen = units * heaviest;
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
