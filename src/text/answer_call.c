/* answer_call.c: the calls in an answer.
 *
 * Values can be whole files, so a call is handed on while it is written. In the XML-like form nothing can go wrong once its head
 * has been read, because whatever is no mark where a mark could stand is a part of the value before it. In JSON a call is one as
 * soon as its name has been read and its arguments have been opened; should they break off as JSON behind that, the call is cut
 * off there and the rest is content. Where the name comes last, or the arguments are written out in a string, it is handed on
 * when it is whole. */
#include <string.h>

#include "text/answer_internal.h"
#include "text/tool_schema.h"

static const char parameter_mark[] = "<parameter=", parameter_end[] = "</parameter>",
                  function_mark[] = "<function=", function_end[] = "</function>", call_end[] = "</tool_call>";

static bool go(es_answer_parser *parser, answer_state next)
{
    parser->state = next;
    return true;
}

/* It was no call: what was read of it is content, and the rest is looked at anew. */
static bool give_up(es_answer_parser *parser, size_t bytes)
{
    answer_emit(parser, ES_PART_CONTENT, bytes);
    return go(parser, ANSWER_CONTENT);
}

static void send(const es_answer_parser *parser, es_part part, const char *text, size_t bytes)
{
    parser->on_part(parser->user, part, text, bytes);
}

static bool name_fits(const char *name, size_t bytes)
{
    if (bytes == 0 || bytes > ANSWER_NAME_MAX) return false;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] < ' ' || strchr("<>\"\\", name[i])) return false;
    return true;
}

/* A name and the ">" behind it, `offset` bytes on. */
static answer_match read_name(const es_answer_parser *parser, size_t offset, size_t *bytes)
{
    const char *name = answer_text(parser) + offset;
    const size_t left = answer_left(parser) - offset;
    const char *end = memchr(name, '>', left < ANSWER_NAME_MAX + 1 ? left : ANSWER_NAME_MAX + 1);
    if (end) {
        *bytes = (size_t)(end - name);
        return name_fits(name, *bytes) ? ANSWER_YES : ANSWER_NO;
    }
    if (left > ANSWER_NAME_MAX || (left && !name_fits(name, left)) || parser->final) return ANSWER_NO;
    return ANSWER_MAYBE;
}

/* Whether a parameter that has not been given yet, or the function's end, stands `offset` bytes on. */
static answer_match tag_stands(const es_answer_parser *parser, size_t offset)
{
    static const char *const ends[] = {function_end, call_end};
    for (size_t i = 0; i < 2; i++) {
        const answer_match match = answer_matches(parser, offset, ends[i]);
        if (match != ANSWER_NO) return match;
    }
    const answer_match match = answer_matches(parser, offset, parameter_mark);
    if (match != ANSWER_YES) return match;
    const size_t at = offset + strlen(parameter_mark);
    size_t bytes;
    const answer_match name = read_name(parser, at, &bytes);
    if (name != ANSWER_YES) return name;
    return json_object_getn(parser->parameters, answer_text(parser) + at, bytes) ? ANSWER_NO : ANSWER_YES;
}

static answer_match tag_stands_after_space(const es_answer_parser *parser, size_t offset, size_t *space)
{
    const answer_match match = answer_space(parser, offset, space);
    return match == ANSWER_YES ? tag_stands(parser, offset + *space) : match;
}

/* <function=NAME>, `offset` bytes on, and the first tag behind it: from here on it is a call. */
static bool xml_head(es_answer_parser *parser, size_t offset)
{
    const size_t at = offset + strlen(function_mark);
    size_t bytes, space;
    answer_match match = read_name(parser, at, &bytes);
    if (match == ANSWER_MAYBE) return false;
    const char *name = answer_text(parser) + at;
    parser->function = match == ANSWER_YES ? es_tool_find(parser->tools, name, bytes) : NULL;
    if (match == ANSWER_NO || (parser->bare && !parser->function)) return give_up(parser, at);
    json_object_clear(parser->parameters);
    match = tag_stands_after_space(parser, at + bytes + 1, &space);
    if (match == ANSWER_MAYBE) return false;
    if (match == ANSWER_NO) return give_up(parser, at);
    send(parser, ES_PART_CALL, name, bytes);
    parser->at += at + bytes + 1 + space;
    return go(parser, ANSWER_XML_TAG);
}

