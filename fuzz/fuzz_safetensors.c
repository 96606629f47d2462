/* Any bytes as a safetensors file: refused with a sentence, or every tensor's bytes are inside the file. */
#include <stdint.h>
#include <stdlib.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    es_tensor_set *set = es_tensor_set_new();
    if (!set) return 0;
    if (es_safetensors_parse(set, "fuzz", data, size) == ES_OK && es_tensor_set_seal(set, "fuzz") == ES_OK) {
        for (size_t i = 0; i < es_tensor_count(set); i++) {
            const es_tensor *tensor = es_tensor_at(set, i);
            for (size_t b = 0; b < tensor->bytes; b++) sink = ((const unsigned char *)tensor->data)[b];
            if (es_tensor_find(set, tensor->name) != tensor) abort();
        }
        const char *name, *type;
        for (size_t i = 0; (name = es_tensor_unreadable_at(set, i, &type)); i++)
            if (es_tensor_unreadable(set, name) != type) abort();
    }
    es_tensor_set_close(set);
    return 0;
}
