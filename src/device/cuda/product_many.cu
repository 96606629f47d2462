/* product_many.cu: products of many tokens: the same instructions on the same operands in the same order as product.cu, so the
 * same bits, with tiles of weights and tokens in shared memory.
 *
 * A block makes 128 weight rows times 128 tokens; each of its 8 warps 64 rows times 32 tokens. Columns come in steps of 64,
 * four steps in flight. A segment's sum is added to the total where the segment ends. Weights of other types than BF16 are
 * first decoded into a panel (panel.cu). */
#include "device/cuda/loaders.cuh"
#include "device/cuda/product.cuh"

static constexpr int TILE = 128, STEP = 64, THREADS = 256, ROW_TILES = 4, TOKEN_TILES = 4;
/* A step of one operand: two halves of 32 columns, 64 bytes a row; the second begins 64 bytes later than it would, so that the
 * eight lanes that write a row's 128 bytes meet 32 different banks. */
static constexpr int HALF_BYTES = TILE * 64 + 64, OPERAND_BYTES = 2 * HALF_BYTES, STAGE_BYTES = 2 * OPERAND_BYTES;
/* Steps on their way at once. Three have room in the 99 KiB that a block of most cards can have, four in data centres'. */
static constexpr int MOST_STAGES = 4, LEAST_STAGES = 3;

typedef struct panel {
    const uint16_t *w[2]; /* weight rows in bfloat16, `stride` elements apart; the second: up of a SwiGLU */
    int64_t stride;
    int32_t first, rows; /* rows of the matrix that the panel holds */
} panel;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ void copy16(unsigned to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

static __device__ __forceinline__ uint4 read16(unsigned at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

/* Row i of the tile: of a SwiGLU, each 64 rows are 32 of gate and the same 32 of up. */
static __device__ __forceinline__ const uint16_t *weight_row(const es_cuda_product *p, const panel *w, int tile, int i)
{
    if (!p->swiglu) return w->w[0] + (int64_t)min(tile * TILE + i, w->rows - 1) * w->stride;
    const int row = tile * (TILE / 2) + i / 64 * 32 + i % 32;
    return w->w[i / 32 % 2] + (int64_t)min(row, w->rows - 1) * w->stride;
}

/* Each thread brings four pieces of 16 bytes of each operand: pieces of a row are neighbours. */
typedef struct fetcher {
    const uint16_t *w[4], *x[4];
    unsigned to[4];
} fetcher;

static __device__ __forceinline__ void fetch(const fetcher *f, unsigned stage, int column)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        copy16(stage + f->to[i], f->w[i] + column);
        copy16(stage + OPERAND_BYTES + f->to[i], f->x[i] + column);
    }
}

static __device__ __forceinline__ void multiply(unsigned stage, int row0, int token0, float acc[ROW_TILES][TOKEN_TILES][4])
{
    const int lane = threadIdx.x % 32, at = lane / 4 * 64 + lane % 4 * 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const unsigned w = stage + half * HALF_BYTES + row0 * 64 + at,
                       x = stage + OPERAND_BYTES + half * HALF_BYTES + token0 * 64 + at;
        uint4 b[TOKEN_TILES];
#pragma unroll
        for (int n = 0; n < TOKEN_TILES; n++) b[n] = read16(x + n * 8 * 64);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
            const uint4 top = read16(w + m * 16 * 64), bottom = read16(w + (m * 16 + 8) * 64);
#pragma unroll
            for (int n = 0; n < TOKEN_TILES; n++) mma(acc[m][n], top.x, bottom.x, top.y, bottom.y, b[n].x, b[n].y);
#pragma unroll
            for (int n = 0; n < TOKEN_TILES; n++) mma(acc[m][n], top.z, bottom.z, top.w, bottom.w, b[n].z, b[n].w);
        }
    }
}

/* Element e of a tile's accumulators: rows g and g + 8, tokens 2·quad and the next. */
static __device__ __forceinline__ void put_tile(const es_cuda_product *p, const es_cuda_part *part, const panel *w, int row0,
                                                int token0, float total[ROW_TILES][TOKEN_TILES][4])
{
    const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4, rows = p->swiglu ? ROW_TILES / 2 : ROW_TILES;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < TOKEN_TILES; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = row0 + m * 16 + g + e / 2 * 8, token = token0 + n * 8 + 2 * quad + e % 2;
                if (m >= rows || row >= w->rows || token >= p->tokens) continue;
                float value = total[m][n][e];
                if (p->swiglu) value = es_silu(value) * total[(m + 2) % ROW_TILES][n][e];
                put(part, token, w->first + row, value);
            }
}
#endif

