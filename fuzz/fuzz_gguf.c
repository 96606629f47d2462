/* Any bytes as a GGUF file: refused with a sentence, or all that the accessors return is inside the file. */
#include <stdint.h>
#include <stdlib.h>

#include "model/gguf_meta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void touch(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) sink = ((const unsigned char *)p)[i];
}

static void walk_entry(const es_gguf *gguf, const char *key)
{
    int64_t integer;
    double number;
    bool boolean;
    es_gguf_string text;
    if (!es_gguf_has(gguf, key) || es_gguf_get_kind(gguf, key) == ES_GGUF_ABSENT) abort();
    es_gguf_integer(gguf, key, &integer);
    es_gguf_number(gguf, key, &number);
    es_gguf_boolean(gguf, key, &boolean);
    if (es_gguf_text(gguf, key, &text)) touch(text.data, text.bytes);
    const int64_t length = es_gguf_array_length(gguf, key);
    for (int64_t i = -1; i <= length; i++) {
        bool any = es_gguf_array_integer(gguf, key, i, &integer);
        any = es_gguf_array_number(gguf, key, i, &number) || any;
        any = es_gguf_array_boolean(gguf, key, i, &boolean) || any;
        if (es_gguf_array_text(gguf, key, i, &text)) touch(text.data, text.bytes);
        if (any && (i < 0 || i >= length)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    es_gguf *gguf;
    if (es_gguf_parse("fuzz", data, size, &gguf) != ES_OK) return 0;
    const char *key, *name, *type;
    for (size_t i = 0; (key = es_gguf_key(gguf, i)); i++) walk_entry(gguf, key);
    es_gguf_has(gguf, "%s.block_count");
    const es_tensor_set *set = es_gguf_tensors(gguf);
    for (size_t i = 0; i < es_tensor_count(set); i++) {
        const es_tensor *tensor = es_tensor_at(set, i);
        touch(tensor->data, tensor->bytes);
        if (es_tensor_find(set, tensor->name) != tensor) abort();
    }
    for (size_t i = 0; (name = es_tensor_unreadable_at(set, i, &type)); i++)
        if (es_tensor_unreadable(set, name) != type) abort();
    es_gguf_close(gguf);
    return 0;
}
