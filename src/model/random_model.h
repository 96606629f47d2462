/* random_model.h: models with random weights in published shapes, for measuring speed where no weights can be had.
 *
 * The file is a whole GGUF: this engine and others load it, tokenizer and chat template included. What it says is noise. */
#ifndef ES_MODEL_RANDOM_MODEL_H
#define ES_MODEL_RANDOM_MODEL_H

#include "base/error.h"

typedef struct es_model_shape {
    const char *name;         /**< "qwen3.5-0.8b" */
    const char *architecture; /**< general.architecture: "qwen35" has DeltaNet layers, "qwen3" full attention only */
    const char *split;        /**< tokenizer.ggml.pre */
    int32_t hidden, layers, ffn, query_heads, kv_heads, head_dim, rotated;
    int32_t key_heads, value_heads, key_dim; /**< DeltaNet; zeros without it */
    int32_t vocabulary, context;
    float theta;
    bool tied;
    int32_t experts, experts_used, expert_ffn, shared_ffn; /**< mixture of experts instead of a dense layer; zeros without it */
} es_model_shape;

/** A shape by name, or NULL. */
const es_model_shape *es_model_shape_find(const char *name);
/** "qwen3.5-0.8b, ...": for messages. Static. */
const char *es_model_shape_list(void);

/** Write a model. `type` is one of es_model_mix_list(): q8_0, q4_k_m, bf16, ... ES_INVALID for another one, or for a shape
 *  whose rows are no whole blocks of it. A file that could not be written whole is removed. */
es_status es_random_model_write(const es_model_shape *shape, const char *type, uint64_t seed, const char *path);
/** The same, but the matrices are holes in the file: its size on disk is small, and all their weights read as zero. For a device
 *  that makes random weights of its own (es_device_options.random_weights). */
es_status es_random_model_outline(const es_model_shape *shape, const char *type, const char *path);
const char *es_model_mix_list(void);

#endif
