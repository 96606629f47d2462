/* attn_wide.cuh: attention of many query rows on Hopper: the fold of attn_tile.cuh, through wgmma.
 *
 * Two warpgroups have 64 query rows each and read the same tiles of keys and values, a third one's first warp keeps those in
 * flight by tensor copies. Here query rows are the first operand:
 *   scores:  S[row][key] = Q·Kᵀ           both from shared memory
 *   output:  O[row][channel] += P·V       weights from registers, where the scores left them
 *   sums:    l[row] += P·1                mma.sync, one column of which is kept
 * A warp has sixteen rows, and a thread of lane 4g + t rows g and g + 8 of them, keys or channels 2t and 2t + 1 of every
 * eight. The matrix units add what they add in attn_tile.cuh in the same order, so bits are equal, as tests/cuda/attn_test.cu
 * sees.
 *
 * Nodes are as large as registers: what waits for its right sibling goes through the second-level cache, which bounds the
 * speed where partitions are short (es_cuda_attn_chain()). With O beside them the scores of one tile fit, not of two.
 *
 * A tile lies in panels of 64 channels: rows of 128 bytes whose 16-byte chunks the cache itself keeps permuted by the
 * position (es_cuda_attn_channel()), which is the swizzle that the instruction expects. */
#ifndef ES_CUDA_ATTN_WIDE_CUH
#define ES_CUDA_ATTN_WIDE_CUH

#include "device/cuda/attn_tile.cuh"

#define ES_ATTN_WIDE_ROWS 128 /* query rows of an item */

template <int D_> struct es_attn_wide {
    static constexpr int D = D_, WARPS = 8, FOLDERS = WARPS * 32, THREADS = FOLDERS + 128;
    static constexpr bool HINTS = true;
    static constexpr int PANEL = 64 * 128, PANELS = D / 64, TILE = PANELS * PANEL; /* bytes, panels, bytes */
    static constexpr int EXTRA = 2 * TILE + 2 * (int)sizeof(es_cuda_attn_split);   /* queries of two warpgroups */
    static constexpr int NODE = ES_ATTN_WIDE_ROWS * (D + 8) * (int)sizeof(float);  /* bytes of a node on a block's stack */
};

/* What a launch hands its kernel. */
typedef struct es_attn_wide_args {
    CUtensorMap k, v; /* all rows of the cache; a box is 64 channels of as many rows as lie side by side */
    es_attn_args a;
} es_attn_wide_args;

#if ES_HAS_WGMMA
/* The pieces of shared memory. */
typedef struct es_attn_wide_shared {
    uint32_t base, queries, full, empty; /* addresses; queries: this warpgroup's */
    char *memory;                        /* where base points to */
    es_cuda_attn_split *split;           /* [2] what the finish must know, read early */
} es_attn_wide_shared;

template <class W> struct es_attn_wide_node {
    float o[W::D / 2]; /* of every eight channels: two of row g, two of row g + 8 */
    float m[2], l[2];
};

/* ---- the producer ---- */

template <class W>
static __device__ __forceinline__ void es_attn_wide_produce(const es_attn_wide_args &w, const es_cuda_attn_piece &piece,
                                                            bool first, int32_t carried, const es_attn_wide_shared &s,
                                                            es_attn_ring &ring)
{
    const es_attn_args &a = w.a;
    const int lane = threadIdx.x & 31, copies = ES_CUDA_ATTN_TILE / a.box;
    es_attn_pages table = es_attn_open_table(a, piece, first, carried);
    for (int step = es_cuda_attn_begin(&piece); step < es_cuda_attn_end(&piece); step++) {
        int row[2][4]; /* of each tile's copies; only the first `copies` are there */
        const int begin = step * ES_CUDA_ATTN_STEP / a.box;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i % 4 < copies) row[i / 4][i % 4] = (int)es_attn_copy_row(a, piece, table, begin + i / 4 * copies + i % 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int tile = begin + i % 2 * copies, there = table.last - tile < copies ? table.last - tile : copies;
            const uint32_t full = s.full + ring.stage * 8, to = s.base + ring.stage * W::TILE + lane * W::PANEL;
            es_barrier_wait(s.empty + ring.stage * 8, ring.parity ^ 1);
            if (lane == 0) {
                if (there > 0)
                    es_barrier_expect(full, (uint32_t)(there * a.box * W::D * 2));
                else
                    es_barrier_arrive(full);
            }
            __syncwarp();
            if (lane < W::PANELS)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (c < there) es_tensor_copy(to + c * a.box * 128, i < 2 ? &w.k : &w.v, lane * 64, row[i % 2][c], full);
            __syncwarp();
            es_attn_advance(ring);
        }
        es_attn_open_late(a, table);
    }
}

