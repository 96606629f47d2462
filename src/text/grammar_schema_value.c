/* grammar_schema_value.c: what a plain schema allows: a choice between its values, or between its types; strings and arrays.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar_schema_internal.h"

/* ---- values ---- */

/* The shortest way to write a number that is read back as the same. */
static void put_real(double value, es_text *text)
{
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    es_text_puts(text, digits);
    if (!strpbrk(digits, ".eE")) es_text_puts(text, ".0");
}

static void put_string(const char *string, size_t bytes, es_text *text)
{
    json_t *value = json_stringn_nocheck(string, bytes);
    char *json = json_dumps(value, JSON_ENCODE_ANY);
    if (json)
        es_text_puts(text, json);
    else
        text->failed = true;
    free(json);
    json_decref(value);
}

static void put_json(const json_t *value, es_text *text)
{
    const char *name;
    json_t *member;
    bool first = true;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        es_text_putc(text, '{');
        json_object_foreach((json_t *)value, name, member)
        {
            if (!first) es_text_puts(text, ", ");
            first = false;
            put_string(name, strlen(name), text);
            es_text_puts(text, ": ");
            put_json(member, text);
        }
        es_text_putc(text, '}');
        break;
    case JSON_ARRAY:
        es_text_putc(text, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            if (i) es_text_puts(text, ", ");
            put_json(json_array_get(value, i), text);
        }
        es_text_putc(text, ']');
        break;
    case JSON_STRING: put_string(json_string_value(value), json_string_length(value), text); break;
    case JSON_INTEGER: es_text_printf(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_REAL: put_real(json_real_value(value), text); break;
    case JSON_TRUE: es_text_puts(text, "true"); break;
    case JSON_FALSE: es_text_puts(text, "false"); break;
    case JSON_NULL: es_text_puts(text, "null"); break;
    }
}

es_status es_schema_put_value(const json_t *value, es_text *body)
{
    es_text text = {0};
    put_json(value, &text);
    if (!text.failed) es_grammar_add_literal(body, text.data, text.bytes);
    const bool failed = text.failed || body->failed;
    es_text_free(&text);
    return failed ? es_fail(ES_NO_MEMORY, "no memory for a schema's values") : ES_OK;
}

static es_status put_enum(es_schema_run *run, const json_t *schema, es_text *body)
{
    const json_t *list = json_object_get(schema, "enum");
    int put = 0;
    if (!json_is_array(list)) return es_schema_invalid(run, "enum", "must be a list of values");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        const es_schema_holds holds = es_schema_value_holds(run, value, schema);
        if (holds == ES_HOLDS_UNKNOWN)
            return es_schema_refuse(
                run, "enum", "together with a pattern, a format or the like that its values would have to be tried against");
        if (holds == ES_HOLDS_NO) continue;
        if (put++) es_text_puts(body, " | ");
        ES_TRY(es_schema_put_value(value, body));
    }
    if (put == 0) es_text_puts(body, "[]");
    return ES_OK;
}

/* ---- strings ---- */

typedef struct format {
    const char *name, *pattern;
} format;

#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define DATE  "(19|20)\\d\\d-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
#define LABEL "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?"
#define HOST  LABEL "(\\." LABEL "){0,4}"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define URI   "https?://" HOST "(:[1-9]\\d{0,3})?(/[A-Za-z0-9._~-]*){0,16}(\\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?"

/* Texts that each reader of a format takes: not all there are. */
static const format formats[] = {
    {"date-time",     "^" DATE "T" TIME "$"                                                                           },
    {"date",          "^" DATE "$"                                                                                    },
    {"time",          "^" TIME "$"                                                                                    },
    {"duration",      "^P([1-9]\\d{0,3}D|[1-9]\\d?W|(\\d{1,2}D)?T[1-9]\\d{0,4}[HMS])$"                                },
    {"email",         "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,2}@" LABEL "(\\." LABEL "){0,3}\\.[a-z]{2,8}$"},
    {"hostname",      "^" HOST "$"                                                                                    },
    {"ipv4",          "^" OCTET "(\\." OCTET "){3}$"                                                                  },
    {"ipv6",          "^[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}$"                                                            },
    {"uuid",          "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"                     },
    {"uri",           "^" URI "$"                                                                                     },
    {"uri-reference", "^" URI "$"                                                                                     },
    {"json-pointer",  "^(/[A-Za-z0-9._-]*){0,16}$"                                                                    },
};

