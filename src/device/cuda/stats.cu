/* stats.cu: what a tensor's numbers are like, on the GPU: the summary by the device's own fold, the histogram by counting, and
 * the sizes of rows.
 *
 * The tensor comes in chunks of bounded size, two of them on their way at a time. Where chunks end depends on the tensor's
 * shape alone, each chunk's fold has one order whatever the grid, and chunks merge in order: the same bits every run. Counts
 * are integers, which atomics add exactly. */
#include "device/cuda/device.cuh"
#include "device/cuda/fold.h"
#include "device/cuda/operators.cuh"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 1 << 24,  /* numbers */
    PIECES = 1 << 17, /* at most in a chunk */
    LANES = 2,        /* chunks on their way */
    THREADS = 256,
    WARPS = THREADS / ES_GROUP,
    BINS = 4096,
};

/* The unit of a storage type. */
typedef struct block_of {
    int numbers, bytes;
} block_of;

/* Bytes of `numbers` numbers from the start of a row (whole blocks). */
static __host__ __device__ int64_t stored_bytes(block_of b, int64_t numbers)
{
    return numbers / b.numbers * b.bytes;
}

/* One chunk on its way: its stream, its memory, and what it gave. */
typedef struct lane {
    cudaStream_t stream;
    unsigned char *stored;
    float *numbers;
    void *workspace;
    es_cuda_piece *size, *host_size; /* host_*: pinned */
    es_summary *summary, *host_summary;
    int64_t first, pieces; /* of the chunk; 0 pieces: it has none */
} lane;

struct es_cuda_stats {
    struct lane lane[LANES];
    unsigned long long *bin; /* [BINS] */
};

/* A group of lanes takes a piece: it decodes, counts, and adds up the piece's size. */
static __global__ void __launch_bounds__(THREADS)
    piece_kernel(const unsigned char *stored, es_dtype type, block_of block, int64_t columns, int64_t piece,
                 int64_t pieces_per_row, int64_t first, int64_t pieces, float *numbers, es_cuda_piece *size,
                 unsigned long long *bin)
{
    __shared__ unsigned tally[BINS];
    const int lane = threadIdx.x % ES_GROUP;
    for (int i = threadIdx.x; bin && i < BINS; i += THREADS) tally[i] = 0;
    __syncthreads();
    const int64_t row0 = first / pieces_per_row, column0 = first % pieces_per_row * piece;
    const int64_t row_bytes = stored_bytes(block, columns);
    for (int64_t p = blockIdx.x * (int64_t)WARPS + threadIdx.x / ES_GROUP; p - threadIdx.x / ES_GROUP < pieces;
         p += gridDim.x * (int64_t)WARPS) {
        const int64_t row = (first + p) / pieces_per_row, column = (first + p) % pieces_per_row * piece;
        const int64_t count = p < pieces ? min(piece, columns - column) : 0;
        /* `stored` begins with the chunk's first number: its row begins before that. */
        const unsigned char *from = stored + (row - row0) * row_bytes - stored_bytes(block, column0);
        float *to = numbers + (row - row0) * columns - column0 + column;
        double energy = 0, largest = 0;
        for (int64_t i = lane; i < count; i += ES_GROUP) {
            const float x = es_decode_at(from, type, false, row_bytes, column + i);
            to[i] = x;
            if (bin) atomicAdd(&tally[__float_as_uint(x) >> 20], 1u);
            if (!es_cuda_summary::is_finite(x)) continue;
            const double value = es_cuda_exact(x);
            energy = fma(value, value, energy);
            largest = fmax(largest, fabs(value));
        }
#pragma unroll
        for (int step = ES_GROUP / 2; step > 0; step /= 2) {
            energy = energy + __shfl_xor_sync(ES_ALL_LANES, energy, step, ES_GROUP);
            largest = fmax(largest, __shfl_xor_sync(ES_ALL_LANES, largest, step, ES_GROUP));
        }
        if (lane == 0 && p < pieces) size[p].energy = energy, size[p].largest = largest;
    }
    __syncthreads();
    for (int i = threadIdx.x; bin && i < BINS; i += THREADS)
        if (tally[i]) atomicAdd(&bin[i], (unsigned long long)tally[i]);
}

static es_status open_lane(lane *l)
{
    ES_TRY(es_cuda_check(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "a stream"));
    const size_t room = es_cuda_fold_workspace(ES_CUDA_SUMMARY);
    /* No storage type takes more than four bytes a number. */
    ES_TRY(es_cuda_check(cudaMalloc((void **)&l->stored, (size_t)CHUNK * 4 + ES_CUDA_TAIL), "a chunk of a tensor"));
    ES_TRY(es_cuda_check(cudaMalloc((void **)&l->numbers, (size_t)CHUNK * sizeof(float)), "a chunk of a tensor"));
    ES_TRY(es_cuda_check(cudaMalloc(&l->workspace, room), "partial results"));
    ES_TRY(es_cuda_check(cudaMemset(l->workspace, 0, room), "partial results"));
    ES_TRY(es_cuda_check(cudaMalloc((void **)&l->size, PIECES * sizeof *l->size), "sizes of rows"));
    ES_TRY(es_cuda_check(cudaMallocHost((void **)&l->host_size, PIECES * sizeof *l->size), "sizes of rows"));
    ES_TRY(es_cuda_check(cudaMalloc((void **)&l->summary, sizeof *l->summary), "a summary"));
    return es_cuda_check(cudaMallocHost((void **)&l->host_summary, sizeof *l->summary), "a summary");
}

