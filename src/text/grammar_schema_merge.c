/* grammar_schema_merge.c: schemas that say several things at once, as a choice between schemas that say one.
 *
 * allOf and $ref add to what stands beside them, anyOf and oneOf offer choices: multiplied out, every choice is one plain
 * schema, the merger of all that holds for it. A merger only ever narrows; two keywords that cannot be merged (two patterns)
 * are refused. */
#include <string.h>

#include "text/grammar_schema_internal.h"

static es_status no_memory(void)
{
    return es_fail(ES_NO_MEMORY, "no memory for a schema");
}

/* ---- merging two plain schemas ---- */

static es_status merge(es_schema_run *run, const json_t *a, const json_t *b, json_t **merged);

/* A schema for what follows both, without looking into either: allOf. */
static json_t *both(es_schema_run *run, json_t *a, json_t *b)
{
    if (a == b || json_is_true(b)) return a;
    if (json_is_true(a)) return b;
    json_t *all = json_pack("{s:[O,O]}", "allOf", a, b);
    return es_schema_keep(run, all);
}

static bool is_larger(const json_t *a, const json_t *b)
{
    return json_number_value(a) > json_number_value(b);
}

static es_status merge_enums(const json_t *a, const json_t *b, json_t **kept)
{
    *kept = json_array();
    if (!*kept) return no_memory();
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++)
            if (json_equal(json_array_get(a, i), json_array_get(b, k))) {
                if (json_array_append(*kept, json_array_get(a, i)) != 0) return no_memory();
                break;
            }
    return ES_OK;
}

static es_status merge_types(es_schema_run *run, const json_t *a, const json_t *b, json_t **types)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    unsigned left, right;
    json_t *one = json_pack("{s:O}", "type", a), *two = json_pack("{s:O}", "type", b);
    es_status status = one && two ? es_schema_types(run, one, &left) : no_memory();
    if (status == ES_OK) status = es_schema_types(run, two, &right);
    json_decref(one);
    json_decref(two);
    *types = json_array();
    if (status == ES_OK && !*types) status = no_memory();
    for (int i = 0; i < 7 && status == ES_OK; i++)
        if (left & right & (1u << i)) json_array_append_new(*types, json_string(names[i]));
    return status;
}

static es_status merge_required(const json_t *a, const json_t *b, json_t **list)
{
    *list = json_array();
    if (!*list || json_array_extend(*list, (json_t *)a) != 0) return no_memory();
    for (size_t i = 0; i < json_array_size(b); i++) {
        bool there = false;
        for (size_t k = 0; k < json_array_size(a) && !there; k++)
            there = json_equal(json_array_get(a, k), json_array_get(b, i));
        if (!there && json_array_append(*list, json_array_get(b, i)) != 0) return no_memory();
    }
    return ES_OK;
}

