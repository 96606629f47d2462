/* delta_state.cuh: the state of Gated DeltaNet in registers, and the order of its sums.
 *
 * A group of 32 lanes has 8 value columns. A lane has two columns, so that a key read from shared memory serves both, of one of 8
 * parts of the key dimension: 4·PIECES consecutive channels. Inside a part four chains of a column run side by side; chains and
 * parts are added in one fixed order, which depends on the key dimension alone. */
#ifndef ES_CUDA_DELTA_STATE_CUH
#define ES_CUDA_DELTA_STATE_CUH

#include "device/cuda/device.cuh"

enum { COLUMNS = 8, PAIRS = 4, PARTS = 8, GROUPS = 4 }; /* GROUPS: of a block that walks tokens */

/* The sum of all parts, in every lane: the tree of their index. Lanes of a column stand PAIRS apart. */
static __device__ __forceinline__ float add_parts(float v)
{
#pragma unroll
    for (int step = PAIRS; step < ES_GROUP; step *= 2) v = v + es_shuffle_xor(v, step);
    return v;
}

/* The same sums of two columns of two tokens, one in each lane: of the second column in lanes of odd parts, of the later token
 * in every second pair of parts. Four exchanges instead of twelve. */
static __device__ __forceinline__ float add_four(float2 earlier, float2 later, bool odd, bool late)
{
    const float a = (odd ? earlier.y : earlier.x) + es_shuffle_xor(odd ? earlier.x : earlier.y, PAIRS);
    const float b = (odd ? later.y : later.x) + es_shuffle_xor(odd ? later.x : later.y, PAIRS);
    const float sum = (late ? b : a) + es_shuffle_xor(late ? a : b, 2 * PAIRS);
    return sum + es_shuffle_xor(sum, 4 * PAIRS);
}

/* Four chains of one column. */
static __device__ __forceinline__ void feed(float4 *sum, const float4 &S, const float4 &x)
{
    sum->x = fmaf(S.x, x.x, sum->x), sum->y = fmaf(S.y, x.y, sum->y);
    sum->z = fmaf(S.z, x.z, sum->z), sum->w = fmaf(S.w, x.w, sum->w);
}

static __device__ __forceinline__ float add_chains(const float4 &v)
{
    return (v.x + v.y) + (v.z + v.w);
}

/* A thread's part of one column: after a token, and as the next one finds it. */
template <int PIECES> struct column {
    float4 S[PIECES], faded[PIECES];
};

/* S ← e^g·S, beside the state; returns what this part has of Sᵀk. */
template <int PIECES>
static __device__ __forceinline__ float fade(column<PIECES> *c, float decay, const float4 (&k)[PIECES])
{
    float4 sum = {};
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const float4 s = c->S[j];
        c->faded[j] = make_float4(decay * s.x, decay * s.y, decay * s.z, decay * s.w);
        feed(&sum, c->faded[j], k[j]);
    }
    return add_chains(sum);
}

/* S ← S + k⊗δ. */
template <int PIECES>
static __device__ __forceinline__ void learn(column<PIECES> *c, const float4 (&k)[PIECES], float delta)
{
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const float4 s = c->faded[j];
        c->S[j] = make_float4(fmaf(k[j].x, delta, s.x), fmaf(k[j].y, delta, s.y), fmaf(k[j].z, delta, s.z),
                              fmaf(k[j].w, delta, s.w));
    }
}

/* What this part has of Sᵀq. */
template <int PIECES> static __device__ __forceinline__ float query(const column<PIECES> &c, const float4 (&q)[PIECES])
{
    float4 sum = {};
#pragma unroll
    for (int j = 0; j < PIECES; j++) feed(&sum, c.S[j], q[j]);
    return add_chains(sum);
}

/* A part of a query or a key, from shared memory. */
template <int PIECES> static __device__ __forceinline__ void read_part(const float *from, int part, float4 (&to)[PIECES])
{
#pragma unroll
    for (int j = 0; j < PIECES; j++) to[j] = *(const float4 *)(const void *)(from + (part * PIECES + j) * 4);
}

/* A row's two columns of the state: at once where there are both and rows begin at even places (of `columns` left, an even
 * number is even in every row). */
static __device__ __forceinline__ float2 state_pair(const float *at, bool there, int columns)
{
    if (there && columns > 1 && columns % 2 == 0) return *(const float2 *)(const void *)at;
    return make_float2(there && columns > 0 ? at[0] : 0.0f, there && columns > 1 ? at[1] : 0.0f);
}

static __device__ __forceinline__ void keep_pair(float *at, bool there, int columns, float x, float y)
{
    if (there && columns > 1 && columns % 2 == 0) {
        *(float2 *)(void *)at = make_float2(x, y);
        return;
    }
    if (there && columns > 0) at[0] = x;
    if (there && columns > 1) at[1] = y;
}

/* The state of a thread's pair of columns, from memory or back. */
template <int PIECES>
static __device__ __forceinline__ void load_state(column<PIECES> (&c)[2], const float *state, int column, int first, int dk,
                                                  int dv, bool begun)
{
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const float *from = state + (int64_t)(first + 4 * j) * dv;
        const int keys = begun ? dk - first - 4 * j : 0, columns = dv - column;
        const float2 r0 = state_pair(from, keys > 0, columns), r1 = state_pair(from + dv, keys > 1, columns);
        const float2 r2 = state_pair(from + 2 * dv, keys > 2, columns), r3 = state_pair(from + 3 * dv, keys > 3, columns);
        c[0].S[j] = make_float4(r0.x, r1.x, r2.x, r3.x);
        c[1].S[j] = make_float4(r0.y, r1.y, r2.y, r3.y);
    }
}

template <int PIECES>
static __device__ __forceinline__ void store_state(const column<PIECES> (&c)[2], float *state, int column, int first, int dk,
                                                   int dv)
{
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        float *to = state + (int64_t)(first + 4 * j) * dv;
        const int keys = dk - first - 4 * j, columns = dv - column;
        keep_pair(to, keys > 0, columns, c[0].S[j].x, c[1].S[j].x);
        keep_pair(to + dv, keys > 1, columns, c[0].S[j].y, c[1].S[j].y);
        keep_pair(to + 2 * dv, keys > 2, columns, c[0].S[j].z, c[1].S[j].z);
        keep_pair(to + 3 * dv, keys > 3, columns, c[0].S[j].w, c[1].S[j].w);
    }
}

#endif
