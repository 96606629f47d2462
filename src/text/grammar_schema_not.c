/* grammar_schema_not.c: what does not follow a schema, as schemas; and with it if, dependencies, contains and oneOf.
 *
 * The values that a schema rules out are seldom all expressible: those are named that can be told by their type, by a list, by a
 * bound on the other side, or by one property that is missing or wrong. Each of these schemas holds only such values; together
 * they may miss some. Where there is none at all the keyword is refused. */
#include <string.h>

#include "text/grammar_schema_internal.h"

enum { MOST_CONTAINED = 16 };

static es_status no_memory(void)
{
    return es_fail(ES_NO_MEMORY, "no memory for a schema");
}

/* `schema` is this function's. */
static es_status add(es_schema_run *run, json_t *list, json_t *schema)
{
    json_t *kept = es_schema_keep(run, schema);
    return kept && json_array_append(list, kept) == 0 ? ES_OK : no_memory();
}

/* The names of some types; "number" means both kinds of it. */
static json_t *names_of(unsigned types)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    json_t *list = json_array();
    for (int i = 0; i < 7; i++)
        if (types & (1u << i)) json_array_append_new(list, json_string(names[i]));
    return list;
}

/* All types but those in `types`. */
static es_status add_other_types(es_schema_run *run, json_t *list, unsigned types)
{
    if (types & ES_TYPE_INTEGER) types |= ES_TYPE_NUMBER; /* there is no name for numbers that are not whole */
    if ((types & ES_TYPE_ANY) == ES_TYPE_ANY) return ES_OK;
    return add(run, list, json_pack("{s:o}", "type", names_of(ES_TYPE_ANY & ~types)));
}

/* The other sides of bounds: what holds a number above `keyword` is held below or at it by `other`. */
static es_status add_bounds(es_schema_run *run, const json_t *schema, json_t *list)
{
    static const struct {
        const char *keyword, *other, *strict, *type;
        int more; /* to a count */
    } bounds[] = {
        {"minimum",          "exclusiveMaximum", "exclusiveMinimum", "number", 0 },
        {"maximum",          "exclusiveMinimum", "exclusiveMaximum", "number", 0 },
        {"exclusiveMinimum", "maximum",          NULL,               "number", 0 },
        {"exclusiveMaximum", "minimum",          NULL,               "number", 0 },
        {"minLength",        "maxLength",        NULL,               "string", -1},
        {"maxLength",        "minLength",        NULL,               "string", 1 },
        {"minItems",         "maxItems",         NULL,               "array",  -1},
        {"maxItems",         "minItems",         NULL,               "array",  1 },
        {"minProperties",    "maxProperties",    NULL,               "object", -1},
        {"maxProperties",    "minProperties",    NULL,               "object", 1 },
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        json_t *value = json_object_get(schema, bounds[i].keyword);
        /* draft 4 makes a bound strict by a flag beside it */
        const bool flagged = bounds[i].strict && json_is_true(json_object_get(schema, bounds[i].strict));
        if (!json_is_number(value)) continue;
        if (!bounds[i].more) {
            const char *other = !flagged ? bounds[i].other : i == 0 ? "maximum" : "minimum";
            ES_TRY(add(run, list, json_pack("{s:s, s:O}", "type", bounds[i].type, other, value)));
        } else {
            const json_int_t count = json_integer_value(value) + bounds[i].more;
            if (json_is_integer(value) && count >= 0)
                ES_TRY(add(run, list, json_pack("{s:s, s:I}", "type", bounds[i].type, bounds[i].other, count)));
        }
    }
    return ES_OK;
}

/* Any value but those listed: another type, the other of true and false, or one that is marked as being none of them. */
static es_status add_unlisted(es_schema_run *run, const json_t *values, json_t *list)
{
    unsigned types = 0;
    bool yes = false, no = false;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        types |= es_schema_type_of(value);
        yes |= json_is_true(value);
        no |= json_is_false(value);
    }
    ES_TRY(add_other_types(run, list, types));
    if (yes != no) ES_TRY(add(run, list, json_pack("{s:[b]}", "enum", no)));
    unsigned rest = types & ~(unsigned)(ES_TYPE_NULL | ES_TYPE_BOOLEAN);
    if (rest & ES_TYPE_INTEGER) rest |= ES_TYPE_NUMBER;
    if (rest && json_array_append(run->unlisted, (json_t *)values) != 0) return no_memory();
    return rest ? add(run, list, json_pack("{s:o, s:O}", "type", names_of(rest), es_schema_unlisted, values)) : ES_OK;
}

