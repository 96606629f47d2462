/* run_matmul.c: matrix products, shared out by weight rows.
 *
 * A unit is 16 weight rows times all rows of the step. Columns pass in pieces of 512: the sixteen weight rows' piece is
 * decoded to float32 into a panel that stays in the first-level cache, and serves up to 128 tokens. An output has sixteen
 * lanes of its own from the first column to the last, so that neither its company nor the pieces change a bit of it. */
#include "device/cpu/cpu.h"

/* The columns [from, from + columns) of a block as floats: where they are, or decoded into the worker's panel. */
static void find_weights(const es_cpu *cpu, const es_cpu_block *block, int64_t from, float *panel, es_dot_tile *tile)
{
    /* Rows of many columns lie a power of two apart as often as not, and then share few sets of the first-level cache: what is
     * read more than once is copied too. */
    if (block->type == ES_F32 && tile->tokens < 4 && (uintptr_t)block->data % sizeof(float) == 0) {
        tile->w = (const float *)(const void *)block->data + from;
        tile->w_stride = block->columns;
        return;
    }
    const size_t row_bytes = es_dtype_bytes(block->type, block->columns), skip = es_dtype_bytes(block->type, from);
    for (int32_t r = 0; r < block->count; r++)
        cpu->kernels.decode[block->type](block->data + (size_t)r * row_bytes + skip, panel + r * ES_DOT_COLUMNS,
                                         tile->columns);
    tile->w = panel;
    tile->w_stride = ES_DOT_COLUMNS;
}

void es_cpu_product_block(es_cpu *cpu, const es_cpu_block *block, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    for (int32_t t = 0; t < block->tokens; t += ES_DOT_TOKENS) {
        es_dot_tile tile = {.x = block->x + t, .rows = block->count, .lanes = me->sums,
                            .tokens = block->tokens - t < ES_DOT_TOKENS ? block->tokens - t : ES_DOT_TOKENS};
        for (int64_t from = 0; from < block->columns; from += ES_DOT_COLUMNS) {
            tile.columns = (int32_t)(block->columns - from < ES_DOT_COLUMNS ? block->columns - from : ES_DOT_COLUMNS);
            tile.x_offset = from;
            tile.first = from == 0;
            find_weights(cpu, block, from, me->panel, &tile);
            cpu->kernels.dot(&tile);
        }
        cpu->kernels.fold(me->sums, block->count, tile.tokens, me->product + t * ES_DOT_ROWS);
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
