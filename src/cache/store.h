/* store.h: a folder of records (record.h), so that the prefix cache outlives the process.
 *
 *   es_store_open(&options, &store);
 *   es_store_read(store, take, user);                    // at the start: every whole record, parents before children
 *   ...
 *   if (es_store_is_free(store)) {                       // nothing is on its way to the disk
 *       unsigned char *page, *state;
 *       es_store_begin(store, file, &record, &page, &state);
 *       ...copy the keys, values and state there...
 *       es_store_submit(store);                          // a thread of the store's writes it
 *   }
 *   if (es_store_poll(store, &written)) ...              // later: did it work?
 *
 * Files have numbers, as many as fit the bytes allowed; a record is written under a passing name and renamed, so that a file
 * is an old record or a new one, whole. Nothing is deleted: a number given back may be written again, and until then its
 * record, should its ancestors be there too, is as good as ever. The folder is this user's alone (0700, files 0600), and one
 * process's: a second one finds the lock taken and works without. A record that is damaged or somebody else's is a miss. A
 * disk that is full is one line of notice, and another attempt a minute later.
 *
 * One thread uses a store, and only the store's own touches the disk after es_store_read(). */
#ifndef ES_CACHE_STORE_H
#define ES_CACHE_STORE_H

#include "base/clock.h"
#include "cache/record.h"

typedef struct es_store es_store;

typedef struct es_store_options {
    const char *folder; /**< made where it does not exist; its parent must */
    size_t bytes;       /**< of files, at most */
    es_record_shape shape;
    int64_t nodes, marks; /**< that there can be in memory: more files are not wanted */
    es_clock clock;
    void (*written)(void *user); /**< a record has reached the disk, or not: called on the store's thread */
    void *user;
} es_store_options;

/** ES_INVALID: others can read the folder, or it is somebody else's; ES_IO: it cannot be made or opened; ES_BUSY: another
 * process uses it. */
es_status es_store_open(const es_store_options *options, es_store **store);
/** Waits for a record that is being written. */
void es_store_close(es_store *store);

/** Give every record that is whole to `take`, in order of age, so parents before their children. It answers whether the file
 * is in use then. One line of notice, if any are damaged or foreign; files that are too many or too large are removed. What cannot be read within ten
 *  seconds is passed over. */
typedef bool (*es_store_take_fn)(void *user, const es_record *record, int32_t file);
void es_store_read(es_store *store, es_store_take_fn take, void *user);
/** The greatest id of any record found, so that new ones can be greater. */
uint64_t es_store_last_id(const es_store *store);

/** A file's number for a record of this kind, or −1: all are in use. */
int32_t es_store_take_file(es_store *store, es_record_kind kind);
void es_store_give_file(es_store *store, es_record_kind kind, int32_t file);

/** The buffer is free, and the disk was willing last time or a minute has passed since. */
bool es_store_is_free(const es_store *store);
/** es_store_poll() would be true. */
bool es_store_is_done(const es_store *store);
/** Lay a record out in the buffer; nothing has happened until es_store_submit(). */
void es_store_begin(es_store *store, int32_t file, const es_record *record, unsigned char **page, unsigned char **state);
void es_store_submit(es_store *store);
/** True when a record that was submitted has been dealt with, once. */
bool es_store_poll(es_store *store, bool *written);
/** Wait until es_store_poll() will be true. */
void es_store_wait(es_store *store);

#endif
