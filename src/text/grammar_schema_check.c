/* grammar_schema_check.c: whether a value follows a schema: which values of an enum the rest of a schema leaves, and whether
 * two alternatives of a oneOf can meet. Where the answer needs a pattern or a format it is "unknown". */
#include <math.h>
#include <string.h>

#include "text/grammar_schema_internal.h"

static es_schema_holds both(es_schema_holds a, es_schema_holds b)
{
    if (a == ES_HOLDS_NO || b == ES_HOLDS_NO) return ES_HOLDS_NO;
    return a == ES_HOLDS_YES && b == ES_HOLDS_YES ? ES_HOLDS_YES : ES_HOLDS_UNKNOWN;
}

static es_schema_holds when(bool holds)
{
    return holds ? ES_HOLDS_YES : ES_HOLDS_NO;
}

unsigned es_schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return ES_TYPE_OBJECT;
    case JSON_ARRAY: return ES_TYPE_ARRAY;
    case JSON_STRING: return ES_TYPE_STRING;
    case JSON_INTEGER: return ES_TYPE_INTEGER;
    case JSON_REAL: return json_real_value(value) == floor(json_real_value(value)) ? ES_TYPE_INTEGER : ES_TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return ES_TYPE_BOOLEAN;
    case JSON_NULL: break;
    }
    return ES_TYPE_NULL;
}

/* 1 and 1.0 are one number. */
static bool is_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal((json_t *)a, (json_t *)b);
}

static es_schema_holds number_holds(const json_t *value, const json_t *schema)
{
    const double v = json_number_value(value);
    const json_t *min = json_object_get(schema, "minimum"), *max = json_object_get(schema, "maximum");
    const json_t *above = json_object_get(schema, "exclusiveMinimum"), *below = json_object_get(schema, "exclusiveMaximum");
    const json_t *step = json_object_get(schema, "multipleOf");
    bool holds = true;
    if (json_is_number(min)) holds = holds && (json_is_true(above) ? v > json_number_value(min) : v >= json_number_value(min));
    if (json_is_number(max)) holds = holds && (json_is_true(below) ? v < json_number_value(max) : v <= json_number_value(max));
    if (json_is_number(above)) holds = holds && v > json_number_value(above);
    if (json_is_number(below)) holds = holds && v < json_number_value(below);
    if (!holds || !step) return when(holds);
    if (json_is_integer(value) && json_is_integer(step) && json_integer_value(step) > 0)
        return when(json_integer_value(value) % json_integer_value(step) == 0);
    return ES_HOLDS_UNKNOWN;
}

static bool count_holds(const json_t *schema, const char *min, const char *max, size_t count)
{
    const json_t *least = json_object_get(schema, min), *most = json_object_get(schema, max);
    return (!least || (double)count >= json_number_value(least)) && (!most || (double)count <= json_number_value(most));
}

static es_schema_holds string_holds(const json_t *value, const json_t *schema)
{
    const char *text = json_string_value(value);
    size_t characters = 0;
    for (; *text; text++) characters += ((unsigned char)*text & 0xC0) != 0x80;
    if (!count_holds(schema, "minLength", "maxLength", characters)) return ES_HOLDS_NO;
    return json_object_get(schema, "pattern") || json_object_get(schema, "format") ? ES_HOLDS_UNKNOWN : ES_HOLDS_YES;
}

static es_schema_holds array_holds(es_schema_run *run, const json_t *value, const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    if (json_is_array(items)) prefix = items, items = json_object_get(schema, "additionalItems");
    es_schema_holds holds = when(count_holds(schema, "minItems", "maxItems", json_array_size(value)));
    for (size_t i = 0; i < json_array_size(value) && holds != ES_HOLDS_NO; i++) {
        const json_t *item = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (item) holds = both(holds, es_schema_value_holds(run, json_array_get(value, i), item));
    }
    return json_is_true(json_object_get(schema, "uniqueItems")) && json_array_size(value) > 1 ? both(holds, ES_HOLDS_UNKNOWN)
                                                                                              : holds;
}

