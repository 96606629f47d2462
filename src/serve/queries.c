/* queries.c: what a worker can answer by itself: how many tokens, which ones, and what the model will read. */
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"
#include "serve/strict_json.h"

static json_t *refuse_memory(es_api_error *error)
{
    es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "no memory for this request"));
    return NULL;
}

/* A chat's prompt, by what `root` says of it in either API's words. */
static bool render(const es_api_context *context, es_call_kind kind, json_t *root, char **text, es_api_error *error)
{
    es_call call = {.kind = kind, .n = 1};
    json_t *chat = kind == ES_CALL_COUNT_TOKENS ? json_object() : json_incref(root);
    const bool good = (kind != ES_CALL_COUNT_TOKENS || es_messages_convert(context, root, chat, &call, error)) &&
                      es_chat_render(context, chat, &call, text, error);
    json_decref(chat);
    es_call_free(&call);
    return good;
}

static bool encode(const es_api_context *context, const char *text, size_t bytes, unsigned flags, es_prompt *prompt,
                   es_api_error *error)
{
    const es_backend *backend = context->backend;
    if (!backend->info(backend->self)->has_tokenizer) return es_api_refuse(error, "", "this model has no tokenizer");
    const es_status status = backend->encode(backend->self, text, bytes, flags, &prompt->tokens, &prompt->count);
    return status == ES_OK || es_api_refuse_status(error, status);
}

static json_t *count_tokens(const es_api_context *context, json_t *root, es_api_error *error)
{
    char *text;
    es_prompt prompt = {.tokens = NULL};
    if (!render(context, ES_CALL_COUNT_TOKENS, root, &text, error)) return NULL;
    const bool encoded = encode(context, text, strlen(text), ES_ENCODE_SPECIAL, &prompt, error);
    free(text);
    free(prompt.tokens);
    return encoded ? json_pack("{s:I}", "input_tokens", (json_int_t)prompt.count) : NULL;
}

static json_t *apply_template(const es_api_context *context, json_t *root, es_api_error *error)
{
    char *text;
    if (!render(context, ES_CALL_TEMPLATE, root, &text, error)) return NULL;
    json_t *reply = json_object();
    json_object_set_new(reply, "prompt", es_json_text(text, strlen(text)));
    free(text);
    return reply;
}

/* A token with its text; bytes that are no text are numbers, as llama.cpp's server gives them. */
static json_t *piece_json(const es_backend *backend, es_token token)
{
    size_t bytes = 0;
    const char *piece = backend->piece(backend->self, token, &bytes);
    json_t *text = piece ? json_stringn(piece, bytes) : json_string("");
    if (!text) {
        text = json_array();
        for (size_t i = 0; i < bytes; i++) json_array_append_new(text, json_integer((unsigned char)piece[i]));
    }
    return json_pack("{s:i, s:o}", "id", (int)token, "piece", text);
}

static bool read_flag(json_t *root, const char *name, bool *value, es_api_error *error)
{
    const json_t *given = es_json_member(root, name);
    if (given && !json_is_boolean(given)) return es_api_refuse(error, name, "%s must be true or false", name);
    if (given) *value = json_is_true(given);
    return true;
}

static json_t *tokenize(const es_api_context *context, json_t *root, es_api_error *error)
{
    const es_backend *backend = context->backend;
    const json_t *content = es_json_member(root, "content");
    bool add = false, parse = true, pieces = false;
    if (!json_is_string(content)) {
        es_api_refuse(error, "content", "content must be a string");
        return NULL;
    }
    if (!read_flag(root, "add_special", &add, error) || !read_flag(root, "parse_special", &parse, error) ||
        !read_flag(root, "with_pieces", &pieces, error))
        return NULL;
    es_prompt prompt = {.tokens = NULL};
    const unsigned flags = (add ? ES_ENCODE_BOS : 0u) | (parse ? ES_ENCODE_SPECIAL : 0u);
    if (!encode(context, json_string_value(content), json_string_length(content), flags, &prompt, error)) return NULL;
    json_t *tokens = json_array();
    for (size_t i = 0; i < prompt.count; i++)
        json_array_append_new(tokens, pieces ? piece_json(backend, prompt.tokens[i]) : json_integer(prompt.tokens[i]));
    const size_t made = json_array_size(tokens);
    free(prompt.tokens);
    json_t *reply = json_pack("{s:o}", "tokens", tokens);
    if (reply && made == prompt.count) return reply;
    json_decref(reply);
    return refuse_memory(error);
}

static json_t *detokenize(const es_api_context *context, json_t *root, es_api_error *error)
{
    const es_backend *backend = context->backend;
    const json_t *tokens = es_json_member(root, "tokens");
    const es_backend_info *info = backend->info(backend->self);
    es_text text = {0};
    bool good = json_is_array(tokens) || es_api_refuse(error, "tokens", "tokens must be an array of token numbers");
    if (good && !info->has_tokenizer) good = es_api_refuse(error, "", "this model has no tokenizer");
    for (size_t i = 0; good && i < json_array_size(tokens); i++) {
        const json_t *number = json_array_get(tokens, i);
        const json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
        if (value < 0 || value >= info->vocabulary) {
            good = es_api_refuse(error, "tokens", "tokens: entry %zu is not a token number of this model (0 to %d)", i,
                                 info->vocabulary - 1);
            break;
        }
        size_t bytes;
        const char *piece = backend->piece(backend->self, (es_token)value, &bytes);
        if (piece) es_text_append(&text, piece, bytes);
    }
    json_t *reply = good && !text.failed ? json_object() : NULL;
    json_object_set_new(reply, "content", reply ? es_json_text(text.data ? text.data : "", text.bytes) : NULL);
    es_text_free(&text);
    return reply || !good ? reply : refuse_memory(error);
}

json_t *es_query_run(const es_api_context *context, es_call_kind kind, const char *body, size_t bytes, es_api_error *error)
{
    json_t *root, *reply = NULL;
    const es_status status = es_json_parse_object(body, bytes, &root);
    if (status != ES_OK) {
        es_api_refuse_status(error, status);
        return NULL;
    }
    switch (kind) {
    case ES_CALL_COUNT_TOKENS: reply = count_tokens(context, root, error); break;
    case ES_CALL_TOKENIZE: reply = tokenize(context, root, error); break;
    case ES_CALL_DETOKENIZE: reply = detokenize(context, root, error); break;
    default: reply = apply_template(context, root, error); break;
    }
    json_decref(root);
    return reply;
}
