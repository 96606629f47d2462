/* http_connection.c: a connection's life over a bufferevent; see http_connection.h.
 *
 *   READING ── request whole ──▶ BUSY ── reply complete ──▶ READING        (kept alive)
 *      │ refused                   │ client left        └──▶ CLOSING ─▶ gone (after the flush and a short listening)
 *      └──▶ CLOSING                └──▶ DOOMED ─▶ gone
 *
 * Reading stays switched on while a request is worked on: that is how a client that leaves is noticed before the next
 * byte is sent. What such a client sends meanwhile stays in the input buffer, which is bounded. A connection is freed in one
 * place only, destroy(), which runs from the event loop and never below a call of the service: so no caller ever finds its
 * pointer dead under its hands. */
#include "serve/http_connection.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Most bytes read ahead; and bytes of replies that wait for a reader before the next of its requests is looked at. */
enum { INPUT_WATERMARK = 256 * 1024, OUTPUT_WATERMARK = 256 * 1024 };

typedef enum state { READING, BUSY, CLOSING, DOOMED } state;

struct es_http_connection {
    es_http_group *group;
    es_http_connection *previous, *next;
    struct bufferevent *stream;
    struct event *timer;
    es_http_parser parser;
    state state;
    bool owed;            /* the service has a request and no complete reply yet */
    bool replying;        /* the head of a reply went out */
    bool streamed;        /* the reply comes in pieces ... */
    bool chunked;         /* ... framed as chunks */
    bool keep;            /* the connection outlives this reply */
    bool slow;            /* the service knows that the reader does not keep up */
    bool processing;      /* process() is on the stack */
    bool head_started;    /* the head's deadline is running */
    bool flushed;         /* CLOSING: everything was sent, only listening still */
    bool ended;           /* the client will send nothing more */
    size_t body_counted;  /* this connection's part of group->body_bytes */
    es_text extra;        /* header lines of the coming reply */
    void *user;
};

es_http_settings es_http_default_settings(void)
{
    return (es_http_settings){
        .head_limit = 32 * 1024,
        .body_limit = (size_t)64 << 20,
        .bodies_limit = (size_t)256 << 20,
        .output_limit = (size_t)4 << 20,
        .idle_seconds = 75,
        .head_seconds = 15,
        .body_seconds = 30,
        .body_rate = 256 * 1024,
        .write_seconds = 60,
        .linger_seconds = 2,
    };
}

static struct timeval to_timeval(double seconds)
{
    const long whole = (long)seconds;
    return (struct timeval){whole, (long)((seconds - (double)whole) * 1e6)};
}

static void set_timer(es_http_connection *c, double seconds)
{
    if (c->state == DOOMED) return;
    const struct timeval t = to_timeval(seconds);
    event_add(c->timer, &t);
}

/* The next turn of the loop frees the connection. */
static void doom(es_http_connection *c)
{
    if (c->state == DOOMED) return;
    c->state = DOOMED;
    event_active(c->timer, EV_TIMEOUT, 0);
}

static void count_body(es_http_connection *c, size_t bytes)
{
    c->group->body_bytes = c->group->body_bytes - c->body_counted + bytes;
    c->body_counted = bytes;
}

static void destroy(es_http_connection *c)
{
    es_http_group *group = c->group;
    c->state = DOOMED;
    if (c->owed) {
        c->owed = false;
        group->service.on_gone(group->service.self, c);
    }
    count_body(c, 0);
    if (c->previous) c->previous->next = c->next;
    else group->first = c->next;
    if (c->next) c->next->previous = c->previous;
    group->count--;
    group->service.on_closed(group->service.self, c);
    bufferevent_free(c->stream);
    event_free(c->timer);
    es_http_parser_free(&c->parser);
    es_text_free(&c->extra);
    free(c);
}

static struct evbuffer *output_of(es_http_connection *c)
{
    return bufferevent_get_output(c->stream);
}

