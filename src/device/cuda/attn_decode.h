/* attn_decode.h: attention over the paged cache on a GPU, for few query rows a sequence, as one fold whoever does it.
 *
 *   es_cuda_attn_plan_write(...)              // attn_plan.h: host, every step; copied to the device with the step's data
 *   es_cuda_decode call = {.shape = ..., .plan = device_plan, ...};
 *   es_cuda_decode_setup(&call);              // once, when the engine opens: picks the kernel and how it runs
 *   es_cuda_decode_launch(&call, stream);       // every layer of every step, also under graph capture
 *
 * The cache of a layer: page → KV head → position in the page → channel; channel c at a position is element
 * pages[position / page] · kv_heads · page · head_dim + (kv_head · page + position % page) · head_dim +
 * es_cuda_attn_channel(head_dim, bf16, position, c), keys and values apart.
 *
 * Same bits: an answer depends on a sequence's queries, keys and values alone, not on the plan, the number of blocks, the
 * page size, the company, row_tile or the launch mode. The fold: partitions at absolute positions, of as many steps of 128 keys
 * as es_cuda_attn_chain() says, a step in two tiles of 64. In a tile s = K·q along the channels in steps of 16 (tensor cores, one accumulator), m ← max(m, s),
 * p = bf16(2^((s − m)·log2 e)), o and l scaled by 2^((m_old − m)·log2 e) once a tile and then fed with p along the keys in
 * steps of 16; l is the channel whose value is 1. Partitions merge in the binary tree of their index (attn_leaf.cuh).
 * The plain kernel, for float32 caches, other head sizes and cards without bf16 tensor cores, has the same structure with
 * fused multiply-adds in ascending order; which kernel serves depends on shape and card only. */
#ifndef ES_CUDA_ATTN_DECODE_H
#define ES_CUDA_ATTN_DECODE_H

#include <stdbool.h>

#include "device/cuda/attn_plan.h"
#include "device/cuda/shadow.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* a cudaStream_t points to it */

typedef enum es_cuda_float { ES_CUDA_F32, ES_CUDA_BF16 } es_cuda_float;

/** What finishes items that several blocks share. */
typedef enum es_cuda_decode_finish {
    ES_CUDA_DECODE_FUSED,  /**< the blocks themselves, in the same (cooperative) launch: they must all be resident at once */
    ES_CUDA_DECODE_SECOND, /**< a second kernel, launched so that it starts while the first one drains */
} es_cuda_decode_finish;

/** How the tuned kernel runs. Zeros take what was measured to be best; nothing here changes a bit of an answer, except
 *  `loose`, which exists to measure what the promise costs. */
typedef struct es_cuda_decode_tuning {
    int32_t stages; /**< tiles of keys or values in flight, 4 or more; 0: a good number */
    bool copy16;    /**< 16-byte asynchronous copies (sm_80) where the bulk copies of sm_90 would serve */
    bool keep;      /**< let keys and values push other things out of the second-level cache */
    bool loose;     /**< merge a block's partitions as they come: other bits for every plan. Only in measuring builds */
    bool overlap;   /**< programmatic launch: start while the kernel before drains, and wait for it before reading */
    es_cuda_decode_finish finish;
} es_cuda_decode_tuning;

/** One call. Pointers are the device's. */
typedef struct es_cuda_decode {
    es_cuda_attn_shape shape;
    es_cuda_attn_limits limits; /**< limits.blocks: of the launch and of every plan */
    es_cuda_float cache_type;   /**< of keys and values; bf16 rounds p and takes queries as bf16 values */
    const void *k_cache, *v_cache;
    const void *plan;     /**< what es_cuda_attn_plan_write() wrote */
    const int32_t *pages; /**< block tables */
    const void *q;        /**< [rows][query_heads][head_dim], scaled */
    es_cuda_float q_type; /**< float32 queries of a bf16 cache are rounded (they should be bf16 values already) */
    const float *gate;    /**< out · σ(gate), or NULL; row r, head h at r · gate_stride + h · gate_head_stride */
    int64_t gate_stride, gate_head_stride;
    float *out;          /**< [rows][query_heads · head_dim], or NULL */
    es_cuda_shade out16; /**< the same as bf16 */
    void *workspace;     /**< es_cuda_decode_workspace() bytes, made ready by es_cuda_decode_clear() */
    es_cuda_decode_tuning tuning;

    /* Filled in by es_cuda_decode_setup(). */
    int32_t kernel; /**< row of the table of kernels; −1: the plain one */
    int32_t shared_bytes;
    int32_t near; /**< heights of a block's stack in shared memory */
} es_cuda_decode;

/** Blocks of a launch that fill the current device: limits.blocks where nothing else is wanted. */
int32_t es_cuda_decode_blocks(const es_cuda_attn_shape *shape, es_cuda_float cache_type);
/** Query rows of an item that serve many tokens best on the current device: shape.row_tile of a prompt's plan. */
int32_t es_cuda_decode_row_tile(void);
/** Bytes of device memory for partials: bounded by blocks and the tree's height. One launch at a time. */
size_t es_cuda_decode_workspace(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits);
/** Check the call, choose its kernel on the current device and what it runs with. NULL, or what is wrong. */
const char *es_cuda_decode_setup(es_cuda_decode *call);
/** Make the workspace ready: once, and again after a launch that failed. */
const char *es_cuda_decode_clear(const es_cuda_decode *call, struct CUstream_st *stream);
/** Launch on a stream. NULL, or what the driver says. Allocates nothing, waits for nothing. */
const char *es_cuda_decode_launch(const es_cuda_decode *call, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
