/* engine.c: the engine's life: sizing from a budget, the thread that steps, and the mailbox in front of it.
 *
 * Callers and the engine's thread meet only at the mailbox, under a lock that is never held during a step. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define DEFAULT_PARALLEL 4
#define DEFAULT_CHUNK 256
#define DEFAULT_PAGE 64
#define DEFAULT_QUEUE 1024
#define DEFAULT_RESERVE 4096
#define MOST_PARALLEL 1024
#define MOST_CHUNK 8192
#define LEAST_OUTPUTS 16
#define MOST_CHECKPOINTS 256
#define ANSWER_PAGES 2 /* in front of an answer whose memory is prepared */
#define MOST_TAILS 1024 /* partly filled pages that the prefix cache remembers besides */
#define IDLE_FACTOR 2.0
#define DEFAULT_DISK ((size_t)2 << 30)
#define LEAST_IDLE 0.1

es_request es_request_defaults(const es_model *model)
{
    es_request r = {.max_tokens = -1, .sampling = es_sampling_defaults()};
    const es_model_defaults *d = es_model_get_defaults(model);
    if (!isnan(d->temperature)) r.sampling.temperature = d->temperature;
    if (!isnan(d->top_p)) r.sampling.top_p = d->top_p;
    if (!isnan(d->min_p)) r.sampling.min_p = d->min_p;
    if (!isnan(d->repetition_penalty)) r.sampling.repetition_penalty = d->repetition_penalty;
    if (d->top_k >= 0) r.sampling.top_k = d->top_k;
    return r;
}

static es_status check_options(es_engine_options *o)
{
    if (o->parallel == 0) o->parallel = DEFAULT_PARALLEL;
    if (o->chunk == 0) o->chunk = DEFAULT_CHUNK;
    if (o->page == 0) o->page = DEFAULT_PAGE;
    if (o->queue == 0) o->queue = DEFAULT_QUEUE;
    if (o->reserve == 0) o->reserve = DEFAULT_RESERVE;
    if (o->parallel < 1 || o->parallel > MOST_PARALLEL)
        return es_fail(ES_INVALID, "parallel: %d is not between 1 and %d", o->parallel, MOST_PARALLEL);
    if (o->chunk < 1 || o->chunk > MOST_CHUNK)
        return es_fail(ES_INVALID, "chunk: %d is not between 1 and %d", o->chunk, MOST_CHUNK);
    if (o->page < 16 || o->page > 512 || (o->page & (o->page - 1)))
        return es_fail(ES_INVALID, "page: %d is not a power of two from 16 to 512", o->page);
    if (o->context < 0) return es_fail(ES_INVALID, "ctx: %" PRId64 " is negative", o->context);
    if (o->queue < 1) return es_fail(ES_INVALID, "queue: %d is not positive", o->queue);
    if (o->reserve < 1) return es_fail(ES_INVALID, "reserve: %" PRId64 " is not positive", o->reserve);
    if (o->pages < 0) return es_fail(ES_INVALID, "pages: %" PRId64 " is negative", o->pages);
    return ES_OK;
}

/* What remains of the budget after activations and states becomes pages, as many as all sequences together could fill. Sequences
 * share them, so that one alone may have all: its context is what fits the pool. */
