/* fetch.c: see fetch.h. */
#include "hub/fetch.h"

#ifndef ES_HAVE_CURL

es_status es_fetcher_open(const char *endpoint, const char *token, es_fetcher **fetcher)
{
    (void)endpoint, (void)token, (void)fetcher;
    return es_fail(ES_UNSUPPORTED, "this build cannot download: install libcurl's headers (Debian: libcurl4-openssl-dev) and "
                                   "build again");
}

void es_fetcher_close(es_fetcher *fetcher)
{
    (void)fetcher;
}

es_status es_fetch_text(es_fetcher *fetcher, const char *path, size_t limit, es_text *text)
{
    (void)fetcher, (void)path, (void)limit, (void)text;
    return es_fail(ES_UNSUPPORTED, "this build cannot download");
}

es_status es_fetch_file(es_fetcher *fetcher, const char *path, const char *to, int64_t bytes, es_fetch_progress_fn progress,
                        void *user)
{
    (void)fetcher, (void)path, (void)to, (void)bytes, (void)progress, (void)user;
    return es_fail(ES_UNSUPPORTED, "this build cannot download");
}

#else

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 6, STALL_SECONDS = 60 };

struct es_fetcher {
    CURL *curl;
    struct curl_slist *headers;
    char *endpoint;
    char error[CURL_ERROR_SIZE];
};

/* ---- opening ---- */

static es_status check_endpoint(const char *endpoint, bool token, bool *secure)
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL;
    es_status status = ES_OK;
    if (!parts) return es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
    if (curl_url_set(parts, CURLUPART_URL, endpoint, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        status = es_fail(ES_INVALID, "HF_ENDPOINT=%s is not an http address", endpoint);
    else {
        *secure = strcmp(scheme, "https") == 0;
        const bool here = strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
        if (token && !*secure && !here)
            status =
                es_fail(ES_INVALID, "HF_ENDPOINT=%s would carry HF_TOKEN in the open: use https, or unset HF_TOKEN", endpoint);
    }
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(parts);
    return status;
}

es_status es_fetcher_open(const char *endpoint, const char *token, es_fetcher **out)
{
    bool secure = true;
    ES_TRY(check_endpoint(endpoint, token && *token, &secure));
    es_fetcher *fetcher = calloc(1, sizeof *fetcher);
    if (fetcher) fetcher->curl = curl_easy_init();
    if (fetcher) fetcher->endpoint = strdup(endpoint);
    es_text header = {0};
    if (token && *token) es_text_printf(&header, "Authorization: Bearer %s", token);
    if (fetcher && header.data) fetcher->headers = curl_slist_append(NULL, header.data);
    es_text_free(&header);
    if (!fetcher || !fetcher->curl || !fetcher->endpoint || (token && *token && !fetcher->headers)) {
        es_fetcher_close(fetcher);
        return es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
    }
    size_t n = strlen(fetcher->endpoint);
    while (n && fetcher->endpoint[n - 1] == '/') fetcher->endpoint[--n] = '\0';
    CURL *curl = fetcher->curl;
    const char *protocols = secure ? "https" : "http,https";
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 8L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "evenshare/" ES_VERSION);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, fetcher->error);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fetcher->headers);
    *out = fetcher;
    return ES_OK;
}

void es_fetcher_close(es_fetcher *fetcher)
{
    if (!fetcher) return;
    if (fetcher->curl) curl_easy_cleanup(fetcher->curl);
    curl_slist_free_all(fetcher->headers);
    free(fetcher->endpoint);
    free(fetcher);
}

/* ---- one transfer ---- */

/* Where an answer goes: a text, or a file from `position` on. */
typedef struct sink {
    CURL *curl;
    es_text *text;
    int fd;
    int64_t position, bytes; /* in the file; all there should be */
    int64_t range_start;     /* as Content-Range says; -1: it does not */
    int64_t shown;           /* milliseconds of the last progress */
    bool too_much, failed;
    es_fetch_progress_fn progress;
    void *user;
} sink;

static int64_t milliseconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static size_t on_header(char *data, size_t size, size_t count, void *self)
{
    sink *s = self;
    const size_t n = size * count;
    if (n > 5 && strncmp(data, "HTTP/", 5) == 0) s->range_start = -1; /* the next answer of a chain */
    if (n > 21 && strncasecmp(data, "content-range: bytes ", 21) == 0) s->range_start = strtoll(data + 21, NULL, 10);
    return n;
}

/* A server may answer a range with the whole file: then it starts over. */
static bool begin_file(sink *s, long code)
{
    if (code == 206 && s->range_start == s->position) return true;
    if (code == 200 && s->position == 0) return true;
    if (code == 206 || ftruncate(s->fd, 0) != 0 || lseek(s->fd, 0, SEEK_SET) != 0) return false;
    s->position = 0;
    return true;
}

static size_t on_file_data(sink *s, const char *data, size_t n, long code)
{
    if (s->range_start != -2) {
        if (!begin_file(s, code)) return s->failed = true, 0;
        s->range_start = -2; /* begun */
    }
    if ((int64_t)n > s->bytes - s->position) return s->too_much = true, 0;
    for (size_t done = 0; done < n;) {
        const ssize_t wrote = write(s->fd, data + done, n - done);
        if (wrote < 0 && errno != EINTR) return s->failed = true, 0;
        if (wrote > 0) done += (size_t)wrote;
    }
    s->position += (int64_t)n;
    const int64_t now = milliseconds_now();
    if (s->progress && now - s->shown >= 100) {
        s->shown = now;
        s->progress(s->user, s->position);
    }
    return n;
}

