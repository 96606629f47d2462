/* compare_cases.c: the rows of the comparison: every operation of op.h, in both modes that a GPU offers. */
#include "device/compare_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/random_blocks.h"

/* --- steps of several sequences --- */

void es_compare_start(es_compare_steps *s)
{
    *s = (es_compare_steps){
        .batch = {.tokens = s->tokens, .span = s->span, .output_row = s->outputs}
    };
    for (int q = 0; q < MOST_SPANS; q++)
        for (int p = 0; p < CONTEXT / PAGE; p++) s->pages[q][p] = q * (CONTEXT / PAGE) + CONTEXT / PAGE - 1 - p;
    for (int i = 0; i < MOST_ROWS; i++) s->tokens[i] = i * 7 % VOCABULARY;
}

void es_compare_span(es_compare_steps *s, int32_t q, int64_t start, int32_t rows)
{
    es_batch *b = &s->batch;
    s->span[b->spans++] = (es_span){.first_row = b->rows, .rows = rows, .start = start, .slot = q, .pages = s->pages[q]};
    b->rows += rows;
    s->outputs[b->outputs++] = b->rows - 1;
}

/* --- rows: embedding, rotary table, norm --- */

enum { TABLE, EMBEDDED, FREQUENCY, ROPE, NORM, NORMED, PICKED };

static int weights(es_compare *c, es_dtype type, int64_t rows, int64_t columns, float spread)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    const size_t bytes = es_dtype_bytes(type, rows * columns);
    unsigned char *data = malloc(bytes);
    if (!data) {
        es_compare_fail(c, es_fail(ES_NO_MEMORY, "no memory for weights"));
        return 0;
    }
    es_bits bits = {c->state += 77};
    es_random_blocks(&bits, type, rows * columns / info->block, spread, data);
    const int buffer = es_compare_bytes(c, data, bytes);
    free(data);
    return buffer;
}

static void record_rows(es_compare *c, int d, es_program *p)
{
    const int32_t width = (int32_t)c->shape[0];
    es_program_add(
        p, (es_op){
               ES_OP_EMBED, .as.embed = {.table = {SLICE(TABLE), c->type, VOCABULARY, width}, .out = SLICE(EMBEDDED)}
    });
    es_program_add(p, (es_op){
                          ES_OP_ROPE_TABLE,
                          .as.rope_table = {.frequency = SLICE(FREQUENCY), .pairs = 16, .scale = 1.25f, .out = SLICE(ROPE)}
    });
    es_program_add(
        p,
        (es_op){
            ES_OP_RMSNORM,
            .as.rmsnorm = {.x = SLICE(EMBEDDED), .weight = SLICE(NORM), .out = SLICE(NORMED), .width = width, .eps = 1e-6f}
    });
    es_program_add(p, (es_op){
                          ES_OP_RMSNORM, .as.rmsnorm = {.x = SLICE(EMBEDDED),
                                                        .weight = SLICE(NORM),
                                                        .out = SLICE(PICKED),
                                                        .width = width,
                                                        .eps = 1e-6f,
                                                        .outputs_only = true}
    });
}

static void run_rows(es_compare *c)
{
    static const int widths[] = {256, 768, 5120};
    c->record = record_rows;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const int64_t width = c->shape[0] = widths[i];
        c->b[TABLE] = weights(c, c->type, VOCABULARY, width, 0.5f);
        c->b[FREQUENCY] = es_compare_floats(c, 16, 0, 1);
        c->b[NORM] = es_compare_floats(c, width, 0.5f, 1.5f);
        c->b[EMBEDDED] = es_compare_room(c, MOST_ROWS * width);
        c->b[NORMED] = es_compare_room(c, MOST_ROWS * width);
        c->b[PICKED] = es_compare_room(c, MOST_ROWS * width);
        c->b[ROPE] = es_compare_room(c, MOST_ROWS * 32);
        es_compare_steps s;
        es_compare_start(&s);
        es_compare_span(&s, 0, 100000, 9);
        es_compare_span(&s, 2, 3, 1);
        s.span[0].pages = s.span[1].pages = NULL;
        es_compare_step(c, &s.batch);
        es_compare_outputs(c, "embedding", c->b[EMBEDDED], 10 * width);
        es_compare_outputs(c, "rotary table", c->b[ROPE], 10 * 32);
        es_compare_outputs(c, "norm", c->b[NORMED], 10 * width);
        es_compare_outputs(c, "norm of outputs", c->b[PICKED], 2 * width);
    }
}

/* --- products --- */

enum { X, W0, W1, BIAS, OUT0, OUT1 };

