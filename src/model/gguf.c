/* gguf.c: the tensors of a GGUF file, and the parts of a split one.
 *
 * A file is: magic, version, counts; the metadata; for each tensor a name, a shape (fastest axis first), a type and an offset;
 * then, aligned, the data. Split files are whole GGUF files of their own; the first one holds the metadata, and each says in
 * split.no and split.count which part of how many it is. Their names follow from the first one's, never from a file. */
#include "model/gguf_meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LIMIT 1024         /* bytes of a tensor's name */
#define TENSOR_LEAST 25         /* bytes that a tensor's description takes at least: name, rank, type, offset */
#define DEFAULT_ALIGNMENT 32    /* as the format says */
#define SUFFIX "-00001-of-00000.gguf" /* the end of a part's name, for its length */

/* Names of ggml types that this engine has no kernels for, so that a refusal can say which one it is. */
static const char *const foreign_types[] = {
    [9] = "Q8_1",    [10] = "Q2_K",   [11] = "Q3_K",   [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
    [19] = "IQ1_S",  [20] = "IQ4_NL", [21] = "IQ3_S",  [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",     [25] = "I16",
    [27] = "I64",    [28] = "F64",    [29] = "IQ1_M",  [34] = "TQ1_0",  [35] = "TQ2_0",   [39] = "MXFP4",  [40] = "NVFP4",
    [41] = "Q1_0",
};

static void name_foreign_type(uint32_t type, char *name, size_t bytes)
{
    const char *known = type < sizeof foreign_types / sizeof *foreign_types ? foreign_types[type] : NULL;
    if (known)
        snprintf(name, bytes, "%s", known);
    else
        snprintf(name, bytes, "ggml type %" PRIu32, type);
}

/* One tensor's description, as the file has it. */
typedef struct description {
    char *name; /* owned */
    int rank;
    int64_t shape[ES_TENSOR_RANK]; /* slowest axis first */
    uint32_t type;
    uint64_t offset;
} description;

static es_status read_description(es_gguf_cursor *cursor, description *tensor)
{
    uint32_t rank;
    ES_TRY(es_gguf_take_name(cursor, "a tensor's name", NAME_LIMIT, &tensor->name));
    ES_TRY(es_gguf_take_u32(cursor, tensor->name, &rank));
    if (rank > ES_TENSOR_RANK)
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" claims %" PRIu32 " axes, at most %d are possible; it is damaged",
                       cursor->path, tensor->name, rank, ES_TENSOR_RANK);
    tensor->rank = (int)rank;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        uint64_t extent;
        ES_TRY(es_gguf_take_u64(cursor, tensor->name, &extent));
        if (extent > INT64_MAX)
            return es_fail(ES_BAD_FILE, "%s: an axis of tensor \"%.200s\" is %" PRIu64 " long; the file is damaged",
                           cursor->path, tensor->name, extent);
        tensor->shape[axis] = (int64_t)extent;
    }
    ES_TRY(es_gguf_take_u32(cursor, tensor->name, &tensor->type));
    return es_gguf_take_u64(cursor, tensor->name, &tensor->offset);
}

/* Where the data begins and how much of it there is. */
typedef struct data_section {
    const char *path;
    const unsigned char *data;
    size_t bytes;
    uint64_t alignment;
} data_section;

