/* moe.cu: mixture of experts: who is chosen, which rows go to whom, and the sum in order of rank. No atomics: counts and
 * places come from ballots in a fixed order. */
#include "device/cuda/moe.cuh"

enum { ROUTE_THREADS = 128, MOST_EXPERTS = 1024, GROUP_THREADS = 1024, COMBINE_THREADS = 256 };

/* Softmax over all experts, then the `used` likeliest. One group of lanes chooses; all sum. */
static __global__ void __launch_bounds__(ROUTE_THREADS)
    route_kernel(const float *logits, int experts, int used, bool renormalise, float scale, int *ids, float *weights)
{
    es_take_turn();
    __shared__ float p[MOST_EXPERTS], room[ROUTE_THREADS / ES_GROUP], chosen[64];
    const int64_t row = blockIdx.x;
    const int lane = threadIdx.x % ES_GROUP;
    float most = -INFINITY;
    for (int e = threadIdx.x; e < experts; e += ROUTE_THREADS) most = fmaxf(most, p[e] = logits[row * experts + e]);
    most = es_group_max(most);
    if (lane == 0) room[threadIdx.x / ES_GROUP] = most;
    __syncthreads();
    for (int g = 0; g < ROUTE_THREADS / ES_GROUP; g++) most = fmaxf(most, room[g]);
    float sum = 0;
    for (int e = threadIdx.x; e < experts; e += ROUTE_THREADS) sum = sum + (p[e] = es_exp(p[e] - most));
    sum = es_block_sum(sum, room);
    if (threadIdx.x >= ES_WARP) return; /* of a warp of 64 the upper group does the same again, in step */
    float total = 0;
    for (int rank = 0; rank < used; rank++) {
        int best_e;
        const float best = es_moe_likeliest(p, experts, lane, &best_e);
        const float weight = (best > 0 ? best : 0.0f) / sum;
        if (threadIdx.x == 0) ids[row * used + rank] = best_e, chosen[rank] = weight;
        if (best_e % ES_GROUP == lane) p[best_e] = -2.0f;
        total = total + weight;
    }
    __syncwarp();
    for (int rank = lane; rank < used; rank += ES_GROUP)
        weights[row * used + rank] = (renormalise ? chosen[rank] / total : chosen[rank]) * scale;
}

void es_cuda_moe_route(cudaStream_t stream, int32_t rows, const es_op_moe_route *op)
{
    es_launch(stream, dim3((unsigned)(rows)), ROUTE_THREADS, 0, route_kernel, es_cuda_floats(op->logits), op->experts,
              op->used, op->renormalise, op->scale, (int *)(void *)es_cuda_floats(op->ids), es_cuda_floats(op->weights));
}

/* Entries by expert, in order: each group of lanes takes a contiguous share of the entries, in steps of 32. First it counts
 * its share for each expert, then, knowing what all shares before hold, it places them. Lanes of one expert find each other by
 * a match and stand in lane order: no atomics, one order. The tiles that the products walk follow from the starts. */
