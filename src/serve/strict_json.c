/* strict_json.c: see strict_json.h. */
#include "serve/strict_json.h"

#include <string.h>

/* Counted before anything is built: a text of a few megabytes can ask for a tree of gigabytes, or for a deep recursion. */
static es_status check_shape(const char *data, size_t bytes)
{
    size_t depth = 0, values = 1;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = data[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
            continue;
        }
        switch (c) {
        case '"': in_string = true; break;
        case '[':
        case '{':
            values++;
            if (++depth > ES_JSON_DEPTH_MAX)
                return es_fail(ES_INVALID, "the JSON is nested deeper than %d levels", ES_JSON_DEPTH_MAX);
            break;
        case ']':
        case '}':
            if (depth > 0) depth--;
            break;
        case ',': values++; break;
        default: break;
        }
    }
    if (values > ES_JSON_VALUES_MAX) return es_fail(ES_INVALID, "the JSON holds more than %d values", ES_JSON_VALUES_MAX);
    return ES_OK;
}

es_status es_json_parse_object(const char *data, size_t bytes, json_t **object)
{
    if (bytes == 0) return es_fail(ES_INVALID, "the body is empty; send a JSON object");
    ES_TRY(check_shape(data, bytes));
    json_error_t error;
    json_t *value = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!value) {
        /* jansson's sentence ends with the text near the fault, which may be a prompt: keep what comes before */
        const char *near = strstr(error.text, " near '");
        const int n = near ? (int)(near - error.text) : (int)strlen(error.text);
        return es_fail(ES_INVALID, "the body is not valid JSON: %.*s (line %d, column %d)", n, error.text, error.line,
                       error.column);
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return es_fail(ES_INVALID, "the body must be a JSON object");
    }
    *object = value;
    return ES_OK;
}

/* Length of the well-formed UTF-8 character at `s`, or 0. */
static size_t character_bytes(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80) return 1;
    const size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

json_t *es_json_text(const char *data, size_t bytes)
{
    if (bytes == 0) return json_string("");
    json_t *plain = json_stringn(data, bytes);
    if (plain) return plain;
    es_text clean = {0};
    for (size_t i = 0; i < bytes;) {
        const size_t n = character_bytes((const unsigned char *)data + i, bytes - i);
        if (n) es_text_append(&clean, data + i, n);
        else es_text_puts(&clean, "\xEF\xBF\xBD");
        i += n ? n : 1;
    }
    json_t *mended = clean.failed ? NULL : json_stringn(clean.data, clean.bytes);
    es_text_free(&clean);
    return mended;
}

static int append_json(const char *data, size_t bytes, void *out)
{
    es_text_append(out, data, bytes);
    return ((es_text *)out)->failed ? -1 : 0;
}

void es_json_write(es_text *out, const json_t *value)
{
    if (!value || json_dump_callback(value, append_json, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) out->failed = true;
}
