/* template_filters_text.c: filters that make text of their subject. Like Jinja2's they take anything and use its str(). */
#include <string.h>

#include "text/template_text.h"

static tpl_value filter_upper(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, tpl_str(run, self), CASE_UPPER);
}

static tpl_value filter_lower(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, tpl_str(run, self), CASE_LOWER);
}

static tpl_value filter_capitalize(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_recase(run, tpl_str(run, self), CASE_CAPITALIZE);
}

/* Unlike str.title(), words here begin only after white space and - ( { [ <. */
static tpl_value filter_title(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    const tpl_string *s = tpl_str(run, self);
    const char *p = s->data, *end = p + s->bytes;
    tpl_builder out = {0};
    bool inside = false;
    tpl_step(run, s->bytes / 16);
    while (p < end && !run->status) {
        uint32_t c;
        p += tpl_decode(p, end, &c);
        if (inside)
            tpl_put_lower(run, &out, c);
        else
            tpl_put_upper(run, &out, c);
        inside = !(tpl_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c)));
    }
    return tpl_built(run, &out);
}

static tpl_value filter_trim(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const bool given = arg[0].kind != TPL_ABSENT && arg[0].kind != TPL_NONE;
    const tpl_string *chars = given ? tpl_arg_string(run, arg[0], "the characters to trim") : NULL;
    return tpl_strip(run, tpl_str(run, self), chars, STRIP_LEFT | STRIP_RIGHT);
}

static tpl_value filter_replace(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const int64_t count = arg[2].kind == TPL_NONE ? -1 : tpl_arg_integer(run, arg[2], -1, "count");
    return tpl_replace(run, tpl_str(run, self), tpl_str(run, arg[0]), tpl_str(run, arg[1]), count);
}

static tpl_value filter_center(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_pad(run, tpl_str(run, self), tpl_arg_integer(run, arg[0], 80, "the width"), ' ', true, true);
}

static tpl_value filter_string(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return (tpl_value){.kind = TPL_STRING, .string = tpl_str(run, self)};
}

static tpl_value filter_safe(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    return tpl_mark(run, filter_string(run, self, arg));
}

static tpl_value filter_escape(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    return tpl_escape(run, self);
}

static tpl_value filter_forceescape(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    tpl_builder out = {0};
    tpl_put_escaped(run, &out, tpl_str(run, self));
    return tpl_mark(run, tpl_built(run, &out));
}

static tpl_value filter_indent(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    tpl_builder out = {0}, whole = {0};
    tpl_value indent;
    if (arg[0].kind == TPL_STRING)
        indent = arg[0];
    else
        indent = tpl_pad(run, tpl_text(run, "", 0).string, tpl_arg_integer(run, arg[0], 4, "the width"), ' ', true, false);
    tpl_put_string(run, &whole, tpl_arg_string(run, self, "what is indented"));
    tpl_puts(run, &whole, "\n");
    const tpl_value text = tpl_built(run, &whole);
    const tpl_value lines = tpl_split_lines(run, text.string, false);
    if (run->status) return lines;
    if (tpl_truth(arg[1])) tpl_put_string(run, &out, indent.string);
    for (size_t i = 0; i < lines.list->count && tpl_step(run, 1); i++) {
        const tpl_string *line = lines.list->items[i].string;
        if (i) {
            tpl_puts(run, &out, "\n");
            if (line->bytes || tpl_truth(arg[2])) tpl_put_string(run, &out, indent.string);
        }
        tpl_put_string(run, &out, line);
    }
    return tpl_built(run, &out);
}

static tpl_value filter_truncate(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_value end = arg[2].kind == TPL_ABSENT ? tpl_literal(run, "...") : arg[2];
    const tpl_string *tail = tpl_arg_string(run, end, "the end");
    const int64_t length = tpl_arg_integer(run, arg[0], 255, "the length");
    const int64_t leeway = arg[3].kind == TPL_NONE ? 5 : tpl_arg_integer(run, arg[3], 5, "the leeway");
    if (length < (int64_t)tail->points || leeway < 0)
        tpl_fail(run, ES_INVALID, "truncate: the length is less than that of the end");
    if (run->status || (tpl_length(self) >= 0 && (tpl_length(self) <= length || tpl_length(self) - length <= leeway)))
        return self;
    const tpl_string *s = tpl_arg_string(run, self, "what is truncated");
    if (run->status) return self;
    size_t keep = tpl_offset(s, (size_t)length - tail->points);
    if (!tpl_truth(arg[1])) {
        const char *blank = keep ? memrchr(s->data, ' ', keep) : NULL;
        if (blank) keep = (size_t)(blank - s->data);
    }
    return tpl_arithmetic(run, '+', tpl_text(run, s->data, keep), end);
}

