/* npy.h: numpy's .npy files, versions 1 to 3: one array, little-endian, of plain numbers. */
#ifndef ES_MODEL_NPY_H
#define ES_MODEL_NPY_H

#include "base/error.h"

#define ES_NPY_RANK 32

typedef struct es_npy {
    char kind;                  /**< 'f' floating point, 'i' signed, 'u' unsigned, 'b' boolean */
    int bytes;                  /**< of an item: 1, 2, 4 or 8 */
    bool fortran;               /**< the first axis is the fastest */
    int rank;                   /**< 0 (a scalar) to ES_NPY_RANK */
    int64_t shape[ES_NPY_RANK];
    int64_t items;              /**< the product of the shape */
    const unsigned char *data;  /**< items · bytes bytes inside the image; aligned only as the file has it */
} es_npy;

/** Parse a file image; `path` is for messages. ES_BAD_FILE, or ES_UNSUPPORTED for other types (complex, strings, objects,
 *  records, big-endian), named. */
es_status es_npy_parse(const char *path, const unsigned char *data, size_t bytes, es_npy *npy);

#endif
