/* client.h: many HTTP requests at once from one thread, each with the times at which its bytes came.
 *
 *   es_client *client;
 *   ES_TRY(es_client_open("http://127.0.0.1:8080", NULL, &client));
 *   es_reply *reply = es_client_send(client, &(es_message){.method = "GET", .path = "/v1/models"});
 *   es_client_finish(client, reply, 10);          // false: still not ended after 10 s
 *   printf("%d %s\n", reply->status, reply->body.data);
 *   es_client_drop_all(client);
 *   es_client_close(client);
 *
 * Nothing moves unless es_client_run() or es_client_finish() runs. Dropping a reply in flight closes its connection, as a
 * client that leaves does. A build without libcurl has these functions too; opening says what is missing. */
#ifndef ES_CHECK_CLIENT_H
#define ES_CHECK_CLIENT_H

#include "base/error.h"
#include "check/transcript.h"

enum { ES_CLIENT_MAX = 512, ES_CLIENT_BODY_MAX = 64 << 20 };

typedef struct es_client es_client;

/** A request; the client copies the body. */
typedef struct es_message {
    const char *method, *path;
    const char *body; /**< NULL: none */
    size_t bytes;
    bool chat; /**< how the answer's transcript is read */
} es_message;

/** A request on its way, or what came of it. Owned by the client. */
typedef struct es_reply {
    int status;                   /**< HTTP; 0 until the headers are here */
    bool used, ended;             /**< ended: nothing more comes */
    char problem[160];            /**< why the exchange broke off, or "" */
    char type[80];                /**< Content-Type */
    bool retry_after, streamed;   /**< has that header; is a stream of events */
    double began, headed, closed; /**< seconds on the client's clock: sent, headers here, ended */
    es_text body;                 /**< of what is no stream */
    es_transcript transcript;     /**< of a stream, or of a whole reply to a POST */
    /* the client's */
    es_client *client;
    void *handle;
    char *copy;
} es_reply;

/** `url`: http or https, with or without /v1 at its end. `key` may be NULL. */
es_status es_client_open(const char *url, const char *key, es_client **client);
void es_client_close(es_client *client);
/** Seconds since it was opened. */
double es_client_now(const es_client *client);
/** The address without /v1 and without what could hold a password. */
const char *es_client_url(const es_client *client);

/** Send a request. Always gives a reply; one that could not even be sent has ended, with its `problem`. */
es_reply *es_client_send(es_client *client, const es_message *message);
/** Move bytes until `until(user)` is true or so many seconds are over; returns until's last word. */
bool es_client_run(es_client *client, double seconds, bool (*until)(void *user), void *user);
/** Move bytes until this reply has ended; false when it has not within so many seconds. */
bool es_client_finish(es_client *client, es_reply *reply, double seconds);
void es_client_drop(es_client *client, es_reply *reply);
void es_client_drop_all(es_client *client);

#endif
