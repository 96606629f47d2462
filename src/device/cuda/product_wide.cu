/* product_wide.cu: products of many tokens on Hopper's wgmma: the same columns in the same steps of 16 as product.cu, in one
 * chain for each segment, so the same bits (tests/cuda/product_test.cu compares them).
 *
 * A cluster of two blocks makes 256 weight rows times 192 tokens; the two share the tokens, each fetches half of them for
 * both. In a block one warp keeps STAGES steps of 64 columns on their way by tensor copies, and two warpgroups multiply, 64
 * rows each: weights come from shared memory into registers, where a lane has the same eight neighbouring columns as in the
 * other kernels; tokens are read by the instruction itself, from a shadow whose columns stand in the order that this gives
 * (es_shadow_column()). Registers hold a segment's sum and the total of the segments before it. Clusters stay for the whole
 * launch and share its tiles out evenly (product_share.h). */
#include "device/cuda/device.cuh"
#include "device/cuda/product.cuh"
#include "device/cuda/product_share.h"
#include "device/cuda/wgmma.cuh"

static constexpr int STEP = 64, STAGES = 5, TOKENS = 192, HALF_ROWS = 64, CLUSTER = 2, GROUPS = 2;
static constexpr int THREADS = (GROUPS + 1) * 128, WARPS = GROUPS * 4, VALUES = TOKENS / 2;
/* Weights of a step: two boxes of 64 rows. A thread's two rows are one of each box: of a SwiGLU, gate and up of one row. */
static constexpr int BOX_BYTES = HALF_ROWS * STEP * 2, TOKEN_BYTES = TOKENS * STEP * 2,
                     STAGE_BYTES = 2 * BOX_BYTES + TOKEN_BYTES;
static constexpr int SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + 2 * STAGES * (int)sizeof(uint64_t);

/* What becomes of the sums: they are stored, added to what is there, or are gate and up of a SwiGLU. */
enum { STORE, ADD, SWIGLU };

/* What a launch hands its kernel: products of one input, whose tiles are counted through. */
typedef struct wide {
    CUtensorMap w[ES_MATMUL_PARTS], x;
    es_cuda_part part[ES_MATMUL_PARTS];
    int32_t first[ES_MATMUL_PARTS], rows[ES_MATMUL_PARTS]; /* rows of the matrix that the map holds */
    int32_t blocks[ES_MATMUL_PARTS];                       /* of rows, a cluster's each */
    int32_t parts, token_tiles, tokens, steps, segment_steps;
    es_product_share share;
    float4 *left;   /* sums of begun tiles: [blocks of the grid][VALUES / 4][threads that multiply] */
    int32_t *there; /* [blocks of the grid][WARPS] whether a warp's part of them is there; 0 between launches */
} wide;

#if ES_HAS_WGMMA
typedef struct place {
    int part, row, token; /* a block's first row of each box, and the first token */
} place;

template <int KIND> static __device__ __forceinline__ place place_of(const wide *p, int tile, int rank)
{
    int block = tile / p->token_tiles, part = 0;
    while (block >= p->blocks[part]) block -= p->blocks[part++];
    return (place){part, (block * CLUSTER + rank) * (KIND == SWIGLU ? HALF_ROWS : 2 * HALF_ROWS),
                   tile % p->token_tiles * TOKENS};
}

typedef struct pipe {
    uint32_t data, full, empty; /* shared memory; barriers are 8 bytes apart */
    int stage;
    uint32_t parity;
} pipe;

static __device__ __forceinline__ void advance(pipe *t)
{
    if (++t->stage == STAGES) t->stage = 0, t->parity ^= 1;
}

/* One thread of the block: everything that the warpgroups will multiply, in their order. */
template <int KIND> static __device__ __forceinline__ void fetch_all(const wide *p, pipe t, int worker, int rank)
{
    es_product_item item;
    for (int i = 0; es_product_share_item(&p->share, worker, i, &item); i++) {
        const place at = place_of<KIND>(p, item.tile, rank);
        const CUtensorMap *top = &p->w[at.part], *bottom = KIND == SWIGLU ? &p->w[1] : top;
        const int last = min(item.to * p->segment_steps, p->steps), row2 = KIND == SWIGLU ? at.row : at.row + HALF_ROWS;
        for (int step = item.from * p->segment_steps; step < last; step++) {
            const uint32_t to = t.data + t.stage * STAGE_BYTES, full = t.full + 8 * t.stage;
            es_barrier_wait(t.empty + 8 * t.stage, t.parity ^ 1);
            es_barrier_expect(full, STAGE_BYTES);
            es_tensor_copy(to, top, step * STEP, at.row, full);
            es_tensor_copy(to + BOX_BYTES, bottom, step * STEP, row2, full);
            es_tensor_copy_all(to + 2 * BOX_BYTES + rank * (TOKEN_BYTES / CLUSTER), &p->x, step * STEP,
                               at.token + rank * (TOKENS / CLUSTER), full, (1 << CLUSTER) - 1);
            advance(&t);
        }
    }
}

