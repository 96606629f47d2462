/* kernels_body.h: the vector kernels of numeric mode f32, written once over sixteen lanes.
 *
 * Included by kernels_avx2.c and kernels_avx512.c after their vector header, so that both instruction sets run the same
 * steps in the same order: the steps of ref/kernels_ref.c. What differs is how many accumulators a block keeps in registers,
 * which no sum can see: every output has its own accumulator from its first element to its last. */
#include "base/half.h"
#include "device/cpu/kernels.h"
#include "device/cpu/math.h"
#include "device/cpu/x86/attn_f32_body.h"
#include "device/cpu/x86/exp_body.h"

#define INLINE static inline __attribute__((always_inline))

INLINE v16 v_one_plus_exp_minus(v16 x)
{
    return v_add(v_set(1.0f), v_exp(v_sub(v_set(0.0f), x)));
}

INLINE v16 v_silu(v16 x)
{
    return v_div(x, v_one_plus_exp_minus(x));
}

/* The lanes i … i+15 of an array of n: whole where it is whole. */
INLINE v16 v_at(const float *p, int64_t i, int64_t n)
{
    return n - i >= ES_LANES ? v_load(p + i) : v_load_part(p + i, (int)(n - i));
}

INLINE void v_put(float *p, int64_t i, int64_t n, v16 a)
{
    if (n - i >= ES_LANES)
        v_store(p + i, a);
    else
        v_store_part(p + i, a, (int)(n - i));
}

/* R weight rows by T tokens; R and T are constants after inlining, so `sum` lives in registers. */
INLINE void dot_block(const es_dot_tile *tile, int32_t row, int32_t token, const int R, const int T)
{
    const float *w = tile->w + row * tile->w_stride, *x[DOT_MOST_TOKENS];
    float *lanes = tile->lanes + (token * ES_DOT_ROWS + row) * ES_LANES;
    const int begun = tile->first ? 0 : ES_LANES; /* no branch: nothing is loaded, or all of it */
    v16 sum[DOT_MOST_ROWS][DOT_MOST_TOKENS];
    for (int t = 0; t < T; t++) x[t] = tile->x[token + t] + tile->x_offset;
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            sum[r][t] = v_load_part(lanes + (t * ES_DOT_ROWS + r) * ES_LANES, begun);
    int32_t i = 0;
    for (; i + ES_LANES <= tile->columns; i += ES_LANES) {
        v16 xs[DOT_MOST_TOKENS];
        for (int t = 0; t < T; t++) xs[t] = v_load(x[t] + i);
        for (int r = 0; r < R; r++) {
            const v16 ws = v_load(w + r * tile->w_stride + i);
            for (int t = 0; t < T; t++) sum[r][t] = v_fma(ws, xs[t], sum[r][t]);
        }
    }
    const int rest = tile->columns - i;
    for (int r = 0; r < R && rest; r++)
        for (int t = 0; t < T; t++)
            sum[r][t] = v_fma(v_load_part(w + r * tile->w_stride + i, rest), v_load_part(x[t] + i, rest), sum[r][t]);
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) v_store(lanes + (t * ES_DOT_ROWS + r) * ES_LANES, sum[r][t]);
}

/* All rows by T tokens: as many rows at once as there are registers for, so that enough sums are under way. */
INLINE void dot_tokens(const es_dot_tile *tile, int32_t token, const int R, const int T)
{
    int32_t row = 0;
    for (; row + R <= tile->rows; row += R) dot_block(tile, row, token, R, T);
    for (; row < tile->rows; row++) dot_block(tile, row, token, 1, T);
}

