/* server.c: the loop: listening, mail from other threads, and the way to a quiet end.
 *
 * A request's way: listener → http_connection.c → router.c (headers) → endpoints.c (whole request) → a worker (call.c,
 * api_*.c) → on_letter() below → answer.c → backend; and back: engine thread → inbox.c → on_engine_event() → answer.c →
 * http_connection.c. */
#include "serve/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "serve/guard.h"
#include "serve/server_state.h"
#include "text/answer_format.h"

es_server_options es_server_default_options(void)
{
    return (es_server_options){
        .host = "127.0.0.1",
        .port = 8080,
        .keep_alive = 10,
        .grace = 30,
        .max_connections = 4096,
        .workers = 2,
        .http = es_http_default_settings(),
    };
}

/* ---- answers ---- */

static es_answer **bucket_of(es_server *server, uint64_t serial)
{
    return &server->answers[serial % ES_ANSWER_BUCKETS];
}

void es_server_add_answer(es_server *server, es_answer *answer)
{
    es_answer **bucket = bucket_of(server, answer->serial);
    answer->next = *bucket;
    *bucket = answer;
    server->answer_count++;
}

static es_answer *find_answer(es_server *server, uint64_t serial)
{
    es_answer *answer = *bucket_of(server, serial);
    while (answer && answer->serial != serial) answer = answer->next;
    return answer;
}

void es_server_drop_answer(es_server *server, es_answer *answer)
{
    es_answer **at = bucket_of(server, answer->serial);
    while (*at != answer) at = &(*at)->next;
    *at = answer->next;
    server->answer_count--;
    es_answer_free(answer);
    es_server_check_drained(server);
}

static void drop_if_finished(es_server *server, es_answer *answer)
{
    if (answer->finished) es_server_drop_answer(server, answer);
}

static void fail_all(es_server *server, es_status status, const char *why)
{
    es_api_error error;
    es_api_refuse_status(&error, es_fail(status, "%s", why));
    for (size_t i = 0; i < ES_ANSWER_BUCKETS; i++) {
        while (server->answers[i]) {
            es_answer *answer = server->answers[i];
            es_answer_fail(answer, &error);
            es_server_drop_answer(server, answer);
        }
    }
}

/* ---- mail ---- */

/* A worker has read a request; its client may have left meanwhile. */
static void on_letter(void *self, es_letter *letter)
{
    es_server *server = self;
    es_reading *reading = (es_reading *)(void *)((char *)letter - offsetof(es_reading, letter));
    es_answer *answer = find_answer(server, reading->serial);
    if (answer && reading->reply) es_answer_reply(answer, reading->reply);
    else if (answer && reading->parsed) es_answer_start(answer, &reading->call);
    else if (answer) es_answer_fail(answer, &reading->error);
    else if (reading->parsed) es_call_free(&reading->call);
    json_decref(reading->reply);
    free(reading);
    if (answer) drop_if_finished(server, answer);
}

static void on_engine_event(void *self, const es_event *event)
{
    es_server *server = self;
    es_answer *answer = find_answer(server, es_answer_serial_of_key(event->request));
    if (!answer) return; /* abandoned: the engine did not know yet */
    es_answer_event(answer, event);
    drop_if_finished(server, answer);
}

static void begin_stop(es_server *server);

static void on_mail(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    es_server *server = self;
    if (!es_inbox_take(server->inbox, on_letter, on_engine_event, server))
        fail_all(server, ES_NO_MEMORY, "the server ran out of memory");
    const int stops = atomic_load(&server->stops);
    if (stops > 0) begin_stop(server);
    if (stops > 1) event_base_loopbreak(server->base);
}

/* Long waits are long for clients and for what lies between: a sign of life keeps them. */
static void on_keep_alive(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    es_server *server = self;
    /* looked at four times as often as it is due */
    const uint64_t most = (uint64_t)(server->options.keep_alive * 0.75e9);
    for (size_t i = 0; i < ES_ANSWER_BUCKETS; i++)
        for (es_answer *answer = server->answers[i]; answer; answer = answer->next) es_answer_keep_alive(answer, most);
}

/* ---- the end ---- */

/* Connections still open then only wait for slow clients: they get as long as a closing connection ever gets. */
void es_server_check_drained(es_server *server)
{
    if (server->stopping && server->answer_count == 0 && server->http.count == 0) event_base_loopbreak(server->base);
}

static void on_grace_over(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    es_server *server = self;
    if (server->grace_over) {
        event_base_loopbreak(server->base);
        return;
    }
    server->grace_over = true;
    if (server->answer_count)
        es_log(ES_LOG_NOTICE, "%zu requests did not end in time and get an error", server->answer_count);
    const struct timeval flush = {5, 0};
    event_add(server->grace, &flush);
    fail_all(server, ES_CANCELLED, "the server is shutting down and could not finish this answer");
}

static void close_listeners(es_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++) evconnlistener_free(server->listeners[i]);
    server->listener_count = 0;
}

