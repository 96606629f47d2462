/* loader.h: finds a model's tensors by their role, checks their shapes, and puts them where a device can use them.
 *
 * The same calls serve two ends. With a device they bind weights: matrices in place where the layout allows, small vectors
 * converted to float32. Without one they only check and count, so that opening a model finds what is missing before
 * anything is allocated. */
#ifndef ES_MODEL_LOADER_H
#define ES_MODEL_LOADER_H

#include "device/device.h"
#include "model/model.h"

typedef struct es_loader {
    const es_model *model;
    es_device *device;         /**< NULL: only check */
    es_buffer **owned;         /**< every buffer made, for release */
    size_t owned_count, owned_capacity;
    int64_t parameters, bytes; /**< of the tensors asked for */
    int64_t type_bytes[ES_DTYPES];
    int64_t columns;           /**< widest matrix */
    int32_t layer;             /**< whose tensors are asked for; −1: the model's own */
} es_loader;

/** A tensor's two names. The safetensors one follows "…layers.N.", the GGUF one "blk.N."; NULL where it does not exist. */
typedef struct es_role {
    const char *hf, *gguf;
} es_role;

/** The tensor of a role in the current layer, or NULL. */
const es_tensor *es_loader_find(es_loader *loader, es_role role);
/** A matrix [rows][cols]. ES_BAD_FILE when missing or of another shape. */
es_status es_loader_matrix(es_loader *loader, es_role role, int64_t rows, int64_t cols, es_weight *weight);
/** `count` elements as float32 on the device: each becomes value + add. */
es_status es_loader_vector(es_loader *loader, es_role role, int64_t count, float add, es_slice *slice);
/** The same, but absent is fine: then *slice is nothing. */
es_status es_loader_optional(es_loader *loader, es_role role, int64_t count, es_slice *slice);
/** Float32 values of the caller's own making. */
es_status es_loader_values(es_loader *loader, const float *values, int64_t count, es_slice *slice);
/** A role's elements as float32 on the host (free()). */
es_status es_loader_read(es_loader *loader, es_role role, int64_t count, float **values);
/** A matrix whose row i is the file's row source[i]: copied, for layouts that no kernel reads as they are. */
es_status es_loader_permuted(es_loader *loader, es_role role, const int64_t *source, int64_t rows, int64_t cols,
                             es_weight *weight);
/** Several expert matrices [experts][rows][cols]: one tensor, with each expert's part at row `first` of `height`, or one
 *  tensor per expert ("%d" in the safetensors name). */
typedef struct es_expert_weight {
    es_weight weight;      /**< of expert 0, `rows` rows */
    int64_t stride;        /**< bytes to the next */
    es_slice *each;        /**< or each one's place [experts] (owned by the network) */
} es_expert_weight;
es_status es_loader_experts(es_loader *loader, es_role fused, int64_t first, int64_t height, es_role single, int64_t rows,
                            int64_t cols, es_expert_weight *out);
/** Scratch memory on the device, zeroed. Nothing without a device. */
es_status es_loader_scratch(es_loader *loader, int64_t count, size_t size, es_slice *slice);

#endif
