/* pull.h: a model from a hub onto this machine.
 *
 *   es_hub_options options = {.endpoint = ES_HUB_ENDPOINT, .token = getenv("HF_TOKEN"), .progress = show};
 *   ES_TRY(es_hub_pull(&name, &options));
 *
 * The hub's list of files is read first; what is wanted of it is fetched one after the other, resumed where an earlier pull
 * broke off, compared with the digest that the list names, and only then gets its name. The record comes last. */
#ifndef ES_HUB_PULL_H
#define ES_HUB_PULL_H

#include "hub/listing.h"

#define ES_HUB_ENDPOINT "https://huggingface.co"

typedef enum es_hub_phase {
    ES_HUB_LISTED, /**< what will be fetched is known */
    ES_HUB_FETCHING,
    ES_HUB_CHECKING, /**< comparing the digest */
    ES_HUB_KEPT,     /**< this file is here now, or was before */
} es_hub_phase;

typedef struct es_hub_options {
    const char *endpoint, *token; /**< token: NULL = none */
    /** `file` is NULL for ES_HUB_LISTED; `bytes` is how far the phase is. */
    void (*progress)(void *user, es_hub_phase phase, const es_hub_listing *listing, const es_hub_file *file, int64_t bytes);
    void *user;
} es_hub_options;

/** ES_NOT_FOUND, ES_INVALID (a token is needed), ES_BAD_FILE (a wrong digest or list), ES_BUSY (another pull of it is
 *  running), ES_IO. */
es_status es_hub_pull(const es_hub_name *name, const es_hub_options *options);

#endif
