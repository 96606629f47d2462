/* moe_few.cu: the way to the experts for a few tokens in one launch: norm, router, choice and grouping.
 *
 * Each block norms the tokens for itself (they lie in the cache) and multiplies two rows of the router, whose weights were on
 * their way while the kernel in front drained. The block that comes last chooses and groups for all. Every sum has the order
 * that it has in the launches of many tokens (rows.cu, product.cu, moe.cu), so the bits are the same. */
#include "device/cuda/moe.cuh"

enum {
    THREADS = 512, /* as the norm's: its sum runs over them */
    GROUPS = THREADS / ES_GROUP,
    ROWS = 2,                  /* of the router, in a block */
    TOKENS = ES_CUDA_FEW,      /* a group of lanes for each row and token */
    PIECES = 4,                /* groups of four of a thread in the norm: up to 8,192 columns */
    AHEAD = 16,                /* groups of four of a lane that are fetched before their turn: 2,048 columns */
    TEAM = 128,                /* threads that choose for one token, as route_kernel's */
    TEAMS = THREADS / TEAM,
    EXPERTS = ES_CUDA_FEW_EXPERTS,
    USED = 64,
};
static_assert(GROUPS == ROWS * TOKENS, "a group for each row and token");
static_assert(EXPERTS <= THREADS, "a thread for each expert");

typedef struct way {
    const float *x, *norm;
    float *h;
    es_cuda_shade shadow;
    int width, tokens;
    float eps;
    es_cuda_part part[2];
    int parts, all_rows;
    const float *logits;
    int experts, used;
    bool renormalise;
    float scale;
    int *ids;
    float *weights;
    int *starts, *order, *tile_expert, *tile_first, *tile_count, *tiles;
    unsigned *arrived; /* 0 between launches */
} way;

/* What the last block works with. */
typedef struct choosing {
    float p[TEAMS][EXPERTS], room[GROUPS], chosen[TEAMS][USED];
    int ids[TOKENS * USED], place[EXPERTS], sums[GROUPS];
} choosing;

/* A token's norm, into shared memory; the first block writes it for everybody. */
static __device__ __forceinline__ void norm_token(const way *a, int t, const float4 *g, float *room, float *normed)
{
    const float4 *from = (const float4 *)(const void *)(a->x + (int64_t)t * a->width);
    float4 v[PIECES];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int i = threadIdx.x + k * THREADS;
        v[k] = make_float4(0, 0, 0, 0);
        if (4 * i < a->width) v[k] = from[i];
        sum = fmaf(v[k].x, v[k].x, sum), sum = fmaf(v[k].y, v[k].y, sum);
        sum = fmaf(v[k].z, v[k].z, sum), sum = fmaf(v[k].w, v[k].w, sum);
    }
    const float scale = 1.0f / sqrtf(es_block_sum(sum, room) / (float)a->width + a->eps);
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int i = threadIdx.x + k * THREADS;
        if (4 * i >= a->width) break;
        const float4 value = make_float4((v[k].x * scale) * g[k].x, (v[k].y * scale) * g[k].y, (v[k].z * scale) * g[k].z,
                                         (v[k].w * scale) * g[k].w);
        ((float4 *)(void *)(normed + (int64_t)t * a->width))[i] = value;
        if (blockIdx.x != 0) continue;
        ((float4 *)(void *)(a->h + (int64_t)t * a->width))[i] = value;
        if (a->shadow.data) es_shadow_put4(a->shadow, t, 4 * i, value);
    }
}

static __device__ __forceinline__ void dot_four(float4 a, float4 b, float *sum)
{
    *sum = fmaf(a.x, b.x, *sum), *sum = fmaf(a.y, b.y, *sum);
    *sum = fmaf(a.z, b.z, *sum), *sum = fmaf(a.w, b.w, *sum);
}

