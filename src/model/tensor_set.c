/* tensor_set.c: the sorted list of named tensors that every container becomes.
 *
 * A model has hundreds to some ten thousand tensors and is looked up once per tensor at load: a sorted array and a binary
 * search need no hash function that a hostile file could attack. */
#include "model/tensor_set.h"

#include <stdlib.h>
#include <string.h>

typedef struct unreadable_tensor {
    char *name;
    char *type;
} unreadable_tensor;

struct es_tensor_set {
    es_tensor *tensors; /* names owned */
    size_t count, capacity;
    unreadable_tensor *unreadable;
    size_t unreadable_count, unreadable_capacity;
    es_file *files;
    size_t file_count, file_capacity;
};

es_tensor_set *es_tensor_set_new(void)
{
    return calloc(1, sizeof(es_tensor_set));
}

void es_tensor_set_close(es_tensor_set *set)
{
    if (!set) return;
    for (size_t i = 0; i < set->count; i++) free((char *)(uintptr_t)set->tensors[i].name);
    for (size_t i = 0; i < set->unreadable_count; i++) {
        free(set->unreadable[i].name);
        free(set->unreadable[i].type);
    }
    for (size_t i = 0; i < set->file_count; i++) es_file_unmap(&set->files[i]);
    free(set->tensors);
    free(set->unreadable);
    free(set->files);
    free(set);
}

/* Room for one more element of `size` bytes in *items. */
static bool grow(void **items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity) return true;
    const size_t wanted = *capacity ? *capacity * 2 : 16;
    if (wanted > SIZE_MAX / size / 2) return false;
    void *bigger = realloc(*items, wanted * size);
    if (!bigger) return false;
    *items = bigger;
    *capacity = wanted;
    return true;
}

es_status es_tensor_set_add(es_tensor_set *set, const char *path, const es_tensor *tensor)
{
    void *items = set->tensors;
    const bool room = grow(&items, set->count, &set->capacity, sizeof *set->tensors);
    set->tensors = items;
    char *name = room ? strdup(tensor->name) : NULL;
    if (!name) return es_fail(ES_NO_MEMORY, "%s: no memory for the list of its tensors", path);
    es_tensor *slot = &set->tensors[set->count++];
    *slot = *tensor;
    slot->name = name;
    for (int axis = tensor->rank; axis < ES_TENSOR_RANK; axis++) slot->shape[axis] = 1;
    return ES_OK;
}

es_status es_tensor_set_add_unreadable(es_tensor_set *set, const char *path, const char *name, const char *type)
{
    void *items = set->unreadable;
    const bool room = grow(&items, set->unreadable_count, &set->unreadable_capacity, sizeof *set->unreadable);
    set->unreadable = items;
    char *name_copy = room ? strdup(name) : NULL, *type_copy = room ? strdup(type) : NULL;
    if (!name_copy || !type_copy) {
        free(name_copy);
        free(type_copy);
        return es_fail(ES_NO_MEMORY, "%s: no memory for the list of its tensors", path);
    }
    set->unreadable[set->unreadable_count++] = (unreadable_tensor){name_copy, type_copy};
    return ES_OK;
}

es_status es_tensor_set_adopt(es_tensor_set *set, es_file *file)
{
    void *items = set->files;
    const bool room = grow(&items, set->file_count, &set->file_capacity, sizeof *set->files);
    set->files = items;
    if (!room) {
        es_file_unmap(file);
        return es_fail(ES_NO_MEMORY, "no memory for the list of a model's files");
    }
    set->files[set->file_count++] = *file;
    *file = (es_file){0};
    return ES_OK;
}

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp(((const es_tensor *)a)->name, ((const es_tensor *)b)->name);
}

static int by_unreadable_name(const void *a, const void *b)
{
    return strcmp(((const unreadable_tensor *)a)->name, ((const unreadable_tensor *)b)->name);
}

es_status es_tensor_set_seal(es_tensor_set *set, const char *path)
{
    if (set->count) qsort(set->tensors, set->count, sizeof *set->tensors, by_tensor_name);
    if (set->unreadable_count) qsort(set->unreadable, set->unreadable_count, sizeof *set->unreadable, by_unreadable_name);
    const char *twice = NULL;
    for (size_t i = 1; i < set->count && !twice; i++)
        if (by_tensor_name(&set->tensors[i - 1], &set->tensors[i]) == 0) twice = set->tensors[i].name;
    for (size_t i = 1; i < set->unreadable_count && !twice; i++)
        if (by_unreadable_name(&set->unreadable[i - 1], &set->unreadable[i]) == 0) twice = set->unreadable[i].name;
    for (size_t i = 0; i < set->unreadable_count && !twice; i++)
        if (es_tensor_find(set, set->unreadable[i].name)) twice = set->unreadable[i].name;
    if (twice) return es_fail(ES_BAD_FILE, "%s: the tensor \"%.200s\" occurs twice; the file is damaged", path, twice);
    return ES_OK;
}

const es_tensor *es_tensor_find(const es_tensor_set *set, const char *name)
{
    if (!set->count) return NULL;
    const es_tensor key = {.name = name};
    return bsearch(&key, set->tensors, set->count, sizeof key, by_tensor_name);
}

size_t es_tensor_count(const es_tensor_set *set)
{
    return set->count;
}

const es_tensor *es_tensor_at(const es_tensor_set *set, size_t index)
{
    return index < set->count ? &set->tensors[index] : NULL;
}

size_t es_tensor_unreadable_count(const es_tensor_set *set)
{
    return set->unreadable_count;
}

const char *es_tensor_unreadable(const es_tensor_set *set, const char *name)
{
    if (!set->unreadable_count) return NULL;
    const unreadable_tensor key = {.name = (char *)(uintptr_t)name};
    const unreadable_tensor *found =
        bsearch(&key, set->unreadable, set->unreadable_count, sizeof key, by_unreadable_name);
    return found ? found->type : NULL;
}

const char *es_tensor_unreadable_at(const es_tensor_set *set, size_t index, const char **type)
{
    if (index >= set->unreadable_count) return NULL;
    if (type) *type = set->unreadable[index].type;
    return set->unreadable[index].name;
}

static int by_begin(const void *a, const void *b)
{
    const es_tensor_extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

es_status es_tensor_extents_check(es_tensor_extent *extents, size_t count, const char *path)
{
    if (count) qsort(extents, count, sizeof *extents, by_begin);
    for (size_t i = 1; i < count; i++)
        if (extents[i].begin < extents[i - 1].end)
            return es_fail(ES_BAD_FILE, "%s: the tensors \"%.200s\" and \"%.200s\" overlap at byte %" PRIu64
                           " of the data; the file is damaged", path, extents[i - 1].name, extents[i].name, extents[i].begin);
    return ES_OK;
}

bool es_shape_elements(const int64_t *shape, int rank, int64_t *elements)
{
    int64_t product = 1;
    for (int axis = 0; axis < rank; axis++)
        if (shape[axis] < 0 || __builtin_mul_overflow(product, shape[axis], &product)) return false;
    *elements = product;
    return true;
}
