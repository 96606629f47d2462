/* device.cuh: what kernels share: elementary functions, sums in fixed order, and the decoding of weights.
 *
 * The library is compiled with -fmad=false: a fused step is written as fmaf(), so that two kernels, or two instances of one,
 * can never round differently. Sums inside a block run over groups of 32 lanes, whatever the hardware's warp is. */
#ifndef ES_CUDA_DEVICE_CUH
#define ES_CUDA_DEVICE_CUH

#include "device/cuda/cuda.h"
#include "device/cuda/lanes.h"

#if ES_WARP == 64
#define ES_ALL_LANES 0xFFFFFFFFFFFFFFFFull
#else
#define ES_ALL_LANES 0xFFFFFFFFu
#endif

static __device__ __forceinline__ float es_shuffle_xor(float v, int step)
{
    return __shfl_xor_sync(ES_ALL_LANES, v, step, ES_GROUP);
}

static __device__ __forceinline__ float es_group_sum(float v)
{
#pragma unroll
    for (int step = ES_GROUP / 2; step > 0; step /= 2) v = v + es_shuffle_xor(v, step);
    return v;
}

static __device__ __forceinline__ float es_group_max(float v)
{
#pragma unroll
    for (int step = ES_GROUP / 2; step > 0; step /= 2) v = fmaxf(v, es_shuffle_xor(v, step));
    return v;
}

/** The sum over all threads of a block (whole groups): groups in order. `room` has a float for each group. */
static __device__ __forceinline__ float es_block_sum(float v, float *room)
{
    v = es_group_sum(v);
    __syncthreads();
    if (threadIdx.x % ES_GROUP == 0) room[threadIdx.x / ES_GROUP] = v;
    __syncthreads();
    float sum = room[0];
    for (unsigned g = 1; g < blockDim.x / ES_GROUP; g++) sum = sum + room[g];
    return sum;
}

/** Kernels of a step follow each other by programmatic launch (sm_90): the next one's blocks start while this one's drain.
 * Each kernel calls this before it touches anything that an earlier kernel wrote; what it reads of weights may come before. */
