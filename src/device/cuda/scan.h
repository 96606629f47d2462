/* scan.h: the device's own scan: every prefix of any number of items in one pass over memory, with the same bits every run.
 *
 *   es_cuda_scan call = {.op = ES_CUDA_COUNT, .items = counts, .count = n, .out = offsets, .exclusive = true, ...};
 *   es_cuda_scan_launch(&call, stream);
 *
 * Blocks take tiles in order, publish their sum and look back over the sums of earlier tiles. Only every 128th tile publishes
 * an inclusive prefix as well, and a tile uses just those: so what merges with what depends on the count alone, where an
 * ordinary look-back ends wherever a prefix happens to be visible. */
#ifndef ES_CUDA_SCAN_H
#define ES_CUDA_SCAN_H

#include <stdbool.h>

#include "device/cuda/fold.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct es_cuda_scan {
    es_cuda_operator op;
    const void *items; /**< aligned as the item is */
    int64_t count;
    void *out;       /**< [count] partials; may be `items` where a partial is as large as an item */
    bool exclusive;  /**< out[i] is the prefix before item i; the identity for the first */
    void *workspace; /**< es_cuda_scan_workspace(count) bytes; a launch clears what it needs */
    int32_t blocks;  /**< of the launch; 0: as many as fill the device */
} es_cuda_scan;

size_t es_cuda_scan_workspace(int64_t count);
/** NULL, or what is wrong. Allocates nothing, waits for nothing. */
const char *es_cuda_scan_launch(const es_cuda_scan *call, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