static es_status size_caches(es_engine *engine, const es_engine_options *o, es_network_sizes *sizes)
{
    const es_config *c = &engine->model->config;
    const size_t weights = (size_t)engine->model->info.weight_bytes;
    size_t limit;
    ES_TRY(es_device_memory(o->device, &limit));
    /* By default six tenths of what the weights leave: the rest is for everybody else on the machine. A GPU is ours. */
    const size_t tenths = o->device == ES_DEVICE_CUDA ? 8 : 6;
    const size_t budget = o->memory ? o->memory : limit > weights ? (limit - weights) / 10 * tenths : 0;
    const size_t page = es_network_page_bytes(c, sizes->page, o->kv_type), slot = es_network_slot_bytes(c);
    if (slot && !o->no_cache) {
        const size_t checkpoints = (o->cache ? o->cache : budget / 8) / slot;
        engine->info.checkpoints = checkpoints < MOST_CHECKPOINTS ? (int32_t)checkpoints : MOST_CHECKPOINTS;
        sizes->slots += engine->info.checkpoints;
    }
    const size_t fixed = es_network_activation_bytes(c, sizes) + slot * (size_t)sizes->slots;
    int64_t fits = fixed > budget ? 0 : page ? (int64_t)((budget - fixed) / page) : INT32_MAX;
    if (o->pages && page && fits > o->pages) fits = o->pages;
    const int64_t asked = o->context && o->context < c->context ? o->context : c->context;
    if (o->context > c->context)
        return es_fail(ES_INVALID, "ctx: %" PRId64 " is more than the %" PRId64 " positions the model was made for", o->context,
                       c->context);
    const int64_t most = fits * sizes->page;
    const int64_t context = asked <= most ? asked : most;
    if (context < 1 || (o->context && context < o->context))
        return es_fail(ES_NO_MEMORY, "a sequence of %" PRId64 " tokens does not fit a memory budget of %zu MiB (%zu MiB for "
                       "activations and %d states, %zu KiB a token): use a smaller --ctx or --parallel, or a larger --memory",
                       asked, budget >> 20, fixed >> 20, sizes->slots, page / (size_t)sizes->page >> 10);
    const int64_t wanted = (context + sizes->page - 1) / sizes->page * o->parallel;
    sizes->pages = !page ? 0 : wanted < fits ? wanted : fits;
    engine->info.context = context;
    engine->info.pages = sizes->pages;
    engine->info.memory = fixed + page * (size_t)sizes->pages;
    engine->info.memory_limit = budget;
    return ES_OK;
}

static es_status open_device(es_engine *engine, const es_engine_options *o, const es_network_sizes *sizes)
{
    const es_config *c = &engine->model->config;
    es_loader counts;
    ES_TRY(es_network_check(engine->model, &counts));
    const es_device_options options = {
        .threads = o->threads, .rows = sizes->rows, .spans = o->parallel, .context = engine->info.context,
        .columns = counts.columns, .numeric = o->numeric, .kv_type = o->kv_type, .attention = o->attention,
        .copy_weights = es_device_copies_weights(o->device, o->weights, (size_t)engine->model->info.weight_bytes),
        .attn = c->attention_layers ? (es_attn_shape){c->query_heads, c->kv_heads, c->head_dim, sizes->page} : (es_attn_shape){0},
    };
    ES_TRY(es_device_open(o->device, &options, &engine->device));
    engine->info.threads = engine->device->info.threads;
    engine->info.device = engine->device->info.name;
    engine->info.instruction_set = engine->device->info.instruction_set;
    engine->info.memory += engine->device->info.workspace;
    return ES_OK;
}

