/* attn_plan.h: who folds which keys in the GPU's decode attention, written by the host before a step and read by the kernels.
 *
 *   es_cuda_attn_plan_write(&shape, span, spans, blocks, unit, scratch, plan, &bytes);
 *   ...copy `bytes` of `plan` to the device, with the step's other data; the kernels of every layer read the same plan...
 *
 * An item is one query tile of one KV head: all query heads of that KV head for some tokens of a span. Its keys are cut into
 * partitions at absolute positions, of 128 keys, or a few times that where a token sees many. A prompt's items are dealt out
 * whole where that is even enough; else blocks take contiguous runs of partitions of equal cost across all items, so a
 * block's work is a few pieces: runs of partitions of one item each. A piece that holds a whole item finishes it (V1); the
 * others publish the maximal aligned nodes of the merge tree that they hold (V2), in slots that the plan numbers, and the
 * blocks that shared an item finish it together. The plan decides who works and never changes a bit.
 *
 * Plain C, no device calls: the tests walk plans for cards that are not there. */
#ifndef ES_CUDA_ATTN_PLAN_H
#define ES_CUDA_ATTN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define ES_CUDA_BOTH __host__ __device__
#else
#define ES_CUDA_BOTH
#endif

#define ES_CUDA_ATTN_STEP        128   /* keys that are folded at once; a partition is one or more steps */
#define ES_CUDA_ATTN_TILE        64    /* keys that share one new maximum; two tiles a step */
#define ES_CUDA_ATTN_MOST_CHAIN  8     /* steps of a partition */
#define ES_CUDA_ATTN_LONG        16384 /* keys of all KV heads for each step of a longer partition, at least */
#define ES_CUDA_ATTN_BLOCK_NODES 16    /* of all items, for each block, at most */
#define ES_CUDA_ATTN_MOST_NODES  448   /* of one item: its finish has a slice of each in shared memory */
#define ES_CUDA_ATTN_SLICE       32    /* channels of a row that are finished together */

/** What one layer's attention looks like, and how many query rows an item may hold. */
typedef struct es_cuda_attn_shape {
    int32_t query_heads, kv_heads, head_dim;
    int32_t page;     /**< tokens of a page: a multiple of 16 */
    int32_t row_tile; /**< query rows (tokens · heads of one KV head) of an item: 8 for decoding, 32 for more tokens */
} es_cuda_attn_shape;

/** One sequence's rows in the step. */
typedef struct es_cuda_attn_span {
    int32_t first_row, rows;
    int32_t start;      /**< position of its first row */
    int32_t first_page; /**< where its block table begins in the step's array of page numbers */
} es_cuda_attn_span;

/** Steps of a partition for a token that sees so many keys: by its position and the model's shape alone, since bits depend on
 * it. Long sequences have more partitions than there are blocks: longer ones leave fewer nodes to be merged. */
ES_CUDA_BOTH static inline int32_t es_cuda_attn_chain(int32_t kv_heads, int64_t keys)
{
    int32_t chain = 1;
    while (chain < ES_CUDA_ATTN_MOST_CHAIN && keys * kv_heads >= (int64_t)2 * chain * ES_CUDA_ATTN_LONG) chain *= 2;
    return chain;
}

/** A run of partitions [from, to) of one item. */
typedef struct es_cuda_attn_piece {
    int32_t split; /**< which split item it belongs to; −1: it is a whole item */
    int32_t kv_head;
    int32_t first_row, tokens; /**< the item's rows */
    int32_t start;             /**< position of its first token; token i sees start + i + 1 keys */
    int32_t first_page;
    int32_t from, to;
    int32_t chain;       /**< steps of a partition: the same for all tokens of an item */
    int32_t node, nodes; /**< the slots it publishes into */
    int32_t part, parts; /**< it is piece `part` of `parts` of its item */
    int32_t even;        /**< its item's split is */
    int32_t unused[2];
} es_cuda_attn_piece;

/** The steps [begin, end) of a piece's partitions. */
ES_CUDA_BOTH static inline int32_t es_cuda_attn_begin(const es_cuda_attn_piece *piece)
{
    return piece->from * piece->chain;
}

