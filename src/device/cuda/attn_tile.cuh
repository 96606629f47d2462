/* attn_tile.cuh: the tuned kernel for few query rows: one producer that keeps tiles of keys and values in flight, and four or eight warps that
 * fold.
 *
 * Everything is transposed, keys (or channels) along the 16 rows of the matrix instruction and query rows along its 8 columns:
 * one read of K and V serves all query heads of a group, and one row costs what eight do.
 *   scores:  Sᵀ[key][row] = K·Qᵀ          each warp 16 keys (of 128), along all channels
 *   output:  Oᵀ[channel][row] += Vᵀ·Pᵀ    each warp its channels, along all keys
 *   sums:    l[row] += 1ᵀ·Pᵀ              each warp again, so that nobody has to ask
 * Between the two the warps exchange maxima and weights through shared memory. A thread of lane 4g + t holds rows 2t and
 * 2t + 1 of every eight (columns of the accumulators), keys or channels g and g + 8 of every sixteen. */
#ifndef ES_CUDA_ATTN_TILE_CUH
#define ES_CUDA_ATTN_TILE_CUH

#include "device/cuda/attn_finish.cuh"
#include "device/cuda/attn_pipe.cuh"
#include "device/cuda/wgmma.cuh"

#define ES_ATTN_FEW_PARTS 4
#define ES_ATTN_P_STRIDE 272 /* bytes of a row of weights in shared memory: 128 bf16 and a shift by one bank in eight */

/* What a kernel is made for: head size, query rows in eights, warps that fold, kind of copies, whether merging is loose. */
template <int D_, int NT_, int WARPS_, bool BULK_, bool LOOSE_> struct es_attn_kind {
    static constexpr int D = D_, NT = NT_, WARPS = WARPS_;
    static constexpr bool BULK = BULK_, LOOSE = LOOSE_, PAIR = D <= 128 && NT == 1; /* PAIR: two blocks on a multiprocessor */
    /* GIVES: many rows want more registers than a ninth warp leaves the others. The producer is a whole warpgroup then, three
     * warps of it idle, and gives its registers to those that fold. */
    static constexpr bool GIVES = BULK && NT > 1;
    static constexpr bool HINTS = NT > 1;
    static constexpr int FOLDERS = WARPS * 32, PRODUCERS = BULK && !GIVES ? 32 : 128, THREADS = FOLDERS + PRODUCERS;
    static constexpr int MT = D / 16 / WARPS;              /* channels of a warp, in sixteens */
    static constexpr int KEYS = 8 / WARPS;                 /* keys of a warp, in sixteens */
    static constexpr int TILE = ES_CUDA_ATTN_TILE * D * 2; /* bytes */
    static constexpr int EXTRA = NT * 8 * ES_ATTN_P_STRIDE + 8 * NT * 8 * (int)sizeof(float) /* weights, maxima */
                                 + 2 * (int)sizeof(es_cuda_attn_split);
    static constexpr int NODE = FOLDERS * NT * (MT * 4 + 4) * (int)sizeof(float); /* bytes of a node on a block's stack */
};

/* The pieces of shared memory; stage s is at base + s · TILE. */
typedef struct es_attn_shared {
    uint32_t base, full, empty; /* addresses: stages, barriers */
    char *weights;
    float *maxima;             /* [8 sixteens of keys][rows] */
    es_cuda_attn_split *split; /* [2] what the finish must know, read early */
    float *near;               /* the stack's low heights */
} es_attn_shared;

/* Which stage is next, and in which round of the ring. */
typedef struct es_attn_ring {
    int stage, stages;
    uint32_t parity;
} es_attn_ring;

static __device__ __forceinline__ void es_attn_advance(es_attn_ring &ring)
{
    if (++ring.stage == ring.stages) ring.stage = 0, ring.parity ^= 1;
}

/* A node of the tree as the folding threads hold it. */
template <class K> struct es_attn_node {
    float o[K::MT][K::NT][4];
    float m[K::NT][2], l[K::NT][2];
};

/* ---- the producer ---- */

/* Page numbers of a piece's copies, 32 at a time, one a lane, and the next 32 on their way: a block table read under load
 * takes as long as several copies. Copy i brings positions [i · box, (i + 1) · box). The plan carries along the pages of a
 * block's first step, whose copies are asked for before anybody looks into the table. */