static __device__ __forceinline__ uint4 read16(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

/* 32 columns: sums of the two instructions of 16 that the other kernels make of them. */
static __device__ __forceinline__ void multiply(float (&acc)[VALUES], const uint4 &top, const uint4 &bottom, uint64_t tokens,
                                                int add)
{
    es_wgmma_fence();
    es_wgmma_192(acc, top.x, bottom.x, top.y, bottom.y, tokens, add);
    es_wgmma_192(acc, top.z, bottom.z, top.w, bottom.w, tokens + (32 >> 4), 1);
    es_wgmma_commit();
}

/* This warp is done with a stage: both blocks may fetch over its tokens. */
static __device__ __forceinline__ void release(const pipe *t, int stage)
{
    const int lane = threadIdx.x % 32;
    if (lane < CLUSTER) es_cluster_arrive(es_cluster_place(t->empty + 8 * stage, lane));
}

/* A segment's sum. While the instructions of one half of a step run, the next half's weights come into other registers. */
static __device__ __forceinline__ void sum_segment(pipe *t, uint32_t lane_at, int steps, float (&acc)[VALUES])
{
    int before = 0;
    for (int s = 0; s < steps; s++) {
        const uint32_t data = t->data + t->stage * STAGE_BYTES;
        const uint64_t tokens = es_wgmma_rows128(data + 2 * BOX_BYTES);
        es_barrier_wait(t->full + 8 * t->stage, t->parity);
        const uint4 top = read16(data + lane_at), bottom = read16(data + BOX_BYTES + lane_at);
        multiply(acc, top, bottom, tokens, s > 0);
        es_wgmma_wait<1>();
        if (s > 0) release(t, before);
        const uint4 top2 = read16(data + (lane_at ^ 64)), bottom2 = read16(data + BOX_BYTES + (lane_at ^ 64));
        multiply(acc, top2, bottom2, tokens + (64 >> 4), 1);
        es_wgmma_wait<1>();
        before = t->stage;
        advance(t);
    }
    es_wgmma_wait<0>();
    es_wgmma_keep(acc);
    release(t, before);
}

/* --- sums that pass from one worker to the next: each warp for itself --- */

static __device__ __forceinline__ void leave_sum(const wide *p, const float (&total)[VALUES])
{
    const int thread = threadIdx.x, warp = thread / 32;
    float4 *to = p->left + (int64_t)blockIdx.x * (VALUES / 4) * (WARPS * 32) + thread;
#pragma unroll
    for (int i = 0; i < VALUES / 4; i++)
        __stcg(to + i * (WARPS * 32), make_float4(total[4 * i], total[4 * i + 1], total[4 * i + 2], total[4 * i + 3]));
    __threadfence();
    __syncwarp();
    if (thread % 32 == 0)
        asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(p->there + blockIdx.x * WARPS + warp) : "memory");
}

/* The sum of the worker in front, and this one's segment. */
static __device__ __forceinline__ void carry_on(const wide *p, float (&total)[VALUES], const float (&acc)[VALUES])
{
    const int thread = threadIdx.x, block = (int)blockIdx.x - CLUSTER;
    const float4 *from = p->left + (int64_t)block * (VALUES / 4) * (WARPS * 32) + thread;
    int32_t *there = p->there + block * WARPS + thread / 32;
    if (thread % 32 == 0) {
        int32_t is = 0;
        while (!is) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(is) : "l"(there) : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < VALUES / 4; i++) {
        const float4 v = __ldcg(from + i * (WARPS * 32));
        total[4 * i] = v.x + acc[4 * i], total[4 * i + 1] = v.y + acc[4 * i + 1];
        total[4 * i + 2] = v.z + acc[4 * i + 2], total[4 * i + 3] = v.w + acc[4 * i + 3];
    }
    __syncwarp();
    if (thread % 32 == 0) *there = 0;
}

/* --- results --- */

/* Of tile n of 8 tokens a thread has two tokens (e) of its row of the first box and of the second. Of the residual eight
 * tokens' values are on their way before the first is needed. */
