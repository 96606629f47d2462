/* attn_bf16_amx.c: attention of many query rows over bfloat16 keys and values with AMX tiles.
 *
 * The cache's layout and the mode's sums are those of a tile product (kernels.h), so that a tile of queries takes lines of K, and
 * one of probabilities lines of V, as they lie in memory: 32 channels, or 32 keys, to an instruction. Between the two products
 * the softmax is the vector kernel's. A block of rows that does not see all 64 keys, few rows, and heads that are no multiple of 32
 * channels are left to the vector kernel, whose bits are the same. */
#include "device/cpu/x86/vector_avx512.h"
#include "device/cpu/x86/attn_bf16_body.h"
#include "device/cpu/x86/tiles_amx.h"

enum { TILE_ROWS = 16, MOST_ROWS = 64, MOST_DIM = 256 };
enum { LEAST_ROWS = 8 }; /* fewer wait for memory whoever multiplies */
enum { LINE = 2 * ES_ATTN_BLOCK }; /* numbers in a line of K or V: sixteen pairs */

/* What both products read: queries and probabilities in bfloat16, the first as pairs of channels, the others of keys. */
typedef struct operands {
    _Alignas(64) uint16_t q[MOST_ROWS * MOST_DIM], p[MOST_ROWS * ES_ATTN_TILE];
    _Alignas(64) uint16_t v[2][TILE_ROWS * LINE]; /* lines of V that do not lie evenly apart */
} operands;

/* Accumulators 0 to 3 are [rows][16] floats, 4 and 5 [rows][32] queries or probabilities, 6 and 7 sixteen lines of K or V. */
static void configure_rows(int32_t rows)
{
    tile_config config = {.palette = 1};
    for (int t = 0; t < 6; t++) shape_tile(&config, t, rows, 64);
    for (int t = 6; t < 8; t++) shape_tile(&config, t, TILE_ROWS, 64);
    configure(&config);
}

/* The upper halves of n floats, which are all that there is of them. */
INLINE void pack(const float *x, int32_t n, uint16_t *to)
{
    uint16_t upper[32];
    for (int i = 0; i < 32; i++) upper[i] = (uint16_t)(2 * i + 1);
    const __m512i places = _mm512_loadu_si512(upper);
    for (int32_t i = 0; i < n; i += 32)
        _mm512_store_si512(to + i, _mm512_permutex2var_epi16(_mm512_castps_si512(v_load(x + i)), places,
                                                             _mm512_castps_si512(v_load(x + i + 16))));
}

/* Sixteen lines to be read later. */
INLINE void fetch_lines(const uint16_t *lines)
{
    for (int i = 0; i < TILE_ROWS; i++) _mm_prefetch(lines + i * LINE, _MM_HINT_T1);
}

/* R tiles of query rows against all keys. The first rows fetch the values of the same places. */
INLINE void score_tiles(const es_attn_tile *tile, const uint16_t *q, int32_t row, const int R)
{
    const int32_t dim = tile->head_dim;
    float *p = tile->p + row * ES_ATTN_TILE;
    for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b += 2) {
        BARRIER();
        _tile_zero(0);
        _tile_zero(1);
        if (R > 1) _tile_zero(2);
        if (R > 1) _tile_zero(3);
        for (int32_t d = 0; d < dim; d += GROUP) {
            _tile_loadd(4, q + row * dim + d, dim * 2);
            _tile_loadd(6, tile->k16[b] + d * ES_ATTN_BLOCK, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, tile->k16[b + 1] + d * ES_ATTN_BLOCK, 64);
            _tile_dpbf16ps(1, 4, 7);
            if (R > 1) {
                _tile_loadd(5, q + (row + TILE_ROWS) * dim + d, dim * 2);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            if (row > 0) continue;
            fetch_lines(tile->v16[b] + d * ES_ATTN_BLOCK);
            fetch_lines(tile->v16[b + 1] + d * ES_ATTN_BLOCK);
        }
        _tile_stored(0, p + b * ES_ATTN_BLOCK, ES_ATTN_TILE * 4);
        _tile_stored(1, p + (b + 1) * ES_ATTN_BLOCK, ES_ATTN_TILE * 4);
        if (R > 1) _tile_stored(2, p + TILE_ROWS * ES_ATTN_TILE + b * ES_ATTN_BLOCK, ES_ATTN_TILE * 4);
        if (R > 1) _tile_stored(3, p + TILE_ROWS * ES_ATTN_TILE + (b + 1) * ES_ATTN_BLOCK, ES_ATTN_TILE * 4);
        BARRIER();
    }
}

/* Sixteen channels of 32 keys: of two blocks, which follow each other but where a page ends. Returns how far lines lie apart. */
INLINE int64_t find_lines(const es_attn_tile *tile, int block, int32_t channel, uint16_t *room, const uint16_t **lines)
{
    const int64_t apart = (int64_t)tile->head_dim * 2;
    const uint16_t *first = tile->v16[block] + channel * 2, *second = tile->v16[block + 1] + channel * 2;
    *lines = first;
    if (second == first + ES_ATTN_BLOCK / 2 * apart) return apart * 2;
    for (int i = 0; i < ES_ATTN_BLOCK / 2; i++) {
        _mm512_store_si512(room + i * LINE, _mm512_loadu_si512(first + i * apart));
        _mm512_store_si512(room + (ES_ATTN_BLOCK / 2 + i) * LINE, _mm512_loadu_si512(second + i * apart));
    }
    *lines = room;
    return LINE * 2;
}