typedef struct es_attn_pages {
    const int32_t *pages;
    int base, last; /* copy of lane 0; copies that anybody needs end before `last` */
    int32_t now, next, carried;
    int carried_to; /* copies before it are carried */
    bool is_late;   /* nobody has looked into the table so far */
} es_attn_pages;

static __device__ __forceinline__ int32_t es_attn_look_up(const es_attn_args &a, const es_attn_pages &table, int copy)
{
    return copy < table.last ? table.pages[(int64_t)copy * a.box / a.page] : 0;
}

/* After the copies of a piece's first step. */
static __device__ __forceinline__ void es_attn_open_late(const es_attn_args &a, es_attn_pages &table)
{
    if (!table.is_late) return;
    table.is_late = false;
    table.now = es_attn_look_up(a, table, table.base + (threadIdx.x & 31));
    table.next = es_attn_look_up(a, table, table.base + 32 + (threadIdx.x & 31));
}

static __device__ __forceinline__ es_attn_pages es_attn_open_table(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                                   bool first, int32_t carried)
{
    const int lane = threadIdx.x & 31, keys = piece.start + piece.tokens, end = es_cuda_attn_end(&piece) * ES_CUDA_ATTN_STEP;
    const int begin = es_cuda_attn_begin(&piece) * ES_CUDA_ATTN_STEP;
    es_attn_pages table;
    table.pages = a.pages + piece.first_page;
    table.base = begin / a.box;
    table.last = ((end < keys ? end : keys) - 1) / a.box + 1;
    table.carried_to = table.base;
    table.carried = table.now = table.next = 0;
    table.is_late = true;
    if (first) {
        const int index = (table.base + lane) * a.box / a.page - begin / a.page;
        table.carried = __shfl_sync(0xffffffffu, carried, index & 31);
        if (__shfl_sync(0xffffffffu, carried, 0) >= 0) table.carried_to += ES_CUDA_ATTN_STEP / a.box;
    }
    if (table.carried_to == table.base) es_attn_open_late(a, table);
    return table;
}

/* The row of the cache, in units of head_dim elements, where a copy begins. The whole warp asks, for copies that do not fall.
 */
static __device__ __forceinline__ int64_t es_attn_copy_row(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                           es_attn_pages &table, int copy)
{
    if (copy >= table.base + 32) {
        table.base += 32;
        table.now = table.next;
        table.next = es_attn_look_up(a, table, table.base + 32 + (threadIdx.x & 31));
    }
    const int32_t page = __shfl_sync(0xffffffffu, copy < table.carried_to ? table.carried : table.now, copy - table.base);
    return ((int64_t)page * a.kv_heads + piece.kv_head) * a.page + copy * a.box % a.page;
}

/* Bulk copies: a stage is one, two or four of them. */
template <class K>
static __device__ __forceinline__ void es_attn_produce_bulk(const es_attn_args &a, const es_cuda_attn_piece &piece, bool first,
                                                            int32_t carried, const es_attn_shared &s, es_attn_ring &ring,
                                                            uint64_t policy)
{
    const int lane = threadIdx.x & 31, bytes = a.box * K::D * 2, copies = ES_CUDA_ATTN_TILE / a.box;
    es_attn_pages table = es_attn_open_table(a, piece, first, carried);
    for (int step = es_cuda_attn_begin(&piece); step < es_cuda_attn_end(&piece); step++) {
        int64_t row[2][4]; /* of each tile's copies; only the first `copies` are there */
        const int begin = step * ES_CUDA_ATTN_STEP / a.box;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i % 4 < copies) row[i / 4][i % 4] = es_attn_copy_row(a, piece, table, begin + i / 4 * copies + i % 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int tile = begin + i % 2 * copies, there = table.last - tile < copies ? table.last - tile : copies;
            const uint32_t full = s.full + ring.stage * 8, to = s.base + ring.stage * K::TILE;
            es_barrier_wait(s.empty + ring.stage * 8, ring.parity ^ 1);
            if (lane == 0) {
                if (there > 0)
                    es_barrier_expect(full, (uint32_t)(there * bytes));
                else
                    es_barrier_arrive(full);
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (c < there)
                        es_copy_bulk(to + c * bytes, (const char *)(i < 2 ? a.k : a.v) + row[i % 2][c] * K::D * 2, bytes, full,
                                     policy);
            }
            __syncwarp();
            es_attn_advance(ring);
        }
        es_attn_open_late(a, table);
    }
}

