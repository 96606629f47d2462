/* api_completions.c: prompts as they are: text, or token numbers that no tokenizer touches. */
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"

static bool no_memory(es_api_error *error)
{
    return es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "no memory for this prompt"));
}

static bool add_text(const es_api_context *context, const json_t *text, es_prompt *prompt, es_api_error *error)
{
    const es_backend *backend = context->backend;
    if (!backend->info(backend->self)->has_tokenizer)
        return es_api_refuse(error, "prompt", "this model has no tokenizer: send the prompt as an array of token numbers");
    const es_status status = backend->encode(backend->self, json_string_value(text), json_string_length(text),
                                             ES_ENCODE_SPECIAL | ES_ENCODE_BOS, &prompt->tokens, &prompt->count);
    return status == ES_OK || es_api_refuse_status(error, status);
}

static bool add_tokens(const es_api_context *context, const json_t *numbers, es_prompt *prompt, es_api_error *error)
{
    const int32_t vocabulary = context->backend->info(context->backend->self)->vocabulary;
    const size_t count = json_array_size(numbers);
    if (count == 0) return es_api_refuse(error, "prompt", "an array of token numbers must not be empty");
    prompt->tokens = malloc(count * sizeof *prompt->tokens);
    if (!prompt->tokens) return no_memory(error);
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(numbers, i);
        const json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
        if (value < 0 || value >= vocabulary)
            return es_api_refuse(error, "prompt", "prompt: entry %zu is not a token number of this model (0 to %d)", i,
                                 vocabulary - 1);
        prompt->tokens[i] = (es_token)value;
    }
    prompt->count = count;
    return true;
}

static bool add_prompt(const es_api_context *context, const json_t *value, es_prompt *prompt, es_api_error *error)
{
    if (json_is_string(value)) return add_text(context, value, prompt, error);
    if (json_is_array(value)) return add_tokens(context, value, prompt, error);
    return es_api_refuse(error, "prompt",
                         "prompt must be a string, an array of strings, of token numbers, or of arrays of them");
}

/* "text", [1, 2] (one prompt each), ["a", "b"], [[1], [2, 3]] (several) */
static bool parse_prompts(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    json_t *value = es_json_member(root, "prompt");
    if (!value) return es_api_refuse(error, "prompt", "prompt is missing");
    json_t *first = json_array_get(value, 0);
    const bool several = json_is_string(first) || json_is_array(first);
    const size_t count = several ? json_array_size(value) : 1;
    if (count * (size_t)call->n > ES_CALL_CHOICES_MAX)
        return es_api_refuse(error, "prompt", "prompts times n can be at most %d answers in one request", ES_CALL_CHOICES_MAX);
    call->prompts = calloc(count, sizeof *call->prompts);
    if (!call->prompts) return no_memory(error);
    call->prompt_count = count;
    for (size_t i = 0; i < count; i++)
        if (!add_prompt(context, several ? json_array_get(value, i) : value, &call->prompts[i], error)) return false;
    return true;
}

/* A text as it was sent, whatever the tokenizer made of it; numbers by what they say. */
static bool add_echo(const es_api_context *context, const json_t *value, es_prompt *prompt, es_api_error *error)
{
    const es_backend *backend = context->backend;
    if (!backend->info(backend->self)->has_tokenizer)
        return es_api_refuse(error, "echo", "this model has no tokenizer, so a prompt cannot be written out");
    if (json_is_string(value)) es_text_append(&prompt->text, json_string_value(value), json_string_length(value));
    for (size_t i = 0; !json_is_string(value) && i < prompt->count; i++) {
        size_t bytes = 0;
        const char *piece = backend->piece(backend->self, prompt->tokens[i], &bytes);
        if (piece) es_text_append(&prompt->text, piece, bytes);
    }
    return !prompt->text.failed || no_memory(error);
}

bool es_completions_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    json_t *echo = es_json_member(root, "echo");
    if (echo && !json_is_boolean(echo)) return es_api_refuse(error, "echo", "echo must be true or false");
    call->request.prompt_logprobs = json_is_true(echo) && call->request.logprobs;
    json_t *suffix = es_json_member(root, "suffix");
    if (suffix && !(json_is_string(suffix) && json_string_length(suffix) == 0))
        return es_api_refuse(error, "suffix", "suffix is not supported: the model writes forward only");
    json_t *best = es_json_member(root, "best_of");
    if (best && !(json_is_integer(best) && json_integer_value(best) == call->n))
        return es_api_refuse(error, "best_of", "best_of is not supported unless it equals n");
    if (!parse_prompts(context, root, call, error)) return false;
    const json_t *value = es_json_member(root, "prompt"), *first = json_array_get(value, 0);
    const bool several = json_is_string(first) || json_is_array(first);
    for (size_t p = 0; json_is_true(echo) && p < call->prompt_count; p++)
        if (!add_echo(context, several ? json_array_get(value, p) : value, &call->prompts[p], error)) return false;
    return true;
}
