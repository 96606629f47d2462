/* http_parser.c: see http_parser.h. RFC 9112 for requests, minus what nobody needs and attackers love. */
#include "serve/http_parser.h"

#include <string.h>
#include <strings.h>

enum { CHUNK_LINE_MAX = 256, TRAILER_MAX = 8192 };

static es_http_result bad(es_http_parser *parser, int status, const char *reason)
{
    parser->status = status;
    parser->reason = reason;
    return ES_HTTP_BAD;
}

/* tchar of RFC 9110: what methods and header names are made of. */
static bool is_token_char(char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_token(const char *text)
{
    if (!*text) return false;
    for (; *text; text++)
        if (!is_token_char(*text)) return false;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Percent-decodes in place; false for a broken escape or an escaped NUL. */
static bool decode_path(char *path)
{
    char *out = path;
    for (const char *in = path; *in; in++) {
        if (*in != '%') {
            *out++ = *in;
            continue;
        }
        const int high = hex_digit(in[1]);
        const int low = high < 0 ? -1 : hex_digit(in[2]);
        if (low < 0 || (high == 0 && low == 0)) return false;
        *out++ = (char)(high << 4 | low);
        in += 2;
    }
    *out = '\0';
    return true;
}

/* The target: "/path?query", "http://host/path?query" as a proxy would send it, or "*". */
static es_http_result parse_target(es_http_parser *parser, char *target)
{
    es_http_request *request = &parser->request;
    if (strncasecmp(target, "http://", 7) == 0) {
        char *authority = target + 7;
        char *slash = strchr(authority, '/');
        if (!slash || slash == authority) return bad(parser, 400, "the request target is not a path");
        memmove(target, authority, (size_t)(slash - authority));
        target[slash - authority] = '\0';
        request->host = target;
        /* "http://" was moved away: there is room for the NUL before the slash */
        target = slash;
    }
    if (target[0] != '/' && strcmp(target, "*") != 0) return bad(parser, 400, "the request target is not a path");
    for (const char *c = target; *c; c++)
        if ((unsigned char)*c <= 0x20 || *c == 0x7F) return bad(parser, 400, "the request target holds a control character");
    char *query = strchr(target, '?');
    if (query) *query = '\0';
    request->query = query ? query + 1 : "";
    if (!decode_path(target)) return bad(parser, 400, "the request target holds a broken percent escape");
    request->path = target;
    return ES_HTTP_MORE;
}

static es_http_result parse_request_line(es_http_parser *parser, char *line)
{
    char *first = strchr(line, ' ');
    char *last = strrchr(line, ' ');
    if (!first || first == last) return bad(parser, 400, "the request line is not METHOD TARGET HTTP/1.1");
    *first = *last = '\0';
    const char *version = last + 1;
    if (!is_token(line)) return bad(parser, 400, "the method is not a word");
    if (strcmp(version, "HTTP/1.1") == 0) parser->request.minor = 1;
    else if (strcmp(version, "HTTP/1.0") == 0) parser->request.minor = 0;
    else if (strncmp(version, "HTTP/", 5) == 0) return bad(parser, 505, "this server speaks HTTP/1.1");
    else return bad(parser, 400, "the request line is not METHOD TARGET HTTP/1.1");
    parser->request.method = line;
    return parse_target(parser, first + 1);
}

static es_http_result parse_header(es_http_parser *parser, char *line)
{
    es_http_request *request = &parser->request;
    if (request->header_count == ES_HTTP_HEADERS_MAX) return bad(parser, 431, "more than 100 headers");
    char *colon = strchr(line, ':');
    if (!colon) return bad(parser, 400, "a header line has no colon");
    *colon = '\0';
    if (!is_token(line)) return bad(parser, 400, "a header's name is not a word (folded lines are not understood)");
    char *value = colon + 1;
    while (*value == ' ' || *value == '\t') value++;
    size_t n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t')) value[--n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7F)
            return bad(parser, 400, "a header's value holds a control character");
    request->headers[request->header_count++] = (es_http_header){line, value};
    return ES_HTTP_MORE;
}

static bool parse_length(const char *text, uint64_t *length)
{
    uint64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > (UINT64_MAX - 9) / 10) return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *length = value;
    return true;
}

static bool list_contains(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; *at;) {
        while (*at == ' ' || *at == '\t' || *at == ',') at++;
        const size_t length = strcspn(at, ", \t");
        if (length == n && strncasecmp(at, word, n) == 0) return true;
        at += length;
    }
    return false;
}

