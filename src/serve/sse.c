/* sse.c: see sse.h. */
#include "serve/sse.h"

#include "serve/strict_json.h"

void es_sse_json(es_text *out, const char *name, const json_t *value)
{
    if (name) es_text_printf(out, "event: %s\n", name);
    es_text_puts(out, "data: ");
    es_json_write(out, value);
    es_text_puts(out, "\n\n");
}

void es_sse_done(es_text *out)
{
    es_text_puts(out, "data: [DONE]\n\n");
}

void es_sse_comment(es_text *out, const char *text)
{
    es_text_printf(out, ": %s\n\n", text);
}
