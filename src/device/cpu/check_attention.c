/* check_attention.c: the harness's rows for attention and for the recurrence over a state. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/check_case.h"

enum { MOST_ROWS = 64, MOST_TILES = 3, LANES = 16 };

/* A fold over some tiles of keys, one after the other. */
typedef struct tiles_arguments {
    bool half; /* keys and values are binary16 */
    int32_t rows, dim, tiles;
    const float *q[MOST_ROWS];
    int32_t valid[MOST_TILES][MOST_ROWS];
    const void *k[MOST_TILES][ES_ATTN_TILE_BLOCKS], *v[MOST_TILES][ES_ATTN_TILE_BLOCKS];
    float *p;
    const es_case_output *m, *l, *o;
} tiles_arguments;

/* A tile of keys to fold, of either type. */
static void fold_tile(const es_kernels *kernels, const tiles_arguments *a, es_attn_tile *tile, const void *const *k,
                      const void *const *v, const void *const *next)
{
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
        if (a->half) tile->k16[b] = k[b], tile->v16[b] = v[b];
        else tile->k[b] = k[b], tile->v[b] = v[b];
        tile->next_k[b] = next ? next[b] : NULL;
    }
    (a->half ? kernels->attn_tile_f16 : kernels->attn_tile)(tile);
}

static void run_tiles(const es_kernels *kernels, void *arguments, int side)
{
    const tiles_arguments *a = arguments;
    for (int32_t t = 0; t < a->tiles; t++) {
        es_attn_tile tile = {.q = a->q, .valid = a->valid[t], .rows = a->rows, .head_dim = a->dim, .m = a->m->side[side],
                             .l = a->l->side[side], .o = a->o->side[side], .p = a->p};
        fold_tile(kernels, a, &tile, a->k[t], a->v[t], t + 1 < a->tiles ? a->k[t + 1] : NULL);
    }
}

/* Numbers as they are, or in binary16. Among special ones of those are any that are smaller than 2, subnormal ones too. */
static const void *stored(es_case *c, bool as_half, const float *x, int64_t n, es_case_values values)
{
    if (!as_half) return x;
    uint16_t *half = es_case_alloc(c, n * (int64_t)sizeof *half);
    for (int64_t i = 0; half && i < n; i++) {
        const bool any = values == ES_VALUES_SPECIAL && !isnan(x[i]) && es_case_draw(c, 4) == 0;
        half[i] = any ? (uint16_t)(es_case_draw(c, 1 << 16) & 0xBFFF) : es_float_to_half(x[i]);
    }
    return half;
}

/* A tile's keys and values: NaN where no row sees them, absent where no row sees anything of a block. */
static void new_keys(es_case *c, tiles_arguments *a, int32_t t, es_case_values values)
{
    int32_t most = 0;
    for (int32_t r = 0; r < a->rows; r++)
        if (a->valid[t][r] > most) most = a->valid[t][r];
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
        a->k[t][b] = a->v[t][b] = NULL;
        if (b * ES_ATTN_BLOCK >= most) continue;
        float *k = es_case_input(c, (int64_t)a->dim * ES_ATTN_BLOCK, values);
        float *v = es_case_input(c, (int64_t)a->dim * ES_ATTN_BLOCK, values);
        if (!k || !v) return;
        for (int j = 0; j < ES_ATTN_BLOCK; j++)
            for (int32_t d = 0; d < a->dim && b * ES_ATTN_BLOCK + j >= most; d++)
                k[d * ES_ATTN_BLOCK + j] = v[j * a->dim + d] = NAN;
        /* Some scores far below the zeros of either sign that the others are flushed to: which zero is the maximum? */
        for (int j = 0; j < ES_ATTN_BLOCK && values == ES_VALUES_TINY; j++)
            if (es_case_draw(c, 4)) k[j] = a->q[0][0] > 0 ? -1e30f : 1e30f;
        a->k[t][b] = stored(c, a->half, k, (int64_t)a->dim * ES_ATTN_BLOCK, values);
        a->v[t][b] = stored(c, a->half, v, (int64_t)a->dim * ES_ATTN_BLOCK, values);
    }
}

