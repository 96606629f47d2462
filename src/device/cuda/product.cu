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

static __global__ void __launch_bounds__(F32_GROUPS *ES_GROUP) f32_kernel(es_cuda_product p, int which)
{
    const es_cuda_part *part = &p.part[which];
    const int r = blockIdx.x * F32_GROUPS + threadIdx.x / ES_GROUP, lane = threadIdx.x % ES_GROUP;
    task t;
    if (r >= part->w.rows || !find_task(&p, part, blockIdx.y, F32_TOKENS, &t)) return;
    const unsigned char *row = t.w + r * part->w.row_bytes;
    const float *x[F32_TOKENS];
    float sum[F32_TOKENS];
    for (int i = 0; i < F32_TOKENS; i++) {
        x[i] = p.x + input_row(&p, t.first + (i < t.count ? i : 0)) * p.x_stride;
        sum[i] = 0;
    }
    for (int c = lane; c < p.columns; c += ES_GROUP) {
        const float w = es_decode_at(row, part->w.type, part->w.packed, part->w.row_bytes, c);
#pragma unroll
        for (int i = 0; i < F32_TOKENS; i++) sum[i] = fmaf(w, x[i][c], sum[i]);
    }
    for (int i = 0; i < t.count; i++) {
        float value = es_group_sum(sum[i]);
        if (lane != 0) continue;
        float *out = part->out + output_row(&p, t.first + i) * part->out_stride + r;
        if (part->bias) value = value + part->bias[r];
        if (part->accumulate) value = *out + value;
        *out = value;
    }
}

void es_cuda_product_f32(cudaStream_t stream, const es_cuda_product *p, int32_t part)
{
    const int tiles = p->order ? p->tokens : (p->tokens + F32_TOKENS - 1) / F32_TOKENS;
    const dim3 grid((unsigned)((p->part[part].w.rows + F32_GROUPS - 1) / F32_GROUPS), (unsigned)tiles);
    f32_kernel<<<grid, F32_GROUPS * ES_GROUP, 0, stream>>>(*p, part);
}

/* --- bfloat16 --- */

enum { WARPS = ES_CUDA_SEGMENTS, ROWS = ES_CUDA_TILE_ROWS };

/* One warp's segment of one tile of rows: acc[n] is tokens 8n + 2·quad and the next, rows g and g + 8. */
template <class L, int NT, int AHEAD>
static __device__ __forceinline__ void walk(const es_cuda_product *p, const es_cuda_part *part, const task *t, int row0,
                                            int from, int to, const uint16_t *const *x, float acc[NT][4])
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
    const int last = part->w.rows - 1; /* rows past the matrix repeat its last one, and are not stored */
    const unsigned char *top = t->w + (int64_t)min(row0 + g, last) * part->w.row_bytes;
    const unsigned char *bottom = t->w + (int64_t)min(row0 + g + 8, last) * part->w.row_bytes;
    for (int column = from; column < to; column += 64 * AHEAD) {
        L u[AHEAD], v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int c = column + 64 * i;
            if (c >= to) break;
            u[i].load(top, &part->w, c, quad, p->columns);
            v[i].load(bottom, &part->w, c, quad, p->columns);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int c = column + 64 * i;
            if (c >= to) break;
            uint4 a0, a1, b0, b1;
            u[i].decode(&a0, &a1, c, quad);
            v[i].decode(&b0, &b1, c, quad);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                uint4 y0 = {0, 0, 0, 0}, y1 = {0, 0, 0, 0};
                if (x[n]) {
                    y0 = *(const uint4 *)(const void *)(x[n] + c + 8 * quad);
                    y1 = *(const uint4 *)(const void *)(x[n] + c + 32 + 8 * quad);
                }
                mma(acc[n], a0.x, b0.x, a0.y, b0.y, y0.x, y0.y);
                mma(acc[n], a0.z, b0.z, a0.w, b0.w, y0.z, y0.w);
                mma(acc[n], a1.x, b1.x, a1.y, b1.y, y1.x, y1.y);
                mma(acc[n], a1.z, b1.z, a1.w, b1.w, y1.z, y1.w);
            }
        }
    }
