/* run_attention_cache.c: what attention finds in the paged cache: queries, keys and values are normed, turned by their positions
 * and written in the form that the kernels read.
 *
 * A page holds, for each KV head, blocks of sixteen tokens. A block of keys is [head_dim][16] float32 or binary16,
 * [head_dim / 2][16][2] bfloat16, or as es_attn_tile_q8 says; one of values [16][head_dim] float32 or binary16, [8][head_dim][2]
 * bfloat16, or as there. */
#include "device/cpu/cpu.h"
#include "base/half.h"
#include "device/cpu/math.h"

int64_t es_cpu_kv_block(const es_cpu *cpu, const es_attn_shape *shape, int64_t page, int32_t kv_head, int64_t token)
{
    return ((page * shape->kv_heads + kv_head) * (shape->page / ES_ATTN_BLOCK) + token / ES_ATTN_BLOCK) * cpu->kv_block;
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

static void write_f32(const float *k, const float *v, int32_t dim, int64_t lane, float *keys, float *values)
{
    for (int32_t d = 0; d < dim; d++) keys[d * ES_ATTN_BLOCK + lane] = k[d];
    memcpy(values + lane * dim, v, (size_t)dim * sizeof(float));
}

static void write_bf16(const float *k, const float *v, int32_t dim, int64_t lane, uint16_t *keys, uint16_t *values)
{
    for (int32_t d = 0; d < dim; d++) {
        keys[(d / 2 * ES_ATTN_BLOCK + lane) * 2 + d % 2] = es_float_to_bfloat(k[d]);
        values[(lane / 2 * dim + d) * 2 + lane % 2] = es_float_to_bfloat(v[d]);
    }
}

static void write_f16(const es_cpu *cpu, const float *k, const float *v, int32_t dim, int64_t lane, uint16_t *keys,
                      uint16_t *values)
{
    uint16_t row[ES_ATTN_MOST_HEAD_DIM];
    cpu->kernels.encode_f16(k, row, dim);
    for (int32_t d = 0; d < dim; d++) keys[d * ES_ATTN_BLOCK + lane] = row[d];
    cpu->kernels.encode_f16(v, values + lane * dim, dim);
}

/* A row in 8 bits: integers, and scales in binary16, which a row of sane numbers does not exceed. */
static void encode_row(const es_cpu *cpu, const float *x, int32_t dim, int8_t *q, uint16_t *half)
{
    float scale[ES_ATTN_MOST_HEAD_DIM / ES_ATTN_Q8_GROUP], sum[ES_ATTN_MOST_HEAD_DIM / ES_ATTN_Q8_GROUP];
    cpu->kernels.products.encode_int8(&x, 1, dim, q, scale, sum);
    for (int32_t g = 0; g < dim / ES_ATTN_Q8_GROUP; g++) half[g] = es_float_to_half(scale[g] < ES_HALF_MOST ? scale[g] : ES_HALF_MOST);
}

static void write_q8_0(const es_cpu *cpu, const float *k, const float *v, int32_t dim, int64_t lane, unsigned char *keys,
                       unsigned char *values)
{
    int8_t q[ES_ATTN_MOST_HEAD_DIM];
    uint16_t scale[ES_ATTN_MOST_HEAD_DIM / ES_ATTN_Q8_GROUP];
    const int64_t scales = (int64_t)ES_ATTN_BLOCK * dim;
    encode_row(cpu, k, dim, q, scale);
    for (int32_t d = 0; d < dim; d++) keys[(d / 4 * ES_ATTN_BLOCK + lane) * 4 + d % 4] = (unsigned char)(q[d] + 128);
    for (int32_t g = 0; g < dim / ES_ATTN_Q8_GROUP; g++)
        memcpy(keys + scales + (g * ES_ATTN_BLOCK + lane) * 2, &scale[g], sizeof scale[g]);
    encode_row(cpu, v, dim, q, scale);
    for (int32_t d = 0; d < dim; d++) {
        const int32_t group = d / ES_ATTN_Q8_GROUP, inside = d % ES_ATTN_Q8_GROUP;
        values[((group * 4 + lane / 4) * ES_ATTN_Q8_GROUP + inside) * 4 + lane % 4] = (unsigned char)q[d];
    }
    for (int32_t g = 0; g < dim / ES_ATTN_Q8_GROUP; g++)
        memcpy(values + scales + (g * ES_ATTN_BLOCK + lane) * 2, &scale[g], sizeof scale[g]);
}

static void prepare_query(es_cpu *cpu, const es_op_attn_prepare *op, int64_t row, int32_t head)
{
    const int32_t dim = op->shape.head_dim;
    float normed[ES_ATTN_MOST_HEAD_DIM], turned[ES_ATTN_MOST_HEAD_DIM];
    const float *q = es_cpu_floats(op->q) + row * op->q_stride + head * op->q_head_stride, *norm = es_cpu_floats(op->q_norm);
    float *out = es_cpu_floats(op->q_out) + (row * op->shape.query_heads + head) * dim;
    if (norm) cpu->kernels.rmsnorm(q, norm, normed, dim, op->eps);
    rotate(norm ? normed : q, es_cpu_floats(op->rope) + row * op->rope_pairs * 2, op->rope_pairs, op->interleaved, dim, turned);
    for (int32_t d = 0; d < dim; d++) {
        const float scaled = turned[d] * op->scale;
        out[d] = cpu->options.kv_type == ES_KV_BF16 ? es_bfloat_to_float(es_float_to_bfloat(scaled)) : scaled;
    }
}

static void prepare_key_and_value(es_cpu *cpu, const es_op_attn_prepare *op, int64_t row, int32_t head)
{
    const es_attn_shape *shape = &op->shape;
    const int32_t dim = shape->head_dim;
    float normed[ES_ATTN_MOST_HEAD_DIM], turned[ES_ATTN_MOST_HEAD_DIM];
    const int64_t position = cpu->row_position[row], page = cpu->batch->span[cpu->row_span[row]].pages[position / shape->page];
    const int64_t lane = position % ES_ATTN_BLOCK, at = es_cpu_kv_block(cpu, shape, page, head, position % shape->page);
    const float *k = es_cpu_floats(op->k) + row * op->kv_stride + head * dim, *norm = es_cpu_floats(op->k_norm);
    const float *v = es_cpu_floats(op->v) + row * op->kv_stride + head * dim;
    if (norm) cpu->kernels.rmsnorm(k, norm, normed, dim, op->eps);
    rotate(norm ? normed : k, es_cpu_floats(op->rope) + row * op->rope_pairs * 2, op->rope_pairs, op->interleaved, dim, turned);
    unsigned char *keys = op->k_cache.buffer->data + op->k_cache.offset + at;
    unsigned char *values = op->v_cache.buffer->data + op->v_cache.offset + at;
    switch (cpu->options.kv_type) {
    case ES_KV_Q8_0: write_q8_0(cpu, turned, v, dim, lane, keys, values); break;
    case ES_KV_F16: write_f16(cpu, turned, v, dim, lane, (uint16_t *)(void *)keys, (uint16_t *)(void *)values); break;
    case ES_KV_BF16: write_bf16(turned, v, dim, lane, (uint16_t *)(void *)keys, (uint16_t *)(void *)values); break;
    default: write_f32(turned, v, dim, lane, (float *)(void *)keys, (float *)(void *)values); break;
    }
}

/* A unit is a query head of a row, or one of its KV heads. */
void es_cpu_attn_prepare(es_cpu *cpu, const es_op_attn_prepare *op, int worker)
{
    const int64_t heads = op->shape.query_heads + op->shape.kv_heads;
    es_take take = es_pool_take(cpu->pool, cpu->batch->rows * heads, ES_TAKE_PIECES, worker);
    for (es_range some; es_take_next(&take, &some);)
        for (int64_t unit = some.begin; unit < some.end; unit++) {
            const int32_t head = (int32_t)(unit % heads);
            if (head < op->shape.query_heads)
                prepare_query(cpu, op, unit / heads, head);
            else
                prepare_key_and_value(cpu, op, unit / heads, head - op->shape.query_heads);
        }
}
