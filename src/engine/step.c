/* step.c: one step: rows are laid out, the program runs, logits become tokens, and whoever asked is told. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

#include "base/log.h"

#define LEAST_BUDGET 0.020
#define OVERRUN 10.0        /* budgets; a step past that is told of */
#define TOLD_ROWS 16        /* most rows of a prompt whose tokens are told of: their logits cost what no cost model sees */
#define TELL_AGAIN 10e9     /* nanoseconds between two such lines */
#define MEASURED_ROWS 16    /* of a prompt, when the engine opens */
#define MEASURED_DEPTH 4096 /* tokens before them */
#define MEASURED_PAGES 16   /* that these tokens lie in */
#define MEASURED_RUNS 8
#define MEASURED_SECONDS 0.25

static double seconds(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) * 1e-9 : 0.0;
}

/* Whatever it held returns to the pools; then whoever waits for it may go on. */
static void release(es_engine *engine, es_sequence *s)
{
    es_engine_release_memory(engine, s);
    pthread_mutex_lock(&engine->lock);
    for (int32_t i = 0; i < engine->live_count; i++)
        if (engine->live[i] == s) {
            engine->live[i] = engine->live[--engine->live_count];
            break;
        }
    pthread_cond_broadcast(&engine->ended);
    pthread_mutex_unlock(&engine->lock);
    es_sequence_close(s);
}

void es_engine_leave(es_engine *engine, es_sequence *s)
{
    for (int32_t i = 0; i < engine->running_count; i++)
        if (engine->running[i] == s) {
            memmove(&engine->running[i], &engine->running[i + 1],
                    (size_t)(engine->running_count - i - 1) * sizeof(es_sequence *));
            engine->running_count--;
            break;
        }
    atomic_store(&engine->counters.running, engine->running_count);
}

void es_engine_keep(es_engine *engine, es_sequence *s)
{
    if (!s->admitted || s->computed <= s->resumed) return;
    es_prefix_insert(engine->prefix, s->tokens, s->computed, s->pages, engine->recurrent ? s->slot : -1, false);
    if (engine->recurrent) s->slot = -1;
}

/* At a place where many sequences may branch off, a copy of the state is kept while the sequence goes on. */
static es_status checkpoint(es_engine *engine, es_sequence *s)
{
    int32_t slot;
    if (engine->no_cache || !engine->recurrent || engine->info.checkpoints == 0) return ES_OK;
    if (!es_prefix_take_slot(engine->prefix, &slot)) return ES_OK; /* all states belong to running sequences */
    const es_status status = es_network_copy_state(&engine->network, s->slot, slot);
    if (status != ES_OK) {
        es_pages_drop(&engine->slots, &slot, 1);
        return status;
    }
    bool thin = true;
    for (int i = 0; i < ES_SEQUENCE_STOPS; i++) thin = thin && s->stop_at[i] != s->computed;
    es_prefix_insert(engine->prefix, s->tokens, s->computed, s->pages, slot, thin);
    s->kept_at = s->computed;
    return ES_OK;
}

static void fill_usage(const es_engine *engine, const es_sequence *s, es_event *event)
{
    const uint64_t now = es_clock_now(&engine->clock);
    event->prompt_tokens = s->prompt_count;
    event->cached_tokens = s->cached;
    event->completion_tokens = s->count - s->prompt_count;
    event->prompt_seconds = seconds(s->started_at, s->first_token_at ? s->first_token_at : now);
    event->completion_seconds = seconds(s->first_token_at, now);
}

void es_engine_finish(es_engine *engine, es_sequence *s, es_finish finish, const char *stop)
{
    es_event event = {.kind = ES_EVENT_DONE, .finish = finish, .stop_string = stop, .text = ""};
    if (!stop) es_sequence_rest(s, &event.text, &event.text_bytes);
    if (s->request.pooling && finish != ES_FINISH_CANCELLED) {
        event.embedding = s->embedding;
        event.embedding_count = engine->model->config.hidden;
    }
    fill_usage(engine, s, &event);
    if (!engine->no_cache) es_engine_keep(engine, s);
    atomic_fetch_add(finish == ES_FINISH_CANCELLED ? &engine->counters.cancelled : &engine->counters.finished, 1);
    es_sequence_send(s, &event);
    es_engine_leave(engine, s);
    release(engine, s);
}

