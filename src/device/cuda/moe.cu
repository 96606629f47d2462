/* moe.cu: mixture of experts: who is chosen, which rows go to whom, and the sum in order of rank. No atomics: counts and
 * places come from ballots in a fixed order. */
#include "device/cuda/device.cuh"

enum { ROUTE_THREADS = 128, MOST_EXPERTS = 1024, GROUP_THREADS = 1024, COMBINE_THREADS = 256 };

/* The likelier of two, ties to the lowest number; numbers below zero are taken already. */
static __device__ __forceinline__ void keep_better(float *p, int *e, float other, int other_e)
{
    if (other > *p || (other == *p && other_e < *e)) *p = other, *e = other_e;
}

/* Softmax over all experts, then the `used` likeliest. One group of lanes chooses; all sum. */
static __global__ void __launch_bounds__(ROUTE_THREADS)
    route_kernel(const float *logits, int experts, int used, bool renormalise, float scale, int *ids, float *weights)
{
    es_take_turn();
    __shared__ float p[MOST_EXPERTS], room[ROUTE_THREADS / ES_GROUP], chosen[64];
    const int64_t row = blockIdx.x;
    const int lane = threadIdx.x % ES_GROUP;
    float most = -INFINITY;
    for (int e = threadIdx.x; e < experts; e += ROUTE_THREADS) most = fmaxf(most, p[e] = logits[row * experts + e]);
    most = es_group_max(most);
    if (lane == 0) room[threadIdx.x / ES_GROUP] = most;
    __syncthreads();
    for (int g = 0; g < ROUTE_THREADS / ES_GROUP; g++) most = fmaxf(most, room[g]);
    float sum = 0;
    for (int e = threadIdx.x; e < experts; e += ROUTE_THREADS) sum = sum + (p[e] = es_exp(p[e] - most));
    sum = es_block_sum(sum, room);
    if (threadIdx.x >= ES_WARP) return; /* of a warp of 64 the upper group does the same again, in step */
    float total = 0;
    for (int rank = 0; rank < used; rank++) {
        float best = -1.0f;
        int best_e = 0; /* only NaNs: a broken model must not become a wild index */
        for (int e = lane; e < experts; e += ES_GROUP)
            if (p[e] > best) best = p[e], best_e = e;
#pragma unroll
        for (int step = ES_GROUP / 2; step > 0; step /= 2) {
            const float other = es_shuffle_xor(best, step);
            const int other_e = __shfl_xor_sync(ES_ALL_LANES, best_e, step, ES_GROUP);
            keep_better(&best, &best_e, other, other_e);
        }
        const float weight = (best > 0 ? best : 0.0f) / sum;
        if (threadIdx.x == 0) ids[row * used + rank] = best_e, chosen[rank] = weight;
        if (best_e % ES_GROUP == lane) p[best_e] = -2.0f;
        total = total + weight;
    }
    __syncwarp();
    for (int rank = lane; rank < used; rank += ES_GROUP)
        weights[row * used + rank] = (renormalise ? chosen[rank] / total : chosen[rank]) * scale;
}

void es_cuda_moe_route(cudaStream_t stream, int32_t rows, const es_op_moe_route *op)
{
    es_launch(stream, dim3((unsigned)(rows)), ROUTE_THREADS, 0, route_kernel, es_cuda_floats(op->logits), op->experts,
              op->used, op->renormalise, op->scale, (int *)(void *)es_cuda_floats(op->ids), es_cuda_floats(op->weights));
}

/* The sum of all earlier threads' numbers: within a group by doubling, groups in order. */
static __device__ int scan_before(int v, int *room)
{
    const int lane = threadIdx.x % ES_GROUP, group = threadIdx.x / ES_GROUP;
    int sum = v;
#pragma unroll
    for (int step = 1; step < ES_GROUP; step *= 2) {
        const int left = __shfl_up_sync(ES_ALL_LANES, sum, step, ES_GROUP);
        if (lane >= step) sum += left;
    }
    __syncthreads();
    if (lane == ES_GROUP - 1) room[group] = sum;
    __syncthreads();
    for (int g = 0; g < group; g++) sum += room[g];
    return sum - v;
}

/* Counts entries of each expert, a group of lanes for one expert at a time; then starts; then places, in order of entries. The
 * tiles of up to 8 entries that the products walk follow from the starts. */
