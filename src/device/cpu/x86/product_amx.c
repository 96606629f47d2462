/* product_amx.c: the products of modes bf16 and int8 with AMX tiles: weights are the first operand, as they lie in memory,
 * tokens the second, in panels.
 *
 * gcc 12's _tile_loadconfig tells the compiler of 8 of the 64 bytes it reads, and its tile loads and stores name no memory
 * at all: stores before them could be dropped or moved. Hence the barriers, and the configuration in volatile assembly. */
#include <immintrin.h>
#include <string.h>

#include "device/cpu/product.h"

#define BARRIER() __asm__ volatile("" ::: "memory")
#define MOST_PANELS 4 /* accumulator tiles; tile 4 and 5 hold weights, 6 and 7 tokens */

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a tile's row */
    uint8_t rows[16];
} tile_config;

static void configure(const tile_config *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*config) : "memory");
}

static void shape_tile(tile_config *config, int tile, int rows, int bytes)
{
    config->rows[tile] = (uint8_t)rows;
    config->bytes[tile] = (uint16_t)bytes;
}

/* Tiles 0–3 accumulate [rows][16 tokens]; a panel of fewer tokens is narrower. */
static void configure_for(const es_panel *panel, int32_t panels, int rows, int k_rows, int k_bytes)
{
    tile_config config = {.palette = 1};
    for (int32_t p = 0; p < panels; p++) {
        shape_tile(&config, p, rows, panel[p].tokens * 4);
        shape_tile(&config, 4 + p % 2, rows, k_bytes);
    }
    shape_tile(&config, 5, rows, k_bytes);
    shape_tile(&config, 6, k_rows, panel[0].tokens * 4);
    shape_tile(&config, 7, k_rows, panel[panels - 1].tokens * 4);
    configure(&config);
}

/* Accumulator tiles hold [row][token]; the caller wants [token][row]. */
static void put_transposed(const float *tile, int32_t tokens, int32_t rows, float *out)
{
    for (int32_t t = 0; t < tokens; t++)
        for (int32_t r = 0; r < rows; r++) out[t * ES_PRODUCT_ROWS + r] = tile[r * ES_PANEL_TOKENS + t];
}

/* All panels but the last are whole (16 tokens): tile 6 serves them, tile 7 the last. */
static void bf16_some(const es_bf16_rows *rows, const es_panel *panel, const int32_t panels, float *out)
{
    const uint16_t *data[MOST_PANELS];
    const int64_t w_bytes = rows->stride * 2;
    configure_for(panel, panels, rows->rows, 16, 64);
    for (int32_t p = 0; p < panels; p++) data[p] = panel[p].data;
    const int32_t last = panel[panels - 1].tokens;
    BARRIER();
    _tile_zero(0);
    if (panels > 1) _tile_zero(1);
    if (panels > 2) _tile_zero(2);
    if (panels > 3) _tile_zero(3);
    for (int64_t b = 0; b < rows->blocks; b++) {
        _tile_loadd(4, rows->w + b * 32, w_bytes);
        if (panels > 1) {
            _tile_loadd(6, data[0] + b * 512, 64);
            _tile_dpbf16ps(0, 4, 6);
        }
        if (panels > 2) {
            _tile_loadd(6, data[1] + b * 512, 64);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (panels > 3) {
            _tile_loadd(6, data[2] + b * 512, 64);
            _tile_dpbf16ps(2, 4, 6);
        }
        _tile_loadd(7, data[panels - 1] + b * 32 * last, last * 4);
        if (panels == 1) _tile_dpbf16ps(0, 4, 7);
        if (panels == 2) _tile_dpbf16ps(1, 4, 7);
        if (panels == 3) _tile_dpbf16ps(2, 4, 7);
        if (panels == 4) _tile_dpbf16ps(3, 4, 7);
    }
    _Alignas(64) float tile[MOST_PANELS][16 * ES_PANEL_TOKENS];
    _tile_stored(0, tile[0], 64);
    if (panels > 1) _tile_stored(1, tile[1], 64);
    if (panels > 2) _tile_stored(2, tile[2], 64);
    if (panels > 3) _tile_stored(3, tile[3], 64);
    BARRIER();
    for (int32_t p = 0; p < panels; p++)
        put_transposed(tile[p], panel[p].tokens, rows->rows, out + p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS);
}

static void bf16_product(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    for (int32_t p = 0; p < panels; p += MOST_PANELS)
        bf16_some(rows, panel + p, panels - p < MOST_PANELS ? panels - p : MOST_PANELS,
                  out + p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS);
    _tile_release();
}

/* Adds one block's integer sums [16 rows][tokens] to the sixteen accumulators, a row each, tokens in the lanes. */
static inline __attribute__((always_inline)) void add_sums(__m512 acc[16], const int32_t *sums, const float *w_scale,
                                                           __m512 x_scale)
{
    for (int r = 0; r < 16; r++)
        acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(w_scale[r]), x_scale),
                                 _mm512_cvtepi32_ps(_mm512_load_si512(sums + r * 16)), acc[r]);
}

