/* guard.h: who may talk to the server, decided from the headers alone. */
#ifndef ES_SERVE_GUARD_H
#define ES_SERVE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "serve/http_parser.h"

/** True for an address that only this machine reaches: "localhost", 127.0.0.0/8, "::1". */
bool es_is_loopback(const char *host);

/** DNS rebinding: a page on the web can point its own name at 127.0.0.1 and read the answers, but its Host header tells.
 *  True when `host` (name, name:port, [v6]:port, or "") is loopback or `bound`. */
bool es_host_is_ours(const char *host, const char *bound);

/** True when `origin` (an Origin header) is http(s)://`host`, the page the server itself sent. */
bool es_origin_is_own(const char *origin, const char *host);

/** True when the request carries one of the keys, as "Authorization: Bearer KEY" or "X-Api-Key: KEY". Time does not depend
 *  on where a wrong key differs. */
bool es_has_key(const es_http_request *request, const char *const *keys, size_t count);

#endif