static void record_matmul(es_compare *c, int d, es_program *p)
{
    es_op op = {
        ES_OP_MATMUL, .as.matmul = {.x = SLICE(X), .x_stride = c->shape[1], .parts = 2}
    };
    op.as.matmul.part[0] = (es_matmul_part){
        .weight = {SLICE(W0), c->type, c->shape[0], c->shape[1]},
        .bias = SLICE(BIAS),
        .out = SLICE(OUT0),
        .out_stride = c->shape[0]
    };
    op.as.matmul.part[1] = (es_matmul_part){
        .weight = {SLICE(W1), c->type, 48, c->shape[1]},
          .out = SLICE(OUT1), .out_stride = 64, .accumulate = true
    };
    es_program_add(p, op);
}

/* Rows of a step, computed again in another company, alone or from another place: not a bit may change. Row t reads input t,
 * so the same inputs come as the first rows of a shorter step. */
static void matmul_again(es_compare *c, int32_t rows, const uint32_t *first, int64_t out_rows)
{
    static const int counts[] = {1, 7, 8, 9, 31, 64};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i] >= rows) continue;
        es_compare_steps s;
        es_compare_start(&s);
        es_compare_span(&s, 0, 0, counts[i]);
        s.span[0].pages = NULL;
        es_compare_step(c, &s.batch);
        uint32_t *again = es_compare_bits(c, c->b[OUT0], counts[i] * out_rows);
        es_compare_same(c, "product", first, again, counts[i] * out_rows);
        free(again);
    }
}

static void run_matmul(es_compare *c)
{
    static const int64_t shapes[][2] = {
        {100, 512  },
        {257, 4096 },
        {16,  256  },
        {40,  12288}
    };
    static const int32_t tokens[] = {1, 6, 33, 300};
    const bool plain = es_dtype_get_info(c->type)->block == 1;
    c->record = record_matmul;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t rows = c->shape[0] = shapes[i][0], columns = c->shape[1] = shapes[i][1] - (plain && i == 0 ? 413 : 0);
        c->b[W0] = weights(c, c->type, rows, columns, 0.05f);
        c->b[W1] = weights(c, c->type, 48, columns, 0.05f);
        c->b[X] = es_compare_floats(c, MOST_ROWS * columns, -2, 2);
        c->b[BIAS] = es_compare_floats(c, rows, -1, 1);
        c->b[OUT0] = es_compare_room(c, MOST_ROWS * rows);
        c->b[OUT1] = es_compare_floats(c, MOST_ROWS * 64, -1, 1);
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            if (i == 3 && tokens[t] > 40) continue; /* the reference takes long */
            es_compare_steps s;
            es_compare_start(&s);
            es_compare_span(&s, 0, 0, tokens[t]);
            s.span[0].pages = NULL;
            es_compare_step(c, &s.batch);
            es_compare_outputs(c, "product", c->b[OUT0], tokens[t] * rows);
            es_compare_outputs(c, "accumulated product", c->b[OUT1], tokens[t] * 64);
        }
        uint32_t *all = es_compare_bits(c, c->b[OUT0], tokens[i == 3 ? 2 : 3] * rows);
        matmul_again(c, tokens[i == 3 ? 2 : 3], all, rows);
        free(all);
    }
}

/* --- the dense layer: norm, gate and up, SwiGLU, down --- */

enum { M_X, M_NORM, M_H, M_GATE, M_UP, M_DOWN, M_G, M_U, M_OF_H, M_OF_G, M_H_READ, M_G_READ };
enum { READ_ROWS = 16 }; /* of the weights that read floats */

static es_op two_products(const es_compare *c, int d, int x, int64_t columns, int64_t rows)
{
    es_op op = {
        ES_OP_MATMUL, .as.matmul = {.x = SLICE(x), .x_stride = columns, .parts = 2}
    };
    op.as.matmul.part[0] = (es_matmul_part){
        .weight = {SLICE(M_GATE), c->type, rows, columns},
          .out = SLICE(M_G), .out_stride = rows
    };
    op.as.matmul.part[1] = (es_matmul_part){
        .weight = {SLICE(M_UP), c->type, rows, columns},
          .out = SLICE(M_U), .out_stride = rows
    };
    return op;
}

static void record_layer(es_compare *c, int d, es_program *p)
{
    const int64_t hidden = c->shape[0], ffn = c->shape[1];
    es_program_add(
        p, (es_op){
               ES_OP_RMSNORM,
               .as.rmsnorm = {
                              .x = SLICE(M_X), .weight = SLICE(M_NORM), .out = SLICE(M_H), .width = (int32_t)hidden, .eps = 1e-6f}
    });
    es_program_add(p, two_products(c, d, M_H, hidden, ffn));
    es_program_add(
        p,
        (es_op){
            ES_OP_SWIGLU,
            .as.swiglu = {
                          .gate = SLICE(M_G), .up = SLICE(M_U), .out = SLICE(M_G), .stride = ffn, .width = (int32_t)ffn, .per_row = 1}
    });
    es_op down = {
        ES_OP_MATMUL, .as.matmul = {.x = SLICE(M_G), .x_stride = ffn, .parts = 1}
    };
    down.as.matmul.part[0] = (es_matmul_part){
        .weight = {SLICE(M_DOWN), c->type, hidden, ffn},
          .out = SLICE(M_X), .out_stride = hidden, .accumulate = true
    };
    es_program_add(p, down);
}