static bool begin_json(es_answer_parser *parser, size_t offset)
{
    parser->scan = (es_json_scan){0};
    parser->looked = false;
    parser->mark = parser->scanned = offset;
    return go(parser, ANSWER_CALL_JSON);
}

/* An answer may just be JSON: only what begins as a call does is held back to its end. */
static answer_match begins_as_call(const es_answer_parser *parser, size_t offset)
{
    static const char *const names[] = {"\"name\"", "\"type\"", "\"function\"", "\"parameters\"", "\"arguments\"", "\"id\""};
    size_t space;
    answer_match best = answer_space(parser, offset + 1, &space);
    if (best != ANSWER_YES) return best;
    best = ANSWER_NO;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const answer_match match = answer_matches(parser, offset + 1 + space, names[i]);
        if (match == ANSWER_YES) return match;
        if (match == ANSWER_MAYBE) best = match;
    }
    return best;
}

bool answer_call_head(es_answer_parser *parser)
{
    if (!parser->parameters && !(parser->parameters = json_object())) {
        parser->held.failed = true;
        return false;
    }
    size_t space;
    answer_match match = answer_space(parser, parser->mark, &space);
    if (match == ANSWER_MAYBE) return false;
    const size_t at = parser->mark + space;
    if (match == ANSWER_NO || at == answer_left(parser)) return give_up(parser, at);
    if (answer_text(parser)[at] == '{') {
        match = parser->bare ? begins_as_call(parser, at) : ANSWER_YES;
        if (match == ANSWER_MAYBE) return false;
        return match == ANSWER_YES ? begin_json(parser, at) : give_up(parser, at + 1);
    }
    if (parser->format.tools == ES_TOOLS_LLAMA) return give_up(parser, at);
    match = answer_matches(parser, at, function_mark);
    if (match == ANSWER_MAYBE) return false;
    return match == ANSWER_YES ? xml_head(parser, at) : give_up(parser, at);
}

/* ---- JSON ---- */

typedef struct slice {
    const char *text;
    size_t bytes;
} slice;

static slice member(slice object, const char *name)
{
    slice value = {NULL, 0};
    value.text = es_json_slice(object.text, object.bytes, name, &value.bytes);
    return value;
}

/* An object, as itself or written out in a string (then *owned is freed by the caller); nothing at all is {}. */
static bool read_arguments(slice value, slice *arguments, json_t **owned)
{
    static const char none[] = "{}";
    *arguments = value;
    if (value.text && *value.text == '{') return true;
    json_t *string = value.text ? json_loadb(value.text, value.bytes, JSON_DECODE_ANY, NULL) : json_null();
    *owned = string;
    if (json_is_null(string) || (json_is_string(string) && json_string_length(string) == 0)) {
        *arguments = (slice){none, strlen(none)};
        return true;
    }
    if (!json_is_string(string)) return false;
    *arguments = (slice){json_string_value(string), json_string_length(string)};
    es_json_scan scan = {0};
    es_json_seen seen = ES_JSON_MORE;
    size_t i = 0;
    while (i < arguments->bytes && seen == ES_JSON_MORE) seen = es_json_scan_byte(&scan, arguments->text[i++]);
    if (seen != ES_JSON_WHOLE || arguments->text[i - 1] != '}') return false;
    while (i < arguments->bytes && answer_is_space(arguments->text[i])) i++;
    return i == arguments->bytes;
}

