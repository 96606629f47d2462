/* scheduler.h: decides what the next step does: who takes part, and with how many tokens.
 *
 * A step is a promise about time. Everyone who is generating gets one token; what is left of the budget goes to prompts, cut
 * to what the cost model says will fit. A chunk costs more the deeper its context, so chunks shrink as a prompt grows.
 *
 *   es_scheduler_plan(&scheduler, jobs, count);           // fills in jobs[i].rows
 *   ...run the step, `seconds` by the clock...
 *   es_scheduler_learn(&scheduler, jobs, count, seconds);
 *
 * Nothing here knows of layers, kernels, devices or clocks: a test can run ten thousand steps in a moment. */
#ifndef ES_ENGINE_SCHEDULER_H
#define ES_ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

/** What a step of R rows costs, when row i has d_i tokens before it: base + R' · row + Σ d_i · depth, in seconds. R' is R, or on a
 *  machine whose products take `step` rows in the time of any fewer, and where there are more than `step`, R rounded up to a multiple. */
typedef struct es_cost_model {
    double base, row, depth;
    int32_t step; /**< of R'; 0 and 1: rows have no steps */
} es_cost_model;

/** One sequence, as the scheduler sees it. */
typedef struct es_job {
    int64_t computed; /**< tokens done: the depth of its next row */
    int64_t until;    /**< tokens it may have computed after this step (a prompt's next stop) */
    int64_t work;     /**< prompt tokens computed for it so far: who has had least comes first */
    int64_t left;     /**< prompt tokens that are still to be computed */
    bool decoding;
    int32_t rows;     /**< out: tokens of it in this step */
} es_job;

typedef struct es_scheduler {
    es_cost_model cost;
    double budget;      /**< seconds of a step while someone generates; 0 = no bound */
    double idle_factor; /**< times the budget while nobody does: only somebody new would wait */
    double least_idle;  /**< seconds that a step may take then in any case, as it may four times its base cost */
    int32_t most_rows;  /**< rows of a step */
    int32_t most_chunk; /**< prompt rows of a step */
    int32_t proven_chunk; /**< most prompt rows that a step has had */
    double saved;         /**< seconds that steps before left of their budgets, since rows are whole: an eighth of one at most */
} es_scheduler;

/** Jobs stand in order of arrival. Each decoding job gets a row. Of the time and the rows that are left an eighth goes to the oldest
 *  prompt, the rest to whoever has had least work done (ties: the older one); the oldest always gets at least one row, and the prompt
 *  rows of a step are at most half again as many as any step has had. Where a prompt gets all that is due, the step
 *  is not filled up by those with four times its work and more, so that it can go on soon; the oldest then gets an eighth of
 *  what the step gives. What was given is then evened out: one prompt gets a row more, or as many as fill the cost model's `step`, for
 *  a 24th of the budget at most and what steps before left of theirs (an eighth at most), or fewer, if that brings the prompts
 *  further in a second. Hence no prompt starves: the oldest of P
 *  prompts advances in every step, and has an eighth of all the time that prompts get at least, but for what is evened out. Returns
 *  the rows in all. */
int32_t es_scheduler_plan(es_scheduler *scheduler, es_job *jobs, int32_t count);

/** What the model says a planned step will take. */
double es_scheduler_predict(const es_scheduler *scheduler, const es_job *jobs, int32_t count);

/** Correct the model by what a step took: each of its terms in proportion to its share of the prediction. */
void es_scheduler_learn(es_scheduler *scheduler, const es_job *jobs, int32_t count, double seconds);

/** The usual time of a decode step after one more took so long: their running median, in seconds. A step that the machine made
 *  slow moves it no further than any other. */
double es_decode_time_after(double usual, double took);

/** The budget of three such steps, `least` at least, and at most half again what was measured at `start`, which is what people were
 *  told. Seconds. */
double es_budget_of(double usual, double start, double least);

#endif
