/* api_chat.c: from the messages of a conversation to the tokens of a prompt.
 *
 * Messages are checked and brought into the shape that templates were written for; what a template should see beyond that
 * (tools, chat_template_kwargs) passes through as it is. The template then writes the conversation out as text, and the
 * tokenizer turns that into tokens, special ones included. */
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"

enum { MESSAGES_MAX = 100000 };

static bool no_memory(es_api_error *error)
{
    return es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "no memory for this conversation"));
}

/* Appends a part's text; refuses parts that are no text by their name. */
static bool add_part(const json_t *part, size_t message, es_text *joined, size_t *parts, es_api_error *error)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type) return es_api_refuse(error, "messages", "messages[%zu]: each content part needs a \"type\"", message);
    if (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0 &&
        strcmp(type, "refusal") != 0)
        return es_api_refuse(error, "messages",
                             "messages[%zu]: a content part of type \"%.40s\" is not supported; only text is", message, type);
    json_t *text = json_object_get(part, strcmp(type, "refusal") == 0 ? "refusal" : "text");
    if (!json_is_string(text))
        return es_api_refuse(error, "messages", "messages[%zu]: a text part needs \"text\", a string", message);
    if ((*parts)++ > 0) es_text_putc(joined, '\n');
    es_text_append(joined, json_string_value(text), json_string_length(text));
    return true;
}

/* Content is a string, an array of text parts, or null beside tool calls. Arrays stay for templates that read them. */
static bool normalise_content(const es_api_context *context, json_t *message, size_t index, es_api_error *error)
{
    json_t *content = es_json_member(message, "content");
    if (json_is_string(content)) return true;
    if (!content) {
        if (!es_json_member(message, "tool_calls") && !es_json_member(message, "reasoning_content"))
            return es_api_refuse(error, "messages", "messages[%zu]: content is missing", index);
        json_object_set_new(message, "content", json_string(""));
        return true;
    }
    if (!json_is_array(content))
        return es_api_refuse(error, "messages", "messages[%zu]: content must be a string or an array of parts", index);
    es_text joined = {0};
    size_t parts = 0;
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (add_part(json_array_get(content, i), index, &joined, &parts, error)) continue;
        es_text_free(&joined);
        return false;
    }
    if (joined.failed) {
        es_text_free(&joined);
        return no_memory(error);
    }
    if (!context->content_parts)
        json_object_set_new(message, "content", joined.data ? json_stringn(joined.data, joined.bytes) : json_string(""));
    es_text_free(&joined);
    return true;
}

/* OpenAI sends a call's arguments as a string of JSON; templates walk through them as an object. */
static bool normalise_tool_calls(json_t *message, size_t index, es_api_error *error)
{
    json_t *calls = es_json_member(message, "tool_calls");
    if (!calls) return true;
    if (!json_is_array(calls))
        return es_api_refuse(error, "messages", "messages[%zu]: tool_calls must be an array", index);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        if (!json_is_object(function) || !json_is_string(json_object_get(function, "name")))
            return es_api_refuse(error, "messages", "messages[%zu]: tool_calls[%zu] needs a function with a name", index, i);
        json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(arguments)) continue;
        json_t *parsed = json_loadb(json_string_value(arguments), json_string_length(arguments), JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(parsed)) json_object_set_new(function, "arguments", parsed);
        else json_decref(parsed);
    }
    return true;
}

static bool normalise_message(const es_api_context *context, json_t *message, size_t index, es_api_error *error)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    if (!json_is_object(message)) return es_api_refuse(error, "messages", "messages[%zu] must be an object", index);
    const char *role = json_string_value(json_object_get(message, "role"));
    bool known = false;
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++) known |= strcmp(role, roles[i]) == 0;
    if (!known)
        return es_api_refuse(error, "messages",
                             "messages[%zu]: role must be system, developer, user, assistant, tool or function", index);
    /* OpenAI's newer name for the same thing, which templates do not know */
    if (strcmp(role, "developer") == 0) json_object_set_new(message, "role", json_string("system"));
    return normalise_content(context, message, index, error) && normalise_tool_calls(message, index, error);
}

static bool normalise_messages(const es_api_context *context, json_t *root, es_api_error *error)
{
    json_t *messages = es_json_member(root, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return es_api_refuse(error, "messages", "messages must be an array of at least one message");
    if (json_array_size(messages) > MESSAGES_MAX)
        return es_api_refuse(error, "messages", "messages can hold at most %d messages", MESSAGES_MAX);
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!normalise_message(context, json_array_get(messages, i), i, error)) return false;
    return true;
}

