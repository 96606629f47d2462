/* delta.cu: Gated DeltaNet: convolution and gates, the recurrence over the state, and the gated norm.
 *
 * The recurrence is the canonical one, token by token. A thread keeps its part of the state in registers across all tokens of
 * a span: a group of 32 lanes is 8 value columns times 4 parts of the key dimension, so that 128 columns of 32 heads are 512
 * groups. Inside a part four chains run side by side; chains and parts are added in one fixed order, which depends on the key
 * dimension alone: chunks, company and the grid change no bit. */
#include "device/cuda/device.cuh"

enum { HEAD_THREADS = 128, MOST_HEAD = 1024, COLUMNS = 8, PARTS = 4, GROUPS = 4, AHEAD = 8 };

typedef struct prepare {
    es_delta_shape shape;
    const float *x, *conv, *a, *b, *gain, *bias;
    float *state, *out, *gates;
    int64_t channels;
} prepare;

/* Channel c `back` rows before row `row` of the span: earlier rows come from the state, or count as zero. */
static __device__ float conv_input(const prepare *p, const es_cuda_span *span, int row, int64_t c)
{
    if (row >= 0) return p->x[(span->first_row + (int64_t)row) * p->channels + c];
    if (span->start == 0) return 0.0f;
    return p->state[((int64_t)span->slot * (ES_CONV_TAPS - 1) + ES_CONV_TAPS - 1 + row) * p->channels + c];
}

/* One head of one row: convolve, SiLU, unit length for q and k. A span of a single row moves its state on, too. */
static __global__ void __launch_bounds__(HEAD_THREADS) prepare_kernel(es_cuda_batch b, prepare p)
{
    es_take_turn();
    __shared__ float y[MOST_HEAD], room[HEAD_THREADS / ES_GROUP];
    const int64_t row = blockIdx.x;
    const es_delta_shape *s = &p.shape;
    const int h = blockIdx.y;
    const es_cuda_span span = b.span[b.row_span[row]];
    const int t = (int)row - span.first_row;
    const bool unit = h < 2 * s->key_heads;
    const int n = unit ? s->key_dim : s->value_dim;
    const int64_t c = unit ? (int64_t)h * n : 2 * (int64_t)s->key_heads * s->key_dim + (int64_t)(h - 2 * s->key_heads) * n;
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += HEAD_THREADS) {
        const float x0 = conv_input(&p, &span, t - 3, c + i), x1 = conv_input(&p, &span, t - 2, c + i);
        const float x2 = conv_input(&p, &span, t - 1, c + i), x3 = conv_input(&p, &span, t, c + i);
        float v = p.conv[c + i] * x0;
        v = fmaf(p.conv[p.channels + c + i], x1, v);
        v = fmaf(p.conv[2 * p.channels + c + i], x2, v);
        v = fmaf(p.conv[3 * p.channels + c + i], x3, v);
        v = es_silu(v);
        y[i] = v;
        sum = fmaf(v, v, sum);
        if (span.rows == 1) {
            float *keep = p.state + (int64_t)span.slot * (ES_CONV_TAPS - 1) * p.channels + c + i;
            keep[0] = x1, keep[p.channels] = x2, keep[2 * p.channels] = x3;
        }
    }
    float *out = p.out + row * p.channels + c;
    if (unit) {
        sum = es_block_sum(sum, room);
        const float inverse = 1.0f / sqrtf(sum + 1e-6f), scale = h < s->key_heads ? 1.0f / sqrtf((float)s->key_dim) : 1.0f;
        for (int i = threadIdx.x; i < n; i += HEAD_THREADS) out[i] = (y[i] * inverse) * scale;
    } else {
        for (int i = threadIdx.x; i < n; i += HEAD_THREADS) out[i] = y[i];
        const int v = h - 2 * s->key_heads;
        if (threadIdx.x == 0) {
            float *gates = p.gates + (row * s->value_heads + v) * 2;
            gates[0] = es_exp(p.gain[v] * es_softplus(p.a[row * s->value_heads + v] + p.bias[v]));
            gates[1] = es_sigmoid(p.b[row * s->value_heads + v]);
        }
    }
}

