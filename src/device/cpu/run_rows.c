/* run_rows.c: what is done row by row: embedding, rotary tables, norms, activations. */
#include "device/cpu/cpu.h"
#include "device/cpu/math.h"

void es_cpu_embed(es_cpu *cpu, const es_op_embed *op, int worker)
{
    const es_weight *table = &op->table;
    const size_t row_bytes = es_dtype_bytes(table->type, table->cols);
    const es_range share = es_cpu_share(cpu, cpu->batch->rows, worker);
    for (int64_t t = share.begin; t < share.end; t++)
        cpu->kernels.decode[table->type](table->at.buffer->data + table->at.offset +
                                             (size_t)cpu->batch->tokens[t] * row_bytes,
                                         es_cpu_floats(op->out) + t * table->cols, table->cols);
}

/* angle = position · frequency in float32, as the models were trained. */
void es_cpu_rope_table(es_cpu *cpu, const es_op_rope_table *op, int worker)
{
    const float *frequency = es_cpu_floats(op->frequency);
    const es_range share = es_cpu_share(cpu, cpu->batch->rows, worker);
    for (int64_t t = share.begin; t < share.end; t++) {
        float *out = es_cpu_floats(op->out) + t * op->pairs * 2;
        for (int32_t i = 0; i < op->pairs; i++) {
            float c, s;
            es_cos_sin((float)cpu->row_position[t] * frequency[i], &c, &s);
            out[2 * i] = c * op->scale;
            out[2 * i + 1] = s * op->scale;
        }
    }
}

void es_cpu_norm_row(es_cpu *cpu, const es_op_rmsnorm *op, int64_t t, float *out)
{
    const int64_t row = op->outputs_only ? cpu->batch->output_row[t] : t;
    cpu->kernels.rmsnorm(es_cpu_floats(op->x) + row * op->width, es_cpu_floats(op->weight), out, op->width, op->eps);
}

void es_cpu_rmsnorm(es_cpu *cpu, const es_op_rmsnorm *op, int worker)
{
    const es_range share = es_cpu_share(cpu, op->outputs_only ? cpu->batch->outputs : cpu->batch->rows, worker);
    for (int64_t t = share.begin; t < share.end; t++)
        es_cpu_norm_row(cpu, op, t, es_cpu_floats(op->out) + t * op->width);
}

void es_cpu_swiglu(es_cpu *cpu, const es_op_swiglu *op, int worker)
{
    /* A unit is a piece of a row, so that a single row is shared too. */
    const int32_t piece = 1024;
    const int64_t pieces = (op->width + piece - 1) / piece;
    es_take take = es_pool_take(cpu->pool, (int64_t)cpu->batch->rows * op->per_row * pieces, ES_TAKE_PIECES, worker);
    for (es_range some; es_take_next(&take, &some);)
        for (int64_t u = some.begin; u < some.end; u++) {
            const int32_t from = (int32_t)(u % pieces) * piece;
            const int64_t at = u / pieces * op->stride + from;
            const int32_t n = op->width - from < piece ? op->width - from : piece;
            cpu->kernels.swiglu(es_cpu_floats(op->gate) + at, es_cpu_floats(op->up) + at, es_cpu_floats(op->out) + at, n);
        }
}
