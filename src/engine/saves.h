/* saves.h: the prefix cache on a disk: put back when an engine opens, written piece by piece while nobody waits for it. */
#ifndef ES_ENGINE_SAVES_H
#define ES_ENGINE_SAVES_H

#include "cache/prefix_save.h"
#include "cache/store.h"
#include "model/network.h"

typedef struct es_saves {
    es_store *store; /**< NULL: there is none, and nothing below does anything */
    es_prefix *prefix;
    es_pages *pages, *slots;
    es_network *network;
    es_clock clock;
    uint64_t next_id, id; /**< of the next record; of the one on its way */
    es_record_kind kind;  /**< of the one on its way */
    int32_t index;
    uint64_t restored, saved, failed; /**< pieces so far */
} es_saves;

typedef struct es_saves_options {
    const char *folder;
    size_t bytes;                /**< of files at most */
    const char *fingerprint;     /**< numeric mode, type of keys and values, and version */
    int64_t marks;               /**< that the prefix tree can have */
    void (*written)(void *user); /**< there may be something to do: called on another thread */
    void *user;
} es_saves_options;

/** Open the folder and put back what is in it. A folder that another process uses is a notice, not a failure. The pointers in
 *  `saves` but for the store are the caller's, and set; the network is open. */
es_status es_saves_open(es_saves *saves, const es_saves_options *options);
/** Write what is left, for a few seconds at most. */
void es_saves_flush(es_saves *saves);
/** After the prefix tree. */
void es_saves_close(es_saves *saves);

/** There is something for es_saves_step() to do. */
bool es_saves_due(const es_saves *saves);
/** Note what was written, and hand the next piece over: one copy, and never a wait. `idle`: less important ones too. */
void es_saves_step(es_saves *saves, bool idle);

#endif
