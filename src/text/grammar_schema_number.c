/* grammar_schema_number.c: numbers between bounds, as texts of digits.
 *
 * A bound is taken as the decimal text in which it is written shortest. Of two texts of at most 15 digits the larger stands
 * for the larger number, whoever reads them, so that comparing digit by digit is enough. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar_schema_internal.h"

#define MOST_DIGITS        15
#define MOST_INTEGER       999999999999999 /* 15 digits: every reader holds it exactly */
#define MOST_WITH_FRACTION 999999999
#define MOST_MULTIPLES     4096
#define MOST_REMAINDERS    100

typedef struct bounds {
    double low, high;
    bool above, below; /* the bound itself is out */
} bounds;

static es_status read_bound(es_schema_run *run, const json_t *schema, const char *keyword, const char *exclusive,
                            double *value, bool *out, bool lower)
{
    const json_t *plain = json_object_get(schema, keyword), *strict = json_object_get(schema, exclusive);
    if (plain && !json_is_number(plain)) return es_schema_invalid(run, keyword, "must be a number");
    if (strict && !json_is_number(strict) && !json_is_boolean(strict))
        return es_schema_invalid(run, exclusive, "must be a number");
    if (plain) *value = json_number_value(plain), *out = json_is_true(strict); /* draft 4 has a boolean */
    if (!json_is_number(strict)) return ES_OK;
    const double v = json_number_value(strict);
    if (plain && (lower ? v < *value : v > *value)) return ES_OK;
    *value = v;
    *out = true;
    return ES_OK;
}

static es_status read_bounds(es_schema_run *run, const json_t *schema, bounds *b)
{
    *b = (bounds){.low = -INFINITY, .high = INFINITY};
    ES_TRY(read_bound(run, schema, "minimum", "exclusiveMinimum", &b->low, &b->above, true));
    return read_bound(run, schema, "maximum", "exclusiveMaximum", &b->high, &b->below, false);
}

/* ---- whole numbers ---- */

static int digit_count(int64_t value)
{
    int count = 1;
    while (value >= 10) value /= 10, count++;
    return count;
}

static void put_digits(int count, es_text *body)
{
    if (count > 0) es_text_printf(body, " [0-9]{%d}", count);
}

/* Texts of as many digits as `low` and `high` both have. */
static void put_same_length(const char *low, const char *high, es_text *body)
{
    size_t same = 0;
    const size_t digits = strlen(low);
    while (same < digits && low[same] == high[same]) same++;
    if (same) es_grammar_add_literal(body, low, same);
    if (same == digits) return;
    low += same, high += same;
    const int rest = (int)(digits - same) - 1;
    const bool whole_low = strspn(low + 1, "0") == (size_t)rest, whole_high = strspn(high + 1, "9") == (size_t)rest;
    const char first = (char)(*low + !whole_low), last = (char)(*high - !whole_high);
    bool any = false;
    es_text_puts(body, " (");
    if (first <= last) {
        es_text_printf(body, "[%c-%c]", first, last);
        put_digits(rest, body);
        any = true;
    }
    char edge[MOST_DIGITS + 2];
    if (!whole_low) { /* the first digit is the least, the others are not below */
        es_text_puts(body, any ? " | " : "");
        es_text_printf(body, "\"%c\" ", *low);
        memset(edge, '9', (size_t)rest);
        edge[rest] = '\0';
        put_same_length(low + 1, edge, body);
        any = true;
    }
    if (!whole_high) {
        es_text_puts(body, any ? " | " : "");
        es_text_printf(body, "\"%c\" ", *high);
        memset(edge, '0', (size_t)rest);
        edge[rest] = '\0';
        put_same_length(edge, high + 1, body);
    }
    es_text_puts(body, ")");
}

/* 0 ≤ low ≤ high ≤ MOST_INTEGER */
static void put_range(int64_t low, int64_t high, es_text *body)
{
    bool any = false;
    es_text_puts(body, "(");
    for (int digits = digit_count(low); digits <= digit_count(high); digits++) {
        int64_t least = 1, most;
        for (int i = 1; i < digits; i++) least *= 10;
        most = least * 10 - 1;
        if (digits == 1) least = 0;
        if (least < low) least = low;
        if (most > high) most = high;
        char from[24], to[24];
        snprintf(from, sizeof from, "%" PRId64, least);
        snprintf(to, sizeof to, "%" PRId64, most);
        if (any) es_text_puts(body, " | ");
        put_same_length(from, to, body);
        any = true;
    }
    es_text_puts(body, ")");
}

static void put_integers(int64_t low, int64_t high, es_text *body)
{
    if (low > high) {
        es_text_puts(body, "[]");
        return;
    }
    es_text_puts(body, "(");
    if (low < 0) {
        es_text_puts(body, "\"-\" ");
        put_range(high < 0 ? -high : 1, -low, body);
    }
    if (low < 0 && high >= 0) es_text_puts(body, " | ");
    if (high >= 0) put_range(low > 0 ? low : 0, high, body);
    es_text_puts(body, ")");
}

