/* grammar_schema.c: from a JSON schema to rules: names, references, keywords; what each type makes of them is in
 * grammar_schema_*.c.
 *
 * Every schema that is met becomes one rule, so that recursion stays recursion. Schemas that say several things at once
 * (allOf, $ref with neighbours, anyOf with neighbours) are merged first (grammar_schema_merge.c). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar_schema_internal.h"

typedef enum known_kind { ANNOTATION, KNOWN } known_kind;

typedef struct known_keyword {
    const char *name;
    known_kind kind;
    unsigned types; /* that it speaks of: where "type" is missing, these are meant */
} known_keyword;

static const known_keyword keywords[] = {
    {"title",                ANNOTATION, 0             },
    {"description",          ANNOTATION, 0             },
    {"default",              ANNOTATION, 0             },
    {"examples",             ANNOTATION, 0             },
    {"example",              ANNOTATION, 0             },
    {"$schema",              ANNOTATION, 0             },
    {"$comment",             ANNOTATION, 0             },
    {"deprecated",           ANNOTATION, 0             },
    {"readOnly",             ANNOTATION, 0             },
    {"writeOnly",            ANNOTATION, 0             },
    {"contentEncoding",      ANNOTATION, 0             },
    {"contentMediaType",     ANNOTATION, 0             },
    {"contentSchema",        ANNOTATION, 0             },
    {"$defs",                ANNOTATION, 0             },
    {"definitions",          ANNOTATION, 0             },
    {"discriminator",        ANNOTATION, 0             },
    {"externalDocs",         ANNOTATION, 0             },
    {"xml",                  ANNOTATION, 0             },
    {"type",                 KNOWN,      0             },
    {"nullable",             KNOWN,      0             },
    {"enum",                 KNOWN,      0             },
    {"const",                KNOWN,      0             },
    {"$ref",                 KNOWN,      0             },
    {"allOf",                KNOWN,      0             },
    {"anyOf",                KNOWN,      0             },
    {"oneOf",                KNOWN,      0             },
    {"not",                  KNOWN,      0             },
    {"if",                   KNOWN,      0             },
    {"then",                 KNOWN,      0             },
    {"else",                 KNOWN,      0             },
    {"dependentRequired",    KNOWN,      ES_TYPE_OBJECT},
    {"dependentSchemas",     KNOWN,      ES_TYPE_OBJECT},
    {"dependencies",         KNOWN,      ES_TYPE_OBJECT},
    {"contains",             KNOWN,      ES_TYPE_ARRAY },
    {"minContains",          KNOWN,      ES_TYPE_ARRAY },
    {"maxContains",          KNOWN,      ES_TYPE_ARRAY },
    {"properties",           KNOWN,      ES_TYPE_OBJECT},
    {"required",             KNOWN,      ES_TYPE_OBJECT},
    {"additionalProperties", KNOWN,      ES_TYPE_OBJECT},
    {"minProperties",        KNOWN,      ES_TYPE_OBJECT},
    {"maxProperties",        KNOWN,      ES_TYPE_OBJECT},
    {"items",                KNOWN,      ES_TYPE_ARRAY },
    {"prefixItems",          KNOWN,      ES_TYPE_ARRAY },
    {"additionalItems",      KNOWN,      ES_TYPE_ARRAY },
    {"minItems",             KNOWN,      ES_TYPE_ARRAY },
    {"maxItems",             KNOWN,      ES_TYPE_ARRAY },
    {"uniqueItems",          KNOWN,      ES_TYPE_ARRAY },
    {"minLength",            KNOWN,      ES_TYPE_STRING},
    {"maxLength",            KNOWN,      ES_TYPE_STRING},
    {"pattern",              KNOWN,      ES_TYPE_STRING},
    {"format",               KNOWN,      ES_TYPE_STRING},
    {"minimum",              KNOWN,      ES_TYPE_NUMBER},
    {"maximum",              KNOWN,      ES_TYPE_NUMBER},
    {"exclusiveMinimum",     KNOWN,      ES_TYPE_NUMBER},
    {"exclusiveMaximum",     KNOWN,      ES_TYPE_NUMBER},
    {"multipleOf",           KNOWN,      ES_TYPE_NUMBER},
};

void es_schema_enter(es_schema_run *run, const char *format, ...)
{
    char part[160];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof part, format, args);
    va_end(args);
    es_text_puts(&run->path, part);
}

void es_schema_leave(es_schema_run *run, size_t mark)
{
    if (run->path.failed || mark > run->path.bytes) return;
    run->path.bytes = mark;
    run->path.data[mark] = '\0';
}

