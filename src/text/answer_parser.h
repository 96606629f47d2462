/* answer_parser.h: what a model writes, taken apart: its reasoning, its answer, and the calls of tools in it.
 *
 *   es_answer_parser *parser;
 *   es_answer_parser_open(format, tools, on_part, user, &parser);
 *   es_answer_parser_add(parser, text, bytes);      // as often as text comes
 *   es_answer_parser_finish(parser);                // no more comes
 *   es_answer_parser_close(parser);
 *
 * The parts that come out do not depend on how the text was cut into pieces. What looks like a call and is none comes out as
 * content, byte for byte; the white space next to marks (<think>, <tool_call>) belongs to them and is dropped, 64 bytes of it
 * at most. Work and memory are linear in the text. */
#ifndef ES_TEXT_ANSWER_PARSER_H
#define ES_TEXT_ANSWER_PARSER_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

/** How a model marks its reasoning. */
typedef enum es_reasoning_form {
    ES_REASONING_NONE,  /**< not at all: everything is content */
    ES_REASONING_THINK, /**< <think>...</think> before the answer */
} es_reasoning_form;

/** How a model writes a call. */
typedef enum es_tool_form {
    ES_TOOLS_NONE,
    ES_TOOLS_XML,    /**< <tool_call><function=F><parameter=P>value</parameter></function></tool_call>: Qwen3.5, Qwen3-Coder */
    ES_TOOLS_HERMES, /**< <tool_call>{"name": F, "arguments": {...}}</tool_call>: Hermes, Qwen2.5, Qwen3 */
    ES_TOOLS_LLAMA,  /**< {"name": F, "parameters": {...}}, perhaps after <|python_tag|>: Llama 3 */
} es_tool_form;

typedef struct es_answer_format {
    es_reasoning_form reasoning;
    es_tool_form tools; /**< XML and HERMES read each other's calls too */
    bool in_reasoning;  /**< the prompt has opened the reasoning already */
    bool calls_alone;   /**< an answer calls from its first character on or not at all: content may look like anything */
} es_answer_format;

typedef enum es_part {
    ES_PART_REASONING, /**< more of the reasoning */
    ES_PART_CONTENT,   /**< more of the answer */
    ES_PART_CALL,      /**< a call begins: the function's name, whole */
    ES_PART_ARGUMENTS, /**< more of the call's arguments, one JSON object in all */
    ES_PART_CALL_END,  /**< the call is whole, or the text ended inside it: then the JSON is cut off. No text */
} es_part;

/** One part; `bytes` is 0 for ES_PART_CALL_END only. The text is valid during the call. */
typedef void (*es_part_fn)(void *user, es_part part, const char *text, size_t bytes);

typedef struct es_answer_parser es_answer_parser;

/** `tools`: the request's tools in OpenAI's shape, or NULL; kept as a reference. Without tools there are no calls, whatever
 * the format says. */
es_status es_answer_parser_open(es_answer_format format, json_t *tools, es_part_fn on_part, void *user,
                                es_answer_parser **parser);
void es_answer_parser_close(es_answer_parser *parser);

/** Both call on_part before they return. ES_NO_MEMORY: nothing more will come out. */
es_status es_answer_parser_add(es_answer_parser *parser, const char *text, size_t bytes);
es_status es_answer_parser_finish(es_answer_parser *parser);
/** The text so far ends inside of the reasoning. */
bool es_answer_parser_is_reasoning(const es_answer_parser *parser);

#endif
