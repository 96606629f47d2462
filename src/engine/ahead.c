/* ahead.c: see ahead.h. */
#include "engine/ahead.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

#define PAGES_MARGIN ((size_t)192 << 20) /* bytes, and at most an eighth of all pages: an answer takes more than it may ever use */
#define LEAST_PAGES 2
#define STATES_MARGIN 6 /* a prompt's end keeps some four states within a few steps */
#define REST 3 /* times what a part took */

static void rest(const es_clock *clock, uint64_t since)
{
    const uint64_t ns = REST * (es_clock_now(clock) - since);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}, NULL);
}

/* One part of a page or state; false where there is no such part. */
static bool populate(es_ahead *a, es_ahead_kind kind, int32_t number, int32_t part)
{
    return kind == ES_AHEAD_STATES ? es_network_populate_state(a->network, number, part)
                                   : es_network_populate_page(a->network, number, part);
}

static void *run(void *argument)
{
    es_ahead *a = argument;
    const es_clock clock = es_clock_monotonic();
    struct {
        int32_t done, part; /* of a queue: all before `done`, and so many parts of that one */
    } at[ES_AHEAD_KINDS] = {{0, 0}};
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        es_ahead_kind kind = 0;
        while (kind < ES_AHEAD_KINDS && at[kind].done == a->list[kind].count) kind++;
        if (kind == ES_AHEAD_KINDS) {
            pthread_cond_wait(&a->wake, &a->lock);
            continue;
        }
        const int32_t number = a->list[kind].queue[at[kind].done];
        pthread_mutex_unlock(&a->lock);
        const uint64_t began = es_clock_now(&clock);
        if (populate(a, kind, number, at[kind].part)) {
            at[kind].part++;
            rest(&clock, began);
        } else {
            at[kind].done++;
            at[kind].part = 0;
        }
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static void free_lists(es_ahead *a)
{
    for (int kind = 0; kind < ES_AHEAD_KINDS; kind++) {
        free(a->list[kind].asked);
        free(a->list[kind].queue);
    }
}

static bool new_list(es_ahead_list *list, int64_t total, int64_t margin)
{
    *list = (es_ahead_list){.total = (int32_t)total, .margin = (int32_t)(margin < total ? margin : total)};
    list->asked = calloc((size_t)total + 1, sizeof *list->asked);
    list->queue = malloc(((size_t)total + 1) * sizeof *list->queue);
    return list->asked && list->queue;
}

void es_ahead_open(es_ahead *a, es_network *network, int64_t pages, int64_t states)
{
    const es_config *c = &network->model->config;
    *a = (es_ahead){.network = network};
    if (!network->device->ops->populate) return;
    const size_t bytes = es_network_page_bytes(c, network->sizes.page, network->sizes.kv_type), fits = bytes ? PAGES_MARGIN / bytes : 0;
    const int64_t some = (int64_t)fits < pages / 8 ? (int64_t)fits : pages / 8;
    if (!new_list(&a->list[ES_AHEAD_PAGES], pages, some > LEAST_PAGES ? some : LEAST_PAGES) ||
        !new_list(&a->list[ES_AHEAD_STATES], c->delta_layers ? states : 0, STATES_MARGIN)) {
        free_lists(a);
        return;
    }
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    a->started = pthread_create(&a->thread, NULL, run, a) == 0;
    if (a->started) return;
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    free_lists(a);
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
    free_lists(a);
    a->started = false;
}

int32_t es_ahead_margin(const es_ahead *a, es_ahead_kind kind)
{
    return a->started ? a->list[kind].margin : 0;
}

void es_ahead_ask(es_ahead *a, es_ahead_kind kind, int32_t number)
{
    es_ahead_list *list = &a->list[kind];
    if (!a->started || number >= list->total || list->asked[number]) return;
    list->asked[number] = true;
    pthread_mutex_lock(&a->lock);
    list->queue[list->count++] = number;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}
