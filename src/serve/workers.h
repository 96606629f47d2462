/* workers.h: a few threads for work that would hold up the network loop: parsing, templating, tokenising. */
#ifndef ES_SERVE_WORKERS_H
#define ES_SERVE_WORKERS_H

#include "base/error.h"

typedef struct es_workers es_workers;

/** A task; put it first in a struct. */
typedef struct es_task {
    struct es_task *next;
    /** Runs on a worker; owns the struct from here on. */
    void (*run)(struct es_task *task);
} es_task;

/** `queue`: most tasks that wait. */
es_status es_workers_open(int threads, size_t queue, es_workers **workers);
/** Hand over a task. ES_BUSY when the queue is full (the task stays the caller's). */
es_status es_workers_put(es_workers *workers, es_task *task);
/** Runs what was accepted to its end, then ends the threads. */
void es_workers_close(es_workers *workers);

#endif
