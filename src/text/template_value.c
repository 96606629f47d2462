/* template_value.c: making, comparing and walking the values of a template. */
#include "text/template_value.h"

#include <math.h>
#include <string.h>

static const tpl_string empty_string = {.data = "", .bytes = 0, .points = 0};

tpl_value tpl_part(tpl_run *run, const char *data, size_t bytes, size_t points)
{
    tpl_string *string = bytes ? tpl_take(run, 1, sizeof *string) : NULL;
    if (!string) return (tpl_value){.kind = TPL_STRING, .string = &empty_string};
    *string = (tpl_string){.data = data, .bytes = bytes, .points = points};
    return (tpl_value){.kind = TPL_STRING, .string = string};
}

tpl_value tpl_text(tpl_run *run, const char *data, size_t bytes)
{
    return tpl_part(run, data, bytes, tpl_points(data, bytes));
}

tpl_value tpl_literal(tpl_run *run, const char *text)
{
    return tpl_text(run, text, strlen(text));
}

/* A value of a container kind always has its container, even after a failure: nobody needs to check the pointer. */
tpl_value tpl_list_new(tpl_run *run, tpl_kind kind, size_t capacity)
{
    tpl_list *list = tpl_take(run, 1, sizeof *list);
    if (!list) return tpl_undefined(NULL);
    if (capacity) {
        list->items = tpl_take(run, capacity, sizeof *list->items);
        if (!list->items) return tpl_undefined(NULL);
        list->capacity = capacity;
    }
    return (tpl_value){.kind = kind, .list = list};
}

void tpl_list_add(tpl_run *run, tpl_list *list, tpl_value item)
{
    if (run->status) return;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? list->capacity * 2 : 4;
        tpl_value *items = tpl_take(run, capacity, sizeof *items);
        if (!items) return;
        if (list->count) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
}

tpl_value tpl_stream_new(tpl_run *run, size_t capacity)
{
    tpl_value stream = tpl_list_new(run, TPL_STREAM, capacity);
    if (stream.kind == TPL_STREAM) stream.list->label = "generator";
    return stream;
}

tpl_value tpl_dict_new(tpl_run *run, size_t capacity)
{
    tpl_dict *dict = tpl_take(run, 1, sizeof *dict);
    if (!dict) return tpl_undefined(NULL);
    if (capacity) {
        dict->pairs = capacity > SIZE_MAX / 64 ? NULL : tpl_take(run, capacity * 2, sizeof *dict->pairs);
        if (!dict->pairs) return tpl_undefined(NULL);
        dict->capacity = capacity;
    }
    return (tpl_value){.kind = TPL_DICT, .dict = dict};
}

static bool hashable(tpl_value value)
{
    if (value.kind == TPL_TUPLE) {
        for (size_t i = 0; i < value.list->count; i++)
            if (!hashable(value.list->items[i])) return false;
        return true;
    }
    return value.kind != TPL_LIST && value.kind != TPL_DICT && value.kind != TPL_VIEW;
}

const tpl_value *tpl_dict_get(tpl_run *run, const tpl_dict *dict, tpl_value key)
{
    if (key.kind == TPL_STRING) return tpl_dict_text(run, dict, key.string->data, key.string->bytes);
    if (!tpl_step(run, dict->count / 16)) return NULL;
    for (size_t i = 0; i < dict->count; i++)
        if (tpl_equal(run, dict->pairs[2 * i], key)) return &dict->pairs[2 * i + 1];
    return NULL;
}

const tpl_value *tpl_dict_text(tpl_run *run, const tpl_dict *dict, const char *key, size_t bytes)
{
    if (!tpl_step(run, dict->count / 16)) return NULL;
    for (size_t i = 0; i < dict->count; i++) {
        const tpl_value k = dict->pairs[2 * i];
        if (k.kind == TPL_STRING && k.string->bytes == bytes && memcmp(k.string->data, key, bytes) == 0)
            return &dict->pairs[2 * i + 1];
    }
    return NULL;
}

