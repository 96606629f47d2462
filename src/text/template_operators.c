/* template_operators.c: + - * / // % ** and `in`, with Python's meaning.
 *
 * Python's integers have no bounds; these have 64 bits, and a result beyond them is refused rather than wrong. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/template_syntax.h"

static const char *op_text(int op)
{
    switch (op) {
    case '+': return "+";
    case '-': return "-";
    case '*': return "*";
    case '/': return "/";
    case '%': return "%";
    case OP_FLOOR: return "//";
    default: return "**";
    }
}

static tpl_value too_big(tpl_run *run)
{
    tpl_fail(run, ES_INVALID, "a whole number does not fit in 64 bits");
    return tpl_int(0);
}

static tpl_value by_zero(tpl_run *run)
{
    tpl_fail(run, ES_INVALID, "division by zero");
    return tpl_int(0);
}

static tpl_value integer_power(tpl_run *run, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (base == 0 || base == 1) return tpl_int(exponent == 0 ? 1 : base);
    if (base == -1) return tpl_int(exponent % 2 ? -1 : 1);
    for (int64_t i = 0; i < exponent; i++)
        if (__builtin_mul_overflow(result, base, &result)) return too_big(run);
    return tpl_int(result);
}

static tpl_value on_reals(tpl_run *run, int op, double a, double b)
{
    switch (op) {
    case '+': return tpl_float(a + b);
    case '-': return tpl_float(a - b);
    case '*': return tpl_float(a * b);
    case OP_POWER: {
        if (a == 0 && b < 0) return by_zero(run);
        const double r = pow(a, b);
        if ((isnan(r) && !isnan(a) && !isnan(b)) || (isinf(r) && !isinf(a) && !isinf(b)))
            tpl_fail(run, ES_INVALID, "the result of ** is not a number that fits");
        return tpl_float(r);
    }
    default: break;
    }
    if (b == 0) return by_zero(run);
    if (op == '/') return tpl_float(a / b);
    double rest = fmod(a, b), whole = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0))
        rest += b, whole -= 1;
    else if (rest == 0)
        rest = copysign(0, b);
    if (op == '%') return tpl_float(rest);
    const double floored = floor(whole);
    return tpl_float(whole == 0 ? copysign(0, a / b) : whole - floored > 0.5 ? floored + 1 : floored);
}

static tpl_value on_integers(tpl_run *run, int op, int64_t a, int64_t b)
{
    int64_t r;
    switch (op) {
    case '+': return __builtin_add_overflow(a, b, &r) ? too_big(run) : tpl_int(r);
    case '-': return __builtin_sub_overflow(a, b, &r) ? too_big(run) : tpl_int(r);
    case '*': return __builtin_mul_overflow(a, b, &r) ? too_big(run) : tpl_int(r);
    case '/': return on_reals(run, op, (double)a, (double)b);
    case OP_POWER: return b >= 0 ? integer_power(run, a, b) : on_reals(run, op, (double)a, (double)b);
    default: break;
    }
    if (b == 0) return by_zero(run);
    if (b == -1) return op == '%' ? tpl_int(0) : a == INT64_MIN ? too_big(run) : tpl_int(-a);
    const int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
    return tpl_int(op == '%' ? (down ? rest + b : rest) : a / b - down);
}

static tpl_value join_sequences(tpl_run *run, tpl_value a, tpl_value b)
{
    const tpl_value sum = tpl_list_new(run, a.kind, a.list->count + b.list->count);
    for (size_t i = 0; i < a.list->count && tpl_step(run, 1); i++) tpl_list_add(run, sum.list, a.list->items[i]);
    for (size_t i = 0; i < b.list->count && tpl_step(run, 1); i++) tpl_list_add(run, sum.list, b.list->items[i]);
    return sum;
}

static tpl_value repeat(tpl_run *run, tpl_value a, int64_t times)
{
    if (a.kind == TPL_STRING) {
        tpl_builder out = {0};
        for (int64_t i = 0; i < times && a.string->bytes && tpl_step(run, 1); i++) tpl_put_string(run, &out, a.string);
        const tpl_value text = tpl_built(run, &out);
        return a.string->markup ? tpl_mark(run, text) : text;
    }
    const tpl_value product = tpl_list_new(run, a.kind, 0);
    for (int64_t i = 0; i < times && a.list->count && !run->status; i++)
        for (size_t k = 0; k < a.list->count && tpl_step(run, 1); k++) tpl_list_add(run, product.list, a.list->items[k]);
    return product;
}

tpl_value tpl_arithmetic(tpl_run *run, int op, tpl_value a, tpl_value b)
{
    if (run->status) return tpl_undefined(NULL);
    if (op == '%' && a.kind == TPL_STRING) return tpl_percent(run, a.string, b);
    if (tpl_refuse_undefined(run, a) || tpl_refuse_undefined(run, b)) return tpl_undefined(NULL);
    if (tpl_is_integer(a) && tpl_is_integer(b)) return on_integers(run, op, tpl_as_integer(a), tpl_as_integer(b));
    if (tpl_is_number(a) && tpl_is_number(b)) return on_reals(run, op, tpl_as_real(a), tpl_as_real(b));
    if (op == '+' && a.kind == b.kind && a.kind == TPL_STRING) {
        tpl_builder out = {0};
        const bool markup = a.string->markup || b.string->markup;
        if (markup) a = tpl_escape(run, a), b = tpl_escape(run, b);
        tpl_put_string(run, &out, a.string);
        tpl_put_string(run, &out, b.string);
        if (markup) return tpl_mark(run, tpl_built(run, &out));
        return tpl_part(run, out.data ? out.data : "", out.bytes, a.string->points + b.string->points);
    }
    const bool a_repeats = a.kind == TPL_STRING || a.kind == TPL_LIST || a.kind == TPL_TUPLE;
    const bool b_repeats = b.kind == TPL_STRING || b.kind == TPL_LIST || b.kind == TPL_TUPLE;
    if (op == '+' && a.kind == b.kind && a_repeats) return join_sequences(run, a, b);
    if (op == '*' && a_repeats && tpl_is_integer(b)) return repeat(run, a, tpl_as_integer(b));
    if (op == '*' && b_repeats && tpl_is_integer(a)) return repeat(run, b, tpl_as_integer(a));
    tpl_fail(run, ES_INVALID, "%s can not be used between a %s and a %s", op_text(op), tpl_type_name(a), tpl_type_name(b));
    return tpl_undefined(NULL);
}

tpl_value tpl_negate(tpl_run *run, tpl_value a, bool minus)
{
    if (run->status || tpl_refuse_undefined(run, a)) return tpl_undefined(NULL);
    if (a.kind == TPL_FLOAT) return tpl_float(minus ? -a.real : a.real);
    if (tpl_is_integer(a)) return on_integers(run, minus ? '-' : '+', 0, tpl_as_integer(a));
    tpl_fail(run, ES_INVALID, "a %s has no sign", tpl_type_name(a));
    return tpl_undefined(NULL);
}

static bool range_contains(const tpl_range *range, tpl_value item)
{
    if (item.kind == TPL_FLOAT && (item.real != floor(item.real) || fabs(item.real) > 9e15)) return false;
    if (!tpl_is_number(item) || range->count == 0) return false;
    const int64_t value = item.kind == TPL_FLOAT ? (int64_t)item.real : tpl_as_integer(item);
    const int64_t last = range->start + (range->count - 1) * range->step;
    const int64_t low = range->step > 0 ? range->start : last, high = range->step > 0 ? last : range->start;
    return value >= low && value <= high && (value - range->start) % range->step == 0;
}

bool tpl_contains(tpl_run *run, tpl_value container, tpl_value item)
{
    if (run->status) return false;
    switch (container.kind) {
    case TPL_STRING:
        if (item.kind == TPL_STRING)
            return tpl_step(run, container.string->bytes / 256) &&
                   (item.string->bytes == 0 ||
                    memmem(container.string->data, container.string->bytes, item.string->data, item.string->bytes));
        if (!tpl_refuse_undefined(run, item))
            tpl_fail(run, ES_INVALID, "a %s can not be looked for in a str", tpl_type_name(item));
        return false;
    case TPL_UNDEFINED: return false;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
        for (size_t i = 0; i < container.list->count && tpl_step(run, 1); i++)
            if (tpl_equal(run, container.list->items[i], item)) return true;
        return false;
    case TPL_STREAM:
        while (container.list->next < container.list->count && tpl_step(run, 1))
            if (tpl_equal(run, container.list->items[container.list->next++], item)) return true;
        return false;
    case TPL_DICT:
        if (item.kind == TPL_LIST || item.kind == TPL_DICT)
            tpl_fail(run, ES_INVALID, "a %s can not be the key of a dict", tpl_type_name(item));
        return tpl_dict_get(run, container.dict, item) != NULL;
    case TPL_RANGE: return range_contains(container.range, item);
    default:
        tpl_fail(run, ES_INVALID, "nothing can be in a %s", tpl_type_name(container));
        return false;
    }
}

/* One conversion of a % format. */
typedef struct conversion {
    char flags[8];
    size_t flag_count;
    int width, precision;
    char kind;
} conversion;

