/* transcript.h: what a server answered, streamed or whole, read without trust.
 *
 *   es_transcript t;
 *   es_transcript_init(&t, true);
 *   es_transcript_feed(&t, bytes, n, now);        // as often as bytes of a stream arrive, cut anywhere
 *   es_transcript_end(&t);
 *   if (t.fault[0]) ...                           // the first thing that is not as OpenAI's streams are
 *   es_transcript_free(&t);
 *
 * No sockets and no clock: the caller says when the bytes came. The first violation of the shape is kept as a sentence that
 * quotes nothing from the server, so that it can be printed anywhere. */
#ifndef ES_CHECK_TRANSCRIPT_H
#define ES_CHECK_TRANSCRIPT_H

#include <stdint.h>

#include "base/text.h"
#include "check/numbers.h"

enum { ES_TRANSCRIPT_LINE_MAX = 16 << 20 };

typedef struct es_transcript {
    bool chat; /**< deltas of a chat, or texts of a completion */
    es_text text, reasoning;
    es_numbers times;    /**< when each chunk with a piece of the answer came */
    es_numbers logprobs; /**< of the answer's tokens, when they were asked for */
    int64_t prompt_tokens, completion_tokens, total_tokens, cached_tokens; /**< −1: not told */
    char finish[24];                                                       /**< finish_reason, or "" */
    char id[128];
    char fault[160];           /**< the first violation of the shape, or "" */
    char error_code[64];       /**< of an OpenAI-shaped error, or "" */
    bool error, error_message; /**< there is an error object; it has a message */
    bool error_numbers;        /**< and the message holds a number */
    int chunks, roles, finishes, usages, dones, comments;
    /* the stream's reader */
    es_text line, data;
    bool has_data, after_return;
} es_transcript;

void es_transcript_init(es_transcript *transcript, bool chat);
void es_transcript_free(es_transcript *transcript);
/** Bytes of a stream of server-sent events that came at `now`. */
void es_transcript_feed(es_transcript *transcript, const char *data, size_t bytes, double now);
/** The stream has ended: finds what is missing. */
void es_transcript_end(es_transcript *transcript);
/** A reply that is one JSON value: an answer, or an error. */
void es_transcript_whole(es_transcript *transcript, const char *body, size_t bytes);

#endif