static void drain_input(es_http_connection *c)
{
    struct evbuffer *in = bufferevent_get_input(c->stream);
    evbuffer_drain(in, evbuffer_get_length(in));
}

/* ---- replies ---- */

static const char *status_words(int status)
{
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
    }
}

void es_http_add_header(es_http_connection *c, const char *name, const char *value)
{
    es_text_printf(&c->extra, "%s: ", name);
    for (; *value; value++)
        if ((unsigned char)*value >= 0x20 && *value != 0x7F) es_text_putc(&c->extra, *value);
    es_text_puts(&c->extra, "\r\n");
}

static void write_head(es_http_connection *c, int status, const char *type, const char *framing)
{
    if (status >= 0 && status < ES_HTTP_STATUSES) c->group->replies[status]++;
    char date[64];
    const time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    struct evbuffer *out = output_of(c);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: evenshare\r\n", status, status_words(status), date);
    if (type) evbuffer_add_printf(out, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    evbuffer_add_printf(out, "%sConnection: %s\r\n", framing, c->keep ? "keep-alive" : "close");
    if (c->extra.bytes && !c->extra.failed) evbuffer_add(out, c->extra.data, c->extra.bytes);
    evbuffer_add(out, "\r\n", 2);
    es_text_clear(&c->extra);
    c->replying = true;
}

/* Keep the connection only when the request was read to its end, or the next one would start in the middle of a body. */
static void decide_to_keep(es_http_connection *c)
{
    c->keep = c->parser.phase == ES_HTTP_COMPLETE && c->parser.request.keep_alive && !c->group->closing;
}

static void process(es_http_connection *c);

/* A body still on its way gets more patience: a client that is busy sending reads its refusal afterwards. */
static double linger_seconds(const es_http_connection *c)
{
    return c->group->settings.linger_seconds * (c->parser.phase == ES_HTTP_COMPLETE ? 1 : 5);
}

static void reply_complete(es_http_connection *c)
{
    c->owed = false;
    if (c->state == DOOMED) return;
    if (!c->keep) {
        c->state = CLOSING;
        drain_input(c); /* a full input buffer would stop the listening */
        set_timer(c, linger_seconds(c) + c->group->settings.write_seconds);
        return;
    }
    es_http_parser_reset(&c->parser);
    count_body(c, 0);
    c->replying = c->streamed = c->head_started = c->slow = false;
    c->state = READING;
    set_timer(c, c->group->settings.idle_seconds);
    process(c);
}

static bool is_head_request(const es_http_connection *c)
{
    return c->parser.request.method && strcmp(c->parser.request.method, "HEAD") == 0;
}

void es_http_reply(es_http_connection *c, int status, const char *type, const char *body, size_t bytes)
{
    if (c->state == DOOMED || c->replying) return;
    decide_to_keep(c);
    char framing[64] = "";
    if (status != 204) snprintf(framing, sizeof framing, "Content-Length: %zu\r\n", bytes);
    write_head(c, status, status == 204 ? NULL : type, framing);
    if (status != 204 && !is_head_request(c)) evbuffer_add(output_of(c), body, bytes);
    reply_complete(c);
}

void es_http_stream_begin(es_http_connection *c, int status, const char *type)
{
    if (c->state == DOOMED || c->replying) return;
    decide_to_keep(c);
    c->streamed = true;
    c->chunked = c->parser.request.minor == 1;
    if (!c->chunked) c->keep = false;
    write_head(c, status, type,
               c->chunked ? "Transfer-Encoding: chunked\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
                          : "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
}

static void tell_slow(es_http_connection *c, bool slow)
{
    const es_http_service *service = &c->group->service;
    if (c->slow == slow) return;
    c->slow = slow;
    if (service->on_slow) service->on_slow(service->self, c, slow);
}

void es_http_stream_write(es_http_connection *c, const char *data, size_t bytes)
{
    if (c->state != BUSY || !c->streamed || bytes == 0) return;
    struct evbuffer *out = output_of(c);
    if (evbuffer_get_length(out) + bytes > c->group->settings.output_limit) {
        doom(c);
        return;
    }
    if (c->chunked) evbuffer_add_printf(out, "%zx\r\n", bytes);
    evbuffer_add(out, data, bytes);
    if (c->chunked) evbuffer_add(out, "\r\n", 2);
    if (evbuffer_get_length(out) > c->group->settings.output_limit / 4) tell_slow(c, true);
}

void es_http_stream_end(es_http_connection *c)
{
    if (c->state != BUSY || !c->streamed) return;
    if (c->chunked) evbuffer_add(output_of(c), "0\r\n\r\n", 5);
    reply_complete(c);
    /* an HTTP/1.0 stream whose end nobody wrote to: its close is its end */
    if (c->state == CLOSING && evbuffer_get_length(output_of(c)) == 0) doom(c);
}

static void refuse(es_http_connection *c, int status, const char *reason)
{
    es_text body = {0};
    c->group->service.error_body(c->group->service.self, status, reason, &body);
    es_http_reply(c, status, "application/json", body.data ? body.data : "", body.bytes);
    es_text_free(&body);
}

/* ---- requests ---- */

static void start_body_timer(es_http_connection *c)
{
    const es_http_settings *s = &c->group->settings;
    const double expected = c->parser.request.chunked ? (double)s->body_limit : (double)c->parser.request.content_length;
    set_timer(c, s->body_seconds + expected / s->body_rate);
}

static void take_head(es_http_connection *c)
{
    const es_http_service *service = &c->group->service;
    if (!service->on_head(service->self, c)) return;
    if (c->parser.phase == ES_HTTP_COMPLETE) return;
    start_body_timer(c);
    if (c->parser.request.expects_continue) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        evbuffer_add(output_of(c), go_on, sizeof go_on - 1);
    }
}

static void take_request(es_http_connection *c)
{
    const es_http_service *service = &c->group->service;
    c->state = BUSY;
    c->owed = true;
    event_del(c->timer);
    service->on_request(service->self, c);
    /* a client that has already closed waits for no long answer */
    if (c->state == BUSY && c->ended) doom(c);
}

/* One step of the parser; false when there is nothing more to do now. */
static bool parse_some(es_http_connection *c)
{
    struct evbuffer *in = bufferevent_get_input(c->stream);
    struct evbuffer_iovec extent = {NULL, 0};
    if (evbuffer_peek(in, -1, NULL, &extent, 1) < 1) extent.iov_len = 0;
    if (extent.iov_len == 0 && c->parser.phase != ES_HTTP_COMPLETE) return false;
    size_t used;
    const es_http_result result = es_http_parse(&c->parser, extent.iov_base, extent.iov_len, &used);
    evbuffer_drain(in, used);
    if (!c->head_started && !es_http_parser_is_idle(&c->parser)) {
        c->head_started = true;
        set_timer(c, c->group->settings.head_seconds);
    }
    count_body(c, c->parser.body.bytes);
    if (result == ES_HTTP_BAD) refuse(c, c->parser.status, c->parser.reason);
    else if (c->group->body_bytes > c->group->settings.bodies_limit)
        refuse(c, 503, "too many large requests are being read at once; try again later");
    else if (result == ES_HTTP_HEAD) take_head(c);
    else if (result == ES_HTTP_DONE) take_request(c);
    return true;
}

/* A reply that comes at once ends in process() again: the outer call goes on with the next request. */
static void process(es_http_connection *c)
{
    if (c->processing) return;
    c->processing = true;
    while (c->state == READING && evbuffer_get_length(output_of(c)) < OUTPUT_WATERMARK && parse_some(c)) {}
    if (c->state == CLOSING) drain_input(c);
    c->processing = false;
}

/* ---- events ---- */

static void on_readable(struct bufferevent *stream, void *self)
{
    (void)stream;
    process(self);
}

/* Everything was sent: go on with what waits in the input, or finish closing. */
static void on_written(struct bufferevent *stream, void *self)
{
    es_http_connection *c = self;
    if (c->state == BUSY && evbuffer_get_length(output_of(c)) == 0) tell_slow(c, false);
    if (c->state == READING) {
        process(c);
        if (c->state == READING && c->ended && evbuffer_get_length(output_of(c)) == 0) doom(c);
    }
    if (c->state != CLOSING || c->flushed || evbuffer_get_length(output_of(c)) > 0) return;
    c->flushed = true;
    if (c->ended) {
        doom(c);
        return;
    }
    /* Closing with unread bytes would reset the connection and could destroy the reply on its way: say that no more will
     * come, and listen until the client closes too. */
    shutdown(bufferevent_getfd(stream), SHUT_WR);
    set_timer(c, linger_seconds(c));
}

static void on_event(struct bufferevent *stream, short what, void *self)
{
    (void)stream;
    es_http_connection *c = self;
    if ((what & BEV_EVENT_EOF) && c->state != BUSY && !c->flushed && evbuffer_get_length(output_of(c)) > 0) {
        /* "printf requests | nc": nothing more will come, but the replies are still wanted */
        c->ended = true;
        return;
    }
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)) doom(c);
}

