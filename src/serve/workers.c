/* workers.c: see workers.h. */
#include "serve/workers.h"

#include <pthread.h>
#include <stdlib.h>

enum { WORKERS_MAX = 16 };

struct es_workers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    es_task *first, **last;
    size_t waiting, limit;
    bool closing;
    int threads;
    pthread_t thread[WORKERS_MAX];
};

static es_task *take_task(es_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    while (!workers->first && !workers->closing) pthread_cond_wait(&workers->changed, &workers->lock);
    es_task *task = workers->first;
    if (task) {
        workers->first = task->next;
        if (!workers->first) workers->last = &workers->first;
        workers->waiting--;
    }
    pthread_mutex_unlock(&workers->lock);
    return task;
}

static void *work(void *self)
{
    for (es_task *task; (task = take_task(self));) task->run(task);
    return NULL;
}

es_status es_workers_open(int threads, size_t queue, es_workers **out)
{
    es_workers *workers = calloc(1, sizeof *workers);
    if (!workers) return es_fail(ES_NO_MEMORY, "no memory for the server's workers");
    workers->last = &workers->first;
    workers->limit = queue;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->changed, NULL);
    for (int i = 0; i < threads && i < WORKERS_MAX; i++) {
        if (pthread_create(&workers->thread[i], NULL, work, workers) != 0) break;
        workers->threads++;
    }
    if (workers->threads == 0) {
        es_workers_close(workers);
        return es_fail(ES_NO_MEMORY, "no thread could be started");
    }
    *out = workers;
    return ES_OK;
}

es_status es_workers_put(es_workers *workers, es_task *task)
{
    es_status status = ES_OK;
    task->next = NULL;
    pthread_mutex_lock(&workers->lock);
    if (workers->waiting >= workers->limit) {
        status = es_fail(ES_BUSY, "too many requests are waiting to be read");
    } else {
        *workers->last = task;
        workers->last = &task->next;
        workers->waiting++;
        pthread_cond_signal(&workers->changed);
    }
    pthread_mutex_unlock(&workers->lock);
    return status;
}

void es_workers_close(es_workers *workers)
{
    if (!workers) return;
    pthread_mutex_lock(&workers->lock);
    workers->closing = true;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
    for (int i = 0; i < workers->threads; i++) pthread_join(workers->thread[i], NULL);
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
