/* tool_schema.c: see tool_schema.h.
 *
 * The XML-like form of a call writes values bare: 5 may be a number or a string of one digit. Only the schema knows. */
#include "text/tool_schema.h"

#include <stdbool.h>
#include <string.h>

enum { LOOK_MAX = 8 /* schemas inside one another */ };

const json_t *es_tool_find(const json_t *tools, const char *name, size_t bytes)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *function = json_object_get(tool, "function");
        if (!json_is_object(function)) function = tool;
        const json_t *own = json_object_get(function, "name");
        if (json_is_string(own) && json_string_length(own) == bytes && memcmp(json_string_value(own), name, bytes) == 0)
            return function;
    }
    return NULL;
}

static unsigned type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return ES_VALUE_OBJECT;
    case JSON_ARRAY: return ES_VALUE_ARRAY;
    case JSON_STRING: return ES_VALUE_STRING;
    case JSON_INTEGER: return ES_VALUE_INTEGER | ES_VALUE_NUMBER;
    case JSON_REAL: return ES_VALUE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return ES_VALUE_BOOLEAN;
    case JSON_NULL: return ES_VALUE_NULL;
    }
    return 0;
}

static unsigned type_of_name(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } rows[] = {
        {"string",  ES_VALUE_STRING },
        {"number",  ES_VALUE_NUMBER },
        {"integer", ES_VALUE_INTEGER},
        {"boolean", ES_VALUE_BOOLEAN},
        {"object",  ES_VALUE_OBJECT },
        {"array",   ES_VALUE_ARRAY  },
        {"null",    ES_VALUE_NULL   }
    };
    for (size_t i = 0; json_is_string(name) && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, json_string_value(name)) == 0) return rows[i].type;
    return 0;
}

/* "#/$defs/Colour" inside the function's parameters. */
static const json_t *resolve(const json_t *root, const char *reference)
{
    if (strncmp(reference, "#/", 2) != 0) return NULL;
    const json_t *at = root;
    for (const char *name = reference + 2; at && *name;) {
        const size_t n = strcspn(name, "/");
        at = json_object_getn(at, name, n);
        name += n + (name[n] == '/');
    }
    return at;
}

static unsigned types_of(const json_t *root, const json_t *schema, int left)
{
    if (left == 0 || !json_is_object(schema)) return 0;
    const json_t *type = json_object_get(schema, "type");
    unsigned types = type_of_name(type);
    for (size_t i = 0; i < json_array_size(type); i++) types |= type_of_name(json_array_get(type, i));
    if (types) return types;
    const json_t *reference = json_object_get(schema, "$ref");
    if (json_is_string(reference)) return types_of(root, resolve(root, json_string_value(reference)), left - 1);
    if (json_object_get(schema, "const")) return type_of_value(json_object_get(schema, "const"));
    const json_t *values = json_object_get(schema, "enum");
    for (size_t i = 0; i < json_array_size(values); i++) types |= type_of_value(json_array_get(values, i));
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        const json_t *list = json_object_get(schema, lists[l]);
        for (size_t i = 0; i < json_array_size(list); i++) types |= types_of(root, json_array_get(list, i), left - 1);
    }
    if (!types && json_object_get(schema, "properties")) types = ES_VALUE_OBJECT;
    if (!types && json_object_get(schema, "items")) types = ES_VALUE_ARRAY;
    return types;
}

unsigned es_schema_value_types(const json_t *root, const json_t *schema)
{
    return types_of(root, schema, LOOK_MAX);
}

const json_t *es_schema_follow(const json_t *root, const json_t *schema)
{
    for (int left = LOOK_MAX; left > 0; left--) {
        const json_t *reference = json_object_get(schema, "$ref");
        if (!json_is_string(reference)) return schema;
        schema = resolve(root, json_string_value(reference));
    }
    return NULL;
}

unsigned es_tool_types(const json_t *function, const char *parameter, size_t bytes)
{
    const json_t *schema = json_object_get(function, "parameters");
    return types_of(schema, json_object_getn(json_object_get(schema, "properties"), parameter, bytes), LOOK_MAX);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Models that have seen much Python write its words now and then. */
static const char *python_word(const char *text, size_t bytes, unsigned types)
{
    if (types & ES_VALUE_BOOLEAN && bytes == 4 && memcmp(text, "True", 4) == 0) return "true";
    if (types & ES_VALUE_BOOLEAN && bytes == 5 && memcmp(text, "False", 5) == 0) return "false";
    if (types & ES_VALUE_NULL && bytes == 4 && memcmp(text, "None", 4) == 0) return "null";
    return NULL;
}

/* JSON Schema calls 3.0 an integer; programs that want one would rather have 3. */
static size_t whole_part(const char *text, size_t bytes)
{
    const char *point = memchr(text, '.', bytes);
    if (!point) return bytes;
    for (const char *c = point + 1; c < text + bytes; c++)
        if (*c != '0') return bytes;
    return (size_t)(point - text);
}

static unsigned type_of_json(const char *text, size_t bytes)
{
    json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    unsigned type = value ? type_of_value(value) : 0;
    if (json_is_real(value) && whole_part(text, bytes) < bytes) type |= ES_VALUE_INTEGER;
    json_decref(value);
    return type;
}

void es_tool_value_write(unsigned types, const char *text, size_t bytes, es_text *out)
{
    /* a string needs no quotes where it is written bare: quotes would be part of it */
    const unsigned wanted = types & ~(unsigned)ES_VALUE_STRING;
    const char *begin = text, *end = text + bytes;
    while (wanted && begin < end && is_space(*begin)) begin++;
    while (wanted && end > begin && is_space(end[-1])) end--;
    const size_t n = (size_t)(end - begin);
    const char *word = python_word(begin, n, wanted);
    if (word) {
        es_text_puts(out, word);
    } else if (wanted && type_of_json(begin, n) & wanted) {
        es_text_append(out, begin, wanted & ES_VALUE_INTEGER && !(wanted & ES_VALUE_NUMBER) ? whole_part(begin, n) : n);
    } else {
        es_text_putc(out, '"');
        es_json_escape(text, bytes, out);
        es_text_putc(out, '"');
    }
}

void es_json_escape(const char *text, size_t bytes, es_text *out)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        const char *found = c ? strchr(special, c) : NULL;
        if (found)
            es_text_printf(out, "\\%c", letters[found - special]);
        else if ((unsigned char)c < 0x20)
            es_text_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
        else
            es_text_putc(out, c);
    }
}
