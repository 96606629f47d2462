/* cuda.cu: a GPU as a device: its memory, and steps. */
#include "device/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static es_cuda_host host_calls;
bool es_cuda_overlap = true;
uint64_t es_cuda_launched = 0;

es_status es_cuda_fail(es_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host_calls.record("%s", text);
    return status;
}

es_status es_cuda_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return ES_OK;
    cudaGetLastError(); /* what can be forgotten is forgotten */
    if (error == cudaErrorMemoryAllocation)
        return es_cuda_fail(ES_NO_MEMORY, "the GPU has no memory for %s: use a smaller --ctx, --parallel or --memory", what);
    return es_cuda_fail(ES_INTERNAL, "GPU: %s: %s", what, cudaGetErrorString(error));
}

static es_cuda *cuda_of(es_device *device)
{
    return (es_cuda *)(void *)device;
}

/* --- memory --- */

static es_status new_buffer(es_cuda *cuda, size_t bytes, const void *host, es_buffer **out)
{
    es_buffer *b = (es_buffer *)calloc(1, sizeof *b);
    if (!b) return es_cuda_fail(ES_NO_MEMORY, "no memory for a buffer's record");
    char what[48];
    snprintf(what, sizeof what, "a buffer of %zu MiB", bytes >> 20);
    /* Vector loads may reach past the end of a row. */
    const es_status status = es_cuda_check(cudaMalloc((void **)&b->data, bytes + ES_CUDA_TAIL), what);
    if (status != ES_OK) {
        free(b);
        return status;
    }
    b->bytes = bytes;
    b->host = host;
    b->uses = 1;
    *out = b;
    (void)cuda;
    return ES_OK;
}

static void free_buffer(es_buffer *b)
{
    cudaFree(b->data);
    free(b);
}

static es_status alloc_buffer(es_device *device, size_t bytes, es_buffer **buffer)
{
    es_cuda *cuda = cuda_of(device);
    ES_TRY(new_buffer(cuda, bytes, NULL, buffer));
    const es_status status =
        es_cuda_check(cudaMemsetAsync((*buffer)->data, 0, bytes + ES_CUDA_TAIL, cuda->stream), "clearing memory");
    if (status != ES_OK) free_buffer(*buffer);
    return status;
}

static es_status check_range(const es_buffer *buffer, size_t offset, size_t bytes)
{
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return es_cuda_fail(ES_INTERNAL, "bytes %zu to %zu of a buffer of %zu", offset, offset + bytes, buffer->bytes);
    return ES_OK;
}

static es_status write_buffer(es_device *device, es_buffer *buffer, size_t offset, const void *host, size_t bytes)
{
    es_cuda *cuda = cuda_of(device);
    ES_TRY(check_range(buffer, offset, bytes));
    ES_TRY(
        es_cuda_check(cudaMemcpyAsync(buffer->data + offset, host, bytes, cudaMemcpyHostToDevice, cuda->stream), "writing"));
    return es_cuda_check(cudaStreamSynchronize(cuda->stream), "writing");
}

/* One copy on the device for each piece of host memory, however often it is imported. */
static es_status import_buffer(es_device *device, const void *host, size_t bytes, es_buffer **buffer)
{
    es_cuda *cuda = cuda_of(device);
    for (es_buffer *b = cuda->imported; b; b = b->next)
        if (b->host == host && b->bytes == bytes) {
            b->uses++;
            *buffer = b;
            return ES_OK;
        }
    ES_TRY(new_buffer(cuda, bytes, host, buffer));
    es_buffer *b = *buffer;
    b->hollow = cuda->options.random_weights;
    if (!b->hollow) {
        const es_status status = write_buffer(device, b, 0, host, bytes);
        if (status != ES_OK) {
            free_buffer(b);
            return status;
        }
    }
    b->next = cuda->imported;
    cuda->imported = b;
    return ES_OK;
}

static void drop_graphs(es_cuda *cuda)
{
    for (int i = 0; i < cuda->graphs; i++) cudaGraphExecDestroy(cuda->graph[i].exec);
    cuda->graphs = 0;
}

/* Plans hold places of buffers: none outlives a buffer. */
void es_cuda_forget(es_cuda *cuda)
{
    drop_graphs(cuda);
    for (int i = 0; i < cuda->plans; i++) es_cuda_plan_free(&cuda->plan[i]);
    cuda->plans = 0;
    for (int i = 0; i < cuda->shadows; i++) cudaFree(cuda->shadow[i].data);
    cuda->shadows = 0;
}