static void begin_stop(es_server *server)
{
    if (server->stopping) return;
    server->stopping = true;
    close_listeners(server);
    es_log(ES_LOG_NOTICE, "stopping: %zu requests may end (a second signal stops at once)", server->answer_count);
    const double grace = server->options.grace;
    const struct timeval t = {(long)grace, (long)((grace - (double)(long)grace) * 1e6)};
    event_add(server->grace, &t);
    es_http_group_finish(&server->http);
    es_server_check_drained(server);
}

void es_server_stop(es_server *server)
{
    atomic_fetch_add(&server->stops, 1);
    es_inbox_wake(server->inbox);
}

static void on_signal(evutil_socket_t signal_number, short what, void *self)
{
    (void)signal_number, (void)what;
    es_server_stop(self);
}

/* ---- listening ---- */

/* Without a connection object: there are too many already. What does not fit the socket's buffer is lost. */
static void send_overloaded(evutil_socket_t fd)
{
    static const char body[] = "{\"error\":{\"message\":\"too many connections; try again later\",\"type\":\"server_error\","
                               "\"param\":null,\"code\":\"overloaded\"}}\n";
    char reply[512];
    const int n = snprintf(reply, sizeof reply,
                           "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                           "Retry-After: 1\r\nConnection: close\r\n\r\n%s",
                           sizeof body - 1, body);
    if (send(fd, reply, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) es_log(ES_LOG_DEBUG, "a client left early");
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int bytes, void *self)
{
    (void)listener, (void)address, (void)bytes;
    es_server *server = self;
    if (server->http.count >= (size_t)server->options.max_connections) {
        send_overloaded(fd);
        evutil_closesocket(fd);
        return;
    }
    es_http_accept(&server->http, fd);
}

/* Out of file descriptors: accepting again at once would only spin. */
static void on_accept_error(struct evconnlistener *listener, void *self)
{
    (void)listener;
    es_server *server = self;
    es_log(ES_LOG_ERROR, "cannot accept a connection: %s", evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    for (size_t i = 0; i < server->listener_count; i++) evconnlistener_disable(server->listeners[i]);
    const struct timeval pause = {0, 100000};
    event_add(server->accept_again, &pause);
}

static void on_accept_again(evutil_socket_t fd, short what, void *self)
{
    (void)fd, (void)what;
    es_server *server = self;
    for (size_t i = 0; i < server->listener_count; i++) evconnlistener_enable(server->listeners[i]);
}

static int port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

static void set_port(struct addrinfo *info, int port)
{
    if (info->ai_family == AF_INET6) ((struct sockaddr_in6 *)(void *)info->ai_addr)->sin6_port = htons((uint16_t)port);
    else if (info->ai_family == AF_INET) ((struct sockaddr_in *)(void *)info->ai_addr)->sin_port = htons((uint16_t)port);
}

/* A name may have several addresses ("localhost" has two): all of them get the port that the first one got. */
static es_status listen_on_all(es_server *server, struct addrinfo *list, int *port)
{
    int code = 0;
    for (struct addrinfo *at = list; at && server->listener_count < ES_LISTENERS_MAX; at = at->ai_next) {
        set_port(at, *port);
        struct evconnlistener *listener = evconnlistener_new_bind(
            server->base, on_accept, server, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, 1024,
            at->ai_addr, (int)at->ai_addrlen);
        if (!listener) {
            code = errno;
            continue;
        }
        evconnlistener_set_error_cb(listener, on_accept_error);
        struct sockaddr_storage bound;
        socklen_t bytes = sizeof bound;
        if (getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&bound, &bytes) == 0) *port = port_of(&bound);
        server->listeners[server->listener_count++] = listener;
    }
    if (server->listener_count) return ES_OK;
    return es_fail(ES_IO, "cannot listen on %s port %d: %s", server->options.host, *port, strerror(code));
}

static es_status start_listening(es_server *server)
{
    const char *host = server->options.host;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    char service[16];
    int port = server->options.port;
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &list);
    if (code != 0) return es_fail(ES_INVALID, "%s: is no address to listen on: %s", host, gai_strerror(code));
    const es_status status = listen_on_all(server, list, &port);
    freeaddrinfo(list);
    if (status != ES_OK) return status;
    const bool v6 = strchr(host, ':') != NULL;
    snprintf(server->url, sizeof server->url, "http://%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", port);
    return ES_OK;
}

/* ---- open, run, close ---- */

es_status es_server_check_options(const es_server_options *options)
{
    if (strlen(options->host) > 255) return es_fail(ES_INVALID, "the address to listen on is too long");
    if (options->port < 0 || options->port > 65535) return es_fail(ES_INVALID, "a port is a number from 0 to 65535");
    if (!es_is_loopback(options->host) && options->key_count == 0 && !options->no_auth)
        return es_fail(ES_INVALID,
                       "%s can be reached from other machines: name an --api-key, or say --no-auth if everyone there may "
                       "use it", options->host);
    for (size_t i = 0; i < options->key_count; i++)
        if (!*options->keys[i]) return es_fail(ES_INVALID, "an API key must not be empty");
    es_answer_format format;
    if (options->reasoning_parser) ES_TRY(es_reasoning_form_parse(options->reasoning_parser, &format.reasoning));
    if (options->tool_parser) ES_TRY(es_tool_form_parse(options->tool_parser, &format.tools));
    es_pooling pooling;
    return options->pooling && strcmp(options->pooling, "auto") != 0 ? es_pooling_parse(options->pooling, &pooling) : ES_OK;
}

