/* run_moe.c: mixture of experts: who is chosen, the chosen experts' products, and their sum in a fixed order.
 *
 * The rows that chose an expert are gathered, so that its weights are read once a step; each row's products are computed by
 * the same kernel as any other product, and summed in order of rank: company changes neither. */
#include "device/cpu/cpu.h"
#include "device/cpu/math.h"

enum { PIECES = 8 }; /* of a worker's share: for each, its experts' tokens are encoded */

/* Softmax over all experts, then the `used` likeliest, ties to the lowest number. */
static void route_row(const es_op_moe_route *op, int64_t row)
{
    float *p = es_cpu_floats(op->logits) + row * op->experts, *weight = es_cpu_floats(op->weights) + row * op->used;
    int32_t *id = (int32_t *)(void *)es_cpu_floats(op->ids) + row * op->used;
    float most = p[0], sum = 0, chosen = 0;
    for (int32_t e = 1; e < op->experts; e++)
        if (p[e] > most) most = p[e];
    for (int32_t e = 0; e < op->experts; e++) {
        p[e] = es_exp(p[e] - most);
        sum = sum + p[e];
    }
    for (int32_t rank = 0; rank < op->used; rank++) {
        int32_t best = -1;
        for (int32_t e = 0; e < op->experts; e++)
            if (p[e] >= 0 && (best < 0 || p[e] > p[best])) best = e;
        if (best < 0) best = 0; /* only NaNs: a broken model must not become a wild index */
        id[rank] = best;
        weight[rank] = p[best] / sum;
        p[best] = -1.0f; /* taken */
        chosen = chosen + weight[rank];
    }
    for (int32_t rank = 0; rank < op->used; rank++) {
        if (op->renormalise) weight[rank] = weight[rank] / chosen;
        weight[rank] = weight[rank] * op->scale;
    }
}

void es_cpu_moe_route(es_cpu *cpu, const es_op_moe_route *op, int worker)
{
    const es_range share = es_cpu_share(cpu, cpu->batch->rows, worker);
    for (int64_t row = share.begin; row < share.end; row++) route_row(op, row);
}

/* A counting sort of at most rows · used small numbers: too short to share out. */
void es_cpu_moe_group(es_cpu *cpu, const es_op_moe_group *op, int worker)
{
    if (worker != 0) return;
    const int32_t entries = cpu->batch->rows * op->used;
    const int32_t *id = (const int32_t *)(const void *)es_cpu_floats(op->ids);
    int32_t *start = (int32_t *)(void *)es_cpu_floats(op->starts), *order = (int32_t *)(void *)es_cpu_floats(op->order);
    memset(start, 0, (size_t)(op->experts + 1) * sizeof *start);
    for (int32_t i = 0; i < entries; i++) start[id[i] + 1]++;
    for (int32_t e = 0; e < op->experts; e++) start[e + 1] += start[e];
    for (int32_t i = 0; i < entries; i++) order[start[id[i]]++] = i;
    for (int32_t e = op->experts; e > 0; e--) start[e] = start[e - 1];
    start[0] = 0;
}

/* Weight rows [row, row + 16) of part `p` of an expert, times the entries that are in the worker's input. */
static void expert_block(es_cpu *cpu, const es_op_moe_product *op, int32_t p, int32_t expert, int64_t row,
                         const int32_t *entry, int worker)
{
    const es_cpu_worker *me = &cpu->worker[worker];
    const es_matmul_part *part = &op->part[p];
    const es_weight *w = &part->weight;
    es_slice at = w->at;
    if (op->expert[p])
        at = op->expert[p][expert];
    else
        at.offset += (size_t)expert * (size_t)op->expert_stride[p];
    const es_cpu_block block = {
        .data = at.buffer->data + at.offset + (size_t)row * es_dtype_bytes(w->type, w->cols),
        .type = w->type,
        .columns = w->cols,
        .count = w->rows - row < ES_DOT_ROWS ? (int32_t)(w->rows - row) : ES_DOT_ROWS,
    };
    es_cpu_product_block(cpu, &block, worker);
    for (int32_t i = 0; i < me->input.tokens; i++)
        memcpy(es_cpu_floats(part->out) + entry[i] * part->out_stride + row, me->product + i * ES_DOT_ROWS,
               (size_t)block.count * sizeof(float));
}

