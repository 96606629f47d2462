/* attn_plan.c: cuts of equal cost, written down so that a kernel finds its work with one read. */
#include "device/cuda/attn_plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "share/plan.h"

/* Items of many rows stay whole where the largest load is at most so many quarters of the mean one, or so many steps more:
 * that is what publishing and merging costs. */
enum { MOST_QUARTERS = 5, MOST_STEPS = 8 };

/* Tokens of a query tile, at most. */
static int32_t tokens_of(const es_cuda_attn_shape *shape)
{
    return shape->row_tile / (shape->query_heads / shape->kv_heads);
}

/* How many tokens from one on have partitions of its length. */
static int64_t alike(const es_cuda_attn_shape *shape, int32_t position)
{
    const int64_t chain = es_cuda_attn_chain(shape->kv_heads, position + 1);
    if (chain == ES_CUDA_ATTN_MOST_CHAIN) return INT32_MAX;
    const int64_t keys = (2 * chain * ES_CUDA_ATTN_LONG - 1) / shape->kv_heads + 1; /* of the first that has longer ones */
    return keys - 1 - position;
}

static bool is_possible(const es_cuda_attn_shape *s)
{
    return s->kv_heads >= 1 && s->query_heads >= s->kv_heads && s->query_heads % s->kv_heads == 0 && s->head_dim >= 1 &&
           s->page >= 16 && s->page % 16 == 0 && s->row_tile >= s->query_heads / s->kv_heads;
}

int64_t es_cuda_attn_items(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    if (!is_possible(shape)) return 0;
    int64_t ends = 1; /* tiles of a span that may be short: the last one, and those before longer partitions begin */
    for (int32_t chain = 1; chain < ES_CUDA_ATTN_MOST_CHAIN; chain *= 2) ends++;
    return ((limits->rows - 1) / tokens_of(shape) + 1 + ends * limits->spans) * shape->kv_heads;
}

/* Nodes of large items are large, and there are fewer pieces of them. */
static int32_t nodes_of_a_block(const es_cuda_attn_shape *shape)
{
    return shape->row_tile > 32 ? ES_CUDA_ATTN_BLOCK_NODES / 2 : ES_CUDA_ATTN_BLOCK_NODES;
}

int64_t es_cuda_attn_nodes(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    return (int64_t)limits->blocks * nodes_of_a_block(shape);
}

size_t es_cuda_attn_plan_bytes(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    return sizeof(es_cuda_attn_plan) + (size_t)limits->blocks * (sizeof(es_cuda_attn_block) + sizeof(es_cuda_attn_split)) +
           (size_t)(es_cuda_attn_items(shape, limits) + limits->blocks) * sizeof(es_cuda_attn_piece) +
           ((size_t)es_cuda_attn_nodes(shape, limits) + (size_t)limits->blocks * 64) * sizeof(int32_t);
}

/* Calls back for every item in order: spans, KV heads, query tiles. */
typedef struct cursor {
    const es_cuda_attn_shape *shape;
    const es_cuda_attn_span *span;
    int32_t spans, at, head, row;
} cursor;

/* The next item as a piece that holds all of it; false at the end. */
static bool next_item(cursor *c, es_cuda_attn_piece *piece)
{
    if (c->at == c->spans) return false;
    const es_cuda_attn_span *span = &c->span[c->at];
    const int32_t first = span->start + c->row, left = span->rows - c->row;
    const int64_t same = alike(c->shape, first);
    int32_t tokens = tokens_of(c->shape) < left ? tokens_of(c->shape) : left;
    if (tokens > same) tokens = (int32_t)same;
    const int32_t chain = es_cuda_attn_chain(c->shape->kv_heads, first + 1);
    const int32_t keys = first + tokens; /* the last token of the tile sees itself */
    *piece = (es_cuda_attn_piece){
        .split = -1,
        .kv_head = c->head,
        .first_row = span->first_row + c->row,
        .tokens = tokens,
        .start = first,
        .first_page = span->first_page,
        .to = (keys - 1) / (ES_CUDA_ATTN_STEP * chain) + 1,
        .chain = chain,
        .parts = 1,
    };
    c->row += tokens;
    if (c->row == span->rows) {
        c->row = 0;
        if (++c->head == c->shape->kv_heads) c->head = 0, c->at++;
    }
    return true;
}

