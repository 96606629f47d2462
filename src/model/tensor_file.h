/* tensor_file.h: named tensors in mapped files, whichever format they are in.
 *
 * A safetensors folder and a (split) GGUF both become an es_tensor_set: a sorted list of names with type, shape and bytes
 * that point into mappings. Every length and offset was checked against the file before it got here. */
#ifndef ES_MODEL_TENSOR_FILE_H
#define ES_MODEL_TENSOR_FILE_H

#include "base/error.h"
#include "base/file.h"
#include "device/dtype.h"

#define ES_TENSOR_RANK 4

/** shape[0] is the slowest axis (rows), as in PyTorch; GGUF's order is turned around on reading. */
typedef struct es_tensor {
    const char *name;                /**< owned by the set */
    es_dtype type;
    int rank;                        /**< 0 (a scalar) to ES_TENSOR_RANK */
    int64_t shape[ES_TENSOR_RANK];   /**< unused axes are 1 */
    const void *data;                /**< in a mapping; aligned only as the file has it */
    size_t bytes;
} es_tensor;

typedef struct es_tensor_set es_tensor_set;

/** Look a tensor up; NULL when absent. */
const es_tensor *es_tensor_find(const es_tensor_set *set, const char *name);
size_t es_tensor_count(const es_tensor_set *set);
const es_tensor *es_tensor_at(const es_tensor_set *set, size_t index); /**< in name order; NULL past the end */
/** Tensors whose type (or rank) this engine cannot read are in the list of the unreadable: name and the type's name, so that
 *  whoever needs one can refuse it by name (and whoever does not, need not care). */
size_t es_tensor_unreadable_count(const es_tensor_set *set);
const char *es_tensor_unreadable(const es_tensor_set *set, const char *name); /**< the type's name, or NULL */
/** Enumerate the unreadable in name order, for `inspect`: the name (and type, if asked for), or NULL past the end. */
const char *es_tensor_unreadable_at(const es_tensor_set *set, size_t index, const char **type);
/** Unmaps everything; NULL is fine. */
void es_tensor_set_close(es_tensor_set *set);

/** Open one .safetensors file, or a folder with model.safetensors or model.safetensors.index.json and its shards. */
es_status es_safetensors_open(const char *path, es_tensor_set **set);

/** Write float32 data as a safetensors file with one tensor (shape of `rank` axes). For `score --logits`. The file appears
 *  whole or not at all: ES_IO (a full disk, no permission) leaves what was there before. */
es_status es_safetensors_write_f32(const char *path, const char *name, const float *data, int rank, const int64_t *shape);

#endif