es_status es_schema_step(es_schema_run *run)
{
    if (run->depth > ES_SCHEMA_DEPTH_MAX)
        return es_schema_invalid(run, NULL, "schemas are nested too deeply, or refer to each other without end");
    if (++run->steps > ES_SCHEMA_STEPS_MAX || run->out->bytes > ES_SCHEMA_BYTES_MAX)
        return es_schema_invalid(run, NULL, "the schema is too large");
    return ES_OK;
}

/* The end of the path: the beginning can be looked up from there. */
static const char *shown_path(const es_schema_run *run)
{
    const char *path = run->path.data ? run->path.data : "";
    size_t from = run->path.bytes > 300 ? run->path.bytes - 300 : 0;
    while (from && ((unsigned char)path[from] & 0xC0) == 0x80) from++;
    return path + from;
}

es_status es_schema_refuse(const es_schema_run *run, const char *keyword, const char *why)
{
    return es_fail(ES_UNSUPPORTED, "%s: the keyword \"%.60s\" is not supported%s%s", shown_path(run), keyword, why ? ": " : "",
                   why ? why : "");
}

es_status es_schema_invalid(const es_schema_run *run, const char *keyword, const char *why)
{
    if (!keyword) return es_fail(ES_INVALID, "%s: %s", shown_path(run), why);
    return es_fail(ES_INVALID, "%s: \"%s\" %s", shown_path(run), keyword, why);
}

/* ---- keywords ---- */

static const known_keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

bool es_schema_is_annotation(const char *name)
{
    const known_keyword *known = find_keyword(name);
    return strncmp(name, "x-", 2) == 0 || (known && known->kind == ANNOTATION) || strcmp(name, "$id") == 0;
}

/* Whether a list of ruled out values was made here. */
static bool is_own_list(const es_schema_run *run, const json_t *values)
{
    for (size_t i = 0; i < json_array_size(run->unlisted); i++)
        if (json_array_get(run->unlisted, i) == values) return true;
    return false;
}

es_status es_schema_check_keywords(es_schema_run *run, const json_t *schema)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)schema, name, value)
    {
        const bool is_root_id = strcmp(name, "$id") == 0 && schema == run->root;
        if (is_root_id || strncmp(name, "x-", 2) == 0 || find_keyword(name)) continue;
        if (strcmp(name, es_schema_unlisted) == 0 && is_own_list(run, value)) continue;
        return es_schema_refuse(run, name, strcmp(name, "$id") == 0 ? "except at the root" : NULL);
    }
    return ES_OK;
}

static es_status add_type(es_schema_run *run, const json_t *type, unsigned *types)
{
    static const struct {
        const char *name;
        unsigned bits;
    } known[] = {
        {"null",    ES_TYPE_NULL                    },
        {"boolean", ES_TYPE_BOOLEAN                 },
        {"integer", ES_TYPE_INTEGER                 },
        {"number",  ES_TYPE_NUMBER | ES_TYPE_INTEGER},
        {"string",  ES_TYPE_STRING                  },
        {"array",   ES_TYPE_ARRAY                   },
        {"object",  ES_TYPE_OBJECT                  }
    };
    const char *name = json_string_value(type);
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            *types |= known[i].bits;
            return ES_OK;
        }
    return es_schema_invalid(run, "type",
                             "must be null, boolean, integer, number, string, array or object, or a list of these");
}

es_status es_schema_types(es_schema_run *run, const json_t *schema, unsigned *types)
{
    const json_t *type = json_object_get(schema, "type");
    *types = 0;
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++) ES_TRY(add_type(run, json_array_get(type, i), types));
    } else if (type) {
        ES_TRY(add_type(run, type, types));
    } else {
        const char *name;
        json_t *value;
        json_object_foreach((json_t *)schema, name, value)
        {
            const known_keyword *known = find_keyword(name);
            if (known) *types |= known->types;
        }
        if (*types & ES_TYPE_NUMBER) *types |= ES_TYPE_INTEGER;
        if (*types == 0) *types = ES_TYPE_ANY;
        return ES_OK;
    }
    if (json_is_true(json_object_get(schema, "nullable"))) *types |= ES_TYPE_NULL;
    return ES_OK;
}

es_status es_schema_count(es_schema_run *run, const json_t *schema, const char *keyword, int64_t *value)
{
    const json_t *given = json_object_get(schema, keyword);
    if (!given) return ES_OK;
    if (json_is_integer(given) && json_integer_value(given) >= 0) {
        *value = json_integer_value(given);
        return ES_OK;
    }
    const double real = json_is_real(given) ? json_real_value(given) : -1;
    if (!(real >= 0 && real < 9e15 && real == (double)(int64_t)real))
        return es_schema_invalid(run, keyword, "must be a whole number, not negative");
    *value = (int64_t)real;
    return ES_OK;
}