/* 16-byte copies by 128 threads; each of the four warps looks pages up for itself. */
template <class K>
static __device__ __forceinline__ void es_attn_produce_16(const es_attn_args &a, const es_cuda_attn_piece &piece, bool first,
                                                          int32_t carried, const es_attn_shared &s, es_attn_ring &ring)
{
    const int tid = threadIdx.x - K::FOLDERS, bytes = a.box * K::D * 2, copies = ES_CUDA_ATTN_TILE / a.box;
    es_attn_pages table = es_attn_open_table(a, piece, first, carried);
    for (int step = es_cuda_attn_begin(&piece); step < es_cuda_attn_end(&piece); step++) {
        int64_t row[2][4];
        const int begin = step * ES_CUDA_ATTN_STEP / a.box;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i % 4 < copies) row[i / 4][i % 4] = es_attn_copy_row(a, piece, table, begin + i / 4 * copies + i % 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int tile = begin + i % 2 * copies;
            es_barrier_wait(s.empty + ring.stage * 8, ring.parity ^ 1);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (c >= copies || tile + c >= table.last) break;
                const uint32_t to = s.base + ring.stage * K::TILE + c * bytes;
                const char *from = (const char *)(i < 2 ? a.k : a.v) + row[i % 2][c] * K::D * 2;
#pragma unroll 4
                for (int at = tid * 16; at < bytes; at += K::PRODUCERS * 16) es_copy_16(to + at, from + at);
            }
            es_copy_arrive(s.full + ring.stage * 8);
            es_attn_advance(ring);
        }
        es_attn_open_late(a, table);
    }
}

/* ---- the folding warps ---- */

template <class K> static __device__ __forceinline__ void es_attn_meet(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(K::FOLDERS) : "memory");
}

/* The second operand of the scores: query rows, 16 channels a step. */
template <class K>
static __device__ __forceinline__ void es_attn_load_queries(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                            uint32_t (&q)[K::NT][K::D / 16][2])
{
    const int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++) {
        const int64_t row = es_attn_query_row(a, piece, nt * 8 + g);
        if (row < 0) {
#pragma unroll
            for (int i = 0; i < K::D / 8; i++) q[nt][i / 2][i % 2] = 0;
        } else if (a.q_bf16) {
            const uint32_t *from = (const uint32_t *)((const __nv_bfloat16 *)a.q + row) + t;
#pragma unroll
            for (int i = 0; i < K::D / 8; i++) q[nt][i / 2][i % 2] = from[i * 4];
        } else {
            const float2 *from = (const float2 *)((const float *)a.q + row) + t;
#pragma unroll
            for (int i = 0; i < K::D / 8; i++) q[nt][i / 2][i % 2] = es_attn_pair(from[i * 4].x, from[i * 4].y);
        }
    }
}

/* The byte of a row's 16-byte chunk in a stage: as in the cache, chunks stand permuted by their row. */
template <class K> static __device__ __forceinline__ uint32_t es_attn_chunk(int row, int chunk)
{
    return row * K::D * 2 + (chunk ^ (row & 7)) * 16;
}

/* Scores of this warp's keys: Sᵀ, 16 keys a sixteen. Keys that a row does not see get −inf. */
template <class K>
static __device__ __forceinline__ void
es_attn_scores(const es_attn_args &a, const es_cuda_attn_piece &piece, const es_attn_shared &s, const es_attn_ring (&ring)[2],
               const uint32_t (&q)[K::NT][K::D / 16][2], int step, float (&score)[K::KEYS][K::NT][4])
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row = lane & 15;
#pragma unroll
    for (int i = 0; i < K::KEYS; i++) {
        const int sixteen = warp + K::WARPS * i, tile = sixteen / 4;
        const es_attn_ring at = tile ? ring[1] : ring[0]; /* an index would put the rings into memory */
        es_barrier_wait(s.full + at.stage * 8, at.parity);
        const uint32_t base = s.base + at.stage * K::TILE + sixteen % 4 * 16 * K::D * 2;
#pragma unroll
        for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
            for (int j = 0; j < 4; j++) score[i][nt][j] = 0;
#pragma unroll
        for (int ks = 0; ks < K::D / 16; ks++) {
            uint32_t keys[4];
            es_attn_load_matrix(keys, base + es_attn_chunk<K>(row, ks * 2 + (lane >> 4)));
#pragma unroll
            for (int nt = 0; nt < K::NT; nt++) es_attn_mma(score[i][nt], keys, q[nt][ks][0], q[nt][ks][1]);
        }
        if ((step + 1) * ES_CUDA_ATTN_STEP <= piece.start + 1) continue; /* everybody sees all of them */
#pragma unroll
        for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int key = step * ES_CUDA_ATTN_STEP + sixteen * 16 + (lane >> 2) + j / 2 * 8;
                const int token = (nt * 8 + 2 * (lane & 3) + j % 2) / a.group;
                if (key > piece.start + (token < piece.tokens ? token : piece.tokens - 1)) score[i][nt][j] = -INFINITY;
            }
    }
}

