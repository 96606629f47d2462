/* listing.h: what a hub says a model consists of, and which of it is wanted.
 *
 *   es_hub_listing listing;
 *   ES_TRY(es_hub_listing_read(json, bytes, &listing));
 *   ES_TRY(es_hub_listing_pick(&listing, "Q4_K_M"));        // marks files[i].wanted
 *
 * The text is a stranger's: sizes and digests are checked here, names that are not fit for a disk are left out. */
#ifndef ES_HUB_LISTING_H
#define ES_HUB_LISTING_H

#include "hub/digest.h"
#include "hub/name.h"

typedef struct es_hub_file {
    char name[ES_HUB_FILE];
    int64_t bytes;
    es_digest_kind kind;
    char digest[ES_DIGEST_HEX]; /**< "": none was told */
    bool wanted;
} es_hub_file;

enum { ES_HUB_FILES_MAX = 4096 };

typedef struct es_hub_listing {
    char commit[41];
    char licence[128]; /**< as the author names it; "" when not stated */
    bool gated;        /**< somebody must agree to something first */
    size_t left_out;   /**< files whose names are not fit or that lie in folders */
    size_t count;
    es_hub_file *files; /**< owned; ordered by name */
} es_hub_listing;

/** Read the hub's answer about a model. ES_BAD_FILE when it makes no sense. */
es_status es_hub_listing_read(const char *json, size_t bytes, es_hub_listing *listing);
void es_hub_listing_free(es_hub_listing *listing);

/** Mark what belongs to `wanted`: a GGUF file by its name or its quantisation, all parts of a split one; "" takes Q4_K_M or
 *  the next best, or, where there is no GGUF file, the safetensors with their configuration. Licences come along.
 *  ES_NOT_FOUND, with what there is, when nothing fits. */
es_status es_hub_listing_pick(es_hub_listing *listing, const char *wanted);

#endif
