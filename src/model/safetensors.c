/* safetensors.c: reading Hugging Face weights, one file or a folder of shards.
 *
 * A file is: 8 bytes little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}, ...}, the data.
 * Everything in the header is a claim by a stranger: a tensor enters the set only after its offsets were compared with the
 * file's size, its shape with its offsets, and its bytes with those of every other tensor. File names in an index are as
 * hostile: they stay inside the folder.
 *
 * Source: the format's description in the safetensors project. Unlike its library we tolerate holes between tensors
 * (some writers align), since they harm nobody. */
#include "model/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_LIMIT (100u * 1000 * 1000) /* bytes of JSON, as in the format's own library */
#define LENGTH_BYTES 8

static uint64_t read_le64(const unsigned char *p)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

/* The file being read, for the functions below. */
typedef struct source {
    const char *path;
    const unsigned char *data; /* after the header */
    size_t bytes;
} source;

/* One entry's "data_offsets": [begin, end) within the data section. */
static es_status read_extent(const source *from, const char *name, const json_t *entry, es_tensor_extent *extent)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" has no pair of data_offsets; not a safetensors header",
                       from->path, name);
    const json_int_t begin = json_integer_value(first), end = json_integer_value(second);
    if (begin < 0 || end < begin)
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" claims the bytes from %" JSON_INTEGER_FORMAT " to %"
                       JSON_INTEGER_FORMAT "; the header is damaged", from->path, name, begin, end);
    if ((uint64_t)end > from->bytes)
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" ends at byte %" JSON_INTEGER_FORMAT " of the data, the file has "
                       "%zu; it is cut short (download it again)", from->path, name, end, from->bytes);
    *extent = (es_tensor_extent){(uint64_t)begin, (uint64_t)end, name};
    return ES_OK;
}

/* One entry's "shape". A rank past ES_TENSOR_RANK is well-formed: *rank is set, the shape is not. */
static es_status read_shape(const source *from, const char *name, const json_t *entry, es_tensor *tensor)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > 64)
        return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" has no usable shape; not a safetensors header", from->path, name);
    tensor->rank = (int)json_array_size(shape);
    for (int axis = 0; axis < tensor->rank; axis++) {
        const json_t *extent = json_array_get(shape, (size_t)axis);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return es_fail(ES_BAD_FILE, "%s: axis %d of tensor \"%.200s\" is no count", from->path, axis, name);
        if (axis < ES_TENSOR_RANK) tensor->shape[axis] = json_integer_value(extent);
    }
    return ES_OK;
}

static bool readable_dtype(const char *name, es_dtype *type)
{
    return es_dtype_from_name(name, type) && es_dtype_get_info(*type)->block == 1;
}

static es_status read_entry(es_tensor_set *set, const source *from, const char *name, const json_t *entry,
                            es_tensor_extent *extent)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!name[0] || !dtype || strlen(dtype) > 32)
        return es_fail(ES_BAD_FILE, "%s: the entry \"%.200s\" describes no tensor; no safetensors header", from->path, name);
    es_tensor tensor = {.name = name};
    ES_TRY(read_extent(from, name, entry, extent));
    ES_TRY(read_shape(from, name, entry, &tensor));
    if (!readable_dtype(dtype, &tensor.type)) return es_tensor_set_add_unreadable(set, from->path, name, dtype);
    if (tensor.rank > ES_TENSOR_RANK) { /* the patch embedding of a vision tower has five axes */
        char why[64];
        snprintf(why, sizeof why, "%s with %d axes", dtype, tensor.rank);
        return es_tensor_set_add_unreadable(set, from->path, name, why);
    }
    int64_t elements;
    tensor.bytes = (size_t)(extent->end - extent->begin);
    if (!es_shape_elements(tensor.shape, tensor.rank, &elements) || es_dtype_bytes(tensor.type, elements) != tensor.bytes)
        return es_fail(ES_BAD_FILE, "%s: the shape and type of tensor \"%.200s\" do not match its %zu bytes; the header is "
                       "damaged", from->path, name, tensor.bytes);
    tensor.data = from->data + extent->begin;
    return es_tensor_set_add(set, from->path, &tensor);
}

static es_status read_entries(es_tensor_set *set, const source *from, json_t *header)
{
    const size_t most = json_object_size(header);
    es_tensor_extent *extents = calloc(most + 1, sizeof *extents);
    if (!extents) return es_fail(ES_NO_MEMORY, "%s: no memory for its %zu tensors", from->path, most);
    size_t count = 0;
    es_status status = ES_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) continue;
        if ((status = read_entry(set, from, name, entry, &extents[count++])) != ES_OK) break;
    }
    if (status == ES_OK) status = es_tensor_extents_check(extents, count, from->path);
    free(extents);
    return status;
}

/* A JSON object with each key once. Strings with NUL are refused by jansson, so names are C strings. */
static es_status parse_object(const char *path, const char *what, const char *data, size_t bytes, json_t **object)
{
    json_error_t error;
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return es_fail(ES_BAD_FILE, "%s: %s is no valid JSON: %s (at byte %d)", path, what, error.text, error.position);
    if (!json_is_object(root)) {
        json_decref(root);
        return es_fail(ES_BAD_FILE, "%s: %s is no JSON object", path, what);
    }
    *object = root;
    return ES_OK;
}

