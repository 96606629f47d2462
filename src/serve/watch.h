/* watch.h: how long the engine has been at one step, as the front end sees it.
 *
 *   es_watch_hear(&watch, &stats);                       // whenever the engine says something
 *   if (es_watch_pass(&watch, seconds) != ES_WATCH_FINE) // as time goes by
 *
 * Only time that the watcher saw pass counts, and at most ES_WATCH_STRIDE of it at once: a server that was stopped (Ctrl-Z, a
 * debugger, a frozen container) and goes on finds no step overdue. Pure arithmetic: the clock is an argument. */
#ifndef ES_SERVE_WATCH_H
#define ES_SERVE_WATCH_H

#include "evenshare/engine.h"

#define ES_WATCH_STRIDE 0.5

typedef enum es_watch_word {
    ES_WATCH_FINE,
    ES_WATCH_STEP,  /**< one step has passed the deadline */
    ES_WATCH_SILENT /**< nothing was heard for as long */
} es_watch_word;

typedef struct es_watch {
    double deadline; /**< seconds; 0: none */
    uint64_t steps;  /**< how many had ended when last heard */
    bool stepping;   /**< one was running then */
    double age, silence;
} es_watch;

/** What a step may take: `asked` seconds; 0 asks for a hundred step budgets, 30 s at least, 300 s where there is no budget;
 *  negative: no deadline, returned as 0. */
double es_watch_deadline(double asked, double step_budget);
void es_watch_hear(es_watch *watch, const es_engine_stats *stats);
es_watch_word es_watch_pass(es_watch *watch, double seconds);

#endif
