/* run_attention.c: attention over the paged cache as one fold, whoever does it.
 *
 * An item is one query tile (all query heads of one KV head for some tokens of a span). Its keys are cut into partitions of
 * 128 at absolute positions; a partition's fold is a leaf, and leaves merge in the binary tree of their index: node (h, j)
 * covers partitions [j·2^h, (j+1)·2^h), left before right, and a missing right child changes nothing. A stack does that like
 * a binary counter: whenever the two topmost nodes are siblings, they merge.
 *
 * Workers take contiguous runs of partitions of equal cost across all items. A run that holds a whole item finishes it
 * (V1). A run that holds part of one publishes its maximal aligned nodes (V2), and es_cpu_attn_merge() continues the stack
 * over all published nodes in order. Both do the same merges in the same tree: the plan cannot change a bit. */
#include "device/cpu/cpu.h"
#include "device/cpu/math.h"

static es_plan_list attn_list(const es_cpu *cpu)
{
    return (es_plan_list){.items = &cpu->item[0].load, .stride = sizeof *cpu->item, .count = cpu->items, .cost = cpu->attn_cost,
                          .workers = es_pool_workers(cpu->pool)};
}

void es_cpu_attn_plan(es_cpu *cpu)
{
    const es_batch *batch = cpu->batch;
    const es_attn_shape *shape = &cpu->options.attn;
    cpu->items = 0;
    cpu->attn_cost = 0;
    cpu->attn_split = false;
    if (shape->head_dim == 0) return;
    const int32_t group = shape->query_heads / shape->kv_heads, tile = ES_ATTN_ROWS / group > 0 ? ES_ATTN_ROWS / group : 1;
    for (int32_t s = 0; s < batch->spans; s++) {
        const es_span *span = &batch->span[s];
        for (int32_t head = 0; head < shape->kv_heads; head++)
            for (int32_t t = 0; t < span->rows; t += tile) {
                const int32_t tokens = span->rows - t < tile ? span->rows - t : tile;
                const int64_t keys = span->start + t + tokens; /* the last token of the tile sees itself */
                es_attn_item *item = &cpu->item[cpu->items++];
                *item = (es_attn_item){
                    .span = s, .kv_head = head, .first_row = span->first_row + t, .tokens = tokens,
                    .load = {.partitions = (int32_t)((keys + ES_ATTN_PARTITION - 1) / ES_ATTN_PARTITION),
                             .weight = es_plan_weight(tokens * group), .before = cpu->attn_cost},
                };
                cpu->attn_cost += (int64_t)item->load.weight * item->load.partitions;
            }
    }
    const es_plan_list list = attn_list(cpu);
    const es_attention how = cpu->options.attention;
    cpu->attn_unit = how == ES_ATTENTION_V1 ? 0 : how == ES_ATTENTION_V2 ? 1 : es_plan_choose(&list, &cpu->attn_costs);
    /* A share that starts inside an item is what makes the merge necessary. */
    const int workers = es_pool_workers(cpu->pool);
    for (int w = 1; w < workers && !cpu->attn_split; w++) {
        int32_t item;
        int64_t partition;
        es_cpu_attn_cut(cpu, w, &item, &partition);
        cpu->attn_split = partition > 0;
    }
}

/* Where worker w's run begins: an item and a partition of it, a multiple of the step's unit. */
void es_cpu_attn_cut(const es_cpu *cpu, int worker, int32_t *item, int64_t *partition)
{
    const es_plan_list list = attn_list(cpu);
    es_plan_cut(&list, cpu->attn_unit, worker, item, partition);
}

/* One fold: an item's query rows and where its keys are. */
typedef struct fold {
    es_cpu *cpu;
    const es_op_attn *op;
    const es_attn_item *item;
    const es_span *span;
    es_cpu_worker *me;
    int32_t group, rows;
    int64_t first_position; /* of the item's first token */
} fold;

static fold start_fold(es_cpu *cpu, const es_op_attn *op, const es_attn_item *item, int worker)
{
    const es_span *span = &cpu->batch->span[item->span];
    const int32_t group = op->shape.query_heads / op->shape.kv_heads;
    fold f = {cpu, op, item, span, &cpu->worker[worker], group, group * item->tokens,
              span->start + (item->first_row - span->first_row)};
    /* Row r is query head r mod group of token r / group. */
    for (int32_t r = 0; r < f.rows; r++)
        f.me->rows[r] = es_cpu_floats(op->q) +
                        ((int64_t)(item->first_row + r / group) * op->shape.query_heads + item->kv_head * group + r % group) *
                            op->shape.head_dim;
    return f;
}

/* An item's query rows in 8 bits. */
static void encode_queries(const fold *f)
{
    const int32_t dim = f->op->shape.head_dim, groups = dim / ES_ATTN_Q8_GROUP;
    const es_query_room *to = &f->me->query;
    for (int32_t r = 0; r < f->rows; r++) {
        float sum[ES_ATTN_MOST_HEAD_DIM / ES_ATTN_Q8_GROUP];
        f->cpu->kernels.products.encode_int8(&f->me->rows[r], 1, dim, to->q + (int64_t)r * dim, to->scale + r * groups, sum);
        for (int32_t g = 0; g < groups; g++) to->zero[r * groups + g] = -128 * (int32_t)sum[g];
    }
}

