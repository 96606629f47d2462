/* Any bytes as a hub's list of files, and as a model's name: refused with a sentence, or only names that can be nothing but a
 * file in its folder are kept, and what is wanted of them is there. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hub/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(es_hub_listing *listing, const char *wanted)
{
    if (es_hub_listing_pick(listing, wanted) != ES_OK) return;
    size_t count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const es_hub_file *file = &listing->files[i];
        if (strchr(file->name, '/') || file->name[0] == '.' || !es_hub_file_is_fit(file->name)) abort();
        if (file->bytes < -1 || (file->digest[0] && strspn(file->digest, "0123456789abcdef") != strlen(file->digest))) abort();
        count += file->wanted;
    }
    if (!count) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    es_hub_name name;
    if (es_hub_name_parse(text, &name) == ES_OK && (strchr(name.org, '/') || strchr(name.repo, '/') || strstr(name.file, "/")))
        abort();
    es_hub_listing listing;
    if (es_hub_listing_read(text, size, &listing) == ES_OK) {
        check(&listing, "");
        check(&listing, "Q8_0");
        es_hub_listing_free(&listing);
    }
    free(text);
    return 0;
}
