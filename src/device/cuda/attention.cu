/* attention.cu: attention over the paged cache, the plain way: one block for each query head of a row, from its first key to
 * its last.
 *
 * Keys are folded in tiles of 64 and partitions of 128 at absolute positions, partitions merge in the binary tree of their
 * index, as on the CPU: a chunk, a page or company change no bit. */
#include "device/cuda/device.cuh"

enum { THREADS = 128, MOST_DEPTH = 24 };

typedef struct attention {
    es_attn_shape shape;
    const float *q, *gate;
    const unsigned char *k_cache, *v_cache;
    int64_t gate_stride, gate_head_stride;
    float *out;
    es_cuda_shade shadow;
    bool bf16;
} attention;

static __device__ __forceinline__ float element(const attention *a, const unsigned char *cache, int64_t at)
{
    return a->bf16 ? es_from_bf16(((const uint16_t *)(const void *)cache)[at]) : ((const float *)(const void *)cache)[at];
}

/* (m, l, o) ← left merged with (m, l, o): left before right. The weights of both, and the new m and l. */
static __device__ __forceinline__ void merge_weights(float left_m, float left_l, float *m, float *l, float *a, float *b)
{
    if (*m == -INFINITY) {
        *a = 1, *b = 0, *m = left_m, *l = left_l;
        return;
    }
    if (left_m == -INFINITY) {
        *a = 0, *b = 1;
        return;
    }
    const float most = fmaxf(left_m, *m);
    *a = es_exp(left_m - most), *b = es_exp(*m - most);
    *l = fmaf(*b, *l, *a * left_l);
    *m = most;
}

/* Shared memory: q [dim], p [64], stack of nodes [depth][m, l, o of dim]. Thread d owns channels d, d + 128, ... of o. */
static __global__ void __launch_bounds__(THREADS) plain_kernel(es_cuda_batch b, attention a)
{
    es_take_turn();
    extern __shared__ float shared[];
    __shared__ float room[THREADS / ES_GROUP];
    const int64_t row = blockIdx.x;
    const int h = blockIdx.y, dim = a.shape.head_dim, kv = h / (a.shape.query_heads / a.shape.kv_heads), page = a.shape.page;
    const int32_t *pages = b.pages + (int64_t)b.row_span[row] * b.page_stride;
    const int64_t last = b.row_position[row];
    float *q = shared, *p = q + dim, *o = p + ES_CUDA_TILE, *stack = o + dim;
    for (int d = threadIdx.x; d < dim; d += THREADS) q[d] = a.q[(row * a.shape.query_heads + h) * dim + d];
    int depth = 0;
    float m = -INFINITY, l = 0;
    for (int64_t partition = 0; partition * ES_CUDA_PARTITION <= last; partition++) {
        m = -INFINITY, l = 0;
        for (int d = threadIdx.x; d < dim; d += THREADS) o[d] = 0;
        for (int64_t key = partition * ES_CUDA_PARTITION; key < (partition + 1) * ES_CUDA_PARTITION && key <= last;
             key += ES_CUDA_TILE) {
            const int valid = last - key + 1 < ES_CUDA_TILE ? (int)(last - key + 1) : ES_CUDA_TILE;
            __syncthreads();
            float s = -INFINITY;
            if (threadIdx.x < valid) {
                const int64_t position = key + threadIdx.x;
                const int64_t at = (((int64_t)pages[position / page] * a.shape.kv_heads + kv) * page + position % page) * dim;
                s = 0;
                for (int d = 0; d < dim; d++)
                    s = fmaf(q[d], element(&a, a.k_cache, at + es_cuda_attn_channel(dim, a.bf16, position, d)), s);
            }
            float most = es_group_max(s);
            if (threadIdx.x % ES_GROUP == 0) room[threadIdx.x / ES_GROUP] = most;
            __syncthreads();
            for (int g = 0; g < THREADS / ES_GROUP; g++) most = fmaxf(most, room[g]);
            most = fmaxf(most, m) + 0.0f;
            float weight = threadIdx.x < valid ? es_exp(s - most) : 0.0f;
            if (a.bf16) weight = es_from_bf16(es_to_bf16(weight));
            if (threadIdx.x < ES_CUDA_TILE) p[threadIdx.x] = weight;
            const float sum = es_block_sum(weight, room), correction = m == -INFINITY ? 0.0f : es_exp(m - most);
            m = most;
            l = fmaf(l, correction, sum);
            for (int d = threadIdx.x; d < dim; d += THREADS) {
                float value = o[d] * correction;
                for (int j = 0; j < valid; j++) {
                    const int64_t position = key + j;
                    const int64_t at =
                        (((int64_t)pages[position / page] * a.shape.kv_heads + kv) * page + position % page) * dim;
                    value = fmaf(p[j], element(&a, a.v_cache, at + es_cuda_attn_channel(dim, a.bf16, position, d)), value);
                }
                o[d] = value;
            }
        }
        const bool end = (partition + 1) * ES_CUDA_PARTITION > last;
        for (int64_t index = partition; depth > 0 && ((index & 1) || end); index >>= 1) {
            const float *left = stack + --depth * (dim + 2);
            float wa, wb;
            merge_weights(left[0], left[1], &m, &l, &wa, &wb);
            for (int d = threadIdx.x; d < dim; d += THREADS) o[d] = fmaf(wb, o[d], wa * left[2 + d]);
        }
        if (end) break;
        __syncthreads();
        float *node = stack + depth++ * (dim + 2);
        for (int d = threadIdx.x; d < dim; d += THREADS) node[2 + d] = o[d];
        if (threadIdx.x == 0) node[0] = m, node[1] = l;
    }
    const float inverse = l > 0 ? 1.0f / l : 0.0f;
    for (int d = threadIdx.x; d < dim; d += THREADS) {
        float value = o[d] * inverse;
        if (a.gate) value = value * es_sigmoid(a.gate[row * a.gate_stride + h * a.gate_head_stride + d]);
        a.out[(row * a.shape.query_heads + h) * dim + d] = value;
        if (a.shadow.data) *es_shadow_at(a.shadow, row, (int64_t)h * dim + d) = es_to_bf16(value);
    }
}

