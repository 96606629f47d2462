/* gguf_meta.c: the typed metadata of a GGUF file.
 *
 * Values stay where they are in the file; an entry remembers where. Only arrays of strings get an index, because a vocabulary
 * is read element by element and each element's place depends on all before it. */
#include "model/gguf_meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The format's numbers for value types. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, TYPES };

static const struct {
    unsigned bytes; /* 0: variable */
    es_gguf_kind kind;
} types[TYPES] = {
    [U8] = {1, ES_GGUF_INTEGER},  [I8] = {1, ES_GGUF_INTEGER},    [U16] = {2, ES_GGUF_INTEGER}, [I16] = {2, ES_GGUF_INTEGER},
    [U32] = {4, ES_GGUF_INTEGER}, [I32] = {4, ES_GGUF_INTEGER},   [F32] = {4, ES_GGUF_NUMBER},  [BOOL] = {1, ES_GGUF_BOOLEAN},
    [STRING] = {0, ES_GGUF_TEXT}, [ARRAY] = {0, ES_GGUF_ARRAY},   [U64] = {8, ES_GGUF_INTEGER}, [I64] = {8, ES_GGUF_INTEGER},
    [F64] = {8, ES_GGUF_NUMBER},
};

#define KEY_LIMIT 65535 /* bytes, as the format says */

static uint64_t read_le(const unsigned char *p, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = bytes; i-- > 0;) value = value << 8 | p[i];
    return value;
}

/* --- the cursor ---------------------------------------------------------------------------------------------------------- */

es_status es_gguf_take(es_gguf_cursor *cursor, uint64_t bytes, const char *what, const unsigned char **start)
{
    if (bytes > cursor->bytes - cursor->at)
        return es_fail(ES_BAD_FILE, "%s: %s at byte %zu needs %" PRIu64 " bytes, the file has %zu left; it is cut short or "
                       "damaged (download it again)", cursor->path, what, cursor->at, bytes, cursor->bytes - cursor->at);
    *start = cursor->data + cursor->at;
    cursor->at += (size_t)bytes;
    return ES_OK;
}

es_status es_gguf_take_u32(es_gguf_cursor *cursor, const char *what, uint32_t *value)
{
    const unsigned char *p;
    ES_TRY(es_gguf_take(cursor, 4, what, &p));
    *value = (uint32_t)read_le(p, 4);
    return ES_OK;
}

es_status es_gguf_take_u64(es_gguf_cursor *cursor, const char *what, uint64_t *value)
{
    const unsigned char *p;
    ES_TRY(es_gguf_take(cursor, 8, what, &p));
    *value = read_le(p, 8);
    return ES_OK;
}

es_status es_gguf_take_string(es_gguf_cursor *cursor, const char *what, es_gguf_string *string)
{
    uint64_t bytes;
    const unsigned char *p;
    ES_TRY(es_gguf_take_u64(cursor, what, &bytes));
    ES_TRY(es_gguf_take(cursor, bytes, what, &p));
    *string = (es_gguf_string){(const char *)p, (size_t)bytes};
    return ES_OK;
}

es_status es_gguf_take_name(es_gguf_cursor *cursor, const char *what, size_t limit, char **name)
{
    es_gguf_string string;
    const size_t at = cursor->at;
    ES_TRY(es_gguf_take_string(cursor, what, &string));
    bool good = string.bytes >= 1 && string.bytes <= limit;
    for (size_t i = 0; good && i < string.bytes; i++) good = string.data[i] >= 0x20 && string.data[i] < 0x7F;
    if (!good)
        return es_fail(ES_BAD_FILE, "%s: %s at byte %zu is no name of 1 to %zu ASCII characters; the file is damaged",
                       cursor->path, what, at, limit);
    char *copy = strndup(string.data, string.bytes);
    if (!copy) return es_fail(ES_NO_MEMORY, "%s: out of memory", cursor->path);
    *name = copy;
    return ES_OK;
}

/* --- parsing ------------------------------------------------------------------------------------------------------------- */

static es_status check_booleans(const es_gguf_cursor *cursor, const char *key, const unsigned char *p, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (p[i] > 1)
            return es_fail(ES_BAD_FILE, "%s: %.200s holds %d where true (1) or false (0) is due; the file is damaged",
                           cursor->path, key, p[i]);
    return ES_OK;
}

/* The strings of an array, each a length and its bytes. Each takes at least 8 bytes of file, so the index is no larger than
 * the array itself. */
static es_status index_strings(es_gguf_cursor *cursor, es_gguf_entry *entry)
{
    if (entry->count > (cursor->bytes - cursor->at) / 8)
        return es_fail(ES_BAD_FILE, "%s: %.200s claims %" PRIu64 " strings, the file is too short for them (get it again)",
                       cursor->path, entry->key, entry->count);
    entry->text_at = malloc((size_t)entry->count * sizeof *entry->text_at + 1);
    if (!entry->text_at)
        return es_fail(ES_NO_MEMORY, "%s: no memory for the %" PRIu64 " strings of %.200s", cursor->path, entry->count,
                       entry->key);
    const size_t start = cursor->at;
    for (uint64_t i = 0; i < entry->count; i++) {
        es_gguf_string skipped;
        entry->text_at[i] = cursor->at - start;
        ES_TRY(es_gguf_take_string(cursor, entry->key, &skipped));
    }
    return ES_OK;
}

