/* product.cu: products of weights and tokens.
 *
 * Mode bf16: weights, decoded and rounded to bfloat16, are the first operand of mma.m16n8k16, tokens the second. The inner
 * dimension is cut into at most eight segments of whole 64 columns, by its length alone; a segment is one chain of
 * instructions, segments are added in order. Within a group of 32 columns a lane takes eight neighbours, which is a fixed
 * permutation of what an instruction sums. One token and 512 go through the same instructions in the same order, so company
 * and chunks change no bit.
 *
 *   few    one block: 16 weight rows, up to 8 or 32 tokens; warp w walks segment w straight from memory to registers
 *   many   one block: 128 weight rows, 128 tokens; tiles pass through shared memory (product_many.cu)
 *
 * Mode f32 (and F32 weights in mode bf16): 32 lanes of fused steps, folded in a fixed tree. */
#include "device/cuda/loaders.cuh"
#include "device/cuda/product.cuh"

/* --- float32 --- */

enum { F32_GROUPS = 8, F32_TOKENS = 8 };

/* What a block works on: dense tokens from `first` on, or entries of one expert. False: nothing. */
typedef struct task {
    const unsigned char *w;
    int first, count;
} task;

static __device__ __forceinline__ bool find_task(const es_cuda_product *p, const es_cuda_part *part, int tile, int width,
                                                 task *t)
{
    if (!p->order) {
        *t = (task){part->w.data, tile * width, min(width, p->tokens - tile * width)};
        return t->count > 0;
    }
    if (tile >= *p->tiles) return false;
    const int expert = p->tile_expert[tile];
    t->w = part->expert ? part->expert[expert] : part->w.data + (int64_t)expert * part->expert_stride;
    t->first = p->tile_first[tile];
    t->count = p->tile_count[tile];
    return true;
}

/* The input row and the output row of token i of a task. */
static __device__ __forceinline__ int64_t input_row(const es_cuda_product *p, int i)
{
    if (!p->order) return i;
    return p->gather ? p->order[i] / p->used : p->order[i];
}

static __device__ __forceinline__ int64_t output_row(const es_cuda_product *p, int i)
{
    return p->order ? p->order[i] : i;
}

/* Leaves the sums of one row and up to eight tokens in the lane that asks: lane l takes columns l, l + 32, ... */
static __device__ __forceinline__ void dot_any(const es_cuda_product *p, const es_cuda_matrix *w, const unsigned char *row,
                                               const float *const *x, float *sum)
{
    for (int c = threadIdx.x % ES_GROUP; c < p->columns; c += ES_GROUP) {
        const float value = es_decode_at(row, w->type, w->packed, w->row_bytes, c);
#pragma unroll
        for (int i = 0; i < F32_TOKENS; i++)
            if (x[i]) sum[i] = fmaf(value, x[i][c], sum[i]);
    }
}

/* Float32 weights in whole groups of four: lane l takes groups l, l + 32, ... */
static __device__ __forceinline__ void dot_fours(const es_cuda_product *p, const unsigned char *row, const float *const *x,
                                                 float *sum)
{
    const float4 *w = (const float4 *)(const void *)row;
    for (int c = threadIdx.x % ES_GROUP; 4 * c < p->columns; c += ES_GROUP) {
        const float4 a = w[c];
#pragma unroll
        for (int i = 0; i < F32_TOKENS; i++) {
            if (!x[i]) continue;
            const float4 b = ((const float4 *)(const void *)x[i])[c];
            sum[i] = fmaf(a.x, b.x, sum[i]), sum[i] = fmaf(a.y, b.y, sum[i]);
            sum[i] = fmaf(a.z, b.z, sum[i]), sum[i] = fmaf(a.w, b.w, sum[i]);
        }
    }
}

