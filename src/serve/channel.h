/* channel.h: messages (wire.h) over a local socket, by a thread that never waits for the other end.
 *
 *   es_wire_put_key(es_channel_begin(&channel), ES_WIRE_CANCEL, key);       // any thread
 *   es_channel_end(&channel);
 *   ...
 *   while (es_channel_turn(&channel, 100)) ...                 // the channel's thread
 *
 * Any thread appends to a buffer; the channel's own thread takes it when the socket has room, as inbox.h does between threads.
 * A `lead` goes out in front of each such batch: figures that are never older than the messages behind them. */
#ifndef ES_SERVE_CHANNEL_H
#define ES_SERVE_CHANNEL_H

#include <pthread.h>

#include "base/error.h"
#include "serve/wire.h"

/** Bytes that wait for the other end before es_channel_has_room() says no. */
enum { ES_CHANNEL_ROOM = 64 << 20 };

typedef struct es_channel {
    int fd;   /**< non-blocking use only; closed by its owner; −1: none */
    int wake; /**< an eventfd */
    void (*on_message)(void *user, const es_wire_message *message);
    void (*lead)(void *user, es_text *out); /**< NULL: none */
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t room;
    es_text filling; /**< under the lock */
    bool open;       /**< under the lock: false lets nobody wait for room */
    /* the channel's thread alone */
    es_text head, out, in;
    size_t sent, taken; /**< of head and out together; of in */
    bool beat;
} es_channel;

/** The caller sets fd, on_message, lead and user afterwards. */
es_status es_channel_open(es_channel *channel);
/** Forget everything that waits, and go on with another socket (−1: none). The channel's thread. */
void es_channel_reset(es_channel *channel, int fd);
void es_channel_close(es_channel *channel);

/** The buffer to append messages to, until es_channel_end(), which wakes the channel's thread. */
es_text *es_channel_begin(es_channel *channel);
void es_channel_end(es_channel *channel);
/** Whether the other end keeps up. Between begin and end. */
bool es_channel_has_room(const es_channel *channel);
/** Wait until it does, or the channel closes. Between begin and end. */
void es_channel_wait_room(es_channel *channel);
/** Only wake the channel's thread. Any thread. */
void es_channel_wake(es_channel *channel);

/** Send a lead at the next turn, even if nothing follows it. */
void es_channel_beat(es_channel *channel);
/** Wait up to `milliseconds` for something to do, then read, call on_message for each whole message, and send what goes. False
 *  when the other end has closed or sent what is no message (es_error_message() says which). */
es_status es_channel_turn(es_channel *channel, int milliseconds);

#endif
