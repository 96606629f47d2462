/* scheduler.c: see scheduler.h. */
#include "engine/scheduler.h"

#include <math.h>
#include <stddef.h>

#define LEAST_CHUNK 16     /* prompt rows that a step may always try to have */
#define OLDEST_SHARE 0.125 /* of the time and the rows left for prompts */
#define FAR_MORE 4         /* times the work of another, done and to be done */
#define LEARNING_RATE 0.3
#define OVER (1.0 / 24)    /* of the budget, for rows that fill a step up */
#define MOST_SAVED 0.125   /* of the budget, of what steps before left over */
#define MEDIAN_STEP 1.03   /* by how much a step moves the median: a doubling takes 24 */
#define DECODES 3          /* in a budget */
#define MOST_OF_START 1.5

static int64_t due(const es_job *job)
{
    return job->until > job->computed ? job->until - job->computed : 0;
}

/* Time of `rows` more rows of a job, the base not counted: Σ of row + (d + i)·depth. */
static double time_of(const es_cost_model *cost, const es_job *job, int64_t rows)
{
    return (double)rows * (cost->row + ((double)job->computed + 0.5 * (double)rows) * cost->depth);
}

/* The most rows that fit into `time`: the root of depth/2·r² + (row + d·depth)·r = time. */
static int64_t rows_within(const es_cost_model *cost, const es_job *job, double time)
{
    if (!(time > 0)) return 0;
    const double linear = cost->row + (double)job->computed * cost->depth;
    const double root = 2 * time / (linear + sqrt(linear * linear + 2 * cost->depth * time));
    return root < 1e9 ? (int64_t)root : 1000000000;
}

/* What a step still has to give. */
typedef struct purse {
    double time; /* seconds */
    int64_t rows;
} purse;

/* As much as is due, fits into `time`, and leaves `kept` rows; returns the seconds it will take. */
static double give(const es_scheduler *s, es_job *job, double time, int64_t kept, purse *left)
{
    int64_t rows = due(job);
    if (s->budget > 0) {
        const int64_t fits = rows_within(&s->cost, job, time);
        if (rows > fits) rows = fits;
    }
    if (rows > left->rows - kept) rows = left->rows - kept;
    if (rows <= 0) return 0;
    const double took = time_of(&s->cost, job, rows);
    left->time -= took;
    left->rows -= rows;
    job->rows = (int32_t)rows;
    return took;
}

/* The prompt with the least work done that has not been given anything by this round. */
static es_job *least_served(es_job *jobs, int32_t count, int64_t above, int32_t above_index)
{
    es_job *best = NULL;
    for (int32_t i = 0; i < count; i++) {
        if (jobs[i].decoding || due(&jobs[i]) == 0) continue;
        const bool later = jobs[i].work > above || (jobs[i].work == above && i > above_index);
        if (later && (!best || jobs[i].work < best->work)) best = &jobs[i];
    }
    return best;
}

/* Shares what is left among prompts, those first that have had least, but for an eighth, of the time and of the rows, that waits
 * for the oldest as far as it can use it: a larger part would make whoever comes behind it that much slower. A prompt that gets all
 * that is due goes on, or begins its answer, when the step ends: so that this is soon, nobody with far more to do in all fills the
 * step up. */
static void share_out(const es_scheduler *s, es_job *jobs, int32_t count, es_job *oldest, purse *left)
{
    const double wanted = time_of(&s->cost, oldest, due(oldest)), share = left->time * OLDEST_SHARE;
    const int64_t some = (int64_t)((double)left->rows * OLDEST_SHARE), least = some > 1 ? some : 1;
    double reserve = wanted < share ? wanted : share, given = 0;
    int64_t kept = due(oldest) < least ? due(oldest) : least;
    int64_t above = -1, most_size = INT64_MAX;
    int32_t above_index = -1;
    for (es_job *job; left->rows > 0 && (job = least_served(jobs, count, above, above_index));) {
        above = job->work;
        above_index = (int32_t)(job - jobs);
        if (job == oldest) reserve = 0, kept = 0;
        const int64_t size = job->work + job->left;
        if (size <= most_size)
            given += give(s, job, left->time - reserve, kept, left);
        else if (job == oldest)
            given += give(s, job, given * OLDEST_SHARE / (1 - OLDEST_SHARE), 0, left);
        if (job->rows > 0 && job->rows == due(job) && most_size == INT64_MAX) most_size = FAR_MORE * size;
    }
}

static int32_t plan_decodes(const es_scheduler *s, es_job *jobs, int32_t count, double *time)
{
    int32_t rows = 0;
    for (int32_t i = 0; i < count; i++) {
        jobs[i].rows = jobs[i].decoding && rows < s->most_rows;
        if (jobs[i].rows) *time += time_of(&s->cost, &jobs[i], 1);
        rows += jobs[i].rows;
    }
    return rows;
}

/* While nobody generates, three quarters of a step at least should be work on prompts, not its base. */
static double idle_budget(const es_scheduler *s)
{
    double budget = s->budget * s->idle_factor;
    if (budget < s->least_idle) budget = s->least_idle;
    return budget < 4 * s->cost.base ? 4 * s->cost.base : budget;
}

/* Rows as they cost. */
static double priced_rows(const es_cost_model *cost, int64_t rows)
{
    const int64_t step = cost->step;
    return (double)(step > 1 && rows > step ? (rows + step - 1) / step * step : rows);
}