/* How many maximal aligned nodes cover partitions [from, to); their places go to `place` (start · 32 + height) if it is there.
 */
static int32_t cover(int32_t from, int32_t to, int32_t *place)
{
    int32_t count = 0;
    while (from < to) {
        int32_t height = 0;
        while (((from >> height) & 1) == 0 && from + (2 << height) <= to) height++;
        if (place) place[count] = from * 32 + height;
        count++;
        from += 1 << height;
    }
    return count;
}

/* The plan in the making. */
typedef struct writer {
    es_cuda_attn_plan *head;
    es_cuda_attn_block *block;
    es_cuda_attn_piece *more;
    es_plan_list list;
    int64_t unit;
    bool loose; /* pieces publish one node each */
    int32_t splits, pieces, nodes;
    int32_t most; /* nodes of one item */
} writer;

static void cut(const writer *w, int32_t worker, int32_t *item, int32_t *partition)
{
    int64_t inside;
    es_plan_cut(&w->list, w->unit, worker, item, &inside);
    *partition = (int32_t)inside;
}

static void give(writer *w, int32_t worker, const es_cuda_attn_piece *piece)
{
    es_cuda_attn_block *block = &w->block[worker];
    if (block->first.from == block->first.to) {
        block->first = *piece;
        block->next = block->last = w->pieces;
    } else {
        w->more[w->pieces++] = *piece;
        block->last = w->pieces;
    }
}

/* Finds the next worker whose run reaches beyond partition `from` of an item; its end within the item goes to *to. */
static int32_t worker_at(const writer *w, int32_t worker, int32_t index, int32_t from, int32_t partitions, int32_t *to)
{
    for (;; worker++) {
        int32_t item, partition;
        cut(w, worker + 1, &item, &partition);
        if (item < index || (item == index && partition <= from)) continue;
        *to = item == index ? partition : partitions;
        return worker;
    }
}

/* Hands item `index` out, from worker `worker` on; returns the last worker that got a piece of it. */
static int32_t share_item(writer *w, int32_t worker, int32_t index, const es_cuda_attn_piece *whole)
{
    int32_t parts = 0, to;
    for (int32_t at = worker, from = 0; from < whole->to; from = to, parts++)
        at = worker_at(w, at, index, from, whole->to, &to);
    const int32_t split = parts > 1 ? w->splits++ : -1, before = w->nodes;
    for (int32_t from = 0, part = 0; from < whole->to; from = to, part++) {
        worker = worker_at(w, worker, index, from, whole->to, &to);
        es_cuda_attn_piece piece = *whole;
        piece.split = split, piece.from = from, piece.to = to, piece.part = part, piece.parts = parts;
        piece.node = w->nodes, piece.nodes = split < 0 ? 0 : w->loose ? 1 : cover(from, to, NULL);
        w->nodes += piece.nodes;
        give(w, worker, &piece);
    }
    if (w->nodes - before > w->most) w->most = w->nodes - before;
    return worker;
}

/* The merges of one item, as a stack would do them. */
typedef struct merging {
    int32_t start[64], height[64], slot[64], level[64], count; /* the stack */
    int32_t nodes, merges, levels;
    int32_t pair[ES_CUDA_ATTN_MOST_NODES], at[ES_CUDA_ATTN_MOST_NODES]; /* merges and their levels, from 0 */
} merging;

static void merge_top(merging *m)
{
    const int32_t left = m->count - 2, right = m->count - 1;
    const int32_t level = m->level[left] > m->level[right] ? m->level[left] : m->level[right];
    m->pair[m->merges] = m->slot[left] + m->slot[right] * 65536;
    m->at[m->merges++] = level;
    if (level >= m->levels) m->levels = level + 1;
    m->level[left] = level + 1;
    m->height[left]++;
    m->count--;
}