static es_status make_events(es_server *server)
{
    const double quarter = server->options.keep_alive / 4;
    const struct timeval look = {(long)quarter, (long)((quarter - (double)(long)quarter) * 1e6)};
    server->base = event_base_new();
    if (!server->base) return es_fail(ES_NO_MEMORY, "no event loop could be made");
    server->mail = event_new(server->base, es_inbox_fd(server->inbox), EV_READ | EV_PERSIST, on_mail, server);
    server->grace = evtimer_new(server->base, on_grace_over, server);
    server->accept_again = evtimer_new(server->base, on_accept_again, server);
    server->keep_alive = event_new(server->base, -1, EV_PERSIST, on_keep_alive, server);
    if (!server->mail || !server->grace || !server->accept_again || !server->keep_alive ||
        event_add(server->mail, NULL) != 0 || event_add(server->keep_alive, &look) != 0)
        return es_fail(ES_NO_MEMORY, "no event could be made");
    const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; server->options.signals && i < 3; i++) {
        struct sigaction before;
        /* nohup: whoever started it wants it to survive the terminal */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN && numbers[i] == SIGHUP) continue;
        server->signals[i] = evsignal_new(server->base, numbers[i], on_signal, server);
        if (!server->signals[i] || event_add(server->signals[i], NULL) != 0)
            return es_fail(ES_NO_MEMORY, "no signal handler could be set");
    }
    server->http = (es_http_group){
        .base = server->base, .settings = server->options.http, .service = es_server_service(server)};
    return ES_OK;
}

static es_status open_parts(es_server *server)
{
    ES_TRY(es_inbox_open(&server->inbox));
    ES_TRY(make_events(server));
    ES_TRY(es_workers_open(server->options.workers, ES_TASKS_WAITING_MAX, &server->workers));
    ES_TRY(start_listening(server));
    server->backend.listen(server->backend.self, es_inbox_put_event, server->inbox);
    return ES_OK;
}

/* The options were checked. */
static es_answer_format find_format(const es_backend *backend, const es_server_options *options)
{
    es_answer_format format = {.in_reasoning = false};
    if (backend->info(backend->self)->has_chat) format = es_answer_format_find(backend->render, backend->self);
    if (options->reasoning_parser) es_reasoning_form_parse(options->reasoning_parser, &format.reasoning);
    if (options->tool_parser) es_tool_form_parse(options->tool_parser, &format.tools);
    return format;
}

/* The options were checked. */
static es_pooling find_pooling(const es_backend_info *info, const es_server_options *options)
{
    es_pooling pooling = info->pooling;
    if (options->pooling && strcmp(options->pooling, "auto") != 0) es_pooling_parse(options->pooling, &pooling);
    return pooling;
}

es_status es_server_open(const es_backend *backend, const es_server_options *options, es_server **out)
{
    ES_TRY(es_server_check_options(options));
    es_server *server = calloc(1, sizeof *server);
    if (!server) return es_fail(ES_NO_MEMORY, "no memory for the server");
    signal(SIGPIPE, SIG_IGN);
    json_object_seed(0); /* before threads build objects */
    server->backend = *backend;
    server->options = *options;
    server->loopback = es_is_loopback(options->host);
    server->started = time(NULL);
    es_metrics_init(&server->metrics);
    server->next_serial = 1;
    if (getrandom(&server->unique, sizeof server->unique, 0) != (ssize_t)sizeof server->unique)
        server->unique = (uint64_t)server->started;
    const es_backend_info *info = backend->info(backend->self);
    server->api = (es_api_context){.backend = &server->backend,
                                   .alias = options->alias ? options->alias : info->model ? info->model : "model",
                                   .strict = options->strict,
                                   .content_parts = es_chat_template_reads_parts(backend),
                                   .format = find_format(backend, options),
                                   .pooling = find_pooling(info, options)};
    const es_status status = open_parts(server);
    if (status != ES_OK) {
        es_server_close(server);
        return status;
    }
    *out = server;
    return ES_OK;
}

const char *es_server_url(const es_server *server)
{
    return server->url;
}

es_status es_server_run(es_server *server)
{
    const int code = event_base_dispatch(server->base);
    close_listeners(server);
    /* while the backend still listens: whoever is connected now is abandoned, and its work cancelled */
    es_http_group_free(&server->http);
    if (code < 0) return es_fail(ES_IO, "the event loop failed");
    return ES_OK;
}

void es_server_close(es_server *server)
{
    if (!server) return;
    close_listeners(server);
    es_workers_close(server->workers);
    if (server->inbox) es_inbox_take(server->inbox, on_letter, on_engine_event, server);
    struct event *const events[] = {server->mail,       server->grace,      server->accept_again, server->keep_alive,
                                    server->signals[0], server->signals[1], server->signals[2]};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) event_free(events[i]);
    if (server->base) event_base_free(server->base);
    es_inbox_close(server->inbox);
    free(server);
}
