/* attn_test.cu: decode attention on a GPU: right against double precision on the host, and equal bits whatever the plan, the
 * number of blocks, the page size, the company, the launch. Run on a
 * machine with a GPU: cuda_attn_test [quick | prompts | even]; prompts and even are for the sanitizer. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "device/cuda/attn_decode.h"
#include "share/plan.h"

static int failures, checks;

static void expect(bool ok, const char *what, const char *detail)
{
    checks++;
    if (!ok) failures++, printf("FAILED %s: %s\n", what, detail);
}

static void need(cudaError_t error, const char *what)
{
    if (error) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error)), exit(1);
}

static void need(const char *wrong, const char *what)
{
    if (wrong) fprintf(stderr, "%s: %s\n", what, wrong), exit(1);
}

static uint64_t random_state = 88172645463325252u;
static float next_random(void)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (float)((random_state >> 40) / 8388608.0 - 1.0);
}

static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits += 0x7FFF + (bits >> 16 & 1), bits &= 0xFFFF0000u;
    memcpy(&x, &bits, 4);
    return x;
}

static uint16_t upper(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)(bits >> 16);
}

/* Sequences with known queries, keys and values, independent of any layout. */
struct sequence {
    int start, rows;
    std::vector<float> q, k, v, gate; /* q, gate [rows][query_heads][D]; k, v [kv_heads][start + rows][D] */
};

struct setting {
    int query_heads, kv_heads, head_dim;
    es_cuda_float type;
};

static sequence make_sequence(const setting &set, int start, int rows)
{
    sequence s = {start, rows, {}, {}, {}, {}};
    const size_t queries = (size_t)rows * set.query_heads * set.head_dim;
    const size_t keys = (size_t)(start + rows) * set.kv_heads * set.head_dim;
    s.q.resize(queries), s.gate.resize(queries), s.k.resize(keys), s.v.resize(keys);
    for (size_t i = 0; i < queries; i++) s.q[i] = rounded(next_random() * 0.35f), s.gate[i] = next_random() * 3;
    for (size_t i = 0; i < keys; i++) s.k[i] = rounded(next_random() * 2), s.v[i] = rounded(next_random());
    return s;
}

/* How a batch of sequences is run. */
struct how {
    int page, row_tile, blocks, unit;
    bool bulk16, second, gate, keep, overlap;
    int stages;
};

struct result {
    std::vector<float> out; /* of all rows, in order */
    std::vector<uint16_t> out16;
};

