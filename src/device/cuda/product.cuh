/* product.cuh: what both forms of a product share: where segments end, and how a sum is stored. */
#ifndef ES_CUDA_PRODUCT_CUH
#define ES_CUDA_PRODUCT_CUH

#include "device/cuda/device.cuh"

/* Whole 64 columns, at most eight pieces: by the length of the inner dimension alone. */
static inline int segment_of(int64_t padded)
{
    const int64_t pieces = padded / ES_CUDA_COLUMNS;
    return (int)((pieces + ES_CUDA_SEGMENTS - 1) / ES_CUDA_SEGMENTS * ES_CUDA_COLUMNS);
}

/* Store one value: bias, residual, shadow. */
static __device__ __forceinline__ void put(const es_cuda_part *part, int64_t token, int row, float value)
{
    float *out = part->out + token * part->out_stride + row;
    if (part->bias) value = value + part->bias[row];
    if (part->accumulate) value = *out + value;
    *out = value;
    if (part->shadow.data) *es_shadow_at(part->shadow, token, row) = es_to_bf16(value);
}

#endif
