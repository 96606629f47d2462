/* fold.c: folds one or many segments; whoever does it, the merges are the same.
 *
 * A segment is cut into blocks from its first item on, and blocks merge in the binary tree of their index. A worker takes a
 * contiguous run of blocks across all segments and keeps a stack of nodes, as a binary counter would: whenever the two
 * topmost nodes are siblings, they merge. A segment that lies wholly in a run is finished there. Of one that does not, the
 * run publishes its maximal aligned nodes (at most two such pieces to a worker: its first segment and its last), and once
 * everybody has, the worker with a segment's first piece continues its stack over the pieces of the others. These are the
 * merges that one worker alone would have made, in the same order: attention's V1 and V2, over any operator. */
#include "fold/run.h"

#include <stdlib.h>
#include <string.h>

/* What an empty segment costs, in items: a million of them are shared out too. */
#define SEGMENT_COST 16

typedef struct node {
    int height;
    int64_t index;
} node;

/* Nodes of a contiguous run of one segment's blocks; partial i is at partials + i · stride. */
typedef struct piece {
    int64_t segment;
    int count;
    node *node;
    unsigned char *partials;
} piece;

typedef struct worker {
    unsigned char *gather, *one;
    piece piece[2];
    int pieces; /* published */
} worker;

typedef struct fold {
    es_run run;
    const int64_t *offsets;
    int64_t segments;
    unsigned char *answers;
    int workers, nodes;
    worker *worker;
    _Atomic bool falls; /* some offset is less than the one before it */
} fold;

/* Where a worker's run begins: block `block` of segment `segment`. */
typedef struct place {
    int64_t segment, block;
} place;

static int64_t blocks_of(const fold *f, int64_t segment)
{
    const int64_t items = f->offsets[segment + 1] - f->offsets[segment];
    return items ? (items - 1) / f->run.op.block + 1 : 0;
}

/* Cost of everything before a segment. Rises strictly, and needs no table. */
static uint64_t cost_before(const fold *f, int64_t segment)
{
    return (uint64_t)f->offsets[segment] - (uint64_t)f->offsets[0] + (uint64_t)segment * SEGMENT_COST;
}

static place cut_for(const fold *f, int w)
{
    if (w >= f->workers) return (place){f->segments, 0};
    const uint64_t cost = es_run_cut(cost_before(f, f->segments), w, f->workers);
    int64_t low = 0, high = f->segments;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (cost_before(f, middle) <= cost) low = middle;
        else high = middle;
    }
    const int64_t inside = (int64_t)(cost - cost_before(f, low)), block = f->run.op.block;
    const int64_t nearest = inside / block + (inside % block > block / 2);
    return nearest >= blocks_of(f, low) && nearest > 0 ? (place){low + 1, 0} : (place){low, nearest};
}

static unsigned char *partial_at(const fold *f, const piece *p, int i)
{
    return p->partials + (size_t)i * f->run.stride;
}

/* The topmost partial became whole: merge as long as the two topmost are siblings. */
static void settle(const fold *f, piece *p)
{
    const es_operator *op = &f->run.op;
    while (p->count > 1) {
        node *left = &p->node[p->count - 2];
        const node *right = left + 1;
        if (left->height != right->height || left->index % 2 != 0 || right->index != left->index + 1) return;
        op->merge(op->context, partial_at(f, p, p->count - 2), partial_at(f, p, p->count - 1));
        left->height++;
        left->index /= 2;
        p->count--;
    }
}

/* What is left are nodes of falling height, the right edge of the tree: merged from the right. */
static void finish_segment(const fold *f, piece *p, void *one)
{
    const es_operator *op = &f->run.op;
    for (; p->count > 1; p->count--)
        op->merge(op->context, partial_at(f, p, p->count - 2), partial_at(f, p, p->count - 1));
    es_run_finish(&f->run, p->count ? partial_at(f, p, 0) : NULL, one, f->answers + (size_t)p->segment * op->answer);
}

static void fold_run(fold *f, worker *me, place at, place end)
{
    const int64_t block = f->run.op.block;
    me->pieces = 0;
    for (; at.segment < end.segment || (at.segment == end.segment && at.block < end.block); at.segment++, at.block = 0) {
        const int64_t blocks = blocks_of(f, at.segment), last = at.segment == end.segment ? end.block : blocks;
        const int64_t begin = f->offsets[at.segment], stop = f->offsets[at.segment + 1];
        piece *p = &me->piece[me->pieces];
        p->segment = at.segment;
        p->count = 0;
        for (int64_t b = at.block; b < last; b++) {
            const int64_t first = begin + b * block, count = stop - first < block ? stop - first : block;
            p->node[p->count] = (node){0, b};
            es_run_block(&f->run, first, count, me->gather, me->one, partial_at(f, p, p->count));
            p->count++;
            settle(f, p);
        }
        if (at.block == 0 && last == blocks) finish_segment(f, p, me->one);
        else me->pieces++;
    }
}