const char *es_grammar_format_pattern(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].pattern;
    return NULL;
}

/* A string that matches a pattern, and has so many characters. */
static es_status put_pattern(es_schema_run *run, const char *keyword, const char *pattern, int64_t min, int64_t max,
                             es_text *body)
{
    bool fits = true;
    es_text_puts(body, "\"\\\"\" ");
    if (min == 0 && max == INT64_MAX)
        ES_TRY(es_pattern_put(body, run->path.data, pattern, strlen(pattern), true));
    else
        ES_TRY(es_pattern_put_within(body, run->path.data, pattern, strlen(pattern), min, max, &fits));
    if (!fits) return es_schema_refuse(run, keyword, "together with a minLength or maxLength that it does not keep by itself");
    es_text_puts(body, " \"\\\"\"");
    return ES_OK;
}

static es_status put_format(es_schema_run *run, const json_t *schema, int64_t min, int64_t max, es_text *body)
{
    const char *name = json_string_value(json_object_get(schema, "format"));
    if (!name) return es_schema_invalid(run, "format", "must be a string");
    const char *pattern = es_grammar_format_pattern(name);
    if (pattern) return put_pattern(run, "format", pattern, min, max, body);
    char why[160];
    snprintf(why, sizeof why,
             "the format \"%.40s\" is not known (date-time, date, time, duration, email, hostname, ipv4, ipv6, "
             "uuid, uri, json-pointer are)",
             name);
    return es_schema_refuse(run, "format", why);
}

es_status es_schema_string(es_schema_run *run, const json_t *schema, es_text *body)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    int64_t min = 0, max = INT64_MAX;
    ES_TRY(es_schema_count(run, schema, "minLength", &min));
    ES_TRY(es_schema_count(run, schema, "maxLength", &max));
    const bool counted = min > 0 || max < INT64_MAX, formatted = json_object_get(schema, "format") != NULL;
    if (min > max) {
        es_text_puts(body, "[]");
        return ES_OK;
    }
    if (pattern && !json_is_string(pattern)) return es_schema_invalid(run, "pattern", "must be a string");
    if (pattern && strlen(json_string_value(pattern)) != json_string_length(pattern))
        return es_schema_invalid(run, "pattern", "must not hold U+0000");
    if (pattern && formatted) return es_schema_refuse(run, "pattern", "together with format");
    if (json_object_get(schema, es_schema_unlisted)) {
        if (pattern || formatted || counted) return es_schema_refuse(run, "not", "of values, together with pattern, format or lengths");
        return es_schema_other_string(run, json_object_get(schema, es_schema_unlisted), body);
    }
    if (formatted) return put_format(run, schema, min, max, body);
    if (pattern) return put_pattern(run, "pattern", json_string_value(pattern), min, max, body);
    if (!counted) {
        es_text_puts(body, "json-string");
        return ES_OK;
    }
    if (min > 1 << 20) return es_schema_refuse(run, "minLength", "beyond 1048576");
    es_text_printf(body, "\"\\\"\" json-char{%" PRId64 ",", min);
    if (max <= 1 << 20) es_text_printf(body, "%" PRId64, max); /* nobody writes more in one answer */
    es_text_puts(body, "} \"\\\"\"");
    return ES_OK;
}

/* ---- arrays ---- */

typedef struct array_shape {
    const json_t *prefix, *items; /* items NULL: anything */
    int64_t min, max;
} array_shape;

