/* answer_parser.c: see answer_parser.h. A machine over what has come: each state hands on what no future text can change, and
 * waits where it could. */
#include "text/answer_parser.h"

#include <stdlib.h>
#include <string.h>

#include "text/answer_internal.h"

/* What a call may begin with; Llama's brace only where the answer begins. */
static const char *const tagged_marks[] = {"<tool_call>", "<function=", NULL}, *const llama_marks[] = {"{", "<|python_tag|>", NULL};

bool answer_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

answer_match answer_matches(const es_answer_parser *parser, size_t offset, const char *literal)
{
    const size_t left = answer_left(parser), wanted = strlen(literal);
    const size_t there = offset < left ? left - offset : 0;
    if (memcmp(answer_text(parser) + (there ? offset : 0), literal, there < wanted ? there : wanted) != 0) return ANSWER_NO;
    if (there >= wanted) return ANSWER_YES;
    return parser->final ? ANSWER_NO : ANSWER_MAYBE;
}

answer_match answer_space(const es_answer_parser *parser, size_t offset, size_t *bytes)
{
    const char *text = answer_text(parser);
    const size_t left = answer_left(parser);
    size_t n = 0;
    while (offset + n < left && n <= ANSWER_SPACE_MAX && answer_is_space(text[offset + n])) n++;
    *bytes = n > ANSWER_SPACE_MAX ? ANSWER_SPACE_MAX : n;
    if (n > ANSWER_SPACE_MAX) return ANSWER_NO;
    return offset + n < left || parser->final ? ANSWER_YES : ANSWER_MAYBE;
}

void answer_emit(es_answer_parser *parser, es_part part, size_t bytes)
{
    if (bytes) parser->on_part(parser->user, part, answer_text(parser), bytes);
    parser->at += bytes;
}

static bool go(es_answer_parser *parser, answer_state next)
{
    parser->state = next;
    return true;
}

/* The first of `marks` that stands in the text, or that the text ends inside of; its place in *at. */
static answer_match find_mark(const es_answer_parser *parser, const char *const *marks, size_t *at, size_t *which)
{
    const char *text = answer_text(parser);
    const size_t left = answer_left(parser);
    for (const char *c = text; (c = memchr(c, '<', left - (size_t)(c - text))); c++) {
        *at = (size_t)(c - text);
        for (*which = 0; marks[*which]; ++*which) {
            const answer_match match = answer_matches(parser, *at, marks[*which]);
            if (match != ANSWER_NO) return match;
        }
    }
    *at = left;
    return ANSWER_NO;
}

/* Where the white space before `end` begins, as far as a mark there would swallow it. */
static size_t space_before(const es_answer_parser *parser, size_t end)
{
    size_t at = end;
    while (at > 0 && end - at < ANSWER_SPACE_MAX && answer_is_space(answer_text(parser)[at - 1])) at--;
    return at;
}

static bool start(es_answer_parser *parser)
{
    size_t space;
    const answer_match match = answer_space(parser, 0, &space);
    if (match == ANSWER_MAYBE) return false;
    const answer_match mark = match == ANSWER_YES ? answer_matches(parser, space, "<think>") : ANSWER_NO;
    if (mark == ANSWER_MAYBE) return false;
    if (mark == ANSWER_NO) return go(parser, ANSWER_FIRST);
    parser->at += space + strlen("<think>");
    return go(parser, ANSWER_THINK);
}

/* White space that belongs to the mark before it. */
static bool skip_space(es_answer_parser *parser, answer_state next)
{
    size_t space;
    if (answer_space(parser, 0, &space) == ANSWER_MAYBE) return false;
    parser->at += space;
    return go(parser, next);
}

static bool reasoning(es_answer_parser *parser)
{
    static const char *const marks[] = {"</think>", NULL};
    size_t at, which;
    const answer_match match = find_mark(parser, marks, &at, &which);
    if (match == ANSWER_NO && parser->final) {
        answer_emit(parser, ES_PART_REASONING, space_before(parser, at));
        parser->at = parser->held.bytes;
        return go(parser, ANSWER_ENDED);
    }
    const size_t text = space_before(parser, at);
    answer_emit(parser, ES_PART_REASONING, text);
    if (match != ANSWER_YES) return false;
    parser->at += at - text + strlen(marks[0]);
    return go(parser, ANSWER_AFTER);
}

static bool try_call(es_answer_parser *parser, size_t mark, bool bare)
{
    parser->mark = mark;
    parser->bare = bare;
    return go(parser, ANSWER_CALL_HEAD);
}

/* Where calls stand alone, what begins with no mark of one is content to its end. */
static bool settle_calls(es_answer_parser *parser, const char *const *marks)
{
    size_t space;
    answer_match any = answer_space(parser, 0, &space);
    if (any == ANSWER_MAYBE) return false;
    const bool far = any == ANSWER_NO; /* behind too much white space */
    any = ANSWER_NO;
    for (size_t i = 0; !far && marks[i] && any != ANSWER_YES; i++) {
        const answer_match match = answer_matches(parser, space, marks[i]);
        if (match != ANSWER_NO) any = match;
    }
    if (any == ANSWER_MAYBE) return false;
    if (any == ANSWER_NO) parser->format.tools = ES_TOOLS_NONE;
    parser->format.calls_alone = false;
    return true;
}