static es_status read_array(es_gguf_cursor *cursor, es_gguf_entry *entry)
{
    ES_TRY(es_gguf_take_u32(cursor, entry->key, &entry->element));
    ES_TRY(es_gguf_take_u64(cursor, entry->key, &entry->count));
    entry->value = cursor->data + cursor->at;
    if (entry->element == ARRAY)
        return es_fail(ES_UNSUPPORTED, "%s: %.200s is an array of arrays; arrays of numbers, booleans and strings are read",
                       cursor->path, entry->key);
    if (entry->element >= TYPES)
        return es_fail(ES_BAD_FILE, "%s: %.200s is an array of the unknown type %" PRIu32, cursor->path, entry->key,
                       entry->element);
    if (entry->element == STRING) return index_strings(cursor, entry);
    const unsigned width = types[entry->element].bytes;
    if (entry->count > UINT64_MAX / width)
        return es_fail(ES_BAD_FILE, "%s: %.200s claims %" PRIu64 " elements; the file is damaged", cursor->path, entry->key,
                       entry->count);
    ES_TRY(es_gguf_take(cursor, entry->count * width, entry->key, &entry->value));
    return entry->element == BOOL ? check_booleans(cursor, entry->key, entry->value, entry->count) : ES_OK;
}

static es_status read_value(es_gguf_cursor *cursor, es_gguf_entry *entry)
{
    ES_TRY(es_gguf_take_u32(cursor, entry->key, &entry->type));
    entry->count = 1;
    entry->value = cursor->data + cursor->at;
    if (entry->type >= TYPES)
        return es_fail(ES_BAD_FILE, "%s: %.200s is of the unknown type %" PRIu32, cursor->path, entry->key, entry->type);
    if (entry->type == ARRAY) return read_array(cursor, entry);
    if (entry->type == STRING) {
        es_gguf_string skipped;
        return es_gguf_take_string(cursor, entry->key, &skipped);
    }
    ES_TRY(es_gguf_take(cursor, types[entry->type].bytes, entry->key, &entry->value));
    return entry->type == BOOL ? check_booleans(cursor, entry->key, entry->value, 1) : ES_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const es_gguf_entry *)a)->key, ((const es_gguf_entry *)b)->key);
}

es_status es_gguf_read_entries(es_gguf *gguf, es_gguf_cursor *cursor, uint64_t count)
{
    /* A key's length, one character, a type and a value take at least 14 bytes. */
    if (count > (cursor->bytes - cursor->at) / 14)
        return es_fail(ES_BAD_FILE, "%s: claims %" PRIu64 " metadata entries, the file is too short for them (download it "
                       "again)", cursor->path, count);
    gguf->entries = calloc((size_t)count + 1, sizeof *gguf->entries);
    if (!gguf->entries) return es_fail(ES_NO_MEMORY, "%s: no memory for its metadata", cursor->path);
    for (uint64_t i = 0; i < count; i++) {
        es_gguf_entry *entry = &gguf->entries[i];
        ES_TRY(es_gguf_take_name(cursor, "a metadata key", KEY_LIMIT, &entry->key));
        gguf->count++;
        if (strchr(entry->key, '%')) /* "%s." stands for the architecture in look-ups */
            return es_fail(ES_BAD_FILE, "%s: the metadata key %.200s contains a per cent sign; the file is damaged",
                           cursor->path, entry->key);
        ES_TRY(read_value(cursor, entry));
    }
    if (count) qsort(gguf->entries, gguf->count, sizeof *gguf->entries, by_key);
    for (size_t i = 1; i < gguf->count; i++)
        if (by_key(&gguf->entries[i - 1], &gguf->entries[i]) == 0)
            return es_fail(ES_BAD_FILE, "%s: the metadata key %.200s occurs twice; the file is damaged", cursor->path,
                           gguf->entries[i].key);
    es_gguf_text(gguf, "general.architecture", &gguf->architecture);
    return ES_OK;
}

void es_gguf_free_entries(es_gguf *gguf)
{
    for (size_t i = 0; i < gguf->count; i++) {
        free(gguf->entries[i].key);
        free(gguf->entries[i].text_at);
    }
    free(gguf->entries);
    gguf->entries = NULL;
    gguf->count = 0;
}

/* --- looking up ---------------------------------------------------------------------------------------------------------- */

static const es_gguf_entry *find(const es_gguf *gguf, const char *key)
{
    char spelt[512];
    if (strncmp(key, "%s.", 3) == 0) {
        if (!gguf->architecture.data || gguf->architecture.bytes > 128) return NULL;
        const es_gguf_string name = gguf->architecture;
        const int length = snprintf(spelt, sizeof spelt, "%.*s%s", (int)name.bytes, name.data, key + 2);
        if (length < 0 || (size_t)length >= sizeof spelt) return NULL;
        key = spelt;
    }
    const es_gguf_entry wanted = {.key = (char *)(uintptr_t)key};
    return gguf->count ? bsearch(&wanted, gguf->entries, gguf->count, sizeof wanted, by_key) : NULL;
}

