/* file.h: read-only files, mapped or read whole.
 *
 * Model weights are mapped: the page cache is shared between processes and nothing is copied. Small files (configurations,
 * tokenizers) are read whole under a limit, so that a hostile path cannot make the process allocate without bound. */
#ifndef ES_BASE_FILE_H
#define ES_BASE_FILE_H

#include "base/error.h"

/** A mapped file. `data` is page-aligned; NULL for an empty file. */
typedef struct es_file {
    const unsigned char *data;
    size_t bytes;
    char *path; /**< owned copy, for messages */
} es_file;

/** Map a regular file for reading. ES_NOT_FOUND, ES_IO, or ES_INVALID for a directory or device. */
es_status es_file_map(const char *path, es_file *file);
/** Unmap; a zeroed or already closed file is fine. */
void es_file_unmap(es_file *file);

/** Read a whole regular file of at most `limit` bytes into *data (owned by the caller, NUL-terminated; free()). */
es_status es_file_read(const char *path, size_t limit, char **data, size_t *bytes);

bool es_path_exists(const char *path);
bool es_path_is_folder(const char *path);
/** "folder/name" in a fresh string (free()), or NULL when memory is short. */
char *es_path_join(const char *folder, const char *name);

#endif
