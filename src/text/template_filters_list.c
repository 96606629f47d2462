/* template_filters_list.c: filters over sequences. What Jinja2 computes lazily is computed at once here, but still read
 * only once and printed as a generator, so that a template can not tell. */
#include <string.h>

#include "text/template_text.h"

/* A value as comparisons that ignore case see it. */
static tpl_value fold_case(tpl_run *run, tpl_value value, bool case_sensitive)
{
    return case_sensitive || value.kind != TPL_STRING ? value : tpl_recase(run, value.string, CASE_LOWER);
}

static tpl_value filter_join(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    tpl_builder out = {0};
    const tpl_string *between = arg[0].kind == TPL_ABSENT ? NULL : tpl_str(run, arg[0]);
    const tpl_list *items = tpl_iterate(run, self);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        if (i && between) tpl_put_string(run, &out, between);
        tpl_put_str(run, &out, tpl_path(run, items->items[i], arg[1]));
    }
    return tpl_built(run, &out);
}

static tpl_value filter_first(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    if (self.kind == TPL_STREAM) {
        if (self.list->next == self.list->count) return tpl_undefined(NULL);
        return self.list->items[self.list->next++];
    }
    const tpl_list *items = tpl_iterate(run, self);
    return items->count ? items->items[0] : tpl_undefined(NULL);
}

static tpl_value filter_last(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    if (self.kind == TPL_STREAM) {
        tpl_fail(run, ES_INVALID, "a generator has no last item; make it a list first");
        return self;
    }
    const tpl_list *items = tpl_iterate(run, self);
    return items->count ? items->items[items->count - 1] : tpl_undefined(NULL);
}

static tpl_value filter_list(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    const tpl_list *items = tpl_iterate(run, self);
    const tpl_value copy = tpl_list_new(run, TPL_LIST, items->count);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) tpl_list_add(run, copy.list, items->items[i]);
    return copy;
}

static tpl_value filter_reverse(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    if (self.kind == TPL_STRING) {
        const tpl_value bounds[3] = {tpl_none(), tpl_none(), tpl_int(-1)};
        return tpl_slice(run, self, bounds);
    }
    const tpl_list *items = tpl_iterate(run, self);
    const tpl_value reversed =
        self.kind == TPL_STREAM ? tpl_list_new(run, TPL_LIST, items->count) : tpl_stream_new(run, items->count);
    if (!run->status && reversed.kind == TPL_STREAM) reversed.list->label = "list_reverseiterator";
    for (size_t i = items->count; i-- > 0 && tpl_step(run, 1);) tpl_list_add(run, reversed.list, items->items[i]);
    return reversed;
}

/* Merge sort of `items` by `keys`, both moved together. Stable, also when `reverse`. */
static void merge_sort(tpl_run *run, tpl_value *keys, tpl_value *items, tpl_value *room, size_t count, bool reverse)
{
    for (size_t width = 1; width < count && !run->status; width *= 2) {
        for (size_t low = 0; low < count && !run->status; low += 2 * width) {
            const size_t middle = low + width < count ? low + width : count,
                         high = middle + width < count ? middle + width : count;
            size_t a = low, b = middle, n = 0;
            while (a < middle || b < high) {
                bool right = a == middle;
                if (a < middle && b < high && tpl_step(run, 1))
                    right =
                        reverse ? tpl_order(run, keys[a], keys[b], "<") == -1 : tpl_order(run, keys[b], keys[a], "<") == -1;
                const size_t from = right ? b++ : a++;
                room[2 * n] = keys[from];
                room[2 * n++ + 1] = items[from];
            }
            for (size_t i = 0; i < n; i++) keys[low + i] = room[2 * i], items[low + i] = room[2 * i + 1];
        }
    }
}

static tpl_value sorted(tpl_run *run, const tpl_list *from, const tpl_list *keys, bool reverse)
{
    const tpl_value copy = tpl_list_new(run, TPL_LIST, from->count);
    tpl_value *sort_keys = tpl_take(run, from->count + 1, sizeof *sort_keys);
    tpl_value *room = tpl_take(run, from->count + 1, 2 * sizeof *room);
    if (run->status) return copy;
    for (size_t i = 0; i < from->count; i++) {
        sort_keys[i] = keys->items[i];
        tpl_list_add(run, copy.list, from->items[i]);
    }
    merge_sort(run, sort_keys, copy.list->items, room, from->count, reverse);
    return copy;
}

