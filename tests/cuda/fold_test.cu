/* fold_test.cu: the device's folds and scans: right, equal bits for any grid, alignment and run; `bench` times them beside
 * CUB. Run on a machine with a GPU: cuda_fold_test [quick | bench]. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <set>
#include <string>
#include <vector>
#ifdef ES_CUDA_MEASURE
#include <cub/cub.cuh>
#include <cuda/functional>
#endif

#include "device/cuda/scan.h"
#include "evenshare/operators.h"

static int failures, checks;

static void expect(bool ok, const char *what)
{
    checks++;
    if (!ok) failures++, printf("FAILED %s\n", what);
}

static void need(cudaError_t error)
{
    if (error) fprintf(stderr, "%s\n", cudaGetErrorString(error)), exit(1);
}

static void need(const char *wrong)
{
    if (wrong) fprintf(stderr, "%s\n", wrong), exit(1);
}

struct operation {
    es_cuda_operator op;
    const char *name;
    size_t item, partial;
};

static const operation operations[] = {
    {ES_CUDA_SUM,         "sum",         4, 4},
    {ES_CUDA_MAX,         "max",         4, 4},
    {ES_CUDA_COUNT,       "count",       4, 4},
    {ES_CUDA_LOG_SUM_EXP, "log-sum-exp", 4, 8},
    {ES_CUDA_RECURRENCE,  "recurrence",  8, 8},
};

static uint64_t state = 99991;
static float next_random(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (float)((state >> 40) / 8388608.0 - 1.0);
}

static std::vector<char> make_items(const operation &o, int64_t n)
{
    std::vector<char> data((size_t)n * o.item);
    for (int64_t i = 0; i < n; i++) {
        if (o.op == ES_CUDA_COUNT)
            ((int32_t *)data.data())[i] = (int32_t)(fabsf(next_random()) * 9);
        else if (o.op == ES_CUDA_RECURRENCE)
            ((float *)data.data())[2 * i] = 0.9f + 0.09f * next_random(), ((float *)data.data())[2 * i + 1] = next_random();
        else
            ((float *)data.data())[i] = next_random() * 5 + (o.op == ES_CUDA_SUM ? 0.5f : 0);
    }
    return data;
}

/* A partial in double precision: {x, y} as the operator means them. */
struct exact {
    double x, y;
};

static exact exact_identity(es_cuda_operator op)
{
    return op == ES_CUDA_MAX || op == ES_CUDA_LOG_SUM_EXP ? exact{-INFINITY, 0}
           : op == ES_CUDA_RECURRENCE                     ? exact{1, 0}
                                                          : exact{0, 0};
}

static exact exact_next(es_cuda_operator op, exact a, const char *items, int64_t i)
{
    const float x = ((const float *)items)[op == ES_CUDA_RECURRENCE ? 2 * i : i];
    switch (op) {
    case ES_CUDA_SUM: return {a.x + x, 0};
    case ES_CUDA_MAX: return {fmax(a.x, x), 0};
    case ES_CUDA_COUNT: return {a.x + ((const int32_t *)items)[i], 0};
    case ES_CUDA_LOG_SUM_EXP: {
        const double m = fmax(a.x, x);
        return {m, (a.x == -INFINITY ? 0 : a.y * exp(a.x - m)) + exp(x - m)};
    }
    default: return {a.x * x, x * a.y + ((const float *)items)[2 * i + 1]};
    }
}

static bool close_to(es_cuda_operator op, const exact &want, const char *got, int64_t n)
{
    const float *f = (const float *)got;
    const double scale = op == ES_CUDA_SUM ? 4.0 * sqrt((double)n) + fabs(want.x) : 1;
    switch (op) {
    case ES_CUDA_COUNT: return *(const int32_t *)got == (int32_t)want.x;
    case ES_CUDA_MAX: return (double)f[0] == want.x;
    case ES_CUDA_SUM: return fabs(f[0] - want.x) <= 2e-6 * scale;
    case ES_CUDA_LOG_SUM_EXP: return f[0] == want.x && fabs(f[1] - want.y) <= 2e-5 * want.y + 1e-30;
    default: return fabs(f[0] - want.x) <= 1e-4 * fabs(want.x) + 1e-30 && fabs(f[1] - want.y) <= 2e-5 * (1 + fabs(want.y));
    }
}

