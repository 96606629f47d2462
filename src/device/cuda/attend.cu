/* attend.cu: attention of a step: which kernel serves, and the plans that its blocks follow.
 *
 * Sequences that bring few query rows (generation, mostly) and those that bring many (prompts) have a plan each, of 8 rows an
 * item and of 32, or 128 on Hopper; the kernels fold the same tiles and partitions in the same tree, so who is counted to
 * which changes no bit. The tuned kernels know bfloat16 heads of 64, 128 and 256 channels, up to 32 query heads to a KV head; what is left, and
 * mode f32, is attention.cu's. */
#include "device/cuda/cuda.h"

#include <stdlib.h>

#include "share/plan.h"

static int32_t tile_rows(int which)
{
    return which == 0 ? 8 : es_cuda_decode_row_tile();
}

static es_status check(const char *wrong)
{
    return wrong ? es_cuda_fail(ES_INTERNAL, "GPU: attention: %s", wrong) : ES_OK;
}

static es_cuda_attn_shape shape_of(const es_attn_shape *a, int which)
{
    return (es_cuda_attn_shape){.query_heads = a->query_heads,
                                .kv_heads = a->kv_heads,
                                .head_dim = a->head_dim,
                                .page = a->page,
                                .row_tile = tile_rows(which)};
}

static bool fits(const es_cuda *cuda, int which)
{
    const es_attn_shape *a = &cuda->options.attn;
    return a->query_heads / a->kv_heads <= tile_rows(which);
}

es_status es_cuda_attend_open(es_cuda *cuda)
{
    const es_attn_shape *a = &cuda->options.attn;
    const bool known = a->head_dim == 64 || a->head_dim == 128 || a->head_dim == 256;
    cuda->tuned_attention = cuda->options.numeric == ES_NUMERIC_BF16 && cuda->tensor_cores && known && a->page % 16 == 0 &&
                            fits(cuda, ES_CUDA_ATTENDS - 1) && cuda->options.context < 1 << 26;
    for (int i = 0; i < ES_CUDA_ATTENDS && cuda->tuned_attention; i++) {
        es_cuda_attending *t = &cuda->attending[i];
        if (!fits(cuda, i)) continue;
        t->shape = shape_of(a, i);
        t->limits = (es_cuda_attn_limits){.blocks = es_cuda_decode_blocks(&t->shape, ES_CUDA_BF16),
                                          .spans = cuda->options.spans,
                                          .rows = cuda->options.rows,
                                          .context = (int32_t)cuda->options.context};
        t->room = es_cuda_attn_plan_bytes(&t->shape, &t->limits);
        const size_t bytes = es_cuda_decode_workspace(&t->shape, &t->limits);
        ES_TRY(es_cuda_check(cudaMallocHost((void **)&t->host, t->room), "attention's plans"));
        ES_TRY(es_cuda_check(cudaMalloc((void **)&t->plan, t->room), "attention's plans"));
        t->span = (es_cuda_attn_span *)calloc((size_t)cuda->options.spans, sizeof *t->span);
        t->scratch = calloc((size_t)es_cuda_attn_items(&t->shape, &t->limits) + 1, sizeof(es_plan_item));
        if (!t->span || !t->scratch) return es_cuda_fail(ES_NO_MEMORY, "no memory for attention's plans");
        ES_TRY(es_cuda_check(cudaMalloc(&t->workspace, bytes), "attention's partial results"));
        cuda->base.info.workspace += t->room + bytes;
    }
    return ES_OK;
}

void es_cuda_attend_close(es_cuda *cuda)
{
    for (int i = 0; i < ES_CUDA_ATTENDS; i++) {
        es_cuda_attending *t = &cuda->attending[i];
        cudaFreeHost(t->host);
        cudaFree(t->plan);
        cudaFree(t->workspace);
        free(t->span);
        free(t->scratch);
    }
}

es_status es_cuda_attend_prepare(es_cuda *cuda, const es_op_attn *op, es_cuda_shade shadow,
                                 es_cuda_decode calls[ES_CUDA_ATTENDS])
{
    for (int i = 0; i < ES_CUDA_ATTENDS && cuda->tuned_attention; i++) {
        const es_cuda_attending *t = &cuda->attending[i];
        if (!fits(cuda, i)) continue;
        es_cuda_decode *c = &calls[i];
        *c = (es_cuda_decode){.shape = t->shape, .limits = t->limits};
        c->cache_type = ES_CUDA_BF16;
        c->k_cache = op->k_cache.buffer->data + op->k_cache.offset;
        c->v_cache = op->v_cache.buffer->data + op->v_cache.offset;
        c->plan = t->plan;
        c->pages = cuda->batch.pages;
        c->q = es_cuda_floats(op->q);
        c->q_type = ES_CUDA_F32;
        c->gate = es_cuda_floats(op->gate);
        c->gate_stride = op->gate_stride, c->gate_head_stride = op->gate_head_stride;
        c->out = shadow.data ? NULL : es_cuda_floats(op->out);
        c->out16 = shadow;
        c->workspace = t->workspace;
        c->tuning.overlap = es_cuda_overlap;
        ES_TRY(check(es_cuda_decode_setup(c)));
        ES_TRY(check(es_cuda_decode_clear(c, cuda->stream)));
    }
    return ES_OK;
}

/* V1 never splits a sequence's keys among blocks, V2 anywhere; auto where a block's share is worth its merge. */
static int32_t unit_of(es_attention how)
{
    return how == ES_ATTENTION_V1 ? 0 : how == ES_ATTENTION_V2 ? 1 : ES_CUDA_ATTN_AUTO;
}

es_status es_cuda_attend_stage(es_cuda *cuda, const es_batch *batch)
{
    const es_attn_shape *a = &cuda->options.attn;
    for (int i = 0; i < ES_CUDA_ATTENDS; i++) cuda->attending[i].spans = 0;
    if (!cuda->tuned_attention) return ES_OK;
    for (int32_t s = 0; s < batch->spans; s++) {
        const es_span *span = &batch->span[s];
        const bool few = fits(cuda, 0) && span->rows * (a->query_heads / a->kv_heads) <= tile_rows(0);
        es_cuda_attending *t = &cuda->attending[few ? 0 : 1];
        t->span[t->spans++] = (es_cuda_attn_span){.first_row = span->first_row,
                                                  .rows = span->rows,
                                                  .start = (int32_t)span->start,
                                                  .first_page = s * cuda->batch.page_stride};
    }
    for (int i = 0; i < ES_CUDA_ATTENDS; i++) {
        es_cuda_attending *t = &cuda->attending[i];
        if (!t->spans) continue;
        const size_t bytes = es_cuda_attn_plan_write(&t->shape, t->span, t->spans, cuda->host.pages, t->limits.blocks,
                                                     unit_of(cuda->options.attention), t->scratch, t->host);
        if (!bytes) return es_cuda_fail(ES_INTERNAL, "GPU: attention of this step cannot be planned");
        ES_TRY(
            es_cuda_check(cudaMemcpyAsync(t->plan, t->host, bytes, cudaMemcpyHostToDevice, cuda->stream), "sending a plan"));
    }
    return ES_OK;
}

es_status es_cuda_attend_launch(const es_cuda *cuda, const es_cuda_decode calls[ES_CUDA_ATTENDS], bool turned)
{
    for (int i = 0; i < ES_CUDA_ATTENDS; i++) {
        es_cuda_decode call = calls[i];
        call.out16.turned = turned;
        if (!cuda->attending[i].spans) continue;
        ES_TRY(check(es_cuda_decode_launch(&call, cuda->stream)));
        es_cuda_launched++;
    }
    return ES_OK;
}
