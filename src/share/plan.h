/* plan.h: the arithmetic of sharing out attention: who starts where, and what it would cost.
 *
 * The CPU cuts its steps with es_plan_grain(), a GPU with es_plan_cut(); `evenshare plan` asks es_plan_estimate() about hardware
 * that may not be here.
 * Pure functions. Neither can change an answer: any cut gives the same merges (run_attention.c says why). */
#ifndef ES_SHARE_PLAN_H
#define ES_SHARE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Query rows of an item of so much weight. */
int32_t es_plan_rows(int32_t weight);
/** What a partition of keys costs for `rows` query rows that share the read: reading costs as much as computing 8 of them. */
int32_t es_plan_weight(int32_t rows);

/** An item (a query tile of one KV head): so many partitions of equal cost, one after the other. */
typedef struct es_plan_item {
    int64_t before;      /**< cost of all earlier items */
    int32_t partitions;  /**< ≥ 1 */
    int32_t weight;      /**< cost of one, ≥ 1 */
} es_plan_item;

/** Items that lie `stride` bytes apart (inside larger structs). */
typedef struct es_plan_list {
    const es_plan_item *items;
    size_t stride;
    int32_t count;
    int64_t cost;        /**< of all of them */
    int workers;
} es_plan_list;

/** Where worker w's run begins when all take equal cost: partition `partition` of item `item`, a multiple of `unit` (0: whole
 *  items only, V1). For w ≥ workers: (count, 0). Cuts never fall from one worker to the next. */
void es_plan_cut(const es_plan_list *list, int64_t unit, int worker, int32_t *item, int64_t *partition);

/** What splitting costs here, in seconds, as measured. */
typedef struct es_plan_costs {
    double cost;  /**< of one unit of an item's cost: a partition takes weight · cost */
    double meet;  /**< a barrier more, for the merge */
    double row;   /**< merging one row of a published node */
} es_plan_costs;

/** Rows that a published node of so many query rows takes: rounded up to 8, so that its parts fill whole cache lines. */
int32_t es_plan_node_rows(int32_t rows);

/** What there is room for: pieces of items, and rows of the nodes that they publish (es_plan_node_rows() of each). */
typedef struct es_plan_room {
    int64_t pieces, rows;
} es_plan_room;

/** Where workers take items in their order, one after the other, whoever is free: partitions of each piece that item `i` is cut into,
 *  a power of two, so that a piece is one node of the tree; 0: it stays whole. No piece costs more than `grain` (0: all stay whole),
 *  one partition apart; an item that is dear is whole all the same while what comes behind it keeps every other worker as busy. */
int32_t es_plan_unit(const es_plan_list *list, int32_t i, int64_t grain);

/** Whether the pieces of a grain find room. */
bool es_plan_fits(const es_plan_list *list, int64_t grain, es_plan_room room);

/** The grain that ends first and finds room: 0 (whole items, V1), or a power of two of partitions of the heaviest item (V2). Whoever is
 *  last is half a piece late; where there is no more than a piece for each worker, one of them is an eighth slower than the
 *  others. A split is charged a barrier, and for each piece an eighth of one and its rows. Ties go to the larger grain. */
int64_t es_plan_grain(const es_plan_list *list, const es_plan_costs *costs, es_plan_room room);

/** What a device can do, as far as the cost model asks. docs/plan.md describes the file. */
typedef struct es_profile {
    char name[64];
    int64_t workers;          /**< threads, or multiprocessors */
    int64_t unit_tokens;      /**< tokens that one unit takes */
    int64_t element_bytes;    /**< of a cached key's or value's channel */
    double worker_bandwidth;  /**< bytes per second that one worker reads alone */
    double bandwidth;         /**< bytes per second that all of them read together */
    double unit_seconds;      /**< what starting a unit costs */
    double meet_seconds;      /**< a barrier, or a second launch */
    double merge_bandwidth;   /**< bytes of partials per second that a merge reads and writes */
} es_profile;

typedef struct es_plan_shape {
    int64_t tokens;           /**< of context, for each sequence */
    int64_t sequences, query_heads, kv_heads, head_dim;
} es_plan_shape;

typedef struct es_estimate {
    int64_t units;            /**< of one sequence and KV head: ceil(tokens / unit) */
    int64_t items;            /**< sequences · KV heads */
    int64_t total;            /**< units · items */
    int64_t workers;          /**< that get a share */
    double per_worker;        /**< total / asked workers */
    int64_t waves;            /**< ceil(total / asked workers) */
    int64_t big, big_units, normal, normal_units; /**< how many shares of either size, and the size */
    double balance;           /**< per_worker / waves: what part of the workers' time is used */
    int64_t v1_walk;          /**< units that the busiest worker walks when items are not split */
    double v1_seconds, v2_seconds;
    int64_t nodes;            /**< partials that V2 publishes and merges, at most */
    int64_t partial_bytes;    /**< of one: query heads of a KV head · (head_dim + 2) floats */
    int64_t workspace;        /**< nodes · partial_bytes */
} es_estimate;

/** Everything ≥ 1 and products below 2^62: es_plan_check() says so. */
int es_plan_check(const es_plan_shape *shape, const es_profile *profile, int64_t workers, int64_t unit_tokens);
es_estimate es_plan_estimate(const es_plan_shape *shape, const es_profile *profile, int64_t workers, int64_t unit_tokens);

#endif
