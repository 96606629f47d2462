/* team.h: the inside of es_team, for what runs folds and scans on it. */
#ifndef ES_SHARE_TEAM_H
#define ES_SHARE_TEAM_H

#include "evenshare/team.h"
#include "share/pool.h"

struct es_team {
    es_pool *pool;
    unsigned char *scratch; /**< aligned to ES_SCRATCH_ALIGNMENT */
    size_t scratch_bytes;
};

#define ES_SCRATCH_ALIGNMENT 64

/** At least `bytes` bytes, whatever was in them; the same memory as last time when that was enough. */
es_status es_team_scratch(es_team *team, size_t bytes, unsigned char **scratch);

#endif
