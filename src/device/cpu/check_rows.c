/* check_rows.c: the harness's rows for decoding, dot products, norms and element-wise kernels. */
#include "base/half.h"
#include "device/cpu/check_case.h"

/* Lengths around every edge of a vector of 16, and some that models have. */
static const int32_t lengths[] = {1,  2,  7,  8,  9,   15,  16,  17,  24,  31,  32,  33,   47,   48,
                                  63, 64, 65, 80, 100, 127, 128, 255, 256, 257, 896, 1000, 1024, 4864};
enum { LENGTHS = sizeof lengths / sizeof *lengths, TIMED_LENGTH = 4096 };

typedef struct decode_arguments {
    es_dtype type;
    const unsigned char *data;
    int64_t elements;
    const es_case_output *out;
} decode_arguments;

static void run_decode(const es_kernels *kernels, void *arguments, int side)
{
    const decode_arguments *a = arguments;
    kernels->decode[a->type](a->data, a->out->side[side], a->elements);
}

void es_check_decode(es_case *c, es_dtype type)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    for (int64_t blocks = 1; blocks <= 70; blocks += blocks < 36 ? 1 : 17) {
        /* Random bytes at an odd address: infinite and subnormal scales are among them. */
        const int64_t bytes = blocks * info->block_bytes;
        unsigned char *data = es_case_alloc(c, bytes + 1);
        if (data) es_case_fill_bytes(c, data, bytes + 1);
        decode_arguments a = {type, data + 1, blocks * info->block, NULL};
        a.out = es_case_new_output(c, "out", a.elements, NULL);
        es_case_run(c, run_decode, &a, "%d blocks", (int)blocks);
    }
    decode_arguments a = {type, es_case_weights(c, type, TIMED_LENGTH), TIMED_LENGTH, NULL};
    a.out = es_case_new_output(c, "out", a.elements, NULL);
    es_case_run_timed(c, run_decode, &a, "4096 elements", (double)es_dtype_bytes(type, TIMED_LENGTH), 0);
}

enum { MOST_TOKENS = 64 };

/* A product of which the first `cut` columns come before the others. */
typedef struct dot_arguments {
    const float *w, *x[MOST_TOKENS];
    int32_t rows, tokens, columns, cut;
    int64_t w_stride;
    const es_case_output *lanes, *out;
} dot_arguments;

static void run_dot(const es_kernels *kernels, void *arguments, int side)
{
    const dot_arguments *a = arguments;
    es_dot_tile tile = {.w = a->w, .w_stride = a->w_stride, .x = a->x, .rows = a->rows, .tokens = a->tokens,
                        .columns = a->cut ? a->cut : a->columns, .first = true, .lanes = a->lanes->side[side]};
    kernels->dot(&tile);
    if (a->cut) {
        tile.w += a->cut;
        tile.x_offset = a->cut;
        tile.columns = a->columns - a->cut;
        tile.first = false;
        kernels->dot(&tile);
    }
    kernels->fold(tile.lanes, a->rows, a->tokens, a->out->side[side]);
}

static dot_arguments new_dot(es_case *c, int32_t rows, int32_t tokens, int32_t columns, es_case_values values)
{
    dot_arguments a = {.rows = rows, .tokens = tokens, .columns = columns};
    if (columns > ES_DOT_LANES) a.cut = es_case_draw(c, (columns - 1) / ES_DOT_LANES + 1) * ES_DOT_LANES;
    a.w_stride = columns + es_case_draw(c, 3);
    a.w = es_case_input(c, (rows - 1) * a.w_stride + columns, values);
    /* Each token's row is its own allocation of exactly its length. */
    for (int32_t t = 0; t < tokens; t++) a.x[t] = t < 16 ? es_case_input(c, columns, values) : a.x[t % 16];
    const int64_t outputs = (int64_t)(tokens - 1) * ES_DOT_ROWS + rows;
    a.lanes = es_case_new_output(c, "lanes", outputs * ES_DOT_LANES, NULL);
    a.out = es_case_new_output(c, "out", outputs, NULL);
    return a;
}

