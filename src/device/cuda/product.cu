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
#include "device/cuda/device.cuh"

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

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                           uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

static __device__ __forceinline__ uint4 load_once(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

static __device__ __forceinline__ uint2 load_once8(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

/* A loader takes a lane's sixteen weights of 64 columns of a row: the eight from 8·quad on in each half. raw is what is
 * loaded, early; decode() makes pairs of bfloat16 of it. `ok` is false for rows past the matrix. */
struct bf16_loader {
    uint4 a, b;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *, int column, int quad)
    {
        const unsigned char *at = row + 2 * (column + 8 * quad);
        a = load_once(at);
        b = load_once(at + 64);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int, int) const
    {
        *x = a;
        *y = b;
    }
};

/* Four signed bytes as bfloat16 times d: 2^23 + 128 + q is a float whose low byte is q + 128. */
static __device__ __forceinline__ uint2 scaled_bytes(uint32_t q, float d)
{
    const uint32_t u = q ^ 0x80808080u;
    const float base = 8388608.0f + 128.0f;
    const float f0 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7650)) - base,
                f1 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7651)) - base;
    const float f2 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7652)) - base,
                f3 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7653)) - base;
    return make_uint2(es_to_bf16x2(d * f0, d * f1), es_to_bf16x2(d * f2, d * f3));
}

struct q8_loader {
    uint2 a, b;
    uint32_t d;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *w, int column, int quad)
    {
        a = load_once8(row + column + 8 * quad);
        b = load_once8(row + column + 32 + 8 * quad);
        d = *(const uint32_t *)(const void *)(row + w->row_bytes / 34 * 32 + column / 16);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int, int) const
    {
        const float d0 = es_from_half(d & 0xFFFF), d1 = es_from_half(d >> 16);
        const uint2 x0 = scaled_bytes(a.x, d0), x1 = scaled_bytes(a.y, d0), y0 = scaled_bytes(b.x, d1),
                    y1 = scaled_bytes(b.y, d1);
        *x = make_uint4(x0.x, x0.y, x1.x, x1.y);
        *y = make_uint4(y0.x, y0.y, y1.x, y1.y);
    }
};

/* Four nibbles at the bottom of the bytes of q: dg·q − mg. The product of a 17-bit and a 4-bit number is exact, so a fused
 * step rounds as the formula does. */
static __device__ __forceinline__ uint2 scaled_nibbles(uint32_t q, float dg, float mg)
{
    const float base = 8388608.0f;
    const float f0 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7650)) - base,
                f1 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7651)) - base;
    const float f2 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7652)) - base,
                f3 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7653)) - base;
    return make_uint2(es_to_bf16x2(fmaf(dg, f0, -mg), fmaf(dg, f1, -mg)), es_to_bf16x2(fmaf(dg, f2, -mg), fmaf(dg, f3, -mg)));
}

/* Scale and minimum of group g from the 12 bytes in three words. */
static __device__ __forceinline__ void k_scale(const uint4 head, int g, float *dg, float *mg)
{
    const int shift = g % 4 * 8;
    const uint32_t s0 = head.y >> shift & 0xFF, s1 = head.z >> shift & 0xFF, s2 = head.w >> shift & 0xFF;
    const uint32_t scale = g < 4 ? s0 & 0x3F : (s2 & 0x0F) | (s0 >> 2 & 0x30);
    const uint32_t minimum = g < 4 ? s1 & 0x3F : s2 >> 4 | (s1 >> 2 & 0x30);
    *dg = es_from_half(head.x & 0xFFFF) * (float)scale;
    *mg = es_from_half(head.x >> 16) * (float)minimum;
}

struct q4k_loader {
    uint4 head;
    uint2 q;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *, int column, int quad)
    {
        const unsigned char *block = row + column / 256 * 144;
        head = *(const uint4 *)(const void *)block;
        q = load_once8(block + 16 + column % 256 / 2 + 8 * quad);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int column, int) const
    {
        float d0, m0, d1, m1;
        const int g = column % 256 / 32;
        k_scale(head, g, &d0, &m0);
        k_scale(head, g + 1, &d1, &m1);
        const uint2 x0 = scaled_nibbles(q.x & 0x0F0F0F0Fu, d0, m0), x1 = scaled_nibbles(q.y & 0x0F0F0F0Fu, d0, m0);
        const uint2 y0 = scaled_nibbles(q.x >> 4 & 0x0F0F0F0Fu, d1, m1), y1 = scaled_nibbles(q.y >> 4 & 0x0F0F0F0Fu, d1, m1);
        *x = make_uint4(x0.x, x0.y, x1.x, x1.y);
        *y = make_uint4(y0.x, y0.y, y1.x, y1.y);
    }
};