/* Where the block of keys (or values) at a position starts, in bytes. */
static int64_t place_of(const fold *f, int64_t position)
{
    const es_attn_shape *shape = &f->op->shape;
    return es_cpu_kv_block(f->cpu, shape, f->span->pages[position / shape->page], f->item->kv_head, position % shape->page);
}

/* One tile of keys: where its blocks are, and how much of it each row sees. `next` are the keys of the tile after it. */
typedef struct tile_places {
    const unsigned char *k[ES_ATTN_TILE_BLOCKS], *v[ES_ATTN_TILE_BLOCKS], *next_k[ES_ATTN_TILE_BLOCKS];
    int32_t valid[ES_ATTN_ROWS];
} tile_places;

static void find_tile(const fold *f, int64_t key, int64_t last_key, tile_places *places)
{
    const unsigned char *k = f->op->k_cache.buffer->data + f->op->k_cache.offset;
    const unsigned char *v = f->op->v_cache.buffer->data + f->op->v_cache.offset;
    for (int32_t b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
        const int64_t at = key + b * ES_ATTN_BLOCK;
        places->k[b] = places->v[b] = places->next_k[b] = NULL;
        if (at > last_key) continue;
        const int64_t offset = place_of(f, at);
        places->k[b] = k + offset;
        places->v[b] = v + offset;
        if (at + ES_ATTN_TILE <= last_key) places->next_k[b] = k + place_of(f, at + ES_ATTN_TILE);
    }
    for (int32_t r = 0; r < f->rows; r++) {
        const int64_t sees = f->first_position + r / f->group - key + 1;
        places->valid[r] = sees > ES_ATTN_TILE ? ES_ATTN_TILE : sees < 0 ? 0 : (int32_t)sees;
    }
}

/* Folds one tile into a node, by the kernel of the cache's type. */
static void fold_tile(const fold *f, const tile_places *places, const es_attn_node *node)
{
    const es_kernels *kernels = &f->cpu->kernels;
    es_cpu_worker *me = f->me;
    const int32_t dim = f->op->shape.head_dim;
    if (f->cpu->options.kv_type == ES_KV_Q8_0) {
        es_attn_tile_q8 tile = {.q = me->query.q, .q_scale = me->query.scale, .q_zero = me->query.zero, .valid = places->valid,
                                .rows = f->rows, .head_dim = dim, .m = node->m, .l = me->lanes, .o = node->o, .p = me->p};
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++)
            tile.k[b] = places->k[b], tile.v[b] = places->v[b], tile.next_k[b] = places->next_k[b];
        kernels->attn_tile_q8(&tile);
        return;
    }
    es_attn_tile tile = {.q = me->rows, .valid = places->valid, .rows = f->rows, .head_dim = dim, .m = node->m, .l = me->lanes,
                         .o = node->o, .p = me->p};
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
        tile.k[b] = (const float *)(const void *)places->k[b], tile.v[b] = (const float *)(const void *)places->v[b];
        tile.k16[b] = (const uint16_t *)(const void *)places->k[b], tile.v16[b] = (const uint16_t *)(const void *)places->v[b];
        tile.next_k[b] = places->next_k[b];
    }
    switch (f->cpu->options.kv_type) {
    case ES_KV_BF16: kernels->attn_tile_bf16(&tile); break;
    case ES_KV_F16: kernels->attn_tile_f16(&tile); break;
    default: kernels->attn_tile(&tile); break;
    }
}

/* The leaf: folds the keys of one partition, tile by tile, into (m, l, o). */
static void fold_partition(const fold *f, int64_t partition, es_attn_node *node)
{
    const int64_t last_key = f->first_position + f->item->tokens - 1;
    for (int32_t r = 0; r < f->rows; r++) node->m[r] = -INFINITY;
    memset(f->me->lanes, 0, (size_t)f->rows * ES_LANES * sizeof(float));
    memset(node->o, 0, (size_t)f->rows * (size_t)f->op->shape.head_dim * sizeof(float));
    for (int64_t key = partition * ES_ATTN_PARTITION; key < (partition + 1) * ES_ATTN_PARTITION && key <= last_key;
         key += ES_ATTN_TILE) {
        tile_places places;
        find_tile(f, key, last_key, &places);
        fold_tile(f, &places, node);
    }
    for (int32_t r = 0; r < f->rows; r++) node->l[r] = es_fold_lanes(f->me->lanes + r * ES_LANES);
    node->height = 0;
    node->index = partition;
}

static bool are_siblings(const es_attn_node *left, const es_attn_node *right)
{
    return left->height == right->height && left->index % 2 == 0 && right->index == left->index + 1;
}

static void merge_rows(const es_cpu *cpu, const es_attn_node *into, const es_attn_node *from, int32_t first, int32_t last,
                       int32_t dim)
{
    for (int32_t r = first; r < last; r++)
        cpu->kernels.attn_merge(&into->m[r], &into->l[r], into->o + (int64_t)r * dim, from->m[r], from->l[r],
                                from->o + (int64_t)r * dim, dim);
}

