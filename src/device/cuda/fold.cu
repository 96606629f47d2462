/* fold.cu: the even-share transform-reduce. */
#include "device/cuda/fold.h"

#include <cuda_runtime.h>

#include "device/cuda/operators.cuh"

#define ES_FOLD_THREADS 256
#define ES_FOLD_WARPS   (ES_FOLD_THREADS / 32)
#define ES_FOLD_HEIGHTS 52 /* 2^63 items in tiles of 2^11 */

/* Items of a thread in a tile: 64 bytes. */
template <class Op> struct es_fold_shape {
    static constexpr int EACH = 64 / (int)sizeof(typename Op::Item), VECTOR = 16 / (int)sizeof(typename Op::Item);
    static constexpr int TILE = EACH * ES_FOLD_THREADS;
};

/* A block's published nodes: at most two of each height, one on the way up and one on the way down. */
template <class P> struct es_fold_nodes {
    P node[ES_FOLD_HEIGHTS][2];
};

/* Tiles [begin, end) of block b: no two shares differ by more than one. */
static __device__ __forceinline__ int64_t es_fold_begin(int64_t tiles, int64_t blocks, int64_t b)
{
    const int64_t each = tiles / blocks, big = tiles - each * blocks;
    return b * each + (b < big ? b : big);
}

static __device__ __forceinline__ int64_t es_fold_owner(int64_t tiles, int64_t blocks, int64_t tile)
{
    const int64_t each = tiles / blocks, big = tiles - each * blocks;
    return tile < big * (each + 1) ? tile / (each + 1) : big + (tile - big * (each + 1)) / each;
}

/* The maximal aligned node that begins at `at` in a run that ends at `end`, and which of the two of its height it is. */
static __device__ __forceinline__ int es_fold_height(int64_t at, int64_t end, int *side)
{
    const int most = at ? __ffsll(at) - 1 : 62, fit = 63 - __clzll(end - at);
    *side = fit < most; /* even: its sibling lies to the right, beyond the run */
    return fit < most ? fit : most;
}

/* A thread's items of a tile: item i of the tile is the same thread's whatever the alignment. Vectors of four are striped over
 * the block when the operator commutes; otherwise each thread takes what lies side by side, after a turn through shared
 * memory. */
template <class Op> static __device__ __forceinline__ int es_fold_index(int i)
{
    typedef es_fold_shape<Op> S;
    return (i / S::VECTOR * ES_FOLD_THREADS + threadIdx.x) * S::VECTOR + i % S::VECTOR;
}

template <class Op>
static __device__ __forceinline__ void es_fold_load(const typename Op::Item *items, int64_t count, bool aligned,
                                                    typename Op::Item (&x)[es_fold_shape<Op>::EACH])
{
    typedef es_fold_shape<Op> S;
    if (count >= S::TILE && aligned) {
#pragma unroll
        for (int i = 0; i < S::EACH; i += S::VECTOR) *(uint4 *)&x[i] = __ldcs((const uint4 *)(items + es_fold_index<Op>(i)));
        return;
    }
#pragma unroll
    for (int i = 0; i < S::EACH; i++)
        if (es_fold_index<Op>(i) < count) x[i] = items[es_fold_index<Op>(i)];
}

/* Folds a thread's share of the tile. */
template <class Op>
static __device__ __forceinline__ typename Op::Partial es_fold_thread(typename Op::Item (&x)[es_fold_shape<Op>::EACH],
                                                                      int64_t count, typename Op::Item *turn)
{
    typedef es_fold_shape<Op> S;
    bool there[S::EACH];
    if (Op::COMMUTES) {
#pragma unroll
        for (int i = 0; i < S::EACH; i++) there[i] = es_fold_index<Op>(i) < count;
        return Op::share(x, there);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < S::EACH; i++) turn[es_fold_index<Op>(i) + es_fold_index<Op>(i) / S::EACH] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
        there[i] = (int)threadIdx.x * S::EACH + i < count;
        x[i] = turn[threadIdx.x * (S::EACH + 1) + i];
    }
    return Op::share(x, there);
}

/* The lanes of a warp, pairs of neighbours first; the result is lane 0's. */
template <class Op> static __device__ __forceinline__ typename Op::Partial es_fold_warp(typename Op::Partial sum)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) sum = Op::merge(sum, es_cuda_from(sum, (lane + step) & 31));
    return sum;
}