/* "a.b,c": one key made of several members. */
static tpl_value sort_key(tpl_run *run, tpl_value item, tpl_value attribute, bool case_sensitive)
{
    const tpl_value key = tpl_list_new(run, TPL_LIST, 1);
    if (attribute.kind != TPL_STRING) {
        tpl_list_add(run, key.list, fold_case(run, tpl_path(run, item, attribute), case_sensitive));
        return key;
    }
    const char *p = attribute.string->data, *end = p + attribute.string->bytes;
    while (tpl_step(run, 1)) {
        const char *comma = p < end ? memchr(p, ',', (size_t)(end - p)) : NULL;
        const tpl_value path = tpl_text(run, p, (size_t)((comma ? comma : end) - p));
        tpl_list_add(run, key.list, fold_case(run, tpl_path(run, item, path), case_sensitive));
        if (!comma) break;
        p = comma + 1;
    }
    return key;
}

static tpl_value filter_sort(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_list *items = tpl_iterate(run, self);
    const tpl_value keys = tpl_list_new(run, TPL_LIST, items->count);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++)
        tpl_list_add(run, keys.list, sort_key(run, items->items[i], arg[2], tpl_truth(arg[1])));
    return run->status ? keys : sorted(run, items, keys.list, tpl_truth(arg[0]));
}

static tpl_value filter_dictsort(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_string *by = arg[1].kind == TPL_ABSENT ? NULL : tpl_arg_string(run, arg[1], "by");
    const size_t part = by && tpl_is(by, "value");
    if (by && !part && !tpl_is(by, "key")) tpl_fail(run, ES_INVALID, "dictsort: by must be 'key' or 'value'");
    if (self.kind != TPL_DICT) tpl_fail(run, ES_INVALID, "dictsort: a %s is not a dict", tpl_type_name(self));
    const tpl_value items = tpl_list_new(run, TPL_LIST, 0), keys = tpl_list_new(run, TPL_LIST, 0);
    for (size_t i = 0; !run->status && i < self.dict->count && tpl_step(run, 1); i++) {
        const tpl_value pair = tpl_list_new(run, TPL_TUPLE, 2);
        tpl_list_add(run, pair.list, self.dict->pairs[2 * i]);
        tpl_list_add(run, pair.list, self.dict->pairs[2 * i + 1]);
        tpl_list_add(run, items.list, pair);
        tpl_list_add(run, keys.list, fold_case(run, self.dict->pairs[2 * i + part], tpl_truth(arg[0])));
    }
    return run->status ? items : sorted(run, items.list, keys.list, tpl_truth(arg[2]));
}

static tpl_value filter_groupby(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const bool sensitive = tpl_truth(arg[2]);
    const tpl_list *items = tpl_iterate(run, self);
    const tpl_value keys = tpl_list_new(run, TPL_LIST, 0), groups = tpl_list_new(run, TPL_LIST, 0);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        tpl_list_add(run, keys.list, tpl_path_or(run, items->items[i], arg[0], arg[1]));
    }
    const tpl_value folded = tpl_list_new(run, TPL_LIST, 0), pairs = tpl_list_new(run, TPL_LIST, 0);
    for (size_t i = 0; !run->status && i < items->count; i++) {
        const tpl_value pair = tpl_list_new(run, TPL_TUPLE, 2);
        tpl_list_add(run, folded.list, fold_case(run, keys.list->items[i], sensitive));
        tpl_list_add(run, pair.list, keys.list->items[i]);
        tpl_list_add(run, pair.list, items->items[i]);
        tpl_list_add(run, pairs.list, pair);
    }
    if (run->status) return groups;
    const tpl_value order = sorted(run, pairs.list, folded.list, false);
    tpl_value current = {.kind = TPL_ABSENT}, members = {0};
    for (size_t i = 0; !run->status && i < order.list->count && tpl_step(run, 1); i++) {
        const tpl_list *pair = order.list->items[i].list;
        const tpl_value key = fold_case(run, pair->items[0], sensitive);
        if (i == 0 || !tpl_equal(run, key, current)) {
            const tpl_value group = tpl_list_new(run, TPL_TUPLE, 2);
            members = tpl_list_new(run, TPL_LIST, 0);
            if (run->status) break;
            group.list->label = "group";
            tpl_list_add(run, group.list, pair->items[0]);
            tpl_list_add(run, group.list, members);
            tpl_list_add(run, groups.list, group);
            current = key;
        }
        tpl_list_add(run, members.list, pair->items[1]);
    }
    return groups;
}