template <class T> static T *on_device(const std::vector<T> &host)
{
    T *pointer;
    need(cudaMalloc(&pointer, host.size() * sizeof(T) + 16), "cudaMalloc");
    need(cudaMemcpy(pointer, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return pointer;
}

/* The cache as pages in shuffled order; what nobody wrote is NaN. */
static void *make_cache(const setting &set, const std::vector<const sequence *> &batch, const std::vector<int32_t> &pages,
                        int first_of[], int count, int page, bool values)
{
    const size_t bytes = set.type == ES_CUDA_BF16 ? 2 : 4;
    std::vector<char> cache((size_t)count * set.kv_heads * page * set.head_dim * bytes, (char)0xFF);
    for (size_t b = 0; b < batch.size(); b++) {
        const sequence &s = *batch[b];
        const std::vector<float> &from = values ? s.v : s.k;
        for (int h = 0; h < set.kv_heads; h++)
            for (int i = 0; i < s.start + s.rows; i++) {
                const size_t at =
                    (((size_t)pages[first_of[b] + i / page] * set.kv_heads + h) * page + i % page) * set.head_dim;
                const float *row = &from[((size_t)h * (s.start + s.rows) + i) * set.head_dim];
                for (int d = 0; d < set.head_dim; d++) {
                    const size_t to = at + es_cuda_attn_channel(set.head_dim, bytes == 2, i, d);
                    if (bytes == 2)
                        ((uint16_t *)cache.data())[to] = upper(row[d]);
                    else
                        ((float *)cache.data())[to] = row[d];
                }
            }
    }
    return on_device(cache);
}

static result run(const setting &set, const std::vector<const sequence *> &batch, const how &h)
{
    std::vector<es_cuda_attn_span> span(batch.size());
    std::vector<int> first_of(batch.size());
    std::vector<float> q, gate;
    int rows = 0, pages_needed = 0, context = 1;
    for (size_t b = 0; b < batch.size(); b++) {
        const sequence &s = *batch[b];
        first_of[b] = pages_needed;
        span[b] = {rows, s.rows, s.start, pages_needed};
        rows += s.rows, pages_needed += (s.start + s.rows + h.page - 1) / h.page;
        if (s.start + s.rows > context) context = s.start + s.rows;
        q.insert(q.end(), s.q.begin(), s.q.end()), gate.insert(gate.end(), s.gate.begin(), s.gate.end());
    }
    std::vector<int32_t> pages(pages_needed);
    for (int i = 0; i < pages_needed; i++) pages[i] = (int)(((int64_t)i * 7919 + 3) % pages_needed);
    bool distinct = pages_needed % 7919 != 0;
    if (!distinct)
        for (int i = 0; i < pages_needed; i++) pages[i] = pages_needed - 1 - i;

    es_cuda_decode call = {};
    call.shape = {set.query_heads, set.kv_heads, set.head_dim, h.page, h.row_tile};
    call.limits = {h.blocks, (int32_t)batch.size(), rows, context};
    call.cache_type = set.type;
    void *k = make_cache(set, batch, pages, first_of.data(), pages_needed, h.page, false);
    void *v = make_cache(set, batch, pages, first_of.data(), pages_needed, h.page, true);
    call.k_cache = k, call.v_cache = v;
    std::vector<char> scratch((size_t)es_cuda_attn_items(&call.shape, &call.limits) * sizeof(es_plan_item));
    std::vector<char> plan(es_cuda_attn_plan_bytes(&call.shape, &call.limits));
    const size_t used = es_cuda_attn_plan_write(&call.shape, span.data(), (int)span.size(), h.blocks % 2 ? pages.data() : NULL,
                                                h.blocks, h.unit, scratch.data(), plan.data());
    if (!used) fprintf(stderr, "no plan\n"), exit(1);
    plan.resize(used);
    call.plan = on_device(plan), call.pages = on_device(pages), call.q = on_device(q), call.q_type = ES_CUDA_F32;
    float *gates = on_device(gate);
    if (h.gate)
        call.gate = gates, call.gate_stride = (int64_t)set.query_heads * set.head_dim, call.gate_head_stride = set.head_dim;
    const size_t n = q.size();
    std::vector<float> nan(n, NAN);
    std::vector<uint16_t> nan16(n, 0xFFFF);
    call.out = on_device(nan), call.out16 = {on_device(nan16), (int64_t)set.query_heads * set.head_dim, false};
    const size_t workspace = es_cuda_decode_workspace(&call.shape, &call.limits);
    need(cudaMalloc(&call.workspace, workspace), "workspace");
    need(es_cuda_decode_clear(&call, 0), "workspace");
    call.tuning = {h.stages, h.bulk16, h.keep, false, h.overlap, h.second ? ES_CUDA_DECODE_SECOND : ES_CUDA_DECODE_FUSED};
    need(es_cuda_decode_setup(&call), "setup");
    for (int again = 0; again < 2; again++)
        need(es_cuda_decode_launch(&call, 0), "launch"); /* twice: counters must be back at 0 */
    need(cudaDeviceSynchronize(), "run");
    result r = {std::vector<float>(n), std::vector<uint16_t>(n)};
    need(cudaMemcpy(r.out.data(), call.out, n * 4, cudaMemcpyDeviceToHost), "copy");
    need(cudaMemcpy(r.out16.data(), call.out16.data, n * 2, cudaMemcpyDeviceToHost), "copy");
    const void *all[] = {k, v, call.plan, call.pages, call.q, gates, call.out, call.out16.data, call.workspace};
    for (const void *p : all) need(cudaFree((void *)p), "free");
    return r;
}

/* Plain attention in double precision. */
static std::vector<double> reference(const setting &set, const sequence &s, bool gated)
{
    const int group = set.query_heads / set.kv_heads, D = set.head_dim, n = s.start + s.rows;
    std::vector<double> out(s.q.size()), p(n);
    for (int r = 0; r < s.rows; r++)
        for (int h = 0; h < set.query_heads; h++) {
            const float *q = &s.q[((size_t)r * set.query_heads + h) * D], *k = &s.k[(size_t)(h / group) * n * D];
            const float *v = &s.v[(size_t)(h / group) * n * D];
            const int sees = s.start + r + 1;
            double most = -INFINITY, sum = 0;
            for (int i = 0; i < sees; i++) {
                p[i] = 0;
                for (int d = 0; d < D; d++) p[i] += (double)q[d] * k[(size_t)i * D + d];
                if (p[i] > most) most = p[i];
            }
            double *o = &out[((size_t)r * set.query_heads + h) * D];
            for (int i = 0; i < sees; i++) {
                const double w = exp(p[i] - most);
                sum += w;
                for (int d = 0; d < D; d++) o[d] += w * v[(size_t)i * D + d];
            }
            for (int d = 0; d < D; d++) {
                o[d] /= sum;
                if (gated) o[d] /= 1 + exp(-(double)s.gate[((size_t)r * set.query_heads + h) * D + d]);
            }
        }
    return out;
}

static double relative(const std::vector<double> &want, const float *got)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.size(); i++) error += (want[i] - got[i]) * (want[i] - got[i]), norm += want[i] * want[i];
    return sqrt(error / norm);
}

