/* prefix_save.h: how the prefix tree gets to a disk and back, piece by piece: which of its nodes and marks are not there yet,
 * and which numbered file each of the others is in.
 *
 *   es_prefix_save_to(prefix, forgotten, user);           // from now on what is new is queued
 *   es_prefix_piece piece;
 *   if (es_prefix_next_unsaved(prefix, idle, &piece)) {
 *       ...get a file: a free one, or es_prefix_give_up_file()'s...
 *       es_prefix_set_saving(prefix, &piece, file, id);
 *       ...write it; later...
 *       es_prefix_set_saved(prefix, piece.kind, piece.index, id, ok);
 *   }
 *
 * A parent always comes before its children, so that ids can be given in order of saving. Nothing here touches a disk. */
#ifndef ES_CACHE_PREFIX_SAVE_H
#define ES_CACHE_PREFIX_SAVE_H

#include "cache/prefix.h"
#include "cache/record.h"

/** A node or mark leaves the tree: its file is free. */
typedef void (*es_prefix_forgotten_fn)(void *user, es_record_kind kind, int32_t file);

typedef struct es_prefix_piece {
    es_record_kind kind;
    int32_t index;
    uint64_t parent;        /**< id; 0: the root */
    const es_token *tokens; /**< [count] */
    int32_t count;
    int32_t page, slot; /**< −1: it has none */
    bool thin;
} es_prefix_piece;

void es_prefix_save_to(es_prefix *prefix, es_prefix_forgotten_fn forgotten, void *user);
/** What should be saved next, parents first; thin marks only with `thin`. False: everything is. */
bool es_prefix_next_unsaved(es_prefix *prefix, bool thin, es_prefix_piece *piece);
bool es_prefix_has_unsaved(const es_prefix *prefix, bool thin);
void es_prefix_set_saving(es_prefix *prefix, const es_prefix_piece *piece, int32_t file, uint64_t id);
/** The write ended. Fine when the piece has gone meanwhile. Not ok: its file is free again, and it is not tried again until it
 *  is used again. */
void es_prefix_set_saved(es_prefix *prefix, es_record_kind kind, int32_t index, uint64_t id, bool ok);
/** Take the file away from whoever was used least recently; −1: nobody used less recently than the piece has one. */
int32_t es_prefix_give_up_file(es_prefix *prefix, const es_prefix_piece *piece);
/** This piece shall not be saved for now. */
void es_prefix_leave_unsaved(es_prefix *prefix, const es_prefix_piece *piece);

/** Put a saved node back under `parent` (−1: the root). It holds the page besides the caller. `file` −1: it is to be saved
 * again. Returns the node, an equal one that was there already (*fresh false), or −1: there is no room. */
int32_t es_prefix_restore_node(es_prefix *prefix, int32_t parent, const es_token *tokens, int32_t page, int32_t file,
                               uint64_t id, bool *fresh);
/** Put a saved mark back at a node. It holds the page besides the caller; the slot is the tree's. False: not needed. */
bool es_prefix_restore_mark(es_prefix *prefix, int32_t node, const es_token *tokens, int32_t tail, int32_t page, int32_t slot,
                            bool thin, int32_t file, uint64_t id);

#endif