/* A product in float32 of what a norm or a SwiGLU has written: its floats have to be there, beside what other products read. */
static void record_reader(es_compare *c, int d, es_program *p, int x, int64_t columns, int weight, int out)
{
    es_op op = {
        ES_OP_MATMUL, .as.matmul = {.x = SLICE(x), .x_stride = columns, .parts = 1}
    };
    op.as.matmul.part[0] = (es_matmul_part){
        .weight = {SLICE(weight), ES_F32, READ_ROWS, columns},
          .out = SLICE(out), .out_stride = READ_ROWS
    };
    es_program_add(p, op);
}

/* One layer, or two of them: only what is written anew later may be left out, and with readers none of the first may. */
static void record_mlp(es_compare *c, int d, es_program *p)
{
    const bool twice = c->shape[2] > 0, readers = c->shape[2] > 1;
    record_layer(c, d, p);
    if (readers) record_reader(c, d, p, M_H, c->shape[0], M_H_READ, M_OF_H);
    if (readers) record_reader(c, d, p, M_G, c->shape[1], M_G_READ, M_OF_G);
    if (twice) record_layer(c, d, p);
}

static void run_mlp(es_compare *c)
{
    static const int32_t tokens[] = {1, 20, 130};
    const int64_t hidden = c->shape[0] = 512, ffn = c->shape[1] = 768;
    c->record = record_mlp;
    c->b[M_X] = es_compare_floats(c, MOST_ROWS * hidden, -1, 1);
    c->b[M_NORM] = es_compare_floats(c, hidden, 0.5f, 1.5f);
    c->b[M_H] = es_compare_room(c, MOST_ROWS * hidden);
    c->b[M_GATE] = weights(c, c->type, ffn, hidden, 0.05f);
    c->b[M_UP] = weights(c, c->type, ffn, hidden, 0.05f);
    c->b[M_DOWN] = weights(c, c->type, hidden, ffn, 0.05f);
    c->b[M_G] = es_compare_room(c, MOST_ROWS * ffn);
    c->b[M_U] = es_compare_room(c, MOST_ROWS * ffn);
    c->b[M_H_READ] = weights(c, ES_F32, READ_ROWS, hidden, 0.05f);
    c->b[M_G_READ] = weights(c, ES_F32, READ_ROWS, ffn, 0.05f);
    c->b[M_OF_H] = es_compare_room(c, MOST_ROWS * READ_ROWS);
    c->b[M_OF_G] = es_compare_room(c, MOST_ROWS * READ_ROWS);
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
        es_compare_steps s;
        es_compare_start(&s);
        es_compare_span(&s, 0, 0, tokens[t]);
        s.span[0].pages = NULL;
        es_compare_step(c, &s.batch);
        es_compare_outputs(c, "dense layer", c->b[M_X], tokens[t] * hidden);
        if (c->shape[2] <= 1) continue;
        es_compare_outputs(c, "floats of a norm", c->b[M_OF_H], tokens[t] * READ_ROWS);
        es_compare_outputs(c, "floats of a SwiGLU", c->b[M_OF_G], tokens[t] * READ_ROWS);
    }
}

static void run_mlp_twice(es_compare *c)
{
    c->shape[2] = 1;
    run_mlp(c);
}

static void run_mlp_read(es_compare *c)
{
    c->shape[2] = 2;
    run_mlp(c);
}

/* --- attention --- */

enum { A_Q, A_K, A_V, A_QN, A_KN, A_FREQ, A_ROPE, A_QOUT, A_KC, A_VC, A_OUT };

