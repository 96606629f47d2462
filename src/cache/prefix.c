/* prefix.c: the prefix tree. Nodes and marks live in arrays made when it opens; lists are indices into them.
 *
 * Recency: using a path moves its nodes to the young end of one list, leaf first, so that a parent is always younger than its
 * children and the old end is always a leaf. */
#include "cache/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

static void unlink_node(es_prefix *t, int32_t n)
{
    const es_prefix_link o = t->node[n].order;
    *(o.older == NONE ? &t->node_order.old : &t->node[o.older].order.younger) = o.younger;
    *(o.younger == NONE ? &t->node_order.young : &t->node[o.younger].order.older) = o.older;
}

static void link_node(es_prefix *t, int32_t n)
{
    t->node[n].order = (es_prefix_link){t->node_order.young, NONE};
    *(t->node_order.young == NONE ? &t->node_order.old : &t->node[t->node_order.young].order.younger) = n;
    t->node_order.young = n;
}

static void unlink_mark(es_prefix *t, int32_t m)
{
    const es_prefix_link o = t->mark[m].order;
    *(o.older == NONE ? &t->mark_order.old : &t->mark[o.older].order.younger) = o.younger;
    *(o.younger == NONE ? &t->mark_order.young : &t->mark[o.younger].order.older) = o.older;
}

static void link_mark(es_prefix *t, int32_t m)
{
    t->mark[m].order = (es_prefix_link){t->mark_order.young, NONE};
    *(t->mark_order.young == NONE ? &t->mark_order.old : &t->mark[t->mark_order.young].order.younger) = m;
    t->mark_order.young = m;
}

static void touch_path(es_prefix *t, int32_t n)
{
    for (; n != NONE; n = t->node[n].parent) {
        unlink_node(t, n);
        link_node(t, n);
    }
}

static int32_t *marks_of(es_prefix *t, int32_t n)
{
    return n == NONE ? &t->root_marks : &t->node[n].marks;
}

/* 64-bit FNV-1a over the parent's hash and the tokens; matches are always compared in full. */
static uint64_t hash_of(const es_prefix *t, int32_t parent, const es_token *tokens)
{
    uint64_t h = parent == NONE ? 0xCBF29CE484222325u : t->node[parent].hash;
    for (int32_t i = 0; i < t->page; i++) {
        h ^= (uint32_t)tokens[i];
        h *= 0x100000001B3u;
    }
    return h;
}

int32_t es_prefix_find_child(const es_prefix *t, int32_t parent, const es_token *tokens)
{
    const uint64_t h = hash_of(t, parent, tokens);
    for (int32_t n = t->bucket[h % (uint64_t)t->buckets]; n != NONE; n = t->node[n].next)
        if (t->node[n].hash == h && t->node[n].parent == parent &&
            memcmp(t->node_tokens + (int64_t)n * t->page, tokens, (size_t)t->page * sizeof *tokens) == 0)
            return n;
    return NONE;
}

static void remove_mark(es_prefix *t, int32_t m)
{
    es_prefix_mark *k = &t->mark[m];
    int32_t *at = marks_of(t, k->node);
    while (*at != m) at = &t->mark[*at].next;
    *at = k->next;
    unlink_mark(t, m);
    es_prefix_forget_mark(t, m);
    if (k->page != NONE) es_pages_drop(t->pages, &k->page, 1);
    if (k->slot != NONE) es_pages_drop(t->slots, &k->slot, 1);
    k->next = t->free_mark;
    t->free_mark = m;
    t->mark_count--;
}

/* A leaf. Its marks go with it. */
static void remove_node(es_prefix *t, int32_t n)
{
    while (t->node[n].marks != NONE) remove_mark(t, t->node[n].marks);
    es_prefix_node *k = &t->node[n];
    int32_t *at = &t->bucket[k->hash % (uint64_t)t->buckets];
    while (*at != n) at = &t->node[*at].next;
    *at = k->next;
    unlink_node(t, n);
    es_prefix_forget_node(t, n);
    if (k->parent != NONE) t->node[k->parent].children--;
    es_pages_drop(t->pages, &k->page, 1);
    k->next = t->free_node;
    t->free_node = n;
    t->node_count--;
}

int32_t es_prefix_add_node(es_prefix *t, int32_t parent, const es_token *tokens, int32_t page)
{
    if (t->free_node == NONE) return NONE;
    const int32_t n = t->free_node;
    es_prefix_node *k = &t->node[n];
    t->free_node = k->next;
    *k = (es_prefix_node){.hash = hash_of(t, parent, tokens), .parent = parent, .page = page, .marks = NONE,
                            .save.file = NONE};
    memcpy(t->node_tokens + (int64_t)n * t->page, tokens, (size_t)t->page * sizeof *tokens);
    int32_t *bucket = &t->bucket[k->hash % (uint64_t)t->buckets];
    k->next = *bucket;
    *bucket = n;
    if (parent != NONE) t->node[parent].children++;
    es_pages_hold(t->pages, page);
    link_node(t, n);
    es_prefix_queue_node(t, n);
    t->node_count++;
    return n;
}