void es_engine_fail(es_engine *engine, es_sequence *s, es_status status)
{
    es_event event = {.kind = ES_EVENT_ERROR, .status = status, .message = es_error_message(), .text = ""};
    fill_usage(engine, s, &event);
    atomic_fetch_add(&engine->counters.failed, 1);
    es_sequence_send(s, &event);
    es_engine_leave(engine, s);
    release(engine, s);
}

/* Whether this output row is the one that a sequence's next token is chosen from. */
static bool chooses(const es_sequence *s, int64_t position)
{
    return position == s->count - 1 && s->request.max_tokens > 0;
}

static bool is_read(const es_sequence *s, int64_t position)
{
    const bool told = s->request.on_logits || s->request.prompt_logprobs;
    return told && position >= s->logits_next && position < s->prompt_count;
}

/* True when this token's logits are needed: to choose the next token, or because the caller reads them. */
static bool wants_output(const es_sequence *s, int64_t position)
{
    return chooses(s, position) || is_read(s, position);
}

static void lay_out(es_engine *engine, es_batch *batch)
{
    *batch = (es_batch){.tokens = engine->step_tokens, .span = engine->spans, .output_row = engine->output_rows};
    engine->pooled_count = 0;
    for (int32_t i = 0; i < engine->running_count; i++) {
        es_sequence *s = engine->running[i];
        s->step_row = batch->rows;
        if (s->step_rows == 0) continue;
        engine->spans[batch->spans++] = (es_span){.first_row = batch->rows, .rows = s->step_rows, .start = s->computed,
                                                  .slot = s->slot, .pages = s->pages};
        for (int32_t r = 0; r < s->step_rows; r++) {
            const int64_t position = s->computed + r;
            if (wants_output(s, position)) {
                engine->output_owner[batch->outputs] = s;
                engine->output_rows[batch->outputs++] = batch->rows;
            }
            if (es_sequence_pools(s, position)) {
                engine->pooled_owner[engine->pooled_count] = s;
                engine->pooled_rows[engine->pooled_count++] = batch->rows;
            }
            engine->step_tokens[batch->rows++] = s->tokens[position];
        }
    }
}

static bool stops_answer(const es_engine *engine, const es_sequence *s, es_token token)
{
    for (size_t i = 0; i < s->request.stop_token_count; i++)
        if (s->request.stop_tokens[i] == token) return true;
    size_t count;
    const es_token *own = es_model_stop_tokens(engine->model, &count);
    for (size_t i = 0; i < count && !s->request.ignore_eos; i++)
        if (own[i] == token) return true;
    return false;
}

static es_sample_input input_of(es_sequence *s)
{
    const es_request *r = &s->request;
    return (es_sample_input){.sampling = &r->sampling, .bias = r->bias, .bias_count = r->bias_count, .history = s->tokens,
                             .history_count = s->count, .prompt_count = s->prompt_count,
                             .top_logprobs = r->logprobs || r->top_logprobs ? r->top_logprobs : -1};
}

/* The sequence's next token, from its last row's logits or what was picked of them. It may end here: *s is gone then. */
static void choose(es_engine *engine, es_sequence *s, const float *logits, es_picked *picked)
{
    const es_request *r = &s->request;
    es_allowed allowed = {.may_stop = true};
    es_status status = s->grammar ? es_constraint_allow(&engine->constraints, s, &allowed) : ES_OK;
    if (status == ES_OK && allowed.over) {
        es_engine_finish(engine, s, ES_FINISH_STOP, NULL);
        return;
    }
    es_sample_input input = input_of(s);
    input.logits = logits, input.picked = picked, input.allowed = allowed.mask;
    es_sample sample;
    es_event event = {.kind = ES_EVENT_TOKEN, .text = ""};
    if (status == ES_OK) status = es_sampler_choose(&engine->sampler, &input, &sample);
    const bool last = status == ES_OK && allowed.may_stop && stops_answer(engine, s, sample.token);
    bool over = false;
    if (status == ES_OK && s->grammar && !last) status = es_constraint_take(&engine->constraints, s, sample.token, &over);
    const char *stop = NULL;
    if (status == ES_OK)
        status = es_sequence_add_text(s, sample.token, !last || r->keep_special, &event.text, &event.text_bytes, &stop);
    if (status != ES_OK) {
        es_engine_fail(engine, s, status);
        return;
    }
    if (s->count == s->prompt_count) s->first_token_at = es_clock_now(&engine->clock);
    s->tokens[s->count++] = sample.token;
    atomic_fetch_add(&engine->counters.completion_tokens, 1);
    event.token = sample.token;
    event.logprob = sample.logprob;
    event.top = sample.top;
    event.top_count = sample.top_count;
    es_sequence_send(s, &event);
    if (last || stop || over)
        es_engine_finish(engine, s, ES_FINISH_STOP, stop);
    else if (s->count == s->capacity)
        es_engine_finish(engine, s, ES_FINISH_LENGTH, NULL);
}

