/* verdict.h: what is known of every kernel on this very machine, kept from one run to the next.
 *
 *   es_verdicts *v;
 *   es_verdicts_open(&v);                     // for this device, driver and build
 *   if (es_verdicts_load(v) != ES_OK) ...     // nobody has probed them yet
 *   es_verdict_of(v, "avx512", "dot", NULL);
 *
 * A verdict belongs to a device, a driver and a build: another processor, a new microcode or kernel, or a rebuilt program
 * starts anew. They are kept in $XDG_CACHE_HOME/evenshare (or ~/.cache/evenshare), one small file for each key. A damaged or
 * foreign file counts as none. */
#ifndef ES_DEVICE_VERDICT_H
#define ES_DEVICE_VERDICT_H

#include "base/error.h"

typedef enum es_verdict {
    ES_VERDICT_UNKNOWN, /**< never probed */
    ES_VERDICT_TRUSTED, /**< ran, and equals the reference within its mode's contract */
    ES_VERDICT_WRONG,   /**< ran, and does not */
    ES_VERDICT_CRASHED, /**< its child died */
    ES_VERDICT_HUNG,    /**< its child did not come back before the deadline */
    ES_VERDICT_ABSENT,  /**< this machine or build does not have it */
    ES_VERDICT_FATAL,   /**< never run here: a combination known to be fatal */
    ES_VERDICTS
} es_verdict;
/** "trusted", "wrong", …; "unknown" for a value that is none. */
const char *es_verdict_name(es_verdict verdict);

enum { ES_VERDICT_ROWS = 512 };

typedef struct es_verdict_row {
    char kernel[64];     /**< "avx512/matmul/Q4_K": instruction set, operation, weight type */
    es_verdict verdict;
    char detail[192];    /**< the first difference, the signal, the deadline, the reason; "" when trusted */
    double speedup;      /**< over the reference, when it was timed; else 0 */
} es_verdict_row;

typedef struct es_verdicts {
    char device[192], driver[128], build[64];
    bool device_hung;    /**< a child could not even be killed: nothing more is launched */
    int count;
    es_verdict_row row[ES_VERDICT_ROWS];
} es_verdicts;

/** An empty list for this machine and build. free() it. */
es_status es_verdicts_open(es_verdicts **verdicts);
/** The same for the first GPU and the library that drives it; ES_NOT_FOUND where the driver lists no GPU. Asks the driver's
 *  files only: nothing is launched. */
es_status es_verdicts_open_gpu(es_verdicts **verdicts);
/** True when there are rows, and all of them are trusted. */
bool es_verdicts_all_trusted(const es_verdicts *verdicts);
/** Fill in what is kept; ES_NOT_FOUND when there is nothing (usable) for the key. */
es_status es_verdicts_load(es_verdicts *verdicts);
/** Keep the list: whole or not at all. */
es_status es_verdicts_save(const es_verdicts *verdicts);

/** Add or replace a row. `operation` may hold the type already; NULL type: none. */
void es_verdicts_put(es_verdicts *verdicts, const es_verdict_row *row);
/** "set/operation" or "set/operation/type" */
void es_verdict_kernel(char kernel[64], const char *set, const char *operation, const char *type);
/** NULL when there is none. */
const es_verdict_row *es_verdicts_find(const es_verdicts *verdicts, const char *kernel);
es_verdict es_verdict_of(const es_verdicts *verdicts, const char *set, const char *operation, const char *type);

/** Why this kernel must never be launched here, or NULL. From a small table in known_fatal.c. */
const char *es_known_fatal(const char *device, const char *driver, const char *kernel);

/** For a test program, which may define it: a further reason. Absent from every other program. */
const char *es_known_fatal_extra(const char *kernel) __attribute__((weak));

#endif