static es_status read_shape(es_schema_run *run, const json_t *schema, array_shape *shape)
{
    const json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    *shape = (array_shape){.max = INT64_MAX};
    ES_TRY(es_schema_count(run, schema, "minItems", &shape->min));
    ES_TRY(es_schema_count(run, schema, "maxItems", &shape->max));
    if (json_is_array(items)) prefix = items, items = json_object_get(schema, "additionalItems");
    if (prefix && !json_is_array(prefix)) return es_schema_invalid(run, "prefixItems", "must be a list of schemas");
    if (json_array_size(prefix) > ES_SCHEMA_PROPERTIES_MAX)
        return es_schema_invalid(run, "prefixItems", "has too many schemas");
    shape->prefix = prefix;
    shape->items = items;
    if (json_is_false(items) && shape->max > (int64_t)json_array_size(prefix)) shape->max = (int64_t)json_array_size(prefix);
    /* Items that nothing is said of behind those that something is said of: none, unless they are needed. */
    const int64_t declared = (int64_t)json_array_size(prefix);
    if (declared && !items && shape->max > declared) shape->max = shape->min > declared ? shape->min : declared;
    return ES_OK;
}

static es_status put_item(es_schema_run *run, const array_shape *shape, size_t index, es_text *body)
{
    const size_t mark = run->path.bytes;
    es_status status = ES_OK;
    if (index < json_array_size(shape->prefix)) {
        es_schema_enter(run, ".prefixItems[%zu]", index);
        status = es_schema_put(run, json_array_get(shape->prefix, index), body);
    } else if (shape->items) {
        es_schema_enter(run, ".items");
        status = es_schema_put(run, shape->items, body);
    } else {
        es_text_puts(body, "json-value");
    }
    if (status == ES_OK) es_schema_leave(run, mark);
    return status;
}

/* Items from `index` on, of which the first `index` are there: the part of a rule behind them. */
static es_status put_rest(es_schema_run *run, const array_shape *shape, es_text *body)
{
    const size_t prefix = json_array_size(shape->prefix);
    size_t open = 0;
    for (size_t i = 0; i < prefix && (int64_t)i < shape->max; i++) {
        int number;
        es_text item = {0};
        ES_TRY(es_schema_new_rule(run, &number)); /* a rule each, so that parentheses are not nested in each other */
        es_status status = put_item(run, shape, i, &item);
        if (status == ES_OK) es_schema_add_rule(run, number, &item);
        es_text_free(&item);
        ES_TRY(status);
        if ((int64_t)i >= shape->min) {
            es_text_puts(body, "(");
            if (++open > 48) return es_schema_invalid(run, "prefixItems", "has more than 48 items that may be left out");
        }
        if (i) es_text_puts(body, "\",\" json-ws ");
        es_schema_put_name(run, number, body);
        es_text_putc(body, ' ');
    }
    const int64_t min = shape->min > (int64_t)prefix ? shape->min - (int64_t)prefix : 0;
    const int64_t more = shape->max == INT64_MAX ? INT64_MAX : shape->max - (int64_t)prefix;
    if (more > 0 && prefix) {
        es_text_puts(body, "(\",\" json-ws ");
        ES_TRY(put_item(run, shape, prefix, body));
        es_text_printf(body, "){%" PRId64 ",", min);
        if (more < 1 << 20) es_text_printf(body, "%" PRId64, more);
        es_text_puts(body, "} ");
    }
    while (open--) es_text_puts(body, ")? ");
    return ES_OK;
}

/* The values of a schema that says "type" only, and that of few values; kept by the run. */
static const json_t *values_of_type(es_schema_run *run, const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (!type || json_object_size(schema) != 1) return NULL;
    if (strcmp(type, "boolean") == 0) return es_schema_keep(run, json_pack("[b,b]", 0, 1));
    return strcmp(type, "null") == 0 ? es_schema_keep(run, json_pack("[n]")) : NULL;
}

/* The values that are all a schema allows, or NULL where it says more than that. */
static const json_t *values_of(es_schema_run *run, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum");
    for (int hops = 0; hops < 8 && json_object_get(schema, "$ref"); hops++) {
        if (es_schema_resolve(run, schema, &schema) != ES_OK) return NULL;
        list = json_object_get(schema, "enum");
    }
    if (!list && json_object_get(schema, "const")) list = es_schema_keep(run, json_pack("[O]", json_object_get(schema, "const")));
    if (!list) return values_of_type(run, schema);
    if (!json_is_array(list) || es_schema_check_keywords(run, schema) != ES_OK) return NULL;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (es_schema_value_holds(run, json_array_get(list, i), schema) != ES_HOLDS_YES) return NULL;
    return list;
}

