/* strict_json.h: JSON from strangers and JSON for them. */
#ifndef ES_SERVE_STRICT_JSON_H
#define ES_SERVE_STRICT_JSON_H

#include <jansson.h>

#include "base/error.h"
#include "base/text.h"

enum {
    ES_JSON_DEPTH_MAX = 64,
    ES_JSON_VALUES_MAX = 4 << 20, /**< values in one text: a tree of them takes some 60 bytes each */
};

/** Parse one JSON text that must be an object. Duplicate keys, nesting past ES_JSON_DEPTH_MAX, more than ES_JSON_VALUES_MAX
 *  values, invalid UTF-8 and trailing bytes are ES_INVALID; the message never quotes the text itself. */
es_status es_json_parse_object(const char *data, size_t bytes, json_t **object);

/** A string value from any bytes: what is not UTF-8 becomes U+FFFD. */
json_t *es_json_text(const char *data, size_t bytes);

/** Append `value` to `out`, compact; sets out->failed when memory is short or `value` is NULL. */
void es_json_write(es_text *out, const json_t *value);

#endif
