/* backend_process.c: see backend_process.h.
 *
 * One thread, the keeper, starts the engine's process, carries messages, watches over its steps, buries it and starts the next
 * one. Others meet it at the table of open requests, under a lock that is held for a few instructions. */
#include "serve/backend_process.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/channel.h"
#include "serve/child.h"
#include "serve/watch.h"

enum { BUCKETS = 256, TURN = 100 };
#define QUICK         10.0 /* seconds; an engine that dies sooner than that died at once */
#define FIRST_PAUSE   0.5  /* seconds before the second restart of one that dies at once; doubles */
#define LAST_PAUSE    30.0
#define SLOWER_STARTS 10    /* a restart may take so many times the first start */
#define LEAST_START   300.0 /* and so many seconds in any case: a cache may have to be read back */
#define LAST_WORDS    0.5   /* seconds for a process whose socket has closed to end by itself */

typedef struct entry {
    struct entry *next;
    uint64_t key;
    bool begun; /* the engine has worked on it */
} entry;

typedef struct process {
    es_process_options options;
    es_backend_info info;  /* does not change once the first engine is up; nor do the next two */
    es_engine_info engine; /* of the first engine; its strings lie in `hello` */
    es_text hello;
    es_event_fn on_event;
    void *user;
    pthread_t keeper;
    es_channel channel;

    pthread_mutex_t lock;
    pthread_cond_t settled;
    /* under the lock */
    entry *buckets[BUCKETS];
    size_t open; /* entries */
    es_engine_stats stats;
    bool up, ever_up, failed, closing;
    uint64_t since, restarts; /* nanoseconds: of the last change of `up` */
    char reason[256];
    es_status status; /* why the first start failed, with `reason` */

    /* the keeper's */
    es_clock clock;
    es_child child;
    es_watch watch;
    bool greeted; /* this engine has said hello */
    bool broken;  /* it said something that ends it; `reason` says what */
    uint64_t started;
    double first_start, close_seconds;
    int quick_deaths;
} process;

static double since(const process *p, uint64_t then)
{
    return (double)(es_clock_now(&p->clock) - then) * 1e-9;
}

/* ---- the table of open requests; all under the lock ---- */

static entry **find_link(process *p, uint64_t key)
{
    /* the low bits of a key number the choices of one call */
    entry **at = &p->buckets[(key ^ key >> 16) % BUCKETS];
    while (*at && (*at)->key != key) at = &(*at)->next;
    return at;
}

/* Takes everything out, as one list. */
static entry *take_all(process *p)
{
    entry *all = NULL;
    for (size_t b = 0; b < BUCKETS; b++) {
        while (p->buckets[b]) {
            entry *first = p->buckets[b];
            p->buckets[b] = first->next;
            first->next = all;
            all = first;
        }
    }
    p->open = 0;
    return all;
}

/* ---- what the server calls ---- */

static const es_backend_info *get_info(void *self)
{
    return &((process *)self)->info;
}

static es_status render(void *self, const char *variables_json, char **text)
{
    const es_backend *words = ((process *)self)->options.text;
    return words->render(words->self, variables_json, text);
}

static es_status encode(void *self, const char *text, size_t bytes, unsigned flags, es_token **tokens, size_t *count)
{
    const es_backend *words = ((process *)self)->options.text;
    return words->encode(words->self, text, bytes, flags, tokens, count);
}

static const char *piece(void *self, es_token token, size_t *bytes)
{
    const es_backend *words = ((process *)self)->options.text;
    return words->piece(words->self, token, bytes);
}

static void listen_to(void *self, es_event_fn on_event, void *user)
{
    process *p = self;
    pthread_mutex_lock(&p->lock);
    p->on_event = on_event;
    p->user = user;
    pthread_mutex_unlock(&p->lock);
}

/* Under the lock: the entry and the message come into being together, or not at all. */
static es_status enter(process *p, uint64_t key, const es_request *request, entry *added)
{
    const size_t places = (size_t)p->engine.queue + (size_t)p->engine.parallel;
    if (!p->up) return es_fail(ES_UNAVAILABLE, "the engine is being started anew (%s): try again soon", p->reason);
    if (p->open >= places) return es_fail(ES_BUSY, "%d requests are waiting already; try again later", p->engine.queue);
    es_text *out = es_channel_begin(&p->channel);
    es_status status = ES_OK;
    if (!es_channel_has_room(&p->channel))
        status = es_fail(ES_BUSY, "the engine has much to read; try again later");
    else if (!es_wire_put_submit(out, key, request))
        status = es_fail(ES_NO_MEMORY, "no memory for a request");
    es_channel_end(&p->channel);
    if (status != ES_OK) return status;
    *added = (entry){.key = key};
    *find_link(p, key) = added;
    p->open++;
    p->stats.waiting++;
    return ES_OK;
}

