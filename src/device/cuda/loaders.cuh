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

/* Pairs of bfloat16 are decoded two at a time by fused steps: a · b + c, rounded once. */
static __device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
#if __CUDA_ARCH__ >= 800
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
#else
    d = a ^ b ^ c; /* never run: mode bf16 begins with sm_80 */
#endif
    return d;
}

/* Both halves the same number. */
static __device__ __forceinline__ uint32_t twice(float value)
{
    return es_to_bf16x2(value, value);
}

#define ES_BF16_ONE        0x3F803F80u
#define ES_BF16_MINUS_ZERO 0x80008000u /* x · y + −0 is x · y, whatever its sign */
#define ES_BF16_128        0x43434343u /* 0x43qq is 128 + qq for qq below 128 */

/* A loader takes a lane's sixteen weights of 64 columns of two rows, eight rows apart: the eight from 8·quad on in each half
 * of the columns. load() is early, decode() late; x and y are the top row's two halves, z and w the bottom row's.
 *
 * A quantised weight is its integer, exact, times its scale rounded to bfloat16 (minus its minimum, likewise), rounded once.
 */
struct bf16_loader {
    uint4 a, b, c, d;
    __device__ __forceinline__ void load(const unsigned char *top, const unsigned char *bottom, const es_cuda_matrix *,
                                         int column, int quad, int)
    {
        const int at = 2 * (column + 8 * quad);
        a = load_once(top + at), b = load_once(top + at + 64);
        c = load_once(bottom + at), d = load_once(bottom + at + 64);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, uint4 *z, uint4 *w, int, int) const
    {
        *x = a, *y = b, *z = c, *w = d;
    }
};

/* Two of four signed bytes: 0x43 and a byte, less 128 or, where the byte's top bit is set, 256. */
template <int SELECT> static __device__ __forceinline__ uint32_t signed_pair(uint32_t q, uint32_t d)
{
    const uint32_t p = __byte_perm(q, ES_BF16_128, SELECT);
    return fma2(fma2(p & 0xFF7FFF7Fu, ES_BF16_ONE, (p & 0xFF80FF80u) | 0x80008000u), d, ES_BF16_MINUS_ZERO);
}

static __device__ __forceinline__ uint4 signed_eight(uint2 q, uint32_t d)
{
    return make_uint4(signed_pair<0x4140>(q.x, d), signed_pair<0x4342>(q.x, d), signed_pair<0x4140>(q.y, d),
                      signed_pair<0x4342>(q.y, d));
}

struct q8_loader {
    uint2 a, b, c, d;
    uint32_t s, t;
    __device__ __forceinline__ void load(const unsigned char *top, const unsigned char *bottom, const es_cuda_matrix *w,
                                         int column, int quad, int)
    {
        const int at = column + 8 * quad, scales = (int)(w->row_bytes / 34) * 32 + column / 16;
        a = load_once8(top + at), b = load_once8(top + at + 32);
        c = load_once8(bottom + at), d = load_once8(bottom + at + 32);
        s = *(const uint32_t *)(const void *)(top + scales);
        t = *(const uint32_t *)(const void *)(bottom + scales);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, uint4 *z, uint4 *w, int, int) const
    {
        *x = signed_eight(a, twice(es_from_half(s & 0xFFFF))), *y = signed_eight(b, twice(es_from_half(s >> 16)));
        *z = signed_eight(c, twice(es_from_half(t & 0xFFFF))), *w = signed_eight(d, twice(es_from_half(t >> 16)));
    }
};

/* Eight numbers below 128 in bytes, less `zero` (128 and what else), times d, plus m. */
template <int SELECT> static __device__ __forceinline__ uint32_t pair(uint32_t q, uint32_t zero, uint32_t d, uint32_t m)
{
    return fma2(fma2(__byte_perm(q, ES_BF16_128, SELECT), ES_BF16_ONE, zero), d, m);
}

static __device__ __forceinline__ uint4 eight(uint32_t q, uint32_t r, uint32_t zero, uint32_t d, uint32_t m)
{
    return make_uint4(pair<0x4140>(q, zero, d, m), pair<0x4342>(q, zero, d, m), pair<0x4140>(r, zero, d, m),
                      pair<0x4342>(r, zero, d, m));
}

#define ES_BF16_MINUS_136 0xC308C308u
#define ES_BF16_MINUS_144 0xC310C310u
#define ES_BF16_MINUS_160 0xC320C320u

