/* scheduler.h: decides what the next step does: which sequences, and how many tokens of each.
 *
 * Everyone who is generating gets one token; what is left of the step's rows goes to prompts, oldest first. Nothing here
 * knows about layers, kernels or devices. */
#ifndef ES_ENGINE_SCHEDULER_H
#define ES_ENGINE_SCHEDULER_H

#include "engine/sequence.h"

typedef struct es_scheduler_limits {
    int32_t rows;  /**< most rows in a step */
    int32_t chunk; /**< most prompt rows in a step */
} es_scheduler_limits;

/** Sets step_rows of every running sequence (0: not in this step). Returns the rows in all. */
int32_t es_scheduler_plan(const es_scheduler_limits *limits, es_sequence *const *running, int32_t count);

#endif