/* {"name": F, "arguments": {...}} as it stands, or inside of a member "function", as the API itself writes calls. */
static bool send_call(const es_answer_parser *parser, slice object)
{
    const slice inner = member(object, "function");
    if (inner.text && *inner.text == '{') object = inner;
    slice name = member(object, "name");
    if (!name.text && inner.text && *inner.text == '"') name = inner;
    slice arguments = member(object, "arguments");
    if (!arguments.text) arguments = member(object, "parameters");
    if (!name.text || *name.text != '"' || !name_fits(name.text + 1, name.bytes - 2)) return false;
    name.text++;
    name.bytes -= 2;
    if (parser->bare && (!arguments.text || !es_tool_find(parser->tools, name.text, name.bytes))) return false;
    json_t *owned = NULL;
    const bool good = read_arguments(arguments, &arguments, &owned);
    if (good) {
        send(parser, ES_PART_CALL, name.text, name.bytes);
        send(parser, ES_PART_ARGUMENTS, arguments.text, arguments.bytes);
        send(parser, ES_PART_CALL_END, "", 0);
    }
    json_decref(owned);
    return good;
}

/* Whether what ends with the brace of an object is a member's name with one of these names, and the brace. */
static bool opens_arguments(const char *text, size_t bytes)
{
    static const char *const names[] = {"\"arguments\"", "\"parameters\""};
    size_t end = bytes - 1;
    while (end > 0 && answer_is_space(text[end - 1])) end--;
    if (end == 0 || text[--end] != ':') return false;
    while (end > 0 && answer_is_space(text[end - 1])) end--;
    for (size_t i = 0; i < 2; i++) {
        const size_t wanted = strlen(names[i]);
        /* behind a backslash the quote would belong to a longer name */
        if (end > wanted && memcmp(text + end - wanted, names[i], wanted) == 0 && text[end - wanted - 1] != '\\') return true;
    }
    return false;
}

/* The object's name, where it is one that a call can have. */
static bool find_name(const es_answer_parser *parser, slice object, slice *name)
{
    *name = member(object, "name");
    if (!name->text || *name->text != '"' || name->bytes < 2 || !name_fits(name->text + 1, name->bytes - 2)) return false;
    name->text++;
    name->bytes -= 2;
    return !parser->bare || es_tool_find(parser->tools, name->text, name->bytes);
}

/* The brace that opens the arguments has just been read: from here on it is a call. */
static bool begin_arguments(es_answer_parser *parser)
{
    const slice object = {answer_text(parser) + parser->mark, parser->scanned - parser->mark};
    slice name;
    if (parser->looked || !opens_arguments(object.text, object.bytes)) return false;
    parser->looked = true; /* once: finding a name takes as long as what has come is */
    if (!find_name(parser, object, &name)) return false;
    send(parser, ES_PART_CALL, name.text, name.bytes);
    parser->at += parser->scanned - 1;
    parser->scanned = 1;
    return go(parser, ANSWER_CALL_ARGUMENTS);
}

bool answer_call_json(es_answer_parser *parser)
{
    const size_t left = answer_left(parser);
    while (parser->scanned < left) {
        const char *text = answer_text(parser);
        const uint8_t depth = parser->scan.depth;
        const es_json_seen seen = es_json_scan_byte(&parser->scan, text[parser->scanned]);
        if (seen == ES_JSON_BROKEN) return give_up(parser, parser->scanned);
        const bool opened = depth == 1 && parser->scan.depth == 2 && text[parser->scanned] == '{';
        parser->scanned++;
        if (opened && begin_arguments(parser)) return true;
        if (seen == ES_JSON_MORE) continue;
        if (!send_call(parser, (slice){text + parser->mark, parser->scanned - parser->mark}))
            return give_up(parser, parser->scanned);
        parser->at += parser->scanned;
        return go(parser, ANSWER_CALL_AFTER);
    }
    return parser->final && give_up(parser, left);
}