template <int STAGES>
static __global__ void __launch_bounds__(THREADS, 1) many_kernel(es_cuda_product p, int which, panel w, int segment)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    es_take_turn();
    extern __shared__ __align__(128) unsigned char shared[];
    const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    const int steps = (int)p.x16_stride / STEP, token_tile = blockIdx.x, row_tile = blockIdx.y, warp = threadIdx.x / 32;
    fetcher f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = (threadIdx.x + i * THREADS) / 8, piece = threadIdx.x % 8;
        f.w[i] = weight_row(&p, &w, row_tile, row) + piece * 8;
        f.x[i] = p.x16 + (int64_t)min(token_tile * TILE + row, p.tokens - 1) * p.x16_stride + piece * 8;
        f.to[i] = piece / 4 * HALF_BYTES + row * 64 + piece % 4 * 16;
    }
    float acc[ROW_TILES][TOKEN_TILES][4] = {}, total[ROW_TILES][TOKEN_TILES][4];
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) fetch(&f, base + s * STAGE_BYTES, s * STEP);
        asm volatile("cp.async.commit_group;");
    }
    const int row0 = warp % 2 * 64, token0 = warp / 2 * 32;
    int left = segment / STEP;
    bool first = true;
    for (int s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        const int next = s + STAGES - 1;
        if (next < steps) fetch(&f, base + next % STAGES * STAGE_BYTES, next * STEP);
        asm volatile("cp.async.commit_group;");
        multiply(base + s % STAGES * STAGE_BYTES, row0, token0, acc);
        if (--left > 0 && s + 1 < steps) continue;
        left = segment / STEP;
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int n = 0; n < TOKEN_TILES; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    total[m][n][e] = first ? acc[m][n][e] : total[m][n][e] + acc[m][n][e];
                    acc[m][n][e] = 0;
                }
        first = false;
    }
    const int out0 = p.swiglu ? row_tile * (TILE / 2) + row0 / 2 : row_tile * TILE + row0;
    put_tile(&p, &p.part[which], &w, out0, token_tile * TILE + token0, total);
#endif
}

/* What this card has room for. */
static int stages = MOST_STAGES;

static void launch(cudaStream_t stream, const es_cuda_product *p, int32_t which, const panel *w)
{
    const int tile = p->swiglu ? TILE / 2 : TILE;
    const dim3 grid((unsigned)((p->tokens + TILE - 1) / TILE), (unsigned)((w->rows + tile - 1) / tile));
    es_launch(stream, grid, THREADS, (size_t)(stages * STAGE_BYTES),
              stages == MOST_STAGES ? many_kernel<MOST_STAGES> : many_kernel<LEAST_STAGES>, *p, which, *w,
              segment_of(p->x16_stride));
}

/* One part (two of a SwiGLU), panel by panel. */
static void launch_part(cudaStream_t stream, const es_cuda_product *p, int32_t which, uint16_t *room, size_t room_bytes)
{
    const es_cuda_matrix *m = &p->part[which].w;
    const int padded = (int)p->x16_stride, matrices = p->swiglu ? 2 : 1;
    if (m->fast && m->type == ES_BF16) {
        const panel whole = {
            {(const uint16_t *)(const void *)m->data, (const uint16_t *)(const void *)p->part[which + matrices - 1].w.data},
            m->row_bytes / 2,
            0,
            m->rows
        };
        launch(stream, p, which, &whole);
        return;
    }
    int most = (int)(room_bytes / ((size_t)matrices * (size_t)padded * sizeof(uint16_t))) / TILE * TILE;
    if (most > m->rows) most = m->rows;
    for (int first = 0; first < m->rows; first += most) {
        const int rows = m->rows - first < most ? m->rows - first : most;
        const panel some = {
            {room, room + (int64_t)most * padded},
            padded, first, rows
        };
        for (int i = 0; i < matrices; i++)
            es_cuda_panel(stream, &p->part[which + i].w, first, rows, p->columns, padded, room + (int64_t)i * most * padded);
        launch(stream, p, which, &some);
    }
}

void es_cuda_product_many(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, uint16_t *room,
                          size_t room_bytes)
{
    for (int32_t i = first; i < first + (p->swiglu ? 1 : parts); i++) launch_part(stream, p, i, room, room_bytes);
}

template <int STAGES> static es_status allow(void)
{
    stages = STAGES;
    return es_cuda_check(cudaFuncSetAttribute((const void *)many_kernel<STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              STAGES * STAGE_BYTES),
                         "shared memory for products");
}

es_status es_cuda_product_many_setup(size_t limit)
{
    return limit >= MOST_STAGES * STAGE_BYTES ? allow<MOST_STAGES>() : allow<LEAST_STAGES>();
}
