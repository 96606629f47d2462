/* stats.h: what the files of `evenshare stats` share. */
#ifndef ES_CLI_STATS_H
#define ES_CLI_STATS_H

#include "base/text.h"
#include "model/tensor_stats.h"

/** An array of numbers in a file, and what was found out about it. */
typedef struct es_stats_item {
    char *name;              /**< owned; as the file has it, so not to be printed as it is */
    const char *type;        /**< "BF16", "Q4_K", "f8" */
    int rank;
    int64_t shape[ES_NPY_RANK];
    size_t bytes;
    es_stats_input input;
    es_tensor_stats stats;
    es_text notes;           /**< what a reader should look at, "; " between; empty when there is nothing */
} es_stats_item;

typedef struct es_stats_file {
    const char *path;
    es_kernels kernels;
    es_stats_item *item;
    size_t count;
    char **skipped;          /**< "name (type)" of tensors that cannot be read */
    size_t skipped_count;
    /* of the run */
    es_stats_gpu *gpu; /**< NULL: threads compute */
    int threads;
    bool histogram;
    size_t bytes;
    double seconds;
    /* owners of the mappings */
    es_file mapped;
    es_tensor_set *set;
    struct es_gguf *gguf;
} es_stats_file;

/** Open a model folder, .safetensors, .gguf, .npy, or with `raw_type` a file of nothing but numbers in rows of `columns`
 *  (0: one row). es_stats_file_close() also after a failure. */
es_status es_stats_file_open(const char *path, const char *raw_type, int64_t columns, es_stats_file *file);
void es_stats_file_close(es_stats_file *file);

/** Fill in `notes` from the figures. */
void es_stats_take_notes(es_stats_item *item);
/** "[4096, 512]" */
void es_stats_put_shape(const es_stats_item *item, es_text *out);

/** The report: one HTML file that needs nothing else. */
void es_stats_report(const es_stats_file *file, es_text *out);

#endif
