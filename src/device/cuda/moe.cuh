/* moe.cuh: what choosing and grouping have in common, for many tokens (moe.cu) and for a few (moe_few.cu): the same order, and so
 * the same bits. */
#ifndef ES_CUDA_MOE_CUH
#define ES_CUDA_MOE_CUH

#include "device/cuda/device.cuh"

/** The likeliest of `experts` numbers, found by a group of lanes together; ties go to the lowest number, and what is below zero is
 *  taken already. Every lane gets both. *e is 0 where there are only NaNs: a broken model must not become a wild index. */
static __device__ __forceinline__ float es_moe_likeliest(const float *p, int experts, int lane, int *e)
{
    float best = -1.0f;
    int best_e = 0;
    for (int i = lane; i < experts; i += ES_GROUP)
        if (p[i] > best) best = p[i], best_e = i;
#pragma unroll
    for (int step = ES_GROUP / 2; step > 0; step /= 2) {
        const float other = es_shuffle_xor(best, step);
        const int other_e = __shfl_xor_sync(ES_ALL_LANES, best_e, step, ES_GROUP);
        if (other > best || (other == best && other_e < best_e)) best = other, best_e = other_e;
    }
    *e = best_e;
    return best;
}

/** The sum of all earlier threads' numbers: within a group by doubling, groups in order. `room`: shared, a number for each group. */
static __device__ __forceinline__ int es_moe_before(int v, int *room)
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

#endif