/* ---- the folding warpgroups ---- */

/* The four warps of a warpgroup meet. */
static __device__ __forceinline__ void es_attn_wide_meet(void)
{
    asm volatile("bar.sync %0, 128;" ::"r"(2 + (int)threadIdx.x / 128) : "memory");
}

static __device__ __forceinline__ uint4 es_attn_wide_pack(const float4 &low, const float4 &high)
{
    return make_uint4(es_attn_pair(low.x, low.y), es_attn_pair(low.z, low.w), es_attn_pair(high.x, high.y),
                      es_attn_pair(high.z, high.w));
}

/* Query rows of this warpgroup, as bf16, laid out like a tile of keys. Rows that only fill the tile are copies of the first.
 */
template <class W>
static __device__ __forceinline__ void es_attn_wide_load_queries(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                                 const es_attn_wide_shared &s)
{
    constexpr int CHUNKS = W::D / 8, AT_ONCE = 4;
    const int first = threadIdx.x / 128 * 64, thread = threadIdx.x % 128, rows = piece.tokens * a.group;
    es_attn_wide_meet(); /* nobody reads the piece before any more */
    for (int i = thread; i < 64 * CHUNKS; i += 128 * AT_ONCE) {
        uint4 x[AT_ONCE];
        int64_t from[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = i + k * 128, row = first + at / CHUNKS;
            from[k] = es_attn_query_row(a, piece, row < rows ? row : 0) + at % CHUNKS * 8;
        }
        if (a.q_bf16) {
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) x[k] = *(const uint4 *)((const __nv_bfloat16 *)a.q + from[k]);
        } else {
            const float *q = (const float *)a.q;
            float4 low[AT_ONCE], high[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                low[k] = *(const float4 *)(q + from[k]), high[k] = *(const float4 *)(q + from[k] + 4);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) x[k] = es_attn_wide_pack(low[k], high[k]);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = i + k * 128, row = at / CHUNKS, chunk = at % CHUNKS;
            const uint32_t to = s.queries + chunk / 8 * W::PANEL + row * 128 + (chunk % 8 ^ row % 8) * 16;
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[k].x), "r"(x[k].y), "r"(x[k].z),
                         "r"(x[k].w)
                         : "memory");
        }
    }
    es_fence_copies();
    es_attn_wide_meet();
}

/* A descriptor so many sixteen bytes on: its upper half is a constant, for which there are no registers to spare. */
static __device__ __forceinline__ uint64_t es_attn_wide_at(uint64_t rows, uint32_t step)
{
    return (rows & 0xFFFFFFFF00000000u) | ((uint32_t)rows + step);
}

/* Scores of a tile of 64 keys: begun, not awaited. Of whatever lies in the stage, unless it is `wanted`. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_score(const es_attn_wide_shared &s, const es_attn_ring &at, bool wanted,
                                                          float (&score)[32])
{
    const uint64_t queries = es_wgmma_rows128(s.queries), keys = es_wgmma_rows128(s.base + at.stage * W::TILE);
    if (wanted) es_barrier_wait(s.full + at.stage * 8, at.parity);
    es_wgmma_fence();
#pragma unroll
    for (int ks = 0; ks < W::D / 16; ks++) {
        const uint32_t step = ks / 4 * (W::PANEL >> 4) + ks % 4 * (32 >> 4);
        es_wgmma_scores(score, es_attn_wide_at(queries, step), es_attn_wide_at(keys, step), ks > 0);
    }
    es_wgmma_commit();
}

/* Keys that a row does not see get −inf: `last` is the last one that each of the thread's rows sees. */
static __device__ __forceinline__ void es_attn_wide_hide(float (&score)[32], int first_key, const int (&last)[2])
{
    const int key = first_key + 2 * (threadIdx.x & 3);
#pragma unroll
    for (int i = 0; i < 32; i++)
        if (key + i / 4 * 8 + i % 2 > last[i / 2 % 2]) score[i] = -INFINITY;
}

