/* evenshare/team.h: the threads that do the work.
 *
 *   es_team *team;
 *   if (es_team_open(0, &team) != ES_OK) ...               // as many as this process has CPUs
 *   es_fold(team, &sum, &numbers, NULL, &answer);          // fold.h
 *   es_team_close(team);
 *
 * Workers decide who computes what, never what comes out: every answer is the same for any number of them. They sleep when
 * there is nothing to do. One call at a time may use a team; open several for several threads. Wherever an
 * es_team is asked for, NULL means the calling thread alone. */
#ifndef EVENSHARE_TEAM_H
#define EVENSHARE_TEAM_H

#include "evenshare/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** A team of threads and the scratch memory of what runs on it, which is kept from one call to the next. */
typedef struct es_team es_team;

/** Start a team of `threads` workers, the caller included (1 to 512; 0 = the CPUs that this process may use). */
es_status es_team_open(int threads, es_team **team);
/** Stop the threads. Not while a call is using them. NULL is fine. */
void es_team_close(es_team *team);
/** How many there are; 1 for NULL. */
int es_team_size(const es_team *team);

/** job(argument, w) for every w in [0, es_team_size()), each on its own thread; returns when all are done. */
void es_team_run(es_team *team, void (*job)(void *argument, int worker), void *argument);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
