/* attn_pipe.cuh: barriers and copies that keep tiles of keys and values in flight: sm_90's bulk copies, and sm_80's 16-byte
 * asynchronous ones. Both bring rows as they lie in the cache. */
#ifndef ES_CUDA_ATTN_PIPE_CUH
#define ES_CUDA_ATTN_PIPE_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t es_shared(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

static __device__ __forceinline__ void es_barrier_init(uint32_t barrier, uint32_t count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

static __device__ __forceinline__ void es_barrier_arrive(uint32_t barrier)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}

/* Wait until the phase of this parity is over. */
static __device__ __forceinline__ void es_barrier_wait(uint32_t barrier, uint32_t parity)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@done bra.uni over;\n"
                 "bra.uni again;\n"
                 "over: }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
#elif __CUDA_ARCH__ >= 800
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
#endif
}

/* This thread arrives, and `bytes` more of bulk copies are awaited. */
static __device__ __forceinline__ void es_barrier_expect(uint32_t barrier, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}

/* Bytes that lie side by side. */
static __device__ __forceinline__ void es_copy_bulk(uint32_t to, const void *from, int bytes, uint32_t barrier,
                                                    uint64_t policy)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
#endif
}

/* What is read once need not push anything out of the second-level cache. */
static __device__ __forceinline__ uint64_t es_policy_once(bool once)
{
    uint64_t policy = 0;
#if __CUDA_ARCH__ >= 900
    if (once)
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    else
        asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}

static __device__ __forceinline__ void es_copy_16(uint32_t to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#endif
}

/* The barrier hears from this thread when all its 16-byte copies so far have landed. */
static __device__ __forceinline__ void es_copy_arrive(uint32_t barrier)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}

/* Into shared memory past the first-level cache, where the card can; es_fetched() waits for this thread's. */
static __device__ __forceinline__ void es_fetch_16(void *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(es_shared(to)), "l"(from) : "memory");
#else
    uint4 x;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from)
                 : "memory");
    *(uint4 *)to = x;
#endif
}

static __device__ __forceinline__ void es_fetch_4(void *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(es_shared(to)), "l"(from) : "memory");
#else
    *(uint32_t *)to = *(const uint32_t *)from;
#endif
}

static __device__ __forceinline__ void es_fetched(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* Ordinary writes to shared memory are ordered before later bulk copies into it. */
static __device__ __forceinline__ void es_fence_copies(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Programmatic launches: the next kernel may start; the kernel before has ended and its writes are here. */
static __device__ __forceinline__ void es_let_next_start(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ void es_wait_for_previous(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