static void put_padded(tpl_run *run, tpl_builder *out, const conversion *c, const char *text, size_t bytes, bool number)
{
    const bool left = memchr(c->flags, '-', c->flag_count), zero = number && !left && memchr(c->flags, '0', c->flag_count);
    const size_t points = tpl_points(text, bytes), width = c->width > 0 ? (size_t)c->width : 0;
    const size_t pad = width > points ? width - points : 0,
                 sign = zero && bytes && (*text == '-' || *text == '+' || *text == ' ');
    tpl_put(run, out, text, sign);
    for (size_t i = 0; !left && i < pad && tpl_step(run, 1); i++) tpl_puts(run, out, zero ? "0" : " ");
    tpl_put(run, out, text + sign, bytes - sign);
    for (size_t i = 0; left && i < pad && tpl_step(run, 1); i++) tpl_puts(run, out, " ");
}

static void convert(tpl_run *run, tpl_builder *out, const conversion *c, tpl_value value, bool markup)
{
    char text[512], sign = memchr(c->flags, '+', c->flag_count) ? '+' : memchr(c->flags, ' ', c->flag_count) ? ' ' : 0;
    if (c->kind == 's' || c->kind == 'r') {
        tpl_builder shown = {0};
        if (c->kind == 's')
            tpl_put_str(run, &shown, value);
        else
            tpl_put_repr(run, &shown, value);
        tpl_value whole = tpl_built(run, &shown);
        if (markup && !(c->kind == 's' && tpl_is_markup(value))) whole = tpl_escape(run, whole);
        const size_t bytes = c->precision >= 0 ? tpl_offset(whole.string, (size_t)c->precision) : whole.string->bytes;
        put_padded(run, out, c, whole.string->data, bytes, false);
        return;
    }
    if (tpl_refuse_undefined(run, value)) return;
    if (!tpl_is_number(value) || c->precision > 100) {
        tpl_fail(run, ES_INVALID, "%%%c can not write a %s", c->kind, tpl_type_name(value));
        return;
    }
    int n = 0;
    if (strchr("di", c->kind) && (value.kind != TPL_FLOAT || fabs(value.real) < 9e18)) {
        const int64_t whole = value.kind == TPL_FLOAT ? (int64_t)value.real : tpl_as_integer(value);
        n = snprintf(text, sizeof text, "%.*" PRId64, c->precision < 0 ? 1 : c->precision, whole);
    } else if (strchr("xXo", c->kind) && value.kind != TPL_FLOAT) {
        const int64_t whole = tpl_as_integer(value);
        const uint64_t size = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
        const char *format = c->kind == 'x' ? "%s%" PRIx64 : c->kind == 'X' ? "%s%" PRIX64 : "%s%" PRIo64;
        n = snprintf(text, sizeof text, format, whole < 0 ? "-" : "", size);
    } else if (strchr("fFeEgG", c->kind)) {
        const char format[] = {'%', '.', '*', c->kind, 0};
        n = snprintf(text, sizeof text, format, c->precision < 0 ? 6 : c->precision, tpl_as_real(value));
    } else {
        tpl_fail(run, ES_INVALID, "%%%c can not write a %s", c->kind, tpl_type_name(value));
        return;
    }
    if (sign && *text != '-') {
        memmove(text + 1, text, (size_t)n + 1);
        *text = sign;
        n++;
    }
    put_padded(run, out, c, text, (size_t)n, true);
}

