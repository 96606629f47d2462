/* router.c: from a request's line and headers to the function that answers it.
 *
 * Everything that can be decided from the headers is decided before the body is read: who asks (host, origin, key), for
 * what (path, method), and whether it may be this large. */
#include <string.h>
#include <strings.h>

#include "serve/guard.h"
#include "serve/server_state.h"
#include "serve/strict_json.h"

typedef struct route {
    const char *method, *path;
    bool prefix; /* the path goes on */
    bool open;   /* no key is asked for */
    void (*serve)(es_server *server, es_http_connection *connection); /* NULL: a call */
    es_call_kind call;
} route;

static const route routes[] = {
    {"GET", "/", .open = true, .serve = es_serve_index},
    {"GET", "/health", .open = true, .serve = es_serve_health},
    {"GET", "/metrics", .serve = es_serve_metrics},
    {"GET", "/slots", .serve = es_serve_slots},
    {"GET", "/props", .serve = es_serve_props},
    {"GET", "/v1/models", .serve = es_serve_models},
    {"GET", "/v1/models/", .prefix = true, .serve = es_serve_model},
    {"POST", "/v1/chat/completions", .call = ES_CALL_CHAT},
    {"POST", "/v1/completions", .call = ES_CALL_COMPLETION},
    {"POST", "/v1/responses", .call = ES_CALL_RESPONSE},
    {"POST", "/v1/messages", .call = ES_CALL_MESSAGE},
    {"POST", "/v1/messages/count_tokens", .call = ES_CALL_COUNT_TOKENS},
    {"POST", "/v1/embeddings", .call = ES_CALL_EMBEDDING},
    {"POST", "/tokenize", .call = ES_CALL_TOKENIZE},
    {"POST", "/detokenize", .call = ES_CALL_DETOKENIZE},
    {"POST", "/apply-template", .call = ES_CALL_TEMPLATE},
};
enum { ROUTES = sizeof routes / sizeof *routes };

static bool path_matches(const route *row, const char *path)
{
    const size_t n = strlen(row->path);
    return row->prefix ? strncmp(path, row->path, n) == 0 && path[n] : strcmp(path, row->path) == 0;
}

/* HEAD is GET without the body. */
static bool method_matches(const route *row, const char *method)
{
    return strcmp(method, row->method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(row->method, "GET") == 0);
}

static const route *find_route(const es_http_request *request, const route **other_method)
{
    *other_method = NULL;
    for (size_t i = 0; i < ROUTES; i++) {
        if (!path_matches(&routes[i], request->path)) continue;
        if (method_matches(&routes[i], request->method)) return &routes[i];
        *other_method = &routes[i];
    }
    return NULL;
}

void es_server_reply_json(es_http_connection *connection, int status, json_t *json)
{
    es_text body = {0};
    es_json_write(&body, json);
    es_text_putc(&body, '\n');
    json_decref(json);
    es_http_reply(connection, status, "application/json", body.data ? body.data : "", body.bytes);
    es_text_free(&body);
}

void es_server_reply_error(es_server *server, es_http_connection *connection, const es_api_error *error)
{
    es_metrics_reject(&server->metrics, error->status, error->code);
    const bool anthropic = strncmp(es_http_get_request(connection)->path, "/v1/messages", 12) == 0;
    json_t *json = anthropic ? es_messages_error_json(error) : es_api_error_json(error);
    if (error->retry_after) {
        es_text seconds = {0};
        es_text_printf(&seconds, "%d", error->retry_after);
        if (seconds.data) es_http_add_header(connection, "Retry-After", seconds.data);
        es_text_free(&seconds);
    }
    es_server_reply_json(connection, error->status, json);
}

static bool refuse(es_server *server, es_http_connection *connection, int status, const char *type, const char *code,
                   const char *message)
{
    es_api_error error;
    es_api_refuse(&error, "", "%s", message);
    error.status = status;
    error.type = type;
    error.code = code;
    if (status == 503) error.retry_after = 1;
    es_server_reply_error(server, connection, &error);
    return false;
}

/* An Origin header means a web page. Pages of other sites are refused even where they could not read the answer: they must
 * not make this machine work. */
