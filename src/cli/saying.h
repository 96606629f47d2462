/* saying.h: an answer on its way to the screen, its reasoning told from what it says.
 *
 * On a terminal the reasoning is dimmed and stands above the answer; elsewhere only the answer is written, so that a pipe gets
 * nothing else. */
#ifndef ES_CLI_SAYING_H
#define ES_CLI_SAYING_H

#include "base/text.h"
#include "text/answer_parser.h"

typedef struct es_saying {
    es_answer_parser *parser;
    es_text reasoning, answer; /**< all of it */
    bool quiet;                /**< nothing is written */
    bool live;                 /**< standard output is a terminal */
    bool dim;                  /**< reasoning is being written */
    char last;                 /**< the last byte written, or a newline */
} es_saying;

/** ES_NO_MEMORY. */
es_status es_saying_open(es_answer_format format, bool live, bool quiet, es_saying *saying);
/** More of the model's text. */
es_status es_saying_add(es_saying *saying, const char *text, size_t bytes);
/** No more comes; the line is ended. */
es_status es_saying_finish(es_saying *saying);
void es_saying_free(es_saying *saying);

#endif