static es_status find_data(const es_gguf *part, const es_gguf_cursor *cursor, data_section *section)
{
    int64_t alignment = DEFAULT_ALIGNMENT;
    if (es_gguf_has(part, "general.alignment") && !es_gguf_integer(part, "general.alignment", &alignment)) alignment = 0;
    if (alignment < 1 || alignment > INT64_C(1) << 30 || (alignment & (alignment - 1)) != 0)
        return es_fail(ES_BAD_FILE, "%s: general.alignment is no power of two up to 2^30; the file is damaged", cursor->path);
    const size_t start = (cursor->at + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment;
    /* A file without tensors may end before the padding. */
    const bool any = start < cursor->bytes;
    *section = (data_section){cursor->path, any ? cursor->data + start : cursor->data, any ? cursor->bytes - start : 0,
                              (uint64_t)alignment};
    return ES_OK;
}

/* Check one description against the data section and put the tensor into the set. */
static es_status add_tensor(es_tensor_set *set, const data_section *section, const description *from,
                            es_tensor_extent *extent)
{
    if (from->offset % section->alignment != 0 || from->offset > section->bytes)
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" begins at byte %" PRIu64 " of the data, which has %zu bytes and an "
                       "alignment of %" PRIu64 "; the file is cut short or damaged (download it again)", section->path,
                       from->name, from->offset, section->bytes, section->alignment);
    *extent = (es_tensor_extent){from->offset, from->offset, from->name};
    es_tensor tensor = {.name = from->name, .rank = from->rank};
    memcpy(tensor.shape, from->shape, sizeof tensor.shape);
    int64_t elements;
    if (!es_shape_elements(from->shape, from->rank, &elements))
        return es_fail(ES_BAD_FILE, "%s: the shape of tensor \"%.200s\" has no countable elements; the file is damaged",
                       section->path, from->name);
    if (!es_dtype_from_gguf(from->type, &tensor.type)) {
        char type[32];
        name_foreign_type(from->type, type, sizeof type);
        return es_tensor_set_add_unreadable(set, section->path, from->name, type);
    }
    const int64_t row = from->rank > 0 ? from->shape[from->rank - 1] : 1;
    const es_dtype_info *info = es_dtype_get_info(tensor.type);
    tensor.bytes = es_dtype_bytes(tensor.type, elements);
    if (row % info->block != 0 || tensor.bytes == SIZE_MAX)
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" is %s, but its rows of %" PRId64 " are no whole blocks of %d",
                       section->path, from->name, info->name, row, info->block);
    if (tensor.bytes > section->bytes - from->offset)
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" needs %zu bytes at byte %" PRIu64 " of the data, which has %zu; "
                       "the file is cut short (download it again)", section->path, from->name, tensor.bytes, from->offset,
                       section->bytes);
    extent->end += tensor.bytes;
    tensor.data = section->data + from->offset;
    return es_tensor_set_add(set, section->path, &tensor);
}

static es_status read_described(es_gguf *part, es_gguf_cursor *cursor, description *tensors, es_tensor_extent *extents,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) ES_TRY(read_description(cursor, &tensors[i]));
    data_section section;
    ES_TRY(find_data(part, cursor, &section));
    for (size_t i = 0; i < count; i++) ES_TRY(add_tensor(part->tensors, &section, &tensors[i], &extents[i]));
    return es_tensor_extents_check(extents, count, cursor->path);
}

static es_status read_tensors(es_gguf *part, es_gguf_cursor *cursor, uint64_t count)
{
    if (count > (cursor->bytes - cursor->at) / TENSOR_LEAST)
        return es_fail(ES_BAD_FILE, "%s: claims %" PRIu64 " tensors, the file is too short for them (download it again)",
                       cursor->path, count);
    description *tensors = calloc((size_t)count + 1, sizeof *tensors);
    es_tensor_extent *extents = calloc((size_t)count + 1, sizeof *extents);
    es_status status = tensors && extents ? read_described(part, cursor, tensors, extents, (size_t)count)
                                          : es_fail(ES_NO_MEMORY, "%s: no memory for its tensors", cursor->path);
    for (uint64_t i = 0; tensors && i < count; i++) free(tensors[i].name);
    free(tensors);
    free(extents);
    return status;
}