/* What the headers say about the message itself. */
static es_http_result interpret_headers(es_http_parser *parser)
{
    es_http_request *request = &parser->request;
    unsigned hosts = 0, lengths = 0, encodings = 0;
    request->keep_alive = request->minor == 1;
    for (size_t i = 0; i < request->header_count; i++) {
        const char *name = request->headers[i].name, *value = request->headers[i].value;
        if (strcasecmp(name, "host") == 0) {
            if (hosts++ == 0 && !*request->host) request->host = value;
        } else if (strcasecmp(name, "content-length") == 0) {
            lengths++;
            if (!parse_length(value, &request->content_length)) return bad(parser, 400, "Content-Length is not a number");
        } else if (strcasecmp(name, "transfer-encoding") == 0) {
            encodings++;
            if (strcasecmp(value, "chunked") != 0) return bad(parser, 501, "Transfer-Encoding can only be chunked");
            request->chunked = true;
        } else if (strcasecmp(name, "connection") == 0) {
            if (list_contains(value, "close")) request->keep_alive = false;
            else if (list_contains(value, "keep-alive")) request->keep_alive = true;
        } else if (strcasecmp(name, "expect") == 0) {
            if (strcasecmp(value, "100-continue") != 0) return bad(parser, 417, "Expect can only be 100-continue");
            request->expects_continue = request->minor == 1;
        }
    }
    if (hosts > 1 || (hosts == 0 && request->minor == 1)) return bad(parser, 400, "exactly one Host header is needed");
    if (lengths > 1 || encodings > 1 || (lengths && encodings) || (encodings && request->minor == 0))
        return bad(parser, 400, "the length of the body is given more than once");
    if (request->content_length > parser->body_limit) return bad(parser, 413, "the body is larger than this server accepts");
    return ES_HTTP_MORE;
}

/* The whole head is in parser->head, its last line empty. */
static es_http_result parse_head(es_http_parser *parser)
{
    char *text = parser->head.data;
    if (strlen(text) != parser->head.bytes) return bad(parser, 400, "the head holds a NUL byte");
    parser->request.host = parser->request.query = "";
    bool first = true;
    while (*text) {
        char *end = strstr(text, "\r\n");
        if (!end) return bad(parser, 400, "lines must end with CR LF");
        *end = '\0';
        if (!*text) break;
        if (strpbrk(text, "\r\n")) return bad(parser, 400, "lines must end with CR LF");
        const es_http_result result = first ? parse_request_line(parser, text) : parse_header(parser, text);
        if (result == ES_HTTP_BAD) return result;
        first = false;
        text = end + 2;
    }
    if (interpret_headers(parser) == ES_HTTP_BAD) return ES_HTTP_BAD;
    parser->left = parser->request.content_length;
    parser->phase = parser->request.chunked ? ES_HTTP_IN_CHUNK_SIZE
                    : parser->left          ? ES_HTTP_IN_BODY
                                            : ES_HTTP_COMPLETE;
    return ES_HTTP_HEAD;
}

static es_http_result take_head(es_http_parser *parser, const char *data, size_t bytes, size_t *used)
{
    static const char ending[] = "\r\n\r\n";
    size_t from = 0;
    /* Empty lines before a request are old clients' habit; the head limit ends that game too. */
    while (parser->head.bytes == 0 && from < bytes && (data[from] == '\r' || data[from] == '\n')) {
        if (++parser->trailer_bytes > 16) return bad(parser, 400, "empty lines instead of a request");
        from++;
    }
    size_t at = from;
    while (at < bytes && parser->matched < 4) {
        const char c = data[at++];
        parser->matched = c == ending[parser->matched] ? parser->matched + 1 : c == '\r' ? 1 : 0;
    }
    *used = at;
    if (parser->head.bytes + (at - from) > parser->head_limit)
        return bad(parser, 431, "the request line and headers are larger than this server accepts");
    es_text_append(&parser->head, data + from, at - from);
    if (parser->head.failed) return bad(parser, 503, "out of memory");
    if (parser->matched < 4) return ES_HTTP_MORE;
    parser->trailer_bytes = 0;
    return parse_head(parser);
}

static es_http_result take_body(es_http_parser *parser, const char *data, size_t bytes, size_t *used, es_http_phase then)
{
    const size_t take = bytes < parser->left ? bytes : (size_t)parser->left;
    es_text_append(&parser->body, data, take);
    if (parser->body.failed) return bad(parser, 503, "out of memory");
    *used = take;
    parser->left -= take;
    if (parser->left == 0) parser->phase = then;
    return ES_HTTP_MORE;
}

