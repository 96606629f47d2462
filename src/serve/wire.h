/* wire.h: requests, events and figures as bytes, for the mail between threads and between processes.
 *
 *   es_text out = {0};
 *   if (!es_wire_put_event(&out, &event)) ...                 // no memory: nothing was written
 *   ...
 *   es_wire_message message;
 *   const ptrdiff_t used = es_wire_take(out.data, out.bytes, &message);
 *
 * A message is a head (its length and kind) and a body of at most ES_WIRE_MOST bytes, everything padded to 8. Both ends are
 * the same program on the same machine (an engine's process is started from the front end's own executable), so numbers
 * travel as they lie in memory; still nothing in a body is believed, and every length is checked before use.
 *
 * Which fields travel is said once, in the tables of wire.c: a new field of es_request or es_event is a line there, and
 * forgetting it does not compile. */
#ifndef ES_SERVE_WIRE_H
#define ES_SERVE_WIRE_H

#include <stddef.h>

#include "base/text.h"
#include "evenshare/engine.h"

enum { ES_WIRE_MOST = 64 << 20, ES_WIRE_STRINGS = 64 };

typedef enum es_wire_kind {
    ES_WIRE_SUBMIT = 1, /**< to the engine: `key`, `request` */
    ES_WIRE_CANCEL,     /**< to the engine: `key` */
    ES_WIRE_PAUSE,      /**< to the engine: `key` */
    ES_WIRE_RESUME,     /**< to the engine: `key` */
    ES_WIRE_HELLO,      /**< from the engine, first: `hello` */
    ES_WIRE_FAILED,     /**< from the engine, in place of a hello: `failed` */
    ES_WIRE_EVENT,      /**< from the engine: `event`, whose request is the key */
    ES_WIRE_STATS,      /**< from the engine: `stats` */
    ES_WIRE_KINDS,
} es_wire_kind;

/** What an engine says of itself when it is ready. */
typedef struct es_wire_hello {
    es_engine_info engine;
    const char *model;
    int32_t vocabulary;
} es_wire_hello;

/** Why there is no engine. */
typedef struct es_wire_failure {
    es_status status;
    const char *message;
} es_wire_failure;

/** A message that was read; only what belongs to its kind is set. Pointers lead into the bytes it was read from. */
typedef struct es_wire_message {
    es_wire_kind kind;
    uint64_t key;
    es_request request;
    es_event event;
    es_engine_stats stats;
    es_wire_hello hello;
    es_wire_failure failed;
    const char *strings[ES_WIRE_STRINGS]; /**< where the request's `stop` points */
} es_wire_message;

/* Append one message. False when memory is short or the message would pass ES_WIRE_MOST: `out` is as it was. */
bool es_wire_put_submit(es_text *out, uint64_t key, const es_request *request);
/** `kind`: one of those that are only about a key. */
bool es_wire_put_key(es_text *out, es_wire_kind kind, uint64_t key);
bool es_wire_put_event(es_text *out, const es_event *event);
bool es_wire_put_stats(es_text *out, const es_engine_stats *stats);
bool es_wire_put_hello(es_text *out, const es_wire_hello *hello);
bool es_wire_put_failed(es_text *out, es_status status, const char *message);

/** Read the first message of `data`, which lies at a multiple of 8. Returns how many bytes it took; 0 when it is not whole
 *  yet; −1 when this is no message, and nothing after it can be trusted either. */
ptrdiff_t es_wire_take(const char *data, size_t bytes, es_wire_message *message);

#endif
