/* delta.cu: Gated DeltaNet: convolution and gates, the recurrence over the state, and the gated norm.
 *
 * The recurrence is the canonical one, token by token. A thread keeps its part of the state in registers across all tokens of
 * a span: two value columns, so that a key read from shared memory serves both, of one of 8 parts of the key dimension. A
 * group of 32 lanes has 8 columns, and 128 columns of 32 heads are 512 groups. Inside a part four chains of a column run side
 * by side; chains and parts are added in one fixed order, which depends on the key dimension alone: chunks, company and the
 * grid change no bit. A step of single tokens does all of it in one launch, with the same sums in the same order. */
#include "device/cuda/device.cuh"

/* From MANY_ROWS rows on there is enough to do for groups of lanes that take HEAD_ROWS rows each. */
enum { MANY_ROWS = 64, HEAD_ROWS = 8 };
enum { HEAD_THREADS = 128, MOST_HEAD = 1024, COLUMNS = 8, PAIRS = 4, PARTS = 8, GROUPS = 4, AHEAD = 8 };

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

/* One channel: the taps in order; a SiLU comes behind it. */
static __device__ __forceinline__ float add_taps(const prepare *p, int64_t c, float x0, float x1, float x2, float x3)
{
    float v = p->conv[c] * x0;
    v = fmaf(p->conv[p->channels + c], x1, v);
    v = fmaf(p->conv[2 * p->channels + c], x2, v);
    return fmaf(p->conv[3 * p->channels + c], x3, v);
}

static __device__ __forceinline__ float convolve(const prepare *p, int64_t c, float x0, float x1, float x2, float x3)
{
    return es_silu(add_taps(p, c, x0, x1, x2, x3));
}

/* A span of a single row moves its state on at once. */
static __device__ __forceinline__ void keep_three(const prepare *p, const es_cuda_span *span, int64_t c, float x1, float x2,
                                                  float x3)
{
    float *keep = p->state + (int64_t)span->slot * (ES_CONV_TAPS - 1) * p->channels + c;
    keep[0] = x1, keep[p->channels] = x2, keep[2 * p->channels] = x3;
}

static __device__ __forceinline__ void put_gates(const prepare *p, int64_t row, int v)
{
    const int heads = p->shape.value_heads;
    float *gates = p->gates + (row * heads + v) * 2;
    gates[0] = es_exp(p->gain[v] * es_softplus(p->a[row * heads + v] + p->bias[v]));
    gates[1] = es_sigmoid(p->b[row * heads + v]);
}

/* What makes a query or a key of unit length; queries are scaled as well. */
static __device__ __forceinline__ float unit_scale(const es_delta_shape *s, int head, float sum, float *scale)
{
    *scale = head < s->key_heads ? 1.0f / sqrtf((float)s->key_dim) : 1.0f;
    return 1.0f / sqrtf(sum + 1e-6f);
}

/* One head of one row: convolve, SiLU, unit length for q and k. */
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
        const float v = convolve(&p, c + i, x0, x1, x2, x3);
        y[i] = v;
        sum = fmaf(v, v, sum);
        if (span.rows == 1) keep_three(&p, &span, c + i, x1, x2, x3);
    }
    float *out = p.out + row * p.channels + c;
    if (unit) {
        float scale;
        const float inverse = unit_scale(s, h, es_block_sum(sum, room), &scale);
        for (int i = threadIdx.x; i < n; i += HEAD_THREADS) out[i] = (y[i] * inverse) * scale;
    } else {
        for (int i = threadIdx.x; i < n; i += HEAD_THREADS) out[i] = y[i];
        if (threadIdx.x == 0) put_gates(&p, row, h - 2 * s->key_heads);
    }
}

/* The sum that es_block_sum() gives of HEAD_THREADS threads, by one group of lanes: lane l has the numbers of threads l, l +
 * 32, ... */
static __device__ __forceinline__ float head_sum(const float (&v)[HEAD_THREADS / ES_GROUP])
{
    float sum = es_group_sum(v[0]);
#pragma unroll
    for (int g = 1; g < HEAD_THREADS / ES_GROUP; g++) sum = sum + es_group_sum(v[g]);
    return sum;
}

