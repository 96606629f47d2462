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

struct es_inbox {
    pthread_mutex_t lock;
    es_text filling;  /* under the lock */
    es_text reading;  /* the loop's */
    es_letter *first, **last;
    bool lost;        /* an event found no memory */
    bool woken;       /* the eventfd was written since the last take */
    int fd;
};

/* What lies in the buffer before an event's strings; records start at multiples of 8. */
typedef struct record {
    size_t bytes; /* of the whole record */
    size_t stop_bytes, message_bytes;
    es_event event;
} record;

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

static bool append_record(es_text *out, const es_event *event)
{
    const char zeros[8] = {0};
    const size_t top_bytes = event->top_count > 0 ? (size_t)event->top_count * sizeof *event->top : 0;
    record r = {.event = *event};
    r.stop_bytes = event->stop_string ? strlen(event->stop_string) + 1 : 0;
    r.message_bytes = event->message ? strlen(event->message) + 1 : 0;
    const size_t plain = sizeof r + top_bytes + event->text_bytes + r.stop_bytes + r.message_bytes;
    r.bytes = (plain + 7) / 8 * 8;
    const size_t before = out->bytes;
    es_text_append(out, (const char *)&r, sizeof r);
    if (top_bytes) es_text_append(out, (const char *)event->top, top_bytes);
    if (event->text_bytes) es_text_append(out, event->text, event->text_bytes);
    if (r.stop_bytes) es_text_append(out, event->stop_string, r.stop_bytes);
    if (r.message_bytes) es_text_append(out, event->message, r.message_bytes);
    es_text_append(out, zeros, r.bytes - plain);
    if (out->failed) {
        /* forget the half-written record; the buffer stays usable */
        out->bytes = before;
        out->failed = false;
        return false;
    }
    return true;
}

void es_inbox_put_event(void *self, const es_event *event)
{
    es_inbox *inbox = self;
    pthread_mutex_lock(&inbox->lock);
    if (!append_record(&inbox->filling, event)) inbox->lost = true;
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

static void read_records(const es_text *text, es_event_fn on_event, void *user)
{
    for (size_t at = 0; at < text->bytes;) {
        record r;
        memcpy(&r, text->data + at, sizeof r);
        const char *tail = text->data + at + sizeof r;
        r.event.top = r.event.top_count > 0 ? (const es_token_logprob *)(const void *)tail : NULL;
        if (r.event.top) tail += (size_t)r.event.top_count * sizeof *r.event.top;
        r.event.text = tail;
        tail += r.event.text_bytes;
        r.event.stop_string = r.stop_bytes ? tail : NULL;
        tail += r.stop_bytes;
        r.event.message = r.message_bytes ? tail : NULL;
        on_event(user, &r.event);
        at += r.bytes;
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
    read_records(&inbox->reading, on_event, user);
    return !lost;
}