void es_check_dot(es_case *c, es_dtype type)
{
    (void)type;
    for (int32_t tokens = 1; tokens <= 13; tokens++)
        for (int32_t rows = 1; rows <= ES_DOT_ROWS; rows++) {
            const int32_t columns = lengths[es_case_draw(c, LENGTHS - 4)];
            dot_arguments a = new_dot(c, rows, tokens, columns, rows % 3 == 0 ? ES_VALUES_SPECIAL : ES_VALUES_PLAIN);
            es_case_run(c, run_dot, &a, "%d rows, %d tokens, %d columns cut at %d", rows, tokens, columns, a.cut);
        }
    for (int i = 0; i < LENGTHS; i++) {
        dot_arguments a = new_dot(c, 1 + i % ES_DOT_ROWS, 1 + i % 7, lengths[i], ES_VALUES_PLAIN);
        es_case_run(c, run_dot, &a, "%d rows, %d tokens, %d columns cut at %d", a.rows, a.tokens, lengths[i], a.cut);
    }
    dot_arguments a = new_dot(c, ES_DOT_ROWS, MOST_TOKENS, ES_DOT_COLUMNS, ES_VALUES_PLAIN);
    a.cut = 0;
    es_case_run_timed(c, run_dot, &a, "16 rows, 64 tokens, 512 columns", 0, 2.0 * 16 * MOST_TOKENS * ES_DOT_COLUMNS);
}

/* Every element-wise kernel reads up to five arrays and writes one. */
typedef struct row_arguments {
    const float *in[5];
    int32_t n;
    int64_t stride;
    float a, b;
    const es_case_output *out;
} row_arguments;

/* Runs `run` over all lengths with `inputs` arrays of `values`; the output begins as a copy of the last one where it is
 * worked on in place. */
static void check_rows(es_case *c, es_case_fn run, int inputs, es_case_values values, bool in_place, double bytes_each)
{
    for (int i = 0; i <= LENGTHS; i++) {
        const int32_t n = i < LENGTHS ? lengths[i] : TIMED_LENGTH;
        row_arguments a = {.n = n, .a = i % 2 ? 1e-6f : 0.37f, .b = 0.0884f};
        for (int k = 0; k < inputs; k++)
            a.in[k] = es_case_input(c, n, i % 3 == 1 && values == ES_VALUES_PLAIN ? ES_VALUES_SPECIAL : values);
        a.out = es_case_new_output(c, "out", n, in_place ? a.in[inputs - 1] : NULL);
        if (i < LENGTHS) es_case_run(c, run, &a, "%d elements", n);
        else es_case_run_timed(c, run, &a, "4096 elements", bytes_each * n, 0);
    }
}

static void run_rmsnorm(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->rmsnorm(a->in[0], a->in[1], a->out->side[side], a->n, a->a);
}

static void run_rmsnorm_in_place(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->rmsnorm(a->out->side[side], a->in[0], a->out->side[side], a->n, a->a);
}

void es_check_rmsnorm(es_case *c, es_dtype type)
{
    (void)type;
    const bool timed = c->timed;
    c->timed = false;
    check_rows(c, run_rmsnorm_in_place, 2, ES_VALUES_PLAIN, true, 0);
    c->timed = timed;
    check_rows(c, run_rmsnorm, 2, ES_VALUES_PLAIN, false, 12);
}

static void run_unit_length(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->unit_length(a->out->side[side], a->out->side[side], a->n, a->a, a->b);
}

void es_check_unit_length(es_case *c, es_dtype type)
{
    (void)type;
    check_rows(c, run_unit_length, 1, ES_VALUES_PLAIN, true, 8);
}

static void run_gated_norm(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->gated_norm(a->in[0], a->in[1], a->in[2], a->out->side[side], a->n, a->a);
}

void es_check_gated_norm(es_case *c, es_dtype type)
{
    (void)type;
    check_rows(c, run_gated_norm, 3, ES_VALUES_PLAIN, false, 16);
    check_rows(c, run_gated_norm, 3, ES_VALUES_WIDE, false, 16);
}

static void run_swiglu(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->swiglu(a->in[0], a->in[1], a->out->side[side], a->n);
}

