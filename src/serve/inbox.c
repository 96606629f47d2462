/* inbox.c: see inbox.h. */
#include "serve/inbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "serve/wire.h"

struct es_inbox {
    pthread_mutex_t lock;
    es_text filling;  /* under the lock */
    es_text reading;  /* the loop's */
    es_letter *first, **last;
    bool lost;        /* an event found no memory */
    bool woken;       /* the eventfd was written since the last take */
    int fd;
};

es_status es_inbox_open(es_inbox **out)
{
    es_inbox *inbox = calloc(1, sizeof *inbox);
    if (!inbox) return es_fail(ES_NO_MEMORY, "no memory for the server's inbox");
    inbox->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (inbox->fd < 0) {
        free(inbox);
        return es_fail(ES_IO, "no eventfd: %s", strerror(errno));
    }
    inbox->last = &inbox->first;
    pthread_mutex_init(&inbox->lock, NULL);
    *out = inbox;
    return ES_OK;
}

void es_inbox_close(es_inbox *inbox)
{
    if (!inbox) return;
    close(inbox->fd);
    pthread_mutex_destroy(&inbox->lock);
    es_text_free(&inbox->filling);
    es_text_free(&inbox->reading);
    free(inbox);
}

int es_inbox_fd(const es_inbox *inbox)
{
    return inbox->fd;
}

/* Called under the lock. A full counter (EAGAIN) is as good as a written one. */
static void wake(es_inbox *inbox)
{
    if (inbox->woken) return;
    inbox->woken = true;
    const uint64_t one = 1;
    while (write(inbox->fd, &one, sizeof one) < 0 && errno == EINTR) {}
}

void es_inbox_wake(es_inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    wake(inbox);
    pthread_mutex_unlock(&inbox->lock);
}

void es_inbox_put_event(void *self, const es_event *event)
{
    es_inbox *inbox = self;
    pthread_mutex_lock(&inbox->lock);
    if (!es_wire_put_event(&inbox->filling, event)) inbox->lost = true;
    wake(inbox);
    pthread_mutex_unlock(&inbox->lock);
}

void es_inbox_put_letter(es_inbox *inbox, es_letter *letter)
{
    letter->next = NULL;
    pthread_mutex_lock(&inbox->lock);
    *inbox->last = letter;
    inbox->last = &letter->next;
    wake(inbox);
    pthread_mutex_unlock(&inbox->lock);
}

static void read_events(const es_text *text, es_event_fn on_event, void *user)
{
    es_wire_message message;
    ptrdiff_t used;
    for (size_t at = 0; at < text->bytes; at += (size_t)used) {
        used = es_wire_take(text->data + at, text->bytes - at, &message);
        if (used <= 0) return; /* cannot be: this side wrote them */
        on_event(user, &message.event);
    }
}

bool es_inbox_take(es_inbox *inbox, void (*on_letter)(void *user, es_letter *letter), es_event_fn on_event, void *user)
{
    uint64_t count;
    while (read(inbox->fd, &count, sizeof count) < 0 && errno == EINTR) {}
    es_text_clear(&inbox->reading);
    pthread_mutex_lock(&inbox->lock);
    const bool lost = inbox->lost;
    inbox->woken = inbox->lost = false;
    es_letter *letter = inbox->first;
    inbox->first = NULL;
    inbox->last = &inbox->first;
    const es_text full = inbox->filling;
    inbox->filling = inbox->reading;
    inbox->reading = full;
    pthread_mutex_unlock(&inbox->lock);
    while (letter) {
        es_letter *next = letter->next;
        on_letter(user, letter);
        letter = next;
    }
    read_events(&inbox->reading, on_event, user);
    return !lost;
}