static void release_buffer(es_device *device, es_buffer *buffer)
{
    es_cuda *cuda = cuda_of(device);
    if (--buffer->uses > 0) return;
    es_cuda_forget(cuda);
    for (es_buffer **at = &cuda->imported; *at; at = &(*at)->next)
        if (*at == buffer) {
            *at = buffer->next;
            break;
        }
    free_buffer(buffer);
}

static es_status read_buffer(es_device *device, const es_buffer *buffer, size_t offset, void *host, size_t bytes)
{
    es_cuda *cuda = cuda_of(device);
    ES_TRY(check_range(buffer, offset, bytes));
    ES_TRY(
        es_cuda_check(cudaMemcpyAsync(host, buffer->data + offset, bytes, cudaMemcpyDeviceToHost, cuda->stream), "reading"));
    return es_cuda_check(cudaStreamSynchronize(cuda->stream), "reading");
}

static es_status copy_buffer(es_device *device, es_buffer *buffer, size_t from, size_t to, size_t bytes)
{
    es_cuda *cuda = cuda_of(device);
    ES_TRY(check_range(buffer, from, bytes));
    ES_TRY(check_range(buffer, to, bytes));
    /* In stream order: the next submit comes behind it. */
    return es_cuda_check(
        cudaMemcpyAsync(buffer->data + to, buffer->data + from, bytes, cudaMemcpyDeviceToDevice, cuda->stream), "copying");
}

/* The staging area grows to the largest peek, which an engine's first step is. */
static const void *peek_buffer(es_device *device, const es_buffer *buffer, size_t offset, size_t bytes)
{
    es_cuda *cuda = cuda_of(device);
    if (bytes > cuda->peek_bytes) {
        cudaFreeHost(cuda->peek);
        cuda->peek = NULL, cuda->peek_bytes = 0;
        if (es_cuda_check(cudaMallocHost((void **)&cuda->peek, bytes), "reading results") != ES_OK) return NULL;
        cuda->peek_bytes = bytes;
    }
    return read_buffer(device, buffer, offset, cuda->peek, bytes) == ES_OK ? cuda->peek : NULL;
}

/* --- steps --- */

/* Writes the batch into the staging area and sends it off. True when every span is a single row. */
static es_status stage(es_cuda *cuda, const es_batch *batch, bool *single)
{
    es_cuda_batch *h = &cuda->host;
    const es_device_options *o = &cuda->options;
    *single = true;
    if (batch->rows) memcpy((void *)h->token, batch->tokens, (size_t)batch->rows * sizeof *h->token);
    if (batch->outputs) memcpy((void *)h->output_row, batch->output_row, (size_t)batch->outputs * sizeof *h->output_row);
    if (batch->pick) memcpy((void *)h->pick, batch->pick, (size_t)batch->outputs * sizeof *h->pick);
    for (int32_t s = 0; s < batch->spans; s++) {
        const es_span *span = &batch->span[s];
        ((es_cuda_span *)h->span)[s] = (es_cuda_span){span->start, span->first_row, span->rows, span->slot, 0};
        *single = *single && span->rows == 1;
        for (int32_t r = 0; r < span->rows; r++) {
            ((int32_t *)h->row_span)[span->first_row + r] = s;
            ((int64_t *)h->row_position)[span->first_row + r] = span->start + r;
        }
        if (!o->attn.head_dim || !span->pages) continue;
        const int64_t pages = (span->start + span->rows + o->attn.page - 1) / o->attn.page;
        if (pages > h->page_stride)
            return es_cuda_fail(ES_INTERNAL, "a sequence of %lld pages; the device was opened for %d", (long long)pages,
                                h->page_stride);
        memcpy((int32_t *)h->pages + (int64_t)s * h->page_stride, span->pages, (size_t)pages * sizeof(int32_t));
    }
    const size_t used = (size_t)((const unsigned char *)(h->pages + (int64_t)batch->spans * h->page_stride) - cuda->staging);
    return es_cuda_check(cudaMemcpyAsync(cuda->block, cuda->staging, used, cudaMemcpyHostToDevice, cuda->stream),
                         "sending a step");
}

static es_status capture(es_cuda *cuda, const es_cuda_plan *plan, const es_batch *batch, es_cuda_graph *graph)
{
    cudaGraph_t recorded;
    const uint64_t before = es_cuda_launched;
    ES_TRY(es_cuda_check(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal), "recording a step"));
    const es_status launched = es_cuda_plan_launch(cuda, plan, batch, true);
    ES_TRY(es_cuda_check(cudaStreamEndCapture(cuda->stream, &recorded), "recording a step"));
    if (launched != ES_OK) {
        cudaGraphDestroy(recorded);
        return launched;
    }
    const cudaError_t error = cudaGraphInstantiate(&graph->exec, recorded, 0);
    cudaGraphDestroy(recorded);
    ES_TRY(es_cuda_check(error, "recording a step"));
    graph->plan = plan;
    graph->rows = batch->rows;
    graph->outputs = batch->outputs;
    graph->picks = batch->pick != NULL;
    graph->kernels = es_cuda_launched - before;
    return ES_OK;
}