ES_CUDA_BOTH static inline int32_t es_cuda_attn_end(const es_cuda_attn_piece *piece)
{
    const int32_t end = piece->to * piece->chain, all = (piece->start + piece->tokens - 1) / ES_CUDA_ATTN_STEP + 1;
    return end < all ? end : all;
}

/** One block's work: its first piece, and where the others stand. */
typedef struct es_cuda_attn_block {
    es_cuda_attn_piece first; /**< nothing when from = to */
    int32_t next, last;       /**< more[next … last) */
    int32_t page[8]; /**< page numbers of the first piece's first step; −1 when the planner was not shown the block tables */
    int32_t load;    /**< what the planner has given it, in steps, where items stay whole */
    int32_t unused;
} es_cuda_attn_block;

/** An item that several blocks share. Its merges stand in the plan's schedule: levels + 1 places where each level's merges
 * begin, then nodes − 1 merges as left + right · 65536 (nodes counted from the item's first, the result takes the left one's
 * place). Merges of one level do not touch each other; together they are the tree. */
typedef struct es_cuda_attn_split {
    int32_t kv_head, first_row, tokens;
    int32_t parts;       /**< pieces that publish */
    int32_t node, nodes; /**< its slots */
    int32_t levels;
    int32_t schedule; /**< where its part of the schedule begins */
    int32_t even;     /**< its nodes are of one height, but the last one, and few: they merge in the tree of their index */
} es_cuda_attn_split;

/** How a plan begins. Behind it: es_cuda_attn_block[blocks], es_cuda_attn_piece more[], es_cuda_attn_split[splits], and the
 *  schedule. */
typedef struct es_cuda_attn_plan {
    int32_t blocks, more, splits, nodes;
    int32_t row_tile, page;
    int32_t units; /**< steps of all items */
    int32_t unit;  /**< on multiples of so many partitions the cuts fall */
} es_cuda_attn_plan;

/** Ceilings of everything a plan may be asked for. */
typedef struct es_cuda_attn_limits {
    int32_t blocks; /**< of the launch: multiprocessors, or a small multiple */
    int32_t spans, rows;
    int32_t context; /**< most tokens of a sequence, below 2^26 */
} es_cuda_attn_limits;

/** Where a channel stands in its row of the cache. Rows of bf16 whose length is a multiple of 64 keep their eight-channel
 * chunks permuted by the position: so copied as they are they meet no bank of shared memory twice. */
ES_CUDA_BOTH static inline int32_t es_cuda_attn_channel(int32_t head_dim, bool bf16, int64_t position, int32_t channel)
{
    return bf16 && head_dim % 64 == 0 ? channel ^ (int32_t)(position & 7) * 8 : channel;
}

/** Most items of a step. */
int64_t es_cuda_attn_items(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits);
/** Bytes that the largest plan takes. */
size_t es_cuda_attn_plan_bytes(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits);
/** Nodes that the largest plan publishes: bounded by blocks, whatever the number of keys. */
int64_t es_cuda_attn_nodes(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits);

/** Let the planner choose where cuts may fall. */
#define ES_CUDA_ATTN_AUTO INT32_MAX

/** Write a plan. `pages`: the step's block tables on the host, or NULL (then a block's first copies wait for them). `unit`:
 * cuts fall on multiples of so many steps (a power of two), and between partitions, or on multiples of more where an item
 * would have too many nodes; 0: items are never split (V1); ES_CUDA_ATTN_AUTO; negative: as its absolute value, but every
 * piece publishes one node, for loose merging. `scratch` holds es_cuda_attn_items() es_plan_item's, `plan`
 * es_cuda_attn_plan_bytes(). Returns the bytes written, or 0 when the shape is impossible: heads that don't divide, a group
 * that is larger than row_tile, a page that is no multiple of 16, a span without rows. */
size_t es_cuda_attn_plan_write(const es_cuda_attn_shape *shape, const es_cuda_attn_span *span, int32_t spans,
                               const int32_t *pages, int32_t blocks, int32_t unit, void *scratch, void *plan);

#ifdef __cplusplus
}
#endif
#endif
