/* bench.h: what the bench commands share: each is an es_command of its own behind the first word. */
#ifndef ES_CLI_BENCH_H
#define ES_CLI_BENCH_H

#include <jansson.h>

#include "base/error.h"
#include "cli/options.h"

extern const es_command es_command_bench_make_model;
extern const es_command es_command_bench_decode;
extern const es_command es_command_bench_prefill;
extern const es_command es_command_bench_batch;
extern const es_command es_command_bench_attention;
extern const es_command es_command_bench_stall;
extern const es_command es_command_bench_report;
extern const es_command es_command_bench_compare;

/** {"cpu", "cores", "instruction_sets"} of this machine; NULL without memory. */
json_t *es_bench_machine(void);

/** Print a report and release it; false where there is none (NULL) or it could not be written. */
bool es_bench_print(json_t *report);

enum { ES_BENCH_MOST_DEPTHS = 32 };
/** The numbers of a list like "0,16384,100K"; at least one. */
es_status es_bench_depths(const char *text, int64_t depth[ES_BENCH_MOST_DEPTHS], int *depths);

/** The median, the least and the greatest of some seconds; sorts them. */
typedef struct es_bench_spread {
    double median, least, most;
} es_bench_spread;
es_bench_spread es_bench_spread_of(double *seconds, int count);

#endif