static es_status replay(es_cuda *cuda, const es_cuda_graph *graph)
{
    cuda->base.info.meetings += graph->kernels;
    return es_cuda_check(cudaGraphLaunch(graph->exec, cuda->stream), "replaying a step");
}

/* Single rows are what comes again and again: their steps are replayed. */
static es_status run(es_cuda *cuda, const es_cuda_plan *plan, const es_batch *batch, bool single)
{
    const bool picks = batch->pick != NULL;
    if (!single || cuda->no_graphs) {
        const uint64_t before = es_cuda_launched;
        ES_TRY(es_cuda_plan_launch(cuda, plan, batch, single));
        cuda->base.info.meetings += es_cuda_launched - before;
        return es_cuda_check(cudaGetLastError(), "launching a step");
    }
    for (int i = 0; i < cuda->graphs; i++) {
        const es_cuda_graph *g = &cuda->graph[i];
        if (g->plan == plan && g->rows == batch->rows && g->outputs == batch->outputs && g->picks == picks)
            return replay(cuda, g);
    }
    if (cuda->graphs == ES_CUDA_GRAPHS) drop_graphs(cuda);
    es_cuda_graph *graph = &cuda->graph[cuda->graphs];
    ES_TRY(capture(cuda, plan, batch, graph));
    cuda->graphs++;
    return replay(cuda, graph);
}

static es_status submit_program(es_device *device, const es_program *program, const es_batch *batch)
{
    es_cuda *cuda = cuda_of(device);
    if (batch->rows > cuda->options.rows || batch->spans > cuda->options.spans || batch->outputs > cuda->options.rows)
        return es_cuda_fail(ES_INTERNAL, "a step of %d rows in %d spans; the device was opened for %d in %d", batch->rows,
                            batch->spans, cuda->options.rows, cuda->options.spans);
    es_cuda_plan *plan;
    bool single;
    ES_TRY(es_cuda_plan_find(cuda, program, &plan));
    ES_TRY(stage(cuda, batch, &single));
    if (plan->attends) ES_TRY(es_cuda_attend_stage(cuda, batch));
    ES_TRY(run(cuda, plan, batch, single));
    return es_cuda_check(cudaStreamSynchronize(cuda->stream), "a step");
}

/* --- opening and closing --- */

/* A card runs machine code of its own generation, or what its driver compiles of older code: what it could do besides is of no
 * use to it. */
static __global__ void any_kernel(void) {}
static es_status find_code(int *code)
{
    cudaFuncAttributes a = {};
    const cudaError_t error = cudaFuncGetAttributes(&a, any_kernel);
    *code = a.ptxVersion;
    if (error != cudaErrorNoKernelImageForDevice) return es_cuda_check(error, "finding kernels for it");
    cudaGetLastError();
    return ES_OK;
}

/* The current GPU, which has this index. */
static es_status describe(int index, es_cuda_gpu *gpu)
{
    struct cudaDeviceProp p;
    ES_TRY(es_cuda_check(cudaGetDeviceProperties(&p, index), "asking for its properties"));
    *gpu = (es_cuda_gpu){.major = p.major,
                         .minor = p.minor,
                         .multiprocessors = p.multiProcessorCount,
                         .warp = p.warpSize,
                         .shared = p.sharedMemPerBlockOptin,
                         .cache = (size_t)p.l2CacheSize,
                         .memory = p.totalGlobalMem};
    snprintf(gpu->name, sizeof gpu->name, "%.95s", p.name);
    cudaDriverGetVersion(&gpu->driver);
    cudaRuntimeGetVersion(&gpu->runtime);
    return find_code(&gpu->code);
}

static es_status count_gpus(int *count)
{
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count > 0) return ES_OK;
    cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        return es_cuda_fail(ES_UNSUPPORTED, "no NVIDIA driver answers, or it is older than CUDA %d.%d", CUDART_VERSION / 1000,
                            CUDART_VERSION % 1000 / 10);
    return es_cuda_fail(ES_UNSUPPORTED, "there is no GPU (%s)",
                        cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error));
}

