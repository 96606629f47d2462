/* file.c: mapping and reading files; see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static es_status open_regular(const char *path, int *fd, size_t *bytes)
{
    const int handle = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (handle < 0) {
        if (errno == ENOENT || errno == ENOTDIR) return es_fail(ES_NOT_FOUND, "%s: no such file", path);
        return es_fail(ES_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    struct stat info;
    if (fstat(handle, &info) != 0) {
        const int code = errno;
        close(handle);
        return es_fail(ES_IO, "%s: %s", path, strerror(code));
    }
    if (!S_ISREG(info.st_mode)) {
        close(handle);
        return es_fail(ES_INVALID, "%s: is not a regular file", path);
    }
    *fd = handle;
    *bytes = (size_t)info.st_size;
    return ES_OK;
}

es_status es_file_map(const char *path, es_file *file)
{
    int fd;
    size_t bytes;
    ES_TRY(open_regular(path, &fd, &bytes));
    void *data = NULL;
    if (bytes) {
        data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            const int code = errno;
            close(fd);
            return es_fail(ES_IO, "%s: cannot be mapped (%zu bytes): %s", path, bytes, strerror(code));
        }
    }
    close(fd);
    char *copy = strdup(path);
    if (!copy) {
        if (data) munmap(data, bytes);
        return es_fail(ES_NO_MEMORY, "%s: out of memory", path);
    }
    *file = (es_file){data, bytes, copy};
    return ES_OK;
}

void es_file_unmap(es_file *file)
{
    if (file->data) munmap((void *)(uintptr_t)file->data, file->bytes);
    free(file->path);
    *file = (es_file){0};
}

static es_status read_all(int fd, const char *path, char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = read(fd, data + done, bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return es_fail(ES_IO, "%s: %s", path, strerror(errno));
        if (got == 0) return es_fail(ES_IO, "%s: became shorter while it was read", path);
        done += (size_t)got;
    }
    return ES_OK;
}

es_status es_file_read(const char *path, size_t limit, char **data, size_t *bytes)
{
    int fd;
    size_t size;
    ES_TRY(open_regular(path, &fd, &size));
    char *buffer = NULL;
    es_status status = ES_OK;
    if (size > limit)
        status = es_fail(ES_BAD_FILE, "%s: is %zu bytes long; at most %zu are read from such a file", path, size, limit);
    else if (!(buffer = malloc(size + 1)))
        status = es_fail(ES_NO_MEMORY, "%s: no memory for %zu bytes", path, size);
    else
        status = read_all(fd, path, buffer, size);
    close(fd);
    if (status != ES_OK) {
        free(buffer);
        return status;
    }
    buffer[size] = '\0';
    *data = buffer;
    if (bytes) *bytes = size;
    return ES_OK;
}

bool es_path_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool es_path_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *es_path_join(const char *folder, const char *name)
{
    const size_t a = strlen(folder), b = strlen(name);
    char *path = malloc(a + b + 2);
    if (!path) return NULL;
    memcpy(path, folder, a);
    const size_t slash = a > 0 && folder[a - 1] != '/';
    if (slash) path[a] = '/';
    memcpy(path + a + slash, name, b + 1);
    return path;
}