static es_status allocate_lists(es_engine *engine, const es_engine_options *o, const es_network_sizes *sizes)
{
    const size_t rows = (size_t)sizes->rows, parallel = (size_t)o->parallel;
    engine->live_capacity = o->queue + o->parallel;
    engine->running = calloc(parallel, sizeof *engine->running);
    engine->spans = calloc(parallel, sizeof *engine->spans);
    engine->jobs = calloc(parallel, sizeof *engine->jobs);
    engine->claims = calloc(parallel + 1, sizeof *engine->claims);
    engine->step_tokens = calloc(rows, sizeof *engine->step_tokens);
    engine->output_rows = calloc(rows, sizeof *engine->output_rows);
    engine->output_owner = calloc(rows, sizeof *engine->output_owner);
    engine->pooled_rows = calloc(rows, sizeof *engine->pooled_rows);
    engine->pooled_owner = calloc(rows, sizeof *engine->pooled_owner);
    engine->picks = calloc((size_t)sizes->outputs, sizeof *engine->picks);
    engine->picked = calloc((size_t)sizes->outputs, sizeof *engine->picked);
    engine->live = calloc((size_t)engine->live_capacity, sizeof *engine->live);
    if (!engine->running || !engine->spans || !engine->jobs || !engine->claims || !engine->step_tokens || !engine->output_rows ||
        !engine->output_owner || !engine->pooled_rows || !engine->pooled_owner || !engine->picks || !engine->picked || !engine->live)
        return es_fail(ES_NO_MEMORY, "no memory for the engine's lists");
    ES_TRY(es_pages_open(sizes->pages, &engine->pages));
    ES_TRY(es_pages_open(sizes->slots, &engine->slots));
    engine->recurrent = engine->model->config.delta_layers > 0;
    engine->no_cache = o->no_cache;
    ES_TRY(es_prefix_open(&engine->pages, &engine->slots, sizes->page, engine->recurrent,
                          engine->recurrent ? sizes->slots : MOST_TAILS, &engine->prefix));
    es_constraints_open(engine->model, o->parallel, &engine->constraints);
    return es_sampler_open(engine->model->config.vocabulary, &engine->sampler);
}