static es_status submit(void *self, uint64_t key, const es_request *request)
{
    process *p = self;
    if (p->options.check) ES_TRY(p->options.check(p->options.text->self, p->info.context, request));
    entry *added = malloc(sizeof *added);
    if (!added) return es_fail(ES_NO_MEMORY, "no memory for a request");
    pthread_mutex_lock(&p->lock);
    const es_status status = enter(p, key, request, added);
    pthread_mutex_unlock(&p->lock);
    if (status != ES_OK) free(added);
    return status;
}

/* Without memory for so few bytes the request goes on as it did: nobody is hurt. */
static void send_key(process *p, es_wire_kind kind, uint64_t key)
{
    pthread_mutex_lock(&p->lock);
    if (*find_link(p, key)) {
        es_wire_put_key(es_channel_begin(&p->channel), kind, key);
        es_channel_end(&p->channel);
    }
    pthread_mutex_unlock(&p->lock);
}

static void cancel(void *self, uint64_t key)
{
    send_key(self, ES_WIRE_CANCEL, key);
}

static void pause_request(void *self, uint64_t key, bool paused)
{
    send_key(self, paused ? ES_WIRE_PAUSE : ES_WIRE_RESUME, key);
}

static es_engine_stats get_stats(void *self)
{
    process *p = self;
    pthread_mutex_lock(&p->lock);
    const es_engine_stats stats = p->stats;
    pthread_mutex_unlock(&p->lock);
    return stats;
}

static es_backend_health get_health(void *self)
{
    process *p = self;
    pthread_mutex_lock(&p->lock);
    es_backend_health health = {.up = p->up, .seconds = since(p, p->since), .restarts = p->restarts};
    memcpy(health.reason, p->reason, sizeof health.reason);
    pthread_mutex_unlock(&p->lock);
    return health;
}

/* ---- messages of the engine ---- */

static void set_reason(process *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void set_reason(process *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&p->lock);
    vsnprintf(p->reason, sizeof p->reason, format, args);
    pthread_mutex_unlock(&p->lock);
    va_end(args);
}

static void break_off(process *p, const char *why)
{
    p->broken = true;
    set_reason(p, "%s", why);
}

/* The words of a dead engine's successor must be those of the first: answers would differ, or tokens mean something else. */
static bool is_same_engine(const process *p, const es_wire_hello *hello)
{
    const es_backend_info *words = p->options.text->info(p->options.text->self);
    return hello->vocabulary == words->vocabulary && strcmp(hello->model, words->model ? words->model : "") == 0 &&
           (!p->ever_up ||
            (strcmp(hello->engine.fingerprint, p->engine.fingerprint) == 0 && hello->engine.context == p->engine.context));
}

/* Its strings lead into a message that will be gone: so it is written down, and read again from there. */
static bool keep_hello(process *p, const es_wire_hello *hello)
{
    es_wire_message copy;
    if (!es_wire_put_hello(&p->hello, hello) || es_wire_take(p->hello.data, p->hello.bytes, &copy) <= 0) return false;
    p->engine = copy.hello.engine;
    p->info.fingerprint = p->engine.fingerprint;
    p->info.kv_type = es_kv_type_name(p->engine.kv_type);
    p->info.context = p->engine.context;
    p->first_start = since(p, p->started);
    return true;
}

static void take_hello(process *p, const es_wire_hello *hello)
{
    if (!is_same_engine(p, hello)) {
        break_off(p, "the engine came back with another model or other limits: restart the server");
        return;
    }
    if (!p->ever_up && !keep_hello(p, hello)) {
        break_off(p, "no memory for what the engine says of itself");
        return;
    }
    p->greeted = true;
    p->watch = (es_watch){.deadline = es_watch_deadline(p->options.step_deadline, hello->engine.step_budget)};
    pthread_mutex_lock(&p->lock);
    if (p->ever_up) p->restarts++;
    p->up = p->ever_up = true;
    p->since = es_clock_now(&p->clock);
    pthread_cond_broadcast(&p->settled);
    pthread_mutex_unlock(&p->lock);
    if (p->restarts) es_log(ES_LOG_NOTICE, "the engine is back after %.1f s", since(p, p->started));
}

