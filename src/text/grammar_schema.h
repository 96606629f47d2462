/* grammar_schema.h: JSON schemas, patterns and choices as rules of a grammar (grammar.h).
 *
 *   es_text gbnf = {0};
 *   es_grammar_add_json(&gbnf);                                  // once in each grammar that holds a schema
 *   ES_TRY(es_grammar_add_schema(&gbnf, "args", "tools[0].function.parameters", schema));
 *   es_text_puts(&gbnf, "root ::= \"<tool_call>\" args \"</tool_call>\"\n");
 *   if (gbnf.failed) ...
 *
 * What the rules of a schema allow, the schema allows: never more. It may be less: properties come in the schema's order,
 * white space is short, other properties only where the schema speaks of them. A keyword that could make a text invalid and is
 * not understood here is refused with its path; nothing is ignored but annotations (title, description, default, examples,
 * ...). */
#ifndef ES_TEXT_GRAMMAR_SCHEMA_H
#define ES_TEXT_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "base/error.h"
#include "base/text.h"

/** Append the rules that schemas share (json-value, json-string, json-object, ...). Not twice to one grammar. */
void es_grammar_add_json(es_text *gbnf);

/** Append the rule `name` for a value that follows `schema`, and rules "name-...". `where` begins the path in messages
 *  ("response_format.json_schema.schema"). ES_UNSUPPORTED: a keyword that is not supported, by name and path. ES_INVALID: no
 *  schema, a schema that no value can follow, or one that is too large. */
es_status es_grammar_add_schema(es_text *gbnf, const char *name, const char *where, const json_t *schema);

/** Append the rule `name` for a text that matches a regular expression (ECMA-262, a subset) from end to end. */
es_status es_grammar_add_pattern(es_text *gbnf, const char *name, const char *where, const char *pattern, size_t bytes);

/** The pattern behind a string's "format"; NULL for formats that are not known. */
const char *es_grammar_format_pattern(const char *name);

/** Append `bytes` bytes of UTF-8 as a quoted literal. */
void es_grammar_add_literal(es_text *gbnf, const char *text, size_t bytes);

#endif