/* The last three inputs of spans of several rows, oldest first. One thread a channel: it reads before it writes. */
static __global__ void keep_kernel(es_cuda_batch b, prepare p)
{
    es_take_turn();
    const es_cuda_span span = b.span[blockIdx.y];
    const int64_t c = (int64_t)blockIdx.x * HEAD_THREADS + threadIdx.x;
    if (span.rows == 1 || c >= p.channels) return;
    const float x1 = conv_input(&p, &span, span.rows - 3, c), x2 = conv_input(&p, &span, span.rows - 2, c);
    const float x3 = conv_input(&p, &span, span.rows - 1, c);
    float *keep = p.state + (int64_t)span.slot * (ES_CONV_TAPS - 1) * p.channels + c;
    keep[0] = x1, keep[p.channels] = x2, keep[2 * p.channels] = x3;
}

void es_cuda_delta_prepare(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, int32_t spans, bool single,
                           const es_op_delta_prepare *op)
{
    const es_delta_shape *s = &op->shape;
    const int64_t channels = 2 * (int64_t)s->key_heads * s->key_dim + (int64_t)s->value_heads * s->value_dim;
    const prepare p = {*s,
                       es_cuda_floats(op->x),
                       es_cuda_floats(op->conv),
                       es_cuda_floats(op->a),
                       es_cuda_floats(op->b),
                       es_cuda_floats(op->a_gain),
                       es_cuda_floats(op->dt_bias),
                       es_cuda_floats(op->conv_state),
                       es_cuda_floats(op->out),
                       es_cuda_floats(op->gates),
                       channels};
    es_launch(stream, dim3((unsigned)rows, (unsigned)(2 * s->key_heads + s->value_heads)), HEAD_THREADS, 0, prepare_kernel, *b,
              p);
    if (!single)
        es_launch(stream, dim3((unsigned)((channels + HEAD_THREADS - 1) / HEAD_THREADS), (unsigned)spans), HEAD_THREADS, 0,
                  keep_kernel, *b, p);
}

typedef struct scan {
    es_delta_shape shape;
    const float *x, *gates;
    float *state, *out;
    int64_t channels;
} scan;

/* Parts in order: (p0 + p1) + (p2 + p3); lanes of one column stand 8 apart. */
static __device__ __forceinline__ float add_parts(float v)
{
    v = v + es_shuffle_xor(v, COLUMNS);
    return v + es_shuffle_xor(v, 2 * COLUMNS);
}

/* Four bytes from global to shared memory, which arrive by the time of arrive(). */
static __device__ __forceinline__ void bring(float *to, const float *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
#else
    *to = *from;
#endif
}

