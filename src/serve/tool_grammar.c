/* tool_grammar.c: calls of tools as a grammar, for an answer that must call one, or calls one where it has no other form.
 *
 * The model's own form of calls is kept, so that it writes what it was trained to write and the parser (text/answer_parser.h)
 * reads it back. In the forms in JSON the arguments are the rules of the function's schema. In the XML-like form each
 * parameter is a rule: JSON, or bare text where the schema says string, which may hold anything but the mark that ends it. */
#include <stdlib.h>
#include <string.h>

#include "serve/call.h"
#include "text/grammar_compose.h"
#include "text/grammar_schema.h"
#include "text/tool_schema.h"

typedef struct writer {
    es_text *gbnf;
    size_t tool; /* its index among the request's tools */
    const json_t *function, *parameters;
    es_api_error *error;
} writer;

static bool refuse(const writer *w, const char *what, const char *name)
{
    return es_api_refuse(
        w->error, "tools",
        "tools[%zu].function.parameters%s: \"%.60s\" is not supported where calls follow a grammar: where tool_choice wants "
        "one, or other answers have a form",
        w->tool, what, name);
}

static bool check_status(const writer *w, es_status status)
{
    if (status == ES_OK) return true;
    es_api_refuse_status(w->error, status);
    memcpy(w->error->param, "tools", sizeof "tools");
    return false;
}

static void put_literal(const writer *w, const char *text)
{
    es_grammar_add_literal(w->gbnf, text, strlen(text));
}

/* A parameter's schema with the definitions that it may refer to. */
static json_t *schema_with_definitions(const writer *w, const json_t *schema)
{
    static const char *const names[] = {"$defs", "definitions"};
    json_t *copy = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    for (size_t i = 0; i < 2; i++) {
        json_t *definitions = json_object_get(w->parameters, names[i]);
        if (definitions && !json_object_get(copy, names[i])) json_object_set(copy, names[i], definitions);
    }
    return copy;
}

/* One of some values, as they are written bare. */
static void put_values(const writer *w, const char *rule, const json_t *values)
{
    es_text_printf(w->gbnf, "%s ::= ", rule);
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        es_text_puts(w->gbnf, i ? " | " : "");
        if (json_is_string(value))
            es_grammar_add_literal(w->gbnf, json_string_value(value), json_string_length(value));
        else
            put_literal(w, text ? text : "");
        free(text);
    }
    es_text_putc(w->gbnf, '\n');
}

static bool put_pattern(const writer *w, const char *rule, const char *pattern)
{
    return check_status(w, es_grammar_add_pattern(w->gbnf, rule, "tools.function.parameters", pattern, strlen(pattern)));
}

/* A string without its quotes. */
static bool put_bare(const writer *w, const char *rule, const json_t *schema)
{
    const json_t *least = json_object_get(schema, "minLength"), *most = json_object_get(schema, "maxLength");
    const char *pattern = json_string_value(json_object_get(schema, "pattern"));
    const char *format = json_string_value(json_object_get(schema, "format"));
    if (pattern) return put_pattern(w, rule, pattern);
    if (format && es_grammar_format_pattern(format)) return put_pattern(w, rule, es_grammar_format_pattern(format));
    if (!least && !most) {
        es_text_printf(w->gbnf, "%s ::= bare\n", rule);
        return true;
    }
    /* counted characters, and so none of a mark */
    es_text_printf(w->gbnf, "%s ::= [^<]{%" PRId64 ",", rule, (int64_t)json_integer_value(least));
    if (most) es_text_printf(w->gbnf, "%" PRId64, (int64_t)json_integer_value(most));
    es_text_puts(w->gbnf, "}\n");
    return true;
}

static bool put_value(const writer *w, const char *rule, const json_t *schema, int depth);

static bool put_branches(const writer *w, const char *rule, const json_t *list, int depth)
{
    es_text names = {0};
    bool good = true;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        char branch[128];
        snprintf(branch, sizeof branch, "%.80s-%zu", rule, i);
        es_text_printf(&names, "%s%s", i ? " | " : "", branch);
        good = put_value(w, branch, json_array_get(list, i), depth + 1);
    }
    es_text_printf(w->gbnf, "%s ::= %s\n", rule, names.data ? names.data : "[]");
    es_text_free(&names);
    return good;
}

/* The rule of a parameter's value. The schema as a whole was found to be one that can be followed. */
static bool put_value(const writer *w, const char *rule, const json_t *schema, int depth)
{
    const unsigned types = es_schema_value_types(w->parameters, schema);
    if (types && !(types & ES_VALUE_STRING)) {
        json_t *whole = schema_with_definitions(w, schema);
        const es_status status = es_grammar_add_schema(w->gbnf, rule, "tools.function.parameters", whole);
        json_decref(whole);
        return check_status(w, status);
    }
    schema = es_schema_follow(w->parameters, schema);
    json_t *constant = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    if (constant || json_array_size(values)) {
        json_t *list = constant ? json_pack("[O]", constant) : json_incref(values);
        put_values(w, rule, list);
        json_decref(list);
        return true;
    }
    json_t *choice = json_object_get(schema, "anyOf");
    if (!choice) choice = json_object_get(schema, "oneOf");
    if (depth > 4 || json_object_get(schema, "allOf") || json_object_get(schema, "not")) return refuse(w, "", "allOf");
    return json_array_size(choice) ? put_branches(w, rule, choice, depth) : put_bare(w, rule, schema);
}

