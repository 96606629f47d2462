/* workers.c: a pool with scratch memory, as the public API hands it out. */
#include "share/workers.h"

#include <stdlib.h>

es_status es_workers_open(int threads, es_workers **out)
{
    es_workers *workers = calloc(1, sizeof *workers);
    if (!workers) return es_fail(ES_NO_MEMORY, "no memory for a team of workers");
    const es_status status = es_pool_open(threads, &workers->pool);
    if (status != ES_OK) {
        free(workers);
        return status;
    }
    *out = workers;
    return ES_OK;
}

void es_workers_close(es_workers *workers)
{
    if (!workers) return;
    es_pool_close(workers->pool);
    free(workers->scratch);
    free(workers);
}

int es_workers_count(const es_workers *workers)
{
    return workers ? es_pool_workers(workers->pool) : 1;
}

void es_workers_run(es_workers *workers, void (*job)(void *argument, int worker), void *argument)
{
    if (workers) es_pool_run(workers->pool, job, argument);
    else job(argument, 0);
}

es_status es_workers_scratch(es_workers *workers, size_t bytes, unsigned char **scratch)
{
    if (bytes > workers->scratch_bytes || !workers->scratch) {
        const size_t rounded = (bytes / ES_SCRATCH_ALIGNMENT + 1) * ES_SCRATCH_ALIGNMENT;
        unsigned char *fresh = rounded > bytes ? aligned_alloc(ES_SCRATCH_ALIGNMENT, rounded) : NULL;
        if (!fresh) return es_fail(ES_NO_MEMORY, "no memory for %zu bytes of partials", bytes);
        free(workers->scratch);
        workers->scratch = fresh;
        workers->scratch_bytes = rounded;
    }
    *scratch = workers->scratch;
    return ES_OK;
}
