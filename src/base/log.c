/* log.c: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int log_level = ES_LOG_NOTICE;

void es_log_set_level(es_log_level level)
{
    atomic_store(&log_level, (int)level);
}

bool es_log_enabled(es_log_level level)
{
    return (int)level <= atomic_load(&log_level);
}

void es_log(es_log_level level, const char *format, ...)
{
    static const char *const names[] = {"", "error: ", "", "", "debug: "};
    if (!es_log_enabled(level)) return;
    char line[2048];
    int used = snprintf(line, sizeof line, "evenshare: %s", names[level]);
    va_list args;
    va_start(args, format);
    const int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    if (more > 0) used += more;
    if (used > (int)sizeof line - 2) used = (int)sizeof line - 2;
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)used) < 0) return; /* nowhere left to say it */
}