es_status es_schema_array(es_schema_run *run, const json_t *schema, es_text *body)
{
    array_shape shape;
    ES_TRY(read_shape(run, schema, &shape));
    if (shape.min > shape.max) {
        es_text_puts(body, "[]");
        return ES_OK;
    }
    if (shape.min >= 1 << 20) return es_schema_refuse(run, "minItems", "beyond 1048575");
    if (shape.max == 0) {
        es_text_puts(body, "\"[\" json-ws \"]\"");
        return ES_OK;
    }
    if (json_is_true(json_object_get(schema, "uniqueItems")) && shape.max > 1) {
        const json_t *values = json_array_size(shape.prefix) ? NULL : values_of(run, shape.items);
        if (!values) return es_schema_refuse(run, "uniqueItems", "unless the items are a list of values (enum)");
        return es_schema_unique_array(run, values, shape.min, shape.max, body);
    }
    es_text_puts(body, "\"[\" json-ws (");
    if (json_array_size(shape.prefix)) {
        ES_TRY(put_rest(run, &shape, body));
    } else {
        ES_TRY(put_item(run, &shape, 0, body));
        es_text_puts(body, " (\",\" json-ws ");
        ES_TRY(put_item(run, &shape, 0, body));
        es_text_printf(body, "){%" PRId64 ",", shape.min > 1 ? shape.min - 1 : 0);
        if (shape.max <= 1 << 20) es_text_printf(body, "%" PRId64, shape.max - 1);
        es_text_puts(body, "} ");
    }
    es_text_puts(body, "json-ws)");
    es_text_puts(body, shape.min == 0 ? "? \"]\"" : " \"]\"");
    return ES_OK;
}

/* ---- all types ---- */

/* Without any keyword that narrows, a value of any kind. */
static bool says_nothing(const json_t *schema)
{
    return json_object_size(schema) == 0;
}

/* Values that are ruled out one by one are left out of a list. Strings spell them out of their rule; of other types that such values
 * have, none comes. */
static unsigned without_unlisted(const json_t *schema, unsigned types)
{
    const json_t *values = json_object_get(schema, es_schema_unlisted);
    for (size_t i = 0; i < json_array_size(values); i++) {
        const unsigned type = es_schema_type_of(json_array_get(values, i));
        if (type & (ES_TYPE_INTEGER | ES_TYPE_NUMBER)) types &= ~(unsigned)(ES_TYPE_INTEGER | ES_TYPE_NUMBER);
        if (type & (ES_TYPE_ARRAY | ES_TYPE_OBJECT)) types &= ~type;
    }
    return types;
}

es_status es_schema_plain(es_schema_run *run, const json_t *schema, es_text *body)
{
    unsigned types;
    int put = 0;
    if (json_object_get(schema, "enum")) return put_enum(run, schema, body);
    if (says_nothing(schema)) {
        es_text_puts(body, "json-value");
        return ES_OK;
    }
    ES_TRY(es_schema_types(run, schema, &types));
    types = without_unlisted(schema, types);
    if (types & ES_TYPE_NUMBER) types &= ~(unsigned)ES_TYPE_INTEGER;
    for (unsigned type = 1; type <= ES_TYPE_OBJECT; type *= 2) {
        if (!(types & type)) continue;
        if (put++) es_text_puts(body, " | ");
        switch (type) {
        case ES_TYPE_NULL: es_text_puts(body, "json-null"); break;
        case ES_TYPE_BOOLEAN: es_text_puts(body, "json-boolean"); break;
        case ES_TYPE_INTEGER: ES_TRY(es_schema_number(run, schema, true, body)); break;
        case ES_TYPE_NUMBER: ES_TRY(es_schema_number(run, schema, false, body)); break;
        case ES_TYPE_STRING: ES_TRY(es_schema_string(run, schema, body)); break;
        case ES_TYPE_ARRAY: ES_TRY(es_schema_array(run, schema, body)); break;
        default: ES_TRY(es_schema_object(run, schema, body)); break;
        }
    }
    if (put == 0) es_text_puts(body, "[]");
    return ES_OK;
}
