/* evenshare/workers.h: the threads that do the work.
 *
 *   es_workers *workers;
 *   if (es_workers_open(0, &workers) != ES_OK) ...            // as many as this process has CPUs
 *   es_fold(workers, &sum, &numbers, NULL, &answer);          // fold.h
 *   es_workers_close(workers);
 *
 * Workers decide who computes what, never what comes out: every answer is the same for any number of them. They sleep when
 * there is nothing to do. One call at a time may use an es_workers; open several for several threads. Wherever an
 * es_workers is asked for, NULL means the calling thread alone. */
#ifndef EVENSHARE_WORKERS_H
#define EVENSHARE_WORKERS_H

#include "evenshare/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A team of threads and the scratch memory of what runs on it, which is kept from one call to the next. */
typedef struct es_workers es_workers;

/** Start a team of `threads` workers, the caller included (1 to 512; 0 = the CPUs that this process may use). */
es_status es_workers_open(int threads, es_workers **workers);
/** Stop the threads. Not while a call is using them. NULL is fine. */
void es_workers_close(es_workers *workers);
/** How many there are; 1 for NULL. */
int es_workers_count(const es_workers *workers);

/** job(argument, w) for every w in [0, es_workers_count()), each on its own thread; returns when all are done. */
void es_workers_run(es_workers *workers, void (*job)(void *argument, int worker), void *argument);

#ifdef __cplusplus
}
#endif
#endif
