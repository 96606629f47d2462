/* engine_host.c: see engine_host.h.
 *
 * Two threads beside the engine's: the main one moves messages, and a clerk does what they ask. A request may take a while to
 * accept (its grammar is compiled then), and nobody else's tokens wait for that. */
#include "serve/engine_host.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/channel.h"

/* Milliseconds between two words of what the engine does: soon after events, while it computes, and while it does nothing. */
enum { BEAT_SOON = 20, BEAT_BUSY = 100, BEAT_IDLE = 250 };

typedef struct host {
    const es_backend *backend;
    es_channel channel;
    pthread_t clerk;
    pthread_mutex_t lock;
    pthread_cond_t come;
    es_text inbox; /* under the lock: what the clerk is to do, as messages */
    bool closing;  /* under the lock */
    bool sent;     /* a lead went out in this turn */
    bool busy;     /* the engine had work when last asked */
} host;

/* An event that is lost would leave its request without an end: better to end at once, and be started anew. */
static void put_event(host *h, es_text *out, const es_event *event)
{
    if (!es_wire_put_event(out, event)) _exit(1);
    es_channel_end(&h->channel);
}

/* On the engine's thread. It waits only for a front end that has not read for megabytes: then there is nobody to serve. */
static void on_event(void *self, const es_event *event)
{
    host *h = self;
    es_text *out = es_channel_begin(&h->channel);
    es_channel_wait_room(&h->channel);
    put_event(h, out, event);
}

static void submit(host *h, const es_wire_message *message)
{
    const es_status status = h->backend->submit(h->backend->self, message->key, &message->request);
    const es_event refusal = {
        .kind = ES_EVENT_ERROR, .request = message->key, .text = "", .status = status, .message = es_error_message()};
    if (status != ES_OK) put_event(h, es_channel_begin(&h->channel), &refusal);
}

static void obey(host *h, const es_wire_message *message)
{
    const es_backend *backend = h->backend;
    if (message->kind == ES_WIRE_SUBMIT)
        submit(h, message);
    else if (message->kind == ES_WIRE_CANCEL)
        backend->cancel(backend->self, message->key);
    else if (backend->pause)
        backend->pause(backend->self, message->key, message->kind == ES_WIRE_PAUSE);
}

static void obey_all(host *h, const es_text *messages)
{
    es_wire_message message;
    ptrdiff_t used;
    for (size_t at = 0; at < messages->bytes; at += (size_t)used) {
        used = es_wire_take(messages->data + at, messages->bytes - at, &message);
        if (used <= 0) return; /* cannot be: this process wrote them */
        obey(h, &message);
    }
}

/* The clerk: takes all there is, and does it in order. */
static void *work(void *self)
{
    host *h = self;
    for (bool go_on = true; go_on;) {
        pthread_mutex_lock(&h->lock);
        while (!h->closing && h->inbox.bytes == 0) pthread_cond_wait(&h->come, &h->lock);
        es_text messages = h->inbox;
        h->inbox = (es_text){0};
        go_on = !h->closing;
        pthread_mutex_unlock(&h->lock);
        if (go_on) obey_all(h, &messages);
        es_text_free(&messages);
    }
    return NULL;
}

static void end_clerk(host *h)
{
    pthread_mutex_lock(&h->lock);
    h->closing = true;
    pthread_cond_signal(&h->come);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->clerk, NULL);
    es_text_free(&h->inbox);
    pthread_cond_destroy(&h->come);
    pthread_mutex_destroy(&h->lock);
}

static void on_message(void *self, const es_wire_message *m)
{
    host *h = self;
    const bool about_a_key = m->kind == ES_WIRE_CANCEL || m->kind == ES_WIRE_PAUSE || m->kind == ES_WIRE_RESUME;
    if (m->kind != ES_WIRE_SUBMIT && !about_a_key) return;
    pthread_mutex_lock(&h->lock);
    const bool put =
        about_a_key ? es_wire_put_key(&h->inbox, m->kind, m->key) : es_wire_put_submit(&h->inbox, m->key, &m->request);
    if (!put) _exit(1); /* as in put_event() */
    pthread_cond_signal(&h->come);
    pthread_mutex_unlock(&h->lock);
    h->busy = true;
}

static void put_stats(void *self, es_text *out)
{
    host *h = self;
    const es_engine_stats stats = h->backend->stats(h->backend->self);
    h->sent = true;
    h->busy = stats.running > 0 || stats.waiting > 0;
    if (!es_wire_put_stats(out, &stats)) es_text_clear(out); /* the next one will do */
}

bool es_host_is_started(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode);
}

/* The front end closing its end is the way in which this ends. */
static void serve(host *h)
{
    int wait = BEAT_IDLE;
    while (es_channel_turn(&h->channel, wait) == ES_OK) {
        if (!h->sent) es_channel_beat(&h->channel);
        wait = h->sent ? BEAT_SOON : h->busy ? BEAT_BUSY : BEAT_IDLE;
        h->sent = false;
    }
}

es_status es_host_run(int fd, const es_backend *backend, const es_engine_info *info, void (*stop)(void *user), void *user)
{
    host h = {.backend = backend};
    ES_TRY(es_channel_open(&h.channel));
    h.channel.on_message = on_message;
    h.channel.lead = put_stats;
    h.channel.user = &h;
    es_channel_reset(&h.channel, fd);
    backend->listen(backend->self, on_event, &h);
    pthread_mutex_init(&h.lock, NULL);
    pthread_cond_init(&h.come, NULL);
    if (pthread_create(&h.clerk, NULL, work, &h) != 0) _exit(1); /* nothing runs yet that would need an end */
    const es_backend_info *known = backend->info(backend->self);
    const es_wire_hello hello = {.engine = *info, .model = known->model ? known->model : "", .vocabulary = known->vocabulary};
    const bool said = es_wire_put_hello(es_channel_begin(&h.channel), &hello);
    es_channel_end(&h.channel);
    if (said) serve(&h);
    es_channel_reset(&h.channel, -1); /* nobody waits for room any more */
    end_clerk(&h);
    stop(user);
    es_channel_close(&h.channel);
    return said ? ES_OK : es_fail(ES_NO_MEMORY, "no memory to say that the engine is ready");
}

int es_host_refuse(int fd, es_status status)
{
    es_text out = {0};
    if (!es_wire_put_failed(&out, status, es_error_message()) || send(fd, out.data, out.bytes, MSG_NOSIGNAL) < 0)
        status = ES_INTERNAL; /* the exit code must do */
    es_text_free(&out);
    return es_status_exit_code(status);
}
