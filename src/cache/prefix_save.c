/* prefix_save.c: see prefix_save.h. */
#include "cache/prefix_tree.h"

static es_prefix_save *save_of(es_prefix *t, es_record_kind kind, int32_t index)
{
    return kind == ES_RECORD_NODE ? &t->node[index].save : &t->mark[index].save;
}

static int queue_of(const es_prefix *t, es_record_kind kind, int32_t index)
{
    if (kind == ES_RECORD_NODE) return ES_QUEUE_NODES;
    return t->mark[index].thin ? ES_QUEUE_THIN : ES_QUEUE_MARKS;
}

static es_prefix_link *link_at(es_prefix *t, es_record_kind kind, int32_t index)
{
    return &save_of(t, kind, index)->queue;
}

static void enqueue(es_prefix *t, es_record_kind kind, int32_t index)
{
    es_prefix_save *s = save_of(t, kind, index);
    es_prefix_list *q = &t->queue[queue_of(t, kind, index)];
    if (!t->saves || s->state != ES_NOT_SAVED) return;
    s->state = ES_SAVE_QUEUED;
    s->queue = (es_prefix_link){q->young, NONE};
    *(q->young == NONE ? &q->old : &link_at(t, kind, q->young)->younger) = index;
    q->young = index;
}

static void dequeue(es_prefix *t, es_record_kind kind, int32_t index)
{
    es_prefix_save *s = save_of(t, kind, index);
    es_prefix_list *q = &t->queue[queue_of(t, kind, index)];
    if (s->state != ES_SAVE_QUEUED) return;
    s->state = ES_NOT_SAVED;
    *(s->queue.older == NONE ? &q->old : &link_at(t, kind, s->queue.older)->younger) = s->queue.younger;
    *(s->queue.younger == NONE ? &q->young : &link_at(t, kind, s->queue.younger)->older) = s->queue.older;
}

static void forget(es_prefix *t, es_record_kind kind, int32_t index)
{
    es_prefix_save *s = save_of(t, kind, index);
    dequeue(t, kind, index);
    if (s->file != NONE) t->forgotten(t->user, kind, s->file);
    s->file = NONE;
    s->state = ES_NOT_SAVED;
}

void es_prefix_queue_node(es_prefix *t, int32_t node)
{
    enqueue(t, ES_RECORD_NODE, node);
}

void es_prefix_queue_mark(es_prefix *t, int32_t mark)
{
    enqueue(t, ES_RECORD_MARK, mark);
}

void es_prefix_forget_node(es_prefix *t, int32_t node)
{
    forget(t, ES_RECORD_NODE, node);
}

void es_prefix_forget_mark(es_prefix *t, int32_t mark)
{
    forget(t, ES_RECORD_MARK, mark);
}

void es_prefix_save_to(es_prefix *t, es_prefix_forgotten_fn forgotten, void *user)
{
    t->saves = true;
    t->forgotten = forgotten;
    t->user = user;
}

/* What stands first in a queue; a piece whose parent is not on the disk would not be found again, and is passed over. */
static int32_t first_of(es_prefix *t, int queue)
{
    const es_record_kind kind = queue == ES_QUEUE_NODES ? ES_RECORD_NODE : ES_RECORD_MARK;
    while (t->queue[queue].old != NONE) {
        const int32_t index = t->queue[queue].old;
        const int32_t parent = kind == ES_RECORD_NODE ? t->node[index].parent : t->mark[index].node;
        if (parent == NONE || t->node[parent].save.state >= ES_SAVING) return index;
        dequeue(t, kind, index);
    }
    return NONE;
}

