/* template_methods.c: the methods of str, list, tuple, dict, loop and cycler; one row each at the end. */
#include <string.h>

#include "text/template_text.h"

static const tpl_string *optional_chars(tpl_run *run, tpl_value chars)
{
    return chars.kind == TPL_ABSENT || chars.kind == TPL_NONE ? NULL : tpl_arg_string(run, chars, "the characters to strip");
}

static tpl_value str_strip(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_strip(run, self.string, optional_chars(run, arg[0]), STRIP_LEFT | STRIP_RIGHT);
}

static tpl_value str_lstrip(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_strip(run, self.string, optional_chars(run, arg[0]), STRIP_LEFT);
}

static tpl_value str_rstrip(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_strip(run, self.string, optional_chars(run, arg[0]), STRIP_RIGHT);
}

/* Splitting at runs of white space; `limit` pieces at most are cut off, from the left or from the right. */
static void split_space(tpl_run *run, const tpl_string *string, int64_t limit, bool right, tpl_list *out)
{
    const char *start = string->data, *end = start + string->bytes;
    tpl_step(run, string->bytes / 32);
    for (; start < end && !run->status; limit--) {
        const tpl_string rest = {.data = start, .bytes = (size_t)(end - start), .points = 0};
        const tpl_value trimmed = tpl_strip(run, &rest, NULL, right ? STRIP_RIGHT : STRIP_LEFT);
        start = trimmed.string->data;
        end = start + trimmed.string->bytes;
        if (start == end) break;
        const char *cut = right ? end : start;
        if (limit == 0) {
            tpl_list_add(run, out, trimmed);
            break;
        }
        while (right ? cut > start : cut < end) {
            const char *p = cut;
            uint32_t c;
            if (right) {
                do p--;
                while (p > start && ((unsigned char)*p & 0xC0) == 0x80);
                tpl_decode(p, end, &c);
            } else {
                p += tpl_decode(p, end, &c);
            }
            if (tpl_is_space(c)) break;
            cut = p;
        }
        tpl_list_add(run, out, right ? tpl_text(run, cut, (size_t)(end - cut)) : tpl_text(run, start, (size_t)(cut - start)));
        if (right)
            end = cut;
        else
            start = cut;
    }
}

static void split_at(tpl_run *run, const tpl_string *string, const tpl_string *mark, int64_t limit, bool right, tpl_list *out)
{
    size_t from = 0, to = string->bytes;
    for (; limit != 0 && tpl_step(run, 1); limit--) {
        const size_t at = tpl_find(run, string, mark, from, to, right);
        if (at == SIZE_MAX) break;
        const size_t begin = right ? at + mark->bytes : from, end = right ? to : at;
        tpl_list_add(run, out, tpl_text(run, string->data + begin, end - begin));
        if (right)
            to = at;
        else
            from = at + mark->bytes;
    }
    tpl_list_add(run, out, tpl_text(run, string->data + from, to - from));
}

static tpl_value split(tpl_run *run, tpl_value self, const tpl_value *arg, bool right)
{
    const int64_t limit = tpl_arg_integer(run, arg[1], -1, "maxsplit");
    const tpl_value parts = tpl_list_new(run, TPL_LIST, 0);
    if (run->status) return parts;
    if (arg[0].kind == TPL_ABSENT || arg[0].kind == TPL_NONE) {
        split_space(run, self.string, limit, right, parts.list);
    } else {
        const tpl_string *mark = tpl_arg_string(run, arg[0], "the separator");
        if (mark->bytes == 0) tpl_fail(run, ES_INVALID, "the separator of split() is empty");
        if (!run->status) split_at(run, self.string, mark, limit, right, parts.list);
    }
    if (!run->status && right) { /* found from the right, listed from the left */
        tpl_value *items = parts.list->items;
        for (size_t i = 0, k = parts.list->count; i + 1 < k; i++) {
            const tpl_value swap = items[i];
            items[i] = items[--k];
            items[k] = swap;
        }
    }
    return parts;
}

static tpl_value str_split(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return split(run, self, arg, false);
}

