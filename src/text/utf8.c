/* utf8.c: the character reader of utf8.h. */
#include "text/utf8.h"

#include <utf8proc.h>

int es_utf8_step(const unsigned char *text, size_t bytes, uint32_t *codepoint)
{
    const unsigned lead = text[0];
    if (lead < 0x80) {
        *codepoint = lead;
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) return -1;

    /* The first continuation byte has narrower bounds where it would spell an overlong form, a surrogate, or past 10FFFF. */
    const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    unsigned low = 0x80, high = 0xBF;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    uint32_t c = lead & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= bytes) return 0;
        const unsigned b = text[i];
        if (b < low || b > high) return -i;
        c = c << 6 | (b & 0x3F);
        low = 0x80, high = 0xBF;
    }
    *codepoint = c;
    return length;
}

size_t es_utf8_valid(const unsigned char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        if (text[at] < 0x80) {
            at++;
            continue;
        }
        uint32_t c;
        const int n = es_utf8_step(text + at, bytes - at, &c);
        if (n <= 0) break;
        at += (size_t)n;
    }
    return at;
}

static unsigned ascii_class(uint32_t c)
{
    if (c == '\n' || c == '\r') return ES_CHAR_SPACE | ES_CHAR_NEWLINE;
    if (c == ' ' || (c >= 9 && c <= 13)) return ES_CHAR_SPACE;
    if ((c | 32) >= 'a' && (c | 32) <= 'z') return ES_CHAR_LETTER;
    if (c >= '0' && c <= '9') return ES_CHAR_NUMBER;
    return ES_CHAR_OTHER;
}

unsigned es_char_class(uint32_t codepoint)
{
    if (codepoint < 0x80) return ascii_class(codepoint);
    if (codepoint == 0x85) return ES_CHAR_SPACE;
    switch (utf8proc_category((utf8proc_int32_t)codepoint)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return ES_CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return ES_CHAR_NUMBER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return ES_CHAR_MARK;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return ES_CHAR_SPACE;
    default: return ES_CHAR_OTHER;
    }
}

bool es_char_is_word(uint32_t codepoint)
{
    if (es_char_class(codepoint) & (ES_CHAR_LETTER | ES_CHAR_MARK)) return true;
    switch (utf8proc_category((utf8proc_int32_t)codepoint)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    /* Join_Control, and the symbols that are Alphabetic: circled and squared Latin letters. */
    return codepoint == 0x200C || codepoint == 0x200D || (codepoint >= 0x24B6 && codepoint <= 0x24E9) ||
           (codepoint >= 0x1F130 && codepoint <= 0x1F149) || (codepoint >= 0x1F150 && codepoint <= 0x1F169) ||
           (codepoint >= 0x1F170 && codepoint <= 0x1F189);
}
