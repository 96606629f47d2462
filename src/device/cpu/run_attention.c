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
#include "base/half.h"
#include "device/cpu/math.h"

/* The modes bf16 and int8 keep keys and values as bfloat16. */
static bool is_bf16(const es_cpu *cpu)
{
    return cpu->options.numeric != ES_NUMERIC_F32;
}

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

/* Where the block of keys at a position starts, in elements. */
static int64_t place_of(const fold *f, int64_t position)
{
    const es_attn_shape *shape = &f->op->shape;
    const int64_t page_elements = (int64_t)shape->kv_heads * shape->page * shape->head_dim;
    return f->span->pages[position / shape->page] * page_elements +
           ((int64_t)f->item->kv_head * shape->page + position % shape->page) * shape->head_dim;
}

/* The leaf: folds the keys of one partition, tile by tile, into (m, l, o). */
static void fold_partition(const fold *f, int64_t partition, es_attn_node *node)
{
    const es_attn_shape *shape = &f->op->shape;
    const int64_t last_key = f->first_position + f->item->tokens - 1;
    int32_t valid[ES_ATTN_ROWS];
    es_attn_tile tile = {.q = f->me->rows, .valid = valid, .rows = f->rows, .head_dim = shape->head_dim,
                         .m = node->m, .l = f->me->lanes, .o = node->o, .p = f->me->p};
    for (int32_t r = 0; r < f->rows; r++) node->m[r] = -INFINITY;
    memset(f->me->lanes, 0, (size_t)f->rows * ES_LANES * sizeof(float));
    memset(node->o, 0, (size_t)f->rows * (size_t)shape->head_dim * sizeof(float));

    for (int64_t key = partition * ES_ATTN_PARTITION; key < (partition + 1) * ES_ATTN_PARTITION && key <= last_key;
         key += ES_ATTN_TILE) {
        for (int32_t b = 0; b < ES_ATTN_TILE_BLOCKS && key + b * ES_ATTN_BLOCK <= last_key; b++) {
            const int64_t at = key + b * ES_ATTN_BLOCK, offset = place_of(f, at);
            if (is_bf16(f->cpu)) {
                tile.k16[b] = es_cpu_halves(f->op->k_cache) + offset;
                tile.v16[b] = es_cpu_halves(f->op->v_cache) + offset;
                tile.next_k16[b] = at + ES_ATTN_TILE <= last_key
                                       ? es_cpu_halves(f->op->k_cache) + place_of(f, at + ES_ATTN_TILE) : NULL;
            } else {
                tile.k[b] = es_cpu_floats(f->op->k_cache) + offset;
                tile.v[b] = es_cpu_floats(f->op->v_cache) + offset;
            }
        }
        for (int32_t r = 0; r < f->rows; r++) {
            const int64_t sees = f->first_position + r / f->group - key + 1;
            valid[r] = sees > ES_ATTN_TILE ? ES_ATTN_TILE : sees < 0 ? 0 : (int32_t)sees;
        }
        (is_bf16(f->cpu) ? f->cpu->kernels.attn_tile_bf16 : f->cpu->kernels.attn_tile)(&tile);
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

/* Rotates the first 2·pairs channels by the row's angles; the others are copied. */
static void rotate(const float *x, const float *table, int32_t pairs, bool interleaved, int32_t dim, float *out)
{
    for (int32_t i = 0; i < pairs; i++) {
        const int32_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + pairs;
        const float c = table[2 * i], s = table[2 * i + 1], xa = x[a], xb = x[b];
        out[a] = fmaf(xa, c, -(xb * s));
        out[b] = fmaf(xb, c, xa * s);
    }
    for (int32_t d = 2 * pairs; d < dim; d++) out[d] = x[d];
}

/* One head of one row: unit h < query_heads is a query head, the others are KV heads (key and value). */
static void prepare_head(es_cpu *cpu, const es_op_attn_prepare *op, int64_t row, int32_t h)
{
    const es_attn_shape *shape = &op->shape;
    const int32_t dim = shape->head_dim;
    const float *table = es_cpu_floats(op->rope) + row * op->rope_pairs * 2;
    float normed[ES_ATTN_MOST_HEAD_DIM], turned[ES_ATTN_MOST_HEAD_DIM];
    if (h < shape->query_heads) {
        const float *q = es_cpu_floats(op->q) + row * op->q_stride + h * op->q_head_stride, *norm = es_cpu_floats(op->q_norm);
        float *out = es_cpu_floats(op->q_out) + (row * shape->query_heads + h) * dim;
        if (norm) cpu->kernels.rmsnorm(q, norm, normed, dim, op->eps);
        rotate(norm ? normed : q, table, op->rope_pairs, op->interleaved, dim, turned);
        for (int32_t d = 0; d < dim; d++) {
            const float scaled = turned[d] * op->scale;
            out[d] = is_bf16(cpu) ? es_bfloat_to_float(es_float_to_bfloat(scaled)) : scaled;
        }
        return;
    }
    const int32_t kv = h - shape->query_heads;
    const es_span *span = &cpu->batch->span[cpu->row_span[row]];
    const int64_t position = cpu->row_position[row], page = span->pages[position / shape->page];
    const int64_t inside = position % shape->page, block = inside / ES_ATTN_BLOCK, lane = inside % ES_ATTN_BLOCK;
    const int64_t at = ((page * shape->kv_heads + kv) * shape->page + block * ES_ATTN_BLOCK) * dim;
    const float *k = es_cpu_floats(op->k) + row * op->kv_stride + kv * dim, *norm = es_cpu_floats(op->k_norm);
    if (norm) cpu->kernels.rmsnorm(k, norm, normed, dim, op->eps);
    rotate(norm ? normed : k, table, op->rope_pairs, op->interleaved, dim, turned);
    const float *v = es_cpu_floats(op->v) + row * op->kv_stride + kv * dim;
    if (is_bf16(cpu)) {
        uint16_t *keys = es_cpu_halves(op->k_cache) + at, *values = es_cpu_halves(op->v_cache) + at;
        for (int32_t d = 0; d < dim; d++) {
            keys[(d / 2 * ES_ATTN_BLOCK + lane) * 2 + d % 2] = es_float_to_bfloat(turned[d]);
            values[(lane / 2 * dim + d) * 2 + lane % 2] = es_float_to_bfloat(v[d]);
        }
        return;
    }
    float *keys = es_cpu_floats(op->k_cache) + at + lane;
    for (int32_t d = 0; d < dim; d++) keys[d * ES_ATTN_BLOCK] = turned[d];
    memcpy(es_cpu_floats(op->v_cache) + at + lane * dim, v, (size_t)dim * sizeof(float));
}

void es_cpu_attn_prepare(es_cpu *cpu, const es_op_attn_prepare *op, int worker)
{
    const int64_t heads = op->shape.query_heads + op->shape.kv_heads;
    const es_range share = es_cpu_share(cpu, cpu->batch->rows * heads, worker);
    for (int64_t unit = share.begin; unit < share.end; unit++)
        prepare_head(cpu, op, unit / heads, (int32_t)(unit % heads));
}
