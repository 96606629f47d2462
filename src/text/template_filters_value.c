/* template_filters_value.c: filters about values themselves: numbers, defaults, JSON, members. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template_syntax.h"
#include "text/template_text.h"

static tpl_value filter_default(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    if (self.kind != TPL_UNDEFINED && !(tpl_truth(arg[1]) && !tpl_truth(self))) return self;
    return arg[0].kind == TPL_ABSENT ? tpl_text(run, "", 0) : arg[0];
}

static tpl_value filter_length(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    const int64_t length = tpl_length(self);
    if (length < 0) tpl_fail(run, ES_INVALID, "a %s has no length", tpl_type_name(self));
    return tpl_int(length);
}

static tpl_value filter_items(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    const tpl_value items = tpl_stream_new(run, 0);
    if (self.kind == TPL_UNDEFINED) return items;
    if (self.kind != TPL_DICT) tpl_fail(run, ES_INVALID, "items: a %s is not a dict", tpl_type_name(self));
    for (size_t i = 0; !run->status && i < self.dict->count && tpl_step(run, 1); i++) {
        const tpl_value pair = tpl_list_new(run, TPL_TUPLE, 2);
        tpl_list_add(run, pair.list, self.dict->pairs[2 * i]);
        tpl_list_add(run, pair.list, self.dict->pairs[2 * i + 1]);
        tpl_list_add(run, items.list, pair);
    }
    return items;
}

static tpl_value filter_attr(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_string *name = tpl_arg_string(run, arg[0], "the attribute");
    if (self.kind == TPL_DICT) { /* attributes only, no items */
        const tpl_native *method = tpl_native_find(tpl_dict_methods, name->data, name->bytes);
        if (!method) return tpl_undefined(name);
    }
    return tpl_attribute(run, self, name);
}

/* A number as Python's int() and float() read it: blanks around, single underscores between digits. False if it is none. */
static bool number_text(tpl_run *run, const tpl_string *string, char *out, size_t room, size_t *length)
{
    const tpl_value trimmed = tpl_strip(run, string, NULL, STRIP_LEFT | STRIP_RIGHT);
    size_t n = 0;
    for (size_t i = 0; i < trimmed.string->bytes; i++) {
        const char c = trimmed.string->data[i];
        const bool digit_after =
            i + 1 < trimmed.string->bytes && strchr("0123456789abcdefABCDEF", trimmed.string->data[i + 1]);
        if (c == '_' && i > 0 && trimmed.string->data[i - 1] != '_' && digit_after) continue;
        if (c == '_' || (unsigned char)c <= ' ' || (unsigned char)c >= 0x7F || n + 1 >= room) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    *length = n;
    return n > 0;
}

static bool parse_real(tpl_run *run, const tpl_string *string, double *value)
{
    char text[400], *end;
    size_t n;
    if (!number_text(run, string, text, sizeof text, &n) || strpbrk(text, "xXpP(")) return false;
    *value = strtod(text, &end);
    return end == text + n;
}

/* 1: read, 0: no such number, -1: does not fit in 64 bits. */
static int parse_integer(tpl_run *run, const tpl_string *string, int64_t base, int64_t *value)
{
    char text[400], *end, *digits = text;
    size_t n;
    if (!number_text(run, string, text, sizeof text, &n) || (base != 0 && (base < 2 || base > 36))) return 0;
    const bool minus = *digits == '-';
    if (*digits == '-' || *digits == '+') digits++;
    const char prefix = *digits == '0' ? digits[1] : 0;
    const int64_t implied = prefix == 'x' || prefix == 'X'   ? 16
                            : prefix == 'o' || prefix == 'O' ? 8
                            : prefix == 'b' || prefix == 'B' ? 2
                                                             : 0;
    if (implied && (base == 0 || base == implied)) digits += 2, base = implied;
    if (base == 0) {
        base = 10;
        if (*digits == '0' && digits[strspn(digits, "0")]) return 0;
    }
    if (*digits == '-' || *digits == '+' || !*digits) return 0;
    errno = 0;
    /* strtoull would take 0x by itself where the base is 16: "0x0x1" must not pass. */
    if (implied && base == 16 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) return 0;
    const unsigned long long size = strtoull(digits, &end, (int)base);
    if (end != text + n) return 0;
    if (errno == ERANGE || size > (uint64_t)INT64_MAX + minus) return -1;
    *value = minus ? (int64_t)(0 - (uint64_t)size) : (int64_t)size;
    return 1;
}

static bool integer_of_real(tpl_run *run, double real, int64_t *value)
{
    if (isnan(real) || isinf(real)) return false;
    if (fabs(real) >= 9.2e18) tpl_fail(run, ES_INVALID, "a whole number does not fit in 64 bits");
    else *value = (int64_t)real;
    return true;
}

static tpl_value filter_int(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const tpl_value otherwise = arg[0].kind == TPL_ABSENT ? tpl_int(0) : arg[0];
    const int64_t base = tpl_arg_integer(run, arg[1], 10, "the base");
    int64_t value = 0;
    double real;
    if (tpl_refuse_undefined(run, self)) return self;
    if (tpl_is_integer(self)) return tpl_int(tpl_as_integer(self));
    if (self.kind == TPL_FLOAT) {
        if (isinf(self.real)) tpl_fail(run, ES_INVALID, "infinity is no whole number");
        return integer_of_real(run, self.real, &value) ? tpl_int(value) : otherwise;
    }
    if (self.kind != TPL_STRING) return otherwise;
    const int read = parse_integer(run, self.string, base, &value);
    if (read < 0) tpl_fail(run, ES_INVALID, "a whole number does not fit in 64 bits");
    if (read) return tpl_int(value);
    return parse_real(run, self.string, &real) && integer_of_real(run, real, &value) ? tpl_int(value) : otherwise;
}

static tpl_value filter_float(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    double real;
    if (tpl_refuse_undefined(run, self)) return self;
    if (tpl_is_number(self)) return tpl_float(tpl_as_real(self));
    if (self.kind == TPL_STRING && parse_real(run, self.string, &real)) return tpl_float(real);
    return arg[0].kind == TPL_ABSENT ? tpl_float(0) : arg[0];
}

static tpl_value filter_abs(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    (void)arg;
    if (self.kind == TPL_FLOAT) return tpl_float(fabs(self.real));
    return tpl_negate(run, self, tpl_is_integer(self) && tpl_as_integer(self) < 0);
}

/* Python rounds the exact binary value, ties to even; printf does just that. */
static tpl_value round_real(double value, int64_t digits)
{
    char text[700];
    if (isnan(value) || isinf(value) || digits > 320) return tpl_float(value);
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, value);
        return tpl_float(strtod(text, NULL));
    }
    if (digits < -308) return tpl_float(copysign(0, value));
    const double power = pow(10, (double)-digits);
    return tpl_float(nearbyint(value / power) * power);
}