/* Scales of Q4_K and Q5_K: two rows times two groups of 32 columns are four pairs, one for each lane of a quad; each lane works
 * out its own and takes the others from its neighbours. d·q − m is d·(q − middle) + (d·middle − m): where a group's weights lie
 * around zero, what is added is small, and so is what rounding takes from it. */
static __device__ __forceinline__ uint32_t k_scale(const uint4 head, int g, float middle)
{
    const int shift = g % 4 * 8;
    const uint32_t s0 = head.y >> shift & 0xFF, s1 = head.z >> shift & 0xFF, s2 = head.w >> shift & 0xFF;
    const uint32_t scale = g < 4 ? s0 & 0x3F : (s2 & 0x0F) | (s0 >> 2 & 0x30);
    const uint32_t minimum = g < 4 ? s1 & 0x3F : s2 >> 4 | (s1 >> 2 & 0x30);
    const float d = es_from_half(head.x & 0xFFFF) * (float)scale;
    return es_to_bf16x2(d, fmaf(middle, d, -(es_from_half(head.x >> 16) * (float)minimum)));
}

static __device__ __forceinline__ void of_lane(uint32_t mine, int lane, uint32_t *d, uint32_t *m)
{
    const uint32_t both = __shfl_sync(0xFFFFFFFFu, mine, lane, 4);
    *d = __byte_perm(both, 0, 0x1010);
    *m = __byte_perm(both, 0, 0x3232);
}

struct q4k_loader {
    uint4 head;
    uint2 q, r;
    __device__ __forceinline__ void load(const unsigned char *top, const unsigned char *bottom, const es_cuda_matrix *,
                                         int column, int quad, int)
    {
        const int block = column / 256 * 144, at = block + 16 + column % 256 / 2 + 8 * quad;
        head = *(const uint4 *)(const void *)((quad < 2 ? top : bottom) + block);
        q = load_once8(top + at);
        r = load_once8(bottom + at);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, uint4 *z, uint4 *w, int column, int quad) const
    {
        const uint32_t mine = k_scale(head, column % 256 / 32 + quad % 2, 8.0f), low = 0x0F0F0F0Fu;
        uint32_t d, m;
        of_lane(mine, 0, &d, &m), *x = eight(q.x & low, q.y & low, ES_BF16_MINUS_136, d, m);
        of_lane(mine, 1, &d, &m), *y = eight(q.x >> 4 & low, q.y >> 4 & low, ES_BF16_MINUS_136, d, m);
        of_lane(mine, 2, &d, &m), *z = eight(r.x & low, r.y & low, ES_BF16_MINUS_136, d, m);
        of_lane(mine, 3, &d, &m), *w = eight(r.x >> 4 & low, r.y >> 4 & low, ES_BF16_MINUS_136, d, m);
    }
};

/* As Q4_K; bit g of a byte of the high bits is the fifth bit of its element in group g. */
struct q5k_loader {
    uint4 head;
    uint2 q, r, h, k;
    __device__ __forceinline__ void load(const unsigned char *top, const unsigned char *bottom, const es_cuda_matrix *,
                                         int column, int quad, int)
    {
        const int block = column / 256 * 176, at = block + 48 + column % 256 / 2 + 8 * quad, high = block + 16 + 8 * quad;
        head = *(const uint4 *)(const void *)((quad < 2 ? top : bottom) + block);
        q = load_once8(top + at), r = load_once8(bottom + at);
        h = *(const uint2 *)(const void *)(top + high), k = *(const uint2 *)(const void *)(bottom + high);
    }
    static __device__ __forceinline__ uint32_t fifth(uint32_t high, int g)
    {
        return (high >> g & 0x01010101u) << 4;
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, uint4 *z, uint4 *w, int column, int quad) const
    {
        const int g = column % 256 / 32;
        const uint32_t mine = k_scale(head, g + quad % 2, 16.0f), low = 0x0F0F0F0Fu, zero = ES_BF16_MINUS_144;
        uint32_t d, m;
        of_lane(mine, 0, &d, &m), *x = eight((q.x & low) | fifth(h.x, g), (q.y & low) | fifth(h.y, g), zero, d, m);
        of_lane(mine, 1, &d, &m),
            *y = eight((q.x >> 4 & low) | fifth(h.x, g + 1), (q.y >> 4 & low) | fifth(h.y, g + 1), zero, d, m);
        of_lane(mine, 2, &d, &m), *z = eight((r.x & low) | fifth(k.x, g), (r.y & low) | fifth(k.y, g), zero, d, m);
        of_lane(mine, 3, &d, &m),
            *w = eight((r.x >> 4 & low) | fifth(k.x, g + 1), (r.y >> 4 & low) | fifth(k.y, g + 1), zero, d, m);
    }
};