static bool names_keyword(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

/* A keyword that both have, apart from those about properties and items. */
static es_status merge_keyword(es_schema_run *run, const char *name, json_t *a, json_t *b, json_t **value)
{
    static const char *const largest[] = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", NULL};
    static const char *const smallest[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", NULL};
    if (json_equal(a, b))
        *value = json_incref(a);
    else if (strcmp(name, "type") == 0)
        return merge_types(run, a, b, value);
    else if (strcmp(name, "enum") == 0)
        return merge_enums(a, b, value);
    else if (strcmp(name, "required") == 0 || strcmp(name, es_schema_unlisted) == 0)
        return merge_required(a, b, value);
    else if (strcmp(name, "uniqueItems") == 0)
        *value = json_true();
    else if (json_is_number(a) && json_is_number(b) && names_keyword(name, largest))
        *value = json_incref(is_larger(a, b) ? a : b);
    else if (json_is_number(a) && json_is_number(b) && names_keyword(name, smallest))
        *value = json_incref(is_larger(a, b) ? b : a);
    else
        return es_schema_refuse(run, name, "it is there twice (allOf, anyOf, $ref) with two values that cannot be merged");
    return ES_OK;
}

/* What a schema says of a property: its own schema, or that of additional ones. */
static json_t *property_of(const json_t *schema, const char *name)
{
    json_t *own = json_object_get(json_object_get(schema, "properties"), name);
    json_t *others = json_object_get(schema, "additionalProperties");
    return own ? own : others ? others : json_true();
}

static es_status merge_properties(es_schema_run *run, const json_t *a, const json_t *b, json_t *merged)
{
    const json_t *sides[] = {a, b};
    json_t *others_a = json_object_get(a, "additionalProperties"), *others_b = json_object_get(b, "additionalProperties");
    if (json_object_get(a, "properties") || json_object_get(b, "properties")) {
        json_t *all = json_object();
        if (!all || json_object_set_new(merged, "properties", all) != 0) return no_memory();
        for (int side = 0; side < 2; side++) {
            const char *name;
            json_t *schema;
            json_object_foreach(json_object_get(sides[side], "properties"), name, schema)
            {
                if (json_object_get(all, name)) continue;
                json_t *joined = both(run, property_of(a, name), property_of(b, name));
                if (!joined || json_object_set(all, name, joined) != 0) return no_memory();
            }
        }
    }
    if (!others_a && !others_b) return ES_OK;
    json_t *others = both(run, others_a ? others_a : json_true(), others_b ? others_b : json_true());
    return others && json_object_set(merged, "additionalProperties", others) == 0 ? ES_OK : no_memory();
}

/* What a schema says of the item at `index`; draft 7 has lists of items where 2020-12 has prefixItems. */
static json_t *item_of(const json_t *schema, size_t index)
{
    json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    if (json_is_array(items)) prefix = items, items = json_object_get(schema, "additionalItems");
    if (index < json_array_size(prefix)) return json_array_get(prefix, index);
    return items ? items : json_true();
}

static size_t prefix_of(const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items");
    return json_array_size(json_is_array(items) ? items : json_object_get(schema, "prefixItems"));
}

static es_status merge_items(es_schema_run *run, const json_t *a, const json_t *b, json_t *merged)
{
    static const char *const names[] = {"items", "prefixItems", "additionalItems"};
    bool any = false;
    for (int i = 0; i < 3; i++) {
        any = any || json_object_get(a, names[i]) || json_object_get(b, names[i]);
        json_object_del(merged, names[i]);
    }
    const size_t long_a = prefix_of(a), long_b = prefix_of(b), prefix = long_a > long_b ? long_a : long_b;
    if (!any) return ES_OK;
    if (prefix) {
        json_t *list = json_array();
        if (!list || json_object_set_new(merged, "prefixItems", list) != 0) return no_memory();
        for (size_t i = 0; i < prefix; i++)
            if (json_array_append(list, both(run, item_of(a, i), item_of(b, i))) != 0) return no_memory();
    }
    json_t *rest = both(run, item_of(a, prefix), item_of(b, prefix));
    if (json_is_true(rest)) return ES_OK;
    return rest && json_object_set(merged, "items", rest) == 0 ? ES_OK : no_memory();
}

static bool is_structural(const char *name)
{
    static const char *const names[] = {"properties", "additionalProperties", "items", "prefixItems", "additionalItems", NULL};
    return names_keyword(name, names);
}

static es_status merge(es_schema_run *run, const json_t *a, const json_t *b, json_t **merged)
{
    json_t *all = es_schema_keep(run, json_copy((json_t *)a));
    const char *name;
    json_t *value;
    if (!all) return no_memory();
    json_object_foreach((json_t *)b, name, value)
    {
        json_t *mine = json_object_get(a, name), *joined = NULL;
        if (is_structural(name)) continue;
        if (!mine) {
            if (json_object_set(all, name, value) != 0) return no_memory();
            continue;
        }
        const es_status status = merge_keyword(run, name, mine, value, &joined);
        if (joined) json_object_set_new(all, name, joined);
        if (status != ES_OK) return status;
    }
    ES_TRY(merge_properties(run, a, b, all));
    ES_TRY(merge_items(run, a, b, all));
    *merged = all;
    return ES_OK;
}

/* ---- multiplying out ---- */

/* Every schema of `list` merged with every one of `more`; the result replaces `list`. */
static es_status cross(es_schema_run *run, json_t *list, const json_t *more)
{
    json_t *product = json_array();
    es_status status = product ? ES_OK : no_memory();
    if (json_array_size(list) * json_array_size(more) > ES_SCHEMA_ALTERNATIVES_MAX)
        status = es_schema_invalid(run, NULL, "too many combinations of alternatives (allOf, anyOf, oneOf)");
    for (size_t i = 0; i < json_array_size(list) && status == ES_OK; i++)
        for (size_t k = 0; k < json_array_size(more) && status == ES_OK; k++) {
            json_t *merged = NULL;
            status = es_schema_step(run);
            if (status == ES_OK) status = merge(run, json_array_get(list, i), json_array_get(more, k), &merged);
            if (status == ES_OK && json_array_append(product, merged) != 0) status = no_memory();
        }
    json_array_clear(list);
    if (status == ES_OK && json_array_extend(list, product) != 0) status = no_memory();
    json_decref(product);
    return status;
}

static es_status cross_with(es_schema_run *run, json_t *list, const json_t *schema)
{
    json_t *more = json_array();
    es_status status = more ? es_schema_flatten(run, schema, more) : no_memory();
    if (status == ES_OK) status = cross(run, list, more);
    json_decref(more);
    return status;
}

static es_status cross_choice(es_schema_run *run, json_t *list, const json_t *choice, const char *keyword)
{
    json_t *more = json_array();
    es_status status = more ? ES_OK : no_memory();
    const size_t mark = run->path.bytes;
    if (!json_is_array(choice) || json_array_size(choice) == 0)
        status = es_schema_invalid(run, keyword, "must be a list of at least one schema");
    for (size_t i = 0; i < json_array_size(choice) && status == ES_OK; i++) {
        es_schema_enter(run, ".%s[%zu]", keyword, i);
        status = es_schema_flatten(run, json_array_get(choice, i), more);
        if (status == ES_OK) es_schema_leave(run, mark);
    }
    if (status == ES_OK) status = cross(run, list, more);
    json_decref(more);
    return status;
}

/* The schema without what is multiplied out, and without what says nothing. const is an enum of one. */
static es_status plain_part(es_schema_run *run, const json_t *schema, json_t **plain)
{
    json_t *copy = es_schema_keep(run, json_object());
    const char *name;
    json_t *value;
    if (!copy) return no_memory();
    json_object_foreach((json_t *)schema, name, value)
    {
        static const char *const others[] = {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired",
                                             "dependentSchemas", "dependencies", "contains", "minContains", "maxContains", "const",
                                             "nullable", NULL};
        if (names_keyword(name, others) || es_schema_is_annotation(name)) continue;
        if (json_object_set(copy, name, value) != 0) return no_memory();
    }
    json_t *only = json_object_get(schema, "const");
    if (only && json_object_get(copy, "enum")) {
        json_t *list = json_pack("[O]", only), *kept = NULL;
        const es_status status = list ? merge_enums(json_object_get(copy, "enum"), list, &kept) : no_memory();
        json_decref(list);
        if (kept) json_object_set_new(copy, "enum", kept);
        ES_TRY(status);
    } else if (only && json_object_set_new(copy, "enum", json_pack("[O]", only)) != 0) {
        return no_memory();
    }
    if (json_is_true(json_object_get(schema, "nullable")) && json_object_get(schema, "type")) {
        unsigned types;
        ES_TRY(es_schema_types(run, schema, &types)); /* says whether it is one or a list of them */
        json_t *type = json_object_get(schema, "type");
        json_t *list = json_is_array(type) ? json_copy(type) : json_pack("[O]", type);
        if (!list || json_array_append_new(list, json_string("null")) != 0) return no_memory();
        json_object_set_new(copy, "type", list);
    }
    *plain = copy;
    return ES_OK;
}

static es_status flatten_object(es_schema_run *run, const json_t *schema, json_t *list)
{
    json_t *plain;
    const size_t mark = run->path.bytes;
    ES_TRY(es_schema_check_keywords(run, schema));
    ES_TRY(plain_part(run, schema, &plain));
    if (json_array_append(list, plain) != 0) return no_memory();
    if (json_object_get(schema, "$ref")) {
        const json_t *target;
        ES_TRY(es_schema_resolve(run, schema, &target));
        es_schema_enter(run, " -> %s", json_string_value(json_object_get(schema, "$ref")));
        ES_TRY(cross_with(run, list, target));
        es_schema_leave(run, mark);
    }
    json_t *all = json_object_get(schema, "allOf");
    if (all && !json_is_array(all)) return es_schema_invalid(run, "allOf", "must be a list of schemas");
    for (size_t i = 0; i < json_array_size(all); i++) {
        es_schema_enter(run, ".allOf[%zu]", i);
        ES_TRY(cross_with(run, list, json_array_get(all, i)));
        es_schema_leave(run, mark);
    }
    if (json_object_get(schema, "anyOf")) ES_TRY(cross_choice(run, list, json_object_get(schema, "anyOf"), "anyOf"));
    json_t *choices = es_schema_keep(run, json_array()), *alternatives;
    if (!choices) return no_memory();
    ES_TRY(es_schema_choices(run, schema, choices));
    for (size_t i = 0; i < json_array_size(choices); i++) ES_TRY(cross_choice(run, list, json_array_get(choices, i), "not"));
    if (!json_object_get(schema, "oneOf")) return ES_OK;
    ES_TRY(es_schema_one_of(run, json_object_get(schema, "oneOf"), &alternatives));
    return cross_choice(run, list, alternatives, "oneOf");
}

es_status es_schema_flatten(es_schema_run *run, const json_t *schema, json_t *out)
{
    if (json_is_false(schema)) return ES_OK;
    json_t *list = json_array();
    es_status status = list ? es_schema_step(run) : no_memory();
    run->depth++;
    if (status == ES_OK && json_is_true(schema))
        status = json_array_append_new(list, json_object()) == 0 ? ES_OK : no_memory();
    else if (status == ES_OK && !json_is_object(schema))
        status = es_schema_invalid(run, NULL, "a schema must be an object, true or false");
    else if (status == ES_OK)
        status = flatten_object(run, schema, list);
    run->depth--;
    if (status == ES_OK && (json_array_extend(run->kept, list) != 0 || json_array_extend(out, list) != 0))
        status = no_memory();
    json_decref(list);
    return status;
}

/* ---- oneOf: can a text follow two? ---- */

static es_status differ(es_schema_run *run, const json_t *a, const json_t *b, int depth, bool *apart);

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *entry = json_string_value(json_array_get(list, i));
        if (entry && strcmp(entry, name) == 0) return true;
    }
    return false;
}