/* The same of heads of HEAD_THREADS channels: a group of lanes takes a head of several rows, and reads each input once. */
static __global__ void __launch_bounds__(HEAD_THREADS) prepare_rows_kernel(es_cuda_batch b, prepare p, int rows)
{
    es_take_turn();
    constexpr int EACH = HEAD_THREADS / ES_GROUP;
    const es_delta_shape *s = &p.shape;
    const int lane = threadIdx.x % ES_GROUP, row0 = blockIdx.x * HEAD_ROWS, heads = 2 * s->key_heads + s->value_heads;
    const int own = blockIdx.y * EACH + threadIdx.x / ES_GROUP, h = min(own, heads - 1);
    const bool there = own < heads, unit = h < 2 * s->key_heads; /* groups of a warp stay together */
    float x0[EACH], x1[EACH], x2[EACH], next[EACH]; /* the next row's inputs are on their way */
    const int64_t c0 = (int64_t)h * HEAD_THREADS + lane;
#pragma unroll
    for (int g = 0; g < EACH; g++) next[g] = row0 < rows ? p.x[row0 * p.channels + c0 + g * ES_GROUP] : 0.0f;
    for (int row = row0; row < min(row0 + HEAD_ROWS, rows); row++) {
        const es_cuda_span span = b.span[b.row_span[row]];
        const int t = row - span.first_row;
        float v[EACH], square[EACH];
#pragma unroll
        for (int g = 0; g < EACH; g++) {
            const int64_t c = c0 + g * ES_GROUP;
            if (row == row0 || t == 0) {
                x0[g] = conv_input(&p, &span, t - 3, c), x1[g] = conv_input(&p, &span, t - 2, c);
                x2[g] = conv_input(&p, &span, t - 1, c);
            }
            const float x3 = next[g];
            if (row + 1 < min(row0 + HEAD_ROWS, rows)) next[g] = p.x[(row + 1) * p.channels + c];
            v[g] = add_taps(&p, c, x0[g], x1[g], x2[g], x3);
            if (there && span.rows == 1) keep_three(&p, &span, c, x1[g], x2[g], x3);
            x0[g] = x1[g], x1[g] = x2[g], x2[g] = x3;
        }
        es_silu_all(v);
#pragma unroll
        for (int g = 0; g < EACH; g++) square[g] = fmaf(v[g], v[g], 0.0f);
        float inverse = 1, scale = 1;
        const float sum = head_sum(square);
        if (unit) inverse = unit_scale(s, h, sum, &scale);
#pragma unroll
        for (int g = 0; g < EACH && there; g++)
            p.out[row * p.channels + (int64_t)h * HEAD_THREADS + g * ES_GROUP + lane] = unit ? (v[g] * inverse) * scale : v[g];
        if (there && !unit && lane == 0) put_gates(&p, row, h - 2 * s->key_heads);
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

static int64_t channels_of(const es_delta_shape *s)
{
    return 2 * (int64_t)s->key_heads * s->key_dim + (int64_t)s->value_heads * s->value_dim;
}

static prepare prepare_of(const es_op_delta_prepare *op)
{
    return {op->shape,
            es_cuda_floats(op->x),
            es_cuda_floats(op->conv),
            es_cuda_floats(op->a),
            es_cuda_floats(op->b),
            es_cuda_floats(op->a_gain),
            es_cuda_floats(op->dt_bias),
            es_cuda_floats(op->conv_state),
            es_cuda_floats(op->out),
            es_cuda_floats(op->gates),
            channels_of(&op->shape)};
}

void es_cuda_delta_prepare(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, int32_t spans, bool single,
                           const es_op_delta_prepare *op)
{
    const es_delta_shape *s = &op->shape;
    const prepare p = prepare_of(op);
    const int64_t channels = p.channels;
    const int heads = 2 * s->key_heads + s->value_heads, each = HEAD_THREADS / ES_GROUP;
    if (s->key_dim == HEAD_THREADS && s->value_dim == HEAD_THREADS && rows >= MANY_ROWS)
        es_launch(stream, dim3((unsigned)((rows + HEAD_ROWS - 1) / HEAD_ROWS), (unsigned)((heads + each - 1) / each)),
                  HEAD_THREADS, 0, prepare_rows_kernel, *b, p, rows);
    else
        es_launch(stream, dim3((unsigned)rows, (unsigned)heads), HEAD_THREADS, 0, prepare_kernel, *b, p);
    if (!single)
        es_launch(stream, dim3((unsigned)((channels + HEAD_THREADS - 1) / HEAD_THREADS), (unsigned)spans), HEAD_THREADS, 0,
                  keep_kernel, *b, p);
}

typedef struct scan {
    es_delta_shape shape;
    const float *x, *gates;
    float *state, *out;
    int64_t channels;
    bool fours; /* rows of q, k and v begin at multiples of 16 bytes */
} scan;

/* What a token's lanes tell each other: sums over all parts in the tree of their index, of two columns in every lane, and of
 * an earlier token's results, the first column's in lanes of even parts and the second's in those of odd ones. Lanes of a pair
 * stand PAIRS apart; the three chains of exchanges run side by side. */
static __device__ __forceinline__ float2 add_parts(float2 v, float2 earlier, bool odd, float *result)
{
    float mine = odd ? earlier.y : earlier.x, its = odd ? earlier.x : earlier.y;
#pragma unroll
    for (int step = PAIRS; step < ES_GROUP; step *= 2) {
        const float x = es_shuffle_xor(v.x, step), y = es_shuffle_xor(v.y, step);
        const float z = es_shuffle_xor(step == PAIRS ? its : mine, step);
        v = make_float2(v.x + x, v.y + y);
        mine = mine + z;
    }
    *result = mine;
    return v;
}

/* BYTES from global to shared memory, which arrive by the time of arrive(). */
template <int BYTES> static __device__ __forceinline__ void bring(float *to, const float *from)
{
#if __CUDA_ARCH__ >= 800
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));
#else
    for (int i = 0; i < BYTES / 4; i++) to[i] = from[i];
#endif
}