#endif
}

/* Sums of a tile lie as [segment][token][row]: they are added in order. */
template <int NT> static __device__ __forceinline__ float add_segments(const float *sums, int segments, int at)
{
    float value = sums[at];
    for (int s = 1; s < segments; s++) value = value + sums[s * NT * 8 * ROWS + at];
    return value;
}

template <class L, int NT, int AHEAD>
static __global__ void __launch_bounds__(WARPS * 32, 2) few_kernel(es_cuda_product p, int first, int segment)
{
    extern __shared__ float sums[]; /* [1 or 2 parts][segments][8·NT tokens][16 rows] */
    int tile = blockIdx.x, which = first;
    if (!p.swiglu)
        while (tile >= (p.part[which].w.rows + ROWS - 1) / ROWS) tile -= (p.part[which++].w.rows + ROWS - 1) / ROWS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4, row0 = tile * ROWS;
    const int from = warp * segment, to = min(from + segment, (int)p.x16_stride), passes = p.swiglu ? 2 : 1;
    const int segments = ((int)p.x16_stride + segment - 1) / segment, room = segments * NT * 8 * ROWS;
    task t;
    if (!find_task(&p, &p.part[which], blockIdx.y, NT * 8, &t)) return;
    const uint16_t *x[NT];
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int i = n * 8 + g;
        x[n] = i < t.count ? p.x16 + input_row(&p, t.first + i) * p.x16_stride : NULL;
    }
    for (int pass = 0; pass < passes; pass++) {
        const es_cuda_part *part = &p.part[which + pass];
        if (pass) find_task(&p, part, blockIdx.y, NT * 8, &t);
        float acc[NT][4];
#pragma unroll
        for (int n = 0; n < NT; n++) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.0f;
        if (from >= to) continue;
        walk<L, NT, AHEAD>(&p, part, &t, row0, from, to, x, acc);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float *at = sums + pass * room + ((warp * NT + n) * 8 + 2 * quad) * ROWS;
            at[g] = acc[n][0], at[ROWS + g] = acc[n][1], at[g + 8] = acc[n][2], at[ROWS + g + 8] = acc[n][3];
        }
    }
    __syncthreads();
    const es_cuda_part *part = &p.part[which];
    for (int i = threadIdx.x; i < t.count * ROWS; i += WARPS * 32) {
        const int row = row0 + i % ROWS;
        if (row >= part->w.rows) continue;
        const int64_t token = output_row(&p, t.first + i / ROWS);
        float value = add_segments<NT>(sums, segments, i);
        if (p.swiglu) value = es_silu(value) * add_segments<NT>(sums + room, segments, i);
        put(part, token, row, value);
    }
}

template <class L, int NT, int AHEAD>
static void launch_few(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts)
{
    unsigned tiles = 0;
    for (int32_t i = first; i < first + (p->swiglu ? 1 : parts); i++) tiles += (unsigned)(p->part[i].w.rows + ROWS - 1) / ROWS;
    const int segment = segment_of(p->x16_stride), segments = ((int)p->x16_stride + segment - 1) / segment;
    const size_t shared = (size_t)(p->swiglu ? 2 : 1) * (size_t)segments * NT * 8 * ROWS * sizeof(float);
    const unsigned columns = (unsigned)(p->order ? p->tokens : (p->tokens + NT * 8 - 1) / (NT * 8));
    few_kernel<L, NT, AHEAD><<<dim3(tiles, columns), WARPS * 32, shared, stream>>>(*p, first, segment);
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
        launch_type<bf16_loader, 4>(stream, p, first, parts, few);
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
                                (const void *)few_kernel<q4k_loader, 4, 2>, (const void *)few_kernel<q5k_loader, 4, 2>, (const void *)few_kernel<q6k_loader, 4, 2>,
                                (const void *)few_kernel<any_loader, 4, 1>};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const cudaError_t error = cudaFuncSetAttribute(wide[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       2 * WARPS * 32 * ROWS * (int)sizeof(float));
        if (error != cudaSuccess) return es_cuda_check(error, "shared memory for products");
    }
    return ES_OK;
}
