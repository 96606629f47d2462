/* run_matmul.c: matrix products, shared out by weight rows.
 *
 * A unit is 16 weight rows times all rows of the step. Its weight rows are decoded to float32 once (into a panel that stays
 * in the second-level cache) and used for every token, so a token's result does not depend on how many there are: one
 * accumulator set per output, over the whole inner dimension, in the order of the kernel's contract. */
#include "device/cpu/cpu.h"

void es_cpu_product_block(es_cpu *cpu, const es_cpu_block *block, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const size_t row_bytes = es_dtype_bytes(block->type, block->columns);
    if (block->type == ES_F32 && (uintptr_t)block->data % sizeof(float) == 0) {
        cpu->kernels.dot((const float *)(const void *)block->data, block->columns, block->count, block->x, block->tokens,
                         block->columns, me->product);
        return;
    }
    /* With one token, four rows at a time pass through the first-level cache; with many, sixteen rows are worth a panel. */
    const int32_t step = block->tokens == 1 ? 4 : ES_DOT_ROWS;
    for (int32_t r = 0; r < block->count; r += step) {
        const int32_t some = block->count - r < step ? block->count - r : step;
        for (int32_t i = 0; i < some; i++)
            cpu->kernels.decode[block->type](block->data + (size_t)(r + i) * row_bytes, me->panel + i * block->columns,
                                             block->columns);
        cpu->kernels.dot(me->panel, block->columns, some, block->x, block->tokens, block->columns, me->product + r);
    }
}

/* Adds the bias and stores or accumulates the block's sums. */
static void store_block(const es_cpu *cpu, const es_matmul_part *part, int64_t row, int32_t count, int32_t tokens, int worker)
{
    const float *product = cpu->worker[worker].product, *bias = es_cpu_floats(part->bias);
    for (int32_t t = 0; t < tokens; t++) {
        float *out = es_cpu_floats(part->out) + t * part->out_stride + row;
        for (int32_t r = 0; r < count; r++) {
            float sum = product[t * ES_DOT_ROWS + r];
            if (bias) sum = sum + bias[row + r];
            out[r] = part->accumulate ? out[r] + sum : sum;
        }
    }
}

static int64_t blocks_of(const es_matmul_part *part)
{
    return (part->weight.rows + ES_DOT_ROWS - 1) / ES_DOT_ROWS;
}

void es_cpu_matmul(es_cpu *cpu, const es_op_matmul *op, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const int32_t tokens = op->outputs_only ? cpu->batch->outputs : cpu->batch->rows;
    if (tokens == 0) return;
    int64_t units = 0;
    for (int32_t p = 0; p < op->parts; p++) units += blocks_of(&op->part[p]);
    const es_range share = es_cpu_share(cpu, units, worker);
    if (share.begin == share.end) return;
    for (int32_t t = 0; t < tokens; t++) me->rows[t] = es_cpu_floats(op->x) + t * op->x_stride;

    int64_t first = 0;
    for (int32_t p = 0; p < op->parts; p++) {
        const es_matmul_part *part = &op->part[p];
        const es_weight *w = &part->weight;
        const int64_t end = first + blocks_of(part);
        const int64_t from = share.begin > first ? share.begin : first, to = share.end < end ? share.end : end;
        for (int64_t unit = from; unit < to; unit++) {
            const int64_t row = (unit - first) * ES_DOT_ROWS;
            const int32_t count = w->rows - row < ES_DOT_ROWS ? (int32_t)(w->rows - row) : ES_DOT_ROWS;
            const es_cpu_block block = {
                .data = w->at.buffer->data + w->at.offset + (size_t)row * es_dtype_bytes(w->type, w->cols),
                .type = w->type, .columns = w->cols, .count = count, .tokens = tokens, .x = me->rows,
            };
            es_cpu_product_block(cpu, &block, worker);
            store_block(cpu, part, row, count, tokens, worker);
        }
        first = end;
    }
}