/* Takes bytes up to a line feed into parser->line. True when the line is whole, without its ending. */
static bool take_line(es_http_parser *parser, const char *data, size_t bytes, size_t *used, es_http_result *result)
{
    const char *end = memchr(data, '\n', bytes);
    const size_t take = end ? (size_t)(end - data) + 1 : bytes;
    *used = take;
    *result = ES_HTTP_MORE;
    if (parser->line.bytes + take > CHUNK_LINE_MAX) {
        *result = bad(parser, 400, "a line of the chunked body is too long");
        return false;
    }
    es_text_append(&parser->line, data, take);
    if (parser->line.failed) {
        *result = bad(parser, 503, "out of memory");
        return false;
    }
    if (!end) return false;
    const size_t n = parser->line.bytes;
    if (n < 2 || parser->line.data[n - 2] != '\r') {
        *result = bad(parser, 400, "lines must end with CR LF");
        return false;
    }
    parser->line.data[n - 2] = '\0';
    parser->line.bytes = n - 2;
    return true;
}

static es_http_result parse_chunk_size(es_http_parser *parser)
{
    const char *at = parser->line.data;
    uint64_t size = 0;
    if (hex_digit(*at) < 0) return bad(parser, 400, "a chunk's size is not a number");
    for (; hex_digit(*at) >= 0; at++) {
        if (size >> 56) return bad(parser, 413, "the body is larger than this server accepts");
        size = size << 4 | (uint64_t)hex_digit(*at);
    }
    if (*at && *at != ';' && *at != ' ' && *at != '\t') return bad(parser, 400, "a chunk's size is not a number");
    if (size > parser->body_limit - parser->body.bytes)
        return bad(parser, 413, "the body is larger than this server accepts");
    parser->left = size;
    parser->phase = size ? ES_HTTP_IN_CHUNK : ES_HTTP_IN_TRAILER;
    return ES_HTTP_MORE;
}

static es_http_result take_chunk_line(es_http_parser *parser, const char *data, size_t bytes, size_t *used)
{
    es_http_result result;
    if (!take_line(parser, data, bytes, used, &result)) return result;
    const bool empty = parser->line.bytes == 0;
    if (parser->phase == ES_HTTP_IN_CHUNK_SIZE) {
        result = parse_chunk_size(parser);
    } else if (parser->phase == ES_HTTP_IN_CHUNK_END) {
        if (!empty) return bad(parser, 400, "a chunk is longer than its size");
        parser->phase = ES_HTTP_IN_CHUNK_SIZE;
    } else if (empty) {
        parser->phase = ES_HTTP_COMPLETE;
    } else if ((parser->trailer_bytes += parser->line.bytes) > TRAILER_MAX) {
        return bad(parser, 431, "the trailers are larger than this server accepts");
    }
    es_text_clear(&parser->line);
    return result;
}

es_http_result es_http_parse(es_http_parser *parser, const char *data, size_t bytes, size_t *used)
{
    *used = 0;
    while (parser->phase != ES_HTTP_COMPLETE && *used < bytes) {
        const char *at = data + *used;
        const size_t left = bytes - *used;
        size_t taken = 0;
        es_http_result result;
        switch (parser->phase) {
        case ES_HTTP_IN_HEAD: result = take_head(parser, at, left, &taken); break;
        case ES_HTTP_IN_BODY: result = take_body(parser, at, left, &taken, ES_HTTP_COMPLETE); break;
        case ES_HTTP_IN_CHUNK: result = take_body(parser, at, left, &taken, ES_HTTP_IN_CHUNK_END); break;
        default: result = take_chunk_line(parser, at, left, &taken); break;
        }
        *used += taken;
        if (result != ES_HTTP_MORE) return result;
    }
    return parser->phase == ES_HTTP_COMPLETE ? ES_HTTP_DONE : ES_HTTP_MORE;
}

bool es_http_parser_is_idle(const es_http_parser *parser)
{
    return parser->phase == ES_HTTP_IN_HEAD && parser->head.bytes == 0;
}

void es_http_parser_reset(es_http_parser *parser)
{
    es_text_clear(&parser->head);
    es_text_clear(&parser->line);
    es_text_free(&parser->body);
    parser->request = (es_http_request){0};
    parser->phase = ES_HTTP_IN_HEAD;
    parser->matched = 0;
    parser->left = 0;
    parser->trailer_bytes = 0;
    parser->status = 0;
    parser->reason = NULL;
}

void es_http_parser_free(es_http_parser *parser)
{
    es_text_free(&parser->head);
    es_text_free(&parser->line);
    es_text_free(&parser->body);
}

const char *es_http_find_header(const es_http_request *request, const char *name)
{
    for (size_t i = 0; i < request->header_count; i++)
        if (strcasecmp(request->headers[i].name, name) == 0) return request->headers[i].value;
    return NULL;
}
