/* fuzz_ids.c: token numbers typed or made by anyone; what is accepted lies in the vocabulary. */
#include <stdint.h>
#include <stdlib.h>

/* The command line is no part of the library: the target brings the reader in itself. */
#include "cli/input.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    es_text text = {0};
    es_text_append(&text, (const char *)data, size);
    es_token *ids;
    size_t count;
    if (es_parse_ids("input", &text, 512, &ids, &count) == ES_OK) {
        if (count == 0 || count > size) abort();
        for (size_t i = 0; i < count; i++)
            if (ids[i] < 0 || ids[i] >= 512) abort();
        free(ids);
    }
    es_text_free(&text);
    return 0;
}