static __device__ __forceinline__ void es_follow(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/** Let the next kernel's blocks start as soon as all of this one's have. */
static __device__ __forceinline__ void es_lead(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/** Both, at the beginning of a kernel that has nothing to read early. */
static __device__ __forceinline__ void es_take_turn(void)
{
    es_lead();
    es_follow();
}

/** kernel<<<grid, threads, shared, stream>>>(arguments...), by programmatic launch. Cards before sm_90 ignore that. */
template <typename... P, typename... A>
static inline void es_launch(cudaStream_t stream, dim3 grid, unsigned threads, size_t shared, void (*kernel)(P...),
                             A... arguments)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = es_cuda_overlap ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
    es_cuda_launched++;
}

/* The elementary functions are those of cpu/math.h, step by step. This one: of what is neither too small nor too large. */
static __device__ __forceinline__ float es_exp_inside(float x)
{
    const float t = fmaf(x, 1.44269504088896341f, 12582912.0f);
    const float n = t - 12582912.0f;
    float r = fmaf(n, -0.693145751953125f, x);
    r = fmaf(n, -1.42860682030941723e-6f, r);
    float p = 0.000198412698412698413f;
    p = fmaf(p, r, 0.00138888888888888889f);
    p = fmaf(p, r, 0.00833333333333333333f);
    p = fmaf(p, r, 0.0416666666666666667f);
    p = fmaf(p, r, 0.166666666666666667f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return p * __uint_as_float((__float_as_uint(t) << 23) + 0x3F800000u);
}

static __device__ __forceinline__ float es_exp(float x)
{
    if (x < -87.33f) return 0.0f;
    if (x > 88.37f) return __int_as_float(0x7F800000);
    if (x != x) return x;
    return es_exp_inside(x);
}

static __device__ __forceinline__ float es_sigmoid(float x)
{
    return 1.0f / (1.0f + es_exp(-x));
}

static __device__ __forceinline__ float es_silu(float x)
{
    return x / (1.0f + es_exp(-x));
}

/* es_silu() of several numbers side by side: with branches for each they would wait for one another. Between the limits the
 * division is the compiler's own sequence, which is exact there; tests/cuda/product_test.cu tries all floats. */
template <int N> static __device__ __forceinline__ void es_silu_all(float (&x)[N])
{
    float out[N];
    bool inside = true;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float y = 1.0f + es_exp_inside(-x[i]);
        float r;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
        r = fmaf(r, fmaf(-y, r, 1.0f), r);
        const float q = fmaf(r, x[i], 0.0f);
        out[i] = x[i] == 0.0f ? 0.5f * x[i] : fmaf(r, fmaf(-y, q, x[i]), q); /* denormals count as zeros */
        inside = inside && x[i] > -40.0f && x[i] < 80.0f && (x[i] == 0.0f || fabsf(x[i]) > 1e-18f);
    }
    if (!inside)
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = es_silu(x[i]);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = out[i];
}

static __device__ __forceinline__ float es_softplus(float x)
{
    const float y = es_exp(x > 0 ? -x : x);
    const float s = y / (2.0f + y), s2 = s * s;
    float p = 1.0f / 17;
    for (int odd = 15; odd >= 1; odd -= 2) p = fmaf(p, s2, 1.0f / (float)odd);
    return (x > 0 ? x : 0.0f) + 2.0f * s * p;
}

/** Float to bfloat16, to nearest, ties to even. */
static __device__ __forceinline__ uint16_t es_to_bf16(float value)
{
#if __CUDA_ARCH__ >= 800
    uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
#endif
}

/** Two floats as a pair of bfloat16, the first in the low half. */
static __device__ __forceinline__ uint32_t es_to_bf16x2(float low, float high)
{
#if __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return es_to_bf16(low) | (uint32_t)es_to_bf16(high) << 16;
#endif
}

/** Four columns of a shadow from `column` on, a multiple of four. */
static __device__ __forceinline__ void es_shadow_put4(es_cuda_shade s, int64_t row, int64_t column, float4 v)
{
    uint32_t *to = (uint32_t *)(void *)es_shadow_at(s, row, column);
    to[0] = es_to_bf16x2(v.x, v.y);
    to[s.turned ? 4 : 1] = es_to_bf16x2(v.z, v.w);
}

static __device__ __forceinline__ float es_from_bf16(uint16_t half)
{
    return __uint_as_float((uint32_t)half << 16);
}

static __device__ __forceinline__ float es_from_half(uint32_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
    return value;
}

static __device__ __forceinline__ uint32_t es_load16(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

/* The 6-bit scale and minimum of group g of a Q4_K or Q5_K block. */
static __device__ __forceinline__ void es_k_scale(const unsigned char *packed, int g, float *scale, float *minimum)
{
    uint32_t s, m;
    if (g < 4) {
        s = packed[g] & 0x3F;
        m = packed[g + 4] & 0x3F;
    } else {
        s = (packed[g + 4] & 0x0F) | (packed[g - 4] >> 2 & 0x30);
        m = packed[g + 4] >> 4 | (packed[g] >> 2 & 0x30);
    }
    *scale = (float)s;
    *minimum = (float)m;
}

/** One element of a row, in blocks as a file has them or in planes: the formulas of cpu/ref/decode_ref.c. The order of planes
 * is pack.cu's. `row_bytes` finds the planes. */
static __device__ float es_decode_at(const unsigned char *row, es_dtype type, bool packed, int64_t row_bytes, int64_t column)
{
    const int i = (int)(column % 32), k = (int)(column % 256), g = k / 32;
    const int64_t block = column / 32, super = column / 256;
    switch (type) {
    case ES_F32: return __uint_as_float(es_load16(row + 4 * column) | es_load16(row + 4 * column + 2) << 16);
    case ES_F16: return es_from_half(es_load16(row + 2 * column));
    case ES_BF16: return es_from_bf16((uint16_t)es_load16(row + 2 * column));
    case ES_Q8_0: {
        if (packed) {
            const int64_t blocks = row_bytes / 34;
            return es_from_half(es_load16(row + blocks * 32 + 2 * block)) * (float)(int8_t)row[column];
        }
        const unsigned char *b = row + block * 34;
        return es_from_half(es_load16(b)) * (float)(int8_t)b[2 + i];
    }
    case ES_Q4_0: {
        const unsigned char *b = row + block * 18;
        const int q = i < 16 ? b[2 + i] & 0x0F : b[2 + i - 16] >> 4;
        return es_from_half(es_load16(b)) * (float)(q - 8);
    }
    case ES_Q4_1: {
        const unsigned char *b = row + block * 20;
        const int q = i < 16 ? b[4 + i] & 0x0F : b[4 + i - 16] >> 4;
        return es_from_half(es_load16(b)) * (float)q + es_from_half(es_load16(b + 2));
    }
    case ES_Q5_0: {
        const unsigned char *b = row + block * 22;
        const uint32_t high = es_load16(b + 2) | es_load16(b + 4) << 16;
        const int q = (i < 16 ? b[6 + i] & 0x0F : b[6 + i - 16] >> 4) | (int)(high >> i & 1) << 4;
        return es_from_half(es_load16(b)) * (float)(q - 16);
    }
    case ES_Q5_1: {
        const unsigned char *b = row + block * 24;
        const uint32_t high = es_load16(b + 4) | es_load16(b + 6) << 16;
        const int q = (i < 16 ? b[8 + i] & 0x0F : b[8 + i - 16] >> 4) | (int)(high >> i & 1) << 4;
        return es_from_half(es_load16(b)) * (float)q + es_from_half(es_load16(b + 2));
    }
    case ES_Q4_K: {
        const unsigned char *b = row + super * 144;
        float scale, minimum;
        es_k_scale(b + 4, g, &scale, &minimum);
        const float dg = es_from_half(es_load16(b)) * scale, mg = es_from_half(es_load16(b + 2)) * minimum;
        return dg * (float)(b[16 + g / 2 * 32 + i] >> (g % 2 * 4) & 0x0F) - mg;
    }
    case ES_Q5_K: {
        const unsigned char *b = row + super * 176;
        float scale, minimum;
        es_k_scale(b + 4, g, &scale, &minimum);
        const float dg = es_from_half(es_load16(b)) * scale, mg = es_from_half(es_load16(b + 2)) * minimum;
        const int q = (b[48 + g / 2 * 32 + i] >> (g % 2 * 4) & 0x0F) | (b[16 + i] >> g & 1) << 4;
        return dg * (float)q - mg;
    }
    case ES_Q6_K: {
        const int64_t blocks = row_bytes / 210;
        const unsigned char *b = row + super * 210;
        const unsigned char *low = packed ? row + super * 128 : b;
        const unsigned char *high = packed ? row + blocks * 128 + super * 64 : b + 128;
        const unsigned char *scale = packed ? row + blocks * 192 + super * 16 : b + 192;
        const unsigned char *d = packed ? row + blocks * 208 + super * 2 : b + 208;
        const int q = (low[g / 4 * 64 + g % 2 * 32 + i] >> (g % 4 / 2 * 4) & 0x0F) | (high[g / 4 * 32 + i] >> (g % 4 * 2) & 3)
                                                                                         << 4;
        return es_from_half(es_load16(d)) * (float)(int8_t)scale[k / 16] * (float)(q - 32);
    }
    default: return 0.0f;
    }
}

#endif