/* A last event takes its request out of the table; one that nobody waits for goes no further. */
static void take_event(process *p, const es_event *event)
{
    const bool last = event->kind == ES_EVENT_DONE || event->kind == ES_EVENT_ERROR;
    entry *ended = NULL;
    pthread_mutex_lock(&p->lock);
    entry **link = find_link(p, event->request);
    const bool known = *link != NULL;
    if (known) (*link)->begun = true;
    if (known && last) {
        ended = *link;
        *link = ended->next;
        p->open--;
    }
    const es_event_fn on_event = p->on_event;
    void *user = p->user;
    pthread_mutex_unlock(&p->lock);
    free(ended);
    if (known && on_event) on_event(user, event);
}

static void take_stats(process *p, const es_engine_stats *stats)
{
    es_watch_hear(&p->watch, stats);
    pthread_mutex_lock(&p->lock);
    p->stats = *stats;
    pthread_mutex_unlock(&p->lock);
}

static void on_message(void *self, const es_wire_message *m)
{
    process *p = self;
    p->watch.silence = 0;
    if (p->broken) return;
    if (m->kind == ES_WIRE_HELLO && !p->greeted) {
        take_hello(p, &m->hello);
    } else if (m->kind == ES_WIRE_FAILED && !p->greeted) {
        p->status = m->failed.status;
        break_off(p, m->failed.message);
    } else if (m->kind == ES_WIRE_EVENT && p->greeted) {
        take_event(p, &m->event);
    } else if (m->kind == ES_WIRE_STATS && p->greeted) {
        take_stats(p, &m->stats);
    } else if (m->kind != ES_WIRE_STATS) {
        break_off(p, "the engine's process sent what it must not send");
    }
}

/* ---- the keeper ---- */

static bool is_closing(process *p)
{
    pthread_mutex_lock(&p->lock);
    const bool closing = p->closing;
    pthread_mutex_unlock(&p->lock);
    return closing;
}

/* False, with the reason, when a step or a start takes too long. */
static bool is_in_time(process *p, double passed)
{
    if (!p->greeted) {
        const double usual = SLOWER_STARTS * p->first_start, most = usual > LEAST_START ? usual : LEAST_START;
        if (!p->ever_up || since(p, p->started) < most) return true;
        set_reason(p, "the engine's process was not ready after %.0f s", most);
        return false;
    }
    const es_watch_word word = es_watch_pass(&p->watch, passed);
    if (word == ES_WATCH_FINE) return true;
    const es_engine_stats s = get_stats(p);
    if (word == ES_WATCH_SILENT)
        set_reason(p, "the engine's process said nothing for %.3g s", p->watch.deadline);
    else
        set_reason(p, "a step passed its deadline of %.3g s: %d sequences, %d rows (%d of prompts), depth %" PRId64,
                   p->watch.deadline, s.step_sequences, s.step_rows, s.step_prompt_rows, s.step_depth);
    return false;
}

typedef enum end { GONE, BROKEN, LATE, CLOSING } end;

/* Messages to and fro, until there are no more. The reason is set, unless the process is simply gone. */
static end carry(process *p)
{
    for (uint64_t last = es_clock_now(&p->clock);;) {
        const es_status status = es_channel_turn(&p->channel, TURN);
        const uint64_t now = es_clock_now(&p->clock);
        if (is_closing(p)) return CLOSING;
        if (status != ES_OK && status != ES_IO) break_off(p, es_error_message());
        if (p->broken) return BROKEN;
        if (status != ES_OK) return GONE;
        if (!is_in_time(p, (double)(now - last) * 1e-9)) return LATE;
        last = now;
    }
}

