/* inbox.h: how other threads hand things to the loop thread.
 *
 * Two kinds of mail: engine events, copied into a byte buffer (two buffers take turns, so that after a while nothing is
 * allocated per token), and pointers to finished worker tasks. One eventfd wakes the loop, once per batch. Senders never
 * wait for the loop. */
#ifndef ES_SERVE_INBOX_H
#define ES_SERVE_INBOX_H

#include "evenshare/engine.h"

typedef struct es_inbox es_inbox;
/** A link for mail that is not an event; put it first in a struct. */
typedef struct es_letter {
    struct es_letter *next;
} es_letter;

es_status es_inbox_open(es_inbox **inbox);
void es_inbox_close(es_inbox *inbox);
/** Readable when there is mail. */
int es_inbox_fd(const es_inbox *inbox);

/** An es_event_fn: copies the event, strings and all. `inbox` is an es_inbox. */
void es_inbox_put_event(void *inbox, const es_event *event);
void es_inbox_put_letter(es_inbox *inbox, es_letter *letter);
/** Only wake the loop. From any thread. */
void es_inbox_wake(es_inbox *inbox);

/** Take everything that is there: letters in order, then events in order. Loop thread only. False when an event could not be
 *  kept for want of memory since the last call: then no answer in progress can be trusted to end. */
bool es_inbox_take(es_inbox *inbox, void (*on_letter)(void *user, es_letter *letter), es_event_fn on_event, void *user);

#endif
