/* chat_template.h: an interpreter for the chat templates that models carry (the Jinja2 language as they use it).
 *
 * A template is a program from a file nobody vouches for: it can compute, but it can open no file, and its steps, depth
 * and output are capped. Values go in and out as JSON (jansson). */
#ifndef ES_TEXT_CHAT_TEMPLATE_H
#define ES_TEXT_CHAT_TEMPLATE_H

#include <jansson.h>

#include "base/error.h"
#include "base/text.h"

typedef struct es_chat_template es_chat_template;

/** Caps on one rendering; 0 picks the default in brackets. */
typedef struct es_template_limits {
    uint64_t steps;  /**< expression and statement evaluations [10,000,000] */
    size_t output;   /**< bytes written, strings built on the way included [64 MiB] */
    unsigned depth;  /**< nesting of expressions, macros and includes of blocks [200] */
} es_template_limits;

/** Parse a template (`name` stands in messages). ES_BAD_FILE with line and what was expected. Immutable once open: threads
 *  may render it at the same time. */
es_status es_chat_template_parse(const char *name, const char *source, size_t bytes, es_chat_template **out);
void es_chat_template_free(es_chat_template *chat);
/** The template's text, line ends made "\n". Owned by `chat`. */
const char *es_chat_template_source(const es_chat_template *chat);

/** Render with `variables`, a JSON object (messages, tools, add_generation_prompt, bos_token, ...); appends to `out`.
 *  raise_exception() in the template gives ES_INVALID with its text. `now` (seconds since 1970, UTC) is what
 *  strftime_now sees. */
es_status es_chat_template_render(const es_chat_template *chat, const json_t *variables, int64_t now,
                                  const es_template_limits *limits, es_text *out);

#endif
