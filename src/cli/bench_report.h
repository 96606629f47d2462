/* bench_report.h: the results of a run as data, and what is written from them. */
#ifndef ES_CLI_BENCH_REPORT_H
#define ES_CLI_BENCH_REPORT_H

#include <jansson.h>

#include "base/text.h"

/* {"evenshare", "time", "machine": {...}, "model": {...},
 *  "rows": [{"bench", "depth", "tokens", "seconds", "least_seconds", "most_seconds", "tokens_per_second", ...}],
 *  "gaps": [{"depth", "milliseconds": [...]}]}
 * Whatever is missing or of another type in a file that somebody else wrote is left out. */

/** A line for each row, and for each gap. */
void es_bench_write_csv(const json_t *report, es_text *out);
/** One page, plots as inline SVG, nothing loaded. */
void es_bench_write_html(const json_t *report, es_text *out);

#endif
