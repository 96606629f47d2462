/* HTTP as bytes: requests taken apart, and who may ask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "serve/guard.h"
#include "serve/http_parser.h"
#include "serve/sse.h"
#include "serve/strict_json.h"

static es_http_parser new_parser(void)
{
    return (es_http_parser){.head_limit = 4096, .body_limit = 1000};
}

/* Feeds `text` in pieces of `piece` bytes until the request is whole or bad. */
static es_http_result feed(es_http_parser *parser, const char *text, size_t bytes, size_t piece)
{
    es_http_result result = ES_HTTP_MORE;
    for (size_t at = 0; at < bytes || result == ES_HTTP_HEAD;) {
        const size_t left = bytes - at;
        /* a copy of exactly this size: the sanitizer sees a read past it */
        const size_t n = left < piece ? left : piece;
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text + at, n);
        size_t used;
        result = es_http_parse(parser, copy, n, &used);
        free(copy);
        at += used;
        if (result == ES_HTTP_DONE || result == ES_HTTP_BAD) break;
    }
    return result;
}

static const char post[] = "POST /v1/models/a%2Fb?x=%zz HTTP/1.1\r\nHost: localhost:80\r\nX-Long:  a b \t\r\n"
                           "Content-Length: 5\r\n\r\nhello";

static void a_request_is_the_same_however_it_is_cut(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= sizeof post; piece++) {
        es_http_parser parser = new_parser();
        assert_int_equal(feed(&parser, post, sizeof post - 1, piece), ES_HTTP_DONE);
        assert_string_equal(parser.request.method, "POST");
        assert_string_equal(parser.request.path, "/v1/models/a/b");
        assert_string_equal(parser.request.query, "x=%zz");
        assert_string_equal(parser.request.host, "localhost:80");
        assert_string_equal(es_http_find_header(&parser.request, "x-LONG"), "a b");
        assert_true(parser.request.keep_alive);
        assert_string_equal(parser.body.data, "hello");
        es_http_parser_free(&parser);
    }
}

