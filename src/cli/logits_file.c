/* logits_file.c: see logits_file.h. */
#include "cli/logits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

struct es_logits_file {
    int fd;
    char *path, *temporary;
    int64_t rows, written;
    size_t row_bytes, data_start;
};

static es_status write_at(const es_logits_file *file, const void *data, size_t bytes, size_t offset)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = pwrite(file->fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return es_fail(ES_IO, "%s: cannot be written: %s", file->path, put < 0 ? strerror(errno) : "no room");
        done += (size_t)put;
    }
    return ES_OK;
}

/* Eight length bytes and the JSON, padded with spaces so that the data begins at a multiple of 8. */
static es_status write_header(es_logits_file *file, const char *tensor, int32_t columns)
{
    es_text json = {0}, header = {0};
    es_text_printf(&json, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRId64 ",%d],\"data_offsets\":[0,%" PRIu64 "]}}", tensor,
                   file->rows, columns, (uint64_t)file->rows * file->row_bytes);
    while (json.bytes % 8 && !json.failed) es_text_putc(&json, ' ');
    for (int i = 0; i < 8; i++) es_text_putc(&header, (char)(json.bytes >> (8 * i) & 0xFF));
    es_text_append(&header, json.data, json.bytes);
    es_status status = json.failed || header.failed ? es_fail(ES_NO_MEMORY, "out of memory")
                                                    : write_at(file, header.data, header.bytes, 0);
    file->data_start = header.bytes;
    es_text_free(&json);
    es_text_free(&header);
    return status;
}

static void release(es_logits_file *file)
{
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    free(file->temporary);
    free(file);
}

es_status es_logits_file_open(const char *path, const char *tensor, int64_t rows, int32_t columns, es_logits_file **out)
{
    if (rows < 1 || columns < 1 || rows > INT64_MAX / 8 / columns)
        return es_fail(ES_INVALID, "%s: %" PRId64 " rows of %d logits cannot be written", path, rows, columns);
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* renaming onto a device would replace it */
        return es_fail(ES_INVALID, "%s: exists and is not a regular file", path);
    es_logits_file *file = calloc(1, sizeof *file);
    if (!file) return es_fail(ES_NO_MEMORY, "%s: out of memory", path);
    file->rows = rows;
    file->row_bytes = (size_t)columns * sizeof(float);
    file->path = strdup(path);
    es_text temporary = {0};
    es_text_printf(&temporary, "%s.%ld.part", path, (long)getpid());
    file->temporary = temporary.data;
    file->fd = -1;
    es_status status = temporary.failed || !file->path ? es_fail(ES_NO_MEMORY, "%s: out of memory", path) : ES_OK;
    if (status == ES_OK) {
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (file->fd < 0) status = es_fail(ES_IO, "%s: cannot be created: %s", path, strerror(errno));
    }
    if (status == ES_OK) status = write_header(file, tensor, columns);
    if (status != ES_OK) {
        es_logits_file_abandon(file);
        return status;
    }
    *out = file;
    return ES_OK;
}

es_status es_logits_file_put(es_logits_file *file, int64_t row, const float *values)
{
    if (row < 0 || row >= file->rows) return es_fail(ES_INTERNAL, "%s: there is no row %" PRId64, file->path, row);
    ES_TRY(write_at(file, values, file->row_bytes, file->data_start + (size_t)row * file->row_bytes));
    file->written++;
    return ES_OK;
}

es_status es_logits_file_commit(es_logits_file *file)
{
    es_status status = ES_OK;
    if (file->written != file->rows)
        status = es_fail(ES_INTERNAL, "%s: %" PRId64 " of %" PRId64 " rows came", file->path, file->written, file->rows);
    const int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0 && status == ES_OK) status = es_fail(ES_IO, "%s: cannot be written: %s", file->path, strerror(errno));
    if (status == ES_OK && rename(file->temporary, file->path) != 0)
        status = es_fail(ES_IO, "%s: cannot be put in place: %s", file->path, strerror(errno));
    if (status != ES_OK) unlink(file->temporary);
    release(file);
    return status;
}

void es_logits_file_abandon(es_logits_file *file)
{
    if (!file) return;
    if (file->fd >= 0) unlink(file->temporary);
    release(file);
}