/* How many keys row r sees: all, a causal edge, anything (less than none included), or only a few rows anything. */
static int32_t valid_of(es_case *c, int pattern, int32_t t, int32_t r)
{
    switch (pattern) {
    case 0: return ES_ATTN_TILE;
    case 1: return r + 1 - t * 7;
    case 2: return es_case_draw(c, 90) - 20;
    case 3: return es_case_draw(c, 4) ? 0 : 1 + es_case_draw(c, ES_ATTN_TILE);
    default: return 1 + es_case_draw(c, 16);
    }
}

static tiles_arguments new_tiles(es_case *c, bool half, int32_t rows, int32_t dim, int32_t tiles, int pattern,
                                 es_case_values values)
{
    tiles_arguments a = {.half = half, .rows = rows, .dim = dim, .tiles = tiles};
    float *q = es_case_input(c, (int64_t)rows * dim, values);
    for (int32_t r = 0; r < rows; r++) a.q[r] = q + (int64_t)r * dim;
    for (int32_t t = 0; t < tiles; t++) {
        for (int32_t r = 0; r < rows; r++) a.valid[t][r] = valid_of(c, pattern, t, r);
        new_keys(c, &a, t, values);
    }
    float lowest[MOST_ROWS], zeros[MOST_ROWS * LANES] = {0};
    for (int32_t r = 0; r < rows; r++) lowest[r] = -INFINITY;
    float *nothing = es_case_alloc(c, (int64_t)rows * dim * (int64_t)sizeof *nothing);
    if (nothing) memset(nothing, 0, (size_t)rows * (size_t)dim * sizeof *nothing);
    a.p = es_case_input(c, (int64_t)rows * ES_ATTN_TILE, ES_VALUES_PLAIN);
    a.m = es_case_new_output(c, "m", rows, lowest);
    a.l = es_case_new_output(c, "l", (int64_t)rows * LANES, zeros);
    a.o = es_case_new_output(c, "o", (int64_t)rows * dim, nothing);
    return a;
}

static void check_tiles(es_case *c, bool half)
{
    static const int32_t dims[] = {16, 32, 64, 80, 128, 256}, rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 64};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int pattern = 0; pattern < 5; pattern++) {
                static const es_case_values kinds[] = {ES_VALUES_PLAIN, ES_VALUES_SPECIAL, ES_VALUES_PLAIN, ES_VALUES_TINY};
                const es_case_values values = kinds[(d + r) % 4];
                tiles_arguments a = new_tiles(c, half, rows[r], dims[d], 1 + es_case_draw(c, MOST_TILES), pattern, values);
                es_case_run(c, run_tiles, &a, "%d rows of %d channels, %d tiles, pattern %d", rows[r], dims[d], a.tiles,
                            pattern);
            }
    tiles_arguments a = new_tiles(c, half, MOST_ROWS, 128, 1, 0, ES_VALUES_PLAIN);
    es_case_run_timed(c, run_tiles, &a, "64 rows of 128 channels, 64 keys", 0, 4.0 * MOST_ROWS * 128 * 64);
}

void es_check_attn_tile(es_case *c, es_dtype type)
{
    (void)type;
    check_tiles(c, false);
}

void es_check_attn_tile_f16(es_case *c, es_dtype type)
{
    (void)type;
    check_tiles(c, true);
}

/* One token over a long context: every key and value is read once, by the query heads of its KV head. */
typedef struct context_arguments {
    tiles_arguments tile;
    const unsigned char *keys, *values;
    int64_t length;
} context_arguments;