/* Token blocks outside, weight rows inside: a block of tokens stays in the first-level cache. */
static void dot(const es_dot_tile *tile)
{
    int32_t t = 0;
    for (; t + DOT_MOST_TOKENS <= tile->tokens; t += DOT_MOST_TOKENS)
        dot_tokens(tile, t, DOT_ROWS_FOR(DOT_MOST_TOKENS), DOT_MOST_TOKENS);
    switch (tile->tokens - t) {
    case 1: dot_tokens(tile, t, DOT_ROWS_FOR(1), 1); break;
#if DOT_MOST_TOKENS > 2
    case 2: dot_tokens(tile, t, DOT_ROWS_FOR(2), 2); break;
    case 3: dot_tokens(tile, t, DOT_ROWS_FOR(3), 3); break;
    case 4: dot_tokens(tile, t, DOT_ROWS_FOR(4), 4); break;
    case 5: dot_tokens(tile, t, DOT_ROWS_FOR(5), 5); break;
#endif
    default: break;
    }
}

static void fold(const float *lanes, int32_t rows, int32_t tokens, float *out)
{
    for (int32_t t = 0; t < tokens; t++) {
        const float *from = lanes + t * ES_DOT_ROWS * ES_LANES;
        if (rows == ES_DOT_ROWS)
            v_fold_16(from, out + t * ES_DOT_ROWS);
        else
            for (int32_t r = 0; r < rows; r++) out[t * ES_DOT_ROWS + r] = v_fold(v_load(from + r * ES_LANES));
    }
}

INLINE float sum_of_squares(const float *x, int64_t n)
{
    v16 sum = v_set(0.0f);
    for (int64_t i = 0; i < n; i += ES_LANES) {
        const v16 a = v_at(x, i, n);
        sum = v_fma(a, a, sum);
    }
    return v_fold(sum);
}

static void rmsnorm(const float *x, const float *w, float *out, int32_t n, float eps)
{
    const v16 scale = v_set(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    for (int32_t i = 0; i < n; i += ES_LANES) v_put(out, i, n, v_mul(v_mul(v_at(x, i, n), scale), v_at(w, i, n)));
}

static void unit_length(const float *x, float *out, int32_t n, float eps, float scale)
{
    const v16 inverse = v_set(1.0f / sqrtf(sum_of_squares(x, n) + eps));
    for (int32_t i = 0; i < n; i += ES_LANES) v_put(out, i, n, v_mul(v_mul(v_at(x, i, n), inverse), v_set(scale)));
}

static void gated_norm(const float *x, const float *w, const float *z, float *out, int32_t n, float eps)
{
    const v16 scale = v_set(1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps));
    for (int32_t i = 0; i < n; i += ES_LANES)
        v_put(out, i, n, v_mul(v_mul(v_mul(v_at(x, i, n), scale), v_at(w, i, n)), v_silu(v_at(z, i, n))));
}

static void swiglu(const float *gate, const float *up, float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i += ES_LANES) v_put(out, i, n, v_mul(v_silu(v_at(gate, i, n)), v_at(up, i, n)));
}

static void axpy(float a, const float *x, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i += ES_LANES) v_put(y, i, n, v_fma(v_set(a), v_at(x, i, n), v_at(y, i, n)));
}

static void scale_gate(const float *x, float a, const float *gate, float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i += ES_LANES) {
        v16 y = v_mul(v_at(x, i, n), v_set(a));
        if (gate) y = v_mul(y, v_div(v_set(1.0f), v_one_plus_exp_minus(v_at(gate, i, n))));
        v_put(out, i, n, y);
    }
}

static void conv_silu(const float *x0, const float *x1, const float *x2, const float *x3, const float *w, int64_t w_stride,
                      float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i += ES_LANES) {
        v16 sum = v_mul(v_at(w, i, n), v_at(x0, i, n));
        sum = v_fma(v_at(w + w_stride, i, n), v_at(x1, i, n), sum);
        sum = v_fma(v_at(w + 2 * w_stride, i, n), v_at(x2, i, n), sum);
        sum = v_fma(v_at(w + 3 * w_stride, i, n), v_at(x3, i, n), sum);
        v_put(out, i, n, v_silu(sum));
    }
}

/* To binary16; what is past its largest number is that. A NaN is the second operand, which min and max then give. */
static void encode_f16(const float *x, uint16_t *out, int32_t n)
{
    const v16 most = v_set(ES_HALF_MOST), least = v_set(-ES_HALF_MOST);
    for (int32_t i = 0; i < n; i += ES_LANES) {
        const v16 kept = v_max(least, v_min(most, v_at(x, i, n)));
        if (n - i >= ES_LANES) {
            v_store_half(out + i, kept);
        } else {
            uint16_t last[ES_LANES];
            v_store_half(last, kept);
            memcpy(out + i, last, (size_t)(n - i) * sizeof *out);
        }
    }
}

