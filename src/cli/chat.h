/* chat.h: a conversation on a terminal. */
#ifndef ES_CLI_CHAT_H
#define ES_CLI_CHAT_H

#include "cli/saying.h"
#include "cli/settings.h"
#include "cli/stream.h"

/** What a conversation and a single answer have in common. */
typedef struct es_asking {
    const es_command *command;
    const es_model *model;
    es_engine *engine;
    es_stream *stream;
    const es_sampling_settings *sampling;
    const char *system;    /**< what the model is told first, or NULL */
    const char *thinking;  /**< "on", "off", or NULL: the template's own default */
    es_answer_format format; /**< how the model marks its reasoning */
    const es_text *form;   /**< a grammar in GBNF that answers follow; NULL or empty: none */
    bool raw;              /**< no chat template */
    bool figures;          /**< a line about speed after each answer */
    bool live;             /**< standard output is a terminal */
    bool forget;           /**< what is typed is not kept for the next time */
} es_asking;

/** Answer a prompt that is text: rendered already, special tokens written out. Text goes to standard output as it comes
 *  unless `quiet`. On ES_OK free `saying` and `result`. */
es_status es_ask(const es_asking *asking, const char *prompt, size_t bytes, bool quiet, es_saying *saying, es_stream_result *result);
/** A line of figures on standard error. */
void es_print_figures(const es_stream_result *result);

/** Talk until Ctrl-D or /exit; returns the exit code. */
int es_chat(const es_asking *asking);

#endif
