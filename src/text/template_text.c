/* template_text.c: Python's operations on str that need more than a line. */
#include "text/template_text.h"

#include <string.h>

static bool strippable(uint32_t c, const tpl_string *chars)
{
    if (!chars) return tpl_is_space(c);
    const char *p = chars->data, *end = p + chars->bytes;
    while (p < end) {
        uint32_t other;
        p += tpl_decode(p, end, &other);
        if (other == c) return true;
    }
    return false;
}

tpl_value tpl_strip(tpl_run *run, const tpl_string *string, const tpl_string *chars, int sides)
{
    const char *start = string->data, *end = start + string->bytes;
    const uint64_t cost = 1 + (chars ? chars->bytes / 8 : 0);
    while ((sides & STRIP_LEFT) && start < end && tpl_step(run, cost)) {
        uint32_t c;
        const size_t n = tpl_decode(start, end, &c);
        if (!strippable(c, chars)) break;
        start += n;
    }
    while ((sides & STRIP_RIGHT) && end > start && tpl_step(run, cost)) {
        const char *p = end - 1;
        while (p > start && ((unsigned char)*p & 0xC0) == 0x80) p--;
        uint32_t c;
        tpl_decode(p, end, &c);
        if (!strippable(c, chars)) break;
        end = p;
    }
    return tpl_text(run, start, (size_t)(end - start));
}

tpl_value tpl_recase(tpl_run *run, const tpl_string *string, tpl_case to)
{
    tpl_builder out = {0};
    const char *p = string->data, *end = p + string->bytes;
    bool inside = false; /* of a word, or past the first letter */
    tpl_step(run, string->bytes / 16);
    while (p < end && !run->status) {
        uint32_t c;
        p += tpl_decode(p, end, &c);
        const bool upper = to == CASE_UPPER || (to == CASE_SWAP && tpl_is_lower(c));
        const bool lower = to != CASE_SWAP || tpl_is_upper(c);
        if ((to == CASE_CAPITALIZE || to == CASE_TITLE) && !inside)
            tpl_put_title(run, &out, c);
        else if (upper)
            tpl_put_upper(run, &out, c);
        else if (lower)
            tpl_put_lower(run, &out, c);
        else
            tpl_put_point(run, &out, c);
        inside = to == CASE_TITLE ? tpl_is_upper(c) || tpl_is_lower(c) : true;
    }
    return tpl_built(run, &out);
}

size_t tpl_find(tpl_run *run, const tpl_string *string, const tpl_string *part, size_t from, size_t to, bool last)
{
    if (from > to || to - from < part->bytes || !tpl_step(run, (to - from) / 256)) return SIZE_MAX;
    if (part->bytes == 0) return last ? to : from;
    const char *at = NULL;
    if (!last) {
        at = memmem(string->data + from, to - from, part->data, part->bytes);
    } else {
        for (size_t i = to - part->bytes + 1; i-- > from && !at;)
            if (memcmp(string->data + i, part->data, part->bytes) == 0) at = string->data + i;
    }
    return at ? (size_t)(at - string->data) : SIZE_MAX;
}

tpl_value tpl_replace(tpl_run *run, const tpl_string *string, const tpl_string *old, const tpl_string *fresh, int64_t count)
{
    tpl_builder out = {0};
    size_t at = 0;
    if (count < 0) count = INT64_MAX;
    if (old->bytes == 0) { /* between all code points, and at both ends */
        while (count > 0 && tpl_step(run, 1)) {
            tpl_put_string(run, &out, fresh);
            count--;
            if (at == string->bytes) break;
            uint32_t point;
            const size_t n = tpl_decode(string->data + at, string->data + string->bytes, &point);
            tpl_put(run, &out, string->data + at, n);
            at += n;
        }
    } else {
        for (; count > 0 && tpl_step(run, 1); count--) {
            const char *found = memmem(string->data + at, string->bytes - at, old->data, old->bytes);
            if (!found) break;
            tpl_put(run, &out, string->data + at, (size_t)(found - string->data) - at);
            tpl_put_string(run, &out, fresh);
            at = (size_t)(found - string->data) + old->bytes;
        }
    }
    tpl_put(run, &out, string->data + at, string->bytes - at);
    return tpl_built(run, &out);
}

tpl_value tpl_split_lines(tpl_run *run, const tpl_string *string, bool keep_ends)
{
    const tpl_value lines = tpl_list_new(run, TPL_LIST, 0);
    const char *p = string->data, *end = p + string->bytes, *start = p;
    tpl_step(run, string->bytes / 64);
    while (p < end && !run->status) {
        uint32_t c;
        const char *stop = p;
        p += tpl_decode(p, end, &c);
        if (!tpl_is_line_break(c)) continue;
        if (c == '\r' && p < end && *p == '\n') p++;
        tpl_step(run, 1);
        tpl_list_add(run, lines.list, tpl_text(run, start, (size_t)((keep_ends ? p : stop) - start)));
        start = p;
    }
    if (start < end) tpl_list_add(run, lines.list, tpl_text(run, start, (size_t)(end - start)));
    return lines;
}