static void attn_merge(float *m, float *l, float *o, float m2, float l2, const float *o2, int32_t n)
{
    if (m2 == -INFINITY) return;
    if (*m == -INFINITY) {
        *m = m2, *l = l2;
        memcpy(o, o2, (size_t)n * sizeof *o);
        return;
    }
    const float most = *m > m2 ? *m : m2;
    const float a = es_exp(*m - most), b = es_exp(m2 - most);
    *m = most;
    *l = fmaf(b, l2, a * *l);
    for (int32_t i = 0; i < n; i += ES_LANES)
        v_put(o, i, n, v_fma(v_set(b), v_at(o2, i, n), v_mul(v_set(a), v_at(o, i, n))));
}

/* One row, its state worked on where it is. */
INLINE void delta_row(const es_delta_tile *tile, int32_t t, int32_t column, const int C)
{
    const float *q = tile->q + t * tile->x_stride, *k = tile->k + t * tile->x_stride;
    const float *v = tile->v + t * tile->x_stride + column;
    const v16 decay = v_set(tile->gates[t * tile->gate_stride]), beta = v_set(tile->gates[t * tile->gate_stride + 1]);
    v16 predicted[4], delta[4], out[4];
    for (int c = 0; c < C; c++) predicted[c] = out[c] = v_set(0.0f);
    for (int32_t i = 0; i < tile->key_dim; i++)
        for (int c = 0; c < C; c++)
            predicted[c] = v_fma(v_mul(decay, v_load(tile->state + i * tile->state_stride + column + c * ES_LANES)), v_set(k[i]), predicted[c]);
    for (int c = 0; c < C; c++) delta[c] = v_mul(beta, v_sub(v_load(v + c * ES_LANES), predicted[c]));
    /* The state is in the cache by now: memory has time for the next tile's. */
    for (int32_t i = 0; i < tile->key_dim; i++)
        for (int c = 0; c < C; c++) {
            float *cell = tile->state + i * tile->state_stride + column + c * ES_LANES;
            if (tile->next) __builtin_prefetch(tile->next + (cell - tile->state), 0, 2);
            const v16 now = v_fma(v_set(k[i]), delta[c], v_mul(decay, v_load(cell)));
            v_store(cell, now);
            out[c] = v_fma(now, v_set(q[i]), out[c]);
        }
    for (int c = 0; c < C; c++) v_store(tile->out + t * tile->out_stride + column + c * ES_LANES, out[c]);
}

/* Rows of q, k and v lie kilobytes apart, and no prefetcher of the machine foresees the next page. */
INLINE void fetch_delta_row(const es_delta_tile *tile, int32_t t, int32_t column, const int C)
{
    if (t >= tile->rows) return;
    const int64_t at = t * tile->x_stride;
    for (int32_t i = 0; i < tile->key_dim; i += 16) {
        __builtin_prefetch(tile->q + at + i);
        __builtin_prefetch(tile->k + at + i);
    }
    for (int i = 0; i < C * ES_LANES; i += 16) __builtin_prefetch(tile->v + at + column + i);
}

/* Row t's second half, and the next row's first half in the same pass: `scratch` holds the state that t's decay has been applied to
 * and is left with the next row's applied, whose prediction comes with it. The last row leaves its state in the tile. */