/* A binary counter: nodes wait for their right siblings. */
template <class Op>
static __device__ void es_fold_push(typename Op::Partial sum, int64_t tile, typename Op::Partial *waiting, uint64_t *have,
                                    es_fold_nodes<typename Op::Partial> *out)
{
    int height = 0;
    for (; (tile >> height) & 1; height++) {
        if (!(*have >> height & 1)) {
            out->node[height][0] = sum; /* its left sibling lies before the run */
            return;
        }
        sum = Op::merge(waiting[height], sum);
        *have &= ~(1ull << height);
    }
    waiting[height] = sum;
    *have |= 1ull << height;
}

#define ES_FOLD_LEVELS 17 /* heights of a subtree of the second pass */
/* Threads of the second pass, each with a subtree of its own: as many as shared memory has room for their stacks. */
template <class P> constexpr int es_fold_seconds = sizeof(P) <= 8 ? ES_FOLD_THREADS : 16;

/* Merges the published nodes that begin in tiles [from, from + 2^top), in the tree; false when there are none. `waiting` is
 * this thread's: the node of height h is at h · es_fold_seconds. */
template <class Op>
static __device__ bool es_fold_subtree(const es_fold_nodes<typename Op::Partial> *published, int64_t tiles, int64_t blocks,
                                       int64_t from, int top, typename Op::Partial *waiting, typename Op::Partial *sum)
{
    constexpr int SECONDS = es_fold_seconds<typename Op::Partial>;
    uint32_t have = 0;
    if (from >= tiles) return false;
    int64_t b = es_fold_owner(tiles, blocks, from), end = es_fold_begin(tiles, blocks, b + 1),
            at = es_fold_begin(tiles, blocks, b);
    int side;
    while (at < from) at += 1ll << es_fold_height(at, end, &side); /* nodes before the subtree, or one that covers it */
    for (const int64_t last = from + (1ll << top); at < last && at < tiles;) {
        if (at == end) end = es_fold_begin(tiles, blocks, ++b + 1);
        const int height = es_fold_height(at, end, &side);
        typename Op::Partial next = published[b].node[height][side];
        int h = height < top ? height : top;
        for (; h < top && (at >> h & 1) && (have >> h & 1); h++) {
            next = Op::merge(waiting[h * SECONDS], next);
            have &= ~(1u << h);
        }
        waiting[h * SECONDS] = next;
        have |= 1u << h;
        at += 1ll << height;
    }
    bool there = false;
    for (; have; have &= have - 1) {
        const int h = __ffs(have) - 1;
        *sum = there ? Op::merge(waiting[h * SECONDS], *sum) : waiting[h * SECONDS];
        there = true;
    }
    return there;
}

/* The second pass: each of some threads takes one of as many equal subtrees, then those merge in the tree of their index. */
template <class Op>
static __device__ void es_fold_second(const es_fold_nodes<typename Op::Partial> *published, int64_t tiles, int64_t blocks,
                                      typename Op::Partial *waiting, typename Op::Partial *shared, bool *there,
                                      typename Op::Partial *out)
{
    constexpr int SECONDS = es_fold_seconds<typename Op::Partial>;
    const int own = threadIdx.x;
    int top = 0;
    while (((int64_t)SECONDS << top) < tiles) top++;
    if (own < SECONDS) {
        typename Op::Partial sum = Op::identity();
        there[own] = es_fold_subtree<Op>(published, tiles, blocks, (int64_t)own << top, top, waiting + own, &sum);
        shared[own] = sum;
    }
    for (int step = 1; step < SECONDS; step *= 2) {
        __syncthreads();
        if (own < SECONDS && own % (2 * step) == 0 && there[own + step]) shared[own] = Op::merge(shared[own], shared[own + step]);
    }
    if (own == 0) *out = shared[0];
}