/* One requires what the other never writes, and the other's readers would miss it. */
static bool misses_required(const json_t *a, const json_t *b)
{
    const json_t *list = json_object_get(a, "required"), *others = json_object_get(b, "additionalProperties");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const json_t *declared = name ? json_object_get(json_object_get(b, "properties"), name) : json_true();
        if ((!declared || json_is_false(declared)) && json_is_false(others)) return true;
    }
    return false;
}

static es_status objects_differ(es_schema_run *run, const json_t *a, const json_t *b, int depth, bool *apart)
{
    const char *name;
    json_t *schema;
    *apart = misses_required(a, b) || misses_required(b, a);
    json_object_foreach(json_object_get(a, "properties"), name, schema)
    {
        json_t *other = json_object_get(json_object_get(b, "properties"), name);
        if (*apart) return ES_OK;
        if (other && is_required(a, name) && is_required(b, name)) ES_TRY(differ(run, schema, other, depth - 1, apart));
    }
    return ES_OK;
}

static bool numbers_differ(const json_t *a, const json_t *b)
{
    const json_t *most = json_object_get(a, "maximum"), *least = json_object_get(b, "minimum");
    return json_is_number(most) && json_is_number(least) && json_number_value(most) < json_number_value(least);
}

static bool counts_differ(const json_t *a, const json_t *b, const char *max, const char *min)
{
    const json_t *most = json_object_get(a, max), *least = json_object_get(b, min);
    return json_is_integer(most) && json_is_integer(least) && json_integer_value(most) < json_integer_value(least);
}

