/* clock.c: the real clock behind clock.h. */
#include "base/clock.h"

#include <time.h>

static uint64_t monotonic_now(void *self)
{
    (void)self;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

es_clock es_clock_monotonic(void)
{
    return (es_clock){monotonic_now, 0};
}

uint64_t es_clock_now(const es_clock *clock)
{
    return clock->now(clock->self);
}
