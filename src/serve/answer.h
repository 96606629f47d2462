/* answer.h: a call on its way: submitted to the backend, its events turned into a reply.
 *
 * Life, all of it on the loop thread:
 *   es_answer_new()       the request has arrived, a worker reads it
 *   es_answer_start()     it was read: its choices are submitted; a stream's headers go out at once
 *   es_answer_reply()     or it was answered already: nothing goes to the engine
 *   es_answer_event()     once per engine event
 *   es_answer_fail()      from outside, when the server ends it
 *   es_answer_abandon()   the client left: the backend is told to stop
 * Whatever ends it sets `finished`; then the owner frees it. Each answer gives its connection exactly one reply. */
#ifndef ES_SERVE_ANSWER_H
#define ES_SERVE_ANSWER_H

#include "serve/call.h"
#include "serve/http_connection.h"
#include "serve/message.h"
#include "serve/metrics.h"

/** One of the answers to one prompt. */
typedef struct es_choice {
    es_message message;
    json_t *logprobs;  /**< array (chat) or object of arrays (completions); NULL when not asked for */
    float *embedding;  /**< [embedding_count] as the engine gave it; NULL when not asked for */
    int embedding_count;
    json_t *token_ids; /**< array; NULL when not asked for */
    size_t characters; /**< of text, for text_offset */
    size_t echoed;     /**< bytes of the prompt's text whose tokens have been noted */
    bool begun, ended;
    bool moved_out; /**< it lost its place for a while: ES_EVENT_MOVED was the last that came */
    size_t open_blocks, closed_blocks; /**< streams of blocks: how many have begun and ended */
    bool cut; /**< stopped here: the one call that was wanted is whole */
    es_finish finish;
    char *stop_string; /**< what ended it, or NULL */
    int64_t cached_tokens, completion_tokens;
    int64_t prompt_done; /**< prompt tokens that the engine has behind it */
    int64_t tokens;      /**< of the answer so far */
    uint64_t last_token; /**< when it came, on the metrics' clock */
} es_choice;

typedef struct es_answer es_answer;

/** How an API says what happens: one table for each. In a stream every function sends its own events (es_answer_send()); what
 *  there is to say stands in the choice's message. */
typedef struct es_shape {
    void (*start)(es_answer *answer);                           /**< the stream begins; may be NULL, as may be the next one */
    void (*begin)(es_answer *answer, size_t choice);            /**< before a choice's first token */
    void (*more)(es_answer *answer, size_t choice);             /**< a token came: its pieces, perhaps none */
    void (*end)(es_answer *answer, size_t choice);              /**< the choice is whole */
    void (*finish)(es_answer *answer);                          /**< all are; nothing is sent behind it */
    void (*fail)(es_answer *answer, const es_api_error *error); /**< nothing more will come */
    json_t *(*whole)(const es_answer *answer);                  /**< the reply that is no stream */
    json_t *(*error)(const es_api_error *error);                /**< the body of one that is an error */
    /** How far the prompt of a choice is, after `begin`; NULL: this API has no word for it. */
    void (*progress)(es_answer *answer, size_t choice, const es_event *event);
} es_shape;

struct es_answer {
    uint64_t serial;
    struct es_answer *next; /**< the owner's list */
    const es_api_context *api;
    es_metrics *metrics;
    uint64_t began;                 /**< on the metrics' clock: the request was whole */
    es_http_connection *connection; /**< NULL once the reply is complete or the client gone */
    es_call_kind kind;
    es_call call; /**< valid once `choices` is set */
    es_choice *choices;
    size_t choice_count, ended;
    bool streaming; /**< the reply's head is out, and it is a stream */
    bool beating;   /**< the reply's head is out, and white space; the JSON follows */
    uint64_t sent;  /**< when something was last sent, on the metrics' clock */
    bool finished;
    int64_t created;
    char id[48];
    es_text out; /**< scratch */
    const es_shape *shape;
    int64_t events; /**< sent so far, where they are numbered */
};

/** A key names an answer by its serial number and one of its choices. */
uint64_t es_answer_key(const es_answer *answer, size_t choice);
uint64_t es_answer_serial_of_key(uint64_t key);

/** `unique` makes the id differ from those of other servers. NULL when memory is short. */
es_answer *es_answer_new(const es_api_context *api, es_metrics *metrics, es_http_connection *connection, es_call_kind kind,
                         uint64_t serial, uint64_t unique);
void es_answer_free(es_answer *answer);

/** Takes over `call`. */
void es_answer_start(es_answer *answer, es_call *call);
/** Not an answer of the engine: a worker has written the reply. */
void es_answer_reply(es_answer *answer, const json_t *json);
void es_answer_event(es_answer *answer, const es_event *event);
void es_answer_fail(es_answer *answer, const es_api_error *error);
void es_answer_abandon(es_answer *answer);
/** The client does not keep up with what it is sent, or does again: the backend pauses its work. */
void es_answer_pause(es_answer *answer, bool paused);
/** Send a sign of life when nothing was sent for `most` nanoseconds: a comment into a stream, white space where the call asked
 *  for a heartbeat. */
void es_answer_keep_alive(es_answer *answer, uint64_t most);

/** An event of a stream, `name` NULL: one without a name. Takes over `json`. */
void es_answer_send(es_answer *answer, const char *name, json_t *json);
/** Send what stands in answer->out. */
void es_answer_flush(es_answer *answer);
const es_shape *es_shape_of(es_call_kind kind);

/* answer_json.c: OpenAI's chat and completions. */

extern const es_shape es_shape_openai;
/** Note a token's logprob and number in the choice, as far as they were asked for. */
void es_choice_add_token(const es_answer *answer, es_choice *choice, const es_event *event);
/** Note a prompt's token, number `at`, where its echo has log-probabilities; `event` NULL: there is none before the first. */
void es_choice_add_prompt(const es_answer *answer, size_t choice, size_t at, const es_event *event);
/** "stop", "length" or "tool_calls". */
const char *es_choice_finish_reason(const es_choice *choice);

extern const es_shape es_shape_responses; /**< answer_responses.c: OpenAI's Responses API */
extern const es_shape es_shape_embeddings; /**< answer_embeddings.c: never a stream */
extern const es_shape es_shape_messages;  /**< answer_messages.c: Anthropic's Messages API */

/** What all choices cost. */
typedef struct es_usage {
    int64_t prompt, cached, completion, reasoning;
} es_usage;
es_usage es_answer_usage(const es_answer *answer);

#endif
