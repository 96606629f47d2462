/* grammar_schema_object.c: objects.
 *
 * Properties come in the order in which the schema declares them, those that are required and not declared behind them, then
 * others, if "additionalProperties" speaks of them. The rule for "from property i on, when c have been written" is NAME-n; c
 * is told apart only as far as it matters: whether a comma is due, and what minProperties and maxProperties leave. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar_schema_internal.h"
#include "text/utf8.h"

typedef struct property {
    const char *name;
    const json_t *schema; /* NULL: any value */
    bool required;
    int rule; /* of `"name": value` */
} property;

typedef struct object_shape {
    property *list;
    size_t count;
    bool others_allowed;
    const json_t *others; /* their schema, NULL: any value */
    int others_rule;      /* of one of them */
    int64_t min, max;
    size_t distinct; /* counts that are told apart: 0 … distinct */
} object_shape;

static es_status add_property(es_schema_run *run, object_shape *shape, const char *name, const json_t *schema)
{
    if (shape->count == ES_SCHEMA_PROPERTIES_MAX) return es_schema_invalid(run, "properties", "are more than 512");
    property *grown = realloc(shape->list, (shape->count + 1) * sizeof *grown);
    if (!grown) return es_fail(ES_NO_MEMORY, "no memory for a schema's properties");
    shape->list = grown;
    shape->list[shape->count++] = (property){.name = name, .schema = schema};
    return ES_OK;
}

static property *find_property(const object_shape *shape, const char *name)
{
    for (size_t i = 0; i < shape->count; i++)
        if (strcmp(shape->list[i].name, name) == 0) return &shape->list[i];
    return NULL;
}

static es_status read_required(es_schema_run *run, const json_t *schema, object_shape *shape)
{
    const json_t *list = json_object_get(schema, "required");
    if (list && !json_is_array(list)) return es_schema_invalid(run, "required", "must be a list of names");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name) return es_schema_invalid(run, "required", "must be a list of names");
        if (!find_property(shape, name))
            ES_TRY(add_property(run, shape, name, json_object_get(schema, "additionalProperties")));
        find_property(shape, name)->required = true;
    }
    return ES_OK;
}

/* Counts that matter are told apart: up to the least that is needed, or to the most that is allowed. */
static void count_distinct(object_shape *shape)
{
    shape->distinct = shape->max < INT64_MAX && shape->max > shape->min ? (size_t)shape->max : (size_t)shape->min;
    if (shape->max == INT64_MAX) shape->distinct = (size_t)shape->min;
    if (shape->distinct > shape->count + 1) shape->distinct = shape->count + 1;
    if (shape->distinct < 1) shape->distinct = 1;
}

static es_status read_shape(es_schema_run *run, const json_t *schema, object_shape *shape)
{
    const json_t *properties = json_object_get(schema, "properties"),
                 *others = json_object_get(schema, "additionalProperties");
    const char *name;
    json_t *value;
    if (properties && !json_is_object(properties)) return es_schema_invalid(run, "properties", "must be an object of schemas");
    json_object_foreach((json_t *)properties, name, value) ES_TRY(add_property(run, shape, name, value));
    ES_TRY(read_required(run, schema, shape));
    ES_TRY(es_schema_count(run, schema, "minProperties", &shape->min));
    ES_TRY(es_schema_count(run, schema, "maxProperties", &shape->max));
    shape->others_allowed = others ? !json_is_false(others) : shape->count == 0;
    shape->others = json_is_boolean(others) ? NULL : others;
    /* Others may repeat a name, so more than one of them counts as one. */
    if (shape->min > (int64_t)shape->count + shape->others_allowed)
        return es_schema_refuse(run, "minProperties", "it asks for more properties than the schema names");
    count_distinct(shape);
    return ES_OK;
}

/* ---- names that are not declared ---- */

/* Names without escapes; a name of a property that needs one can never come out of these. */
static bool is_plain_name(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == '"' || *name == '\\' || *name == 0x7F) return false;
    return true;
}

static void put_class_character(uint32_t codepoint, es_text *body)
{
    if (codepoint == ']' || codepoint == '[' || codepoint == '^' || codepoint == '-') es_text_putc(body, '\\');
    es_text_put_codepoint(body, codepoint);
}

/* Rule for what may follow the first `at` bytes that list[from .. to) have in common, sorted: all but the ends of these names.
 */
