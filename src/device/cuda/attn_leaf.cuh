/* attn_leaf.cuh: the arithmetic of attention's fold on a GPU, written once: decode, prefill and the merge must give equal
 * bits, so every product and sum below is rounded where it says. */
#ifndef ES_CUDA_ATTN_LEAF_CUH
#define ES_CUDA_ATTN_LEAF_CUH

#include <cuda_bf16.h>
#include <stdint.h>

/* e^x as 2^(x · log2 e) by the special function unit: 2 units in the last place; 0 for x = −inf and for results below 2^−126.
 */
static __device__ __forceinline__ float es_attn_exp(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fmul_rn(x, 1.44269504088896341f)));
    return y;
}

/* What a sum so far is worth once the maximum has grown from `before` to `now`. */
static __device__ __forceinline__ float es_attn_fade(float before, float now)
{
    return before == -INFINITY ? 0.0f : es_attn_exp(__fsub_rn(before, now));
}

/* The weight of a key: s = −inf (not to be seen) weighs nothing even where no key was seen so far. */
static __device__ __forceinline__ float es_attn_weight(float s, float m)
{
    return s == -INFINITY ? 0.0f : es_attn_exp(__fsub_rn(s, m));
}

static __device__ __forceinline__ float es_attn_sigmoid(float x)
{
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, es_attn_exp(-x)));
}

/* How two partials of one row merge, left before right: first for m and l, then for any number of o's. */
typedef struct es_attn_merging {
    float left, right; /* factors */
    bool only_left, only_right;
} es_attn_merging;

static __device__ __forceinline__ es_attn_merging es_attn_merge(float &m, float &l, float m2, float l2)
{
    es_attn_merging how;
    how.only_left = m2 == -INFINITY;
    how.only_right = !how.only_left && m == -INFINITY;
    const float most = fmaxf(m, m2);
    how.left = es_attn_exp(__fsub_rn(m, most));
    how.right = es_attn_exp(__fsub_rn(m2, most));
    const float sum = __fmaf_rn(how.right, l2, __fmul_rn(how.left, l));
    l = how.only_left ? l : how.only_right ? l2 : sum;
    m = most;
    return how;
}

static __device__ __forceinline__ float es_attn_merged(const es_attn_merging &how, float o, float o2)
{
    const float sum = __fmaf_rn(how.right, o2, __fmul_rn(how.left, o));
    return how.only_left ? o : how.only_right ? o2 : sum;
}

/* out = o / l · σ(gate): an empty row gives zeros. */
static __device__ __forceinline__ float es_attn_inverse(float l)
{
    return l > 0.0f ? __fdiv_rn(1.0f, l) : l == 0.0f ? 0.0f : l; /* NaN stays one */
}

/* c ← a·b + c, 16 × 8 × 16, bf16 into float32. */
static __device__ __forceinline__ void es_attn_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

static __device__ __forceinline__ void es_attn_load_matrix(uint32_t (&a)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void es_attn_load_turned(uint32_t (&a)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}

/* Two float32 values as bf16 beside each other, the first one low. */
static __device__ __forceinline__ uint32_t es_attn_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

#endif
