/* http_parser.h: an HTTP/1.1 request, taken apart as its bytes arrive.
 *
 *   es_http_parser parser = {.head_limit = 32768, .body_limit = 64 << 20};
 *   size_t used;
 *   switch (es_http_parse(&parser, data, bytes, &used)) {
 *   case ES_HTTP_MORE: ...   // all bytes used, not complete yet
 *   case ES_HTTP_HEAD: ...   // parser.request's line and headers are known; call again for the body
 *   case ES_HTTP_DONE: ...   // parser.body too; the bytes after `used` belong to the next request
 *   case ES_HTTP_BAD:  ...   // answer parser.status with parser.reason and close
 *   }
 *   es_http_parser_reset(&parser);
 *
 * No sockets, no time: pure, so that it can be tested byte by byte and fuzzed. Strict where leniency lets two readers of
 * the same bytes disagree (bare line feeds, folded headers, repeated or contradictory lengths are refused). */
#ifndef ES_SERVE_HTTP_PARSER_H
#define ES_SERVE_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

enum { ES_HTTP_HEADERS_MAX = 100 };

typedef struct es_http_header {
    const char *name, *value; /**< the value without the white space around it */
} es_http_header;

/** Line and headers. Strings live in the parser until its reset. */
typedef struct es_http_request {
    const char *method;
    const char *path;  /**< percent-decoded, without the query; starts with '/' (or is "*") */
    const char *query; /**< as sent, "" when there is none */
    const char *host;  /**< from the Host header or an absolute target; "" when there is none */
    int minor;         /**< HTTP/1.minor, 0 or 1 */
    es_http_header headers[ES_HTTP_HEADERS_MAX];
    size_t header_count;
    bool keep_alive, chunked, expects_continue;
    uint64_t content_length; /**< 0 when chunked or absent */
} es_http_request;

typedef enum es_http_result { ES_HTTP_MORE, ES_HTTP_HEAD, ES_HTTP_DONE, ES_HTTP_BAD } es_http_result;

typedef enum es_http_phase {
    ES_HTTP_IN_HEAD,
    ES_HTTP_IN_BODY,
    ES_HTTP_IN_CHUNK_SIZE,
    ES_HTTP_IN_CHUNK,
    ES_HTTP_IN_CHUNK_END,
    ES_HTTP_IN_TRAILER,
    ES_HTTP_COMPLETE,
} es_http_phase;

typedef struct es_http_parser {
    size_t head_limit, body_limit; /**< bytes; set by the caller */
    es_http_request request;
    es_text body;
    int status;         /**< after ES_HTTP_BAD: 400, 413, 431, 501, 503 or 505 */
    const char *reason; /**< after ES_HTTP_BAD: a sentence */
    /* the rest is the parser's own */
    es_http_phase phase;
    es_text head, line;
    unsigned matched; /* bytes of the empty line that ends the head seen so far */
    uint64_t left;    /* bytes of the body or chunk still to come */
    size_t trailer_bytes;
} es_http_parser;

es_http_result es_http_parse(es_http_parser *parser, const char *data, size_t bytes, size_t *used);

/** True when nothing of a request has arrived yet. */
bool es_http_parser_is_idle(const es_http_parser *parser);
/** Ready for the next request; limits stay, memory of the body is given back. */
void es_http_parser_reset(es_http_parser *parser);
void es_http_parser_free(es_http_parser *parser);

/** The value of a header (name in any case), or NULL. */
const char *es_http_find_header(const es_http_request *request, const char *name);

#endif
