/* pool.h: the workers, and the two ways in which they meet.
 *
 *   es_pool_run(pool, job, argument);     // job(argument, worker) on every worker; returns when all are done
 *   ...inside a job:
 *   es_pool_meet(pool);                   // a barrier: nobody goes on before everybody came
 *
 * The caller of es_pool_run() is worker 0, so a pool of one has no threads at all. Workers wait awake for some
 * microseconds, then sleep in the kernel: a parked pool burns no core. */
#ifndef ES_SHARE_POOL_H
#define ES_SHARE_POOL_H

#include "base/error.h"
#include "evenshare/share.h"

typedef struct es_pool es_pool;
typedef void (*es_job_fn)(void *argument, int worker);

#define ES_POOL_MOST_WORKERS 512

/** CPUs in this process's affinity mask. */
int es_pool_cpus(void);

/** Start `workers` − 1 threads (1 to 512 workers; 0 = es_pool_cpus()). When there is a CPU of the affinity mask for each, threads
 *  are pinned to theirs, and the caller of es_pool_run() to the first while the job runs. */
es_status es_pool_open(int workers, es_pool **pool);
/** Joins the threads. Not while a job runs. NULL is fine. */
void es_pool_close(es_pool *pool);
int es_pool_workers(const es_pool *pool);

/** Run a job on every worker. One caller at a time. */
void es_pool_run(es_pool *pool, es_job_fn job, void *argument);
/** The barrier, called by every worker of the running job or by none. */
void es_pool_meet(es_pool *pool);
/** The units of one operation as a worker of the running job takes them: pieces of its even share, then of what the others
 *  have left. Cores are not equally fast (other guests, other programs, siblings), and whoever is late keeps everybody
 *  waiting. Who computes a unit must not change it.
 *
 *      es_take take = es_pool_take(pool, units, 32, worker);
 *      for (es_range piece; es_take_next(&take, &piece);) ...
 */
typedef struct es_take {
    es_pool *pool;
    es_share plan;
    int64_t grain, last;     /**< units of a piece, and of the pieces that a share's last `grain` units come in */
    int turn, from, visited; /**< which of the shares' two counters; whose share; how many were found empty */
} es_take;
#define ES_TAKE_SINGLY INT32_MAX /**< as `pieces`: one unit at a time */
#define ES_TAKE_PIECES 8         /**< where units are alike and small */
/** Called by every worker for the same operations in the same order; all meet between two of them. `units` ≥ 0; a share is cut
 *  into `pieces` ≥ 1, of one unit at least. Where nobody has more than one unit, everybody does his own. */
es_take es_pool_take(es_pool *pool, int64_t units, int64_t pieces, int worker);
/** The same for `wholes` units of `parts` ≥ 1 parts each, and ranges of parts: one whole unit at a time, but the last one of a share
 *  in its parts, so that nobody waits for a whole unit of someone else. */
es_take es_pool_take_whole(es_pool *pool, int64_t wholes, int64_t parts, int worker);
/** The same, but all units are taken in their order, one at a time, whoever is free: the last are the ones that somebody may wait for. */
es_take es_pool_take_in_order(es_pool *pool, int64_t units, int worker);
/** The next units for this worker; false when there are none left to begin. */
bool es_take_next(es_take *take, es_range *piece);
/** Barriers passed since the pool was opened, for `bench`. */
uint64_t es_pool_meetings(const es_pool *pool);

#endif