static void record_attention(es_compare *c, int d, es_program *p)
{
    const es_attn_shape shape = c->options.attn;
    const int64_t dim = shape.head_dim, q = shape.query_heads * dim, kv = shape.kv_heads * dim;
    es_program_add(
        p, (es_op){
               ES_OP_ROPE_TABLE,
               .as.rope_table = {.frequency = SLICE(A_FREQ), .pairs = (int32_t)dim / 4, .scale = 1, .out = SLICE(A_ROPE)}
    });
    es_program_add(p, (es_op){
                          ES_OP_ATTN_PREPARE, .as.attn_prepare = {.shape = shape,
                                                                  .q = SLICE(A_Q),
                                                                  .k = SLICE(A_K),
                                                                  .v = SLICE(A_V),
                                                                  .q_stride = 2 * q,
                                                                  .q_head_stride = 2 * dim,
                                                                  .kv_stride = kv,
                                                                  .q_norm = SLICE(A_QN),
                                                                  .k_norm = SLICE(A_KN),
                                                                  .eps = 1e-6f,
                                                                  .rope = SLICE(A_ROPE),
                                                                  .rope_pairs = (int32_t)dim / 4,
                                                                  .interleaved = c->shape[0] != 0,
                                                                  .scale = 1.0f / sqrtf((float)dim),
                                                                  .q_out = SLICE(A_QOUT),
                                                                  .k_cache = SLICE(A_KC),
                                                                  .v_cache = SLICE(A_VC)}
    });
    es_op attn = {
        ES_OP_ATTN, .as.attn = {.shape = shape,
                                .q = SLICE(A_QOUT),
                                .k_cache = SLICE(A_KC),
                                .v_cache = SLICE(A_VC),
                                .gate = SLICE(A_Q),
                                .gate_stride = 2 * q,
                                .gate_head_stride = 2 * dim,
                                .out = SLICE(A_OUT)}
    };
    attn.as.attn.gate.offset += (size_t)dim * sizeof(float);
    es_program_add(p, attn);
    attn.kind = ES_OP_ATTN_MERGE;
    es_program_add(p, attn);
}

static void run_attention(es_compare *c)
{
    const es_attn_shape *a = &c->options.attn;
    const int64_t dim = a->head_dim, q = a->query_heads * dim, kv = a->kv_heads * dim;
    const size_t cache = es_kv_page_bytes(a, es_kv_type_resolve(ES_KV_AUTO, c->options.numeric)) * (MOST_SPANS * (CONTEXT / PAGE));
    c->record = record_attention;
    c->b[A_Q] = es_compare_floats(c, MOST_ROWS * 2 * q, -3, 3);
    c->b[A_K] = es_compare_floats(c, MOST_ROWS * kv, -2, 2);
    c->b[A_V] = es_compare_floats(c, MOST_ROWS * kv, -1, 1);
    c->b[A_QN] = es_compare_floats(c, dim, 0.5f, 1.5f);
    c->b[A_KN] = es_compare_floats(c, dim, 0.5f, 1.5f);
    c->b[A_FREQ] = es_compare_floats(c, dim / 4, 0.001f, 1);
    c->b[A_ROPE] = es_compare_room(c, MOST_ROWS * dim / 2);
    c->b[A_QOUT] = es_compare_room(c, MOST_ROWS * q);
    c->b[A_OUT] = es_compare_room(c, MOST_ROWS * q);
    c->b[A_KC] = es_compare_zeros(c, cache);
    c->b[A_VC] = es_compare_zeros(c, cache);
    /* Prompts in chunks, short and long ones together, then single tokens of all. */
    static const int32_t plan[][4] = {
        {300, 0,  0,  0  },
        {200, 40, 1,  0  },
        {1,   0,  64, 129},
        {1,   1,  1,  1  },
        {17,  88, 1,  1  },
        {1,   1,  1,  1  }
    };
    int64_t done[4] = {0};
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
        es_compare_steps s;
        es_compare_start(&s);
        for (int k = 0; k < 4; k++)
            if (plan[i][k]) es_compare_span(&s, k, done[k], plan[i][k]), done[k] += plan[i][k];
        es_compare_step(c, &s.batch);
        es_compare_outputs(c, "queries", c->b[A_QOUT], s.batch.rows * q);
        es_compare_outputs(c, "attention", c->b[A_OUT], s.batch.rows * q);
    }
}

/* --- Gated DeltaNet --- */

enum { D_X, D_CONV, D_CSTATE, D_A, D_B, D_GAIN, D_BIAS, D_OUT, D_GATES, D_STATE, D_O, D_Z, D_W, D_Y };

static es_delta_shape delta_shape(const es_compare *c)
{
    return (es_delta_shape){(int32_t)c->shape[0], (int32_t)c->shape[1], (int32_t)c->shape[2], (int32_t)c->shape[3],
                            c->shape[4] != 0};
}

static void record_delta(es_compare *c, int d, es_program *p)
{
    const es_delta_shape shape = delta_shape(c);
    es_program_add(p, (es_op){
                          ES_OP_DELTA_PREPARE, .as.delta_prepare = {.shape = shape,
                                                                    .x = SLICE(D_X),
                                                                    .conv = SLICE(D_CONV),
                                                                    .conv_state = SLICE(D_CSTATE),
                                                                    .a = SLICE(D_A),
                                                                    .b = SLICE(D_B),
                                                                    .a_gain = SLICE(D_GAIN),
                                                                    .dt_bias = SLICE(D_BIAS),
                                                                    .out = SLICE(D_OUT),
                                                                    .gates = SLICE(D_GATES)}
    });
    es_program_add(
        p, (es_op){
               ES_OP_DELTA_SCAN,
               .as.delta_scan = {
                                 .shape = shape, .x = SLICE(D_OUT), .gates = SLICE(D_GATES), .state = SLICE(D_STATE), .out = SLICE(D_O)}
    });
    es_program_add(
        p, (es_op){
               ES_OP_DELTA_FINISH,
               .as.delta_finish = {
                                   .shape = shape, .x = SLICE(D_O), .z = SLICE(D_Z), .weight = SLICE(D_W), .eps = 1e-6f, .out = SLICE(D_Y)}
    });
}