static void append_pair(tpl_run *run, tpl_dict *dict, tpl_value key, tpl_value value)
{
    if (dict->count == dict->capacity) {
        const size_t capacity = dict->capacity ? dict->capacity * 2 : 4;
        tpl_value *pairs = tpl_take(run, capacity * 2, sizeof *pairs);
        if (!pairs) return;
        if (dict->count) memcpy(pairs, dict->pairs, dict->count * 2 * sizeof *pairs);
        dict->pairs = pairs;
        dict->capacity = capacity;
    }
    dict->pairs[2 * dict->count] = key;
    dict->pairs[2 * dict->count + 1] = value;
    dict->count++;
}

void tpl_dict_set(tpl_run *run, tpl_dict *dict, tpl_value key, tpl_value value)
{
    if (!hashable(key)) {
        tpl_fail(run, ES_INVALID, "a %s can not be the key of a dict", tpl_type_name(key));
        return;
    }
    tpl_value *found = (tpl_value *)tpl_dict_get(run, dict, key);
    if (run->status) return;
    if (found)
        *found = value;
    else
        append_pair(run, dict, key, value);
}

tpl_value tpl_from_json(tpl_run *run, const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_NULL: return tpl_none();
    case JSON_TRUE: return tpl_bool(true);
    case JSON_FALSE: return tpl_bool(false);
    case JSON_INTEGER: return tpl_int(json_integer_value(json));
    case JSON_REAL: return tpl_float(json_real_value(json));
    case JSON_STRING: return tpl_text(run, json_string_value(json), json_string_length(json));
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    if (!tpl_enter(run)) return tpl_undefined(NULL);
    tpl_value value;
    if (json_is_array(json)) {
        value = tpl_list_new(run, TPL_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json) && tpl_step(run, 1); i++)
            tpl_list_add(run, value.list, tpl_from_json(run, json_array_get(json, i)));
    } else {
        value = tpl_dict_new(run, json_object_size(json));
        /* jansson keeps members in the order they came and its keys are distinct. */
        for (void *it = json_object_iter((json_t *)json); it && tpl_step(run, 1);
             it = json_object_iter_next((json_t *)json, it)) {
            const char *key = json_object_iter_key(it);
            append_pair(run, value.dict, tpl_text(run, key, json_object_iter_key_len(it)),
                        tpl_from_json(run, json_object_iter_value(it)));
        }
    }
    tpl_leave(run);
    return run->status ? tpl_undefined(NULL) : value;
}

bool tpl_is_integer(tpl_value value)
{
    return value.kind == TPL_INT || value.kind == TPL_BOOL;
}

bool tpl_is_number(tpl_value value)
{
    return tpl_is_integer(value) || value.kind == TPL_FLOAT;
}

int64_t tpl_as_integer(tpl_value value)
{
    return value.kind == TPL_BOOL ? value.boolean : value.integer;
}

double tpl_as_real(tpl_value value)
{
    return value.kind == TPL_FLOAT ? value.real : (double)tpl_as_integer(value);
}

bool tpl_truth(tpl_value value)
{
    switch (value.kind) {
    case TPL_UNDEFINED:
    case TPL_ABSENT:
    case TPL_NONE: return false;
    case TPL_BOOL: return value.boolean;
    case TPL_INT: return value.integer != 0;
    case TPL_FLOAT: return value.real != 0;
    case TPL_STRING: return value.string->bytes != 0;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW: return value.list->count != 0;
    case TPL_DICT: return value.dict->count != 0;
    case TPL_RANGE: return value.range->count != 0;
    default: return true;
    }
}

bool tpl_is(const tpl_string *string, const char *text)
{
    return strlen(text) == string->bytes && memcmp(string->data, text, string->bytes) == 0;
}

bool tpl_same_text(const tpl_string *a, const tpl_string *b)
{
    return a == b || (a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0);
}