/* Exchanges maxima and leaves the weights p in shared memory. `most` gets the maximum after tile 0 and after tile 1. */
template <class K>
static __device__ __forceinline__ void es_attn_weights(const es_attn_shared &s, const float (&score)[K::KEYS][K::NT][4],
                                                       const float (&before)[K::NT][2], float (&most)[2][K::NT][2])
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, t = lane & 3;
#pragma unroll
    for (int i = 0; i < K::KEYS; i++)
#pragma unroll
        for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float m = fmaxf(score[i][nt][c], score[i][nt][c + 2]);
                for (int step = 4; step < 32; step *= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, step));
                if (lane < 4) s.maxima[(warp + K::WARPS * i) * K::NT * 8 + nt * 8 + 2 * t + c] = m;
            }
    es_attn_meet<K>();
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float m = before[nt][c];
#pragma unroll
            for (int sixteen = 0; sixteen < 8; sixteen++) {
                m = fmaxf(m, s.maxima[sixteen * K::NT * 8 + nt * 8 + 2 * t + c]);
                if (sixteen % 4 == 3) most[sixteen / 4][nt][c] = m;
            }
        }
#pragma unroll
    for (int i = 0; i < K::KEYS; i++) {
        const int sixteen = warp + K::WARPS * i;
#pragma unroll
        for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float m = sixteen < 4 ? most[0][nt][j % 2] : most[1][nt][j % 2];
                const int row = nt * 8 + 2 * t + j % 2, key = sixteen * 16 + (lane >> 2) + j / 2 * 8;
                *(__nv_bfloat16 *)(s.weights + row * ES_ATTN_P_STRIDE + key * 2) =
                    __float2bfloat16_rn(es_attn_weight(score[i][nt][j], m));
            }
    }
    es_attn_meet<K>();
}

/* Values of keys that nobody has written yet: their weights are 0, but 0 · NaN is not. */
template <class K>
static __device__ __forceinline__ void es_attn_clear_values(const es_attn_args &a, const es_attn_shared &s,
                                                            const es_attn_ring (&ring)[2], int valid, char *stages)
{
    for (int tile = 0; tile < 2; tile++) {
        es_barrier_wait(s.full + ring[tile].stage * 8, ring[tile].parity);
        const int first = valid - tile * ES_CUDA_ATTN_TILE;
        char *stage = stages + ring[tile].stage * K::TILE;
        constexpr int CHUNKS = K::D / 8;
        for (int i = threadIdx.x; i < ES_CUDA_ATTN_TILE * CHUNKS; i += K::FOLDERS) {
            if (i / CHUNKS >= first) ((uint4 *)stage)[i] = make_uint4(0, 0, 0, 0);
        }
    }
    if (K::BULK) es_fence_copies();
    es_attn_meet<K>();
}

/* Oᵀ and l over the keys of one tile. */
template <class K>
static __device__ __forceinline__ void es_attn_add_tile(const es_attn_args &a, const es_attn_shared &s, const es_attn_ring &at,
                                                        int tile, es_attn_node<K> &node, float (&l)[K::NT][4])
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const uint32_t ones[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
    const int key = (lane & 7) + (lane >> 4) * 8, side = lane >> 3 & 1;
    const char *weights = s.weights + (lane >> 2) * ES_ATTN_P_STRIDE + tile * ES_CUDA_ATTN_TILE * 2 + (lane & 3) * 4;
    es_barrier_wait(s.full + at.stage * 8, at.parity);
#pragma unroll
    for (int ks = 0; ks < 4; ks++) {
        uint32_t p[K::NT][2];
#pragma unroll
        for (int nt = 0; nt < K::NT; nt++) {
            p[nt][0] = *(const uint32_t *)(weights + nt * 8 * ES_ATTN_P_STRIDE + ks * 32);
            p[nt][1] = *(const uint32_t *)(weights + nt * 8 * ES_ATTN_P_STRIDE + ks * 32 + 16);
            es_attn_mma(l[nt], ones, p[nt][0], p[nt][1]);
        }
        const uint32_t base = s.base + at.stage * K::TILE + ks * 16 * K::D * 2;
#pragma unroll
        for (int mt = 0; mt < K::MT; mt++) {
            uint32_t values[4];
            es_attn_load_turned(values, base + es_attn_chunk<K>(key, (warp * K::MT + mt) * 2 + side));
#pragma unroll
            for (int nt = 0; nt < K::NT; nt++) es_attn_mma(node.o[mt][nt], values, p[nt][0], p[nt][1]);
        }
    }
    __syncwarp();
    if (lane == 0) es_barrier_arrive(s.empty + at.stage * 8);
}