/* Whoever wants to know is told what a prompt's token says of the one behind it. */
static void tell_prompt(es_engine *engine, es_sequence *s, int64_t position, const float *logits)
{
    const es_request *r = &s->request;
    s->logits_next = position + 1;
    if (r->on_logits) r->on_logits(r->user, position, logits, engine->model->config.vocabulary);
    if (!r->prompt_logprobs || position + 1 == s->prompt_count) return;
    es_sample sample;
    es_sampler_report(&engine->sampler, logits, s->tokens[position + 1], r->top_logprobs, &sample);
    es_event event = {.kind = ES_EVENT_PROMPT, .text = "", .prompt_done = position + 1, .token = sample.token,
                      .logprob = sample.logprob, .top = sample.top, .top_count = sample.top_count};
    es_sequence_send(s, &event);
}

/* What the device is to pick from each row; false: nothing from any. Whoever reads a row, or changes it, gets it whole. */
static bool plan_picks(es_engine *engine, const es_batch *part, int32_t first)
{
    bool any = false;
    for (int32_t i = 0; i < part->outputs; i++) {
        es_sequence *s = engine->output_owner[first + i];
        const int64_t position = s->computed + part->output_row[i] - s->step_row;
        const es_sample_input input = input_of(s);
        if (!chooses(s, position) || is_read(s, position) || s->grammar || !es_sampler_plan(&input, &engine->picks[i]))
            engine->picks[i] = (es_pick){0};
        any = any || engine->picks[i].wanted;
    }
    return any;
}

/* Run the head, and bring what was picked. */
static es_status run_head(es_engine *engine, es_batch *part, int32_t first)
{
    const es_network *network = &engine->network;
    part->pick = plan_picks(engine, part, first) ? engine->picks : NULL;
    ES_TRY(es_device_submit(engine->device, &network->head, part));
    if (!part->pick) return ES_OK;
    const size_t bytes = (size_t)part->outputs * sizeof(es_picked);
    const void *picked = es_device_peek(engine->device, network->picked.buffer, network->picked.offset, bytes);
    if (!picked) return ES_INTERNAL;
    memcpy(engine->picked, picked, bytes);
    return ES_OK;
}

/* A row's logits as the host can read them until the next row's; NULL where what was picked of them is enough. */
static es_status read_row(es_engine *engine, const es_batch *part, int32_t i, const float **row)
{
    const size_t bytes = (size_t)engine->model->config.vocabulary * sizeof(float);
    const es_slice at = engine->network.logits;
    *row = NULL;
    if (part->pick && part->pick[i].wanted && engine->picked[i].count <= ES_PICK_MOST) return ES_OK;
    *row = es_device_peek(engine->device, at.buffer, at.offset + (size_t)i * bytes, bytes);
    return *row ? ES_OK : ES_INTERNAL;
}

/* Logits of up to `outputs` rows at a time: their buffer is bounded, whatever was asked for. */
static es_status read_outputs(es_engine *engine, const es_batch *batch)
{
    const int32_t most = engine->network.sizes.outputs;
    for (int32_t first = 0; first < batch->outputs; first += most) {
        es_batch part = *batch;
        part.output_row = batch->output_row + first;
        part.outputs = batch->outputs - first < most ? batch->outputs - first : most;
        ES_TRY(run_head(engine, &part, first));
        for (int32_t i = 0; i < part.outputs; i++) {
            es_sequence *s = engine->output_owner[first + i];
            const int64_t position = s->computed + part.output_row[i] - s->step_row;
            const float *row;
            ES_TRY(read_row(engine, &part, i, &row));
            if (is_read(s, position)) tell_prompt(engine, s, position, row);
            if (chooses(s, position)) {
                s->computed += s->step_rows; /* its rows are done: from here on it may end */
                s->step_rows = 0;
                if (s->computed % ES_SEQUENCE_STRIDE == 0) ES_TRY(checkpoint(engine, s));
                choose(engine, s, row, row ? NULL : &engine->picked[i]);
            }
        }
    }
    return ES_OK;
}