static const char *read_number(const char *p, const char *end, int *value)
{
    *value = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) *value = *value < 100000000 ? *value * 10 + (*p - '0') : *value;
    return p;
}

static const char *read_conversion(tpl_run *run, const char *p, const char *end, conversion *c)
{
    *c = (conversion){.precision = -1};
    for (; p < end && strchr("-+ 0#", *p) && *p; p++)
        if (c->flag_count < sizeof c->flags) c->flags[c->flag_count++] = *p;
    p = read_number(p, end, &c->width);
    if (p < end && *p == '.') p = read_number(p + 1, end, &c->precision);
    if (p < end && *p && strchr("srdixXofFeEgG%", *p)) {
        c->kind = *p;
        return p + 1;
    }
    tpl_fail(run, ES_INVALID, "the format has a %% that is not followed by a conversion that is supported");
    return end;
}

tpl_value tpl_percent(tpl_run *run, const tpl_string *format, tpl_value args)
{
    const char *p = format->data, *end = p + format->bytes;
    const tpl_list *tuple = args.kind == TPL_TUPLE ? args.list : NULL;
    size_t used = 0;
    bool named = false;
    tpl_builder out = {0};
    while (p < end && !run->status) {
        const char *mark = memchr(p, '%', (size_t)(end - p));
        tpl_put(run, &out, p, (size_t)((mark ? mark : end) - p));
        if (!mark) break;
        p = mark + 1;
        tpl_value value = tpl_none();
        const char *close = p < end && *p == '(' ? memchr(p, ')', (size_t)(end - p)) : NULL;
        if (close) {
            const tpl_value *found =
                args.kind == TPL_DICT ? tpl_dict_text(run, args.dict, p + 1, (size_t)(close - p - 1)) : NULL;
            if (!found) tpl_fail(run, ES_INVALID, "the format names a value that was not given");
            else value = *found;
            named = true;
            p = close + 1;
        }
        conversion c;
        p = read_conversion(run, p, end, &c);
        if (run->status) break;
        if (c.kind == '%') {
            tpl_puts(run, &out, "%");
            continue;
        }
        if (!close) {
            if (used >= (tuple ? tuple->count : 1)) tpl_fail(run, ES_INVALID, "the format needs more values than were given");
            else value = tuple ? tuple->items[used] : args;
            used++;
        }
        if (!run->status) convert(run, &out, &c, value, format->markup);
    }
    /* Python minds unused values only where they can not be looked up by name. */
    const bool lookup = args.kind == TPL_DICT || args.kind == TPL_LIST || args.kind == TPL_RANGE || args.kind == TPL_UNDEFINED;
    if (!named && used < (tuple ? tuple->count : 1) && !lookup)
        tpl_fail(run, ES_INVALID, "the format uses fewer values than were given");
    const tpl_value text = tpl_built(run, &out);
    return format->markup ? tpl_mark(run, text) : text;
}