template <class K> static __device__ __forceinline__ void es_attn_clear(es_attn_node<K> &node)
{
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++) {
        node.m[nt][0] = node.m[nt][1] = -INFINITY;
        node.l[nt][0] = node.l[nt][1] = 0;
#pragma unroll
        for (int mt = 0; mt < K::MT; mt++)
#pragma unroll
            for (int j = 0; j < 4; j++) node.o[mt][nt][j] = 0;
    }
}

/* Folds one step of 128 keys into `node`: an empty one, where a partition begins. Takes four stages of the ring: K, K, V, V. */
template <class K>
static __device__ __forceinline__ void
es_attn_fold_step(const es_attn_args &a, const es_cuda_attn_piece &piece, const es_attn_shared &s, es_attn_ring &ring,
                       const uint32_t (&q)[K::NT][K::D / 16][2], int step, char *stages, es_attn_node<K> &node)
{
    es_attn_ring keys[2], values[2];
    for (int tile = 0; tile < 2; tile++) keys[tile] = ring, es_attn_advance(ring);
    for (int tile = 0; tile < 2; tile++) values[tile] = ring, es_attn_advance(ring);

    float score[K::KEYS][K::NT][4], most[2][K::NT][2];
    es_attn_scores<K>(a, piece, s, keys, q, step, score);
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
        es_barrier_arrive(s.empty + keys[0].stage * 8);
        es_barrier_arrive(s.empty + keys[1].stage * 8);
    }
    es_attn_weights<K>(s, score, node.m, most);
    const int valid = piece.start + piece.tokens - step * ES_CUDA_ATTN_STEP;
    if (valid < ES_CUDA_ATTN_STEP) es_attn_clear_values<K>(a, s, values, valid, stages);

    float l[K::NT][4];
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
        for (int j = 0; j < 4; j++) l[nt][j] = node.l[nt][j % 2];
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
#pragma unroll
        for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float fade = es_attn_fade(tile ? most[0][nt][j % 2] : node.m[nt][j % 2], most[tile][nt][j % 2]);
                l[nt][j] = __fmul_rn(l[nt][j], fade);
#pragma unroll
                for (int mt = 0; mt < K::MT; mt++) node.o[mt][nt][j] = __fmul_rn(node.o[mt][nt][j], fade);
            }
        es_attn_add_tile<K>(a, s, values[tile], tile, node, l);
    }
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
        for (int c = 0; c < 2; c++) node.m[nt][c] = most[1][nt][c], node.l[nt][c] = l[nt][c];
}

/* right ← left ⊕ right. */
template <class K>
static __device__ __forceinline__ void es_attn_merge_nodes(const es_attn_node<K> &left, es_attn_node<K> &right)
{
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float m = left.m[nt][c], l = left.l[nt][c];
            const es_attn_merging how = es_attn_merge(m, l, right.m[nt][c], right.l[nt][c]);
            right.m[nt][c] = m, right.l[nt][c] = l;
#pragma unroll
            for (int mt = 0; mt < K::MT; mt++)
#pragma unroll
                for (int j = c; j < 4; j += 2) right.o[mt][nt][j] = es_attn_merged(how, left.o[mt][nt][j], right.o[mt][nt][j]);
        }
}

/* ---- what waits for its right sibling ---- */

/* A block's stack: at most one node of each height. The lowest stays in registers where there are some left (few rows), the
 * next ones in shared memory, and what is left in the workspace. */
template <class K> struct es_attn_stack {
    es_attn_node<K> leaf;
    float *near, *far;
    uint32_t have;
};