/* Objects that lack what is required, or have a property that is wrong; arrays that begin with a wrong item. */
static es_status add_wrong_parts(es_schema_run *run, const json_t *schema, json_t *list)
{
    const json_t *required = json_object_get(schema, "required");
    const char *name;
    json_t *part, *items = json_object_get(schema, "items");
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        if (name) ES_TRY(add(run, list, json_pack("{s:s, s:{s:b}}", "type", "object", "properties", name, 0)));
    }
    json_object_foreach(json_object_get(schema, "properties"), name, part)
    {
        json_t *wrong = es_schema_keep(run, json_array());
        if (!wrong) return no_memory();
        ES_TRY(es_schema_complement(run, part, wrong));
        if (json_array_size(wrong))
            ES_TRY(add(run, list, json_pack("{s:s, s:[s], s:{s:{s:O}}}", "type", "object", "required", name, "properties", name,
                                            "anyOf", wrong)));
    }
    if (!json_is_object(items) || json_object_get(schema, "prefixItems")) return ES_OK;
    json_t *wrong = es_schema_keep(run, json_array());
    if (!wrong) return no_memory();
    ES_TRY(es_schema_complement(run, items, wrong));
    if (!json_array_size(wrong)) return ES_OK;
    return add(run, list, json_pack("{s:s, s:i, s:[{s:O}]}", "type", "array", "minItems", 1, "prefixItems", "anyOf", wrong));
}

/* None of several: what follows no alternative. */
static es_status add_none_of(es_schema_run *run, const json_t *choice, json_t *list)
{
    json_t *all = es_schema_keep(run, json_array());
    if (!all) return no_memory();
    for (size_t i = 0; i < json_array_size(choice); i++) {
        json_t *wrong = es_schema_keep(run, json_array());
        if (!wrong) return no_memory();
        ES_TRY(es_schema_complement(run, json_array_get(choice, i), wrong));
        if (json_array_size(wrong) == 0) return ES_OK;
        if (json_array_append_new(all, json_pack("{s:O}", "anyOf", wrong)) != 0) return no_memory();
    }
    return json_array_size(all) ? add(run, list, json_pack("{s:O}", "allOf", all)) : ES_OK;
}

static es_status complement_object(es_schema_run *run, const json_t *schema, json_t *list)
{
    ES_TRY(es_schema_check_keywords(run, schema));
    if (json_object_get(schema, "$ref")) {
        const json_t *target;
        ES_TRY(es_schema_resolve(run, schema, &target));
        ES_TRY(es_schema_complement(run, target, list));
    }
    if (json_object_get(schema, "type")) {
        unsigned types;
        ES_TRY(es_schema_types(run, schema, &types));
        ES_TRY(add_other_types(run, list, types));
    }
    if (json_is_array(json_object_get(schema, "enum"))) ES_TRY(add_unlisted(run, json_object_get(schema, "enum"), list));
    if (json_object_get(schema, "const")) {
        json_t *only = es_schema_keep(run, json_pack("[O]", json_object_get(schema, "const")));
        ES_TRY(only ? add_unlisted(run, only, list) : no_memory());
    }
    ES_TRY(add_bounds(run, schema, list));
    ES_TRY(add_wrong_parts(run, schema, list));
    const json_t *all = json_object_get(schema, "allOf");
    for (size_t i = 0; i < json_array_size(all); i++) ES_TRY(es_schema_complement(run, json_array_get(all, i), list));
    ES_TRY(add_none_of(run, json_object_get(schema, "anyOf"), list));
    ES_TRY(add_none_of(run, json_object_get(schema, "oneOf"), list));
    json_t *inner = json_object_get(schema, "not");
    return !inner || json_array_append(list, inner) == 0 ? ES_OK : no_memory();
}

es_status es_schema_complement(es_schema_run *run, const json_t *schema, json_t *list)
{
    if (json_is_boolean(schema)) return json_is_true(schema) ? ES_OK : add(run, list, json_object());
    if (!json_is_object(schema)) return es_schema_invalid(run, NULL, "a schema must be an object, true or false");
    run->depth++;
    es_status status = es_schema_step(run);
    if (status == ES_OK) status = complement_object(run, schema, list);
    run->depth--;
    if (status == ES_OK && json_array_size(list) > ES_SCHEMA_ALTERNATIVES_MAX)
        status = es_schema_invalid(run, "not", "rules out too many things at once");
    return status;
}

/* ---- keywords that need it ---- */

static es_status complement_or_refuse(es_schema_run *run, const json_t *schema, const char *keyword, json_t **wrong)
{
    *wrong = es_schema_keep(run, json_array());
    if (!*wrong) return no_memory();
    ES_TRY(es_schema_complement(run, schema, *wrong));
    if (json_array_size(*wrong) || json_is_true(schema)) return ES_OK;
    return es_schema_refuse(run, keyword, "unless what does not follow it can be told by type, values, bounds or properties");
}

static json_t *member_or_true(const json_t *schema, const char *name)
{
    json_t *value = json_object_get(schema, name);
    return value ? json_incref(value) : json_true();
}

/* It holds and so does "then", or it does not and "else" does. */
static es_status add_condition(es_schema_run *run, const json_t *schema, json_t *choices)
{
    json_t *condition = json_object_get(schema, "if"), *wrong, *choice = json_array();
    if (!condition || (!json_object_get(schema, "then") && !json_object_get(schema, "else"))) {
        json_decref(choice);
        return ES_OK;
    }
    es_status status = complement_or_refuse(run, condition, "if", &wrong);
    if (status == ES_OK) status = add(run, choice, json_pack("{s:[O,o]}", "allOf", condition, member_or_true(schema, "then")));
    if (status == ES_OK && json_array_size(wrong))
        status = add(run, choice, json_pack("{s:[{s:O},o]}", "allOf", "anyOf", wrong, member_or_true(schema, "else")));
    if (json_array_append_new(choices, choice) != 0) return no_memory();
    return status;
}

