/* dtype.h: how the numbers of a tensor are stored.
 *
 * Quantised types come in blocks of consecutive elements of a row; a row is always a whole number of blocks. Layouts are
 * those of GGUF; names are GGUF's. */
#ifndef ES_DEVICE_DTYPE_H
#define ES_DEVICE_DTYPE_H

#include "base/error.h"

typedef enum es_dtype {
    ES_F32, ES_F16, ES_BF16,
    ES_Q8_0, ES_Q4_0, ES_Q4_1, ES_Q5_0, ES_Q5_1,
    ES_Q4_K, ES_Q5_K, ES_Q6_K,
    ES_I32, /* token numbers in test files; never a weight */
    ES_DTYPES
} es_dtype;

typedef struct es_dtype_info {
    const char *name;    /**< "Q8_0" */
    int block;           /**< elements per block; 1 for plain types */
    int block_bytes;     /**< bytes per block */
    int gguf_type;       /**< ggml_type number, −1 if none */
} es_dtype_info;

#ifdef __cplusplus
extern "C" {
#endif

const es_dtype_info *es_dtype_get_info(es_dtype type);
/** Bytes of `elements` consecutive elements (a multiple of the block), or SIZE_MAX on overflow or a broken multiple. */
size_t es_dtype_bytes(es_dtype type, int64_t elements);
/** The type with this ggml_type number or this name ("Q8_0"); false when this engine has none. */
bool es_dtype_from_gguf(uint32_t gguf_type, es_dtype *type);
bool es_dtype_from_name(const char *name, es_dtype *type);

#ifdef __cplusplus
}
#endif
#endif
