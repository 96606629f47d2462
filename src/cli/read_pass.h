/* read_pass.h: reading memory and doing nothing else, to compare with. */
#ifndef ES_CLI_READ_PASS_H
#define ES_CLI_READ_PASS_H

#include "base/error.h"
#include "evenshare/team.h"

/** Read `bytes` bytes once with the whole team. */
es_status es_read_pass(es_team *team, const void *data, size_t bytes);

#endif
