/* fetch.h: files over HTTP, resumed where they broke off. The only part of src/hub that knows libcurl.
 *
 *   es_fetcher *fetcher;
 *   ES_TRY(es_fetcher_open("https://huggingface.co", token, &fetcher));
 *   ES_TRY(es_fetch_text(fetcher, "/api/models/ORG/NAME", 1 << 20, &text));
 *   ES_TRY(es_fetch_file(fetcher, "/ORG/NAME/resolve/main/x.gguf", "x.gguf.part", bytes, progress, user));
 *
 * A connection that breaks is taken up again where it broke, a few times, with pauses that grow; a pause ends the count when
 * bytes came meanwhile. The token goes to the endpoint alone, never along a redirection to another host, and never
 * over plain HTTP beyond this machine. */
#ifndef ES_HUB_FETCH_H
#define ES_HUB_FETCH_H

#include "base/error.h"
#include "base/text.h"

typedef struct es_fetcher es_fetcher;
/** Called about ten times a second with the bytes there are now. */
typedef void (*es_fetch_progress_fn)(void *user, int64_t bytes);

/** ES_INVALID for what is no http(s) address or would send the token in the open; ES_UNSUPPORTED in a build without libcurl.
 */
es_status es_fetcher_open(const char *endpoint, const char *token, es_fetcher **fetcher);
void es_fetcher_close(es_fetcher *fetcher);

/** A whole answer of at most `limit` bytes. */
es_status es_fetch_text(es_fetcher *fetcher, const char *path, size_t limit, es_text *text);
/** A file of `bytes` bytes into `to`, going on after what `to` holds already. On failure what came stays. */
es_status es_fetch_file(es_fetcher *fetcher, const char *path, const char *to, int64_t bytes, es_fetch_progress_fn progress,
                        void *user);

#endif
