/* render_template.c: renders chat templates for tests/py/test_chat_template.py, thousands in one process.
 *
 * Each line on standard input is {"template": text, "variables": object, "now": seconds}; each line on standard output is
 * {"output": text} or {"error": text, "status": name}. Without "variables" the output is "REASONING TOOLS", the forms that the server
 * finds in the template (text/answer_format.h). A template equal to the one before is not parsed again. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/answer_format.h"
#include "text/chat_template.h"

static void answer(json_t *object)
{
    char *line = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    puts(line ? line : "{}");
    fflush(stdout);
    free(line);
    json_decref(object);
}

static void fail(es_status status)
{
    answer(json_pack("{s:s?, s:s}", "error", es_error_message(), "status", es_status_name(status)));
}

/* As es_model_render_chat() does it. */
static es_status render(void *chat, const char *variables_json, char **text)
{
    es_text out = {0};
    json_t *variables = json_loads(variables_json, 0, NULL);
    json_object_set_new(variables, "bos_token", json_string("<s>"));
    json_object_set_new(variables, "eos_token", json_string("</s>"));
    es_text_puts(&out, "");
    const es_status status = es_chat_template_render(chat, variables, 0, NULL, &out);
    json_decref(variables);
    if (status != ES_OK) es_text_free(&out);
    *text = out.data;
    return status;
}

static void put_forms(es_chat_template *chat, es_text *out)
{
    const es_answer_format format = es_answer_format_find(render, chat);
    es_text_printf(out, "%s %s", es_reasoning_form_name(format.reasoning), es_tool_form_name(format.tools));
}

int main(void)
{
    char *line = NULL, *source = NULL;
    size_t room = 0;
    es_chat_template *chat = NULL;
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        json_error_t error;
        json_t *request = json_loadb(line, (size_t)n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
        const char *text = json_string_value(json_object_get(request, "template"));
        if (!text) {
            fprintf(stderr, "render_template: not a request: %s\n", error.text);
            return 1;
        }
        es_status status = ES_OK;
        es_text out = {0};
        if (!source || strcmp(source, text) != 0) {
            es_chat_template_free(chat);
            free(source);
            source = strdup(text);
            chat = NULL;
            status = es_chat_template_parse("test", text, strlen(text), &chat);
        }
        if (chat && !json_object_get(request, "variables"))
            put_forms(chat, &out);
        else if (chat)
            status = es_chat_template_render(chat, json_object_get(request, "variables"),
                                             json_integer_value(json_object_get(request, "now")), NULL, &out);
        else if (status == ES_OK)
            status = es_chat_template_parse("test", text, strlen(text), &chat);
        if (status == ES_OK)
            answer(json_pack("{s:s%}", "output", out.data ? out.data : "", out.bytes));
        else
            fail(status);
        es_text_free(&out);
        json_decref(request);
    }
    es_chat_template_free(chat);
    free(source);
    free(line);
    return 0;
}
