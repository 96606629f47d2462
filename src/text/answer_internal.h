/* answer_internal.h: what answer_parser.c (marks, reasoning, content) and answer_call.c (calls) share. */
#ifndef ES_TEXT_ANSWER_INTERNAL_H
#define ES_TEXT_ANSWER_INTERNAL_H

#include "base/text.h"
#include "text/answer_parser.h"
#include "text/json_scan.h"

enum { ANSWER_SPACE_MAX = 64, ANSWER_NAME_MAX = 128 };

typedef enum answer_state {
    ANSWER_START, /* white space, perhaps <think> */
    ANSWER_THINK, /* white space after <think> */
    ANSWER_REASONING,
    ANSWER_AFTER, /* white space after </think> */
    ANSWER_FIRST, /* the answer's first characters: Llama writes a bare call there and nowhere else */
    ANSWER_CONTENT,
    ANSWER_CALL_HEAD, /* at a mark that may begin a call */
    ANSWER_CALL_JSON, /* inside of what may be a call's JSON */
    ANSWER_CALL_ARGUMENTS, /* inside of its arguments, which are handed on */
    ANSWER_CALL_CLOSE, /* behind them, in what is left of its JSON */
    ANSWER_XML_TAG,   /* at <parameter=...>, </function> or </tool_call>, whole */
    ANSWER_XML_VALUE,
    ANSWER_CALL_AFTER, /* white space and closing marks after a call */
    ANSWER_ENDED,
} answer_state;

struct es_answer_parser {
    es_answer_format format;
    json_t *tools;
    es_part_fn on_part;
    void *user;
    answer_state state;
    bool final;   /* nothing more comes: what cannot be decided yet is decided as it stands */
    es_text held; /* from `at` on: not handed on yet */
    size_t at;
    /* a call */
    size_t mark;    /* bytes from `at` to behind the mark that may begin it, white space before it included */
    bool bare;      /* no mark says that it is one: its name must be a tool's */
    size_t scanned; /* bytes from `at` on that have been looked at */
    es_json_scan scan;
    bool looked;    /* whether its arguments begin here has been asked once */
    const json_t *function;
    json_t *parameters; /* names already seen, as the members of an object */
    unsigned types;     /* of the parameter at hand */
    bool value_begun;
};

typedef enum answer_match { ANSWER_NO, ANSWER_YES, ANSWER_MAYBE /* the text ends inside of it */ } answer_match;

/* answer_parser.c */
static inline const char *answer_text(const es_answer_parser *parser)
{
    return parser->held.data ? parser->held.data + parser->at : "";
}
static inline size_t answer_left(const es_answer_parser *parser)
{
    return parser->held.bytes - parser->at;
}
bool answer_is_space(char c);
/** Whether `literal` stands `offset` bytes after `at`. */
answer_match answer_matches(const es_answer_parser *parser, size_t offset, const char *literal);
/** Bytes of white space `offset` bytes after `at`; MAYBE as long as more may come. More than ANSWER_SPACE_MAX is NO. */
answer_match answer_space(const es_answer_parser *parser, size_t offset, size_t *bytes);
/** Hand on `bytes` bytes from `at` on, and pass them. */
void answer_emit(es_answer_parser *parser, es_part part, size_t bytes);

/* answer_call.c: each does what it can; false when it needs more text. */
bool answer_call_head(es_answer_parser *parser);
bool answer_call_json(es_answer_parser *parser);
bool answer_call_arguments(es_answer_parser *parser);
bool answer_call_close(es_answer_parser *parser);
bool answer_xml_tag(es_answer_parser *parser);
bool answer_xml_value(es_answer_parser *parser);
bool answer_call_after(es_answer_parser *parser);

#endif