static void on_timer(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    es_http_connection *c = self;
    if (c->state == READING && !es_http_parser_is_idle(&c->parser)) refuse(c, 408, "the request did not arrive in time");
    else destroy(c);
}

void es_http_accept(es_http_group *group, evutil_socket_t fd)
{
    es_http_connection *c = calloc(1, sizeof *c);
    if (!c) {
        evutil_closesocket(fd);
        return;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->stream = bufferevent_socket_new(group->base, fd, BEV_OPT_CLOSE_ON_FREE);
    c->timer = evtimer_new(group->base, on_timer, c);
    if (!c->stream || !c->timer) {
        if (c->stream) bufferevent_free(c->stream);
        else evutil_closesocket(fd);
        if (c->timer) event_free(c->timer);
        free(c);
        return;
    }
    c->group = group;
    c->parser.head_limit = group->settings.head_limit;
    c->parser.body_limit = group->settings.body_limit;
    c->next = group->first;
    if (c->next) c->next->previous = c;
    group->first = c;
    group->count++;
    bufferevent_setcb(c->stream, on_readable, on_written, on_event, c);
    bufferevent_setwatermark(c->stream, EV_READ, 0, INPUT_WATERMARK);
    const struct timeval patience = to_timeval(group->settings.write_seconds);
    bufferevent_set_timeouts(c->stream, NULL, &patience);
    bufferevent_enable(c->stream, EV_READ | EV_WRITE);
    set_timer(c, group->settings.idle_seconds);
}

void es_http_group_finish(es_http_group *group)
{
    group->closing = true;
    for (es_http_connection *c = group->first; c; c = c->next) {
        if (c->state == BUSY) {
            /* a stream's head may have promised to keep the connection: closing after its end is allowed all the same */
            c->keep = false;
        } else if (c->state == READING && !es_http_parser_is_idle(&c->parser)) {
            refuse(c, 503, "the server is shutting down");
        } else if (c->state == READING) {
            /* the last reply may not have left yet */
            if (evbuffer_get_length(output_of(c)) == 0) doom(c);
            else c->state = CLOSING, set_timer(c, group->settings.write_seconds);
        }
    }
}

void es_http_group_free(es_http_group *group)
{
    while (group->first) destroy(group->first);
}

const es_http_request *es_http_get_request(const es_http_connection *c)
{
    return &c->parser.request;
}

es_text *es_http_get_body(es_http_connection *c)
{
    return &c->parser.body;
}

void es_http_set_user(es_http_connection *c, void *user)
{
    c->user = user;
}

void *es_http_get_user(const es_http_connection *c)
{
    return c->user;
}
