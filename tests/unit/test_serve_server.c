/* The server over real sockets, in front of an engine that is only arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/log.h"
#include "fake_backend.h"
#include "serve/server.h"

typedef struct fixture {
    fake_backend fake;
    es_backend backend;
    es_server_options options;
    es_server *server;
    pthread_t thread;
    int port;
    bool joined;
} fixture;

static fixture now; /* the running one */

static void *serve(void *self)
{
    (void)self;
    if (es_server_run(now.server) != ES_OK) print_error("%s\n", es_error_message());
    return NULL;
}

static void start(void)
{
    now.options.port = 0;
    if (es_server_open(&now.backend, &now.options, &now.server) != ES_OK) fail_msg("%s", es_error_message());
    now.port = atoi(strrchr(es_server_url(now.server), ':') + 1);
    fake_start(&now.fake);
    assert_int_equal(pthread_create(&now.thread, NULL, serve, NULL), 0);
}

static int prepare(void **state)
{
    (void)state;
    es_log_set_level(ES_LOG_ERROR);
    memset(&now, 0, sizeof now);
    now.backend = fake_open(&now.fake);
    now.options = es_server_default_options();
    return 0;
}

static void join(void)
{
    if (!now.joined) pthread_join(now.thread, NULL);
    now.joined = true;
}

static int finish(void **state)
{
    (void)state;
    if (!now.server) return 0;
    es_server_stop(now.server);
    es_server_stop(now.server);
    join();
    fake_close(&now.fake);
    es_server_close(now.server);
    return 0;
}

/* ---- a client ---- */

enum { PATIENCE = 120 }; /* seconds: a sanitizer on a busy machine takes many; only what hangs takes these */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int connect_with(int receive_buffer)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)now.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void send_text(int fd, const char *text)
{
    for (size_t left = strlen(text); left;) {
        const ssize_t n = send(fd, text, left, MSG_NOSIGNAL);
        if (n <= 0) return;
        text += n;
        left -= (size_t)n;
    }
}

/* Reads until the server closes, `until` has arrived, or nobody would wait any longer. */
static char *receive(int fd, const char *until)
{
    es_text text = {0};
    const double end = seconds() + PATIENCE;
    char block[4096];
    es_text_puts(&text, "");
    while (seconds() < end && !(until && strstr(text.data, until))) {
        struct pollfd ready = {fd, POLLIN, 0};
        if (poll(&ready, 1, 100) == 0) continue;
        const ssize_t n = recv(fd, block, sizeof block, 0);
        if (n <= 0) break;
        es_text_append(&text, block, (size_t)n);
    }
    return text.data;
}

static void send_post(int fd, const char *path, const char *headers, const char *body)
{
    es_text text = {0};
    es_text_printf(&text, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%s", path, headers,
                   strlen(body), body);
    send_text(fd, text.data);
    es_text_free(&text);
}

/* One request on its own connection; the whole reply. */
static char *post(const char *path, const char *body)
{
    const int fd = connect_with(0);
    send_post(fd, path, "Connection: close\r\n", body);
    char *reply = receive(fd, NULL);
    close(fd);
    return reply;
}

