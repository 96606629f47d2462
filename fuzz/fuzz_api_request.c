/* Bodies of API requests: the first byte chooses the path and whether the server is strict, the rest is the body. Its lowest bit is
 * a chat or a completion; bits 3 to 5, where they are not zero, another path; bits 6 and 7 the form of calls. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const es_backend_info *info(void *self)
{
    return self;
}

static es_status render(void *self, const char *variables_json, char **text)
{
    (void)self;
    *text = strdup(variables_json);
    return *text ? ES_OK : es_fail(ES_NO_MEMORY, "out of memory");
}

static es_status encode(void *self, const char *text, size_t bytes, unsigned flags, es_token **tokens, size_t *count)
{
    (void)self, (void)flags;
    *tokens = calloc(bytes + 1, sizeof **tokens);
    if (!*tokens) return es_fail(ES_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < bytes; i++) (*tokens)[i] = (unsigned char)text[i];
    *count = bytes;
    return ES_OK;
}

static const char *piece(void *self, es_token token, size_t *bytes)
{
    (void)self, (void)token;
    *bytes = 2;
    return "\xC3\xA9";
}

static void query(const es_api_context *context, es_call_kind kind, const char *body, size_t bytes)
{
    es_api_error error = {0};
    json_t *reply = es_query_run(context, kind, body, bytes, &error);
    if (!reply && error.status < 400) abort();
    json_decref(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) return 0;
    es_backend_info model = {.model = "m", .context = 4096, .vocabulary = 300, .has_chat = true, .has_tokenizer = true};
    const es_backend backend = {.self = &model, .info = info, .render = render, .encode = encode, .piece = piece};
    const es_api_context context = {.backend = &backend, .alias = "m", .strict = data[0] & 2, .content_parts = data[0] & 4,
                                    .format = {.tools = (es_tool_form)(data[0] >> 6)}};
    const int other = data[0] >> 3 & 7;
    const es_call_kind kind = other && other < 7 ? (es_call_kind)(ES_CALL_COMPLETION + other)
                              : data[0] & 1      ? ES_CALL_COMPLETION
                                                 : ES_CALL_CHAT;
    char *body = malloc(bytes);
    if (!body) return 0;
    memcpy(body, data + 1, bytes - 1);
    es_call call;
    es_api_error error;
    if (kind >= ES_CALL_COUNT_TOKENS) {
        query(&context, kind, body, bytes - 1);
    } else if (es_call_parse(&context, kind, body, bytes - 1, &call, &error)) {
        const size_t choices = call.prompt_count * (size_t)call.n;
        if (choices == 0 || choices > ES_CALL_CHOICES_MAX) abort();
        const es_request request = es_call_request(&call, choices - 1);
        if (request.prompt_count == 0) abort();
        es_call_free(&call);
    } else {
        es_text out = {0};
        es_api_error_write(&error, &out);
        if (out.failed || error.status < 400) abort();
        es_text_free(&out);
    }
    free(body);
    return 0;
}