static tpl_value filter_unique(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_list *items = tpl_iterate(run, self);
    const tpl_value unique = tpl_stream_new(run, 0), seen = tpl_dict_new(run, 0);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        const tpl_value key = fold_case(run, tpl_path(run, items->items[i], arg[1]), tpl_truth(arg[0]));
        const size_t before = seen.dict->count;
        tpl_dict_set(run, seen.dict, key, tpl_none());
        if (seen.dict->count > before) tpl_list_add(run, unique.list, items->items[i]);
    }
    return unique;
}

static tpl_value extreme(tpl_run *run, tpl_value self, const tpl_value *arg, int wanted)
{
    const tpl_list *items = tpl_iterate(run, self);
    tpl_value best = tpl_undefined(NULL), best_key = best;
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        const tpl_value key = fold_case(run, tpl_path(run, items->items[i], arg[1]), tpl_truth(arg[0]));
        if (i && tpl_order(run, key, best_key, wanted < 0 ? "<" : ">") != wanted) continue;
        best = items->items[i];
        best_key = key;
    }
    return best;
}

static tpl_value filter_min(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return extreme(run, self, arg, -1);
}

static tpl_value filter_max(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return extreme(run, self, arg, 1);
}

static tpl_value filter_sum(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    tpl_value total = arg[1].kind == TPL_ABSENT ? tpl_int(0) : arg[1];
    if (total.kind == TPL_STRING) tpl_fail(run, ES_INVALID, "sum: strings are joined with join");
    const tpl_list *items = tpl_iterate(run, self);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++)
        total = tpl_arithmetic(run, '+', total, tpl_path(run, items->items[i], arg[0]));
    return total;
}

static tpl_value filter_batch(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const int64_t size = tpl_arg_integer(run, arg[0], 1, "linecount");
    const bool fill = arg[1].kind != TPL_ABSENT && arg[1].kind != TPL_NONE;
    const tpl_list *items = tpl_iterate(run, self);
    const tpl_value batches = tpl_stream_new(run, 0);
    tpl_value batch = tpl_list_new(run, TPL_LIST, 0);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        if ((int64_t)batch.list->count == size) {
            tpl_list_add(run, batches.list, batch);
            batch = tpl_list_new(run, TPL_LIST, 0);
        }
        tpl_list_add(run, batch.list, items->items[i]);
    }
    if (run->status || batch.list->count == 0) return batches;
    while (fill && (int64_t)batch.list->count < size && tpl_step(run, 1)) tpl_list_add(run, batch.list, arg[1]);
    tpl_list_add(run, batches.list, batch);
    return batches;
}

static tpl_value filter_slice(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const int64_t slices = tpl_arg_integer(run, arg[0], 1, "slices");
    const bool fill = arg[1].kind != TPL_ABSENT && arg[1].kind != TPL_NONE;
    const tpl_list *items = tpl_iterate(run, self);
    const tpl_value all = tpl_stream_new(run, 0);
    if (slices == 0) tpl_fail(run, ES_INVALID, "division by zero");
    const int64_t each = slices > 0 ? (int64_t)items->count / slices : 0,
                  extra = slices > 0 ? (int64_t)items->count % slices : 0;
    size_t at = 0;
    for (int64_t i = 0; i < slices && tpl_step(run, 1); i++) {
        const tpl_value part = tpl_list_new(run, TPL_LIST, 0);
        for (int64_t k = 0; k < each + (i < extra) && tpl_step(run, 1); k++) tpl_list_add(run, part.list, items->items[at++]);
        if (fill && i >= extra) tpl_list_add(run, part.list, arg[1]);
        tpl_list_add(run, all.list, part);
    }
    return all;
}

static const tpl_value *named(const tpl_args *args, const char *name)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (tpl_is(args->names[i], name)) return &args->named[i];
    return NULL;
}

