/* bench_limits.c: measures the limits that the other rows are held against: all workers at once, the best of several runs. */
#include "cli/bench_limits.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "device/cuda/load.h"
#include "evenshare/share.h"
#include "share/pool.h"

enum { READ_MIB = 512, READS = 5, RUNS = 25, ROUNDS = 200000 };

typedef struct measuring {
    es_pool *pool;
    const es_limit_loops *loops;
    double (*loop)(int64_t rounds);
    const unsigned char *data;
    size_t bytes;
    _Atomic uint64_t seen;
    double done; /* operations of one worker */
} measuring;

static void loop_job(void *argument, int worker)
{
    measuring *m = argument;
    const double done = m->loop(ROUNDS);
    if (worker == 0) m->done = done;
}

static void read_job(void *argument, int worker)
{
    measuring *m = argument;
    const es_share plan = es_share_plan((int64_t)(m->bytes / 512), 1, es_pool_workers(m->pool));
    const es_range range = es_share_range(&plan, worker);
    m->seen ^= m->loops->read(m->data + range.begin * 512, (size_t)(range.end - range.begin) * 512);
}

static double best_seconds(measuring *m, es_job_fn job, int runs)
{
    const es_clock clock = es_clock_monotonic();
    double best = 1e9;
    for (int i = 0; i < runs; i++) {
        const uint64_t start = es_clock_now(&clock);
        es_pool_run(m->pool, job, m);
        const double seconds = (double)(es_clock_now(&clock) - start) * 1e-9;
        if (seconds < best) best = seconds;
    }
    return best;
}

static es_peak measure_loop(measuring *m, const es_limit_loop *loop, int threads)
{
    if (!loop->run) return (es_peak){0, loop->by};
    m->loop = loop->run;
    const double seconds = best_seconds(m, loop_job, RUNS);
    return (es_peak){m->done * threads / seconds, loop->by};
}

es_status es_bench_limits(int threads, es_limits *limits)
{
    es_limit_loops loops;
    es_limit_loops_select(&loops);
    measuring m = {.loops = &loops, .bytes = (size_t)READ_MIB << 20};
    ES_TRY(es_pool_open(threads, &m.pool));
    const int workers = es_pool_workers(m.pool);
    *limits = (es_limits){.threads = workers};
    unsigned char *data = es_memory_map(m.bytes);
    if (!data) {
        es_pool_close(m.pool);
        return es_fail(ES_NO_MEMORY, "no memory to measure reading: %d MiB are needed", READ_MIB);
    }
    memset(data, 1, m.bytes); /* pages that were never written are all one page */
    m.data = data;
    limits->read_bytes = (double)m.bytes / best_seconds(&m, read_job, READS);
    es_memory_unmap(data, m.bytes);
    for (int k = 0; k < ES_LIMIT_KINDS; k++)
        limits->peak[k] = k && loops.peak[k].run == loops.peak[k - 1].run
                              ? limits->peak[k - 1] /* the same loop: the same figure */
                              : measure_loop(&m, &loops.peak[k], workers);
    es_pool_close(m.pool);
    return ES_OK;
}

es_status es_bench_limits_of(es_device_kind kind, int threads, es_limits *limits)
{
    if (kind != ES_DEVICE_CUDA) return es_bench_limits(threads, limits);
    const es_cuda_api *api;
    es_cuda_limits gpu;
    ES_TRY(es_cuda_load(&api));
    ES_TRY(api->limits(&gpu));
    /* Attention and the recurrence of a GPU are bound by reading: they are counted with the matrix peak, too. */
    const es_peak peak = {gpu.bf16_flops, gpu.bf16_by};
    *limits = (es_limits){.threads = gpu.multiprocessors, .read_bytes = gpu.read_bytes,
                          .peak = {peak, peak, {0, ""}, {0, ""}}, .sustained = gpu.bf16_sustained};
    return ES_OK;
}

es_limit_kind es_limit_of_attention(es_kv_type type)
{
    return type == ES_KV_Q8_0 ? ES_LIMIT_INT8 : type == ES_KV_BF16 ? ES_LIMIT_BF16 : ES_LIMIT_F32;
}

const char *es_limit_name(es_limit_kind kind)
{
    static const char *const names[ES_LIMIT_KINDS] = {"f32", "bf16", "bf16dp", "int8"};
    return names[kind];
}

json_t *es_bench_limits_json(const es_limits *l)
{
    json_t *peaks = json_object();
    for (int k = 0; k < ES_LIMIT_KINDS; k++)
        json_object_set_new(peaks, es_limit_name((es_limit_kind)k),
                            json_pack("{s:f,s:s}", "operations_per_second", l->peak[k].per_second, "by", l->peak[k].by));
    json_t *all = json_pack("{s:i,s:f,s:o}", "threads", l->threads, "read_bytes_per_second", l->read_bytes, "matrix_peak", peaks);
    if (l->sustained > 0) json_object_set_new(all, "matrix_sustained", json_real(l->sustained));
    return all;
}

void es_bench_limits_print(const es_limits *l)
{
    printf("limits of %d thread%s, measured just now: read %.1f GB/s\nmatrix peak per type:", l->threads,
           l->threads == 1 ? "" : "s", l->read_bytes * 1e-9);
    for (int k = 0; k < ES_LIMIT_KINDS; k++) {
        const es_peak *peak = &l->peak[k];
        if (peak->per_second > 0)
            printf("%s %s %.0f G%s/s (%s)", k ? "," : "", es_limit_name((es_limit_kind)k), peak->per_second * 1e-9,
                   k == ES_LIMIT_INT8 ? "OP" : "FLOP", peak->by);
        else
            printf("%s %s not measured", k ? "," : "", es_limit_name((es_limit_kind)k));
    }
    if (l->sustained > 0) printf("; for a third of a second %.0f GFLOP/s of bf16", l->sustained * 1e-9);
    printf("\n");
}