tpl_value tpl_pad(tpl_run *run, const tpl_string *string, int64_t width, uint32_t fill, bool left, bool right)
{
    const int64_t pad = width > (int64_t)string->points ? width - (int64_t)string->points : 0;
    const int64_t before = left && right ? pad / 2 + (pad & width & 1) : left ? pad : 0;
    tpl_builder out = {0};
    for (int64_t i = 0; i < before && tpl_step(run, 1); i++) tpl_put_point(run, &out, fill);
    tpl_put_string(run, &out, string);
    for (int64_t i = before; i < pad && tpl_step(run, 1); i++) tpl_put_point(run, &out, fill);
    return tpl_built(run, &out);
}

bool tpl_all(const tpl_string *string, bool (*is)(uint32_t point))
{
    const char *p = string->data, *end = p + string->bytes;
    while (p < end) {
        uint32_t c;
        p += tpl_decode(p, end, &c);
        if (!is(c)) return false;
    }
    return string->bytes > 0;
}

bool tpl_cased(const tpl_string *string, bool upper)
{
    const char *p = string->data, *end = p + string->bytes;
    bool some = false;
    while (p < end) {
        uint32_t c;
        p += tpl_decode(p, end, &c);
        if (upper ? tpl_is_lower(c) : tpl_is_upper(c)) return false;
        some |= upper ? tpl_is_upper(c) : tpl_is_lower(c);
    }
    return some;
}

/* "{}", "{0}", "{name}", each with .member and [item] behind; conversions and format specifications are refused. */
static const char *put_field(tpl_run *run, tpl_builder *out, const char *p, const char *end, const tpl_args *args, bool markup,
                             size_t *automatic)
{
    const char *close = memchr(p, '}', (size_t)(end - p));
    const char *stop = close;
    for (const char *q = p; q < close; q++)
        if (*q == '.' || *q == '[') {
            stop = q;
            break;
        }
    if (!close || memchr(p, '!', (size_t)(close - p)) || memchr(p, ':', (size_t)(close - p)) ||
        memchr(p, '{', (size_t)(close - p))) {
        tpl_fail(run, ES_INVALID, "format(): only {}, {0} and {name} are supported");
        return end;
    }
    tpl_value value = {.kind = TPL_ABSENT};
    size_t index = *automatic;
    bool digits = true;
    for (const char *q = p; q < stop; q++) digits &= *q >= '0' && *q <= '9';
    if (stop == p)
        ++*automatic;
    else if (digits)
        for (index = 0; p < stop && index < 100000; p++) index = index * 10 + (size_t)(*p - '0');
    if (digits) {
        if (index < args->count) value = args->values[index];
    } else {
        for (size_t i = 0; i < args->named_count; i++)
            if (args->names[i]->bytes == (size_t)(stop - p) && memcmp(args->names[i]->data, p, (size_t)(stop - p)) == 0)
                value = args->named[i];
    }
    if (value.kind == TPL_ABSENT) tpl_fail(run, ES_INVALID, "format() names a value that was not given");
    for (p = stop; p < close && !run->status; p = stop) {
        const bool bracket = *p == '[';
        const char *q = p + 1;
        while (q < close && (bracket ? *q != ']' : *q != '.' && *q != '[')) q++;
        const tpl_value name = tpl_text(run, p + 1, (size_t)(q - p - 1));
        value = bracket ? tpl_path(run, value, name) : tpl_attribute(run, value, name.string);
        stop = bracket && q < close ? q + 1 : q;
    }
    tpl_put_str(run, out, markup ? tpl_escape(run, value) : value);
    return close + 1;
}

tpl_value tpl_format(tpl_run *run, tpl_value self, const tpl_args *args)
{
    tpl_builder out = {0};
    const char *p = self.string->data, *end = p + self.string->bytes;
    size_t automatic = 0;
    while (p < end && tpl_step(run, 1)) {
        const bool twice = p + 1 < end && p[1] == *p;
        if (*p == '{' && !twice) {
            p = put_field(run, &out, p + 1, end, args, self.string->markup, &automatic);
        } else if (*p == '}' && !twice) {
            tpl_fail(run, ES_INVALID, "format(): a single '}' stands alone");
        } else {
            tpl_put(run, &out, p, 1);
            p += *p == '{' || *p == '}' ? 2 : 1;
        }
    }
    return tpl_built(run, &out);
}