static es_status put_multiples(es_schema_run *run, int64_t low, int64_t high, int64_t step, es_text *body)
{
    int64_t first = low / step * step;
    bool any = false;
    if (first < low) first += step;
    if (first <= high && (high - first) / step >= MOST_MULTIPLES)
        return es_schema_refuse(run, "multipleOf",
                                "unless minimum and maximum leave at most 4096 multiples, or there are none but a minimum "
                                "of 0 and it is at most 100");
    es_text_puts(body, "(");
    for (int64_t value = first; value <= high; value += step) {
        es_text_printf(body, "%s\"%" PRId64 "\"", any ? " | " : "", value);
        any = true;
    }
    es_text_puts(body, any ? ")" : "[])");
    return ES_OK;
}

/* Whole numbers without an end: digit by digit, by the remainder that is left so far. rules[d][r]: at most d more digits may
 * come behind digits of remainder r. */
static es_status add_remainders(es_schema_run *run, int64_t step, int *rules)
{
    for (int digits = 0; digits < MOST_DIGITS; digits++)
        for (int64_t rest = 0; rest < step; rest++) {
            es_text body = {0};
            ES_TRY(es_schema_new_rule(run, &rules[digits * step + rest]));
            es_text_puts(&body, rest == 0 ? "\"\"" : "[]");
            for (int digit = 0; digit < 10 && digits > 0; digit++) {
                es_text_printf(&body, " | \"%d\" ", digit);
                es_schema_put_name(run, rules[(digits - 1) * step + (rest * 10 + digit) % step], &body);
            }
            es_schema_add_rule(run, rules[digits * step + rest], &body);
            es_text_free(&body);
        }
    return ES_OK;
}

static es_status put_endless_multiples(es_schema_run *run, const bounds *b, int64_t step, es_text *body)
{
    int *rules = calloc((size_t)(MOST_DIGITS * step), sizeof *rules);
    es_status status = rules ? add_remainders(run, step, rules) : es_fail(ES_NO_MEMORY, "no memory for a schema");
    es_text_puts(body, "(");
    if (b->low <= 0 && !(b->above && b->low == 0)) es_text_puts(body, "\"0\" | ");
    if (b->low < 0) es_text_puts(body, "\"-\"? ");
    for (int digit = 1; digit < 10 && status == ES_OK; digit++) {
        es_text_printf(body, digit == 1 ? "(\"%d\" " : " | \"%d\" ", digit);
        es_schema_put_name(run, rules[(MOST_DIGITS - 1) * step + digit % step], body);
    }
    es_text_puts(body, "))");
    free(rules);
    return status;
}

static es_status put_whole(es_schema_run *run, const json_t *schema, const bounds *b, bool integer, es_text *body)
{
    const json_t *step = json_object_get(schema, "multipleOf");
    double low = ceil(b->low), high = floor(b->high);
    if (b->above && low == b->low) low += 1;
    if (b->below && high == b->high) high -= 1;
    if (low > MOST_INTEGER || high < -(double)MOST_INTEGER)
        return es_schema_refuse(run, low > MOST_INTEGER ? "minimum" : "maximum", "beyond 15 digits");
    const int64_t from = low < -(double)MOST_INTEGER ? -MOST_INTEGER : (int64_t)low;
    const int64_t to = high > MOST_INTEGER ? MOST_INTEGER : (int64_t)high;
    if (!step) {
        put_integers(from, to, body);
        return ES_OK;
    }
    const double each = json_is_number(step) ? json_number_value(step) : 0;
    if (!(each > 0)) return es_schema_invalid(run, "multipleOf", "must be a number above 0");
    if (each != floor(each) || each > MOST_INTEGER) {
        /* Whole numbers are multiples of 0.5, 0.25 and 0.01. Of numbers with decimals, whether 0.07 is one of 0.01 depends on how it
         * is computed: so only where whole numbers are wanted, or halves of halves. */
        const double inverse = 1 / each;
        const bool halves = inverse <= 1024 && ((int64_t)inverse & ((int64_t)inverse - 1)) == 0;
        if (inverse != floor(inverse) || inverse > 1e6 || !(halves || integer))
            return es_schema_refuse(run, "multipleOf", "unless it is a whole number, or whole numbers are wanted");
        put_integers(from, to, body);
        return ES_OK;
    }
    if (each == 1) {
        put_integers(from, to, body);
        return ES_OK;
    }
    const bool endless = !isfinite(b->high) && (!isfinite(b->low) || b->low == 0);
    return endless && each <= MOST_REMAINDERS ? put_endless_multiples(run, b, (int64_t)each, body)
                                              : put_multiples(run, from, to, (int64_t)each, body);
}