static __global__ void __launch_bounds__(F32_GROUPS *ES_GROUP) f32_kernel(es_cuda_product p, int first, int parts, bool fours)
{
    es_take_turn();
    int r = blockIdx.x * F32_GROUPS + threadIdx.x / ES_GROUP, which = first;
    const int lane = threadIdx.x % ES_GROUP;
    while (which < first + parts && r >= p.part[which].w.rows) r -= p.part[which++].w.rows;
    task t;
    if (which == first + parts || !find_task(&p, &p.part[which], blockIdx.y, F32_TOKENS, &t)) return;
    const es_cuda_part *part = &p.part[which];
    const unsigned char *row = t.w + r * part->w.row_bytes;
    for (int from = 0; from < t.count; from += F32_TOKENS) {
        const float *x[F32_TOKENS];
        float sum[F32_TOKENS];
#pragma unroll
        for (int i = 0; i < F32_TOKENS; i++) {
            x[i] = from + i < t.count ? p.x + input_row(&p, t.first + from + i) * p.x_stride : NULL;
            sum[i] = 0;
        }
        if (fours)
            dot_fours(&p, row, x, sum);
        else
            dot_any(&p, &part->w, row, x, sum);
#pragma unroll
        for (int i = 0; i < F32_TOKENS; i++) {
            float value = es_group_sum(sum[i]);
            if (lane != 0 || !x[i]) continue;
            float *out = part->out + output_row(&p, t.first + from + i) * part->out_stride + r;
            if (part->bias) value = value + part->bias[r];
            if (part->accumulate) value = *out + value;
            *out = value;
        }
    }
}

/* Whether rows of weights and of inputs are whole groups of four at aligned places: a matter of shapes. */
bool es_cuda_product_in_fours(const es_cuda_product *p, int32_t first, int32_t parts)
{
    bool all = p->columns % 4 == 0 && p->x_stride % 4 == 0 && (uintptr_t)p->x % 16 == 0;
    for (int32_t i = first; i < first + parts; i++)
        all =
            all && p->part[i].w.type == ES_F32 && (uintptr_t)p->part[i].w.data % 16 == 0 && p->part[i].expert_stride % 16 == 0;
    return all;
}

void es_cuda_product_f32(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts)
{
    const int tiles = p->order ? p->tokens : (p->tokens + F32_TOKENS - 1) / F32_TOKENS;
    int rows = 0;
    for (int32_t i = first; i < first + parts; i++) rows += p->part[i].w.rows;
    es_launch(stream, dim3((unsigned)((rows + F32_GROUPS - 1) / F32_GROUPS), (unsigned)tiles), F32_GROUPS * ES_GROUP, 0,
              f32_kernel, *p, first, parts, es_cuda_product_in_fours(p, first, parts));
}

/* --- bfloat16 --- */

enum { WARPS = ES_CUDA_SEGMENTS, ROWS = ES_CUDA_TILE_ROWS };

/* Sums of a tile lie as [segment][token][row]. */
template <int NT> static __device__ __forceinline__ void leave(float *sums, const float acc[NT][4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float *at = sums + ((threadIdx.x / 32 * NT + n) * 8 + 2 * quad) * ROWS;
        at[g] = acc[n][0], at[ROWS + g] = acc[n][1], at[g + 8] = acc[n][2], at[ROWS + g + 8] = acc[n][3];
    }
}

/* Segments are added in order. */
template <int NT> static __device__ __forceinline__ float add_segments(const float *sums, int segments, int at)
{
    float value = sums[at];
    for (int s = 1; s < segments; s++) value = value + sums[s * NT * 8 * ROWS + at];
    return value;
}

/* The tokens of one step, for each group of eight. */
template <int NT> struct tokens16 {
    uint4 a[NT], b[NT];
};

template <int NT>
static __device__ __forceinline__ void load_tokens(const uint16_t *const x[NT], int at, bool there, tokens16<NT> *t)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        t->a[n] = t->b[n] = make_uint4(0, 0, 0, 0);
        if (x[n] && there) {
            t->a[n] = *(const uint4 *)(const void *)(x[n] + at);
            t->b[n] = *(const uint4 *)(const void *)(x[n] + at + 32);
        }
    }
}

/* One step of 64 columns of one tile. */
template <class L, int NT>
static __device__ __forceinline__ void multiply(const L *l, int column, int quad, const tokens16<NT> *t, float acc[NT][4])
{
    uint4 x, y, z, w;
    l->decode(&x, &y, &z, &w, column, quad);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        mma(acc[n], x.x, z.x, x.y, z.y, t->a[n].x, t->a[n].y);
        mma(acc[n], x.z, z.z, x.w, z.w, t->a[n].z, t->a[n].w);
        mma(acc[n], y.x, w.x, y.y, w.y, t->b[n].x, t->b[n].y);
        mma(acc[n], y.z, w.z, y.w, w.w, t->b[n].z, t->b[n].w);
    }
}

