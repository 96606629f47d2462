/* check_products.c: the harness's rows for the products of modes bf16, bf16dp and int8, and the attention of all three.
 *
 * A product is run as the device runs it: tokens encoded, weights unpacked and multiplied by the kernels of one side, so that
 * a fault in any of them shows in the output. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/check_case.h"

enum { MOST_TOKENS = 35, MOST_PANELS = 3, MOST_COLUMNS = 1024 };

typedef struct product_arguments {
    es_dtype type;
    const unsigned char *weights; /* quantised rows; NULL: bf16 */
    const uint16_t *w16;
    const float *x[MOST_TOKENS];
    int32_t rows, tokens;
    bool dot_products; /* mode bf16dp */
    bool in_one_go;    /* one token, or a few: straight from stored weights, where there is such a kernel */
    int64_t columns, blocks;
    int8_t *data, *q;
    float *scale, *sum, *unpacked_scale, *unpacked_offset;
    const es_case_output *out;
} product_arguments;

static void run_bf16dp(const es_kernels *kernels, const product_arguments *a, int side)
{
    const int64_t padded = a->blocks * ES_PRODUCT_BLOCK;
    const es_bf16_rows rows = {a->w16, padded, a->rows, a->blocks};
    const es_bf16_tokens tokens = {(uint16_t *)(void *)a->data, padded + ES_TOKENS_APART, a->tokens};
    for (int32_t t = 0; t < a->tokens; t++)
        kernels->products.encode_bf16(a->x + t, 1, a->columns, (uint16_t *)(void *)a->data + t * tokens.stride);
    kernels->product_bf16dp(&rows, &tokens, a->out->side[side]);
}

static void run_product(const es_kernels *kernels, void *arguments, int side)
{
    const product_arguments *a = arguments;
    if (a->dot_products) {
        run_bf16dp(kernels, a, side);
        return;
    }
    const es_products *p = &kernels->products;
    es_panel panel[MOST_PANELS];
    int32_t panels = 0;
    for (int32_t t = 0; t < a->tokens; t += ES_PANEL_TOKENS, panels++) {
        const int32_t n = a->tokens - t < ES_PANEL_TOKENS ? a->tokens - t : ES_PANEL_TOKENS;
        int8_t *data = a->data + (int64_t)t * a->blocks * ES_PRODUCT_BLOCK * 2;
        float *scale = a->scale + t * a->blocks, *sum = a->sum + t * a->blocks;
        if (a->weights)
            p->encode_int8(a->x + t, n, a->columns, data, scale, sum);
        else
            p->encode_bf16(a->x + t, n, a->columns, (uint16_t *)(void *)data);
        panel[panels] = (es_panel){n, a->blocks, data, scale, sum};
    }
    if (!a->weights) {
        const es_bf16_rows rows = {a->w16, a->blocks * ES_PRODUCT_BLOCK, a->rows, a->blocks};
        p->bf16(&rows, panel, panels, a->out->side[side]);
        return;
    }
    const es_one_token_fn one = a->tokens == 1 ? p->one[a->type] : p->few[a->type];
    if (a->in_one_go && one) {
        one(a->weights, es_dtype_bytes(a->type, a->columns), a->columns, panel, a->out->side[side]);
        return;
    }
    es_int8_rows rows;
    const es_unpack_room room = {a->q, a->unpacked_scale, a->unpacked_offset};
    p->unpack[a->type](a->weights, es_dtype_bytes(a->type, a->columns), a->rows, a->columns, &room, &rows);
    p->int8(&rows, panel, panels, a->out->side[side]);
}

