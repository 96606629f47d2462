/* team.c: a pool with scratch memory, as the public API hands it out. */
#include "share/team.h"

#include <stdlib.h>

es_status es_team_open(int threads, es_team **out)
{
    es_team *team = calloc(1, sizeof *team);
    if (!team) return es_fail(ES_NO_MEMORY, "no memory for a team of %d", threads);
    const es_status status = es_pool_open(threads, &team->pool);
    if (status != ES_OK) {
        free(team);
        return status;
    }
    *out = team;
    return ES_OK;
}

void es_team_close(es_team *team)
{
    if (!team) return;
    es_pool_close(team->pool);
    free(team->scratch);
    free(team);
}

int es_team_size(const es_team *team)
{
    return team ? es_pool_workers(team->pool) : 1;
}

void es_team_run(es_team *team, void (*job)(void *argument, int worker), void *argument)
{
    if (team) es_pool_run(team->pool, job, argument);
    else job(argument, 0);
}

es_status es_team_scratch(es_team *team, size_t bytes, unsigned char **scratch)
{
    if (bytes > team->scratch_bytes || !team->scratch) {
        const size_t rounded = (bytes / ES_SCRATCH_ALIGNMENT + 1) * ES_SCRATCH_ALIGNMENT;
        unsigned char *fresh = rounded > bytes ? aligned_alloc(ES_SCRATCH_ALIGNMENT, rounded) : NULL;
        if (!fresh) return es_fail(ES_NO_MEMORY, "no memory for %zu bytes of partials", bytes);
        free(team->scratch);
        team->scratch = fresh;
        team->scratch_bytes = rounded;
    }
    *scratch = team->scratch;
    return ES_OK;
}
