/* digest.h: SHA-256 and SHA-1, for comparing a file with what a hub says it holds.
 *
 *   char hex[ES_DIGEST_HEX];
 *   ES_TRY(es_digest_file(path, ES_DIGEST_SHA256, hex, NULL, NULL));
 *
 * SHA-1 is there since hubs name small files by their git blob; it guards against accidents, not against an attacker. Written
 * after FIPS 180-4. */
#ifndef ES_HUB_DIGEST_H
#define ES_HUB_DIGEST_H

#include "base/error.h"

typedef enum es_digest_kind {
    ES_DIGEST_SHA256,
    ES_DIGEST_GIT_BLOB, /**< SHA-1 of "blob SIZE\0" and the file */
} es_digest_kind;

enum { ES_DIGEST_HEX = 65 }; /**< 64 or 40 lower-case digits and the end */

typedef struct es_digest {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
    bool sha1;
} es_digest;

void es_digest_begin(es_digest *digest, bool sha1);
void es_digest_add(es_digest *digest, const void *data, size_t bytes);
/** Writes the digest as text; the state is used up. */
void es_digest_end(es_digest *digest, char hex[ES_DIGEST_HEX]);

/** Of a whole file; progress(user, bytes so far) may be NULL. ES_NOT_FOUND or ES_IO. */
es_status es_digest_file(const char *path, es_digest_kind kind, char hex[ES_DIGEST_HEX],
                         void (*progress)(void *user, int64_t bytes), void *user);

#endif
