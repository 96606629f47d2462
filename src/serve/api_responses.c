/* api_responses.c: OpenAI's Responses API, read into the words of a chat.
 *
 * A conversation is a list of items here: messages, calls of functions and their outputs, reasoning. To a chat template the
 * reasoning and the calls belong to the assistant's message beside which they stand. */
#include <string.h>

#include "serve/call.h"

static const char *string_of(const json_t *object, const char *name)
{
    const char *string = json_string_value(json_object_get(object, name));
    return string ? string : "";
}

/* The assistant's message that the next item of its turn belongs to: the last one, or a new one. */
static json_t *assistant_turn(json_t *messages)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (strcmp(string_of(last, "role"), "assistant") == 0) return last;
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    return json_array_get(messages, json_array_size(messages) - 1);
}

static bool add_call(const json_t *item, size_t index, json_t *messages, es_api_error *error)
{
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"),
           *arguments = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return es_api_refuse(error, "input", "input[%zu]: a function_call needs call_id, name and arguments, strings", index);
    json_t *turn = assistant_turn(messages), *calls = json_object_get(turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(turn, "tool_calls", calls);
    }
    json_t *call =
        json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name", name, "arguments", arguments);
    return json_array_append_new(calls, call) == 0;
}

static bool add_output(const json_t *item, size_t index, json_t *messages, es_api_error *error)
{
    json_t *id = json_object_get(item, "call_id"), *output = es_json_member(item, "output");
    if (!json_is_string(id) || !(json_is_string(output) || json_is_array(output)))
        return es_api_refuse(error, "input", "input[%zu]: a function_call_output needs call_id, and output: a string or parts",
                             index);
    json_t *message = json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id, "content", output);
    return json_array_append_new(messages, message) == 0;
}

static bool add_reasoning(const json_t *item, json_t *messages)
{
    es_text text = {0};
    const json_t *parts = json_object_get(item, "content");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");
        if (json_is_string(part)) es_text_append(&text, json_string_value(part), json_string_length(part));
    }
    if (text.bytes)
        json_array_append_new(messages, json_pack("{s:s, s:s, s:s%}", "role", "assistant", "content", "", "reasoning_content",
                                                  text.data, text.bytes));
    es_text_free(&text);
    return true;
}

static bool add_message(const json_t *item, size_t index, json_t *messages, es_api_error *error)
{
    json_t *role = json_object_get(item, "role"), *content = es_json_member(item, "content");
    if (!json_is_string(role) || !(json_is_string(content) || json_is_array(content)))
        return es_api_refuse(error, "input", "input[%zu]: a message needs a role, and content: a string or parts", index);
    /* reasoning that stands before it is its own */
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const bool thought = strcmp(string_of(last, "role"), "assistant") == 0 && json_object_get(last, "reasoning_content") &&
                         !json_object_get(last, "tool_calls") && !*string_of(last, "content");
    if (thought && strcmp(json_string_value(role), "assistant") == 0) return json_object_set(last, "content", content) == 0;
    return json_array_append_new(messages, json_pack("{s:O, s:O}", "role", role, "content", content)) == 0;
}

static bool add_item(const json_t *item, size_t index, json_t *messages, es_api_error *error)
{
    if (!json_is_object(item)) return es_api_refuse(error, "input", "input[%zu] must be an object", index);
    const char *type = string_of(item, "type");
    if (strcmp(type, "message") == 0 || !*type) return add_message(item, index, messages, error);
    if (strcmp(type, "function_call") == 0) return add_call(item, index, messages, error);
    if (strcmp(type, "function_call_output") == 0) return add_output(item, index, messages, error);
    if (strcmp(type, "reasoning") == 0) return add_reasoning(item, messages);
    return es_api_refuse(error, "input",
                         "input[%zu]: an item of type \"%.40s\" is not supported; message, function_call, "
                         "function_call_output and reasoning are",
                         index, type);
}

static bool read_input(json_t *root, json_t *chat, es_api_error *error)
{
    json_t *input = es_json_member(root, "input"), *instructions = es_json_member(root, "instructions"),
           *messages = json_array();
    json_object_set_new(chat, "messages", messages);
    if (instructions && !json_is_string(instructions))
        return es_api_refuse(error, "instructions", "instructions must be a string");
    if (instructions) json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (json_is_string(input))
        return json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input)) == 0;
    if (!json_is_array(input) || json_array_size(input) == 0)
        return es_api_refuse(error, "input", "input must be a string or an array of at least one item");
    for (size_t i = 0; i < json_array_size(input); i++)
        if (!add_item(json_array_get(input, i), i, messages, error)) return false;
    return true;
}

