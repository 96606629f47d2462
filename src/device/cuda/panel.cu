/* panel.cu: weights of other types than BF16, decoded into a panel of bfloat16 rows for products of many tokens: the same
 * numbers as product.cu makes of them in its registers. */
#include "device/cuda/loaders.cuh"

static constexpr int STEP = 64, THREADS = 256;

/* A panel's rows in bfloat16, zeros behind the columns: four lanes make 64 columns of two rows that stand eight apart. */
template <class L>
static __global__ void __launch_bounds__(THREADS)
    decode_kernel(const __grid_constant__ es_cuda_matrix w, int first, int rows, int columns, int padded, uint16_t *to)
{
    es_take_turn();
    const int steps = padded / STEP, at = (blockIdx.x * THREADS + threadIdx.x) / 4, quad = threadIdx.x % 4;
    const int pair = at / steps, column = at % steps * STEP, last = first + rows - 1;
    const int top = first + pair / 8 * 16 + pair % 8, bottom = top + 8;
    L l;
    uint4 x[4];
    l.load(w.data + (int64_t)min(top, last) * w.row_bytes, w.data + (int64_t)min(bottom, last) * w.row_bytes, &w, column, quad,
           columns);
    l.decode(&x[0], &x[1], &x[2], &x[3], column, quad);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = i < 2 ? top : bottom;
        if (row <= last) *(uint4 *)(void *)(to + (int64_t)(row - first) * padded + column + i % 2 * 32 + 8 * quad) = x[i];
    }
}

template <class L>
static void decode_rows(cudaStream_t stream, const es_cuda_matrix *w, int first, int rows, int columns, int padded,
                        uint16_t *to)
{
    /* Whole blocks: lanes of a quad ask each other for scales, so none may leave early. */
    const int64_t threads = (int64_t)((rows + 15) / 16 * 8) * (padded / STEP) * 4;
    es_launch(stream, dim3((unsigned)((threads + THREADS - 1) / THREADS)), THREADS, 0, decode_kernel<L>, *w, first, rows,
              columns, padded, to);
}

void es_cuda_panel(cudaStream_t stream, const es_cuda_matrix *w, int first, int rows, int columns, int padded, uint16_t *to)
{
    if (w->fast && w->type == ES_Q8_0)
        decode_rows<q8_loader>(stream, w, first, rows, columns, padded, to);
    else if (w->fast && w->type == ES_Q4_K)
        decode_rows<q4k_loader>(stream, w, first, rows, columns, padded, to);
    else if (w->fast && w->type == ES_Q5_K)
        decode_rows<q5k_loader>(stream, w, first, rows, columns, padded, to);
    else if (w->fast && w->type == ES_Q6_K)
        decode_rows<q6k_loader>(stream, w, first, rows, columns, padded, to);
    else
        decode_rows<any_loader>(stream, w, first, rows, columns, padded, to);
}
