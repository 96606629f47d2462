/* gguf_meta.h: what gguf.c and gguf_meta.c share: a checked cursor and the typed metadata. Internal. */
#ifndef ES_MODEL_GGUF_META_H
#define ES_MODEL_GGUF_META_H

#include "model/gguf.h"
#include "model/tensor_set.h"

/** A position in a file image. Nothing is read but through the functions below, which stop at the end. */
typedef struct es_gguf_cursor {
    const char *path; /**< for messages */
    const unsigned char *data;
    size_t bytes;
    size_t at; /**< ≤ bytes */
} es_gguf_cursor;

/** Step over `bytes` bytes; *start is where they begin. `what` is for the message. */
es_status es_gguf_take(es_gguf_cursor *cursor, uint64_t bytes, const char *what, const unsigned char **start);
es_status es_gguf_take_u32(es_gguf_cursor *cursor, const char *what, uint32_t *value);
es_status es_gguf_take_u64(es_gguf_cursor *cursor, const char *what, uint64_t *value);
/** A length and that many bytes. */
es_status es_gguf_take_string(es_gguf_cursor *cursor, const char *what, es_gguf_string *string);
/** A string of 1 to `limit` printable ASCII characters, as a fresh C string (free()). */
es_status es_gguf_take_name(es_gguf_cursor *cursor, const char *what, size_t limit, char **name);

typedef struct es_gguf_entry {
    char *key;                  /**< owned */
    uint32_t type;              /**< the file's number for the value's type */
    uint32_t element;           /**< of an array: the elements' type */
    uint64_t count;             /**< of an array; 1 otherwise */
    const unsigned char *value; /**< in the file image: the number, the string's length field, or the first element */
    size_t *text_at;            /**< of an array of strings: where each one's length field is, from `value`; owned */
} es_gguf_entry;

struct es_gguf {
    es_gguf_entry *entries; /**< sorted by key */
    size_t count;
    es_gguf_string architecture; /**< data is NULL when the file names none */
    es_tensor_set *tensors;
};

/** Read `count` entries into an empty gguf and sort them. */
es_status es_gguf_read_entries(es_gguf *gguf, es_gguf_cursor *cursor, uint64_t count);
void es_gguf_free_entries(es_gguf *gguf);

/** One whole file image, not looking at other parts. `data` must outlive the result. */
es_status es_gguf_parse(const char *path, const unsigned char *data, size_t bytes, es_gguf **gguf);

#endif