/* o ← o + Σ p·v for R tiles of rows, o already corrected. The first rows fetch the next tile's keys. */
INLINE void value_tiles(const es_attn_tile *tile, operands *x, int32_t row, const int R)
{
    const int32_t dim = tile->head_dim;
    for (int32_t c = 0; c < dim; c += LINE) {
        float *o = tile->o + (int64_t)row * dim + c;
        BARRIER();
        _tile_loadd(0, o, dim * 4);
        _tile_loadd(1, o + LINE / 2, dim * 4);
        if (R > 1) _tile_loadd(2, o + TILE_ROWS * dim, dim * 4);
        if (R > 1) _tile_loadd(3, o + TILE_ROWS * dim + LINE / 2, dim * 4);
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b += 2) {
            const uint16_t *p = x->p + row * ES_ATTN_TILE + b * ES_ATTN_BLOCK, *left, *right;
            const int64_t left_apart = find_lines(tile, b, c, x->v[0], &left);
            const int64_t right_apart = find_lines(tile, b, c + LINE / 2, x->v[1], &right);
            BARRIER();
            _tile_loadd(4, p, ES_ATTN_TILE * 2);
            _tile_loadd(6, left, left_apart);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, right, right_apart);
            _tile_dpbf16ps(1, 4, 7);
            if (R > 1) {
                _tile_loadd(5, p + TILE_ROWS * ES_ATTN_TILE, ES_ATTN_TILE * 2);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            BARRIER();
            if (row > 0 || !tile->next_k[b]) continue;
            fetch_lines((const uint16_t *)tile->next_k[b] + c * ES_ATTN_BLOCK);
            if (tile->next_k[b + 1]) fetch_lines((const uint16_t *)tile->next_k[b + 1] + c * ES_ATTN_BLOCK);
        }
        _tile_stored(0, o, dim * 4);
        _tile_stored(1, o + LINE / 2, dim * 4);
        if (R > 1) _tile_stored(2, o + TILE_ROWS * dim, dim * 4);
        if (R > 1) _tile_stored(3, o + TILE_ROWS * dim + LINE / 2, dim * 4);
        BARRIER();
    }
}

/* Exponentials of a row's scores, in both forms; its output is brought to the new maximum. */
static void finish_scores(const es_attn_tile *tile, int32_t row, uint16_t *p)
{
    float *o = tile->o + (int64_t)row * tile->head_dim;
    const int32_t valid = tile->valid[row] < ES_ATTN_TILE ? tile->valid[row] : ES_ATTN_TILE;
    const v16 correction = v_set(softmax(tile, row, valid, ES_ATTN_TILE));
    pack(tile->p + row * ES_ATTN_TILE, ES_ATTN_TILE, p + row * ES_ATTN_TILE);
    for (int32_t d = 0; d < tile->head_dim; d += VR_LANES) v_store(o + d, v_mul(v_load(o + d), correction));
}

static bool suits_tiles(const es_attn_tile *tile)
{
    int32_t least = tile->valid[0], most = tile->valid[0];
    for (int32_t r = 1; r < tile->rows; r++) {
        if (tile->valid[r] < least) least = tile->valid[r];
        if (tile->valid[r] > most) most = tile->valid[r];
    }
    return tile->rows >= LEAST_ROWS && tile->rows <= MOST_ROWS && tile->head_dim <= MOST_DIM && tile->head_dim % GROUP == 0 &&
           least > 0 && most >= ES_ATTN_TILE;
}

static void attn_tile_bf16_amx(const es_attn_tile *tile)
{
    if (!suits_tiles(tile)) {
        attn_tile_bf16(tile);
        return;
    }
    operands x;
    const int32_t dim = tile->head_dim, whole = tile->rows / TILE_ROWS * TILE_ROWS, rest = tile->rows - whole;
    for (int32_t r = 0; r < tile->rows; r++) pack(tile->q[r], dim, x.q + r * dim);
    if (whole) configure_rows(TILE_ROWS);
    for (int32_t r = 0; r < whole; r += 2 * TILE_ROWS) {
        if (whole - r > TILE_ROWS) score_tiles(tile, x.q, r, 2);
        else score_tiles(tile, x.q, r, 1);
    }
    if (rest) configure_rows(rest);
    if (rest) score_tiles(tile, x.q, whole, 1);
    for (int32_t r = 0; r < tile->rows; r++) finish_scores(tile, r, x.p);
    if (rest) value_tiles(tile, &x, whole, 1);
    if (rest && whole) configure_rows(TILE_ROWS);
    for (int32_t r = 0; r < whole; r += 2 * TILE_ROWS) {
        if (whole - r > TILE_ROWS) value_tiles(tile, &x, r, 2);
        else value_tiles(tile, &x, r, 1);
    }
    _tile_release();
}

void es_attn_bf16_amx(es_kernels *kernels)
{
    kernels->attn_tile_bf16 = attn_tile_bf16_amx;
}