/* Where a property is, others are too, or a schema holds; or the property is not. */
static es_status add_dependencies(es_schema_run *run, const json_t *schema, json_t *choices)
{
    static const char *const keywords[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (int i = 0; i < 3; i++) {
        const char *name;
        json_t *wanted, *given = json_object_get(schema, keywords[i]);
        if (given && !json_is_object(given)) return es_schema_invalid(run, keywords[i], "must be an object");
        json_object_foreach(given, name, wanted)
        {
            json_t *then = json_is_array(wanted) ? json_pack("{s:O}", "required", wanted) : json_incref(wanted);
            json_t *choice = json_array();
            es_status status = add(run, choice, json_pack("{s:{s:b}}", "properties", name, 0));
            if (status == ES_OK) status = add(run, choice, json_pack("{s:[{s:[s]},o]}", "allOf", "required", name, then));
            if (json_array_append_new(choices, choice) != 0) return no_memory();
            ES_TRY(status);
        }
    }
    return ES_OK;
}

/* The items that an array must contain come first; where they may be no more than so many, the others do not follow the schema. */
static es_status add_contained(es_schema_run *run, const json_t *schema, json_t *choices)
{
    json_t *contains = json_object_get(schema, "contains"), *first = json_array(), *rest = json_true(), *wrong;
    int64_t least = 1, most = INT64_MAX;
    es_status status = es_schema_count(run, schema, "minContains", &least);
    if (status == ES_OK) status = es_schema_count(run, schema, "maxContains", &most);
    if (status == ES_OK && contains && (least > MOST_CONTAINED || most < least))
        status = es_schema_refuse(run, "minContains", "beyond 16, or beyond maxContains");
    if (status == ES_OK && contains && most < INT64_MAX) {
        status = complement_or_refuse(run, contains, "maxContains", &wrong);
        rest = json_pack("{s:O}", "anyOf", wrong);
    }
    for (int64_t i = 0; i < least && status == ES_OK; i++)
        if (contains && json_array_append(first, contains) != 0) status = no_memory();
    if (status != ES_OK || !contains) {
        json_decref(first);
        json_decref(rest);
        return status;
    }
    json_t *choice = json_array();
    status = add(run, choice, least ? json_pack("{s:o, s:o, s:I}", "prefixItems", first, "items", rest, "minItems", (json_int_t)least)
                                    : json_pack("{s:o}", "items", rest));
    if (!least) json_decref(first);
    if (json_array_append_new(choices, choice) != 0) return no_memory();
    return status;
}

es_status es_schema_choices(es_schema_run *run, const json_t *schema, json_t *choices)
{
    const json_t *ruled_out = json_object_get(schema, "not");
    json_t *wrong;
    if (ruled_out) {
        ES_TRY(complement_or_refuse(run, ruled_out, "not", &wrong));
        if (json_array_append(choices, wrong) != 0) return no_memory();
    }
    ES_TRY(add_condition(run, schema, choices));
    ES_TRY(add_dependencies(run, schema, choices));
    return add_contained(run, schema, choices);
}

/* Whether anything is left of a schema, as far as types and lists tell. */
static es_status is_left(es_schema_run *run, const json_t *schema, bool *left)
{
    json_t *plain = json_array();
    es_status status = plain ? es_schema_flatten(run, schema, plain) : no_memory();
    *left = false;
    for (size_t i = 0; i < json_array_size(plain) && status == ES_OK && !*left; i++) {
        const json_t *one = json_array_get(plain, i), *values = json_object_get(one, "enum");
        unsigned types = ES_TYPE_ANY;
        if (json_object_get(one, "type")) status = es_schema_types(run, one, &types);
        *left = types != 0 && !values;
        for (size_t k = 0; k < json_array_size(values) && !*left; k++)
            *left = es_schema_value_holds(run, json_array_get(values, k), one) != ES_HOLDS_NO;
    }
    json_decref(plain);
    return status;
}

es_status es_schema_exclude(es_schema_run *run, const json_t *schema, const json_t *others, json_t **narrowed, bool *left)
{
    json_t *all = json_pack("[O]", schema);
    es_status status = all ? ES_OK : no_memory();
    *left = true;
    for (size_t i = 0; i < json_array_size(others) && status == ES_OK && *left; i++) {
        json_t *wrong = es_schema_keep(run, json_array());
        status = wrong ? es_schema_complement(run, json_array_get(others, i), wrong) : no_memory();
        *left = json_array_size(wrong) > 0;
        if (status == ES_OK && json_array_append_new(all, json_pack("{s:O}", "anyOf", wrong)) != 0) status = no_memory();
    }
    *narrowed = es_schema_keep(run, json_pack("{s:o}", "allOf", all));
    if (status == ES_OK && !*narrowed) status = no_memory();
    return status == ES_OK && *left ? is_left(run, *narrowed, left) : status;
}
