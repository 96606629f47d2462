/* delta.cu: Gated DeltaNet: convolution and gates, the recurrence over the state, and the gated norm.
 *
 * The recurrence is the canonical one, token by token. A thread keeps its part of the state in registers across all tokens of
 * a span (delta_state.cuh); what it needs of the tokens comes through a ring in shared memory. 128 columns of 32 heads are 512
 * groups of 32 lanes, about as many as there are schedulers: so a token takes as long as the chain of its sums, and results are
 * added up beside it. A step of single tokens does all of it in one launch, with the same sums in the same order. */
#include "device/cuda/delta_state.cuh"

/* From MANY_ROWS rows on there is enough to do for groups of lanes that take HEAD_ROWS rows each. */
enum { MANY_ROWS = 64, HEAD_ROWS = 8 };
enum { HEAD_THREADS = 128, MOST_HEAD = 1024 };

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
static __device__ __forceinline__ float add_taps(const float (&w)[ES_CONV_TAPS], float x0, float x1, float x2, float x3)
{
    float v = w[0] * x0;
    v = fmaf(w[1], x1, v);
    v = fmaf(w[2], x2, v);
    return fmaf(w[3], x3, v);
}

static __device__ __forceinline__ void read_taps(const prepare *p, int64_t c, float (&w)[ES_CONV_TAPS])
{
#pragma unroll
    for (int i = 0; i < ES_CONV_TAPS; i++) w[i] = p->conv[i * p->channels + c];
}