static tpl_value str_rsplit(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return split(run, self, arg, true);
}

static tpl_value str_splitlines(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_split_lines(run, self.string, tpl_truth(arg[0]));
}

static tpl_value partition(tpl_run *run, tpl_value self, const tpl_value *arg, bool last)
{
    const tpl_string *s = self.string, *mark = tpl_arg_string(run, arg[0], "the separator");
    if (mark->bytes == 0) tpl_fail(run, ES_INVALID, "the separator of partition() is empty");
    const size_t at = tpl_find(run, s, mark, 0, s->bytes, last);
    const tpl_value parts = tpl_list_new(run, TPL_TUPLE, 3), none = tpl_text(run, "", 0);
    const size_t after = at == SIZE_MAX ? 0 : at + mark->bytes;
    if (run->status) return parts;
    tpl_list_add(run, parts.list, at != SIZE_MAX ? tpl_text(run, s->data, at) : last ? none : self);
    tpl_list_add(run, parts.list, at != SIZE_MAX ? arg[0] : none);
    tpl_list_add(run, parts.list, at != SIZE_MAX ? tpl_text(run, s->data + after, s->bytes - after) : last ? self : none);
    return parts;
}

static tpl_value str_partition(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return partition(run, self, arg, false);
}

static tpl_value str_rpartition(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return partition(run, self, arg, true);
}

/* The bytes [from, to) that the optional start and end of find() and its like mean; false when start is past the end. */
static bool window(tpl_run *run, const tpl_string *s, const tpl_value *arg, size_t *from, size_t *to)
{
    const int64_t count = (int64_t)s->points;
    int64_t start = arg[0].kind == TPL_NONE ? 0 : tpl_arg_integer(run, arg[0], 0, "the start");
    int64_t end = arg[1].kind == TPL_NONE ? count : tpl_arg_integer(run, arg[1], count, "the end");
    if (start < 0) start = start + count < 0 ? 0 : start + count;
    if (end < 0) end = end + count < 0 ? 0 : end + count;
    if (end > count) end = count;
    if (start > end) return false;
    *from = tpl_offset(s, (size_t)start);
    *to = tpl_offset(s, (size_t)end);
    return true;
}

static int64_t find(tpl_run *run, tpl_value self, const tpl_value *arg, bool last, bool must)
{
    size_t from, to, at = SIZE_MAX;
    const tpl_string *part = tpl_arg_string(run, arg[0], "what is looked for");
    if (window(run, self.string, arg + 1, &from, &to)) at = tpl_find(run, self.string, part, from, to, last);
    if (at != SIZE_MAX) return (int64_t)tpl_points(self.string->data, at);
    if (must) tpl_fail(run, ES_INVALID, "the part that index() looks for is not there");
    return -1;
}

static tpl_value str_find(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_int(find(run, self, arg, false, false));
}

static tpl_value str_rfind(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_int(find(run, self, arg, true, false));
}

static tpl_value str_index(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_int(find(run, self, arg, false, true));
}

static tpl_value str_rindex(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_int(find(run, self, arg, true, true));
}

static tpl_value str_count(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    size_t from, to;
    int64_t n = 0;
    const tpl_string *part = tpl_arg_string(run, arg[0], "what is counted");
    if (!window(run, self.string, arg + 1, &from, &to)) return tpl_int(0);
    if (part->bytes == 0) return tpl_int((int64_t)tpl_points(self.string->data + from, to - from) + 1);
    for (size_t at; tpl_step(run, 1) && (at = tpl_find(run, self.string, part, from, to, false)) != SIZE_MAX; n++)
        from = at + part->bytes;
    return tpl_int(n);
}

static bool affixed(const tpl_string *s, const tpl_string *part, size_t from, size_t to, bool tail)
{
    if (to - from < part->bytes) return false;
    return part->bytes == 0 || memcmp(s->data + (tail ? to - part->bytes : from), part->data, part->bytes) == 0;
}

