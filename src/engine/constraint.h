/* constraint.h: answers that follow a grammar (text/grammar.h).
 *
 * A grammar is compiled when its request is submitted. A matcher, some megabytes of fixed size, belongs to the engine; a
 * sequence that is to be given a token borrows one. Where an answer stands in its grammar follows from its tokens alone, so a
 * matcher that was lent to somebody else meanwhile reads them again: sequences can be forked, preempted and resumed without
 * anything to save. */
#ifndef ES_ENGINE_CONSTRAINT_H
#define ES_ENGINE_CONSTRAINT_H

#include <pthread.h>

#include "engine/sequence.h"

typedef struct es_constraints {
    const es_model *model;
    int32_t count;        /**< matchers: sequences at once */
    pthread_mutex_t lock; /**< of the making of the rest, by the first request that has a grammar */
    bool ready;
    es_token_trie *trie;
    es_matcher **matcher; /**< [count] */
    uint64_t *owner;      /**< [count] sequence that a matcher stands with; 0: none */
    int64_t *read;        /**< [count] tokens of that sequence it has read */
    uint64_t *used;       /**< [count] when it was used last */
    uint64_t uses;
    uint8_t *mask; /**< [(vocabulary + 7) / 8] */
} es_constraints;

/** Takes no memory yet. */
void es_constraints_open(const es_model *model, int32_t count, es_constraints *constraints);
void es_constraints_close(es_constraints *constraints);

/** From any thread: compile the request's grammar into sequence->grammar. ES_INVALID as es_grammar_compile(); ES_NO_MEMORY. */
es_status es_constraint_compile(es_constraints *constraints, const es_request *request, es_sequence *sequence);

/** What may come next. */
typedef struct es_allowed {
    const uint8_t *mask; /**< for es_sample_input; valid until the next call; NULL: everything may */
    bool may_stop;       /**< stop tokens may come, and end the answer */
    bool over;           /**< nothing can come: the answer is whole */
} es_allowed;

/** On the engine's thread; allocates nothing. `sequence` has a grammar and gets its next token now. */
es_status es_constraint_allow(es_constraints *constraints, es_sequence *sequence, es_allowed *allowed);
/** On the engine's thread, before `token` is added to the sequence. *over: nothing can follow it. */
es_status es_constraint_take(es_constraints *constraints, es_sequence *sequence, es_token token, bool *over);

#endif