INLINE void delta_step(const es_delta_tile *tile, int32_t t, int32_t column, float *scratch, v16 *predicted, const bool last, const int C)
{
    const float *q = tile->q + t * tile->x_stride, *k = tile->k + t * tile->x_stride;
    const float *v = tile->v + t * tile->x_stride + column, *gate = tile->gates + t * tile->gate_stride;
    const float *next_k = last ? k : k + tile->x_stride;
    const v16 beta = v_set(gate[1]), next_decay = last ? beta : v_set(gate[tile->gate_stride]);
    v16 delta[4], out[4], next[4];
    fetch_delta_row(tile, t + 3, column, C);
    for (int c = 0; c < C; c++) {
        delta[c] = v_mul(beta, v_sub(v_load(v + c * ES_LANES), predicted[c]));
        out[c] = next[c] = v_set(0.0f);
    }
    for (int32_t i = 0; i < tile->key_dim; i++)
        for (int c = 0; c < C; c++) {
            float *cell = scratch + (i * C + c) * ES_LANES;
            const v16 now = v_fma(v_set(k[i]), delta[c], v_load(cell));
            out[c] = v_fma(now, v_set(q[i]), out[c]);
            if (last) {
                v_store(tile->state + i * tile->state_stride + column + c * ES_LANES, now);
                continue;
            }
            const v16 decayed = v_mul(next_decay, now);
            v_store(cell, decayed);
            next[c] = v_fma(decayed, v_set(next_k[i]), next[c]);
        }
    for (int c = 0; c < C; c++) {
        v_store(tile->out + t * tile->out_stride + column + c * ES_LANES, out[c]);
        predicted[c] = next[c];
    }
}

/* C vectors of columns, whose state stays in the first-level cache for all rows; each column walks the key channels in
 * order. `scratch` is [key_dim][C · 16]; for a row or two the copy is not worth it. */
INLINE void delta_columns(const es_delta_tile *tile, int32_t column, float *scratch, const int C)
{
    if (tile->rows <= 2 && !tile->fresh) {
        for (int32_t t = 0; t < tile->rows; t++) delta_row(tile, t, column, C);
        return;
    }
    const v16 decay = v_set(tile->gates[0]);
    v16 predicted[4];
    for (int c = 0; c < C; c++) predicted[c] = v_set(0.0f);
    for (int32_t i = 0; i < tile->key_dim; i++)
        for (int c = 0; c < C; c++) {
            const v16 before = tile->fresh ? v_set(0.0f) : v_load(tile->state + i * tile->state_stride + column + c * ES_LANES);
            const v16 decayed = v_mul(decay, before);
            v_store(scratch + (i * C + c) * ES_LANES, decayed);
            predicted[c] = v_fma(decayed, v_set(tile->k[i]), predicted[c]);
        }
    for (int32_t t = 0; t + 1 < tile->rows; t++) delta_step(tile, t, column, scratch, predicted, false, C);
    delta_step(tile, tile->rows - 1, column, scratch, predicted, true, C);
}

/* Columns come in whole vectors here; the reference takes other widths. */
static void delta_scan(const es_delta_tile *tile)
{
    _Alignas(64) float s[ES_DELTA_KEY_DIM * ES_DELTA_COLUMNS];
    int32_t column = 0;
    for (; DELTA_WIDE == 4 && column + 4 * ES_LANES <= tile->columns; column += 4 * ES_LANES) delta_columns(tile, column, s, 4);
    for (; column + 2 * ES_LANES <= tile->columns; column += 2 * ES_LANES) delta_columns(tile, column, s, 2);
    for (; column < tile->columns; column += ES_LANES) delta_columns(tile, column, s, 1);
}

INLINE void fill_in(es_kernels *kernels, const char *name, es_decode_fn (*decode)(es_dtype))
{
    kernels->dot = dot;
    kernels->fold = fold;
    kernels->rmsnorm = rmsnorm;
    kernels->unit_length = unit_length;
    kernels->gated_norm = gated_norm;
    kernels->swiglu = swiglu;
    kernels->axpy = axpy;
    kernels->scale_gate = scale_gate;
    kernels->conv_silu = conv_silu;
    kernels->attn_tile = attn_tile;
    kernels->attn_tile_f16 = attn_tile_f16;
    kernels->encode_f16 = encode_f16;
    kernels->attn_merge = attn_merge;
    kernels->delta_scan = delta_scan;
    kernels->instruction_set = name;
    for (es_dtype type = 0; type < ES_DTYPES; type++)
        if (decode(type)) kernels->decode[type] = decode(type);
}
