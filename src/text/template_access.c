/* template_access.c: members, items and slices of values.
 *
 * Jinja2 looks twice: x.y is Python's attribute, else the item "y"; x["y"] is the item, else the attribute. What modifies
 * its object is not there at all, as in jinja2's immutable sandbox. */
#include <string.h>

#include "text/template_syntax.h"

static tpl_value bound_method(tpl_run *run, tpl_value object, const tpl_native *table, const tpl_string *name)
{
    const tpl_native *native = table ? tpl_native_find(table, name->data, name->bytes) : NULL;
    tpl_method *method = native ? tpl_take(run, 1, sizeof *method) : NULL;
    if (!method) return tpl_undefined(name);
    *method = (tpl_method){.self = object, .native = native};
    return (tpl_value){.kind = TPL_METHOD, .method = method};
}

static tpl_value loop_member(tpl_run *run, tpl_value object, const tpl_string *name)
{
    const tpl_loop *loop = object.loop;
    const int64_t index = (int64_t)loop->index, count = (int64_t)loop->items->count;
    if (tpl_is(name, "index")) return tpl_int(index + 1);
    if (tpl_is(name, "index0")) return tpl_int(index);
    if (tpl_is(name, "revindex")) return tpl_int(count - index);
    if (tpl_is(name, "revindex0")) return tpl_int(count - index - 1);
    if (tpl_is(name, "first")) return tpl_bool(index == 0);
    if (tpl_is(name, "last")) return tpl_bool(index + 1 == count);
    if (tpl_is(name, "length")) return tpl_int(count);
    if (tpl_is(name, "depth")) return tpl_int(loop->depth + 1);
    if (tpl_is(name, "depth0")) return tpl_int(loop->depth);
    if (tpl_is(name, "previtem")) return index > 0 ? loop->items->items[index - 1] : tpl_undefined(name);
    if (tpl_is(name, "nextitem")) return index + 1 < count ? loop->items->items[index + 1] : tpl_undefined(name);
    return bound_method(run, object, tpl_loop_methods, name);
}

/* Attributes proper, without items. */
static tpl_value member(tpl_run *run, tpl_value object, const tpl_string *name)
{
    switch (object.kind) {
    case TPL_STRING: return bound_method(run, object, tpl_string_methods, name);
    case TPL_DICT: return bound_method(run, object, tpl_dict_methods, name);
    case TPL_TUPLE:
        if (object.list->label && object.list->count == 2) { /* what groupby gives */
            if (tpl_is(name, "grouper")) return object.list->items[0];
            if (tpl_is(name, "list")) return object.list->items[1];
        }
        return bound_method(run, object, tpl_list_methods, name);
    case TPL_LIST: return bound_method(run, object, tpl_list_methods, name);
    case TPL_NAMESPACE: {
        const tpl_value *found = tpl_dict_text(run, object.dict, name->data, name->bytes);
        return found ? *found : tpl_undefined(name);
    }
    case TPL_LOOP: return loop_member(run, object, name);
    case TPL_MACRO: return tpl_is(name, "name") ? object.macro->node->value : tpl_undefined(name);
    case TPL_CYCLER:
        if (tpl_is(name, "current")) return object.list->items[object.list->next];
        return bound_method(run, object, tpl_cycler_methods, name);
    default: return tpl_undefined(name);
    }
}

tpl_value tpl_attribute(tpl_run *run, tpl_value object, const tpl_string *name)
{
    if (run->status || tpl_refuse_undefined(run, object)) return tpl_undefined(NULL);
    const tpl_value found = member(run, object, name);
    if (found.kind != TPL_UNDEFINED || object.kind != TPL_DICT) return found;
    const tpl_value *item = tpl_dict_text(run, object.dict, name->data, name->bytes);
    return item ? *item : found;
}

static bool item_of_sequence(tpl_run *run, tpl_value object, int64_t index, tpl_value *out)
{
    const int64_t count = tpl_length(object);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return false;
    if (object.kind == TPL_STRING) {
        const tpl_string *s = object.string;
        if (!tpl_step(run, s->points == s->bytes ? 0 : (uint64_t)index / 16)) return false;
        const size_t at = tpl_offset(s, (size_t)index);
        uint32_t point;
        *out = tpl_part(run, s->data + at, tpl_decode(s->data + at, s->data + s->bytes, &point), 1);
    } else if (object.kind == TPL_RANGE) {
        *out = tpl_int(object.range->start + index * object.range->step);
    } else {
        *out = object.list->items[index];
    }
    return true;
}

tpl_value tpl_item(tpl_run *run, tpl_value object, tpl_value key)
{
    if (run->status || tpl_refuse_undefined(run, object)) return tpl_undefined(NULL);
    const tpl_string *name = key.kind == TPL_STRING ? key.string : NULL;
    tpl_value found;
    switch (object.kind) {
    case TPL_DICT: {
        const tpl_value *item = tpl_dict_get(run, object.dict, key);
        if (item) return *item;
        break;
    }
    case TPL_STRING:
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
        if (tpl_is_integer(key) && item_of_sequence(run, object, tpl_as_integer(key), &found))
            return tpl_is_markup(object) ? tpl_mark(run, found) : found;
        break;
    default: break;
    }
    return name ? member(run, object, name) : tpl_undefined(NULL);
}

