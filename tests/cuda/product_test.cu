/* product_test.cu: products of many tokens on sm_90a (product_wide.cu) against the kernel that one token goes through: not a
 * bit may differ, whatever the shape, the number of workers and the room for decoded weights. `bench` times them. Run on a
 * machine with a GPU: cuda_product_test [quick | bench [number]]; quick is for the sanitizer. */
#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>

#include "device/cuda/device.cuh"

bool es_cuda_overlap = true;
uint64_t es_cuda_launched;

es_status es_cuda_fail(es_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}

es_status es_cuda_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return ES_OK;
    return es_cuda_fail(ES_INTERNAL, "GPU: %s: %s", what, cudaGetErrorString(error));
}

static void need(cudaError_t error)
{
    if (error) fprintf(stderr, "%s\n", cudaGetErrorString(error)), exit(1);
}

static void need(es_status status)
{
    if (status != ES_OK) exit(1);
}

static int failures, checks;
static void *sums;
static uint16_t *room;
static uint64_t seed = 77;

static float next_random(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (float)((double)(seed >> 40) / 8388608.0 - 1.0);
}

template <class T> static T *fresh(size_t count, int byte)
{
    T *data;
    need(cudaMalloc(&data, count * sizeof(T) + ES_CUDA_TAIL));
    need(cudaMemset(data, byte, count * sizeof(T) + ES_CUDA_TAIL));
    return data;
}

/* A matrix of random weights in the layout that kernels read (matrix_of() in plan.cu). */
static es_cuda_matrix random_matrix(es_dtype type, int rows, int columns)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    const int64_t row_bytes = (int64_t)es_dtype_bytes(type, columns), pitch = (row_bytes + 15) / 16 * 16;
    unsigned char *data = fresh<unsigned char>((size_t)(rows * row_bytes), 0);
    es_cuda_random(0, data, type, rows * row_bytes / info->block_bytes, seed += 12345, 0.05f);
    const bool whole = columns % ES_CUDA_COLUMNS == 0, planes = type == ES_Q8_0 || type == ES_Q6_K;
    if (!planes || !whole) return {data, row_bytes, type, false, whole && !planes && row_bytes % 16 == 0, rows};
    unsigned char *packed = fresh<unsigned char>((size_t)(rows * pitch), 0);
    es_cuda_pack(0, data, packed, type, row_bytes, pitch, rows);
    need(cudaDeviceSynchronize());
    need(cudaFree(data));
    return {packed, pitch, type, true, true, rows};
}

/* Inputs, some of them zero, and their shadows, plain and turned. */
struct inputs {
    float *x;
    uint16_t *plain, *turned;
    int64_t padded;
};