static void run_context(const es_kernels *kernels, void *arguments, int side)
{
    const context_arguments *a = arguments;
    const int64_t block = (int64_t)ES_ATTN_BLOCK * a->tile.dim * (a->tile.half ? 2 : 4);
    es_attn_tile tile = {.q = a->tile.q, .valid = a->tile.valid[0], .rows = a->tile.rows, .head_dim = a->tile.dim,
                         .m = a->tile.m->side[side], .l = a->tile.l->side[side], .o = a->tile.o->side[side], .p = a->tile.p};
    for (int64_t key = 0; key < a->length; key += ES_ATTN_TILE) {
        const void *k[ES_ATTN_TILE_BLOCKS], *v[ES_ATTN_TILE_BLOCKS], *next[ES_ATTN_TILE_BLOCKS];
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
            k[b] = a->keys + (key / ES_ATTN_BLOCK + b) * block;
            v[b] = a->values + (key / ES_ATTN_BLOCK + b) * block;
            next[b] = key + ES_ATTN_TILE < a->length ? a->keys + (key / ES_ATTN_BLOCK + b + ES_ATTN_TILE_BLOCKS) * block : NULL;
        }
        fold_tile(kernels, &a->tile, &tile, k, v, next);
    }
}

static const void *new_context(es_case *c, bool half, int64_t numbers)
{
    const float *x = es_case_input(c, numbers, ES_VALUES_PLAIN);
    return x ? stored(c, half, x, numbers, ES_VALUES_PLAIN) : NULL;
}

static void check_decode(es_case *c, bool half)
{
    enum { GROUP = 4, DIM = 128 };
    const int64_t length = c->timed ? 32768 : 512;
    context_arguments a = {.tile = new_tiles(c, half, GROUP, DIM, 1, 0, ES_VALUES_PLAIN), .length = length};
    a.keys = new_context(c, half, length * DIM);
    a.values = new_context(c, half, length * DIM);
    es_case_run_timed(c, run_context, &a, "4 rows of 128 channels, 32768 keys", (half ? 4.0 : 8.0) * DIM * (double)length,
                      4.0 * GROUP * DIM * (double)length);
}

void es_check_attn_decode(es_case *c, es_dtype type)
{
    (void)type;
    check_decode(c, false);
}

void es_check_attn_decode_f16(es_case *c, es_dtype type)
{
    (void)type;
    check_decode(c, true);
}

typedef struct merge_arguments {
    const es_case_output *m, *l, *o;
    float m2, l2;
    const float *o2;
    int32_t n;
} merge_arguments;

static void run_merge(const es_kernels *kernels, void *arguments, int side)
{
    const merge_arguments *a = arguments;
    kernels->attn_merge(a->m->side[side], a->l->side[side], a->o->side[side], a->m2, a->l2, a->o2, a->n);
}

static merge_arguments new_merge(es_case *c, int32_t n, float m1, float m2)
{
    /* What an empty side holds must not matter. */
    const float l1 = m1 == -INFINITY ? NAN : 3.7f;
    float *o = es_case_input(c, n, ES_VALUES_SPECIAL);
    for (int32_t i = 0; i < n && o && m1 == -INFINITY && m2 != -INFINITY; i++) o[i] = NAN;
    merge_arguments a = {.m2 = m2, .l2 = m2 == -INFINITY ? NAN : 1.9f, .n = n};
    a.o2 = es_case_input(c, n, ES_VALUES_SPECIAL);
    a.m = es_case_new_output(c, "m", 1, &m1);
    a.l = es_case_new_output(c, "l", 1, &l1);
    a.o = es_case_new_output(c, "o", n, o);
    return a;
}

void es_check_attn_merge(es_case *c, es_dtype type)
{
    (void)type;
    static const float most[] = {-INFINITY, -80.0f, -1.5f, 0.0f, 0.3f, 21.0f, 3e4f};
    enum { MOST = sizeof most / sizeof *most };
    static const int32_t widths[] = {1, 16, 17, 64, 80, 128, 250, 256};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int i = 0; i < MOST * MOST; i++) {
            merge_arguments a = new_merge(c, widths[w], most[i / MOST], most[i % MOST]);
            es_case_run(c, run_merge, &a, "%d channels, maxima %g and %g", widths[w], (double)most[i / MOST], (double)a.m2);
        }
    merge_arguments a = new_merge(c, 128, 0.3f, 0.4f);
    es_case_run_timed(c, run_merge, &a, "128 channels", 12.0 * 128, 0);
}

