/* scan.c: every prefix, in three sweeps that meet at barriers.
 *
 * Up: every block of B items is folded to its aggregate; B aggregates are folded to one of the next level, until one block
 * holds them all. Down: within each block, from the top level to the lowest, aggregates become the prefixes of what they
 * stand for: the prefix of their block, then one merge after the other. Last, every block of items starts from its prefix.
 * Each step is bounded by a block, and all orders depend on the count alone.
 *
 * (A single pass with look-back would read items once; with operators that round, its usual form gives other bits each time,
 * since how far a tile looks back depends on who was faster.) */
#include "evenshare/scan.h"
#include "fold/run.h"

#include <string.h>

#define MOST_LEVELS 64

typedef struct level {
    int64_t count;
    unsigned char *partials; /* [count] aggregates of blocks of the level below, then their prefixes */
} level;

typedef struct scan {
    es_run run;
    es_scan_kind kind;
    unsigned char *out;
    ptrdiff_t out_stride;
    int levels, workers;
    level level[MOST_LEVELS];
    unsigned char *scratch; /* [workers] gathered items and two partials */
    size_t each;
} scan;

static unsigned char *partial_at(const scan *s, int l, int64_t i)
{
    return s->level[l].partials + (size_t)i * s->run.stride;
}

static int64_t block_end(const scan *s, int64_t block, int64_t count)
{
    const int64_t first = block * s->run.op.block;
    return count - first < s->run.op.block ? count : first + s->run.op.block;
}

/* A prefix that may still be of nothing: then merging is copying. */
static void extend(const scan *s, void *prefix, bool *any, const void *partial)
{
    if (*any) s->run.op.merge(s->run.op.context, prefix, partial);
    else memcpy(prefix, partial, s->run.op.partial);
    *any = true;
}

static void aggregate_level(const scan *s, int l, int64_t block)
{
    const int64_t first = block * s->run.op.block, end = block_end(s, block, s->level[l - 1].count);
    unsigned char *sum = partial_at(s, l, block);
    bool any = false;
    for (int64_t i = first; i < end; i++) extend(s, sum, &any, partial_at(s, l - 1, i));
}

/* Aggregates of one block become prefixes. `start` is that of the block, NULL for the very first of a scan without an initial
 * partial. */
static void spread(const scan *s, int l, int64_t block, const void *start, unsigned char *prefix, unsigned char *next)
{
    const int64_t count = s->level[l].count, first = block * s->run.op.block, end = block_end(s, block, count);
    bool any = start != NULL;
    if (any) memcpy(prefix, start, s->run.op.partial);
    for (int64_t i = first; i < end; i++) {
        unsigned char *here = partial_at(s, l, i);
        memcpy(next, here, s->run.op.partial);
        if (any) memcpy(here, prefix, s->run.op.partial);
        extend(s, prefix, &any, next);
    }
}

static const void *prefix_of(const scan *s, int l, int64_t i)
{
    return i == 0 ? s->run.initial : partial_at(s, l, i);
}

static void write_block(const scan *s, int64_t block, unsigned char *gather, unsigned char *prefix, unsigned char *one)
{
    const es_operator *op = &s->run.op;
    const int64_t first = block * op->block, end = block_end(s, block, s->run.source.count);
    const unsigned char *items = es_run_items(&s->run, first, end - first, gather);
    const void *start = prefix_of(s, 0, block);
    bool any = start != NULL;
    if (any) memcpy(prefix, start, op->partial);
    else op->identity(op->context, prefix);
    for (int64_t i = first; i < end; i++) {
        op->leaf(op->context, items ? items + (size_t)(i - first) * op->item : NULL, i, one);
        unsigned char *out = s->out + (ptrdiff_t)i * s->out_stride;
        if (s->kind == ES_SCAN_INCLUSIVE) extend(s, prefix, &any, one);
        if (op->finish) op->finish(op->context, prefix, out);
        else memcpy(out, prefix, op->answer < op->partial ? op->answer : op->partial);
        if (s->kind == ES_SCAN_EXCLUSIVE) extend(s, prefix, &any, one);
    }
}

