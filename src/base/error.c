/* error.c: one sentence per thread about what went wrong last.
 *
 * A code alone tells a program what to do; only a sentence tells a person. Keeping it per thread spares every function an
 * error argument, and costs nothing until something fails. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ES_ERROR_BYTES 1024

static _Thread_local char error_text[ES_ERROR_BYTES];

/* A sentence cut in the middle of a UTF-8 sequence would break whoever prints it as JSON. */
static void trim_to_character(char *text)
{
    size_t n = strlen(text);
    if (n < ES_ERROR_BYTES - 1) return;
    while (n > 0 && ((unsigned char)text[n - 1] & 0xC0) == 0x80) n--;
    if (n > 0 && (unsigned char)text[n - 1] >= 0xC0) n--;
    text[n] = '\0';
}

void es_error_record(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_text, sizeof error_text, format, args);
    va_end(args);
    trim_to_character(error_text);
}

void es_error_prefix(const char *format, ...)
{
    char inner[ES_ERROR_BYTES];
    memcpy(inner, error_text, sizeof inner);
    va_list args;
    va_start(args, format);
    const int written = vsnprintf(error_text, sizeof error_text, format, args);
    va_end(args);
    const size_t used = written < 0 ? 0 : (size_t)written;
    if (used < sizeof error_text) snprintf(error_text + used, sizeof error_text - used, ": %s", inner);
    trim_to_character(error_text);
}

const char *es_error_message(void)
{
    return error_text;
}

const char *es_status_name(es_status status)
{
    switch (status) {
    case ES_OK: return "ok";
    case ES_INVALID: return "invalid";
    case ES_BAD_FILE: return "bad_file";
    case ES_UNSUPPORTED: return "unsupported";
    case ES_NOT_FOUND: return "not_found";
    case ES_NO_MEMORY: return "no_memory";
    case ES_TOO_LONG: return "too_long";
    case ES_BUSY: return "busy";
    case ES_IO: return "io";
    case ES_CANCELLED: return "cancelled";
    case ES_INTERNAL: return "internal";
    case ES_UNAVAILABLE: return "unavailable";
    }
    return "unknown";
}

int es_status_exit_code(es_status status)
{
    switch (status) {
    case ES_OK: return 0;
    case ES_INVALID:
    case ES_BAD_FILE:
    case ES_UNSUPPORTED:
    case ES_NOT_FOUND:
    case ES_TOO_LONG: return 2;
    case ES_NO_MEMORY:
    case ES_BUSY:
    case ES_IO:
    case ES_CANCELLED:
    case ES_INTERNAL:
    case ES_UNAVAILABLE: return 1;
    }
    return 1;
}