template <class K>
static __device__ __forceinline__ float *es_attn_stack_at(const es_attn_args &a, const es_attn_stack<K> &stack, int height)
{
    const int above = K::NT == 1 ? height - 1 : height;
    return (above < a.near ? stack.near + above * (K::NODE / 4)
                           : stack.far + (int64_t)height * es_attn_stack_floats(a.row_tile, K::D)) +
           threadIdx.x;
}

template <class K>
static __device__ __forceinline__ void es_attn_stack_put(const es_attn_args &a, es_attn_stack<K> &stack, int height,
                                                         const es_attn_node<K> &node)
{
    stack.have |= 1u << height;
    if (K::NT == 1 && height == 0) {
        stack.leaf = node;
        return;
    }
    float *at = es_attn_stack_at<K>(a, stack, height);
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++) {
#pragma unroll
        for (int mt = 0; mt < K::MT; mt++)
#pragma unroll
            for (int j = 0; j < 4; j++, at += K::FOLDERS) *at = node.o[mt][nt][j];
#pragma unroll
        for (int c = 0; c < 2; c++, at += 2 * K::FOLDERS) at[0] = node.m[nt][c], at[K::FOLDERS] = node.l[nt][c];
    }
}

template <class K>
static __device__ __forceinline__ void es_attn_stack_take(const es_attn_args &a, es_attn_stack<K> &stack, int height,
                                                          es_attn_node<K> &node)
{
    stack.have &= ~(1u << height);
    if (K::NT == 1 && height == 0) {
        node = stack.leaf;
        return;
    }
    const float *at = es_attn_stack_at<K>(a, stack, height);
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++) {
#pragma unroll
        for (int mt = 0; mt < K::MT; mt++)
#pragma unroll
            for (int j = 0; j < 4; j++, at += K::FOLDERS) node.o[mt][nt][j] = *at;
#pragma unroll
        for (int c = 0; c < 2; c++, at += 2 * K::FOLDERS) node.m[nt][c] = at[0], node.l[nt][c] = at[K::FOLDERS];
    }
}

/* ---- results ---- */

/* Leaves a node where the finish finds it: the rows that there are. */
template <class K>
static __device__ __forceinline__ void es_attn_publish(const es_attn_args &a, const es_cuda_attn_piece &piece, int slot,
                                                       const es_attn_node<K> &node)
{
    constexpr int SLICES = K::D / ES_ATTN_SLICE;
    const int warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int row = nt * 8 + 2 * t + c;
            if (row >= piece.tokens * a.group) continue;
            float *at = a.nodes + ((int64_t)slot * a.row_tile + row) * (SLICES * ES_ATTN_RECORD);
            if (warp == 0 && g < SLICES) {
                es_attn_leave(at + g * ES_ATTN_RECORD + ES_ATTN_SLICE, node.m[nt][c]);
                es_attn_leave(at + g * ES_ATTN_RECORD + ES_ATTN_SLICE + 1, node.l[nt][c]);
            }
#pragma unroll
            for (int mt = 0; mt < K::MT; mt++)
#pragma unroll
                for (int j = c; j < 4; j += 2) {
                    const int channel = (warp * K::MT + mt) * 16 + g + j / 2 * 8;
                    es_attn_leave(at + channel / ES_ATTN_SLICE * ES_ATTN_RECORD + channel % ES_ATTN_SLICE, node.o[mt][nt][j]);
                }
        }
}

/* Finishes a whole item. */
template <class K>
static __device__ __forceinline__ void es_attn_write_item(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                          const es_attn_node<K> &node)
{
    const int warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    float gate[K::NT][4][K::MT];
#pragma unroll
    for (int i = 0; i < K::NT * 4 * K::MT; i++) {
        const int nt = i / (4 * K::MT), j = i / K::MT % 4, row = nt * 8 + 2 * t + j % 2;
        const int channel = (warp * K::MT + i % K::MT) * 16 + g + j / 2 * 8;
        gate[nt][j][i % K::MT] =
            row < piece.tokens * a.group ? es_attn_gate(a, piece.kv_head, piece.first_row, row, channel) : 0.0f;
    }
#pragma unroll
    for (int nt = 0; nt < K::NT; nt++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = nt * 8 + 2 * t + j % 2;
            if (row >= piece.tokens * a.group) continue;
            const float inverse = es_attn_inverse(node.l[nt][j % 2]);
#pragma unroll
            for (int mt = 0; mt < K::MT; mt++)
                es_attn_write(a, piece.kv_head, piece.first_row, row, (warp * K::MT + mt) * 16 + g + j / 2 * 8,
                              node.o[mt][nt][j], inverse, gate[nt][j][mt]);
        }
}