static bool decode_integer(uint32_t type, const unsigned char *p, int64_t *value)
{
    if (types[type].kind != ES_GGUF_INTEGER) return false;
    const unsigned bytes = types[type].bytes;
    const uint64_t bits = read_le(p, bytes);
    if (type == U64 && bits > INT64_MAX) return false;
    const bool is_signed = type == I8 || type == I16 || type == I32;
    const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    *value = (int64_t)(is_signed ? (bits ^ sign) - sign : bits);
    return true;
}

static bool decode_number(uint32_t type, const unsigned char *p, double *value)
{
    if (type == F32) {
        const uint32_t bits = (uint32_t)read_le(p, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        *value = (double)f;
        return true;
    }
    if (type == F64) {
        const uint64_t bits = read_le(p, 8);
        memcpy(value, &bits, sizeof *value);
        return true;
    }
    int64_t integer;
    if (!decode_integer(type, p, &integer)) return false;
    *value = (double)integer;
    return true;
}

static es_gguf_string decode_string(const unsigned char *p)
{
    return (es_gguf_string){(const char *)p + 8, (size_t)read_le(p, 8)};
}

bool es_gguf_has(const es_gguf *gguf, const char *key)
{
    return find(gguf, key) != NULL;
}

es_gguf_kind es_gguf_get_kind(const es_gguf *gguf, const char *key)
{
    const es_gguf_entry *entry = find(gguf, key);
    return entry ? types[entry->type].kind : ES_GGUF_ABSENT;
}

es_gguf_kind es_gguf_get_array_kind(const es_gguf *gguf, const char *key)
{
    const es_gguf_entry *entry = find(gguf, key);
    return entry && entry->type == ARRAY ? types[entry->element].kind : ES_GGUF_ABSENT;
}

bool es_gguf_integer(const es_gguf *gguf, const char *key, int64_t *value)
{
    const es_gguf_entry *entry = find(gguf, key);
    return entry && decode_integer(entry->type, entry->value, value);
}

bool es_gguf_number(const es_gguf *gguf, const char *key, double *value)
{
    const es_gguf_entry *entry = find(gguf, key);
    return entry && decode_number(entry->type, entry->value, value);
}

bool es_gguf_boolean(const es_gguf *gguf, const char *key, bool *value)
{
    const es_gguf_entry *entry = find(gguf, key);
    if (!entry || entry->type != BOOL) return false;
    *value = entry->value[0] != 0;
    return true;
}

bool es_gguf_text(const es_gguf *gguf, const char *key, es_gguf_string *value)
{
    const es_gguf_entry *entry = find(gguf, key);
    if (!entry || entry->type != STRING) return false;
    *value = decode_string(entry->value);
    return true;
}

int64_t es_gguf_array_length(const es_gguf *gguf, const char *key)
{
    const es_gguf_entry *entry = find(gguf, key);
    return entry && entry->type == ARRAY ? (int64_t)entry->count : -1;
}

/* The array entry, if it has an element `index`; *element is where that element is. */
static const es_gguf_entry *find_element(const es_gguf *gguf, const char *key, int64_t index, const unsigned char **element)
{
    const es_gguf_entry *entry = find(gguf, key);
    if (!entry || entry->type != ARRAY || index < 0 || (uint64_t)index >= entry->count) return NULL;
    *element = entry->value + (entry->text_at ? entry->text_at[index] : (size_t)index * types[entry->element].bytes);
    return entry;
}

bool es_gguf_array_integer(const es_gguf *gguf, const char *key, int64_t index, int64_t *value)
{
    const unsigned char *p;
    const es_gguf_entry *entry = find_element(gguf, key, index, &p);
    return entry && decode_integer(entry->element, p, value);
}

bool es_gguf_array_number(const es_gguf *gguf, const char *key, int64_t index, double *value)
{
    const unsigned char *p;
    const es_gguf_entry *entry = find_element(gguf, key, index, &p);
    return entry && decode_number(entry->element, p, value);
}

bool es_gguf_array_boolean(const es_gguf *gguf, const char *key, int64_t index, bool *value)
{
    const unsigned char *p;
    const es_gguf_entry *entry = find_element(gguf, key, index, &p);
    if (!entry || entry->element != BOOL) return false;
    *value = p[0] != 0;
    return true;
}

bool es_gguf_array_text(const es_gguf *gguf, const char *key, int64_t index, es_gguf_string *value)
{
    const unsigned char *p;
    const es_gguf_entry *entry = find_element(gguf, key, index, &p);
    if (!entry || entry->element != STRING) return false;
    *value = decode_string(p);
    return true;
}

const char *es_gguf_key(const es_gguf *gguf, size_t index)
{
    return index < gguf->count ? gguf->entries[index].key : NULL;
}
