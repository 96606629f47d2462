/* channel.c: see channel.h. */
#include "serve/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, BLOCKS_A_TURN = 64, KEEP = 1 << 20 };

es_status es_channel_open(es_channel *c)
{
    *c = (es_channel){.fd = -1, .open = true};
    c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (c->wake < 0) return es_fail(ES_IO, "no eventfd: %s", strerror(errno));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->room, NULL);
    return ES_OK;
}

/* What grew for one large message is not kept for ever. */
static void clear(es_text *text)
{
    if (text->capacity > KEEP)
        es_text_free(text);
    else
        es_text_clear(text);
}

void es_channel_reset(es_channel *c, int fd)
{
    pthread_mutex_lock(&c->lock);
    clear(&c->filling);
    c->open = fd >= 0;
    pthread_cond_broadcast(&c->room);
    pthread_mutex_unlock(&c->lock);
    clear(&c->head), clear(&c->out), clear(&c->in);
    c->sent = c->taken = 0;
    c->beat = false;
    c->fd = fd;
}

void es_channel_close(es_channel *c)
{
    es_channel_reset(c, -1);
    es_text_free(&c->filling), es_text_free(&c->head), es_text_free(&c->out), es_text_free(&c->in);
    close(c->wake);
    pthread_cond_destroy(&c->room);
    pthread_mutex_destroy(&c->lock);
}

es_text *es_channel_begin(es_channel *c)
{
    pthread_mutex_lock(&c->lock);
    return &c->filling;
}

void es_channel_end(es_channel *c)
{
    pthread_mutex_unlock(&c->lock);
    es_channel_wake(c);
}

bool es_channel_has_room(const es_channel *c)
{
    return c->filling.bytes < ES_CHANNEL_ROOM;
}

void es_channel_wait_room(es_channel *c)
{
    while (c->open && !es_channel_has_room(c)) pthread_cond_wait(&c->room, &c->lock);
}

void es_channel_wake(es_channel *c)
{
    const uint64_t one = 1;
    while (write(c->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void es_channel_beat(es_channel *c)
{
    c->beat = true;
}

/* ---- out ---- */

static bool has_unsent(const es_channel *c)
{
    return c->sent < c->head.bytes + c->out.bytes;
}

/* The next batch, if the last one is on its way. */
static void take_batch(es_channel *c)
{
    if (has_unsent(c)) return;
    clear(&c->head), clear(&c->out);
    c->sent = 0;
    pthread_mutex_lock(&c->lock);
    const es_text filled = c->filling;
    c->filling = c->out;
    c->out = filled;
    pthread_cond_broadcast(&c->room);
    pthread_mutex_unlock(&c->lock);
    if (c->lead && (c->out.bytes || c->beat)) c->lead(c->user, &c->head);
    c->beat = false;
}

static es_status send_some(es_channel *c)
{
    for (;;) {
        take_batch(c);
        if (!has_unsent(c)) return ES_OK;
        struct iovec parts[2];
        size_t n = 0;
        if (c->sent < c->head.bytes) parts[n++] = (struct iovec){c->head.data + c->sent, c->head.bytes - c->sent};
        const size_t skip = c->sent > c->head.bytes ? c->sent - c->head.bytes : 0;
        if (skip < c->out.bytes) parts[n++] = (struct iovec){c->out.data + skip, c->out.bytes - skip};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = n};
        const ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0)
            c->sent += (size_t)sent;
        else if (errno == EAGAIN)
            return ES_OK;
        else if (errno != EINTR)
            return es_fail(ES_IO, "the other process is gone: %s", strerror(errno));
    }
}

/* ---- in ---- */

static es_status take_messages(es_channel *c)
{
    es_wire_message message;
    for (;;) {
        const ptrdiff_t used = es_wire_take(c->in.data + c->taken, c->in.bytes - c->taken, &message);
        if (used < 0) return es_fail(ES_INTERNAL, "the other process sent what is no message");
        if (used == 0) break;
        c->taken += (size_t)used;
        c->on_message(c->user, &message);
    }
    /* the beginning of the next one moves to the front, where it lies at a multiple of 8 again */
    const size_t left = c->in.bytes - c->taken;
    if (left) memmove(c->in.data, c->in.data + c->taken, left);
    if (left)
        c->in.bytes = left;
    else
        clear(&c->in);
    c->taken = 0;
    return ES_OK;
}

static es_status receive_some(es_channel *c)
{
    char block[BLOCK];
    for (int i = 0; i < BLOCKS_A_TURN; i++) {
        const ssize_t n = recv(c->fd, block, sizeof block, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return ES_OK;
        if (n < 0) return es_fail(ES_IO, "the other process is gone: %s", strerror(errno));
        if (n == 0) return es_fail(ES_IO, "the other process has closed its end");
        es_text_append(&c->in, block, (size_t)n);
        if (c->in.failed) return es_fail(ES_NO_MEMORY, "no memory for a message of the other process");
        ES_TRY(take_messages(c));
    }
    return ES_OK;
}

es_status es_channel_turn(es_channel *c, int milliseconds)
{
    if (c->fd >= 0) ES_TRY(send_some(c));
    struct pollfd ready[] = {
        {.fd = c->wake, .events = POLLIN                                         },
        {.fd = c->fd,   .events = (short)(POLLIN | (has_unsent(c) ? POLLOUT : 0))}
    };
    if (poll(ready, 2, milliseconds) <= 0) return ES_OK;
    uint64_t count;
    if (ready[0].revents && read(c->wake, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
        return es_fail(ES_IO, "an eventfd cannot be read: %s", strerror(errno));
    if (c->fd < 0) return ES_OK;
    if (ready[1].revents) ES_TRY(receive_some(c));
    return send_some(c);
}
