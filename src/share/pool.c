/* pool.c: worker threads that meet often and sleep when there is nothing to do.
 *
 * A decode step passes some hundred barriers in a few milliseconds, so waiting must cost far less than a system call; a
 * server that waits for its next request must cost nothing. Hence: spin for a bounded number of looks, then a futex. When
 * there are more workers than CPUs, spinning would only keep the awaited worker from running, so it is left out. */
#include "share/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE_LINE 64
#define SPIN_LOOKS 4000 /* some tens of microseconds */

/* A counter that threads wait for to change. On its own cache line: everybody looks at it. */
typedef struct gate {
    _Alignas(CACHE_LINE) _Atomic uint32_t generation;
    _Atomic uint32_t sleepers;
} gate;

struct es_pool {
    gate start;                                    /* a new job */
    gate met;                                      /* everybody came to the barrier */
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived; /* workers at the barrier */
    _Atomic uint64_t meetings;
    _Alignas(CACHE_LINE) es_job_fn job;
    void *argument;
    int workers, looks;
    bool pinned;    /* every worker has a CPU of its own; worker 0, the caller, while it works */
    cpu_set_t home; /* of worker 0 */
    _Atomic int stop;
    struct worker {
        es_pool *pool;
        int index;
        pthread_t thread;
        uint32_t takes; /* operations that it came to with es_pool_take(); its own */
        /* Units of its share that are taken: in this operation, and (being cleared) in the next, by turns. */
        _Alignas(CACHE_LINE) _Atomic int64_t taken[2];
    } *worker;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_wait(gate *g, uint32_t seen, int looks)
{
    for (int i = 0; i < looks; i++) {
        if (atomic_load_explicit(&g->generation, memory_order_acquire) != seen) return;
        pause_briefly();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->generation) == seen)
        syscall(SYS_futex, &g->generation, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

/* The generation moves before the sleepers are counted, and a sleeper counts itself before it looks at the generation
 * (both sequentially consistent): one of the two sees the other. */
static void gate_open(gate *g)
{
    atomic_fetch_add(&g->generation, 1);
    if (atomic_load(&g->sleepers)) syscall(SYS_futex, &g->generation, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

int es_pool_cpus(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

void es_pool_meet(es_pool *pool)
{
    if (pool->workers == 1) return;
    const uint32_t seen = atomic_load_explicit(&pool->met.generation, memory_order_acquire);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == (uint32_t)pool->workers) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->meetings, 1, memory_order_relaxed);
        gate_open(&pool->met);
    } else {
        gate_wait(&pool->met, seen, pool->looks);
    }
}

/* The worker's counter for this operation. Nobody looks at the other one between the meeting before it and the one behind it. */
static int next_turn(struct worker *me)
{
    const int turn = (int)(me->takes++ % 2);
    atomic_store_explicit(&me->taken[!turn], 0, memory_order_relaxed);
    return turn;
}

es_take es_pool_take(es_pool *pool, int64_t units, int64_t pieces, int worker)
{
    const int64_t most = units / (pool->workers * pieces), grain = most > 0 ? most : 1;
    return (es_take){.pool = pool, .plan = es_share_plan(units, 1, pool->workers), .grain = grain, .last = grain,
                     .turn = next_turn(&pool->worker[worker]), .from = worker,
                     .visited = units <= pool->workers ? pool->workers - 1 : 0};
}

es_take es_pool_take_whole(es_pool *pool, int64_t wholes, int64_t parts, int worker)
{
    return (es_take){.pool = pool, .plan = es_share_plan(wholes * parts, parts, pool->workers), .grain = parts, .last = 1,
                     .turn = next_turn(&pool->worker[worker]), .from = worker};
}

es_take es_pool_take_in_order(es_pool *pool, int64_t units, int worker)
{
    /* One share, the first worker's, and nobody goes on to another. */
    return (es_take){.pool = pool, .plan = es_share_plan(units, 1, 1), .grain = 1, .last = 1,
                     .turn = next_turn(&pool->worker[worker]), .visited = pool->workers - 1};
}

/* The next units of a share, from its counter; false when there are none. */
static bool take_piece(const es_take *take, es_range share, _Atomic int64_t *taken, es_range *piece)
{
    int64_t before = atomic_load_explicit(taken, memory_order_relaxed), some;
    do {
        const int64_t left = share.end - share.begin - before;
        if (left <= 0) return false;
        some = left > take->grain ? take->grain : take->last;
        if (some > left) some = left;
    } while (!atomic_compare_exchange_weak_explicit(taken, &before, before + some, memory_order_relaxed, memory_order_relaxed));
    *piece = (es_range){share.begin + before, share.begin + before + some};
    return true;
}

bool es_take_next(es_take *take, es_range *piece)
{
    const int workers = take->pool->workers;
    for (; take->visited < workers; take->visited++, take->from = (take->from + 1) % workers)
        if (take_piece(take, es_share_range(&take->plan, take->from), &take->pool->worker[take->from].taken[take->turn], piece))
            return true;
    return false;
}

static void *worker_main(void *argument)
{
    const struct worker *me = argument;
    es_pool *pool = me->pool;
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&pool->start, seen, pool->looks);
        if (atomic_load(&pool->stop)) return NULL;
        pool->job(pool->argument, me->index);
        es_pool_meet(pool);
    }
}

