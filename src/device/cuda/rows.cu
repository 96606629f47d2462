/* rows.cu: what is done row by row: embedding, rotary tables, norms, activations, and the preparation of attention. */
#include "device/cuda/device.cuh"

enum { THREADS = 256 };

static __global__ void embed_kernel(es_cuda_batch b, es_cuda_matrix table, int cols, float *out)
{
    es_take_turn();
    const int t = blockIdx.x;
    const unsigned char *row = table.data + (int64_t)b.token[t] * table.row_bytes;
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < cols; i += gridDim.y * THREADS)
        out[(int64_t)t * cols + i] = es_decode_at(row, table.type, table.packed, table.row_bytes, i);
}

void es_cuda_embed(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_cuda_matrix *table, int64_t cols,
                   float *out)
{
    const unsigned pieces = cols > 2 * THREADS ? 8 : 1;
    es_launch(stream, dim3((unsigned)rows, pieces), THREADS, 0, embed_kernel, *b, *table, (int)cols, out);
}

/* cos and sin of a float32 angle in float64: cpu/math.h's es_cos_sin(). */
static __device__ void cos_sin(float angle, float *cosine, float *sine)
{
    const double x = (double)angle;
    const double n = floor(x * 0.636619772367581343076 + 0.5);
    const double r = (x - n * 1.57079632679489655800) - n * 6.12323399573676603587e-17, r2 = r * r;
    double s = -1.0 / 1307674368000.0, c = -1.0 / 87178291200.0;
    s = s * r2 + 1.0 / 6227020800.0, c = c * r2 + 1.0 / 479001600.0;
    s = s * r2 - 1.0 / 39916800.0, c = c * r2 - 1.0 / 3628800.0;
    s = s * r2 + 1.0 / 362880.0, c = c * r2 + 1.0 / 40320.0;
    s = s * r2 - 1.0 / 5040.0, c = c * r2 - 1.0 / 720.0;
    s = s * r2 + 1.0 / 120.0, c = c * r2 + 1.0 / 24.0;
    s = s * r2 - 1.0 / 6.0, c = c * r2 - 0.5;
    s = s * r2 * r + r, c = c * r2 + 1.0;
    const int quadrant = (int)((int64_t)n & 3);
    *cosine = (float)(quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s);
    *sine = (float)(quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c);
}

static __global__ void rope_kernel(es_cuda_batch b, const float *frequency, int pairs, float scale, float *out, int n)
{
    es_take_turn();
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    float c, s;
    cos_sin((float)b.row_position[i / pairs] * frequency[i % pairs], &c, &s);
    out[2 * i] = c * scale;
    out[2 * i + 1] = s * scale;
}

void es_cuda_rope_table(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_rope_table *op)
{
    const int n = rows * op->pairs;
    es_launch(stream, dim3((unsigned)((n + THREADS - 1) / THREADS)), THREADS, 0, rope_kernel, *b,
              es_cuda_floats(op->frequency), op->pairs, op->scale, es_cuda_floats(op->out), n);
}

/* out = x · rsqrt(mean(x²) + eps) · w; the mean over strided sums of groups of four in a fixed tree. */
enum { NORM_THREADS = 512, NORM_PIECES = 4 };
static __global__ void __launch_bounds__(NORM_THREADS)
    rmsnorm_kernel(es_cuda_batch b, bool outputs_only, const float *x, const float *w, float *out, int width, float eps,
                   es_cuda_shade shadow)
{
    __shared__ float room[NORM_THREADS / ES_GROUP];
    es_take_turn();
    const int t = blockIdx.x, row = outputs_only ? b.output_row[t] : t;
    const float *from = x + (int64_t)row * width;
    float sum = 0;
    for (int i = threadIdx.x; i < width; i += NORM_THREADS) sum = fmaf(from[i], from[i], sum);
    const float scale = 1.0f / sqrtf(es_block_sum(sum, room) / (float)width + eps);
    for (int i = threadIdx.x; i < width; i += NORM_THREADS) {
        const float value = (from[i] * scale) * w[i];
        if (out) out[(int64_t)t * width + i] = value;
        if (shadow.data) *es_shadow_at(shadow, t, i) = es_to_bf16(value);
    }
}

