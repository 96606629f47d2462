/* operators.cuh: what the device's folds and scans fold. An operator is a struct of types and pure functions:
 *   Item, Partial          what is read, and what is merged (items of 4 or 8 bytes; a scan's partials too, a fold's of any size)
 *   identity()             merging it with anything gives the other
 *   leaf(item)             the partial of one item
 *   merge(left, right)     associative; every rounding is written out
 *   share(x, there)        the partial of a thread's items, those that are there: merged one after the other, or better
 *   COMMUTES               left and right may be swapped: then a thread may fold items that do not lie side by side */
#ifndef ES_CUDA_OPERATORS_CUH
#define ES_CUDA_OPERATORS_CUH

#include <stdint.h>

#include "device/cuda/attn_leaf.cuh"
#include "evenshare/operators.h"
#include "fold/summary_merge.h"

/* One after the other. */
template <class Op, int N>
static __device__ __forceinline__ typename Op::Partial es_cuda_one_by_one(const typename Op::Item (&x)[N],
                                                                          const bool (&there)[N])
{
    typename Op::Partial sum = Op::identity();
#pragma unroll
    for (int i = 0; i < N; i++)
        if (there[i]) sum = Op::merge(sum, Op::leaf(x[i]));
    return sum;
}

#define ES_CUDA_SHARE_ONE_BY_ONE(op)                                                                                          \
    template <int N> static __device__ __forceinline__ Partial share(const Item(&x)[N], const bool(&there)[N])                \
    {                                                                                                                         \
        return es_cuda_one_by_one<op>(x, there);                                                                              \
    }

/* Σ x in float32. */
struct es_cuda_sum {
    typedef float Item;
    typedef float Partial;
    static constexpr bool COMMUTES = true;
    static __device__ __forceinline__ Partial identity(void)
    {
        return -0.0f;
    } /* x + −0 is x, for −0 too */
    static __device__ __forceinline__ Partial leaf(Item x)
    {
        return x;
    }
    static __device__ __forceinline__ Partial merge(Partial a, Partial b)
    {
        return __fadd_rn(a, b);
    }
    ES_CUDA_SHARE_ONE_BY_ONE(es_cuda_sum)
};

/* The largest x; NaN counts for nothing, and of nothing −∞ is the largest. */
struct es_cuda_max {
    typedef float Item;
    typedef float Partial;
    static constexpr bool COMMUTES = true;
    static __device__ __forceinline__ Partial identity(void)
    {
        return -INFINITY;
    }
    static __device__ __forceinline__ Partial leaf(Item x)
    {
        return x;
    }
    static __device__ __forceinline__ Partial merge(Partial a, Partial b)
    {
        return fmaxf(a, b);
    }
    ES_CUDA_SHARE_ONE_BY_ONE(es_cuda_max)
};

/* Σ x of counts; wraps at 2^32. */
struct es_cuda_count {
    typedef int32_t Item;
    typedef int32_t Partial;
    static constexpr bool COMMUTES = true;
    static __device__ __forceinline__ Partial identity(void)
    {
        return 0;
    }
    static __device__ __forceinline__ Partial leaf(Item x)
    {
        return x;
    }
    static __device__ __forceinline__ Partial merge(Partial a, Partial b)
    {
        return (int32_t)((uint32_t)a + (uint32_t)b);
    }
    ES_CUDA_SHARE_ONE_BY_ONE(es_cuda_count)
};

/* {maximum, Σ e^(x − maximum)}: log Σ e^x is x + log of y. */
struct es_cuda_log_sum_exp {
    typedef float Item;
    typedef float2 Partial;
    static constexpr bool COMMUTES = true;
    static __device__ __forceinline__ Partial identity(void)
    {
        return make_float2(-INFINITY, 0.0f);
    }
    static __device__ __forceinline__ Partial leaf(Item x)
    {
        return make_float2(x, x == -INFINITY ? 0.0f : 1.0f);
    }
    static __device__ __forceinline__ Partial merge(Partial a, Partial b)
    {
        es_attn_merge(a.x, a.y, b.x, b.y);
        return a;
    }
    /* One maximum, then one exponential an item. */
    template <int N> static __device__ __forceinline__ Partial share(const Item (&x)[N], const bool (&there)[N])
    {
        Partial sum = identity();
#pragma unroll
        for (int i = 0; i < N; i++)
            if (there[i]) sum.x = fmaxf(sum.x, x[i]);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (there[i]) sum.y = __fadd_rn(sum.y, es_attn_weight(x[i], sum.x));
        return sum;
    }
};

