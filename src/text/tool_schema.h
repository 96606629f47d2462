/* tool_schema.h: what a request says about its tools, as far as reading a call needs it. */
#ifndef ES_TEXT_TOOL_SCHEMA_H
#define ES_TEXT_TOOL_SCHEMA_H

#include <jansson.h>

#include "base/text.h"

/** Types of JSON Schema; a set of them. */
enum {
    ES_VALUE_STRING = 1,
    ES_VALUE_NUMBER = 2,
    ES_VALUE_INTEGER = 4,
    ES_VALUE_BOOLEAN = 8,
    ES_VALUE_OBJECT = 16,
    ES_VALUE_ARRAY = 32,
    ES_VALUE_NULL = 64,
};

/** The function called `name` among `tools`, an array in OpenAI's shape ({"type": "function", "function": {...}}, or the inner
 *  object alone); NULL when there is none. Borrowed. */
const json_t *es_tool_find(const json_t *tools, const char *name, size_t bytes);

/** The types that a parameter of a function may have, 0 where nothing is said. Looks through anyOf, oneOf, allOf, enum, const
 * and references into the schema itself. */
unsigned es_tool_types(const json_t *function, const char *parameter, size_t bytes);

/** The same for any schema inside of `root`. */
unsigned es_schema_value_types(const json_t *root, const json_t *schema);
/** A schema, or what its $ref names in `root`, and so on; NULL where that leads nowhere. Borrowed. */
const json_t *es_schema_follow(const json_t *root, const json_t *schema);

/** Appends a parameter's value as JSON, from the bare text that the model wrote: as it stands where that is JSON of a type in
 *  `types`, else the text as a string. */
void es_tool_value_write(unsigned types, const char *text, size_t bytes, es_text *out);
/** Appends text as the inside of a JSON string. */
void es_json_escape(const char *text, size_t bytes, es_text *out);

#endif