/* False when there is no memory, which the case remembers. */
static bool new_product(es_case *c, es_dtype type, bool int8, int32_t rows, int32_t tokens, int64_t columns,
                        product_arguments *a)
{
    *a = (product_arguments){.type = type,
                             .rows = rows,
                             .tokens = tokens,
                             .columns = columns,
                             .blocks = (columns + ES_PRODUCT_BLOCK - 1) / ES_PRODUCT_BLOCK};
    const int64_t padded = a->blocks * ES_PRODUCT_BLOCK, tokens16 = MOST_PANELS * ES_PANEL_TOKENS;
    for (int32_t t = 0; t < tokens; t++) a->x[t] = es_case_input(c, columns, t % 9 == 5 ? ES_VALUES_SPECIAL : ES_VALUES_PLAIN);
    a->data = es_case_alloc(c, tokens16 * (padded + ES_TOKENS_APART) * 2);
    a->scale = es_case_alloc(c, tokens16 * a->blocks * (int64_t)sizeof(float));
    a->sum = es_case_alloc(c, tokens16 * a->blocks * (int64_t)sizeof(float));
    a->q = es_case_alloc(c, ES_PRODUCT_ROWS * padded);
    a->unpacked_scale = es_case_alloc(c, padded * (int64_t)sizeof(float));
    a->unpacked_offset = es_case_alloc(c, padded * (int64_t)sizeof(float));
    uint16_t *w16 = int8 ? NULL : es_case_alloc(c, ES_PRODUCT_ROWS * padded * 2);
    const float *w = int8 ? NULL : es_case_input(c, ES_PRODUCT_ROWS * padded, ES_VALUES_PLAIN);
    for (int64_t i = 0; w16 && w && i < ES_PRODUCT_ROWS * padded; i++)
        w16[i] = i % padded < columns ? es_float_to_bfloat(w[i]) : 0;
    a->w16 = w16;
    if (int8) a->weights = es_case_weights(c, type, ES_PRODUCT_ROWS * columns);
    /* Panels lie 16 · 16 apart; what belongs to no row or token is not written alike by all kernels. */
    a->out = es_case_new_output(c, "out", (int64_t)tokens16 * ES_PRODUCT_ROWS, NULL);
    return c->status == ES_OK;
}

/* The greatest integers there are in all weights and inputs: partial sums that just fit their type may not spill. */
static void make_extreme(product_arguments *a, int kind)
{
    static const struct {
        unsigned char from, to; /* bytes of a block that are integers */
    } integers[ES_DTYPES] = {
        [ES_Q8_0] = {2,  34 },
          [ES_Q4_0] = {2,  18 },
          [ES_Q4_1] = {4,  20 },
          [ES_Q5_0] = {2,  22 },
        [ES_Q5_1] = {4,  24 },
          [ES_Q4_K] = {16, 144},
          [ES_Q5_K] = {16, 176},
          [ES_Q6_K] = {0,  192}
    };
    static const unsigned char bytes[] = {0xFF, 0x00, 0x80, 0x7F};
    const es_dtype_info *info = es_dtype_get_info(a->type);
    unsigned char *weights = (unsigned char *)(uintptr_t)a->weights; /* the case's own, as the inputs are */
    for (int64_t i = 0; i * info->block < ES_PRODUCT_ROWS * a->columns; i++)
        memset(weights + i * info->block_bytes + integers[a->type].from, bytes[kind / 2],
               (size_t)(integers[a->type].to - integers[a->type].from));
    for (int32_t t = 0; t < a->tokens; t++)
        for (int64_t i = 0; i < a->columns; i++) ((float *)(uintptr_t)a->x[t])[i] = kind % 2 ? 1.0f : -1.0f;
}

static void check_extremes(es_case *c, es_dtype type, bool in_one_go)
{
    static const int32_t counts[] = {1, 2, 5, 16};
    product_arguments a;
    const int kinds = !in_one_go ? 4 : c->candidate->products.few[type] ? 3 : 1;
    for (int k = 0; k < kinds; k++)
        for (int kind = 0; kind < 8; kind++) {
            if (!new_product(c, type, true, ES_PRODUCT_ROWS, counts[k], 256, &a)) return;
            a.in_one_go = in_one_go;
            make_extreme(&a, kind);
            es_case_run(c, run_product, &a, "%d tokens, the greatest integers (%d)", (int)a.tokens, kind);
        }
}

static const int32_t token_counts[] = {1, 2, 15, 16, 17, 35};