template <int KIND>
static __device__ __forceinline__ void store(const wide *p, const place *at, int lane_row, const float (&total)[VALUES])
{
    const es_cuda_part *part = &p->part[at->part];
    const int token0 = at->token + threadIdx.x % 4 * 2, left = p->tokens - token0, first = p->first[at->part];
    const int row = at->row + lane_row, row2 = row + HALF_ROWS;
    const bool top = row < p->rows[at->part], bottom = KIND != SWIGLU && row2 < p->rows[at->part];
    const int64_t stride = part->out_stride;
    float *out = part->out + token0 * stride + first + row;
    const bool biased = KIND != SWIGLU && part->bias;
    const float bias = biased && top ? part->bias[first + row] : 0.0f,
                bias2 = biased && bottom ? part->bias[first + row2] : 0.0f;
#pragma unroll
    for (int n0 = 0; n0 < TOKENS / 8; n0 += 4) {
        float old[8], old2[8];
#pragma unroll
        for (int k = 0; k < 8 && KIND == ADD; k++) {
            const int token = (n0 + k / 2) * 8 + k % 2;
            old[k] = top && token < left ? out[token * stride] : 0.0f;
            old2[k] = bottom && token < left ? out[token * stride + HALF_ROWS] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int token = (n0 + k / 2) * 8 + k % 2, i = (n0 + k / 2) * 4 + k % 2;
            float a = biased ? total[i] + bias : total[i], b = biased ? total[i + 2] + bias2 : total[i + 2];
            if (KIND == ADD) a = old[k] + a, b = old2[k] + b;
            if (KIND == SWIGLU) a = es_silu(a) * b;
            if (top && token < left && part->out) out[token * stride] = a;
            if (bottom && token < left) out[token * stride + HALF_ROWS] = b;
            if (KIND == SWIGLU && part->shadow.data && top && token < left)
                *es_shadow_at(part->shadow, token0 + token, first + row) = es_to_bf16(a);
        }
    }
}

/* A tile all of whose rows there are, of whole eights of tokens, without a bias: most are. */
template <int KIND> static __device__ __forceinline__ bool is_whole(const wide *p, const place *at)
{
    return at->row + (KIND == SWIGLU ? HALF_ROWS : 2 * HALF_ROWS) <= p->rows[at->part] && p->tokens % 8 == 0 &&
           (KIND == SWIGLU || !p->part[at->part].bias);
}

/* Memory adds to what is there: the same sum as of a number that was read, and nobody waits for it. */
static __device__ __forceinline__ void add_to(float *at, float value)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
}

/* The same results of such a tile, with a few instructions each. */
template <int KIND>
static __device__ __forceinline__ void store_whole(const wide *p, const place *at, int lane_row, const float (&total)[VALUES])
{
    const es_cuda_part *part = &p->part[at->part];
    const int eights = min(TOKENS, p->tokens - at->token) / 8, row = p->first[at->part] + at->row + lane_row;
    const int64_t token0 = at->token + threadIdx.x % 4 * 2, stride = part->out_stride, dark = part->shadow.stride;
    float *out = part->out + token0 * stride + row;
    const bool keeps = part->out != NULL, shades = KIND == SWIGLU && part->shadow.data != NULL;
    uint16_t *shadow = shades ? es_shadow_at(part->shadow, token0, row) : NULL;
#pragma unroll
    for (int n0 = 0; n0 < TOKENS / 8; n0 += 4) {
        float gate[8];
#pragma unroll
        for (int k = 0; k < 8 && KIND == SWIGLU; k++) gate[k] = total[(n0 + k / 2) * 4 + k % 2];
        if (KIND == SWIGLU) es_silu_all(gate);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if (n0 + n >= eights) return;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int i = (n0 + n) * 4 + e;
                const float a = KIND == SWIGLU ? gate[n * 2 + e] * total[i + 2] : total[i], b = total[i + 2];
                if (KIND == ADD) add_to(out + e * stride, a), add_to(out + e * stride + HALF_ROWS, b);
                if (KIND == STORE || (KIND == SWIGLU && keeps)) out[e * stride] = a;
                if (KIND == STORE) out[e * stride + HALF_ROWS] = b;
                if (shades) shadow[e * dark] = es_to_bf16(a);
            }
            out += 8 * stride;
            if (shades) shadow += 8 * dark;
        }
    }
}

