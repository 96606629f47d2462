/* api_embeddings.c: texts to vectors, where the model was made for that (or whoever serves it says how). */
#include <string.h>

#include "serve/call.h"

static bool refuse_model(const es_api_context *context, es_api_error *error)
{
    es_api_refuse(error, "model",
                  "%s generates text; it was not trained to give embeddings, so there are none (serve --pooling makes some all the "
                  "same)",
                  context->alias);
    error->status = 501;
    error->code = "unsupported";
    return false;
}

bool es_embeddings_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    const es_backend_info *info = context->backend->info(context->backend->self);
    if (!context->pooling) return refuse_model(context, error);
    const json_t *form = es_json_member(root, "encoding_format");
    const char *word = form ? json_string_value(form) : "float";
    call->base64 = word && strcmp(word, "base64") == 0;
    if (!call->base64 && (!word || strcmp(word, "float") != 0))
        return es_api_refuse(error, "encoding_format", "encoding_format must be \"float\" or \"base64\"");
    int64_t dimensions = info->hidden;
    if (!es_parameter_integer(root, "dimensions", 1, info->hidden, &dimensions, error)) return false;
    call->dimensions = (int32_t)dimensions;
    call->request.sampling = info->sampling;
    call->request.pooling = context->pooling;
    return es_prompts_parse(context, root, "input", ES_ENCODE_SPECIAL | ES_ENCODE_BOS | ES_ENCODE_EOS, ES_CALL_TEXTS_MAX, call, error);
}