static void add_node(merging *m, int32_t place)
{
    m->start[m->count] = place / 32, m->height[m->count] = place % 32, m->slot[m->count] = m->nodes++, m->level[m->count] = 0;
    for (m->count++; m->count > 1;) {
        const int32_t left = m->count - 2, h = m->height[left];
        if (m->height[left + 1] != h || (m->start[left] >> h & 1) || m->start[left + 1] != m->start[left] + (1 << h)) return;
        merge_top(m);
    }
}

/* Closes the tree and writes its merges level by level; returns the integers written. */
static int32_t write_schedule(merging *m, int32_t *to)
{
    while (m->count > 1) merge_top(m); /* the right edge: a missing right child changes nothing */
    int32_t next = 0;
    for (int32_t level = 0; level <= m->levels; level++) {
        to[level] = next;
        for (int32_t i = 0; i < m->merges && level < m->levels; i++)
            if (m->at[i] == level) to[m->levels + 1 + next++] = m->pair[i];
    }
    return m->levels + 1 + next;
}

/* Whether a block can finish what it has of an item in registers: a group of eight lanes for two nodes' slices, whole warps
 * for each slice. */
static bool is_few(const es_cuda_attn_shape *shape, const es_cuda_attn_split *s)
{
    const int32_t slices = (shape->head_dim - 1) / ES_CUDA_ATTN_SLICE + 1;
    const int32_t tasks = s->tokens * (shape->query_heads / shape->kv_heads) * slices, room = shape->head_dim > 64 ? 64 : 32;
    int32_t each = 8;
    while (each < s->nodes) each *= 2;
    return shape->head_dim % ES_CUDA_ATTN_SLICE == 0 && ((tasks - 1) / s->parts + 1) * each <= room;
}

/* Tells the pieces of even splits. */
static void mark_even(const writer *w, const es_cuda_attn_split *split)
{
    for (int32_t b = 0; b < w->head->blocks; b++) {
        es_cuda_attn_block *block = &w->block[b];
        if (block->first.from == block->first.to) continue;
        for (int32_t i = block->next - 1; i < block->last; i++) {
            es_cuda_attn_piece *piece = i < block->next ? &block->first : &w->more[i];
            piece->even = piece->split >= 0 && split[piece->split].even;
        }
    }
}

static int32_t write_splits(const writer *w, const es_cuda_attn_shape *shape, es_cuda_attn_split *split, int32_t *schedule)
{
    merging m = {.count = 0};
    int32_t place[64], used = 0, height = 0;
    for (int32_t b = 0; b < w->head->blocks; b++) {
        const es_cuda_attn_block *block = &w->block[b];
        if (block->first.from == block->first.to) continue;
        for (int32_t i = block->next - 1; i < block->last; i++) {
            const es_cuda_attn_piece *piece = i < block->next ? &block->first : &w->more[i];
            if (piece->split < 0) continue;
            es_cuda_attn_split *s = &split[piece->split];
            if (piece->part == 0) {
                *s = (es_cuda_attn_split){.kv_head = piece->kv_head,
                                          .first_row = piece->first_row,
                                          .tokens = piece->tokens,
                                          .parts = piece->parts,
                                          .node = piece->node,
                                          .schedule = used,
                                          .even = 1};
                m.count = m.nodes = m.merges = m.levels = 0;
            }
            const int32_t count = w->loose ? 1 : cover(piece->from, piece->to, place);
            if (w->loose) place[0] = piece->part * 32;
            if (piece->part == 0) height = place[0] % 32;
            for (int32_t n = 0; n < count; n++) {
                s->even = s->even && place[n] / 32 == m.nodes << height;
                add_node(&m, place[n]);
            }
            if (piece->part < piece->parts - 1) continue;
            s->nodes = m.nodes;
            used += write_schedule(&m, schedule + used);
            s->levels = m.levels;
            s->even = s->even && is_few(shape, s);
        }
    }
    mark_even(w, split);
    return used;
}

