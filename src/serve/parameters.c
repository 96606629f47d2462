/* parameters.c: the parameters that chat and completions share.
 *
 * Three tables say what happens to a name: `numbers` are ranges, `names` are known and looked at somewhere, `refused` are
 * things other servers do and this one does not (yet): they change what the answer means, so they are never ignored.
 * Anything else is ignored and named in a header of the reply, or refused in strict mode. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "serve/call.h"

typedef struct number {
    const char *name;
    size_t offset; /* of a float in es_sampling */
    double min, max;
} number;

static const number numbers[] = {
    {"temperature", offsetof(es_sampling, temperature), 0, 2},
    {"top_p", offsetof(es_sampling, top_p), 0, 1},
    {"min_p", offsetof(es_sampling, min_p), 0, 1},
    {"frequency_penalty", offsetof(es_sampling, frequency_penalty), -2, 2},
    {"presence_penalty", offsetof(es_sampling, presence_penalty), -2, 2},
    {"repetition_penalty", offsetof(es_sampling, repetition_penalty), 0.01, 10},
    {"repeat_penalty", offsetof(es_sampling, repetition_penalty), 0.01, 10},
};

enum { CHAT = 1, COMPLETION = 2, BOTH = 3, RESPONSE = 4, MESSAGE = 8, OTHERS = 12, EMBEDDING = 16 };

/* Known names besides the numbers. */
static const struct {
    const char *name;
    int kinds;
} names[] = {
    {"model", BOTH}, {"top_k", BOTH}, {"seed", BOTH}, {"stop", BOTH}, {"max_tokens", BOTH}, {"max_completion_tokens", CHAT},
    {"n", BOTH}, {"logprobs", BOTH}, {"top_logprobs", CHAT}, {"logit_bias", BOTH}, {"ignore_eos", BOTH}, {"stream", BOTH},
    {"stream_options", BOTH}, {"return_token_ids", BOTH}, {"response_format", BOTH}, {"messages", CHAT}, {"tools", CHAT},
    {"tool_choice", CHAT}, {"parallel_tool_calls", CHAT}, {"chat_template_kwargs", CHAT}, {"reasoning_effort", CHAT}, {"enable_thinking", CHAT}, {"add_generation_prompt", CHAT},
    {"documents", CHAT}, {"continue_final_message", CHAT}, {"prompt", COMPLETION}, {"echo", COMPLETION}, {"suffix", COMPLETION}, {"best_of", COMPLETION},
    {"skip_special_tokens", BOTH}, {"grammar", BOTH}, {"json_schema", BOTH}, {"structured_outputs", BOTH},
    {"guided_json", BOTH}, {"guided_regex", BOTH}, {"guided_choice", BOTH}, {"guided_grammar", BOTH},
    {"return_progress", BOTH}, {"heartbeat", BOTH},
    /* the other APIs' own; what they share with a chat is read by the chat's names */
    {"model", OTHERS}, {"stream", OTHERS}, {"tools", OTHERS}, {"tool_choice", OTHERS}, {"top_k", OTHERS}, {"seed", OTHERS},
    {"logit_bias", OTHERS}, {"ignore_eos", OTHERS}, {"chat_template_kwargs", OTHERS}, {"metadata", OTHERS}, {"service_tier", OTHERS},
    {"input", RESPONSE}, {"instructions", RESPONSE}, {"max_output_tokens", RESPONSE}, {"reasoning", RESPONSE}, {"text", RESPONSE},
    {"parallel_tool_calls", RESPONSE}, {"stop", RESPONSE}, {"previous_response_id", RESPONSE}, {"conversation", RESPONSE},
    {"background", RESPONSE}, {"prompt", RESPONSE}, {"truncation", RESPONSE}, {"store", RESPONSE}, {"include", RESPONSE},
    {"user", RESPONSE}, {"safety_identifier", RESPONSE}, {"prompt_cache_key", RESPONSE}, {"prompt_cache_retention", RESPONSE},
    {"stream_options", RESPONSE}, {"messages", MESSAGE}, {"system", MESSAGE}, {"max_tokens", MESSAGE}, {"stop_sequences", MESSAGE},
    {"thinking", MESSAGE}, {"output_config", MESSAGE},
    {"model", EMBEDDING}, {"input", EMBEDDING}, {"encoding_format", EMBEDDING}, {"dimensions", EMBEDDING}, {"user", EMBEDDING},
    /* accepted without effect */
    {"user", BOTH}, {"metadata", BOTH}, {"store", BOTH}, {"service_tier", BOTH}, {"safety_identifier", BOTH},
    {"prompt_cache_key", BOTH}, {"prompt_cache_retention", BOTH}, {"prediction", BOTH}, {"verbosity", CHAT},
};

static const struct {
    const char *name, *instead;
} refused[] = {
    {"functions", "use tools"},
    {"function_call", "use tools and tool_choice"},
    {"audio", "only text is generated"},
    {"web_search_options", "this server searches nothing"},
    {"chat_template", "a request cannot bring its own template; use chat_template_kwargs"},
    {"use_beam_search", "there is no beam search"},
    {"mirostat", "use temperature, top_p, top_k or min_p"},
    {"typical_p", "use top_p or min_p"},
};

