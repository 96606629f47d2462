/* shadow.h: bfloat16 copies of activations, which products read, and the order of their columns.
 *
 * A lane of a matrix product takes eight neighbouring columns of a group of 32, and an instruction sums 16 columns, four of
 * each of four lanes. Where the instruction fetches tokens itself (product_wide.cu), it expects those 16 side by side: then a
 * shadow is written *turned*, each column at es_shadow_column(). */
#ifndef ES_CUDA_SHADOW_H
#define ES_CUDA_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ES_SHADOW_BOTH static __host__ __device__ __forceinline__
#else
#define ES_SHADOW_BOTH static inline
#endif

/** Where a shadow's rows lie; data NULL: there is none. */
typedef struct es_cuda_shade {
    uint16_t *data;
    int64_t stride; /**< elements */
    bool turned;
} es_cuda_shade;

/** Columns of a turned shadow are whole groups of this many. */
#define ES_SHADOW_GROUP 32

/** The place of column 8·lane + 4·half + 2·pair + i of a group: 16·half + 8·pair + 2·lane + i. Pairs stay together. */
ES_SHADOW_BOTH int64_t es_shadow_column(int64_t column)
{
    return (column & ~(int64_t)31) | (column >> 2 & 1) << 4 | (column >> 1 & 1) << 3 | (column >> 3 & 3) << 1 | (column & 1);
}

/** Where column `column` of row `row` is. */
ES_SHADOW_BOTH uint16_t *es_shadow_at(es_cuda_shade s, int64_t row, int64_t column)
{
    return s.data + row * s.stride + (s.turned ? es_shadow_column(column) : column);
}

#endif
