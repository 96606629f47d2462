/* loaders.cuh: how a lane gets its weights: loaded early, decoded late, rounded to bfloat16; one struct for each layout. */
#ifndef ES_CUDA_LOADERS_CUH
#define ES_CUDA_LOADERS_CUH

#include "device/cuda/device.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                           uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

static __device__ __forceinline__ uint4 load_once(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

static __device__ __forceinline__ uint2 load_once8(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

/* A loader takes a lane's sixteen weights of 64 columns of a row: the eight from 8·quad on in each half. raw is what is
 * loaded, early; decode() makes pairs of bfloat16 of it. `ok` is false for rows past the matrix. */
struct bf16_loader {
    uint4 a, b;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *, int column, int quad, int)
    {
        const unsigned char *at = row + 2 * (column + 8 * quad);
        a = load_once(at);
        b = load_once(at + 64);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int, int) const
    {
        *x = a;
        *y = b;
    }
};

/* Four signed bytes as bfloat16 times d: 2^23 + 128 + q is a float whose low byte is q + 128. */
static __device__ __forceinline__ uint2 scaled_bytes(uint32_t q, float d)
{
    const uint32_t u = q ^ 0x80808080u;
    const float base = 8388608.0f + 128.0f;
    const float f0 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7650)) - base,
                f1 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7651)) - base;
    const float f2 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7652)) - base,
                f3 = __uint_as_float(__byte_perm(u, 0x4B000000u, 0x7653)) - base;
    return make_uint2(es_to_bf16x2(d * f0, d * f1), es_to_bf16x2(d * f2, d * f3));
}

struct q8_loader {
    uint2 a, b;
    uint32_t d;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *w, int column, int quad, int)
    {
        a = load_once8(row + column + 8 * quad);
        b = load_once8(row + column + 32 + 8 * quad);
        d = *(const uint32_t *)(const void *)(row + w->row_bytes / 34 * 32 + column / 16);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int, int) const
    {
        const float d0 = es_from_half(d & 0xFFFF), d1 = es_from_half(d >> 16);
        const uint2 x0 = scaled_bytes(a.x, d0), x1 = scaled_bytes(a.y, d0), y0 = scaled_bytes(b.x, d1),
                    y1 = scaled_bytes(b.y, d1);
        *x = make_uint4(x0.x, x0.y, x1.x, x1.y);
        *y = make_uint4(y0.x, y0.y, y1.x, y1.y);
    }
};

/* Four numbers of up to five bits in the bytes of q: dg·q − mg. The product of a 17-bit and a 5-bit number is exact, so a
 * fused step rounds as the formula does. */
static __device__ __forceinline__ uint2 scaled_nibbles(uint32_t q, float dg, float mg)
{
    const float base = 8388608.0f;
    const float f0 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7650)) - base,
                f1 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7651)) - base;
    const float f2 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7652)) - base,
                f3 = __uint_as_float(__byte_perm(q, 0x4B000000u, 0x7653)) - base;
    return make_uint2(es_to_bf16x2(fmaf(dg, f0, -mg), fmaf(dg, f1, -mg)), es_to_bf16x2(fmaf(dg, f2, -mg), fmaf(dg, f3, -mg)));
}

/* Scale and minimum of group g from the 12 bytes in three words. */
static __device__ __forceinline__ void k_scale(const uint4 head, int g, float *dg, float *mg)
{
    const int shift = g % 4 * 8;
    const uint32_t s0 = head.y >> shift & 0xFF, s1 = head.z >> shift & 0xFF, s2 = head.w >> shift & 0xFF;
    const uint32_t scale = g < 4 ? s0 & 0x3F : (s2 & 0x0F) | (s0 >> 2 & 0x30);
    const uint32_t minimum = g < 4 ? s1 & 0x3F : s2 >> 4 | (s1 >> 2 & 0x30);
    *dg = es_from_half(head.x & 0xFFFF) * (float)scale;
    *mg = es_from_half(head.x >> 16) * (float)minimum;
}

struct q4k_loader {
    uint4 head;
    uint2 q;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *, int column, int quad, int)
    {
        const unsigned char *block = row + column / 256 * 144;
        head = *(const uint4 *)(const void *)block;
        q = load_once8(block + 16 + column % 256 / 2 + 8 * quad);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int column, int) const
    {
        float d0, m0, d1, m1;
        const int g = column % 256 / 32;
        k_scale(head, g, &d0, &m0);
        k_scale(head, g + 1, &d1, &m1);
        const uint2 x0 = scaled_nibbles(q.x & 0x0F0F0F0Fu, d0, m0), x1 = scaled_nibbles(q.y & 0x0F0F0F0Fu, d0, m0);
        const uint2 y0 = scaled_nibbles(q.x >> 4 & 0x0F0F0F0Fu, d1, m1), y1 = scaled_nibbles(q.y >> 4 & 0x0F0F0F0Fu, d1, m1);
        *x = make_uint4(x0.x, x0.y, x1.x, x1.y);
        *y = make_uint4(y0.x, y0.y, y1.x, y1.y);
    }
};

