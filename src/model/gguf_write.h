/* gguf_write.h: writes a GGUF file front to back, holding nothing of it in memory.
 *
 * The head of a GGUF counts what follows, so it is emitted twice: once into nothing, to count and to place the tensors, once
 * into the file.
 *
 *   static void describe(es_gguf_writer *w, void *user)
 *   {
 *       es_gguf_put_text(w, "general.architecture", "llama");
 *       es_gguf_put_tensor(w, "token_embd.weight", ES_Q8_0, rows, columns);
 *   }
 *   es_gguf_writer w;
 *   es_gguf_write_head(file, describe, user, &w);
 *   ...each tensor's bytes, in the same order: es_gguf_write_data(&w, bytes, count) until it is whole, then...
 *   es_gguf_write_pad(&w);
 *
 * A failed write is remembered in `failed`. */
#ifndef ES_MODEL_GGUF_WRITE_H
#define ES_MODEL_GGUF_WRITE_H

#include <stdio.h>

#include "device/dtype.h"

typedef struct es_gguf_writer {
    FILE *file;                /**< NULL while counting */
    uint64_t position;
    uint64_t keys, tensors;    /**< in this pass */
    uint64_t all_keys, all_tensors; /**< of the counting pass */
    uint64_t data;             /**< bytes of tensors placed so far */
    bool failed;
} es_gguf_writer;

typedef void (*es_gguf_describe_fn)(es_gguf_writer *w, void *user);

/** Write everything in front of the tensors' bytes. `describe` puts all keys first, then all tensors, and is called twice. */
void es_gguf_write_head(FILE *file, es_gguf_describe_fn describe, void *user, es_gguf_writer *w);

void es_gguf_put_text(es_gguf_writer *w, const char *key, const char *value);
void es_gguf_put_u32(es_gguf_writer *w, const char *key, uint32_t value);
void es_gguf_put_f32(es_gguf_writer *w, const char *key, float value);
void es_gguf_put_bool(es_gguf_writer *w, const char *key, bool value);
void es_gguf_put_u32_array(es_gguf_writer *w, const char *key, const int32_t *values, uint64_t count);
/** Begin an array of strings or of int32; exactly `count` items must follow. */
void es_gguf_begin_texts(es_gguf_writer *w, const char *key, uint64_t count);
void es_gguf_begin_integers(es_gguf_writer *w, const char *key, uint64_t count);
void es_gguf_put_item(es_gguf_writer *w, const char *text);
void es_gguf_put_integer(es_gguf_writer *w, int32_t value);
/** A tensor [rows][columns]; rows = 0: a vector of `columns`. */
void es_gguf_put_tensor(es_gguf_writer *w, const char *name, es_dtype type, int64_t rows, int64_t columns);
/** One of three dimensions: `count` matrices [rows][columns]. */
void es_gguf_put_matrices(es_gguf_writer *w, const char *name, es_dtype type, int64_t count, int64_t rows, int64_t columns);

void es_gguf_write_data(es_gguf_writer *w, const void *data, size_t bytes);
/** Bytes that read as zero and take no room on the disk, where the file system can do that. */
void es_gguf_write_hole(es_gguf_writer *w, size_t bytes);
/** Fill up to the next tensor's place. */
void es_gguf_write_pad(es_gguf_writer *w);

#endif
