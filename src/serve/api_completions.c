/* api_completions.c: prompts as they are: text, or token numbers that no tokenizer touches; those of embeddings too. */
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"

static bool no_memory(es_api_error *error)
{
    return es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "no memory for this prompt"));
}

typedef struct prompt_reader {
    const es_api_context *context;
    const char *name; /* the parameter's */
    unsigned flags;   /* of es_tokenizer_encode() */
    es_api_error *error;
} prompt_reader;

static bool add_text(const prompt_reader *r, const json_t *text, es_prompt *prompt)
{
    const es_backend *backend = r->context->backend;
    if (!backend->info(backend->self)->has_tokenizer)
        return es_api_refuse(r->error, r->name, "this model has no tokenizer: send the %s as an array of token numbers", r->name);
    const es_status status = backend->encode(backend->self, json_string_value(text), json_string_length(text), r->flags,
                                             &prompt->tokens, &prompt->count);
    return status == ES_OK || es_api_refuse_status(r->error, status);
}

static bool add_tokens(const prompt_reader *r, const json_t *numbers, es_prompt *prompt)
{
    const int32_t vocabulary = r->context->backend->info(r->context->backend->self)->vocabulary;
    const size_t count = json_array_size(numbers);
    if (count == 0) return es_api_refuse(r->error, r->name, "an array of token numbers must not be empty");
    prompt->tokens = malloc(count * sizeof *prompt->tokens);
    if (!prompt->tokens) return no_memory(r->error);
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(numbers, i);
        const json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
        if (value < 0 || value >= vocabulary)
            return es_api_refuse(r->error, r->name, "%s: entry %zu is not a token number of this model (0 to %d)", r->name, i,
                                 vocabulary - 1);
        prompt->tokens[i] = (es_token)value;
    }
    prompt->count = count;
    return true;
}

static bool add_prompt(const prompt_reader *r, const json_t *value, es_prompt *prompt)
{
    if (json_is_string(value)) return add_text(r, value, prompt);
    if (json_is_array(value)) return add_tokens(r, value, prompt);
    return es_api_refuse(r->error, r->name, "%s must be a string, an array of strings, of token numbers, or of arrays of them",
                         r->name);
}

/* "text", [1, 2] (one prompt each), ["a", "b"], [[1], [2, 3]] (several) */
bool es_prompts_parse(const es_api_context *context, json_t *root, const char *name, unsigned flags, size_t most, es_call *call,
                      es_api_error *error)
{
    const prompt_reader reader = {context, name, flags, error};
    json_t *value = es_json_member(root, name);
    if (!value) return es_api_refuse(error, name, "%s is missing", name);
    json_t *first = json_array_get(value, 0);
    const bool several = json_is_string(first) || json_is_array(first);
    const size_t count = several ? json_array_size(value) : 1;
    if (count * (size_t)call->n > most)
        return es_api_refuse(error, name, "one request can have at most %zu answers, %zu are asked for", most, count * (size_t)call->n);
    call->prompts = calloc(count, sizeof *call->prompts);
    if (!call->prompts) return no_memory(error);
    call->prompt_count = count;
    for (size_t i = 0; i < count; i++)
        if (!add_prompt(&reader, several ? json_array_get(value, i) : value, &call->prompts[i])) return false;
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
    if (!es_prompts_parse(context, root, "prompt", ES_ENCODE_SPECIAL | ES_ENCODE_BOS, ES_CALL_CHOICES_MAX, call, error)) return false;
    const json_t *value = es_json_member(root, "prompt"), *first = json_array_get(value, 0);
    const bool several = json_is_string(first) || json_is_array(first);
    for (size_t p = 0; json_is_true(echo) && p < call->prompt_count; p++)
        if (!add_echo(context, several ? json_array_get(value, p) : value, &call->prompts[p], error)) return false;
    return true;
}