static __device__ __forceinline__ void depart(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

/* All groups but the last that departed. */
static __device__ __forceinline__ void arrive(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

/* What a block needs of AHEAD tokens: they are on their way while those before are worked on. */
template <int PIECES> struct chunk {
    float q[AHEAD][4 * PIECES * PARTS], k[AHEAD][4 * PIECES * PARTS], v[AHEAD][COLUMNS * GROUPS], gates[AHEAD][2];
};

template <int PIECES>
static __device__ void bring_chunk(const scan *p, const es_cuda_span *span, int head, int key_head, int column0, int t0,
                                   chunk<PIECES> *c)
{
    const es_delta_shape *s = &p->shape;
    const int dk = s->key_dim, columns = min(COLUMNS * GROUPS, s->value_dim - column0);
    for (int i = 0; i < AHEAD && t0 + i < span->rows; i++) {
        const int64_t row = span->first_row + t0 + i;
        const float *q = p->x + row * p->channels + (int64_t)key_head * dk, *k = q + (int64_t)s->key_heads * dk;
        const float *v = p->x + row * p->channels + 2 * (int64_t)s->key_heads * dk + (int64_t)head * s->value_dim + column0;
        for (int d = threadIdx.x; d < dk; d += GROUPS * ES_GROUP) bring(&c->q[i][d], q + d), bring(&c->k[i][d], k + d);
        if ((int)threadIdx.x < columns) bring(&c->v[i][threadIdx.x], v + threadIdx.x);
        if (threadIdx.x < 2) bring(&c->gates[i][threadIdx.x], p->gates + (row * s->value_heads + head) * 2 + threadIdx.x);
    }
}

/* One token: S ← e^g·S;  δ = β(v − Sᵀk);  S ← S + k⊗δ;  returns Sᵀq. */
template <int PIECES>
static __device__ __forceinline__ float one_token(float4 *S, const float4 *q, const float4 *k, float v, float decay,
                                                  float beta)
{
    float4 c = {0, 0, 0, 0}, o = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        S[j].x = decay * S[j].x, S[j].y = decay * S[j].y, S[j].z = decay * S[j].z, S[j].w = decay * S[j].w;
        c.x = fmaf(S[j].x, k[j].x, c.x), c.y = fmaf(S[j].y, k[j].y, c.y);
        c.z = fmaf(S[j].z, k[j].z, c.z), c.w = fmaf(S[j].w, k[j].w, c.w);
    }
    const float predicted = add_parts((c.x + c.y) + (c.z + c.w));
    const float delta = beta * (v - predicted);
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        S[j].x = fmaf(k[j].x, delta, S[j].x), S[j].y = fmaf(k[j].y, delta, S[j].y);
        S[j].z = fmaf(k[j].z, delta, S[j].z), S[j].w = fmaf(k[j].w, delta, S[j].w);
        o.x = fmaf(S[j].x, q[j].x, o.x), o.y = fmaf(S[j].y, q[j].y, o.y);
        o.z = fmaf(S[j].z, q[j].z, o.z), o.w = fmaf(S[j].w, q[j].w, o.w);
    }
    return add_parts((o.x + o.y) + (o.z + o.w));
}

/* A part is 4·PIECES consecutive key channels; past the key dimension they are zero. */
template <int PIECES> static __global__ void __launch_bounds__(GROUPS *ES_GROUP) scan_kernel(es_cuda_batch b, scan p)
{
    __shared__ __align__(16) chunk<PIECES> room[2];
    const es_delta_shape *s = &p.shape;
    const int dk = s->key_dim, lane = threadIdx.x % ES_GROUP, part = lane / COLUMNS, first = part * 4 * PIECES;
    es_lead();
    for (int i = threadIdx.x; i < 2 * AHEAD * 4 * PIECES * PARTS; i += GROUPS * ES_GROUP) {
        const int at = i / (4 * PIECES * PARTS) % AHEAD, d = i % (4 * PIECES * PARTS);
        if (d >= dk) room[i / (AHEAD * 4 * PIECES * PARTS)].q[at][d] = room[i / (AHEAD * 4 * PIECES * PARTS)].k[at][d] = 0;
    }
    es_follow();
    const es_cuda_span span = b.span[blockIdx.z];
    const int head = blockIdx.y, column0 = blockIdx.x * GROUPS * COLUMNS;
    const int mine = threadIdx.x / ES_GROUP * COLUMNS + lane % COLUMNS, column = column0 + mine;
    const int key_head = s->tiled ? head % s->key_heads : head / (s->value_heads / s->key_heads);
    const bool there = column < s->value_dim;
    float *state = p.state + (((int64_t)span.slot * s->value_heads + head) * dk) * s->value_dim + column;
    bring_chunk<PIECES>(&p, &span, head, key_head, column0, 0, &room[0]);
    depart();
    float4 S[PIECES];
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const int i = first + 4 * j;
        const bool load = there && span.start != 0;
        S[j].x = load && i < dk ? state[(int64_t)i * s->value_dim] : 0.0f;
        S[j].y = load && i + 1 < dk ? state[(int64_t)(i + 1) * s->value_dim] : 0.0f;
        S[j].z = load && i + 2 < dk ? state[(int64_t)(i + 2) * s->value_dim] : 0.0f;
        S[j].w = load && i + 3 < dk ? state[(int64_t)(i + 3) * s->value_dim] : 0.0f;
    }
    for (int t0 = 0; t0 < span.rows; t0 += AHEAD) {
        const chunk<PIECES> *c = &room[t0 / AHEAD % 2];
        bring_chunk<PIECES>(&p, &span, head, key_head, column0, t0 + AHEAD, &room[(t0 / AHEAD + 1) % 2]);
        depart();
        arrive();
        __syncthreads();
        const int some = min(AHEAD, span.rows - t0);
        for (int i = 0; i < some; i++) {
            const float out = one_token<PIECES>(S, (const float4 *)(const void *)(c->q[i] + first),
                                                (const float4 *)(const void *)(c->k[i] + first), c->v[i][mine], c->gates[i][0],
                                                c->gates[i][1]);
            if (there && part == 0)
                p.out[((span.first_row + (int64_t)t0 + i) * s->value_heads + head) * s->value_dim + column] = out;
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const int i = first + 4 * j;
        if (there && i < dk) state[(int64_t)i * s->value_dim] = S[j].x;
        if (there && i + 1 < dk) state[(int64_t)(i + 1) * s->value_dim] = S[j].y;
        if (there && i + 2 < dk) state[(int64_t)(i + 2) * s->value_dim] = S[j].z;
        if (there && i + 3 < dk) state[(int64_t)(i + 3) * s->value_dim] = S[j].w;
    }
}