static bool equal_lists(tpl_run *run, const tpl_list *a, const tpl_list *b)
{
    if (a->count != b->count || !tpl_enter(run)) return false;
    bool same = true;
    for (size_t i = 0; same && i < a->count && tpl_step(run, 1); i++) same = tpl_equal(run, a->items[i], b->items[i]);
    tpl_leave(run);
    return same;
}

static bool equal_dicts(tpl_run *run, const tpl_dict *a, const tpl_dict *b)
{
    if (a->count != b->count || !tpl_enter(run)) return false;
    bool same = true;
    for (size_t i = 0; same && i < a->count && tpl_step(run, 1); i++) {
        const tpl_value *other = tpl_dict_get(run, b, a->pairs[2 * i]);
        same = other && tpl_equal(run, a->pairs[2 * i + 1], *other);
    }
    tpl_leave(run);
    return same;
}

bool tpl_equal(tpl_run *run, tpl_value a, tpl_value b)
{
    if (run->status) return false;
    if (tpl_is_number(a) && tpl_is_number(b)) {
        if (tpl_is_integer(a) && tpl_is_integer(b)) return tpl_as_integer(a) == tpl_as_integer(b);
        return tpl_as_real(a) == tpl_as_real(b);
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case TPL_UNDEFINED:
    case TPL_ABSENT:
    case TPL_NONE: return true;
    case TPL_STRING: return tpl_same_text(a.string, b.string);
    case TPL_LIST:
    case TPL_TUPLE: return equal_lists(run, a.list, b.list);
    case TPL_DICT: return equal_dicts(run, a.dict, b.dict);
    case TPL_RANGE:
        return a.range->count == b.range->count &&
               (a.range->count == 0 ||
                (a.range->start == b.range->start && (a.range->count == 1 || a.range->step == b.range->step)));
    case TPL_METHOD: return a.method->native == b.method->native && tpl_equal(run, a.method->self, b.method->self);
    default: return a.list == b.list;
    }
}