template <int KIND> static __device__ __forceinline__ void multiply_all(const wide *p, pipe t, int worker, int rank)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    /* Of eight rows that lie side by side a lane takes one so that eight lanes, which read at once, meet all banks. */
    const int g = lane / 8 | lane / 4 % 2 * 4, row = warp * 8 + g;
    const uint32_t lane_at = row * (STEP * 2) + (lane % 4 ^ g) * 16;
    float acc[VALUES], total[VALUES];
    es_product_item item;
    for (int i = 0; es_product_share_item(&p->share, worker, i, &item); i++) {
        int s = item.from;
        sum_segment(&t, lane_at, min(p->segment_steps, p->steps - s * p->segment_steps), acc);
        if (s > 0)
            carry_on(p, total, acc);
        else
#pragma unroll
            for (int k = 0; k < VALUES; k++) total[k] = acc[k];
        while (++s < item.to) {
            sum_segment(&t, lane_at, min(p->segment_steps, p->steps - s * p->segment_steps), acc);
#pragma unroll
            for (int k = 0; k < VALUES; k++) total[k] = total[k] + acc[k];
        }
        if (item.to < p->share.segments) {
            leave_sum(p, total);
            continue;
        }
        const place at = place_of<KIND>(p, item.tile, rank);
        if (is_whole<KIND>(p, &at))
            store_whole<KIND>(p, &at, row, total);
        else
            store<KIND>(p, &at, row, total);
    }
}
#endif

template <int KIND>
static __global__ void ES_CLUSTER(CLUSTER) __launch_bounds__(THREADS, 1) wide_kernel(const __grid_constant__ wide p)
{
#if ES_HAS_WGMMA
    extern __shared__ unsigned char shared[];
    const int rank = (int)es_cluster_rank(), worker = blockIdx.x / CLUSTER;
    pipe t;
    t.data = (es_shared(shared) + 1023) / 1024 * 1024;
    t.full = t.data + STAGES * STAGE_BYTES;
    t.empty = t.full + STAGES * 8;
    t.stage = 0;
    t.parity = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            es_barrier_init(t.full + 8 * i, 1);
            es_barrier_init(t.empty + 8 * i, CLUSTER * WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    es_cluster_meet();
    es_take_turn();
    if (threadIdx.x >= GROUPS * 128) {
        es_registers_fewer<24>();
        if (threadIdx.x == GROUPS * 128) fetch_all<KIND>(&p, t, worker, rank);
    } else {
        es_registers_more<240>();
        multiply_all<KIND>(&p, t, worker, rank);
    }
    __syncwarp();
    es_cluster_meet(); /* nobody leaves while the other block may still write to it */
#endif
}

/* --- launching --- */

static es_tensor_encode encode_map; /* NULL: this card or its driver has no such copies */
static int most_clusters, all_clusters;

/* Rows of bfloat16 in boxes of 64 columns, swizzled; what lies past them reads as zero. */
static es_status map_rows(CUtensorMap *map, const uint16_t *data, int64_t stride, int columns, int rows, int box)
{
    const cuuint64_t size[] = {(cuuint64_t)columns, (cuuint64_t)rows}, pitch[] = {(cuuint64_t)stride * sizeof(uint16_t)};
    const cuuint32_t boxes[] = {STEP, (cuuint32_t)box}, ones[] = {1, 1};
    const CUresult r = encode_map(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)data, size, pitch, boxes, ones,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS) return ES_OK;
    return es_cuda_fail(ES_INTERNAL, "GPU: no tensor map of %d rows of %d columns, %lld apart (error %d)", rows, columns,
                        (long long)stride, (int)r);
}

template <int KIND> static es_status allow(void)
{
    return es_cuda_check(
        cudaFuncSetAttribute((const void *)wide_kernel<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES),
        "shared memory for products");
}

es_status es_cuda_product_wide_setup(const es_cuda_gpu *gpu, bool *there)
{
    *there = false;
    if (!es_cuda_is_hopper(gpu)) return ES_OK;
    const es_tensor_encode encoder = es_tensor_encoder();
    if (!encoder) return ES_OK;
    ES_TRY(allow<STORE>());
    ES_TRY(allow<ADD>());
    ES_TRY(allow<SWIGLU>());
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(gpu->multiprocessors / CLUSTER * CLUSTER));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SHARED_BYTES;
    config.attrs = &cluster;
    config.numAttrs = 1;
    ES_TRY(es_cuda_check(cudaOccupancyMaxActiveClusters(&most_clusters, wide_kernel<STORE>, &config), "clusters of products"));
    if (most_clusters < 1) return ES_OK;
    all_clusters = most_clusters;
    encode_map = encoder;
    *there = true;
    return ES_OK;
}

