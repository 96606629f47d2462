/* sequence.h: one request on its way from prompt to answer.
 *
 * A sequence owns a copy of everything its request said, its tokens, its block table and its answer's unfinished text. All
 * of it is allocated when the request is submitted, in one block: steps allocate nothing. */
#ifndef ES_ENGINE_SEQUENCE_H
#define ES_ENGINE_SEQUENCE_H

#include <stdatomic.h>

#include "base/error.h"
#include "evenshare/engine.h"
#include "text/grammar.h"

/** Beginnings of messages whose states are kept, and the last-but-one token of the prompt. */
#define ES_SEQUENCE_STOPS 4
/** Inside long texts, states are kept at multiples of this. */
#define ES_SEQUENCE_STRIDE 2048
/** And at the ends of steps that are no nearer than this: a copy at every step would cost a short step some per cent. */
#define ES_SEQUENCE_SPACING 256

typedef struct es_sequence {
    struct es_sequence *next;  /**< in the mailbox, or among the waiting */
    uint64_t id;
    es_request request;        /**< its pointers lead into this sequence's own copies */
    es_token *tokens;          /**< [capacity] prompt, then answer */
    int64_t count, capacity;   /**< tokens there are; most there can be */
    int64_t prompt_count;
    int64_t computed;          /**< tokens whose keys, values and state are in the caches */
    int64_t promised;          /**< tokens that it may reach before it has to ask for pages */
    int32_t *pages;            /**< [page_count of page_capacity] block table, filled at admission */
    int64_t page_count, page_capacity;
    int32_t slot;              /**< state slot, −1 while it has no place */
    bool admitted;             /**< it has a place, pages and a slot */
    bool paused;               /**< it waits in its place for a page */
    int32_t moves;             /**< times that it was moved out */
    int64_t cached;            /**< prompt tokens that came from the prefix cache when it was first admitted */
    int64_t resumed;           /**< tokens it had when it got its place */
    int64_t logits_next;       /**< the next position whose logits the caller gets */
    int64_t kept_at;           /**< where its state was last kept, or where it got its place */
    int64_t stop_at[ES_SEQUENCE_STOPS]; /**< prompt positions where the state is worth keeping, ascending; 0: none */
    _Atomic bool cancelled;
    _Atomic bool asked_to_pause; /**< es_engine_pause() */

    double *pool;              /**< [hidden] sum of final states; NULL without request.pooling */
    float *embedding;          /**< [hidden] */

    es_grammar *grammar;       /**< owned; NULL: any text will do. See constraint.h */
    size_t after_seen;         /**< bytes of request.grammar_after that the answer ends with */
    int64_t grammar_from;      /**< index of the first token that the grammar rules; −1: grammar_after has not come yet */
    size_t grammar_skip;       /**< bytes of that token that lie before it */

    es_detokenizer *detokenizer;
    char *held;                /**< text that may be the beginning of a stop string */
    size_t held_bytes, held_capacity, longest_stop;

    uint64_t submitted_at, started_at, first_token_at; /**< nanoseconds */
    int32_t step_row, step_rows;                       /**< its rows in the current step */
} es_sequence;

/** Copy a request. ES_INVALID / ES_TOO_LONG when it can never run; limits come from the engine. */
typedef struct es_sequence_limits {
    const es_model *model;
    int64_t context;   /**< most tokens of a sequence */
    int64_t reserve;   /**< tokens promised to an answer whose length is not given */
    int32_t page;
    bool has_pages;    /**< the model has attention layers */
} es_sequence_limits;
es_status es_sequence_open(const es_request *request, const es_sequence_limits *limits, es_sequence **sequence);
void es_sequence_close(es_sequence *sequence);

/** Pages that it must have when it gets its place: for what it was promised, and for one token more than it has. */
int64_t es_sequence_pages(const es_sequence *sequence, int32_t page);
/** True once its prompt and all but the last token of its answer are computed: its next row chooses a token. */
bool es_sequence_decodes(const es_sequence *sequence);
/** The position up to which it may be computed in one go: the next place where the state is worth keeping, or the end of what
 *  there is. `recurrent`: the model has states at all. */
int64_t es_sequence_until(const es_sequence *sequence, bool recurrent);
/** True where a prompt's state is worth keeping: at one of those places, or at the end of a step, ES_SEQUENCE_SPACING tokens after
 *  the last one that was. */
bool es_sequence_worth_keeping(const es_sequence *sequence);

/** Whether something of its prompt's positions from logits_next on is still wanted that no cache has: logits, or final states. */
bool es_sequence_reads_prompt(const es_sequence *sequence);
/** Whether the final state of a position is part of its embedding, and still missing. */
bool es_sequence_pools(const es_sequence *sequence, int64_t position);
/** Take that state in, [hidden]; and, once all have been, fill in `embedding`. Positions come in order. */
void es_sequence_pool(es_sequence *sequence, int64_t position, const float *state, int32_t hidden);

/** Take a chosen token's text: *text is what may be sent now (valid until the next call); *stop is the stop string that was
 *  found, or NULL, in which case the text before it is all that will ever be sent. */
es_status es_sequence_add_text(es_sequence *sequence, es_token token, bool visible, const char **text, size_t *bytes,
                               const char **stop);
/** Tell its caller, on the engine's thread. Fills in event->request. */
void es_sequence_send(const es_sequence *sequence, es_event *event);
/** ES_EVENT_PROGRESS, where its request wants it. */
void es_sequence_send_progress(const es_sequence *sequence);
/** What is still held back when the answer ends without a stop string. */
void es_sequence_rest(es_sequence *sequence, const char **text, size_t *bytes);

#endif
