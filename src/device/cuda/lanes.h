/* lanes.h: which lane talks to which, as plain arithmetic that kernels and tests share.
 *
 * Kernels work in groups of 32 lanes. Where the hardware's warp has 64, it is two groups side by side: nothing crosses from one
 * to the other, so a warp's width changes no bit. tests/unit/test_cuda_lanes.c walks warps of both widths in C. */
#ifndef ES_CUDA_LANES_H
#define ES_CUDA_LANES_H

#include <stdint.h>

#ifdef __CUDACC__
#define ES_LANES_FN static __host__ __device__ __forceinline__
#else
#define ES_LANES_FN static inline
#endif

/** Lanes of the hardware's warp: a constant of the build, 32 or 64. */
#ifndef ES_WARP
#define ES_WARP 32
#endif
#define ES_GROUP 32

/** The lane of a warp that lane `lane` exchanges with at distance `step` (a power of two below 32). */
ES_LANES_FN int es_lane_partner(int lane, int step)
{
    return lane / ES_GROUP * ES_GROUP + (lane % ES_GROUP ^ step);
}

/** Of a vote of a warp of `warp` lanes, the 32 bits of the group that thread `thread` of the block belongs to. */
ES_LANES_FN uint32_t es_lane_slice(uint64_t vote, int thread, int warp)
{
    return (uint32_t)(vote >> (thread % warp / ES_GROUP * ES_GROUP));
}

/** How many of `who` come before lane `lane` of the group. */
ES_LANES_FN int es_lane_rank(uint32_t who, int lane)
{
    const uint32_t before = who & ((UINT32_C(1) << lane) - 1);
#ifdef __CUDA_ARCH__
    return __popc(before);
#else
    return __builtin_popcount(before);
#endif
}

/** A number that lanes of different groups of a warp never share, so that a match stays inside the group. */
ES_LANES_FN int es_lane_key(int value, int group)
{
    return value | group << 16;
}

#endif
