/* messages.c: see messages.h. */
#include "cli/messages.h"

#include <stdlib.h>
#include <string.h>

es_status es_messages_open(const char *system, const char *thinking, es_messages *messages)
{
    *messages = (es_messages){.list = json_array(), .system = system ? strdup(system) : NULL, .thinking = thinking};
    if (messages->list && (messages->system || !system)) return ES_OK;
    es_messages_close(messages);
    return es_fail(ES_NO_MEMORY, "out of memory");
}

void es_messages_close(es_messages *messages)
{
    json_decref(messages->list);
    free(messages->system);
    *messages = (es_messages){.list = NULL};
}

void es_messages_clear(es_messages *messages)
{
    json_array_clear(messages->list);
}

void es_messages_set_system(es_messages *messages, const char *system)
{
    free(messages->system);
    messages->system = system ? strdup(system) : NULL;
}

es_status es_messages_add(es_messages *messages, const char *role, const char *content)
{
    json_t *text = json_string(content);
    if (!text) return es_fail(ES_INVALID, "the message is no valid UTF-8; --raw takes any bytes");
    if (json_array_append_new(messages->list, json_pack("{s:s, s:o}", "role", role, "content", text)) == 0) return ES_OK;
    return es_fail(ES_NO_MEMORY, "out of memory");
}

es_status es_messages_add_reasoning(es_messages *messages, const char *reasoning)
{
    json_t *last = json_array_get(messages->list, json_array_size(messages->list) - 1);
    if (json_object_set_new(last, "reasoning_content", json_string(reasoning)) == 0) return ES_OK;
    return es_fail(ES_NO_MEMORY, "out of memory");
}

void es_messages_drop_last(es_messages *messages)
{
    const size_t count = json_array_size(messages->list);
    if (count) json_array_remove(messages->list, count - 1);
}

/* {"messages": [instructions, ...messages], "add_generation_prompt": true, "enable_thinking": ...} */
static json_t *make_variables(const es_messages *messages)
{
    json_t *list = json_array();
    if (messages->system)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content", messages->system));
    json_array_extend(list, messages->list);
    json_t *variables = json_pack("{s:o, s:b}", "messages", list, "add_generation_prompt", 1);
    if (variables && messages->thinking)
        json_object_set_new(variables, "enable_thinking", json_boolean(strcmp(messages->thinking, "on") == 0));
    return variables;
}

es_status es_messages_render(const es_messages *messages, const es_model *model, es_text *out)
{
    if (messages->system) { /* it came from a command line: any bytes */
        json_t *text = json_string(messages->system);
        if (!text) return es_fail(ES_INVALID, "the instructions (--system) are no valid UTF-8");
        json_decref(text);
    }
    json_t *variables = make_variables(messages);
    char *json = variables ? json_dumps(variables, JSON_COMPACT) : NULL;
    json_decref(variables);
    if (!json) return es_fail(ES_NO_MEMORY, "out of memory");
    char *text;
    const es_status status = es_model_render_chat(model, json, &text);
    free(json);
    if (status != ES_OK) return status;
    es_text_puts(out, text);
    free(text);
    return out->failed ? es_fail(ES_NO_MEMORY, "out of memory") : ES_OK;
}
