/* clock.h: time as an argument, so that a test can run a thousand scheduler steps in a millisecond. */
#ifndef ES_BASE_CLOCK_H
#define ES_BASE_CLOCK_H

#include <stdint.h>

/** A source of nanoseconds that never runs backwards. */
typedef struct es_clock {
    uint64_t (*now)(void *self);
    void *self;
} es_clock;

/** The machine's monotonic clock. */
es_clock es_clock_monotonic(void);
uint64_t es_clock_now(const es_clock *clock);

#endif
