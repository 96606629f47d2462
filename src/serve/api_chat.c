/* api_chat.c: from the messages of a conversation to the tokens of a prompt.
 *
 * Messages and tools are checked and brought into the shape that templates were written for (chat_messages.c, chat_tools.c);
 * what a template should see beyond that (chat_template_kwargs) passes through as it is. The template then writes the
 * conversation out as text, and the tokenizer turns that into tokens, special ones included. */
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"
#include "text/answer_format.h"

static bool no_memory(es_api_error *error)
{
    return es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "no memory for this conversation"));
}

/* Most templates know a switch instead of efforts: none and minimal turn it off, all others on. */
static bool effort_to_switch(json_t *variables, es_api_error *error)
{
    json_t *effort = es_json_member(variables, "reasoning_effort");
    if (!effort) return true;
    const char *word = json_string_value(effort);
    if (!word)
        return es_api_refuse(error, "reasoning_effort", "reasoning_effort must be a string such as \"none\" or \"high\"");
    if (!json_object_get(variables, "enable_thinking"))
        json_object_set_new(variables, "enable_thinking",
                            json_boolean(strcmp(word, "none") != 0 && strcmp(word, "minimal") != 0));
    return true;
}

/* The template's variables: what the caller adds first, what the API owns on top. */
static bool build_variables(json_t *root, const es_call *call, json_t *variables, es_api_error *error)
{
    json_t *extra = es_json_member(root, "chat_template_kwargs");
    if (extra && !json_is_object(extra))
        return es_api_refuse(error, "chat_template_kwargs", "chat_template_kwargs must be an object");
    if (json_object_get(extra, "messages") || json_object_get(extra, "tools") || json_object_get(extra, "chat_template"))
        return es_api_refuse(error, "chat_template_kwargs",
                             "chat_template_kwargs cannot set messages, tools or chat_template");
    if (extra && json_object_update(variables, extra) != 0) return no_memory(error);
    static const char *const passed[] = {"reasoning_effort", "enable_thinking", "add_generation_prompt", "documents"};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *value = es_json_member(root, passed[i]);
        if (value) json_object_set(variables, passed[i], value);
    }
    if (!effort_to_switch(variables, error)) return false;
    json_t *generation = json_object_get(variables, "add_generation_prompt");
    if (!generation)
        json_object_set_new(variables, "add_generation_prompt", json_true());
    else if (!json_is_boolean(generation))
        return es_api_refuse(error, "add_generation_prompt", "add_generation_prompt must be true or false");
    json_object_set(variables, "messages", json_object_get(root, "messages"));
    if (call->tools) json_object_set(variables, "tools", call->tools);
    return true;
}

/* Where the last message ends in the prompt, whatever the template does to its white space and puts behind it. */
static const char go_on_mark[] = "\xE2\x81\xA0" "evenshare goes on here" "\xE2\x81\xA0";

/* An answer that has begun: its message is rendered with a mark at its end, and the prompt cut off there. */
static bool mark_final_message(json_t *root, json_t *variables, bool *marked, es_api_error *error)
{
    json_t *flag = es_json_member(root, "continue_final_message"), *messages = json_object_get(root, "messages");
    if (flag && !json_is_boolean(flag))
        return es_api_refuse(error, "continue_final_message", "continue_final_message must be true or false");
    *marked = json_is_true(flag);
    if (!*marked) return true;
    json_t *last = json_array_get(messages, json_array_size(messages) - 1), *content = json_object_get(last, "content");
    const char *role = json_string_value(json_object_get(last, "role"));
    size_t bytes = json_string_length(content);
    while (bytes > 0 && strchr(" \n\t\r", json_string_value(content)[bytes - 1])) bytes--;
    if (strcmp(role, "assistant") != 0 || bytes == 0 || json_object_get(last, "tool_calls"))
        return es_api_refuse(error, "messages", "only a last message of the assistant's that has content, a string, can be continued");
    if (es_json_member(root, "add_generation_prompt") && json_is_true(json_object_get(variables, "add_generation_prompt")))
        return es_api_refuse(error, "add_generation_prompt", "a message cannot be continued behind the beginning of a new one");
    json_object_set_new(variables, "add_generation_prompt", json_false());
    json_t *with_mark = json_sprintf("%.*s%s", (int)bytes, json_string_value(content), go_on_mark);
    return json_object_set_new(last, "content", with_mark) == 0 || no_memory(error);
}

static bool cut_at_mark(char *text, es_api_error *error)
{
    char *at = NULL;
    for (char *next = text; (next = strstr(next, go_on_mark)); next++) at = next;
    if (!at) return es_api_refuse(error, "messages", "this model's chat template leaves out the message that was to be continued");
    *at = '\0';
    return true;
}

static bool render(const es_backend *backend, const json_t *variables, char **text, es_api_error *error)
{
    char *json = json_dumps(variables, JSON_COMPACT);
    if (!json) return no_memory(error);
    const es_status status = backend->render(backend->self, json, text);
    free(json);
    if (status == ES_OK) return true;
    es_api_refuse_status(error, status);
    if (status == ES_INVALID) memcpy(error->param, "messages", sizeof "messages");
    return false;
}

bool es_chat_render(const es_api_context *context, json_t *root, es_call *call, char **text, es_api_error *error)
{
    const es_backend_info *info = context->backend->info(context->backend->self);
    if (!info->has_chat || !info->has_tokenizer)
        return es_api_refuse(error, "messages", "this model has no %s: use /v1/completions%s",
                             info->has_tokenizer ? "chat template" : "tokenizer", info->has_tokenizer ? "" : " with token numbers");
    call->format = context->format;
    if (!es_chat_messages_normalise(context, root, error) || !es_chat_tools_choose(context, root, call, error)) return false;
    json_t *variables = json_object();
    if (!variables) return no_memory(error);
    bool marked;
    bool rendered = build_variables(root, call, variables, error) && mark_final_message(root, variables, &marked, error) &&
                    render(context->backend, variables, text, error);
    const bool switched_off = json_is_false(json_object_get(variables, "enable_thinking"));
    json_decref(variables);
    if (rendered && marked && !cut_at_mark(*text, error)) {
        free(*text);
        rendered = false;
    }
    if (!rendered) return false;
    call->format.in_reasoning = es_answer_prompt_reasons(*text);
    call->may_think = !switched_off && !marked && es_answer_may_reason(call->format, *text);
    return true;
}

bool es_chat_parse(const es_api_context *context, json_t *root, es_call *call, es_api_error *error)
{
    const es_backend *backend = context->backend;
    call->prompts = calloc(1, sizeof *call->prompts);
    if (!call->prompts) return no_memory(error);
    call->prompt_count = 1;
    char *text;
    if (!es_chat_render(context, root, call, &text, error)) return false;
    es_prompt *prompt = call->prompts;
    const es_status status = backend->encode(backend->self, text, strlen(text), ES_ENCODE_SPECIAL, &prompt->tokens, &prompt->count);
    free(text);
    return status == ES_OK || es_api_refuse_status(error, status);
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