/* ---- numbers with decimals ---- */

/* A bound of at least 0: its whole part and the digits behind the point, none of them 0 at the end. */
typedef struct decimal {
    int64_t whole;
    char fraction[64];
    bool out; /* not itself allowed */
} decimal;

static bool read_decimal(double value, bool out, decimal *d)
{
    char text[400];
    *d = (decimal){.out = out};
    if (!(value <= MOST_INTEGER)) return false;
    for (int precision = 0; precision <= 40; precision++) {
        snprintf(text, sizeof text, "%.*f", precision, value);
        if (strtod(text, NULL) != value) continue;
        const char *point = strchr(text, '.');
        d->whole = (int64_t)strtoll(text, NULL, 10);
        if (point && strlen(point + 1) < sizeof d->fraction) memcpy(d->fraction, point + 1, strlen(point + 1) + 1);
        size_t n = strlen(d->fraction);
        while (n && d->fraction[n - 1] == '0') d->fraction[--n] = '\0';
        return true;
    }
    return false;
}

/* Digits that may follow where `digits` of a number have been written: fewer than 15 in all. */
static int digits_left(int digits)
{
    return digits < MOST_DIGITS ? MOST_DIGITS - digits : 0;
}

/* ` ("." ...)?` for any fraction behind `digits` digits. */
static void put_any_fraction(int digits, es_text *body)
{
    const int left = digits_left(digits);
    if (left) es_text_printf(body, " (\".\" [0-9]{1,%d})?", left);
}

static void put_more(int digits, es_text *body)
{
    const int left = digits_left(digits);
    if (left) es_text_printf(body, " [0-9]{0,%d}", left);
}

/* Alternatives for digits that part from `bound` at one of them, upwards (+1) or downwards (−1); `digits` of the number have
 * been written. Beyond the 15th nobody could be sure that they are read as another number. */
static bool put_parting(const char *bound, int direction, int digits, es_text *body)
{
    bool any = false;
    for (int i = 0; bound[i] && digits + i < MOST_DIGITS; i++) {
        const char first = direction > 0 ? (char)(bound[i] + 1) : '0', last = direction > 0 ? '9' : (char)(bound[i] - 1);
        if (first > last) continue;
        if (any) es_text_puts(body, " | ");
        if (i) es_grammar_add_literal(body, bound, (size_t)i);
        es_text_printf(body, " [%c-%c]", first, last);
        put_more(digits + i + 1, body);
        any = true;
    }
    return any;
}

/* Digits that stand for no less (or, `out`, for more) than those of `bound`. */
static void put_upwards(const char *bound, bool out, int digits, es_text *body)
{
    const int n = (int)strlen(bound), left = digits_left(digits + n);
    es_text_puts(body, " (");
    const bool any = put_parting(bound, 1, digits, body);
    if (!out || left > 0) {
        if (any) es_text_puts(body, " | ");
        es_grammar_add_literal(body, bound, (size_t)n);
        if (!out)
            put_more(digits + n, body);
        else
            es_text_printf(body, " \"0\"{0,%d} [1-9]", left > 3 ? 3 : left - 1);
    } else if (!any) {
        es_text_puts(body, "[]");
    }
    es_text_puts(body, ")");
}

/* Digits that stand for no more (or, `out`, for less) than those of `bound`, which is not empty; at least one. */
static void put_downwards(const char *bound, bool out, int digits, es_text *body)
{
    es_text_puts(body, " (");
    bool any = put_parting(bound, -1, digits, body);
    const size_t whole = strlen(bound);
    for (size_t n = 1; n < whole + !out; n++) { /* a beginning of it is less */
        if (any) es_text_puts(body, " | ");
        es_grammar_add_literal(body, bound, n);
        any = true;
    }
    es_text_puts(body, any ? ")" : "[])");
}

/* What may follow a whole part that equals the lower bound's. */
static void put_fraction_from(const decimal *low, int digits, es_text *body)
{
    if (*low->fraction == '\0' && !low->out) {
        put_any_fraction(digits, body);
        return;
    }
    es_text_puts(body, " \".\"");
    put_upwards(low->fraction, low->out, digits, body);
}

/* What may follow a whole part that equals the upper bound's. */
static void put_fraction_to(const decimal *high, int digits, es_text *body)
{
    if (*high->fraction == '\0') {
        es_text_puts(body, high->out ? " []" : " (\".\" \"0\"{1,3})?");
        return;
    }
    es_text_puts(body, " (\".\"");
    put_downwards(high->fraction, high->out, digits, body);
    es_text_puts(body, ")?");
}

