/* pick.cu: the few tokens of each output row that can be chosen, so that the host reads two kilobytes of a row instead of a
 * megabyte. pick.h says what each number is; here several blocks share a row.
 *
 * What blocks add to each other are integers and what they compare has no ties, so atomics change no bit: the greatest logit
 * first, then weights counted into bins, then the tokens of the bins that can be needed, in whatever order they come. */
#include "device/cuda/device.cuh"
#include "device/pick.h"

enum { THREADS = 256, BLOCKS = 32, GROUPS = THREADS / ES_GROUP };

/* Scratch of a row. */
typedef struct row_room {
    unsigned long long best[BLOCKS]; /* order of the logit, then the lower token: the greater the better */
    unsigned long long weight[ES_PICK_BINS];
    unsigned count[ES_PICK_BINS];
} row_room;

static __device__ __forceinline__ unsigned long long better(unsigned long long a, unsigned long long b)
{
    return a > b ? a : b;
}

static __device__ __forceinline__ unsigned long long group_best(unsigned long long v)
{
#pragma unroll
    for (int step = ES_GROUP / 2; step > 0; step /= 2) v = better(v, __shfl_xor_sync(ES_ALL_LANES, v, step, ES_GROUP));
    return v;
}

/* The best of each block; bins and the count of candidates begin at 0. */
static __global__ void __launch_bounds__(THREADS)
    best_kernel(const float *logits, int vocabulary, const es_pick *pick, row_room *rooms, es_picked *picked)
{
    es_take_turn();
    __shared__ unsigned long long of_group[GROUPS];
    const int64_t row = blockIdx.y;
    if (!pick[row].wanted) return;
    const float *x = logits + row * vocabulary;
    row_room *room = &rooms[row];
    unsigned long long best = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < vocabulary; i += BLOCKS * THREADS) {
        const uint32_t order = es_pick_order(__float_as_uint(x[i]));
        if (order) best = better(best, (unsigned long long)order << 32 | (0xFFFFFFFFu - (unsigned)i));
    }
    best = group_best(best);
    if (threadIdx.x % ES_GROUP == 0) of_group[threadIdx.x / ES_GROUP] = best;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < ES_PICK_BINS; i += BLOCKS * THREADS)
        room->weight[i] = 0, room->count[i] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) picked[row].count = 0;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int g = 1; g < GROUPS; g++) best = better(best, of_group[g]);
    room->best[blockIdx.x] = best;
}

/* Of all blocks, for every thread. */
static __device__ unsigned long long best_of(const row_room *room)
{
    return group_best(room->best[threadIdx.x % ES_GROUP]); /* BLOCKS is ES_GROUP */
}

static __device__ float logit_of(unsigned long long best)
{
    const uint32_t order = (uint32_t)(best >> 32);
    return __uint_as_float(order >> 31 ? order & 0x7FFFFFFFu : ~order);
}

static __device__ __forceinline__ float p_of(float inverse_temperature, float most, float logit)
{
    const float x = (logit - most) * inverse_temperature;
    return x > ES_PICK_LIGHT ? es_exp(x) : 0.0f;
}

static __device__ __forceinline__ unsigned long long weight_of(float p)
{
    return p > 0 ? (unsigned long long)(p * ES_PICK_UNIT) : 0;
}

static __device__ __forceinline__ int bin_of(float p)
{
    return (int)(__float_as_uint(p) >> ES_PICK_SHIFT) - ES_PICK_FIRST_BIN;
}

