/* api_messages.c: Anthropic's Messages API, read into the words of a chat.
 *
 * What this API calls blocks of a message are messages of their own to a chat template: a tool's result comes from the tool, a
 * use of a tool stands beside the assistant's text. Everything else (checks, template, tokens) is the chat's: see api_chat.c.
 */
#include <string.h>

#include "serve/call.h"

static const char *type_of(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

/* A string, or blocks of text: their texts joined. NULL with an error for anything else. */
static json_t *read_text(const json_t *value, const char *param, const char *what, es_api_error *error)
{
    if (json_is_string(value)) return json_incref((json_t *)value);
    if (!value) return json_string("");
    if (!json_is_array(value)) {
        es_api_refuse(error, param, "%s must be a string or an array of text blocks", what);
        return NULL;
    }
    es_text joined = {0};
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *block = json_array_get(value, i), *text = json_object_get(block, "text");
        if (strcmp(type_of(block), "text") != 0 || !json_is_string(text)) {
            es_api_refuse(error, param, "%s: a block of type \"%.40s\" is not supported; only text is", what, type_of(block));
            es_text_free(&joined);
            return NULL;
        }
        if (i) es_text_putc(&joined, '\n');
        es_text_append(&joined, json_string_value(text), json_string_length(text));
    }
    json_t *text = joined.failed ? NULL : json_stringn(joined.data ? joined.data : "", joined.bytes);
    if (!text) es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "no memory for this conversation"));
    es_text_free(&joined);
    return text;
}

static bool append_message(json_t *messages, const char *role, json_t *content)
{
    return json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0;
}

static bool add_result(const json_t *block, size_t index, json_t *messages, es_api_error *error)
{
    const json_t *id = json_object_get(block, "tool_use_id");
    if (!json_is_string(id))
        return es_api_refuse(error, "messages", "messages[%zu]: a tool_result needs its tool_use_id", index);
    json_t *text = read_text(es_json_member(block, "content"), "messages", "the content of a tool_result", error);
    if (!text) return false;
    json_t *message = json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text);
    return json_array_append_new(messages, message) == 0;
}

/* The results of tools come first, whatever stands beside them. */
static bool add_user_blocks(const json_t *content, size_t index, json_t *messages, es_api_error *error)
{
    json_t *parts = json_array();
    bool good = parts != NULL;
    for (size_t i = 0; good && i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        if (strcmp(type, "tool_result") == 0)
            good = add_result(block, index, messages, error);
        else if (strcmp(type, "text") == 0)
            json_array_append_new(parts, json_pack("{s:s, s:O*}", "type", "text", "text", json_object_get(block, "text")));
        else
            good = es_api_refuse(error, "messages",
                                 "messages[%zu]: a block of type \"%.40s\" is not supported; text and tool_result are", index,
                                 type);
    }
    if (good && json_array_size(parts)) return append_message(messages, "user", parts);
    json_decref(parts);
    return good;
}

static bool add_use(const json_t *block, size_t index, json_t *calls, es_api_error *error)
{
    json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name"),
           *input = json_object_get(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_object(input))
        return es_api_refuse(error, "messages", "messages[%zu]: a tool_use needs id, name and input (an object)", index);
    json_t *call =
        json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name", name, "arguments", input);
    return json_array_append_new(calls, call) == 0;
}

static bool add_assistant_blocks(const json_t *content, size_t index, json_t *messages, es_api_error *error)
{
    es_text text = {0}, thinking = {0};
    json_t *calls = json_array();
    bool good = calls != NULL;
    for (size_t i = 0; good && i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        const char *type = type_of(block);
        const bool thinks = strcmp(type, "thinking") == 0;
        if (strcmp(type, "tool_use") == 0) {
            good = add_use(block, index, calls, error);
        } else if (thinks || strcmp(type, "text") == 0) {
            const json_t *value = json_object_get(block, type);
            if (json_is_string(value))
                es_text_append(thinks ? &thinking : &text, json_string_value(value), json_string_length(value));
            else
                good = es_api_refuse(error, "messages", "messages[%zu]: a block of type %s needs \"%s\", a string", index,
                                     type, type);
        } else if (strcmp(type, "redacted_thinking") != 0) {
            good = es_api_refuse(error, "messages",
                                 "messages[%zu]: a block of type \"%.40s\" is not supported; text, thinking and "
                                 "tool_use are",
                                 index, type);
        }
    }
    json_t *message =
        good ? json_pack("{s:s, s:s%}", "role", "assistant", "content", text.data ? text.data : "", text.bytes) : NULL;
    if (thinking.bytes) json_object_set_new(message, "reasoning_content", json_stringn(thinking.data, thinking.bytes));
    if (json_array_size(calls)) json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    es_text_free(&text);
    es_text_free(&thinking);
    return good && json_array_append_new(messages, message) == 0;
}

static bool add_message(const json_t *message, size_t index, json_t *messages, es_api_error *error)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = es_json_member(message, "content");
    const bool user = role && strcmp(role, "user") == 0, assistant = role && strcmp(role, "assistant") == 0;
    if (!user && !assistant) return es_api_refuse(error, "messages", "messages[%zu]: role must be user or assistant", index);
    if (json_is_string(content)) return append_message(messages, role, json_incref(content));
    if (!json_is_array(content) || json_array_size(content) == 0)
        return es_api_refuse(error, "messages", "messages[%zu]: content must be a string or an array of blocks", index);
    return user ? add_user_blocks(content, index, messages, error) : add_assistant_blocks(content, index, messages, error);
}

