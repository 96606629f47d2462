/* backend_process.h: a backend whose engine lives in a process of its own, and is started anew when that process dies.
 *
 *   es_process_options options = {.text = &text, .command = command};
 *   es_engine_info info;
 *   ES_TRY(es_backend_open_process(&options, &info, &backend));   // waits until the engine is ready
 *   ...
 *   es_backend_close_process(&backend, 10);
 *
 * Every submitted request ends in exactly one event, whatever becomes of the engine: when its process ends, falls silent, or
 * passes the step deadline (then it is killed), each open request gets ES_EVENT_ERROR: ES_INTERNAL where the engine had begun
 * it, ES_UNAVAILABLE where it still waited. Meanwhile submit says ES_UNAVAILABLE and health why. Nothing here waits for the
 * engine but opening and closing. */
#ifndef ES_SERVE_BACKEND_PROCESS_H
#define ES_SERVE_BACKEND_PROCESS_H

#include "serve/backend.h"

typedef struct es_process_options {
    const es_backend *text; /**< gives info (but context and fingerprint), render, encode and piece; must outlive it */
    es_status (*check)(void *text, int64_t context, const es_request *request); /**< refuses at once; NULL: the engine will */
    char *const *command; /**< arguments of this executable, ended by NULL, that make it serve with es_host_run() */
    double step_deadline; /**< seconds, as es_watch_deadline() reads it */
} es_process_options;

/** Start the engine and wait for it. The failure of a first start is the engine's own. `info`: what it says of itself; its
 *  strings live as long as the backend. */
es_status es_backend_open_process(const es_process_options *options, es_engine_info *info, es_backend *backend);
/** End the engine's process, killing it after `seconds`. No event comes after this. A zeroed backend is fine. */
void es_backend_close_process(es_backend *backend, double seconds);

#endif