/* The same of whole groups of four, up to 8,192 of them wide: they stay in registers between the sum and the scaling. */
static __global__ void __launch_bounds__(NORM_THREADS)
    rmsnorm4_kernel(es_cuda_batch b, bool outputs_only, const float *x, const float *w, float *out, int width, float eps,
                    es_cuda_shade shadow)
{
    __shared__ float room[NORM_THREADS / ES_GROUP];
    const float4 *weight = (const float4 *)(const void *)w;
    float4 v[NORM_PIECES], g[NORM_PIECES];
    es_lead();
#pragma unroll
    for (int k = 0; k < NORM_PIECES; k++) {
        const int i = threadIdx.x + k * NORM_THREADS;
        if (4 * i < width) g[k] = weight[i];
    }
    es_follow();
    const int t = blockIdx.x, row = outputs_only ? b.output_row[t] : t;
    const float4 *from = (const float4 *)(const void *)(x + (int64_t)row * width);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < NORM_PIECES; k++) {
        const int i = threadIdx.x + k * NORM_THREADS;
        v[k] = make_float4(0, 0, 0, 0);
        if (4 * i < width) v[k] = from[i];
        sum = fmaf(v[k].x, v[k].x, sum), sum = fmaf(v[k].y, v[k].y, sum);
        sum = fmaf(v[k].z, v[k].z, sum), sum = fmaf(v[k].w, v[k].w, sum);
    }
    const float scale = 1.0f / sqrtf(es_block_sum(sum, room) / (float)width + eps);
#pragma unroll
    for (int k = 0; k < NORM_PIECES; k++) {
        const int i = threadIdx.x + k * NORM_THREADS;
        if (4 * i >= width) break;
        const float4 value = make_float4((v[k].x * scale) * g[k].x, (v[k].y * scale) * g[k].y, (v[k].z * scale) * g[k].z,
                                         (v[k].w * scale) * g[k].w);
        if (out) ((float4 *)(void *)(out + (int64_t)t * width))[i] = value;
        if (shadow.data) es_shadow_put4(shadow, t, 4 * i, value);
    }
}

void es_cuda_rmsnorm(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_rmsnorm *op, es_cuda_shade shadow,
                     bool bare)
{
    const bool fours = op->width % 4 == 0 && op->width <= 4 * NORM_PIECES * NORM_THREADS;
    es_launch(stream, dim3((unsigned)rows), NORM_THREADS, 0, fours ? rmsnorm4_kernel : rmsnorm_kernel, *b, op->outputs_only,
              es_cuda_floats(op->x), es_cuda_floats(op->weight), bare ? NULL : es_cuda_floats(op->out), op->width, op->eps, shadow);
}

static __global__ void swiglu_kernel(const float *gate, const float *up, float *out, int width, int64_t stride,
                                     es_cuda_shade shadow)
{
    es_take_turn();
    const int64_t n = blockIdx.x;
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < width; i += gridDim.y * THREADS) {
        const float value = es_silu(gate[n * stride + i]) * up[n * stride + i];
        out[n * stride + i] = value;
        if (shadow.data) *es_shadow_at(shadow, n, i) = es_to_bf16(value);
    }
}

void es_cuda_swiglu(cudaStream_t stream, int32_t rows, const es_op_swiglu *op, es_cuda_shade shadow)
{
    const unsigned pieces = (unsigned)((op->width + 4 * THREADS - 1) / (4 * THREADS));
    es_launch(stream, dim3((unsigned)(rows * op->per_row), pieces), THREADS, 0, swiglu_kernel, es_cuda_floats(op->gate),
              es_cuda_floats(op->up), es_cuda_floats(op->out), op->width, op->stride, shadow);
}

static __global__ void shadow_kernel(const float *x, int64_t x_stride, int width, es_cuda_shade shadow)
{
    es_take_turn();
    const int64_t t = blockIdx.x;
    for (int i = threadIdx.x; i < width; i += THREADS) *es_shadow_at(shadow, t, i) = es_to_bf16(x[t * x_stride + i]);
}

void es_cuda_shadow_fill(cudaStream_t stream, int32_t rows, const float *x, int64_t x_stride, int64_t width,
                         es_cuda_shade shadow)
{
    es_launch(stream, dim3((unsigned)(rows)), THREADS, 0, shadow_kernel, x, x_stride, (int)width, shadow);
}

/* What es_op_attn_prepare says, as plain pointers. */
typedef struct prepare {
    es_attn_shape shape;
    const float *q, *k, *v, *q_norm, *k_norm, *rope;
    int64_t q_stride, q_head_stride, kv_stride;
    float eps, scale;
    int32_t pairs;
    bool interleaved, bf16;
    float *q_out;
    unsigned char *k_cache, *v_cache;
} prepare;