static char *ask(const char *text)
{
    const int fd = connect_with(0);
    send_text(fd, text);
    char *reply = receive(fd, NULL);
    close(fd);
    return reply;
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

static void expect(const char *reply, const char *part)
{
    if (!strstr(reply, part)) print_error("missing: %s\nin: %.2000s\n", part, reply);
    assert_non_null(strstr(reply, part));
}

static void expect_reply(char *reply, const char *part)
{
    expect(reply, part);
    free(reply);
}

static es_engine_stats stats(void)
{
    return fake_stats(&now.fake);
}

static bool wait_for(bool (*condition)(void), double limit)
{
    for (const double end = seconds() + limit; seconds() < end; usleep(2000))
        if (condition()) return true;
    return false;
}

#define CHAT "/v1/chat/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]"

/* ---- tests ---- */

static void small_requests_are_answered(void **state)
{
    (void)state;
    start();
    expect_reply(ask("GET /health HTTP/1.0\r\n\r\n"), "{\"status\":\"ok\",\"running\":0");
    expect_reply(ask("GET /v1/models HTTP/1.0\r\n\r\n"), "\"data\":[{\"id\":\"fake\",\"object\":\"model\"");
    expect_reply(ask("GET /v1/models/fake HTTP/1.0\r\n\r\n"), "{\"id\":\"fake\"");
    expect_reply(ask("GET /v1/models/other HTTP/1.0\r\n\r\n"), "\"code\":\"model_not_found\"");
    expect_reply(ask("GET /props HTTP/1.0\r\n\r\n"), "\"system_fingerprint\":\"fp_fake\",\"kv_type\":\"q8_0\"");
    expect_reply(ask("GET / HTTP/1.0\r\n\r\n"), "/v1");
    expect_reply(ask("GET /nothing HTTP/1.0\r\n\r\n"), "HTTP/1.1 404 Not Found");
    char *reply = ask("GET /v1/completions HTTP/1.0\r\n\r\n");
    expect(reply, "HTTP/1.1 405 ");
    expect(reply, "Allow: POST\r\n");
    free(reply);
    reply = ask("HEAD /health HTTP/1.0\r\n\r\n");
    expect(reply, "HTTP/1.1 200 OK");
    assert_null(strstr(reply, "{"));
    free(reply);
}

static void a_chat_is_answered_whole(void **state)
{
    (void)state;
    start();
    char *reply = post(CHAT, "{" HELLO ",\"unknown_thing\":1}");
    expect(reply, "HTTP/1.1 200 OK");
    expect(reply, "X-Evenshare-Ignored: unknown_thing\r\n");
    expect(reply, "\"message\":{\"role\":\"assistant\",\"content\":\"abcdefghijklmnopqrstuvwxyz\",\"refusal\":null}");
    expect(reply, "\"finish_reason\":\"stop\"");
    expect(reply, "\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":26,\"total_tokens\":38,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":6}}");
    expect(reply, "\"system_fingerprint\":\"fp_fake\"");
    free(reply);
}

static void a_stream_has_one_event_per_token(void **state)
{
    (void)state;
    start();
    char *reply = post(CHAT, "{" HELLO ",\"stream\":true,\"max_tokens\":5,\"stream_options\":{\"include_usage\":true}}");
    expect(reply, "Content-Type: text/event-stream");
    expect(reply, "\r\n: waiting\n\n");
    expect(reply, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],"
                  "\"usage\":null}");
    expect(reply, "\"delta\":{\"content\":\"e\"}");
    expect(reply, "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"");
    expect(reply, "\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,");
    expect(reply, "data: [DONE]\n\n\r\n0\r\n\r\n");
    assert_int_equal(count(reply, "data: {"), 1 + 5 + 1 + 1);
    free(reply);
}

static void completions_answer_every_prompt_n_times(void **state)
{
    (void)state;
    start();
    char *reply = post("/v1/completions", "{\"prompt\":[[1,2],[3]],\"n\":2,\"max_tokens\":3,\"logprobs\":2,"
                                          "\"return_token_ids\":true}");
    assert_int_equal(count(reply, "\"text\":\"abc\""), 4);
    assert_int_equal(count(reply, "\"token_ids\":[97,98,99]"), 4);
    expect(reply, "\"index\":3");
    expect(reply, "{\"tokens\":[\"a\",\"b\",\"c\"],\"token_logprobs\":[-0.25,-0.25,-0.25],\"top_logprobs\":[{\"a\":-0.25,"
                  "\"z\":-1.5},");
    expect(reply, "\"text_offset\":[0,1,2]");
    expect(reply, "\"prompt_tokens\":3,\"completion_tokens\":12");
    free(reply);
    reply = post(CHAT, "{" HELLO ",\"logprobs\":true,\"top_logprobs\":1,\"max_tokens\":1}");
    expect(reply, "\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-0.25,\"bytes\":[97],\"top_logprobs\":[{\"token\":"
                  "\"a\",\"logprob\":-0.25,\"bytes\":[97]}]}],\"refusal\":null}");
    free(reply);
}