static void chunked_bodies_are_joined(void **state)
{
    (void)state;
    static const char text[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "5;ext=1\r\nhello\r\n00A\r\n, world!!!\r\n0\r\nTrailer: x\r\n\r\n";
    for (size_t piece = 1; piece <= sizeof text; piece++) {
        es_http_parser parser = new_parser();
        assert_int_equal(feed(&parser, text, sizeof text - 1, piece), ES_HTTP_DONE);
        assert_string_equal(parser.body.data, "hello, world!!!");
        es_http_parser_free(&parser);
    }
}

static void requests_follow_each_other(void **state)
{
    (void)state;
    static const char two[] = "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.0\r\n\r\n";
    es_http_parser parser = new_parser();
    size_t used, more;
    assert_int_equal(es_http_parse(&parser, two, sizeof two - 1, &used), ES_HTTP_HEAD);
    assert_int_equal(es_http_parse(&parser, two + used, sizeof two - 1 - used, &more), ES_HTTP_DONE);
    assert_int_equal(more, 0);
    assert_string_equal(parser.request.path, "/a");
    es_http_parser_reset(&parser);
    assert_true(es_http_parser_is_idle(&parser));
    assert_int_equal(es_http_parse(&parser, two + used, sizeof two - 1 - used, &more), ES_HTTP_HEAD);
    assert_string_equal(parser.request.path, "/b");
    assert_false(parser.request.keep_alive);
    es_http_parser_free(&parser);
}

/* Each of these could be read in two ways, or costs more than it is worth. */
static void doubtful_requests_are_refused(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "GET /\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n"},
        {400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET /%0g HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET /% HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n"},
        {505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"},
        {400, "GET / FTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
        {417, "POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n"},
        {413, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"},
        {413, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"},
        {413, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"},
        {400, "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t piece = 1; piece < 200; piece += 66) {
            es_http_parser parser = new_parser();
            const es_http_result result = feed(&parser, cases[i].text, strlen(cases[i].text), piece);
            if (result != ES_HTTP_BAD || parser.status != cases[i].status) print_error("case: %s\n", cases[i].text);
            assert_int_equal(result, ES_HTTP_BAD);
            assert_int_equal(parser.status, cases[i].status);
            es_http_parser_free(&parser);
        }
    }
}

static void heads_are_bounded(void **state)
{
    (void)state;
    es_http_parser parser = new_parser();
    size_t used;
    char block[5000];
    memset(block, 'a', sizeof block);
    memcpy(block, "GET /", 5);
    assert_int_equal(es_http_parse(&parser, block, sizeof block, &used), ES_HTTP_BAD);
    assert_int_equal(parser.status, 431);
    es_http_parser_free(&parser);

    es_text many = {0};
    es_text_puts(&many, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < ES_HTTP_HEADERS_MAX; i++) es_text_puts(&many, "a: b\r\n");
    es_text_puts(&many, "\r\n");
    parser = new_parser();
    assert_int_equal(es_http_parse(&parser, many.data, many.bytes, &used), ES_HTTP_BAD);
    assert_int_equal(parser.status, 431);
    es_http_parser_free(&parser);
    es_text_free(&many);
}

static void foreign_hosts_are_told_from_ours(void **state)
{
    (void)state;
    static const char *const ours[] = {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "[::1]", "",
                                       "mybox", "mybox:80"};
    static const char *const foreign[] = {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1",
                                          "[::2]", "[::1", "localhost:80:80", "localhost:x", ":80", "::1", "128.0.0.1",
                                          "localhost@evil.example", "mybox2"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) assert_true(es_host_is_ours(ours[i], "mybox"));
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) assert_false(es_host_is_ours(foreign[i], "mybox"));
    assert_true(es_is_loopback("::1"));
    assert_false(es_is_loopback("0.0.0.0"));
    assert_false(es_is_loopback("::"));
    assert_true(es_origin_is_own("http://localhost:80", "localhost:80"));
    assert_false(es_origin_is_own("http://localhost:81", "localhost:80"));
    assert_false(es_origin_is_own("null", "localhost:80"));
}

static void keys_open_and_nothing_else_does(void **state)
{
    (void)state;
    static const char *const keys[] = {"first-key", "second"};
    static const struct {
        const char *name, *value;
        bool opens;
    } cases[] = {
        {"Authorization", "Bearer first-key", true}, {"authorization", "bearer  second", true}, {"X-Api-Key", "second", true},
        {"Authorization", "Bearer first-keY", false}, {"Authorization", "Bearer first-key2", false},
        {"Authorization", "Bearer first-ke", false}, {"Authorization", "Bearer ", false},
        {"Authorization", "first-key", false},
        {"Authorization", "Basic first-key", false}, {"X-Api-Key", "", false}, {"X-Other", "second", false},
        {"X-Api-Key", "secondsecond", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_http_request request = {.header_count = 1};
        request.headers[0] = (es_http_header){cases[i].name, cases[i].value};
        assert_int_equal(es_has_key(&request, keys, 2), cases[i].opens);
    }
}

static void hostile_json_is_refused_without_quoting_it(void **state)
{
    (void)state;
    json_t *object = NULL;
    static const char *const bad[] = {"", "[]", "1", "{", "{\"a\":1,\"a\":2}", "{\"a\":1} x", "{\"a\":\"\xff\"}", "{'a':1}",
                                      "{\"a\":01}", "{\"a\":\"\\u0000\"}", "{\"a\":\"\\ud800\"}", "{\"a\":1e999}",
                                      "\xEF\xBB\xBF{}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(es_json_parse_object(bad[i], strlen(bad[i]), &object), ES_INVALID);
    static const char secret[] = "{\"prompt\": \"x\", my secret prompt}";
    assert_int_equal(es_json_parse_object(secret, sizeof secret - 1, &object), ES_INVALID);
    assert_null(strstr(es_error_message(), "secret"));
    char deep[2 * ES_JSON_DEPTH_MAX + 16] = "{\"a\":";
    size_t n = strlen(deep);
    for (int i = 0; i < ES_JSON_DEPTH_MAX; i++) deep[n++] = '[';
    for (int i = 0; i < ES_JSON_DEPTH_MAX; i++) deep[n++] = ']';
    deep[n++] = '}';
    assert_int_equal(es_json_parse_object(deep, n, &object), ES_INVALID);
    assert_non_null(strstr(es_error_message(), "deeper"));
    static const char brackets[] = "{\"a\":\"[[[[{{{{\\\"[[\"}";
    assert_int_equal(es_json_parse_object(brackets, sizeof brackets - 1, &object), ES_OK);
    json_decref(object);
}

static void any_bytes_become_a_json_string(void **state)
{
    (void)state;
    json_t *text = es_json_text("a\xff\xC3\xA9\xE2\x82z", 7);
    assert_string_equal(json_string_value(text), "a\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBDz");
    json_decref(text);
}

static void an_event_is_one_line(void **state)
{
    (void)state;
    json_t *value = json_pack("{s:s, s:[]}", "a", "line\nbreak\r\n\xE2\x80\xA8", "b");
    es_text out = {0};
    es_sse_comment(&out, "waiting");
    es_sse_json(&out, NULL, value);
    es_sse_json(&out, "more", json_object_get(value, "b"));
    es_sse_done(&out);
    assert_string_equal(out.data, ": waiting\n\ndata: {\"a\":\"line\\nbreak\\r\\n\xE2\x80\xA8\",\"b\":[]}\n\nevent: more\ndata: []\n\n"
                                  "data: [DONE]\n\n");
    json_decref(value);
    es_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_the_same_however_it_is_cut),
        cmocka_unit_test(chunked_bodies_are_joined),
        cmocka_unit_test(requests_follow_each_other),
        cmocka_unit_test(doubtful_requests_are_refused),
        cmocka_unit_test(heads_are_bounded),
        cmocka_unit_test(foreign_hosts_are_told_from_ours),
        cmocka_unit_test(keys_open_and_nothing_else_does),
        cmocka_unit_test(hostile_json_is_refused_without_quoting_it),
        cmocka_unit_test(any_bytes_become_a_json_string),
        cmocka_unit_test(an_event_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