enum { HEAD_THREADS = 128, MOST_HEAD = 1024 };

/* Channel d after the rotation of the first 2·pairs channels. */
static __device__ float rotated(const float *x, const float *table, const prepare *p, int d)
{
    if (d >= 2 * p->pairs) return x[d];
    const int i = p->interleaved ? d / 2 : d % p->pairs;
    const bool first = p->interleaved ? d % 2 == 0 : d < p->pairs;
    const int a = p->interleaved ? 2 * i : i, b = p->interleaved ? 2 * i + 1 : i + p->pairs;
    const float c = table[2 * i], s = table[2 * i + 1];
    return first ? fmaf(x[a], c, -(x[b] * s)) : fmaf(x[b], c, x[a] * s);
}

static __device__ void store(const prepare *p, unsigned char *cache, int64_t at, float value)
{
    if (p->bf16)
        ((uint16_t *)(void *)cache)[at] = es_to_bf16(value);
    else
        ((float *)(void *)cache)[at] = value;
}

/* One head of one row: a query head, or a KV head's key and value. A page is [KV head][position][channel]. */
static __global__ void __launch_bounds__(HEAD_THREADS) prepare_kernel(es_cuda_batch b, prepare p)
{
    es_take_turn();
    __shared__ float x[MOST_HEAD], room[HEAD_THREADS / ES_GROUP];
    const int64_t row = blockIdx.x;
    const int h = blockIdx.y, dim = p.shape.head_dim, kv = h - p.shape.query_heads;
    const bool query = kv < 0;
    const float *from = query ? p.q + row * p.q_stride + h * p.q_head_stride : p.k + row * p.kv_stride + (int64_t)kv * dim;
    const float *norm = query ? p.q_norm : p.k_norm, *table = p.rope + row * p.pairs * 2;
    float sum = 0;
    for (int d = threadIdx.x; d < dim; d += HEAD_THREADS) {
        x[d] = from[d];
        sum = fmaf(x[d], x[d], sum);
    }
    sum = es_block_sum(sum, room);
    const float scale = 1.0f / sqrtf(sum / (float)dim + p.eps);
    for (int d = threadIdx.x; norm && d < dim; d += HEAD_THREADS) x[d] = (x[d] * scale) * norm[d];
    __syncthreads();
    if (query) {
        float *out = p.q_out + (row * p.shape.query_heads + h) * dim;
        for (int d = threadIdx.x; d < dim; d += HEAD_THREADS) {
            const float value = rotated(x, table, &p, d) * p.scale;
            out[d] = p.bf16 ? es_from_bf16(es_to_bf16(value)) : value;
        }
        return;
    }
    const int64_t position = b.row_position[row];
    const int32_t *pages = b.pages + (int64_t)b.row_span[row] * b.page_stride;
    const int64_t at =
        (((int64_t)pages[position / p.shape.page] * p.shape.kv_heads + kv) * p.shape.page + position % p.shape.page) * dim;
    const float *v = p.v + row * p.kv_stride + (int64_t)kv * dim;
    for (int d = threadIdx.x; d < dim; d += HEAD_THREADS) {
        const int64_t place = at + es_cuda_attn_channel(dim, p.bf16, position, d);
        store(&p, p.k_cache, place, rotated(x, table, &p, d));
        store(&p, p.v_cache, place, v[d]);
    }
}

void es_cuda_attn_prepare(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_attn_prepare *op, bool bf16)
{
    const prepare p = {op->shape,
                       es_cuda_floats(op->q),
                       es_cuda_floats(op->k),
                       es_cuda_floats(op->v),
                       es_cuda_floats(op->q_norm),
                       es_cuda_floats(op->k_norm),
                       es_cuda_floats(op->rope),
                       op->q_stride,
                       op->q_head_stride,
                       op->kv_stride,
                       op->eps,
                       op->scale,
                       op->rope_pairs,
                       op->interleaved,
                       bf16,
                       es_cuda_floats(op->q_out),
                       op->k_cache.buffer->data + op->k_cache.offset,
                       op->v_cache.buffer->data + op->v_cache.offset};
    es_launch(stream, dim3((unsigned)rows, (unsigned)(op->shape.query_heads + op->shape.kv_heads)), HEAD_THREADS, 0,
              prepare_kernel, *b, p);
}