bool es_prefix_next_unsaved(es_prefix *t, bool thin, es_prefix_piece *piece)
{
    const int queues = thin ? ES_QUEUES : ES_QUEUE_THIN;
    int32_t index = NONE;
    int queue = 0;
    while (queue < queues && (index = first_of(t, queue)) == NONE) queue++;
    if (index == NONE) return false;
    const bool is_node = queue == ES_QUEUE_NODES;
    const int32_t parent = is_node ? t->node[index].parent : t->mark[index].node;
    *piece = (es_prefix_piece){.kind = is_node ? ES_RECORD_NODE : ES_RECORD_MARK,
                               .index = index,
                               .parent = parent == NONE ? 0 : t->node[parent].save.id,
                               .slot = NONE};
    if (is_node) {
        piece->tokens = t->node_tokens + (int64_t)index * t->page;
        piece->count = t->page;
        piece->page = t->node[index].page;
    } else {
        const es_prefix_mark *m = &t->mark[index];
        piece->tokens = t->mark_tokens + (int64_t)index * t->page;
        piece->count = m->tail, piece->page = m->page, piece->slot = m->slot, piece->thin = m->thin;
    }
    return true;
}

bool es_prefix_has_unsaved(const es_prefix *t, bool thin)
{
    return t->queue[ES_QUEUE_NODES].old != NONE || t->queue[ES_QUEUE_MARKS].old != NONE ||
           (thin && t->queue[ES_QUEUE_THIN].old != NONE);
}

void es_prefix_leave_unsaved(es_prefix *t, const es_prefix_piece *piece)
{
    dequeue(t, piece->kind, piece->index);
}

void es_prefix_set_saving(es_prefix *t, const es_prefix_piece *piece, int32_t file, uint64_t id)
{
    es_prefix_save *s = save_of(t, piece->kind, piece->index);
    dequeue(t, piece->kind, piece->index);
    s->state = ES_SAVING;
    s->file = file;
    s->id = id;
}

void es_prefix_set_saved(es_prefix *t, es_record_kind kind, int32_t index, uint64_t id, bool ok)
{
    es_prefix_save *s = save_of(t, kind, index);
    if (s->state != ES_SAVING || s->id != id) return;
    if (ok)
        s->state = ES_SAVED;
    else
        forget(t, kind, index);
}

/* The old end of either order: whoever depends on a node is older than it, so its file goes last of its path. */
int32_t es_prefix_give_up_file(es_prefix *t, const es_prefix_piece *piece)
{
    const es_record_kind kind = piece->kind;
    int32_t i = kind == ES_RECORD_NODE ? t->node_order.old : t->mark_order.old;
    while (i != NONE && i != piece->index && save_of(t, kind, i)->state != ES_SAVED)
        i = kind == ES_RECORD_NODE ? t->node[i].order.younger : t->mark[i].order.younger;
    if (i == NONE || i == piece->index) return NONE;
    es_prefix_save *s = save_of(t, kind, i);
    const int32_t file = s->file;
    s->file = NONE;
    s->state = ES_NOT_SAVED;
    return file;
}

static void set_restored(es_prefix *t, es_record_kind kind, int32_t index, int32_t file, uint64_t id)
{
    es_prefix_save *s = save_of(t, kind, index);
    if (file == NONE) return;
    dequeue(t, kind, index);
    s->state = ES_SAVED;
    s->file = file;
    s->id = id;
}

int32_t es_prefix_restore_node(es_prefix *t, int32_t parent, const es_token *tokens, int32_t page, int32_t file, uint64_t id,
                               bool *fresh)
{
    const int32_t there = es_prefix_find_child(t, parent, tokens);
    *fresh = there == NONE;
    if (there != NONE) return there;
    const int32_t n = es_prefix_add_node(t, parent, tokens, page);
    if (n != NONE) set_restored(t, ES_RECORD_NODE, n, file, id);
    return n;
}

bool es_prefix_restore_mark(es_prefix *t, int32_t node, const es_token *tokens, int32_t tail, int32_t page, int32_t slot,
                            bool thin, int32_t file, uint64_t id)
{
    const int32_t m = es_prefix_add_mark(t, node, tokens, tail, page, slot, thin);
    if (m != NONE) set_restored(t, ES_RECORD_MARK, m, file, id);
    return m != NONE;
}
