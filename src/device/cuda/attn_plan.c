/* attn_plan.c: cuts of equal cost, written down so that a kernel finds its work with one read. */
#include "device/cuda/attn_plan.h"

#include <stdbool.h>
#include <string.h>

#include "share/plan.h"

/* A span's query tiles and the items they make. */
typedef struct tiling {
    int32_t tokens; /* of a tile */
    int32_t tiles;
} tiling;

static tiling tiles_of(const es_cuda_attn_shape *shape, int32_t rows)
{
    const int32_t tokens = shape->row_tile / (shape->query_heads / shape->kv_heads);
    return (tiling){tokens, (rows + tokens - 1) / tokens};
}

static bool is_possible(const es_cuda_attn_shape *s)
{
    return s->kv_heads >= 1 && s->query_heads >= s->kv_heads && s->query_heads % s->kv_heads == 0 && s->head_dim >= 1 &&
           s->page >= 16 && s->page % 16 == 0 && s->row_tile >= s->query_heads / s->kv_heads;
}

int64_t es_cuda_attn_items(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    if (!is_possible(shape)) return 0;
    const tiling all = tiles_of(shape, limits->rows);
    return ((int64_t)all.tiles + limits->spans) * shape->kv_heads; /* a span's last tile may be short */
}

int64_t es_cuda_attn_nodes(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    (void)shape;
    return (int64_t)limits->blocks * ES_CUDA_ATTN_BLOCK_NODES;
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
    int32_t spans, at, head, tile;
} cursor;

/* The next item as a piece that holds all of it; false at the end. */
static bool next_item(cursor *c, es_cuda_attn_piece *piece)
{
    if (c->at == c->spans) return false;
    const es_cuda_attn_span *span = &c->span[c->at];
    const tiling t = tiles_of(c->shape, span->rows);
    const int32_t skip = c->tile * t.tokens, tokens = span->rows - skip < t.tokens ? span->rows - skip : t.tokens;
    const int32_t keys = span->start + skip + tokens; /* the last token of the tile sees itself */
    *piece = (es_cuda_attn_piece){
        .split = -1,
        .kv_head = c->head,
        .first_row = span->first_row + skip,
        .tokens = tokens,
        .start = span->start + skip,
        .first_page = span->first_page,
        .to = (keys - 1) / ES_CUDA_ATTN_PARTITION + 1,
        .parts = 1,
    };
    if (++c->tile == t.tiles) {
        c->tile = 0;
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

static int32_t write_splits(const writer *w, es_cuda_attn_split *split, int32_t *schedule)
{
    merging m = {.count = 0};
    int32_t place[64], used = 0;
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
                                          .schedule = used};
                m.count = m.nodes = m.merges = m.levels = 0;
            }
            const int32_t count = w->loose ? 1 : cover(piece->from, piece->to, place);
            if (w->loose) place[0] = piece->part * 32;
            for (int32_t n = 0; n < count; n++) add_node(&m, place[n]);
            if (piece->part < piece->parts - 1) continue;
            s->nodes = m.nodes;
            used += write_schedule(&m, schedule + used);
            s->levels = m.levels;
        }
    }
    return used;
}

/* Shows every block the pages of its first partition. */
static void carry_pages(const writer *w, const int32_t *pages)
{
    const int32_t page = w->head->page;
    for (int32_t b = 0; b < w->head->blocks; b++) {
        es_cuda_attn_block *block = &w->block[b];
        const es_cuda_attn_piece *piece = &block->first;
        for (int32_t i = 0; i < 8; i++) block->page[i] = -1;
        const int32_t begin = piece->from * ES_CUDA_ATTN_PARTITION, keys = piece->start + piece->tokens;
        const int32_t end = begin + ES_CUDA_ATTN_PARTITION < keys ? begin + ES_CUDA_ATTN_PARTITION : keys;
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

/* What an item costs besides its partitions, in partitions: queries, and gates and results of many rows. A prompt's first
 * items are short, and whoever got only such would be the last to finish. */
static int64_t item_cost(const es_cuda_attn_shape *shape)
{
    return shape->row_tile > 8 ? 2 : 0;
}

size_t es_cuda_attn_plan_write(const es_cuda_attn_shape *shape, const es_cuda_attn_span *span, int32_t spans,
                               const int32_t *pages, int32_t blocks, int32_t unit, void *scratch, void *plan)
{
    if (!is_possible(shape) || blocks < 1) return 0;
    for (int32_t s = 0; s < spans; s++)
        if (span[s].rows < 1 || span[s].start < 0) return 0;

    es_plan_item *items = scratch;
    es_cuda_attn_piece piece;
    int32_t count = 0;
    int64_t cost = 0, partitions = 0;
    for (cursor c = {shape, span, spans, 0, 0, 0}; next_item(&c, &piece); count++) {
        items[count] = (es_plan_item){.before = cost, .partitions = piece.to, .weight = 1}; /* reading is what costs */
        cost += piece.to + item_cost(shape);
        partitions += piece.to;
    }
    es_cuda_attn_plan *head = plan;
    *head =
        (es_cuda_attn_plan){.blocks = blocks, .row_tile = shape->row_tile, .page = shape->page, .units = (int32_t)partitions};
    writer w = {
        .head = head,
        .block = (es_cuda_attn_block *)(head + 1),
        .loose = unit < 0,
        .list = {.items = items, .stride = sizeof *items, .count = count, .cost = cost, .workers = blocks}
    };
    w.more = (es_cuda_attn_piece *)(w.block + blocks);
    w.unit = unit < 0 ? -unit : unit;
    if (w.unit == ES_CUDA_ATTN_AUTO) w.unit = choose_unit(partitions, blocks);
    for (;; w.unit *= 2) { /* coarser cuts make fewer nodes */
        w.splits = w.pieces = w.nodes = w.most = 0;
        memset(w.block, 0, (size_t)blocks * sizeof *w.block);
        int32_t worker = 0, index = 0;
        for (cursor c = {shape, span, spans, 0, 0, 0}; next_item(&c, &piece); index++)
            worker = share_item(&w, worker, index, &piece);
        if (w.most <= ES_CUDA_ATTN_MOST_NODES && w.nodes <= blocks * ES_CUDA_ATTN_BLOCK_NODES) break;
    }
    head->more = w.pieces, head->splits = w.splits, head->nodes = w.nodes, head->unit = (int32_t)w.unit;
    es_cuda_attn_split *split = (es_cuda_attn_split *)(w.more + w.pieces);
    int32_t *schedule = (int32_t *)(split + w.splits);
    schedule += write_splits(&w, split, schedule);
    carry_pages(&w, pages);
    return (size_t)((char *)schedule - (char *)plan);
}