/* Inside of the arguments: they are handed on as they come. */
bool answer_call_arguments(es_answer_parser *parser)
{
    const char *text = answer_text(parser);
    const size_t left = answer_left(parser);
    bool broken = false;
    while (parser->scanned < left && parser->scan.depth > 1 && !broken) {
        broken = es_json_scan_byte(&parser->scan, text[parser->scanned]) == ES_JSON_BROKEN;
        if (!broken) parser->scanned++;
    }
    answer_emit(parser, ES_PART_ARGUMENTS, parser->scanned);
    parser->scanned = 0;
    if (!broken && parser->scan.depth > 1 && !parser->final) return false;
    if (!broken && parser->scan.depth == 1) return go(parser, ANSWER_CALL_CLOSE);
    send(parser, ES_PART_CALL_END, "", 0);
    return go(parser, broken ? ANSWER_CONTENT : ANSWER_ENDED);
}

/* Behind the arguments: what else the object says of the call says nothing here. */
bool answer_call_close(es_answer_parser *parser)
{
    const char *text = answer_text(parser);
    const size_t left = answer_left(parser);
    es_json_seen seen = ES_JSON_MORE;
    size_t read = 0;
    while (read < left && seen == ES_JSON_MORE) {
        seen = es_json_scan_byte(&parser->scan, text[read]);
        read += seen != ES_JSON_BROKEN;
    }
    parser->at += read;
    if (seen == ES_JSON_MORE && !parser->final) return false;
    send(parser, ES_PART_CALL_END, "", 0);
    return go(parser, ANSWER_CALL_AFTER);
}

/* ---- the XML-like form ---- */

static void send_key(es_answer_parser *parser, const char *name, size_t bytes)
{
    es_text piece = {0};
    es_text_putc(&piece, json_object_size(parser->parameters) ? ',' : '{');
    es_text_putc(&piece, '"');
    es_json_escape(name, bytes, &piece);
    es_text_puts(&piece, "\":");
    if (json_object_setn_new_nocheck(parser->parameters, name, bytes, json_true()) != 0) piece.failed = true;
    parser->held.failed |= piece.failed;
    if (!piece.failed) send(parser, ES_PART_ARGUMENTS, piece.data, piece.bytes);
    es_text_free(&piece);
}

bool answer_xml_tag(es_answer_parser *parser)
{
    if (answer_matches(parser, 0, parameter_mark) == ANSWER_YES) {
        const size_t at = strlen(parameter_mark);
        const char *name = answer_text(parser) + at;
        const char *end = memchr(name, '>', answer_left(parser) - at);
        const size_t bytes = (size_t)(end - name);
        parser->types = es_tool_types(parser->function, name, bytes);
        send_key(parser, name, bytes);
        parser->at += at + bytes + 1;
        parser->value_begun = false;
        return go(parser, ANSWER_XML_VALUE);
    }
    if (answer_matches(parser, 0, function_end) == ANSWER_YES) parser->at += strlen(function_end);
    if (json_object_size(parser->parameters) == 0)
        send(parser, ES_PART_ARGUMENTS, "{}", 2);
    else
        send(parser, ES_PART_ARGUMENTS, "}", 1);
    send(parser, ES_PART_CALL_END, "", 0);
    return go(parser, ANSWER_CALL_AFTER);
}

static bool is_streamed(const es_answer_parser *parser)
{
    return (parser->types & ~(unsigned)ES_VALUE_STRING) == 0;
}

/* More of a string. */
static void send_string(es_answer_parser *parser, size_t bytes)
{
    es_text piece = {0};
    es_json_escape(answer_text(parser), bytes, &piece);
    parser->held.failed |= piece.failed;
    if (piece.bytes) send(parser, ES_PART_ARGUMENTS, piece.data, piece.bytes);
    es_text_free(&piece);
    parser->at += bytes;
}

static void send_typed(es_answer_parser *parser, size_t bytes)
{
    es_text piece = {0};
    es_tool_value_write(parser->types, answer_text(parser), bytes, &piece);
    parser->held.failed |= piece.failed;
    if (piece.bytes) send(parser, ES_PART_ARGUMENTS, piece.data, piece.bytes);
    es_text_free(&piece);
    parser->at += bytes;
}

