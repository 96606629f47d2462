/* answer.h: a call on its way: submitted to the backend, its events turned into a reply.
 *
 * Life, all of it on the loop thread:
 *   es_answer_new()       the request has arrived, a worker reads it
 *   es_answer_start()     it was read: its choices are submitted; a stream's headers go out at once
 *   es_answer_event()     once per engine event
 *   es_answer_fail()      from outside, when the server ends it
 *   es_answer_abandon()   the client left: the backend is told to stop
 * Whatever ends it sets `finished`; then the owner frees it. Each answer gives its connection exactly one reply. */
#ifndef ES_SERVE_ANSWER_H
#define ES_SERVE_ANSWER_H

#include "serve/call.h"
#include "serve/http_connection.h"
#include "serve/metrics.h"

/** One of the answers to one prompt. */
typedef struct es_choice {
    es_text text;
    es_text delta;            /**< streams: text of the token at hand */
    json_t *logprobs;         /**< array (chat) or object of arrays (completions); NULL when not asked for */
    json_t *token_ids;        /**< array; NULL when not asked for */
    size_t characters;        /**< of text, for text_offset */
    bool begun, ended;
    es_finish finish;
    int64_t cached_tokens, completion_tokens;
    int64_t prompt_done;      /**< prompt tokens that the engine has behind it */
    int64_t tokens;           /**< of the answer so far */
    uint64_t last_token;      /**< when it came, on the metrics' clock */
} es_choice;

typedef struct es_answer {
    uint64_t serial;
    struct es_answer *next;         /**< the owner's list */
    const es_api_context *api;
    es_metrics *metrics;
    uint64_t began;                 /**< on the metrics' clock: the request was whole */
    es_http_connection *connection; /**< NULL once the reply is complete or the client gone */
    es_call_kind kind;
    es_call call;                   /**< valid once `choices` is set */
    es_choice *choices;
    size_t choice_count, ended;
    bool streaming;                 /**< the reply's head is out */
    bool finished;
    int64_t created;
    char id[48];
    es_text out;                    /**< scratch */
} es_answer;

/** A key names an answer by its serial number and one of its choices. */
uint64_t es_answer_key(const es_answer *answer, size_t choice);
uint64_t es_answer_serial_of_key(uint64_t key);

/** `unique` makes the id differ from those of other servers. NULL when memory is short. */
es_answer *es_answer_new(const es_api_context *api, es_metrics *metrics, es_http_connection *connection, es_call_kind kind,
                         uint64_t serial, uint64_t unique);
void es_answer_free(es_answer *answer);

/** Takes over `call`. */
void es_answer_start(es_answer *answer, es_call *call);
void es_answer_event(es_answer *answer, const es_event *event);
void es_answer_fail(es_answer *answer, const es_api_error *error);
void es_answer_abandon(es_answer *answer);

/* answer_json.c: what is sent. */

/** Note a token's logprob and number in the choice, as far as they were asked for. */
void es_choice_add_token(const es_answer *answer, es_choice *choice, const es_event *event);
/** A chunk of a stream. `role`: the first of a chat choice; `finish`: its finish_reason, or NULL. Takes what the choice holds
 *  since the last chunk. */
json_t *es_answer_chunk(const es_answer *answer, size_t choice, bool role, const char *finish);
/** The chunk with usage and no choices. */
json_t *es_answer_usage_chunk(const es_answer *answer);
/** The whole reply. */
json_t *es_answer_whole(const es_answer *answer);

#endif
