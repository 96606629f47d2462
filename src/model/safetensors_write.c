/* safetensors_write.c: one float32 tensor to a file, for `score --logits`.
 *
 * Written under a temporary name beside the target and renamed when every byte is on its way to the disk: a reader never
 * sees half a file, and a full disk leaves the old one alone. */
#include "model/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "model/tensor_set.h"

static es_status write_all(int fd, const char *path, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = write(fd, (const char *)data + done, bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return es_fail(ES_IO, "%s: cannot be written: %s", path, put < 0 ? strerror(errno) : "the device took nothing");
        done += (size_t)put;
    }
    return ES_OK;
}

/* The 8 length bytes and the JSON, padded with spaces so that the data begins at a multiple of 8. */
static es_status make_header(es_text *out, const char *path, const char *name, size_t bytes, int rank, const int64_t *shape)
{
    json_t *axes = json_array();
    for (int axis = 0; axis < rank; axis++) json_array_append_new(axes, json_integer(shape[axis]));
    json_t *root = json_pack("{s:{s:s, s:o, s:[I, I]}}", name, "dtype", "F32", "shape", axes, "data_offsets", (json_int_t)0,
                             (json_int_t)bytes);
    char *json = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!json) return es_fail(ES_INVALID, "%s: the tensor's name is no valid UTF-8", path);
    const size_t length = (strlen(json) + 7) / 8 * 8;
    for (int i = 0; i < 8; i++) es_text_putc(out, (char)(length >> (8 * i) & 0xFF));
    es_text_puts(out, json);
    while (out->bytes < length + 8 && !out->failed) es_text_putc(out, ' ');
    free(json);
    return out->failed ? es_fail(ES_NO_MEMORY, "%s: out of memory", path) : ES_OK;
}

static es_status write_parts(int fd, const char *path, const es_text *header, const float *data, size_t bytes)
{
    ES_TRY(write_all(fd, path, header->data, header->bytes));
    ES_TRY(write_all(fd, path, data, bytes));
    /* A disk that fills up may say so only now. */
    if (fsync(fd) != 0 && errno != EINVAL) return es_fail(ES_IO, "%s: cannot be written: %s", path, strerror(errno));
    return ES_OK;
}

static es_status write_through(const char *temporary, const char *path, const es_text *header, const float *data, size_t bytes)
{
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return es_fail(ES_IO, "%s: cannot be created: %s", path, strerror(errno));
    es_status status = write_parts(fd, path, header, data, bytes);
    if (close(fd) != 0 && status == ES_OK) status = es_fail(ES_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (status == ES_OK && rename(temporary, path) != 0)
        status = es_fail(ES_IO, "%s: cannot be put in place: %s", path, strerror(errno));
    if (status != ES_OK) unlink(temporary);
    return status;
}

es_status es_safetensors_write_f32(const char *path, const char *name, const float *data, int rank, const int64_t *shape)
{
    int64_t elements;
    if (rank < 0 || rank > ES_TENSOR_RANK || !es_shape_elements(shape, rank, &elements))
        return es_fail(ES_INVALID, "%s: a tensor of this shape cannot be written", path);
    const size_t bytes = es_dtype_bytes(ES_F32, elements);
    if (bytes > INT64_MAX) return es_fail(ES_INVALID, "%s: a tensor of this shape cannot be written", path);
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* renaming onto a device would replace the device */
        return es_fail(ES_INVALID, "%s: exists and is not a regular file", path);

    es_text header = {0}, temporary = {0};
    es_text_printf(&temporary, "%s.%ld.part", path, (long)getpid());
    es_status status = temporary.failed ? es_fail(ES_NO_MEMORY, "%s: out of memory", path)
                                        : make_header(&header, path, name, bytes, rank, shape);
    if (status == ES_OK) status = write_through(temporary.data, path, &header, data, bytes);
    es_text_free(&temporary);
    es_text_free(&header);
    return status;
}
