/* sse.h: server-sent events, the framing of a streamed answer. */
#ifndef ES_SERVE_SSE_H
#define ES_SERVE_SSE_H

#include <jansson.h>

#include "base/text.h"

#define ES_SSE_TYPE "text/event-stream; charset=utf-8"

/** "data: {...}\n\n", behind "event: name\n" where `name` is not NULL. JSON holds no line break outside its strings and none unescaped inside: one line always. */
void es_sse_json(es_text *out, const char *name, const json_t *value);
/** "data: [DONE]\n\n". */
void es_sse_done(es_text *out);
/** ": text\n\n", which clients skip: it shows that someone is there. */
void es_sse_comment(es_text *out, const char *text);

#endif