static es_status plain_differ(es_schema_run *run, const json_t *a, const json_t *b, int depth, bool *apart)
{
    const json_t *pair[] = {a, b};
    unsigned left = ES_TYPE_ANY, right = ES_TYPE_ANY;
    ES_TRY(es_schema_step(run));
    for (int i = 0; i < 2; i++) { /* every value of one is none of the other's */
        const json_t *list = json_object_get(pair[i], "enum");
        bool all = list != NULL;
        for (size_t k = 0; k < json_array_size(list) && all; k++)
            all = es_schema_value_holds(run, json_array_get(list, k), pair[1 - i]) == ES_HOLDS_NO ||
                  es_schema_value_holds(run, json_array_get(list, k), pair[i]) == ES_HOLDS_NO;
        *apart = all;
        if (all) return ES_OK;
    }
    /* Without "type" other types are allowed as well, though none is written: so they count. */
    if (json_object_get(a, "type")) ES_TRY(es_schema_types(run, a, &left));
    if (json_object_get(b, "type")) ES_TRY(es_schema_types(run, b, &right));
    const unsigned common = left & right;
    *apart = common == 0;
    if (common == ES_TYPE_OBJECT) return objects_differ(run, a, b, depth, apart);
    if (common && (common & ~(unsigned)(ES_TYPE_INTEGER | ES_TYPE_NUMBER)) == 0)
        *apart = numbers_differ(a, b) || numbers_differ(b, a);
    if (common == ES_TYPE_STRING)
        *apart = counts_differ(a, b, "maxLength", "minLength") || counts_differ(b, a, "maxLength", "minLength");
    if (common == ES_TYPE_ARRAY)
        *apart = counts_differ(a, b, "maxItems", "minItems") || counts_differ(b, a, "maxItems", "minItems");
    return ES_OK;
}