static tpl_value has_affix(tpl_run *run, tpl_value self, const tpl_value *arg, bool tail)
{
    size_t from, to;
    const bool fits = window(run, self.string, arg + 1, &from, &to);
    if (arg[0].kind == TPL_TUPLE) {
        for (size_t i = 0; i < arg[0].list->count && tpl_step(run, 1); i++) {
            const tpl_string *part = tpl_arg_string(run, arg[0].list->items[i], "a prefix or suffix");
            if (fits && affixed(self.string, part, from, to, tail)) return tpl_bool(true);
        }
        return tpl_bool(false);
    }
    const tpl_string *part = tpl_arg_string(run, arg[0], "a prefix or suffix");
    return tpl_bool(fits && affixed(self.string, part, from, to, tail));
}

static tpl_value str_startswith(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return has_affix(run, self, arg, false);
}

static tpl_value str_endswith(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return has_affix(run, self, arg, true);
}

static tpl_value str_removeprefix(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_string *s = self.string, *part = tpl_arg_string(run, arg[0], "the prefix");
    return affixed(s, part, 0, s->bytes, false) ? tpl_text(run, s->data + part->bytes, s->bytes - part->bytes) : self;
}

static tpl_value str_removesuffix(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_string *s = self.string, *part = tpl_arg_string(run, arg[0], "the suffix");
    return affixed(s, part, 0, s->bytes, true) ? tpl_text(run, s->data, s->bytes - part->bytes) : self;
}

static tpl_value str_replace(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_value fresh = self.string->markup ? tpl_escape(run, arg[1]) : arg[1];
    return tpl_replace(run, self.string, tpl_arg_string(run, arg[0], "what is replaced"),
                       tpl_arg_string(run, fresh, "the replacement"), tpl_arg_integer(run, arg[2], -1, "count"));
}

static tpl_value str_join(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    tpl_builder out = {0};
    const tpl_list *items = tpl_iterate(run, arg[0]);
    for (size_t i = 0; i < items->count && tpl_step(run, 1); i++) {
        if (i) tpl_put_string(run, &out, self.string);
        const tpl_value item = self.string->markup ? tpl_escape(run, items->items[i]) : items->items[i];
        tpl_put_string(run, &out, tpl_arg_string(run, item, "what join() joins"));
    }
    return tpl_built(run, &out);
}

static tpl_value str_upper(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, self.string, CASE_UPPER);
}

static tpl_value str_lower(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, self.string, CASE_LOWER);
}

static tpl_value str_capitalize(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, self.string, CASE_CAPITALIZE);
}

static tpl_value str_title(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, self.string, CASE_TITLE);
}

static tpl_value str_swapcase(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, self.string, CASE_SWAP);
}

static tpl_value pad(tpl_run *run, tpl_value self, const tpl_value *arg, bool left, bool right)
{
    uint32_t fill = ' ';
    const int64_t width = tpl_arg_integer(run, arg[0], 0, "the width");
    if (arg[1].kind != TPL_ABSENT) {
        const tpl_string *f = tpl_arg_string(run, arg[1], "the fill character");
        if (f->points != 1) tpl_fail(run, ES_INVALID, "the fill character must be one character");
        if (f->bytes) tpl_decode(f->data, f->data + f->bytes, &fill);
    }
    return tpl_pad(run, self.string, width, fill, left, right);
}

static tpl_value str_center(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return pad(run, self, arg, true, true);
}

static tpl_value str_ljust(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return pad(run, self, arg, false, true);
}

static tpl_value str_rjust(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return pad(run, self, arg, true, false);
}

static tpl_value str_zfill(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_string *s = self.string;
    const int64_t width = tpl_arg_integer(run, arg[0], 0, "the width");
    const bool sign = s->bytes && (*s->data == '+' || *s->data == '-');
    if (!sign) return tpl_pad(run, s, width, '0', true, false);
    const tpl_value digits = tpl_part(run, s->data + 1, s->bytes - 1, s->points - 1);
    const tpl_value padded = tpl_pad(run, digits.string, width - (width > INT64_MIN), '0', true, false);
    return tpl_arithmetic(run, '+', tpl_text(run, s->data, 1), padded);
}