/* The line break after <parameter=...> is not part of the value. */
static bool begin_value(es_answer_parser *parser)
{
    static const char *const breaks[] = {"\n", "\r\n"};
    for (size_t i = 0; i < 2; i++) {
        const answer_match match = answer_matches(parser, 0, breaks[i]);
        if (match == ANSWER_MAYBE) return false;
        if (match == ANSWER_NO) continue;
        parser->at += strlen(breaks[i]);
        break;
    }
    parser->value_begun = true;
    parser->scanned = 0;
    if (is_streamed(parser)) send(parser, ES_PART_ARGUMENTS, "\"", 1);
    return true;
}

/* Nor is the one before </parameter>. */
static size_t without_break(const es_answer_parser *parser, size_t end)
{
    const char *text = answer_text(parser);
    if (end > 0 && text[end - 1] == '\n') end--;
    if (end > 0 && text[end - 1] == '\r') end--;
    return end;
}

/* The first place from `scanned` on where the value may end. */
static answer_match find_end(const es_answer_parser *parser, size_t *at, size_t *space)
{
    const char *text = answer_text(parser);
    const size_t left = answer_left(parser);
    for (const char *c = text + parser->scanned; (c = memchr(c, '<', left - (size_t)(c - text))); c++) {
        *at = (size_t)(c - text);
        answer_match match = answer_matches(parser, *at, parameter_end);
        if (match == ANSWER_YES) match = tag_stands_after_space(parser, *at + strlen(parameter_end), space);
        if (match != ANSWER_NO) return match;
    }
    *at = left;
    return ANSWER_NO;
}

/* The text ends inside of a value: so do the arguments. */
static bool cut_off(es_answer_parser *parser)
{
    if (is_streamed(parser)) {
        send_string(parser, answer_left(parser));
    } else if (answer_left(parser)) {
        send(parser, ES_PART_ARGUMENTS, answer_text(parser), answer_left(parser));
        parser->at = parser->held.bytes;
    }
    send(parser, ES_PART_CALL_END, "", 0);
    return go(parser, ANSWER_ENDED);
}

bool answer_xml_value(es_answer_parser *parser)
{
    if (!parser->value_begun && !begin_value(parser)) return false;
    size_t at, space;
    const answer_match match = find_end(parser, &at, &space);
    if (match == ANSWER_NO && parser->final) return cut_off(parser);
    const size_t end = without_break(parser, at);
    if (match == ANSWER_YES) {
        const size_t skipped = at - end + strlen(parameter_end) + space;
        if (is_streamed(parser)) {
            send_string(parser, end);
            send(parser, ES_PART_ARGUMENTS, "\"", 1);
        } else {
            send_typed(parser, end);
        }
        parser->at += skipped;
        return go(parser, ANSWER_XML_TAG);
    }
    if (is_streamed(parser)) {
        send_string(parser, end);
        parser->scanned = 0;
    } else {
        parser->scanned = at;
    }
    return false;
}

/* ---- after a call ---- */

bool answer_call_after(es_answer_parser *parser)
{
    size_t space;
    if (answer_space(parser, 0, &space) == ANSWER_MAYBE) return false;
    if (parser->format.tools == ES_TOOLS_LLAMA) {
        /* the next one stands behind a semicolon, a line break or another mark */
        const bool more = space < answer_left(parser) && answer_text(parser)[space] == ';';
        parser->at += space + more;
        return more || go(parser, ANSWER_FIRST);
    }
    const answer_match match = answer_matches(parser, space, call_end);
    if (match == ANSWER_MAYBE) return false;
    parser->at += space + (match == ANSWER_YES ? strlen(call_end) : 0);
    return match == ANSWER_YES || go(parser, ANSWER_CONTENT);
}
