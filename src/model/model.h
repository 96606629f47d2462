/* model.h: the inside of es_model. */
#ifndef ES_MODEL_MODEL_H
#define ES_MODEL_MODEL_H

#include "evenshare/model.h"
#include "model/config.h"
#include "text/chat_template.h"
#include "text/tokenizer_source.h"

struct es_model {
    es_config config;
    es_model_info info;
    es_model_defaults defaults;
    char *path, *name;
    es_dtype weights;              /**< the type of most weight bytes */
    es_gguf *gguf;                 /**< owns the tensors of a GGUF */
    es_tensor_set *safetensors;    /**< of a folder */
    const es_tensor_set *tensors;  /**< whichever it is */
    es_tokenizer *tokenizer;
    es_chat_template *chat;
    es_token message_start;        /**< the control token that begins a message in its chat format, or ES_NO_TOKEN */
    es_token *stop;
    size_t stop_count;
};

/** Fill in what a format has besides tensors; each is optional in a file. model_hf.c, model_gguf.c. */
es_status es_model_open_hf(es_model *model);
es_status es_model_open_gguf(es_model *model);
/** Add a token to the model's stop tokens, once. */
es_status es_model_add_stop(es_model *model, es_token token);
/** Parse the model's chat template; one that cannot be parsed is a notice, not a failure: the model still completes text. */
void es_model_set_chat(es_model *model, const char *source, size_t bytes);

#endif
