/* store.c: see store.h. */
#include "cache/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define KINDS 2
#define MOST_READING UINT64_C(10000000000) /* nanoseconds */
#define PAUSE        UINT64_C(60000000000) /* nanoseconds before a disk that failed is tried again */

enum { FREE, SUBMITTED, DONE };

static const char *const prefix[KINDS] = {"page", "mark"};

/* A file with a head that could be ours, before it is read in full. */
typedef struct found {
    uint64_t id;
    es_record_kind kind;
    int32_t file;
} found;

struct es_store {
    char *name;
    int folder, lock;
    es_record_shape shape;
    es_clock clock;
    void (*written)(void *user);
    void *user;
    int32_t files[KINDS];      /* there may be */
    int32_t *free_file[KINDS]; /* stacks */
    int32_t free_count[KINDS];
    uint64_t last_id, try_again; /* nanoseconds of the clock; 0: the last attempt worked */
    bool complained;

    unsigned char *staging;
    size_t staging_room, record_bytes;
    int32_t staging_file;
    es_record_kind staging_kind;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stop;
    _Atomic int state; /* changed under the mutex */
    bool ok;
    char why[256]; /* under the mutex, while state is DONE and not ok */
};

static void name_file(es_record_kind kind, int32_t file, char name[32])
{
    snprintf(name, 32, "%s-%06d.evc", prefix[kind], file);
}

/* ---- the folder ---- */

static es_status open_folder(es_store *s)
{
    struct stat status;
    if (mkdir(s->name, 0700) != 0 && errno != EEXIST)
        return es_fail(ES_IO, "%s: the cache folder cannot be made: %s", s->name, strerror(errno));
    s->folder = open(s->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->folder < 0 || fstat(s->folder, &status) != 0)
        return es_fail(ES_IO, "%s: the cache folder cannot be opened: %s", s->name, strerror(errno));
    if (status.st_uid != geteuid()) return es_fail(ES_INVALID, "%s: the cache folder belongs to another user", s->name);
    if (status.st_mode & 077)
        return es_fail(ES_INVALID,
                       "%s: others may look into the cache folder, which holds what people have asked; chmod 700 it", s->name);
    s->lock = openat(s->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->lock < 0) return es_fail(ES_IO, "%s/lock: %s", s->name, strerror(errno));
    if (flock(s->lock, LOCK_EX | LOCK_NB) != 0)
        return es_fail(ES_BUSY, "%s: another process uses this cache folder; this one goes on without", s->name);
    return ES_OK;
}

/* Half of the bytes for marks where they hold states, an eighth where they hold tails only; the rest for pages. */
static void divide(es_store *s, const es_store_options *o)
{
    const size_t node = es_record_most(&s->shape, ES_RECORD_NODE), mark = es_record_most(&s->shape, ES_RECORD_MARK);
    const size_t share = s->shape.state_bytes ? o->bytes / 2 : o->bytes / 8;
    const int64_t marks = (int64_t)(share / mark);
    s->files[ES_RECORD_MARK] = (int32_t)(marks < o->marks ? marks : o->marks);
    const int64_t nodes = (int64_t)((o->bytes - (size_t)s->files[ES_RECORD_MARK] * mark) / node);
    s->files[ES_RECORD_NODE] = (int32_t)(nodes < o->nodes ? nodes : o->nodes);
}

/* ---- reading ---- */

/* A name of ours: which kind, which number. */
static bool parse_name(const char *name, es_record_kind *kind, int32_t *file)
{
    for (int k = 0; k < KINDS; k++) {
        char end[8] = "", again[32];
        int number;
        if (strncmp(name, prefix[k], 4) != 0 || sscanf(name + 4, "-%9d%7s", &number, end) != 2 || number < 0) continue;
        *kind = (es_record_kind)k, *file = number;
        name_file(*kind, *file, again);
        if (strcmp(name, again) == 0) return true;
    }
    return false;
}

/* Up to `most` bytes of a file; −1: it cannot be read, or has more. */
static ssize_t read_some(const es_store *s, const char *name, unsigned char *out, size_t most, bool whole)
{
    struct stat status;
    const int file = openat(s->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return -1;
    ssize_t got = -1;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && (!whole || (size_t)status.st_size <= most)) {
        size_t n = 0;
        while (n < most && (got = read(file, out + n, most - n)) > 0) n += (size_t)got;
        if (got >= 0) got = (ssize_t)n;
    }
    close(file);
    return got;
}

static int by_id(const void *a, const void *b)
{
    const uint64_t x = ((const found *)a)->id, y = ((const found *)b)->id;
    return (x > y) - (x < y);
}

/* What a listing of the folder gives: files whose heads are in order, and how many are not. */
typedef struct listing {
    found *list;
    size_t count, room, damaged, foreign, late;
} listing;

