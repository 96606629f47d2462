/* client.c: see client.h. The only file that knows libcurl. */
#include "check/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

#ifndef ES_HAVE_CURL

es_status es_client_open(const char *url, const char *key, es_client **client)
{
    (void)url, (void)key, (void)client;
    return es_fail(ES_UNSUPPORTED,
                   "this build has no HTTP client: install libcurl's headers (Debian: libcurl4-openssl-dev) and "
                   "build again");
}

void es_client_close(es_client *client)
{
    (void)client;
}

double es_client_now(const es_client *client)
{
    (void)client;
    return 0;
}

const char *es_client_url(const es_client *client)
{
    (void)client;
    return "";
}

es_reply *es_client_send(es_client *client, const es_message *message)
{
    (void)client, (void)message;
    return NULL;
}

bool es_client_run(es_client *client, double seconds, bool (*until)(void *user), void *user)
{
    (void)client, (void)seconds, (void)until, (void)user;
    return false;
}

bool es_client_finish(es_client *client, es_reply *reply, double seconds)
{
    (void)client, (void)reply, (void)seconds;
    return false;
}

void es_client_drop(es_client *client, es_reply *reply)
{
    (void)client, (void)reply;
}

void es_client_drop_all(es_client *client)
{
    (void)client;
}

#else

#include <curl/curl.h>

struct es_client {
    CURLM *multi;
    struct curl_slist *headers;
    char *base; /* without /v1 */
    char *shown;
    bool loopback;
    es_clock clock;
    uint64_t start;
    es_reply replies[ES_CLIENT_MAX];
    es_reply overflow; /* what is given when all are in use */
};

/* ---- opening ---- */

/* Splits the URL; curl's own parser decides what is one. */
static es_status read_url(es_client *client, const char *url)
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL, *path = NULL;
    es_status status = ES_OK;
    if (!parts) return es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
    if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_PATH, &path, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        status = es_fail(ES_INVALID, "%s is not an http address; one looks like http://127.0.0.1:8080", url);
        goto out;
    }
    size_t n = strlen(path);
    while (n && path[n - 1] == '/') path[--n] = 0;
    if (n >= 3 && strcmp(path + n - 3, "/v1") == 0) path[n - 3] = 0;
    curl_url_set(parts, CURLUPART_PATH, path, 0);
    curl_url_set(parts, CURLUPART_QUERY, NULL, 0);
    curl_url_set(parts, CURLUPART_FRAGMENT, NULL, 0);
    client->loopback = strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
    char *whole = NULL;
    if (curl_url_get(parts, CURLUPART_URL, &whole, 0) == CURLUE_OK) client->base = strdup(whole);
    curl_free(whole);
    curl_url_set(parts, CURLUPART_USER, NULL, 0);
    curl_url_set(parts, CURLUPART_PASSWORD, NULL, 0);
    whole = NULL;
    if (curl_url_get(parts, CURLUPART_URL, &whole, 0) == CURLUE_OK) client->shown = strdup(whole);
    curl_free(whole);
    if (!client->base || !client->shown)
        status = es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
    else {
        n = strlen(client->base);
        if (n && client->base[n - 1] == '/') client->base[n - 1] = 0;
        n = strlen(client->shown);
        if (n && client->shown[n - 1] == '/') client->shown[n - 1] = 0;
    }
out:
    curl_free(scheme), curl_free(host), curl_free(path);
    curl_url_cleanup(parts);
    return status;
}

static es_status make_headers(es_client *client, const char *key)
{
    static const char *const fixed[] = {"Content-Type: application/json",
                                        "Expect:", "Accept: application/json, text/event-stream"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        struct curl_slist *longer = curl_slist_append(client->headers, fixed[i]);
        if (!longer) return es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
        client->headers = longer;
    }
    if (!key) return ES_OK;
    if (strpbrk(key, "\r\n")) return es_fail(ES_INVALID, "the API key holds a line break");
    es_text line = {0};
    es_text_printf(&line, "Authorization: Bearer %s", key);
    struct curl_slist *longer = line.failed ? NULL : curl_slist_append(client->headers, line.data);
    es_text_free(&line);
    if (!longer) return es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
    client->headers = longer;
    return ES_OK;
}