static void check_setting(const setting &set, bool quick)
{
    char name[160];
    const bool bf16 = set.type == ES_CUDA_BF16;
    const int group = set.query_heads / set.kv_heads, few = group <= 8 ? 8 : 32;
    const int lengths[] = {0, 5, 63, 64, 127, 128, 200, 1000, quick ? 1500 : 9000};
    std::vector<sequence> all;
    for (int start : lengths) all.push_back(make_sequence(set, start, start == 1000 ? 3 : 1));
    std::vector<const sequence *> batch;
    for (const sequence &s : all) batch.push_back(&s);

    const how base = {64, few, 40, 1, false, true, true, false, false, 0};
    const result want = run(set, batch, base);
    size_t at = 0;
    for (const sequence &s : all) {
        const std::vector<double> exact = reference(set, s, true);
        const double error = relative(exact, &want.out[at]);
        snprintf(name, sizeof name, "%d/%d x %d %s, %d keys: error %.2e", set.query_heads, set.kv_heads, set.head_dim,
                 bf16 ? "bf16" : "f32", s.start + s.rows, error);
        expect(error < (bf16 ? 4e-3 : 2e-6), "right", name);
        if (s.start > 1000) printf("%s\n", name);
        at += s.q.size();
    }
    for (size_t i = 0; i < want.out.size(); i++)
        if (upper(rounded(want.out[i])) != want.out16[i]) {
            expect(false, "bf16 output", name);
            break;
        }

    std::vector<how> ways;
    for (int blocks : {1, 7, 40, 131, 132})
        for (int unit : {0, 1, 4, ES_CUDA_ATTN_AUTO})
            for (bool second : {false, true}) ways.push_back({64, few, blocks, unit, false, second, true, false, false, 0});
    for (int page : {16, 32, 64, 128, 512}) ways.push_back({page, few, 77, 1, false, true, true, false, false, 0});
    for (int page : {16, 48, 128}) ways.push_back({page, few, 100, 1, true, false, true, false, false, 4});
    ways.push_back({64, 32, 50, 1, false, false, true, false, false, 0});
    ways.push_back({64, 32, 50, 1, true, true, true, false, false, 0});
    for (int blocks : {1, 40, 132})
        for (int unit : {0, 1, 4}) ways.push_back({64, 128, blocks, unit, false, unit == 4, true, false, false, 0});
    for (int page : {16, 32, 128, 512}) ways.push_back({page, 128, 77, 1, false, false, true, false, true, 4});
    ways.push_back({64, few, 50, 1, false, false, true, true, false, 5});
    ways.push_back({64, few, 50, 1, false, true, true, true, true, 6});
    for (const how &h : ways) {
        const result got = run(set, batch, h);
        snprintf(name, sizeof name, "%d/%d x %d %s: page %d, row tile %d, %d blocks, unit %d, %s copies, %s, %d stages",
                 set.query_heads, set.kv_heads, set.head_dim, bf16 ? "bf16" : "f32", h.page, h.row_tile, h.blocks, h.unit,
                 h.bulk16 ? "16-byte" : "bulk", h.second ? "second" : "fused", h.stages);
        expect(!memcmp(got.out.data(), want.out.data(), got.out.size() * 4), "same bits", name);
    }
    /* Company: each sequence alone. */
    at = 0;
    for (const sequence &s : all) {
        const result alone = run(set, {&s}, {64, few, 23, 1, false, false, true, false, false, 0});
        snprintf(name, sizeof name, "%d/%d x %d %s: %d keys alone", set.query_heads, set.kv_heads, set.head_dim,
                 bf16 ? "bf16" : "f32", s.start + s.rows);
        expect(!memcmp(alone.out.data(), &want.out[at], alone.out.size() * 4), "same bits", name);
        at += s.q.size();
    }
    /* Chunks: three tokens at once, or one after the other over the same keys. */
    const sequence &three = all[7];
    at = 0;
    for (int i = 0; i < 7; i++) at += all[i].q.size();
    for (int r = 0; r < 3; r++) {
        const size_t row = (size_t)set.query_heads * set.head_dim;
        const int n = three.start + 3, m = three.start + r + 1;
        sequence one = {three.start + r, 1, {}, {}, {}, {}};
        one.q.assign(three.q.begin() + r * row, three.q.begin() + (r + 1) * row);
        one.gate.assign(three.gate.begin() + r * row, three.gate.begin() + (r + 1) * row);
        for (int h = 0; h < set.kv_heads; h++) {
            one.k.insert(one.k.end(), &three.k[(size_t)h * n * set.head_dim], &three.k[((size_t)h * n + m) * set.head_dim]);
            one.v.insert(one.v.end(), &three.v[(size_t)h * n * set.head_dim], &three.v[((size_t)h * n + m) * set.head_dim]);
        }
        const result alone = run(set, {&one}, {16, few, 11, 1, false, true, true, false, false, 0});
        snprintf(name, sizeof name, "%d/%d x %d: token %d of three alone", set.query_heads, set.kv_heads, set.head_dim, r);
        expect(!memcmp(alone.out.data(), &want.out[at + r * row], row * 4), "same bits", name);
    }
}