/* Pushes the node of partition p: as in a binary counter it merges with its left siblings, then waits, or is published when
 * its left sibling lies before the piece. */
template <class K>
static __device__ __forceinline__ void es_attn_push(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                    es_attn_stack<K> &stack, int p, es_attn_node<K> &node, int &slot)
{
    int height = 0;
    for (; (p >> height) & 1; height++) {
        if (!(stack.have >> height & 1)) {
            es_attn_publish<K>(a, piece, slot++, node);
            return;
        }
        es_attn_node<K> left;
        es_attn_stack_take<K>(a, stack, height, left);
        es_attn_merge_nodes<K>(left, node);
    }
    es_attn_stack_put<K>(a, stack, height, node);
}

/* What is left are nodes of falling height: one after the other from the left they are published, or merged from the right. */
template <class K>
static __device__ __forceinline__ void es_attn_close_piece(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                           es_attn_stack<K> &stack, int slot)
{
    es_attn_node<K> node;
    if (piece.split >= 0) {
        while (stack.have) {
            es_attn_stack_take<K>(a, stack, 31 - __clz(stack.have), node);
            es_attn_publish<K>(a, piece, slot++, node);
        }
        return;
    }
    es_attn_stack_take<K>(a, stack, __ffs(stack.have) - 1, node);
    while (stack.have) {
        es_attn_node<K> left;
        es_attn_stack_take<K>(a, stack, __ffs(stack.have) - 1, left);
        es_attn_merge_nodes<K>(left, node);
    }
    es_attn_write_item<K>(a, piece, node);
}

/* Whether published pieces of an item are counted. Many blocks that share one end together, and asking for words at once is
 * fastest; few may wait for each other for long, and would keep others from reading. */
template <class K> static __device__ __forceinline__ bool es_attn_counts(const es_cuda_attn_piece &piece)
{
    return K::HINTS || piece.parts <= ES_ATTN_FEW_PARTS;
}

template <class K>
static __device__ __forceinline__ void es_attn_fold_piece(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                          const es_attn_shared &s, es_attn_ring &ring, char *stages,
                                                          int &splits)
{
    constexpr int WORDS = sizeof(es_cuda_attn_split) / 4;
    const bool shared = piece.split >= 0 && a.fused;
    int32_t word = 0; /* of what the finish will ask for: on its way while keys are */
    if (shared && threadIdx.x < WORDS) word = ((const int32_t *)&es_attn_splits(a.plan)[piece.split])[threadIdx.x];
    uint32_t q[K::NT][K::D / 16][2];
    es_attn_load_queries<K>(a, piece, q);
    es_attn_node<K> node;
    es_attn_stack<K> stack;
    stack.far = a.stack + (int64_t)blockIdx.x * a.heights * es_attn_stack_floats(a.row_tile, K::D);
    stack.near = s.near;
    stack.have = 0;
    int slot = piece.node;
    es_attn_clear<K>(node);
    const int end = es_cuda_attn_end(&piece);
    int p = piece.from;
    for (int step = es_cuda_attn_begin(&piece); step < end; step++) {
        es_attn_fold_step<K>(a, piece, s, ring, q, step, stages, node);
        if (K::LOOSE || (step + 1 < end && (step + 1) & (piece.chain - 1))) continue;
        es_attn_push<K>(a, piece, stack, p++, node, slot);
        es_attn_clear<K>(node);
    }
    if (!K::LOOSE)
        es_attn_close_piece<K>(a, piece, stack, slot);
    else if (piece.split >= 0)
        es_attn_publish<K>(a, piece, slot, node);
    else
        es_attn_write_item<K>(a, piece, node);
    if (shared) {
        if (threadIdx.x < WORDS) ((int32_t *)&s.split[splits])[threadIdx.x] = word;
        splits++;
        es_attn_meet<K>();
        if (es_attn_counts<K>(piece) && threadIdx.x == 0) atomicAdd(a.counter + piece.split * 2, 1);
    }
}

/* The blocks that shared an item finish it together. Every word of a node says itself whether it is there, and is asked for until it
 * is. Where pieces are counted, that is a hint that it will be. */
