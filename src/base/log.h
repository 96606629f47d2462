/* log.h: lines on standard error for whoever runs the program. Never prompts, never generated text. */
#ifndef ES_BASE_LOG_H
#define ES_BASE_LOG_H

#include <stdbool.h>

typedef enum es_log_level { ES_LOG_QUIET, ES_LOG_ERROR, ES_LOG_NOTICE, ES_LOG_INFO, ES_LOG_DEBUG } es_log_level;

/** Lines above `level` are dropped. Starts at ES_LOG_NOTICE. Safe from any thread. */
void es_log_set_level(es_log_level level);
bool es_log_enabled(es_log_level level);
/** One line; the newline is added. Written with a single write(2), so that lines of threads do not mix. */
void es_log(es_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
