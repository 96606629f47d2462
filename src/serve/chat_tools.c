/* chat_tools.c: which tools an answer may call, and whether it must. */
#include <stdio.h>
#include <string.h>

#include "serve/call.h"
#include "text/grammar_compose.h"

enum { TOOLS_MAX = 1024, NAME_MAX_BYTES = 128 };

bool es_chat_tools_leave_out(const es_api_context *context, const char *type, size_t index, es_call *call, es_api_error *error)
{
    char name[100];
    if (!*type || context->strict)
        return es_api_refuse(error, "tools", "tools[%zu]: a tool of type \"%.40s\" is not supported; only functions are", index, type);
    snprintf(name, sizeof name, "tools.%.80s", type);
    es_call_ignore(call, name);
    return true;
}

/* {"type": "function", "function": {"name": ..., "parameters": {...}}} */
static bool check_tool(const json_t *tool, size_t index, es_api_error *error)
{
    if (!json_is_object(tool)) return es_api_refuse(error, "tools", "tools[%zu] must be an object", index);
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (type && strcmp(type, "function") != 0)
        return es_api_refuse(error, "tools", "tools[%zu]: a tool of type \"%.40s\" is not supported; only functions are",
                             index, type);
    const json_t *function = json_object_get(tool, "function");
    if (!json_is_object(function))
        return es_api_refuse(error, "tools", "tools[%zu] needs \"function\", an object with a name", index);
    const json_t *name = json_object_get(function, "name"), *parameters = es_json_member(function, "parameters");
    const size_t bytes = json_string_length(name);
    if (bytes == 0 || bytes > NAME_MAX_BYTES || strpbrk(json_string_value(name), "<>\"\\\n\r\t"))
        return es_api_refuse(error, "tools",
                             "tools[%zu]: a function's name must be a string of 1 to %d bytes without <, >, quotes or "
                             "line breaks",
                             index, NAME_MAX_BYTES);
    if (parameters && !json_is_object(parameters))
        return es_api_refuse(error, "tools", "tools[%zu]: parameters must be a JSON schema, an object", index);
    return true;
}

static bool check_tools(json_t *tools, es_api_error *error)
{
    if (!json_is_array(tools)) return es_api_refuse(error, "tools", "tools must be an array");
    if (json_array_size(tools) > TOOLS_MAX) return es_api_refuse(error, "tools", "tools can hold at most %d tools", TOOLS_MAX);
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!check_tool(json_array_get(tools, i), i, error)) return false;
    return true;
}

/* {"type": "function", "function": {"name": ...}} */
static const char *named_function(const json_t *choice)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    if (!type || strcmp(type, "function") != 0) return NULL;
    return json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
}

/* The answer must call one, or the one that is named: there is nothing left that could have another form. */
static bool force(const es_api_context *context, json_t *tools, const char *only, es_call *call, es_api_error *error)
{
    if (json_array_size(tools) == 0)
        return es_api_refuse(error, "tool_choice", "tool_choice wants a tool to be called, and there are no tools");
    es_text_free(&call->grammar);
    call->grammar_name = "tool_choice";
    call->one_call |= only != NULL;
    es_text_puts(&call->grammar, "root ::= calls\n");
    return es_tool_grammar_put(context->format.tools, tools, only, !call->one_call, &call->grammar, error);
}

/* The answer calls tools or has its form, as the model likes. */
static bool offer(const es_api_context *context, json_t *tools, es_call *call, es_api_error *error)
{
    es_text both = {0};
    es_text_puts(&both, "root ::= calls | form-root\n");
    es_grammar_add_prefixed(&both, "form-", call->grammar.data, call->grammar.bytes);
    both.failed |= call->grammar.failed;
    es_text_free(&call->grammar);
    call->grammar = both;
    call->format.calls_alone = true;
    return es_tool_grammar_put(context->format.tools, tools, NULL, !call->one_call, &call->grammar, error);
}

bool es_chat_tools_choose(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    json_t *tools = es_json_member(root, "tools"), *choice = es_json_member(root, "tool_choice");
    json_t *parallel = es_json_member(root, "parallel_tool_calls");
    if (parallel && !json_is_boolean(parallel))
        return es_api_refuse(error, "parallel_tool_calls", "parallel_tool_calls must be true or false");
    if (tools && !check_tools(tools, error)) return false;
    const char *word = choice ? json_string_value(choice) : "auto", *only = named_function(choice);
    if (word && strcmp(word, "none") == 0) return true;
    const bool required = word && strcmp(word, "required") == 0;
    if (!required && !only && (!word || strcmp(word, "auto") != 0))
        return es_api_refuse(
            error, "tool_choice",
            "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    call->one_call = json_is_false(parallel);
    if (json_array_size(tools)) call->tools = json_incref(tools);
    if (required || only) return force(context, tools, only, call, error);
    const bool both = call->tools && call->grammar.bytes && context->format.tools != ES_TOOLS_NONE;
    return !both || offer(context, tools, call, error);
}