/* Items of few nodes of one height, which blocks finish in registers: a partition a block, one or more slices each. */
static void check_even(const setting &set)
{
    char name[160];
    for (int partitions : {5, 8, 9, 11, 16, 20, 27, 32, 50, 64}) {
        if (partitions * set.kv_heads > 132) continue; /* blocks wait for each other: they must all run at once */
        const sequence one = make_sequence(set, partitions * 128 - 37, 1);
        const result want = run(set, {&one}, {64, 8, 7, 0, false, false, true, false, false, 0});
        for (int unit : {1, 2}) {
            const int blocks = (partitions + unit - 1) / unit * set.kv_heads;
            const result got = run(set, {&one}, {64, 8, blocks, unit, false, false, true, false, unit == 2, 0});
            snprintf(name, sizeof name, "%d/%d x %d, %d partitions: %d blocks", set.query_heads, set.kv_heads, set.head_dim,
                     partitions, blocks);
            expect(!memcmp(got.out.data(), want.out.data(), got.out.size() * 4), "finished in registers", name);
        }
    }
}

/* A prompt's rows through each kernel: the same bits in items of 8, 32 and 128 rows, in one chunk or in several. */
static void check_prompt(const setting &set, int start, int rows)
{
    char name[160];
    const int group = set.query_heads / set.kv_heads, few = group <= 8 ? 8 : 32;
    const sequence all = make_sequence(set, start, rows);
    const result want = run(set, {&all}, {64, few, 132, 4, false, false, true, false, false, 0});
    const double error = relative(reference(set, all, true), want.out.data());
    snprintf(name, sizeof name, "%d/%d x %d, %d rows from %d: error %.2e", set.query_heads, set.kv_heads, set.head_dim, rows,
             start, error);
    expect(error < 4e-3, "right", name);
    for (int row_tile : {32, 128})
        for (int unit : {0, 1, 4, 8})
            for (int page : {16, 64}) {
                const result got = run(set, {&all}, {page, row_tile, 132, unit, false, false, true, false, false, 0});
                snprintf(name, sizeof name, "%d/%d x %d, %d rows from %d: row tile %d, unit %d, page %d", set.query_heads,
                         set.kv_heads, set.head_dim, rows, start, row_tile, unit, page);
                expect(!memcmp(got.out.data(), want.out.data(), got.out.size() * 4), "same bits", name);
            }
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && !strcmp(argv[1], "quick");
    const setting settings[] = {
        {16, 2, 256, ES_CUDA_BF16},
        {16, 4, 256, ES_CUDA_BF16},
        {16, 2, 128, ES_CUDA_BF16},
        {14, 2, 64,  ES_CUDA_BF16},
        {16, 1, 128, ES_CUDA_BF16},
        {16, 16, 64, ES_CUDA_BF16}, /* many KV heads: long partitions */
        {8,  8, 16, ES_CUDA_F32 },
        {6,  2, 80,  ES_CUDA_BF16},
        {16, 2, 256, ES_CUDA_F32 },
        {4,  2, 16,  ES_CUDA_F32 },
    };
    if (argc > 1 && !strcmp(argv[1], "prompts")) {
        check_prompt(settings[0], 1000, 33);
        check_prompt(settings[2], 300, 20);
        printf("%d checks, %d failed\n", checks, failures);
        return failures != 0;
    }
    if (argc > 1 && !strcmp(argv[1], "even")) {
        check_even({8, 1, 256, ES_CUDA_BF16});
        check_even({4, 2, 128, ES_CUDA_BF16});
        printf("%d checks, %d failed\n", checks, failures);
        return failures != 0;
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!quick || i < 1 || i == 3 || i == 6 || i == 9) check_setting(settings[i], quick);
    for (const setting &set : {
             settings[0], settings[3], setting{8, 1, 256, ES_CUDA_BF16},
               setting{4, 1, 256, ES_CUDA_BF16},
             setting{8, 1, 128, ES_CUDA_BF16},
               setting{4, 2, 128, ES_CUDA_BF16}
    })
        if (!quick || set.kv_heads == 1) check_even(set);
    for (const setting &set : {
             settings[0], settings[1], settings[2], settings[3], setting{7, 1, 128, ES_CUDA_BF16}
    }) {
        check_prompt(set, 0, quick ? 70 : 300);
        check_prompt(set, 1000, 33);
    }
    for (int start : {2030, 4090, 8180}) { /* partitions get longer among its rows */
        check_prompt({16, 16, 64, ES_CUDA_BF16}, start, 40);
        check_prompt({32, 16, 256, ES_CUDA_BF16}, start, 40);
    }
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