/* Both bounds have the same whole part. */
static void put_fraction_between(const decimal *low, const decimal *high, int digits, es_text *body)
{
    char a[sizeof low->fraction];
    const char *b = high->fraction;
    if (*low->fraction == '\0' && !low->out) {
        put_fraction_to(high, digits, body);
        return;
    }
    if (strcmp(low->fraction, b) >= 0) { /* ends without zeros compare as texts do */
        const bool one = strcmp(low->fraction, b) == 0 && !low->out && !high->out;
        es_text_puts(body, one ? " \".\" " : " []");
        if (one) es_grammar_add_literal(body, b, strlen(b));
        return;
    }
    size_t same = 0, n = strlen(low->fraction);
    memcpy(a, low->fraction, n + 1);
    for (; n < strlen(b); n++) a[n] = '0', a[n + 1] = '\0';
    while (a[same] == b[same]) same++;
    n = strlen(a);
    while (n > same + 1 && a[n - 1] == '0') a[--n] = '\0';
    const int written = digits + (int)same + 1;
    es_text_puts(body, " \".\" ");
    if (same) es_grammar_add_literal(body, a, same);
    es_text_printf(body, " (\"%c\"", a[same]);
    put_upwards(a + same + 1, low->out, written, body);
    if (b[same] - a[same] > 1) {
        es_text_printf(body, " | [%c-%c]", a[same] + 1, b[same] - 1);
        put_more(written, body);
    }
    es_text_printf(body, " | \"%c\"", b[same]);
    if (b[same + 1]) {
        put_downwards(b + same + 1, high->out, written, body);
        es_text_putc(body, '?');
    } else if (high->out) {
        es_text_puts(body, " []");
    }
    es_text_puts(body, ")");
}

/* Whole parts from `from` to `to`, each with any fraction; so many digits in all as are read exactly. */
static void put_wholes(int64_t from, int64_t to, es_text *body)
{
    const int64_t top = to < MOST_WITH_FRACTION ? to : MOST_WITH_FRACTION;
    if (from <= top) {
        es_text_puts(body, " | ");
        put_range(from, top, body);
        put_any_fraction(digit_count(top), body);
    }
    if (to > MOST_WITH_FRACTION) {
        es_text_puts(body, " | ");
        put_range(from > MOST_WITH_FRACTION ? from : MOST_WITH_FRACTION + 1, to, body);
    }
}

/* 0 ≤ low, high; `high` NULL: no end. */
static void put_decimals(const decimal *low, const decimal *high, es_text *body)
{
    const int64_t top = high ? high->whole - 1 : MOST_INTEGER;
    es_text_printf(body, "(\"%" PRId64 "\"", low->whole);
    if (high && low->whole == high->whole) {
        put_fraction_between(low, high, digit_count(low->whole), body);
    } else {
        put_fraction_from(low, digit_count(low->whole), body);
        if (low->whole < top) put_wholes(low->whole + 1, top, body);
        if (high) {
            es_text_printf(body, " | \"%" PRId64 "\"", high->whole);
            put_fraction_to(high, digit_count(high->whole), body);
        }
    }
    es_text_puts(body, ")");
}

static es_status put_real(es_schema_run *run, const bounds *b, es_text *body)
{
    const decimal zero = {0}, above_zero = {.out = true};
    decimal low, high;
    const bool has_low = isfinite(b->low), has_high = isfinite(b->high);
    if ((has_low && !read_decimal(fabs(b->low), b->above, &low)) ||
        (has_high && !read_decimal(fabs(b->high), b->below, &high)))
        return es_schema_refuse(run, has_low ? "minimum" : "maximum", "beyond 15 digits before or 40 behind the point");
    const bool negative = b->low < 0, positive = b->high >= 0;
    es_text_puts(body, "(");
    if (negative) { /* turned round: from the upper bound down to the lower one */
        es_text_puts(body, "\"-\" ");
        put_decimals(has_high && b->high < 0 ? &high : &above_zero, has_low ? &low : NULL, body);
    }
    if (positive) {
        if (negative) es_text_puts(body, " | ");
        put_decimals(has_low && b->low >= 0 ? &low : &zero, has_high ? &high : NULL, body);
    }
    es_text_puts(body, negative || positive ? ")" : "[])");
    return ES_OK;
}

es_status es_schema_number(es_schema_run *run, const json_t *schema, bool integer, es_text *body)
{
    bounds b;
    ES_TRY(read_bounds(run, schema, &b));
    const bool bounded = isfinite(b.low) || isfinite(b.high);
    if (b.low > b.high || (b.low == b.high && (b.above || b.below))) {
        es_text_puts(body, "[]");
        return ES_OK;
    }
    if (json_object_get(schema, "multipleOf")) return put_whole(run, schema, &b, integer, body); /* whole numbers are numbers too */
    if (integer && bounded) return put_whole(run, schema, &b, integer, body);
    if (bounded) return put_real(run, &b, body);
    es_text_puts(body, integer ? "json-integer" : "json-number");
    return ES_OK;
}
