/* server_state.h: the server's insides, shared by server.c (loop), router.c (who goes where) and endpoints.c. */
#ifndef ES_SERVE_SERVER_STATE_H
#define ES_SERVE_SERVER_STATE_H

#include <stdatomic.h>
#include <time.h>

#include "serve/answer.h"
#include "serve/inbox.h"
#include "serve/metrics.h"
#include "serve/server.h"
#include "serve/workers.h"

struct evconnlistener;
enum { ES_ANSWER_BUCKETS = 1024, ES_TASKS_WAITING_MAX = 1024, ES_LISTENERS_MAX = 4 };

struct es_server {
    es_backend backend;
    es_server_options options;
    es_api_context api;
    bool loopback; /* bound to this machine only */
    struct event_base *base;
    struct evconnlistener *listeners[ES_LISTENERS_MAX];
    size_t listener_count;
    struct event *mail, *grace, *accept_again, *keep_alive, *signals[3];
    es_http_group http;
    es_metrics metrics;
    es_inbox *inbox;
    es_workers *workers;
    es_answer *answers[ES_ANSWER_BUCKETS]; /* by serial number */
    size_t answer_count;
    uint64_t next_serial, unique;
    _Atomic int stops; /* how often a stop was asked for */
    bool stopping, grace_over;
    time_t started;
    char url[320];
};

/** A request that a worker reads; its letter back is the same struct. */
typedef struct es_reading {
    es_task task;
    es_letter letter;
    es_server *server;
    es_call_kind kind;
    uint64_t serial;
    es_text body;
    /* the worker's result */
    bool parsed;
    es_call call;
    json_t *reply; /* of a query: instead of a call */
    es_api_error error;
} es_reading;

/* server.c */
void es_server_add_answer(es_server *server, es_answer *answer);
/** Unlink and free. */
void es_server_drop_answer(es_server *server, es_answer *answer);
/** While stopping: end the loop once nothing is left to do. */
void es_server_check_drained(es_server *server);

/* router.c: the service of the HTTP layer. */
es_http_service es_server_service(es_server *server);
/** Answers with a JSON value, which is released. */
void es_server_reply_json(es_http_connection *connection, int status, json_t *json);
/** A reply in OpenAI's error shape. */
void es_server_reply_error(es_server *server, es_http_connection *connection, const es_api_error *error);

/* endpoints.c */
void es_serve_index(es_server *server, es_http_connection *connection);
void es_serve_models(es_server *server, es_http_connection *connection);
void es_serve_model(es_server *server, es_http_connection *connection);
/** Everything that reads a body. */
void es_serve_call(es_server *server, es_http_connection *connection, es_call_kind kind);

/* status.c */
void es_serve_health(es_server *server, es_http_connection *connection);
void es_serve_metrics(es_server *server, es_http_connection *connection);
void es_serve_slots(es_server *server, es_http_connection *connection);
void es_serve_props(es_server *server, es_http_connection *connection);

#endif
