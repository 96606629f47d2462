/* kernels_ref.c: the reference kernels of numeric mode f32. They define every bit; the vector kernels only repeat them.
 *
 * Each reads like its formula. They are always built, always tested, and always able to serve. */
#include "base/half.h"
#include "device/cpu/kernels.h"
#include "device/cpu/math.h"

/* lane += a·b in 16 lanes; the missing elements of the last group count as 0·0. */
static void add_products(float lane[ES_LANES], const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += ES_LANES)
        for (int j = 0; j < ES_LANES; j++) {
            const bool there = i + j < n;
            lane[j] = fmaf(there ? a[i + j] : 0.0f, there ? b[i + j] : 0.0f, lane[j]);
        }
}

static float sum_of_squares(const float *x, int64_t n)
{
    float lane[ES_LANES] = {0};
    add_products(lane, x, x, n);
    return es_fold_lanes(lane);
}

static void dot_ref(const es_dot_tile *tile)
{
    for (int32_t t = 0; t < tile->tokens; t++)
        for (int32_t r = 0; r < tile->rows; r++) {
            const float *w = tile->w + r * tile->w_stride, *x = tile->x[t] + tile->x_offset;
            float *lane = tile->lanes + (t * ES_DOT_ROWS + r) * ES_LANES;
            for (int j = 0; j < ES_LANES && tile->first; j++) lane[j] = 0.0f;
            add_products(lane, w, x, tile->columns);
        }
}

static void fold_ref(const float *lanes, int32_t rows, int32_t tokens, float *out)
{
    for (int32_t t = 0; t < tokens; t++)
        for (int32_t r = 0; r < rows; r++) {
            float lane[ES_LANES];
            memcpy(lane, lanes + (t * ES_DOT_ROWS + r) * ES_LANES, sizeof lane);
            out[t * ES_DOT_ROWS + r] = es_fold_lanes(lane);
        }
}

static void rmsnorm_ref(const float *x, const float *w, float *out, int32_t n, float eps)
{
    const float scale = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) out[i] = (x[i] * scale) * w[i];
}

static void unit_length_ref(const float *x, float *out, int32_t n, float eps, float scale)
{
    const float inverse = 1.0f / sqrtf(sum_of_squares(x, n) + eps);
    for (int32_t i = 0; i < n; i++) out[i] = (x[i] * inverse) * scale;
}

static void gated_norm_ref(const float *x, const float *w, const float *z, float *out, int32_t n, float eps)
{
    const float scale = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) out[i] = ((x[i] * scale) * w[i]) * es_silu(z[i]);
}

static void swiglu_ref(const float *gate, const float *up, float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++) out[i] = es_silu(gate[i]) * up[i];
}

static void axpy_ref(float a, const float *x, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

static void scale_gate_ref(const float *x, float a, const float *gate, float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++) out[i] = gate ? (x[i] * a) * es_sigmoid(gate[i]) : x[i] * a;
}

static void conv_silu_ref(const float *x0, const float *x1, const float *x2, const float *x3, const float *w,
                          int64_t w_stride, float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        float sum = w[i] * x0[i];
        sum = fmaf(w[w_stride + i], x1[i], sum);
        sum = fmaf(w[2 * w_stride + i], x2[i], sum);
        sum = fmaf(w[3 * w_stride + i], x3[i], sum);
        out[i] = es_silu(sum);
    }
}

/* q·k_j, channels in order. */
static float score_ref(const es_attn_tile *tile, const float *q, int32_t j, bool half)
{
    const int32_t block = j / ES_ATTN_BLOCK, inside = j % ES_ATTN_BLOCK;
    float s = 0;
    if (half) {
        const uint16_t *k = tile->k16[block] + inside;
        for (int32_t d = 0; d < tile->head_dim; d++) s = fmaf(q[d], es_half_to_float(k[d * ES_ATTN_BLOCK]), s);
    } else {
        const float *k = tile->k[block] + inside;
        for (int32_t d = 0; d < tile->head_dim; d++) s = fmaf(q[d], k[d * ES_ATTN_BLOCK], s);
    }
    return s;
}

/* o ← o + p·v_j */
static void add_value_ref(const es_attn_tile *tile, float p, int32_t j, float *o, bool half)
{
    const int32_t block = j / ES_ATTN_BLOCK, at = j % ES_ATTN_BLOCK * tile->head_dim;
    if (half) {
        const uint16_t *v = tile->v16[block] + at;
        for (int32_t d = 0; d < tile->head_dim; d++) o[d] = fmaf(p, es_half_to_float(v[d]), o[d]);
    } else {
        const float *v = tile->v[block] + at;
        for (int32_t d = 0; d < tile->head_dim; d++) o[d] = fmaf(p, v[d], o[d]);
    }
}

/* s_j = q·k_j (channels in order); m' = max(m, max s); c = e^(m − m'); p_j = e^(s_j − m');
 * l ← c·l + p (lane j mod 16); o ← c·o + Σ p_j·v_j (keys in order). Keys past `valid` are not there. */