/* Python's slice.indices(). */
static bool slice_bounds(tpl_run *run, const tpl_value bounds[3], int64_t count, int64_t *start, int64_t *stop, int64_t *step,
                         int64_t *taken)
{
    int64_t value[3];
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind != TPL_NONE && !tpl_is_integer(bounds[i])) {
            tpl_fail(run, ES_INVALID, "a %s can not be the bound of a slice", tpl_type_name(bounds[i]));
            return false;
        }
        value[i] = bounds[i].kind == TPL_NONE ? 0 : tpl_as_integer(bounds[i]);
    }
    *step = bounds[2].kind == TPL_NONE ? 1 : value[2];
    if (*step == 0) {
        tpl_fail(run, ES_INVALID, "the step of a slice is 0");
        return false;
    }
    if (*step < -INT32_MAX) *step = -INT32_MAX;
    if (*step > INT32_MAX) *step = INT32_MAX;
    const bool down = *step < 0;
    const int64_t low = down ? -1 : 0, high = down ? count - 1 : count;
    int64_t edge[2];
    for (int i = 0; i < 2; i++) {
        int64_t v = value[i];
        if (bounds[i].kind == TPL_NONE) {
            edge[i] = (i == 0) == down ? high : low;
            continue;
        }
        if (v < 0) v = v < -count ? low : v + count;
        edge[i] = v < low ? low : v > high ? high : v;
    }
    const int64_t span = down ? edge[0] - edge[1] : edge[1] - edge[0];
    const int64_t stride = down ? -*step : *step;
    *start = edge[0];
    *stop = edge[1];
    *taken = span > 0 ? (span - 1) / stride + 1 : 0;
    return true;
}

static tpl_value slice_string(tpl_run *run, const tpl_string *s, int64_t start, int64_t step, int64_t taken)
{
    if (taken == 0) return tpl_text(run, "", 0);
    if (!tpl_step(run, s->bytes / 256)) return tpl_undefined(NULL);
    if (step == 1) {
        const size_t from = tpl_offset(s, (size_t)start), to = tpl_offset(s, (size_t)(start + taken));
        return tpl_part(run, s->data + from, to - from, (size_t)taken);
    }
    tpl_builder out = {0};
    const char *p = s->data + tpl_offset(s, (size_t)start);
    for (int64_t i = 0; i < taken && !run->status; i++) {
        uint32_t point;
        tpl_put(run, &out, p, tpl_decode(p, s->data + s->bytes, &point));
        if (i + 1 == taken || !tpl_step(run, 1)) break;
        for (int64_t left = step < 0 ? -step : step; left > 0;) {
            p += step < 0 ? -1 : 1;
            if (((unsigned char)*p & 0xC0) != 0x80) left--;
        }
    }
    return tpl_built(run, &out);
}

tpl_value tpl_slice(tpl_run *run, tpl_value object, const tpl_value bounds[3])
{
    int64_t start, stop, step, taken;
    if (run->status || tpl_refuse_undefined(run, object)) return tpl_undefined(NULL);
    if (object.kind != TPL_STRING && object.kind != TPL_LIST && object.kind != TPL_TUPLE && object.kind != TPL_RANGE) {
        tpl_fail(run, ES_INVALID, "a %s can not be sliced", tpl_type_name(object));
        return tpl_undefined(NULL);
    }
    if (!slice_bounds(run, bounds, tpl_length(object), &start, &stop, &step, &taken)) return tpl_undefined(NULL);
    if (object.kind == TPL_STRING) {
        const tpl_value part = slice_string(run, object.string, start, step, taken);
        return tpl_is_markup(object) ? tpl_mark(run, part) : part;
    }
    if (object.kind == TPL_RANGE) {
        tpl_range *range = tpl_take(run, 1, sizeof *range);
        if (!range) return tpl_undefined(NULL);
        const tpl_range *from = object.range;
        *range = (tpl_range){.count = taken};
        if (__builtin_mul_overflow(from->step, step, &range->step) ||
            __builtin_mul_overflow(start, from->step, &range->start) ||
            __builtin_add_overflow(from->start, range->start, &range->start) ||
            __builtin_mul_overflow(stop, from->step, &range->stop) ||
            __builtin_add_overflow(from->start, range->stop, &range->stop))
            tpl_fail(run, ES_INVALID, "a slice of a range does not fit in 64 bits");
        return (tpl_value){.kind = TPL_RANGE, .range = range};
    }
    const tpl_value copy = tpl_list_new(run, object.kind, (size_t)taken);
    for (int64_t i = 0; i < taken && tpl_step(run, 1); i++)
        tpl_list_add(run, copy.list, object.list->items[start + i * step]);
    return copy;
}

static tpl_value step_or(tpl_run *run, tpl_value object, tpl_value key, tpl_value otherwise)
{
    const tpl_value found = tpl_item(run, object, key);
    return found.kind == TPL_UNDEFINED && otherwise.kind != TPL_ABSENT && otherwise.kind != TPL_NONE ? otherwise : found;
}

tpl_value tpl_path(tpl_run *run, tpl_value object, tpl_value path)
{
    return tpl_path_or(run, object, path, tpl_none());
}

tpl_value tpl_path_or(tpl_run *run, tpl_value object, tpl_value path, tpl_value otherwise)
{
    if (path.kind == TPL_NONE || path.kind == TPL_ABSENT) return object;
    if (path.kind != TPL_STRING) return step_or(run, object, path, otherwise);
    const char *p = path.string->data, *end = p + path.string->bytes;
    for (;;) {
        const char *dot = p < end ? memchr(p, '.', (size_t)(end - p)) : NULL;
        const char *stop = dot ? dot : end;
        bool digits = stop > p && stop - p < 10;
        int64_t number = 0;
        for (const char *d = p; d < stop && digits; d++) {
            digits = *d >= '0' && *d <= '9';
            number = number * 10 + (*d - '0');
        }
        object = step_or(run, object, digits ? tpl_int(number) : tpl_text(run, p, (size_t)(stop - p)), otherwise);
        if (!dot || run->status) return object;
        p = dot + 1;
    }
}
