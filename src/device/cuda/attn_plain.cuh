/* attn_plain.cuh: the plain kernel: any head size, float32 or bf16 caches, any card. It is what the tuned one is compared
 * with, and what serves where there are no bf16 tensor cores: no warp is assumed to have a size, and nothing newer than
 * compute_75 is used.
 *
 * One block of 128 threads folds its pieces for eight query rows at a time. A thread is a key for the scores (channels in
 * ascending order, fused) and then channels t, t + 128, ... for the output (keys in ascending order, fused). */
#ifndef ES_CUDA_ATTN_PLAIN_CUH
#define ES_CUDA_ATTN_PLAIN_CUH

#include "device/cuda/attn_finish.cuh"

#define ES_ATTN_PLAIN_THREADS 128
#define ES_ATTN_PLAIN_ROWS    8
#define ES_ATTN_PLAIN_MOST    512 /* channels of a head */

static __device__ __forceinline__ float es_attn_plain_load(const float *at)
{
    return *at;
}

static __device__ __forceinline__ float es_attn_plain_load(const __nv_bfloat16 *at)
{
    return __uint_as_float((uint32_t) * (const uint16_t *)at << 16);
}

static __device__ __forceinline__ float es_attn_plain_round(const float *, float x)
{
    return x;
}

static __device__ __forceinline__ float es_attn_plain_round(const __nv_bfloat16 *, float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* Shared memory of a block: queries, weights of one step, and the node in the making. */
typedef struct es_attn_plain_shared {
    float *q;     /* [rows][head_dim] */
    float *p;     /* [rows][128] */
    float *o;     /* [rows][head_dim] */
    float *m, *l; /* [rows] */
    float *fade;  /* [2][rows]: of what was there before a step's first tile, before its second */
} es_attn_plain_shared;

static inline __host__ __device__ int es_attn_plain_bytes(int head_dim)
{
    return ES_ATTN_PLAIN_ROWS * (2 * head_dim + ES_CUDA_ATTN_STEP + 4) * (int)sizeof(float);
}

static __device__ __forceinline__ bool es_attn_plain_sees(const es_attn_args &a, const es_cuda_attn_piece &piece, int row,
                                                          int key)
{
    const int token = row / a.group;
    return key <= piece.start + (token < piece.tokens ? token : piece.tokens - 1);
}

/* Channel d of a position. */
template <class T>
static __device__ __forceinline__ float es_attn_plain_channel(const es_attn_args &a, const T *row, int position, int d)
{
    return es_attn_plain_load(row + es_cuda_attn_channel(a.head_dim, sizeof(T) == 2, position, d));
}

template <class T>
static __device__ __forceinline__ const T *es_attn_plain_at(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                            const void *cache, int position)
{
    const int64_t page = a.pages[piece.first_page + position / a.page];
    return (const T *)cache + ((page * a.kv_heads + piece.kv_head) * a.page + position % a.page) * a.head_dim;
}

/* Folds one step of 128 keys into the node of rows [first, first + 8): an empty one, where a partition begins. */
template <class T>
static __device__ void es_attn_plain_fold(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                          const es_attn_plain_shared &s, int first, int step, bool begins)
{
    const int tid = threadIdx.x, key = step * ES_CUDA_ATTN_STEP + tid, end = piece.start + piece.tokens;
    if (key < end) {
        const T *k = es_attn_plain_at<T>(a, piece, a.k, key);
        for (int r = 0; r < ES_ATTN_PLAIN_ROWS; r++) {
            float sum = 0;
            for (int d = 0; d < a.head_dim; d++)
                sum = __fmaf_rn(es_attn_plain_channel(a, k, key, d), s.q[r * a.head_dim + d], sum);
            s.p[r * 128 + tid] = es_attn_plain_sees(a, piece, first + r, key) ? sum : -INFINITY;
        }
    } else {
        for (int r = 0; r < ES_ATTN_PLAIN_ROWS; r++) s.p[r * 128 + tid] = -INFINITY;
    }
    __syncthreads();
    if (tid < ES_ATTN_PLAIN_ROWS) {
        const float before = begins ? -INFINITY : s.m[tid];
        float m = before, l = begins ? 0.0f : s.l[tid], most[2];
        for (int tile = 0; tile < 2; tile++) {
            for (int j = 0; j < 64; j++) m = fmaxf(m, s.p[tid * 128 + tile * 64 + j]);
            most[tile] = m;
        }
        s.fade[tid] = es_attn_fade(before, most[0]);
        s.fade[ES_ATTN_PLAIN_ROWS + tid] = es_attn_fade(most[0], most[1]);
        l = __fmul_rn(l, s.fade[tid]);
        for (int j = 0; j < 128; j++) {
            const float w = es_attn_plain_round((const T *)0, es_attn_weight(s.p[tid * 128 + j], most[j / 64]));
            s.p[tid * 128 + j] = w;
            if (j == 64) l = __fmul_rn(l, s.fade[ES_ATTN_PLAIN_ROWS + tid]);
            l = __fadd_rn(l, w);
        }
        s.m[tid] = m, s.l[tid] = l;
    }
    __syncthreads();
    const int keys = end - step * ES_CUDA_ATTN_STEP < 128 ? end - step * ES_CUDA_ATTN_STEP : 128;
    const float *fade = s.fade + ES_ATTN_PLAIN_ROWS;
    for (int d = tid; d < a.head_dim; d += ES_ATTN_PLAIN_THREADS) {
        float o[ES_ATTN_PLAIN_ROWS];
        for (int r = 0; r < ES_ATTN_PLAIN_ROWS; r++) o[r] = begins ? 0.0f : __fmul_rn(s.o[r * a.head_dim + d], s.fade[r]);
        for (int j = 0; j < keys; j++) {
            if (j == 64)
                for (int r = 0; r < ES_ATTN_PLAIN_ROWS; r++) o[r] = __fmul_rn(o[r], fade[r]);
            const int position = step * ES_CUDA_ATTN_STEP + j;
            const float v = es_attn_plain_channel(a, es_attn_plain_at<T>(a, piece, a.v, position), position, d);
            for (int r = 0; r < ES_ATTN_PLAIN_ROWS; r++) o[r] = __fmaf_rn(s.p[r * 128 + j], v, o[r]);
        }
        for (int r = 0; r < ES_ATTN_PLAIN_ROWS; r++) s.o[r * a.head_dim + d] = keys <= 64 ? __fmul_rn(o[r], fade[r]) : o[r];
    }
    __syncthreads();
}

/* Rows of a node in the workspace: o, m, l side by side. */
static __device__ __forceinline__ float *es_attn_plain_stack(const es_attn_args &a, int height)
{
    return a.stack + ((int64_t)blockIdx.x * a.heights + height) * es_attn_stack_floats(a.row_tile, a.head_dim);
}

static __device__ void es_attn_plain_put(const es_attn_args &a, const es_attn_plain_shared &s, int height)
{
    float *to = es_attn_plain_stack(a, height);
    for (int i = threadIdx.x; i < ES_ATTN_PLAIN_ROWS * a.head_dim; i += blockDim.x) to[i] = s.o[i];
    to += ES_ATTN_PLAIN_ROWS * a.head_dim;
    if (threadIdx.x < ES_ATTN_PLAIN_ROWS) to[2 * threadIdx.x] = s.m[threadIdx.x], to[2 * threadIdx.x + 1] = s.l[threadIdx.x];
    __syncthreads();
}

/* shared ← the waiting node ⊕ shared. */
static __device__ void es_attn_plain_merge(const es_attn_args &a, const es_attn_plain_shared &s, int height)
{
    const float *left = es_attn_plain_stack(a, height), *ml = left + ES_ATTN_PLAIN_ROWS * a.head_dim;
    for (int i = threadIdx.x; i < ES_ATTN_PLAIN_ROWS * a.head_dim; i += blockDim.x) {
        const int r = i / a.head_dim;
        float m = ml[2 * r], l = ml[2 * r + 1];
        s.o[i] = es_attn_merged(es_attn_merge(m, l, s.m[r], s.l[r]), left[i], s.o[i]);
    }
    __syncthreads();
    if (threadIdx.x < ES_ATTN_PLAIN_ROWS) {
        const int r = threadIdx.x;
        float m = ml[2 * r], l = ml[2 * r + 1];
        es_attn_merge(m, l, s.m[r], s.l[r]);
        s.m[r] = m, s.l[r] = l;
    }
    __syncthreads();
}

static __device__ void es_attn_plain_publish(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                             const es_attn_plain_shared &s, int slot, int first)
{
    const int slices = es_attn_slices(a.head_dim), left = piece.tokens * a.group - first;
    const int rows = left < ES_ATTN_PLAIN_ROWS ? left : ES_ATTN_PLAIN_ROWS;
    for (int i = threadIdx.x; i < rows * a.head_dim; i += blockDim.x) {
        const int row = i / a.head_dim, d = i % a.head_dim;
        es_attn_leave(es_attn_record(a, slot, first + row, d / ES_ATTN_SLICE) + d % ES_ATTN_SLICE, s.o[i]);
    }
    for (int i = threadIdx.x; i < rows * slices; i += blockDim.x) {
        float *ml = es_attn_record(a, slot, first + i / slices, i % slices) + ES_ATTN_SLICE;
        es_attn_leave(ml, s.m[i / slices]), es_attn_leave(ml + 1, s.l[i / slices]);
    }
    __syncthreads();
}

/* Takes a waiting node back into shared memory. */
static __device__ void es_attn_plain_take(const es_attn_args &a, const es_attn_plain_shared &s, int height)
{
    const float *from = es_attn_plain_stack(a, height);
    for (int i = threadIdx.x; i < ES_ATTN_PLAIN_ROWS * a.head_dim; i += blockDim.x) s.o[i] = from[i];
    from += ES_ATTN_PLAIN_ROWS * a.head_dim;
    if (threadIdx.x < ES_ATTN_PLAIN_ROWS)
        s.m[threadIdx.x] = from[2 * threadIdx.x], s.l[threadIdx.x] = from[2 * threadIdx.x + 1];
    __syncthreads();
}

/* Rows [first, first + 8) of a piece: leaves, a binary counter of nodes, and what becomes of them (as in attn_tile.cuh). */
template <class T>
static __device__ void es_attn_plain_rows(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                          const es_attn_plain_shared &s, int first)
{
    for (int i = threadIdx.x; i < ES_ATTN_PLAIN_ROWS * a.head_dim; i += blockDim.x) {
        const int64_t row = es_attn_query_row(a, piece, first + i / a.head_dim), at = row + i % a.head_dim;
        s.q[i] = row < 0 ? 0.0f
                         : es_attn_plain_round((const T *)0, a.q_bf16 ? es_attn_plain_load((const __nv_bfloat16 *)a.q + at)
                                                                      : ((const float *)a.q)[at]);
    }
    __syncthreads();
    uint32_t have = 0;
    int slot = piece.node;
    const int end = es_cuda_attn_end(&piece);
    int p = piece.from;
    bool begins = true;
    for (int step = es_cuda_attn_begin(&piece); step < end; step++) {
        es_attn_plain_fold<T>(a, piece, s, first, step, begins);
        begins = step + 1 == end || !((step + 1) & (piece.chain - 1));
        if (!begins) continue;
        int height = 0;
        for (; (p >> height) & (have >> height) & 1; height++) es_attn_plain_merge(a, s, height), have &= ~(1u << height);
        if ((p >> height) & 1)
            es_attn_plain_publish(a, piece, s, slot++, first);
        else
            es_attn_plain_put(a, s, height), have |= 1u << height;
        p++;
    }
    if (piece.split >= 0) {
        for (int height = 31; height >= 0; height--)
            if (have >> height & 1) {
                es_attn_plain_take(a, s, height);
                es_attn_plain_publish(a, piece, s, slot++, first);
            }
        return;
    }
    es_attn_plain_take(a, s, __ffs(have) - 1);
    for (have &= have - 1; have; have &= have - 1) es_attn_plain_merge(a, s, __ffs(have) - 1);
    for (int i = threadIdx.x; i < ES_ATTN_PLAIN_ROWS * a.head_dim; i += blockDim.x) {
        const int row = first + i / a.head_dim;
        if (row < piece.tokens * a.group)
            es_attn_write(a, piece.kv_head, piece.first_row, row, i % a.head_dim, s.o[i], es_attn_inverse(s.l[i / a.head_dim]),
                          es_attn_gate(a, piece.kv_head, piece.first_row, row, i % a.head_dim));
    }
    __syncthreads();
}

template <class T>
static __global__ void __launch_bounds__(ES_ATTN_PLAIN_THREADS) es_attn_plain_kernel(const __grid_constant__ es_attn_args a)
{
    extern __shared__ __align__(16) float plain_memory[];
    es_attn_plain_shared s;
    s.q = plain_memory, s.o = s.q + ES_ATTN_PLAIN_ROWS * a.head_dim, s.p = s.o + ES_ATTN_PLAIN_ROWS * a.head_dim;
    s.m = s.p + ES_ATTN_PLAIN_ROWS * ES_CUDA_ATTN_STEP, s.l = s.m + ES_ATTN_PLAIN_ROWS;
    s.fade = s.l + ES_ATTN_PLAIN_ROWS;
    es_wait_for_previous();
    es_let_next_start();
    es_cuda_attn_piece piece;
    for (int i = 0; es_attn_piece_at(a, i, piece); i++)
        for (int first = 0; first < piece.tokens * a.group; first += ES_ATTN_PLAIN_ROWS)
            es_attn_plain_rows<T>(a, piece, s, first);
}

static void (*es_attn_plain_kernel_of(const es_cuda_decode *call))(const es_attn_args)
{
    return call->cache_type == ES_CUDA_F32 ? es_attn_plain_kernel<float> : es_attn_plain_kernel<__nv_bfloat16>;
}

static const char *es_attn_plain_check(es_cuda_decode *call, int shared)
{
    call->shared_bytes = es_attn_plain_bytes(call->shape.head_dim);
    if (call->tuning.loose) return "this build has no such kernel (loose merging is for measuring only)";
    if (call->shape.head_dim % 4 || call->shape.head_dim > ES_ATTN_PLAIN_MOST || call->shared_bytes > shared)
        return "attention heads must be a multiple of 4 and at most 512 channels wide";
    if (call->shape.row_tile % ES_ATTN_PLAIN_ROWS) return "query rows come in tiles of a multiple of 8";
    return NULL;
}

#endif