static inputs random_inputs(int tokens, int columns)
{
    std::vector<float> host((size_t)tokens * columns);
    for (int t = 0; t < tokens; t++)
        for (int c = 0; c < columns; c++)
            host[(size_t)t * columns + c] = t % 17 == 3 || c % 29 == 5 ? 0.0f : 2 * next_random();
    inputs in = {fresh<float>(host.size(), 0), NULL, NULL, es_cuda_padded(columns)};
    need(cudaMemcpy(in.x, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
    in.plain = fresh<uint16_t>((size_t)(tokens * in.padded), 0);
    in.turned = fresh<uint16_t>((size_t)(tokens * in.padded), 0);
    es_cuda_shadow_fill(0, tokens, in.x, columns, columns, {in.plain, in.padded, false});
    es_cuda_shadow_fill(0, tokens, in.x, columns, columns, {in.turned, in.padded, true});
    return in;
}

struct problem {
    const char *name;
    es_dtype type;
    int rows[ES_MATMUL_PARTS], columns, tokens;
    bool swiglu, accumulate, bias;
};

enum { GAP = 3 }; /* floats behind a row of outputs, which nobody may touch */

static es_cuda_product product_of(const problem &c, const inputs &in)
{
    es_cuda_product p = {};
    p.columns = c.columns, p.tokens = c.tokens, p.swiglu = c.swiglu;
    p.x = in.x, p.x_stride = c.columns, p.x16 = in.plain, p.x16_stride = in.padded;
    for (; p.parts < ES_MATMUL_PARTS && c.rows[p.parts]; p.parts++) {
        const int rows = c.rows[p.parts];
        es_cuda_part *part = &p.part[p.parts];
        part->w = random_matrix(c.type, rows, c.columns);
        part->out_stride = rows + GAP;
        part->accumulate = c.accumulate && p.parts != 1; /* a launch of both kinds */
        if (c.bias) {
            std::vector<float> bias((size_t)rows);
            for (float &b : bias) b = next_random();
            float *data = fresh<float>(bias.size(), 0);
            need(cudaMemcpy(data, bias.data(), bias.size() * sizeof(float), cudaMemcpyHostToDevice));
            part->bias = data;
        }
    }
    return p;
}

static size_t out_floats(const es_cuda_product &p, int part)
{
    return (size_t)p.tokens * (size_t)p.part[part].out_stride;
}

/* Everything a product leaves behind; outputs begin as bytes 0x3B (0.0028: something to add to). Bare: nothing but a turned
 * shadow, which is turned back. */
static std::vector<std::vector<uint32_t>> run(es_cuda_product p, const inputs &in, bool wide, size_t room_bytes,
                                              bool bare = false)
{
    std::vector<std::vector<uint32_t>> all;
    const size_t shadow = (size_t)p.tokens * (size_t)es_cuda_padded(p.part[0].w.rows);
    for (int i = 0; i < p.parts; i++) p.part[i].out = fresh<float>(out_floats(p, i), 0x3B);
    if (p.swiglu) p.part[0].shadow = {fresh<uint16_t>(shadow, 0x3B), es_cuda_padded(p.part[0].w.rows), bare};
    float *unused = p.part[0].out;
    p.turned = wide;
    if (wide) p.x16 = in.turned;
    if (bare) p.part[0].out = NULL;
    if (wide)
        need(es_cuda_product_wide(0, &p, 0, p.parts, room, room_bytes, sums));
    else
        es_cuda_product_bf16(0, &p, 0, p.parts, false);
    need(cudaDeviceSynchronize());
    p.part[0].out = unused;
    for (int i = 0; i < p.parts; i++) {
        all.emplace_back(out_floats(p, i));
        need(cudaMemcpy(all.back().data(), p.part[i].out, out_floats(p, i) * sizeof(float), cudaMemcpyDeviceToHost));
        need(cudaFree(p.part[i].out));
    }
    if (p.swiglu) {
        all.emplace_back(shadow / 2);
        std::vector<uint16_t> found(shadow);
        need(cudaMemcpy(found.data(), p.part[0].shadow.data, shadow * 2, cudaMemcpyDeviceToHost));
        uint16_t *to = (uint16_t *)(void *)all.back().data();
        for (size_t i = 0; i < shadow; i++) to[i] = found[bare ? (size_t)es_shadow_column((int64_t)i) : i];
        need(cudaFree(p.part[0].shadow.data));
    }
    return all;
}

static void compare(const problem &c)
{
    const inputs in = random_inputs(c.tokens, c.columns);
    const es_cuda_product p = product_of(c, in);
    const auto want = run(p, in, false, 0);
    size_t different = 0, values = 0;
    /* All workers, fewer, one; all room for decoded weights, and as little as will do. */
    for (int clusters : {0, 7, 1})
        for (size_t bytes : {ES_CUDA_PANEL, (size_t)(2 * 128 * in.padded * 2)}) {
            es_cuda_product_wide_limit(clusters);
            const auto got = run(p, in, true, bytes);
            for (size_t i = 0; i < want.size(); i++)
                for (size_t k = 0; k < want[i].size(); k++) values++, different += want[i][k] != got[i][k];
        }
    es_cuda_product_wide_limit(0);
    if (p.swiglu) /* nothing but the shadow */
        different += run(p, in, true, ES_CUDA_PANEL, true).back() != want.back();
    checks++;
    if (different)
        failures++, printf("FAILED %s: %d x %d, %d tokens: %zu of %zu words differ\n", c.name, c.rows[0], c.columns, c.tokens,
                           different, values);
    for (int i = 0; i < p.parts; i++) cudaFree((void *)p.part[i].w.data), cudaFree((void *)p.part[i].bias);
    cudaFree(in.x), cudaFree(in.plain), cudaFree(in.turned);
}

/* es_silu_all() is es_silu(), whatever the float. */
static __global__ void silu_kernel(unsigned long long *different)
{
    unsigned wrong = 0;
    for (uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; first >> 32 == 0;
         first += (uint64_t)gridDim.x * blockDim.x * 4) {
        float x[4];
        for (int i = 0; i < 4; i++) x[i] = __uint_as_float((uint32_t)first + i);
        es_silu_all(x);
        for (int i = 0; i < 4; i++)
            wrong += __float_as_uint(x[i]) != __float_as_uint(es_silu(__uint_as_float((uint32_t)first + i)));
    }
    if (wrong) atomicAdd(different, wrong);
}

static void check_silu(void)
{
    unsigned long long *different = fresh<unsigned long long>(1, 0), wrong;
    silu_kernel<<<1024, 256>>>(different);
    need(cudaMemcpy(&wrong, different, sizeof wrong, cudaMemcpyDeviceToHost));
    checks++;
    if (wrong) failures++, printf("FAILED: SiLU of %llu floats\n", wrong);
}

/* Seconds of a product, the median of graph-less runs over weights that rotate past the second-level cache. */
static double time_product(es_cuda_product *p, int sets, const inputs &in, bool wide)
{
    cudaEvent_t start, end;
    std::vector<float> all;
    need(cudaEventCreate(&start)), need(cudaEventCreate(&end));
    for (int i = 0; i < 12; i++) {
        const int count = 4;
        need(cudaEventRecord(start));
        for (int k = 0; k < count; k++) {
            es_cuda_product one = p[(i * count + k) % sets];
            one.turned = wide, one.x16 = wide ? in.turned : in.plain;
            if (wide && one.swiglu) one.part[0].out = NULL; /* as in a model: the shadow is all that is read */
            if (wide)
                need(es_cuda_product_wide(0, &one, 0, one.parts, room, ES_CUDA_PANEL, sums));
            else
                es_cuda_product_many(0, &one, 0, one.parts, room, ES_CUDA_PANEL);
        }
        need(cudaEventRecord(end));
        need(cudaEventSynchronize(end));
        float ms;
        need(cudaEventElapsedTime(&ms, start, end));
        if (i >= 2) all.push_back(ms / count);
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 2] * 1e-3;
}

static void bench(const problem &c)
{
    const inputs in = random_inputs(c.tokens, c.columns);
    es_cuda_product p[3];
    double flops = 0;
    for (es_cuda_product &one : p) {
        one = product_of(c, in);
        for (int i = 0; i < one.parts; i++) one.part[i].out = fresh<float>(out_floats(one, i), 0);
        if (c.swiglu) one.part[0].shadow = {fresh<uint16_t>((size_t)c.tokens * c.rows[0], 0), c.rows[0], true};
    }
    for (int i = 0; i < p[0].parts; i++) flops += 2.0 * c.rows[i] * c.columns * c.tokens;
    const double wide = time_product(p, 3, in, true), many = time_product(p, 3, in, false);
    printf("%-24s %6d x %5d, %4d tokens: wide %8.1f us %6.1f TFLOP/s   mma.sync %8.1f us %6.1f TFLOP/s\n", c.name, c.rows[0],
           c.columns, c.tokens, wide * 1e6, flops / wide * 1e-12, many * 1e6, flops / many * 1e-12);
    fflush(stdout);
    for (es_cuda_product &one : p)
        for (int i = 0; i < one.parts; i++)
            cudaFree((void *)one.part[i].w.data), cudaFree(one.part[i].out), cudaFree(one.part[i].shadow.data);
    cudaFree(in.x), cudaFree(in.plain), cudaFree(in.turned);
}

int main(int argc, char **argv)
{
    es_cuda_gpu gpu = {};
    struct cudaDeviceProp properties;
    bool there;
    need(cudaGetDeviceProperties(&properties, 0));
    gpu.major = properties.major, gpu.minor = properties.minor, gpu.code = 90, gpu.multiprocessors = properties.multiProcessorCount;
    need(es_cuda_product_setup());
    need(es_cuda_product_many_setup(properties.sharedMemPerBlockOptin));
    need(es_cuda_product_wide_setup(&gpu, &there));
    if (!there) return printf("this GPU has no wgmma\n"), 0;
    sums = fresh<char>(es_cuda_product_wide_room(), 0);
    room = fresh<uint16_t>(ES_CUDA_PANEL / 2, 0);
    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        const problem shapes[] = {
            {"gate and up, BF16",  ES_BF16, {12288, 12288},       4096,  2048, true,  false, false},
            {"down, BF16",         ES_BF16, {4096},               12288, 2048, false, true,  false},
            {"out, BF16",          ES_BF16, {4096},               4096,  2048, false, true,  false},
            {"delta inputs, BF16", ES_BF16, {8192, 4096, 32, 32}, 4096,  2048, false, false, false},
            {"q, k, v, BF16",      ES_BF16, {8192, 1024, 1024},   4096,  2048, false, false, false},
            {"gate and up, Q8_0",  ES_Q8_0, {12288, 12288},       4096,  2048, true,  false, false},
            {"down, Q8_0",         ES_Q8_0, {4096},               12288, 2048, false, true,  false},
            {"gate and up, Q4_K",  ES_Q4_K, {12288, 12288},       4096,  2048, true,  false, false},
            {"down, BF16",         ES_BF16, {4096},               12288, 512,  false, true,  false},
            {"down, BF16",         ES_BF16, {4096},               12288, 128,  false, true,  false},
            {"down, BF16",         ES_BF16, {4096},               12288, 65,   false, true,  false},
        };
        for (const problem &c : shapes)
            if (argc < 3 || &c - shapes == atoi(argv[2])) bench(c);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "quick") == 0) {
        for (es_dtype type : {ES_BF16, ES_Q4_K}) {
            compare({"stored", type, {300}, 512, 193, false, false, false});
            compare({"added, biased", type, {256, 33, 130}, 256, 193, false, true, true});
            compare({"added", type, {256, 33, 130}, 256, 200, false, true, false});
            compare({"swiglu", type, {256, 256}, 2304, 72, true, false, false});
        }
        printf("%d checks, %d failures\n", checks, failures);
        return failures != 0;
    }
    check_silu();
    const es_dtype types[] = {ES_BF16, ES_Q8_0, ES_Q4_K, ES_F16};
    for (es_dtype type : types)
        for (int columns : {256, 512, 2304, 4096, 4352, 12288})
            for (int tokens : {65, 192, 193, 450})
                for (int rows : {40, 256, 700}) {
                    compare({"stored", type, {rows}, columns, tokens, false, false, false});
                    if (tokens == 193)
                        compare({
                            "added, biased", type, {rows, 33, 130},
                              columns, tokens, false, true, true
                        });
                    if (tokens == 192) /* whole eights of tokens, no bias: the short way out */
                        compare({
                            "added", type, {rows, 33, 130},
                              columns, tokens + 64, false, true, false
                        });
                    if (tokens != 193)
                        compare({
                            "swiglu", type, {rows, rows},
                              columns, tokens, true, false, false
                        });
                }
    compare({"odd columns", ES_BF16, {300}, 99 * 32, 130, false, false, false});
    compare({
        "one segment", ES_BF16, {300, 64},
          64, 130, false, false, false
    });
    compare({
        "several waves", ES_BF16, {12288, 12288},
          1024, 900, true, false, false
    });
    compare({
        "several waves", ES_Q8_0, {8192, 4096, 32, 32},
          1024, 900, false, true, false
    });
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