static tpl_value filter_wordcount(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    const tpl_string *s = tpl_str(run, self);
    const char *p = s->data, *end = p + s->bytes;
    bool inside = false;
    int64_t words = 0;
    tpl_step(run, s->bytes / 16);
    while (p < end) {
        uint32_t c;
        p += tpl_decode(p, end, &c);
        const bool word = tpl_is_word(c);
        words += word && !inside;
        inside = word;
    }
    return tpl_int(words);
}

static void put_url(tpl_run *run, tpl_builder *out, const tpl_string *s, bool query)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s->bytes && tpl_step(run, i % 16 == 0); i++) {
        const unsigned char c = (unsigned char)s->data[i];
        const char escaped[3] = {'%', hex[c >> 4], hex[c & 15]};
        const bool plain =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("_.-~", c));
        if (plain || (c == '/' && !query))
            tpl_put(run, out, s->data + i, 1);
        else if (c == ' ' && query)
            tpl_puts(run, out, "+");
        else
            tpl_put(run, out, escaped, 3);
    }
}

static tpl_value filter_urlencode(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    tpl_builder out = {0};
    if (self.kind == TPL_STRING || !tpl_iterable(self)) {
        put_url(run, &out, tpl_str(run, self), false);
        return tpl_built(run, &out);
    }
    const tpl_dict *dict = self.kind == TPL_DICT ? self.dict : NULL;
    const tpl_list *pairs = dict ? NULL : tpl_iterate(run, self);
    const size_t count = dict ? dict->count : pairs->count;
    for (size_t i = 0; i < count && tpl_step(run, 1); i++) {
        const tpl_list *pair = dict ? NULL : tpl_iterate(run, pairs->items[i]);
        if (pair && pair->count != 2) tpl_fail(run, ES_INVALID, "urlencode: needs pairs");
        if (run->status) break;
        if (i) tpl_puts(run, &out, "&");
        put_url(run, &out, tpl_str(run, dict ? dict->pairs[2 * i] : pair->items[0]), true);
        tpl_puts(run, &out, "=");
        put_url(run, &out, tpl_str(run, dict ? dict->pairs[2 * i + 1] : pair->items[1]), true);
    }
    return tpl_built(run, &out);
}

static tpl_value filter_format(tpl_run *run, tpl_value self, const tpl_args *args)
{
    if (args->count && args->named_count) tpl_fail(run, ES_INVALID, "format: positional or named values, not both");
    if (args->named_count) {
        const tpl_value named = tpl_dict_new(run, args->named_count);
        for (size_t i = 0; i < args->named_count && !run->status; i++)
            tpl_dict_set(run, named.dict, (tpl_value){.kind = TPL_STRING, .string = args->names[i]}, args->named[i]);
        return run->status ? named : tpl_percent(run, tpl_str(run, self), named);
    }
    const tpl_value values = tpl_list_new(run, TPL_TUPLE, args->count);
    for (size_t i = 0; i < args->count && !run->status; i++) tpl_list_add(run, values.list, args->values[i]);
    return run->status ? values : tpl_percent(run, tpl_str(run, self), values);
}

const tpl_native tpl_filters_text[] = {
    {"upper", "", filter_upper, NULL},
    {"lower", "", filter_lower, NULL},
    {"capitalize", "", filter_capitalize, NULL},
    {"title", "", filter_title, NULL},
    {"trim", "/ chars", filter_trim, NULL},
    {"replace", "old new / count", filter_replace, NULL},
    {"center", "/ width", filter_center, NULL},
    {"string", "", filter_string, NULL},
    {"safe", "", filter_safe, NULL},
    {"escape", "", filter_escape, NULL},
    {"e", "", filter_escape, NULL},
    {"forceescape", "", filter_forceescape, NULL},
    {"indent", "/ width first blank", filter_indent, NULL},
    {"truncate", "/ length killwords end leeway", filter_truncate, NULL},
    {"wordcount", "", filter_wordcount, NULL},
    {"urlencode", "", filter_urlencode, NULL},
    {"format", NULL, NULL, filter_format},
    {0},
};