/* The `used` likeliest of a team's token: route_kernel's way. Of a warp of 64 the upper group does the same again, in step. */
static __device__ void choose(const way *a, choosing *c, int team, int t, float sum)
{
    const int lane = threadIdx.x % ES_GROUP;
    float *p = c->p[team], total = 0;
    for (int rank = 0; rank < a->used; rank++) {
        int best_e;
        const float best = es_moe_likeliest(p, a->experts, lane, &best_e);
        const float weight = (best > 0 ? best : 0.0f) / sum;
        if (threadIdx.x % TEAM == 0) c->ids[t * a->used + rank] = best_e, c->chosen[team][rank] = weight;
        if (best_e % ES_GROUP == lane) p[best_e] = -2.0f;
        total = total + weight;
        __syncwarp();
    }
    for (int rank = lane; rank < a->used; rank += ES_GROUP)
        a->weights[t * a->used + rank] = (a->renormalise ? c->chosen[team][rank] / total : c->chosen[team][rank]) * a->scale;
}

/* Softmax over all experts and the choice, a team of threads for each token. */
static __device__ void route(const way *a, choosing *c)
{
    const int team = threadIdx.x / TEAM, own = threadIdx.x % TEAM, lane = threadIdx.x % ES_GROUP;
    const int group = threadIdx.x / ES_GROUP, groups = TEAM / ES_GROUP;
    for (int base = 0; base < a->tokens; base += TEAMS) {
        const int t = base + team;
        float *p = c->p[team], most = -INFINITY, sum = 0;
        for (int e = own; t < a->tokens && e < a->experts; e += TEAM)
            most = fmaxf(most, p[e] = __ldcg(&a->logits[(int64_t)t * a->experts + e]));
        most = es_group_max(most);
        if (lane == 0) c->room[group] = most;
        __syncthreads();
        for (int g = 0; g < groups; g++) most = fmaxf(most, c->room[team * groups + g]);
        for (int e = own; t < a->tokens && e < a->experts; e += TEAM) sum = sum + (p[e] = es_exp(p[e] - most));
        sum = es_group_sum(sum);
        __syncthreads();
        if (lane == 0) c->room[group] = sum;
        __syncthreads();
        sum = c->room[team * groups];
        for (int g = 1; g < groups; g++) sum = sum + c->room[team * groups + g];
        if (own < ES_WARP && t < a->tokens) choose(a, c, team, t, sum);
        __syncthreads();
    }
}

/* Entries by expert, in order, and the tiles that the products walk: group_kernel's, of a few entries. */
static __device__ void group_entries(const way *a, choosing *c)
{
    const int entries = a->tokens * a->used, e = threadIdx.x, width = ES_CUDA_EXPERT_TOKENS;
    int all = 0;
    for (int i = 0; e < a->experts && i < entries; i++) all += c->ids[i] == e;
    const int some = (all + width - 1) / width, tile = es_moe_before(some, c->sums), place = es_moe_before(all, c->sums);
    if (e < a->experts) a->starts[e] = c->place[e] = place;
    if (e == a->experts - 1) a->starts[a->experts] = place + all, *a->tiles = tile + some;
    for (int k = 0; k < some; k++) {
        a->tile_expert[tile + k] = e;
        a->tile_first[tile + k] = place + k * width;
        a->tile_count[tile + k] = min(width, all - k * width);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < entries; i += THREADS) {
        const int id = c->ids[i];
        int rank = 0;
        for (int j = 0; j < i; j++) rank += c->ids[j] == id;
        a->order[c->place[id] + rank] = i;
        a->ids[i] = id;
    }
}