static void scan_job(void *argument, int w)
{
    scan *s = argument;
    es_pool *pool = s->run.team->pool;
    unsigned char *gather = s->scratch + s->each * (size_t)w;
    unsigned char *prefix = gather + s->run.gather, *one = prefix + s->run.stride;
    fenv_t saved;
    es_run_enter(&saved);
    for (int l = 0; l < s->levels; l++) {
        const int64_t blocks = s->level[l].count;
        const int64_t to = (int64_t)es_run_cut((uint64_t)blocks, w + 1, s->workers);
        for (int64_t b = (int64_t)es_run_cut((uint64_t)blocks, w, s->workers); b < to; b++) {
            const int64_t first = b * s->run.op.block;
            if (l > 0) aggregate_level(s, l, b);
            else es_run_block(&s->run, first, block_end(s, b, s->run.source.count) - first, gather, one, partial_at(s, 0, b));
        }
        es_pool_meet(pool);
    }
    for (int l = s->levels - 1; l >= 0; l--) {
        const int64_t blocks = l == s->levels - 1 ? 1 : s->level[l + 1].count;
        const int64_t to = (int64_t)es_run_cut((uint64_t)blocks, w + 1, s->workers);
        for (int64_t b = (int64_t)es_run_cut((uint64_t)blocks, w, s->workers); b < to; b++)
            spread(s, l, b, l == s->levels - 1 ? s->run.initial : prefix_of(s, l + 1, b), prefix, one);
        es_pool_meet(pool);
    }
    const int64_t to = (int64_t)es_run_cut((uint64_t)s->level[0].count, w + 1, s->workers);
    for (int64_t b = (int64_t)es_run_cut((uint64_t)s->level[0].count, w, s->workers); b < to; b++)
        write_block(s, b, gather, prefix, one);
    es_run_leave(&saved);
}

static es_status lay_out(scan *s)
{
    const int64_t block = s->run.op.block;
    const size_t workers = (size_t)s->workers;
    size_t bytes = 0;
    s->each = s->run.gather;
    bool fits = es_run_reserve(&s->each, s->run.stride, 2) && es_run_reserve(&bytes, s->each, workers);
    int64_t count = s->run.source.count;
    do {
        count = (count - 1) / block + 1;
        s->level[s->levels++].count = count;
        fits = fits && es_run_reserve(&bytes, s->run.stride, (size_t)count);
    } while (count > block);
    if (!fits) return es_fail(ES_NO_MEMORY, "partials of %zu bytes for %" PRId64 " items do not fit in memory",
                              s->run.op.partial, s->run.source.count);
    unsigned char *at;
    ES_TRY(es_team_scratch(s->run.team, bytes, &at));
    s->scratch = at, at += s->each * workers;
    for (int l = 0; l < s->levels; l++) {
        s->level[l].partials = at;
        at += s->run.stride * (size_t)s->level[l].count;
    }
    return ES_OK;
}

es_status es_scan(es_team *team, const es_operator *op, const es_source *source, es_scan_kind kind, const void *initial,
                  void *out, ptrdiff_t stride)
{
    if (!op->leaf) return es_fail(ES_INVALID, "%s: a scan needs the operator's leaf", op->name ? op->name : "scan");
    if (op->block == 1) return es_fail(ES_INVALID, "%s: a scan needs blocks of 2 items or more", op->name ? op->name : "scan");
    scan s = {.kind = kind, .out = out, .out_stride = stride};
    ES_TRY(es_run_begin(&s.run, team, op, source, initial));
    /* Aggregates and the last sweep must treat items alike: both go by leaf. */
    s.run.op.fold_block = NULL;
    es_status status = ES_OK;
    if (source->count > 0) {
        s.workers = es_team_size(s.run.team);
        status = lay_out(&s);
        if (status == ES_OK) es_team_run(s.run.team, scan_job, &s);
    }
    es_run_end(&s.run);
    return status;
}