/* Continue the stack of a segment's first piece over the pieces of later workers. */
static void join_pieces(fold *f, int w)
{
    worker *me = &f->worker[w];
    for (int i = 0; i < me->pieces; i++) {
        piece *p = &me->piece[i];
        if (p->count == 0 || p->node[0].index != 0) continue; /* the left edge is node (h, 0) */
        for (int other = w + 1; other < f->workers; other++) {
            const worker *from = &f->worker[other];
            if (from->pieces == 0) continue;
            const piece *next = &from->piece[0]; /* a segment goes on only where a run begins */
            if (next->segment != p->segment) break;
            for (int n = 0; n < next->count; n++) {
                p->node[p->count] = next->node[n];
                memcpy(partial_at(f, p, p->count), partial_at(f, next, n), f->run.op.partial);
                p->count++;
                settle(f, p);
            }
        }
        finish_segment(f, p, me->one);
    }
}

static void fold_job(void *argument, int w)
{
    fold *f = argument;
    fenv_t saved;
    es_run_enter(&saved);
    const int64_t from = (int64_t)es_run_cut((uint64_t)f->segments, w, f->workers);
    const int64_t to = (int64_t)es_run_cut((uint64_t)f->segments, w + 1, f->workers);
    for (int64_t s = from; s < to; s++)
        if (f->offsets[s] > f->offsets[s + 1]) f->falls = true;
    es_pool_meet(f->run.team->pool);
    if (!f->falls) {
        fold_run(f, &f->worker[w], cut_for(f, w), cut_for(f, w + 1));
        es_pool_meet(f->run.team->pool);
        join_pieces(f, w);
    }
    es_run_leave(&saved);
}

static size_t rounded(size_t bytes)
{
    return (bytes + ES_SCRATCH_ALIGNMENT - 1) / ES_SCRATCH_ALIGNMENT * ES_SCRATCH_ALIGNMENT;
}

/* Scratch: the workers' records, then for each its gathered items, a partial, and two stacks. */
static es_status lay_out(fold *f, int64_t items)
{
    int height = 0;
    for (int64_t blocks = items / f->run.op.block + 1; blocks > 0; blocks /= 2) height++;
    f->nodes = 2 * height + 2; /* two of each height, and one in the making */
    const size_t workers = (size_t)f->workers, nodes = (size_t)f->nodes, marks = rounded(nodes * sizeof(node));
    size_t bytes = 0, each = 0;
    const bool fits = es_run_reserve(&each, f->run.stride, 2 * nodes + 1) && es_run_reserve(&each, marks, 2) &&
                      es_run_reserve(&each, f->run.gather, 1) && es_run_reserve(&bytes, rounded(sizeof(worker)), workers) &&
                      es_run_reserve(&bytes, each, workers);
    if (!fits) return es_fail(ES_NO_MEMORY, "partials of %zu bytes for %d workers do not fit in memory", f->run.op.partial,
                              f->workers);
    unsigned char *at;
    ES_TRY(es_team_scratch(f->run.team, bytes, &at));
    f->worker = (worker *)(void *)at;
    at += rounded(sizeof(worker)) * workers;
    for (size_t w = 0; w < workers; w++) {
        worker *me = &f->worker[w];
        memset(me, 0, sizeof *me);
        me->gather = at, at += f->run.gather;
        me->one = at, at += f->run.stride;
        for (int i = 0; i < 2; i++) {
            me->piece[i].node = (node *)(void *)at, at += marks;
            me->piece[i].partials = at, at += f->run.stride * nodes;
        }
    }
    return ES_OK;
}

es_status es_fold_segments(es_team *team, const es_operator *op, const es_source *source, const int64_t *offsets,
                           int64_t segments, const void *initial, void *answers)
{
    if (segments < 0) return es_fail(ES_INVALID, "%" PRId64 " segments", segments);
    fold f = {.offsets = offsets, .segments = segments, .answers = answers};
    ES_TRY(es_run_begin(&f.run, team, op, source, initial));
    es_status status = ES_OK;
    if (segments > 0) {
        f.workers = es_team_size(f.run.team);
        if (offsets[0] < 0 || offsets[segments] > source->count)
            status = es_fail(ES_INVALID, "segments from item %" PRId64 " to %" PRId64 " of %" PRId64, offsets[0],
                             offsets[segments], source->count);
        if (status == ES_OK) status = lay_out(&f, source->count);
        if (status == ES_OK) {
            es_team_run(f.run.team, fold_job, &f);
            if (f.falls) status = es_fail(ES_INVALID, "a segment ends before it begins");
        }
    }
    es_run_end(&f.run);
    return status;
}

es_status es_fold(es_team *team, const es_operator *op, const es_source *source, const void *initial, void *answer)
{
    const int64_t offsets[2] = {0, source->count};
    if (source->count < 0) return es_fail(ES_INVALID, "a source of %" PRId64 " items", source->count);
    return es_fold_segments(team, op, source, offsets, 1, initial, answer);
}