/* A sequence at once and in pieces, behind rows of another one that keep its inputs at their places: not a bit may change. */
static void delta_again(es_compare *c, int64_t values, int64_t state)
{
    static const int cuts[] = {0, 3, 67, 130, 131, 200};
    const int pieces = sizeof cuts / sizeof *cuts - 1, rows = cuts[pieces];
    es_compare_steps t;
    es_compare_start(&t);
    es_compare_span(&t, 0, 0, rows);
    t.span[0].pages = NULL;
    es_compare_step(c, &t.batch);
    uint32_t *whole = es_compare_bits(c, c->b[D_Y], rows * values), *end = es_compare_bits(c, c->b[D_STATE], state);
    for (int i = 0; i < pieces; i++) {
        es_compare_start(&t);
        if (i > 0) es_compare_span(&t, 1, 0, cuts[i]);
        es_compare_span(&t, 0, cuts[i], cuts[i + 1] - cuts[i]);
        t.span[0].pages = t.span[1].pages = NULL;
        es_compare_step(c, &t.batch);
        uint32_t *again = es_compare_bits(c, c->b[D_Y], cuts[i + 1] * values);
        es_compare_same(c, "DeltaNet", whole + cuts[i] * values, again + cuts[i] * values, (cuts[i + 1] - cuts[i]) * values);
        free(again);
    }
    uint32_t *again = es_compare_bits(c, c->b[D_STATE], state);
    es_compare_same(c, "DeltaNet's state", end, again, state);
    free(again);
    free(end);
    free(whole);
}

static void run_delta(es_compare *c)
{
    static const int64_t shapes[][5] = {
        {2, 4, 32,  32,  0},
        {4, 8, 128, 128, 1},
        {1, 3, 256, 64,  0},
        {2, 2, 48,  40,  0}
    };
    static const int32_t plan[][3] = {
        {1,  30, 2},
        {5,  1,  3},
        {1,  1,  1},
        {70, 1,  1},
        {1,  1,  1}
    };
    c->record = record_delta;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        memcpy(c->shape, shapes[i], sizeof shapes[i]);
        const es_delta_shape s = delta_shape(c);
        const int64_t channels = 2 * s.key_heads * s.key_dim + s.value_heads * s.value_dim,
                      values = s.value_heads * s.value_dim;
        c->b[D_X] = es_compare_floats(c, MOST_ROWS * channels, -2, 2);
        c->b[D_CONV] = es_compare_floats(c, 4 * channels, -0.7f, 0.7f);
        c->b[D_CSTATE] = es_compare_floats(c, MOST_SPANS * 3 * channels, 50, 51); /* must not be read at a sequence's start */
        c->b[D_A] = es_compare_floats(c, MOST_ROWS * s.value_heads, -2, 2);
        c->b[D_B] = es_compare_floats(c, MOST_ROWS * s.value_heads, -2, 2);
        c->b[D_GAIN] = es_compare_floats(c, s.value_heads, -2, -0.1f);
        c->b[D_BIAS] = es_compare_floats(c, s.value_heads, -2, 1);
        c->b[D_OUT] = es_compare_room(c, MOST_ROWS * channels);
        c->b[D_GATES] = es_compare_room(c, MOST_ROWS * s.value_heads * 2);
        c->b[D_STATE] = es_compare_floats(c, MOST_SPANS * values * s.key_dim, 50, 51);
        c->b[D_O] = es_compare_room(c, MOST_ROWS * values);
        c->b[D_Z] = es_compare_floats(c, MOST_ROWS * values, -2, 2);
        c->b[D_W] = es_compare_floats(c, s.value_dim, 0.5f, 1.5f);
        c->b[D_Y] = es_compare_room(c, MOST_ROWS * values);
        int64_t done[3] = {0};
        for (size_t k = 0; k < sizeof plan / sizeof *plan; k++) {
            es_compare_steps t;
            es_compare_start(&t);
            for (int q = 0; q < 3; q++) {
                es_compare_span(&t, q, done[q], plan[k][q]);
                t.span[q].pages = NULL;
                done[q] += plan[k][q];
            }
            es_compare_step(c, &t.batch);
            if (t.batch.rows > t.batch.spans) { /* a device may do single tokens at once, with nothing in between */
                es_compare_outputs(c, "convolution", c->b[D_OUT], t.batch.rows * channels);
                es_compare_outputs(c, "gates", c->b[D_GATES], t.batch.rows * s.value_heads * 2);
                es_compare_outputs(c, "recurrence", c->b[D_O], t.batch.rows * values);
            }
            es_compare_outputs(c, "gated norm", c->b[D_Y], t.batch.rows * values);
        }
        es_compare_outputs(c, "convolution's state", c->b[D_CSTATE], 3 * 3 * channels);
        es_compare_outputs(c, "state", c->b[D_STATE], 3 * values * s.key_dim);
        delta_again(c, values, values * s.key_dim);
        es_compare_release(c, 0);
    }
}