/* The maximum of each row grows, and what was there before fades; the tile's weights come as the first operand of four
 * instructions of 16 keys. */
static __device__ __forceinline__ void es_attn_wide_weigh(const float (&score)[32], float (&most)[2], float (&fade)[2],
                                                          uint32_t (&p)[4][4])
{
    float none[2]; /* what is subtracted: where no key was seen so far all scores are −inf, and weigh nothing */
#pragma unroll
    for (int c = 0; c < 2; c++) {
        float m = -INFINITY;
#pragma unroll
        for (int i = 0; i < 8; i++) m = fmaxf(m, fmaxf(score[4 * i + 2 * c], score[4 * i + 2 * c + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        m = fmaxf(most[c], m);
        fade[c] = es_attn_fade(most[c], m);
        most[c] = m;
        none[c] = most[c] == -INFINITY ? 0.0f : most[c];
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        p[i / 4][i % 4] = es_attn_pair(es_attn_exp(__fsub_rn(score[2 * i], none[i % 2])),
                                       es_attn_exp(__fsub_rn(score[2 * i + 1], none[i % 2])));
}

/* l of the two rows, over a tile's 64 keys. */
static __device__ __forceinline__ void es_attn_wide_sum(const uint32_t (&p)[4][4], const float (&fade)[2], float (&l)[2])
{
    const float before[2] = {__fmul_rn(l[0], fade[0]), __fmul_rn(l[1], fade[1])};
    float sum[4] = {before[0], before[0], before[1], before[1]};
#pragma unroll
    for (int ks = 0; ks < 4; ks++) es_attn_mma(sum, p[ks], 0x3F803F80u, 0x3F803F80u);
    l[0] = sum[0], l[1] = sum[2];
}

/* O over a tile of 64 keys: begun, not awaited. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_add(const es_attn_wide_shared &s, const es_attn_ring &at,
                                                        const uint32_t (&p)[4][4], float (&o)[W::D / 2])
{
    const uint64_t values = es_wgmma_panels128(s.base + at.stage * W::TILE, W::PANEL);
    es_barrier_wait(s.full + at.stage * 8, at.parity);
    es_wgmma_fence();
#pragma unroll
    for (int ks = 0; ks < 4; ks++) es_wgmma_values(o, p[ks], es_attn_wide_at(values, ks * (16 * 128 >> 4)), 1);
    es_wgmma_commit();
}

/* Values of keys that nobody has written yet: their weights are 0, but 0 · NaN is not. Both warpgroups do it together. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_clear_values(const es_attn_wide_shared &s, const es_attn_ring (&ring)[2],
                                                                 int valid)
{
    for (int tile = 0; tile < 2; tile++) {
        es_barrier_wait(s.full + ring[tile].stage * 8, ring[tile].parity);
        uint4 *stage = (uint4 *)(s.memory + ring[tile].stage * W::TILE);
        for (int i = threadIdx.x; i < W::TILE / 16; i += W::FOLDERS)
            if (i / 8 % 64 >= valid - tile * ES_CUDA_ATTN_TILE) stage[i] = make_uint4(0, 0, 0, 0);
    }
    es_fence_copies();
    es_attn_meet<W>();
}

/* This warp is done with a stage. */
static __device__ __forceinline__ void es_attn_wide_release(const es_attn_wide_shared &s, const es_attn_ring &at)
{
    __syncwarp();
    if ((threadIdx.x & 31) == 0) es_barrier_arrive(s.empty + at.stage * 8);
}

/* O fades as a row's maximum grows. */
template <class W> static __device__ __forceinline__ void es_attn_wide_fade(float (&o)[W::D / 2], const float (&fade)[2])
{
#pragma unroll
    for (int i = 0; i < W::D / 2; i++) o[i] = __fmul_rn(o[i], fade[i / 2 % 2]);
}

/* A partition begins: an empty node, and the scores of its first tile. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_begin(const es_attn_wide_shared &s, const es_attn_ring &ring,
                                                          float (&score)[32], es_attn_wide_node<W> &node)
{
    es_attn_wide_score<W>(s, ring, true, score);
    es_wgmma_wait<0>();
    es_wgmma_keep(score);
    es_attn_wide_release(s, ring);
    node.m[0] = node.m[1] = -INFINITY;
    node.l[0] = node.l[1] = 0;
#pragma unroll
    for (int i = 0; i < W::D / 2; i++) node.o[i] = 0;
}

/* Folds a step of 128 keys into `node`: an empty one, where a partition begins. Takes four stages of the ring: K, K, V, V. The
 * scores of its first tile are there; if there is `more` of the partition those of the next step's are left there. While one
 * tile's scores become weights, the matrix units have a product with the other one's values, or the other warpgroup's. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_fold_step(const es_cuda_attn_piece &piece, const es_attn_wide_shared &s,
                                                              es_attn_ring &ring, int step, bool more, const int (&last)[2],
                                                              float (&score)[32], es_attn_wide_node<W> &node)
{
    es_attn_ring keys, values[2];
    es_attn_advance(ring);
    keys = ring, es_attn_advance(ring);
    for (int tile = 0; tile < 2; tile++) values[tile] = ring, es_attn_advance(ring);
    const int first = step * ES_CUDA_ATTN_STEP, valid = piece.start + piece.tokens - first;
    const bool hides = first + ES_CUDA_ATTN_STEP > piece.start + 1;
    float fade[2];
    uint32_t weights[2][4][4];
    if (hides) es_attn_wide_hide(score, first, last);
    es_attn_wide_weigh(score, node.m, fade, weights[0]);
    es_attn_wide_score<W>(s, keys, true, score);
    es_attn_wide_sum(weights[0], fade, node.l);
    es_attn_wide_fade<W>(node.o, fade);
    if (valid < ES_CUDA_ATTN_STEP) es_attn_wide_clear_values<W>(s, values, valid);
    es_attn_wide_add<W>(s, values[0], weights[0], node.o);

    es_wgmma_wait<1>();
    es_wgmma_keep(score);
    es_attn_wide_release(s, keys);
    if (hides) es_attn_wide_hide(score, first + ES_CUDA_ATTN_TILE, last);
    es_attn_wide_weigh(score, node.m, fade, weights[1]);
    es_attn_wide_score<W>(s, ring, more, score); /* always: the compiler would wait for everything at a branch */
    es_attn_wide_sum(weights[1], fade, node.l);
    es_wgmma_wait<1>();
    es_wgmma_keep(node.o);
    es_attn_wide_release(s, values[0]);
    es_attn_wide_fade<W>(node.o, fade);
    es_attn_wide_add<W>(s, values[1], weights[1], node.o);
    es_wgmma_wait<0>();
    es_wgmma_keep(score);
    es_wgmma_keep(node.o);
    es_attn_wide_release(s, values[1]);
    if (more) es_attn_wide_release(s, ring);
}

/* What a warpgroup does that has no rows of a piece: it lets its stages go by. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_pass(const es_cuda_attn_piece &piece, const es_attn_wide_shared &s,
                                                         es_attn_ring &ring)
{
    for (int step = es_cuda_attn_begin(&piece); step < es_cuda_attn_end(&piece); step++) {
        const int valid = piece.start + piece.tokens - step * ES_CUDA_ATTN_STEP;
        es_attn_ring values[2];
        for (int i = 0; i < 4; i++) {
            if (i == 2 && valid < ES_CUDA_ATTN_STEP) {
                values[0] = values[1] = ring;
                es_attn_advance(values[1]);
                es_attn_wide_clear_values<W>(s, values, valid);
            }
            es_barrier_wait(s.full + ring.stage * 8, ring.parity);
            es_attn_wide_release(s, ring);
            es_attn_advance(ring);
        }
    }
}

/* ---- what waits for its right sibling: at most one node of each height, in the workspace ---- */

template <class W> struct es_attn_wide_stack {
    static constexpr int HEIGHT = (ES_ATTN_WIDE_ROWS * W::D + 256 * 4) / 4; /* float4s from one to the next */
    float4 *at; /* this thread's */
    uint32_t have;
};

template <class W>
static __device__ __forceinline__ void es_attn_wide_put(es_attn_wide_stack<W> &stack, int height,
                                                        const es_attn_wide_node<W> &node)
{
    float4 *at = stack.at + height * stack.HEIGHT;
    stack.have |= 1u << height;
#pragma unroll
    for (int i = 0; i < W::D / 8; i++)
        __stcg(at + i * W::FOLDERS, make_float4(node.o[4 * i], node.o[4 * i + 1], node.o[4 * i + 2], node.o[4 * i + 3]));
    __stcg(at + W::D / 8 * W::FOLDERS, make_float4(node.m[0], node.m[1], node.l[0], node.l[1]));
}

template <class W>
static __device__ __forceinline__ void es_attn_wide_take(es_attn_wide_stack<W> &stack, int height, es_attn_wide_node<W> &node)
{
    const float4 *at = stack.at + height * stack.HEIGHT;
    stack.have &= ~(1u << height);
#pragma unroll
    for (int i = 0; i < W::D / 8; i++) {
        const float4 v = __ldcg(at + i * W::FOLDERS);
        node.o[4 * i] = v.x, node.o[4 * i + 1] = v.y, node.o[4 * i + 2] = v.z, node.o[4 * i + 3] = v.w;
    }
    const float4 v = __ldcg(at + W::D / 8 * W::FOLDERS);
    node.m[0] = v.x, node.m[1] = v.y, node.l[0] = v.z, node.l[1] = v.w;
}

/* node ← the waiting node ⊕ node. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_merge(es_attn_wide_stack<W> &stack, int height, es_attn_wide_node<W> &node)
{
    constexpr int AT_ONCE = 8;
    const float4 *at = stack.at + height * stack.HEIGHT;
    stack.have &= ~(1u << height);
    const float4 left = __ldcg(at + W::D / 8 * W::FOLDERS);
    float m[2] = {left.x, left.y}, l[2] = {left.z, left.w};
    es_attn_merging how[2];
#pragma unroll
    for (int c = 0; c < 2; c++) {
        how[c] = es_attn_merge(m[c], l[c], node.m[c], node.l[c]);
        node.m[c] = m[c], node.l[c] = l[c];
    }
#pragma unroll
    for (int first = 0; first < W::D / 8; first += AT_ONCE) {
        float4 v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) v[i] = __ldcg(at + (first + i) * W::FOLDERS);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float *o = node.o + 4 * (first + i);
            o[0] = es_attn_merged(how[0], v[i].x, o[0]), o[1] = es_attn_merged(how[0], v[i].y, o[1]);
            o[2] = es_attn_merged(how[1], v[i].z, o[2]), o[3] = es_attn_merged(how[1], v[i].w, o[3]);
        }
    }
}

/* ---- results ---- */

/* Row g or g + 8 of this thread, among the item's. */
static __device__ __forceinline__ int es_attn_wide_row(int c)
{
    return (threadIdx.x >> 5) * 16 + (threadIdx.x & 31) / 4 + c * 8;
}

/* Leaves a node where the finish finds it: the rows that there are. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_publish(const es_attn_args &a, const es_cuda_attn_piece &piece, int slot,
                                                            const es_attn_wide_node<W> &node)
{
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int row = es_attn_wide_row(c);
        if (row >= piece.tokens * a.group) continue;
        float *at = a.nodes + ((int64_t)slot * ES_ATTN_WIDE_ROWS + row) * (W::D / ES_ATTN_SLICE * ES_ATTN_RECORD);
#pragma unroll
        for (int i = 0; i < W::D / 8; i++) {
            const int channel = i * 8 + 2 * t;
            float *to = at + channel / ES_ATTN_SLICE * ES_ATTN_RECORD + channel % ES_ATTN_SLICE;
            es_attn_leave_two(to, node.o[4 * i + 2 * c], node.o[4 * i + 2 * c + 1]);
        }
        for (int slice = t; slice < W::D / ES_ATTN_SLICE; slice += 4)
            es_attn_leave_two(at + slice * ES_ATTN_RECORD + ES_ATTN_SLICE, node.m[c], node.l[c]);
    }
}

/* Sixteen channels of a row, two of every eight from `channel` on: as es_attn_write() does it. */
static __device__ __forceinline__ void es_attn_wide_write(const es_attn_args &a, int64_t row, int64_t head, int channel,
                                                          float (&x)[16])
{
    const int64_t at = head * a.head_dim + channel;
    if (a.gate) {
        const float *from = a.gate + row * a.gate_stride + head * a.gate_head_stride + channel;
        float gate[16];
#pragma unroll
        for (int i = 0; i < 16; i++) gate[i] = from[i / 2 * 8 + i % 2];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = __fmul_rn(x[i], es_attn_sigmoid(gate[i]));
    }
    if (a.out)
#pragma unroll
        for (int i = 0; i < 16; i++) a.out[row * a.query_heads * a.head_dim + at + i / 2 * 8 + i % 2] = x[i];
    if (a.out16.data)
#pragma unroll
        for (int i = 0; i < 16; i += 2)
            *(uint32_t *)(void *)es_shadow_at(a.out16, row, at + i / 2 * 8) = es_attn_pair(x[i], x[i + 1]);
}

/* Finishes a whole item. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_write_item(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                               const es_attn_wide_node<W> &node)
{
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int row = es_attn_wide_row(c);
        if (row >= piece.tokens * a.group) continue;
        const int64_t r = piece.first_row + row / a.group, head = piece.kv_head * a.group + row % a.group;
        const float inverse = es_attn_inverse(node.l[c]);
#pragma unroll
        for (int first = 0; first < W::D / 8; first += 8) {
            float x[16];
#pragma unroll
            for (int i = 0; i < 16; i++) x[i] = __fmaf_rn(node.o[4 * (first + i / 2) + 2 * c + i % 2], inverse, 0.0f);
            es_attn_wide_write(a, r, head, first * 8 + 2 * (threadIdx.x & 3), x);
        }
    }
}

/* As in attn_tile.cuh: a binary counter of nodes. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_push(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                         es_attn_wide_stack<W> &stack, int p, es_attn_wide_node<W> &node,
                                                         int &slot)
{
    int height = 0;
    for (; (p >> height) & (stack.have >> height) & 1; height++) es_attn_wide_merge<W>(stack, height, node);
    if ((p >> height) & 1)
        es_attn_wide_publish<W>(a, piece, slot++, node);
    else
        es_attn_wide_put<W>(stack, height, node);
}

template <class W>
static __device__ __forceinline__ void es_attn_wide_close_piece(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                                es_attn_wide_stack<W> &stack, int slot)
{
    es_attn_wide_node<W> node;
    if (piece.split >= 0) {
        while (stack.have) {
            es_attn_wide_take<W>(stack, 31 - __clz(stack.have), node);
            es_attn_wide_publish<W>(a, piece, slot++, node);
        }
        return;
    }
    es_attn_wide_take<W>(stack, __ffs(stack.have) - 1, node);
    while (stack.have) es_attn_wide_merge<W>(stack, __ffs(stack.have) - 1, node);
    es_attn_wide_write_item<W>(a, piece, node);
}

/* The rows of this warpgroup. */
template <class W>
static __device__ __forceinline__ void es_attn_wide_fold_rows(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                              const es_attn_wide_shared &s, es_attn_ring &ring)
{
    es_attn_wide_stack<W> stack;
    stack.at = (float4 *)a.stack + (int64_t)(blockIdx.x * a.heights) * stack.HEIGHT + threadIdx.x;
    stack.have = 0;
    int last[2], slot = piece.node, p = piece.from;
#pragma unroll
    for (int c = 0; c < 2; c++) last[c] = piece.start + min(es_attn_wide_row(c) / a.group, piece.tokens - 1);
    es_attn_wide_load_queries<W>(a, piece, s);

    const int end = es_cuda_attn_end(&piece);
    es_attn_wide_node<W> node;
    float score[32];
    es_attn_wide_begin<W>(s, ring, score, node);
    for (int step = es_cuda_attn_begin(&piece);; step++) {
        const bool ends = step + 1 == end || !((step + 1) & (piece.chain - 1));
        es_attn_wide_fold_step<W>(piece, s, ring, step, !ends, last, score, node);
        if (!ends) continue;
        es_attn_wide_push<W>(a, piece, stack, p++, node, slot);
        if (step + 1 == end) break;
        es_attn_wide_begin<W>(s, ring, score, node);
    }
    es_attn_wide_close_piece<W>(a, piece, stack, slot);
}

template <class W>
static __device__ __forceinline__ void es_attn_wide_fold_piece(const es_attn_args &a, const es_cuda_attn_piece &piece,
                                                               const es_attn_wide_shared &s, es_attn_ring &ring, int &splits)
{
    constexpr int WORDS = sizeof(es_cuda_attn_split) / 4;
    const bool shared = piece.split >= 0 && a.fused;
    int32_t word = 0; /* of what the finish will ask for: on its way while keys are */
    if (shared && threadIdx.x < WORDS) word = ((const int32_t *)&es_attn_splits(a.plan)[piece.split])[threadIdx.x];
    if ((int)threadIdx.x / 128 * 64 < piece.tokens * a.group)
        es_attn_wide_fold_rows<W>(a, piece, s, ring);
    else
        es_attn_wide_pass<W>(piece, s, ring);
    if (shared) {
        if (threadIdx.x < WORDS) ((int32_t *)&s.split[splits])[threadIdx.x] = word;
        splits++;
        es_attn_meet<W>();
        if (es_attn_counts<W>(piece) && threadIdx.x == 0) atomicAdd(a.counter + piece.split * 2, 1);
    }
}

template <class W> static __device__ __forceinline__ void es_attn_wide_run(const es_attn_wide_args &w)
{
    extern __shared__ __align__(1024) char memory[];
    const es_attn_args &a = w.a;
    const int stages = a.stages;
    es_attn_wide_shared s;
    s.memory = memory;
    s.base = es_shared(memory);
    s.queries = s.base + (stages + __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 % 2, 0)) * W::TILE; /* one for the warp */
    s.split = (es_cuda_attn_split *)(memory + (stages + 2) * W::TILE);
    s.full = s.base + stages * W::TILE + W::EXTRA, s.empty = s.full + stages * 8;
    es_wait_for_previous();
    es_let_next_start();
    es_cuda_attn_piece piece;
    const int32_t carried = ((const es_cuda_attn_block *)(a.plan + 1))[blockIdx.x].page[threadIdx.x & 7];
    bool more = es_attn_piece_at(a, 0, piece);
    if (threadIdx.x == W::FOLDERS) {
        for (int i = 0; i < stages; i++) {
            es_barrier_init(s.full + i * 8, 1);
            es_barrier_init(s.empty + i * 8, W::WARPS);
        }
        es_fence_copies();
    }
    __syncthreads();
    es_attn_ring ring = {0, stages, 0};
    if (threadIdx.x >= W::FOLDERS) {
        es_registers_fewer<24>();
        if (threadIdx.x >= W::FOLDERS + 32) more = false;
        for (int i = 0; more; more = es_attn_piece_at(a, ++i, piece))
            es_attn_wide_produce<W>(w, piece, i == 0, carried, s, ring);
    } else {
        es_registers_more<240>();
        int splits = 0;
        for (int i = 0; more; more = es_attn_piece_at(a, ++i, piece)) es_attn_wide_fold_piece<W>(a, piece, s, ring, splits);
        if (splits == 0) return;
        splits = 0;
        for (int i = 0; es_attn_piece_at(a, i, piece); i++)
            if (piece.split >= 0) es_attn_finish_piece<W>(a, piece, s.split[splits++], es_attn_schedule(a.plan), memory);
    }
}
#endif

template <class W>
static __global__ void __launch_bounds__(W::THREADS, 1) es_attn_wide_kernel(const __grid_constant__ es_attn_wide_args w)
{
#if ES_HAS_WGMMA
    es_attn_wide_run<W>(w);
#endif
}

#endif