/* As Q4_K; bit g of a byte of `high` is the fifth bit of its element in group g. */
struct q5k_loader {
    uint4 head;
    uint2 q, high;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *, int column, int quad, int)
    {
        const unsigned char *block = row + column / 256 * 176;
        head = *(const uint4 *)(const void *)block;
        high = *(const uint2 *)(const void *)(block + 16 + 8 * quad);
        q = load_once8(block + 48 + column % 256 / 2 + 8 * quad);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int column, int) const
    {
        float d0, m0, d1, m1;
        const int g = column % 256 / 32;
        k_scale(head, g, &d0, &m0);
        k_scale(head, g + 1, &d1, &m1);
        const uint32_t one = 0x01010101u, low = 0x0F0F0F0Fu;
        const uint2 x0 = scaled_nibbles((q.x & low) | (high.x >> g & one) << 4, d0, m0);
        const uint2 x1 = scaled_nibbles((q.y & low) | (high.y >> g & one) << 4, d0, m0);
        const uint2 y0 = scaled_nibbles((q.x >> 4 & low) | (high.x >> (g + 1) & one) << 4, d1, m1);
        const uint2 y1 = scaled_nibbles((q.y >> 4 & low) | (high.y >> (g + 1) & one) << 4, d1, m1);
        *x = make_uint4(x0.x, x0.y, x1.x, x1.y);
        *y = make_uint4(y0.x, y0.y, y1.x, y1.y);
    }
};

struct q6k_loader {
    uint2 low0, low1, high;
    uint32_t scale, d;
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *w, int column, int quad, int)
    {
        const int64_t blocks = w->row_bytes / 210;
        const int super = column / 256, half = column % 256 / 128, pair = column % 128 / 64;
        const unsigned char *l = row + super * 128 + half * 64 + 8 * quad;
        low0 = *(const uint2 *)(const void *)l;
        low1 = *(const uint2 *)(const void *)(l + 32);
        high = *(const uint2 *)(const void *)(row + blocks * 128 + super * 64 + half * 32 + 8 * quad);
        scale = *(const uint32_t *)(const void *)(row + blocks * 192 + super * 16 + half * 8 + pair * 4);
        d = *(const uint16_t *)(const void *)(row + blocks * 208 + super * 2);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int column, int quad) const
    {
        const int pair = column % 128 / 64, nibble = pair * 4, bits = pair * 4;
        const float whole = es_from_half(d);
        const float d0 = whole * (float)(int8_t)(scale >> (quad / 2 * 8)),
                    d1 = whole * (float)(int8_t)(scale >> (16 + quad / 2 * 8));
        const uint32_t a = (low0.x >> nibble & 0x0F0F0F0Fu) | (high.x >> bits & 0x03030303u) << 4;
        const uint32_t b = (low0.y >> nibble & 0x0F0F0F0Fu) | (high.y >> bits & 0x03030303u) << 4;
        const uint32_t c = (low1.x >> nibble & 0x0F0F0F0Fu) | (high.x >> (bits + 2) & 0x03030303u) << 4;
        const uint32_t e = (low1.y >> nibble & 0x0F0F0F0Fu) | (high.y >> (bits + 2) & 0x03030303u) << 4;
        /* scaled_bytes() takes q − 32 as a signed byte. */
        const uint2 x0 = scaled_bytes(__vsub4(a, 0x20202020u), d0), x1 = scaled_bytes(__vsub4(b, 0x20202020u), d0);
        const uint2 y0 = scaled_bytes(__vsub4(c, 0x20202020u), d1), y1 = scaled_bytes(__vsub4(e, 0x20202020u), d1);
        *x = make_uint4(x0.x, x0.y, x1.x, x1.y);
        *y = make_uint4(y0.x, y0.y, y1.x, y1.y);
    }
};

/* Every type, at any place, element by element; columns past the row's end are zero. */
struct any_loader {
    uint4 a, b;
    static __device__ __noinline__ uint4 eight(const unsigned char *row, const es_cuda_matrix *w, int column, int columns)
    {
        float v[8];
        for (int i = 0; i < 8; i++)
            v[i] = column + i < columns ? es_decode_at(row, w->type, w->packed, w->row_bytes, column + i) : 0.0f;
        return make_uint4(es_to_bf16x2(v[0], v[1]), es_to_bf16x2(v[2], v[3]), es_to_bf16x2(v[4], v[5]),
                          es_to_bf16x2(v[6], v[7]));
    }
    __device__ __forceinline__ void load(const unsigned char *row, const es_cuda_matrix *w, int column, int quad, int columns)
    {
        a = eight(row, w, column + 8 * quad, columns);
        b = eight(row, w, column + 32 + 8 * quad, columns);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, int, int) const
    {
        *x = a;
        *y = b;
    }
};

#endif