/* The prompt that can most easily do with more rows, or fewer: the one that has most of those that do not end here. */
static es_job *flexible(es_job *jobs, int32_t count)
{
    es_job *best = NULL;
    for (int32_t i = 0; i < count; i++)
        if (!jobs[i].decoding && jobs[i].rows > 0 && jobs[i].rows < due(&jobs[i]) && (!best || jobs[i].rows > best->rows))
            best = &jobs[i];
    return best;
}

/* Rows are whole, and some cost by the step: what was given can leave half of the budget, or pay for rows that are not there. So
 * one prompt gets more rows, or fewer, whichever brings the step's prompts furthest in a second. What is left over all the same is
 * for the steps that follow: where four and a half rows fit, every second step has five. */
static void even_out(es_scheduler *s, es_job *jobs, int32_t count, int32_t decodes, double budget, purse *left, int64_t start)
{
    const int64_t rows = start - left->rows, all = rows + decodes, step = all > s->cost.step && s->cost.step > 1 ? s->cost.step : 1;
    es_job *job = flexible(jobs, count);
    if (s->budget <= 0 || !job) return;
    const int64_t change[] = {0, -(all % step), step - all % step};
    const double took = es_scheduler_predict(s, jobs, count), spare = fmin(s->saved, budget * MOST_SAVED);
    int64_t best = 0;
    double best_rate = 0, best_seconds = took;
    for (int i = 0; i < 3; i++) {
        const int64_t c = change[i];
        if (job->rows + c < 1 || job->rows + c > due(job) || c > left->rows) continue;
        const double seconds = took + (priced_rows(&s->cost, all + c) - priced_rows(&s->cost, all)) * s->cost.row +
                               (double)c * (double)job->computed * s->cost.depth;
        if (c >= 0 && seconds > budget * (1 + OVER) + spare) continue;
        if ((double)(rows + c) > best_rate * seconds) best = c, best_rate = (double)(rows + c) / seconds, best_seconds = seconds;
    }
    job->rows += (int32_t)best;
    left->rows -= best;
    s->saved = fmin(fmax(spare + budget - best_seconds, 0), budget * MOST_SAVED);
}

int32_t es_scheduler_plan(es_scheduler *s, es_job *jobs, int32_t count)
{
    double used = s->cost.base;
    const int32_t decodes = plan_decodes(s, jobs, count, &used);
    const double budget = decodes ? s->budget : idle_budget(s);
    int64_t most = s->proven_chunk + s->proven_chunk / 2;
    if (most < LEAST_CHUNK) most = LEAST_CHUNK;
    most = (int64_t)priced_rows(&s->cost, most); /* else no step would ever be filled that no step has filled yet */
    if (s->budget <= 0 || most > s->most_chunk) most = s->most_chunk;
    purse left = {budget - used, most < s->most_rows - decodes ? most : s->most_rows - decodes};
    const int64_t start = left.rows;

    es_job *oldest = NULL;
    for (int32_t i = 0; i < count && !oldest; i++)
        if (!jobs[i].decoding && due(&jobs[i]) > 0) oldest = &jobs[i];
    if (!oldest) return decodes;
    share_out(s, jobs, count, oldest, &left);
    even_out(s, jobs, count, decodes, budget, &left, start);
    if (oldest->rows == 0 && left.rows > 0) { /* nothing fitted: one row all the same */
        oldest->rows = 1;
        left.rows--;
    }
    const int32_t chunk = (int32_t)(start - left.rows);
    if (chunk > s->proven_chunk) s->proven_chunk = chunk;
    return decodes + chunk;
}

/* The three terms of a step's cost. */
static void terms_of(const es_scheduler *s, const es_job *jobs, int32_t count, double term[3])
{
    int64_t rows = 0;
    double depth = 0;
    for (int32_t i = 0; i < count; i++) {
        rows += jobs[i].rows;
        depth += (double)jobs[i].rows * ((double)jobs[i].computed + 0.5 * jobs[i].rows);
    }
    term[0] = s->cost.base, term[1] = priced_rows(&s->cost, rows) * s->cost.row, term[2] = depth * s->cost.depth;
}

double es_scheduler_predict(const es_scheduler *s, const es_job *jobs, int32_t count)
{
    double term[3];
    terms_of(s, jobs, count, term);
    return term[0] + term[1] + term[2];
}

void es_scheduler_learn(es_scheduler *s, const es_job *jobs, int32_t count, double seconds)
{
    double term[3];
    terms_of(s, jobs, count, term);
    const double predicted = term[0] + term[1] + term[2];
    if (!(predicted > 0) || !(seconds > 0)) return;
    /* One odd measurement (the machine was busy elsewhere) must not turn the model over. */
    double ratio = seconds / predicted;
    ratio = ratio > 3 ? 3 : ratio < 1.0 / 3 ? 1.0 / 3 : ratio;
    double *const value[3] = {&s->cost.base, &s->cost.row, &s->cost.depth};
    for (int i = 0; i < 3; i++) *value[i] *= 1 + LEARNING_RATE * (ratio - 1) * term[i] / predicted;
}

double es_decode_time_after(double usual, double took)
{
    return took > usual ? usual * MEDIAN_STEP : usual / MEDIAN_STEP;
}

double es_budget_of(double usual, double start, double least)
{
    const double budget = DECODES * usual, most = MOST_OF_START * start;
    return budget > most ? most : budget < least ? least : budget;
}