/* The index-th CPU of those. */
static cpu_set_t cpu_of(const cpu_set_t *allowed, int index)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, allowed) || index-- > 0) continue;
        CPU_SET(cpu, &one);
        break;
    }
    return one;
}

/* The caller stays on a CPU of its own while it works. Left where the kernel likes, it was moved to another worker's as soon as
 * anybody else wanted its own, and both took turns there, sleeping at each barrier, for several steps. */
void es_pool_run(es_pool *pool, es_job_fn job, void *argument)
{
    if (pool->workers == 1) {
        job(argument, 0);
        return;
    }
    cpu_set_t before;
    const bool moved = pool->pinned && sched_getaffinity(0, sizeof before, &before) == 0 &&
                       sched_setaffinity(0, sizeof pool->home, &pool->home) == 0;
    pool->job = job;
    pool->argument = argument;
    gate_open(&pool->start);
    job(argument, 0);
    es_pool_meet(pool);
    if (moved) sched_setaffinity(0, sizeof before, &before);
}

es_status es_pool_open(int workers, es_pool **out)
{
    const int cpus = es_pool_cpus();
    const int count = workers == 0 ? cpus : workers;
    if (count < 1 || count > ES_POOL_MOST_WORKERS)
        return es_fail(ES_INVALID, "threads: %d is not between 1 and %d", workers, ES_POOL_MOST_WORKERS);
    es_pool *pool = aligned_alloc(CACHE_LINE, (sizeof *pool + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool) return es_fail(ES_NO_MEMORY, "no memory for a pool of %d workers", count);
    memset(pool, 0, sizeof *pool);
    pool->worker = aligned_alloc(CACHE_LINE, (size_t)count * sizeof *pool->worker);
    if (!pool->worker) {
        free(pool);
        return es_fail(ES_NO_MEMORY, "no memory for a pool of %d workers", count);
    }
    memset(pool->worker, 0, (size_t)count * sizeof *pool->worker);
    pool->looks = count <= cpus ? SPIN_LOOKS : 0;
    cpu_set_t allowed;
    pool->pinned = count <= cpus && sched_getaffinity(0, sizeof allowed, &allowed) == 0;
    if (pool->pinned) pool->home = cpu_of(&allowed, 0);
    /* Every worker reads `workers` at barriers: it is whole before the first thread starts. */
    pool->workers = count;
    for (int i = 1; i < count; i++) {
        struct worker *w = &pool->worker[i];
        w->pool = pool;
        w->index = i;
        const int code = pthread_create(&w->thread, NULL, worker_main, w);
        if (code != 0) {
            pool->workers = i;
            es_pool_close(pool);
            return es_fail(ES_IO, "thread %d of %d cannot be started: %s", i, count, strerror(code));
        }
        if (!pool->pinned) continue;
        const cpu_set_t own = cpu_of(&allowed, i);
        pthread_setaffinity_np(w->thread, sizeof own, &own);
    }
    *out = pool;
    return ES_OK;
}

void es_pool_close(es_pool *pool)
{
    if (!pool) return;
    atomic_store(&pool->stop, 1);
    gate_open(&pool->start);
    for (int i = 1; i < pool->workers; i++) pthread_join(pool->worker[i].thread, NULL);
    free(pool->worker);
    free(pool);
}

int es_pool_workers(const es_pool *pool)
{
    return pool->workers;
}

uint64_t es_pool_meetings(const es_pool *pool)
{
    return atomic_load_explicit(&pool->meetings, memory_order_relaxed);
}
