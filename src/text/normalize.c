/* normalize.c: NFC by way of utf8proc.
 *
 * utf8proc's own whole-string functions put combining marks in order by exchanging neighbours, which takes quadratic time on
 * a long run of marks; whoever may send a prompt could stall the server with one. So it is asked only for what it knows about
 * single characters and for composing, and the ordering (a stable sort within each run of marks) is done here. */
#include "text/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/utf8.h"

bool es_nfc_is_plain(const unsigned char *text, size_t bytes)
{
    /* U+0300 is CC 80: below it every character composes with nothing before it and has class 0. */
    for (size_t i = 0; i < bytes; i++)
        if (text[i] >= 0xCC) return false;
    return true;
}

typedef struct buffer {
    int32_t *data;
    size_t count, capacity;
} buffer;

static bool reserve(buffer *b, size_t more)
{
    if (b->capacity - b->count >= more) return true;
    const size_t capacity = b->capacity + b->capacity / 2 + more + 64;
    if (capacity > SIZE_MAX / sizeof *b->data) return false;
    int32_t *data = realloc(b->data, capacity * sizeof *data);
    if (!data) return false;
    b->data = data;
    b->capacity = capacity;
    return true;
}

static int combining_class(int32_t codepoint)
{
    return utf8proc_get_property(codepoint)->combining_class;
}

/* Stable counting sort of one run of marks by combining class (1 to 254). */
static bool sort_marks(int32_t *mark, size_t n)
{
    if (n < 2) return true;
    bool ordered = true;
    for (size_t i = 1; i < n && ordered; i++) ordered = combining_class(mark[i - 1]) <= combining_class(mark[i]);
    if (ordered) return true;

    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++) start[combining_class(mark[i]) + 1]++;
    for (int c = 1; c <= 256; c++) start[c] += start[c - 1];
    int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return false;
    for (size_t i = 0; i < n; i++) sorted[start[combining_class(mark[i])]++] = mark[i];
    memcpy(mark, sorted, n * sizeof *mark);
    free(sorted);
    return true;
}

static bool order(buffer *b)
{
    for (size_t i = 0; i < b->count;) {
        if (combining_class(b->data[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i + 1;
        while (end < b->count && combining_class(b->data[end]) != 0) end++;
        if (!sort_marks(b->data + i, end - i)) return false;
        i = end;
    }
    return true;
}

/* One stretch of valid UTF-8. */
static bool append_valid(const unsigned char *text, size_t bytes, buffer *b, es_text *out)
{
    b->count = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t codepoint = 0;
        const int length = es_utf8_step(text + at, bytes - at, &codepoint);
        if (length <= 0 || !reserve(b, 32)) return false;
        int boundary = 0;
        const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)codepoint, b->data + b->count, 32,
                                                           UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
        if (n < 0 || n > 32) return false;
        b->count += (size_t)n;
        at += (size_t)length;
    }
    if (!order(b)) return false;
    const utf8proc_ssize_t n =
        utf8proc_normalize_utf32(b->data, (utf8proc_ssize_t)b->count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) return false;
    for (utf8proc_ssize_t i = 0; i < n; i++) es_text_put_codepoint(out, (unsigned)b->data[i]);
    return !out->failed;
}

es_status es_nfc_append(const unsigned char *text, size_t bytes, es_text *out)
{
    buffer b = {0};
    bool good = true;
    for (size_t at = 0; at < bytes && good;) {
        const size_t valid = es_utf8_valid(text + at, bytes - at);
        if (valid) {
            if (es_nfc_is_plain(text + at, valid))
                es_text_append(out, (const char *)text + at, valid);
            else
                good = append_valid(text + at, valid, &b, out);
            at += valid;
        }
        if (at < bytes) es_text_putc(out, (char)text[at++]);
    }
    free(b.data);
    if (!good || out->failed) return es_fail(ES_NO_MEMORY, "no memory to normalise a text of %zu bytes", bytes);
    return ES_OK;
}
