/* bench_operations.c: see bench_operations.h. What takes how long is the first question of all who would have it faster; a
 * profiler answers by function, and does not see who waits for whom. */
#include "cli/bench_operations.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/dtype.h"

static es_bench_operation describe(const es_op *op)
{
    es_bench_operation what = {.kind = op->kind};
    if (op->kind != ES_OP_MATMUL) return what;
    const es_op_matmul *product = &op->as.matmul;
    what.type = product->part[0].weight.type;
    what.inputs = product->part[0].weight.cols;
    for (int32_t p = 0; p < product->parts; p++) what.outputs += product->part[p].weight.rows;
    return what;
}

static bool same(const es_bench_operation *a, const es_bench_operation *b)
{
    return a->kind == b->kind && a->inputs == b->inputs && a->outputs == b->outputs && a->type == b->type;
}

/* What finds no room of its own is counted with the last one. */
static void tell(void *user, const es_op *op, double seconds)
{
    es_bench_operations *all = user;
    const es_bench_operation what = describe(op);
    int i = 0;
    while (i < all->count && !same(&all->each[i], &what)) i++;
    if (i == all->count && i < ES_BENCH_MOST_OPERATIONS) all->each[all->count++] = what;
    if (i == ES_BENCH_MOST_OPERATIONS) i--;
    all->each[i].times++;
    all->each[i].seconds += seconds;
}

es_op_watch es_bench_watch(es_bench_operations *operations)
{
    return (es_op_watch){tell, operations};
}

static int by_seconds(const void *a, const void *b)
{
    const es_bench_operation *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

/* Sorts them, and returns their seconds together. */
static double sort(es_bench_operations *all)
{
    double seconds = 0;
    qsort(all->each, (size_t)all->count, sizeof *all->each, by_seconds);
    for (int i = 0; i < all->count; i++) seconds += all->each[i].seconds;
    return seconds;
}

static void name_of(const es_bench_operation *what, char *name, size_t bytes)
{
    if (what->kind == ES_OP_MATMUL)
        snprintf(name, bytes, "%s %s %lld to %lld", es_op_name(what->kind), es_dtype_get_info(what->type)->name, (long long)what->inputs,
                 (long long)what->outputs);
    else
        snprintf(name, bytes, "%s", es_op_name(what->kind));
}

void es_bench_operations_print(es_bench_operations *operations, int runs)
{
    const double seconds = sort(operations);
    char name[80];
    for (int i = 0; i < operations->count; i++) {
        const es_bench_operation *what = &operations->each[i];
        name_of(what, name, sizeof name);
        printf("    %5.1f%% %10.3f ms  %5lld times  %s\n", 100 * what->seconds / seconds, what->seconds / runs * 1e3,
               (long long)(what->times / runs), name);
    }
}

json_t *es_bench_operations_json(es_bench_operations *operations, int runs)
{
    const double seconds = sort(operations);
    json_t *list = json_array();
    char name[80];
    for (int i = 0; i < operations->count; i++) {
        const es_bench_operation *what = &operations->each[i];
        name_of(what, name, sizeof name);
        json_array_append_new(list, json_pack("{s:s,s:I,s:f,s:f}", "operation", name, "times", (json_int_t)(what->times / runs),
                                              "seconds", what->seconds / runs, "share", what->seconds / seconds));
    }
    return list;
}
