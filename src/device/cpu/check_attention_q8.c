/* check_attention_q8.c: the harness's rows for attention over keys and values in 8 bits. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "device/cpu/check_case.h"

enum { MOST_ROWS = 32, MOST_TILES = 2, LANES = 16 };

typedef struct q8_arguments {
    es_attn_tile_q8 tile;
    int32_t valid[MOST_TILES][MOST_ROWS], tiles;
    const uint8_t *k[MOST_TILES][ES_ATTN_TILE_BLOCKS], *v[MOST_TILES][ES_ATTN_TILE_BLOCKS];
    const es_case_output *m, *l, *o;
} q8_arguments;

static void run_tiles(const es_kernels *kernels, void *arguments, int side)
{
    const q8_arguments *a = arguments;
    es_attn_tile_q8 tile = a->tile;
    tile.m = a->m->side[side], tile.l = a->l->side[side], tile.o = a->o->side[side];
    for (int32_t t = 0; t < a->tiles; t++) {
        tile.valid = a->valid[t];
        memcpy(tile.k, a->k[t], sizeof tile.k);
        memcpy(tile.v, a->v[t], sizeof tile.v);
        memcpy(tile.next_k, a->k[t + 1 < a->tiles ? t + 1 : t], sizeof tile.next_k);
        kernels->attn_tile_q8(&tile);
    }
}

/* A scale as a cache may hold it: near `about`, or, where a case is a wild one, anything. */
static uint16_t draw_scale(es_case *c, bool wild, float about)
{
    static const uint16_t odd[] = {0, 0x8000, 0x0001, 0x0400, 0x7BFF, 0x7C00, 0x7E00, 0xA000};
    if (wild && es_case_draw(c, 4) == 0) return odd[es_case_draw(c, (int32_t)(sizeof odd / sizeof *odd))];
    return es_float_to_half(about * (0.25f + (float)es_case_draw(c, 1000) * 1e-3f));
}

/* Integers and scales of sixteen keys (their bytes are moved up by 128) or values; from `seen` on nobody wrote them. */
static uint8_t *new_block(es_case *c, int32_t dim, int32_t seen, bool wild)
{
    uint8_t *block = es_case_alloc(c, es_attn_q8_block_bytes(dim));
    if (!block) return NULL;
    es_case_fill_bytes(c, block, ES_ATTN_BLOCK * dim);
    for (int32_t i = 0; i < dim / ES_ATTN_Q8_GROUP * ES_ATTN_BLOCK; i++) {
        const uint16_t scale = i % ES_ATTN_BLOCK < seen ? draw_scale(c, wild, 0.02f) : 0x7E00;
        memcpy(block + ES_ATTN_BLOCK * dim + 2 * i, &scale, sizeof scale);
    }
    return block;
}

static void new_queries(es_case *c, int32_t rows, int32_t dim, q8_arguments *a)
{
    const int32_t groups = dim / ES_ATTN_Q8_GROUP;
    int8_t *q = es_case_alloc(c, (int64_t)rows * dim);
    float *scale = es_case_input(c, (int64_t)rows * groups, ES_VALUES_UNIT);
    int32_t *zero = es_case_alloc(c, (int64_t)rows * groups * (int64_t)sizeof *zero);
    if (!q || !scale || !zero) return;
    es_case_fill_bytes(c, q, (int64_t)rows * dim);
    for (int32_t i = 0; i < rows * groups; i++) {
        int32_t sum = 0;
        for (int d = 0; d < ES_ATTN_Q8_GROUP; d++) sum += q[i * ES_ATTN_Q8_GROUP + d];
        scale[i] *= 0.01f;
        zero[i] = -128 * sum;
    }
    a->tile.q = q, a->tile.q_scale = scale, a->tile.q_zero = zero;
}

/* How many keys row r sees: all; a causal edge over groups of three rows; anything, less than none included; a few. */
static int32_t valid_of(es_case *c, int pattern, int32_t t, int32_t r)
{
    switch (pattern) {
    case 0: return ES_ATTN_TILE;
    case 1: return 55 + r / 3 - t * 30;
    case 2: return es_case_draw(c, 90) - 20;
    default: return 1 + es_case_draw(c, 18);
    }
}

