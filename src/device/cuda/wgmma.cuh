/* wgmma.cuh: what sm_90a adds: matrix instructions of a warpgroup, tensor copies into the shared memory of a cluster, and
 * barriers that its blocks share. Empty where the code is compiled for another target. */
#ifndef ES_CUDA_WGMMA_CUH
#define ES_CUDA_WGMMA_CUH

#include <cuda.h>
#include <stdint.h>

#include "device/cuda/attn_pipe.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ES_HAS_WGMMA 1
#else
#define ES_HAS_WGMMA 0
#endif

/* Blocks of a kernel that share a cluster, where there are clusters. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define ES_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define ES_CLUSTER(blocks)
#endif

#if ES_HAS_WGMMA
/* --- clusters of two blocks --- */

static __device__ __forceinline__ uint32_t es_cluster_rank(void)
{
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ __forceinline__ void es_cluster_meet(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same place in the shared memory of block `rank` of the cluster. */
static __device__ __forceinline__ uint32_t es_cluster_place(uint32_t shared, uint32_t rank)
{
    uint32_t place;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(shared), "r"(rank));
    return place;
}

/* Nothing that this thread wrote is announced by it: a release to the whole cluster would cost a fence each time. */
static __device__ __forceinline__ void es_cluster_arrive(uint32_t place)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(place) : "memory");
}

/* Wait for what any block of the cluster did before it arrived. */
static __device__ __forceinline__ void es_cluster_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni over;\n"
                 "bra.uni again;\n"
                 "over: }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* --- tensor copies --- */

/* A box of two dimensions, into this block's shared memory. */
static __device__ __forceinline__ void es_tensor_copy(uint32_t to, const CUtensorMap *map, int x, int y, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

/* The same into the shared memory of all blocks that `mask` names; each one's barrier hears of it. */
static __device__ __forceinline__ void es_tensor_copy_all(uint32_t to, const CUtensorMap *map, int x, int y, uint32_t barrier,
                                                          uint16_t mask)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
        "%3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
        : "memory");
}

/* --- matrix instructions --- */

/* Shared memory as the second operand: rows of 128 bytes, their 16-byte pieces swizzled by the row, eight rows side by side.
 */
static __device__ __forceinline__ uint64_t es_wgmma_rows128(uint32_t shared)
{
    return (uint64_t)(shared >> 4 & 0x3FFF) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* What the warpgroup wrote to registers is there for the instructions that follow. */
static __device__ __forceinline__ void es_wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void es_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* All groups but the last LEFT are done. */
template <int LEFT> static __device__ __forceinline__ void es_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

template <uint32_t REGISTERS> static __device__ __forceinline__ void es_registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <uint32_t REGISTERS> static __device__ __forceinline__ void es_registers_fewer(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#define ES_EIGHT(i)                                                                                                           \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])

/* c ← a·b, or (add) a·b + c: 64 × 192 × 16, bf16 into float32. A warp has sixteen of the rows; registers of a and c are laid
 * out as those of mma.m16n8k16, c as 24 of its tiles. */
static __device__ __forceinline__ void es_wgmma_192(float (&c)[96], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint64_t b, int add)
{
    asm volatile("{ .reg .pred add;\n"
                 "setp.ne.b32 add, %101, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
                 "}, {%96, %97, %98, %99}, %100, add, 1, 1, 0; }"
                 : ES_EIGHT(0), ES_EIGHT(8), ES_EIGHT(16), ES_EIGHT(24), ES_EIGHT(32), ES_EIGHT(40), ES_EIGHT(48),
                   ES_EIGHT(56), ES_EIGHT(64), ES_EIGHT(72), ES_EIGHT(80), ES_EIGHT(88)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

/* The compiler moves no use of the sums across this. */
static __device__ __forceinline__ void es_wgmma_keep(float (&c)[96])
{
#pragma unroll
    for (int i = 0; i < 96; i++) asm volatile("" : "+f"(c[i])::"memory");
}
#undef ES_EIGHT
#endif

#endif