/* A record is on the disk: the engine's thread may be asleep with more to save. */
static void wake(void *user)
{
    es_engine *engine = user;
    pthread_mutex_lock(&engine->lock);
    pthread_cond_signal(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
}

static es_status open_saves(es_engine *engine, const es_engine_options *o)
{
    if (!o->cache_dir || o->no_cache) return ES_OK;
    engine->saves = (es_saves){.prefix = engine->prefix, .pages = &engine->pages, .slots = &engine->slots,
                               .network = &engine->network, .clock = engine->clock};
    const es_saves_options options = {.folder = o->cache_dir, .bytes = o->cache_disk ? o->cache_disk : DEFAULT_DISK,
                                      .fingerprint = engine->fingerprint, .written = wake, .user = engine,
                                      .marks = engine->recurrent ? engine->slots.total : MOST_TAILS};
    return es_saves_open(&engine->saves, &options);
}

static void count_saves(es_engine *engine)
{
    atomic_store(&engine->counters.disk_read, engine->saves.restored);
    atomic_store(&engine->counters.disk_written, engine->saves.saved);
    atomic_store(&engine->counters.disk_failed, engine->saves.failed);
}

/* The fingerprint: what decides bits besides the model. On a GPU the mode's rounding is that of its instructions. */
static void name_bits(es_engine *engine, const es_engine_options *o)
{
    const bool gpu = o->device == ES_DEVICE_CUDA, own = o->kv_type == es_kv_type_resolve(ES_KV_AUTO, o->numeric);
    snprintf(engine->fingerprint, sizeof engine->fingerprint, "evenshare-%s-%s%s%s%s%s%s", ES_VERSION, gpu ? "cuda-" : "",
             gpu ? engine->info.instruction_set : "", gpu ? "-" : "", es_numeric_name(o->numeric), own ? "" : "-kv-",
             own ? "" : es_kv_type_name(o->kv_type));
}

static es_status build(es_engine *engine, es_engine_options *o)
{
    ES_TRY(check_options(o));
    o->device = es_device_resolve(o->device);
    if (o->numeric == ES_NUMERIC_AUTO) o->numeric = es_device_numeric(o->device, engine->model->weights);
    o->kv_type = es_kv_type_resolve(o->kv_type, o->numeric);
    es_network_sizes sizes = {.rows = o->chunk + o->parallel, .slots = o->parallel, .page = o->page, .numeric = o->numeric, .kv_type = o->kv_type,
                              .outputs = o->parallel > LEAST_OUTPUTS ? o->parallel : LEAST_OUTPUTS};
    ES_TRY(size_caches(engine, o, &sizes));
    ES_TRY(open_device(engine, o, &sizes));
    ES_TRY(es_network_open(engine->model, engine->device, &sizes, &engine->network));
    ES_TRY(allocate_lists(engine, o, &sizes));
    name_bits(engine, o);
    engine->info.parallel = o->parallel;
    engine->info.chunk = o->chunk;
    engine->info.page = o->page;
    engine->info.queue = o->queue;
    engine->info.numeric = o->numeric;
    engine->info.kv_type = o->kv_type;
    engine->info.fingerprint = engine->fingerprint;
    engine->queue = o->queue;
    engine->limits = (es_sequence_limits){engine->model, engine->info.context, o->reserve, o->page,
                                          engine->model->config.attention_layers > 0};
    engine->scheduler = (es_scheduler){.idle_factor = IDLE_FACTOR, .least_idle = LEAST_IDLE,
                                       .most_rows = sizes.rows, .most_chunk = o->chunk,
                                       .proven_chunk = o->chunk / 4};
    ES_TRY(es_engine_measure(engine, o->step_budget));
    engine->page_bytes = es_network_page_bytes(&engine->model->config, o->page, o->kv_type);
    engine->state_bytes = es_network_slot_bytes(&engine->model->config);
    ES_TRY(open_saves(engine, o));
    count_saves(engine);
    es_engine_count_memory(engine);
    es_ahead_open(&engine->ahead, &engine->network, sizes.pages, sizes.slots);
    return ES_OK;
}

static void take_mail(es_engine *engine)
{
    if (!engine->mail) return;
    *engine->waiting_tail = engine->mail;
    engine->waiting_tail = engine->mail_tail;
    engine->mail = NULL;
    engine->mail_tail = &engine->mail;
}

/* Sleeps until there is something to do; false when the engine is to stop. */
static bool wait_for_work(es_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    while (!engine->stop && !engine->mail && !engine->recall && !engine->waiting && engine->running_count == 0 &&
           !es_saves_due(&engine->saves))
        pthread_cond_wait(&engine->wake, &engine->lock);
    engine->recall = false;
    take_mail(engine);
    const bool go_on = !engine->stop;
    pthread_mutex_unlock(&engine->lock);
    return go_on;
}

/* Of a list of those without a place. `tail`: where the list's end is noted, or NULL. */
static void end_cancelled_of(es_engine *engine, es_sequence **list, es_sequence ***tail, bool all)
{
    for (es_sequence **at = list; *at;) {
        es_sequence *s = *at;
        if (!all && !atomic_load(&s->cancelled)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (!*at && tail) *tail = at;
        atomic_fetch_sub(&engine->counters.waiting, 1);
        es_engine_finish(engine, s, ES_FINISH_CANCELLED, NULL);
    }
}

static void end_cancelled(es_engine *engine, bool all)
{
    for (int32_t i = 0; i < engine->running_count;) {
        es_sequence *s = engine->running[i];
        if (all || atomic_load(&s->cancelled))
            es_engine_finish(engine, s, ES_FINISH_CANCELLED, NULL);
        else
            i++;
    }
    end_cancelled_of(engine, &engine->waiting, &engine->waiting_tail, all);
    end_cancelled_of(engine, &engine->set_aside, NULL, all);
}

/* What is handed out next. */
static void look_ahead_in(es_ahead *ahead, es_ahead_kind kind, const es_pages *pool)
{
    const int32_t margin = es_ahead_margin(ahead, kind);
    for (int64_t i = 1; i <= margin && i <= pool->free_count; i++) es_ahead_ask(ahead, kind, pool->free[pool->free_count - i]);
}

/* Memory that will be written soon: what each sequence comes to next, and what those that come will be given. An answer comes to a
 * page in some seconds, and must not keep a prompt waiting. */
static void look_ahead(es_engine *engine)
{
    for (int32_t i = 0; i < engine->running_count; i++) {
        const es_sequence *s = engine->running[i];
        const int32_t margin = es_sequence_decodes(s) ? ANSWER_PAGES : es_ahead_margin(&engine->ahead, ES_AHEAD_PAGES);
        const int64_t from = s->computed / engine->info.page;
        for (int64_t p = from; p < s->page_count && p < from + margin; p++) es_ahead_ask(&engine->ahead, ES_AHEAD_PAGES, s->pages[p]);
    }
    look_ahead_in(&engine->ahead, ES_AHEAD_STATES, &engine->slots);
    look_ahead_in(&engine->ahead, ES_AHEAD_PAGES, &engine->pages);
}

static void *engine_main(void *argument)
{
    es_engine *engine = argument;
    look_ahead(engine);
    while (wait_for_work(engine)) {
        end_cancelled(engine, false);
        es_engine_set_aside(engine);
        es_engine_make_room(engine);
        look_ahead(engine);
        if (engine->running_count) es_engine_step(engine);
        es_saves_step(&engine->saves, engine->running_count == 0);
        count_saves(engine);
    }
    end_cancelled(engine, true);
    es_saves_flush(&engine->saves);
    return NULL;
}

es_status es_engine_open(const es_model *model, const es_engine_options *options, es_engine **out)
{
    es_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return es_fail(ES_NO_MEMORY, "no memory for an engine");
    es_engine_options o = options ? *options : (es_engine_options){0};
    engine->model = model;
    engine->clock = es_clock_monotonic();
    engine->mail_tail = &engine->mail;
    engine->waiting_tail = &engine->waiting;
    engine->next_id = 1;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->wake, NULL);
    pthread_cond_init(&engine->ended, NULL);
    es_status status = build(engine, &o);
    if (status == ES_OK) {
        const int code = pthread_create(&engine->thread, NULL, engine_main, engine);
        engine->started = code == 0;
        if (code != 0) status = es_fail(ES_IO, "the engine's thread cannot be started: %s", strerror(code));
    }
    if (status != ES_OK) {
        es_engine_close(engine);
        return status;
    }
    *out = engine;
    return ES_OK;
}

void es_engine_close(es_engine *engine)
{
    if (!engine) return;
    if (engine->started) {
        pthread_mutex_lock(&engine->lock);
        engine->stop = true;
        pthread_cond_signal(&engine->wake);
        pthread_mutex_unlock(&engine->lock);
        pthread_join(engine->thread, NULL);
    }
    es_ahead_close(&engine->ahead);
    if (engine->network.model) es_network_close(&engine->network);
    es_device_close(engine->device);
    es_prefix_close(engine->prefix);
    es_saves_close(&engine->saves);
    es_pages_close(&engine->pages);
    es_pages_close(&engine->slots);
    es_sampler_close(&engine->sampler);
    es_constraints_close(&engine->constraints);
    free(engine->running);
    free(engine->spans);
    free(engine->jobs);
    free(engine->claims);
    free(engine->step_tokens);
    free(engine->output_rows);
    free(engine->output_owner);
    free(engine->pooled_rows);
    free(engine->pooled_owner);
    free(engine->picks);
    free(engine->picked);
    free(engine->live);
    pthread_cond_destroy(&engine->ended);
    pthread_cond_destroy(&engine->wake);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

const es_engine_info *es_engine_get_info(const es_engine *engine)
{
    return &engine->info;
}

es_status es_engine_submit(es_engine *engine, const es_request *request, uint64_t *id)
{
    es_sequence *s;
    ES_TRY(es_sequence_open(request, &engine->limits, &s));
    const es_status compiled = request->grammar ? es_constraint_compile(&engine->constraints, request, s) : ES_OK;
    if (compiled != ES_OK) {
        es_sequence_close(s);
        return compiled;
    }
    s->submitted_at = es_clock_now(&engine->clock);
    pthread_mutex_lock(&engine->lock);
    const bool stopped = engine->stop, full = engine->live_count == engine->live_capacity;
    if (!stopped && !full) {
        s->id = engine->next_id++;
        *id = s->id;
        engine->live[engine->live_count++] = s;
        *engine->mail_tail = s;
        engine->mail_tail = &s->next;
        atomic_fetch_add(&engine->counters.waiting, 1);
        pthread_cond_signal(&engine->wake);
    }
    pthread_mutex_unlock(&engine->lock);
    if (!stopped && !full) return ES_OK;
    es_sequence_close(s);
    if (stopped) return es_fail(ES_BUSY, "the engine is stopping");
    return es_fail(ES_BUSY, "%d requests are waiting already; try again later", engine->queue);
}

/* Needs the lock. */
static es_sequence *find_live(const es_engine *engine, uint64_t id)
{
    for (int32_t i = 0; i < engine->live_count; i++)
        if (engine->live[i]->id == id) return engine->live[i];
    return NULL;
}

/* Needs the lock. Wakes the engine even if all that it has is set aside. */
static void recall(es_engine *engine)
{
    engine->recall = true;
    pthread_cond_signal(&engine->wake);
}

void es_engine_cancel(es_engine *engine, uint64_t id)
{
    pthread_mutex_lock(&engine->lock);
    es_sequence *s = find_live(engine, id);
    if (s) atomic_store(&s->cancelled, true);
    recall(engine);
    pthread_mutex_unlock(&engine->lock);
}

void es_engine_pause(es_engine *engine, uint64_t id, bool paused)
{
    pthread_mutex_lock(&engine->lock);
    es_sequence *s = find_live(engine, id);
    if (s) atomic_store(&s->asked_to_pause, paused);
    recall(engine);
    pthread_mutex_unlock(&engine->lock);
}

void es_engine_wait(es_engine *engine, uint64_t id)
{
    pthread_mutex_lock(&engine->lock);
    while (find_live(engine, id)) pthread_cond_wait(&engine->ended, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
}

es_engine_stats es_engine_get_stats(const es_engine *engine)
{
    const es_engine_counters *c = &engine->counters;
    const uint64_t began = atomic_load(&c->step_began), now = es_clock_now(&engine->clock);
    es_engine_stats stats = {
        .steps = atomic_load(&c->steps), .prompt_tokens = atomic_load(&c->prompt_tokens),
        .completion_tokens = atomic_load(&c->completion_tokens), .finished = atomic_load(&c->finished),
        .failed = atomic_load(&c->failed), .cancelled = atomic_load(&c->cancelled), .running = atomic_load(&c->running),
        .waiting = atomic_load(&c->waiting), .cached_tokens = atomic_load(&c->cached_tokens),
        .preemptions = atomic_load(&c->preemptions), .recomputed_tokens = atomic_load(&c->recomputed_tokens),
        .pages_held = atomic_load(&c->pages_held), .cache_hits = atomic_load(&c->cache_hits),
        .cache_misses = atomic_load(&c->cache_misses), .budget_overruns = atomic_load(&c->budget_overruns),
        .disk_read = atomic_load(&c->disk_read), .disk_written = atomic_load(&c->disk_written),
        .disk_failed = atomic_load(&c->disk_failed), .states_used = (int32_t)atomic_load(&c->states_used),
        .states_total = engine->recurrent ? (int32_t)engine->slots.total : 0, .page_bytes = engine->page_bytes,
        .state_bytes = engine->state_bytes, .all_steps_seconds = (double)atomic_load(&c->all_steps_nanoseconds) * 1e-9,
        .pages_used = atomic_load(&c->pages_used), .pages_total = engine->info.pages,
        .last_step_seconds = (double)atomic_load(&c->step_nanoseconds) * 1e-9,
        .step_budget_seconds = (double)atomic_load(&c->budget_nanoseconds) * 1e-9,
        .step_seconds = began && now > began ? (double)(now - began) * 1e-9 : 0,
        .step_sequences = atomic_load(&c->step_sequences), .step_rows = atomic_load(&c->step_rows),
        .step_prompt_rows = atomic_load(&c->step_prompt_rows), .step_depth = atomic_load(&c->step_depth),
    };
    for (int i = 0; i < ES_STEP_BUCKETS; i++) stats.step_bucket[i] = atomic_load(&c->step_bucket[i]);
    return stats;
}