/* Each half of 32 columns has two scales, of 16 columns each. */
struct q6k_loader {
    uint2 a, b, h, c, e, k;
    uint32_t s, t, d;
    __device__ __forceinline__ void load(const unsigned char *top, const unsigned char *bottom, const es_cuda_matrix *w,
                                         int column, int quad, int)
    {
        const int blocks = (int)(w->row_bytes / 210), super = column / 256, half = column % 256 / 128,
                  which = column % 128 / 64;
        const int low = super * 128 + half * 64 + 8 * quad, high = blocks * 128 + super * 64 + half * 32 + 8 * quad;
        const int scale = blocks * 192 + super * 16 + half * 8 + which * 4, whole = blocks * 208 + super * 2;
        a = *(const uint2 *)(const void *)(top + low), b = *(const uint2 *)(const void *)(top + low + 32);
        c = *(const uint2 *)(const void *)(bottom + low), e = *(const uint2 *)(const void *)(bottom + low + 32);
        h = *(const uint2 *)(const void *)(top + high), k = *(const uint2 *)(const void *)(bottom + high);
        s = *(const uint32_t *)(const void *)(top + scale), t = *(const uint32_t *)(const void *)(bottom + scale);
        d = *(const uint16_t *)(const void *)(top + whole) | (uint32_t) * (const uint16_t *)(const void *)(bottom + whole)
                                                                 << 16;
    }
    static __device__ __forceinline__ uint4 half_row(uint2 low, uint2 high, int nibble, int bits, uint32_t d)
    {
        const uint32_t q = (low.x >> nibble & 0x0F0F0F0Fu) | (high.x >> bits & 0x03030303u) << 4;
        const uint32_t r = (low.y >> nibble & 0x0F0F0F0Fu) | (high.y >> bits & 0x03030303u) << 4;
        return eight(q, r, ES_BF16_MINUS_160, d, ES_BF16_MINUS_ZERO);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, uint4 *z, uint4 *w, int column, int quad) const
    {
        const int nibble = column % 128 / 64 * 4, first = quad / 2 * 8;
        const float f = es_from_half(d & 0xFFFF), g = es_from_half(d >> 16);
        *x = half_row(a, h, nibble, nibble, twice(f * (float)(int8_t)(s >> first)));
        *y = half_row(b, h, nibble, nibble + 2, twice(f * (float)(int8_t)(s >> (first + 16))));
        *z = half_row(c, k, nibble, nibble, twice(g * (float)(int8_t)(t >> first)));
        *w = half_row(e, k, nibble, nibble + 2, twice(g * (float)(int8_t)(t >> (first + 16))));
    }
};

/* Every type, at any place, element by element; columns past the row's end are zero. */
struct any_loader {
    uint4 a, b, c, d;
    static __device__ __noinline__ uint4 decoded(const unsigned char *row, const es_cuda_matrix *w, int column, int columns)
    {
        float v[8];
        for (int i = 0; i < 8; i++)
            v[i] = column + i < columns ? es_decode_at(row, w->type, w->packed, w->row_bytes, column + i) : 0.0f;
        return make_uint4(es_to_bf16x2(v[0], v[1]), es_to_bf16x2(v[2], v[3]), es_to_bf16x2(v[4], v[5]),
                          es_to_bf16x2(v[6], v[7]));
    }
    __device__ __forceinline__ void load(const unsigned char *top, const unsigned char *bottom, const es_cuda_matrix *w,
                                         int column, int quad, int columns)
    {
        a = decoded(top, w, column + 8 * quad, columns), b = decoded(top, w, column + 32 + 8 * quad, columns);
        c = decoded(bottom, w, column + 8 * quad, columns), d = decoded(bottom, w, column + 32 + 8 * quad, columns);
    }
    __device__ __forceinline__ void decode(uint4 *x, uint4 *y, uint4 *z, uint4 *w, int, int) const
    {
        *x = a, *y = b, *z = c, *w = d;
    }
};

#endif