static es_status read_head(es_gguf_cursor *cursor, uint64_t *tensors, uint64_t *entries)
{
    const unsigned char *magic;
    uint32_t version;
    ES_TRY(es_gguf_take(cursor, 4, "the magic number", &magic));
    if (memcmp(magic, "GGUF", 4) != 0) return es_fail(ES_BAD_FILE, "%s: is not a GGUF file", cursor->path);
    ES_TRY(es_gguf_take_u32(cursor, "the version", &version));
    if ((version & 0xFFFF) == 0 && version != 0)
        return es_fail(ES_UNSUPPORTED, "%s: is a big-endian GGUF; only little-endian files are read (convert it anew)",
                       cursor->path);
    if (version != 2 && version != 3)
        return es_fail(ES_UNSUPPORTED, "%s: is a GGUF of version %" PRIu32 "; versions 2 and 3 are read (convert it anew)",
                       cursor->path, version);
    ES_TRY(es_gguf_take_u64(cursor, "the number of tensors", tensors));
    return es_gguf_take_u64(cursor, "the number of metadata entries", entries);
}

/* Read one file image: metadata into `part`, tensors into part->tensors (not sealed). */
static es_status read_part(es_gguf *part, const char *path, const unsigned char *data, size_t bytes)
{
    es_gguf_cursor cursor = {path, data, bytes, 0};
    uint64_t tensors, entries;
    ES_TRY(read_head(&cursor, &tensors, &entries));
    ES_TRY(es_gguf_read_entries(part, &cursor, entries));
    return read_tensors(part, &cursor, tensors);
}

static es_gguf *new_gguf(void)
{
    es_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf && !(gguf->tensors = es_tensor_set_new())) {
        free(gguf);
        return NULL;
    }
    return gguf;
}

void es_gguf_close(es_gguf *gguf)
{
    if (!gguf) return;
    es_gguf_free_entries(gguf);
    es_tensor_set_close(gguf->tensors);
    free(gguf);
}

const es_tensor_set *es_gguf_tensors(const es_gguf *gguf)
{
    return gguf->tensors;
}

es_status es_gguf_parse(const char *path, const unsigned char *data, size_t bytes, es_gguf **gguf)
{
    es_gguf *fresh = new_gguf();
    if (!fresh) return es_fail(ES_NO_MEMORY, "%s: out of memory", path);
    es_status status = read_part(fresh, path, data, bytes);
    if (status == ES_OK) status = es_tensor_set_seal(fresh->tensors, path);
    if (status != ES_OK) {
        es_gguf_close(fresh);
        return status;
    }
    *gguf = fresh;
    return ES_OK;
}

/* --- opening, and split files -------------------------------------------------------------------------------------------- */

/* Map a file, read it as a part, keep it mapped with the tensors. */
static es_status add_part(es_gguf *part, const char *path)
{
    es_file file = {0};
    ES_TRY(es_file_map(path, &file));
    const es_status status = read_part(part, path, file.data, file.bytes);
    if (status != ES_OK) {
        es_file_unmap(&file);
        return status;
    }
    return es_tensor_set_adopt(part->tensors, &file);
}

/* What a file says about itself: part `number` (from 0) of `count`; one of one when it is not split. */
static es_status read_split(const es_gguf *part, const char *path, int64_t *number, int64_t *count)
{
    *number = 0;
    *count = 1;
    if (!es_gguf_has(part, "split.count")) return ES_OK;
    if (!es_gguf_integer(part, "split.count", count) || *count < 0 || *count > 65535 ||
        (*count > 1 && !es_gguf_integer(part, "split.no", number)) || *number < 0 || (*count > 1 && *number >= *count))
        return es_fail(ES_BAD_FILE, "%s: split.no and split.count make no sense; the file is damaged", path);
    if (*count == 0) *count = 1;
    return ES_OK;
}