static es_status differ(es_schema_run *run, const json_t *a, const json_t *b, int depth, bool *apart)
{
    *apart = false;
    if (depth == 0) return ES_OK;
    json_t *left = json_array(), *right = json_array();
    es_status status = left && right ? es_schema_flatten(run, a, left) : no_memory();
    if (status == ES_OK) status = es_schema_flatten(run, b, right);
    bool all = true;
    for (size_t i = 0; i < json_array_size(left) && status == ES_OK && all; i++)
        for (size_t k = 0; k < json_array_size(right) && status == ES_OK && all; k++)
            status = plain_differ(run, json_array_get(left, i), json_array_get(right, k), depth, &all);
    *apart = all;
    json_decref(left);
    json_decref(right);
    return status;
}

/* The alternatives that could hold together with number `at`. */
static es_status find_rivals(es_schema_run *run, const json_t *one_of, size_t at, json_t *rivals)
{
    for (size_t k = 0; k < json_array_size(one_of); k++) {
        bool apart = true;
        if (k == at) continue;
        ES_TRY(differ(run, json_array_get(one_of, at), json_array_get(one_of, k), 4, &apart));
        if (!apart && json_array_append(rivals, json_array_get(one_of, k)) != 0) return no_memory();
    }
    return ES_OK;
}

es_status es_schema_one_of(es_schema_run *run, json_t *one_of, json_t **alternatives)
{
    const size_t count = json_array_size(one_of);
    *alternatives = es_schema_keep(run, json_array());
    if (!*alternatives) return no_memory();
    if (count == 0) return es_schema_invalid(run, "oneOf", "must be a list of at least one schema");
    if (count > ES_SCHEMA_ALTERNATIVES_MAX) return es_schema_invalid(run, "oneOf", "has too many alternatives");
    for (size_t i = 0; i < count; i++) {
        json_t *rivals = es_schema_keep(run, json_array()), *narrowed = json_array_get(one_of, i);
        bool left = true;
        if (!rivals) return no_memory();
        ES_TRY(find_rivals(run, one_of, i, rivals));
        if (json_array_size(rivals)) ES_TRY(es_schema_exclude(run, narrowed, rivals, &narrowed, &left));
        if (!left)
            return es_schema_refuse(run, "oneOf",
                                    "two of its alternatives may hold at once (use anyOf, or give them a "
                                    "required property with different values)");
        if (json_array_append(*alternatives, narrowed) != 0) return no_memory();
    }
    return ES_OK;
}
