/* cpu.h: the inside of the CPU device: its workers, its workspaces, and the functions that run operations on a share.
 *
 * A step is one job for the pool: every worker walks the program, does its even share of each operation's units and, of most
 * operations, what slower ones have not begun (es_pool_take), and meets the others before the next. A unit is bounded: some weight
 * rows times the step's rows, one head of one row, one partition of one query tile. Which worker does a unit never changes
 * what the unit computes. */
#ifndef ES_CPU_CPU_H
#define ES_CPU_CPU_H

#include "device/cpu/kernels.h"
#include "device/cpu/product.h"
#include "device/device.h"
#include "device/pick.h"
#include "evenshare/share.h"
#include "share/plan.h"
#include "share/pool.h"

struct es_buffer {
    unsigned char *data;
    size_t bytes;
    bool owned;
};

/** Query rows (query heads of one KV head × tokens) that share a read of keys and values. */
#define ES_ATTN_ROWS 64
/** Tokens of a partition: the leaves of the merge tree. A constant of the numeric mode. */
#define ES_ATTN_PARTITION 128
/** Nodes that one item's stack can hold: one for each height of a tree over 2^31 partitions, and one in the making. */
#define ES_ATTN_MOST_NODES 33
/** Pieces of items that a step may have, for each worker. */
#define ES_ATTN_PIECES 64
/** Channels of an attention head. */
#define ES_ATTN_MOST_HEAD_DIM 1024

/** One query tile of one KV head of one span: what one worker folds alone, or several in pieces. */
typedef struct es_attn_item {
    int32_t span, kv_head;
    int32_t first_row, tokens;      /**< rows of the step */
    es_plan_item load;              /**< leaves, the cost of one, and of all earlier items */
    int32_t unit;                   /**< partitions of a piece; 0: the item is whole */
    int32_t merges;                 /**< query rows of earlier items that are in pieces */
    int64_t node;                   /**< where its pieces' nodes begin: rows of `published` */
} es_attn_item;

/** What a worker takes: a piece of an item, or all of it. */
typedef struct es_attn_task {
    int32_t item, piece;
} es_attn_task;

/** A node of the merge tree over `rows` query rows: [rows] m, [rows] l, [rows][head_dim] o. */
typedef struct es_attn_node {
    int32_t height;
    int64_t index;
    float *m, *l, *o;
} es_attn_node;

/** Room for tokens in panels: [tokens rounded up to 16][columns rounded up to 32], and a scale and a sum per block. bf16 has
 *  ES_TOKENS_APART elements more for each token. */
typedef struct es_panel_room {
    uint16_t *bf16;
    int8_t *int8;
    float *scale, *sum;
} es_panel_room;

/** Query rows in 8 bits, as es_attn_tile_q8 takes them: [64 rows] each. */
typedef struct es_query_room {
    int8_t *q;
    float *scale;
    int32_t *zero;
} es_query_room;

/** The tokens of a product, in the forms that its weights need. */
typedef struct es_cpu_input {
    const float *const *x; /**< [tokens] rows */
    int32_t tokens, panels;
    es_panel *bf16, *int8; /**< [panels] */
    es_bf16_tokens dp;     /**< mode bf16dp */
    const unsigned char *unpacked; /**< the stored rows that `rows` are; NULL: none yet */
    es_int8_rows rows;
} es_cpu_input;

/** Tokens that a worker encodes for itself at most: those of one expert come in such groups. */
#define ES_CPU_OWN_TOKENS 64

/** What one worker needs, allocated when the device opens. */
typedef struct es_cpu_worker {
    float *panel;           /**< [16][512] decoded weight rows */
    float *sums;            /**< [128 tokens][16][16] lanes of a product */
    es_unpack_room unpack;  /**< integers (or bfloat16) and scales of 16 weight rows */
    es_panel_room room;     /**< of ES_CPU_OWN_TOKENS */
    es_cpu_input input;
    const float **rows;     /**< [step rows] pointers */
    float *product, *gated; /**< [step rows][16] each */
    float *normed;          /**< [16][columns] rows normed for this worker alone */
    float *p, *lanes;       /**< attention scratch: [64 rows][64], [64 rows][16] */
    es_query_room query;    /**< with keys and values in 8 bits */
    int32_t best[2];        /**< token of the greatest logit in this worker's slice, of two rows by turns; −1: none */
    es_attn_node *stack;    /**< [nodes] of the item or piece that it folds */
} es_cpu_worker;

/** Copies of weights, in pieces of memory that can lie in huge pages. */
typedef struct es_own_piece {
    unsigned char *data;
    size_t bytes;
} es_own_piece;
typedef struct es_own_weights {
    es_own_piece *piece;
    int32_t pieces;
    size_t used; /**< bytes of the last piece */
} es_own_weights;
/** A copy that lives as long as `own`, aligned to 64 bytes; NULL where there is no memory for it. */
unsigned char *es_own_weights_place(es_own_weights *own, const void *host, size_t bytes);
void es_own_weights_close(es_own_weights *own);

