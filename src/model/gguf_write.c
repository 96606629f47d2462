/* gguf_write.c: a GGUF file from front to back. Numbers are little-endian; this engine runs on nothing else. */
#include "model/gguf_write.h"

#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32 };
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, TYPE_ARRAY = 9 };

static void put(es_gguf_writer *w, const void *data, size_t bytes)
{
    if (w->file && bytes && fwrite(data, 1, bytes, w->file) != bytes) w->failed = true;
    w->position += bytes;
}

static void put_u32(es_gguf_writer *w, uint32_t value)
{
    put(w, &value, sizeof value);
}

static void put_u64(es_gguf_writer *w, uint64_t value)
{
    put(w, &value, sizeof value);
}

static void put_string(es_gguf_writer *w, const char *text)
{
    const size_t bytes = strlen(text);
    put_u64(w, bytes);
    put(w, text, bytes);
}

static void put_key(es_gguf_writer *w, const char *key, uint32_t type)
{
    w->keys++;
    put_string(w, key);
    put_u32(w, type);
}

void es_gguf_put_text(es_gguf_writer *w, const char *key, const char *value)
{
    put_key(w, key, TYPE_STRING);
    put_string(w, value);
}

void es_gguf_put_u32(es_gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, key, TYPE_U32);
    put_u32(w, value);
}

void es_gguf_put_f32(es_gguf_writer *w, const char *key, float value)
{
    put_key(w, key, TYPE_F32);
    put(w, &value, sizeof value);
}

void es_gguf_put_bool(es_gguf_writer *w, const char *key, bool value)
{
    const uint8_t byte = value;
    put_key(w, key, TYPE_BOOL);
    put(w, &byte, 1);
}

static void begin_array(es_gguf_writer *w, const char *key, uint32_t type, uint64_t count)
{
    put_key(w, key, TYPE_ARRAY);
    put_u32(w, type);
    put_u64(w, count);
}

void es_gguf_put_u32_array(es_gguf_writer *w, const char *key, const int32_t *values, uint64_t count)
{
    begin_array(w, key, TYPE_I32, count);
    put(w, values, count * sizeof *values);
}

void es_gguf_begin_texts(es_gguf_writer *w, const char *key, uint64_t count)
{
    begin_array(w, key, TYPE_STRING, count);
}

void es_gguf_begin_integers(es_gguf_writer *w, const char *key, uint64_t count)
{
    begin_array(w, key, TYPE_I32, count);
}

void es_gguf_put_item(es_gguf_writer *w, const char *text)
{
    put_string(w, text);
}

void es_gguf_put_integer(es_gguf_writer *w, int32_t value)
{
    put(w, &value, sizeof value);
}

/* Dimensions are written innermost first. */
void es_gguf_put_tensor(es_gguf_writer *w, const char *name, es_dtype type, int64_t rows, int64_t columns)
{
    w->tensors++;
    put_string(w, name);
    put_u32(w, rows ? 2 : 1);
    put_u64(w, (uint64_t)columns);
    if (rows) put_u64(w, (uint64_t)rows);
    put_u32(w, (uint32_t)es_dtype_get_info(type)->gguf_type);
    put_u64(w, w->data);
    w->data += (es_dtype_bytes(type, columns * (rows ? rows : 1)) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void es_gguf_put_matrices(es_gguf_writer *w, const char *name, es_dtype type, int64_t count, int64_t rows, int64_t columns)
{
    w->tensors++;
    put_string(w, name);
    put_u32(w, 3);
    put_u64(w, (uint64_t)columns);
    put_u64(w, (uint64_t)rows);
    put_u64(w, (uint64_t)count);
    put_u32(w, (uint32_t)es_dtype_get_info(type)->gguf_type);
    put_u64(w, w->data);
    w->data += (es_dtype_bytes(type, columns * rows * count) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void es_gguf_write_head(FILE *file, es_gguf_describe_fn describe, void *user, es_gguf_writer *w)
{
    *w = (es_gguf_writer){0};
    describe(w, user);
    *w = (es_gguf_writer){.file = file, .all_keys = w->keys, .all_tensors = w->tensors};
    put(w, "GGUF", 4);
    put_u32(w, VERSION);
    put_u64(w, w->all_tensors);
    put_u64(w, w->all_keys);
    describe(w, user);
    es_gguf_write_pad(w);
}

void es_gguf_write_data(es_gguf_writer *w, const void *data, size_t bytes)
{
    put(w, data, bytes);
}

/* The last byte is written, so that the file is as long as it says. */
void es_gguf_write_hole(es_gguf_writer *w, size_t bytes)
{
    if (!bytes || !w->file) return;
    if (fseeko(w->file, (off_t)(bytes - 1), SEEK_CUR) != 0) w->failed = true;
    w->position += bytes - 1;
    put(w, "", 1);
}

void es_gguf_write_pad(es_gguf_writer *w)
{
    static const char zeros[ALIGNMENT];
    put(w, zeros, (size_t)(ALIGNMENT - w->position % ALIGNMENT) % ALIGNMENT);
}
