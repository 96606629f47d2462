/* stream.h: one answer at a time, handed from the engine's thread to the one that prints it.
 *
 * The engine's callbacks must not block, and a terminal or a pipe does: so events wait in a buffer, and the calling thread
 * writes them out. While it waits it also listens for Ctrl-C, which stops the answer and not the program. */
#ifndef ES_CLI_STREAM_H
#define ES_CLI_STREAM_H

#include "base/text.h"
#include "evenshare/engine.h"

typedef struct es_stream es_stream;

/** Blocks SIGINT for the calling thread and those it starts later: open the stream before the engine. */
es_status es_stream_open(es_stream **stream);
void es_stream_close(es_stream *stream);

/** Called on the caller's thread. Each may be NULL. */
typedef struct es_stream_sink {
    void (*text)(void *user, const char *text, size_t bytes);
    void (*progress)(void *user, int64_t done, int64_t total);
    void *user;
} es_stream_sink;

/** How an answer ended. Free with es_stream_result_free(). */
typedef struct es_stream_result {
    es_text text;        /**< all of it */
    es_token *tokens;    /**< [completion_tokens], owned */
    float *logprobs;     /**< [completion_tokens], owned; only with request.logprobs */
    size_t token_count;
    es_finish finish;
    bool interrupted;    /**< by Ctrl-C */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    double prompt_seconds, completion_seconds;
} es_stream_result;

/** Submit a request and see it through; its callbacks and user pointer are set here. What the engine reports as an error
 *  comes back as its status. `sink` may be NULL. */
es_status es_stream_answer(es_stream *stream, es_engine *engine, const es_request *request, const es_stream_sink *sink,
                           es_stream_result *result);
void es_stream_result_free(es_stream_result *result);

/** Wait until `fd` can be read: true; or until Ctrl-C: false. For a prompt line. */
bool es_stream_wait_input(es_stream *stream, int fd);

#endif
