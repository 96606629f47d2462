/* tensor_set.h: how a reader fills an es_tensor_set. For the readers in this folder only.
 *
 *   es_tensor_set *set = es_tensor_set_new();
 *   ... es_tensor_set_add(set, path, &tensor) or es_tensor_set_add_unreadable(...) for each tensor of a file
 *   ... es_tensor_set_adopt(set, &file) once per mapped file
 *   ES_TRY(es_tensor_set_seal(set, path));     // sorts, refuses duplicates; only now may it be looked up */
#ifndef ES_MODEL_TENSOR_SET_H
#define ES_MODEL_TENSOR_SET_H

#include "model/tensor_file.h"

/** An empty set, or NULL when memory is short. */
es_tensor_set *es_tensor_set_new(void);

/** Copy `tensor` and its name into the set. */
es_status es_tensor_set_add(es_tensor_set *set, const char *path, const es_tensor *tensor);

/** Remember that `name` exists but is of a type, or has a rank, that cannot be read. */
es_status es_tensor_set_add_unreadable(es_tensor_set *set, const char *path, const char *name, const char *type);

/** Keep `file` mapped until the set is closed. Takes it over: *file is emptied, also on failure. */
es_status es_tensor_set_adopt(es_tensor_set *set, es_file *file);

/** Sort by name and refuse a name that occurs twice. */
es_status es_tensor_set_seal(es_tensor_set *set, const char *path);

/** Bytes [begin, end) of a file's data section that a tensor claims. */
typedef struct es_tensor_extent {
    uint64_t begin, end;
    const char *name; /**< for the message; borrowed */
} es_tensor_extent;

/** Refuse extents that overlap. Reorders them. */
es_status es_tensor_extents_check(es_tensor_extent *extents, size_t count, const char *path);

/** The product of `rank` non-negative axes; false on a negative axis or past INT64_MAX. */
bool es_shape_elements(const int64_t *shape, int rank, int64_t *elements);

#endif