/* Final states of the rows that embeddings are made of, as many at a time as there is room for. */
static es_status read_states(es_engine *engine, const es_batch *batch)
{
    const int32_t hidden = engine->model->config.hidden, most = engine->network.sizes.outputs;
    es_batch part = *batch;
    for (int32_t first = 0; first < engine->pooled_count; first += part.outputs) {
        part.output_row = engine->pooled_rows + first;
        part.outputs = engine->pooled_count - first < most ? engine->pooled_count - first : most;
        ES_TRY(es_device_submit(engine->device, &engine->network.norm, &part));
        const es_slice at = engine->network.act.normed;
        const float *states = es_device_peek(engine->device, at.buffer, at.offset, (size_t)part.outputs * (size_t)hidden * sizeof *states);
        if (!states) return ES_INTERNAL;
        for (int32_t i = 0; i < part.outputs; i++) {
            es_sequence *s = engine->pooled_owner[first + i];
            es_sequence_pool(s, s->computed + part.output_row[i] - s->step_row, states + (int64_t)i * hidden, hidden);
        }
    }
    return ES_OK;
}

/* Sequences whose prompt goes on (or, where one comes back, its answer so far), or ends without an answer. */
static es_status advance_prompts(es_engine *engine)
{
    for (int32_t i = 0; i < engine->running_count;) {
        es_sequence *s = engine->running[i];
        const bool moved = s->step_rows > 0;
        s->computed += s->step_rows;
        s->step_rows = 0;
        if (moved && s->computed < s->count && es_sequence_worth_keeping(s)) ES_TRY(checkpoint(engine, s));
        if (moved && s->count == s->prompt_count) es_sequence_send_progress(s);
        if (s->computed == s->prompt_count && s->request.max_tokens == 0)
            es_engine_finish(engine, s, ES_FINISH_LENGTH, NULL);
        else
            i++;
    }
    return ES_OK;
}

static void fail_all(es_engine *engine, es_status status)
{
    while (engine->running_count) es_engine_fail(engine, engine->running[0], status);
}

/* What the scheduler sees of the running sequences, and back. Adds up the rows of prompts, and of what is computed anew. */
static int32_t plan_step(es_engine *engine, int64_t *prompt_rows, int64_t *again_rows)
{
    for (int32_t i = 0; i < engine->running_count; i++) {
        const es_sequence *s = engine->running[i];
        int64_t until = s->paused ? s->computed : es_sequence_until(s, engine->recurrent);
        if (s->request.prompt_logprobs && until > s->computed + TOLD_ROWS) until = s->computed + TOLD_ROWS;
        engine->jobs[i] = (es_job){.computed = s->computed, .work = s->computed - s->resumed, .left = s->count - s->computed,
                                   .until = until,
                                   .decoding = !s->paused && es_sequence_decodes(s)};
    }
    const int32_t rows = es_scheduler_plan(&engine->scheduler, engine->jobs, engine->running_count);
    for (int32_t i = 0; i < engine->running_count; i++) {
        es_sequence *s = engine->running[i];
        s->step_rows = engine->jobs[i].rows;
        if (!engine->jobs[i].decoding) *(s->moves ? again_rows : prompt_rows) += s->step_rows;
    }
    return rows;
}

static void set_budget(es_engine *engine, double budget)
{
    engine->scheduler.budget = budget;
    atomic_store(&engine->counters.budget_nanoseconds, (uint64_t)(budget * 1e9));
}

/* A budget of three decode steps means steps as they are now, and steps without a prompt tell. */
static void follow_decode_time(es_engine *engine, double took)
{
    engine->decode_seconds = es_decode_time_after(engine->decode_seconds, took);
    if (engine->own_budget) set_budget(engine, es_budget_of(engine->decode_seconds, engine->info.step_budget, LEAST_BUDGET));
}