/* The gated linear recurrence s ← a·s + b over items (a, b): a pair is the map that several items make together. */
struct es_cuda_recurrence {
    typedef float2 Item;
    typedef float2 Partial;
    static constexpr bool COMMUTES = false;
    static __device__ __forceinline__ Partial identity(void)
    {
        return make_float2(1.0f, -0.0f);
    }
    static __device__ __forceinline__ Partial leaf(Item x)
    {
        return x;
    }
    static __device__ __forceinline__ Partial merge(Partial a, Partial b)
    {
        return make_float2(__fmul_rn(b.x, a.x), __fmaf_rn(b.x, a.y, b.y));
    }
    ES_CUDA_SHARE_ONE_BY_ONE(es_cuda_recurrence)
};

/* A float as a double, a denormal too: the library is compiled to flush those (-ftz). */
static __device__ __forceinline__ double es_cuda_exact(float x)
{
    const uint32_t magnitude = __float_as_uint(x) & 0x7FFFFFFFu;
    if (magnitude >= 0x00800000u) return (double)x;
    const double tiny = (double)magnitude * 0x1p-149;
    return __float_as_uint(x) >> 31 ? -tiny : tiny;
}

/* Summary statistics, in float64: a thread's items give central moments about their own mean, in two passes over registers. */
struct es_cuda_summary {
    typedef float Item;
    typedef es_summary Partial;
    static constexpr bool COMMUTES = true;
    static __host__ __device__ __forceinline__ Partial identity(void)
    {
        Partial none = {};
        none.min = INFINITY, none.max = -INFINITY;
        return none;
    }
    static __device__ __forceinline__ Partial leaf(Item x)
    {
        const Item one[1] = {x};
        const bool there[1] = {true};
        return share(one, there);
    }
    static __device__ __forceinline__ Partial merge(Partial a, const Partial &b)
    {
        es_summary_join(&a, &b);
        return a;
    }
    static __device__ __forceinline__ bool is_finite(float x)
    {
        return (__float_as_uint(x) & 0x7F800000u) != 0x7F800000u;
    }
    template <int N> static __device__ __forceinline__ Partial share(const Item (&x)[N], const bool (&there)[N])
    {
        Partial s = identity();
        double sum = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (!there[i]) continue;
            if (is_finite(x[i])) {
                const double value = es_cuda_exact(x[i]);
                s.count++;
                s.zeros += value == 0;
                s.min = value < s.min ? value : s.min;
                s.max = value > s.max ? value : s.max;
                sum += value;
            } else {
                const uint32_t bits = __float_as_uint(x[i]);
                s.nans += (bits & 0x7FFFFFu) != 0;
                s.plus_infs += bits == 0x7F800000u;
                s.minus_infs += bits == 0xFF800000u;
            }
        }
        if (s.count == 0) return s;
        s.min = s.min + 0.0, s.max = s.max + 0.0; /* −0 + 0 = +0 */
        s.mean = sum / (double)s.count;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (!there[i] || !is_finite(x[i])) continue;
            const double d = es_cuda_exact(x[i]) - s.mean, d2 = d * d;
            s.m2 += d2;
            s.m3 = fma(d2, d, s.m3);
            s.m4 = fma(d2, d2, s.m4);
        }
        return s;
    }
};

/* Partials between lanes of a warp. */
static __device__ __forceinline__ float es_cuda_from(float x, int lane)
{
    return __shfl_sync(0xffffffffu, x, lane);
}
static __device__ __forceinline__ int32_t es_cuda_from(int32_t x, int lane)
{
    return __shfl_sync(0xffffffffu, x, lane);
}
static __device__ __forceinline__ float2 es_cuda_from(float2 x, int lane)
{
    return make_float2(es_cuda_from(x.x, lane), es_cuda_from(x.y, lane));
}
static __device__ __forceinline__ es_summary es_cuda_from(es_summary x, int lane)
{
    uint32_t word[sizeof x / 4];
    memcpy(word, &x, sizeof x);
#pragma unroll
    for (int i = 0; i < (int)(sizeof x / 4); i++) word[i] = __shfl_sync(0xffffffffu, word[i], lane);
    memcpy(&x, word, sizeof x);
    return x;
}

#endif