static __global__ void __launch_bounds__(GROUP_THREADS)
    group_kernel(const int *ids, int entries, int experts, int width, int *starts, int *order, int *tile_expert,
                 int *tile_first, int *tile_count, int *tiles)
{
    extern __shared__ uint16_t counts[]; /* [groups][experts] */
    __shared__ int room[GROUP_THREADS / ES_GROUP];
    const int group = threadIdx.x / ES_GROUP, lane = threadIdx.x % ES_GROUP, groups = GROUP_THREADS / ES_GROUP;
    const int share = ((entries + groups - 1) / groups + ES_GROUP - 1) / ES_GROUP * ES_GROUP;
    es_lead();
    for (int i = threadIdx.x; i < groups * experts; i += GROUP_THREADS) counts[i] = 0;
    __syncthreads();
    es_follow();
    uint16_t *own = counts + group * experts;
    int place = 0; /* of thread e: where expert e's entries start */
    for (int pass = 0; pass < 2; pass++) {
        for (int step = 0; step < share; step += ES_GROUP) { /* as often for every group: they may share a warp */
            const int i = group * share + step + lane, id = i < entries ? ids[i] : experts;
            /* Of a warp of 64, only lanes of the same group are alike. */
            const uint64_t alike = __match_any_sync(ES_ALL_LANES, es_lane_key(id, group));
            const unsigned who = es_lane_slice(alike, (int)threadIdx.x, ES_WARP);
            const int rank = es_lane_rank(who, lane);
            const int before = id < experts ? own[id] : 0;
            if (pass == 1 && id < experts) order[starts[id] + before + rank] = i;
            __syncwarp();
            if (id < experts && rank == 0) own[id] = (uint16_t)(before + __popc(who));
            __syncwarp();
        }
        __syncthreads();
        if (pass == 1) break;
        /* Thread e: shares before each share, and in all. */
        int all = 0;
        for (int g = 0; g < groups && (int)threadIdx.x < experts; g++) {
            const int count = counts[g * experts + threadIdx.x];
            counts[g * experts + threadIdx.x] = (uint16_t)all;
            all += count;
        }
        const int some = (all + width - 1) / width, tile = es_moe_before(some, room);
        place = es_moe_before(all, room);
        if ((int)threadIdx.x < experts) starts[threadIdx.x] = place;
        if ((int)threadIdx.x == experts - 1) starts[experts] = place + all, *tiles = tile + some;
        for (int k = 0; k < some; k++) {
            tile_expert[tile + k] = threadIdx.x;
            tile_first[tile + k] = place + k * width;
            tile_count[tile + k] = min(width, all - k * width);
        }
        __syncthreads();
    }
}

static size_t group_bytes(int32_t experts)
{
    return (size_t)(GROUP_THREADS / ES_GROUP) * (size_t)experts * sizeof(uint16_t);
}

es_status es_cuda_moe_setup(void)
{
    return es_cuda_check(cudaFuncSetAttribute((const void *)group_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)group_bytes(MOST_EXPERTS)),
                         "shared memory for experts");
}

/* Entries that a block of the products takes at once: few, until most experts have many. Changes no bit. */
int32_t es_cuda_expert_width(int32_t rows, int32_t used, int32_t experts)
{
    return rows * used >= 12 * experts ? ES_CUDA_EXPERT_MANY : ES_CUDA_EXPERT_TOKENS;
}

void es_cuda_moe_group(cudaStream_t stream, int32_t rows, const es_op_moe_group *op, const es_cuda *cuda)
{
    es_launch(stream, dim3(1), GROUP_THREADS, group_bytes(op->experts), group_kernel,
              (const int *)(const void *)es_cuda_floats(op->ids), rows * op->used, op->experts,
              es_cuda_expert_width(rows, op->used, op->experts), (int *)(void *)es_cuda_floats(op->starts),
              (int *)(void *)es_cuda_floats(op->order), cuda->tile_expert, cuda->tile_first, cuda->tile_count, cuda->tiles);
}

static __global__ void combine_kernel(const float *y, const float *weights, int used, int width, const float *shared,
                                      const float *gate, float *x)
{
    es_take_turn();
    const int64_t row = blockIdx.x;
    const int i = blockIdx.y * COMBINE_THREADS + threadIdx.x;
    if (i >= width) return;
    float sum = x[row * width + i];
    for (int rank = 0; rank < used; rank++) {
        const int64_t entry = row * used + rank;
        sum = fmaf(weights[entry], y[entry * width + i], sum);
    }
    if (shared) sum = fmaf(gate ? es_sigmoid(gate[row]) : 1.0f, shared[row * width + i], sum);
    x[row * width + i] = sum;
}

void es_cuda_moe_combine(cudaStream_t stream, int32_t rows, const es_op_moe_combine *op)
{
    const dim3 grid((unsigned)rows, (unsigned)((op->width + COMBINE_THREADS - 1) / COMBINE_THREADS));
    es_launch(stream, grid, COMBINE_THREADS, 0, combine_kernel, es_cuda_floats(op->y), es_cuda_floats(op->weights), op->used,
              op->width, es_cuda_floats(op->shared), es_cuda_floats(op->shared_gate), es_cuda_floats(op->x));
}