static void check_products(es_case *c, es_dtype type, bool int8)
{
    static const int64_t wide[] = {256, 512, 1024}, any[] = {32, 64, 80, 100, 256, 1000};
    for (int k = 0; k < (int)(sizeof token_counts / sizeof *token_counts); k++)
        for (int w = 0; w < (int8 ? 3 : 6); w++) {
            product_arguments a;
            if (!new_product(c, type, int8, ES_PRODUCT_ROWS, token_counts[k], int8 ? wide[w] : any[w], &a)) return;
            es_case_run(c, run_product, &a, "%d tokens, 16 x %d", (int)a.tokens, (int)a.columns);
        }
    product_arguments a;
    if (!new_product(c, type, int8, ES_PRODUCT_ROWS, 16, MOST_COLUMNS, &a)) return;
    const double bytes = int8 ? (double)es_dtype_bytes(type, ES_PRODUCT_ROWS * a.columns) : 32.0 * (double)a.columns;
    es_case_run_timed(c, run_product, &a, "16 tokens, 16 x 1024", bytes, 512.0 * (double)a.columns);
}

/* A single token, and a few, by the kernels that take stored weights in one go, where there are such. */
void es_check_one_token(es_case *c, es_dtype type)
{
    static const int64_t wide[] = {256, 512, 768, 1024};
    product_arguments a;
    for (int w = 0; w < 8; w++) {
        if (!new_product(c, type, true, ES_PRODUCT_ROWS, 1, wide[w / 2], &a)) return;
        a.in_one_go = true;
        es_case_run(c, run_product, &a, "one token, 16 x %d", (int)a.columns);
    }
    for (int32_t n = 2; n <= c->candidate->products.most_few[type]; n++)
        for (int w = 0; w < 4; w++) {
            if (!new_product(c, type, true, ES_PRODUCT_ROWS, n, wide[w], &a)) return;
            a.in_one_go = true;
            es_case_run(c, run_product, &a, "%d tokens, 16 x %d", (int)n, (int)a.columns);
        }
    check_extremes(c, type, true);
    if (!new_product(c, type, true, ES_PRODUCT_ROWS, 1, MOST_COLUMNS, &a)) return;
    a.in_one_go = true;
    es_case_run_timed(c, run_product, &a, "one token, 16 x 1024", (double)es_dtype_bytes(type, ES_PRODUCT_ROWS * a.columns),
                      32.0 * (double)a.columns);
}

void es_check_product_bf16(es_case *c, es_dtype type)
{
    check_products(c, type, false);
}

/* Blocks that are cut short, too: rows that are not there may not be written. */
void es_check_product_bf16dp(es_case *c, es_dtype type)
{
    static const int32_t rows[] = {1, 7, 15, 16};
    product_arguments a;
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < (int)(sizeof token_counts / sizeof *token_counts); k++) {
            const int64_t columns = 32 + 17 * es_case_draw(c, 58);
            if (!new_product(c, type, false, rows[r], token_counts[k], columns, &a)) return;
            a.dot_products = true;
            es_case_run(c, run_product, &a, "%d tokens, %d x %d", (int)a.tokens, (int)a.rows, (int)a.columns);
        }
    if (!new_product(c, type, false, ES_PRODUCT_ROWS, 16, MOST_COLUMNS, &a)) return;
    a.dot_products = true;
    es_case_run_timed(c, run_product, &a, "16 tokens, 16 x 1024", 32.0 * (double)a.columns, 512.0 * (double)a.columns);
}

void es_check_product_int8(es_case *c, es_dtype type)
{
    check_extremes(c, type, false);
    check_products(c, type, true);
}

/* --- attention over bfloat16 keys and values --- */

enum { MOST_ROWS = 64 };

typedef struct attn_arguments {
    const float *q[MOST_ROWS];
    int32_t valid[MOST_ROWS], rows, dim;
    const uint16_t *k[ES_ATTN_TILE_BLOCKS], *v[ES_ATTN_TILE_BLOCKS];
    float *p;
    const es_case_output *m, *l, *o;
} attn_arguments;

static void run_attn(const es_kernels *kernels, void *arguments, int side)
{
    const attn_arguments *a = arguments;
    es_attn_tile tile = {.q = a->q,
                         .valid = a->valid,
                         .rows = a->rows,
                         .head_dim = a->dim,
                         .m = a->m->side[side],
                         .l = a->l->side[side],
                         .o = a->o->side[side],
                         .p = a->p};
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) tile.k16[b] = a->k[b], tile.v16[b] = a->v[b];
    kernels->attn_tile_bf16(&tile); /* twice: from nothing, and on top of what is there */
    kernels->attn_tile_bf16(&tile);
}