static __global__ void __launch_bounds__(GROUP_THREADS)
    group_kernel(const int *ids, int entries, int experts, int *starts, int *order, int *tile_expert, int *tile_first,
                 int *tile_count, int *tiles)
{
    es_take_turn();
    __shared__ int start[MOST_EXPERTS + 1], tile[MOST_EXPERTS + 1], room[GROUP_THREADS / ES_GROUP];
    const int group = threadIdx.x / ES_GROUP, lane = threadIdx.x % ES_GROUP, groups = GROUP_THREADS / ES_GROUP;
    for (int e = group; e - group < experts; e += groups) { /* as often for every group: they may share a warp */
        int count = 0;
        for (int i = 0; i < entries; i += ES_GROUP) {
            const bool mine = i + lane < entries && ids[i + lane] == e;
            count += mine;
        }
        for (int step = ES_GROUP / 2; step > 0; step /= 2) count += __shfl_xor_sync(ES_ALL_LANES, count, step, ES_GROUP);
        if (lane == 0 && e < experts) start[e + 1] = count;
    }
    __syncthreads();
    /* Prefix sums, one thread an expert. */
    const int own = threadIdx.x < experts ? start[threadIdx.x + 1] : 0;
    const int own_tiles = (own + ES_CUDA_EXPERT_TOKENS - 1) / ES_CUDA_EXPERT_TOKENS;
    const int before = scan_before(own, room), tiles_before = scan_before(own_tiles, room);
    if (threadIdx.x < experts) start[threadIdx.x] = before, tile[threadIdx.x] = tiles_before;
    if (threadIdx.x == experts - 1) start[experts] = before + own, tile[experts] = *tiles = tiles_before + own_tiles;
    __syncthreads();
    for (int e = threadIdx.x; e <= experts; e += GROUP_THREADS) starts[e] = start[e];
    for (int e = group; e - group < experts; e += groups) {
        const bool there = e < experts;
        for (int k = lane; there && k < tile[e + 1] - tile[e]; k += ES_GROUP) {
            const int first = start[e] + k * ES_CUDA_EXPERT_TOKENS;
            tile_expert[tile[e] + k] = e;
            tile_first[tile[e] + k] = first;
            tile_count[tile[e] + k] = min(ES_CUDA_EXPERT_TOKENS, start[e + 1] - first);
        }
        int next = there ? start[e] : 0;
        for (int i = 0; i < entries; i += ES_GROUP) {
            const bool mine = i + lane < entries && ids[i + lane] == e;
            /* The lanes of this group in the warp's ballot. */
            const unsigned who =
                (unsigned)((uint64_t)__ballot_sync(ES_ALL_LANES, mine) >> (threadIdx.x % ES_WARP / ES_GROUP * ES_GROUP));
            if (mine) order[next + __popc(who & ((1u << lane) - 1))] = i + lane;
            next += __popc(who);
        }
    }
}

void es_cuda_moe_group(cudaStream_t stream, int32_t rows, const es_op_moe_group *op, const es_cuda *cuda)
{
    es_launch(stream, dim3((unsigned)(1)), GROUP_THREADS, 0, group_kernel, (const int *)(const void *)es_cuda_floats(op->ids),
              rows * op->used, op->experts, (int *)(void *)es_cuda_floats(op->starts),
              (int *)(void *)es_cuda_floats(op->order), cuda->tile_expert, cuda->tile_first, cuda->tile_count, cuda->tiles);
}

static __global__ void combine_kernel(const float *y, const float *weights, int used, int width, const float *shared,
                                      const float *gate, float *x)
{
    es_take_turn();
    const int64_t row = blockIdx.x;
    const int i = blockIdx.y * COMBINE_THREADS + threadIdx.x;
    if (i >= width) return;
    float sum = x[row * width + i];
    for (int rank = 0; rank < used; rank++) {
        const int64_t entry = row * used + rank;
        sum = fmaf(weights[entry], y[entry * width + i], sum);
    }
    if (shared) sum = fmaf(gate ? es_sigmoid(gate[row]) : 1.0f, shared[row * width + i], sum);
    x[row * width + i] = sum;
}

void es_cuda_moe_combine(cudaStream_t stream, int32_t rows, const es_op_moe_combine *op)
{
    const dim3 grid((unsigned)rows, (unsigned)((op->width + COMBINE_THREADS - 1) / COMBINE_THREADS));
    es_launch(stream, grid, COMBINE_THREADS, 0, combine_kernel, es_cuda_floats(op->y), es_cuda_floats(op->weights), op->used,
              op->width, es_cuda_floats(op->shared), es_cuda_floats(op->shared_gate), es_cuda_floats(op->x));
}