/* A warp walks its segment of 16 rows of one matrix, or (MT = 2, a SwiGLU) of two side by side. Weights of the next AHEAD
 * steps and the tokens of the next one are always on their way. With a rider the last row of blocks is its. */
template <class L, int NT, int MT, int AHEAD, bool RIDER>
static __global__ void __launch_bounds__(WARPS * 32, 2)
    few_kernel(const __grid_constant__ es_cuda_product p, int first, int segment)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ float sums[]; /* [MT][segments][8·NT tokens][16 rows] */
    es_lead();
    int tile = blockIdx.x, which = first;
    const bool apart = RIDER && blockIdx.y == gridDim.y - 1, dense = !p.order || apart;
    if (apart)
        which = 2;
    else if (MT == 1)
        while (tile >= (p.part[which].w.rows + ROWS - 1) / ROWS) tile -= (p.part[which++].w.rows + ROWS - 1) / ROWS;
    const es_cuda_part *part = &p.part[which];
    const es_cuda_matrix *m = &part->w;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4, row0 = tile * ROWS;
    const int width = (int)p.x16_stride, segments = (width + segment - 1) / segment, room = segments * NT * 8 * ROWS;
    const int from = warp * segment, steps = max(0, min(segment, width - from)) / 64;
    if (!dense) es_follow(); /* which expert it is was decided just before */
    const unsigned char *top[MT], *bottom[MT];
    task t;
    if (apart && row0 >= m->rows) return;
#pragma unroll
    for (int k = 0; k < MT; k++) {
        if (apart)
            t = (task){part[k].w.data, 0, p.rider_tokens};
        else if (!find_task(&p, part + k, blockIdx.y, NT * 8, &t))
            return;
        /* Rows past the matrix repeat its last one, and are not stored. */
        top[k] = t.w + (int64_t)min(row0 + g, m->rows - 1) * m->row_bytes;
        bottom[k] = t.w + (int64_t)min(row0 + g + 8, m->rows - 1) * m->row_bytes;
    }
    L u[MT][AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
#pragma unroll
        for (int k = 0; k < MT; k++)
            if (i < steps) u[k][i].load(top[k], bottom[k], m, from + 64 * i, quad, p.columns);
    if (dense) es_follow();
    const uint16_t *x[NT], *x16 = apart ? p.rider_x16 : p.x16;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int i = n * 8 + g;
        x[n] = NULL;
        if (i < t.count)
            x[n] = x16 + (dense ? t.first + i : input_row(&p, t.first + i)) * p.x16_stride + from + 8 * quad;
    }
    float acc[MT][NT][4] = {};
    /* Of many tokens there are registers for one step's only. */
    constexpr bool EARLY = NT == 1;
    tokens16<NT> now, next;
    if (EARLY) load_tokens<NT>(x, 0, steps > 0, &next);
    for (int base = 0; base < steps; base += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int step = base + i;
            if (step >= steps) break;
            if (EARLY) now = next;
            load_tokens<NT>(x, 64 * (EARLY ? step + 1 : step), step + EARLY < steps, EARLY ? &next : &now);
#pragma unroll
            for (int k = 0; k < MT; k++) {
                multiply<L, NT>(&u[k][i], from + 64 * step, quad, &now, acc[k]);
                if (step + AHEAD < steps) u[k][i].load(top[k], bottom[k], m, from + 64 * (step + AHEAD), quad, p.columns);
            }
        }
    }
    if (steps)
#pragma unroll
        for (int k = 0; k < MT; k++) leave<NT>(sums + k * room, acc[k]);
    __syncthreads();
    for (int i = threadIdx.x; i < t.count * ROWS; i += WARPS * 32) {
        const int row = row0 + i % ROWS;
        if (row >= m->rows) continue;
        float value = add_segments<NT>(sums, segments, i);
        if (MT == 2) value = es_silu(value) * add_segments<NT>(sums + room, segments, i);
        put(part, dense ? t.first + i / ROWS : output_row(&p, t.first + i / ROWS), row, value);
    }
#endif
}