static void look_at(es_store *s, const char *name, listing *l)
{
    found f = {0};
    es_record record;
    unsigned char head[128];
    if (!parse_name(name, &f.kind, &f.file)) return;
    const ssize_t got = read_some(s, name, head, es_record_head(), false);
    const es_status status = got < 0 ? ES_IO : es_record_peek(&s->shape, head, (size_t)got, &record);
    /* Of a time when more bytes were allowed, or of a model with larger records: the bound is today's. */
    struct stat size;
    const bool past = f.file >= s->files[f.kind] || fstatat(s->folder, name, &size, AT_SYMLINK_NOFOLLOW) != 0 ||
                      (size_t)size.st_size > es_record_most(&s->shape, f.kind);
    if (past) unlinkat(s->folder, name, 0);
    if (status == ES_UNSUPPORTED)
        l->foreign++;
    else if (status != ES_OK || record.kind != f.kind)
        l->damaged++;
    if (past || status != ES_OK || record.kind != f.kind) return;
    f.id = record.id;
    if (l->count == l->room) {
        const size_t room = l->room ? 2 * l->room : 256;
        found *more = realloc(l->list, room * sizeof *more);
        if (!more) return;
        l->list = more, l->room = room;
    }
    l->list[l->count++] = f;
}

static listing list_files(es_store *s)
{
    listing l = {0};
    const int copy = openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;
    if (!folder && copy >= 0) close(copy);
    for (struct dirent *entry; folder && (entry = readdir(folder));) look_at(s, entry->d_name, &l);
    if (folder) closedir(folder);
    if (l.count) qsort(l.list, l.count, sizeof *l.list, by_id);
    return l;
}

/* Whoever starts a server waits for this: a disk that is too slow keeps the rest. */
static void take_found(es_store *s, listing *l, bool *used[KINDS], es_store_take_fn take, void *user)
{
    const uint64_t start = es_clock_now(&s->clock);
    for (size_t i = 0; i < l->count; i++) {
        const found *f = &l->list[i];
        char name[32];
        es_record record;
        if (f->id > s->last_id) s->last_id = f->id;
        if (es_clock_now(&s->clock) - start > MOST_READING) {
            l->late++;
            continue;
        }
        name_file(f->kind, f->file, name);
        const ssize_t got = read_some(s, name, s->staging, s->staging_room, true);
        if (got < 0 || es_record_parse(&s->shape, s->staging, (size_t)got, &record) != ES_OK || record.id != f->id) {
            l->damaged++;
            continue;
        }
        if (i > 0 && l->list[i - 1].id == f->id) continue; /* a copy: somebody has been here */
        if (take(user, &record, f->file)) used[f->kind][f->file] = true;
    }
}

void es_store_read(es_store *s, es_store_take_fn take, void *user)
{
    listing l = list_files(s);
    bool *used[KINDS] = {calloc((size_t)s->files[0] + 1, sizeof(bool)), calloc((size_t)s->files[1] + 1, sizeof(bool))};
    if (used[0] && used[1]) take_found(s, &l, used, take, user);
    if (l.damaged + l.foreign)
        es_log(ES_LOG_NOTICE,
               "%s: %zu files are damaged, %zu belong to another model, numeric mode, --kv-type or build; they are not used, and "
               "written over in time",
               s->name, l.damaged, l.foreign);
    if (l.late)
        es_log(ES_LOG_NOTICE, "%s: %zu files could not be read within %d s; they are not used, and written over in time", s->name,
               l.late, (int)(MOST_READING / 1000000000));
    for (int k = 0; k < KINDS; k++)
        for (int32_t i = s->files[k] - 1; i >= 0; i--)
            if (!used[k] || !used[k][i]) s->free_file[k][s->free_count[k]++] = i;
    free(used[0]);
    free(used[1]);
    free(l.list);
}

uint64_t es_store_last_id(const es_store *s)
{
    return s->last_id;
}

/* ---- writing ---- */