typedef struct delta_arguments {
    es_delta_tile tile;
    const es_case_output *state, *out;
} delta_arguments;

static void run_delta(const es_kernels *kernels, void *arguments, int side)
{
    const delta_arguments *a = arguments;
    es_delta_tile tile = a->tile;
    tile.state = a->state->side[side];
    tile.out = a->out->side[side];
    kernels->delta_scan(&tile);
}

static void fill_gates(es_case *c, float *gates, int32_t rows)
{
    for (int32_t t = 0; t < rows && gates; t++) {
        const int kind = es_case_draw(c, 6);
        if (kind == 0) gates[3 * t] = 0.0f;
        if (kind == 1) gates[3 * t] = 1.0f;
    }
}

static delta_arguments new_delta(es_case *c, int32_t key_dim, int32_t columns, int32_t rows, bool fresh)
{
    delta_arguments a = {.tile = {.fresh = fresh, .key_dim = key_dim, .columns = columns, .rows = rows}};
    a.tile.state_stride = columns + es_case_draw(c, 2) * 64;
    a.tile.x_stride = 2 * key_dim + columns + es_case_draw(c, 5);
    a.tile.gate_stride = 3;
    a.tile.out_stride = columns + es_case_draw(c, 2) * 10;
    const int64_t width = 2 * (int64_t)key_dim + columns;
    float *x = es_case_input(c, (rows - 1) * a.tile.x_stride + width, ES_VALUES_PLAIN);
    for (int32_t t = 0; t < rows && x; t++) /* keys and queries of unit length, about */
        for (int32_t i = 0; i < 2 * key_dim; i++) x[t * a.tile.x_stride + i] *= 1.0f / (1.2f * sqrtf((float)key_dim));
    a.tile.q = x, a.tile.k = x + key_dim, a.tile.v = x + 2 * key_dim;
    float *gates = es_case_input(c, 3 * (int64_t)rows, ES_VALUES_UNIT);
    fill_gates(c, gates, rows);
    a.tile.gates = gates;
    const int64_t cells = (key_dim - 1) * a.tile.state_stride + columns;
    float *state = es_case_input(c, cells, ES_VALUES_PLAIN);
    for (int64_t i = 0; i < cells && state && fresh; i++) state[i] = NAN;
    a.state = es_case_new_output(c, "state", cells, state);
    a.out = es_case_new_output(c, "out", (rows - 1) * a.tile.out_stride + columns, NULL);
    return a;
}

void es_check_delta_scan(es_case *c, es_dtype type)
{
    (void)type;
    static const int32_t keys[] = {1, 16, 17, 64, 128, 256}, columns[] = {16, 32, 48, 64}, rows[] = {1, 2, 3, 17, 64};
    for (int i = 0; i < 6 * 4 * 5 * 2; i++) {
        const int32_t k = keys[i / 40], n = columns[i / 10 % 4], t = rows[i / 2 % 5];
        delta_arguments a = new_delta(c, k, n, t, i % 2);
        es_case_run(c, run_delta, &a, "%d tokens, state %d by %d%s", t, k, n, i % 2 ? ", fresh" : "");
    }
    delta_arguments a = new_delta(c, 128, 64, 64, false);
    es_case_run_timed(c, run_delta, &a, "64 tokens, state 128 by 64", 0, 7.0 * 64 * 128 * 64);
}

/* One token: the state passes through once. */
void es_check_delta_step(es_case *c, es_dtype type)
{
    (void)type;
    delta_arguments a = new_delta(c, 128, 64, 1, false);
    es_case_run_timed(c, run_delta, &a, "1 token, state 128 by 64", 2.0 * 128 * 64 * 4, 7.0 * 128 * 64);
}