struct device_memory {
    char *items, *out, *fold, *scan;
};

static std::vector<char> fold(const operation &o, const device_memory &d, int64_t n, int blocks, int shift)
{
    std::vector<char> got(o.partial);
    need(cudaMemset(d.out, 0xCD, o.partial + 8));
    es_cuda_fold call = {o.op, d.items + (size_t)shift * o.item, n, d.out, d.fold, blocks};
    need(es_cuda_fold_launch(&call, 0));
    need(cudaMemcpy(got.data(), d.out, o.partial, cudaMemcpyDeviceToHost));
    return got;
}

static std::vector<char> scan(const operation &o, const device_memory &d, int64_t n, int blocks, bool exclusive)
{
    std::vector<char> got((size_t)n * o.partial + 16);
    need(cudaMemset(d.out, 0xCD, got.size()));
    es_cuda_scan call = {o.op, d.items, n, d.out, exclusive, d.scan, blocks};
    need(es_cuda_scan_launch(&call, 0));
    need(cudaMemcpy(got.data(), d.out, got.size(), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 16; i++)
        if (got[(size_t)n * o.partial + i] != (char)0xCD) {
            expect(false, "a scan writes beyond its end");
            break;
        }
    return got;
}

static void check_count(const operation &o, const device_memory &d, int64_t n)
{
    char name[128];
    const std::vector<char> items = make_items(o, n);
    need(cudaMemcpy(d.items, items.data(), items.size(), cudaMemcpyHostToDevice));
    exact total = exact_identity(o.op);
    std::vector<exact> prefix((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) prefix[i] = total, total = exact_next(o.op, total, items.data(), i);
    prefix[n] = total;

    const std::vector<char> want = fold(o, d, n, 0, 0);
    snprintf(name, sizeof name, "fold %s of %lld", o.name, (long long)n);
    expect(close_to(o.op, total, want.data(), n), name);
    for (int blocks : {1, 2, 3, 7, 64, 132, 133, 528, 1000, 4096})
        expect(fold(o, d, n, blocks, 0) == want, (std::string(name) + ": same bits, grids").c_str());
    for (int shift : {1, 3, 4, 7, 8, 11}) {
        need(cudaMemcpy(d.items + (size_t)shift * o.item, items.data(), items.size(), cudaMemcpyHostToDevice));
        expect(fold(o, d, n, 132, shift) == want, (std::string(name) + ": same bits, alignments").c_str());
    }
    need(cudaMemcpy(d.items, items.data(), items.size(), cudaMemcpyHostToDevice));

    for (bool exclusive : {false, true}) {
        const std::vector<char> all = scan(o, d, n, 0, exclusive);
        snprintf(name, sizeof name, "%s scan %s of %lld", exclusive ? "exclusive" : "inclusive", o.name, (long long)n);
        int64_t wrong = 0;
        for (int64_t i = 0; i < n; i++) wrong += !close_to(o.op, prefix[i + !exclusive], &all[(size_t)i * o.partial], n);
        expect(wrong == 0, name);
        for (int blocks : {1, 5, 132, 264, 1056})
            expect(scan(o, d, n, blocks, exclusive) == all, (std::string(name) + ": same bits").c_str());
        for (int again = 0; again < 3; again++)
            expect(scan(o, d, n, 0, exclusive) == all, (std::string(name) + ": run after run").c_str());
    }
    if (o.item == o.partial && n > 0) { /* in place */
        const std::vector<char> all = scan(o, d, n, 0, false);
        es_cuda_scan call = {o.op, d.items, n, d.items, false, d.scan, 0};
        need(es_cuda_scan_launch(&call, 0));
        std::vector<char> got(items.size());
        need(cudaMemcpy(got.data(), d.items, got.size(), cudaMemcpyDeviceToHost));
        expect(!memcmp(got.data(), all.data(), got.size()), "a scan in place");
    }
}

/* Numbers that keep a summary busy: a great mean, a wild outlier, zeros, denormals, infinities and NaN. */
static std::vector<float> make_numbers(int64_t n)
{
    std::vector<float> x((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = 3 + next_random();
        if (i % 11 == 5) x[i] = 0;
        if (i % 13 == 7) x[i] = -1e-40f;
        if (i % 1001 == 1000) x[i] = i % 2 ? INFINITY : -INFINITY;
        if (i % 1009 == 1008) x[i] = NAN;
        if (i == n / 3) x[i] = 1e6f;
    }
    return x;
}

static bool near(double got, double want, double scale)
{
    return fabs(got - want) <= 1e-12 * scale;
}

static void check_summary(const device_memory &d, int64_t n)
{
    char name[128];
    snprintf(name, sizeof name, "summary of %lld", (long long)n);
    const std::vector<float> x = make_numbers(n);
    const operation o = {ES_CUDA_SUMMARY, "summary", sizeof(float), sizeof(es_summary)};
    es_summary want = {0, 0, 0, 0, 0, INFINITY, -INFINITY, 0, 0, 0, 0}, got;
    long double sum = 0, s2 = 0, s3 = 0, s4 = 0;
    for (float v : x) {
        want.nans += isnan(v), want.plus_infs += v == INFINITY, want.minus_infs += v == -INFINITY;
        if (!isfinite(v)) continue;
        want.count++, want.zeros += v == 0, sum += v;
        want.min = fmin(want.min, v), want.max = fmax(want.max, v);
    }
    want.mean = want.count ? (double)(sum / want.count) : 0;
    double a3 = 0; /* Σ |d|³ */
    for (float v : x) {
        const long double t = isfinite(v) ? v - want.mean : 0;
        s2 += t * t, s3 += t * t * t, s4 += t * t * t * t, a3 += fabs((double)(t * t * t));
    }
    want.m2 = (double)s2, want.m3 = (double)s3, want.m4 = (double)s4;
    need(cudaMemcpy(d.items, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice));
    const std::vector<char> bytes = fold(o, d, n, 0, 0);
    memcpy(&got, bytes.data(), sizeof got);
    expect(got.count == want.count && got.zeros == want.zeros && got.nans == want.nans && got.plus_infs == want.plus_infs &&
               got.minus_infs == want.minus_infs && got.min == want.min && got.max == want.max,
           (std::string(name) + ": counts").c_str());
    expect(near(got.mean, want.mean, fabs(want.mean) + sqrt(want.m2)) && near(got.m2, want.m2, want.m2) &&
               near(got.m3, want.m3, a3) && near(got.m4, want.m4, want.m4),
           (std::string(name) + ": moments").c_str());
    for (int blocks : {1, 2, 3, 7, 64, 132, 133, 528, 1000, 4096})
        expect(fold(o, d, n, blocks, 0) == bytes, (std::string(name) + ": same bits, grids").c_str());
    need(cudaMemcpy(d.items + 12, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice));
    expect(fold(o, d, n, 0, 3) == bytes, (std::string(name) + ": same bits, alignments").c_str());
}

#ifdef ES_CUDA_MEASURE
template <class F> static double timed(F call)
{
    cudaStream_t stream;
    need(cudaStreamCreate(&stream));
    call(stream);
    need(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t run;
    need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4; i++) call(stream);
    need(cudaStreamEndCapture(stream, &graph));
    need(cudaGraphInstantiate(&run, graph, 0));
    cudaEvent_t begin, end;
    need(cudaEventCreate(&begin)), need(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < 15; i++) {
        float ms;
        need(cudaEventRecord(begin, stream)), need(cudaGraphLaunch(run, stream)), need(cudaEventRecord(end, stream));
        need(cudaEventSynchronize(end)), need(cudaEventElapsedTime(&ms, begin, end));
        if (i > 1) times.push_back(ms * 250);
    }
    std::sort(times.begin(), times.end());
    need(cudaGraphExecDestroy(run)), need(cudaGraphDestroy(graph)), need(cudaStreamDestroy(stream));
    return times[times.size() / 2];
}

struct recur {
    __device__ float2 operator()(const float2 &a, const float2 &b) const
    {
        return make_float2(b.x * a.x, b.x * a.y + b.y);
    }
};
struct log_sum {
    __device__ float2 operator()(const float2 &a, const float2 &b) const
    {
        const float m = fmaxf(a.x, b.x);
        return make_float2(m, a.y * __expf(a.x - m) + b.y * __expf(b.x - m));
    }
};
struct one {
    __device__ float2 operator()(const float &x) const
    {
        return make_float2(x, 1);
    }
};

static int different_bits(const char *out, size_t bytes, void (*call)(void *), void *context)
{
    std::set<std::string> seen;
    std::string got(bytes, 0);
    for (int i = 0; i < 10; i++) {
        call(context);
        need(cudaMemcpy(&got[0], out, bytes, cudaMemcpyDeviceToHost));
        seen.insert(got);
    }
    return (int)seen.size();
}

struct cub_scan {
    void *scratch;
    size_t bytes;
    const float *in;
    float *out;
    int64_t n;
};

static void bench(const device_memory &d, char *scratch, size_t scratch_bytes, const float *items)
{
    for (int64_t n : {(int64_t)100003, (int64_t)1 << 20, (int64_t)1 << 24, (int64_t)1 << 28}) {
        for (const operation &o : operations) {
            const int64_t count = o.item == 8 ? n / 2 : n;
            size_t bytes = scratch_bytes;
            const float *f = items;
            const float2 *p = (const float2 *)items;
            float *fo = (float *)d.out;
            float2 *po = (float2 *)d.out;
            for (int blocks : {0, 264, 1056}) {
                es_cuda_fold call = {o.op, items, count, d.out, d.fold, blocks};
                const double t = timed([&](cudaStream_t s) { need(es_cuda_fold_launch(&call, s)); });
                printf("fold %-12s %10lld items, %4d blocks: ours %9.2f us %7.1f GB/s\n", o.name, (long long)count, blocks, t,
                       count * o.item / t / 1000);
            }
            const double t = timed([&](cudaStream_t s) {
                bytes = scratch_bytes;
                switch (o.op) {
                case ES_CUDA_SUM: need(cub::DeviceReduce::Sum(scratch, bytes, f, fo, count, s)); break;
                case ES_CUDA_MAX: need(cub::DeviceReduce::Max(scratch, bytes, f, fo, count, s)); break;
                case ES_CUDA_COUNT:
                    need(cub::DeviceReduce::Sum(scratch, bytes, (const int32_t *)f, (int32_t *)fo, count, s));
                    break;
                case ES_CUDA_LOG_SUM_EXP:
                    need(cub::DeviceReduce::TransformReduce(scratch, bytes, f, po, count, log_sum{}, one{},
                                                            make_float2(-1e30f, 0), s));
                    break;
                default: need(cub::DeviceReduce::Reduce(scratch, bytes, p, po, count, recur{}, make_float2(1, 0), s)); break;
                }
            });
            printf("fold %-12s %10lld items:              CUB  %9.2f us %7.1f GB/s\n", o.name, (long long)count, t,
                   count * o.item / t / 1000);
        }
        for (const operation &o : operations) {
            const int64_t count = std::min<int64_t>(o.partial == 8 ? n / 2 : n, (int64_t)1 << 27);
            size_t bytes = scratch_bytes;
            const float *f = items;
            float *fo = (float *)d.out;
            for (int blocks : {0, 264, 1056}) {
                es_cuda_scan call = {o.op, items, count, d.out, false, d.scan, blocks};
                const double t = timed([&](cudaStream_t s) { need(es_cuda_scan_launch(&call, s)); });
                printf("scan %-12s %10lld items, %4d blocks: ours %9.2f us %7.1f GB/s\n", o.name, (long long)count, blocks, t,
                       count * (o.item + o.partial) / t / 1000);
            }
            if (o.op == ES_CUDA_LOG_SUM_EXP) continue;
            const double t = timed([&](cudaStream_t s) {
                bytes = scratch_bytes;
                switch (o.op) {
                case ES_CUDA_SUM: need(cub::DeviceScan::InclusiveSum(scratch, bytes, f, fo, count, s)); break;
                case ES_CUDA_MAX:
                    need(cub::DeviceScan::InclusiveScan(scratch, bytes, f, fo, cuda::maximum<>{}, count, s));
                    break;
                case ES_CUDA_COUNT:
                    need(cub::DeviceScan::InclusiveSum(scratch, bytes, (const int32_t *)f, (int32_t *)fo, count, s));
                    break;
                default:
                    need(cub::DeviceScan::InclusiveScan(scratch, bytes, (const float2 *)f, (float2 *)fo, recur{}, count, s));
                    break;
                }
            });
            printf("scan %-12s %10lld items:              CUB  %9.2f us %7.1f GB/s\n", o.name, (long long)count, t,
                   count * (o.item + o.partial) / t / 1000);
        }
    }
    const int64_t n = 10000000;
    cub_scan c = {scratch, scratch_bytes, items, (float *)d.out, n};
    const int theirs = different_bits(
        d.out, n * 4,
        [](void *x) {
            cub_scan *c = (cub_scan *)x;
            size_t b = c->bytes;
            need(cub::DeviceScan::InclusiveSum(c->scratch, b, c->in, c->out, c->n));
        },
        &c);
    es_cuda_scan call = {ES_CUDA_SUM, items, n, d.out, false, d.scan, 0};
    const int ours = different_bits(
        d.out, n * 4, [](void *x) { need(es_cuda_scan_launch((es_cuda_scan *)x, 0)); }, &call);
    printf("ten float scans of %lld items gave %d different outputs of ours, %d of CUB's\n", (long long)n, ours, theirs);
}
#endif

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && !strcmp(argv[1], "quick"), timing = argc > 1 && !strcmp(argv[1], "bench");
    const int64_t most = timing ? (int64_t)1 << 28 : 3000000;
    device_memory d;
    need(cudaMalloc(&d.items, most * 8 + 256)), need(cudaMalloc(&d.out, most * 8 + 256));
    const size_t room = es_cuda_fold_workspace(ES_CUDA_SUMMARY); /* the largest */
    need(cudaMalloc(&d.fold, room)), need(cudaMemset(d.fold, 0, room));
    need(cudaMalloc(&d.scan, es_cuda_scan_workspace(most)));
#ifdef ES_CUDA_MEASURE
    if (timing) {
        const std::vector<char> some = make_items(operations[0], 1 << 24);
        for (int64_t at = 0; at < most * 4; at += (int64_t)some.size())
            need(cudaMemcpy(d.items + at, some.data(), some.size(), cudaMemcpyHostToDevice));
        char *scratch;
        need(cudaMalloc(&scratch, 64 << 20));
        bench(d, scratch, 64 << 20, (const float *)d.items);
        return 0;
    }
#endif
    for (const operation &o : operations)
        for (int64_t n :
             {0, 1, 2, 3, 5, 31, 32, 33, 2047, 2048, 2049, 4095, 4096, 4097, 100003, 262144, quick ? 300001 : 2999999}) {
            if (quick && n > 5000 && n != 100003) continue;
            check_count(o, d, n);
        }
    for (int64_t n : {0, 1, 2, 15, 16, 17, 4095, 4096, 4097, 100003, quick ? 300001 : 2999999}) check_summary(d, n);
    es_cuda_fold bad = {ES_CUDA_OPERATORS, d.items, 5, d.out, d.fold, 0};
    expect(es_cuda_fold_launch(&bad, 0) != NULL, "an unknown operator is refused");
    bad.op = ES_CUDA_SUM, bad.count = -1;
    expect(es_cuda_fold_launch(&bad, 0) != NULL, "a negative count is refused");
    need(cudaDeviceSynchronize());
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