static es_status look(es_cuda_gpu *gpus, int room, int *count)
{
    ES_TRY(count_gpus(count));
    for (int i = 0; i < *count && i < room; i++) {
        size_t available, total;
        ES_TRY(es_cuda_check(cudaSetDevice(i), "choosing it"));
        ES_TRY(describe(i, &gpus[i]));
        ES_TRY(es_cuda_check(cudaMemGetInfo(&available, &total), "asking for its memory"));
        gpus[i].available = available;
    }
    return es_cuda_check(cudaSetDevice(0), "choosing it");
}

static es_status limits(es_cuda_limits *out)
{
    es_cuda_gpu gpu;
    int count;
    ES_TRY(look(&gpu, 1, &count));
    return es_cuda_measure_limits(&gpu, out);
}

static void close_cuda(es_device *device)
{
    es_cuda *cuda = cuda_of(device);
    if (cuda->stream) cudaStreamSynchronize(cuda->stream);
    es_cuda_forget(cuda);
    es_cuda_attend_close(cuda);
    cudaFree(cuda->block);
    cudaFree(cuda->tile_expert);
    cudaFree(cuda->panel);
    cudaFree(cuda->wide_room);
    cudaFreeHost(cuda->staging);
    cudaFreeHost(cuda->peek);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda);
}

/* Places in the block: counted with no base, then handed out, on the host and on the device alike. */
static const unsigned char *cut(const unsigned char *base, size_t *used, int64_t count, size_t size)
{
    const unsigned char *place = base ? base + *used : NULL;
    *used += ((size_t)count * size + 63) / 64 * 64;
    return place;
}

static size_t lay_batch(const es_device_options *o, const unsigned char *base, es_cuda_batch *b)
{
    size_t used = 0;
    b->page_stride = o->attn.head_dim ? (int32_t)((o->context + o->attn.page - 1) / o->attn.page) : 0;
    b->token = (const int32_t *)cut(base, &used, o->rows, sizeof *b->token);
    b->row_span = (const int32_t *)cut(base, &used, o->rows, sizeof *b->row_span);
    b->output_row = (const int32_t *)cut(base, &used, o->rows, sizeof *b->output_row);
    b->pick = (const es_pick *)cut(base, &used, o->rows, sizeof *b->pick);
    b->row_position = (const int64_t *)cut(base, &used, o->rows, sizeof *b->row_position);
    b->span = (const es_cuda_span *)cut(base, &used, o->spans, sizeof *b->span);
    b->pages = (const int32_t *)cut(base, &used, (int64_t)o->spans * b->page_stride, sizeof *b->pages);
    return used;
}

static es_status allocate(es_cuda *cuda)
{
    const es_device_options *o = &cuda->options;
    const size_t bytes = lay_batch(o, NULL, &cuda->batch);
    /* Entries are at most rows times the experts used of each, 64 at most: their tiles are bounded as in plan.cu. */
    const size_t tiles = (size_t)o->rows * 64 / ES_CUDA_EXPERT_TOKENS + ES_CUDA_MOST_EXPERTS;
    ES_TRY(es_cuda_check(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking), "a stream"));
    ES_TRY(es_cuda_check(cudaMallocHost((void **)&cuda->staging, bytes), "staging"));
    ES_TRY(es_cuda_check(cudaMalloc((void **)&cuda->block, bytes), "staging"));
    ES_TRY(es_cuda_check(cudaMalloc((void **)&cuda->tile_expert, (3 * tiles + 1) * sizeof(int32_t)), "tiles of experts"));
    if (o->numeric == ES_NUMERIC_BF16 && o->rows >= ES_CUDA_MANY_TOKENS) {
        ES_TRY(es_cuda_check(cudaMalloc((void **)&cuda->panel, ES_CUDA_PANEL), "decoded weights"));
        cuda->base.info.workspace += ES_CUDA_PANEL;
        if (cuda->wide) {
            const size_t room = es_cuda_product_wide_room();
            ES_TRY(es_cuda_check(cudaMalloc(&cuda->wide_room, room), "sums of products"));
            ES_TRY(es_cuda_check(cudaMemsetAsync(cuda->wide_room, 0, room, cuda->stream), "sums of products"));
            cuda->base.info.workspace += room;
        }
    }
    memset(cuda->staging, 0, bytes);
    cuda->block_bytes = bytes;
    cuda->tile_first = cuda->tile_expert + tiles;
    cuda->tile_count = cuda->tile_first + tiles;
    cuda->tiles = cuda->tile_count + tiles;
    lay_batch(o, cuda->block, &cuda->batch);
    lay_batch(o, cuda->staging, &cuda->host);
    cuda->base.info.workspace += bytes + (3 * tiles + 1) * sizeof(int32_t);
    return ES_OK;
}