typedef struct es_cpu {
    es_device base;
    es_device_options options;
    es_pool *pool;
    es_kernels kernels, reference;
    es_cpu_worker *worker;     /**< [threads] */
    void *arena;               /**< what all workspaces are cut from */
    es_own_weights own;        /**< with `copy_weights` */

    es_panel_room room;        /**< tokens that all workers encode together */

    es_pick_tally *tally;      /**< [threads] weights in each worker's slice of a row of logits */

    int64_t kv_block;          /**< bytes of sixteen keys (or values) of one head */

    /* of the current submit */
    const es_program *program;
    const es_batch *batch;
    int64_t *row_position;     /**< [rows] */
    int32_t *row_span;         /**< [rows] */
    es_attn_item *item;        /**< [item_capacity] */
    es_attn_task *task;        /**< [task_capacity] in the order in which they are taken */
    float *published;          /**< nodes of pieces: [published_rows] of m, l and o, see es_attn_item */
    int64_t published_rows;
    int32_t items, item_capacity, tasks, task_capacity, nodes;
    int32_t attn_merges;       /**< query rows of items that are left to several workers */
    int64_t attn_cost;
    es_plan_costs attn_costs;  /**< measured when the device opens, for `auto` */
} es_cpu;

/** A slice as floats. NULL for "nothing there". */
static inline float *es_cpu_floats(es_slice slice)
{
    return slice.buffer ? (float *)(void *)(slice.buffer->data + slice.offset) : NULL;
}

/** The share of `units` units that falls to a worker. */
static inline es_range es_cpu_share(const es_cpu *cpu, int64_t units, int worker)
{
    const es_share plan = es_share_plan(units, 1, es_pool_workers(cpu->pool));
    return es_share_range(&plan, worker);
}

/** Where a KV head's block of sixteen tokens begins in the cache of keys (or values), in bytes; `token` counts inside the page. */
int64_t es_cpu_kv_block(const es_cpu *cpu, const es_attn_shape *shape, int64_t page, int32_t kv_head, int64_t token);
/** Per-step plan of attention: items, and what of them is taken as one. Called once per submit, before the job. */
void es_cpu_attn_plan(es_cpu *cpu);
/** Measure what splitting costs here: some hundred microseconds. Before the first submit. */
es_status es_cpu_attn_measure(es_cpu *cpu);

/* One function per operation; each does worker's share. in the run_*.c files. */
void es_cpu_embed(es_cpu *cpu, const es_op_embed *op, int worker);
void es_cpu_rope_table(es_cpu *cpu, const es_op_rope_table *op, int worker);
void es_cpu_rmsnorm(es_cpu *cpu, const es_op_rmsnorm *op, int worker);
/** Row t of the norm alone, to `out`. */
void es_cpu_norm_row(es_cpu *cpu, const es_op_rmsnorm *op, int64_t t, float *out);
/** With `norm` (or NULL), the operation before, whose output is x: workers meet once less. With `gated` (or NULL), the operation
 *  after, of which es_cpu_matmul_gates() says that it can follow sixteen rows' sums at once: gate and up are not written then. */
void es_cpu_matmul(es_cpu *cpu, const es_op_matmul *op, const es_op_rmsnorm *norm, const es_op_swiglu *gated, int worker);
bool es_cpu_matmul_gates(const es_op_matmul *op, const es_op_swiglu *gated);
/** Whether one operation writes where another one reads. */
static inline bool es_cpu_same_place(es_slice a, es_slice b)
{
    return a.buffer == b.buffer && a.offset == b.offset;
}
void es_cpu_swiglu(es_cpu *cpu, const es_op_swiglu *op, int worker);
void es_cpu_attn_prepare(es_cpu *cpu, const es_op_attn_prepare *op, int worker);
void es_cpu_attn(es_cpu *cpu, const es_op_attn *op, int worker);
void es_cpu_attn_merge(es_cpu *cpu, const es_op_attn *op, int worker);
void es_cpu_delta_prepare(es_cpu *cpu, const es_op_delta_prepare *op, int worker);
/** With `finish` (or NULL), the operation after: its heads' norms follow each head's recurrence. */
void es_cpu_delta_scan(es_cpu *cpu, const es_op_delta_scan *op, const es_op_delta_finish *finish, int worker);
/** Whether heads are enough for every worker to take whole ones, so that the norm over a head can follow its recurrence. */
bool es_cpu_delta_joins(const es_cpu *cpu, const es_delta_shape *shape);
void es_cpu_delta_finish(es_cpu *cpu, const es_op_delta_finish *op, int worker);
void es_cpu_moe_route(es_cpu *cpu, const es_op_moe_route *op, int worker);
void es_cpu_moe_group(es_cpu *cpu, const es_op_moe_group *op, int worker);
void es_cpu_moe_product(es_cpu *cpu, const es_op_moe_product *op, int worker);
void es_cpu_moe_combine(es_cpu *cpu, const es_op_moe_combine *op, int worker);
void es_cpu_pick(es_cpu *cpu, const es_op_pick *op, int worker);

/** A block of ≤ 16 weight rows; `data` is the first of them. */
typedef struct es_cpu_block {
    const unsigned char *data;
    es_dtype type;
    int64_t columns;
    int32_t count;
} es_cpu_block;
/** The block's products with the worker's `input`: leaves [tokens][16] sums in its `product`. */
void es_cpu_product_block(es_cpu *cpu, const es_cpu_block *block, int worker);
/** Bring up to ES_CPU_OWN_TOKENS rows into the worker's `input`, in the forms that weights of these types need. */
void es_cpu_encode_own(es_cpu *cpu, es_dtype const *types, int32_t parts, const float *const *x, int32_t tokens,
                       int64_t columns, int worker);

#endif
