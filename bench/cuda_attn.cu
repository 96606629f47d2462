/* cuda_attn.cu: decode attention's kernels as a library that bench/cuda_attn.py loads beside PyTorch, so that all are timed in
 * one process, and a kernel that only reads, to say what the memory gives. */
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/attn_decode.h"
#include "share/plan.h"

/* What Python hands over: see the class of the same name there. */
typedef struct bench_setting {
    int32_t query_heads, kv_heads, head_dim, page, row_tile;
    int32_t blocks, unit, sequences, stages;
    int32_t copy16, keep, loose, overlap, second;
    int64_t table_pages; /* entries of the block tables */
    const void *k, *v, *q;
    const int32_t *pages;
    uint16_t *out;
} bench_setting;

typedef struct bench_call {
    es_cuda_decode call;
    void *plan;
} bench_call;

extern "C" void bench_close(bench_call *b)
{
    if (!b) return;
    cudaFree(b->plan), cudaFree(b->call.workspace);
    free(b);
}

/* lengths: keys of each sequence, its own one included; first_page: where its block table begins. NULL after printing why not.
 */
extern "C" bench_call *bench_open(const bench_setting *s, const int32_t *lengths, const int32_t *first_page)
{
    bench_call *b = (bench_call *)calloc(1, sizeof *b);
    es_cuda_decode *c = &b->call;
    es_cuda_attn_span *span = (es_cuda_attn_span *)calloc((size_t)s->sequences, sizeof *span);
    c->shape = {s->query_heads, s->kv_heads, s->head_dim, s->page, s->row_tile};
    c->limits = {s->blocks ? s->blocks : es_cuda_decode_blocks(&c->shape, ES_CUDA_BF16), s->sequences, s->sequences, 1};
    for (int i = 0; i < s->sequences; i++) {
        span[i] = {i, 1, lengths[i] - 1, first_page[i]};
        if (lengths[i] > c->limits.context) c->limits.context = lengths[i];
    }
    c->cache_type = ES_CUDA_BF16, c->q_type = ES_CUDA_BF16;
    c->k_cache = s->k, c->v_cache = s->v, c->q = s->q, c->pages = s->pages;
    c->out16 = {s->out, (int64_t)s->query_heads * s->head_dim, false};
    c->tuning = {s->stages,     s->copy16 != 0,  s->keep != 0,
                 s->loose != 0, s->overlap != 0, s->second ? ES_CUDA_DECODE_SECOND : ES_CUDA_DECODE_FUSED};
    void *scratch = malloc((size_t)es_cuda_attn_items(&c->shape, &c->limits) * sizeof(es_plan_item));
    void *plan = malloc(es_cuda_attn_plan_bytes(&c->shape, &c->limits));
    int32_t *pages = (int32_t *)malloc((size_t)s->table_pages * sizeof *pages);
    cudaMemcpy(pages, s->pages, (size_t)s->table_pages * sizeof *pages, cudaMemcpyDeviceToHost);
    const size_t used = es_cuda_attn_plan_write(&c->shape, span, s->sequences, pages, c->limits.blocks,
                                                s->loose ? -s->unit : s->unit, scratch, plan);
    const size_t workspace = es_cuda_decode_workspace(&c->shape, &c->limits);
    const char *wrong = used ? NULL : "impossible plan";
    if (!wrong && (cudaMalloc(&b->plan, used) || cudaMalloc(&c->workspace, workspace) ||
                   cudaMemcpy(b->plan, plan, used, cudaMemcpyHostToDevice)))
        wrong = cudaGetErrorString(cudaGetLastError());
    c->plan = b->plan;
    if (!wrong) wrong = es_cuda_decode_setup(c);
    if (!wrong) wrong = es_cuda_decode_clear(c, 0);
    free(scratch), free(plan), free(span), free(pages);
    if (!wrong) return b;
    fprintf(stderr, "bench_open: %s\n", wrong);
    bench_close(b);
    return NULL;
}

extern "C" int bench_launch(const bench_call *b, void *stream)
{
    const char *wrong = es_cuda_decode_launch(&b->call, (struct CUstream_st *)stream);
    if (wrong) fprintf(stderr, "bench_launch: %s\n", wrong);
    return wrong != NULL;
}

extern "C" int64_t bench_workspace(const bench_call *b)
{
    return (int64_t)es_cuda_decode_workspace(&b->call.shape, &b->call.limits);
}

static __global__ void __launch_bounds__(512) read_only(const uint4 *data, int64_t count, uint32_t *out)
{
    uint32_t sum = 0;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * step < count; i += 8 * step) {
        uint4 x[8];
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = __ldcs(data + i + j * step);
#pragma unroll
        for (int j = 0; j < 8; j++) sum ^= x[j].x ^ x[j].y ^ x[j].z ^ x[j].w;
    }
    for (; i < count; i += step) sum ^= data[i].x;
    if (sum == 0x12345678u) *out = sum;
}

extern "C" int bench_read(const void *data, int64_t bytes, void *out, int32_t blocks, void *stream)
{
    read_only<<<blocks, 512, 0, (cudaStream_t)stream>>>((const uint4 *)data, bytes / 16, (uint32_t *)out);
    return cudaGetLastError() != cudaSuccess;
}
