/* listing.c: see listing.h. */
#include "hub/listing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

/* ---- reading ---- */

static bool is_hex(const char *text, size_t digits)
{
    return text && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* Only printable ASCII: it is shown on a terminal. */
static void copy_plain(char *to, size_t room, const char *from)
{
    size_t n = 0;
    for (; *from && n + 1 < room; from++)
        if (*from >= ' ' && *from <= '~') to[n++] = *from;
    to[n] = '\0';
}

static void read_licence(json_t *root, es_hub_listing *listing)
{
    json_t *card = json_object_get(root, "cardData");
    const char *licence = json_string_value(json_object_get(card, "license"));
    const char *name = json_string_value(json_object_get(card, "license_name"));
    if (licence && strcmp(licence, "other") == 0 && name) licence = name;
    size_t i;
    json_t *tag;
    json_array_foreach(json_object_get(root, "tags"), i, tag)
    {
        const char *text = json_string_value(tag);
        if (!licence && text && strncmp(text, "license:", 8) == 0) licence = text + 8;
    }
    if (licence) copy_plain(listing->licence, sizeof listing->licence, licence);
}

static bool read_file(json_t *row, es_hub_file *file)
{
    const char *name = json_string_value(json_object_get(row, "rfilename"));
    if (!name || !es_hub_file_is_fit(name)) return false;
    *file = (es_hub_file){.bytes = -1};
    memcpy(file->name, name, strlen(name));
    json_t *lfs = json_object_get(row, "lfs");
    const char *sha256 = json_string_value(json_object_get(lfs, "sha256"));
    const char *blob = json_string_value(json_object_get(row, "blobId"));
    json_t *size = json_object_get(lfs, "size");
    if (!json_is_integer(size)) size = json_object_get(row, "size");
    if (json_is_integer(size) && json_integer_value(size) >= 0) file->bytes = json_integer_value(size);
    if (is_hex(sha256, 64)) {
        file->kind = ES_DIGEST_SHA256;
        memcpy(file->digest, sha256, 64);
    } else if (!lfs && is_hex(blob, 40)) {
        file->kind = ES_DIGEST_GIT_BLOB;
        memcpy(file->digest, blob, 40);
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const es_hub_file *)a)->name, ((const es_hub_file *)b)->name);
}

static es_status read_root(json_t *root, es_hub_listing *listing)
{
    json_t *rows = json_object_get(root, "siblings");
    const char *commit = json_string_value(json_object_get(root, "sha"));
    if (!json_is_array(rows) || !is_hex(commit, 40))
        return es_fail(ES_BAD_FILE, "the hub's answer has no list of files; is HF_ENDPOINT the address of a hub?");
    memcpy(listing->commit, commit, 40);
    json_t *gated = json_object_get(root, "gated");
    listing->gated = gated && !json_is_false(gated) && !json_is_null(gated);
    read_licence(root, listing);
    const size_t most = json_array_size(rows) < ES_HUB_FILES_MAX ? json_array_size(rows) : ES_HUB_FILES_MAX;
    listing->files = calloc(most ? most : 1, sizeof *listing->files);
    if (!listing->files) return es_fail(ES_NO_MEMORY, "no memory for a list of %zu files", most);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (listing->count < most && read_file(row, &listing->files[listing->count]))
            listing->count++;
        else
            listing->left_out++;
    }
    qsort(listing->files, listing->count, sizeof *listing->files, by_name);
    for (size_t f = 1; f < listing->count; f++)
        if (strcmp(listing->files[f - 1].name, listing->files[f].name) == 0)
            return es_fail(ES_BAD_FILE, "the hub lists %s twice", listing->files[f].name);
    return ES_OK;
}

es_status es_hub_listing_read(const char *json, size_t bytes, es_hub_listing *listing)
{
    *listing = (es_hub_listing){.count = 0};
    json_error_t error;
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) return es_fail(ES_BAD_FILE, "the hub's answer is no JSON (%s)", error.text);
    const es_status status = read_root(root, listing);
    json_decref(root);
    if (status != ES_OK) es_hub_listing_free(listing);
    return status;
}

void es_hub_listing_free(es_hub_listing *listing)
{
    free(listing->files);
    *listing = (es_hub_listing){.count = 0};
}

/* ---- choosing ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_gguf(const es_hub_file *file)
{
    return ends_with(file->name, ".gguf");
}

/* "Model-Q4_K_M.gguf" is of the quantisation "q4_k_m"; "Model-Q4_K_M.gguf" is not of "q4_k". */
static bool is_of(const char *name, const char *quantisation)
{
    const size_t n = strlen(quantisation);
    for (const char *at = name; *at; at++) {
        const bool begins = at == name || strchr("-._", at[-1]);
        if (begins && strncasecmp(at, quantisation, n) == 0 && (at[n] == '.' || at[n] == '-')) return true;
    }
    return false;
}