/* Nodes that wait on the stack: one for each height of the tree over the longest sequence. */
static size_t shared_bytes(const es_device_options *o)
{
    int depth = 1;
    while (((int64_t)ES_CUDA_PARTITION << depth) < o->context) depth++;
    return ((size_t)(depth + 1) * (size_t)(o->attn.head_dim + 2) + (size_t)(2 * o->attn.head_dim + ES_CUDA_TILE)) *
           sizeof(float);
}

es_status es_cuda_attn_setup(const es_device_options *o, size_t shared_limit)
{
    if (o->attn.head_dim == 0) return ES_OK;
    const size_t bytes = shared_bytes(o);
    if (bytes > shared_limit)
        return es_cuda_fail(ES_UNSUPPORTED,
                            "heads of %d channels over %lld tokens need %zu bytes of shared memory, this GPU has %zu",
                            o->attn.head_dim, (long long)o->context, bytes, shared_limit);
    return es_cuda_check(
        cudaFuncSetAttribute((const void *)plain_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "shared memory for attention");
}

void es_cuda_attn_plain(cudaStream_t stream, const es_cuda *cuda, int32_t rows, const es_op_attn *op, es_cuda_shade shadow)
{
    const attention a = {op->shape,
                         es_cuda_floats(op->q),
                         es_cuda_floats(op->gate),
                         op->k_cache.buffer->data + op->k_cache.offset,
                         op->v_cache.buffer->data + op->v_cache.offset,
                         op->gate_stride,
                         op->gate_head_stride,
                         es_cuda_floats(op->out),
                         shadow,
                         cuda->options.numeric != ES_NUMERIC_F32};
    es_launch(stream, dim3((unsigned)rows, (unsigned)op->shape.query_heads), THREADS, shared_bytes(&cuda->options),
              plain_kernel, cuda->batch, a);
}