es_status es_client_open(const char *url, const char *key, es_client **out)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0) return es_fail(ES_INTERNAL, "libcurl cannot start");
    es_client *client = calloc(1, sizeof *client);
    if (!client) {
        curl_global_cleanup();
        return es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
    }
    client->clock = es_clock_monotonic();
    client->start = es_clock_now(&client->clock);
    client->multi = curl_multi_init();
    es_status status = client->multi ? read_url(client, url) : es_fail(ES_NO_MEMORY, "no memory for an HTTP client");
    if (status == ES_OK) status = make_headers(client, key);
    if (status == ES_OK)
        *out = client;
    else
        es_client_close(client);
    return status;
}

void es_client_close(es_client *client)
{
    if (!client) return;
    es_client_drop_all(client);
    if (client->multi) curl_multi_cleanup(client->multi);
    curl_slist_free_all(client->headers);
    free(client->base);
    free(client->shown);
    free(client);
    curl_global_cleanup();
}

double es_client_now(const es_client *client)
{
    return (double)(es_clock_now(&client->clock) - client->start) * 1e-9;
}

const char *es_client_url(const es_client *client)
{
    return client->shown;
}

/* ---- what comes back ---- */

static bool header_value(const char *line, size_t bytes, const char *name, char *value, size_t room)
{
    const size_t n = strlen(name);
    if (bytes <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') return false;
    size_t from = n + 1, to = bytes;
    while (from < to && (line[from] == ' ' || line[from] == '\t')) from++;
    while (to > from && (unsigned char)line[to - 1] <= ' ') to--;
    snprintf(value, room, "%.*s", (int)(to - from < room ? to - from : room - 1), line + from);
    return true;
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    es_reply *reply = user;
    const size_t bytes = size * count;
    char value[80];
    if (bytes > 5 && memcmp(line, "HTTP/", 5) == 0) reply->type[0] = 0, reply->retry_after = false;
    header_value(line, bytes, "content-type", reply->type, sizeof reply->type);
    if (header_value(line, bytes, "retry-after", value, sizeof value)) reply->retry_after = true;
    long status = 0;
    curl_easy_getinfo(reply->handle, CURLINFO_RESPONSE_CODE, &status);
    if (bytes <= 2 && status >= 200) {
        reply->status = (int)status;
        reply->headed = es_client_now(reply->client);
        reply->streamed = strncasecmp(reply->type, "text/event-stream", 17) == 0;
    }
    return bytes;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    es_reply *reply = user;
    const size_t bytes = size * count;
    if (reply->streamed) {
        es_transcript_feed(&reply->transcript, data, bytes, es_client_now(reply->client));
        return bytes;
    }
    es_text_append(&reply->body, data, bytes);
    return reply->body.failed ? 0 : bytes;
}

static void release_handle(es_reply *reply)
{
    if (reply->handle) {
        curl_multi_remove_handle(reply->client->multi, reply->handle);
        curl_easy_cleanup(reply->handle);
    }
    reply->handle = NULL;
    free(reply->copy);
    reply->copy = NULL;
}

static void end_reply(es_reply *reply, const char *problem)
{
    reply->ended = true;
    reply->closed = es_client_now(reply->client);
    if (problem) snprintf(reply->problem, sizeof reply->problem, "%s", problem);
    if (reply->streamed && !problem) es_transcript_end(&reply->transcript);
    if (!reply->streamed && !problem && reply->body.bytes)
        es_transcript_whole(&reply->transcript, reply->body.data, reply->body.bytes);
    release_handle(reply);
}

/* ---- sending ---- */

static es_reply *free_reply(es_client *client)
{
    for (size_t i = 0; i < ES_CLIENT_MAX; i++)
        if (!client->replies[i].used) return &client->replies[i];
    return &client->overflow;
}

static bool set_up(es_client *client, es_reply *reply, const es_message *message)
{
    es_text url = {0};
    es_text_puts(&url, client->base);
    es_text_puts(&url, message->path);
    CURL *handle = curl_easy_init();
    reply->handle = handle;
    bool good = handle && !url.failed;
    if (good) {
        good = curl_easy_setopt(handle, CURLOPT_URL, url.data) == CURLE_OK;
        curl_easy_setopt(handle, CURLOPT_HTTPHEADER, client->headers);
        curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, 20L);
        curl_easy_setopt(handle, CURLOPT_USERAGENT, "evenshare-check/" ES_VERSION);
        curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
        curl_easy_setopt(handle, CURLOPT_HEADERDATA, reply);
        curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(handle, CURLOPT_WRITEDATA, reply);
        curl_easy_setopt(handle, CURLOPT_PRIVATE, reply);
        if (client->loopback) curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
        if (strcmp(message->method, "POST") == 0) {
            curl_easy_setopt(handle, CURLOPT_POST, 1L);
            curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)message->bytes);
            curl_easy_setopt(handle, CURLOPT_POSTFIELDS, reply->copy);
        }
    }
    es_text_free(&url);
    return good;
}

