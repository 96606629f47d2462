/* pack.cu: weights brought into the layout that the vector loaders read, once, when a program is first submitted.
 *
 * A row stays a row, of as many bytes and what makes them a multiple of 16. Blocks of Q8_0 (34 bytes) and Q6_K (210) begin at
 * odd places, so each row's blocks become planes: Q8_0 all integers, then all scales; Q6_K all low nibbles, all high bits, all
 * scales, all d. The others are read as they lie in a file. */
#include "device/cuda/device.cuh"

enum { THREADS = 256 };

static __global__ void pack_kernel(const unsigned char *from, unsigned char *to, es_dtype type, int64_t row_bytes,
                                   int64_t pitch)
{
    const int size = type == ES_Q8_0 ? 34 : 210;
    const int64_t blocks = row_bytes / size;
    from += blockIdx.x * row_bytes;
    to += blockIdx.x * pitch;
    for (int64_t at = threadIdx.x; at < row_bytes; at += THREADS) {
        const int64_t block = at / size;
        const int i = (int)(at % size);
        int64_t place;
        if (type == ES_Q8_0)
            place = i < 2 ? blocks * 32 + block * 2 + i : block * 32 + i - 2;
        else if (i < 128)
            place = block * 128 + i;
        else if (i < 192)
            place = blocks * 128 + block * 64 + i - 128;
        else if (i < 208)
            place = blocks * 192 + block * 16 + i - 192;
        else
            place = blocks * 208 + block * 2 + i - 208;
        to[place] = from[at];
    }
}

void es_cuda_pack(cudaStream_t stream, const unsigned char *from, unsigned char *to, es_dtype type, int64_t row_bytes,
                  int64_t pitch, int64_t rows)
{
    pack_kernel<<<(unsigned)rows, THREADS, 0, stream>>>(from, to, type, row_bytes, pitch);
}

/* SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of a counter. */
static __device__ uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static __device__ void put_half(unsigned char *to, float value)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    to[0] = (unsigned char)half;
    to[1] = (unsigned char)(half >> 8);
}

/* Random weights of standard deviation `spread`, block by block, as device/random_blocks.c makes them (not the same numbers):
 * uniform integers, scales that vary a little, a mean of zero. */
static __global__ void random_kernel(unsigned char *to, es_dtype type, int64_t blocks, int size, uint64_t seed, float spread)
{
    const int64_t b = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (b >= blocks) return;
    unsigned char *out = to + b * size;
    uint64_t counter = seed + (uint64_t)b * 64 * 0x9E3779B97F4A7C15u;
    for (int i = 0; i < size; i++) {
        if (i % 8 == 0) counter += 0x9E3779B97F4A7C15u;
        out[i] = (unsigned char)(mix(counter) >> (i % 8 * 8));
    }
    const uint64_t word = mix(counter + 0x9E3779B97F4A7C15u);
    const float unit = (float)(word >> 40) * 5.9604644775390625e-8f, vary = (0.75f + 0.5f * unit) * spread;
    const float value = (2.0f * unit - 1.0f) * spread * 1.7320508f;
    switch (type) {
    case ES_F32: {
        const uint32_t bits = __float_as_uint(value);
        for (int i = 0; i < 4; i++) out[i] = (unsigned char)(bits >> 8 * i);
        break;
    }
    case ES_F16: put_half(out, value); break;
    case ES_BF16: {
        const uint16_t half = es_to_bf16(value);
        out[0] = (unsigned char)half;
        out[1] = (unsigned char)(half >> 8);
        break;
    }
    case ES_Q8_0: put_half(out, vary / 73.9f); break;
    case ES_Q4_0: put_half(out, vary / 4.61f); break;
    case ES_Q5_0: put_half(out, vary / 9.23f); break;
    case ES_Q4_1: put_half(out, vary / 4.61f), put_half(out + 2, -7.5f * vary / 4.61f); break;
    case ES_Q5_1: put_half(out, vary / 9.23f), put_half(out + 2, -15.5f * vary / 9.23f); break;
    case ES_Q4_K:
    case ES_Q5_K: {
        const float width = (type == ES_Q4_K ? 4.61f : 9.23f) * 47.5f, middle = type == ES_Q4_K ? 7.5f : 15.5f;
        put_half(out, vary / width), put_half(out + 2, middle * vary / width);
        for (int i = 0; i < 4; i++) { /* scales and minima are equal, and 32 to 63 */
            const unsigned low = 32 + (unsigned)(word >> 5 * i & 31), high = 32 + (unsigned)(word >> 5 * (i + 4) & 31);
            out[4 + i] = out[8 + i] = (unsigned char)(low | (high >> 4) << 6);
            out[12 + i] = (unsigned char)((high & 15) | (high & 15) << 4);
        }
        break;
    }
    case ES_Q6_K:
        for (int i = 0; i < 16; i++) out[192 + i] = (unsigned char)(8 + (word >> 3 * i & 7));
        put_half(out + 208, vary / (18.47f * 11.5f));
        break;
    default: break;
    }
}

void es_cuda_random(cudaStream_t stream, unsigned char *to, es_dtype type, int64_t blocks, uint64_t seed, float spread)
{
    const int size = es_dtype_get_info(type)->block_bytes;
    random_kernel<<<(unsigned)((blocks + THREADS - 1) / THREADS), THREADS, 0, stream>>>(to, type, blocks, size, seed, spread);
}