/* The longest mark at node n whose tail the tokens continue with, within `room` tokens. */
static int32_t best_mark(es_prefix *t, int32_t n, const es_token *tokens, int64_t room)
{
    int32_t best = NONE;
    for (int32_t m = *marks_of(t, n); m != NONE; m = t->mark[m].next) {
        const es_prefix_mark *k = &t->mark[m];
        if (k->tail > room || (best != NONE && k->tail <= t->mark[best].tail)) continue;
        if (memcmp(t->mark_tokens + (int64_t)m * t->page, tokens, (size_t)k->tail * sizeof *tokens) == 0) best = m;
    }
    return best;
}

es_prefix_hit es_prefix_find(es_prefix *t, const es_token *tokens, int64_t limit, int32_t *table)
{
    es_prefix_hit hit = {.tail_page = NONE, .slot = NONE};
    int32_t n = NONE, where = NONE, chosen = NONE;
    for (int64_t depth = 0;; depth++) {
        const int64_t at = depth * t->page;
        const int32_t m = best_mark(t, n, tokens + at, limit - at);
        if (m != NONE) {
            hit = (es_prefix_hit){at + t->mark[m].tail, depth, t->mark[m].page, t->mark[m].slot};
            where = n, chosen = m;
        } else if (!t->recurrent) {
            hit = (es_prefix_hit){at, depth, NONE, NONE};
            where = n, chosen = NONE;
        }
        if (limit - at < t->page) break;
        n = es_prefix_find_child(t, n, tokens + at);
        if (n == NONE) break;
    }
    touch_path(t, where);
    if (chosen != NONE) {
        unlink_mark(t, chosen);
        link_mark(t, chosen);
    }
    for (int64_t i = hit.full; i > 0; i--, where = t->node[where].parent) {
        table[i - 1] = t->node[where].page;
        es_pages_hold(t->pages, table[i - 1]);
    }
    return hit;
}

/* Of the thin marks before `position` on this path, one stays for each doubling of the distance: the farthest in its range,
 * so that a mark is not lost each time the text grows. */
static void thin_path(es_prefix *t, int32_t n, int64_t depth, int64_t position)
{
    int32_t kept[64];
    for (int i = 0; i < 64; i++) kept[i] = NONE;
    for (; n != NONE; n = t->node[n].parent, depth--)
        for (int32_t m = t->node[n].marks, next; m != NONE; m = next) {
            next = t->mark[m].next;
            const int64_t distance = position - (depth * t->page + t->mark[m].tail);
            if (!t->mark[m].thin || distance <= 0) continue;
            const int range = 63 - __builtin_clzll((unsigned long long)distance);
            if (kept[range] != NONE) remove_mark(t, kept[range]);
            kept[range] = m;
        }
}

int32_t es_prefix_add_mark(es_prefix *t, int32_t n, const es_token *tail_tokens, int32_t tail, int32_t page, int32_t slot,
                           bool thin)
{
    const int32_t same = best_mark(t, n, tail_tokens, tail);
    if (same != NONE && t->mark[same].tail == tail) {
        unlink_mark(t, same);
        link_mark(t, same);
        if (t->mark[same].thin && !thin) { /* it is worth more than was known */
            es_prefix_forget_mark(t, same);
            t->mark[same].thin = false;
        }
        es_prefix_queue_mark(t, same);
        if (slot != NONE) es_pages_drop(t->slots, &slot, 1);
        return NONE;
    }
    if (t->free_mark == NONE && t->mark_order.old != NONE) remove_mark(t, t->mark_order.old);
    if (t->free_mark == NONE) {
        if (slot != NONE) es_pages_drop(t->slots, &slot, 1);
        return NONE;
    }
    const int32_t m = t->free_mark;
    t->free_mark = t->mark[m].next;
    t->mark[m] = (es_prefix_mark){.node = n, .tail = tail, .page = tail ? page : NONE, .slot = slot, .next = *marks_of(t, n),
                                  .thin = thin, .save.file = NONE};
    *marks_of(t, n) = m;
    memcpy(t->mark_tokens + (int64_t)m * t->page, tail_tokens, (size_t)tail * sizeof *tail_tokens);
    if (tail) es_pages_hold(t->pages, page);
    link_mark(t, m);
    es_prefix_queue_mark(t, m);
    t->mark_count++;
    return m;
}