static bool write_all(int file, const unsigned char *data, size_t bytes)
{
    while (bytes) {
        const ssize_t n = write(file, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n, bytes -= (size_t)n;
    }
    return true;
}

static bool write_record(es_store *s)
{
    char name[32];
    es_record_seal(s->staging, s->record_bytes);
    name_file(s->staging_kind, s->staging_file, name);
    const int file = openat(s->folder, "writing", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = file >= 0 && write_all(file, s->staging, s->record_bytes);
    int code = errno;
    if (file >= 0 && close(file) != 0 && ok) ok = false, code = errno;
    if (ok && renameat(s->folder, "writing", s->folder, name) != 0) ok = false, code = errno;
    if (!ok) {
        snprintf(s->why, sizeof s->why, "%s", strerror(code));
        unlinkat(s->folder, "writing", 0);
    }
    return ok;
}

static void *store_main(void *argument)
{
    es_store *s = argument;
    sigset_t too_large; /* a file past the process's limit is a full disk, and no reason to die */
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &too_large, NULL);
    pthread_mutex_lock(&s->mutex);
    while (true) {
        while (!s->stop && atomic_load(&s->state) != SUBMITTED) pthread_cond_wait(&s->changed, &s->mutex);
        if (atomic_load(&s->state) != SUBMITTED) break;
        pthread_mutex_unlock(&s->mutex);
        const bool ok = write_record(s);
        pthread_mutex_lock(&s->mutex);
        s->ok = ok;
        atomic_store(&s->state, DONE);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        if (s->written) s->written(s->user);
        pthread_mutex_lock(&s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

int32_t es_store_take_file(es_store *s, es_record_kind kind)
{
    return s->free_count[kind] ? s->free_file[kind][--s->free_count[kind]] : -1;
}

void es_store_give_file(es_store *s, es_record_kind kind, int32_t file)
{
    s->free_file[kind][s->free_count[kind]++] = file;
}

bool es_store_is_free(const es_store *s)
{
    return atomic_load(&s->state) == FREE && (!s->try_again || es_clock_now(&s->clock) >= s->try_again);
}

bool es_store_is_done(const es_store *s)
{
    return atomic_load(&s->state) == DONE;
}

void es_store_begin(es_store *s, int32_t file, const es_record *record, unsigned char **page, unsigned char **state)
{
    s->staging_file = file;
    s->staging_kind = record->kind;
    s->record_bytes = es_record_bytes(&s->shape, record);
    es_record_lay_out(&s->shape, record, s->staging, page, state);
}

void es_store_submit(es_store *s)
{
    pthread_mutex_lock(&s->mutex);
    atomic_store(&s->state, SUBMITTED);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

bool es_store_poll(es_store *s, bool *written)
{
    if (atomic_load(&s->state) != DONE) return false;
    pthread_mutex_lock(&s->mutex);
    *written = s->ok;
    atomic_store(&s->state, FREE);
    pthread_mutex_unlock(&s->mutex);
    s->try_again = s->ok ? 0 : es_clock_now(&s->clock) + PAUSE;
    if (!s->ok && !s->complained)
        es_log(ES_LOG_NOTICE,
               "%s: the prefix cache cannot be written (%s); it is kept in memory, and tried again every minute", s->name,
               s->why);
    s->complained = !s->ok;
    return true;
}

void es_store_wait(es_store *s)
{
    pthread_mutex_lock(&s->mutex);
    while (atomic_load(&s->state) == SUBMITTED) pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

/* ---- life ---- */

static es_status start(es_store *s, const es_store_options *o)
{
    s->name = strdup(o->folder);
    if (!s->name) return es_fail(ES_NO_MEMORY, "no memory for the cache folder's name");
    ES_TRY(open_folder(s));
    divide(s, o);
    for (int k = 0; k < KINDS; k++) {
        s->free_file[k] = calloc((size_t)s->files[k] + 1, sizeof *s->free_file[k]);
        if (!s->free_file[k]) return es_fail(ES_NO_MEMORY, "no memory for a list of %d files", s->files[k]);
    }
    s->staging_room = es_record_most(&s->shape, ES_RECORD_MARK);
    s->staging = malloc(s->staging_room);
    if (!s->staging) return es_fail(ES_NO_MEMORY, "no memory for a record of %zu bytes", s->staging_room);
    const int code = pthread_create(&s->thread, NULL, store_main, s);
    if (code != 0) return es_fail(ES_IO, "the thread that writes the prefix cache cannot be started: %s", strerror(code));
    s->started = true;
    return ES_OK;
}

es_status es_store_open(const es_store_options *options, es_store **store)
{
    es_store *s = calloc(1, sizeof *s);
    if (!s) return es_fail(ES_NO_MEMORY, "no memory for a store");
    *s = (es_store){.folder = -1,
                    .lock = -1,
                    .shape = options->shape,
                    .clock = options->clock,
                    .written = options->written,
                    .user = options->user};
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    const es_status status = start(s, options);
    if (status != ES_OK)
        es_store_close(s);
    else
        *store = s;
    return status;
}

void es_store_close(es_store *s)
{
    if (!s) return;
    if (s->started) {
        pthread_mutex_lock(&s->mutex);
        s->stop = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->thread, NULL);
    }
    if (s->lock >= 0) close(s->lock);
    if (s->folder >= 0) close(s->folder);
    for (int k = 0; k < KINDS; k++) free(s->free_file[k]);
    free(s->staging);
    free(s->name);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}
