/* attn_decode.cu: which kernel serves which shape on which card, and the launches. */
#include <cuda_runtime.h>

#include "device/cuda/attn_plain.cuh"
#include "device/cuda/attn_wide.cuh"

/* One tuned kernel. */
typedef struct es_attn_row {
    int head_dim, row_tile;
    bool bulk, loose;
    int threads, tile, extra, node;
    const void *kernel; /* takes es_attn_args; with ES_ATTN_WIDE_ROWS rows es_attn_wide_args */
} es_attn_row;

template <class K> static es_attn_row es_attn_row_of(void)
{
    return es_attn_row{K::D,    K::NT * 8, K::BULK, K::LOOSE,
                       K::THREADS, K::TILE,   K::EXTRA, K::NODE,  (const void *)es_attn_kernel<K>};
}

template <class W> static es_attn_row es_attn_wide_row_of(void)
{
    return es_attn_row{W::D,       ES_ATTN_WIDE_ROWS, true,     false,
                       W::THREADS, W::TILE,           W::EXTRA, W::NODE, (const void *)es_attn_wide_kernel<W>};
}

#define ES_ATTN_ROWS_OF(nt, bulk, loose)                                                                                      \
    es_attn_row_of<es_attn_kind<256, nt, 8, bulk, loose>>(), es_attn_row_of<es_attn_kind<128, nt, 8, bulk, loose>>(),         \
        es_attn_row_of<es_attn_kind<64, nt, 4, bulk, loose>>()

static const es_attn_row es_attn_table[] = {
    ES_ATTN_ROWS_OF(1, true, false), ES_ATTN_ROWS_OF(1, false, false),
    ES_ATTN_ROWS_OF(4, true, false), ES_ATTN_ROWS_OF(4, false, false),
    es_attn_wide_row_of<es_attn_wide<256>>(), es_attn_wide_row_of<es_attn_wide<128>>(), es_attn_wide_row_of<es_attn_wide<64>>(),
#ifdef ES_CUDA_MEASURE /* only to measure what the same bits cost */
    ES_ATTN_ROWS_OF(1, true, true),
#endif
};
enum { ES_ATTN_KERNELS = sizeof es_attn_table / sizeof *es_attn_table };

/* What a card can do, as far as this file asks. */
typedef struct es_attn_card {
    int multiprocessors, shared, shared_all; /* of a block, of a multiprocessor */
    int code;                                /* as es_cuda_gpu has it; this file's kernels of 90 are sm_90a's */
    cudaError_t error;
} es_attn_card;