size_t es_cuda_product_wide_room(void)
{
    return (size_t)all_clusters * CLUSTER * WARPS * (32 * VALUES * sizeof(float) + sizeof(int32_t));
}

void es_cuda_product_wide_limit(int clusters)
{
    most_clusters = clusters && clusters < all_clusters ? clusters : all_clusters;
}

static es_status launch(cudaStream_t stream, wide *w, int kind)
{
    if (!w->parts) return ES_OK;
    int tiles = 0;
    for (int i = 0; i < w->parts; i++) tiles += w->blocks[i] * w->token_tiles;
    w->share = es_product_share_plan(tiles, (w->steps + w->segment_steps - 1) / w->segment_steps, most_clusters);
    es_launch(stream, dim3((unsigned)(w->share.workers * CLUSTER)), THREADS, SHARED_BYTES,
              kind == STORE ? wide_kernel<STORE>
              : kind == ADD ? wide_kernel<ADD>
                            : wide_kernel<SWIGLU>,
              *w);
    w->parts = 0;
    return ES_OK;
}

/* Rows [first, first + rows) of a part join the launch: they lie at `data`, and up of a SwiGLU at `up`. */
static es_status join(wide *w, const es_cuda_part *part, int first, int rows, const uint16_t *data, const uint16_t *up,
                      int64_t stride)
{
    const int i = w->parts++, per_block = CLUSTER * (up ? HALF_ROWS : 2 * HALF_ROWS), columns = w->steps * STEP;
    w->part[i] = *part;
    w->first[i] = first, w->rows[i] = rows;
    w->blocks[i] = (rows + per_block - 1) / per_block;
    ES_TRY(map_rows(&w->w[i], data, stride, columns, rows, HALF_ROWS));
    return up ? map_rows(&w->w[i + 1], up, stride, columns, rows, HALF_ROWS) : ES_OK;
}

/* Parts of one kind go together, as many rows as there is room for decoded ones. */
es_status es_cuda_product_wide(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, uint16_t *room,
                               size_t room_bytes, void *sums)
{
    const int padded = (int)p->x16_stride, matrices = p->swiglu ? 2 : 1, last = first + (p->swiglu ? 1 : parts);
    const int most = (int)(room_bytes / ((size_t)padded * sizeof(uint16_t)) / (2 * HALF_ROWS) * (2 * HALF_ROWS));
    wide w = {};
    int kind = STORE, used = 0;
    w.tokens = p->tokens;
    w.steps = padded / STEP;
    w.segment_steps = segment_of(padded) / STEP;
    w.token_tiles = (p->tokens + TOKENS - 1) / TOKENS;
    w.left = (float4 *)sums;
    w.there = (int32_t *)(void *)((float *)sums + (size_t)all_clusters * CLUSTER * WARPS * 32 * VALUES);
    ES_TRY(map_rows(&w.x, p->x16, p->x16_stride, padded, p->tokens, TOKENS / CLUSTER));
    for (int32_t i = first; i < last; i++) {
        const es_cuda_part *part = &p->part[i];
        const es_cuda_matrix *m = &part->w;
        const int wants = p->swiglu ? SWIGLU : part->accumulate ? ADD : STORE;
        const bool direct = m->fast && m->type == ES_BF16;
        if (wants != kind) ES_TRY(launch(stream, &w, kind));
        kind = wants;
        for (int row = 0, rows; row < m->rows; row += rows) {
            if (w.parts == ES_MATMUL_PARTS || (!direct && used + 2 * HALF_ROWS * matrices > most) || (p->swiglu && w.parts)) {
                ES_TRY(launch(stream, &w, kind));
                used = 0;
            }
            rows = m->rows - row;
            if (direct) {
                ES_TRY(join(&w, part, 0, rows, (const uint16_t *)(const void *)m->data,
                            p->swiglu ? (const uint16_t *)(const void *)p->part[i + 1].w.data : NULL, m->row_bytes / 2));
                continue;
            }
            if (rows > (most - used) / matrices) rows = (most - used) / matrices / (2 * HALF_ROWS) * (2 * HALF_ROWS);
            uint16_t *to = room + (int64_t)used * padded, *up = p->swiglu ? to + (int64_t)rows * padded : NULL;
            es_cuda_panel(stream, m, row, rows, p->columns, padded, to);
            if (up) es_cuda_panel(stream, &p->part[i + 1].w, row, rows, p->columns, padded, up);
            used += rows * matrices;
            ES_TRY(join(&w, part, row, rows, to, up, padded));
        }
    }
    return launch(stream, &w, kind);
}