/* ---- references ---- */

/* One step of a JSON pointer; %XX and ~0 ~1 are undone. */
static bool read_step(const char **at, es_text *step)
{
    es_text_clear(step);
    for (; **at && **at != '/'; ++*at) {
        unsigned hex;
        if (**at == '~' && ((*at)[1] == '0' || (*at)[1] == '1')) {
            es_text_putc(step, *++*at == '0' ? '~' : '/');
        } else if (**at == '%' && sscanf(*at + 1, "%2x", &hex) == 1 && (*at)[1] && (*at)[2] && hex) {
            es_text_putc(step, (char)hex);
            *at += 2;
        } else {
            es_text_putc(step, **at);
        }
    }
    return !step->failed;
}

es_status es_schema_resolve(es_schema_run *run, const json_t *schema, const json_t **target)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (!ref) return es_schema_invalid(run, "$ref", "must be a string");
    if (*ref != '#' || (ref[1] && ref[1] != '/'))
        return es_schema_refuse(run, "$ref", "only references into the schema itself are (\"#/...\")");
    const json_t *at = run->root;
    es_text step = {0};
    for (const char *c = ref + 1; *c == '/' && at;) {
        c++;
        if (!read_step(&c, &step)) at = NULL;
        const char *name = step.data ? step.data : "";
        if (json_is_array(at))
            at = *name >= '0' && *name <= '9' ? json_array_get(at, strtoul(name, NULL, 10)) : NULL;
        else
            at = json_object_get(at, name);
    }
    es_text_free(&step);
    if (!at) return es_schema_invalid(run, "$ref", "leads nowhere in this schema");
    *target = at;
    return ES_OK;
}

/* ---- rules ---- */

es_status es_schema_new_rule(es_schema_run *run, int *number)
{
    if (run->rule_count == ES_SCHEMA_RULES_MAX) return es_schema_invalid(run, NULL, "the schema is too large: too many rules");
    *number = run->rule_count++;
    return ES_OK;
}

void es_schema_put_name(const es_schema_run *run, int number, es_text *body)
{
    if (number)
        es_text_printf(body, "%s-%d", run->name, number);
    else
        es_text_puts(body, run->name);
}

void es_schema_add_rule(es_schema_run *run, int number, const es_text *body)
{
    es_schema_put_name(run, number, run->out);
    es_text_puts(run->out, " ::= ");
    es_text_append(run->out, body->data ? body->data : "", body->bytes);
    es_text_putc(run->out, '\n');
    run->out->failed |= body->failed;
}

json_t *es_schema_keep(es_schema_run *run, json_t *schema)
{
    if (!schema || json_array_append_new(run->kept, schema) != 0) return NULL;
    return schema;
}

/* Are there keywords besides `keyword` that say anything? */
static bool stands_alone(const json_t *schema, const char *keyword)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)schema, name, value)
    {
        if (strcmp(name, keyword) != 0 && !es_schema_is_annotation(name)) return false;
    }
    return true;
}

static es_status put_choice(es_schema_run *run, const json_t *list, const char *keyword, es_text *body)
{
    const size_t mark = run->path.bytes;
    if (json_array_size(list) == 0) return es_schema_invalid(run, keyword, "must be a list of at least one schema");
    if (json_array_size(list) > ES_SCHEMA_PROPERTIES_MAX) return es_schema_invalid(run, keyword, "has too many alternatives");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i) es_text_puts(body, " | ");
        es_schema_enter(run, ".%s[%zu]", keyword, i);
        ES_TRY(es_schema_put(run, json_array_get(list, i), body));
        es_schema_leave(run, mark);
    }
    return ES_OK;
}

static es_status put_flattened(es_schema_run *run, const json_t *schema, es_text *body)
{
    json_t *list = json_array();
    es_status status = list ? es_schema_flatten(run, schema, list) : es_fail(ES_NO_MEMORY, "no memory for a schema");
    if (status == ES_OK && json_array_size(list) == 0) es_text_puts(body, "[]"); /* nothing follows it */
    for (size_t i = 0; i < json_array_size(list) && status == ES_OK; i++) {
        if (i) es_text_puts(body, " | ");
        status = es_schema_plain(run, json_array_get(list, i), body);
    }
    json_decref(list);
    return status;
}