void es_prefix_insert(es_prefix *t, const es_token *tokens, int64_t position, const int32_t *table, int32_t slot, bool thin)
{
    int32_t n = NONE;
    int64_t depth = 0;
    for (; (depth + 1) * t->page <= position; depth++) {
        int32_t child = es_prefix_find_child(t, n, tokens + depth * t->page);
        if (child == NONE) child = es_prefix_add_node(t, n, tokens + depth * t->page, table[depth]);
        if (child != NONE) es_prefix_queue_node(t, child); /* in use, though perhaps no longer on the disk */
        if (child == NONE) break; /* as many nodes as pages: cannot happen while every node holds one */
        n = child;
    }
    touch_path(t, n);
    const int64_t tail = position - depth * t->page;
    const bool whole = tail < t->page;
    if (whole && (slot != NONE || (!t->recurrent && tail > 0)))
        es_prefix_add_mark(t, n, tokens + depth * t->page, (int32_t)tail, tail ? table[depth] : NONE, slot, thin);
    else if (slot != NONE)
        es_pages_drop(t->slots, &slot, 1);
    if (thin) thin_path(t, n, depth, position);
}

/* Gives up leaves and tails, oldest first, until `count` pages are free; with `all`, also those whose pages somebody else
 * holds too. */
static void give_up(es_prefix *t, int64_t count, bool all)
{
    for (int32_t n = t->node_order.old; n != NONE && t->pages->free_count < count;) {
        const int32_t next = t->node[n].order.younger;
        if (t->node[n].children == 0 && (all || t->pages->holders[t->node[n].page] == 1)) remove_node(t, n);
        n = next;
    }
    for (int32_t m = t->mark_order.old; m != NONE && t->pages->free_count < count;) {
        const int32_t next = t->mark[m].order.younger;
        if (t->mark[m].page != NONE && (all || t->pages->holders[t->mark[m].page] == 1)) remove_mark(t, m);
        m = next;
    }
}

/* A page can be held by a node and a tail at once, and each alone would not free it: only when nothing else helps, both go. */
bool es_prefix_take_pages(es_prefix *t, int64_t count, int32_t *out)
{
    if (count > t->pages->total) return false;
    give_up(t, count, false);
    give_up(t, count, true);
    return es_pages_take(t->pages, count, out);
}

bool es_prefix_take_slot(es_prefix *t, int32_t *slot)
{
    for (int32_t m = t->mark_order.old; m != NONE && t->slots->free_count == 0;) {
        const int32_t next = t->mark[m].order.younger;
        if (t->mark[m].slot != NONE) remove_mark(t, m);
        m = next;
    }
    return es_pages_take(t->slots, 1, slot);
}

int64_t es_prefix_node_count(const es_prefix *t)
{
    return t->node_count;
}

int64_t es_prefix_mark_count(const es_prefix *t)
{
    return t->mark_count;
}

es_status es_prefix_open(es_pages *pages, es_pages *slots, int32_t page, bool recurrent, int32_t marks, es_prefix **prefix)
{
    es_prefix *t = calloc(1, sizeof *t);
    if (!t) return es_fail(ES_NO_MEMORY, "no memory for the prefix cache");
    *t = (es_prefix){.pages = pages, .slots = slots, .page = page, .recurrent = recurrent, .nodes = (int32_t)pages->total,
                     .marks = marks, .buckets = (int32_t)(pages->total > 1 << 29 ? 1 << 30 : 2 * pages->total + 1),
                     .free_node = NONE, .free_mark = NONE, .root_marks = NONE, .node_order = {NONE, NONE},
                     .mark_order = {NONE, NONE}, .queue = {{NONE, NONE}, {NONE, NONE}, {NONE, NONE}}};
    const size_t n = (size_t)t->nodes + 1, m = (size_t)marks + 1;
    t->node = calloc(n, sizeof *t->node);
    t->node_tokens = calloc(n * (size_t)page, sizeof *t->node_tokens);
    t->bucket = calloc((size_t)t->buckets, sizeof *t->bucket);
    t->mark = calloc(m, sizeof *t->mark);
    t->mark_tokens = calloc(m * (size_t)page, sizeof *t->mark_tokens);
    if (!t->node || !t->node_tokens || !t->bucket || !t->mark || !t->mark_tokens) {
        es_prefix_close(t);
        return es_fail(ES_NO_MEMORY, "no memory for a prefix cache of %" PRId64 " pages", pages->total);
    }
    for (int32_t i = 0; i < t->buckets; i++) t->bucket[i] = NONE;
    for (int32_t i = t->nodes - 1; i >= 0; i--) t->node[i].next = t->free_node, t->free_node = i;
    for (int32_t i = marks - 1; i >= 0; i--) t->mark[i].next = t->free_mark, t->free_mark = i;
    *prefix = t;
    return ES_OK;
}

void es_prefix_close(es_prefix *t)
{
    if (!t) return;
    while (t->mark && t->mark_order.old != NONE) remove_mark(t, t->mark_order.old);
    while (t->node && t->node_order.old != NONE) remove_node(t, t->node_order.old);
    free(t->node);
    free(t->node_tokens);
    free(t->bucket);
    free(t->mark);
    free(t->mark_tokens);
    free(t);
}
