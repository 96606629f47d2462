/* backend_engine.c: the backend that lives in this process; see backend.h.
 *
 * The engine numbers requests itself and may finish one before es_engine_submit() has even told its number. So each request
 * has an entry here, found by the server's key: made before the submit, removed by the request's last event. */
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "serve/backend_text.h"

enum { BUCKETS = 256 };

typedef struct engine_backend engine_backend;

typedef struct entry {
    engine_backend *backend;
    struct entry *next;
    uint64_t key, id;
    bool numbered; /* `id` is known */
} entry;

struct engine_backend {
    es_backend_words words; /* first: self is both */
    es_engine *engine;
    es_event_fn on_event;
    void *user;
    pthread_mutex_t lock;
    entry *buckets[BUCKETS]; /* under the lock */
};

/* Called under the lock. The link that points to the entry, or to the NULL at the end of its bucket. */
static entry **find_link(engine_backend *backend, uint64_t key)
{
    /* the low bits of a key number the choices of one call */
    entry **at = &backend->buckets[(key ^ key >> 16) % BUCKETS];
    while (*at && (*at)->key != key) at = &(*at)->next;
    return at;
}

static void remove_entry(engine_backend *backend, uint64_t key)
{
    pthread_mutex_lock(&backend->lock);
    entry **link = find_link(backend, key);
    entry *found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&backend->lock);
    free(found);
}

static void listen_to(void *self, es_event_fn on_event, void *user)
{
    engine_backend *backend = self;
    backend->on_event = on_event;
    backend->user = user;
}

/* On the engine's thread. */
static void forward_event(void *user, const es_event *event)
{
    const entry *request = user;
    engine_backend *backend = request->backend;
    es_event named = *event;
    named.request = request->key;
    if (event->kind == ES_EVENT_DONE || event->kind == ES_EVENT_ERROR) remove_entry(backend, named.request);
    backend->on_event(backend->user, &named);
}

static es_status submit(void *self, uint64_t key, const es_request *request)
{
    engine_backend *backend = self;
    entry *added = malloc(sizeof *added);
    if (!added) return es_fail(ES_NO_MEMORY, "no memory for a request");
    *added = (entry){.backend = backend, .key = key};
    pthread_mutex_lock(&backend->lock);
    entry **link = find_link(backend, key);
    *link = added;
    pthread_mutex_unlock(&backend->lock);
    es_request with_events = *request;
    with_events.on_event = forward_event;
    with_events.on_logits = NULL;
    with_events.user = added;
    uint64_t id;
    const es_status status = es_engine_submit(backend->engine, &with_events, &id);
    if (status != ES_OK) {
        remove_entry(backend, key);
        return status;
    }
    pthread_mutex_lock(&backend->lock);
    entry *found = *find_link(backend, key);
    if (found) found->id = id, found->numbered = true;
    pthread_mutex_unlock(&backend->lock);
    return ES_OK;
}

/* The engine's number of a request; 0: it knows none. */
static uint64_t number_of(engine_backend *backend, uint64_t key)
{
    pthread_mutex_lock(&backend->lock);
    const entry *found = *find_link(backend, key);
    const uint64_t id = found && found->numbered ? found->id : 0;
    pthread_mutex_unlock(&backend->lock);
    return id;
}

static void cancel(void *self, uint64_t key)
{
    engine_backend *backend = self;
    const uint64_t id = number_of(backend, key);
    if (id) es_engine_cancel(backend->engine, id);
}

static void pause_request(void *self, uint64_t key, bool paused)
{
    engine_backend *backend = self;
    const uint64_t id = number_of(backend, key);
    if (id) es_engine_pause(backend->engine, id, paused);
}

static es_engine_stats get_stats(void *self)
{
    return es_engine_get_stats(((engine_backend *)self)->engine);
}

es_status es_backend_open_engine(const es_model *model, es_engine *engine, es_backend *out)
{
    engine_backend *backend = calloc(1, sizeof *backend);
    if (!backend) return es_fail(ES_NO_MEMORY, "no memory for the server's link to the engine");
    const es_engine_info *info = es_engine_get_info(engine);
    es_backend_words_init(&backend->words, model, out);
    backend->words.info.fingerprint = info->fingerprint;
    backend->words.info.kv_type = es_kv_type_name(info->kv_type);
    backend->words.info.context = info->context;
    backend->engine = engine;
    pthread_mutex_init(&backend->lock, NULL);
    out->listen = listen_to;
    out->submit = submit;
    out->cancel = cancel;
    out->stats = get_stats;
    out->pause = pause_request;
    return ES_OK;
}

void es_backend_close_engine(es_backend *backend)
{
    engine_backend *self = backend->self;
    if (!self) return;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (entry *at = self->buckets[i]; at;) {
            entry *next = at->next;
            free(at);
            at = next;
        }
    }
    pthread_mutex_destroy(&self->lock);
    free(self);
    *backend = (es_backend){0};
}
