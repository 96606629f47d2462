/* limits.cu: kernels that do nothing but reach a limit of the GPU: reading memory, and bfloat16 matrix instructions. What a
 * step could take at best is counted with them. */
#include "device/cuda/device.cuh"
#include "device/cuda/wgmma.cuh"

enum { THREADS = 512, RUNS = 5, ROUNDS = 4096 };
#define READ_BYTES ((size_t)4 << 30)
#define SUSTAINED  0.3 /* seconds */

static __global__ void __launch_bounds__(THREADS) read_kernel(const uint4 *data, size_t count, uint32_t *out)
{
    uint32_t seen = 0;
    const size_t step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[k] = make_uint4(0, 0, 0, 0);
            if (i + k * step < count) v[k] = __ldcs(data + i + k * step);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) seen ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (seen == 0x12345678u) *out = seen; /* memory that was set to one byte never gives this */
}

/* Eight independent chains in a warp keep the matrix units busy. */
static __global__ void __launch_bounds__(256) matrix_kernel(uint32_t *out)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    float c[8][4] = {};
    const uint32_t a = 0x3F803F80u + threadIdx.x, b = 0x3F803F80u - threadIdx.x;
    for (int i = 0; i < ROUNDS; i++)
#pragma unroll
        for (int k = 0; k < 8; k++)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])
                : "r"(a), "r"(b), "r"(a ^ k), "r"(b ^ k), "r"(a), "r"(b));
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    if (sum == 1.0f) *out = 1;
#endif
}

/* Fused steps of float32: all that older cards multiply by. */
static __global__ void __launch_bounds__(256) fused_kernel(uint32_t *out)
{
    float c[8];
    const float a = 1.0f - 0x1p-20f * (float)threadIdx.x, b = 0x1p-10f;
    for (int k = 0; k < 8; k++) c[k] = (float)k;
    for (int i = 0; i < ROUNDS; i++)
#pragma unroll
        for (int k = 0; k < 8; k++) c[k] = fmaf(c[k], a, b);
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += c[k];
    if (sum == -1.0f) *out = 1; /* none of them is below zero */
}

/* The same of wgmma: two warpgroups with weights in registers and 192 tokens in shared memory, all random, for some
 * milliseconds: on zeros, or before the card slows down under the load, it would be faster than any model can be. */
enum { WIDE_THREADS = 256, WIDE_STEPS = 16384, WIDE_BYTES = 192 * 128 };
static __global__ void __launch_bounds__(WIDE_THREADS, 1) matrix_wide_kernel(uint32_t *out)
{
#if ES_HAS_WGMMA
    extern __shared__ __align__(1024) unsigned char tokens[];
    uint32_t noise = threadIdx.x * 0x9E3779B9u + blockIdx.x, a[16];
    for (int i = threadIdx.x; i < WIDE_BYTES / 4; i += WIDE_THREADS) {
        noise = noise * 1664525u + 1013904223u;
        ((uint32_t *)(void *)tokens)[i] = (noise & 0x807F807Fu) | 0x3F003F00u;
    }
    for (int i = 0; i < 16; i++) a[i] = ((noise = noise * 1664525u + 1013904223u) & 0x807F807Fu) | 0x3F003F00u;
    es_fence_copies();
    __syncthreads();
    const uint64_t b = es_wgmma_rows128(es_shared(tokens));
    float acc[96] = {};
    es_wgmma_keep(acc);
    for (int i = 0; i < WIDE_STEPS; i++) {
        es_wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) es_wgmma_192(acc, a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3], b + 2 * k, 1);
        es_wgmma_commit();
        es_wgmma_wait<1>();
    }
    es_wgmma_wait<0>();
    es_wgmma_keep(acc);
    float sum = 0;
    for (int i = 0; i < 96; i++) sum += acc[i];
    if (sum == 1.0f) *out = 1;
#endif
}

static es_status best_seconds(cudaEvent_t start, cudaEvent_t end, void (*launch)(void *), void *argument, double *best)
{
    *best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        float ms;
        ES_TRY(es_cuda_check(cudaEventRecord(start), "timing"));
        launch(argument);
        ES_TRY(es_cuda_check(cudaEventRecord(end), "timing"));
        ES_TRY(es_cuda_check(cudaEventSynchronize(end), "timing"));
        ES_TRY(es_cuda_check(cudaEventElapsedTime(&ms, start, end), "timing"));
        if (ms * 1e-3 < *best) *best = ms * 1e-3;
    }
    return ES_OK;
}

