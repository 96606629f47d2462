/* evenshare/model.h: a model file, opened and checked.
 *
 *   es_model *model;
 *   if (es_model_open("Qwen3.5-0.8B-Q8_0.gguf", &model) != ES_OK) ...
 *   printf("%s, %.2f B parameters\n", es_model_get_info(model)->family, es_model_get_info(model)->parameters / 1e9);
 *   es_model_close(model);
 *
 * A model is a GGUF file (the first part of a split one) or a Hugging Face folder. Weights are mapped, not copied, where their
 * layout allows. A model is immutable once open: engines and threads may share it; close it after the last of them. */
#ifndef EVENSHARE_MODEL_H
#define EVENSHARE_MODEL_H

#include "evenshare/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct es_model es_model;

/** How the final states of a text's tokens become one vector, its embedding. */
typedef enum es_pooling {
    ES_POOLING_NONE, /**< not at all: the model generates text */
    ES_POOLING_MEAN, /**< their mean */
    ES_POOLING_CLS,  /**< the first one */
    ES_POOLING_LAST, /**< the last one */
} es_pooling;
/** Parse "none", "mean", "cls", "last"; ES_INVALID names those that exist. */
es_status es_pooling_parse(const char *name, es_pooling *pooling);
const char *es_pooling_name(es_pooling pooling);

/** What a model is. Strings belong to the model. */
typedef struct es_model_info {
    const char *path;          /**< as it was opened */
    const char *name;          /**< from its metadata, or the file's name */
    const char *family;        /**< "qwen3_5_moe" */
    const char *format;        /**< "gguf" or "safetensors" */
    const char *quantisation;  /**< the type of most weight bytes, "Q4_1" */
    int64_t parameters;        /**< elements of all tensors used */
    int64_t weight_bytes;      /**< bytes of all tensors used, as stored */
    int64_t context;           /**< positions it was made for */
    int32_t vocabulary, hidden, layers;
    int32_t attention_layers;  /**< layers with full attention; the others are Gated DeltaNet */
    int32_t query_heads, kv_heads, head_dim;
    int32_t experts, experts_used; /**< 0 for dense models */
    int64_t kv_bytes_per_token;    /**< in numeric mode f32 */
    int64_t state_bytes;           /**< recurrent state of one sequence */
    es_pooling pooling;            /**< what its file says; NONE where that says nothing */
} es_model_info;

/** Sampling defaults that a model's authors recommend (generation_config.json); fields are NaN or −1 where they say nothing. */
typedef struct es_model_defaults {
    float temperature, top_p, min_p, repetition_penalty;
    int32_t top_k;
} es_model_defaults;

/** Open a model. `path` NULL means the default model: $ES_MODEL, or the file compiled in. "hf:ORG/NAME[:FILE]" means one that
 *  `evenshare pull` has put on this machine. */
es_status es_model_open(const char *path, es_model **model);
void es_model_close(es_model *model);
const es_model_info *es_model_get_info(const es_model *model);
const es_model_defaults *es_model_get_defaults(const es_model *model);

/** The path es_model_open(NULL) would use; NULL when there is none. The string is static or the environment's. */
const char *es_model_default_path(void);
/** The path that es_model_open(named) would use, in a fresh string (free()). ES_NOT_FOUND when there is none. */
es_status es_model_find(const char *named, char **path);

/** The model's tokenizer; NULL for a model that has none (token numbers still work). */
const es_tokenizer *es_model_tokenizer(const es_model *model);

/** Tokens that end an answer (eos and its relatives). Owned by the model. */
const es_token *es_model_stop_tokens(const es_model *model, size_t *count);

/** True when the model carries a chat template. */
bool es_model_has_chat(const es_model *model);
/** Its source (Jinja2); NULL without. Owned by the model. */
const char *es_model_chat_template(const es_model *model);

/** Render the chat template. `variables_json` is a JSON object: "messages", and where wanted "tools",
 *  "add_generation_prompt" (default true), "enable_thinking" or anything else the template knows. *text is the caller's
 *  (free()). ES_INVALID with the template's own words when it refuses the conversation. */
es_status es_model_render_chat(const es_model *model, const char *variables_json, char **text);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