/* --- mixture of experts --- */

enum {
    E_LOGITS, E_IDS, E_WEIGHTS, E_STARTS, E_ORDER, E_IN, E_NORM, E_H, E_ROUTER, E_HOW, E_GATE, E_UP, E_DOWN, E_G, E_U, E_Y,
    E_SGATE_W, E_SUP_W, E_SDOWN_W, E_SG, E_SU, E_SHARED, E_SGATE, E_X, E_NEXT
};

static es_op expert_products(const es_compare *c, int d, int x, int64_t columns, bool gather)
{
    return (es_op){
        ES_OP_MOE_PRODUCT, .as.moe_product = {.x = SLICE(x),
                                              .x_stride = columns,
                                              .gather = gather,
                                              .experts = (int32_t)c->shape[0],
                                              .used = (int32_t)c->shape[1],
                                              .starts = SLICE(E_STARTS),
                                              .order = SLICE(E_ORDER)}
    };
}

static void add_experts(es_compare *c, int d, es_op_moe_product *op, int w, int out, int64_t rows, int64_t columns)
{
    op->part[op->parts] = (es_matmul_part){
        .weight = {SLICE(w), c->type, rows, columns},
          .out = SLICE(out), .out_stride = rows
    };
    op->expert_stride[op->parts++] = (int64_t)es_dtype_bytes(c->type, rows * columns);
}

static es_op_matmul matmul_of(const es_compare *c, int d, int x, int64_t columns)
{
    return (es_op_matmul){.x = SLICE(x), .x_stride = columns};
}

static void add_matrix(const es_compare *c, int d, es_op_matmul *m, int w, es_dtype type, int out, int64_t rows)
{
    m->part[m->parts++] = (es_matmul_part){
        .weight = {SLICE(w), type, rows, m->x_stride},
          .out = SLICE(out), .out_stride = rows
    };
}

static void add_norm(es_compare *c, int d, es_program *p, int x, int out)
{
    es_program_add(p, (es_op){
                          ES_OP_RMSNORM, .as.rmsnorm = {.x = SLICE(x),
                                                        .weight = SLICE(E_NORM),
                                                        .out = SLICE(out),
                                                        .width = (int32_t)c->shape[2],
                                                        .eps = 1e-6f}
    });
}

/* The expert that every token has. */
static void record_shared(es_compare *c, int d, es_program *p)
{
    const int64_t hidden = c->shape[2], ffn = c->shape[3];
    es_op in = {ES_OP_MATMUL, .as.matmul = matmul_of(c, d, E_H, hidden)}, out = {ES_OP_MATMUL, .as.matmul = matmul_of(c, d, E_SG, ffn)};
    add_matrix(c, d, &in.as.matmul, E_SGATE_W, c->type, E_SG, ffn);
    add_matrix(c, d, &in.as.matmul, E_SUP_W, c->type, E_SU, ffn);
    add_matrix(c, d, &out.as.matmul, E_SDOWN_W, c->type, E_SHARED, hidden);
    es_program_add(p, in);
    es_program_add(p, (es_op){
                          ES_OP_SWIGLU, .as.swiglu = {.gate = SLICE(E_SG),
                                                      .up = SLICE(E_SU),
                                                      .out = SLICE(E_SG),
                                                      .stride = ffn,
                                                      .width = (int32_t)ffn,
                                                      .per_row = 1}
    });
    es_program_add(p, out);
}