/* Every request that was open gets its one last event. */
static void fail_open(process *p)
{
    pthread_mutex_lock(&p->lock);
    char reason[sizeof p->reason];
    memcpy(reason, p->reason, sizeof reason);
    p->since = p->up ? es_clock_now(&p->clock) : p->since;
    p->up = false;
    p->stats.running = p->stats.waiting = 0;
    p->stats.pages_used = 0;
    p->stats.step_seconds = 0;
    const size_t count = p->open;
    entry *all = take_all(p);
    const es_event_fn on_event = p->on_event;
    void *user = p->user;
    pthread_mutex_unlock(&p->lock);
    if (!is_closing(p)) es_log(ES_LOG_ERROR, "%s; %zu requests get an error, and the engine is started anew", reason, count);
    while (all) {
        entry *next = all->next;
        char message[400];
        snprintf(message, sizeof message, "%s, and is started anew (%s): send the request again",
                 all->begun ? "the engine failed while it worked on this request"
                            : "the engine failed before it came to this request",
                 reason);
        const es_event event = {.kind = ES_EVENT_ERROR,
                                .request = all->key,
                                .text = "",
                                .message = message,
                                .status = all->begun ? ES_INTERNAL : ES_UNAVAILABLE};
        if (on_event) on_event(user, &event);
        free(all);
        all = next;
    }
}

/* One engine, from its start to its burial. */
static void live_once(process *p)
{
    char how[128];
    p->greeted = p->broken = false;
    p->started = es_clock_now(&p->clock);
    p->status = ES_INTERNAL;
    if (es_child_start(p->options.command, &p->child) != ES_OK) {
        p->status = ES_IO;
        set_reason(p, "%s", es_error_message());
        return;
    }
    es_channel_reset(&p->channel, p->child.fd);
    const end ended = carry(p);
    es_channel_reset(&p->channel, -1);
    es_child_end(&p->child, ended == CLOSING ? p->close_seconds : ended == LATE ? 0 : LAST_WORDS, how, sizeof how);
    if (ended == GONE) set_reason(p, "the engine's process %s", how);
}

/* Ever longer pauses where the engine dies at once, again and again. */
static void pause_before_next(process *p, double lived)
{
    p->quick_deaths = p->greeted && lived >= QUICK ? 0 : p->quick_deaths + 1;
    double pause = p->quick_deaths < 2 ? 0 : FIRST_PAUSE;
    for (int i = 2; i < p->quick_deaths && pause < LAST_PAUSE; i++) pause *= 2;
    const uint64_t from = es_clock_now(&p->clock);
    while (!is_closing(p) && since(p, from) < pause)
        if (es_channel_turn(&p->channel, TURN) != ES_OK) return;
}

static void *keep(void *self)
{
    process *p = self;
    while (!is_closing(p)) {
        live_once(p);
        const double lived = since(p, p->started);
        if (!p->ever_up) break;
        fail_open(p);
        pause_before_next(p, lived);
    }
    pthread_mutex_lock(&p->lock);
    p->failed = true;
    pthread_cond_broadcast(&p->settled);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- open and close ---- */

/* Signals are the main thread's. */
static bool start_keeper(process *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&p->keeper, NULL, keep, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void free_process(process *p)
{
    pthread_cond_destroy(&p->settled);
    pthread_mutex_destroy(&p->lock);
    es_channel_close(&p->channel);
    es_text_free(&p->hello);
    free(p);
}

es_status es_backend_open_process(const es_process_options *options, es_engine_info *info, es_backend *backend)
{
    process *p = calloc(1, sizeof *p);
    if (!p) return es_fail(ES_NO_MEMORY, "no memory for the server's link to the engine");
    p->options = *options;
    p->info = *options->text->info(options->text->self);
    p->clock = es_clock_monotonic();
    p->child.fd = -1;
    es_status status = es_channel_open(&p->channel);
    if (status != ES_OK) {
        free(p);
        return status;
    }
    p->channel.on_message = on_message;
    p->channel.user = p;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->settled, NULL);
    if (!start_keeper(p)) {
        free_process(p);
        return es_fail(ES_IO, "no thread to watch over the engine can be started");
    }
    pthread_mutex_lock(&p->lock);
    while (!p->ever_up && !p->failed) pthread_cond_wait(&p->settled, &p->lock);
    const bool up = p->ever_up;
    pthread_mutex_unlock(&p->lock);
    if (!up) {
        pthread_join(p->keeper, NULL);
        status = es_fail(p->status, "%s", p->reason);
        free_process(p);
        return status;
    }
    *info = p->engine;
    *backend =
        (es_backend){p, get_info, render, encode, piece, listen_to, submit, cancel, get_stats, pause_request, get_health};
    return ES_OK;
}

void es_backend_close_process(es_backend *backend, double seconds)
{
    process *p = backend->self;
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    p->close_seconds = seconds;
    pthread_mutex_unlock(&p->lock);
    es_channel_wake(&p->channel);
    pthread_join(p->keeper, NULL);
    free_process(p);
    *backend = (es_backend){0};
}