static bool new_case(es_case *c, int32_t rows, int32_t dim, int32_t tiles, int pattern, bool wild, q8_arguments *a)
{
    *a = (q8_arguments){.tile = {.rows = rows, .head_dim = dim}, .tiles = tiles};
    new_queries(c, rows, dim, a);
    for (int32_t t = 0; t < tiles; t++) {
        int32_t most = 0;
        for (int32_t r = 0; r < rows; r++) {
            a->valid[t][r] = valid_of(c, pattern, t, r);
            if (a->valid[t][r] > most) most = a->valid[t][r];
        }
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS && b * ES_ATTN_BLOCK < most; b++) {
            a->k[t][b] = new_block(c, dim, most - b * ES_ATTN_BLOCK, wild);
            a->v[t][b] = new_block(c, dim, most - b * ES_ATTN_BLOCK, wild);
        }
    }
    float lowest[MOST_ROWS], zeros[MOST_ROWS * LANES] = {0};
    for (int32_t r = 0; r < rows; r++) lowest[r] = -INFINITY;
    float *nothing = es_case_alloc(c, (int64_t)rows * dim * (int64_t)sizeof *nothing);
    if (nothing) memset(nothing, 0, (size_t)rows * (size_t)dim * sizeof *nothing);
    a->tile.p = es_case_input(c, (int64_t)rows * ES_ATTN_TILE, ES_VALUES_PLAIN);
    a->m = es_case_new_output(c, "m", rows, lowest);
    a->l = es_case_new_output(c, "l", (int64_t)rows * LANES, zeros);
    a->o = es_case_new_output(c, "o", (int64_t)rows * dim, nothing);
    return c->status == ES_OK;
}

void es_check_attn_tile_q8(es_case *c, es_dtype type)
{
    (void)type;
    static const int32_t dims[] = {32, 64, 96, 128, 256, 1024}, rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31};
    for (int d = 0; d < 6; d++)
        for (int r = 0; r < 11; r++)
            for (int pattern = 0; pattern < 4; pattern++) {
                q8_arguments a;
                if (!new_case(c, rows[r], dims[d], 1 + es_case_draw(c, MOST_TILES), pattern, (d + r) % 2, &a)) return;
                es_case_run(c, run_tiles, &a, "%d rows of %d channels, %d tiles, pattern %d%s", rows[r], dims[d], a.tiles, pattern,
                            (d + r) % 2 ? ", wild scales" : "");
            }
    q8_arguments a;
    if (!new_case(c, MOST_ROWS, 128, 1, 0, false, &a)) return;
    es_case_run_timed(c, run_tiles, &a, "32 rows of 128 channels, 64 keys", 0, 4.0 * MOST_ROWS * 128 * ES_ATTN_TILE);
}

/* One token over a long context: every key and value is read once, by the query heads of its KV head. */
typedef struct context_arguments {
    q8_arguments first;
    const uint8_t *keys, *values;
    int64_t length;
} context_arguments;

static void run_context(const es_kernels *kernels, void *arguments, int side)
{
    const context_arguments *a = arguments;
    es_attn_tile_q8 tile = a->first.tile;
    const int64_t bytes = es_attn_q8_block_bytes(tile.head_dim), last = a->length - ES_ATTN_TILE;
    tile.m = a->first.m->side[side], tile.l = a->first.l->side[side], tile.o = a->first.o->side[side];
    tile.valid = a->first.valid[0];
    for (int64_t key = 0; key < a->length; key += ES_ATTN_TILE) {
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
            tile.k[b] = a->keys + (key / ES_ATTN_BLOCK + b) * bytes;
            tile.v[b] = a->values + (key / ES_ATTN_BLOCK + b) * bytes;
            tile.next_k[b] = key < last ? tile.k[b] + ES_ATTN_TILE_BLOCKS * bytes : NULL;
        }
        kernels->attn_tile_q8(&tile);
    }
}

/* Blocks of `length` keys: a few that are repeated, since one looks like the other. */
static uint8_t *new_context(es_case *c, int32_t dim, int64_t length)
{
    const int64_t bytes = es_attn_q8_block_bytes(dim), blocks = length / ES_ATTN_BLOCK;
    uint8_t *all = es_case_alloc(c, blocks * bytes);
    const uint8_t *some[4];
    for (int i = 0; i < 4; i++) some[i] = new_block(c, dim, ES_ATTN_BLOCK, false);
    for (int64_t b = 0; all && some[3] && b < blocks; b++) memcpy(all + b * bytes, some[b % 4], (size_t)bytes);
    return all;
}

void es_check_attn_decode_q8(es_case *c, es_dtype type)
{
    (void)type;
    enum { HEADS = 4, DIM = 128 };
    context_arguments a = {.length = c->timed ? 32768 : 512};
    if (!new_case(c, HEADS, DIM, 1, 0, false, &a.first)) return;
    a.keys = new_context(c, DIM, a.length);
    a.values = new_context(c, DIM, a.length);
    es_case_run_timed(c, run_context, &a, "4 rows of 128 channels, 32768 keys",
                      2.0 * (double)(a.length / ES_ATTN_BLOCK * es_attn_q8_block_bytes(DIM)), 4.0 * HEADS * DIM * (double)a.length);
}
