/* measure_attention.c: what splitting a long sequence costs on this machine, measured when a device opens.
 *
 * Three figures, each the least of a few runs: folding a tile of keys for the query heads of one KV head, merging two partials, and
 * a barrier. They decide who does what in `auto` (es_plan_grain), never what comes out. On a busy machine a barrier waits for
 * somebody who is not running, in whatever way the work is cut: what is measured beyond MOST_MEET is not its price. Keys lie in
 * the cache here; read from memory they take longer, so that a split pays a little earlier than is reckoned. */
#include "device/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"

enum { RUNS = 5, MEETINGS = 16 };
#define MOST_MEET 20e-6 /* seconds */

typedef struct ground {
    es_cpu *cpu;
    es_attn_tile tile;
    es_attn_tile_q8 tile_q8;
    double fold, merge, meet; /* seconds */
} ground;

static double seconds_since(const es_clock *clock, uint64_t start)
{
    return (double)(es_clock_now(clock) - start) * 1e-9;
}

static void measure_kernels(ground *g)
{
    const es_clock clock = es_clock_monotonic();
    const es_kernels *kernels = &g->cpu->kernels;
    const es_attn_tile *t = &g->tile;
    g->fold = g->merge = 1.0;
    for (int i = 0; i < RUNS; i++) {
        uint64_t start = es_clock_now(&clock);
        switch (g->cpu->options.kv_type) {
        case ES_KV_Q8_0: kernels->attn_tile_q8(&g->tile_q8); break;
        case ES_KV_BF16: kernels->attn_tile_bf16(t); break;
        case ES_KV_F16: kernels->attn_tile_f16(t); break;
        default: kernels->attn_tile(t); break;
        }
        g->fold = fmin(g->fold, seconds_since(&clock, start));
        start = es_clock_now(&clock);
        for (int32_t r = 0; r < t->rows; r++) {
            float *o = t->o + (int64_t)r * t->head_dim;
            kernels->attn_merge(&t->m[r], &t->l[r], o, t->m[0], t->l[0], t->o, t->head_dim);
        }
        g->merge = fmin(g->merge, seconds_since(&clock, start));
    }
}

static void measure_job(void *argument, int worker)
{
    ground *g = argument;
    const unsigned saved = es_float_mode_enter();
    const es_clock clock = es_clock_monotonic();
    if (worker == 0) measure_kernels(g);
    double least = MOST_MEET;
    for (int i = 0; i < MEETINGS; i++) {
        es_pool_meet(g->cpu->pool);
        const uint64_t start = es_clock_now(&clock);
        es_pool_meet(g->cpu->pool);
        least = fmin(least, seconds_since(&clock, start));
    }
    if (worker == 0) g->meet = least;
    es_float_mode_leave(saved);
}

es_status es_cpu_attn_measure(es_cpu *cpu)
{
    const es_attn_shape *shape = &cpu->options.attn;
    if (shape->head_dim == 0 || cpu->options.attention != ES_ATTENTION_AUTO || es_pool_workers(cpu->pool) < 2) return ES_OK;
    const int32_t group = shape->query_heads / shape->kv_heads, dim = shape->head_dim;
    const int64_t keys = (int64_t)ES_ATTN_TILE * dim;
    /* Query, keys, values (the same ones), m, l, o and scratch. */
    const int64_t floats = dim + keys + group * (1 + ES_DOT_LANES + (int64_t)dim + ES_ATTN_TILE);
    float *all = calloc((size_t)floats, sizeof *all);
    const float *q[ES_ATTN_ROWS];
    int32_t valid[ES_ATTN_ROWS];
    if (!all) return es_fail(ES_NO_MEMORY, "no memory to measure attention with");
    ground g = {.cpu = cpu, .tile = {.q = q, .valid = valid, .rows = group, .head_dim = dim}};
    float *m = all + dim + keys;
    g.tile.m = m, g.tile.l = m + group, g.tile.o = g.tile.l + group * ES_DOT_LANES, g.tile.p = g.tile.o + (int64_t)group * dim;
    for (int32_t r = 0; r < group; r++) q[r] = all, valid[r] = ES_ATTN_TILE;
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
        g.tile.k[b] = g.tile.v[b] = all + dim + (int64_t)b * ES_ATTN_BLOCK * dim;
        g.tile.k16[b] = g.tile.v16[b] = (const uint16_t *)(const void *)g.tile.k[b];
    }
    const void *zeros = all + dim;
    g.tile_q8 = (es_attn_tile_q8){.q = zeros, .q_scale = zeros, .q_zero = zeros, .valid = valid, .rows = group, .head_dim = dim,
                                  .m = g.tile.m, .l = g.tile.l, .o = g.tile.o, .p = g.tile.p};
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) g.tile_q8.k[b] = g.tile_q8.v[b] = (const uint8_t *)(const void *)g.tile.k[b];
    es_pool_run(cpu->pool, measure_job, &g);
    free(all);
    cpu->attn_costs = (es_plan_costs){g.fold * (ES_ATTN_PARTITION / ES_ATTN_TILE) / es_plan_weight(group), g.meet, g.merge / group};
    return ES_OK;
}