es_status es_safetensors_parse(es_tensor_set *set, const char *path, const unsigned char *data, size_t bytes)
{
    if (bytes < LENGTH_BYTES)
        return es_fail(ES_BAD_FILE, "%s: has %zu bytes; too short for a safetensors file", path, bytes);
    const uint64_t length = read_le64(data);
    if (length > HEADER_LIMIT)
        return es_fail(ES_BAD_FILE, "%s: claims a header of %" PRIu64 " bytes, at most %u are allowed; not a safetensors file",
                       path, length, HEADER_LIMIT);
    if (length > bytes - LENGTH_BYTES)
        return es_fail(ES_BAD_FILE, "%s: the header claims %" PRIu64 " bytes, the file has %zu; it is cut short or not a "
                       "safetensors file (download it again)", path, length, bytes - LENGTH_BYTES);
    json_t *header;
    ES_TRY(parse_object(path, "the header", (const char *)data + LENGTH_BYTES, (size_t)length, &header));
    const source from = {path, data + LENGTH_BYTES + length, bytes - LENGTH_BYTES - (size_t)length};
    const es_status status = read_entries(set, &from, header);
    json_decref(header);
    return status;
}

/* Map one file and add its tensors. */
static es_status add_file(es_tensor_set *set, const char *path)
{
    es_file file = {0};
    ES_TRY(es_file_map(path, &file));
    const es_status status = es_safetensors_parse(set, path, file.data, file.bytes);
    if (status != ES_OK) {
        es_file_unmap(&file);
        return status;
    }
    return es_tensor_set_adopt(set, &file);
}

/* An index may name files of its own folder only. */
static bool is_plain_file_name(const char *name)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') && !strstr(name, "..") &&
           strlen(name) <= 255;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct file names in `map`, sorted, borrowed from it. */
static es_status list_shards(const char *path, json_t *map, const char **names, size_t *count)
{
    size_t n = 0;
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        if (!name || !is_plain_file_name(name))
            return es_fail(ES_BAD_FILE, "%s: tensor \"%.200s\" is said to be in \"%.200s\", which is no plain file name; such "
                           "an index is not followed", path, tensor, name ? name : "");
        names[n++] = name;
    }
    if (n) qsort(names, n, sizeof *names, by_text);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!kept || strcmp(names[kept - 1], names[i]) != 0) names[kept++] = names[i];
    *count = kept;
    return ES_OK;
}

static es_status add_shard(es_tensor_set *set, const char *folder, const char *name)
{
    char *path = es_path_join(folder, name);
    if (!path) return es_fail(ES_NO_MEMORY, "%s: out of memory", folder);
    const es_status status = add_file(set, path);
    free(path);
    return status;
}

/* Every tensor that the index promises must have been found. */
static es_status check_promises(const es_tensor_set *set, const char *path, json_t *map)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value) {
        if (!es_tensor_find(set, tensor) && !es_tensor_unreadable(set, tensor))
            return es_fail(ES_BAD_FILE, "%s: promises tensor \"%.200s\" in \"%.200s\", which has none; the files do not "
                           "belong together (download them again)", path, tensor, json_string_value(value));
    }
    return ES_OK;
}

static es_status add_shards(es_tensor_set *set, const char *folder, const char *index_path, json_t *index)
{
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || !json_object_size(map))
        return es_fail(ES_BAD_FILE, "%s: has no weight_map; not the index of a sharded model", index_path);
    const char **names = calloc(json_object_size(map), sizeof *names);
    if (!names) return es_fail(ES_NO_MEMORY, "%s: out of memory", index_path);
    size_t count = 0;
    es_status status = list_shards(index_path, map, names, &count);
    for (size_t i = 0; status == ES_OK && i < count; i++) status = add_shard(set, folder, names[i]);
    free(names);
    ES_TRY(status);
    ES_TRY(es_tensor_set_seal(set, folder));
    return check_promises(set, index_path, map);
}

static es_status add_indexed(es_tensor_set *set, const char *folder, const char *index_path)
{
    char *text;
    size_t bytes;
    json_t *index;
    ES_TRY(es_file_read(index_path, HEADER_LIMIT, &text, &bytes));
    es_status status = parse_object(index_path, "the index", text, bytes, &index);
    free(text);
    ES_TRY(status);
    status = add_shards(set, folder, index_path, index);
    json_decref(index);
    return status;
}

static es_status add_folder(es_tensor_set *set, const char *folder)
{
    char *single = es_path_join(folder, "model.safetensors");
    char *index = es_path_join(folder, "model.safetensors.index.json");
    es_status status;
    if (!single || !index)
        status = es_fail(ES_NO_MEMORY, "%s: out of memory", folder);
    else if (es_path_exists(single))
        status = add_file(set, single);
    else if (es_path_exists(index))
        status = add_indexed(set, folder, index);
    else
        status = es_fail(ES_NOT_FOUND, "%s: holds neither model.safetensors nor model.safetensors.index.json", folder);
    free(single);
    free(index);
    return status;
}

es_status es_safetensors_open(const char *path, es_tensor_set **set)
{
    es_tensor_set *fresh = es_tensor_set_new();
    if (!fresh) return es_fail(ES_NO_MEMORY, "%s: out of memory", path);
    es_status status = es_path_is_folder(path) ? add_folder(fresh, path) : add_file(fresh, path);
    if (status == ES_OK) status = es_tensor_set_seal(fresh, path);
    if (status != ES_OK) {
        es_tensor_set_close(fresh);
        return status;
    }
    *set = fresh;
    return ES_OK;
}
