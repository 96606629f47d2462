/* text.h: a growing byte string, for building output whose length is not known beforehand.
 *
 *   es_text out = {0};
 *   es_text_printf(&out, "%d tokens", n);
 *   if (out.failed) return es_fail(ES_NO_MEMORY, "...");
 *   ...
 *   es_text_free(&out);
 *
 * Appending never fails loudly: an allocation failure (or passing `limit`) sets `failed`, later appends do nothing, and the
 * caller checks once at the end. `data` is always NUL-terminated once anything was appended. */
#ifndef ES_BASE_TEXT_H
#define ES_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct es_text {
    char *data;      /**< owned; NULL while empty */
    size_t bytes;    /**< length without the terminating NUL */
    size_t capacity; /**< allocated bytes */
    size_t limit;    /**< most bytes allowed; 0 = no limit */
    bool failed;     /**< an append did not happen */
} es_text;

void es_text_append(es_text *text, const char *data, size_t bytes);
void es_text_puts(es_text *text, const char *string);
void es_text_putc(es_text *text, char c);
void es_text_printf(es_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Append one Unicode code point as UTF-8; surrogates and values past 0x10FFFF become U+FFFD. */
void es_text_put_codepoint(es_text *text, unsigned codepoint);
/** Append a string with & < > and double quotes as entities of HTML and XML; control characters become spaces. */
void es_text_put_escaped(es_text *text, const char *string);
/** Forget the contents, keep the memory; clears `failed`. */
void es_text_clear(es_text *text);
void es_text_free(es_text *text);

#endif