/* Shows every block the pages of its first step. */
static void carry_pages(const writer *w, const int32_t *pages)
{
    const int32_t page = w->head->page;
    for (int32_t b = 0; b < w->head->blocks; b++) {
        es_cuda_attn_block *block = &w->block[b];
        const es_cuda_attn_piece *piece = &block->first;
        for (int32_t i = 0; i < 8; i++) block->page[i] = -1;
        const int32_t begin = es_cuda_attn_begin(piece) * ES_CUDA_ATTN_STEP, keys = piece->start + piece->tokens;
        const int32_t end = begin + ES_CUDA_ATTN_STEP < keys ? begin + ES_CUDA_ATTN_STEP : keys;
        if (!pages || piece->from == piece->to) continue;
        for (int32_t i = begin / page; i <= (end - 1) / page; i++)
            block->page[i - begin / page] = pages[piece->first_page + i];
    }
}

/* Few nodes are worth more than shares of one size: reading is shared by all, merging is not. */
static int64_t choose_unit(int64_t cost, int32_t blocks)
{
    int64_t unit = 1;
    while (unit < 8 && 16 * unit * blocks <= 9 * cost) unit *= 2; /* a unit is at most about a share */
    return unit;
}

/* What an item costs besides its steps, in steps: queries, and gates and results of many rows. A prompt's first items are
 * short, and whoever got only such would be the last to finish. */
static int64_t item_cost(const es_cuda_attn_shape *shape)
{
    return shape->row_tile > 8 ? 2 : 0;
}

/* Lists the items; returns the steps of all of them, and the longest chain. */
static int64_t list_items(const cursor *all, es_plan_list *list, es_plan_item *items, int32_t *chain)
{
    es_cuda_attn_piece piece;
    int64_t steps = 0;
    *chain = 1;
    for (cursor c = *all; next_item(&c, &piece); list->count++) {
        items[list->count] = (es_plan_item){.before = list->cost, .partitions = piece.to, .weight = piece.chain};
        list->cost += (int64_t)piece.to * piece.chain + item_cost(all->shape); /* reading is what costs */
        steps += es_cuda_attn_end(&piece);
        if (piece.chain > *chain) *chain = piece.chain;
    }
    return steps;
}

static int by_cost(const void *a, const void *b)
{
    const es_plan_item *x = a, *y = b;
    return x->before > y->before ? -1 : x->before < y->before;
}

static int by_index(const void *a, const void *b)
{
    const es_plan_item *x = a, *y = b;
    return x->partitions < y->partitions ? -1 : x->partitions > y->partitions;
}

/* Deals whole items out, the costliest first, each to the block that has least. Blocks walk the keys of a head side by side
 * then, so that what one reads is in the cache for the others, and nothing is left to merge. Returns the largest load. Writes
 * over the list: an item's weight becomes its block. */
static int32_t deal_items(const writer *w, const es_cuda_attn_shape *shape, es_plan_item *items)
{
    const int32_t blocks = w->head->blocks;
    int32_t most = 0;
    for (int32_t i = 0; i < w->list.count; i++) {
        const int64_t cost = (int64_t)items[i].partitions * items[i].weight + item_cost(shape);
        items[i] = (es_plan_item){.before = cost, .partitions = i};
    }
    qsort(items, (size_t)w->list.count, sizeof *items, by_cost);
    for (int32_t i = 0; i < w->list.count; i++) {
        int32_t least = 0;
        for (int32_t b = 1; b < blocks; b++)
            if (w->block[b].load < w->block[least].load) least = b;
        items[i].weight = least;
        w->block[least].load += (int32_t)items[i].before;
        if (w->block[least].load > most) most = w->block[least].load;
    }
    qsort(items, (size_t)w->list.count, sizeof *items, by_index);
    return most;
}