static __global__ void __launch_bounds__(THREADS) way_kernel(const __grid_constant__ way a)
{
    extern __shared__ __align__(16) float normed[]; /* [tokens][width] */
    __shared__ choosing c;
    __shared__ bool last;
    const int group = threadIdx.x / ES_GROUP, lane = threadIdx.x % ES_GROUP, t = group / ROWS;
    int r = blockIdx.x * ROWS + group % ROWS, which = 0;
    const bool works = t < a.tokens && r < a.all_rows;
    es_lead();
    while (works && r >= a.part[which].w.rows) r -= a.part[which++].w.rows;
    const es_cuda_part *part = &a.part[which];
    const float4 *row = (const float4 *)(const void *)(part->w.data + r * part->w.row_bytes);
    const float4 *norm = (const float4 *)(const void *)a.norm;
    float4 w[AHEAD], g[PIECES];
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        if (works && 4 * (lane + k * ES_GROUP) < a.width) w[k] = row[lane + k * ES_GROUP];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        if (4 * ((int)threadIdx.x + k * THREADS) < a.width) g[k] = norm[threadIdx.x + k * THREADS];
    es_follow();
    for (int i = 0; i < a.tokens; i++) norm_token(&a, i, g, c.room, normed);
    __syncthreads();
    if (works) {
        const float4 *x = (const float4 *)(const void *)(normed + (int64_t)t * a.width);
        float sum = 0;
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (4 * (lane + k * ES_GROUP) < a.width) dot_four(w[k], x[lane + k * ES_GROUP], &sum);
        for (int i = lane + AHEAD * ES_GROUP; 4 * i < a.width; i += ES_GROUP) dot_four(row[i], x[i], &sum);
        sum = es_group_sum(sum);
        if (lane == 0) part->out[(int64_t)t * part->out_stride + r] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(a.arrived, 1u) == gridDim.x - 1; /* decides who, not what */
        if (last) *a.arrived = 0;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    route(&a, &c);
    group_entries(&a, &c);
}

bool es_cuda_moe_few_fits(const es_op_rmsnorm *norm, const es_op_moe_route *route)
{
    return norm->width % 4 == 0 && norm->width <= 4 * PIECES * THREADS && route->experts <= EXPERTS && route->used <= USED;
}

size_t es_cuda_moe_few_shared(int32_t rows, int32_t width)
{
    return (size_t)rows * (size_t)width * sizeof(float);
}

es_status es_cuda_moe_few_setup(size_t limit, size_t *room)
{
    const size_t most = 96 << 10, left = limit > sizeof(choosing) + 1024 ? limit - sizeof(choosing) - 1024 : 0;
    *room = left < most ? left : most;
    return es_cuda_check(
        cudaFuncSetAttribute((const void *)way_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)*room),
        "shared memory for experts");
}

void es_cuda_moe_few(cudaStream_t stream, int32_t rows, const es_op_rmsnorm *norm, const es_cuda_product *p,
                     const es_op_moe_route *route, const es_op_moe_group *op, const es_cuda *cuda,
                     es_cuda_shade shadow, void *room)
{
    way a = {.x = es_cuda_floats(norm->x),
             .norm = es_cuda_floats(norm->weight),
             .h = es_cuda_floats(norm->out),
             .shadow = shadow,
             .width = norm->width,
             .tokens = rows,
             .eps = norm->eps,
             .parts = p->parts,
             .logits = es_cuda_floats(route->logits),
             .experts = route->experts,
             .used = route->used,
             .renormalise = route->renormalise,
             .scale = route->scale,
             .ids = (int *)(void *)es_cuda_floats(route->ids),
             .weights = es_cuda_floats(route->weights),
             .starts = (int *)(void *)es_cuda_floats(op->starts),
             .order = (int *)(void *)es_cuda_floats(op->order),
             .tile_expert = cuda->tile_expert,
             .tile_first = cuda->tile_first,
             .tile_count = cuda->tile_count,
             .tiles = cuda->tiles,
             .arrived = (unsigned *)room};
    for (int i = 0; i < p->parts; i++) a.part[i] = p->part[i], a.all_rows += p->part[i].w.rows;
    es_launch(stream, dim3((unsigned)((a.all_rows + ROWS - 1) / ROWS)), THREADS, es_cuda_moe_few_shared(rows, norm->width),
              way_kernel, a);
}