static bool read_messages(json_t *root, json_t *chat, es_api_error *error)
{
    json_t *given = es_json_member(root, "messages"), *system = es_json_member(root, "system"), *messages = json_array();
    json_object_set_new(chat, "messages", messages);
    if (!json_is_array(given) || json_array_size(given) == 0)
        return es_api_refuse(error, "messages", "messages must be an array of at least one message");
    if (system) {
        json_t *text = read_text(system, "system", "system", error);
        if (!text) return false;
        append_message(messages, "system", text);
    }
    for (size_t i = 0; i < json_array_size(given); i++)
        if (!add_message(json_array_get(given, i), i, messages, error)) return false;
    /* an answer that the client has begun is gone on with */
    const json_t *last = json_array_get(given, json_array_size(given) - 1);
    if (strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0)
        json_object_set_new(chat, "continue_final_message", json_true());
    return true;
}

/* {"name", "description", "input_schema"} to {"type": "function", "function": {..., "parameters"}} */
static bool read_tools(const es_api_context *context, json_t *root, json_t *chat, es_call *call, es_api_error *error)
{
    json_t *given = es_json_member(root, "tools");
    if (!given) return true;
    if (!json_is_array(given)) return es_api_refuse(error, "tools", "tools must be an array");
    json_t *tools = json_array();
    json_object_set_new(chat, "tools", tools);
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *tool = json_array_get(given, i), *type = es_json_member(tool, "type");
        json_t *schema = es_json_member(tool, "input_schema");
        if (type && strcmp(type_of(tool), "custom") != 0) {
            if (!es_chat_tools_leave_out(context, type_of(tool), i, call, error)) return false;
            continue;
        }
        if (!json_is_object(tool) || !json_is_object(schema))
            return es_api_refuse(error, "tools", "tools[%zu] needs a name and an input_schema (an object)", i);
        json_t *function = json_object();
        static const char *const names[][2] = {
            {"name",         "name"       },
            {"description",  "description"},
            {"input_schema", "parameters" }
        };
        for (size_t n = 0; n < 3; n++) {
            json_t *value = es_json_member(tool, names[n][0]);
            if (value) json_object_set(function, names[n][1], value);
        }
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return true;
}

static bool read_tool_choice(json_t *root, json_t *chat, es_api_error *error)
{
    const json_t *choice = es_json_member(root, "tool_choice");
    if (!choice) return true;
    static const char *const words[][2] = {
        {"auto", "auto"    },
        {"any",  "required"},
        {"none", "none"    }
    };
    const char *type = type_of(choice);
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        json_object_set_new(chat, "parallel_tool_calls", json_false());
    for (size_t i = 0; i < 3; i++)
        if (strcmp(type, words[i][0]) == 0) return json_object_set_new(chat, "tool_choice", json_string(words[i][1])) == 0;
    json_t *name = json_object_get(choice, "name");
    if (strcmp(type, "tool") != 0 || !json_is_string(name))
        return es_api_refuse(error, "tool_choice", "tool_choice must be of type auto, any, none, or tool with a name");
    return json_object_set_new(chat, "tool_choice",
                               json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name)) == 0;
}

/* This API reasons when it is told to, and not otherwise. */
static bool read_thinking(json_t *root, json_t *chat, es_api_error *error)
{
    const json_t *thinking = es_json_member(root, "thinking"),
                 *effort = es_json_member(es_json_member(root, "output_config"), "effort");
    const char *type = thinking ? type_of(thinking) : "disabled";
    const bool off = strcmp(type, "disabled") == 0;
    if (!off && strcmp(type, "enabled") != 0 && strcmp(type, "adaptive") != 0)
        return es_api_refuse(error, "thinking", "thinking must be of type enabled, adaptive or disabled");
    json_object_set_new(chat, "enable_thinking", json_boolean(!off));
    if (effort && !off) json_object_set(chat, "reasoning_effort", (json_t *)effort);
    return true;
}

/* {"type": "json_schema", "schema": {...}} */
static bool read_format(json_t *root, json_t *chat, es_api_error *error)
{
    json_t *config = es_json_member(root, "output_config"), *format = es_json_member(config, "format");
    json_t *schema = es_json_member(format, "schema");
    if (config && !json_is_object(config)) return es_api_refuse(error, "output_config", "output_config must be an object");
    if (!format) return true;
    if (strcmp(type_of(format), "json_schema") != 0 || !schema)
        return es_api_refuse(error, "output_config", "output_config.format must be of type json_schema, with a schema");
    json_t *named = json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema);
    return json_object_set_new(chat, "response_format", named) == 0;
}

bool es_messages_convert(const es_api_context *context, json_t *root, json_t *chat, es_call *call, es_api_error *error)
{
    es_api_take_common(root, chat);
    es_api_take(root, "max_tokens", chat, "max_tokens");
    es_api_take(root, "stop_sequences", chat, "stop");
    if (call->kind != ES_CALL_COUNT_TOKENS && !json_object_get(chat, "max_tokens"))
        return es_api_refuse(error, "max_tokens", "max_tokens is missing: the most tokens that the answer may have");
    return read_messages(root, chat, error) && read_tools(context, root, chat, call, error) && read_tool_choice(root, chat, error) &&
           read_thinking(root, chat, error) && read_format(root, chat, error);
}