/* Writes down what was dealt out: a block's pieces stand side by side. */
static void write_dealt(writer *w, const cursor *all, const es_plan_item *items)
{
    es_cuda_attn_piece piece;
    for (int32_t i = 0; i < w->list.count; i++) w->block[items[i].weight].last++;
    for (int32_t b = 0; b < w->head->blocks; b++) {
        const int32_t more = w->block[b].last - (w->block[b].last > 0);
        w->block[b].next = w->block[b].last = w->pieces;
        w->pieces += more;
    }
    int32_t index = 0;
    for (cursor c = *all; next_item(&c, &piece); index++) {
        es_cuda_attn_block *block = &w->block[items[index].weight];
        if (block->first.from == block->first.to)
            block->first = piece;
        else
            w->more[block->last++] = piece;
    }
}

/* Cuts the list into shares of equal cost. */
static void share_items(writer *w, const es_cuda_attn_shape *shape, const cursor *all)
{
    const int32_t blocks = w->head->blocks;
    for (;; w->unit *= 2) { /* coarser cuts make fewer nodes */
        es_cuda_attn_piece piece;
        int32_t worker = 0, index = 0;
        w->splits = w->pieces = w->nodes = w->most = 0;
        memset(w->block, 0, (size_t)blocks * sizeof *w->block);
        for (cursor c = *all; next_item(&c, &piece); index++) worker = share_item(w, worker, index, &piece);
        if (w->most <= ES_CUDA_ATTN_MOST_NODES && w->nodes <= blocks * nodes_of_a_block(shape)) break;
    }
}

size_t es_cuda_attn_plan_write(const es_cuda_attn_shape *shape, const es_cuda_attn_span *span, int32_t spans,
                               const int32_t *pages, int32_t blocks, int32_t unit, void *scratch, void *plan)
{
    if (!is_possible(shape) || blocks < 1) return 0;
    for (int32_t s = 0; s < spans; s++)
        if (span[s].rows < 1 || span[s].start < 0) return 0;

    const cursor all = {shape, span, spans, 0, 0, 0};
    es_cuda_attn_plan *head = plan;
    writer w = {
        .head = head,
        .block = (es_cuda_attn_block *)(head + 1),
        .loose = unit < 0,
        .list = {.items = scratch, .stride = sizeof(es_plan_item), .workers = blocks}
    };
    int32_t chain;
    const int64_t steps = list_items(&all, &w.list, scratch, &chain);
    *head = (es_cuda_attn_plan){.blocks = blocks, .row_tile = shape->row_tile, .page = shape->page, .units = (int32_t)steps};
    w.more = (es_cuda_attn_piece *)(w.block + blocks);
    w.unit = unit < 0 ? -unit : unit;
    const bool can_deal = shape->row_tile > 8 && (unit == 0 || unit == ES_CUDA_ATTN_AUTO);
    memset(w.block, 0, (size_t)blocks * sizeof *w.block);
    const int32_t largest = can_deal ? deal_items(&w, shape, scratch) : 0;
    const int64_t mean = w.list.cost / blocks;
    if (can_deal && (unit == 0 || largest <= mean * MOST_QUARTERS / 4 || largest <= mean + MOST_STEPS)) {
        w.unit = 0;
        write_dealt(&w, &all, scratch);
    } else {
        if (can_deal) w.list.count = 0, w.list.cost = 0, list_items(&all, &w.list, scratch, &chain);
        if (w.unit == ES_CUDA_ATTN_AUTO) w.unit = choose_unit(steps, blocks);
        if (w.unit > 1) w.unit = w.unit > chain ? w.unit / chain : 1; /* in partitions */
        share_items(&w, shape, &all);
    }
    head->more = w.pieces, head->splits = w.splits, head->nodes = w.nodes, head->unit = (int32_t)w.unit;
    es_cuda_attn_split *split = (es_cuda_attn_split *)(w.more + w.pieces);
    int32_t *schedule = (int32_t *)(split + w.splits);
    schedule += write_splits(&w, shape, split, schedule);
    carry_pages(&w, pages);
    return (size_t)((char *)schedule - (char *)plan);
}
