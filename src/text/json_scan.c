/* json_scan.c: see json_scan.h. */
#include "text/json_scan.h"

#include <stdbool.h>
#include <string.h>

enum state {
    TOP,         /* nothing yet */
    VALUE,       /* a value must come */
    FIRST_VALUE, /* after "[": a value or the end */
    FIRST_KEY,   /* after "{": a name or the end */
    KEY,         /* after ",": a name */
    COLON,
    AFTER, /* after a value */
    STRING,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS,
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
};

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static es_json_seen go(es_json_scan *scan, enum state next)
{
    scan->state = (uint8_t)next;
    return ES_JSON_MORE;
}

static es_json_seen open_container(es_json_scan *scan, bool array)
{
    if (scan->depth == ES_JSON_SCAN_DEPTH) return ES_JSON_BROKEN;
    const uint64_t bit = (uint64_t)1 << scan->depth++;
    scan->arrays = array ? scan->arrays | bit : scan->arrays & ~bit;
    return go(scan, array ? FIRST_VALUE : FIRST_KEY);
}

static bool in_array(const es_json_scan *scan)
{
    return scan->arrays >> (scan->depth - 1) & 1;
}

static es_json_seen close_container(es_json_scan *scan, bool array)
{
    if (in_array(scan) != array) return ES_JSON_BROKEN;
    scan->depth--;
    go(scan, AFTER);
    return scan->depth ? ES_JSON_MORE : ES_JSON_WHOLE;
}

static es_json_seen begin_string(es_json_scan *scan, bool key)
{
    scan->key = key;
    return go(scan, STRING);
}

static es_json_seen begin_literal(es_json_scan *scan, const char *rest)
{
    scan->literal = rest;
    return go(scan, LITERAL);
}

static es_json_seen begin_value(es_json_scan *scan, char c)
{
    switch (c) {
    case '{': return open_container(scan, false);
    case '[': return open_container(scan, true);
    case '"': return begin_string(scan, false);
    case 't': return begin_literal(scan, "rue");
    case 'f': return begin_literal(scan, "alse");
    case 'n': return begin_literal(scan, "ull");
    case '-': return go(scan, MINUS);
    case '0': return go(scan, ZERO);
    default: return is_digit(c) ? go(scan, DIGITS) : ES_JSON_BROKEN;
    }
}

static es_json_seen after_value(es_json_scan *scan, char c)
{
    if (is_space(c)) return go(scan, AFTER);
    if (c == ',') return go(scan, in_array(scan) ? VALUE : KEY);
    return c == '}' || c == ']' ? close_container(scan, c == ']') : ES_JSON_BROKEN;
}

static es_json_seen in_string(es_json_scan *scan, char c)
{
    if (c == '"') return go(scan, scan->key ? COLON : AFTER);
    if (c == '\\') return go(scan, ESCAPE);
    return (unsigned char)c < 0x20 ? ES_JSON_BROKEN : ES_JSON_MORE;
}

static es_json_seen in_escape(es_json_scan *scan, char c)
{
    if (scan->state == HEX) {
        if (!is_digit(c) && !((c | 32) >= 'a' && (c | 32) <= 'f')) return ES_JSON_BROKEN;
        return --scan->hex ? ES_JSON_MORE : go(scan, STRING);
    }
    if (c == 'u') {
        scan->hex = 4;
        return go(scan, HEX);
    }
    return c && strchr("\"\\/bfnrt", c) ? go(scan, STRING) : ES_JSON_BROKEN;
}

static es_json_seen in_literal(es_json_scan *scan, char c)
{
    if (c != *scan->literal) return ES_JSON_BROKEN;
    return *++scan->literal ? ES_JSON_MORE : go(scan, AFTER);
}

static es_json_seen in_number(es_json_scan *scan, char c)
{
    const bool digit = is_digit(c), e = c == 'e' || c == 'E';
    switch (scan->state) {
    case MINUS: return digit ? go(scan, c == '0' ? ZERO : DIGITS) : ES_JSON_BROKEN;
    case POINT: return digit ? go(scan, FRACTION) : ES_JSON_BROKEN;
    case EXPONENT:
        if (c == '+' || c == '-') return go(scan, EXPONENT_SIGN);
        return digit ? go(scan, EXPONENT_DIGITS) : ES_JSON_BROKEN;
    case EXPONENT_SIGN: return digit ? go(scan, EXPONENT_DIGITS) : ES_JSON_BROKEN;
    case EXPONENT_DIGITS: return digit ? ES_JSON_MORE : after_value(scan, c);
    case FRACTION:
        if (digit) return ES_JSON_MORE;
        return e ? go(scan, EXPONENT) : after_value(scan, c);
    case DIGITS:
        if (digit) return ES_JSON_MORE;
        break;
    default: break; /* ZERO */
    }
    if (c == '.') return go(scan, POINT);
    return e ? go(scan, EXPONENT) : after_value(scan, c);
}

es_json_seen es_json_scan_byte(es_json_scan *scan, char c)
{
    switch (scan->state) {
    case TOP:
        if (is_space(c)) return ES_JSON_MORE;
        return c == '{' || c == '[' ? begin_value(scan, c) : ES_JSON_BROKEN;
    case VALUE: return is_space(c) ? ES_JSON_MORE : begin_value(scan, c);
    case FIRST_VALUE:
        if (is_space(c)) return ES_JSON_MORE;
        return c == ']' ? close_container(scan, true) : begin_value(scan, c);
    case FIRST_KEY:
    case KEY:
        if (is_space(c)) return ES_JSON_MORE;
        if (c == '}' && scan->state == FIRST_KEY) return close_container(scan, false);
        return c == '"' ? begin_string(scan, true) : ES_JSON_BROKEN;
    case COLON:
        if (is_space(c)) return ES_JSON_MORE;
        return c == ':' ? go(scan, VALUE) : ES_JSON_BROKEN;
    case AFTER: return after_value(scan, c);
    case STRING: return in_string(scan, c);
    case ESCAPE:
    case HEX: return in_escape(scan, c);
    case LITERAL: return in_literal(scan, c);
    default: return in_number(scan, c);
    }
}

const char *es_json_slice(const char *text, size_t bytes, const char *name, size_t *value_bytes)
{
    es_json_scan scan = {0};
    const size_t name_bytes = strlen(name);
    const char *found = NULL;
    size_t string_at = 0;
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t before = scan.state, depth = scan.depth;
        es_json_scan_byte(&scan, text[i]);
        if (before != STRING && before != ESCAPE && before != HEX && scan.state == STRING) string_at = i + 1;
        if (found) {
            if (depth != 1 || (scan.depth > 0 && scan.state != KEY)) continue;
            const char *end = text + i;
            while (end > found && is_space(end[-1])) end--;
            *value_bytes = (size_t)(end - found);
            return found;
        }
        if (depth != 1 || before != COLON || text[i] != ':') continue;
        /* the string that ended last was this member's name: its quote is behind white space */
        size_t end = i;
        while (is_space(text[end - 1])) end--;
        if (end - 1 - string_at != name_bytes || memcmp(text + string_at, name, name_bytes) != 0) continue;
        size_t at = i + 1;
        while (at < bytes && is_space(text[at])) at++;
        found = text + at;
    }
    return NULL;
}
