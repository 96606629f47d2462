/* What a model writes: the first byte chooses the format, the second how the text is cut, the rest is the text. It must come
 * apart the same way whole and in pieces; what is neither reasoning nor a call must come out as it went in; arguments must be
 * JSON, or a beginning of it where the call was broken off. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "text/answer_parser.h"
#include "text/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct record {
    es_text kinds;     /* one letter per part, repeated only for calls */
    es_text parts[4];  /* all reasoning, content, names and arguments */
    es_text arguments; /* of the call at hand */
    bool finishing;    /* a call may end because the text does */
    int last;
} record;

/* One object, or the beginning of one; jansson must agree where only syntax can be at fault (not UTF-8, surrogates, numbers out of
 * range). */
static void check_arguments(const es_text *text)
{
    es_json_scan scan = {0};
    es_json_seen seen = ES_JSON_MORE;
    bool ascii = true;
    for (size_t i = 0; i < text->bytes; i++) {
        if (seen != ES_JSON_MORE) abort();
        seen = es_json_scan_byte(&scan, text->data[i]);
        if (seen == ES_JSON_BROKEN) abort();
        ascii &= text->data[i] > 0 && text->data[i] != '\\' && !(text->data[i] >= '0' && text->data[i] <= '9');
    }
    json_t *object = ascii && seen == ES_JSON_WHOLE ? json_loadb(text->data, text->bytes, 0, NULL) : NULL;
    if (text->bytes == 0 || (ascii && seen == ES_JSON_WHOLE && !json_is_object(object))) abort();
    json_decref(object);
}

static void on_part(void *user, es_part part, const char *text, size_t bytes)
{
    record *r = user;
    if (part == ES_PART_CALL_END ? bytes != 0 : bytes == 0) abort();
    if (part == ES_PART_CALL) es_text_clear(&r->arguments);
    if (part == ES_PART_ARGUMENTS) es_text_append(&r->arguments, text, bytes);
    if (part == ES_PART_CALL_END && !r->finishing) check_arguments(&r->arguments);
    if (part != ES_PART_CALL_END) es_text_append(&r->parts[part], text, bytes);
    if (r->last != (int)part || part == ES_PART_CALL) es_text_putc(&r->kinds, "RCFAE"[part]);
    r->last = (int)part;
}

static void take_apart(es_answer_format format, json_t *tools, const char *text, size_t bytes, size_t piece, record *r)
{
    es_answer_parser *parser;
    if (es_answer_parser_open(format, tools, on_part, r, &parser) != ES_OK) abort();
    for (size_t at = 0; at < bytes; at += piece)
        if (es_answer_parser_add(parser, text + at, piece < bytes - at ? piece : bytes - at) != ES_OK) abort();
    r->finishing = true;
    if (es_answer_parser_finish(parser) != ES_OK) abort();
    es_answer_parser_close(parser);
}

static bool equal(const es_text *a, const es_text *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

static void free_record(record *r)
{
    es_text_free(&r->kinds);
    es_text_free(&r->arguments);
    for (size_t i = 0; i < 4; i++) es_text_free(&r->parts[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char tools_json[] =
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},\"n\":"
        "{\"type\":\"integer\"},\"o\":{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"null\"}]}}}}},{\"name\":\"g\"}]";
    if (bytes < 2 || bytes > 1 << 16) return 0;
    const es_answer_format format = {data[0] & 1 ? ES_REASONING_THINK : ES_REASONING_NONE, (es_tool_form)(data[0] >> 1 & 3),
                                     data[0] >> 3 & 1, data[0] >> 5 & 1};
    json_t *tools = data[0] & 16 ? NULL : json_loads(tools_json, 0, NULL);
    const char *text = (const char *)data + 2;
    const size_t n = bytes - 2;
    record whole = {.last = -1}, pieces = {.last = -1};
    take_apart(format, tools, text, n, n ? n : 1, &whole);
    take_apart(format, tools, text, n, 1 + data[1] % 32, &pieces);
    if (!equal(&whole.kinds, &pieces.kinds)) abort();
    for (size_t i = 0; i < 4; i++)
        if (!equal(&whole.parts[i], &pieces.parts[i])) abort();
    if (whole.kinds.bytes && !strpbrk(whole.kinds.data, "RFAE") && format.reasoning == ES_REASONING_NONE)
        if (whole.parts[ES_PART_CONTENT].bytes != n || memcmp(whole.parts[ES_PART_CONTENT].data, text, n) != 0) abort();
    json_decref(tools);
    free_record(&whole);
    free_record(&pieces);
    return 0;
}