template <class K>
static __device__ __forceinline__ void es_attn_finish_piece(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                            const es_cuda_attn_split &split, const int32_t *schedule,
                                                            char *scratch)
{
    int32_t *counter = a.counter + piece.split * 2;
    if (!es_attn_counts<K>(piece)) {
        if (piece.even) {
            if (piece.part < es_attn_tasks(a, split))
                es_attn_finish_even<K::FOLDERS>(a, split, piece.part, piece.parts, scratch);
            return;
        }
        es_attn_finish_tasks<K::FOLDERS>(a, split, schedule, piece.part, piece.parts, scratch);
        return;
    }
    if (threadIdx.x == 0) {
        int32_t published;
        do asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(published) : "l"(counter) : "memory");
        while (published < piece.parts);
    }
    es_attn_meet<K>();
    es_attn_finish_tasks<K::FOLDERS>(a, split, schedule, piece.part, piece.parts, scratch);
    if (threadIdx.x == 0 && atomicAdd(counter + 1, 1) == piece.parts - 1)
        counter[0] = counter[1] = 0; /* for the next launch */
}

/* Each kernel is compiled for the card it is for: sm_80 has no bulk copies, sm_90 is better served by them (measuring builds
 * try). */
template <class K> static constexpr __device__ bool es_attn_is_for(int arch)
{
#ifdef ES_CUDA_MEASURE
    return arch >= (K::BULK ? 900 : 800);
#else
    return K::BULK ? arch >= 900 : arch >= 800 && arch < 900;
#endif
}

template <class K> static __device__ __forceinline__ void es_attn_run(const es_attn_args &a)
{
    extern __shared__ __align__(1024) char memory[];
    es_attn_shared s;
    const int stages = a.stages;
    s.base = es_shared(memory);
    s.near = (float *)(memory + stages * K::TILE);
    s.weights = (char *)s.near + a.near * K::NODE;
    s.maxima = (float *)(s.weights + K::NT * 8 * ES_ATTN_P_STRIDE);
    s.split = (es_cuda_attn_split *)(s.maxima + 8 * K::NT * 8);
    s.full = es_shared(s.weights) + K::EXTRA, s.empty = s.full + stages * 8;
    es_wait_for_previous();
    es_let_next_start();
    es_cuda_attn_piece piece;
    const int32_t carried = ((const es_cuda_attn_block *)(a.plan + 1))[blockIdx.x].page[threadIdx.x & 7];
    bool more = es_attn_piece_at(a, 0, piece); /* both on their way while the barriers are made */
    if (threadIdx.x == K::FOLDERS) {
        for (int i = 0; i < stages; i++) {
            es_barrier_init(s.full + i * 8, K::BULK ? 1 : K::PRODUCERS);
            es_barrier_init(s.empty + i * 8, K::WARPS);
        }
        if (K::BULK) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    es_attn_ring ring = {0, stages, 0};
    if (threadIdx.x >= K::FOLDERS) {
#if ES_HAS_WGMMA
        if constexpr (K::GIVES) es_registers_fewer<40>();
#endif
        if (K::GIVES && threadIdx.x >= K::FOLDERS + 32) more = false;
        const uint64_t policy = es_policy_once(a.once);
        for (int i = 0; more; more = es_attn_piece_at(a, ++i, piece))
            if constexpr (K::BULK)
                es_attn_produce_bulk<K>(a, piece, i == 0, carried, s, ring, policy);
            else
                es_attn_produce_16<K>(a, piece, i == 0, carried, s, ring);
    } else {
#if ES_HAS_WGMMA
        if constexpr (K::GIVES) es_registers_more<232>();
#endif
        const int32_t *schedule = es_attn_schedule(a.plan);
        int splits = 0;
        for (int i = 0; more; more = es_attn_piece_at(a, ++i, piece)) es_attn_fold_piece<K>(a, piece, s, ring, memory, splits);
        if (splits == 0) return;
        splits = 0;
        for (int i = 0; es_attn_piece_at(a, i, piece); i++)
            if (piece.split >= 0) es_attn_finish_piece<K>(a, piece, s.split[splits++], schedule, memory);
    }
}

template <class K>
static __global__ void __launch_bounds__(K::THREADS, K::PAIR ? 2 : 1) es_attn_kernel(const __grid_constant__ es_attn_args a)
{
#ifdef __CUDA_ARCH__
    if constexpr (es_attn_is_for<K>(__CUDA_ARCH__)) es_attn_run<K>(a);
#endif
}

#endif