/* With echo an answer begins with its prompt: a text as it came, numbers by what they say. */
static void completions_repeat_their_prompt_when_asked_to(void **state)
{
    (void)state;
    start();
    char *reply = post("/v1/completions", "{\"prompt\":[\"A \\u00e9\",\"B\"],\"n\":2,\"max_tokens\":2,\"echo\":true}");
    assert_int_equal(count(reply, "\"text\":\"A \xC3\xA9" "ab\""), 2);
    assert_int_equal(count(reply, "\"text\":\"Bab\""), 2);
    free(reply);
    reply = post("/v1/completions", "{\"prompt\":[120,121],\"max_tokens\":0,\"echo\":true}");
    expect(reply, "\"text\":\"xy\"");
    free(reply);
    reply = post("/v1/completions", "{\"prompt\":\"Q\",\"max_tokens\":1,\"echo\":true,\"stream\":true}");
    expect(reply, "\"text\":\"Qa\"");
    free(reply);
}

static void many_streams_at_once_are_all_whole(void **state)
{
    (void)state;
    enum { MANY = 64 };
    start();
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_with(0);
        send_post(fds[i], CHAT, "Connection: close\r\n", "{" HELLO ",\"stream\":true}");
    }
    for (int i = 0; i < MANY; i++) {
        char *reply = receive(fds[i], NULL);
        assert_int_equal(count(reply, "data: {"), 28);
        expect_reply(reply, "data: [DONE]");
        close(fds[i]);
    }
    assert_int_equal(stats().finished, MANY);
}

static bool has_cancelled_two(void)
{
    return stats().cancelled == 2 && stats().running == 0;
}

static bool is_running_two(void)
{
    return stats().running == 2;
}

/* With and without a stream, and without a byte having been written. */
static void a_client_that_leaves_stops_its_work(void **state)
{
    (void)state;
    start();
    const int a = connect_with(0), b = connect_with(0);
    send_post(a, CHAT, "", "{" HELLO ",\"ignore_eos\":true,\"max_tokens\":4000}");
    send_post(b, CHAT, "", "{" HELLO ",\"ignore_eos\":true,\"stream\":true,\"max_tokens\":4000}");
    assert_true(wait_for(is_running_two, 5));
    close(a);
    close(b);
    assert_true(wait_for(has_cancelled_two, 2));
    expect_reply(ask("GET /health HTTP/1.0\r\n\r\n"), "\"requests\":0,");
}

static bool has_cancelled_one(void)
{
    return stats().cancelled == 1;
}

static bool has_paused_one(void)
{
    pthread_mutex_lock(&now.fake.lock);
    const bool paused = now.fake.pauses == 1;
    pthread_mutex_unlock(&now.fake.lock);
    return paused;
}

static void a_reader_that_stalls_is_paused_then_dropped_alone(void **state)
{
    (void)state;
    now.options.http.output_limit = 4 << 20; /* a quarter is more than all that the reader will ever get */
    now.options.http.write_seconds = 1;
    now.fake.step_microseconds = 20;
    now.fake.info.context = 1 << 30;
    start();
    const int stalled = connect_with(4096);
    send_post(stalled, CHAT, "", "{" HELLO ",\"ignore_eos\":true,\"stream\":true,\"max_tokens\":1000000}");
    const int reader = connect_with(0);
    send_post(reader, CHAT, "Connection: close\r\n", "{" HELLO ",\"ignore_eos\":true,\"stream\":true,\"max_tokens\":2000}");
    char *reply = receive(reader, NULL);
    assert_int_equal(count(reply, "data: {"), 2002);
    free(reply);
    assert_true(wait_for(has_paused_one, PATIENCE));
    assert_true(wait_for(has_cancelled_one, PATIENCE));
    close(stalled);
    close(reader);
}