/* One panel: two integer tiles take turns, so that the tile unit works on a block while the vector unit adds the last. */
static void int8_panel(const es_int8_rows *rows, const es_panel *panel, float *out)
{
    const int32_t n = panel->tokens, halves = rows->halves, k_rows = 8 / halves;
    const __mmask16 mask = (__mmask16)((1u << n) - 1);
    _Alignas(64) int32_t sums[2][16 * 16];
    _Alignas(64) float tile[16 * ES_PANEL_TOKENS];
    __m512 acc[16];
    tile_config config = {.palette = 1};
    for (int t = 0; t < 2; t++) shape_tile(&config, t, 16, 4 * n), shape_tile(&config, 4 + t, 16, 4 * k_rows);
    for (int t = 6; t < 8; t++) shape_tile(&config, t, k_rows, 4 * n);
    configure(&config);
    for (int r = 0; r < 16; r++) acc[r] = _mm512_setzero_ps();
    const int64_t steps = rows->blocks * halves;
    for (int64_t s = 0; s <= steps; s++) {
        if (s < steps) {
            const int64_t b = s / halves, h = s % halves;
            const int8_t *w = rows->q + b * rows->block_stride + h * 16;
            const int8_t *x = (const int8_t *)panel->data + (b * 8 + h * 4) * n * 4;
            BARRIER();
            if (s % 2 == 0) {
                _tile_zero(0);
                _tile_loadd(4, w, rows->row_stride);
                _tile_loadd(6, x, 4 * n);
                _tile_dpbssd(0, 4, 6);
                _tile_stored(0, sums[0], 64);
            } else {
                _tile_zero(1);
                _tile_loadd(5, w, rows->row_stride);
                _tile_loadd(7, x, 4 * n);
                _tile_dpbssd(1, 5, 7);
                _tile_stored(1, sums[1], 64);
            }
            BARRIER();
        }
        if (s == 0) continue;
        const int64_t done = s - 1, b = done / halves;
        const __m512 x_scale = _mm512_maskz_loadu_ps(mask, panel->scale + b * n);
        add_sums(acc, sums[done % 2], rows->scale + done * ES_PRODUCT_ROWS, x_scale);
        if (rows->offset && done % halves == halves - 1) {
            const __m512 x_sum = _mm512_maskz_loadu_ps(mask, panel->sum + b * n);
            const float *offset = rows->offset + b * ES_PRODUCT_ROWS;
            for (int r = 0; r < 16; r++)
                acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(offset[r]), x_scale), x_sum, acc[r]);
        }
    }
    for (int r = 0; r < 16; r++) _mm512_store_ps(tile + r * ES_PANEL_TOKENS, acc[r]);
    put_transposed(tile, n, rows->rows, out);
}

/* One token alone is VNNI's: its products are exact too, and a tile would be a sixteenth full. */
static void int8_product(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    bool tiles = false;
    for (int32_t p = 0; p < panels; p++) {
        float *place = out + p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS;
        if (panel[p].tokens == 1) {
            es_product_int8_vnni(rows, &panel[p], 1, place);
        } else {
            int8_panel(rows, &panel[p], place);
            tiles = true;
        }
    }
    if (tiles) _tile_release();
}

void es_products_amx(es_products *products)
{
    products->bf16 = bf16_product;
    products->int8 = int8_product;
}