static bool check_origin(es_server *server, es_http_connection *connection, const es_http_request *request)
{
    const char *cors = server->options.cors;
    const char *origin = es_http_find_header(request, "origin");
    if (!origin) return true;
    if (cors && (strcmp(cors, "*") == 0 || strcasecmp(cors, origin) == 0)) {
        es_http_add_header(connection, "Access-Control-Allow-Origin", strcmp(cors, "*") == 0 ? "*" : origin);
        es_http_add_header(connection, "Access-Control-Expose-Headers", "X-Evenshare-Ignored, Retry-After");
        es_http_add_header(connection, "Vary", "Origin");
        return true;
    }
    if (es_origin_is_own(origin, request->host)) return true;
    return refuse(server, connection, 403, "permission_error", "origin_not_allowed",
                  "pages of this origin may not use this server (see --cors)");
}

/* A browser's question before the real request; the origin has been checked. */
static bool answer_preflight(es_server *server, es_http_connection *connection, const es_http_request *request)
{
    if (!server->options.cors || strcmp(request->method, "OPTIONS") != 0) return false;
    if (!es_http_find_header(request, "access-control-request-method")) return false;
    es_http_add_header(connection, "Access-Control-Allow-Methods", "GET, POST");
    es_http_add_header(connection, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, Anthropic-Version, "
                                                                   "Anthropic-Beta, Anthropic-Dangerous-Direct-Browser-Access, "
                                                                   "X-Stainless-Helper-Method, X-Stainless-OS, "
                                                                   "X-Stainless-Lang, X-Stainless-Arch, X-Stainless-Runtime, "
                                                                   "X-Stainless-Runtime-Version, X-Stainless-Package-Version, "
                                                                   "X-Stainless-Retry-Count, X-Stainless-Timeout");
    es_http_add_header(connection, "Access-Control-Max-Age", "600");
    es_http_reply(connection, 204, NULL, "", 0);
    return true;
}

static bool check_key(es_server *server, es_http_connection *connection, const es_http_request *request)
{
    if (server->options.key_count == 0 || es_has_key(request, server->options.keys, server->options.key_count)) return true;
    es_http_add_header(connection, "WWW-Authenticate", "Bearer");
    return refuse(server, connection, 401, "authentication_error", "invalid_api_key",
                  "a valid API key is needed: send it as \"Authorization: Bearer KEY\"");
}

static bool on_head(void *self, es_http_connection *connection)
{
    es_server *server = self;
    const es_http_request *request = es_http_get_request(connection);
    if (server->loopback && !es_host_is_ours(request->host, server->options.host))
        return refuse(server, connection, 403, "permission_error", "host_not_allowed",
                      "this server answers to localhost only; the Host header names another machine");
    if (!check_origin(server, connection, request) || answer_preflight(server, connection, request)) return false;
    const route *other = NULL;
    const route *found = find_route(request, &other);
    if (!(found && found->open) && !check_key(server, connection, request)) return false;
    if (!found && other) {
        es_http_add_header(connection, "Allow", strcmp(other->method, "GET") == 0 ? "GET, HEAD" : other->method);
        return refuse(server, connection, 405, "invalid_request_error", "method_not_allowed", "this path has another method");
    }
    if (!found)
        return refuse(server, connection, 404, "not_found_error", "not_found",
                      "there is nothing here; the API is at /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages and "
                      "/v1/models");
    if (server->stopping) return refuse(server, connection, 503, "server_error", "stopping", "the server is shutting down");
    return true;
}

static void on_request(void *self, es_http_connection *connection)
{
    const route *other;
    const route *found = find_route(es_http_get_request(connection), &other);
    es_http_set_user(connection, NULL);
    if (found->serve) found->serve(self, connection);
    else es_serve_call(self, connection, found->call);
}

static void on_gone(void *self, es_http_connection *connection)
{
    es_answer *answer = es_http_get_user(connection);
    if (!answer) return;
    es_answer_abandon(answer);
    es_server_drop_answer(self, answer);
}

static void on_slow(void *self, es_http_connection *connection, bool slow)
{
    (void)self;
    es_answer *answer = es_http_get_user(connection);
    if (answer) es_answer_pause(answer, slow);
}

static void on_closed(void *self, es_http_connection *connection)
{
    (void)connection;
    es_server_check_drained(self);
}

static void error_body(void *self, int status, const char *reason, es_text *out)
{
    es_server *server = self;
    es_api_error error;
    es_api_refuse(&error, "", "%s", reason);
    error.status = status;
    if (status >= 500) error.type = "server_error";
    if (status == 413) error.code = "body_too_large";
    es_metrics_reject(&server->metrics, status, error.code);
    es_api_error_write(&error, out);
}

es_http_service es_server_service(es_server *server)
{
    return (es_http_service){server, on_head, on_request, on_gone, on_slow, on_closed, error_body};
}