template <class L, int NT, int MT, int AHEAD, bool RIDER = false>
static void launch_few(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts)
{
    unsigned tiles = 0;
    for (int32_t i = first; i < first + (MT == 2 ? 1 : parts); i++) tiles += (unsigned)(p->part[i].w.rows + ROWS - 1) / ROWS;
    const int segment = segment_of(p->x16_stride), segments = ((int)p->x16_stride + segment - 1) / segment;
    const size_t shared = (size_t)MT * (size_t)segments * NT * 8 * ROWS * sizeof(float);
    const unsigned columns = (unsigned)(p->order ? p->tokens : (p->tokens + NT * 8 - 1) / (NT * 8)) + (RIDER ? 1 : 0);
    es_launch(stream, dim3(tiles, columns), WARPS * 32, shared, few_kernel<L, NT, MT, AHEAD, RIDER>, *p, first, segment);
}

/* Two matrices at once need twice the registers: they look half as far ahead. */
template <class L, int AHEAD>
static void launch_type(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, bool few)
{
    constexpr int HALF = AHEAD > 1 ? AHEAD / 2 : 1;
    if (few && p->rider_x16 && p->swiglu)
        launch_few<L, 1, 2, HALF, true>(stream, p, first, parts);
    else if (few && p->rider_x16)
        launch_few<L, 1, 1, AHEAD, true>(stream, p, first, parts);
    else if (few && p->swiglu)
        launch_few<L, 1, 2, HALF>(stream, p, first, parts);
    else if (few)
        launch_few<L, 1, 1, AHEAD>(stream, p, first, parts);
    else if (p->swiglu)
        launch_few<L, 4, 2, 1>(stream, p, first, parts);
    else
        launch_few<L, 4, 1, HALF>(stream, p, first, parts);
}

void es_cuda_product_bf16(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, bool few)
{
    const es_cuda_matrix *w = &p->part[first].w;
    if (!w->fast)
        launch_type<any_loader, 1>(stream, p, first, parts, few);
    else if (w->type == ES_BF16)
        launch_type<bf16_loader, 4>(stream, p, first, parts, few);
    else if (w->type == ES_Q8_0)
        launch_type<q8_loader, 4>(stream, p, first, parts, few);
    else if (w->type == ES_Q4_K)
        launch_type<q4k_loader, 4>(stream, p, first, parts, few);
    else if (w->type == ES_Q5_K)
        launch_type<q5k_loader, 4>(stream, p, first, parts, few);
    else if (w->type == ES_Q6_K)
        launch_type<q6k_loader, 2>(stream, p, first, parts, few);
    else
        launch_type<any_loader, 1>(stream, p, first, parts, few);
}

/* Enough shared memory for two blocks, and the rest as first-level cache, which holds the tokens: without a preference a card
 * stays as the kernel before wanted it, and attention wants nearly all of it for itself. */
static es_status divide(const void *kernel, int bytes, int percent)
{
    ES_TRY(es_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                         "shared memory for products"));
    return es_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent),
                         "shared memory for products");
}

template <class L, int AHEAD> static es_status allow_shared(void)
{
    constexpr int HALF = AHEAD > 1 ? AHEAD / 2 : 1, FEW = WARPS * 8 * ROWS * (int)sizeof(float);
    ES_TRY(divide((const void *)few_kernel<L, 1, 1, AHEAD, false>, FEW, 15));
    ES_TRY(divide((const void *)few_kernel<L, 1, 2, HALF, false>, 2 * FEW, 15));
    ES_TRY(divide((const void *)few_kernel<L, 1, 1, AHEAD, true>, FEW, 15));
    ES_TRY(divide((const void *)few_kernel<L, 1, 2, HALF, true>, 2 * FEW, 15));
    ES_TRY(divide((const void *)few_kernel<L, 4, 1, HALF, false>, 4 * FEW, 35));
    return divide((const void *)few_kernel<L, 4, 2, 1, false>, 8 * FEW, 35);
}

es_status es_cuda_product_setup(void)
{
    ES_TRY((allow_shared<bf16_loader, 4>()));
    ES_TRY((allow_shared<q8_loader, 4>()));
    ES_TRY((allow_shared<q4k_loader, 4>()));
    ES_TRY((allow_shared<q5k_loader, 4>()));
    ES_TRY((allow_shared<q6k_loader, 2>()));
    return allow_shared<any_loader, 1>();
}