/* The same and the norm that follows it, a block for each row: of whole groups of four, summed as rmsnorm4_kernel does. */
enum { NORM_THREADS = 512, NORM_PIECES = 4 };
typedef struct sum_and_norm {
    const float *y, *weights, *shared, *gate, *norm;
    float *x, *out;
    es_cuda_shade shadow;
    int used, width;
    float eps;
} sum_and_norm;

static __device__ __forceinline__ float4 add_weighed(float4 sum, float weight, const float *y, int i)
{
    const float4 v = ((const float4 *)(const void *)y)[i];
    return make_float4(fmaf(weight, v.x, sum.x), fmaf(weight, v.y, sum.y), fmaf(weight, v.z, sum.z), fmaf(weight, v.w, sum.w));
}

static __global__ void __launch_bounds__(NORM_THREADS) combine_norm_kernel(sum_and_norm a)
{
    __shared__ float room[NORM_THREADS / ES_GROUP];
    float4 v[NORM_PIECES], g[NORM_PIECES];
    const int64_t row = blockIdx.x;
    es_lead();
#pragma unroll
    for (int k = 0; k < NORM_PIECES; k++) {
        const int i = threadIdx.x + k * NORM_THREADS;
        if (4 * i < a.width) g[k] = ((const float4 *)(const void *)a.norm)[i];
    }
    es_follow();
    const float shared = a.shared && a.gate ? es_sigmoid(a.gate[row]) : 1.0f;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < NORM_PIECES; k++) {
        const int i = threadIdx.x + k * NORM_THREADS;
        v[k] = make_float4(0, 0, 0, 0);
        if (4 * i < a.width) {
            float4 *x = (float4 *)(void *)(a.x + row * a.width) + i;
            v[k] = *x;
#pragma unroll 8
            for (int rank = 0; rank < a.used; rank++) {
                const int64_t entry = row * a.used + rank;
                v[k] = add_weighed(v[k], a.weights[entry], a.y + entry * a.width, i);
            }
            if (a.shared) v[k] = add_weighed(v[k], shared, a.shared + row * a.width, i);
            *x = v[k];
        }
        sum = fmaf(v[k].x, v[k].x, sum), sum = fmaf(v[k].y, v[k].y, sum);
        sum = fmaf(v[k].z, v[k].z, sum), sum = fmaf(v[k].w, v[k].w, sum);
    }
    const float scale = 1.0f / sqrtf(es_block_sum(sum, room) / (float)a.width + a.eps);
#pragma unroll
    for (int k = 0; k < NORM_PIECES; k++) {
        const int i = threadIdx.x + k * NORM_THREADS;
        if (4 * i >= a.width) break;
        const float4 value = make_float4((v[k].x * scale) * g[k].x, (v[k].y * scale) * g[k].y, (v[k].z * scale) * g[k].z,
                                         (v[k].w * scale) * g[k].w);
        ((float4 *)(void *)(a.out + row * a.width))[i] = value;
        if (a.shadow.data) es_shadow_put4(a.shadow, row, 4 * i, value);
    }
}

bool es_cuda_moe_can_norm(const es_op_rmsnorm *norm)
{
    return norm->width % 4 == 0 && norm->width <= 4 * NORM_PIECES * NORM_THREADS;
}

void es_cuda_moe_combine_norm(cudaStream_t stream, int32_t rows, const es_op_moe_combine *op, const es_op_rmsnorm *norm,
                              es_cuda_shade shadow)
{
    const sum_and_norm a = {es_cuda_floats(op->y),
                            es_cuda_floats(op->weights),
                            es_cuda_floats(op->shared),
                            es_cuda_floats(op->shared_gate),
                            es_cuda_floats(norm->weight),
                            es_cuda_floats(op->x),
                            es_cuda_floats(norm->out),
                            shadow,
                            op->used,
                            op->width,
                            norm->eps};
    es_launch(stream, dim3((unsigned)rows), NORM_THREADS, 0, combine_norm_kernel, a);
}
