/* saves.c: see saves.h.
 *
 * The engine's thread copies one page or state at a time into the store's buffer, between steps; the store's thread writes it.
 * Ids grow with time and a parent is saved before its children, so that reading in the order of ids builds the tree again. */
#include "engine/saves.h"

#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/identity.h"

#define MOST_FLUSH UINT64_C(5000000000) /* nanoseconds */

/* ---- reading ---- */

/* Nodes that were put back, by the ids that their children name; ids ascend. */
typedef struct known {
    uint64_t id;
    int32_t node;
    bool saved; /* under this very id: otherwise its children have to be saved again */
} known;

typedef struct reading {
    es_saves *saves;
    known *list;
    int64_t count, room;
} reading;

static const known *find_known(const reading *r, uint64_t id)
{
    int64_t low = 0, high = r->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (r->list[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->count && r->list[low].id == id ? &r->list[low] : NULL;
}

/* A page for what was saved; only ever a free one: nothing is given up for it. */
static bool take_page(es_saves *s, const unsigned char *bytes, int32_t *page)
{
    if (!es_pages_take(s->pages, 1, page)) return false;
    if (es_network_write_page(s->network, *page, bytes) == ES_OK) return true;
    es_pages_drop(s->pages, page, 1);
    return false;
}

static bool put_node_back(reading *r, const es_record *record, int32_t parent, bool saved, int32_t file)
{
    es_saves *s = r->saves;
    int32_t page;
    bool fresh = false;
    if (r->count == r->room || !take_page(s, record->page, &page)) return false;
    const int32_t node =
        es_prefix_restore_node(s->prefix, parent, record->tokens, page, saved ? file : -1, record->id, &fresh);
    es_pages_drop(s->pages, &page, 1);
    if (node < 0) return false;
    const bool used = fresh && saved;
    r->list[r->count++] = (known){record->id, node, used};
    return used;
}

static bool put_mark_back(es_saves *s, const es_record *record, int32_t node, bool saved, int32_t file)
{
    int32_t page = -1, slot = -1;
    bool kept = false;
    if (record->count && !take_page(s, record->page, &page)) return false;
    /* One slot at least stays free: the first sequence needs it. */
    const bool room = !record->state || (s->slots->free_count > 1 && es_pages_take(s->slots, 1, &slot));
    if (room && slot >= 0 && es_network_write_state(s->network, slot, record->state) != ES_OK) {
        es_pages_drop(s->slots, &slot, 1);
    } else if (room) {
        kept = es_prefix_restore_mark(s->prefix, node, record->tokens, record->count, page, slot, record->thin,
                                      saved ? file : -1, record->id);
    }
    if (page >= 0) es_pages_drop(s->pages, &page, 1);
    return kept && saved;
}

static bool put_back(void *user, const es_record *record, int32_t file)
{
    reading *r = user;
    const known *parent = record->parent ? find_known(r, record->parent) : NULL;
    if (record->parent && !parent) return false;
    const int32_t node = parent ? parent->node : -1;
    const bool saved = !parent || parent->saved;
    const bool used = record->kind == ES_RECORD_NODE ? put_node_back(r, record, node, saved, file)
                                                     : put_mark_back(r->saves, record, node, saved, file);
    r->saves->restored += used;
    return used;
}

static void forgotten(void *user, es_record_kind kind, int32_t file)
{
    es_store_give_file(((es_saves *)user)->store, kind, file);
}

static es_record_shape shape_of(const es_saves *s, const char *fingerprint)
{
    const es_model *model = s->network->model;
    const es_network_sizes *sizes = &s->network->sizes;
    es_record_shape shape = {
        .page = sizes->page,
        .vocabulary = model->config.vocabulary,
        .page_bytes = es_network_page_bytes(&model->config, sizes->page, sizes->kv_type),
        .state_bytes = es_network_slot_bytes(&model->config),
    };
    const char *const texts[] = {es_build_name(), fingerprint, es_numeric_name(sizes->numeric), es_kv_type_name(sizes->kv_type),
                                 s->network->device->info.name};
    shape.key[0] = es_model_identity(model);
    shape.key[1] = es_hash(2, &shape.page, sizeof shape.page);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) shape.key[1] = es_hash(shape.key[1], texts[i], strlen(texts[i]));
    return shape;
}

es_status es_saves_open(es_saves *s, const es_saves_options *o)
{
    const es_store_options options = {
        .folder = o->folder,
        .bytes = o->bytes,
        .shape = shape_of(s, o->fingerprint),
        .nodes = s->pages->total,
        .marks = o->marks,
        .clock = s->clock,
        .written = o->written,
        .user = o->user,
    };
    const es_status status = es_store_open(&options, &s->store);
    if (status == ES_BUSY) {
        es_log(ES_LOG_NOTICE, "%s", es_error_message());
        return ES_OK;
    }
    if (status != ES_OK) return status;
    reading r = {.saves = s, .room = s->pages->total};
    r.list = calloc((size_t)r.room + 1, sizeof *r.list);
    if (!r.list) return es_fail(ES_NO_MEMORY, "no memory to read %s", o->folder);
    es_prefix_save_to(s->prefix, forgotten, s);
    es_store_read(s->store, put_back, &r);
    s->next_id = es_store_last_id(s->store) + 1;
    free(r.list);
    return ES_OK;
}

/* ---- writing ---- */

static void note_written(es_saves *s)
{
    bool ok;
    if (!es_store_poll(s->store, &ok)) return;
    es_prefix_set_saved(s->prefix, s->kind, s->index, s->id, ok);
    *(ok ? &s->saved : &s->failed) += 1;
}

/* Copies a piece into the store's buffer. */
static es_status fill(es_saves *s, const es_prefix_piece *piece, int32_t file)
{
    unsigned char *page, *state;
    const es_record record = {.kind = piece->kind,
                              .id = s->next_id,
                              .parent = piece->parent,
                              .thin = piece->thin,
                              .count = piece->count,
                              .tokens = piece->tokens,
                              .state = piece->slot >= 0 ? (const unsigned char *)"" : NULL};
    es_store_begin(s->store, file, &record, &page, &state);
    if (page) ES_TRY(es_network_read_page(s->network, piece->page, page));
    return state ? es_network_read_state(s->network, piece->slot, state) : ES_OK;
}

bool es_saves_due(const es_saves *s)
{
    return s->store && (es_store_is_done(s->store) || (es_store_is_free(s->store) && es_prefix_has_unsaved(s->prefix, true)));
}

void es_saves_step(es_saves *s, bool idle)
{
    es_prefix_piece piece;
    if (!s->store) return;
    note_written(s);
    if (!es_store_is_free(s->store) || !es_prefix_next_unsaved(s->prefix, idle, &piece)) return;
    int32_t file = es_store_take_file(s->store, piece.kind);
    if (file < 0) file = es_prefix_give_up_file(s->prefix, &piece);
    if (file < 0 || fill(s, &piece, file) != ES_OK) {
        if (file >= 0) es_store_give_file(s->store, piece.kind, file);
        es_prefix_leave_unsaved(s->prefix, &piece);
        return;
    }
    s->kind = piece.kind, s->index = piece.index, s->id = s->next_id++;
    es_prefix_set_saving(s->prefix, &piece, file, s->id);
    es_store_submit(s->store);
}

void es_saves_flush(es_saves *s)
{
    if (!s->store) return;
    const uint64_t start = es_clock_now(&s->clock);
    while (es_clock_now(&s->clock) - start < MOST_FLUSH) {
        es_store_wait(s->store);
        const uint64_t before = s->next_id, failed = s->failed;
        es_saves_step(s, true);
        if (s->next_id == before || s->failed != failed) break;
    }
}

void es_saves_close(es_saves *s)
{
    es_store_close(s->store);
    s->store = NULL;
}
