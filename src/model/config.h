/* config.h: a model's shape, whichever file it was read from, checked so that nobody below has to doubt a number. */
#ifndef ES_MODEL_CONFIG_H
#define ES_MODEL_CONFIG_H

#include <jansson.h>

#include "device/op.h"
#include "evenshare/model.h"
#include "model/family.h"
#include "model/gguf.h"

#define ES_MOST_LAYERS 1024

typedef enum es_rope_kind { ES_ROPE_DEFAULT, ES_ROPE_LINEAR, ES_ROPE_LLAMA3, ES_ROPE_YARN } es_rope_kind;

/** How positions become angles. Fields of other kinds are unused. */
typedef struct es_rope_config {
    es_rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor;             /**< llama3 */
    double original_context;                              /**< llama3, yarn */
    double beta_fast, beta_slow, attention_factor;        /**< yarn; attention_factor < 0: derived from factor */
    double mscale, mscale_all_dim;                        /**< yarn; 0 = absent */
    bool truncate;                                        /**< yarn: bounds rounded to whole pairs */
} es_rope_config;

typedef struct es_config {
    const es_family *family;
    bool from_gguf;
    int32_t layers, hidden, vocabulary, ffn;
    int64_t context;
    float eps;
    int32_t query_heads, kv_heads, head_dim;
    int32_t rope_pairs;
    es_rope_config rope;
    bool attention[ES_MOST_LAYERS];  /**< layer has full attention (else Gated DeltaNet) */
    bool sparse[ES_MOST_LAYERS];     /**< layer has routed experts (else a dense MLP) */
    es_delta_shape delta;
    int32_t experts, experts_used, expert_ffn, shared_ffn;
    bool renormalise;
    float expert_scale;
    bool tied;                       /**< the output matrix is the embedding */
    es_pooling pooling;
    int32_t attention_layers, delta_layers;
} es_config;

/** From the root object of a config.json (nested text_config included). `where` is the file's name for messages. */
es_status es_config_from_hf(const json_t *root, const char *where, es_config *config);
es_status es_config_from_gguf(const es_gguf *gguf, const char *where, es_config *config);
/** Common checks of both; fills in the layer counts. Called by them. */
es_status es_config_check(es_config *config, const char *where);

/** Angle per position of each pair [rope_pairs] (float32 values, computed as the families' reference does) and the factor
 *  on cos and sin. Sources: RoFormer (default), "Extending context window" (linear), Llama 3.1's smoothing, YaRN. */
void es_rope_frequencies(const es_config *config, float *frequency, float *scale);

#endif