/* One that reads on after a pause gets the rest, whole. */
static void a_reader_that_comes_back_misses_nothing(void **state)
{
    (void)state;
    now.options.http.output_limit = 1 << 20;
    now.fake.step_microseconds = 20;
    now.fake.info.context = 1 << 30;
    start();
    const int fd = connect_with(4096);
    send_post(fd, "/v1/completions", "Connection: close\r\n",
              "{\"prompt\":\"x\",\"ignore_eos\":true,\"stream\":true,\"max_tokens\":30000}");
    assert_true(wait_for(has_paused_one, PATIENCE));
    const uint64_t made = stats().completion_tokens;
    usleep(50000);
    assert_true(stats().completion_tokens <= made + 1);
    char *reply = receive(fd, NULL);
    assert_int_equal(count(reply, "\"text\":\"a\""), 1154); /* 26 into 30,000, and one more */
    assert_int_equal(count(reply, "\"text\":\"z\""), 1153);
    expect(reply, "data: [DONE]");
    free(reply);
    close(fd);
}

static void strangers_are_refused_before_their_body(void **state)
{
    (void)state;
    static const char *const keys[] = {"sesame"};
    now.options.keys = keys;
    now.options.key_count = 1;
    start();
    /* none of these sends its body */
    expect_reply(ask("POST " CHAT " HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 99\r\n\r\n"), "\"host_not_allowed\"");
    expect_reply(ask("POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n"), "\"invalid_api_key\"");
    expect_reply(ask("POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: sesame\r\nOrigin: http://evil.example\r\n"
                     "Content-Length: 99\r\n\r\n"),
                 "\"origin_not_allowed\"");
    expect_reply(ask("POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: sesame\r\nContent-Length: 999999999\r\n\r\n"),
                 "HTTP/1.1 413 Content Too Large");
    expect_reply(ask("POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: sesame\r\nContent-Length: 999999999\r\n\r\n"),
                 "\"code\":\"body_too_large\"");
    const int fd = connect_with(0);
    send_text(fd, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\nExpect: 100-continue\r\n"
                  "Content-Length: 2\r\nConnection: close\r\n\r\n");
    free(receive(fd, "100 Continue\r\n\r\n"));
    send_text(fd, "{}");
    expect_reply(receive(fd, NULL), "\"param\":\"messages\"");
    close(fd);
    expect_reply(ask("GET /health HTTP/1.0\r\n\r\n"), "\"ok\"");
}

static void pages_of_a_named_origin_may_ask(void **state)
{
    (void)state;
    now.options.cors = "https://page.example";
    start();
    char *reply = ask("OPTIONS " CHAT " HTTP/1.1\r\nHost: localhost\r\nOrigin: https://page.example\r\nConnection: close\r\n"
                      "Access-Control-Request-Method: POST\r\n\r\n");
    expect(reply, "HTTP/1.1 204 No Content");
    expect(reply, "Access-Control-Allow-Origin: https://page.example\r\n");
    free(reply);
    expect_reply(ask("GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: https://other.example\r\nConnection: close\r\n\r\n"),
                 "\"origin_not_allowed\"");
}

