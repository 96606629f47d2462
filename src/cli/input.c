/* input.c: see input.h. */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX ((size_t)1 << 30)

es_status es_read_input(const char *path, es_text *out)
{
    const bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    const int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return es_fail(ES_NOT_FOUND, "%s: no such file", path);
    if (fd < 0) return es_fail(ES_IO, "%s: cannot be opened: %s", path, strerror(errno));
    es_status status = ES_OK;
    char buffer[1 << 16];
    while (status == ES_OK) {
        const ssize_t got = read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EISDIR) status = es_fail(ES_INVALID, "%s: is a folder; a file is wanted here", name);
        else if (got < 0) status = es_fail(ES_IO, "%s: cannot be read: %s", name, strerror(errno));
        if (got <= 0) break;
        es_text_append(out, buffer, (size_t)got);
        if (out->failed) status = es_fail(ES_NO_MEMORY, "%s: out of memory", name);
        else if (out->bytes > INPUT_MAX) status = es_fail(ES_TOO_LONG, "%s: is longer than 1 GiB", name);
    }
    if (!standard) close(fd);
    return status;
}

static bool is_gap(char c)
{
    return c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static es_status refuse_id(const char *name, const char *word, size_t bytes, size_t line, int32_t vocabulary)
{
    return es_fail(ES_INVALID, "%s, line %zu: \"%.*s\" is no token number of this model (0 to %d)", name, line,
                   (int)(bytes < 40 ? bytes : 40), word, vocabulary - 1);
}

es_status es_parse_ids(const char *name, const es_text *text, int32_t vocabulary, es_token **tokens, size_t *count)
{
    if (text->bytes == 0) return es_fail(ES_INVALID, "%s: holds no token numbers", name);
    /* Each number takes at least one byte, and one more parts it from the next. */
    es_token *ids = malloc((text->bytes / 2 + 1) * sizeof *ids);
    if (!ids) return es_fail(ES_NO_MEMORY, "%s: out of memory", name);
    size_t n = 0, line = 1;
    const char *end = text->data + text->bytes;
    for (const char *c = text->data; c < end;) {
        if (is_gap(*c)) {
            line += *c++ == '\n';
            continue;
        }
        const char *word = c;
        int64_t value = 0;
        bool good = true;
        for (; c < end && !is_gap(*c); c++) {
            good = good && *c >= '0' && *c <= '9' && value < vocabulary;
            if (good) value = value * 10 + (*c - '0');
        }
        if (!good || value >= vocabulary) {
            free(ids);
            return refuse_id(name, word, (size_t)(c - word), line, vocabulary);
        }
        ids[n++] = (es_token)value;
    }
    if (n == 0) {
        free(ids);
        return es_fail(ES_INVALID, "%s: holds no token numbers", name);
    }
    *tokens = ids;
    *count = n;
    return ES_OK;
}
