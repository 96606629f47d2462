/* fold.h: the device's own fold: any number of items become one partial, with the same bits for any grid.
 *
 *   es_cuda_fold call = {.op = ES_CUDA_SUM, .items = x, .count = n, .out = sum, .workspace = w, .blocks = b};
 *   es_cuda_fold_launch(&call, stream);
 *
 * Tiles of 4,096 items (2,048 of eight bytes) fold in an order of their own and merge in the binary tree of their index, left
 * before right; a missing right child changes nothing. Blocks take contiguous even shares of the tiles and publish the maximal
 * aligned nodes of the tree; whoever comes last merges those. Which order that is depends on the count alone: not on the
 * grid, the card, the alignment of the items or the run. */
#ifndef ES_CUDA_FOLD_H
#define ES_CUDA_FOLD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

typedef enum es_cuda_operator {
    ES_CUDA_SUM,         /**< float → float */
    ES_CUDA_MAX,         /**< float → float */
    ES_CUDA_COUNT,       /**< int32_t → int32_t */
    ES_CUDA_LOG_SUM_EXP, /**< float → {maximum, Σ e^(x − maximum)} */
    ES_CUDA_RECURRENCE,  /**< {a, b} → {a, b}: s ← a·s + b */
    ES_CUDA_SUMMARY,     /**< float → es_summary; of folds alone */
    ES_CUDA_OPERATORS
} es_cuda_operator;

typedef struct es_cuda_fold {
    es_cuda_operator op;
    const void *items; /**< aligned as the item is */
    int64_t count;     /**< 0 gives the identity */
    void *out;         /**< one partial */
    void *workspace;   /**< es_cuda_fold_workspace(op) bytes, zeroed once */
    int32_t blocks;    /**< of the launch; 0: as many as fill the device */
} es_cuda_fold;

/** Most blocks that a launch has. */
#define ES_CUDA_FOLD_BLOCKS 4096
/** Device memory for published nodes, whatever the count. One launch at a time. */
size_t es_cuda_fold_workspace(es_cuda_operator op);
/** NULL, or what is wrong. Allocates nothing, waits for nothing. */
const char *es_cuda_fold_launch(const es_cuda_fold *call, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
