/* scan.cu: the single-pass scan with look-back in a stable order. */
#include "device/cuda/scan.h"

#include <cuda_runtime.h>

#include "device/cuda/operators.cuh"

#define ES_SCAN_THREADS 512
#define ES_SCAN_WARPS   (ES_SCAN_THREADS / 32)
#define ES_SCAN_EVERY                                                                                                         \
    128 /* tiles from one published prefix to the next: a chain of them must not be what everybody waits for */
#define ES_SCAN_EACH (ES_SCAN_EVERY / 32)

/* A thread scans 64 bytes of items (or partials, where those are larger) that lie side by side. */
template <class Op> struct es_scan_shape {
    static constexpr int BYTES = sizeof(typename Op::Item) > sizeof(typename Op::Partial) ? (int)sizeof(typename Op::Item)
                                                                                          : (int)sizeof(typename Op::Partial);
    static constexpr int EACH = 64 / BYTES, TILE = EACH * ES_SCAN_THREADS;
};
#define ES_SCAN_LEAST_TILE (8 * ES_SCAN_THREADS)

/* What a tile tells the others: value and "it is there" in one 16-byte word, written and read at once. */
typedef struct alignas(16) es_scan_word {
    uint32_t value[2];
    uint32_t there, unused;
} es_scan_word;

static __device__ __forceinline__ es_scan_word es_scan_read(const es_scan_word *at)
{
    uint64_t low, high;
    asm volatile("{ .reg .b128 word; ld.relaxed.gpu.global.b128 word, [%2]; mov.b128 {%0, %1}, word; }"
                 : "=l"(low), "=l"(high)
                 : "l"(at)
                 : "memory");
    es_scan_word word = {
        {(uint32_t)low, (uint32_t)(low >> 32)},
        (uint32_t)high, 0
    };
    return word;
}

template <class P> static __device__ __forceinline__ void es_scan_tell(es_scan_word *at, P value)
{
    uint64_t low = 0;
    memcpy(&low, &value, sizeof value);
    asm volatile("{ .reg .b128 word; mov.b128 word, {%1, %2}; st.relaxed.gpu.global.b128 [%0], word; }" ::"l"(at), "l"(low),
                 "l"(1ull)
                 : "memory");
}

template <class P> static __device__ __forceinline__ P es_scan_value(const es_scan_word &word)
{
    P value;
    memcpy(&value, word.value, sizeof value);
    return value;
}

/* Waits for a word, longer each time: who polls takes bandwidth from those it waits for. */
template <class P> static __device__ __forceinline__ P es_scan_wait(const es_scan_word *at)
{
    es_scan_word word = es_scan_read(at);
    for (unsigned pause = 32; !word.there; word = es_scan_read(at)) {
        __nanosleep(pause);
        if (pause < 512) pause *= 2;
    }
    return es_scan_value<P>(word);
}

/* The prefix before a tile, by one warp: the last published prefix, then the sums since, four side by side a lane, then lanes
 * in a tree of neighbours. Every lane gets it. */
template <class Op>
static __device__ typename Op::Partial es_scan_look_back(const es_scan_word *sums, const es_scan_word *prefixes, int64_t tile)
{
    typedef typename Op::Partial P;
    const int lane = threadIdx.x & 31, count = (int)(tile % ES_SCAN_EVERY), first = lane * ES_SCAN_EACH;
    const int64_t base = tile - count;
    P sum = Op::identity();
    bool there = first < count;
    for (int i = 0; i < ES_SCAN_EACH; i++)
        if (first + i < count) {
            const P next = es_scan_wait<P>(sums + base + first + i);
            sum = i ? Op::merge(sum, next) : next;
        }
    for (int step = 1; step < 32; step *= 2) {
        const P right = es_cuda_from(sum, (lane + step) & 31);
        const bool right_there = __shfl_sync(0xffffffffu, (int)there, (lane + step) & 31);
        if (right_there && lane % (2 * step) == 0) sum = Op::merge(sum, right);
    }
    sum = es_cuda_from(sum, 0);
    if (base == 0) return sum; /* the identity for the first tile */
    const P before = es_scan_wait<P>(prefixes + base / ES_SCAN_EVERY - 1);
    return count ? Op::merge(before, sum) : before;
}

/* Shared memory: the phases of a tile one after the other, not beside each other. */
template <class Op> union es_scan_shared {
    typename Op::Item load[es_scan_shape<Op>::TILE + ES_SCAN_THREADS];
    typename Op::Partial store[es_scan_shape<Op>::TILE + ES_SCAN_THREADS];
};

/* The place of item i in shared memory: threads' shares lie one element apart from a power of two. */
template <class Op> static __device__ __forceinline__ int es_scan_place(int i)
{
    return i + i / es_scan_shape<Op>::EACH;
}

template <class Op>
static __device__ void es_scan_tile(const typename Op::Item *items, typename Op::Partial *out, int64_t count, bool exclusive,
                                    int64_t tile, int64_t tiles, es_scan_word *sums, es_scan_word *prefixes,
                                    es_scan_shared<Op> &shared, typename Op::Partial *warp_sum, typename Op::Partial *before)
{
    typedef typename Op::Partial P;
    typedef es_scan_shape<Op> S;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t first = tile * S::TILE;
    const int here = count - first < S::TILE ? (int)(count - first) : S::TILE;
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
        const int at = i * ES_SCAN_THREADS + threadIdx.x;
        if (at < here) shared.load[es_scan_place<Op>(at)] = __ldcs(items + first + at);
    }
    __syncthreads();
    P x[S::EACH];
    P sum = Op::identity();
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
        const int at = threadIdx.x * S::EACH + i;
        x[i] = at < here ? Op::leaf(shared.load[es_scan_place<Op>(at)]) : Op::identity();
        sum = i ? Op::merge(sum, x[i]) : x[i];
    }
    P upto = sum; /* of this lane and those before it */
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const P left = es_cuda_from(upto, lane >= step ? lane - step : lane);
        if (lane >= step) upto = Op::merge(left, upto);
    }
    if (lane == 31) warp_sum[warp] = upto;
    __syncthreads();
    /* Every thread folds the warps' sums in warp order. */
    P all = warp_sum[0], ahead = Op::identity();