static __device__ __forceinline__ void depart(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

/* All that departed. */
static __device__ __forceinline__ void arrive(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

/* What a block needs of AHEAD tokens: they are on their way while those before are worked on. */
template <int PIECES> struct chunk {
    float q[AHEAD][4 * PIECES * PARTS], k[AHEAD][4 * PIECES * PARTS], v[AHEAD][COLUMNS * GROUPS], gates[AHEAD][2];
};

/* WIDTH floats at a time: four where every row begins at a multiple of 16 bytes. A thread brings the same piece of each token.
 */
template <int PIECES, int WIDTH>
static __device__ __forceinline__ void bring_rows(const scan *p, const es_cuda_span *span, int head, int key_head, int column0,
                                                  int t0, chunk<PIECES> *c)
{
    const es_delta_shape *s = &p->shape;
    const int dk = s->key_dim, columns = min(COLUMNS * GROUPS, s->value_dim - column0), tokens = min(AHEAD, span->rows - t0);
    const int of_keys = dk / WIDTH, all = 2 * of_keys + columns / WIDTH;
    const float *row = p->x + (span->first_row + (int64_t)t0) * p->channels;
    for (int i = threadIdx.x; i < all; i += GROUPS * ES_GROUP) {
        const bool q = i < of_keys, k = !q && i < 2 * of_keys;
        const int at = (q   ? i
                        : k ? i - of_keys
                            : i - 2 * of_keys) *
                       WIDTH,
                  step = q || k ? 4 * PIECES * PARTS : COLUMNS * GROUPS;
        const int64_t keys = (k ? (int64_t)s->key_heads * dk : 0) + (int64_t)key_head * dk;
        const float *from =
            row + at + (q || k ? keys : 2 * (int64_t)s->key_heads * dk + (int64_t)head * s->value_dim + column0);
        float *to = (q ? c->q[0] : k ? c->k[0] : c->v[0]) + at;
#pragma unroll
        for (int token = 0; token < AHEAD; token++)
            if (token < tokens) bring<4 * WIDTH>(to + token * step, from + token * p->channels);
    }
    const int token = threadIdx.x / 2 % AHEAD, which = threadIdx.x % 2;
    const int64_t gate = ((span->first_row + t0 + (int64_t)token) * s->value_heads + head) * 2 + which;
    if (threadIdx.x < 2 * AHEAD && token < tokens) bring<4>(&c->gates[token][which], p->gates + gate);
}

template <int PIECES>
static __device__ __forceinline__ void bring_chunk(const scan *p, const es_cuda_span *span, int head, int key_head,
                                                   int column0, int t0, chunk<PIECES> *c)
{
    if (p->fours)
        bring_rows<PIECES, 4>(p, span, head, key_head, column0, t0, c);
    else
        bring_rows<PIECES, 1>(p, span, head, key_head, column0, t0, c);
}

/* What a thread brings of every chunk that is whole, in kernels whose dimensions are: the same four channels of some tokens' queries
 * or keys, four of one token's values, one of a token's gates. Counted up from chunk to chunk, it costs next to nothing. */
struct errands {
    const float *keys, *values, *gates;
    int keys_to, values_to, gates_to; /* floats from the beginning of a chunk; −1: none */
};

template <int PIECES>
static __device__ __forceinline__ errands errands_of(const scan *p, const es_cuda_span *span, int head, int key_head,
                                                     int column0)
{
    constexpr int DK = 4 * PIECES * PARTS, EACH = AHEAD * DK / 2 / (GROUPS * ES_GROUP), FOURS = COLUMNS * GROUPS / 4;
    const es_delta_shape *s = &p->shape;
    const int i = threadIdx.x, piece = i % (DK / 2), token = i / (DK / 2) * EACH, gate = i - AHEAD * FOURS;
    const bool key = piece >= DK / 4;
    const int64_t row = span->first_row, keys = (int64_t)s->key_heads * DK;
    errands e;
    e.keys = p->x + (row + token) * p->channels + (key ? keys : 0) + key_head * DK + piece % (DK / 4) * 4;
    e.keys_to = (key ? AHEAD : 0) * DK + token * DK + piece % (DK / 4) * 4;
    e.values = p->x + (row + i / FOURS) * p->channels + 2 * keys + (int64_t)head * s->value_dim + column0 + i % FOURS * 4;
    e.values_to = i < AHEAD * FOURS ? 2 * AHEAD * DK + i * 4 : -1;
    e.gates = p->gates + ((row + gate / 2) * s->value_heads + head) * 2 + gate % 2;
    e.gates_to = gate >= 0 && gate < 2 * AHEAD ? AHEAD * (2 * DK + 4 * FOURS) + gate : -1;
    return e;
}

template <int PIECES> static __device__ __forceinline__ void run_errands(const scan *p, errands *e, chunk<PIECES> *c)
{
    constexpr int DK = 4 * PIECES * PARTS, EACH = AHEAD * DK / 2 / (GROUPS * ES_GROUP);
    float *to = c->q[0];
    const float *from = e->keys;
#pragma unroll
    for (int token = 0; token < EACH; token++, from += p->channels) bring<16>(to + e->keys_to + token * DK, from);
    if (e->values_to >= 0) bring<16>(to + e->values_to, e->values);
    if (e->gates_to >= 0) bring<4>(to + e->gates_to, e->gates);
    e->keys += AHEAD * p->channels, e->values += AHEAD * p->channels, e->gates += 2 * AHEAD * p->shape.value_heads;
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

/* Loads that stay where they are written: early. */
static __device__ __forceinline__ float4 read4(const float *at)
{
#if __CUDA_ARCH__ >= 750
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"((unsigned)__cvta_generic_to_shared(at)));
    return v;
#else
    return *(const float4 *)(const void *)at;
#endif
}

/* A thread's part of a pair of columns as it walks the tokens. Results lag behind: while the lanes tell each other a token's
 * prediction, the token before is multiplied with the state that it left, and the sums of the one before that are finished. */
template <int PIECES> struct walk {
    float4 S[2][PIECES], q[PIECES]; /* after the token before, and that token's query */
    float2 earlier;                 /* parts of Sᵀq of the token before that */
};

template <int PIECES> static __device__ __forceinline__ float2 query(const walk<PIECES> &w)
{
    float4 o[2] = {};
#pragma unroll
    for (int j = 0; j < PIECES; j++) feed(&o[0], w.S[0][j], w.q[j]), feed(&o[1], w.S[1][j], w.q[j]);
    return make_float2(add_chains(o[0]), add_chains(o[1]));
}

/* S ← e^g·S;  δ = β(v − Sᵀk);  S ← S + k⊗δ. Returns the sum that a lane has of the token two before. */
template <int PIECES>
static __device__ __forceinline__ float one_token(walk<PIECES> *w, const float4 (&k)[PIECES], float2 v, float2 gates, bool odd)
{
    float4 decayed[2][PIECES], c[2] = {};
    const float decay = gates.x, beta = gates.y;
#pragma unroll
    for (int j = 0; j < PIECES; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 s = w->S[i][j];
            decayed[i][j] = make_float4(decay * s.x, decay * s.y, decay * s.z, decay * s.w);
            feed(&c[i], decayed[i][j], k[j]);
        }
    float result;
    const float2 predicted = add_parts(make_float2(add_chains(c[0]), add_chains(c[1])), w->earlier, odd, &result);
    w->earlier = query<PIECES>(*w);
    const float delta[2] = {beta * (v.x - predicted.x), beta * (v.y - predicted.y)};
#pragma unroll
    for (int j = 0; j < PIECES; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 s = decayed[i][j];
            w->S[i][j] = make_float4(fmaf(k[j].x, delta[i], s.x), fmaf(k[j].y, delta[i], s.y), fmaf(k[j].z, delta[i], s.z),
                                     fmaf(k[j].w, delta[i], s.w));
        }
    return result;
}

/* What a token needs besides its query. */
template <int PIECES> struct token {
    float4 k[PIECES];
    float2 v, gates;
};

template <int PIECES>
static __device__ __forceinline__ void read_token(const chunk<PIECES> *c, int i, int first, int mine, token<PIECES> *t)
{
#pragma unroll
    for (int j = 0; j < PIECES; j++) t->k[j] = read4(c->k[i] + first + 4 * j);
    t->v = *(const float2 *)(const void *)(c->v[i] + mine);
    t->gates = *(const float2 *)(const void *)c->gates[i];
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
static __device__ __forceinline__ void load_state(walk<PIECES> *w, const float *state, int column, int first, int dk, int dv,
                                                  bool begun)
{
    w->earlier = make_float2(0, 0);
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const float *from = state + (int64_t)(first + 4 * j) * dv;
        const int keys = begun ? dk - first - 4 * j : 0, columns = dv - column;
        const float2 r0 = state_pair(from, keys > 0, columns), r1 = state_pair(from + dv, keys > 1, columns);
        const float2 r2 = state_pair(from + 2 * dv, keys > 2, columns), r3 = state_pair(from + 3 * dv, keys > 3, columns);
        w->S[0][j] = make_float4(r0.x, r1.x, r2.x, r3.x);
        w->S[1][j] = make_float4(r0.y, r1.y, r2.y, r3.y);
        w->q[j] = make_float4(0, 0, 0, 0);
    }
}

template <int PIECES>
static __device__ __forceinline__ void store_state(const walk<PIECES> &w, float *state, int column, int first, int dk, int dv)
{
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        float *to = state + (int64_t)(first + 4 * j) * dv;
        const int keys = dk - first - 4 * j, columns = dv - column;
        keep_pair(to, keys > 0, columns, w.S[0][j].x, w.S[1][j].x);
        keep_pair(to + dv, keys > 1, columns, w.S[0][j].y, w.S[1][j].y);
        keep_pair(to + 2 * dv, keys > 2, columns, w.S[0][j].z, w.S[1][j].z);
        keep_pair(to + 3 * dv, keys > 3, columns, w.S[0][j].w, w.S[1][j].w);
    }
}

/* A part is 4·PIECES consecutive key channels; past the key dimension they are zero. */
template <int PIECES> static __global__ void __launch_bounds__(GROUPS *ES_GROUP) scan_kernel(es_cuda_batch b, scan p)
{
    __shared__ __align__(16) chunk<PIECES> room[2];
    const es_delta_shape *s = &p.shape;
    const int dk = s->key_dim, dv = s->value_dim, lane = threadIdx.x % ES_GROUP, part = lane / PAIRS,
              first = part * 4 * PIECES;
    const bool odd = part % 2;
    es_lead();
    for (int i = threadIdx.x; dk < 4 * PIECES * PARTS && i < 2 * AHEAD * 4 * PIECES * PARTS; i += GROUPS * ES_GROUP) {
        const int at = i / (4 * PIECES * PARTS) % AHEAD, d = i % (4 * PIECES * PARTS);
        if (d >= dk) room[i / (AHEAD * 4 * PIECES * PARTS)].q[at][d] = room[i / (AHEAD * 4 * PIECES * PARTS)].k[at][d] = 0;
    }
    es_follow();
    const es_cuda_span span = b.span[blockIdx.z];
    const int head = blockIdx.y, column0 = blockIdx.x * GROUPS * COLUMNS;
    const int mine = threadIdx.x / ES_GROUP * COLUMNS + lane % PAIRS * 2, column = column0 + mine;
    const int key_head = s->tiled ? head % s->key_heads : head / (s->value_heads / s->key_heads);
    const int64_t out_stride = (int64_t)s->value_heads * dv;
    float *state = p.state + (((int64_t)span.slot * s->value_heads + head) * dk) * dv + column;
    float *out = p.out + span.first_row * out_stride + (int64_t)head * dv + column + part % 2; /* of the token two before */
    const bool puts = part < 2 && column + part < dv;
    const bool whole = p.fours && dk == 4 * PIECES * PARTS && column0 + COLUMNS * GROUPS <= dv && ES_GROUP * GROUPS == 128;
    errands e = errands_of<PIECES>(&p, &span, head, key_head, column0);
    if (whole && AHEAD <= span.rows)
        run_errands<PIECES>(&p, &e, &room[0]);
    else
        bring_chunk<PIECES>(&p, &span, head, key_head, column0, 0, &room[0]);
    depart();
    walk<PIECES> w;
    load_state<PIECES>(&w, state, column, first, dk, dv, span.start != 0);
    out -= 2 * out_stride;
    for (int t0 = 0; t0 < span.rows; t0 += AHEAD) {
        const chunk<PIECES> *c = &room[t0 / AHEAD % 2];
        arrive();
        __syncthreads(); /* it is there for all, and nobody reads the one before any more */
        if (whole && t0 + 2 * AHEAD <= span.rows)
            run_errands<PIECES>(&p, &e, &room[(t0 / AHEAD + 1) % 2]);
        else
            bring_chunk<PIECES>(&p, &span, head, key_head, column0, t0 + AHEAD, &room[(t0 / AHEAD + 1) % 2]);
        depart();
        const int some = min(AHEAD, span.rows - t0);
        token<PIECES> t[2];
        read_token<PIECES>(c, 0, first, mine, &t[0]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (i >= some) break;
            float4 q[PIECES];
#pragma unroll
            for (int j = 0; j < PIECES; j++) q[j] = read4(c->q[i] + first + 4 * j);
            if (i + 1 < AHEAD) read_token<PIECES>(c, i + 1, first, mine, &t[(i + 1) % 2]);
            const float result = one_token<PIECES>(&w, t[i % 2].k, t[i % 2].v, t[i % 2].gates, odd);
            if (puts && t0 + i > 1) *out = result;
            out += out_stride;
#pragma unroll
            for (int j = 0; j < PIECES; j++) w.q[j] = q[j];
        }
    }
    float before, last;
    add_parts(make_float2(0, 0), w.earlier, odd, &before);
    add_parts(make_float2(0, 0), query<PIECES>(w), odd, &last);
    if (puts && span.rows > 1) *out = before;
    if (puts) out[out_stride] = last;
    store_state<PIECES>(w, state, column, first, dk, dv);
}

static scan scan_of(const es_op_delta_scan *op)
{
    return {op->shape,
            es_cuda_floats(op->x),
            es_cuda_floats(op->gates),
            es_cuda_floats(op->state),
            es_cuda_floats(op->out),
            channels_of(&op->shape),
            op->shape.key_dim % 4 == 0 && op->shape.value_dim % 4 == 0 && (uintptr_t)es_cuda_floats(op->x) % 16 == 0};
}

/* Key dimensions up to 32, 128 and 256. The number of pieces decides the order of the sums: it depends on the dimension alone.
 */
void es_cuda_delta_scan(cudaStream_t stream, const es_cuda_batch *b, int32_t spans, const es_op_delta_scan *op)
{
    const es_delta_shape *s = &op->shape;
    const scan p = scan_of(op);
    const int wide = COLUMNS * GROUPS;
    const dim3 grid((unsigned)((s->value_dim + wide - 1) / wide), (unsigned)s->value_heads, (unsigned)spans);
    if (s->key_dim <= 32)
        es_launch(stream, grid, GROUPS * ES_GROUP, 0, scan_kernel<1>, *b, p);
    else if (s->key_dim <= 128)
        es_launch(stream, grid, GROUPS * ES_GROUP, 0, scan_kernel<4>, *b, p);
    else
        es_launch(stream, grid, GROUPS * ES_GROUP, 0, scan_kernel<8>, *b, p);
}

static __global__ void __launch_bounds__(HEAD_THREADS)
    finish_kernel(const float *x, const float *z, const float *w, float *out, int heads, int dim, float eps,
                  es_cuda_shade shadow)
{
    es_take_turn();
    __shared__ float room[HEAD_THREADS / ES_GROUP];
    const int64_t at = ((int64_t)blockIdx.x * heads + blockIdx.y) * dim;
    float sum = 0;
    for (int i = threadIdx.x; i < dim; i += HEAD_THREADS) sum = fmaf(x[at + i], x[at + i], sum);
    const float scale = 1.0f / sqrtf(es_block_sum(sum, room) / (float)dim + eps);
    for (int i = threadIdx.x; i < dim; i += HEAD_THREADS) {
        const float value = ((x[at + i] * scale) * w[i]) * es_silu(z[at + i]);
        if (out) out[at + i] = value;
        if (shadow.data) *es_shadow_at(shadow, blockIdx.x, (int64_t)blockIdx.y * dim + i) = es_to_bf16(value);
    }
}

/* The same of heads of HEAD_THREADS channels, one group of lanes each. */
static __global__ void __launch_bounds__(HEAD_THREADS)
    finish_rows_kernel(const float *x, const float *z, const float *w, float *out, int heads, int64_t all, float eps,
                       es_cuda_shade shadow)
{
    es_take_turn();
    constexpr int EACH = HEAD_THREADS / ES_GROUP;
    const int64_t head = (int64_t)blockIdx.x * EACH + threadIdx.x / ES_GROUP;
    const int lane = threadIdx.x % ES_GROUP;
    const bool there = head < all;
    float v[EACH], gate[EACH], square[EACH];
#pragma unroll
    for (int g = 0; g < EACH; g++) {
        const int64_t at = head * HEAD_THREADS + g * ES_GROUP + lane;
        v[g] = there ? x[at] : 0.0f, gate[g] = there ? z[at] : 0.0f;
        square[g] = fmaf(v[g], v[g], 0.0f);
    }
    const float scale = 1.0f / sqrtf(head_sum(square) / (float)HEAD_THREADS + eps);
    es_silu_all(gate);
#pragma unroll
    for (int g = 0; g < EACH && there; g++) {
        const int i = g * ES_GROUP + lane;
        const float value = ((v[g] * scale) * w[i]) * gate[g];
        if (out) out[head * HEAD_THREADS + i] = value;
        if (shadow.data) *es_shadow_at(shadow, head / heads, head % heads * HEAD_THREADS + i) = es_to_bf16(value);
    }
}

void es_cuda_delta_finish(cudaStream_t stream, int32_t rows, const es_op_delta_finish *op, es_cuda_shade shadow, bool bare)
{
    const es_delta_shape *s = &op->shape;
    const float *x = es_cuda_floats(op->x), *z = es_cuda_floats(op->z), *w = es_cuda_floats(op->weight);
    float *out = bare ? NULL : es_cuda_floats(op->out);
    const int64_t all = (int64_t)rows * s->value_heads, each = HEAD_THREADS / ES_GROUP;
    if (s->value_dim == HEAD_THREADS && rows >= MANY_ROWS)
        es_launch(stream, dim3((unsigned)((all + each - 1) / each)), HEAD_THREADS, 0, finish_rows_kernel, x, z, w, out,
                  s->value_heads, all, op->eps, shadow);
    else
        es_launch(stream, dim3((unsigned)rows, (unsigned)s->value_heads), HEAD_THREADS, 0, finish_kernel, x, z, w, out,
                  s->value_heads, s->value_dim, op->eps, shadow);
}

/* --- single tokens: everything at once --- */

enum { STEP_THREADS = 512, STEP_DIM = HEAD_THREADS, STEP_GROUPS = STEP_THREADS / ES_GROUP };

typedef struct step {
    prepare p;
    scan s;
    const float *z, *weight;
    float *out;
    float eps;
    es_cuda_shade shadow;
    unsigned *readers; /* [spans][key heads]: 0 between launches */
} step;

/* The sum over the four groups that hold a head's channels, from `first` on: es_block_sum() of a block of HEAD_THREADS. */
static __device__ __forceinline__ float room_sum(const float *room, int first)
{
    float sum = room[first];
#pragma unroll
    for (int g = 1; g < HEAD_THREADS / ES_GROUP; g++) sum = sum + room[first + g];
    return sum;
}

/* Channel of a thread: the first 128 threads have the query's, then the key's, then the value's; the last ones none. */
static __device__ __forceinline__ int64_t step_channel(const es_delta_shape *s, int head, int key_head, int kind, int i)
{
    const int64_t keys = (int64_t)s->key_heads * s->key_dim;
    return kind == 0 ? (int64_t)key_head * s->key_dim + i
         : kind == 1 ? keys + (int64_t)key_head * s->key_dim + i
                     : 2 * keys + (int64_t)head * s->value_dim + i;
}

/* One value head of one span: convolution, gates, the token's step of the recurrence, gated norm. The query and the key of a
 * key head are convolved by each of its value heads; whichever of those has read the convolution's state last moves it on. */
template <int PIECES> static __global__ void __launch_bounds__(STEP_THREADS) step_kernel(es_cuda_batch b, step a)
{
    __shared__ __align__(16) float q[4 * PIECES * PARTS], k[4 * PIECES * PARTS];
    __shared__ __align__(16) float v[STEP_DIM], o[STEP_DIM], gates[2], room[STEP_GROUPS];
    __shared__ bool last;
    const es_delta_shape *s = &a.p.shape;
    const int dk = s->key_dim, dv = s->value_dim, head = blockIdx.x, lane = threadIdx.x % ES_GROUP, part = lane / PAIRS;
    const int key_head = s->tiled ? head % s->key_heads : head / (s->value_heads / s->key_heads);
    const int mine = threadIdx.x / ES_GROUP * COLUMNS + lane % PAIRS * 2, first = part * 4 * PIECES;
    const int kind = threadIdx.x / STEP_DIM, i = threadIdx.x % STEP_DIM;
    es_lead();
    /* The batch and the state come from before this step: they need not wait for the kernel in front. */
    const es_cuda_span span = b.span[blockIdx.y];
    const bool has_channel = kind < 2 ? i < dk : kind == 2 && i < dv;
    float *state = a.s.state + (((int64_t)span.slot * s->value_heads + head) * dk) * dv + mine;
    walk<PIECES> w;
    load_state<PIECES>(&w, state, mine, first, dk, dv, span.start != 0);
    if (threadIdx.x < 4 * PIECES * PARTS && (int)threadIdx.x >= dk) q[threadIdx.x] = k[threadIdx.x] = 0;
    if (kind == 2 && i >= dv) v[i] = 0;
    es_follow();
    const int64_t row = span.first_row, c = step_channel(s, head, key_head, kind, i);
    float x1 = 0, x2 = 0, x3 = 0, y = 0;
    if (has_channel) {
        const float x0 = conv_input(&a.p, &span, -3, c);
        x1 = conv_input(&a.p, &span, -2, c), x2 = conv_input(&a.p, &span, -1, c), x3 = conv_input(&a.p, &span, 0, c);
        y = convolve(&a.p, c, x0, x1, x2, x3);
    }
    float sum = es_group_sum(fmaf(y, y, 0.0f));
    if (lane == 0) room[threadIdx.x / ES_GROUP] = sum;
    if (threadIdx.x == STEP_THREADS - 1) {
        gates[0] = es_exp(a.p.gain[head] * es_softplus(a.p.a[row * s->value_heads + head] + a.p.bias[head]));
        gates[1] = es_sigmoid(a.p.b[row * s->value_heads + head]);
    }
    __syncthreads(); /* all that this block reads of the convolution's state has been read */
    if (threadIdx.x == 0) {
        __threadfence();
        unsigned *read = a.readers + (int64_t)blockIdx.y * s->key_heads + key_head;
        last = atomicAdd(read, 1u) == (unsigned)(s->value_heads / s->key_heads) - 1;
        if (last) *read = 0;
    }
    if (kind < 2 && has_channel) {
        float scale;
        const float inverse = unit_scale(s, kind * s->key_heads, room_sum(room, kind * (HEAD_THREADS / ES_GROUP)), &scale);
        (kind == 0 ? q : k)[i] = (y * inverse) * scale;
    } else if (has_channel) {
        v[i] = y;
    }
    __syncthreads();
    if (has_channel && (kind == 2 || last)) keep_three(&a.p, &span, c, x1, x2, x3);
    float4 keys[PIECES];
#pragma unroll
    for (int j = 0; j < PIECES; j++) keys[j] = read4(k + first + 4 * j);
    one_token<PIECES>(&w, keys, make_float2(v[mine], v[mine + 1]), make_float2(gates[0], gates[1]), part % 2);
#pragma unroll
    for (int j = 0; j < PIECES; j++) w.q[j] = read4(q + first + 4 * j);
    float unused;
    const float2 result = add_parts(query<PIECES>(w), make_float2(0, 0), part % 2, &unused);
    if (part == 0) o[mine] = result.x, o[mine + 1] = result.y;
    store_state<PIECES>(w, state, mine, first, dk, dv);
    __syncthreads();
    const float x = (int)threadIdx.x < dv ? o[threadIdx.x] : 0.0f;
    sum = es_group_sum(fmaf(x, x, 0.0f));
    if (lane == 0 && threadIdx.x < HEAD_THREADS) room[threadIdx.x / ES_GROUP] = sum;
    __syncthreads();
    if ((int)threadIdx.x >= dv) return;
    const float scale = 1.0f / sqrtf(room_sum(room, 0) / (float)dv + a.eps);
    const int64_t at = (row * s->value_heads + head) * dv + threadIdx.x;
    const float value = ((x * scale) * a.weight[threadIdx.x]) * es_silu(a.z[at]);
    a.out[at] = value;
    if (a.shadow.data) *es_shadow_at(a.shadow, row, (int64_t)head * dv + threadIdx.x) = es_to_bf16(value);
}

bool es_cuda_delta_can_step(const es_delta_shape *s)
{
    return s->key_dim <= STEP_DIM && s->value_dim <= STEP_DIM;
}

size_t es_cuda_delta_step_room(const es_delta_shape *s, int32_t spans)
{
    return (size_t)spans * (size_t)s->key_heads * sizeof(unsigned);
}

void es_cuda_delta_step(cudaStream_t stream, const es_cuda_batch *b, int32_t spans, const es_op_delta_prepare *before,
                        const es_op_delta_scan *op, const es_op_delta_finish *after, es_cuda_shade shadow, void *room)
{
    const step a = {prepare_of(before),
                    scan_of(op),
                    es_cuda_floats(after->z),
                    es_cuda_floats(after->weight),
                    es_cuda_floats(after->out),
                    after->eps,
                    shadow,
                    (unsigned *)room};
    const dim3 grid((unsigned)op->shape.value_heads, (unsigned)spans);
    if (op->shape.key_dim <= 32)
        es_launch(stream, grid, STEP_THREADS, 0, step_kernel<1>, *b, a);
    else
        es_launch(stream, grid, STEP_THREADS, 0, step_kernel<4>, *b, a);
}
