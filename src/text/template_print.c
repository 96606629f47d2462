/* template_print.c: values as text, the way Python's str(), repr() and json.dumps() write them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template_value.h"

void tpl_put_integer(tpl_run *run, tpl_builder *out, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    tpl_puts(run, out, text);
}

/* The fewest digits that read back as the same number; an exponent below 1e-4 and from 1e16 on. */
void tpl_put_float(tpl_run *run, tpl_builder *out, double value)
{
    if (isnan(value) || isinf(value)) {
        tpl_puts(run, out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    char text[40], digits[24];
    int precision = 0;
    do snprintf(text, sizeof text, "%.*e", precision, value);
    while (strtod(text, NULL) != value && ++precision < 17);
    const char *at = text;
    if (*at == '-') tpl_put(run, out, at++, 1);
    size_t n = 0;
    for (; *at != 'e'; at++)
        if (*at != '.') digits[n++] = *at;
    const int exponent = atoi(at + 1);
    while (n > 1 && digits[n - 1] == '0') n--;
    if (exponent < -4 || exponent >= 16) {
        tpl_put(run, out, digits, 1);
        if (n > 1) tpl_puts(run, out, "."), tpl_put(run, out, digits + 1, n - 1);
        snprintf(text, sizeof text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        tpl_puts(run, out, text);
    } else if (exponent < 0) {
        tpl_puts(run, out, "0.");
        for (int i = -1; i > exponent; i--) tpl_puts(run, out, "0");
        tpl_put(run, out, digits, n);
    } else {
        const size_t whole = (size_t)exponent + 1;
        tpl_put(run, out, digits, n < whole ? n : whole);
        for (size_t i = n; i < whole; i++) tpl_puts(run, out, "0");
        tpl_puts(run, out, ".");
        if (n > whole)
            tpl_put(run, out, digits + whole, n - whole);
        else
            tpl_puts(run, out, "0");
    }
}

static void put_quoted(tpl_run *run, tpl_builder *out, const tpl_string *string)
{
    const bool single = string->bytes && memchr(string->data, '\'', string->bytes);
    const bool twice = string->bytes && memchr(string->data, '"', string->bytes);
    const char quote = single && !twice ? '"' : '\'';
    tpl_put(run, out, &quote, 1);
    const char *p = string->data, *end = p + string->bytes;
    while (p < end && !run->status) {
        uint32_t c;
        char text[16];
        p += tpl_decode(p, end, &c);
        if (c == (uint32_t)quote || c == '\\') {
            tpl_puts(run, out, "\\");
            tpl_put_point(run, out, c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            tpl_puts(run, out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        } else if (tpl_is_printable(c)) {
            tpl_put_point(run, out, c);
        } else {
            snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
            tpl_puts(run, out, text);
        }
    }
    tpl_put(run, out, &quote, 1);
}

static void put_items(tpl_run *run, tpl_builder *out, const tpl_list *list)
{
    for (size_t i = 0; i < list->count && tpl_step(run, 1); i++) {
        if (i) tpl_puts(run, out, ", ");
        tpl_put_repr(run, out, list->items[i]);
    }
}

static void put_dict(tpl_run *run, tpl_builder *out, const tpl_dict *dict)
{
    tpl_puts(run, out, "{");
    for (size_t i = 0; i < dict->count && tpl_step(run, 1); i++) {
        if (i) tpl_puts(run, out, ", ");
        tpl_put_repr(run, out, dict->pairs[2 * i]);
        tpl_puts(run, out, ": ");
        tpl_put_repr(run, out, dict->pairs[2 * i + 1]);
    }
    tpl_puts(run, out, "}");
}

static void put_range(tpl_run *run, tpl_builder *out, const tpl_range *range)
{
    tpl_puts(run, out, "range(");
    tpl_put_integer(run, out, range->start);
    tpl_puts(run, out, ", ");
    tpl_put_integer(run, out, range->stop);
    if (range->step != 1) {
        tpl_puts(run, out, ", ");
        tpl_put_integer(run, out, range->step);
    }
    tpl_puts(run, out, ")");
}

static void put_container(tpl_run *run, tpl_builder *out, tpl_value value)
{
    switch (value.kind) {
    case TPL_LIST:
        tpl_puts(run, out, "[");
        put_items(run, out, value.list);
        tpl_puts(run, out, "]");
        break;
    case TPL_TUPLE:
        tpl_puts(run, out, "(");
        put_items(run, out, value.list);
        tpl_puts(run, out, value.list->count == 1 ? ",)" : ")");
        break;
    case TPL_VIEW:
        tpl_puts(run, out, value.list->label);
        tpl_puts(run, out, "([");
        put_items(run, out, value.list);
        tpl_puts(run, out, "])");
        break;
    case TPL_DICT: put_dict(run, out, value.dict); break;
    case TPL_NAMESPACE:
        tpl_puts(run, out, "<Namespace ");
        put_dict(run, out, value.dict);
        tpl_puts(run, out, ">");
        break;
    case TPL_LOOP:
        tpl_puts(run, out, "<LoopContext ");
        tpl_put_integer(run, out, (int64_t)value.loop->index + 1);
        tpl_puts(run, out, "/");
        tpl_put_integer(run, out, (int64_t)value.loop->items->count);
        tpl_puts(run, out, ">");
        break;
    default: /* Python prints an address here; nothing sensible depends on it. */
        tpl_puts(run, out, "<");
        tpl_puts(run, out, tpl_type_name(value));
        tpl_puts(run, out, ">");
    }
}

void tpl_put_repr(tpl_run *run, tpl_builder *out, tpl_value value)
{
    switch (value.kind) {
    case TPL_UNDEFINED:
    case TPL_ABSENT: tpl_puts(run, out, "Undefined"); return;
    case TPL_NONE: tpl_puts(run, out, "None"); return;
    case TPL_BOOL: tpl_puts(run, out, value.boolean ? "True" : "False"); return;
    case TPL_INT: tpl_put_integer(run, out, value.integer); return;
    case TPL_FLOAT: tpl_put_float(run, out, value.real); return;
    case TPL_STRING:
        if (value.string->markup) tpl_puts(run, out, "Markup(");
        put_quoted(run, out, value.string);
        if (value.string->markup) tpl_puts(run, out, ")");
        return;
    case TPL_RANGE: put_range(run, out, value.range); return;
    default: break;
    }
    if (!tpl_enter(run)) return;
    put_container(run, out, value);
    tpl_leave(run);
}

void tpl_put_str(tpl_run *run, tpl_builder *out, tpl_value value)
{
    if (value.kind == TPL_STRING)
        tpl_put_string(run, out, value.string);
    else if (value.kind != TPL_UNDEFINED)
        tpl_put_repr(run, out, value);
}

const tpl_string *tpl_str(tpl_run *run, tpl_value value)
{
    if (value.kind == TPL_STRING) return value.string;
    tpl_builder out = {0};
    tpl_put_str(run, &out, value);
    return tpl_built(run, &out).string;
}

static void put_json_string(tpl_run *run, tpl_builder *out, const tpl_string *string, bool ascii)
{
    tpl_puts(run, out, "\"");
    const char *p = string->data, *end = p + string->bytes;
    while (p < end && !run->status) {
        uint32_t c;
        char text[16] = "";
        const char *plain = p;
        while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\' && (!ascii || (unsigned char)*p < 0x7F)) p++;
        tpl_put(run, out, plain, (size_t)(p - plain));
        if (p == end) break;
        p += tpl_decode(p, end, &c);
        switch (c) {
        case '"': strcpy(text, "\\\""); break;
        case '\\': strcpy(text, "\\\\"); break;
        case '\n': strcpy(text, "\\n"); break;
        case '\r': strcpy(text, "\\r"); break;
        case '\t': strcpy(text, "\\t"); break;
        case '\f': strcpy(text, "\\f"); break;
        case '\b': strcpy(text, "\\b"); break;
        case 0x7F: strcpy(text, "\x7F"); break;
        default:
            if (c >= 0x10000)
                snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                         0xDC00 + ((c - 0x10000) & 0x3FF));
            else
                snprintf(text, sizeof text, "\\u%04x", c);
        }
        tpl_puts(run, out, text);
    }
    tpl_puts(run, out, "\"");
}

static void put_break(tpl_run *run, tpl_builder *out, const tpl_json_style *style, unsigned level)
{
    if (!style->indent) return;
    tpl_puts(run, out, "\n");
    for (unsigned i = 0; i < level && !run->status; i++) tpl_put_string(run, out, style->indent);
}

static void put_json_key(tpl_run *run, tpl_builder *out, tpl_value key, const tpl_json_style *style)
{
    if (key.kind == TPL_STRING) {
        put_json_string(run, out, key.string, style->ascii);
    } else if (key.kind == TPL_NONE || tpl_is_number(key)) {
        tpl_puts(run, out, "\"");
        tpl_put_json(run, out, key, style, 0);
        tpl_puts(run, out, "\"");
    } else {
        tpl_fail(run, ES_INVALID, "tojson: a %s can not be the key of an object", tpl_type_name(key));
    }
}

/* Positions of the pairs in the order to be written. Insertion sort from the back: keys are few, and mostly sorted. */
static const size_t *sorted_keys(tpl_run *run, const tpl_dict *dict)
{
    size_t *order = tpl_take(run, dict->count + 1, sizeof *order);
    for (size_t i = 0; order && i < dict->count; i++) {
        size_t at = i;
        while (at > 0 && tpl_step(run, 1) && tpl_order(run, dict->pairs[2 * order[at - 1]], dict->pairs[2 * i], "<") > 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    return run->status ? NULL : order;
}

static void put_json_dict(tpl_run *run, tpl_builder *out, const tpl_dict *dict, const tpl_json_style *style, unsigned level)
{
    const size_t *order = style->sort ? sorted_keys(run, dict) : NULL;
    tpl_puts(run, out, "{");
    for (size_t i = 0; i < dict->count && tpl_step(run, 1); i++) {
        const size_t at = order ? order[i] : i;
        if (i) tpl_put_string(run, out, style->item);
        put_break(run, out, style, level + 1);
        put_json_key(run, out, dict->pairs[2 * at], style);
        tpl_put_string(run, out, style->key);
        tpl_put_json(run, out, dict->pairs[2 * at + 1], style, level + 1);
    }
    if (dict->count) put_break(run, out, style, level);
    tpl_puts(run, out, "}");
}

void tpl_put_json(tpl_run *run, tpl_builder *out, tpl_value value, const tpl_json_style *style, unsigned level)
{
    switch (value.kind) {
    case TPL_NONE: tpl_puts(run, out, "null"); return;
    case TPL_BOOL: tpl_puts(run, out, value.boolean ? "true" : "false"); return;
    case TPL_INT: tpl_put_integer(run, out, value.integer); return;
    case TPL_FLOAT:
        if (isnan(value.real) || isinf(value.real))
            tpl_puts(run, out, isnan(value.real) ? "NaN" : value.real > 0 ? "Infinity" : "-Infinity");
        else
            tpl_put_float(run, out, value.real);
        return;
    case TPL_STRING: put_json_string(run, out, value.string, style->ascii); return;
    case TPL_LIST:
    case TPL_TUPLE:
        if (!tpl_enter(run)) return;
        tpl_puts(run, out, "[");
        for (size_t i = 0; i < value.list->count && tpl_step(run, 1); i++) {
            if (i) tpl_put_string(run, out, style->item);
            put_break(run, out, style, level + 1);
            tpl_put_json(run, out, value.list->items[i], style, level + 1);
        }
        if (value.list->count) put_break(run, out, style, level);
        tpl_puts(run, out, "]");
        tpl_leave(run);
        return;
    case TPL_DICT:
        if (!tpl_enter(run)) return;
        put_json_dict(run, out, value.dict, style, level);
        tpl_leave(run);
        return;
    default: tpl_fail(run, ES_INVALID, "tojson: a %s can not be written as JSON", tpl_type_name(value));
    }
}
