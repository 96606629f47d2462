/* race_probe.cu: small kernels that are right beyond doubt, for racecheck: what it reports of these it reports falsely. One
 * producer warp and four that work, as in attn_tile.cuh.
 *
 *   compute-sanitizer --tool racecheck cuda_race_probe 0     words behind a named barrier
 *                                                      1     a ring of stages that a warp fills with ordinary stores
 *                                                      2     the same ring, filled by bulk copies: the sum must be 1's
 *                                                      3     a stage that is used once, passed on behind a named barrier */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "device/cuda/attn_pipe.cuh"

enum { WORKERS = 128, ROUNDS = 64, TILE = 4096, STAGES = 2 };

/* Words exchanged between warps through shared memory, a named barrier of the workers between writing and reading. */
__global__ void named(unsigned *out)
{
    __shared__ unsigned word[WORKERS];
    unsigned sum = threadIdx.x;
    if (threadIdx.x >= WORKERS) return;
    for (int i = 0; i < ROUNDS; i++) {
        word[threadIdx.x] = sum;
        asm volatile("bar.sync 1, 128;" ::: "memory");
        sum += word[(threadIdx.x + 37) % WORKERS];
        asm volatile("bar.sync 1, 128;" ::: "memory");
    }
    out[threadIdx.x] = sum;
}

/* The same between a producer that writes itself and workers that read, by mbarriers: full and empty. */
template <bool BULK> __global__ void ring(const unsigned *in, unsigned *out)
{
    __shared__ __align__(1024) unsigned stage[STAGES][TILE / 4];
    __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES];
    if (threadIdx.x == WORKERS) {
        for (int s = 0; s < STAGES; s++) {
            es_barrier_init(es_shared(&full[s]), 1);
            es_barrier_init(es_shared(&empty[s]), WORKERS / 32);
        }
        es_fence_copies();
    }
    __syncthreads();
    if (threadIdx.x >= WORKERS) {
        for (int i = 0; i < ROUNDS; i++) {
            const int s = i % STAGES, parity = i / STAGES % 2;
            es_barrier_wait(es_shared(&empty[s]), parity ^ 1);
            if (BULK) {
                if (threadIdx.x == WORKERS) {
                    es_barrier_expect(es_shared(&full[s]), TILE);
                    es_copy_bulk(es_shared(stage[s]), in + i * (TILE / 4), TILE, es_shared(&full[s]), es_policy_once(true));
                }
            } else {
                for (int k = threadIdx.x - WORKERS; k < TILE / 4; k += 32) stage[s][k] = in[i * (TILE / 4) + k];
                __syncwarp();
                if (threadIdx.x == WORKERS) es_barrier_arrive(es_shared(&full[s]));
            }
            __syncwarp();
        }
        return;
    }
    unsigned sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const int s = i % STAGES, parity = i / STAGES % 2;
        es_barrier_wait(es_shared(&full[s]), parity);
        for (int k = threadIdx.x; k < TILE / 4; k += WORKERS) sum = sum * 31 + stage[s][k];
        __syncwarp();
        if (threadIdx.x % 32 == 0) es_barrier_arrive(es_shared(&empty[s]));
    }
    out[threadIdx.x] = sum;
}

/* Reading a tile that other warps have waited for, behind a named barrier: who waited passes on what it saw. */
__global__ void passed_on(const unsigned *in, unsigned *out)
{
    __shared__ __align__(1024) unsigned stage[TILE / 4];
    __shared__ __align__(8) unsigned long long full;
    if (threadIdx.x == WORKERS) es_barrier_init(es_shared(&full), 1), es_fence_copies();
    __syncthreads();
    if (threadIdx.x >= WORKERS) {
        if (threadIdx.x == WORKERS) {
            es_barrier_expect(es_shared(&full), TILE);
            es_copy_bulk(es_shared(stage), in, TILE, es_shared(&full), es_policy_once(true));
        }
        return;
    }
    if (threadIdx.x < 32) es_barrier_wait(es_shared(&full), 0);
    asm volatile("bar.sync 1, 128;" ::: "memory");
    out[threadIdx.x] = stage[threadIdx.x];
    asm volatile("bar.sync 1, 128;" ::: "memory");
    stage[threadIdx.x] = 7;
}

int main(int argc, char **argv)
{
    const int which = argc > 1 ? atoi(argv[1]) : 0;
    unsigned *in, *out, host[WORKERS], sum = 0;
    cudaMalloc(&in, ROUNDS * TILE);
    cudaMalloc(&out, sizeof host);
    unsigned *numbers = (unsigned *)malloc(ROUNDS * TILE);
    for (int i = 0; i < ROUNDS * TILE / 4; i++) numbers[i] = i * 2654435761u;
    cudaMemcpy(in, numbers, ROUNDS * TILE, cudaMemcpyHostToDevice);
    free(numbers);
    if (which == 0) named<<<1, WORKERS + 32>>>(out);
    if (which == 1) ring<false><<<1, WORKERS + 32>>>(in, out);
    if (which == 2) ring<true><<<1, WORKERS + 32>>>(in, out);
    if (which == 3) passed_on<<<1, WORKERS + 32>>>(in, out);
    cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
    for (unsigned x : host) sum = sum * 31 + x;
    printf("probe %d: %08x %s\n", which, sum, cudaGetErrorString(cudaGetLastError()));
    return 0;
}