static void record_moe(es_compare *c, int d, es_program *p)
{
    const int32_t experts = (int32_t)c->shape[0], used = (int32_t)c->shape[1], hidden = (int32_t)c->shape[2],
                  ffn = (int32_t)c->shape[3];
    add_norm(c, d, p, E_IN, E_H);
    es_op router = {ES_OP_MATMUL, .as.matmul = matmul_of(c, d, E_H, hidden)};
    add_matrix(c, d, &router.as.matmul, E_ROUTER, ES_F32, E_LOGITS, experts);
    add_matrix(c, d, &router.as.matmul, E_HOW, ES_F32, E_SGATE, 1);
    es_program_add(p, router);
    es_program_add(p, (es_op){
                          ES_OP_MOE_ROUTE, .as.moe_route = {.logits = SLICE(E_LOGITS),
                                                            .experts = experts,
                                                            .used = used,
                                                            .renormalise = true,
                                                            .scale = 1.5f,
                                                            .ids = SLICE(E_IDS),
                                                            .weights = SLICE(E_WEIGHTS)}
    });
    es_program_add(
        p,
        (es_op){
            ES_OP_MOE_GROUP,
            .as.moe_group = {
                             .ids = SLICE(E_IDS), .experts = experts, .used = used, .starts = SLICE(E_STARTS), .order = SLICE(E_ORDER)}
    });
    es_op in = expert_products(c, d, E_H, hidden, true);
    add_experts(c, d, &in.as.moe_product, E_GATE, E_G, ffn, hidden);
    add_experts(c, d, &in.as.moe_product, E_UP, E_U, ffn, hidden);
    es_program_add(p, in);
    es_program_add(
        p, (es_op){
               ES_OP_SWIGLU,
               .as.swiglu = {
                             .gate = SLICE(E_G), .up = SLICE(E_U), .out = SLICE(E_G), .stride = ffn, .width = ffn, .per_row = used}
    });
    es_op out = expert_products(c, d, E_G, ffn, false);
    add_experts(c, d, &out.as.moe_product, E_DOWN, E_Y, hidden, ffn);
    es_program_add(p, out);
    record_shared(c, d, p);
    es_program_add(p, (es_op){
                          ES_OP_MOE_COMBINE, .as.moe_combine = {.y = SLICE(E_Y),
                                                                .weights = SLICE(E_WEIGHTS),
                                                                .used = used,
                                                                .width = hidden,
                                                                .shared = SLICE(E_SHARED),
                                                                .shared_gate = SLICE(E_SGATE),
                                                                .x = SLICE(E_X)}
    });
    add_norm(c, d, p, E_X, E_NEXT);
}

static void run_moe(es_compare *c)
{
    static const int64_t shapes[][4] = {
        {8,   4, 256, 256},
        {256, 8, 512, 256},
        {40,  3, 256, 512}
    };
    static const int32_t tokens[] = {1, 5, 64, 190};
    c->record = record_moe;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        memcpy(c->shape, shapes[i], sizeof shapes[i]);
        const int64_t experts = c->shape[0], used = c->shape[1], hidden = c->shape[2], ffn = c->shape[3];
        c->b[E_IDS] = es_compare_room(c, MOST_ROWS * used);
        c->b[E_WEIGHTS] = es_compare_room(c, MOST_ROWS * used);
        c->b[E_STARTS] = es_compare_room(c, experts + 1);
        c->b[E_ORDER] = es_compare_room(c, MOST_ROWS * used);
        c->b[E_IN] = es_compare_floats(c, MOST_ROWS * hidden, -1, 1);
        c->b[E_NORM] = es_compare_floats(c, hidden, 0.4f, 0.8f);
        c->b[E_H] = es_compare_room(c, MOST_ROWS * hidden);
        c->b[E_ROUTER] = es_compare_floats(c, experts * hidden, -0.3f, 0.3f);
        c->b[E_HOW] = es_compare_floats(c, hidden, -0.1f, 0.1f);
        c->b[E_LOGITS] = es_compare_room(c, MOST_ROWS * experts);
        c->b[E_SGATE_W] = weights(c, c->type, ffn, hidden, 0.05f);
        c->b[E_SUP_W] = weights(c, c->type, ffn, hidden, 0.05f);
        c->b[E_SDOWN_W] = weights(c, c->type, hidden, ffn, 0.05f);
        c->b[E_SG] = es_compare_room(c, MOST_ROWS * ffn);
        c->b[E_SU] = es_compare_room(c, MOST_ROWS * ffn);
        c->b[E_NEXT] = es_compare_room(c, MOST_ROWS * hidden);
        c->b[E_GATE] = weights(c, c->type, experts * ffn, hidden, 0.05f);
        c->b[E_UP] = weights(c, c->type, experts * ffn, hidden, 0.05f);
        c->b[E_DOWN] = weights(c, c->type, experts * hidden, ffn, 0.05f);
        c->b[E_G] = es_compare_room(c, MOST_ROWS * used * ffn);
        c->b[E_U] = es_compare_room(c, MOST_ROWS * used * ffn);
        c->b[E_Y] = es_compare_room(c, MOST_ROWS * used * hidden);
        c->b[E_SHARED] = es_compare_room(c, MOST_ROWS * hidden);
        c->b[E_SGATE] = es_compare_room(c, MOST_ROWS);
        c->b[E_X] = es_compare_floats(c, MOST_ROWS * hidden, -1, 1);
        uint32_t *alone[2] = {NULL, NULL}; /* the first token's experts, by itself and in company */
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
            es_compare_steps s;
            es_compare_start(&s);
            es_compare_span(&s, 0, 0, tokens[t]);
            s.span[0].pages = NULL;
            es_compare_step(c, &s.batch);
            uint32_t *bits[2] = {es_compare_bits(c, c->b[E_Y], used * hidden), es_compare_bits(c, c->b[E_SHARED], hidden)};
            es_compare_same(c, "experts", alone[0], bits[0], used * hidden);
            es_compare_same(c, "shared expert", alone[1], bits[1], hidden);
            for (int k = 0; k < 2; k++) {
                if (alone[k]) free(bits[k]);
                else alone[k] = bits[k];
            }
            es_compare_outputs(c, "router's weights", c->b[E_WEIGHTS], tokens[t] * used);
            es_compare_outputs(c, "experts", c->b[E_Y], tokens[t] * used * hidden);
            es_compare_outputs(c, "shared expert", c->b[E_SHARED], tokens[t] * hidden);
            es_compare_outputs(c, "sum of experts", c->b[E_X], tokens[t] * hidden);
            es_compare_outputs(c, "norm of the sum", c->b[E_NEXT], tokens[t] * hidden);
        }
        for (int k = 0; k < 2; k++) free(alone[k]);
        es_compare_release(c, 0);
    }
}

