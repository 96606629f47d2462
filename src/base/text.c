/* text.c: the growing byte string of text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `more` bytes and the NUL; doubles, so that appending n bytes costs O(n) in all. */
static bool reserve(es_text *text, size_t more)
{
    if (text->failed) return false;
    if (more > (size_t)-1 - text->bytes - 1 || (text->limit && text->bytes + more > text->limit)) {
        text->failed = true;
        return false;
    }
    const size_t need = text->bytes + more + 1;
    if (need <= text->capacity) return true;
    size_t capacity = text->capacity ? text->capacity : 64;
    while (capacity < need) capacity = capacity > (size_t)-1 / 2 ? need : capacity * 2;
    char *data = realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void es_text_append(es_text *text, const char *data, size_t bytes)
{
    if (!reserve(text, bytes)) return;
    if (bytes) memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    text->data[text->bytes] = '\0';
}

void es_text_puts(es_text *text, const char *string)
{
    es_text_append(text, string, strlen(string));
}

void es_text_putc(es_text *text, char c)
{
    es_text_append(text, &c, 1);
}

void es_text_printf(es_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (bytes < 0) {
        text->failed = true;
    } else if (reserve(text, (size_t)bytes)) {
        vsnprintf(text->data + text->bytes, (size_t)bytes + 1, format, again);
        text->bytes += (size_t)bytes;
    }
    va_end(again);
}

void es_text_put_codepoint(es_text *text, unsigned codepoint)
{
    unsigned c = codepoint;
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = 0xFFFD;
    char out[4];
    size_t n;
    if (c < 0x80) {
        out[0] = (char)c, n = 1;
    } else if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 0x3F)), n = 2;
    } else if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 0x3F)), out[2] = (char)(0x80 | (c & 0x3F)), n = 3;
    } else {
        out[0] = (char)(0xF0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 0x3F));
        out[2] = (char)(0x80 | (c >> 6 & 0x3F)), out[3] = (char)(0x80 | (c & 0x3F)), n = 4;
    }
    es_text_append(text, out, n);
}

void es_text_put_escaped(es_text *text, const char *string)
{
    for (; *string; string++) {
        switch (*string) {
        case '&': es_text_puts(text, "&amp;"); break;
        case '<': es_text_puts(text, "&lt;"); break;
        case '>': es_text_puts(text, "&gt;"); break;
        case '"': es_text_puts(text, "&quot;"); break;
        default: es_text_putc(text, (unsigned char)*string < ' ' ? ' ' : *string);
        }
    }
}

void es_text_clear(es_text *text)
{
    text->bytes = 0;
    text->failed = false;
    if (text->data) text->data[0] = '\0';
}

void es_text_free(es_text *text)
{
    free(text->data);
    *text = (es_text){0};
}