/* Key dimensions up to 32, 128 and 256. The number of pieces decides the order of the sums: it depends on the dimension alone.
 */
void es_cuda_delta_scan(cudaStream_t stream, const es_cuda_batch *b, int32_t spans, const es_op_delta_scan *op)
{
    const es_delta_shape *s = &op->shape;
    const scan p = {*s,
                    es_cuda_floats(op->x),
                    es_cuda_floats(op->gates),
                    es_cuda_floats(op->state),
                    es_cuda_floats(op->out),
                    2 * (int64_t)s->key_heads * s->key_dim + (int64_t)s->value_heads * s->value_dim};
    const int wide = COLUMNS * GROUPS;
    const dim3 grid((unsigned)((s->value_dim + wide - 1) / wide), (unsigned)s->value_heads, (unsigned)spans);
    if (s->key_dim <= 32)
        es_launch(stream, grid, GROUPS * ES_GROUP, 0, scan_kernel<2>, *b, p);
    else if (s->key_dim <= 128)
        es_launch(stream, grid, GROUPS * ES_GROUP, 0, scan_kernel<8>, *b, p);
    else
        es_launch(stream, grid, GROUPS * ES_GROUP, 0, scan_kernel<16>, *b, p);
}

static __global__ void __launch_bounds__(HEAD_THREADS)
    finish_kernel(const float *x, const float *z, const float *w, float *out, int heads, int dim, float eps, uint16_t *shadow,
                  int64_t shadow_stride)
{
    es_take_turn();
    __shared__ float room[HEAD_THREADS / ES_GROUP];
    const int64_t at = ((int64_t)blockIdx.x * heads + blockIdx.y) * dim;
    float sum = 0;
    for (int i = threadIdx.x; i < dim; i += HEAD_THREADS) sum = fmaf(x[at + i], x[at + i], sum);
    const float scale = 1.0f / sqrtf(es_block_sum(sum, room) / (float)dim + eps);
    for (int i = threadIdx.x; i < dim; i += HEAD_THREADS) {
        const float value = ((x[at + i] * scale) * w[i]) * es_silu(z[at + i]);
        out[at + i] = value;
        if (shadow) shadow[blockIdx.x * shadow_stride + (int64_t)blockIdx.y * dim + i] = es_to_bf16(value);
    }
}

void es_cuda_delta_finish(cudaStream_t stream, int32_t rows, const es_op_delta_finish *op, uint16_t *shadow,
                          int64_t shadow_stride)
{
    const es_delta_shape *s = &op->shape;
    es_launch(stream, dim3((unsigned)rows, (unsigned)s->value_heads), HEAD_THREADS, 0, finish_kernel, es_cuda_floats(op->x),
              es_cuda_floats(op->z), es_cuda_floats(op->weight), es_cuda_floats(op->out), s->value_heads, s->value_dim,
              op->eps, shadow, shadow_stride);
}
