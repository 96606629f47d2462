/* logits_file.h: a safetensors file with one float32 tensor [rows, columns], written row by row as rows come.
 *
 * Millions of rows of a large vocabulary fit a disk and no memory. The file appears under its name only when it is whole. */
#ifndef ES_CLI_LOGITS_FILE_H
#define ES_CLI_LOGITS_FILE_H

#include "base/error.h"

typedef struct es_logits_file es_logits_file;

/** ES_INVALID for no rows or a path that is no regular file, ES_IO. */
es_status es_logits_file_open(const char *path, const char *tensor, int64_t rows, int32_t columns, es_logits_file **file);
/** Rows may come in any order, each once. */
es_status es_logits_file_put(es_logits_file *file, int64_t row, const float *values);
/** Puts the file in place; ES_INTERNAL when rows are missing. Frees `file` in any case. */
es_status es_logits_file_commit(es_logits_file *file);
/** Throws away what was written; NULL is fine. */
void es_logits_file_abandon(es_logits_file *file);

#endif
