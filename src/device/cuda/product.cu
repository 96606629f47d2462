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
    const float *x[F32_TOKENS];
    float sum[F32_TOKENS];
#pragma unroll
    for (int i = 0; i < F32_TOKENS; i++) {
        x[i] = i < t.count ? p.x + input_row(&p, t.first + i) * p.x_stride : NULL;
        sum[i] = 0;
    }
    if (fours)
        dot_fours(&p, row, x, sum);
    else
        dot_any(&p, &part->w, row, x, sum);
#pragma unroll
    for (int i = 0; i < F32_TOKENS; i++) {
        float value = es_group_sum(sum[i]);
        if (lane != 0 || i >= t.count) continue;
        float *out = part->out + output_row(&p, t.first + i) * part->out_stride + r;
        if (part->bias) value = value + part->bias[r];
        if (part->accumulate) value = *out + value;
        *out = value;
    }
}

/* Whether rows of weights and of inputs are whole groups of four at aligned places: a matter of shapes. */
static bool in_fours(const es_cuda_product *p, int32_t first, int32_t parts)
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
              f32_kernel, *p, first, parts, in_fours(p, first, parts));
}

/* --- bfloat16 --- */

enum { WARPS = ES_CUDA_SEGMENTS, ROWS = ES_CUDA_TILE_ROWS };

/* What one warp walks: its segment of 16 rows of one matrix, or of two, one after the other. */
typedef struct walk {
    const unsigned char *top[2], *bottom[2]; /* rows g and g + 8 */
    int from, steps, passes;                 /* steps of 64 columns, of one pass */
} walk;

static __device__ __forceinline__ void aim(walk *w, int pass, const es_cuda_matrix *m, const unsigned char *data, int row0)
{
    /* Rows past the matrix repeat its last one, and are not stored. */
    const int g = threadIdx.x % 32 / 4, last = m->rows - 1;
    w->top[pass] = data + (int64_t)min(row0 + g, last) * m->row_bytes;
    w->bottom[pass] = data + (int64_t)min(row0 + g + 8, last) * m->row_bytes;
}

template <class L>
static __device__ __forceinline__ void load_step(const es_cuda_product *p, const es_cuda_matrix *m, const walk *w, int step,
                                                 L *u, L *v)
{
    if (step >= w->steps * w->passes) return;
    const bool second = step >= w->steps;
    const int column = w->from + 64 * (second ? step - w->steps : step), quad = threadIdx.x % 4;
    u->load(second ? w->top[1] : w->top[0], m, column, quad, p->columns);
    v->load(second ? w->bottom[1] : w->bottom[0], m, column, quad, p->columns);
}

/* Sums of a tile lie as [segment][token][row]. */
template <int NT> static __device__ __forceinline__ void leave(float *sums, float acc[NT][4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float *at = sums + ((threadIdx.x / 32 * NT + n) * 8 + 2 * quad) * ROWS;
        at[g] = acc[n][0], at[ROWS + g] = acc[n][1], at[g + 8] = acc[n][2], at[ROWS + g + 8] = acc[n][3];
        acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
    }
}

/* Segments are added in order. */
template <int NT> static __device__ __forceinline__ float add_segments(const float *sums, int segments, int at)
{
    float value = sums[at];
    for (int s = 1; s < segments; s++) value = value + sums[s * NT * 8 * ROWS + at];
    return value;
}