static __device__ __forceinline__ float convolve(const prepare *p, int64_t c, float x0, float x1, float x2, float x3)
{
    float w[ES_CONV_TAPS];
    read_taps(p, c, w);
    return es_silu(add_taps(w, x0, x1, x2, x3));
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
static __device__ __forceinline__ float unit_length(float sum)
{
    return 1.0f / sqrtf(sum + 1e-6f);
}

static __device__ __forceinline__ float unit_scale(const es_delta_shape *s, int head)
{
    return head < s->key_heads ? 1.0f / sqrtf((float)s->key_dim) : 1.0f;
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
        const float inverse = unit_length(es_block_sum(sum, room)), scale = unit_scale(s, h);
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
    constexpr int EACH = HEAD_THREADS / ES_GROUP;
    const es_delta_shape *s = &p.shape;
    const int lane = threadIdx.x % ES_GROUP, row0 = blockIdx.x * HEAD_ROWS, end = min(row0 + HEAD_ROWS, rows);
    const int own = blockIdx.y * EACH + threadIdx.x / ES_GROUP, heads = 2 * s->key_heads + s->value_heads, h = min(own, heads - 1);
    const bool there = own < heads, unit = h < 2 * s->key_heads;
    const int64_t c0 = (int64_t)h * HEAD_THREADS + lane, first = row0 * p.channels + c0;
    const float scale = unit_scale(s, h), *x = p.x + first;
    float x0[EACH], x1[EACH], x2[EACH], next[EACH], w[EACH][ES_CONV_TAPS], *out = p.out + first;
    es_lead();
#pragma unroll
    for (int g = 0; g < EACH; g++) read_taps(&p, c0 + g * ES_GROUP, w[g]);
    es_follow();
#pragma unroll
    for (int g = 0; g < EACH; g++) next[g] = x[g * ES_GROUP]; /* the next row's inputs are on their way */
    const int begins = b.span[b.row_span[min(row0 + lane % HEAD_ROWS, rows - 1)]].first_row; /* the span of a row for each lane */
    for (int row = row0; row < end; row++, out += p.channels) {
        const int t = row - __shfl_sync(ES_ALL_LANES, begins, row - row0, ES_GROUP);
        float v[EACH];
        if (row == row0 || t == 0) {
            const es_cuda_span span = b.span[b.row_span[row]];
#pragma unroll
            for (int g = 0; g < EACH; g++) {
                const int64_t c = c0 + g * ES_GROUP;
                x0[g] = conv_input(&p, &span, t - 3, c), x1[g] = conv_input(&p, &span, t - 2, c);
                x2[g] = conv_input(&p, &span, t - 1, c);
                if (there && span.rows == 1) keep_three(&p, &span, c, x1[g], x2[g], next[g]);
            }
        }
        x += p.channels;
#pragma unroll
        for (int g = 0; g < EACH; g++) {
            const float x3 = next[g];
            if (row + 1 < end) next[g] = x[g * ES_GROUP];
            v[g] = add_taps(w[g], x0[g], x1[g], x2[g], x3);
            x0[g] = x1[g], x1[g] = x2[g], x2[g] = x3;
        }
        es_silu_all(v);
        if (unit || ES_WARP > ES_GROUP) { /* groups of a warp stay together */
            float square[EACH];
#pragma unroll
            for (int g = 0; g < EACH; g++) square[g] = fmaf(v[g], v[g], 0.0f);
            const float inverse = unit_length(head_sum(square));
#pragma unroll
            for (int g = 0; g < EACH; g++) v[g] = unit ? (v[g] * inverse) * scale : v[g];
        }
#pragma unroll
        for (int g = 0; g < EACH && there; g++) out[g * ES_GROUP] = v[g];
    }
    if (there && !unit && lane < end - row0) put_gates(&p, row0 + lane, h - 2 * s->key_heads);
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

/* All that departed but the last batch. */
static __device__ __forceinline__ void arrive(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

/* What a block needs of one token. */
template <int PIECES> struct record {
    float q[4 * PIECES * PARTS], k[4 * PIECES * PARTS], v[COLUMNS * GROUPS], gates[2], unused[2];
};

/* Tokens on their way: a ring of four chunks. While one is worked on the next is there and those behind it are coming. */
template <int PIECES> struct ring {
    static constexpr int AHEAD = PIECES > 4 ? 4 : 8, TOKENS = 4 * AHEAD, BEHIND = 3 * AHEAD, DK = 4 * PIECES * PARTS;
    static constexpr int RECORD = sizeof(record<PIECES>) / sizeof(float);
};

/* Which columns of which head a block has, and how it gets what it needs of the tokens. */
template <int PIECES> struct supply {
    const scan *p;
    const es_cuda_span *span;
    record<PIECES> *room;
    int head, key_head, column0;
    /* What a thread brings of every chunk, where all dimensions are whole: four channels of some tokens' queries or keys, four of one
     * token's values, one of a token's gates. Counted up from chunk to chunk, it costs next to nothing. */
    bool whole;
    const float *keys, *values, *gates;
    int keys_to, values_to, gates_to; /* floats from the beginning of a chunk; −1: none */
};

/* WIDTH floats at a time: four where every row begins at a multiple of 16 bytes. A thread brings the same piece of each token. */
template <int PIECES, int WIDTH> static __device__ __forceinline__ void bring_rows(const supply<PIECES> *f, int t0, record<PIECES> *chunk)
{
    constexpr int AHEAD = ring<PIECES>::AHEAD, DK = ring<PIECES>::DK;
    const scan *p = f->p;
    const es_delta_shape *s = &p->shape;
    const int dk = s->key_dim, columns = min(COLUMNS * GROUPS, s->value_dim - f->column0);
    const int tokens = min(AHEAD, f->span->rows - t0), of_keys = dk / WIDTH, all = 2 * of_keys + columns / WIDTH;
    const float *row = p->x + (f->span->first_row + (int64_t)t0) * p->channels;
    for (int i = threadIdx.x; i < all; i += GROUPS * ES_GROUP) {
        const int kind = min(i / of_keys, 2), at = (i - kind * of_keys) * WIDTH; /* query, key, value */
        const int64_t keys = (int64_t)s->key_heads * dk;
        const float *from = row + at + (kind < 2 ? kind * keys + (int64_t)f->key_head * dk
                                                 : 2 * keys + (int64_t)f->head * s->value_dim + f->column0);
        float *to = chunk->q + kind * DK + at;
#pragma unroll
        for (int token = 0; token < AHEAD; token++)
            if (token < tokens) bring<4 * WIDTH>(to + token * ring<PIECES>::RECORD, from + token * p->channels);
    }
    const int token = threadIdx.x / 2 % AHEAD, which = threadIdx.x % 2;
    const int64_t gate = ((f->span->first_row + t0 + (int64_t)token) * s->value_heads + f->head) * 2 + which;
    if (threadIdx.x < 2 * AHEAD && token < tokens) bring<4>(&chunk[token].gates[which], p->gates + gate);
}

template <int PIECES> static __device__ __forceinline__ void plan_errands(supply<PIECES> *f)
{
    constexpr int DK = ring<PIECES>::DK, AHEAD = ring<PIECES>::AHEAD, RECORD = ring<PIECES>::RECORD;
    constexpr int EACH = AHEAD * DK / 2 / (GROUPS * ES_GROUP), FOURS = COLUMNS * GROUPS / 4;
    const scan *p = f->p;
    const es_delta_shape *s = &p->shape;
    const int i = threadIdx.x, piece = i % (DK / 2), token = i / (DK / 2) * EACH, gate = i - AHEAD * FOURS;
    const int key = piece / (DK / 4), channel = piece % (DK / 4) * 4;
    const int64_t row = f->span->first_row, keys = (int64_t)s->key_heads * DK;
    f->keys = p->x + (row + token) * p->channels + key * keys + f->key_head * DK + channel;
    f->keys_to = token * RECORD + key * DK + channel;
    f->values =
        p->x + (row + i / FOURS) * p->channels + 2 * keys + (int64_t)f->head * s->value_dim + f->column0 + i % FOURS * 4;
    f->values_to = i < AHEAD * FOURS ? i / FOURS * RECORD + 2 * DK + i % FOURS * 4 : -1;
    f->gates = p->gates + ((row + gate / 2) * s->value_heads + f->head) * 2 + gate % 2;
    f->gates_to = gate >= 0 && gate < 2 * AHEAD ? gate / 2 * RECORD + 2 * DK + 4 * FOURS + gate % 2 : -1;
}

template <int PIECES> static __device__ __forceinline__ void run_errands(supply<PIECES> *f, record<PIECES> *chunk)
{
    constexpr int AHEAD = ring<PIECES>::AHEAD, EACH = AHEAD * ring<PIECES>::DK / 2 / (GROUPS * ES_GROUP);
    float *to = chunk->q;
    const float *from = f->keys;
#pragma unroll
    for (int token = 0; token < EACH; token++, from += f->p->channels)
        bring<16>(to + f->keys_to + token * ring<PIECES>::RECORD, from);
    if (f->values_to >= 0) bring<16>(to + f->values_to, f->values);
    if (f->gates_to >= 0) bring<4>(to + f->gates_to, f->gates);
    f->keys += AHEAD * f->p->channels, f->values += AHEAD * f->p->channels;
    f->gates += 2 * AHEAD * f->p->shape.value_heads;
}

/* The next chunk, from token t0 on, sets out. */
template <int PIECES> static __device__ __forceinline__ void bring_chunk(supply<PIECES> *f, int t0)
{
    record<PIECES> *chunk = f->room + t0 % ring<PIECES>::TOKENS;
    if (f->whole && t0 + ring<PIECES>::AHEAD <= f->span->rows)
        run_errands<PIECES>(f, chunk);
    else if (f->p->fours)
        bring_rows<PIECES, 4>(f, t0, chunk);
    else
        bring_rows<PIECES, 1>(f, t0, chunk);
    depart();
}

/* At the beginning of a chunk: it and the next one are there for all, nobody reads the one before any more, and its place is
 * filled. */
template <int PIECES> static __device__ __forceinline__ void turn_ring(supply<PIECES> *f, int t)
{
    arrive();
    __syncthreads();
    bring_chunk<PIECES>(f, t + ring<PIECES>::BEHIND);
}

/* Past the key dimension queries and keys are zero. */
template <int PIECES> static __device__ __forceinline__ void clear_rest(record<PIECES> *room, int dk)
{
    constexpr int DK = ring<PIECES>::DK;
    for (int i = threadIdx.x; dk < DK && i < ring<PIECES>::TOKENS * 2 * DK; i += GROUPS * ES_GROUP) {
        const int d = i % DK, kind = i / DK % 2;
        if (d >= dk) room[i / DK / 2].q[kind * DK + d] = 0;
    }
}

/* What a token needs besides its query. */
template <int PIECES> struct token {
    float4 k[PIECES];
    float2 v, gates;
};

template <int PIECES>
static __device__ __forceinline__ void read_token(const record<PIECES> *from, int part, int mine, token<PIECES> *t)
{
    read_part<PIECES>(from->k, part, t->k);
    t->v = *(const float2 *)(const void *)(from->v + mine);
    t->gates = *(const float2 *)(const void *)from->gates;
}

/* What a thread has while it walks the tokens. */
template <int PIECES> struct walk {
    column<PIECES> c[2];
    token<PIECES> now;  /* the next token */
    float4 q[PIECES];   /* the query of the one before */
    float sum;          /* of the first column: this part of the next token's Sᵀk */
    int part, mine;
    bool odd, late;     /* which results are this lane's: see add_four() */
};

/* δ = β(v − Sᵀk);  S ← e^g·S + k⊗δ. Returns the parts of Sᵀq of the token before, whose query is `q`. While the lanes tell
 * each other one column's sums there is the other one to work on, and the first column's next token. */
template <int PIECES>
static __device__ __forceinline__ float2 one_token(walk<PIECES> *w, const token<PIECES> &now, const token<PIECES> &next,
                                                   const float4 (&q)[PIECES])
{
    float2 before;
    const float first = add_parts(w->sum), parts = fade<PIECES>(&w->c[1], now.gates.x, now.k);
    before.x = query<PIECES>(w->c[0], q);
    const float second = add_parts(parts);
    learn<PIECES>(&w->c[0], now.k, now.gates.y * (now.v.x - first));
    before.y = query<PIECES>(w->c[1], q);
    w->sum = fade<PIECES>(&w->c[0], next.gates.x, next.k);
    learn<PIECES>(&w->c[1], now.k, now.gates.y * (now.v.y - second));
    return before;
}

/* Two tokens from record `r` on; `then` is the next one's. Returns a result of the token before or of the first, which are added up
 * together. */
template <int PIECES>
static __device__ __forceinline__ float two_tokens(walk<PIECES> *w, const record<PIECES> *r, const record<PIECES> *then)
{
    token<PIECES> next;
    float4 q[PIECES];
    read_token<PIECES>(r + 1, w->part, w->mine, &next);
    read_part<PIECES>(r->q, w->part, q);
    const float2 earlier = one_token<PIECES>(w, w->now, next, w->q);
    read_token<PIECES>(then, w->part, w->mine, &w->now); /* perhaps there is none */
    read_part<PIECES>((r + 1)->q, w->part, w->q);
    const float2 later = one_token<PIECES>(w, next, w->now, q);
    return add_four(earlier, later, w->odd, w->late);
}

template <int PIECES> static __global__ void __launch_bounds__(GROUPS *ES_GROUP, 1) scan_kernel(es_cuda_batch b, scan p)
{
    constexpr int TOKENS = ring<PIECES>::TOKENS, AHEAD = ring<PIECES>::AHEAD;
    __shared__ __align__(16) record<PIECES> room[TOKENS];
    const es_delta_shape *s = &p.shape;
    const int dk = s->key_dim, dv = s->value_dim, head = blockIdx.y, column0 = blockIdx.x * GROUPS * COLUMNS;
    const int key_head = s->tiled ? head % s->key_heads : head / (s->value_heads / s->key_heads);
    es_lead();
    clear_rest<PIECES>(room, dk);
    es_follow();
    const es_cuda_span span = b.span[blockIdx.z];
    supply<PIECES> from = {&p, &span, room, head, key_head, column0};
    from.whole = p.fours && dk == ring<PIECES>::DK && column0 + COLUMNS * GROUPS <= dv && ES_GROUP * GROUPS == 128;
    plan_errands<PIECES>(&from);
    for (int t = 0; t < ring<PIECES>::BEHIND; t += AHEAD) bring_chunk<PIECES>(&from, t);

    const int lane = threadIdx.x % ES_GROUP, part = lane / PAIRS, first = part * 4 * PIECES;
    const int mine = threadIdx.x / ES_GROUP * COLUMNS + lane % PAIRS * 2, own = column0 + mine; /* a pair of columns */
    float *state = p.state + ((int64_t)span.slot * s->value_heads + head) * dk * dv + own;
    walk<PIECES> w = {.q = {}, .part = part, .mine = mine, .odd = part % 2 != 0, .late = part / 2 % 2 != 0};
    load_state<PIECES>(w.c, state, own, first, dk, dv, span.start != 0);
    const bool puts = part < 4 && own + w.odd < dv;
    const int64_t out_stride = (int64_t)s->value_heads * dv;
    float *out = p.out + (span.first_row - 1 + (int64_t)w.late) * out_stride + (int64_t)head * dv + own + w.odd;
    turn_ring<PIECES>(&from, 0);
    read_token<PIECES>(room, part, mine, &w.now);
    w.sum = fade<PIECES>(&w.c[0], w.now.gates.x, w.now.k);
    int t = 0;
    for (; t + AHEAD <= span.rows; t += AHEAD) { /* whole chunks in one piece: to jump costs twenty cycles */
        if (t > 0) turn_ring<PIECES>(&from, t);
        const record<PIECES> *r = room + t % TOKENS, *then = room + (t + AHEAD) % TOKENS;
#pragma unroll
        for (int i = 0; i < AHEAD; i += 2, out += 2 * out_stride) {
            const float result = two_tokens<PIECES>(&w, r + i, i + 2 < AHEAD ? r + i + 2 : then);
            if (puts && t + i + w.late > 0) *out = result;
        }
    }
    if (t > 0 && t + 1 < span.rows) turn_ring<PIECES>(&from, t);
    for (; t + 1 < span.rows; t += 2, out += 2 * out_stride) {
        const float result = two_tokens<PIECES>(&w, room + t % TOKENS, room + (t + 2) % TOKENS);
        if (puts && t + w.late > 0) *out = result;
    }
    const bool last = t < span.rows; /* an odd one */
    float2 before = make_float2(0, 0);
    if (last) {
        before = one_token<PIECES>(&w, w.now, w.now, w.q);
        read_part<PIECES>(room[t % TOKENS].q, part, w.q);
    }
    const float2 end = make_float2(query<PIECES>(w.c[0], w.q), query<PIECES>(w.c[1], w.q));
    const float result = last ? add_four(before, end, w.odd, w.late) : add_four(end, before, w.odd, w.late);
    if (puts && t + w.late > 0 && (last || !w.late)) *out = result;
    store_state<PIECES>(w.c, state, own, first, dk, dv);
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
    finish_rows_kernel(const float *x, const float *z, const float *w, float *out, int heads, int all, float eps,
                       es_cuda_shade shadow)
{
    constexpr int EACH = HEAD_THREADS / ES_GROUP;
    const int head = blockIdx.x * EACH + threadIdx.x / ES_GROUP, lane = threadIdx.x % ES_GROUP, row = head / heads;
    const bool there = head < all;
    const int64_t at = (int64_t)head * HEAD_THREADS + lane;
    float v[EACH], gate[EACH], square[EACH], weight[EACH];
    es_lead();
#pragma unroll
    for (int g = 0; g < EACH; g++) weight[g] = w[g * ES_GROUP + lane];
    es_follow();
#pragma unroll
    for (int g = 0; g < EACH; g++) {
        v[g] = there ? x[at + g * ES_GROUP] : 0.0f, gate[g] = there ? z[at + g * ES_GROUP] : 0.0f;
        square[g] = fmaf(v[g], v[g], 0.0f);
    }
    const float scale = 1.0f / sqrtf(head_sum(square) / (float)HEAD_THREADS + eps);
    es_silu_all(gate);
    uint16_t *to = shadow.data ? es_shadow_at(shadow, row, (int64_t)(head - row * heads) * HEAD_THREADS + lane) : NULL;
#pragma unroll
    for (int g = 0; g < EACH && there; g++) {
        const float value = ((v[g] * scale) * weight[g]) * gate[g];
        if (out) out[at + g * ES_GROUP] = value;
        if (to) to[g * ES_SHADOW_GROUP] = es_to_bf16(value); /* a group's columns are turned in itself */
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
                  s->value_heads, (int)all, op->eps, shadow);
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
    float *state = a.s.state + ((int64_t)span.slot * s->value_heads + head) * dk * dv + mine;
    column<PIECES> col[2];
    load_state<PIECES>(col, state, mine, first, dk, dv, span.start != 0);
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
        const float inverse = unit_length(room_sum(room, kind * (HEAD_THREADS / ES_GROUP)));
        const float scale = unit_scale(s, kind * s->key_heads);
        (kind == 0 ? q : k)[i] = (y * inverse) * scale;
    } else if (has_channel) {
        v[i] = y;
    }
    __syncthreads();
    if (has_channel && (kind == 2 || last)) keep_three(&a.p, &span, c, x1, x2, x3);
    float4 keys[PIECES], queries[PIECES];
    read_part<PIECES>(k, part, keys);
    read_part<PIECES>(q, part, queries);
    const float parts[2] = {fade<PIECES>(&col[0], gates[0], keys), fade<PIECES>(&col[1], gates[0], keys)};
    const float predicted[2] = {add_parts(parts[0]), add_parts(parts[1])};
    learn<PIECES>(&col[0], keys, gates[1] * (v[mine] - predicted[0]));
    learn<PIECES>(&col[1], keys, gates[1] * (v[mine + 1] - predicted[1]));
    const float2 result = make_float2(add_parts(query<PIECES>(col[0], queries)), add_parts(query<PIECES>(col[1], queries)));
    if (part == 0) o[mine] = result.x, o[mine + 1] = result.y;
    store_state<PIECES>(col, state, mine, first, dk, dv);
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