/* Whether the template should see the tools. */
static bool choose_tools(json_t *root, json_t **tools, es_api_error *error)
{
    *tools = es_json_member(root, "tools");
    if (*tools && !json_is_array(*tools)) return es_api_refuse(error, "tools", "tools must be an array");
    for (size_t i = 0; i < json_array_size(*tools); i++)
        if (!json_is_object(json_array_get(*tools, i)))
            return es_api_refuse(error, "tools", "tools[%zu] must be an object", i);
    json_t *choice = es_json_member(root, "tool_choice");
    if (!choice) return true;
    const char *word = json_string_value(choice);
    if (word && strcmp(word, "auto") == 0) return true;
    if (word && strcmp(word, "none") == 0) {
        *tools = NULL;
        return true;
    }
    return es_api_refuse(error, "tool_choice", "tool_choice can only be \"auto\" or \"none\": a tool cannot be forced yet");
}

/* The template's variables: what the caller adds first, what the API owns on top. */
static bool build_variables(json_t *root, json_t *tools, json_t *variables, es_api_error *error)
{
    json_t *extra = es_json_member(root, "chat_template_kwargs");
    if (extra && !json_is_object(extra))
        return es_api_refuse(error, "chat_template_kwargs", "chat_template_kwargs must be an object");
    if (json_object_get(extra, "messages") || json_object_get(extra, "tools") || json_object_get(extra, "chat_template"))
        return es_api_refuse(error, "chat_template_kwargs",
                             "chat_template_kwargs cannot set messages, tools or chat_template");
    if (extra && json_object_update(variables, extra) != 0) return no_memory(error);
    static const char *const passed[] = {"reasoning_effort", "add_generation_prompt", "documents"};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *value = es_json_member(root, passed[i]);
        if (value) json_object_set(variables, passed[i], value);
    }
    json_t *generation = json_object_get(variables, "add_generation_prompt");
    if (!generation) json_object_set_new(variables, "add_generation_prompt", json_true());
    else if (!json_is_boolean(generation))
        return es_api_refuse(error, "add_generation_prompt", "add_generation_prompt must be true or false");
    json_object_set(variables, "messages", json_object_get(root, "messages"));
    if (json_array_size(tools) > 0) json_object_set(variables, "tools", tools);
    return true;
}

static bool render(const es_backend *backend, const json_t *variables, es_call *call, es_api_error *error)
{
    char *json = json_dumps(variables, JSON_COMPACT);
    if (!json) return no_memory(error);
    char *text = NULL;
    es_status status = backend->render(backend->self, json, &text);
    free(json);
    if (status != ES_OK) {
        es_api_refuse_status(error, status);
        if (status == ES_INVALID) memcpy(error->param, "messages", sizeof "messages");
        return false;
    }
    es_prompt *prompt = call->prompts;
    status = backend->encode(backend->self, text, strlen(text), ES_ENCODE_SPECIAL, &prompt->tokens, &prompt->count);
    free(text);
    return status == ES_OK || es_api_refuse_status(error, status);
}

bool es_chat_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    const es_backend *backend = context->backend;
    const es_backend_info *info = backend->info(backend->self);
    if (!info->has_chat || !info->has_tokenizer)
        return es_api_refuse(error, "messages", "this model has no %s: use /v1/completions%s",
                             info->has_tokenizer ? "chat template" : "tokenizer",
                             info->has_tokenizer ? "" : " with token numbers");
    json_t *tools;
    if (!normalise_messages(context, root, error) || !choose_tools(root, &tools, error)) return false;
    call->prompts = calloc(1, sizeof *call->prompts);
    json_t *variables = json_object();
    if (!call->prompts || !variables) {
        json_decref(variables);
        return no_memory(error);
    }
    call->prompt_count = 1;
    const bool rendered = build_variables(root, tools, variables, error) && render(backend, variables, call, error);
    json_decref(variables);
    return rendered;
}

/* A template that only knows strings prints an array as a list with its braces, or refuses it. */
bool es_chat_template_reads_parts(const es_backend *backend)
{
    static const char probe[] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"zebra\"}]}]}";
    char *text = NULL;
    if (!backend->info(backend->self)->has_chat || backend->render(backend->self, probe, &text) != ES_OK) return false;
    const char *word = strstr(text, "zebra");
    const bool bare = word && !strstr(text, "'type'") && !strstr(text, "\"type\"");
    free(text);
    return bare;
}
