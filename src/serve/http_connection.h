/* http_connection.h: one client's connection: requests come in one after the other, each gets one reply.
 *
 *   static bool on_head(void *self, es_http_connection *c) { return true; }      // or es_http_reply() a refusal, false
 *   static void on_request(void *self, es_http_connection *c)
 *   {
 *       es_http_reply(c, 200, "text/plain", "hello\n", 6);                       // now, or later from the same thread
 *   }
 *
 * Everything here belongs to the loop thread. Between on_request and the end of the reply the service may keep the pointer;
 * when the client goes away first, on_gone says so and the pointer is dead. What arrives is bounded by the parser's limits
 * and by deadlines, what is sent by `output_limit`: a reader that stops reading loses its connection, and nobody else
 * notices. */
#ifndef ES_SERVE_HTTP_CONNECTION_H
#define ES_SERVE_HTTP_CONNECTION_H

#include <event2/event.h>

#include "serve/http_parser.h"

typedef struct es_http_connection es_http_connection;

/** Limits, and the counters that all connections share. Times are seconds. */
typedef struct es_http_settings {
    size_t head_limit;     /**< request line and headers */
    size_t body_limit;     /**< one request's body */
    size_t bodies_limit;   /**< bodies of all requests together */
    size_t output_limit;   /**< answer bytes that wait for a slow reader; on_slow() is called at a quarter of them */
    double idle_seconds;   /**< between two requests */
    double head_seconds;   /**< from a request's first byte to the end of its headers */
    double body_seconds;   /**< for the body, on top of its bytes at `body_rate` */
    double body_rate;      /**< bytes per second that a client must send at least */
    double write_seconds;  /**< without a byte taken by the reader */
    double linger_seconds; /**< how long a closing connection is listened to */
} es_http_settings;

typedef struct es_http_service {
    void *self;
    /** Line and headers are known, the body is not. False after a reply was sent: the body is not wanted. */
    bool (*on_head)(void *self, es_http_connection *connection);
    /** The request is whole. */
    void (*on_request)(void *self, es_http_connection *connection);
    /** The client left before its reply was complete. */
    void (*on_gone)(void *self, es_http_connection *connection);
    /** More of a reply waits than a reader that keeps up would leave (`slow`), or all of it has been taken again. */
    void (*on_slow)(void *self, es_http_connection *connection, bool slow);
    /** The connection is no more; always the last call. */
    void (*on_closed)(void *self, es_http_connection *connection);
    /** The text of a refusal that the HTTP layer itself decides on: appends a JSON body to `out`. */
    void (*error_body)(void *self, int status, const char *reason, es_text *out);
} es_http_service;

enum { ES_HTTP_STATUSES = 600 };

/** All connections of one server. */
typedef struct es_http_group {
    struct event_base *base;
    es_http_settings settings;
    es_http_service service;
    es_http_connection *first; /**< list of the open ones */
    size_t count;
    size_t body_bytes;         /**< held by all bodies now */
    bool closing;              /**< no connection is kept for another request */
    uint64_t replies[ES_HTTP_STATUSES]; /**< how many began, by status */
} es_http_group;

es_http_settings es_http_default_settings(void);

/** Take over an accepted socket. Without memory the socket is closed. */
void es_http_accept(es_http_group *group, evutil_socket_t fd);
/** No more requests: idle connections close now, the others after their reply. */
void es_http_group_finish(es_http_group *group);
/** Close everything at once; on_gone is called for unanswered requests. */
void es_http_group_free(es_http_group *group);

const es_http_request *es_http_get_request(const es_http_connection *connection);
/** The body; the service may take it by zeroing the es_text and freeing its data itself. */
es_text *es_http_get_body(es_http_connection *connection);
void es_http_set_user(es_http_connection *connection, void *user);
void *es_http_get_user(const es_http_connection *connection);

/** Add a header to the coming reply; characters that do not belong into one are left out. */
void es_http_add_header(es_http_connection *connection, const char *name, const char *value);
/** Send a whole reply. */
void es_http_reply(es_http_connection *connection, int status, const char *type, const char *body, size_t bytes);
/** Send a reply piece by piece. Nothing waits for the end: each piece goes out as the loop turns. */
void es_http_stream_begin(es_http_connection *connection, int status, const char *type);
void es_http_stream_write(es_http_connection *connection, const char *data, size_t bytes);
void es_http_stream_end(es_http_connection *connection);

#endif