/* Folds partitions [from, to) of an item onto the piece's stack of nodes. */
static void fold_run(const fold *f, int64_t from, int64_t to, es_attn_piece *piece)
{
    piece->count = 0;
    for (int64_t p = from; p < to; p++) {
        fold_partition(f, p, &piece->node[piece->count++]);
        while (piece->count > 1 && are_siblings(&piece->node[piece->count - 2], &piece->node[piece->count - 1])) {
            es_attn_node *left = &piece->node[piece->count - 2];
            merge_rows(f->cpu, left, &piece->node[piece->count - 1], 0, f->rows, f->op->shape.head_dim);
            left->height++;
            left->index /= 2;
            piece->count--;
        }
    }
}

/* out = o / l, times σ(gate); a row that saw nothing gives zeros. */
static void write_row(const fold *f, const es_attn_node *node, int32_t r)
{
    const es_attn_shape *shape = &f->op->shape;
    const int64_t row = f->item->first_row + r / f->group, head = f->item->kv_head * f->group + r % f->group;
    const float *gate = es_cpu_floats(f->op->gate);
    if (gate) gate += row * f->op->gate_stride + head * f->op->gate_head_stride;
    float *out = es_cpu_floats(f->op->out) + (row * shape->query_heads + head) * shape->head_dim;
    const float inverse = node->l[r] > 0 ? 1.0f / node->l[r] : 0.0f;
    f->cpu->kernels.scale_gate(node->o + (int64_t)r * shape->head_dim, inverse, gate, out, shape->head_dim);
}

/* What is left of the stack is the right edge of the tree: nodes of falling height, merged from the right. */
static void finish_stack(const fold *f, es_attn_node *node, int32_t count, int32_t first, int32_t last)
{
    for (int32_t i = count - 1; i > 0; i--) merge_rows(f->cpu, &node[i - 1], &node[i], first, last, f->op->shape.head_dim);
    for (int32_t r = first; r < last; r++) write_row(f, &node[0], r);
}

void es_cpu_attn(es_cpu *cpu, const es_op_attn *op, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    int32_t item, last_item;
    int64_t partition, last_partition;
    es_cpu_attn_cut(cpu, worker, &item, &partition);
    es_cpu_attn_cut(cpu, worker + 1, &last_item, &last_partition);
    me->pieces = 0;
    for (; item < last_item || (item == last_item && partition < last_partition); item++, partition = 0) {
        const es_attn_item *it = &cpu->item[item];
        const int64_t end = item == last_item ? last_partition : it->load.partitions;
        const fold f = start_fold(cpu, op, it, worker);
        if (cpu->options.kv_type == ES_KV_Q8_0) encode_queries(&f);
        es_attn_piece *piece = &me->piece[me->pieces];
        piece->item = item;
        fold_run(&f, partition, end, piece);
        if (partition == 0 && end == it->load.partitions)
            finish_stack(&f, piece->node, piece->count, 0, f.rows);
        else
            me->pieces++; /* at most two: a run's first item and its last */
    }
}

/* Continues one item's stack over the pieces of all workers, for some of its rows. Nodes are merged in place; rows are
 * disjoint between callers, so several workers may finish one item together. */
static void merge_item(es_cpu *cpu, const es_op_attn *op, int32_t item, int32_t first, int32_t last, int worker)
{
    const fold f = start_fold(cpu, op, &cpu->item[item], worker);
    es_attn_node stack[ES_ATTN_MOST_NODES];
    int32_t count = 0;
    for (int w = 0; w < es_pool_workers(cpu->pool); w++)
        for (int32_t p = 0; p < cpu->worker[w].pieces; p++) {
            const es_attn_piece *piece = &cpu->worker[w].piece[p];
            if (piece->item != item) continue;
            for (int32_t n = 0; n < piece->count; n++) {
                stack[count++] = piece->node[n];
                while (count > 1 && are_siblings(&stack[count - 2], &stack[count - 1])) {
                    merge_rows(cpu, &stack[count - 2], &stack[count - 1], first, last, op->shape.head_dim);
                    stack[count - 2].height++;
                    stack[count - 2].index /= 2;
                    count--;
                }
            }
        }
    finish_stack(&f, stack, count, first, last);
}

void es_cpu_attn_merge(es_cpu *cpu, const es_op_attn *op, int worker)
{
    const int workers = es_pool_workers(cpu->pool);
    const int32_t group = op->shape.query_heads / op->shape.kv_heads;
    int32_t previous = -1;
    for (int w = 0; w < workers; w++)
        for (int32_t p = 0; p < cpu->worker[w].pieces; p++) {
            const int32_t item = cpu->worker[w].piece[p].item;
            if (item == previous) continue; /* pieces of one item stand one after the other */
            previous = item;
            const es_range rows = es_cpu_share(cpu, (int64_t)cpu->item[item].tokens * group, worker);
            if (rows.begin < rows.end) merge_item(cpu, op, item, (int32_t)rows.begin, (int32_t)rows.end, worker);
        }
}