void es_check_swiglu(es_case *c, es_dtype type)
{
    (void)type;
    check_rows(c, run_swiglu, 2, ES_VALUES_WIDE, false, 12);
    check_rows(c, run_swiglu, 2, ES_VALUES_PLAIN, false, 12);
}

static void run_axpy(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->axpy(a->a, a->in[0], a->out->side[side], a->n);
}

void es_check_axpy(es_case *c, es_dtype type)
{
    (void)type;
    check_rows(c, run_axpy, 2, ES_VALUES_PLAIN, true, 12);
}

static void run_scale_gate(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->scale_gate(a->in[0], a->b, a->in[1], a->out->side[side], a->n);
}

void es_check_scale_gate(es_case *c, es_dtype type)
{
    (void)type;
    check_rows(c, run_scale_gate, 1, ES_VALUES_PLAIN, false, 8); /* no gate */
    check_rows(c, run_scale_gate, 2, ES_VALUES_WIDE, false, 12);
}

static void run_conv_silu(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->conv_silu(a->in[0], a->in[1], a->in[2], a->in[3], a->in[4], a->stride, a->out->side[side], a->n);
}

void es_check_conv_silu(es_case *c, es_dtype type)
{
    (void)type;
    for (int i = 0; i <= LENGTHS; i++) {
        row_arguments a = {.n = i < LENGTHS ? lengths[i] : TIMED_LENGTH};
        for (int k = 0; k < 4; k++) a.in[k] = es_case_input(c, a.n, i % 2 ? ES_VALUES_SPECIAL : ES_VALUES_PLAIN);
        a.stride = a.n + es_case_draw(c, 20);
        a.in[4] = es_case_input(c, 3 * a.stride + a.n, ES_VALUES_PLAIN);
        a.out = es_case_new_output(c, "out", a.n, NULL);
        if (i < LENGTHS) es_case_run(c, run_conv_silu, &a, "%d elements", a.n);
        else es_case_run_timed(c, run_conv_silu, &a, "4096 elements", 36.0 * a.n, 0);
    }
}

/* A float where roundings to binary16 part: anything at all; about halfway between two neighbours, subnormal ones too; about the
 * largest, which more is cut down to. */
static float draw_for_half(es_case *c)
{
    const uint32_t bits = (uint32_t)es_case_draw(c, 1 << 16) << 16 | (uint32_t)es_case_draw(c, 1 << 16);
    if (bits % 3 == 0) return es_float_from_bits(bits);
    if (bits % 3 == 1) return (bits & 0x80000000 ? -1.0f : 1.0f) * es_float_from_bits(0x477FD000 + (bits >> 8 & 0x3FFF));
    const uint16_t half = (uint16_t)(bits >> 8 & 0xFFFF);
    if ((half & 0x7C00) == 0x7C00) return es_half_to_float(half); /* infinite, or NaN */
    const float middle = 0.5f * (es_half_to_float(half) + es_half_to_float((uint16_t)(half + 1)));
    return es_float_from_bits(es_float_bits(middle) + (uint32_t)es_case_draw(c, 3) - 1);
}

static void run_encode_f16(const es_kernels *kernels, void *arguments, int side)
{
    const row_arguments *a = arguments;
    kernels->encode_f16(a->in[0], (uint16_t *)(void *)a->out->side[side], a->n);
}

void es_check_encode_f16(es_case *c, es_dtype type)
{
    (void)type;
    for (int i = 0; i <= LENGTHS; i++) {
        row_arguments a = {.n = i < LENGTHS ? lengths[i] : TIMED_LENGTH};
        float *x = es_case_input(c, a.n, ES_VALUES_SPECIAL);
        for (int32_t k = 0; x && k < a.n && i < LENGTHS; k++)
            if (es_case_draw(c, 4)) x[k] = draw_for_half(c);
        a.in[0] = x;
        a.out = es_case_new_output(c, "out", (a.n + 1) / 2, NULL);
        if (i < LENGTHS) es_case_run(c, run_encode_f16, &a, "%d elements", a.n);
        else es_case_run_timed(c, run_encode_f16, &a, "4096 elements", 6.0 * a.n, 0);
    }
}