/* Some clients ask again before they have read, some close their sending half after the last request. */
static void requests_on_one_connection_are_answered_in_order(void **state)
{
    (void)state;
    start();
    const int fd = connect_with(0);
    send_text(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    send_post(fd, "/v1/completions", "", "{\"prompt\":\"x\",\"max_tokens\":2}");
    send_text(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    char *reply = receive(fd, NULL);
    const char *first = strstr(reply, "\"status\""), *second = strstr(reply, "\"ab\""), *third = strstr(reply, "\"list\"");
    assert_true(first && second && third && first < second && second < third);
    free(reply);
    close(fd);
    const int half = connect_with(0);
    send_text(half, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    shutdown(half, SHUT_WR);
    expect_reply(receive(half, NULL), "\"status\"");
    close(half);
}

/* How many /health requests were answered, once that number stands still. */
static int answered(void)
{
    int last = -1, asked = 0;
    for (const double end = seconds() + PATIENCE; seconds() < end && asked != last; usleep(400000)) {
        last = asked;
        pthread_mutex_lock(&now.fake.lock);
        asked = now.fake.stats_asked;
        pthread_mutex_unlock(&now.fake.lock);
    }
    return asked;
}

/* A client that asks and asks and reads nothing: the server stops listening to it instead of piling replies up, and goes on
 * where it stopped once they are read. */
static void a_client_that_only_asks_is_not_listened_to(void **state)
{
    (void)state;
    enum { ASK = 100000 };
    static const char request[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    start();
    es_text all = {0};
    for (int i = 0; i < ASK; i++) es_text_append(&all, request, sizeof request - 1);
    const int fd = connect_with(4096);
    size_t sent = 0;
    for (const double end = seconds() + 1; seconds() < end && sent < all.bytes; usleep(1000)) {
        const ssize_t n = send(fd, all.data + sent, all.bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) sent += (size_t)n;
    }
    /* what fits the kernel's buffers and a little more; all of them would be 40 MB */
    assert_in_range(answered(), 1, ASK / 2);
    size_t replies = 0;
    char block[65536 + 1];
    size_t kept = 0;
    for (const double end = seconds() + PATIENCE; seconds() < end && replies < ASK;) {
        const ssize_t more = send(fd, all.data + sent, all.bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (more > 0) sent += (size_t)more;
        if (sent == all.bytes) shutdown(fd, SHUT_WR);
        struct pollfd ready = {fd, POLLIN, 0};
        if (poll(&ready, 1, 10) <= 0) continue;
        const ssize_t n = recv(fd, block + kept, sizeof block - 1 - kept, 0);
        if (n <= 0) break;
        block[kept + (size_t)n] = '\0';
        replies += count(block, "}\n");
        /* a line that is not whole yet is completed by the next block */
        const char *last = strrchr(block, '\n');
        kept = last ? strlen(last + 1) : 0;
        if (last) memmove(block, last + 1, kept);
    }
    assert_int_equal(replies, ASK);
    es_text_free(&all);
    close(fd);
}

static void a_full_engine_says_when_to_come_back(void **state)
{
    (void)state;
    now.fake.capacity = 1;
    start();
    const int fd = connect_with(0);
    send_post(fd, CHAT, "", "{" HELLO ",\"ignore_eos\":true,\"stream\":true,\"max_tokens\":4000}");
    free(receive(fd, "content\":\"a"));
    char *reply = post(CHAT, "{" HELLO "}");
    expect(reply, "HTTP/1.1 429 Too Many Requests");
    expect(reply, "Retry-After: 1\r\n");
    expect(reply, "\"code\":\"queue_full\"");
    free(reply);
    close(fd);
    /* two choices of which only one fits: none is left behind */
    assert_true(wait_for(has_cancelled_one, 5));
    expect_reply(post(CHAT, "{" HELLO ",\"n\":2}"), "HTTP/1.1 429");
    assert_true(wait_for(has_cancelled_two, 5));
}

static void an_engine_that_breaks_is_told_to_the_client(void **state)
{
    (void)state;
    now.fake.fail_after = 3;
    start();
    expect_reply(post(CHAT, "{" HELLO "}"), "HTTP/1.1 500 Internal Server Error");
    char *reply = post(CHAT, "{" HELLO ",\"stream\":true}");
    expect(reply, "HTTP/1.1 200 OK");
    expect(reply, "data: {\"error\":{\"message\":\"the fake engine broke\",\"type\":\"server_error\"");
    assert_null(strstr(reply, "[DONE]"));
    expect(reply, "\r\n0\r\n\r\n");
    free(reply);
}

static void slow_and_silent_clients_are_cut(void **state)
{
    (void)state;
    now.options.http.idle_seconds = 0.3;
    now.options.http.head_seconds = 0.2;
    now.options.http.body_seconds = 0.2;
    now.options.http.body_rate = 1e9;
    start();
    const double begin = seconds();
    expect_reply(ask("GET / HTTP/1.1\r\nHost: loc"), "HTTP/1.1 408");
    expect_reply(ask("POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"), "HTTP/1.1 408");
    char *reply = ask("");
    assert_string_equal(reply, "");
    free(reply);
    assert_true(seconds() - begin < 8);
}

static void stopping_lets_accepted_requests_finish(void **state)
{
    (void)state;
    now.fake.step_microseconds = 5000;
    start();
    const int fd = connect_with(0), idle = connect_with(0);
    send_post(fd, CHAT, "", "{" HELLO ",\"stream\":true}");
    free(receive(fd, "content\":\"a"));
    es_server_stop(now.server);
    char *reply = receive(fd, NULL);
    expect(reply, "\"content\":\"z\"");
    expect(reply, "data: [DONE]");
    free(reply);
    close(fd);
    join();
    assert_int_equal(recv(idle, &(char){0}, 1, 0), 0);
    close(idle);
    assert_int_equal(stats().finished, 1);
}

static void what_does_not_finish_in_time_is_told(void **state)
{
    (void)state;
    now.options.grace = 0.2;
    now.fake.step_microseconds = 5000;
    start();
    const int stream = connect_with(0), whole = connect_with(0);
    send_post(stream, CHAT, "", "{" HELLO ",\"stream\":true,\"ignore_eos\":true,\"max_tokens\":4000}");
    send_post(whole, CHAT, "", "{" HELLO ",\"ignore_eos\":true,\"max_tokens\":4000}");
    assert_true(wait_for(is_running_two, 5));
    const double begin = seconds();
    es_server_stop(now.server);
    expect_reply(receive(stream, NULL), "data: {\"error\":{\"message\":\"the server is shutting down");
    expect_reply(receive(whole, NULL), "HTTP/1.1 503 Service Unavailable");
    close(stream);
    close(whole);
    join();
    assert_true(seconds() - begin < 5);
    assert_true(wait_for(has_cancelled_two, 2));
}

static void unsafe_options_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"k", ""};
    es_server *server = NULL;
    now.options.host = "0.0.0.0";
    assert_int_equal(es_server_open(&now.backend, &now.options, &server), ES_INVALID);
    assert_non_null(strstr(es_error_message(), "--no-auth"));
    now.options.keys = keys;
    now.options.key_count = 2;
    assert_int_equal(es_server_open(&now.backend, &now.options, &server), ES_INVALID);
    now.options.host = "127.0.0.1";
    now.options.key_count = 0;
    now.options.port = 70000;
    assert_int_equal(es_server_open(&now.backend, &now.options, &server), ES_INVALID);
    now.options.port = 0;
    now.options.host = "no.such.host.invalid";
    now.options.no_auth = true;
    assert_int_equal(es_server_open(&now.backend, &now.options, &server), ES_INVALID);
    assert_null(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_requests_are_answered, prepare, finish),
        cmocka_unit_test_setup_teardown(a_chat_is_answered_whole, prepare, finish),
        cmocka_unit_test_setup_teardown(a_stream_has_one_event_per_token, prepare, finish),
        cmocka_unit_test_setup_teardown(completions_answer_every_prompt_n_times, prepare, finish),
        cmocka_unit_test_setup_teardown(completions_repeat_their_prompt_when_asked_to, prepare, finish),
        cmocka_unit_test_setup_teardown(many_streams_at_once_are_all_whole, prepare, finish),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_stops_its_work, prepare, finish),
        cmocka_unit_test_setup_teardown(a_reader_that_stalls_is_paused_then_dropped_alone, prepare, finish),
        cmocka_unit_test_setup_teardown(a_reader_that_comes_back_misses_nothing, prepare, finish),
        cmocka_unit_test_setup_teardown(strangers_are_refused_before_their_body, prepare, finish),
        cmocka_unit_test_setup_teardown(pages_of_a_named_origin_may_ask, prepare, finish),
        cmocka_unit_test_setup_teardown(requests_on_one_connection_are_answered_in_order, prepare, finish),
        cmocka_unit_test_setup_teardown(a_client_that_only_asks_is_not_listened_to, prepare, finish),
        cmocka_unit_test_setup_teardown(a_full_engine_says_when_to_come_back, prepare, finish),
        cmocka_unit_test_setup_teardown(an_engine_that_breaks_is_told_to_the_client, prepare, finish),
        cmocka_unit_test_setup_teardown(slow_and_silent_clients_are_cut, prepare, finish),
        cmocka_unit_test_setup_teardown(stopping_lets_accepted_requests_finish, prepare, finish),
        cmocka_unit_test_setup_teardown(what_does_not_finish_in_time_is_told, prepare, finish),
        cmocka_unit_test_setup_teardown(unsafe_options_are_refused, prepare, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