static tpl_value round_integer(tpl_run *run, int64_t value, int64_t digits)
{
    int64_t power = 1;
    if (digits >= 0) return tpl_int(value);
    for (int64_t i = 0; i > digits; i--)
        if (__builtin_mul_overflow(power, 10, &power)) return tpl_int(0);
    int64_t rest = value % power, down;
    if (rest < 0) rest += power;
    if (__builtin_sub_overflow(value, rest, &down)) tpl_fail(run, ES_INVALID, "a whole number does not fit in 64 bits");
    const int64_t half = power / 2;
    const bool up = rest > half || (rest == half && (down / power) % 2 != 0);
    return up ? tpl_arithmetic(run, '+', tpl_int(down), tpl_int(power)) : tpl_int(down);
}

static tpl_value filter_round(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    const int64_t digits = tpl_arg_integer(run, arg[0], 0, "the precision");
    const tpl_string *method = arg[1].kind == TPL_ABSENT ? NULL : tpl_arg_string(run, arg[1], "the method");
    const bool up = method && tpl_is(method, "ceil"), down = method && tpl_is(method, "floor");
    if (method && !up && !down && !tpl_is(method, "common"))
        tpl_fail(run, ES_INVALID, "round: the method is common, ceil or floor");
    if (!tpl_refuse_undefined(run, self) && !tpl_is_number(self))
        tpl_fail(run, ES_INVALID, "a %s can not be rounded", tpl_type_name(self));
    if (run->status) return self;
    if (up || down) {
        const double power = pow(10, (double)digits), scaled = tpl_as_real(self) * power;
        if (isnan(scaled) || isinf(scaled)) tpl_fail(run, ES_INVALID, "round: the number is too big");
        return tpl_float((up ? ceil(scaled) : floor(scaled)) / power);
    }
    return self.kind == TPL_FLOAT ? round_real(self.real, digits) : round_integer(run, tpl_as_integer(self), digits);
}

static tpl_value filter_tojson(tpl_run *run, tpl_value self, const tpl_value *arg)
{
    tpl_json_style style = {.ascii = tpl_truth(arg[0]), .sort = tpl_truth(arg[3])};
    tpl_value item = tpl_literal(run, ", "), key = tpl_literal(run, ": ");
    if (arg[1].kind == TPL_STRING) {
        style.indent = arg[1].string;
    } else if (arg[1].kind != TPL_ABSENT && arg[1].kind != TPL_NONE) {
        const int64_t width = tpl_arg_integer(run, arg[1], 0, "indent");
        style.indent = tpl_pad(run, tpl_text(run, "", 0).string, width, ' ', true, false).string;
    }
    if (style.indent) item = tpl_literal(run, ",");
    if (arg[2].kind != TPL_ABSENT && arg[2].kind != TPL_NONE) {
        const tpl_list *pair = tpl_iterate(run, arg[2]);
        if (pair->count != 2) tpl_fail(run, ES_INVALID, "tojson: separators are two strings");
        if (run->status) return self;
        item = pair->items[0];
        key = pair->items[1];
    }
    style.item = tpl_arg_string(run, item, "a separator");
    style.key = tpl_arg_string(run, key, "a separator");
    tpl_builder out = {0};
    if (!run->status) tpl_put_json(run, &out, self, &style, 0);
    return tpl_built(run, &out);
}

const tpl_native tpl_filters_value[] = {
    {"default", "/ default_value boolean", filter_default, NULL},
    {"d", "/ default_value boolean", filter_default, NULL},
    {"length", "", filter_length, NULL},
    {"count", "", filter_length, NULL},
    {"items", "", filter_items, NULL},
    {"attr", "name", filter_attr, NULL},
    {"int", "/ default base", filter_int, NULL},
    {"float", "/ default", filter_float, NULL},
    {"abs", "", filter_abs, NULL},
    {"round", "/ precision method", filter_round, NULL},
    {"tojson", "/ ensure_ascii indent separators sort_keys", filter_tojson, NULL},
    {0},
};