/* {"type": "function", "name", ...} to {"type": "function", "function": {"name", ...}} */
static bool read_tools(const es_api_context *context, json_t *root, json_t *chat, es_call *call, es_api_error *error)
{
    json_t *given = es_json_member(root, "tools");
    if (!given) return true;
    if (!json_is_array(given)) return es_api_refuse(error, "tools", "tools must be an array");
    json_t *tools = json_array();
    json_object_set_new(chat, "tools", tools);
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *tool = json_array_get(given, i);
        const char *type = string_of(tool, "type");
        if (strcmp(type, "function") != 0) {
            if (!es_chat_tools_leave_out(context, type, i, call, error)) return false;
            continue;
        }
        json_t *function = json_object();
        static const char *const names[] = {"name", "description", "parameters", "strict"};
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            json_t *value = es_json_member(tool, names[n]);
            if (value) json_object_set(function, names[n], value);
        }
        json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return true;
}

static bool read_tool_choice(json_t *root, json_t *chat, es_api_error *error)
{
    json_t *choice = es_json_member(root, "tool_choice"), *name = json_object_get(choice, "name");
    if (!choice) return true;
    if (json_is_string(choice)) return json_object_set(chat, "tool_choice", choice) == 0;
    if (strcmp(string_of(choice, "type"), "function") != 0 || !json_is_string(name))
        return es_api_refuse(error, "tool_choice",
                             "tool_choice must be auto, none, required, or of type function with a name");
    return json_object_set_new(chat, "tool_choice",
                               json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name)) == 0;
}

/* text.format is what a chat calls response_format, with the schema's members one level further up. */
static bool read_text_format(json_t *root, json_t *chat, es_api_error *error)
{
    json_t *text = es_json_member(root, "text"), *format = es_json_member(text, "format");
    if (text && !json_is_object(text)) return es_api_refuse(error, "text", "text must be an object");
    if (!format) return true;
    if (strcmp(string_of(format, "type"), "json_schema") != 0) return json_object_set(chat, "response_format", format) == 0;
    return json_object_set_new(chat, "response_format",
                               json_pack("{s:s, s:O}", "type", "json_schema", "json_schema", format)) == 0;
}

static bool refuse_others(json_t *root, es_api_error *error)
{
    static const struct {
        const char *name, *why;
    } rows[] = {
        {"previous_response_id", "responses are not kept here: send the conversation so far as input"    },
        {"conversation",         "conversations are not kept here: send the conversation so far as input"},
        {"background",           "a response is computed while its client waits"                         },
        {"prompt",               "there are no stored prompts here"                                      }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = es_json_member(root, rows[i].name);
        if (value && !json_is_false(value))
            return es_api_refuse(error, rows[i].name, "%s is not supported: %s", rows[i].name, rows[i].why);
    }
    const char *truncation = string_of(root, "truncation");
    if (*truncation && strcmp(truncation, "disabled") != 0)
        return es_api_refuse(error, "truncation",
                             "truncation can only be \"disabled\": nothing is left out of a conversation here");
    return true;
}

/* What the response says again of its request. */
static json_t *make_echo(json_t *root)
{
    static const char *const defaults =
        "{\"instructions\":null,\"max_output_tokens\":null,\"metadata\":{},\"parallel_tool_calls\":true,"
        "\"previous_response_id\":null,\"reasoning\":{\"effort\":null,\"summary\":null},\"store\":false,"
        "\"temperature\":null,\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"auto\",\"tools\":[],"
        "\"top_p\":null,\"truncation\":\"disabled\",\"user\":null}";
    json_t *echo = json_loads(defaults, 0, NULL);
    const char *name;
    json_t *value;
    json_object_foreach(echo, name, value)
    {
        json_t *given = es_json_member(root, name);
        if (given && strcmp(name, "store") != 0) json_object_set(echo, name, given);
    }
    return echo;
}

bool es_responses_convert(const es_api_context *context, json_t *root, json_t *chat, es_call *call, es_api_error *error)
{
    es_api_take_common(root, chat);
    es_api_take(root, "max_output_tokens", chat, "max_tokens");
    es_api_take(root, "stop", chat, "stop");
    es_api_take(root, "parallel_tool_calls", chat, "parallel_tool_calls");
    json_t *effort = es_json_member(es_json_member(root, "reasoning"), "effort");
    if (effort) json_object_set(chat, "reasoning_effort", effort);
    call->echo = make_echo(root);
    return refuse_others(root, error) && read_input(root, chat, error) && read_tools(context, root, chat, call, error) &&
           read_tool_choice(root, chat, error) && read_text_format(root, chat, error);
}
