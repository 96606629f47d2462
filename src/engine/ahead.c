/* ahead.c: see ahead.h. */
#include "engine/ahead.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MARGIN ((size_t)64 << 20) /* bytes of each kind */
#define LEAST_MARGIN 2
#define PRIORITY 10 /* nice: a step's workers come first, and still it gets somewhere */

static int32_t smaller(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

static int32_t margin_of(size_t bytes)
{
    const size_t fits = bytes ? MARGIN / bytes : 0;
    return fits > LEAST_MARGIN ? (int32_t)fits : LEAST_MARGIN;
}

static void *run(void *argument)
{
    es_ahead *a = argument;
    int32_t pages = 0, states = 0; /* present already */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), PRIORITY);
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        const bool state = states < a->wanted_states, page = !state && pages < a->wanted_pages;
        if (!state && !page) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        if (state) es_network_populate_state(a->network, states++);
        if (page) es_network_populate_page(a->network, pages++);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

void es_ahead_open(es_ahead *a, es_network *network, int64_t pages, int64_t states)
{
    const es_config *c = &network->model->config;
    if (!network->device->ops->populate) return;
    *a = (es_ahead){.network = network, .pages = (int32_t)pages, .states = c->delta_layers ? (int32_t)states : 0};
    a->page_margin = margin_of(es_network_page_bytes(c, network->sizes.page, network->sizes.kv_type));
    a->state_margin = margin_of(es_network_slot_bytes(c));
    a->wanted_pages = smaller(a->page_margin, a->pages);
    a->wanted_states = smaller(a->state_margin, a->states);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    a->started = pthread_create(&a->thread, NULL, run, a) == 0;
    if (a->started) return;
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
}

void es_ahead_close(es_ahead *a)
{
    if (!a->started) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    a->started = false;
}

void es_ahead_note(es_ahead *a, int64_t pages, int64_t states)
{
    if (!a->started) return;
    const int32_t more_pages = smaller(pages + a->page_margin, a->pages), more_states = smaller(states + a->state_margin, a->states);
    /* Only the caller's thread changes these two: it may read them without the lock. */
    if (more_pages <= a->wanted_pages && more_states <= a->wanted_states) return;
    pthread_mutex_lock(&a->lock);
    if (more_pages > a->wanted_pages) a->wanted_pages = more_pages;
    if (more_states > a->wanted_states) a->wanted_states = more_states;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}