es_reply *es_client_send(es_client *client, const es_message *message)
{
    es_reply *reply = free_reply(client);
    es_client_drop(client, reply);
    reply->used = true;
    reply->client = client;
    reply->body.limit = ES_CLIENT_BODY_MAX;
    reply->began = es_client_now(client);
    es_transcript_init(&reply->transcript, message->chat);
    if (reply == &client->overflow) {
        end_reply(reply, "too many requests at once for this client");
        return reply;
    }
    reply->copy = malloc(message->bytes + 1);
    if (reply->copy && message->bytes) memcpy(reply->copy, message->body, message->bytes);
    if (!reply->copy || !set_up(client, reply, message) || curl_multi_add_handle(client->multi, reply->handle) != CURLM_OK)
        end_reply(reply, "no memory for a request");
    return reply;
}

/* ---- moving bytes ---- */

static bool move(es_client *client, int milliseconds)
{
    int running = 0, left = 0;
    if (curl_multi_perform(client->multi, &running) != CURLM_OK) return false;
    for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &left));) {
        if (message->msg != CURLMSG_DONE) continue;
        const CURLcode code = message->data.result;
        char *reply = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &reply);
        end_reply((es_reply *)(void *)reply, code == CURLE_OK ? NULL : curl_easy_strerror(code));
        milliseconds = 0;
    }
    return curl_multi_poll(client->multi, NULL, 0, milliseconds, NULL) == CURLM_OK;
}

bool es_client_run(es_client *client, double seconds, bool (*until)(void *user), void *user)
{
    const double end = es_client_now(client) + seconds;
    for (;;) {
        if (until && until(user)) return true;
        const double left = end - es_client_now(client);
        if (left <= 0) return false;
        if (!move(client, left > 0.05 ? 50 : (int)(left * 1e3) + 1)) return false;
    }
}

static bool has_ended(void *user)
{
    return ((const es_reply *)user)->ended;
}

bool es_client_finish(es_client *client, es_reply *reply, double seconds)
{
    return es_client_run(client, seconds, has_ended, reply);
}

void es_client_drop(es_client *client, es_reply *reply)
{
    (void)client;
    if (!reply->used) return;
    release_handle(reply);
    es_text_free(&reply->body);
    es_transcript_free(&reply->transcript);
    *reply = (es_reply){0};
}

void es_client_drop_all(es_client *client)
{
    for (size_t i = 0; i < ES_CLIENT_MAX; i++) es_client_drop(client, &client->replies[i]);
    es_client_drop(client, &client->overflow);
}

#endif