#define STR_IS(name, expression)                                                    \
    static tpl_value str_##name(tpl_run *run, tpl_value self, const tpl_value *arg) \
    {                                                                               \
        (void)arg;                                                                  \
        tpl_step(run, self.string->bytes / 64);                                     \
        return tpl_bool(expression);                                                \
    }

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

static bool is_word_letter(uint32_t c)
{
    return c != '_' && tpl_is_word(c);
}

static bool is_numeric(uint32_t c)
{
    return tpl_is_digit(c) || (is_word_letter(c) && !tpl_is_alpha(c));
}

STR_IS(isalpha, tpl_all(self.string, tpl_is_alpha))
STR_IS(isalnum, tpl_all(self.string, is_word_letter))
STR_IS(isdigit, tpl_all(self.string, tpl_is_digit))
STR_IS(isdecimal, tpl_all(self.string, tpl_is_decimal))
STR_IS(isnumeric, tpl_all(self.string, is_numeric))
STR_IS(isspace, tpl_all(self.string, tpl_is_space))
STR_IS(isascii, self.string->bytes == 0 || tpl_all(self.string, is_ascii))
STR_IS(isupper, tpl_cased(self.string, true))
STR_IS(islower, tpl_cased(self.string, false))

static tpl_value dict_view(tpl_run *run, tpl_value self, int what)
{
    static const char *const labels[] = {"dict_keys", "dict_values", "dict_items"};
    const tpl_value view = tpl_list_new(run, TPL_VIEW, self.dict->count);
    if (run->status) return view;
    view.list->label = labels[what];
    for (size_t i = 0; i < self.dict->count && tpl_step(run, 1); i++) {
        if (what < 2) {
            tpl_list_add(run, view.list, self.dict->pairs[2 * i + (size_t)what]);
            continue;
        }
        const tpl_value pair = tpl_list_new(run, TPL_TUPLE, 2);
        tpl_list_add(run, pair.list, self.dict->pairs[2 * i]);
        tpl_list_add(run, pair.list, self.dict->pairs[2 * i + 1]);
        tpl_list_add(run, view.list, pair);
    }
    return view;
}

static tpl_value dict_keys(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return dict_view(run, self, 0);
}

static tpl_value dict_values(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return dict_view(run, self, 1);
}

static tpl_value dict_items(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return dict_view(run, self, 2);
}

static tpl_value dict_get(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    if (arg[0].kind == TPL_LIST || arg[0].kind == TPL_DICT)
        tpl_fail(run, ES_INVALID, "a %s can not be the key of a dict", tpl_type_name(arg[0]));
    const tpl_value *found = tpl_dict_get(run, self.dict, arg[0]);
    return found ? *found : arg[1].kind == TPL_ABSENT ? tpl_none() : arg[1];
}

static tpl_value dict_copy(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)run;
    (void)arg;
    return self; /* nothing can modify either */
}

static tpl_value list_count(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    int64_t n = 0;
    for (size_t i = 0; i < self.list->count && tpl_step(run, 1); i++) n += tpl_equal(run, self.list->items[i], arg[0]);
    return tpl_int(n);
}

static tpl_value list_index(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const int64_t count = (int64_t)self.list->count;
    int64_t i = tpl_arg_integer(run, arg[1], 0, "the start"), end = tpl_arg_integer(run, arg[2], count, "the end");
    if (i < 0) i = i + count < 0 ? 0 : i + count;
    if (end < 0) end += count;
    for (; i < end && i < count && tpl_step(run, 1); i++)
        if (tpl_equal(run, self.list->items[i], arg[0])) return tpl_int(i);
    tpl_fail(run, ES_INVALID, "what index() looks for is not in the list");
    return tpl_int(-1);
}

static tpl_value list_copy(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    if (self.kind == TPL_TUPLE) tpl_fail(run, ES_INVALID, "a tuple has no copy()");
    return dict_copy(run, self, arg);
}