/* The place of "-00001-of-00003.gguf" in a name, and how many parts there are; NULL: not split. */
static const char *find_split(const char *name, int *part, int *parts)
{
    const size_t n = strlen(name);
    int end = 0;
    if (n < 21) return NULL;
    const char *at = name + n - 20;
    return sscanf(at, "-%5d-of-%5d.gguf%n", part, parts, &end) == 2 && end == 20 ? at : NULL;
}

/* Marks the file, and the other parts of a split one. */
static es_status want(es_hub_listing *listing, es_hub_file *file)
{
    int part, parts, found = 0;
    const char *split = find_split(file->name, &part, &parts);
    file->wanted = true;
    if (!split) return ES_OK;
    const size_t prefix = (size_t)(split - file->name);
    for (size_t i = 0; i < listing->count; i++) {
        int other, others;
        const char *at = find_split(listing->files[i].name, &other, &others);
        if (!at || (size_t)(at - listing->files[i].name) != prefix || others != parts ||
            memcmp(listing->files[i].name, file->name, prefix) != 0)
            continue;
        listing->files[i].wanted = true;
        found++;
    }
    if (found != parts)
        return es_fail(ES_BAD_FILE, "%s is one of %d parts, but only %d of them are there", file->name, parts, found);
    return ES_OK;
}

static es_hub_file *find_gguf(es_hub_listing *listing, const char *wanted)
{
    for (size_t i = 0; i < listing->count; i++)
        if (is_gguf(&listing->files[i]) && strcmp(listing->files[i].name, wanted) == 0) return &listing->files[i];
    for (size_t i = 0; i < listing->count; i++)
        if (is_gguf(&listing->files[i]) && is_of(listing->files[i].name, wanted)) return &listing->files[i];
    return NULL;
}

/* What lies beside models without being one. */
static bool is_model(const es_hub_file *file)
{
    return is_gguf(file) && strncasecmp(file->name, "mmproj", 6) != 0 && !strstr(file->name, "imatrix");
}

static es_hub_file *find_usual_gguf(es_hub_listing *listing)
{
    static const char *const order[] = {"Q4_K_M", "Q4_K_S", "Q5_K_M", "Q4_0", "Q8_0", "Q6_K", "Q5_K_S", "BF16", "F16"};
    for (size_t q = 0; q < sizeof order / sizeof *order; q++)
        for (size_t i = 0; i < listing->count; i++)
            if (is_model(&listing->files[i]) && is_of(listing->files[i].name, order[q])) return &listing->files[i];
    for (size_t i = 0; i < listing->count; i++)
        if (is_model(&listing->files[i])) return &listing->files[i];
    return NULL;
}

static size_t want_folder(es_hub_listing *listing)
{
    static const char *const beside[] = {"config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "model.safetensors.index.json",
                                         "chat_template.jinja",
                                         "vocab.json",
                                         "merges.txt"};
    size_t weights = 0;
    for (size_t i = 0; i < listing->count; i++) {
        es_hub_file *file = &listing->files[i];
        /* "consolidated" holds the same weights once more, in another layout */
        if (ends_with(file->name, ".safetensors") && strncmp(file->name, "consolidated", 12) != 0) {
            file->wanted = true;
            weights++;
        }
        for (size_t b = 0; b < sizeof beside / sizeof *beside; b++)
            if (strcmp(file->name, beside[b]) == 0) file->wanted = true;
    }
    return weights;
}

static es_status refuse(const es_hub_listing *listing, const char *wanted)
{
    es_text names = {.limit = 700};
    for (size_t i = 0; i < listing->count; i++)
        if (is_gguf(&listing->files[i])) es_text_printf(&names, "%s%s", names.bytes ? ", " : "", listing->files[i].name);
    es_status status;
    if (*wanted && names.bytes)
        status = es_fail(ES_NOT_FOUND, "there is no \"%s\"; there are: %s", wanted, names.data);
    else
        status = es_fail(ES_NOT_FOUND, "there is no %s here; %zu files lie in folders or are of other kinds",
                         *wanted ? "GGUF file" : "GGUF file and no safetensors", listing->left_out);
    es_text_free(&names);
    return status;
}

es_status es_hub_listing_pick(es_hub_listing *listing, const char *wanted)
{
    for (size_t i = 0; i < listing->count; i++) listing->files[i].wanted = false;
    es_hub_file *gguf = *wanted ? find_gguf(listing, wanted) : find_usual_gguf(listing);
    if (gguf)
        ES_TRY(want(listing, gguf));
    else if (*wanted || want_folder(listing) == 0)
        return refuse(listing, wanted);
    for (size_t i = 0; i < listing->count; i++)
        if (strncmp(listing->files[i].name, "LICEN", 5) == 0 || strcmp(listing->files[i].name, "NOTICE") == 0)
            listing->files[i].wanted = true;
    return ES_OK;
}