static size_t on_data(char *data, size_t size, size_t count, void *self)
{
    sink *s = self;
    const size_t n = size * count;
    long code = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200 && code != 206) return n; /* an error's text is not wanted */
    if (s->fd >= 0) return on_file_data(s, data, n, code);
    es_text_append(s->text, data, n);
    if (s->text->failed) s->too_much = true;
    return s->too_much ? 0 : n;
}

/* The code of the answer, or 0 with the reason in fetcher->error. */
static long transfer(es_fetcher *fetcher, const char *path, sink *s)
{
    es_text url = {0};
    char range[32];
    es_text_printf(&url, "%s%s", fetcher->endpoint, path);
    snprintf(range, sizeof range, "%" PRId64 "-", s->position);
    CURL *curl = fetcher->curl;
    s->curl = curl;
    s->range_start = -1;
    fetcher->error[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_URL, url.data ? url.data : "");
    curl_easy_setopt(curl, CURLOPT_RANGE, s->position > 0 ? range : NULL);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, s);
    const CURLcode result = curl_easy_perform(curl);
    es_text_free(&url);
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    if (result == CURLE_OK) return code;
    if (!fetcher->error[0]) snprintf(fetcher->error, sizeof fetcher->error, "%s", curl_easy_strerror(result));
    return code >= 400 ? code : 0;
}

/* A sentence for what trying again does not mend; ES_OK when it might. */
static es_status refuse(const es_fetcher *fetcher, const char *path, const sink *s, long code)
{
    if (s->too_much && s->fd < 0) return es_fail(ES_BAD_FILE, "%s%s: the answer is too long", fetcher->endpoint, path);
    if (s->too_much)
        return es_fail(ES_BAD_FILE, "%s%s: more bytes came than the %" PRId64 " that were listed", fetcher->endpoint, path,
                       s->bytes);
    if (s->failed) return es_fail(ES_IO, "%s%s could not be written: %s", fetcher->endpoint, path, strerror(errno));
    if (code == 401 || code == 403)
        return es_fail(ES_INVALID,
                       "%s%s: it is not open to everyone (%ld); set HF_TOKEN to a token that may read it, and "
                       "agree to its terms on its page if it has some",
                       fetcher->endpoint, path, code);
    if (code == 404) return es_fail(ES_NOT_FOUND, "%s%s: there is no such thing", fetcher->endpoint, path);
    if (code >= 400 && code < 500 && code != 408 && code != 416 && code != 429)
        return es_fail(ES_INVALID, "%s%s: the hub answered %ld", fetcher->endpoint, path, code);
    return ES_OK;
}

/* 0.2 s, 0.4 s, ... and up to half a minute where the hub asks for it. */
static void pause_before(const es_fetcher *fetcher, int attempt)
{
    curl_off_t asked = 0;
    curl_easy_getinfo(fetcher->curl, CURLINFO_RETRY_AFTER, &asked);
    int64_t ms = (int64_t)200 << attempt;
    if (asked > 0) ms = asked > 30 ? 30000 : (int64_t)asked * 1000;
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Until everything is there; complete() says when. */
static es_status persist(es_fetcher *fetcher, const char *path, sink *s, bool (*complete)(const sink *s, long code))
{
    long code = 0;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        const int64_t before = s->position;
        code = transfer(fetcher, path, s);
        if (complete(s, code)) return ES_OK;
        ES_TRY(refuse(fetcher, path, s, code));
        if (code == 416 && s->position > 0) { /* what is there is no beginning of it */
            if (ftruncate(s->fd, 0) != 0 || lseek(s->fd, 0, SEEK_SET) != 0) s->failed = true;
            s->position = 0;
        }
        if (s->position > before) attempt = 0;
        if (s->text) es_text_clear(s->text);
        if (attempt + 1 < TRIES) pause_before(fetcher, attempt);
    }
    if (code) return es_fail(ES_IO, "%s%s: the hub answered %ld, again and again", fetcher->endpoint, path, code);
    return es_fail(ES_IO, "%s%s: %s; what came is kept, the same command goes on from there", fetcher->endpoint, path,
                   fetcher->error[0] ? fetcher->error : "the connection was closed too early");
}

static bool text_is_complete(const sink *s, long code)
{
    return code == 200 && !s->text->failed;
}

es_status es_fetch_text(es_fetcher *fetcher, const char *path, size_t limit, es_text *text)
{
    text->limit = limit;
    sink s = {.text = text, .fd = -1};
    return persist(fetcher, path, &s, text_is_complete);
}

static bool file_is_complete(const sink *s, long code)
{
    return (code == 200 || code == 206) && !s->failed && !s->too_much && s->position == s->bytes;
}

es_status es_fetch_file(es_fetcher *fetcher, const char *path, const char *to, int64_t bytes, es_fetch_progress_fn progress,
                        void *user)
{
    sink s = {
        .fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644), .bytes = bytes, .progress = progress, .user = user};
    if (s.fd < 0) return es_fail(ES_IO, "%s cannot be written: %s", to, strerror(errno));
    s.position = lseek(s.fd, 0, SEEK_END);
    if (s.position > bytes && ftruncate(s.fd, 0) == 0) s.position = lseek(s.fd, 0, SEEK_SET);
    es_status status = ES_OK;
    if (s.position < bytes || bytes == 0) status = persist(fetcher, path, &s, file_is_complete);
    if (fsync(s.fd) != 0 && status == ES_OK) status = es_fail(ES_IO, "%s could not be written: %s", to, strerror(errno));
    close(s.fd);
    if (progress) progress(user, s.position);
    return status;
}

#endif