static uint16_t *new_bf16(es_case *c, int64_t count)
{
    const float *from = es_case_input(c, count, ES_VALUES_PLAIN);
    uint16_t *to = es_case_alloc(c, count * 2);
    for (int64_t i = 0; from && to && i < count; i++) to[i] = es_float_to_bfloat(from[i]);
    return to;
}

/* Rows see all keys, a causal edge that ends behind the last one, or anything, nothing included. */
enum { SEES_ALL, SEES_EDGE, SEES_ANY, SEES };

static bool new_attn(es_case *c, int32_t rows, int32_t dim, int sees, attn_arguments *a)
{
    *a = (attn_arguments){.rows = rows, .dim = dim};
    float *q = es_case_input(c, (int64_t)rows * dim, ES_VALUES_PLAIN);
    float lowest[MOST_ROWS], zeros[MOST_ROWS * ES_DOT_LANES] = {0};
    for (int32_t r = 0; r < rows && q; r++) {
        a->q[r] = q + (int64_t)r * dim;
        for (int32_t d = 0; d < dim; d++) q[r * dim + d] = es_bfloat_to_float(es_float_to_bfloat(q[r * dim + d]));
        a->valid[r] = sees == SEES_ALL    ? ES_ATTN_TILE
                      : sees == SEES_EDGE ? ES_ATTN_TILE - (rows - 1 - r)
                                          : es_case_draw(c, 90) - 20;
        lowest[r] = -INFINITY;
    }
    int32_t most = 0;
    for (int32_t r = 0; r < rows; r++)
        if (a->valid[r] > most) most = a->valid[r];
    /* Blocks lie one after the other, or anywhere. Keys that no row sees were never written: NaN, or not there at all. */
    const int64_t block = (int64_t)dim * ES_ATTN_BLOCK;
    uint16_t *page = es_case_draw(c, 2) ? new_bf16(c, block * ES_ATTN_TILE_BLOCKS) : NULL;
    for (int b = 0; b * ES_ATTN_BLOCK < most && b < ES_ATTN_TILE_BLOCKS; b++) {
        uint16_t *k = new_bf16(c, block), *v = page ? page + b * block : new_bf16(c, block);
        for (int j = 0; j < ES_ATTN_BLOCK && k && v; j++)
            for (int32_t d = 0; d < dim && b * ES_ATTN_BLOCK + j >= most; d++)
                k[(d / 2 * ES_ATTN_BLOCK + j) * 2 + d % 2] = v[(j / 2 * dim + d) * 2 + j % 2] = 0x7FC0;
        a->k[b] = k, a->v[b] = v;
    }
    float *nothing = es_case_alloc(c, (int64_t)rows * dim * (int64_t)sizeof *nothing);
    if (nothing) memset(nothing, 0, (size_t)rows * (size_t)dim * sizeof *nothing);
    a->p = es_case_input(c, (int64_t)rows * ES_ATTN_TILE, ES_VALUES_PLAIN);
    a->m = es_case_new_output(c, "m", rows, lowest);
    a->l = es_case_new_output(c, "l", (int64_t)rows * ES_DOT_LANES, zeros);
    a->o = es_case_new_output(c, "o", (int64_t)rows * dim, nothing);
    return c->status == ES_OK;
}

void es_check_attn_tile_bf16(es_case *c, es_dtype type)
{
    (void)type;
    static const int32_t dims[] = {32, 64, 128, 256}, counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, 32, 48, 49, 64};
    enum { COUNTS = sizeof counts / sizeof *counts };
    for (int d = 0; d < 4; d++)
        for (int r = 0; r < COUNTS; r++)
            for (int sees = 0; sees < SEES; sees++) {
                attn_arguments a;
                if (!new_attn(c, counts[r], dims[d], sees, &a)) return;
                es_case_run(c, run_attn, &a, "%d rows of %d channels", (int)a.rows, (int)a.dim);
            }
    attn_arguments a;
    if (!new_attn(c, MOST_ROWS, 128, SEES_ALL, &a)) return;
    es_case_run_timed(c, run_attn, &a, "2 tiles, 64 rows of 128", 0, 2 * 4.0 * MOST_ROWS * 128 * ES_ATTN_TILE);
}
