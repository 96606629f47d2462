/* backend_text.c: see backend_text.h. Text is rendered and cut into tokens where requests are read, whatever process computes.
 */
#include "serve/backend_text.h"

#include <stdlib.h>

#include "base/error.h"

static const es_backend_info *get_info(void *self)
{
    return &((es_backend_words *)self)->info;
}

static es_status render(void *self, const char *variables_json, char **text)
{
    return es_model_render_chat(((es_backend_words *)self)->model, variables_json, text);
}

static es_status encode(void *self, const char *text, size_t bytes, unsigned flags, es_token **tokens, size_t *count)
{
    const es_tokenizer *tokenizer = es_model_tokenizer(((es_backend_words *)self)->model);
    if (!tokenizer) return es_fail(ES_UNSUPPORTED, "this model has no tokenizer");
    return es_tokenizer_encode(tokenizer, text, bytes, flags, tokens, count);
}

static const char *piece(void *self, es_token token, size_t *bytes)
{
    const es_tokenizer *tokenizer = es_model_tokenizer(((es_backend_words *)self)->model);
    return tokenizer ? es_tokenizer_piece(tokenizer, token, bytes) : NULL;
}

void es_backend_words_init(es_backend_words *words, const es_model *model, es_backend *backend)
{
    const es_model_info *info = es_model_get_info(model);
    words->model = model;
    words->info = (es_backend_info){
        .model = info->name,
        .vocabulary = info->vocabulary,
        .hidden = info->hidden,
        .pooling = info->pooling,
        .has_chat = es_model_has_chat(model),
        .chat_template = es_model_chat_template(model),
        .has_tokenizer = es_model_tokenizer(model) != NULL,
        .sampling = es_request_defaults(model).sampling,
    };
    *backend = (es_backend){.self = words, .info = get_info, .render = render, .encode = encode, .piece = piece};
}

es_status es_backend_open_text(const es_model *model, es_backend *backend)
{
    es_backend_words *words = calloc(1, sizeof *words);
    if (!words) return es_fail(ES_NO_MEMORY, "no memory for the server's link to the model");
    es_backend_words_init(words, model, backend);
    return ES_OK;
}

void es_backend_close_text(es_backend *backend)
{
    free(backend->self);
    *backend = (es_backend){0};
}

es_status es_backend_check_text(void *self, int64_t context, const es_request *request)
{
    return es_request_check(((es_backend_words *)self)->model, context, request);
}