static bool first(es_answer_parser *parser)
{
    if (parser->format.calls_alone && parser->format.tools != ES_TOOLS_NONE)
        return settle_calls(parser, parser->format.tools == ES_TOOLS_LLAMA ? llama_marks : tagged_marks);
    if (parser->format.tools != ES_TOOLS_LLAMA) return go(parser, ANSWER_CONTENT);
    size_t space;
    const answer_match match = answer_space(parser, 0, &space);
    if (match == ANSWER_MAYBE) return false;
    if (match == ANSWER_NO || space == answer_left(parser) || answer_text(parser)[space] != '{')
        return go(parser, ANSWER_CONTENT);
    return try_call(parser, space, true);
}

static bool content(es_answer_parser *parser)
{
    if (parser->format.tools == ES_TOOLS_NONE) {
        answer_emit(parser, ES_PART_CONTENT, answer_left(parser));
        return parser->final && go(parser, ANSWER_ENDED);
    }
    const char *const *marks = parser->format.tools == ES_TOOLS_LLAMA ? llama_marks + 1 : tagged_marks;
    size_t at, which;
    const answer_match match = find_mark(parser, marks, &at, &which);
    if (match == ANSWER_NO && parser->final) {
        answer_emit(parser, ES_PART_CONTENT, at);
        return go(parser, ANSWER_ENDED);
    }
    const size_t text = space_before(parser, at);
    answer_emit(parser, ES_PART_CONTENT, text);
    if (match != ANSWER_YES) return false;
    /* <function= is both mark and head: the head begins with it */
    const bool bare = marks[which][1] == 'f';
    return try_call(parser, at - text + (bare ? 0 : strlen(marks[which])), bare);
}

static bool step(es_answer_parser *parser)
{
    switch (parser->state) {
    case ANSWER_START: return start(parser);
    case ANSWER_THINK: return skip_space(parser, ANSWER_REASONING);
    case ANSWER_REASONING: return reasoning(parser);
    case ANSWER_AFTER: return skip_space(parser, ANSWER_FIRST);
    case ANSWER_FIRST: return first(parser);
    case ANSWER_CONTENT: return content(parser);
    case ANSWER_CALL_HEAD: return answer_call_head(parser);
    case ANSWER_CALL_JSON: return answer_call_json(parser);
    case ANSWER_CALL_ARGUMENTS: return answer_call_arguments(parser);
    case ANSWER_CALL_CLOSE: return answer_call_close(parser);
    case ANSWER_XML_TAG: return answer_xml_tag(parser);
    case ANSWER_XML_VALUE: return answer_xml_value(parser);
    case ANSWER_CALL_AFTER: return answer_call_after(parser);
    case ANSWER_ENDED: break;
    }
    return false;
}

static es_status run(es_answer_parser *parser)
{
    if (parser->held.failed) return es_fail(ES_NO_MEMORY, "no memory for an answer that is taken apart");
    while (step(parser)) {
    }
    if (parser->held.failed) return es_fail(ES_NO_MEMORY, "no memory for an answer that is taken apart");
    const size_t left = answer_left(parser);
    if (parser->at && left) memmove(parser->held.data, answer_text(parser), left);
    parser->held.bytes = left;
    parser->at = 0;
    return ES_OK;
}

es_status es_answer_parser_open(es_answer_format format, json_t *tools, es_part_fn on_part, void *user, es_answer_parser **out)
{
    es_answer_parser *parser = calloc(1, sizeof *parser);
    if (!parser) return es_fail(ES_NO_MEMORY, "no memory for an answer that is taken apart");
    parser->format = format;
    if (json_array_size(tools) == 0) parser->format.tools = ES_TOOLS_NONE;
    parser->tools = json_incref(tools);
    parser->on_part = on_part;
    parser->user = user;
    parser->state = format.reasoning == ES_REASONING_NONE ? ANSWER_FIRST : format.in_reasoning ? ANSWER_THINK : ANSWER_START;
    *out = parser;
    return ES_OK;
}

void es_answer_parser_close(es_answer_parser *parser)
{
    if (!parser) return;
    json_decref(parser->tools);
    json_decref(parser->parameters);
    es_text_free(&parser->held);
    free(parser);
}

es_status es_answer_parser_add(es_answer_parser *parser, const char *text, size_t bytes)
{
    es_text_append(&parser->held, text, bytes);
    return run(parser);
}

es_status es_answer_parser_finish(es_answer_parser *parser)
{
    parser->final = true;
    return run(parser);
}

bool es_answer_parser_is_reasoning(const es_answer_parser *parser)
{
    return parser->state == ANSWER_THINK || parser->state == ANSWER_REASONING;
}