template <class Op>
static __global__ void __launch_bounds__(ES_FOLD_THREADS)
    es_fold_kernel(const typename Op::Item *items, int64_t count, es_fold_nodes<typename Op::Partial> *published,
                   uint32_t *done, typename Op::Partial *out)
{
    typedef typename Op::Partial P;
    typedef es_fold_shape<Op> S;
    constexpr int SECONDS = es_fold_seconds<P>;
    __shared__ P warp_sum[2][ES_FOLD_WARPS], waiting[ES_FOLD_HEIGHTS], shared[SECONDS];
    __shared__ bool there[SECONDS], last;
    __shared__ P second[ES_FOLD_LEVELS * SECONDS]; /* a union: `turn` is the first pass's */
    typename Op::Item *turn = (typename Op::Item *)second;
    static_assert(Op::COMMUTES || (S::TILE + ES_FOLD_THREADS) * sizeof(typename Op::Item) <= sizeof second, "turn");
    const int64_t tiles = (count + S::TILE - 1) / S::TILE;
    const int64_t begin = es_fold_begin(tiles, gridDim.x, blockIdx.x), end = es_fold_begin(tiles, gridDim.x, blockIdx.x + 1ll);
    const bool aligned = ((uintptr_t)items & 15) == 0;
    uint64_t have = 0; /* of thread 0 */
    typename Op::Item x[S::EACH];
    if (begin < end) es_fold_load<Op>(items + begin * S::TILE, count - begin * S::TILE, aligned, x);
    for (int64_t tile = begin; tile < end; tile++) {
        typename Op::Item next[S::EACH];
        if (tile + 1 < end) es_fold_load<Op>(items + (tile + 1) * S::TILE, count - (tile + 1) * S::TILE, aligned, next);
        const P sum = es_fold_warp<Op>(es_fold_thread<Op>(x, count - tile * S::TILE, turn));
        P *warps = warp_sum[tile & 1]; /* two of them: one barrier a tile is enough */
        if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            P all = warps[0];
            for (int w = 1; w < ES_FOLD_WARPS; w++) all = Op::merge(all, warps[w]);
            es_fold_push<Op>(all, tile, waiting, &have, &published[blockIdx.x]);
        }
#pragma unroll
        for (int i = 0; i < S::EACH; i++) x[i] = next[i];
    }
    if (threadIdx.x == 0) {
        for (; have; have &= have - 1) published[blockIdx.x].node[__ffsll(have) - 1][1] = waiting[__ffsll(have) - 1];
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1; /* decides who, not what */
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (tiles == 0) {
        if (threadIdx.x == 0) *out = Op::identity();
    } else {
        es_fold_second<Op>(published, tiles, gridDim.x, second, shared, there, out);
    }
    if (threadIdx.x == 0) *done = 0;
}

template <class Op> static cudaError_t es_fold_start(const es_cuda_fold *call, int blocks, cudaStream_t stream)
{
    const int64_t tiles = (call->count + es_fold_shape<Op>::TILE - 1) / es_fold_shape<Op>::TILE;
    if (blocks > tiles) blocks = tiles > 0 ? (int)tiles : 1;
    es_fold_kernel<Op><<<(unsigned)blocks, ES_FOLD_THREADS, 0, stream>>>(
        (const typename Op::Item *)call->items, call->count,
        (es_fold_nodes<typename Op::Partial> *)((char *)call->workspace + 256), (uint32_t *)call->workspace,
        (typename Op::Partial *)call->out);
    return cudaGetLastError();
}

size_t es_cuda_fold_workspace(es_cuda_operator op)
{
    const size_t nodes = op == ES_CUDA_SUMMARY ? sizeof(es_fold_nodes<es_summary>) : sizeof(es_fold_nodes<float2>);
    return 256 + nodes * ES_CUDA_FOLD_BLOCKS;
}

const char *es_cuda_fold_launch(const es_cuda_fold *call, struct CUstream_st *stream)
{
    int device, multiprocessors, blocks = call->blocks;
    cudaError_t error = cudaGetDevice(&device);
    if (!error) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error) return cudaGetErrorString(error);
    if (call->count > (int64_t)1 << (call->op == ES_CUDA_SUMMARY ? 32 : 34))
        return "a fold takes 2^34 items at most, of a summary 2^32";
    if (call->count < 0 || blocks < 0) return "a fold needs a count and a number of blocks that are not negative";
    if (blocks == 0) blocks = 4 * multiprocessors;
    if (blocks > ES_CUDA_FOLD_BLOCKS) blocks = ES_CUDA_FOLD_BLOCKS;
    switch (call->op) {
    case ES_CUDA_SUM: error = es_fold_start<es_cuda_sum>(call, blocks, stream); break;
    case ES_CUDA_MAX: error = es_fold_start<es_cuda_max>(call, blocks, stream); break;
    case ES_CUDA_COUNT: error = es_fold_start<es_cuda_count>(call, blocks, stream); break;
    case ES_CUDA_LOG_SUM_EXP: error = es_fold_start<es_cuda_log_sum_exp>(call, blocks, stream); break;
    case ES_CUDA_RECURRENCE: error = es_fold_start<es_cuda_recurrence>(call, blocks, stream); break;
    case ES_CUDA_SUMMARY: error = es_fold_start<es_cuda_summary>(call, blocks, stream); break;
    default: return "there is no such operator";
    }
    return error ? cudaGetErrorString(error) : NULL;
}
