/* call.c: what all calls have in common: errors, and the way from a body to prompts that fit. */
#include "serve/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/strict_json.h"

bool es_api_refuse(es_api_error *error, const char *param, const char *format, ...)
{
    *error = (es_api_error){.status = 400, .type = "invalid_request_error"};
    snprintf(error->param, sizeof error->param, "%s", param);
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

bool es_api_refuse_status(es_api_error *error, es_status status)
{
    es_api_refuse(error, "", "%s", es_error_message());
    switch (status) {
    case ES_OK:
    case ES_INVALID: break;
    case ES_UNSUPPORTED: error->code = "unsupported"; break;
    case ES_TOO_LONG: error->code = "context_length_exceeded"; break;
    case ES_NOT_FOUND:
        error->status = 404;
        error->type = "not_found_error";
        break;
    case ES_BUSY:
        error->status = 429;
        error->type = "rate_limit_error";
        error->code = "queue_full";
        error->retry_after = 1;
        break;
    case ES_CANCELLED:
        error->status = 503;
        error->type = "server_error";
        error->code = "cancelled";
        error->retry_after = 1;
        break;
    case ES_UNAVAILABLE:
        error->status = 503;
        error->type = "server_error";
        error->code = "engine_restarting";
        error->retry_after = 2;
        break;
    case ES_NO_MEMORY:
        error->status = 503;
        error->type = "server_error";
        error->code = "no_memory";
        error->retry_after = 5;
        break;
    case ES_BAD_FILE:
    case ES_IO:
    case ES_INTERNAL:
        error->status = 500;
        error->type = "server_error";
        error->code = es_status_name(status);
        break;
    }
    return false;
}

json_t *es_api_error_json(const es_api_error *error)
{
    json_t *inner = json_object();
    json_object_set_new(inner, "message", es_json_text(error->message, strlen(error->message)));
    json_object_set_new(inner, "type", json_string(error->type));
    json_object_set_new(inner, "param", *error->param ? es_json_text(error->param, strlen(error->param)) : json_null());
    json_object_set_new(inner, "code", error->code ? json_string(error->code) : json_null());
    json_t *outer = json_object();
    json_object_set_new(outer, "error", inner);
    return outer;
}

void es_api_error_write(const es_api_error *error, es_text *out)
{
    json_t *json = es_api_error_json(error);
    es_json_write(out, json);
    es_text_putc(out, '\n');
    json_decref(json);
}

json_t *es_json_member(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

void es_api_take(const json_t *root, const char *from, json_t *chat, const char *to)
{
    json_t *value = es_json_member(root, from);
    if (value) json_object_set(chat, to, value);
}

void es_api_take_common(const json_t *root, json_t *chat)
{
    static const char *const names[] = {"stream",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "seed",
                                        "logit_bias",
                                        "frequency_penalty",
                                        "presence_penalty",
                                        "repetition_penalty",
                                        "ignore_eos",
                                        "chat_template_kwargs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) es_api_take(root, names[i], chat, names[i]);
}

static bool check_model(const es_api_context *context, json_t *root, es_api_error *error)
{
    json_t *model = es_json_member(root, "model");
    if (model && !json_is_string(model)) return es_api_refuse(error, "model", "model must be a string");
    if (!context->strict || !model || strcmp(json_string_value(model), context->alias) == 0) return true;
    es_api_refuse(error, "model", "the model \"%.100s\" is not served here; the one that is: \"%s\"", json_string_value(model),
                  context->alias);
    error->status = 404;
    error->code = "model_not_found";
    return false;
}

/* What can never fit is refused before it costs anything, with the numbers. */
static bool check_lengths(const es_api_context *context, const es_call *call, es_api_error *error)
{
    const int64_t limit = context->backend->info(context->backend->self)->context;
    const int64_t answer = call->request.max_tokens;
    for (size_t p = 0; p < call->prompt_count; p++) {
        const int64_t prompt = (int64_t)call->prompts[p].count;
        const char *what = call->kind == ES_CALL_COMPLETION ? "prompt" : call->kind == ES_CALL_EMBEDDING ? "input" : "messages";
        if (prompt == 0) return es_api_refuse(error, what, "the prompt has no tokens; send at least one");
        const int64_t wanted = answer < 0 ? 1 : answer;
        if (wanted <= limit - prompt) continue;
        es_api_refuse(error, what,
                      "This model's maximum context length is %" PRId64 " tokens, but %" PRId64 " were requested (%" PRId64
                      " in the %s, %" PRId64 "%s in the answer). Shorten one of them, or start the server with a larger "
                      "--ctx.",
                      limit, prompt + wanted, prompt, what, wanted, answer < 0 ? " at least" : "");
        error->code = "context_length_exceeded";
        return false;
    }
    return true;
}

/* `root` in the words of a chat or completion. */
static bool parse_words(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    if (!es_parameters_parse(context, root, call, error)) return false;
    const bool read = call->kind == ES_CALL_COMPLETION ? es_completions_parse(context, root, call, error)
                                                       : es_chat_parse(context, root, call, error);
    return read && check_lengths(context, call, error) && es_structured_finish(call, error);
}

static bool parse_root(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    if (!es_parameters_check_names(context, root, call, error) || !check_model(context, root, error)) return false;
    if (call->kind == ES_CALL_EMBEDDING) return es_embeddings_parse(context, root, call, error) && check_lengths(context, call, error);
    if (call->kind == ES_CALL_CHAT || call->kind == ES_CALL_COMPLETION) return parse_words(context, root, call, error);
    json_t *chat = json_object();
    const bool converted = call->kind == ES_CALL_RESPONSE ? es_responses_convert(context, root, chat, call, error)
                                                          : es_messages_convert(context, root, chat, call, error);
    const bool parsed = converted && parse_words(context, chat, call, error);
    json_decref(chat);
    return parsed;
}

bool es_call_parse(const es_api_context *context, es_call_kind kind, const char *body, size_t bytes, es_call *call,
                   es_api_error *error)
{
    json_t *root;
    const es_status status = es_json_parse_object(body, bytes, &root);
    if (status != ES_OK) return es_api_refuse_status(error, status);
    *call = (es_call){.kind = kind, .n = 1};
    const bool parsed = parse_root(context, root, call, error);
    json_decref(root);
    if (!parsed) es_call_free(call);
    return parsed;
}

es_request es_call_request(const es_call *call, size_t choice)
{
    const es_prompt *prompt = &call->prompts[choice / (size_t)call->n];
    es_request request = call->request;
    request.prompt = prompt->tokens;
    request.prompt_count = prompt->count;
    request.sampling.choice = (uint32_t)(choice % (size_t)call->n);
    request.bias = call->bias;
    request.grammar = call->grammar.bytes ? call->grammar.data : NULL;
    request.stop = (const char *const *)call->stops;
    return request;
}

void es_call_free(es_call *call)
{
    for (size_t p = 0; p < call->prompt_count; p++) {
        free(call->prompts[p].tokens);
        es_text_free(&call->prompts[p].text);
    }
    free(call->prompts);
    free(call->bias);
    json_decref(call->tools);
    json_decref(call->echo);
    for (size_t i = 0; i < ES_CALL_STOPS_MAX; i++) free(call->stops[i]);
    es_text_free(&call->grammar);
    es_text_free(&call->ignored);
    *call = (es_call){0};
}
