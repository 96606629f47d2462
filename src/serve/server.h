/* server.h: the HTTP server.
 *
 *   es_server_options options = es_server_default_options();
 *   es_server *server;
 *   if (es_server_open(&backend, &options, &server) != ES_OK) ...
 *   printf("%s\n", es_server_url(server));
 *   es_server_run(server);              // until a signal or es_server_stop()
 *   es_engine_close(engine);            // no events after this
 *   es_server_close(server);
 *
 * One thread runs the loop: sockets, routing, replies. A few workers read requests. The engine's events arrive through an
 * inbox. Nothing on the loop waits for the engine or for a client. */
#ifndef ES_SERVE_SERVER_H
#define ES_SERVE_SERVER_H

#include "serve/backend.h"
#include "serve/http_connection.h"

typedef struct es_server es_server;

typedef struct es_server_options {
    const char *host;        /**< address or name to listen on */
    int port;                /**< 0 = any free one */
    const char *alias;       /**< the model's name; NULL = as the backend says */
    const char *const *keys; /**< [key_count] API keys; none = no key is asked for */
    size_t key_count;
    bool no_auth;            /**< listen beyond this machine without a key */
    bool strict;             /**< refuse unknown parameters and model names */
    const char *reasoning_parser; /**< es_reasoning_form_parse(); NULL = by the chat template */
    const char *tool_parser;      /**< es_tool_form_parse(); NULL = by the chat template */
    const char *pooling;     /**< es_pooling_parse(): how embeddings are made; NULL or "auto" = as the model's file says */
    const char *cors;        /**< origin of web pages that may use the API, "*" for any; NULL = none */
    double keep_alive;       /**< longest silence towards a client that waits, in seconds */
    double grace;            /**< seconds for accepted requests to end after a stop */
    int max_connections;
    int workers;             /**< threads that read requests */
    bool signals;            /**< SIGTERM, SIGINT and SIGHUP stop it: the first gracefully, the second at once */
    es_http_settings http;
} es_server_options;

es_server_options es_server_default_options(void);

/** ES_INVALID for options that are wrong or not safe together; es_server_open() asks this first, a command before it loads a
 *  model. */
es_status es_server_check_options(const es_server_options *options);
/** Listen. ES_INVALID for options that are not safe together, ES_IO when the address cannot be had. SIGPIPE is ignored in
 *  this process from now on: a client that leaves must not end the server. */
es_status es_server_open(const es_backend *backend, const es_server_options *options, es_server **server);
/** "http://127.0.0.1:8080" */
const char *es_server_url(const es_server *server);
/** Serve on this thread until stopped and drained. */
es_status es_server_run(es_server *server);
/** From any thread: stop accepting and finish what was accepted; a second call ends it at once. */
void es_server_stop(es_server *server);
/** After es_server_run() has returned, and after the backend's last event. */
void es_server_close(es_server *server);

#endif
