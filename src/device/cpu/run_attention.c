/* run_attention.c: attention over the paged cache as one fold, whoever does it.
 *
 * An item is one query tile (all query heads of one KV head for some tokens of a span). Its keys are cut into partitions of
 * 128 at absolute positions; a partition's fold is a leaf, and leaves merge in the binary tree of their index: node (h, j)
 * covers partitions [j·2^h, (j+1)·2^h), left before right, and a missing right child changes nothing. A stack does that like
 * a binary counter: whenever the two topmost nodes are siblings, they merge.
 *
 * Workers take items whole and finish them (V1), or in pieces of 2^h partitions (V2): whoever folds a piece publishes its node of
 * the tree, and es_cpu_attn_merge() goes on from there. Both do the same merges in the same tree: neither the plan nor who takes
 * what can change a bit. */
#include "device/cpu/cpu.h"
#include "device/cpu/math.h"

static es_plan_list attn_list(const es_cpu *cpu)
{
    return (es_plan_list){.items = &cpu->item[0].load, .stride = sizeof *cpu->item, .count = cpu->items, .cost = cpu->attn_cost,
                          .workers = es_pool_workers(cpu->pool)};
}

static void list_items(es_cpu *cpu)
{
    const es_batch *batch = cpu->batch;
    const es_attn_shape *shape = &cpu->options.attn;
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
}

static int32_t rows_of(const es_cpu *cpu, const es_attn_item *item)
{
    return item->tokens * (cpu->options.attn.query_heads / cpu->options.attn.kv_heads);
}

/* Rows that a node of the item takes in `published`. */
static int64_t published_rows(const es_cpu *cpu, const es_attn_item *item)
{
    return es_plan_node_rows(rows_of(cpu, item));
}

static int32_t pieces_of(const es_attn_item *item)
{
    return item->unit ? (item->load.partitions - 1) / item->unit + 1 : 1;
}

void es_cpu_attn_plan(es_cpu *cpu)
{
    cpu->items = cpu->tasks = cpu->attn_merges = 0;
    cpu->attn_cost = 0;
    if (cpu->options.attn.head_dim == 0) return;
    list_items(cpu);
    es_plan_list list = attn_list(cpu);
    const es_plan_room room = {cpu->task_capacity - cpu->item_capacity, cpu->published_rows};
    int64_t grain = 0, node = 0;
    if (cpu->options.attention == ES_ATTENTION_AUTO) {
        grain = es_plan_grain(&list, &cpu->attn_costs, room);
    } else if (cpu->options.attention == ES_ATTENTION_V2 && list.workers > 1) {
        list.workers = INT32_MAX; /* no item is left whole for what comes behind it */
        for (grain = 1; !es_plan_fits(&list, grain, room);) grain *= 2;
    }
    for (int32_t i = 0; i < cpu->items; i++) {
        es_attn_item *item = &cpu->item[i];
        item->unit = es_plan_unit(&list, i, grain);
        item->merges = cpu->attn_merges;
        item->node = node;
        for (int32_t p = 0; p < pieces_of(item); p++) cpu->task[cpu->tasks++] = (es_attn_task){i, p};
        if (!item->unit) continue;
        cpu->attn_merges += rows_of(cpu, item);
        node += pieces_of(item) * published_rows(cpu, item);
    }
}