static tpl_value loop_cycle(tpl_run *run, tpl_value self, const tpl_args *args)
{
    if (args->count) return args->values[self.loop->index % args->count];
    tpl_fail(run, ES_INVALID, "loop.cycle() needs something to cycle through");
    return tpl_undefined(NULL);
}

static tpl_value loop_changed(tpl_run *run, tpl_value self, const tpl_args *args)
{
    const tpl_value now = tpl_list_new(run, TPL_TUPLE, args->count);
    for (size_t i = 0; i < args->count && !run->status; i++) tpl_list_add(run, now.list, args->values[i]);
    if (run->status || tpl_equal(run, self.loop->changed, now)) return tpl_bool(false);
    self.loop->changed = now;
    return tpl_bool(true);
}

static tpl_value cycler_next(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)run;
    (void)arg;
    const tpl_value item = self.list->items[self.list->next];
    self.list->next = (self.list->next + 1) % self.list->count;
    return item;
}

static tpl_value cycler_reset(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)run;
    (void)arg;
    self.list->next = 0;
    return tpl_none();
}

const tpl_native tpl_string_methods[] = {
    {"strip", "/ chars", str_strip, NULL},
    {"lstrip", "/ chars", str_lstrip, NULL},
    {"rstrip", "/ chars", str_rstrip, NULL},
    {"split", "/ sep maxsplit", str_split, NULL},
    {"rsplit", "/ sep maxsplit", str_rsplit, NULL},
    {"splitlines", "/ keepends", str_splitlines, NULL},
    {"partition", "sep", str_partition, NULL},
    {"rpartition", "sep", str_rpartition, NULL},
    {"find", "sub / start end", str_find, NULL},
    {"rfind", "sub / start end", str_rfind, NULL},
    {"index", "sub / start end", str_index, NULL},
    {"rindex", "sub / start end", str_rindex, NULL},
    {"count", "sub / start end", str_count, NULL},
    {"startswith", "prefix / start end", str_startswith, NULL},
    {"endswith", "suffix / start end", str_endswith, NULL},
    {"removeprefix", "prefix", str_removeprefix, NULL},
    {"removesuffix", "suffix", str_removesuffix, NULL},
    {"replace", "old new / count", str_replace, NULL},
    {"join", "items", str_join, NULL},
    {"upper", "", str_upper, NULL},
    {"lower", "", str_lower, NULL},
    {"capitalize", "", str_capitalize, NULL},
    {"title", "", str_title, NULL},
    {"swapcase", "", str_swapcase, NULL},
    {"center", "width / fillchar", str_center, NULL},
    {"ljust", "width / fillchar", str_ljust, NULL},
    {"rjust", "width / fillchar", str_rjust, NULL},
    {"zfill", "width", str_zfill, NULL},
    {"isalpha", "", str_isalpha, NULL},
    {"isalnum", "", str_isalnum, NULL},
    {"isdigit", "", str_isdigit, NULL},
    {"isdecimal", "", str_isdecimal, NULL},
    {"isnumeric", "", str_isnumeric, NULL},
    {"isspace", "", str_isspace, NULL},
    {"isascii", "", str_isascii, NULL},
    {"isupper", "", str_isupper, NULL},
    {"islower", "", str_islower, NULL},
    {"format", NULL, NULL, tpl_format},
    {0},
};

const tpl_native tpl_dict_methods[] = {
    {"keys", "", dict_keys, NULL},
    {"values", "", dict_values, NULL},
    {"items", "", dict_items, NULL},
    {"get", "key / default", dict_get, NULL},
    {"copy", "", dict_copy, NULL},
    {0},
};

const tpl_native tpl_list_methods[] = {
    {"count", "value", list_count, NULL},
    {"index", "value / start stop", list_index, NULL},
    {"copy", "", list_copy, NULL},
    {0},
};

const tpl_native tpl_loop_methods[] = {
    {"cycle", NULL, NULL, loop_cycle},
    {"changed", NULL, NULL, loop_changed},
    {0},
};

const tpl_native tpl_cycler_methods[] = {
    {"next", "", cycler_next, NULL},
    {"reset", "", cycler_reset, NULL},
    {0},
};