void es_cuda_stats_close(es_cuda_stats *s)
{
    if (!s) return;
    for (int i = 0; i < LANES; i++) {
        lane *l = &s->lane[i];
        if (l->stream) cudaStreamSynchronize(l->stream);
        cudaFree(l->stored);
        cudaFree(l->numbers);
        cudaFree(l->workspace);
        cudaFree(l->size);
        cudaFree(l->summary);
        cudaFreeHost(l->host_size);
        cudaFreeHost(l->host_summary);
        if (l->stream) cudaStreamDestroy(l->stream);
    }
    cudaFree(s->bin);
    free(s);
}

es_status es_cuda_stats_open(es_cuda_stats **out)
{
    es_cuda_stats *s = (es_cuda_stats *)calloc(1, sizeof *s);
    if (!s) return es_cuda_fail(ES_NO_MEMORY, "no memory for the GPU's record");
    es_status status = es_cuda_check(cudaSetDevice(0), "choosing it");
    for (int i = 0; i < LANES && status == ES_OK; i++) status = open_lane(&s->lane[i]);
    if (status == ES_OK) status = es_cuda_check(cudaMalloc((void **)&s->bin, BINS * sizeof *s->bin), "a histogram");
    if (status != ES_OK) {
        es_cuda_stats_close(s);
        return status;
    }
    *out = s;
    return ES_OK;
}

/* Waits for a chunk, and adds what it gave. */
static es_status collect(lane *l, const es_cuda_stats_job *job, es_summary *sum)
{
    if (l->pieces == 0) return ES_OK;
    ES_TRY(es_cuda_check(cudaStreamSynchronize(l->stream), "statistics"));
    es_summary_join(sum, l->host_summary);
    if (job->size) memcpy(job->size + l->first, l->host_size, (size_t)l->pieces * sizeof *job->size);
    l->pieces = 0;
    return ES_OK;
}

/* Where piece `p` begins, in numbers. */
static int64_t begin_of(const es_cuda_stats_job *job, int64_t pieces_per_row, int64_t p)
{
    return p / pieces_per_row * job->columns + p % pieces_per_row * job->piece;
}

static es_status start(es_cuda_stats *s, lane *l, const es_cuda_stats_job *job, int64_t pieces_per_row)
{
    const int64_t begin = begin_of(job, pieces_per_row, l->first), end = begin_of(job, pieces_per_row, l->first + l->pieces);
    const es_dtype_info *info = es_dtype_get_info(job->type);
    const block_of block = {info->block, info->block_bytes};
    const int64_t from = stored_bytes(block, begin), bytes = stored_bytes(block, end) - from;
    const int64_t blocks = (l->pieces + WARPS - 1) / WARPS;
    ES_TRY(es_cuda_check(cudaMemcpyAsync(l->stored, job->data + from, (size_t)bytes, cudaMemcpyHostToDevice, l->stream),
                         "sending a tensor"));
    piece_kernel<<<(unsigned)(blocks < 2048 ? blocks : 2048), THREADS, 0, l->stream>>>(
        l->stored, job->type, block, job->columns, job->piece, pieces_per_row,
        l->first, l->pieces, l->numbers, l->size, job->bin ? s->bin : NULL);
    ES_TRY(es_cuda_check(cudaGetLastError(), "statistics"));
    const es_cuda_fold fold = {ES_CUDA_SUMMARY, l->numbers, end - begin, l->summary, l->workspace, job->blocks};
    const char *wrong = es_cuda_fold_launch(&fold, l->stream);
    if (wrong) return es_cuda_fail(ES_INTERNAL, "GPU: statistics: %s", wrong);
    ES_TRY(es_cuda_check(
        cudaMemcpyAsync(l->host_summary, l->summary, sizeof *l->summary, cudaMemcpyDeviceToHost, l->stream), "statistics"));
    if (!job->size) return ES_OK;
    return es_cuda_check(cudaMemcpyAsync(l->host_size, l->size, (size_t)l->pieces * sizeof *l->size, cudaMemcpyDeviceToHost,
                                         l->stream),
                         "statistics");
}

es_status es_cuda_stats_run(es_cuda_stats *s, const es_cuda_stats_job *job)
{
    const int64_t pieces_per_row = job->columns ? (job->columns - 1) / job->piece + 1 : 0;
    const int64_t pieces = job->rows * pieces_per_row;
    es_summary sum = es_cuda_summary::identity();
    int64_t each = CHUNK / (job->columns < job->piece ? job->columns : job->piece);
    if (each > PIECES) each = PIECES;
    ES_TRY(es_cuda_check(cudaMemset(s->bin, 0, BINS * sizeof *s->bin), "a histogram"));
    int turn = 0;
    es_status status = ES_OK;
    for (int64_t p = 0; p < pieces && status == ES_OK; p += each, turn = (turn + 1) % LANES) {
        lane *l = &s->lane[turn];
        status = collect(l, job, &sum);
        l->first = p;
        l->pieces = pieces - p < each ? pieces - p : each;
        if (status == ES_OK) status = start(s, l, job, pieces_per_row);
    }
    for (int i = 0; i < LANES; i++, turn = (turn + 1) % LANES) { /* in order: the oldest is whose turn it is */
        if (status == ES_OK) status = collect(&s->lane[turn], job, &sum);
        s->lane[turn].pieces = 0;
    }
    ES_TRY(status);
    *job->summary = sum;
    if (!job->bin) return ES_OK;
    return es_cuda_check(cudaMemcpy(job->bin, s->bin, BINS * sizeof *s->bin, cudaMemcpyDeviceToHost), "a histogram");
}