static es_status check_options(const es_cuda *cuda)
{
    const es_device_options *o = &cuda->options;
    const es_attn_shape *a = &o->attn;
    if (cuda->gpu.code == 0)
        return es_cuda_fail(ES_UNSUPPORTED, "%s (%s) is older than all that kernels were compiled for (compute capability 7.5)",
                            cuda->gpu.name, cuda->set);
    if (o->numeric == ES_NUMERIC_INT8 || o->numeric == ES_NUMERIC_BF16DP)
        return es_cuda_fail(ES_UNSUPPORTED, "numeric modes int8 and bf16dp are the CPU's; a GPU offers bf16 and f32");
    if (o->numeric == ES_NUMERIC_BF16 && !cuda->tensor_cores)
        return es_cuda_fail(ES_UNSUPPORTED, "%s (%s) has no bfloat16 matrix instructions; use --numeric f32", cuda->gpu.name,
                            cuda->set);
    if (a->head_dim && (a->head_dim > 1024 || a->kv_heads < 1 || a->query_heads % a->kv_heads != 0))
        return es_cuda_fail(ES_UNSUPPORTED, "attention with %d query heads, %d KV heads of %d channels", a->query_heads,
                            a->kv_heads, a->head_dim);
    return ES_OK;
}

static es_status build(es_cuda *cuda, const es_device_options *options)
{
    int count;
    ES_TRY(count_gpus(&count));
    ES_TRY(es_cuda_check(cudaSetDevice(0), "choosing it"));
    ES_TRY(describe(0, &cuda->gpu));
    cuda->options = *options;
    cuda->tensor_cores = cuda->gpu.code >= 80;
    /* Older kernels do not wait for the one in front by themselves. */
    es_cuda_overlap = cuda->gpu.code >= 90 && !(getenv("ES_CUDA_OVERLAP") && strcmp(getenv("ES_CUDA_OVERLAP"), "0") == 0);
    cuda->no_graphs = getenv("ES_CUDA_GRAPHS") && strcmp(getenv("ES_CUDA_GRAPHS"), "0") == 0;
    snprintf(cuda->set, sizeof cuda->set, "sm_%d%d", cuda->gpu.major, cuda->gpu.minor);
    cuda->base.info = (es_device_info){
        .name = "cuda", .instruction_set = cuda->set, .numeric = options->numeric, .threads = cuda->gpu.multiprocessors};
    ES_TRY(check_options(cuda));
    if (cuda->tensor_cores) {
        ES_TRY(es_cuda_product_setup());
        ES_TRY(es_cuda_product_many_setup(cuda->gpu.shared));
        if (!(getenv("ES_CUDA_WIDE") && strcmp(getenv("ES_CUDA_WIDE"), "0") == 0))
            ES_TRY(es_cuda_product_wide_setup(&cuda->gpu, &cuda->wide));
    }
    ES_TRY(es_cuda_moe_setup());
    ES_TRY(es_cuda_moe_few_setup(cuda->gpu.shared, &cuda->few_shared));
    ES_TRY(es_cuda_attn_setup(options, cuda->gpu.shared));
    ES_TRY(allocate(cuda));
    return options->attn.head_dim ? es_cuda_attend_open(cuda) : ES_OK;
}

static const es_device_ops cuda_ops = {close_cuda,  alloc_buffer, import_buffer, release_buffer, write_buffer,
                                       read_buffer, peek_buffer,  copy_buffer,   submit_program};

static es_status open_cuda(const es_device_options *options, es_device **device)
{
    es_cuda *cuda = (es_cuda *)calloc(1, sizeof *cuda);
    if (!cuda) return es_cuda_fail(ES_NO_MEMORY, "no memory for the GPU's record");
    cuda->base.ops = &cuda_ops;
    const es_status status = build(cuda, options);
    if (status != ES_OK) {
        close_cuda(&cuda->base);
        return status;
    }
    *device = &cuda->base;
    return ES_OK;
}

extern "C" __attribute__((visibility("default"))) const es_cuda_api *es_cuda_get_api(const es_cuda_host *host)
{
    static const es_cuda_api api = {sizeof(es_op),      sizeof(es_device_options), sizeof(es_batch),    ES_VERSION,
                                    look,               limits,                    open_cuda,           es_cuda_stats_open,
                                    es_cuda_stats_run,  es_cuda_stats_close};
    host_calls = *host;
    return &api;
}
