/* tool_schema.h: what a request says about its tools, as far as reading a call needs it. */
#ifndef ES_TEXT_TOOL_SCHEMA_H
#define ES_TEXT_TOOL_SCHEMA_H

#include <jansson.h>

#include "base/text.h"

/** Types of JSON Schema; a set of them. */
enum {
    ES_TYPE_STRING = 1,
    ES_TYPE_NUMBER = 2,
    ES_TYPE_INTEGER = 4,
    ES_TYPE_BOOLEAN = 8,
    ES_TYPE_OBJECT = 16,
    ES_TYPE_ARRAY = 32,
    ES_TYPE_NULL = 64,
};

/** The function called `name` among `tools`, an array in OpenAI's shape ({"type": "function", "function": {...}}, or the inner
 *  object alone); NULL when there is none. Borrowed. */
const json_t *es_tool_find(const json_t *tools, const char *name, size_t bytes);

/** The types that a parameter of a function may have, 0 where nothing is said. Looks through anyOf, oneOf, allOf, enum, const
 * and references into the schema itself. */
unsigned es_tool_types(const json_t *function, const char *parameter, size_t bytes);

/** Appends a parameter's value as JSON, from the bare text that the model wrote: as it stands where that is JSON of a type in
 *  `types`, else the text as a string. */
void es_tool_value_write(unsigned types, const char *text, size_t bytes, es_text *out);
/** Appends text as the inside of a JSON string. */
void es_json_escape(const char *text, size_t bytes, es_text *out);

#endif