/* Weights of the next AHEAD steps are always on their way. */
template <class L, int NT, int AHEAD>
static __global__ void __launch_bounds__(WARPS * 32, 2) few_kernel(es_cuda_product p, int first, int segment)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ float sums[]; /* [1 or 2 passes][segments][8·NT tokens][16 rows] */
    es_lead();
    int tile = blockIdx.x, which = first;
    if (!p.swiglu)
        while (tile >= (p.part[which].w.rows + ROWS - 1) / ROWS) tile -= (p.part[which++].w.rows + ROWS - 1) / ROWS;
    const es_cuda_part *part = &p.part[which];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4, row0 = tile * ROWS;
    const int width = (int)p.x16_stride, segments = (width + segment - 1) / segment, room = segments * NT * 8 * ROWS;
    walk w = {.from = warp * segment, .passes = p.swiglu ? 2 : 1};
    w.steps = max(0, min(segment, width - w.from)) / 64;
    if (p.order) es_follow(); /* which expert it is was decided just before */
    task t;
    if (!find_task(&p, part, blockIdx.y, NT * 8, &t)) return;
    aim(&w, 0, &part->w, t.w, row0);
    if (p.swiglu) {
        task up;
        find_task(&p, part + 1, blockIdx.y, NT * 8, &up);
        aim(&w, 1, &part->w, up.w, row0);
    }
    L u[AHEAD], v[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) load_step(&p, &part->w, &w, i, &u[i], &v[i]);
    if (!p.order) es_follow();
    const uint16_t *x[NT];
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int i = n * 8 + g;
        x[n] = i < t.count ? p.x16 + input_row(&p, t.first + i) * p.x16_stride + w.from + 8 * quad : NULL;
    }
    float acc[NT][4] = {};
    const int total = w.steps * w.passes;
    for (int base = 0; base < total; base += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int step = base + i;
            if (step >= total) break;
            if (step == w.steps) leave<NT>(sums, acc);
            const int at = 64 * (step < w.steps ? step : step - w.steps);
            uint4 y0[NT], y1[NT];
#pragma unroll
            for (int n = 0; n < NT; n++) {
                y0[n] = y1[n] = make_uint4(0, 0, 0, 0);
                if (x[n])
                    y0[n] = *(const uint4 *)(const void *)(x[n] + at), y1[n] = *(const uint4 *)(const void *)(x[n] + at + 32);
            }
            uint4 a0, a1, b0, b1;
            u[i].decode(&a0, &a1, w.from + at, quad);
            v[i].decode(&b0, &b1, w.from + at, quad);
            load_step(&p, &part->w, &w, step + AHEAD, &u[i], &v[i]);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                mma(acc[n], a0.x, b0.x, a0.y, b0.y, y0[n].x, y0[n].y);
                mma(acc[n], a0.z, b0.z, a0.w, b0.w, y0[n].z, y0[n].w);
                mma(acc[n], a1.x, b1.x, a1.y, b1.y, y1[n].x, y1[n].y);
                mma(acc[n], a1.z, b1.z, a1.w, b1.w, y1[n].z, y1[n].w);
            }
        }
    }
    if (total) leave<NT>(sums + (w.passes - 1) * room, acc);
    __syncthreads();
    for (int i = threadIdx.x; i < t.count * ROWS; i += WARPS * 32) {
        const int row = row0 + i % ROWS;
        if (row >= part->w.rows) continue;
        float value = add_segments<NT>(sums, segments, i);
        if (p.swiglu) value = es_silu(value) * add_segments<NT>(sums + room, segments, i);
        put(part, output_row(&p, t.first + i / ROWS), row, value);
    }
#endif
}

template <class L, int NT, int AHEAD>
static void launch_few(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts)
{
    unsigned tiles = 0;
    for (int32_t i = first; i < first + (p->swiglu ? 1 : parts); i++) tiles += (unsigned)(p->part[i].w.rows + ROWS - 1) / ROWS;
    const int segment = segment_of(p->x16_stride), segments = ((int)p->x16_stride + segment - 1) / segment;
    const size_t shared = (size_t)(p->swiglu ? 2 : 1) * (size_t)segments * NT * 8 * ROWS * sizeof(float);
    const unsigned columns = (unsigned)(p->order ? p->tokens : (p->tokens + NT * 8 - 1) / (NT * 8));
    es_launch(stream, dim3(tiles, columns), WARPS * 32, shared, few_kernel<L, NT, AHEAD>, *p, first, segment);
}

template <class L, int AHEAD>
static void launch_type(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, bool few)
{
    if (few)
        launch_few<L, 1, AHEAD>(stream, p, first, parts);
    else
        launch_few < L, 4, AHEAD<2 ? AHEAD : 2>(stream, p, first, parts);
}

void es_cuda_product_bf16(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, bool few)
{
    const es_cuda_matrix *w = &p->part[first].w;
    if (w->fast && w->type == ES_BF16)
        launch_type<bf16_loader, 3>(stream, p, first, parts, few);
    else if (w->fast && w->type == ES_Q8_0)
        launch_type<q8_loader, 4>(stream, p, first, parts, few);
    else if (w->fast && w->type == ES_Q4_K)
        launch_type<q4k_loader, 4>(stream, p, first, parts, few);
    else if (w->fast && w->type == ES_Q5_K)
        launch_type<q5k_loader, 4>(stream, p, first, parts, few);
    else if (w->fast && w->type == ES_Q6_K)
        launch_type<q6k_loader, 4>(stream, p, first, parts, few);
    else
        launch_type<any_loader, 1>(stream, p, first, parts, few);
}

es_status es_cuda_product_setup(void)
{
    const void *const wide[] = {(const void *)few_kernel<bf16_loader, 4, 2>, (const void *)few_kernel<q8_loader, 4, 2>,
                                (const void *)few_kernel<q4k_loader, 4, 2>,  (const void *)few_kernel<q5k_loader, 4, 2>,
                                (const void *)few_kernel<q6k_loader, 4, 2>,  (const void *)few_kernel<any_loader, 4, 1>};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const cudaError_t error = cudaFuncSetAttribute(wide[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       2 * WARPS * 32 * ROWS * (int)sizeof(float));
        if (error != cudaSuccess) return es_cuda_check(error, "shared memory for products");
    }
    return ES_OK;
}