/* What a schema allows, as the right side of its rule. */
static es_status put_body(es_schema_run *run, const json_t *schema, es_text *body)
{
    if (json_is_boolean(schema)) {
        es_text_puts(body, json_is_true(schema) ? "json-value" : "[]");
        return ES_OK;
    }
    if (!json_is_object(schema)) return es_schema_invalid(run, NULL, "a schema must be an object, true or false");
    ES_TRY(es_schema_check_keywords(run, schema));
    if (json_object_get(schema, "$ref") && stands_alone(schema, "$ref")) {
        const json_t *target;
        ES_TRY(es_schema_resolve(run, schema, &target));
        const size_t mark = run->path.bytes;
        es_schema_enter(run, " -> %s", json_string_value(json_object_get(schema, "$ref")));
        const es_status status = es_schema_put(run, target, body);
        es_schema_leave(run, mark);
        return status;
    }
    if (json_object_get(schema, "anyOf") && stands_alone(schema, "anyOf"))
        return put_choice(run, json_object_get(schema, "anyOf"), "anyOf", body);
    if (json_object_get(schema, "oneOf") && stands_alone(schema, "oneOf")) {
        json_t *alternatives;
        ES_TRY(es_schema_one_of(run, json_object_get(schema, "oneOf"), &alternatives));
        return put_choice(run, alternatives, "oneOf", body);
    }
    return put_flattened(run, schema, body);
}

es_status es_schema_put(es_schema_run *run, const json_t *schema, es_text *body)
{
    char address[32];
    snprintf(address, sizeof address, "%p", (const void *)schema);
    const json_t *known = json_is_object(schema) ? json_object_get(run->rules, address) : NULL;
    int number = 0;
    if (known) {
        es_schema_put_name(run, (int)json_integer_value(known), body);
        return ES_OK;
    }
    ES_TRY(es_schema_new_rule(run, &number));
    if (json_is_object(schema)) json_object_set_new(run->rules, address, json_integer(number));
    es_text own = {0};
    run->depth++;
    es_status status = es_schema_step(run);
    if (status == ES_OK) status = put_body(run, schema, &own);
    run->depth--;
    if (status == ES_OK) es_schema_add_rule(run, number, &own);
    es_text_free(&own);
    es_schema_put_name(run, number, body);
    return status;
}

es_status es_grammar_add_schema(es_text *gbnf, const char *name, const char *where, const json_t *schema)
{
    es_schema_run run = {
        .out = gbnf, .name = name, .root = schema, .rules = json_object(), .kept = json_array(), .unlisted = json_array()};
    es_text nobody = {0};
    es_text_puts(&run.path, where);
    es_status status =
        run.rules && run.kept && run.unlisted ? es_schema_put(&run, schema, &nobody) : es_fail(ES_NO_MEMORY, "no memory for a schema");
    if (status == ES_OK && gbnf->failed) status = es_fail(ES_NO_MEMORY, "no memory for the rules of a schema");
    es_text_free(&nobody);
    es_text_free(&run.path);
    json_decref(run.rules);
    json_decref(run.kept);
    json_decref(run.unlisted);
    return status;
}

/* White space is kept short, so that no answer can be made of it; numbers are kept to what every reader can hold. */
void es_grammar_add_json(es_text *gbnf)
{
    es_text_puts(gbnf, "json-ws ::= (\" \" | \"\\n\" [ \\t]{0,32})?\n"
                       "json-hex ::= [0-9a-fA-F]\n"
                       "json-escape ::= [\"\\\\/bfnrt] | \"u\" (\"000\" [1-9a-fA-F] | \"00\" [1-9a-fA-F] json-hex | \"0\" "
                       "[1-9a-fA-F] json-hex{2} | [1-9a-cA-Ce-fE-F] json-hex{3} | [dD] [0-7] json-hex{2})\n"
                       "json-char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" json-escape\n"
                       "json-string ::= \"\\\"\" json-char* \"\\\"\"\n"
                       "json-digits ::= \"0\" | [1-9] [0-9]{0,14}\n"
                       "json-integer ::= \"-\"? json-digits\n"
                       "json-number ::= \"-\"? json-digits (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
                       "json-boolean ::= \"true\" | \"false\"\n"
                       "json-null ::= \"null\"\n"
                       "json-value ::= json-object | json-array | json-string | json-number | json-boolean | json-null\n"
                       "json-member ::= json-string \":\" json-ws json-value\n"
                       "json-object ::= \"{\" json-ws (json-member (\",\" json-ws json-member)* json-ws)? \"}\"\n"
                       "json-array ::= \"[\" json-ws (json-value (\",\" json-ws json-value)* json-ws)? \"]\"\n");
}

void es_grammar_add_literal(es_text *gbnf, const char *text, size_t bytes)
{
    es_text_putc(gbnf, '"');
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            es_text_printf(gbnf, "\\%c", c);
        else if (c == '\n')
            es_text_puts(gbnf, "\\n");
        else if (c < 0x20 || c == 0x7F)
            es_text_printf(gbnf, "\\x%02X", c);
        else
            es_text_putc(gbnf, (char)c);
    }
    es_text_putc(gbnf, '"');
}