static es_schema_holds object_holds(es_schema_run *run, const json_t *value, const json_t *schema)
{
    const json_t *required = json_object_get(schema, "required"), *others = json_object_get(schema, "additionalProperties");
    es_schema_holds holds = when(count_holds(schema, "minProperties", "maxProperties", json_object_size(value)));
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && !json_object_get(value, name)) return ES_HOLDS_NO;
    }
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)value, name, member)
    {
        const json_t *own = json_object_get(json_object_get(schema, "properties"), name);
        if (holds != ES_HOLDS_NO && (own || others))
            holds = both(holds, es_schema_value_holds(run, member, own ? own : others));
    }
    return holds;
}

static es_schema_holds own_type_holds(es_schema_run *run, const json_t *value, const json_t *schema)
{
    if (json_is_number(value)) return number_holds(value, schema);
    if (json_is_string(value)) return string_holds(value, schema);
    if (json_is_array(value)) return array_holds(run, value, schema);
    if (json_is_object(value)) return object_holds(run, value, schema);
    return ES_HOLDS_YES;
}

static es_schema_holds listed(const json_t *value, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_equal(value, json_array_get(list, i))) return ES_HOLDS_YES;
    return ES_HOLDS_NO;
}

/* $ref and the like. */
static es_schema_holds combined_hold(es_schema_run *run, const json_t *value, const json_t *schema)
{
    es_schema_holds holds = ES_HOLDS_YES;
    const json_t *all = json_object_get(schema, "allOf"), *any = json_object_get(schema, "anyOf");
    if (json_object_get(schema, "$ref")) {
        const json_t *target;
        if (es_schema_resolve(run, schema, &target) != ES_OK) return ES_HOLDS_UNKNOWN;
        holds = es_schema_value_holds(run, value, target);
    }
    for (size_t i = 0; i < json_array_size(all); i++)
        holds = both(holds, es_schema_value_holds(run, value, json_array_get(all, i)));
    es_schema_holds some = any ? ES_HOLDS_NO : ES_HOLDS_YES;
    for (size_t i = 0; i < json_array_size(any) && some != ES_HOLDS_YES; i++) {
        const es_schema_holds one = es_schema_value_holds(run, value, json_array_get(any, i));
        if (one != ES_HOLDS_NO) some = one;
    }
    static const char *const unknown[] = {"oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "contains"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (json_object_get(schema, unknown[i])) some = both(some, ES_HOLDS_UNKNOWN);
    return both(holds, some);
}

es_schema_holds es_schema_value_holds(es_schema_run *run, const json_t *value, const json_t *schema)
{
    if (json_is_boolean(schema)) return when(json_is_true(schema));
    if (!json_is_object(schema) || run->depth > ES_SCHEMA_DEPTH_MAX || ++run->steps > ES_SCHEMA_STEPS_MAX)
        return ES_HOLDS_UNKNOWN;
    if (json_object_get(schema, "type")) {
        unsigned types;
        if (es_schema_types(run, schema, &types) != ES_OK) return ES_HOLDS_UNKNOWN;
        if (!(types & es_schema_type_of(value))) return ES_HOLDS_NO;
    }
    run->depth++;
    es_schema_holds holds = own_type_holds(run, value, schema);
    if (json_object_get(schema, "enum")) holds = both(holds, listed(value, json_object_get(schema, "enum")));
    if (json_object_get(schema, "const")) holds = both(holds, when(is_equal(value, json_object_get(schema, "const"))));
    if (json_object_get(schema, es_schema_unlisted))
        holds = both(holds, when(listed(value, json_object_get(schema, es_schema_unlisted)) == ES_HOLDS_NO));
    holds = both(holds, combined_hold(run, value, schema));
    run->depth--;
    return holds;
}
