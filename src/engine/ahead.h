/* ahead.h: the memory of the next pages and states is made present before a step needs it.
 *
 * Caches are mapped, and a machine gives a mapped page its memory when it is first written. In a step that is dear: a hybrid
 * model's state of 19 MB took 90 ms to copy into memory never used before, 2 ms into memory that was. So a thread of low
 * priority stays a little ahead of the highest page and state that were ever taken. What is never used is never made present,
 * so that a large --memory costs nobody anything until it is filled. */
#ifndef ES_ENGINE_AHEAD_H
#define ES_ENGINE_AHEAD_H

#include <pthread.h>

#include "model/network.h"

typedef struct es_ahead {
    es_network *network;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    int32_t pages, states;       /**< how many there are; below: numbers under these are to be present, and are */
    int32_t wanted_pages, wanted_states;
    int32_t page_margin, state_margin;
    bool started, stop;
} es_ahead;

/** Begin with the first ones. Where the device has nothing to prepare, or a thread cannot be had, nothing is done, then or later:
 *  steps pay for it. `network` has to outlive it. */
void es_ahead_open(es_ahead *ahead, es_network *network, int64_t pages, int64_t states);
/** The thread ends after the page or state it is at. */
void es_ahead_close(es_ahead *ahead);
/** Pages and states below these numbers have been taken at some time. Never waits for memory. */
void es_ahead_note(es_ahead *ahead, int64_t pages, int64_t states);

#endif