static es_attn_card es_attn_look(void)
{
    es_attn_card card = {};
    int device = 0;
    card.error = cudaGetDevice(&device);
    if (!card.error) card.error = cudaDeviceGetAttribute(&card.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (!card.error) card.error = cudaDeviceGetAttribute(&card.shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (!card.error)
        card.error = cudaDeviceGetAttribute(&card.shared_all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    cudaFuncAttributes finish = {};
    if (!card.error) card.error = cudaFuncGetAttributes(&finish, es_attn_finish_kernel);
    card.code = finish.ptxVersion;
    return card;
}

static bool es_attn_has_wide(const es_attn_card *card)
{
    return card->code >= 90 && es_tensor_encoder();
}

/* A shape's row in the table, −1 where it has none. */
static int es_attn_find(const es_cuda_attn_shape *shape, bool bulk, bool loose)
{
    for (int i = 0; i < ES_ATTN_KERNELS; i++) {
        const es_attn_row *row = &es_attn_table[i];
        if (row->head_dim == shape->head_dim && row->row_tile == shape->row_tile && row->bulk == bulk && row->loose == loose) return i;
    }
    return -1;
}

/* A partition takes four stages, so fewer never move: heads of 256 channels want 128 KiB, more than a block of most cards can have. */
enum { ES_ATTN_LEAST_STAGES = 4 };

/* Shared memory that a block cannot do without: stages, or what finishes shared items. */
static int es_attn_least_bytes(const es_attn_row *row)
{
    const int bytes = row->extra + 16 + ES_ATTN_LEAST_STAGES * (row->tile + 16);
    return bytes > es_attn_finish_bytes() ? bytes : es_attn_finish_bytes();
}

/* The plain kernel serves what this does not: few query rows and many alike, since its sums have another order. */
static bool es_attn_is_tuned(const es_cuda_attn_shape *shape, es_cuda_float type, const es_attn_card *card)
{
    const bool bulk = card->code >= 90;
    es_cuda_attn_shape many = *shape;
    many.row_tile = 32;
    const int row = es_attn_find(&many, bulk, false);
    return type == ES_CUDA_BF16 && card->code >= 80 && row >= 0 && es_attn_find(shape, bulk, false) >= 0 &&
           es_attn_least_bytes(&es_attn_table[row]) <= card->shared &&
           (shape->row_tile != ES_ATTN_WIDE_ROWS || es_attn_has_wide(card));
}

int32_t es_cuda_decode_row_tile(void)
{
    const es_attn_card card = es_attn_look();
    return !card.error && es_attn_has_wide(&card) ? ES_ATTN_WIDE_ROWS : 32;
}

int32_t es_cuda_decode_blocks(const es_cuda_attn_shape *shape, es_cuda_float cache_type)
{
    const es_attn_card card = es_attn_look();
    if (card.error) return 0;
    if (!es_attn_is_tuned(shape, cache_type, &card)) return 2 * card.multiprocessors;
    const es_attn_row *row = &es_attn_table[es_attn_find(shape, card.code >= 90, false)];
    const bool fit = 2 * (es_attn_least_bytes(row) + 1024) <= card.shared_all; /* 1 KiB of each is the driver's */
    return fit && shape->head_dim <= 128 && shape->row_tile == 8 ? 2 * card.multiprocessors : card.multiprocessors;
}

/* Heights that a block's stack and a node's place can have: of the most partitions that a sequence can be cut into, which
 * need not be the longest one. */
static int es_attn_heights(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    int heights = 1;
    for (int32_t chain = 1; chain <= ES_CUDA_ATTN_MOST_CHAIN; chain *= 2) {
        int64_t keys = (2ll * chain * ES_CUDA_ATTN_LONG - 1) / shape->kv_heads; /* with such partitions, at most */
        if (keys > limits->context || chain == ES_CUDA_ATTN_MOST_CHAIN) keys = limits->context;
        while (((int64_t)ES_CUDA_ATTN_STEP * chain << heights) < keys) heights++;
    }
    return heights + 1;
}

/* The workspace: [nodes][counters][stacks]. What is filled with ES_ATTN_NOTHING comes first. */
typedef struct es_attn_places_in {
    size_t counter, stack, bytes;
} es_attn_places_in;

static es_attn_places_in es_attn_divide_workspace(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    const size_t rows = (size_t)es_cuda_attn_nodes(shape, limits) * (size_t)shape->row_tile;
    es_attn_places_in p;
    p.counter = (rows * (size_t)es_attn_slices(shape->head_dim) * ES_ATTN_RECORD * sizeof(float) + 255) / 256 * 256;
    p.stack = p.counter + ((size_t)limits->blocks * 2 * sizeof(int32_t) + 255) / 256 * 256;
    p.bytes = p.stack + (size_t)limits->blocks * (size_t)es_attn_heights(shape, limits) *
                            (size_t)es_attn_stack_floats(shape->row_tile, shape->head_dim) * sizeof(float);
    return p;
}

size_t es_cuda_decode_workspace(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    return es_attn_divide_workspace(shape, limits).bytes;
}

/* Rows of one copy: the largest of 64, 32, 16 that divides a page. */
static int32_t es_attn_box(int32_t page)
{
    return page % 64 == 0 ? 64 : page % 32 == 0 ? 32 : 16;
}

/* Shared memory of a block: stages, then the low heights of its stack. More than 160 KiB in flight on a multiprocessor were never
 * faster. */
static const char *es_attn_divide_shared(es_cuda_decode *call, const es_attn_row *row, const es_attn_card *card)
{
    const int blocks = (call->limits.blocks - 1) / card->multiprocessors + 1; /* of a multiprocessor */
    int most = card->shared_all / blocks - 1024;
    if (most > card->shared) most = card->shared;
    const int fit = (most - row->extra - 16) / (row->tile + 16), good = 160 * 1024 / blocks / row->tile;
    int stages = call->tuning.stages > 0 ? call->tuning.stages : good > ES_ATTN_LEAST_STAGES ? good : ES_ATTN_LEAST_STAGES;
    if (stages > fit) stages = fit;
    if (stages < ES_ATTN_LEAST_STAGES) return "a block of this card has too little shared memory for four tiles of keys";
    int near = (most - row->extra - 16 - stages * (row->tile + 16)) / row->node;
    if (near > es_attn_heights(&call->shape, &call->limits)) near = es_attn_heights(&call->shape, &call->limits);
    call->tuning.stages = stages, call->near = near;
    call->shared_bytes = stages * (row->tile + 16) + near * row->node + row->extra;
    if (es_attn_finish_bytes() > call->shared_bytes) call->shared_bytes = es_attn_finish_bytes();
    return call->shared_bytes <= most ? NULL : "a block of this card has too little shared memory to finish shared items";
}

const char *es_cuda_decode_clear(const es_cuda_decode *call, struct CUstream_st *stream)
{
    const es_attn_places_in at = es_attn_divide_workspace(&call->shape, &call->limits);
    cudaError_t error = cudaMemsetAsync(call->workspace, 0xFF, at.counter, stream); /* ES_ATTN_NOTHING */
    if (!error) error = cudaMemsetAsync((char *)call->workspace + at.counter, 0, at.stack - at.counter, stream);
    return error ? cudaGetErrorString(error) : NULL;
}

const char *es_cuda_decode_setup(es_cuda_decode *call)
{
    const es_attn_card card = es_attn_look();
    if (card.error) return cudaGetErrorString(card.error);
    const es_cuda_attn_shape *shape = &call->shape;
    if (es_cuda_attn_items(shape, &call->limits) == 0) return "attention's shape is impossible: see es_cuda_attn_plan_write()";
    call->kernel = -1, call->shared_bytes = 0;
    if (es_attn_finish_bytes() > card.shared)
        return "a block of this card has too little shared memory to finish shared items";
    cudaError_t error =
        cudaFuncSetAttribute(es_attn_finish_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, es_attn_finish_bytes());
    if (error) return cudaGetErrorString(error);
    if (!es_attn_is_tuned(shape, call->cache_type, &card)) return es_attn_plain_check(call, card.shared);
    call->kernel = es_attn_find(shape, card.code >= 90 && !call->tuning.copy16, call->tuning.loose);
    if (call->kernel < 0) return "this build has no such kernel (loose merging is for measuring only)";
    const es_attn_row *row = &es_attn_table[call->kernel];
    const char *wrong = es_attn_divide_shared(call, row, &card);
    if (wrong) return wrong;
    error = cudaFuncSetAttribute(row->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, call->shared_bytes);
    return error ? cudaGetErrorString(error) : NULL;
}

static es_attn_args es_attn_arguments(const es_cuda_decode *call)
{
    const es_cuda_attn_shape *shape = &call->shape;
    const es_attn_places_in at = es_attn_divide_workspace(shape, &call->limits);
    char *workspace = (char *)call->workspace;
    es_attn_args a = {};
    a.k = call->k_cache, a.v = call->v_cache;
    a.plan = (const es_cuda_attn_plan *)call->plan, a.pages = call->pages;
    a.q = call->q, a.q_bf16 = call->q_type == ES_CUDA_BF16;
    a.gate = call->gate, a.gate_stride = call->gate_stride, a.gate_head_stride = call->gate_head_stride;
    a.out = call->out, a.out16 = call->out16;
    a.nodes = (float *)workspace;
    a.counter = (int32_t *)(workspace + at.counter), a.stack = (float *)(workspace + at.stack);
    a.query_heads = shape->query_heads, a.kv_heads = shape->kv_heads, a.group = shape->query_heads / shape->kv_heads;
    a.head_dim = shape->head_dim, a.page = shape->page, a.row_tile = shape->row_tile;
    a.heights = es_attn_heights(&call->shape, &call->limits), a.box = es_attn_box(shape->page), a.stages = call->tuning.stages,
    a.near = call->near;
    a.once = !call->tuning.keep, a.fused = call->kernel >= 0 && call->tuning.finish == ES_CUDA_DECODE_FUSED;
    return a;
}

/* Keys or values as the wide kernel fetches them. No page reaches beyond the cache, so the map need not know where it ends. */
static cudaError_t es_attn_map(CUtensorMap *map, const void *cache, const es_attn_args *a)
{
    const cuuint64_t size[] = {(cuuint64_t)a->head_dim, (cuuint64_t)INT32_MAX}, pitch[] = {(cuuint64_t)a->head_dim * 2};
    const cuuint32_t box[] = {64, (cuuint32_t)a->box}, ones[] = {1, 1};
    static es_tensor_encode encode;
    if (!encode) encode = es_tensor_encoder();
    const CUresult r = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)cache, size, pitch, box, ones,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/* `args`: what the kernel takes. */
static cudaError_t es_attn_start(const void *kernel, const void *args, int blocks, int threads, int shared, bool together,
                                 bool overlap, cudaStream_t stream)
{
    cudaLaunchAttribute attribute[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks), config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)shared, config.stream = stream, config.attrs = attribute;
    if (together) {
        attribute[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attribute[config.numAttrs++].val.cooperative = 1;
    }
    if (overlap) {
        attribute[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    void *parameter[] = {(void *)args};
    return cudaLaunchKernelExC(&config, kernel, parameter);
}

const char *es_cuda_decode_launch(const es_cuda_decode *call, struct CUstream_st *stream)
{
    const es_attn_args a = es_attn_arguments(call);
    cudaError_t error;
    if (call->kernel < 0) {
        error = es_attn_start((const void *)es_attn_plain_kernel_of(call), &a, call->limits.blocks, ES_ATTN_PLAIN_THREADS,
                              call->shared_bytes, false, call->tuning.overlap, stream);
    } else {
        const es_attn_row *row = &es_attn_table[call->kernel];
        const bool is_wide = row->row_tile == ES_ATTN_WIDE_ROWS;
        es_attn_wide_args wide = {.a = a};
        error = is_wide ? es_attn_map(&wide.k, a.k, &a) : cudaSuccess;
        if (!error && is_wide) error = es_attn_map(&wide.v, a.v, &a);
        if (!error)
            error = es_attn_start(row->kernel, is_wide ? (const void *)&wide : &a, call->limits.blocks, row->threads,
                                  call->shared_bytes, a.fused, call->tuning.overlap, stream);
    }
    if (!error && !a.fused) {
        error = es_attn_start((const void *)es_attn_finish_kernel, &a, call->limits.blocks, ES_ATTN_SECOND_THREADS,
                              es_attn_finish_bytes(), false, true, stream);
    }
    return error ? cudaGetErrorString(error) : NULL;
}