/* What is being computed, where a watcher sees it even if this step never ends. */
static void show_step(es_engine *engine, uint64_t start, const es_batch *batch, int64_t prompt_rows)
{
    es_engine_counters *c = &engine->counters;
    int64_t depth = 0;
    for (int32_t i = 0; i < batch->spans; i++)
        if (batch->span[i].start > depth) depth = batch->span[i].start;
    atomic_store(&c->step_sequences, batch->spans);
    atomic_store(&c->step_rows, batch->rows);
    atomic_store(&c->step_prompt_rows, (int32_t)prompt_rows);
    atomic_store(&c->step_depth, depth);
    atomic_store(&c->step_began, start);
}

/* Says what a step was doing that took many times its budget: how much of what, never whose or which words. */
static void tell_overrun(es_engine *engine, double took, uint64_t now)
{
    const es_engine_counters *c = &engine->counters;
    const double budget = engine->scheduler.budget;
    if (budget <= 0 || took < OVERRUN * budget) return;
    if (engine->overrun_told && (double)(now - engine->overrun_told) < TELL_AGAIN) return;
    engine->overrun_told = now;
    es_log(ES_LOG_NOTICE, "a step took %.0f ms, %.0f times its budget of %.3g ms: %d sequences, %d rows (%d of prompts), depth %lld",
           took * 1e3, took / budget, budget * 1e3, atomic_load(&c->step_sequences), atomic_load(&c->step_rows),
           atomic_load(&c->step_prompt_rows), (long long)atomic_load(&c->step_depth));
}

/* The first bucket whose bound, 0.5 ms times 2^i, is not less. */
static int bucket_of(uint64_t nanoseconds)
{
    const uint64_t halves = nanoseconds ? (nanoseconds - 1) / 500000 : 0;
    const int bits = halves ? 64 - __builtin_clzll(halves) : 0;
    return bits < ES_STEP_BUCKETS ? bits : ES_STEP_BUCKETS - 1;
}

/* `budget`: what the step had when it was planned. */
static void count_step(es_engine *engine, int32_t jobs, double budget, uint64_t took)
{
    bool decoding = false;
    for (int32_t i = 0; i < jobs; i++) decoding = decoding || engine->jobs[i].decoding;
    atomic_fetch_add(&engine->counters.step_bucket[bucket_of(took)], 1);
    atomic_fetch_add(&engine->counters.all_steps_nanoseconds, took);
    if (decoding && budget > 0 && (double)took * 1e-9 > budget) atomic_fetch_add(&engine->counters.budget_overruns, 1);
}

void es_engine_step(es_engine *engine)
{
    const double budget = engine->scheduler.budget;
    const uint64_t start = es_clock_now(&engine->clock);
    const int32_t jobs = engine->running_count;
    int64_t prompt_rows = 0, again_rows = 0;
    es_batch batch;
    /* The oldest can always go on, or somebody whose pages it waits for: a step without rows would be one without end. */
    es_status status = plan_step(engine, &prompt_rows, &again_rows) > 0
                           ? ES_OK
                           : es_fail(ES_INTERNAL, "none of %d sequences can go on", engine->running_count);
    lay_out(engine, &batch);
    if (status == ES_OK) show_step(engine, start, &batch, prompt_rows);
    if (status == ES_OK) status = es_device_submit(engine->device, &engine->network.body, &batch);
    if (status == ES_OK) status = read_states(engine, &batch);
    if (status == ES_OK) status = read_outputs(engine, &batch);
    if (status == ES_OK) status = advance_prompts(engine);
    atomic_store(&engine->counters.step_began, 0);
    if (status != ES_OK) {
        fail_all(engine, status);
        return;
    }
    const uint64_t now = es_clock_now(&engine->clock), took = now - start;
    tell_overrun(engine, (double)took * 1e-9, now);
    count_step(engine, jobs, budget, took);
    es_scheduler_learn(&engine->scheduler, engine->jobs, jobs, (double)took * 1e-9);
    if (prompt_rows + again_rows == 0) follow_decode_time(engine, (double)took * 1e-9);
    atomic_fetch_add(&engine->counters.steps, 1);
    atomic_fetch_add(&engine->counters.prompt_tokens, (uint64_t)prompt_rows);
    atomic_fetch_add(&engine->counters.recomputed_tokens, (uint64_t)again_rows);
    atomic_store(&engine->counters.step_nanoseconds, took);
}