static es_status add_other_names(es_schema_run *run, const char *const *list, size_t from, size_t to, size_t at, int *rule)
{
    es_text body = {0}, firsts = {0};
    ES_TRY(es_schema_step(run));
    ES_TRY(es_schema_new_rule(run, rule));
    const bool taken = list[from][at] == '\0';
    es_status status = ES_OK;
    if (!taken) es_text_puts(&body, "\"\" | ");
    for (size_t i = from + taken; i < to && status == ES_OK;) {
        uint32_t codepoint = 0;
        const int length = es_utf8_step((const unsigned char *)list[i] + at, strlen(list[i] + at), &codepoint);
        size_t end = i;
        if (length <= 0) {
            status = es_schema_invalid(run, "properties", "has a name that is not UTF-8");
            break;
        }
        while (end < to && strncmp(list[end] + at, list[i] + at, (size_t)length) == 0) end++;
        int below;
        run->depth++;
        if (run->depth < 4 * ES_SCHEMA_DEPTH_MAX)
            status = add_other_names(run, list, i, end, at + (size_t)length, &below);
        else
            status = es_schema_invalid(run, "properties", "has too long names beside additionalProperties");
        run->depth--;
        if (status != ES_OK) break;
        es_grammar_add_literal(&body, list[i] + at, (size_t)length);
        es_text_putc(&body, ' ');
        es_schema_put_name(run, below, &body);
        es_text_puts(&body, " | ");
        put_class_character(codepoint, &firsts);
        i = end;
    }
    es_text_printf(&body, "[^\"\\\\\\x00-\\x1F\\x7F%s] [^\"\\\\\\x00-\\x1F\\x7F]*", firsts.data ? firsts.data : "");
    if (status == ES_OK) es_schema_add_rule(run, *rule, &body);
    es_text_free(&body);
    es_text_free(&firsts);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A string without escapes that is none of `names`, which are sorted here. */
static es_status put_other_string(es_schema_run *run, const char **names, size_t count, es_text *body)
{
    es_status status = ES_OK;
    qsort(names, count, sizeof *names, compare_names);
    if (count) {
        int rule;
        const int depth = run->depth; /* names are bounded on their own */
        run->depth = 0;
        status = add_other_names(run, names, 0, count, 0, &rule);
        run->depth = depth;
        es_text_puts(body, "\"\\\"\" ");
        es_schema_put_name(run, rule, body);
        es_text_puts(body, " \"\\\"\"");
    } else {
        es_text_puts(body, "\"\\\"\" [^\"\\\\\\x00-\\x1F\\x7F]* \"\\\"\"");
    }
    return status;
}

static es_status put_other_name(es_schema_run *run, const object_shape *shape, es_text *body)
{
    const char **names = malloc((shape->count + 1) * sizeof *names);
    size_t count = 0;
    if (!names) return es_fail(ES_NO_MEMORY, "no memory for a schema's properties");
    for (size_t i = 0; i < shape->count; i++)
        if (is_plain_name(shape->list[i].name)) names[count++] = shape->list[i].name;
    const es_status status = put_other_string(run, names, count, body);
    free(names);
    return status;
}

es_status es_schema_other_string(es_schema_run *run, const json_t *values, es_text *body)
{
    const char **names = malloc((json_array_size(values) + 1) * sizeof *names);
    size_t count = 0;
    if (!names) return es_fail(ES_NO_MEMORY, "no memory for a schema's values");
    for (size_t i = 0; i < json_array_size(values); i++) {
        const char *text = json_string_value(json_array_get(values, i));
        bool known = !text || !is_plain_name(text) || strlen(text) != json_string_length(json_array_get(values, i));
        for (size_t k = 0; k < count && !known; k++) known = strcmp(names[k], text) == 0;
        if (!known) names[count++] = text;
    }
    const es_status status = put_other_string(run, names, count, body);
    free(names);
    return status;
}

/* ---- members ---- */

static es_status put_schema_or_any(es_schema_run *run, const json_t *schema, es_text *body)
{
    if (schema) return es_schema_put(run, schema, body);
    es_text_puts(body, "json-value");
    return ES_OK;
}

static es_status add_member(es_schema_run *run, property *p)
{
    es_text body = {0};
    const size_t mark = run->path.bytes;
    ES_TRY(es_schema_new_rule(run, &p->rule));
    es_schema_enter(run, ".properties.%.100s", p->name);
    json_t *name = json_string(p->name);
    es_status status = name ? es_schema_put_value(name, &body) : es_fail(ES_NO_MEMORY, "no memory for a property's name");
    json_decref(name);
    es_text_puts(&body, " \":\" json-ws ");
    if (status == ES_OK) status = put_schema_or_any(run, p->schema, &body);
    if (status == ES_OK) {
        es_schema_add_rule(run, p->rule, &body);
        es_schema_leave(run, mark);
    }
    es_text_free(&body);
    return status;
}

static es_status add_other(es_schema_run *run, object_shape *shape)
{
    es_text body = {0};
    const size_t mark = run->path.bytes;
    ES_TRY(es_schema_new_rule(run, &shape->others_rule));
    es_schema_enter(run, ".additionalProperties");
    es_status status = put_other_name(run, shape, &body);
    es_text_puts(&body, " \":\" json-ws ");
    if (status == ES_OK) status = put_schema_or_any(run, shape->others, &body);
    if (status == ES_OK) {
        es_schema_add_rule(run, shape->others_rule, &body);
        es_schema_leave(run, mark);
    }
    es_text_free(&body);
    return status;
}

/* Behind the declared ones, when `written` (or more, if that is the last count told apart) are there. */
static void put_others(es_schema_run *run, const object_shape *shape, size_t written, es_text *body)
{
    const int64_t left = shape->max == INT64_MAX ? INT64_MAX : shape->max - (int64_t)written;
    const int64_t needed = shape->min - (int64_t)written;
    if (needed > 1 || (needed == 1 && (!shape->others_allowed || left < 1)) || left < 0) {
        es_text_puts(body, "[]");
    } else if (!shape->others_allowed || left == 0) {
        es_text_puts(body, "\"\"");
    } else {
        const char *ends = needed == 1 ? "" : ")?";
        if (needed < 1) es_text_putc(body, '(');
        if (written) es_text_puts(body, "\",\" json-ws ");
        es_schema_put_name(run, shape->others_rule, body);
        es_text_puts(body, " (\",\" json-ws ");
        es_schema_put_name(run, shape->others_rule, body);
        if (left == INT64_MAX || left > 1 << 20)
            es_text_puts(body, ")*");
        else
            es_text_printf(body, "){0,%" PRId64 "}", left - 1);
        es_text_puts(body, ends);
    }
}

/* tails[i][c]: the rule from property i on, when c have been written. Made from the end. */
static es_status add_tails(es_schema_run *run, const object_shape *shape, int *tails)
{
    const size_t columns = shape->distinct + 1;
    for (size_t i = shape->count + 1; i-- > 0;)
        for (size_t c = 0; c < columns && c <= i; c++) {
            es_text body = {0};
            const size_t next = c < shape->distinct ? c + 1 : c;
            const bool full = shape->max != INT64_MAX && (int64_t)c >= shape->max;
            ES_TRY(es_schema_new_rule(run, &tails[i * columns + c]));
            if (i == shape->count) {
                put_others(run, shape, c, &body);
            } else {
                const property *p = &shape->list[i];
                if (!full) {
                    if (c) es_text_puts(&body, "\",\" json-ws ");
                    es_schema_put_name(run, p->rule, &body);
                    es_text_putc(&body, ' ');
                    es_schema_put_name(run, tails[(i + 1) * columns + next], &body);
                }
                if (!p->required) {
                    if (!full) es_text_puts(&body, " | ");
                    es_schema_put_name(run, tails[(i + 1) * columns + c], &body);
                } else if (full) {
                    es_text_puts(&body, "[]");
                }
            }
            es_schema_add_rule(run, tails[i * columns + c], &body);
            es_text_free(&body);
        }
    return ES_OK;
}

static es_status put_object(es_schema_run *run, const json_t *schema, object_shape *shape, es_text *body)
{
    ES_TRY(read_shape(run, schema, shape));
    for (size_t i = 0; i < shape->count; i++) ES_TRY(add_member(run, &shape->list[i]));
    if (shape->others_allowed) ES_TRY(add_other(run, shape));
    int *tails = calloc((shape->count + 1) * (shape->distinct + 1), sizeof *tails);
    if (!tails) return es_fail(ES_NO_MEMORY, "no memory for a schema's properties");
    const es_status status = add_tails(run, shape, tails);
    es_text_puts(body, "\"{\" json-ws ");
    es_schema_put_name(run, tails[0], body);
    es_text_puts(body, " json-ws \"}\"");
    free(tails);
    return status;
}

es_status es_schema_object(es_schema_run *run, const json_t *schema, es_text *body)
{
    object_shape shape = {.max = INT64_MAX};
    const es_status status = put_object(run, schema, &shape, body);
    free(shape.list);
    return status;
}

/* ---- arrays whose items differ ---- */

/* Items that come from a list of values: each at most once, in the list's order. To the rules it is an object without names.
 */
static es_status put_unique(es_schema_run *run, const json_t *values, object_shape *shape, es_text *body)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        bool known = false;
        es_text value = {0};
        for (size_t k = 0; k < i && !known; k++) known = json_equal(json_array_get(values, k), json_array_get(values, i));
        if (known) continue;
        ES_TRY(add_property(run, shape, "", NULL));
        ES_TRY(es_schema_new_rule(run, &shape->list[shape->count - 1].rule));
        const es_status status = es_schema_put_value(json_array_get(values, i), &value);
        if (status == ES_OK) es_schema_add_rule(run, shape->list[shape->count - 1].rule, &value);
        es_text_free(&value);
        ES_TRY(status);
    }
    count_distinct(shape);
    int *tails = calloc((shape->count + 1) * (shape->distinct + 1), sizeof *tails);
    if (!tails) return es_fail(ES_NO_MEMORY, "no memory for a schema's values");
    const es_status status = add_tails(run, shape, tails);
    es_text_puts(body, "\"[\" json-ws ");
    es_schema_put_name(run, tails[0], body);
    es_text_puts(body, " json-ws \"]\"");
    free(tails);
    return status;
}

es_status es_schema_unique_array(es_schema_run *run, const json_t *values, int64_t min, int64_t max, es_text *body)
{
    object_shape shape = {.min = min, .max = max};
    const es_status status = put_unique(run, values, &shape, body);
    free(shape.list);
    return status;
}