static bool is_required(const writer *w, const char *name)
{
    const json_t *required = json_object_get(w->parameters, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *one = json_string_value(json_array_get(required, i));
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

static bool check_object(const writer *w)
{
    static const char *const known[] = {"type",   "properties",  "required", "$defs", "definitions", "additionalProperties",
                                        "title",  "description", "$schema",  "$id",   "$comment",    "examples",
                                        "default"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)w->parameters, name, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= strcmp(known[i], name) == 0;
        if (!found) return refuse(w, "", name);
    }
    json_object_foreach(json_object_get(w->parameters, "properties"), name, value)
    {
        if (!*name || strlen(name) > 100 || strpbrk(name, "<>\"\\\n\r\t")) return refuse(w, ".properties", name);
    }
    const json_t *required = json_object_get(w->parameters, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        if (!name || !json_object_get(json_object_get(w->parameters, "properties"), name))
            return refuse(w, ".required", name ? name : "no string");
    }
    return true;
}

/* "F>\n<parameter=P>\nvalue\n</parameter>\n...": properties in the schema's order, those that are not required perhaps. */
static bool put_xml(const writer *w, const char *name)
{
    es_text scratch = {0}, body = {0};
    es_grammar_add_json(&scratch);
    const es_status status = es_grammar_add_schema(&scratch, "root", "tools.function.parameters", w->parameters);
    es_text_free(&scratch);
    if (!check_status(w, status) || !check_object(w)) return false;
    const char *property;
    json_t *schema;
    size_t n = 0;
    bool good = true;
    json_object_foreach(json_object_get(w->parameters, "properties"), property, schema)
    {
        char rule[64];
        const bool required = is_required(w, property);
        snprintf(rule, sizeof rule, "tool-%zu-%zu", w->tool, n++);
        good = good && put_value(w, rule, schema, 0);
        es_text_puts(&body, required ? " " : " (");
        es_grammar_add_literal(&body, "<parameter=", strlen("<parameter="));
        es_text_putc(&body, ' ');
        es_grammar_add_literal(&body, property, strlen(property));
        es_text_printf(&body, " \">\\n\" %s \"\\n</parameter>\\n\"%s", rule, required ? "" : ")?");
    }
    es_text_printf(w->gbnf, "tool-%zu ::= ", w->tool);
    put_literal(w, name);
    es_text_puts(w->gbnf, " \">\\n\"");
    if (body.data) es_text_append(w->gbnf, body.data, body.bytes);
    es_text_putc(w->gbnf, '\n');
    w->gbnf->failed |= body.failed;
    es_text_free(&body);
    return good;
}

/* "F", "arguments": {...} */
static bool put_json(const writer *w, const char *name, const char *member)
{
    char rule[64], where[64];
    snprintf(rule, sizeof rule, "tool-%zu-0", w->tool);
    snprintf(where, sizeof where, "tools[%zu].function.parameters", w->tool);
    if (!check_status(w, es_grammar_add_schema(w->gbnf, rule, where, w->parameters))) return false;
    es_text_printf(w->gbnf, "tool-%zu ::= ", w->tool);
    put_literal(w, name);
    es_text_printf(w->gbnf, " \"\\\", \\\"%s\\\": \" %s\n", member, rule);
    return true;
}

static bool put_tool(es_tool_form form, const json_t *tool, size_t index, es_text *gbnf, es_api_error *error)
{
    const json_t *function = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    json_t *given = es_json_member(function, "parameters");
    json_t *parameters = json_object_size(given)
                             ? json_incref(given)
                             : json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties", 0);
    const writer w = {gbnf, index, function, parameters, error};
    const bool put =
        form == ES_TOOLS_XML ? put_xml(&w, name) : put_json(&w, name, form == ES_TOOLS_LLAMA ? "parameters" : "arguments");
    json_decref(parameters);
    return put;
}

bool es_tool_grammar_put(es_tool_form form, const json_t *tools, const char *only, bool several, es_text *gbnf,
                         es_api_error *error)
{
    static const struct {
        const char *begin, *end, *between;
    } marks[] = {
        [ES_TOOLS_XML] = {"\"<tool_call>\\n<function=\"",          "\"</function>\\n</tool_call>\"", "\"\\n\""},
        [ES_TOOLS_HERMES] = {"\"<tool_call>\\n{\\\"name\\\": \\\"\"", "\"}\\n</tool_call>\"",           "\"\\n\""},
        [ES_TOOLS_LLAMA] = {"\"{\\\"name\\\": \\\"\"",               "\"}\"",                          "\"; \"" }
    };
    if (form == ES_TOOLS_NONE)
        return es_api_refuse(
            error, "tool_choice",
            "this model's chat template knows no calls of tools, so none can be forced (see serve --tool-parser)");
    es_text names = {0};
    es_grammar_add_json(gbnf);
    es_grammar_add_text_without(gbnf, "bare", "</parameter>");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        if (only && strcmp(only, json_string_value(json_object_get(json_object_get(tool, "function"), "name"))) != 0) continue;
        if (!put_tool(form, tool, i, gbnf, error)) {
            es_text_free(&names);
            return false;
        }
        es_text_printf(&names, "%stool-%zu", names.bytes ? " | " : "", i);
    }
    if (names.bytes) {
        es_text_printf(gbnf, "call ::= %s (%s) %s\ncalls ::= call", marks[form].begin, names.data, marks[form].end);
        if (several) es_text_printf(gbnf, " (%s call)*", marks[form].between);
        es_text_putc(gbnf, '\n');
    }
    const bool found = names.bytes > 0;
    gbnf->failed |= names.failed;
    es_text_free(&names);
    return found || es_api_refuse(error, "tool_choice", "tool_choice names a function \"%.100s\" that is not among the tools",
                                  only ? only : "");
}
