/* wgmma.cuh: what sm_90a adds: matrix instructions of a warpgroup, tensor copies into the shared memory of a cluster, and
 * barriers that its blocks share. Empty where the code is compiled for another target. */
#ifndef ES_CUDA_WGMMA_CUH
#define ES_CUDA_WGMMA_CUH

#include <cuda.h>
#include <cuda_runtime.h>
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

/* --- tensor maps, on the host --- */

typedef CUresult (*es_tensor_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                     const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                     CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function that writes tensor maps; NULL where it has none. */
static inline es_tensor_encode es_tensor_encoder(void)
{
    cudaDriverEntryPointQueryResult found;
    void *function = NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        cudaGetLastError();
        return NULL;
    }
    return (es_tensor_encode)function;
}

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

/* The same where the second operand's rows are its inner dimension: panels of 64 columns, so many bytes apart. */
static __device__ __forceinline__ uint64_t es_wgmma_panels128(uint32_t shared, uint32_t panel)
{
    return (es_wgmma_rows128(shared) & ~((uint64_t)0x3FFF << 16)) | (uint64_t)(panel >> 4) << 16;
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

/* c ← a·bᵀ, or (add) a·bᵀ + c: 64 × 64 × 16, both from shared memory, the inner dimension side by side. */
static __device__ __forceinline__ void es_wgmma_scores(float (&c)[32], uint64_t a, uint64_t b, int add)
{
    asm volatile("{ .reg .pred add;\n"
                 "setp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, add, 1, 1, 0, 0; }"
                 : ES_EIGHT(0), ES_EIGHT(8), ES_EIGHT(16), ES_EIGHT(24)
                 : "l"(a), "l"(b), "r"(add));
}

/* c ← a·b, or (add) a·b + c: 64 × 256, 128 or 64 × 16; b lies in shared memory as panels of rows (es_wgmma_panels128()). */
static __device__ __forceinline__ void es_wgmma_values(float (&c)[128], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred add;\n"
                 "setp.ne.b32 add, %133, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                 "}, {%128, %129, %130, %131}, %132, add, 1, 1, 1; }"
                 : ES_EIGHT(0), ES_EIGHT(8), ES_EIGHT(16), ES_EIGHT(24), ES_EIGHT(32), ES_EIGHT(40), ES_EIGHT(48),
                   ES_EIGHT(56), ES_EIGHT(64), ES_EIGHT(72), ES_EIGHT(80), ES_EIGHT(88), ES_EIGHT(96), ES_EIGHT(104),
                   ES_EIGHT(112), ES_EIGHT(120)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

static __device__ __forceinline__ void es_wgmma_values(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred add;\n"
                 "setp.ne.b32 add, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1; }"
                 : ES_EIGHT(0), ES_EIGHT(8), ES_EIGHT(16), ES_EIGHT(24), ES_EIGHT(32), ES_EIGHT(40), ES_EIGHT(48),
                   ES_EIGHT(56)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

static __device__ __forceinline__ void es_wgmma_values(float (&c)[32], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred add;\n"
                 "setp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, {%32, %33, %34, %35}, %36, add, 1, 1, 1; }"
                 : ES_EIGHT(0), ES_EIGHT(8), ES_EIGHT(16), ES_EIGHT(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* The compiler moves no use of the sums across this. */
template <int N> static __device__ __forceinline__ void es_wgmma_keep(float (&c)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}
#undef ES_EIGHT
#endif

#endif
