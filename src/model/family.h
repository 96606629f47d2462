/* family.h: what distinguishes one family of models from another, as rows of one table.
 *
 * A family is names, norms and layer kinds; there is no code for one family anywhere else. To add one: a row in family.c,
 * and, if it brings a new kind of layer, a file for that kind. */
#ifndef ES_MODEL_FAMILY_H
#define ES_MODEL_FAMILY_H

#include "base/error.h"

typedef struct es_family {
    const char *name;          /**< "qwen3_5_moe" */
    const char *hf_types[4];   /**< model_type values, NULL-terminated */
    const char *gguf;          /**< general.architecture */
    bool hybrid;               /**< Gated DeltaNet layers between those with full attention */
    bool moe;                  /**< routed experts */
    bool shared_expert;
    bool renormalise;          /**< chosen experts' weights always sum to 1 (else norm_topk_prob says) */
    bool attention_gate;       /**< q_proj holds [q | gate] per head */
    bool qk_norm;              /**< q and k are RMS-normed per head */
    bool qkv_bias;
    bool norm_plus_one;        /**< safetensors store norm weights minus one (never the DeltaNet norm) */
    bool fused_qkvz;           /**< safetensors fuse the DeltaNet projections, interleaved per key head */
    bool gguf_tiled_heads;     /**< GGUF: value head h reads key head h mod key_heads */
    bool gguf_interleaved_rope;/**< GGUF: q and k rows are permuted so that rotated pairs are neighbours */
    double partial_rotary;     /**< share of a head's channels that rotate, where the configuration says nothing */
} es_family;

/** By model_type of a config.json, or by general.architecture. NULL when unknown. */
const es_family *es_family_of_hf(const char *model_type);
const es_family *es_family_of_gguf(const char *architecture, size_t bytes);
/** "qwen3_5, qwen3_5_moe, ...": what is supported, for messages. Static. */
const char *es_family_list(void);

#endif
