/* scheduler.c: see scheduler.h. */
#include "engine/scheduler.h"

/* Tokens that must still be computed: one for a sequence that generates, many for a prompt. */
static int64_t due(const es_sequence *s)
{
    return s->count - s->computed;
}

static bool in_prompt(const es_sequence *s)
{
    return s->computed + 1 < s->count || s->count == s->prompt_count;
}

int32_t es_scheduler_plan(const es_scheduler_limits *limits, es_sequence *const *running, int32_t count)
{
    int32_t left = limits->rows, chunk = limits->chunk;
    for (int32_t i = 0; i < count; i++) {
        es_sequence *s = running[i];
        s->step_rows = !in_prompt(s) && left > 0;
        left -= s->step_rows;
    }
    for (int32_t i = 0; i < count; i++) {
        es_sequence *s = running[i];
        if (!in_prompt(s)) continue;
        int64_t rows = due(s);
        if (rows > chunk) rows = chunk;
        if (rows > left) rows = left;
        s->step_rows = (int32_t)rows;
        left -= s->step_rows;
        chunk -= s->step_rows;
    }
    return limits->rows - left;
}