int tpl_order(tpl_run *run, tpl_value a, tpl_value b, const char *op)
{
    if (run->status || tpl_refuse_undefined(run, a) || tpl_refuse_undefined(run, b)) return 0;
    if (tpl_is_number(a) && tpl_is_number(b)) {
        if (tpl_is_integer(a) && tpl_is_integer(b)) {
            const int64_t x = tpl_as_integer(a), y = tpl_as_integer(b);
            return x < y ? -1 : x > y;
        }
        const double x = tpl_as_real(a), y = tpl_as_real(b);
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    if (a.kind == TPL_STRING && b.kind == TPL_STRING) {
        const size_t n = a.string->bytes < b.string->bytes ? a.string->bytes : b.string->bytes;
        const int c = n ? memcmp(a.string->data, b.string->data, n) : 0;
        return c ? (c < 0 ? -1 : 1) : a.string->bytes < b.string->bytes ? -1 : a.string->bytes > b.string->bytes;
    }
    if (a.kind == b.kind && (a.kind == TPL_LIST || a.kind == TPL_TUPLE)) {
        if (!tpl_enter(run)) return 0;
        int c = 0;
        size_t i = 0;
        for (; i < a.list->count && i < b.list->count && tpl_step(run, 1); i++)
            if (!tpl_equal(run, a.list->items[i], b.list->items[i])) {
                c = tpl_order(run, a.list->items[i], b.list->items[i], op);
                break;
            }
        if (c == 0 && (i == a.list->count || i == b.list->count))
            c = a.list->count < b.list->count ? -1 : a.list->count > b.list->count;
        tpl_leave(run);
        return c;
    }
    tpl_fail(run, ES_INVALID, "'%s' is not supported between a %s and a %s", op, tpl_type_name(a), tpl_type_name(b));
    return 0;
}

int64_t tpl_length(tpl_value value)
{
    switch (value.kind) {
    case TPL_UNDEFINED: return 0;
    case TPL_STRING: return (int64_t)value.string->points;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW: return (int64_t)value.list->count;
    case TPL_DICT: return (int64_t)value.dict->count;
    case TPL_RANGE: return value.range->count;
    case TPL_LOOP: return (int64_t)value.loop->items->count;
    default: return -1;
    }
}

bool tpl_iterable(tpl_value value)
{
    return value.kind == TPL_STREAM || value.kind == TPL_LOOP || tpl_length(value) >= 0;
}

static void split_characters(tpl_run *run, const tpl_string *string, tpl_list *list)
{
    const char *p = string->data, *end = p + string->bytes;
    while (p < end && tpl_step(run, 1)) {
        uint32_t point;
        const size_t n = tpl_decode(p, end, &point);
        tpl_list_add(run, list, tpl_part(run, p, n, 1));
        p += n;
    }
}

tpl_list *tpl_iterate(tpl_run *run, tpl_value value)
{
    static tpl_list nothing; /* never written: what iterating gives after a failure, or over an undefined value */
    if (run->status || value.kind == TPL_UNDEFINED) return &nothing;
    if (value.kind == TPL_LIST || value.kind == TPL_TUPLE || value.kind == TPL_VIEW) return value.list;
    if (!tpl_iterable(value) || value.kind == TPL_LOOP) {
        tpl_fail(run, ES_INVALID, "a %s can not be iterated over", tpl_type_name(value));
        return &nothing;
    }
    const size_t count = value.kind == TPL_STREAM ? value.list->count - value.list->next : (size_t)tpl_length(value);
    const tpl_value copy = tpl_list_new(run, TPL_LIST, count);
    if (run->status) return &nothing;
    if (value.kind == TPL_STRING) {
        split_characters(run, value.string, copy.list);
    } else if (value.kind == TPL_DICT) {
        for (size_t i = 0; i < value.dict->count && tpl_step(run, 1); i++)
            tpl_list_add(run, copy.list, value.dict->pairs[2 * i]);
    } else if (value.kind == TPL_RANGE) {
        for (int64_t i = 0; i < value.range->count && tpl_step(run, 1); i++)
            tpl_list_add(run, copy.list, tpl_int(value.range->start + i * value.range->step));
    } else {
        for (size_t i = value.list->next; i < value.list->count && tpl_step(run, 1); i++)
            tpl_list_add(run, copy.list, value.list->items[i]);
        value.list->next = value.list->count;
    }
    return run->status ? &nothing : copy.list;
}

const char *tpl_type_name(tpl_value value)
{
    switch (value.kind) {
    case TPL_UNDEFINED:
    case TPL_ABSENT: return "undefined value";
    case TPL_NONE: return "None";
    case TPL_BOOL: return "bool";
    case TPL_INT: return "int";
    case TPL_FLOAT: return "float";
    case TPL_STRING: return "str";
    case TPL_LIST: return "list";
    case TPL_TUPLE: return "tuple";
    case TPL_STREAM:
    case TPL_VIEW: return value.list->label;
    case TPL_DICT: return "dict";
    case TPL_RANGE: return "range";
    case TPL_NAMESPACE: return "namespace";
    case TPL_MACRO: return "macro";
    case TPL_METHOD: return "method";
    case TPL_FUNCTION: return "function";
    case TPL_LOOP: return "loop";
    case TPL_JOINER: return "joiner";
    case TPL_CYCLER: return "cycler";
    }
    return "value";
}

int tpl_shown(const tpl_string *string, size_t most)
{
    size_t n = string->bytes < most ? string->bytes : most;
    while (n > 0 && n < string->bytes && ((unsigned char)string->data[n] & 0xC0) == 0x80) n--;
    return (int)n;
}

bool tpl_refuse_undefined(tpl_run *run, tpl_value value)
{
    if (value.kind != TPL_UNDEFINED) return false;
    if (value.string)
        tpl_fail(run, ES_INVALID, "'%.*s' is undefined", tpl_shown(value.string, 200),
                 value.string->data);
    else
        tpl_fail(run, ES_INVALID, "a value that is needed here is undefined");
    return true;
}
