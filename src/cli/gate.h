/* gate.h: nothing untrusted runs in the server. */
#ifndef ES_CLI_GATE_H
#define ES_CLI_GATE_H

#include "base/error.h"
#include "device/verdict.h"
#include "evenshare/engine.h"

/** Before an engine opens: probe this build's kernels if nobody has, say in one line each what is not trusted, what serves in
 *  its place and what that costs, and refuse to start where it would be more than 4 times slower, unless `allow_slow`. */
es_status es_gate_kernels(bool allow_slow);

/** Once an engine is open: refuse where a decode step is longer than the budget that was asked for (seconds; 0: none) and some
 *  kernel is not used. */
es_status es_gate_budget(const es_engine_info *info, double given, bool allow_slow);

/** Before an engine opens on a resolved kind of device: of a GPU, every operation must be trusted. Probes if nobody has. Nothing
 *  for the CPU. */
es_status es_gate_device(es_device_kind kind);

/** A kernel that is not used, and what is used for it. */
typedef struct es_fallback {
    const char *operation, *type; /**< type: NULL where there is none */
    const char *from, *to;        /**< instruction sets */
    es_verdict verdict;           /**< why */
    double cost;                  /**< how many times slower; measured where both were timed, else what is typical */
    bool measured;
} es_fallback;

/** All of them; at most `room` are written. Returns how many there are. */
int es_gate_fallbacks(const es_verdicts *verdicts, es_fallback *out, int room);

#endif