#pragma unroll
    for (int w = 1; w < ES_SCAN_WARPS; w++) {
        if (w == warp) ahead = all;
        all = Op::merge(all, warp_sum[w]);
    }
    if (warp == 0) {
        if (lane == 0) es_scan_tell(sums + tile, all);
        const P prefix = es_scan_look_back<Op>(sums, prefixes, tile);
        if (lane == 0) {
            *before = prefix;
            if (tile % ES_SCAN_EVERY == ES_SCAN_EVERY - 1 && tile + 1 < tiles)
                es_scan_tell(prefixes + tile / ES_SCAN_EVERY, Op::merge(prefix, all));
        }
    }
    const P lanes = es_cuda_from(upto, lane ? lane - 1 : 0);
    __syncthreads();
    P run = *before;
    if (warp) run = Op::merge(run, ahead);
    if (lane) run = Op::merge(run, lanes);
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
        const P next = Op::merge(run, x[i]);
        shared.store[es_scan_place<Op>(threadIdx.x * S::EACH + i)] = exclusive ? run : next;
        run = next;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < S::EACH; i++) {
        const int at = i * ES_SCAN_THREADS + threadIdx.x;
        if (at < here) __stcs(out + first + at, shared.store[es_scan_place<Op>(at)]);
    }
    __syncthreads();
}

template <class Op>
static __global__ void __launch_bounds__(ES_SCAN_THREADS, 2)
    es_scan_kernel(const typename Op::Item *items, typename Op::Partial *out, int64_t count, bool exclusive, uint32_t *taken,
                   es_scan_word *sums, es_scan_word *prefixes)
{
    __shared__ es_scan_shared<Op> shared;
    __shared__ typename Op::Partial warp_sum[ES_SCAN_WARPS], before;
    __shared__ uint32_t ticket;
    const int64_t tiles = (count + es_scan_shape<Op>::TILE - 1) / es_scan_shape<Op>::TILE;
    for (;;) { /* tiles are taken in order, so that whoever is waited for has started */
        if (threadIdx.x == 0) ticket = atomicAdd(taken, 1);
        __syncthreads();
        const int64_t tile = ticket;
        if (tile >= tiles) return;
        es_scan_tile<Op>(items, out, count, exclusive, tile, tiles, sums, prefixes, shared, warp_sum, &before);
    }
}

/* The workspace: [ticket][sums of all tiles][prefixes]. */
static int64_t es_scan_tiles(int64_t count)
{
    return (count + ES_SCAN_LEAST_TILE - 1) / ES_SCAN_LEAST_TILE;
}

size_t es_cuda_scan_workspace(int64_t count)
{
    const int64_t tiles = es_scan_tiles(count > 0 ? count : 0);
    return (size_t)(1 + tiles + tiles / ES_SCAN_EVERY + 1) * sizeof(es_scan_word);
}

template <class Op> static cudaError_t es_scan_start(const es_cuda_scan *call, int blocks, cudaStream_t stream)
{
    const int64_t tiles = (call->count + es_scan_shape<Op>::TILE - 1) / es_scan_shape<Op>::TILE;
    es_scan_word *words = (es_scan_word *)call->workspace;
    if (tiles == 0) return cudaSuccess;
    if (blocks > tiles) blocks = (int)tiles;
    const cudaError_t error =
        cudaMemsetAsync(words, 0, (size_t)(1 + tiles + tiles / ES_SCAN_EVERY + 1) * sizeof *words, stream);
    if (error) return error;
    es_scan_kernel<Op><<<(unsigned)blocks, ES_SCAN_THREADS, 0, stream>>>(
        (const typename Op::Item *)call->items, (typename Op::Partial *)call->out, call->count, call->exclusive,
        (uint32_t *)words, words + 1, words + 1 + tiles);
    return cudaGetLastError();
}

const char *es_cuda_scan_launch(const es_cuda_scan *call, struct CUstream_st *stream)
{
    int device, multiprocessors, blocks = call->blocks;
    cudaError_t error = cudaGetDevice(&device);
    if (!error) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error) return cudaGetErrorString(error);
    if (call->count < 0 || blocks < 0) return "a scan needs a count and a number of blocks that are not negative";
    if (call->count > (int64_t)1 << 40) return "a scan takes 2^40 items at most";
    if (blocks == 0) blocks = 4 * multiprocessors;
    switch (call->op) {
    case ES_CUDA_SUM: error = es_scan_start<es_cuda_sum>(call, blocks, stream); break;
    case ES_CUDA_MAX: error = es_scan_start<es_cuda_max>(call, blocks, stream); break;
    case ES_CUDA_COUNT: error = es_scan_start<es_cuda_count>(call, blocks, stream); break;
    case ES_CUDA_LOG_SUM_EXP: error = es_scan_start<es_cuda_log_sum_exp>(call, blocks, stream); break;
    case ES_CUDA_RECURRENCE: error = es_scan_start<es_cuda_recurrence>(call, blocks, stream); break;
    default: return "there is no such operator of scans";
    }
    return error ? cudaGetErrorString(error) : NULL;
}