static __global__ void __launch_bounds__(THREADS)
    weigh_kernel(const float *logits, int vocabulary, const es_pick *pick, row_room *rooms)
{
    es_take_turn();
    __shared__ unsigned long long weight[ES_PICK_BINS];
    __shared__ unsigned count[ES_PICK_BINS];
    const int64_t row = blockIdx.y;
    const es_pick how = pick[row];
    if (!how.wanted || how.inverse_temperature == 0) return;
    const float *x = logits + row * vocabulary;
    row_room *room = &rooms[row];
    const unsigned long long best = best_of(room);
    if (best == 0) return;
    const float most = logit_of(best);
    for (int i = threadIdx.x; i < ES_PICK_BINS; i += THREADS) weight[i] = 0, count[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < vocabulary; i += BLOCKS * THREADS) {
        const float p = p_of(how.inverse_temperature, most, x[i]);
        const unsigned long long w = weight_of(p);
        if (w) atomicAdd(&weight[bin_of(p)], w), atomicAdd(&count[bin_of(p)], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ES_PICK_BINS; i += THREADS)
        if (count[i]) atomicAdd(&room->weight[i], weight[i]), atomicAdd(&room->count[i], count[i]);
}

/* The lowest bin whose tokens can be needed; the bins lie in shared memory. */
static __device__ int cut_of(const unsigned long long *weight, const unsigned *count, const es_pick *how,
                             unsigned long long total)
{
    const unsigned long long needed = how->share < 1 ? (unsigned long long)(how->share * (double)total) : ~0ull;
    unsigned long long sum = 0, seen = 0;
    for (int bin = ES_PICK_BINS - 1; bin > 0; bin--) {
        sum += weight[bin];
        seen += count[bin];
        if (how->top ? seen >= (unsigned long long)how->top : sum > needed) return bin;
    }
    return 0;
}

static __global__ void __launch_bounds__(THREADS)
    gather_kernel(const float *logits, int vocabulary, const es_pick *pick, const row_room *rooms, es_picked *picked)
{
    es_take_turn();
    __shared__ unsigned long long weight[ES_PICK_BINS], all[GROUPS];
    __shared__ unsigned count[ES_PICK_BINS];
    __shared__ int cut;
    const int64_t row = blockIdx.y;
    const es_pick how = pick[row];
    if (!how.wanted) return;
    const float *x = logits + row * vocabulary;
    const row_room *room = &rooms[row];
    es_picked *out = &picked[row];
    const unsigned long long best = best_of(room);
    const float most = best ? logit_of(best) : -INFINITY;
    const bool sampled = best && how.inverse_temperature != 0;
    unsigned long long total = 0;
    for (int i = threadIdx.x; sampled && i < ES_PICK_BINS; i += THREADS) {
        weight[i] = room->weight[i], count[i] = room->count[i];
        total += weight[i];
    }
#pragma unroll
    for (int step = ES_GROUP / 2; step > 0; step /= 2) total += __shfl_xor_sync(ES_ALL_LANES, total, step, ES_GROUP);
    if (threadIdx.x % ES_GROUP == 0) all[threadIdx.x / ES_GROUP] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int g = 1; g < GROUPS; g++) total += all[g];
        if (sampled) cut = cut_of(weight, count, &how, total);
        if (blockIdx.x == 0) {
            out->total = total;
            out->most = most;
            out->best = best ? (int32_t)(0xFFFFFFFFu - (uint32_t)best) : -1;
            out->unused = 0;
        }
    }
    __syncthreads();
    if (!sampled) return;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < vocabulary; i += BLOCKS * THREADS) {
        const float p = p_of(how.inverse_temperature, most, x[i]);
        if (!(p >= how.least) || weight_of(p) == 0 || bin_of(p) < cut) continue;
        const int place = atomicAdd(&out->count, 1);
        if (place < ES_PICK_MOST) out->candidate[place] = (es_candidate){p, i};
    }
}

size_t es_cuda_pick_room(int32_t rows)
{
    return (size_t)rows * sizeof(row_room);
}

void es_cuda_pick(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_pick *op, void *room)
{
    const dim3 grid(BLOCKS, (unsigned)rows);
    const float *logits = es_cuda_floats(op->logits);
    es_picked *out = (es_picked *)(void *)es_cuda_floats(op->out);
    row_room *rooms = (row_room *)room;
    static_assert(BLOCKS == ES_GROUP, "one lane for each block's best");
    es_launch(stream, grid, THREADS, 0, best_kernel, logits, op->vocabulary, b->pick, rooms, out);
    es_launch(stream, grid, THREADS, 0, weigh_kernel, logits, op->vocabulary, b->pick, rooms);
    es_launch(stream, grid, THREADS, 0, gather_kernel, logits, op->vocabulary, b->pick, rooms, out);
}
