/* render_template.c: renders chat templates for tests/py/test_chat_template.py, thousands in one process.
 *
 * Each line on standard input is {"template": text, "variables": object, "now": seconds}; each line on standard output is
 * {"output": text} or {"error": text, "status": name}. A template equal to the one before is not parsed again. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        if (chat)
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