/* Blocks [from, to) of an expert, for its entries in groups that a worker can hold. */
static void expert_blocks(es_cpu *cpu, const es_op_moe_product *op, int32_t expert, int64_t from, int64_t to,
                          int64_t blocks_of_first, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const int32_t *start = (const int32_t *)(const void *)es_cpu_floats(op->starts);
    const int32_t *order = (const int32_t *)(const void *)es_cpu_floats(op->order);
    const es_dtype types[2] = {op->part[0].weight.type, op->part[op->parts - 1].weight.type};
    for (int32_t i = start[expert]; i < start[expert + 1]; i += ES_CPU_OWN_TOKENS) {
        const int32_t left = start[expert + 1] - i, some = left < ES_CPU_OWN_TOKENS ? left : ES_CPU_OWN_TOKENS;
        for (int32_t k = 0; k < some; k++)
            me->rows[k] = es_cpu_floats(op->x) + (int64_t)(op->gather ? order[i + k] / op->used : order[i + k]) * op->x_stride;
        es_cpu_encode_own(cpu, types, 2, me->rows, some, op->part[0].weight.cols, worker);
        for (int64_t b = from; b < to; b++) {
            const int32_t p = b >= blocks_of_first;
            expert_block(cpu, op, p, expert, (p ? b - blocks_of_first : b) * ES_DOT_ROWS, order + i, worker);
        }
    }
}

void es_cpu_moe_product(es_cpu *cpu, const es_op_moe_product *op, int worker)
{
    const int32_t *start = (const int32_t *)(const void *)es_cpu_floats(op->starts);
    int64_t blocks[2] = {0, 0}, units = 0;
    for (int32_t p = 0; p < op->parts; p++) blocks[p] = (op->part[p].weight.rows + ES_DOT_ROWS - 1) / ES_DOT_ROWS;
    const int64_t per_expert = blocks[0] + blocks[1];
    for (int32_t e = 0; e < op->experts; e++)
        if (start[e + 1] > start[e]) units += per_expert;
    es_take take = es_pool_take(cpu->pool, units, PIECES, worker);
    for (es_range piece; es_take_next(&take, &piece);) {
        int64_t unit = 0;
        for (int32_t e = 0; e < op->experts && unit < piece.end; e++) {
            if (start[e + 1] == start[e]) continue;
            const int64_t from = piece.begin > unit ? piece.begin - unit : 0;
            const int64_t to = piece.end - unit < per_expert ? piece.end - unit : per_expert;
            if (from < to) expert_blocks(cpu, op, e, from, to, blocks[0], worker);
            unit += per_expert;
        }
    }
}

void es_cpu_moe_combine(es_cpu *cpu, const es_op_moe_combine *op, int worker)
{
    const float *shared = es_cpu_floats(op->shared), *gate = es_cpu_floats(op->shared_gate);
    const es_range share = es_cpu_share(cpu, cpu->batch->rows, worker);
    for (int64_t row = share.begin; row < share.end; row++) {
        float *x = es_cpu_floats(op->x) + row * op->width;
        for (int32_t rank = 0; rank < op->used; rank++) {
            const int64_t entry = row * op->used + rank;
            cpu->kernels.axpy(es_cpu_floats(op->weights)[entry], es_cpu_floats(op->y) + entry * op->width, x, op->width);
        }
        if (shared) cpu->kernels.axpy(gate ? es_sigmoid(gate[row]) : 1.0f, shared + row * op->width, x, op->width);
    }
}
