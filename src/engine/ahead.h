/* ahead.h: the memory of the next pages and states is made present before a step needs it.
 *
 * Caches are mapped, and a machine gives a mapped page its memory when it is first written. In a step that is dear: on a virtual
 * machine a huge page took 3 to 5 ms, so that a hybrid model's state of 19 MB took 90 ms to copy into memory never used before, and 2 ms
 * into memory that was. So a thread prepares what will be written next: the pages in front of every prompt, a few in front of an
 * answer, and what is handed out next; it rests three times as long as it worked, since it takes a worker's processor meanwhile.
 * What is never used is never made present, so that a large --memory costs nobody anything until it is filled. */
#ifndef ES_ENGINE_AHEAD_H
#define ES_ENGINE_AHEAD_H

#include <pthread.h>

#include "model/network.h"

typedef enum es_ahead_kind { ES_AHEAD_STATES, ES_AHEAD_PAGES, ES_AHEAD_KINDS } es_ahead_kind;

/** Numbers of one kind: each is asked for once. */
typedef struct es_ahead_list {
    bool *asked;    /**< [total] the engine's thread alone looks */
    int32_t *queue; /**< [total] in the order in which they were asked for */
    int32_t total, count, margin;
} es_ahead_list;

typedef struct es_ahead {
    es_network *network;
    pthread_mutex_t lock; /**< of both queues */
    pthread_cond_t wake;
    pthread_t thread;
    es_ahead_list list[ES_AHEAD_KINDS];
    bool started, stop;
} es_ahead;

/** Where the device has nothing to prepare, or memory or a thread cannot be had, nothing is done, then or later: steps pay for it.
 *  `network` has to outlive it. */
void es_ahead_open(es_ahead *ahead, es_network *network, int64_t pages, int64_t states);
/** The thread ends after the part of a page or state that it is at. */
void es_ahead_close(es_ahead *ahead);

/** How many of a kind to ask for before they are handed out, and pages in front of a prompt: 192 MB of those, or an eighth. */
int32_t es_ahead_margin(const es_ahead *ahead, es_ahead_kind kind);
/** This page or state will be written soon; what was asked for before is passed over. By one thread. Never waits for memory. */
void es_ahead_ask(es_ahead *ahead, es_ahead_kind kind, int32_t number);

#endif