/* The node that a piece publishes: [rows] m, [rows] l, [rows][head_dim] o. */
static es_attn_node published(const es_cpu *cpu, const es_attn_item *item, int32_t piece)
{
    const int64_t rows = published_rows(cpu, item);
    float *at = cpu->published + (item->node + piece * rows) * (cpu->options.attn.head_dim + 2);
    return (es_attn_node){.index = piece, .m = at, .l = at + rows, .o = at + 2 * rows};
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
    fold f = {cpu, op, item, span, &cpu->worker[worker], group, rows_of(cpu, item),
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

static void merge_rows(const fold *f, const es_attn_node *into, const es_attn_node *from)
{
    const int32_t dim = f->op->shape.head_dim;
    for (int32_t r = 0; r < f->rows; r++)
        f->cpu->kernels.attn_merge(&into->m[r], &into->l[r], into->o + (int64_t)r * dim, from->m[r], from->l[r],
                                   from->o + (int64_t)r * dim, dim);
}

/* Folds partitions [from, to) of an item, `from` a multiple of a power of two ≥ to − from, into the first node of the stack. */
static void fold_run(const fold *f, int64_t from, int64_t to)
{
    es_attn_node *node = f->me->stack;
    int32_t count = 0;
    for (int64_t p = from; p < to; p++) {
        fold_partition(f, p, &node[count++]);
        while (count > 1 && are_siblings(&node[count - 2], &node[count - 1])) {
            merge_rows(f, &node[count - 2], &node[count - 1]);
            node[count - 2].height++;
            node[count - 2].index /= 2;
            count--;
        }
    }
    /* What is left of the stack is the right edge of the tree: nodes of falling height, merged from the right. */
    for (int32_t i = count - 1; i > 0; i--) merge_rows(f, &node[i - 1], &node[i]);
}

/* out = o / l, times σ(gate); a row that saw nothing gives zeros. */
static void write_row(const fold *f, int32_t r, float l, const float *o)
{
    const es_attn_shape *shape = &f->op->shape;
    const int64_t row = f->item->first_row + r / f->group, head = f->item->kv_head * f->group + r % f->group;
    const float *gate = es_cpu_floats(f->op->gate);
    if (gate) gate += row * f->op->gate_stride + head * f->op->gate_head_stride;
    float *out = es_cpu_floats(f->op->out) + (row * shape->query_heads + head) * shape->head_dim;
    const float inverse = l > 0 ? 1.0f / l : 0.0f;
    f->cpu->kernels.scale_gate(o, inverse, gate, out, shape->head_dim);
}

static void fold_piece(const fold *f, int32_t piece)
{
    const es_attn_item *item = f->item;
    es_attn_node *node = &f->me->stack[0];
    if (!item->unit) {
        fold_run(f, 0, item->load.partitions);
        for (int32_t r = 0; r < f->rows; r++) write_row(f, r, node->l[r], node->o + (int64_t)r * f->op->shape.head_dim);
        return;
    }
    /* Into its place at once: nodes are large. */
    const es_attn_node own = *node;
    const int64_t from = (int64_t)piece * item->unit, to = from + item->unit;
    *node = published(f->cpu, item, piece);
    fold_run(f, from, to < item->load.partitions ? to : item->load.partitions);
    *node = own;
}

void es_cpu_attn(es_cpu *cpu, const es_op_attn *op, int worker)
{
    es_take take = es_pool_take_in_order(cpu->pool, cpu->tasks, worker);
    int32_t item = -1;
    fold f;
    for (es_range one; es_take_next(&take, &one);) {
        const es_attn_task *task = &cpu->task[one.begin];
        if (task->item != item) {
            item = task->item;
            f = start_fold(cpu, op, &cpu->item[item], worker);
            if (cpu->options.kv_type == ES_KV_Q8_0) encode_queries(&f);
        }
        fold_piece(&f, task->piece);
    }
}

/* One row of an item over the nodes of all its pieces: the stack of fold_run(), begun at their height. Rows are disjoint between
 * workers, and only o is merged in place: m and l of several rows share a cache line. */
static void merge_row(const fold *f, int32_t r)
{
    const int32_t dim = f->op->shape.head_dim, pieces = pieces_of(f->item);
    float m[ES_ATTN_MOST_NODES], l[ES_ATTN_MOST_NODES];
    es_attn_node stack[ES_ATTN_MOST_NODES];
    int32_t count = 0;
    for (int32_t p = 0; p < pieces; p++) {
        const es_attn_node node = published(f->cpu, f->item, p);
        m[count] = node.m[r], l[count] = node.l[r];
        stack[count++] = (es_attn_node){.index = p, .o = node.o + (int64_t)r * dim};
        for (; count > 1 && (p + 1 == pieces || are_siblings(&stack[count - 2], &stack[count - 1])); count--) {
            const int32_t to = count - 2;
            f->cpu->kernels.attn_merge(&m[to], &l[to], stack[to].o, m[to + 1], l[to + 1], stack[to + 1].o, dim);
            stack[to].height++;
            stack[to].index /= 2;
        }
    }
    write_row(f, r, l[0], stack[0].o);
}

void es_cpu_attn_merge(es_cpu *cpu, const es_op_attn *op, int worker)
{
    const es_range rows = es_cpu_share(cpu, cpu->attn_merges, worker);
    for (int32_t i = 0; i < cpu->items; i++) {
        const es_attn_item *item = &cpu->item[i];
        if (!item->unit || item->merges >= rows.end || item->merges + rows_of(cpu, item) <= rows.begin) continue;
        const fold f = start_fold(cpu, op, item, worker);
        for (int32_t r = 0; r < f.rows; r++)
            if (item->merges + r >= rows.begin && item->merges + r < rows.end) merge_row(&f, r);
    }
}