/* A launch's seconds among as many as take SUSTAINED, one behind the other: the mean of the second half of them. */
static es_status sustained_seconds(cudaEvent_t start, cudaEvent_t end, void (*launch)(void *), void *argument, double once,
                                   double *seconds)
{
    const int half = (int)(SUSTAINED / once / 2) + 1;
    float ms;
    for (int i = 0; i < 2 * half; i++) {
        if (i == half) ES_TRY(es_cuda_check(cudaEventRecord(start), "timing"));
        launch(argument);
    }
    ES_TRY(es_cuda_check(cudaEventRecord(end), "timing"));
    ES_TRY(es_cuda_check(cudaEventSynchronize(end), "timing"));
    ES_TRY(es_cuda_check(cudaEventElapsedTime(&ms, start, end), "timing"));
    *seconds = ms * 1e-3 / half;
    return ES_OK;
}

typedef struct measuring {
    unsigned char *data;
    size_t bytes;
    unsigned blocks;
} measuring;

static void read_all(void *argument)
{
    const measuring *m = (const measuring *)argument;
    read_kernel<<<m->blocks * 4, THREADS>>>((const uint4 *)(const void *)m->data, m->bytes / sizeof(uint4),
                                            (uint32_t *)(void *)m->data);
}

static void multiply(void *argument)
{
    const measuring *m = (const measuring *)argument;
    matrix_kernel<<<m->blocks * 2, 256>>>((uint32_t *)(void *)m->data);
}

static void multiply_fused(void *argument)
{
    const measuring *m = (const measuring *)argument;
    fused_kernel<<<m->blocks * 2, 256>>>((uint32_t *)(void *)m->data);
}

static void multiply_wide(void *argument)
{
    const measuring *m = (const measuring *)argument;
    matrix_wide_kernel<<<m->blocks, WIDE_THREADS, WIDE_BYTES>>>((uint32_t *)(void *)m->data);
}

/* The fastest multiplying that kernels have on a card. */
typedef struct multiplying {
    void (*launch)(void *);
    double operations;
    const char *by;
} multiplying;

static multiplying multiplying_of(const es_cuda_gpu *gpu, unsigned blocks)
{
    if (es_cuda_is_hopper(gpu))
        return {multiply_wide, 2.0 * 64 * 192 * 16 * 4 * (double)WIDE_STEPS * (WIDE_THREADS / 128) * blocks, "wgmma bf16"};
    if (gpu->code >= 80) return {multiply, 2.0 * 16 * 8 * 16 * 8 * (double)ROUNDS * 8 * (blocks * 2), "mma.sync bf16"};
    return {multiply_fused, 2.0 * 256 * 8 * (double)ROUNDS * (blocks * 2), "float32 fused steps"};
}

static es_status measure(const es_cuda_gpu *gpu, measuring *m, es_cuda_limits *limits)
{
    cudaEvent_t start, end;
    double seconds;
    ES_TRY(es_cuda_check(cudaMemset(m->data, 1, m->bytes), "clearing memory"));
    ES_TRY(es_cuda_check(cudaEventCreate(&start), "timing"));
    ES_TRY(es_cuda_check(cudaEventCreate(&end), "timing"));
    ES_TRY(best_seconds(start, end, read_all, m, &seconds));
    limits->read_bytes = (double)m->bytes / seconds;
    const multiplying how = multiplying_of(gpu, m->blocks);
    ES_TRY(best_seconds(start, end, how.launch, m, &seconds));
    limits->bf16_flops = how.operations / seconds;
    limits->bf16_by = how.by;
    ES_TRY(sustained_seconds(start, end, how.launch, m, seconds, &seconds));
    limits->bf16_sustained = how.operations / seconds;
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    return ES_OK;
}

es_status es_cuda_measure_limits(const es_cuda_gpu *gpu, es_cuda_limits *limits)
{
    measuring m = {NULL, READ_BYTES, (unsigned)gpu->multiprocessors};
    while (m.bytes > gpu->available / 2) m.bytes /= 2;
    *limits = (es_cuda_limits){.multiprocessors = gpu->multiprocessors};
    ES_TRY(es_cuda_check(cudaMalloc((void **)&m.data, m.bytes), "measuring its bandwidth"));
    const es_status status = measure(gpu, &m, limits);
    cudaFree(m.data);
    return status;
}