/* "model-00001-of-00003.gguf" with another part's number, in a fresh string; ES_INVALID for a name of another form. */
static es_status name_part(const char *path, int64_t given, int64_t wanted, int64_t count, char **name)
{
    char suffix[64]; /* the numbers have five digits: at most 65,535 parts */
    const size_t length = strlen(path), tail = sizeof SUFFIX - 1;
    snprintf(suffix, sizeof suffix, "-%05" PRId64 "-of-%05" PRId64 ".gguf", given + 1, count);
    if (length < tail || strcmp(path + length - tail, suffix) != 0)
        return es_fail(ES_INVALID, "%s: is part %" PRId64 " of %" PRId64 ", so its name must end in %s for the others to be "
                       "found (rename the parts)", path, given + 1, count, suffix);
    char *copy = malloc(length + 1);
    if (!copy) return es_fail(ES_NO_MEMORY, "%s: out of memory", path);
    snprintf(suffix, sizeof suffix, "-%05" PRId64 "-of-%05" PRId64 ".gguf", wanted + 1, count);
    memcpy(copy, path, length - tail);
    memcpy(copy + length - tail, suffix, tail + 1);
    *name = copy;
    return ES_OK;
}

static es_status refuse_later_part(const char *path, int64_t number, int64_t count)
{
    char *first;
    ES_TRY(name_part(path, number, 0, count, &first));
    const es_status status =
        es_fail(ES_INVALID, "%s: is part %" PRId64 " of %" PRId64 " of a model; open the first part, %s", path, number + 1,
                count, first);
    free(first);
    return status;
}

/* Part `number` of `count`: its tensors join those of `gguf`, its metadata only has to confirm which part it is. */
static es_status add_later_part(es_gguf *gguf, const char *path, int64_t number, int64_t count)
{
    es_gguf part = {.tensors = gguf->tensors};
    int64_t its_number = 0, its_count = 0;
    es_status status = add_part(&part, path);
    if (status == ES_OK) status = read_split(&part, path, &its_number, &its_count);
    if (status == ES_OK && (its_number != number || its_count != count))
        status = es_fail(ES_BAD_FILE, "%s: says that it is part %" PRId64 " of %" PRId64 ", its name says %" PRId64 " of %"
                         PRId64 "; the parts do not belong together", path, its_number + 1, its_count, number + 1, count);
    es_gguf_free_entries(&part);
    return status;
}

static es_status add_later_parts(es_gguf *gguf, const char *path, int64_t count)
{
    for (int64_t number = 1; number < count; number++) {
        char *name;
        ES_TRY(name_part(path, 0, number, count, &name));
        const es_status status = add_later_part(gguf, name, number, count);
        free(name);
        if (status == ES_NOT_FOUND)
            return es_fail_within(status, "part %" PRId64 " of %" PRId64 " is missing", number + 1, count);
        ES_TRY(status);
    }
    int64_t promised;
    const size_t found = es_tensor_count(gguf->tensors) + es_tensor_unreadable_count(gguf->tensors);
    if (es_gguf_integer(gguf, "split.tensors.count", &promised) && promised != (int64_t)found)
        return es_fail(ES_BAD_FILE, "%s: promises %" PRId64 " tensors, its %" PRId64 " parts hold %zu; they do not belong "
                       "together (download them again)", path, promised, count, found);
    return ES_OK;
}

static es_status open_parts(es_gguf *gguf, const char *path)
{
    int64_t number, count;
    ES_TRY(add_part(gguf, path));
    ES_TRY(read_split(gguf, path, &number, &count));
    if (number != 0) return refuse_later_part(path, number, count);
    if (count > 1) ES_TRY(add_later_parts(gguf, path, count));
    return es_tensor_set_seal(gguf->tensors, path);
}

es_status es_gguf_open(const char *path, es_gguf **gguf)
{
    es_gguf *fresh = new_gguf();
    if (!fresh) return es_fail(ES_NO_MEMORY, "%s: out of memory", path);
    const es_status status = open_parts(fresh, path);
    if (status != ES_OK) {
        es_gguf_close(fresh);
        return status;
    }
    *gguf = fresh;
    return ES_OK;
}
