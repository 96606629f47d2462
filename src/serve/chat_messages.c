/* chat_messages.c: the messages of a conversation, checked and brought into the shape that templates were written for. */
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
    if (!json_is_array(calls)) return es_api_refuse(error, "messages", "messages[%zu]: tool_calls must be an array", index);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        if (!json_is_object(function) || !json_is_string(json_object_get(function, "name")))
            return es_api_refuse(error, "messages", "messages[%zu]: tool_calls[%zu] needs a function with a name", index, i);
        json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(arguments)) continue;
        json_t *parsed = json_loadb(json_string_value(arguments), json_string_length(arguments), JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(parsed))
            json_object_set_new(function, "arguments", parsed);
        else
            json_decref(parsed);
    }
    return true;
}

/* Templates know one name for the reasoning of earlier answers; clients send two. */
static void rename_reasoning(json_t *message)
{
    json_t *reasoning = es_json_member(message, "reasoning");
    if (!json_is_string(reasoning) || es_json_member(message, "reasoning_content")) return;
    json_object_set(message, "reasoning_content", reasoning);
    json_object_del(message, "reasoning");
}

/* A tool's answer names the call by its id; some templates want the function's name. `names` remembers those of the calls. */
static void name_tool(json_t *message, json_t *names)
{
    json_t *calls = es_json_member(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const char *id = json_string_value(json_object_get(call, "id"));
        if (id) json_object_set(names, id, json_object_get(json_object_get(call, "function"), "name"));
    }
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    json_t *name = id && !es_json_member(message, "name") ? json_object_get(names, id) : NULL;
    if (name) json_object_set(message, "name", name);
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
    rename_reasoning(message);
    return normalise_content(context, message, index, error) && normalise_tool_calls(message, index, error);
}

bool es_chat_messages_normalise(const es_api_context *context, json_t *root, es_api_error *error)
{
    json_t *messages = es_json_member(root, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return es_api_refuse(error, "messages", "messages must be an array of at least one message");
    if (json_array_size(messages) > MESSAGES_MAX)
        return es_api_refuse(error, "messages", "messages can hold at most %d messages", MESSAGES_MAX);
    json_t *names = json_object();
    bool good = names || no_memory(error);
    for (size_t i = 0; good && i < json_array_size(messages); i++) {
        good = normalise_message(context, json_array_get(messages, i), i, error);
        if (good) name_tool(json_array_get(messages, i), names);
    }
    json_decref(names);
    return good;
}
