/* gguf.h: GGUF v2 and v3 files, whole or split (model-00001-of-00003.gguf).
 *
 * Metadata is parsed into typed entries; tensors into an es_tensor_set. Arrays stay in the mapping and are read through
 * accessors that check the index. */
#ifndef ES_MODEL_GGUF_H
#define ES_MODEL_GGUF_H

#include "model/tensor_file.h"

typedef struct es_gguf es_gguf;

/** A string inside the mapping: not NUL-terminated. */
typedef struct es_gguf_string {
    const char *data;
    size_t bytes;
} es_gguf_string;

/** What a metadata value is. */
typedef enum es_gguf_kind {
    ES_GGUF_ABSENT,
    ES_GGUF_INTEGER, /**< any width, signed or not */
    ES_GGUF_NUMBER,  /**< float32 or float64 */
    ES_GGUF_BOOLEAN,
    ES_GGUF_TEXT,
    ES_GGUF_ARRAY,
} es_gguf_kind;

/** Open a file; the first part of a split model opens them all. ES_BAD_FILE, ES_UNSUPPORTED
 *  (big-endian, version 1), ES_NOT_FOUND (a part is missing), ES_INVALID (a later part: the message names the first). */
es_status es_gguf_open(const char *path, es_gguf **gguf);
void es_gguf_close(es_gguf *gguf);
const es_tensor_set *es_gguf_tensors(const es_gguf *gguf);

/** Metadata by key. Each returns false when the key is absent or of another kind; integers convert between widths
 *  when the value fits, and to numbers. Keys may be given with "%s" for the architecture's name: "%s.block_count". */
bool es_gguf_has(const es_gguf *gguf, const char *key);
es_gguf_kind es_gguf_get_kind(const es_gguf *gguf, const char *key);
es_gguf_kind es_gguf_get_array_kind(const es_gguf *gguf, const char *key); /**< of the elements; ES_GGUF_ABSENT if no array */
bool es_gguf_integer(const es_gguf *gguf, const char *key, int64_t *value);
bool es_gguf_number(const es_gguf *gguf, const char *key, double *value);
bool es_gguf_boolean(const es_gguf *gguf, const char *key, bool *value);
bool es_gguf_text(const es_gguf *gguf, const char *key, es_gguf_string *value);
/** Arrays: the element count, or −1 when absent or no array. Each element is found in constant time; false past the end. */
int64_t es_gguf_array_length(const es_gguf *gguf, const char *key);
bool es_gguf_array_integer(const es_gguf *gguf, const char *key, int64_t index, int64_t *value);
bool es_gguf_array_number(const es_gguf *gguf, const char *key, int64_t index, double *value);
bool es_gguf_array_boolean(const es_gguf *gguf, const char *key, int64_t index, bool *value);
bool es_gguf_array_text(const es_gguf *gguf, const char *key, int64_t index, es_gguf_string *value);

/** Enumerate the metadata keys for `inspect`, in key order. NULL past the end. */
const char *es_gguf_key(const es_gguf *gguf, size_t index);

#endif
