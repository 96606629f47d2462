/* dump_gguf FILE: everything that the reader found, as JSON on standard output. For tests/py/test_gguf.py. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/gguf.h"

static json_t *text(es_gguf_string s)
{
    return json_stringn(s.data, s.bytes);
}

static json_t *array_element(const es_gguf *gguf, const char *key, int64_t index)
{
    int64_t integer;
    double number;
    bool boolean;
    es_gguf_string string;
    if (es_gguf_array_integer(gguf, key, index, &integer)) return json_integer(integer);
    if (es_gguf_array_number(gguf, key, index, &number)) return json_real(number);
    if (es_gguf_array_boolean(gguf, key, index, &boolean)) return json_boolean(boolean);
    if (es_gguf_array_text(gguf, key, index, &string)) return text(string);
    return json_null();
}

static json_t *metadata_value(const es_gguf *gguf, const char *key)
{
    int64_t integer;
    double number;
    bool boolean;
    es_gguf_string string;
    if (es_gguf_integer(gguf, key, &integer)) return json_integer(integer);
    if (es_gguf_number(gguf, key, &number)) return json_real(number);
    if (es_gguf_boolean(gguf, key, &boolean)) return json_boolean(boolean);
    if (es_gguf_text(gguf, key, &string)) return text(string);
    if (es_gguf_get_kind(gguf, key) != ES_GGUF_ARRAY) return json_null();
    json_t *array = json_array();
    for (int64_t i = 0; i < es_gguf_array_length(gguf, key); i++) json_array_append_new(array, array_element(gguf, key, i));
    return array;
}

static json_t *tensor_value(const es_tensor *tensor)
{
    json_t *shape = json_array();
    for (int axis = 0; axis < tensor->rank; axis++) json_array_append_new(shape, json_integer(tensor->shape[axis]));
    char *hex = malloc(2 * tensor->bytes + 1);
    for (size_t i = 0; i < tensor->bytes; i++) sprintf(hex + 2 * i, "%02x", ((const unsigned char *)tensor->data)[i]);
    hex[2 * tensor->bytes] = '\0';
    json_t *value = json_pack("{s:s, s:o, s:s}", "type", es_dtype_get_info(tensor->type)->name, "shape", shape, "data", hex);
    free(hex);
    return value;
}

int main(int argc, char **argv)
{
    es_gguf *gguf;
    const es_status status = argc == 2 ? es_gguf_open(argv[1], &gguf) : es_fail(ES_INVALID, "usage: dump_gguf FILE");
    if (status != ES_OK) {
        fprintf(stderr, "%s: %s\n", es_status_name(status), es_error_message());
        return es_status_exit_code(status);
    }
    json_t *metadata = json_object(), *tensors = json_object(), *unreadable = json_object();
    const char *name, *type;
    for (size_t i = 0; (name = es_gguf_key(gguf, i)); i++) json_object_set_new(metadata, name, metadata_value(gguf, name));
    const es_tensor_set *set = es_gguf_tensors(gguf);
    for (size_t i = 0; i < es_tensor_count(set); i++)
        json_object_set_new(tensors, es_tensor_at(set, i)->name, tensor_value(es_tensor_at(set, i)));
    for (size_t i = 0; (name = es_tensor_unreadable_at(set, i, &type)); i++)
        json_object_set_new(unreadable, name, json_string(type));
    json_t *root = json_pack("{s:o, s:o, s:o}", "metadata", metadata, "tensors", tensors, "unreadable", unreadable);
    json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    json_decref(root);
    es_gguf_close(gguf);
    return 0;
}
