/* run.c: arguments checked once, and the innermost step of every fold and scan. */
#include "fold/run.h"

#include <string.h>

es_source es_source_array(const void *data, size_t item, int64_t count)
{
    return (es_source){.count = count, .item = item, .data = data, .stride = (ptrdiff_t)item};
}

es_source es_source_strided(const void *data, size_t item, ptrdiff_t stride, int64_t count)
{
    return (es_source){.count = count, .item = item, .data = data, .stride = stride};
}

es_source es_source_generator(void (*generate)(const void *context, int64_t first, int64_t count, void *items),
                              const void *context, size_t item, int64_t count)
{
    return (es_source){.count = count, .item = item, .generate = generate, .context = context};
}

es_source es_source_counting(int64_t count)
{
    return (es_source){.count = count};
}

static bool is_dense(const es_source *source)
{
    return source->item == 0 || (!source->generate && source->stride == (ptrdiff_t)source->item);
}

es_status es_run_begin(es_run *run, es_team *team, const es_operator *op, const es_source *source, const void *initial)
{
    *run = (es_run){.op = *op, .source = *source, .initial = initial, .team = team};
    const char *name = op->name ? op->name : "an operator without a name";
    if (!op->identity || !op->merge || (!op->leaf && !op->fold_block))
        return es_fail(ES_INVALID, "%s: an operator needs identity, merge, and leaf or fold_block", name);
    if (op->partial == 0 || op->partial > SIZE_MAX / 4 || op->block < 0)
        return es_fail(ES_INVALID, "%s: partials of %zu bytes, blocks of %" PRId64 " items", name, op->partial, op->block);
    if (source->count < 0) return es_fail(ES_INVALID, "%s: a source of %" PRId64 " items", name, source->count);
    if (op->item != source->item)
        return es_fail(ES_INVALID, "%s takes items of %zu bytes, the source has items of %zu", name, op->item, source->item);
    if (source->count > 0 && source->item > 0 && !source->data && !source->generate)
        return es_fail(ES_INVALID, "%s: a source of %" PRId64 " items with neither data nor a generator", name, source->count);
    if (run->op.block == 0) run->op.block = ES_FOLD_BLOCK;
    run->stride = (op->partial + ES_SCRATCH_ALIGNMENT - 1) / ES_SCRATCH_ALIGNMENT * ES_SCRATCH_ALIGNMENT;
    if (!is_dense(source)) {
        const int64_t most = source->count < run->op.block ? source->count : run->op.block;
        if (!es_run_reserve(&run->gather, source->item, (size_t)most))
            return es_fail(ES_INVALID, "%s: a block of %" PRId64 " items of %zu bytes", name, most, source->item);
        run->gather = (run->gather / ES_SCRATCH_ALIGNMENT + 1) * ES_SCRATCH_ALIGNMENT;
    }
    if (!team) {
        ES_TRY(es_team_open(1, &run->own));
        run->team = run->own;
    }
    return ES_OK;
}

void es_run_end(es_run *run)
{
    es_team_close(run->own);
}

const void *es_run_items(const es_run *run, int64_t first, int64_t count, void *buffer)
{
    const es_source *source = &run->source;
    if (source->item == 0) return NULL;
    if (source->generate) {
        source->generate(source->context, first, count, buffer);
        return buffer;
    }
    const unsigned char *from = (const unsigned char *)source->data + (ptrdiff_t)first * source->stride;
    if (run->gather == 0) return from;
    for (int64_t i = 0; i < count; i++)
        memcpy((unsigned char *)buffer + (size_t)i * source->item, from + (ptrdiff_t)i * source->stride, source->item);
    return buffer;
}

void es_run_block(const es_run *run, int64_t first, int64_t count, void *buffer, void *one, void *partial)
{
    const es_operator *op = &run->op;
    const unsigned char *items = es_run_items(run, first, count, buffer);
    if (op->fold_block) {
        op->fold_block(op->context, items, first, count, partial);
        return;
    }
    op->leaf(op->context, items, first, partial);
    for (int64_t i = 1; i < count; i++) {
        op->leaf(op->context, items ? items + (size_t)i * op->item : NULL, first + i, one);
        op->merge(op->context, partial, one);
    }
}

void es_run_finish(const es_run *run, const void *partial, void *one, void *answer)
{
    const es_operator *op = &run->op;
    if (!partial && run->initial) {
        partial = run->initial;
    } else if (!partial) {
        op->identity(op->context, one);
        partial = one;
    } else if (run->initial) {
        memcpy(one, run->initial, op->partial);
        op->merge(op->context, one, partial);
        partial = one;
    }
    if (op->finish) op->finish(op->context, partial, answer);
    else memcpy(answer, partial, op->answer < op->partial ? op->answer : op->partial);
}
