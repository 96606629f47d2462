/* template_unicode.c: the little of Python's str that depends on Unicode's tables. */
#include <string.h>
#include <utf8proc.h>

#include "text/template_value.h"

/* Strings are valid UTF-8 by construction, so only the end is checked here. */
size_t tpl_decode(const char *text, const char *end, uint32_t *point)
{
    const unsigned char *p = (const unsigned char *)text;
    const size_t left = (size_t)(end - text);
    if (left >= 4 && p[0] >= 0xF0) {
        *point = (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
        return 4;
    }
    if (left >= 3 && p[0] >= 0xE0) {
        *point = (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
        return 3;
    }
    if (left >= 2 && p[0] >= 0xC0) {
        *point = (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
        return 2;
    }
    *point = p[0];
    return 1;
}

size_t tpl_points(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

bool tpl_utf8_valid(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        utf8proc_int32_t point;
        const utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(bytes - at), &point);
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

size_t tpl_offset(const tpl_string *string, size_t index)
{
    if (index >= string->points) return string->bytes;
    if (string->points == string->bytes) return index;
    size_t at = 0;
    for (size_t i = 0; at < string->bytes; at++) {
        if (((unsigned char)string->data[at] & 0xC0) == 0x80) continue;
        if (i++ == index) break;
    }
    return at;
}

bool tpl_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool tpl_is_line_break(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool tpl_is_decimal(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_ND;
}

/* Python's isdigit() also takes superscripts and the like. */
bool tpl_is_digit(uint32_t c)
{
    return tpl_is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool tpl_is_alpha(uint32_t c)
{
    const utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool tpl_is_word(uint32_t c)
{
    const utf8proc_category_t k = category(c);
    return c == '_' || tpl_is_alpha(c) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

bool tpl_is_upper(uint32_t c)
{
    return utf8proc_isupper((utf8proc_int32_t)c);
}

bool tpl_is_lower(uint32_t c)
{
    return utf8proc_islower((utf8proc_int32_t)c);
}

bool tpl_is_printable(uint32_t c)
{
    if (c < 0x7F) return c >= 0x20;
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return false;
    default: return true;
    }
}

/* Letters whose upper case is several letters; the common ones. */
static const char *long_upper(uint32_t c, bool title)
{
    switch (c) {
    case 0xDF: return title ? "Ss" : "SS";
    case 0x149: return "\xCA\xBCN";
    case 0xFB00: return title ? "Ff" : "FF";
    case 0xFB01: return title ? "Fi" : "FI";
    case 0xFB02: return title ? "Fl" : "FL";
    default: return NULL;
    }
}

void tpl_put_upper(tpl_run *run, tpl_builder *out, uint32_t c)
{
    const char *several = long_upper(c, false);
    if (several)
        tpl_puts(run, out, several);
    else
        tpl_put_point(run, out, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
}

void tpl_put_title(tpl_run *run, tpl_builder *out, uint32_t c)
{
    const char *several = long_upper(c, true);
    if (several)
        tpl_puts(run, out, several);
    else
        tpl_put_point(run, out, (uint32_t)utf8proc_totitle((utf8proc_int32_t)c));
}

void tpl_put_lower(tpl_run *run, tpl_builder *out, uint32_t c)
{
    if (c == 0x130)
        tpl_puts(run, out, "i\xCC\x87");
    else
        tpl_put_point(run, out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}