static void attn_row_ref(const es_attn_tile *tile, int32_t row, bool half)
{
    const int32_t dim = tile->head_dim, valid = tile->valid[row] < ES_ATTN_TILE ? tile->valid[row] : ES_ATTN_TILE;
    const float *q = tile->q[row];
    float *l = tile->l + row * ES_LANES, *o = tile->o + (int64_t)row * dim, *p = tile->p + row * ES_ATTN_TILE;

    float m = tile->m[row];
    for (int32_t j = 0; j < valid; j++) {
        p[j] = score_ref(tile, q, j, half);
        if (p[j] > m) m = p[j];
    }
    m = m + 0.0f; /* a zero is +0: otherwise its sign would tell in which order equal scores were compared */
    const float correction = tile->m[row] == -INFINITY ? 0.0f : es_exp(tile->m[row] - m);
    tile->m[row] = m;
    for (int i = 0; i < ES_LANES; i++) l[i] = l[i] * correction;
    for (int32_t d = 0; d < dim; d++) o[d] = o[d] * correction;
    for (int32_t j = 0; j < valid; j++) {
        p[j] = es_exp(p[j] - m);
        l[j % ES_LANES] = l[j % ES_LANES] + p[j];
        add_value_ref(tile, p[j], j, o, half);
    }
}

static void attn_tile_ref(const es_attn_tile *tile)
{
    for (int32_t row = 0; row < tile->rows; row++)
        if (tile->valid[row] > 0) attn_row_ref(tile, row, false);
}

static void attn_tile_f16_ref(const es_attn_tile *tile)
{
    for (int32_t row = 0; row < tile->rows; row++)
        if (tile->valid[row] > 0) attn_row_ref(tile, row, true);
}

static void encode_f16_ref(const float *x, uint16_t *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = es_float_to_half(x[i] > ES_HALF_MOST ? ES_HALF_MOST : x[i] < -ES_HALF_MOST ? -ES_HALF_MOST : x[i]);
}

/* m = max(m1, m2); a = e^(m1 − m), b = e^(m2 − m); l = a·l1 + b·l2; o likewise. */
static void attn_merge_ref(float *m, float *l, float *o, float m2, float l2, const float *o2, int32_t n)
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
    for (int32_t i = 0; i < n; i++) o[i] = fmaf(b, o2[i], a * o[i]);
}

/* The token recurrence of Gated DeltaNet for some value columns of one head, token by token; sums run over key channels in
 * order:  S ← e^g·S;  δ = β(v − Sᵀk);  S ← S + k⊗δ;  o = Sᵀq */
static void delta_column_ref(const es_delta_tile *tile, int32_t column)
{
    float s[ES_DELTA_KEY_DIM];
    const int32_t dk = tile->key_dim;
    float *state = tile->state + column;
    for (int32_t i = 0; i < dk; i++) s[i] = tile->fresh ? 0.0f : state[i * tile->state_stride];
    for (int32_t t = 0; t < tile->rows; t++) {
        const float *q = tile->q + t * tile->x_stride, *k = tile->k + t * tile->x_stride;
        const float decay = tile->gates[t * tile->gate_stride], beta = tile->gates[t * tile->gate_stride + 1];

        float predicted = 0;
        for (int32_t i = 0; i < dk; i++) predicted = fmaf(decay * s[i], k[i], predicted);
        const float delta = beta * (tile->v[t * tile->x_stride + column] - predicted);

        float out = 0;
        for (int32_t i = 0; i < dk; i++) {
            s[i] = fmaf(k[i], delta, decay * s[i]);
            out = fmaf(s[i], q[i], out);
        }
        tile->out[t * tile->out_stride + column] = out;
    }
    for (int32_t i = 0; i < dk; i++) state[i * tile->state_stride] = s[i];
}

static void delta_scan_ref(const es_delta_tile *tile)
{
    for (int32_t column = 0; column < tile->columns; column++) delta_column_ref(tile, column);
}

void es_kernels_reference(es_kernels *kernels)
{
    *kernels = (es_kernels){
        .dot = dot_ref,
        .fold = fold_ref,
        .rmsnorm = rmsnorm_ref,
        .unit_length = unit_length_ref,
        .gated_norm = gated_norm_ref,
        .swiglu = swiglu_ref,
        .axpy = axpy_ref,
        .scale_gate = scale_gate_ref,
        .conv_silu = conv_silu_ref,
        .attn_tile = attn_tile_ref,
        .attn_tile_f16 = attn_tile_f16_ref,
        .encode_f16 = encode_f16_ref,
        .attn_tile_bf16 = es_attn_tile_bf16_ref,
        .attn_tile_q8 = es_attn_tile_q8_ref,
        .attn_merge = attn_merge_ref,
        .delta_scan = delta_scan_ref,
        .instruction_set = "reference",
    };
    es_products_reference(&kernels->products);
    kernels->product_bf16dp = es_product_bf16dp_ref;
    for (es_dtype type = 0; type < ES_DTYPES; type++) kernels->decode[type] = es_decode_ref(type);
}
