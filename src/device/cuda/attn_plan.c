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
    const int64_t partitions = ((int64_t)limits->context + ES_CUDA_ATTN_PARTITION - 1) / ES_CUDA_ATTN_PARTITION;
    int64_t height = 1;
    while (((int64_t)1 << height) < partitions) height++;
    return (int64_t)limits->blocks * 2 * 2 * height; /* a block splits two items at most: its first and its last */
}

size_t es_cuda_attn_plan_bytes(const es_cuda_attn_shape *shape, const es_cuda_attn_limits *limits)
{
    return sizeof(es_cuda_attn_plan) + (size_t)limits->blocks * (sizeof(es_cuda_attn_block) + sizeof(es_cuda_attn_split)) +
           (size_t)(es_cuda_attn_items(shape, limits) + limits->blocks) * sizeof(es_cuda_attn_piece) +
           (size_t)es_cuda_attn_nodes(shape, limits) * sizeof(int32_t);
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
    bool loose;                          /* pieces publish one node each */
    int32_t splits, pieces, nodes, used; /* used: blocks that have a piece already */
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
    const int32_t split = parts > 1 ? w->splits++ : -1;
    for (int32_t from = 0, part = 0; from < whole->to; from = to, part++) {
        worker = worker_at(w, worker, index, from, whole->to, &to);
        es_cuda_attn_piece piece = *whole;
        piece.split = split, piece.from = from, piece.to = to, piece.part = part, piece.parts = parts;
        piece.node = w->nodes, piece.nodes = split < 0 ? 0 : w->loose ? 1 : cover(from, to, NULL);
        w->nodes += piece.nodes;
        give(w, worker, &piece);
    }
    return worker;
}

/* The merge list of a split item: which slots hold the nodes that begin in each of its equal subtrees. */
static void list_nodes(es_cuda_attn_split *split, const es_cuda_attn_piece *piece, int32_t partitions, bool loose,
                       int32_t *place)
{
    int32_t shift = 0;
    while ((ES_CUDA_ATTN_GROUPS << shift) < partitions) shift++;
    if (piece->part == 0) {
        *split = (es_cuda_attn_split){.top = shift,
                                      .kv_head = piece->kv_head,
                                      .first_row = piece->first_row,
                                      .tokens = piece->tokens,
                                      .parts = piece->parts};
        for (int32_t g = 0; g <= ES_CUDA_ATTN_GROUPS; g++) split->group[g] = piece->node;
    }
    const int32_t count = loose ? 1 : cover(piece->from, piece->to, place);
    if (loose) *place = piece->from * 32;
    for (int32_t i = 0; i < count; i++)
        for (int32_t g = (place[i] / 32 >> shift) + 1; g <= ES_CUDA_ATTN_GROUPS; g++) split->group[g] = piece->node + i + 1;
}

static void write_splits(const writer *w, es_cuda_attn_split *split, int32_t *place)
{
    const es_plan_item *item = w->list.items;
    int32_t index = -1;
    for (int32_t b = 0; b < w->head->blocks; b++) {
        const es_cuda_attn_block *block = &w->block[b];
        if (block->first.from == block->first.to) continue;
        for (int32_t i = block->next - 1; i < block->last; i++) {
            const es_cuda_attn_piece *piece = i < block->next ? &block->first : &w->more[i];
            if (piece->part == 0) index++;
            if (piece->split >= 0)
                list_nodes(&split[piece->split], piece, item[index].partitions, w->loose, place + piece->node);
        }
    }
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

size_t es_cuda_attn_plan_write(const es_cuda_attn_shape *shape, const es_cuda_attn_span *span, int32_t spans,
                               const int32_t *pages, int32_t blocks, int32_t unit, void *scratch, void *plan)
{
    if (!is_possible(shape) || blocks < 1) return 0;
    for (int32_t s = 0; s < spans; s++)
        if (span[s].rows < 1 || span[s].start < 0) return 0;

    es_plan_item *items = scratch;
    es_cuda_attn_piece piece;
    int32_t count = 0;
    int64_t cost = 0;
    for (cursor c = {shape, span, spans, 0, 0, 0}; next_item(&c, &piece); count++) {
        items[count] = (es_plan_item){.before = cost, .partitions = piece.to, .weight = 1}; /* reading is what costs */
        cost += piece.to;
    }
    es_cuda_attn_plan *head = plan;
    *head = (es_cuda_attn_plan){.blocks = blocks, .row_tile = shape->row_tile, .page = shape->page, .units = (int32_t)cost};
    writer w = {
        .head = head,
        .block = (es_cuda_attn_block *)(head + 1),

        .unit = unit < 0 ? -unit : unit,
        .loose = unit < 0,
        .list = {.items = items, .stride = sizeof *items, .count = count, .cost = cost, .workers = blocks}
    };
    w.more = (es_cuda_attn_piece *)(w.block + blocks);
    memset(w.block, 0, (size_t)blocks * sizeof *w.block);

    int32_t worker = 0, index = 0;
    for (cursor c = {shape, span, spans, 0, 0, 0}; next_item(&c, &piece); index++)
        worker = share_item(&w, worker, index, &piece);
    head->more = w.pieces, head->splits = w.splits, head->nodes = w.nodes;
    es_cuda_attn_split *split = (es_cuda_attn_split *)(w.more + w.pieces);
    int32_t *place = (int32_t *)(split + w.splits);
    write_splits(&w, split, place);
    carry_pages(&w, pages);
    return (size_t)((char *)(place + w.nodes) - (char *)plan);
}