static bool is_known(const char *name, int kind)
{
    for (size_t i = 0; kind != EMBEDDING && i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].name, name) == 0) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].kinds & kind && strcmp(names[i].name, name) == 0) return true;
    return false;
}

/* False, null, 0 and "" ask for nothing. */
static bool asks_for_nothing(const json_t *value)
{
    if (json_is_integer(value)) return json_integer_value(value) == 0;
    if (json_is_string(value)) return json_string_length(value) == 0;
    return !value || json_is_null(value) || json_is_false(value);
}

static int kind_bit(es_call_kind kind)
{
    switch (kind) {
    case ES_CALL_COMPLETION: return COMPLETION;
    case ES_CALL_RESPONSE: return RESPONSE;
    case ES_CALL_MESSAGE:
    case ES_CALL_COUNT_TOKENS: return MESSAGE;
    case ES_CALL_EMBEDDING: return EMBEDDING;
    default: return CHAT;
    }
}

void es_call_ignore(es_call *call, const char *name)
{
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != strlen(name)) return;
    if (call->ignored.bytes + strlen(name) > 400) return;
    es_text_printf(&call->ignored, "%s%s", call->ignored.bytes ? ", " : "", name);
}

bool es_parameters_check_names(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!asks_for_nothing(json_object_get(root, refused[i].name)))
            return es_api_refuse(error, refused[i].name, "%s is not supported: %s", refused[i].name, refused[i].instead);
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (is_known(name, kind_bit(call->kind))) continue;
        if (context->strict) return es_api_refuse(error, name, "unknown parameter \"%.60s\" (the server is strict)", name);
        es_call_ignore(call, name);
    }
    return true;
}

static bool parse_numbers(json_t *root, es_sampling *sampling, es_api_error *error)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const number *row = &numbers[i];
        json_t *value = es_json_member(root, row->name);
        if (!value) continue;
        const double v = json_is_number(value) ? json_number_value(value) : NAN;
        if (!(v >= row->min && v <= row->max))
            return es_api_refuse(error, row->name, "%s must be a number from %g to %g", row->name, row->min, row->max);
        const float f = (float)v;
        memcpy((char *)sampling + row->offset, &f, sizeof f);
    }
    return true;
}

/* An integer in [min, max]; 1.0 counts as one too, since some clients know no integers. *value stays when it is absent. */
bool es_parameter_integer(json_t *root, const char *name, int64_t min, int64_t max, int64_t *value, es_api_error *error)
{
    json_t *given = es_json_member(root, name);
    if (!given) return true;
    bool fits = false;
    int64_t v = 0;
    if (json_is_integer(given)) {
        v = json_integer_value(given);
        fits = true;
    } else if (json_is_real(given)) {
        const double real = json_real_value(given);
        fits = real == floor(real) && fabs(real) < 9e15;
        if (fits) v = (int64_t)real;
    }
    if (!fits || v < min || v > max)
        return es_api_refuse(error, name, "%s must be an integer from %" PRId64 " to %" PRId64, name, min, max);
    *value = v;
    return true;
}

static bool parse_flag(json_t *root, const char *name, bool *value, es_api_error *error)
{
    json_t *given = es_json_member(root, name);
    if (!given) return true;
    if (!json_is_boolean(given)) return es_api_refuse(error, name, "%s must be true or false", name);
    *value = json_is_true(given);
    return true;
}

static bool add_stop(es_call *call, const json_t *text, es_api_error *error)
{
    if (!json_is_string(text)) return es_api_refuse(error, "stop", "stop must be a string or an array of strings");
    const size_t bytes = json_string_length(text);
    if (bytes == 0) return es_api_refuse(error, "stop", "a stop string must not be empty");
    if (bytes > 1024) return es_api_refuse(error, "stop", "a stop string can be at most 1024 bytes long");
    char *copy = strdup(json_string_value(text));
    if (!copy) return es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "out of memory"));
    call->stops[call->request.stop_count++] = copy;
    return true;
}

static bool parse_stop(json_t *root, es_call *call, es_api_error *error)
{
    json_t *stop = es_json_member(root, "stop");
    if (!stop) return true;
    if (!json_is_array(stop)) return add_stop(call, stop, error);
    if (json_array_size(stop) > ES_CALL_STOPS_MAX)
        return es_api_refuse(error, "stop", "stop can hold at most %d strings", ES_CALL_STOPS_MAX);
    for (size_t i = 0; i < json_array_size(stop); i++)
        if (!add_stop(call, json_array_get(stop, i), error)) return false;
    return true;
}

static bool parse_token(const char *text, int32_t vocabulary, es_token *token)
{
    if (text[0] < '0' || text[0] > '9') return false;
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || *end || value >= vocabulary) return false;
    *token = (es_token)value;
    return true;
}

