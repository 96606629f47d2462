/* watch.c: see watch.h. */
#include "serve/watch.h"

#define BUDGETS        100.0
#define LEAST          30.0
#define WITHOUT_BUDGET 300.0

double es_watch_deadline(double asked, double step_budget)
{
    if (asked < 0) return 0;
    if (asked > 0) return asked;
    if (step_budget <= 0) return WITHOUT_BUDGET;
    return BUDGETS * step_budget > LEAST ? BUDGETS * step_budget : LEAST;
}

void es_watch_hear(es_watch *watch, const es_engine_stats *stats)
{
    watch->silence = 0;
    if (stats->steps != watch->steps || stats->step_seconds <= 0) watch->age = 0;
    watch->steps = stats->steps;
    watch->stepping = stats->step_seconds > 0;
}

es_watch_word es_watch_pass(es_watch *watch, double seconds)
{
    if (seconds > ES_WATCH_STRIDE) seconds = ES_WATCH_STRIDE;
    watch->silence += seconds;
    if (watch->stepping) watch->age += seconds;
    if (watch->deadline <= 0) return ES_WATCH_FINE;
    if (watch->age > watch->deadline) return ES_WATCH_STEP;
    return watch->silence > watch->deadline ? ES_WATCH_SILENT : ES_WATCH_FINE;
}