/* --- the table --- */

static const struct {
    const char *operation;
    es_compare_fn run;
    double f32, bf16; /* tolerances */
    int types;        /* weight types from F32 on; 1: BF16 alone; 0: none */
    es_attn_shape attn;
} rows[] = {
    {"rows",          run_rows,      1e-5, 1e-5, ES_DTYPES - 1, {0}               },
    {"matmul",        run_matmul,    1e-5, 8e-3, ES_DTYPES - 1, {0}               },
    {"mlp",           run_mlp,       1e-5, 1.5e-2, ES_DTYPES - 1, {0}               },
    {"mlp_twice",     run_mlp_twice, 2e-5, 3e-2, 0,             {0}               },
    {"mlp_beside",    run_mlp_read,  2e-5, 3e-2, 0,             {0}               },
    {"attention_64",  run_attention, 1e-5, 8e-3, 0,             {4, 2, 64, PAGE}  },
    {"attention_128", run_attention, 1e-5, 8e-3, 0,             {8, 1, 128, PAGE} },
    {"attention_256", run_attention, 1e-5, 8e-3, 0,             {16, 2, 256, PAGE}},
    {"attention_32",  run_attention, 1e-5, 8e-3, 0,             {6, 2, 32, PAGE}  },
    {"delta",         run_delta,     2e-5, 2e-5, 0,             {0}               },
    {"experts",       run_moe,       1e-5, 1.5e-2, ES_DTYPES - 1, {0}               },
    {"pick",          es_compare_picks,   0,    0,    0,             {0}               },
};
enum { ROWS = sizeof rows / sizeof *rows };

static int count_of(int row)
{
    return 2 * (rows[row].types ? rows[row].types : 1);
}

int es_compare_count(void)
{
    int count = 0;
    for (int i = 0; i < ROWS; i++) count += count_of(i);
    return count;
}

/* First all of mode f32, then of bf16. */
static int find(int index, es_numeric *numeric, es_dtype *type)
{
    for (int i = 0; i < ROWS && index >= 0; i++) {
        const int each = count_of(i) / 2;
        if (index < 2 * each) {
            *numeric = index < each ? ES_NUMERIC_F32 : ES_NUMERIC_BF16;
            *type = rows[i].types ? (es_dtype)(index % each) : ES_BF16;
            return i;
        }
        index -= 2 * each;
    }
    return -1;
}

void es_compare_name(int index, es_compare_row *row)
{
    es_dtype type;
    const int i = find(index, &row->numeric, &type);
    if (i < 0) return;
    row->operation = rows[i].operation;
    row->type = rows[i].types ? es_dtype_get_info(type)->name : NULL;
    row->tolerance = row->numeric == ES_NUMERIC_F32 ? rows[i].f32 : rows[i].bf16;
}

es_compare_fn es_compare_prepare(int index, es_compare *c)
{
    es_numeric numeric;
    const int i = find(index, &numeric, &c->type);
    if (i < 0) return NULL;
    c->options = (es_device_options){.rows = MOST_ROWS,
                                     .spans = MOST_SPANS,
                                     .context = CONTEXT,
                                     .columns = 12288,
                                     .attn = rows[i].attn,
                                     .numeric = numeric};
    c->shape[0] = i % 2; /* attention: pairs interleaved or not */
    return rows[i].run;
}