static bool parse_logit_bias(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    json_t *bias = es_json_member(root, "logit_bias");
    if (!bias) return true;
    const char *rule = "logit_bias must map token numbers of this model to numbers from -100 to 100, at most 4096 of them";
    if (!json_is_object(bias) || json_object_size(bias) > ES_CALL_BIAS_MAX)
        return es_api_refuse(error, "logit_bias", "%s", rule);
    if (json_object_size(bias) == 0) return true;
    call->bias = calloc(json_object_size(bias), sizeof *call->bias);
    if (!call->bias) return es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "out of memory"));
    const int32_t vocabulary = context->backend->info(context->backend->self)->vocabulary;
    const char *name;
    json_t *value;
    json_object_foreach(bias, name, value)
    {
        es_logit_bias *row = &call->bias[call->request.bias_count];
        const double v = json_is_number(value) ? json_number_value(value) : NAN;
        if (!(v >= -100 && v <= 100) || !parse_token(name, vocabulary, &row->token))
            return es_api_refuse(error, "logit_bias", "%s", rule);
        row->bias = (float)v;
        call->request.bias_count++;
    }
    return true;
}

/* Chat: logprobs true, top_logprobs N. Completions: logprobs N. */
static bool parse_logprobs(json_t *root, es_call *call, es_api_error *error)
{
    int64_t top = 0;
    if (call->kind == ES_CALL_COMPLETION) {
        json_t *given = es_json_member(root, "logprobs");
        if (!given || json_is_false(given)) return true;
        call->request.logprobs = true;
        if (!json_is_true(given) && !es_parameter_integer(root, "logprobs", 0, ES_CALL_TOP_MAX, &top, error)) return false;
    } else {
        if (!parse_flag(root, "logprobs", &call->request.logprobs, error)) return false;
        if (!es_parameter_integer(root, "top_logprobs", 0, ES_CALL_TOP_MAX, &top, error)) return false;
        if (top > 0 && !call->request.logprobs)
            return es_api_refuse(error, "top_logprobs", "top_logprobs needs \"logprobs\": true");
    }
    call->request.top_logprobs = (int)top;
    return true;
}

static bool parse_lengths(json_t *root, es_call *call, es_api_error *error)
{
    /* OpenAI's default for completions; a chat answer may take what is left of the context */
    const bool chat = call->kind != ES_CALL_COMPLETION;
    int64_t most = chat ? -1 : 16;
    const int64_t least = chat ? 1 : 0;
    const char *name = chat && es_json_member(root, "max_completion_tokens") ? "max_completion_tokens"
                                                                                                 : "max_tokens";
    json_t *given = es_json_member(root, name);
    /* -1 is how clients of other servers say "as many as fit" */
    if (json_is_integer(given) && json_integer_value(given) == -1) most = -1;
    else if (!es_parameter_integer(root, name, least, INT32_MAX, &most, error)) return false;
    call->request.max_tokens = most;
    int64_t n = 1;
    if (!es_parameter_integer(root, "n", 1, 128, &n, error)) return false;
    call->n = (int)n;
    return true;
}

static bool parse_stream(json_t *root, es_call *call, es_api_error *error)
{
    if (!parse_flag(root, "stream", &call->stream, error)) return false;
    json_t *options = es_json_member(root, "stream_options");
    if (!options) return true;
    if (!json_is_object(options)) return es_api_refuse(error, "stream_options", "stream_options must be an object");
    if (!call->stream) return es_api_refuse(error, "stream_options", "stream_options needs \"stream\": true");
    return parse_flag(options, "include_usage", &call->include_usage, error);
}

/* Without a seed each answer is another one. */
static bool parse_seed(json_t *root, es_sampling *sampling, es_api_error *error)
{
    if (getrandom(&sampling->seed, sizeof sampling->seed, 0) != (ssize_t)sizeof sampling->seed) sampling->seed = 0;
    int64_t seed = (int64_t)sampling->seed;
    if (!es_parameter_integer(root, "seed", INT64_MIN, INT64_MAX, &seed, error)) return false;
    sampling->seed = (uint64_t)seed;
    return true;
}

bool es_parameters_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    const es_backend_info *info = context->backend->info(context->backend->self);
    es_request *request = &call->request;
    request->sampling = info->sampling;
    if (!parse_numbers(root, &request->sampling, error)) return false;
    int64_t top_k = request->sampling.top_k;
    if (!es_parameter_integer(root, "top_k", -1, INT32_MAX, &top_k, error)) return false;
    request->sampling.top_k = top_k < 0 ? 0 : (int32_t)top_k;
    bool skip_special = true;
    if (!parse_seed(root, &request->sampling, error) || !parse_lengths(root, call, error) || !parse_stop(root, call, error) ||
        !parse_logit_bias(context, root, call, error) || !parse_logprobs(root, call, error) ||
        !parse_flag(root, "ignore_eos", &request->ignore_eos, error) ||
        !parse_flag(root, "return_token_ids", &call->return_token_ids, error) ||
        !parse_flag(root, "return_progress", &call->return_progress, error) ||
        !parse_flag(root, "heartbeat", &call->heartbeat, error) ||
        !parse_flag(root, "skip_special_tokens", &skip_special, error) || !parse_stream(root, call, error) ||
        !es_structured_parse(root, call, error))
        return false;
    request->keep_special = !skip_special;
    return true;
}
