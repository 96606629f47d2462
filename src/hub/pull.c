/* pull.c: see pull.h. */
#include "hub/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/fetch.h"
#include "hub/store.h"

enum { LISTING_MAX = 16 << 20 };

typedef struct pull {
    const es_hub_name *name;
    const es_hub_options *options;
    es_fetcher *fetcher;
    char *folder;
    es_hub_listing listing;
    const es_hub_file *file; /* being fetched */
    es_hub_phase phase;
} pull;

static void report(pull *p, es_hub_phase phase, int64_t bytes)
{
    if (p->options->progress) p->options->progress(p->options->user, phase, &p->listing, p->file, bytes);
}

static void on_progress(void *self, int64_t bytes)
{
    pull *p = self;
    report(p, p->phase, bytes);
}

static es_status read_listing(pull *p)
{
    es_text path = {0}, json = {0};
    es_text_printf(&path, "/api/models/%s/%s/revision/main?blobs=true", p->name->org, p->name->repo);
    es_status status = path.failed ? es_fail(ES_NO_MEMORY, "no memory") : ES_OK;
    if (status == ES_OK) status = es_fetch_text(p->fetcher, path.data, LISTING_MAX, &json);
    if (status == ES_OK) status = es_hub_listing_read(json.data ? json.data : "", json.bytes, &p->listing);
    es_text_free(&path);
    es_text_free(&json);
    return status;
}

/* mkdir -p */
static es_status make_folders(char *path)
{
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/') continue;
        const char was = *at;
        *at = '\0';
        const bool bad = mkdir(path, 0755) != 0 && errno != EEXIST;
        const es_status status = bad ? es_fail(ES_IO, "%s cannot be made: %s", path, strerror(errno)) : ES_OK;
        *at = was;
        if (status != ES_OK || !was) return status;
    }
}

/* Held until the process or the pull ends. */
static es_status lock_folder(const char *folder, int *fd)
{
    char *path = es_path_join(folder, ".lock");
    *fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    free(path);
    if (*fd < 0) return es_fail(ES_IO, "%s cannot be written: %s", folder, strerror(errno));
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return ES_OK;
    close(*fd);
    *fd = -1;
    return es_fail(ES_BUSY, "another evenshare pull is writing to %s", folder);
}

static es_status check_list(const pull *p)
{
    int64_t sum = 0;
    for (size_t i = 0; i < p->listing.count; i++) {
        const es_hub_file *file = &p->listing.files[i];
        if (!file->wanted) continue;
        if (file->bytes < 0 || !file->digest[0])
            return es_fail(ES_BAD_FILE, "the hub tells no size or no digest of %s, and nothing is kept unchecked", file->name);
        if (file->bytes > INT64_MAX - sum) return es_fail(ES_BAD_FILE, "the hub lists impossible sizes");
        sum += file->bytes;
    }
    struct statvfs disk;
    if (statvfs(p->folder, &disk) != 0) return ES_OK;
    const int64_t room = (int64_t)(disk.f_bavail * (uint64_t)disk.f_frsize);
    /* what was fetched before is counted again: a bound, not an account */
    char *there = es_path_join(p->folder, "evenshare.json");
    const bool fresh = there && !es_path_exists(there);
    free(there);
    if (fresh && sum > room)
        return es_fail(ES_IO, "%s has %" PRId64 " MB of room, the model has %" PRId64 " MB; ES_MODELS names another folder",
                       p->folder, room >> 20, sum >> 20);
    return ES_OK;
}

/* True when `path` holds exactly the file that is listed. */
static es_status check_digest(pull *p, const char *path, bool *same)
{
    char digest[ES_DIGEST_HEX];
    struct stat what;
    *same = false;
    if (stat(path, &what) != 0 || (int64_t)what.st_size != p->file->bytes) return ES_OK;
    p->phase = ES_HUB_CHECKING;
    ES_TRY(es_digest_file(path, p->file->kind, digest, on_progress, p));
    *same = strcmp(digest, p->file->digest) == 0;
    return ES_OK;
}

static es_status fetch_checked(pull *p, const char *part)
{
    es_text path = {0};
    es_text_printf(&path, "/%s/%s/resolve/%s/%s", p->name->org, p->name->repo, p->listing.commit, p->file->name);
    es_status status = path.failed ? es_fail(ES_NO_MEMORY, "no memory") : ES_OK;
    /* What an earlier pull left may be the beginning of another file: then once more from the start. */
    bool same = false;
    for (int attempt = 0; attempt < 2 && status == ES_OK && !same; attempt++) {
        const bool resumed = es_path_exists(part);
        p->phase = ES_HUB_FETCHING;
        status = es_fetch_file(p->fetcher, path.data, part, p->file->bytes, on_progress, p);
        if (status == ES_OK) status = check_digest(p, part, &same);
        if (status != ES_OK || same) break;
        unlink(part);
        if (!resumed) break;
    }
    es_text_free(&path);
    if (status == ES_OK && !same)
        status = es_fail(ES_BAD_FILE, "%s is not what the hub lists: its digest differs; it was thrown away", p->file->name);
    return status;
}

static es_status fetch_one(pull *p)
{
    es_text path = {0}, part = {0};
    es_text_printf(&path, "%s/%s", p->folder, p->file->name);
    es_text_printf(&part, "%s/%s.part", p->folder, p->file->name);
    bool same = false;
    es_status status = path.failed || part.failed ? es_fail(ES_NO_MEMORY, "no memory for a path") : ES_OK;
    if (status == ES_OK) status = check_digest(p, path.data, &same);
    if (status == ES_OK && !same) {
        status = fetch_checked(p, part.data);
        if (status == ES_OK && rename(part.data, path.data) != 0)
            status = es_fail(ES_IO, "%s cannot be written: %s", path.data, strerror(errno));
    }
    if (status == ES_OK) report(p, ES_HUB_KEPT, p->file->bytes);
    es_text_free(&path);
    es_text_free(&part);
    return status;
}

static es_status fetch_all(pull *p)
{
    ES_TRY(read_listing(p));
    ES_TRY(es_hub_listing_pick(&p->listing, p->name->file));
    ES_TRY(check_list(p));
    report(p, ES_HUB_LISTED, 0);
    for (size_t i = 0; i < p->listing.count; i++) {
        if (!p->listing.files[i].wanted) continue;
        p->file = &p->listing.files[i];
        ES_TRY(fetch_one(p));
    }
    return es_hub_record_write(p->folder, p->name, &p->listing);
}

es_status es_hub_pull(const es_hub_name *name, const es_hub_options *options)
{
    pull p = {.name = name, .options = options};
    int lock = -1;
    ES_TRY(es_fetcher_open(options->endpoint, options->token, &p.fetcher));
    es_status status = es_hub_folder(name, &p.folder);
    if (status == ES_OK) status = make_folders(p.folder);
    if (status == ES_OK) status = lock_folder(p.folder, &lock);
    if (status == ES_OK) status = fetch_all(&p);
    if (lock >= 0) close(lock);
    es_fetcher_close(p.fetcher);
    es_hub_listing_free(&p.listing);
    free(p.folder);
    return status;
}
