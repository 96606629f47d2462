/* attn_state.cuh: what a launch hands its kernels, and the places where partials are left. */
#ifndef ES_CUDA_ATTN_STATE_CUH
#define ES_CUDA_ATTN_STATE_CUH

#include <stdint.h>

#include "device/cuda/attn_decode.h"
#include "device/cuda/attn_leaf.cuh"

/* Lives in the kernel's parameters. */
typedef struct es_attn_args {
    const void *k, *v;
    const es_cuda_attn_plan *plan;
    const int32_t *pages;
    const void *q;
    const float *gate;
    int64_t gate_stride, gate_head_stride;
    float *out;
    es_cuda_shade out16;
    float *nodes;     /* [nodes][row_tile][slices][ES_ATTN_RECORD] */
    float *stack;     /* [blocks][heights][...]: what waits for its right sibling, private to a block */
    int32_t *counter; /* [blocks][2] pieces about to be visible, pieces done with the finish */
    int32_t query_heads, kv_heads, group, head_dim, page, row_tile, heights;
    int32_t box; /* rows of a copy: they lie side by side in a page */
    int32_t stages;
    int32_t near; /* heights of the stack that fit into shared memory, the lowest ones */
    bool q_bf16, once, fused;
} es_attn_args;

/* A node's row is cut into slices of 32 channels, and each travels with its own m and l: so every word has one reader. A
 * record: 32 channels of o, m, l, and two words of nothing. */
#define ES_ATTN_SLICE  ES_CUDA_ATTN_SLICE
#define ES_ATTN_RECORD (ES_ATTN_SLICE + 4)

static inline __host__ __device__ int32_t es_attn_slices(int32_t head_dim)
{
    return (head_dim + ES_ATTN_SLICE - 1) / ES_ATTN_SLICE;
}

/* Floats of one height of a block's stack: o, m and l of every row. 256 threads keep m and l of two rows each, in attn_tile.cuh
 * of two rows in every eight. */
static inline __host__ __device__ int64_t es_attn_stack_floats(int32_t row_tile, int32_t head_dim)
{
    return (int64_t)row_tile * head_dim + 256 * 4 * (row_tile > 32 ? 1 : row_tile / 8);
}

/* Where a query row of an item begins, in elements of q; −1 for rows that only fill the tile. */
static __device__ __forceinline__ int64_t es_attn_query_row(const es_attn_args &a, const es_cuda_attn_piece &piece, int row)
{
    if (row >= piece.tokens * a.group) return -1;
    return ((int64_t)(piece.first_row + row / a.group) * a.query_heads + piece.kv_head * a.group + row % a.group) * a.head_dim;
}

/* The gate of one channel, where there are gates. Whoever writes many channels asks for their gates first: a write could be to
 * the memory of the next gate, as far as the compiler knows. */
static __device__ __forceinline__ float es_attn_gate(const es_attn_args &a, int32_t kv_head, int32_t first_row, int row,
                                                     int channel)
{
    const int64_t r = first_row + row / a.group, head = kv_head * a.group + row % a.group;
    return a.gate ? a.gate[r * a.gate_stride + head * a.gate_head_stride + channel] : 0.0f;
}

/* Writes o / l · σ(gate) of one channel. Zeros lose their sign: steps of which a row sees nothing may add 0 to −0, or not. */
static __device__ __forceinline__ void es_attn_write(const es_attn_args &a, int32_t kv_head, int32_t first_row, int row,
                                                     int channel, float o, float inverse, float gate)
{
    const int64_t r = first_row + row / a.group, head = kv_head * a.group + row % a.group;
    float value = __fmaf_rn(o, inverse, 0.0f);
    if (a.gate) value = __fmul_rn(value, es_attn_sigmoid(gate));
    if (a.out) a.out[(r * a.query_heads + head) * a.head_dim + channel] = value;
    if (a.out16.data)
        *(__nv_bfloat16 *)(void *)es_shadow_at(a.out16, r, head * a.head_dim + channel) = __float2bfloat16_rn(value);
}

/* Four channels at once. */
static __device__ __forceinline__ void es_attn_write_four(const es_attn_args &a, int32_t kv_head, int32_t first_row, int row,
                                                          int channel, float4 o, float inverse)
{
    const float4 gate = make_float4(
        es_attn_gate(a, kv_head, first_row, row, channel), es_attn_gate(a, kv_head, first_row, row, channel + 1),
        es_attn_gate(a, kv_head, first_row, row, channel + 2), es_attn_gate(a, kv_head, first_row, row, channel + 3));
    es_attn_write(a, kv_head, first_row, row, channel, o.x, inverse, gate.x);
    es_attn_write(a, kv_head, first_row, row, channel + 1, o.y, inverse, gate.y);
    es_attn_write(a, kv_head, first_row, row, channel + 2, o.z, inverse, gate.z);
    es_attn_write(a, kv_head, first_row, row, channel + 3, o.w, inverse, gate.w);
}

/* Piece i of a block; false after the last one. */
static __device__ __forceinline__ bool es_attn_piece_at(const es_attn_args &a, int i, es_cuda_attn_piece &piece)
{
    const es_cuda_attn_block *blocks = (const es_cuda_attn_block *)(a.plan + 1), *block = &blocks[blockIdx.x];
    if (i == 0)
        piece = block->first;
    else if (block->next + i - 1 < block->last)
        piece = ((const es_cuda_attn_piece *)(blocks + gridDim.x))[block->next + i - 1];
    else
        return false;
    return piece.from < piece.to;
}

/* Nodes travel without fences: every word says itself whether it is there. Nobody writes this pattern (a NaN that arithmetic
 * doesn't make): it is what the workspace is filled with, and what a reader leaves behind for the next launch. */
#define ES_ATTN_NOTHING 0xFFFFFFFFu

static __device__ __forceinline__ void es_attn_leave(float *at, float value)
{
    const uint32_t bits = __float_as_uint(value) == ES_ATTN_NOTHING ? 0x7FFFFFFFu : __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(bits) : "memory");
}

/* Two at once, the first at an even place. */
static __device__ __forceinline__ void es_attn_leave_two(float *at, float a, float b)
{
    const uint32_t low = __float_as_uint(a) == ES_ATTN_NOTHING ? 0x7FFFFFFFu : __float_as_uint(a);
    const uint32_t high = __float_as_uint(b) == ES_ATTN_NOTHING ? 0x7FFFFFFFu : __float_as_uint(b);
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(low), "r"(high) : "memory");
}

/* Where a record begins. */
static __device__ __forceinline__ float *es_attn_record(const es_attn_args &a, int64_t slot, int row, int slice)
{
    return a.nodes + ((slot * a.row_tile + row) * es_attn_slices(a.head_dim) + slice) * ES_ATTN_RECORD;
}

#endif