static tpl_value filter_map(tpl_run *run, tpl_value self, const tpl_args *args)
{
    const tpl_value *attribute = args->count ? NULL : named(args, "attribute"), *otherwise = named(args, "default");
    const tpl_native *filter = NULL;
    const tpl_value mapped = tpl_stream_new(run, 0);
    tpl_args rest = *args;
    if (!tpl_truth(self)) return mapped;
    if (!attribute) {
        const tpl_string *name = tpl_arg_string(run, args->count ? args->values[0] : tpl_none(), "map: the filter");
        filter = tpl_filter_find(name->data, name->bytes);
        if (!filter) tpl_fail(run, ES_INVALID, "there is no filter named '%.*s' here", tpl_shown(name, 100), name->data);
        rest.values++;
        rest.count--;
    } else if (args->named_count > 1 + (otherwise != NULL)) {
        tpl_fail(run, ES_INVALID, "map: only attribute and default can be named");
    }
    if (run->status || !tpl_enter(run)) return mapped;
    const tpl_list *items = tpl_iterate(run, self);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        tpl_value item = items->items[i];
        item = filter ? tpl_call_native(run, filter, item, &rest)
                      : tpl_path_or(run, item, *attribute, otherwise ? *otherwise : tpl_none());
        tpl_list_add(run, mapped.list, item);
    }
    tpl_leave(run);
    return mapped;
}

static tpl_value keep_if(tpl_run *run, tpl_value self, const tpl_args *args, bool wanted, bool by_attribute)
{
    const size_t skipped = by_attribute ? 1 : 0;
    const tpl_native *test = NULL;
    const tpl_value kept = tpl_stream_new(run, 0);
    tpl_args rest = *args;
    if (!tpl_truth(self)) return kept;
    if (args->count < skipped) tpl_fail(run, ES_INVALID, "selecting by attribute needs the name of one");
    if (!run->status && args->count > skipped) {
        const tpl_string *name = tpl_arg_string(run, args->values[skipped], "the test");
        test = tpl_native_find(tpl_tests, name->data, name->bytes);
        if (!test) tpl_fail(run, ES_INVALID, "there is no test named '%.*s' here", tpl_shown(name, 100), name->data);
        rest.values += skipped + 1;
        rest.count -= skipped + 1;
    }
    if (run->status || !tpl_enter(run)) return kept;
    const tpl_list *items = tpl_iterate(run, self);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        tpl_value subject = items->items[i];
        if (by_attribute) subject = tpl_path(run, subject, args->values[0]);
        if (test) subject = tpl_call_native(run, test, subject, &rest);
        if (tpl_truth(subject) == wanted) tpl_list_add(run, kept.list, items->items[i]);
    }
    tpl_leave(run);
    return kept;
}

static tpl_value filter_select(tpl_run *run, tpl_value self, const tpl_args *args)
{
    return keep_if(run, self, args, true, false);
}

static tpl_value filter_reject(tpl_run *run, tpl_value self, const tpl_args *args)
{
    return keep_if(run, self, args, false, false);
}

static tpl_value filter_selectattr(tpl_run *run, tpl_value self, const tpl_args *args)
{
    return keep_if(run, self, args, true, true);
}

static tpl_value filter_rejectattr(tpl_run *run, tpl_value self, const tpl_args *args)
{
    return keep_if(run, self, args, false, true);
}

const tpl_native tpl_filters_list[] = {
    {"join", "/ d attribute", filter_join, NULL},
    {"first", "", filter_first, NULL},
    {"last", "", filter_last, NULL},
    {"list", "", filter_list, NULL},
    {"reverse", "", filter_reverse, NULL},
    {"sort", "/ reverse case_sensitive attribute", filter_sort, NULL},
    {"dictsort", "/ case_sensitive by reverse", filter_dictsort, NULL},
    {"groupby", "attribute / default case_sensitive", filter_groupby, NULL},
    {"unique", "/ case_sensitive attribute", filter_unique, NULL},
    {"min", "/ case_sensitive attribute", filter_min, NULL},
    {"max", "/ case_sensitive attribute", filter_max, NULL},
    {"sum", "/ attribute start", filter_sum, NULL},
    {"batch", "linecount / fill_with", filter_batch, NULL},
    {"slice", "slices / fill_with", filter_slice, NULL},
    {"map", NULL, NULL, filter_map},
    {"select", NULL, NULL, filter_select},
    {"reject", NULL, NULL, filter_reject},
    {"selectattr", NULL, NULL, filter_selectattr},
    {"rejectattr", NULL, NULL, filter_rejectattr},
    {0},
};