/* Seconds of one step of `rows` rows behind `start` tokens of nobody's sequence, in slot 0, which nobody has yet. */
static es_status time_rows(es_engine *engine, int32_t rows, int64_t start_at, const int32_t *pages, double *took)
{
    const int32_t last = rows - 1;
    const es_span span = {.rows = rows, .start = start_at, .pages = pages};
    memset(engine->step_tokens, 0, (size_t)rows * sizeof *engine->step_tokens);
    const es_batch batch = {.rows = rows, .spans = 1, .outputs = 1, .tokens = engine->step_tokens, .span = &span,
                            .output_row = &last};
    const uint64_t start = es_clock_now(&engine->clock);
    ES_TRY(es_device_submit(engine->device, &engine->network.body, &batch));
    ES_TRY(es_device_submit(engine->device, &engine->network.head, &batch));
    *took = seconds(start, es_clock_now(&engine->clock));
    return ES_OK;
}

/* The shortest of such steps: two at least, more while they are short. A machine is busy when a server starts, if only with its
 * front end, and what is measured then decides how long the first steps beside a prompt take. */
static es_status time_least(es_engine *engine, int32_t rows, int64_t start_at, const int32_t *pages, double *took)
{
    double spent = 0;
    *took = HUGE_VAL;
    for (int i = 0; i < MEASURED_RUNS && (i < 2 || spent < MEASURED_SECONDS); i++) {
        double again;
        ES_TRY(time_rows(engine, rows, start_at, pages, &again));
        if (again < *took) *took = again;
        spent += again;
    }
    return ES_OK;
}

/* What one more row costs, and one more row for each token before it. The tokens before are what lies in a few pages, over and
 * over: only how many there are counts. Where measuring tells nothing (a tiny model), a sixteenth of a step and a millionth. */
static es_status measure_rows(es_engine *engine, double one, int32_t *pages, es_cost_model *cost)
{
    int32_t rows = engine->scheduler.most_chunk < MEASURED_ROWS ? engine->scheduler.most_chunk : MEASURED_ROWS;
    int64_t depth = MEASURED_DEPTH;
    double many, deep;
    if (rows > engine->info.context) rows = (int32_t)engine->info.context;
    if (depth > engine->info.context - rows) depth = engine->info.context - rows;
    ES_TRY(time_least(engine, rows, 0, pages, &many));
    ES_TRY(time_least(engine, rows, depth, pages, &deep));
    const double row = rows > 1 && many > one ? (many - one) / (rows - 1) : one / 16;
    const double deeper = depth > 0 && deep > many ? (deep - many) / ((double)rows * (double)depth) : row * 1e-6;
    *cost = (es_cost_model){one > row ? one - row : one / 2, row, deeper, engine->device->info.row_step};
    return ES_OK;
}

es_status es_engine_measure(es_engine *engine, double budget)
{
    int32_t pages[(MEASURED_DEPTH + MEASURED_ROWS) / 16 + 1];
    const int64_t some = engine->pages.total < MEASURED_PAGES ? engine->pages.total : MEASURED_PAGES;
    for (int64_t i = 0; i < (int64_t)(sizeof pages / sizeof *pages); i++) pages[i] = some ? (int32_t)(i % some) : 0;
    double one;
    ES_TRY(time_rows(engine, 1, 0, pages, &one)); /* touches the weights, perhaps on a disk: it does not count */
    ES_TRY(time_least(engine, 1, 0, pages, &one));
    ES_TRY(measure_rows(engine, one, pages, &engine->scheduler.cost));
    engine->info.decode_seconds = engine->decode_seconds = one;
    /* A gap below 20 ms is nobody's concern: a tiny model's prompts need not be cut to crumbs for it. */
    const double usual = es_budget_of(one, HUGE_VAL, LEAST_BUDGET);
    engine->info.step_budget = budget < 0 ? 0 : budget > 0 ? budget : usual;
    set_budget(engine, engine->info.step_budget);
    engine->own_budget = budget == 0;
    return ES_OK;
}
