/* HTTP requests in any bytes, cut in two pieces at every length: the pieces must give what the whole gives. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/guard.h"
#include "serve/http_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Parses requests until the bytes end; returns how many were whole and the last status. */
static void parse_all(const char *data, size_t bytes, size_t cut, unsigned *whole, int *status)
{
    es_http_parser parser = {.head_limit = 2048, .body_limit = 1024};
    *whole = 0;
    *status = 0;
    size_t at = 0;
    for (;;) {
        const size_t end = at < cut ? cut : bytes;
        size_t used;
        const es_http_result result = es_http_parse(&parser, data + at, end - at, &used);
        if (used > end - at) abort();
        at += used;
        if (result == ES_HTTP_BAD) {
            *status = parser.status;
            break;
        }
        if (result == ES_HTTP_DONE) {
            if (parser.body.bytes > parser.body_limit) abort();
            (*whole)++;
            (void)es_host_is_ours(parser.request.host, "localhost");
            es_http_parser_reset(&parser);
        }
        if (at == bytes && result != ES_HTTP_HEAD) break;
    }
    es_http_parser_free(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) return 0;
    char *copy = malloc(bytes);
    if (!copy) return 0;
    memcpy(copy, data, bytes);
    unsigned whole, again;
    int status, status_again;
    parse_all(copy, bytes, 0, &whole, &status);
    const size_t cut = (unsigned char)copy[0] % bytes;
    parse_all(copy, bytes, cut, &again, &status_again);
    if (whole != again || status != status_again) abort();
    free(copy);
    return 0;
}