struct q6k_loader {
    uint2 low0, low1, high;
    uint32_t scale, d;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *w, int column, int quad)
    {
        const int64_t blocks = w->row_bytes / 210;
        const int super = column / 256, half = column % 256 / 128, pair = column % 128 / 64;
        const unsigned char *l = row + super * 128 + half * 64 + 8 * quad;
        low0 = *(const uint2 *)(const void *)l;
        low1 = *(const uint2 *)(const void *)(l + 32);
        high = *(const uint2 *)(const void *)(row + blocks * 128 + super * 64 + half * 32 + 8 * quad);
        scale = *(const uint32_t *)(const void *)(row + blocks * 192 + super * 16 + half * 8 + pair * 4);
        d = *(const uint16_t *)(const void *)(row + blocks * 208 + super * 2);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int column, int quad) const
    {
        const int pair = column % 128 / 64, nibble = pair * 4, bits = pair * 4;
        const float whole = es_from_half(d);
        const float d0 = whole * (float)(int8_t)(scale >> (quad / 2 * 8)),
                    d1 = whole * (float)(int8_t)(scale >> (16 + quad / 2 * 8));
        const uint32_t a = (low0.x >> nibble & 0x0F0F0F0Fu) | (high.x >> bits & 0x03030303u) << 4;
        const uint32_t b = (low0.y >> nibble & 0x0F0F0F0Fu) | (high.y >> bits & 0x03030303u) << 4;
        const uint32_t c = (low1.x >> nibble & 0x0F0F0F0Fu) | (high.x >> (bits + 2) & 0x03030303u) << 4;
        const uint32_t e = (low1.y >> nibble & 0x0F0F0F0Fu) | (high.y >> (bits + 2) & 0x03030303u) << 4;
        /* scaled_bytes() takes q − 32 as a signed byte. */
        const uint2 x0 = scaled_bytes(__vsub4(a, 0x20202020u), d0), x1 = scaled_bytes(__vsub4(b, 0x20202020u), d0);
        const uint2 y0 = scaled_bytes(__vsub4(c, 0x20202020u), d1), y1 = scaled_bytes(__vsub4(e, 0x20202020u), d1);
        *x = make_uint4(x0.x, x0.y, x1.x, x1.y);
        *y = make_uint4(y0.x, y0.y, y1.x, y1.y);
    }
};

/* Every type, at any place, element by element; columns past the row's end are zero. */
struct any_loader {
    uint4 a, b;
    static __device__ __noinline__ uint4 eight(const unsigned char *row, const es_cuda_matrix *w, int column, int columns)
    {
        float v[8];
        for (int i = 0; i < 8; i++)
            v[i] = column + i < columns ? es_decode_at(row, w->type, w->packed, w->row_bytes, column + i) : 0.0f;
        return make_uint4(es_to_bf16x2(v[0], v[1]), es_to_bf16x2(v[2], v[3]), es_to_bf16x2(v[4], v[5]),
                          es_to_bf16x2(v[6], v[7]));
    }
    int columns;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *w, int column, int quad)
    {
        a = eight(row, w, column + 8 * quad, columns);
        b = eight(row, w, column + 32 + 8 * quad, columns);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int, int) const
    {
        *x = a;
        *y = b;
    }
};

enum { WARPS = ES_CUDA_SEGMENTS, ROWS = ES_CUDA_TILE_ROWS };

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <class L> static __device__ __forceinline__ void set_columns(L *, int)
{
}
static __device__ __forceinline__ void set_columns(any_loader *l, int columns)
{
    l->columns = columns;
}
#endif

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
            set_columns(&u[i], p->columns), set_columns(&v[i], p->columns);
            u[i].load(top, &part->w, c, quad);
            v[i].load(bottom, &part->w, c, quad);
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

/* Store one value: bias, residual, shadow. */
static __device__ __forceinline__ void put(const es_cuda_part *part, int64_t token, int row, float value)
{
    float *out = part->out + token * part->out_stride + row;
    if (part->bias) value = value + part->bias[row];
    if (part->accumulate) value = *out + value;
    *out = value;
    if (part->shadow) part->shadow[token * part->shadow_stride + row] = es_to_bf16(value);
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

/* Whole 64 columns, at most eight pieces: by the length of the inner dimension alone. */
static int segment_of(int64_t padded)
{
    const int64_t pieces = padded / ES_CUDA_COLUMNS;
    return (int)((pieces + ES_CUDA_SEGMENTS - 1) / ES_CUDA_SEGMENTS * ES_CUDA_COLUMNS);
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
    else if (w->fast && w->type == ES_Q6_K)
        launch_type<q6k_loader, 4>(stream, p, first, parts, few);
    else
        launch_type<any_loader, 1>(stream, p, first, parts, few);
}

es_status es_cuda_product_setup(void)
{
    const void *const wide[] = {(const void *)few_kernel<bf16_loader, 4, 2>, (const void *)few_kernel<q8_loader, 4, 2>,
                                (const void *)few_kernel<q4k_loader, 4, 2>, (const void *)few_kernel<q6k_loader, 4, 2>,
                                (const void *)few_kernel<any_loader, 4, 1>};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const cudaError_t error = cudaFuncSetAttribute(wide[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       2 * WARPS * 32 * ROWS * (int)sizeof(float));
        if (error != cudaSuccess) return es_cuda_check(error, "shared memory for products");
    }
    return ES_OK;
}
