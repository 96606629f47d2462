/* product_amx.c: the products of modes bf16 and int8 with AMX tiles: weights are the first operand, as they lie in memory,
 * tokens the second, in panels. */
#include <string.h>

#include "device/cpu/product.h"
#include "device/cpu/x86/fetch.h"
#include "device/cpu/x86/tiles_amx.h"

#define MOST_PANELS 4 /* accumulator tiles; tile 4 and 5 hold weights, 6 and 7 tokens */

/* Tiles 0–3 accumulate [rows][tokens], 4 and 5 hold weights [rows][k], 6 and 7 tokens [k / 4 bytes][tokens]. Once per call, and
 * once more for a last panel that is not full. */
static void configure_for(int32_t tokens, int32_t rows, int32_t k_rows)
{
    tile_config config = {.palette = 1};
    for (int t = 0; t < 4; t++) shape_tile(&config, t, rows, tokens * 4);
    for (int t = 4; t < 6; t++) shape_tile(&config, t, rows, k_rows * 4);
    for (int t = 6; t < 8; t++) shape_tile(&config, t, k_rows, tokens * 4);
    configure(&config);
}

/* Accumulator tiles hold [row][token]; the caller wants [token][row]. */
static void put_transposed(const float *tile, int32_t tokens, int32_t rows, float *out)
{
    if (tokens < ES_PANEL_TOKENS || rows < ES_PRODUCT_ROWS) {
        for (int32_t t = 0; t < tokens; t++)
            for (int32_t r = 0; r < rows; r++) out[t * ES_PRODUCT_ROWS + r] = tile[r * ES_PANEL_TOKENS + t];
        return;
    }
    __m512 a[16], b[16];
    for (int i = 0; i < 8; i++) {
        const __m512 x = _mm512_load_ps(tile + 32 * i), y = _mm512_load_ps(tile + 32 * i + 16);
        a[2 * i] = _mm512_unpacklo_ps(x, y), a[2 * i + 1] = _mm512_unpackhi_ps(x, y);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            const __m512d x = _mm512_castps_pd(a[4 * i + k]), y = _mm512_castps_pd(a[4 * i + 2 + k]);
            b[4 * i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            b[4 * i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    for (int k = 0; k < 4; k++) { /* b[4 i + k] holds rows 4 i … of tokens k, k + 4, k + 8, k + 12 */
        const __m512 low01 = _mm512_shuffle_f32x4(b[k], b[4 + k], 0x88), high01 = _mm512_shuffle_f32x4(b[k], b[4 + k], 0xDD);
        const __m512 low23 = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0x88);
        const __m512 high23 = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0xDD);
        _mm512_storeu_ps(out + k * 16, _mm512_shuffle_f32x4(low01, low23, 0x88));
        _mm512_storeu_ps(out + (k + 4) * 16, _mm512_shuffle_f32x4(high01, high23, 0x88));
        _mm512_storeu_ps(out + (k + 8) * 16, _mm512_shuffle_f32x4(low01, low23, 0xDD));
        _mm512_storeu_ps(out + (k + 12) * 16, _mm512_shuffle_f32x4(high01, high23, 0xDD));
    }
}

/* `panels` panels of equally many tokens share every load of weights. */
static inline __attribute__((always_inline)) void bf16_some(const es_bf16_rows *rows, const es_panel *panel, const int panels,
                                                            float *out)
{
    const uint16_t *data[MOST_PANELS];
    const int64_t w_bytes = rows->stride * 2, x_bytes = panel[0].tokens * 4;
    for (int p = 0; p < panels; p++) data[p] = panel[p].data;
    BARRIER();
    _tile_zero(0);
    if (panels > 1) _tile_zero(1);
    if (panels > 2) _tile_zero(2);
    if (panels > 3) _tile_zero(3);
    for (int64_t b = 0; b < rows->blocks; b++) {
        const int64_t at = b * 8 * x_bytes;
        _tile_loadd(4, rows->w + b * 32, w_bytes);
        _tile_loadd(6, data[0] + at, x_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (panels > 1) {
            _tile_loadd(7, data[1] + at, x_bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (panels > 2) {
            _tile_loadd(6, data[2] + at, x_bytes);
            _tile_dpbf16ps(2, 4, 6);
        }
        if (panels > 3) {
            _tile_loadd(7, data[3] + at, x_bytes);
            _tile_dpbf16ps(3, 4, 7);
        }
    }
    _Alignas(64) float tile[MOST_PANELS][16 * ES_PANEL_TOKENS];
    _tile_stored(0, tile[0], 64);
    if (panels > 1) _tile_stored(1, tile[1], 64);
    if (panels > 2) _tile_stored(2, tile[2], 64);
    if (panels > 3) _tile_stored(3, tile[3], 64);
    BARRIER();
    for (int p = 0; p < panels; p++)
        put_transposed(tile[p], panel[p].tokens, rows->rows, out + p * ES_PANEL_TOKENS * ES_PRODUCT_ROWS);
}

static int32_t whole_panels(const es_panel *panel, int32_t panels)
{
    return panel[panels - 1].tokens == ES_PANEL_TOKENS ? panels : panels - 1; /* all but the last are */
}

static void bf16_product(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    const int32_t whole = whole_panels(panel, panels), step = ES_PANEL_TOKENS * ES_PRODUCT_ROWS;
    if (whole) configure_for(ES_PANEL_TOKENS, rows->rows, 16);
    int32_t p = 0;
    for (; p + 4 <= whole; p += 4) bf16_some(rows, panel + p, 4, out + p * step);
    for (; p + 2 <= whole; p += 2) bf16_some(rows, panel + p, 2, out + p * step);
    for (; p < whole; p++) bf16_some(rows, panel + p, 1, out + p * step);
    if (whole < panels) {
        configure_for(panel[whole].tokens, rows->rows, 16);
        bf16_some(rows, panel + whole, 1, out + whole * step);
    }
    _tile_release();
}

/* Sixteen accumulators by name: an array of them would be kept in memory, whose every step is a load and a store. */
#define EACH_ROW(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#define DECLARE(r) __m512 acc##r = _mm512_setzero_ps();
#define ADD_SUM(r)                                                                                     \
    acc##r = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(w_scale[r]), x_scale),                       \
                             _mm512_cvtepi32_ps(_mm512_load_si512(sums + (r) * 16)), acc##r);
#define ADD_OFFSET(r) acc##r = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(offset[r]), x_scale), x_sum, acc##r);
#define STORE_ROW(r) _mm512_store_ps(tile + (r) * ES_PANEL_TOKENS, acc##r);

/* Up to eight tokens: two rows of sums fill one register, and half as many operations do, but for one that brings their scales
 * together. */
#define FEW 8
#define EACH_PAIR(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define TWO_ROWS(of, p) _mm512_mask_broadcastss_ps(_mm512_set1_ps((of)[2 * (p)]), 0xFF00, _mm_load_ss((of) + 2 * (p) + 1))
#define ADD_PAIR(p)                                                                                    \
    acc##p = _mm512_fmadd_ps(_mm512_mul_ps(TWO_ROWS(w_scale, p), x_scale),                             \
                             _mm512_cvtepi32_ps(_mm512_load_si512(sums + (p) * 16)), acc##p);
#define ADD_PAIR_OFFSET(p) acc##p = _mm512_fmadd_ps(_mm512_mul_ps(TWO_ROWS(offset, p), x_scale), x_sum, acc##p);

/* A number of each token, in every lane that is the token's. */
static inline __attribute__((always_inline)) __m512 per_token(const float *x, __mmask16 mask, const bool few)
{
    return few ? _mm512_broadcast_f32x8(_mm256_maskz_loadu_ps((__mmask8)mask, x)) : _mm512_maskz_loadu_ps(mask, x);
}

/* One step: 32 or 16 inputs of every row and token, multiplied into a tile of its own and stored. */
#define TILE_STEP(c, w, x, step)                                                   \
    do {                                                                           \
        BARRIER();                                                                 \
        _tile_zero(c);                                                             \
        _tile_loadd(w, w_at + (step) * w_step, w_stride);                          \
        _tile_loadd(x, x_at + (step) * x_step, x_stride);                          \
        _tile_dpbssd(c, w, x);                                                     \
        _tile_stored(c, ring[c], few ? FEW * 4 : 64);                              \
        BARRIER();                                                                 \
    } while (0)

/* One panel of n tokens. Integer tiles take turns: the tile unit works on a step while the vector unit adds the one before.
 * `halves` steps make a block; two of them lie `half` bytes apart. */
static inline __attribute__((always_inline)) void int8_panel(const es_int8_rows *rows, const es_panel *panel, const int32_t n,
                                                             const bool few, const int halves, const bool offsets, float *out)
{
    const __mmask16 mask = (__mmask16)((1u << n) - 1);
    const int64_t w_stride = rows->row_stride, x_stride = 4 * n, x_step = 8 / halves * x_stride;
    const int8_t *x_at = panel->data;
    _Alignas(64) int32_t ring[2][16 * 16];
    _Alignas(64) float tile[16 * ES_PANEL_TOKENS];
    if (few) memset(ring, 0, sizeof ring); /* lanes of tokens that are not there */
    EACH_ROW(DECLARE)
    const int64_t blocks = rows->blocks;
#define ADD_STEP(c, step)                                                                             \
    do {                                                                                              \
        const int32_t *sums = ring[c];                                                                \
        const float *w_scale = rows->scale + (step) * ES_PRODUCT_ROWS;                                \
        if (few) {                                                                                    \
            EACH_PAIR(ADD_PAIR)                                                                       \
        } else {                                                                                      \
            EACH_ROW(ADD_SUM)                                                                         \
        }                                                                                             \
    } while (0)
#define ADD_BLOCK_OFFSET(b)                                                                           \
    do {                                                                                              \
        const float *offset = rows->offset + (b) * ES_PRODUCT_ROWS;                                   \
        const __m512 x_sum = per_token(panel->sum + (b) * n, mask, few);                              \
        if (few) {                                                                                    \
            EACH_PAIR(ADD_PAIR_OFFSET)                                                                \
        } else {                                                                                      \
            EACH_ROW(ADD_OFFSET)                                                                      \
        }                                                                                             \
    } while (0)
    if (halves == 1) {
        const int64_t w_step = rows->block_stride;
        const int8_t *w_at = rows->q;
        TILE_STEP(0, 4, 6, 0);
        for (int64_t b = 0; b < blocks; b += 2) {
            if (b + 1 < blocks) TILE_STEP(1, 5, 7, b + 1);
            if (rows->next) es_fetch_share(rows, b);
            __m512 x_scale = per_token(panel->scale + b * n, mask, few);
            ADD_STEP(0, b);
            if (offsets) ADD_BLOCK_OFFSET(b);
            if (b + 1 == blocks) break;
            if (rows->next) es_fetch_share(rows, b + 1);
            if (b + 2 < blocks) TILE_STEP(0, 4, 6, b + 2);
            x_scale = per_token(panel->scale + (b + 1) * n, mask, few);
            ADD_STEP(1, b + 1);
            if (offsets) ADD_BLOCK_OFFSET(b + 1);
        }
    } else {
        const int64_t w_step = 16;
        for (int64_t b = 0; b < blocks; b++) {
            const int8_t *w_at = rows->q + b * rows->block_stride - 32 * b;
            const __m512 x_scale = per_token(panel->scale + b * n, mask, few);
            TILE_STEP(0, 4, 6, 2 * b);
            TILE_STEP(1, 5, 7, 2 * b + 1);
            if (rows->next) es_fetch_share(rows, b);
            ADD_STEP(0, 2 * b);
            ADD_STEP(1, 2 * b + 1);
            if (offsets) ADD_BLOCK_OFFSET(b);
        }
    }
    if (few) {
        EACH_PAIR(STORE_ROW)
        for (int32_t t = 0; t < n; t++)
            for (int32_t r = 0; r < rows->rows; r++) out[t * ES_PRODUCT_ROWS + r] = tile[r * FEW + t];
        return;
    }
    EACH_ROW(STORE_ROW)
    put_transposed(tile, n, rows->rows, out);
}

static inline __attribute__((always_inline)) void int8_of(const es_int8_rows *rows, const es_panel *panel, const int32_t n,
                                                          const bool few, float *out)
{
    if (rows->halves == 2) int8_panel(rows, panel, n, few, 2, false, out);
    else if (rows->offset) int8_panel(rows, panel, n, few, 1, true, out);
    else int8_panel(rows, panel, n, few, 1, false, out);
}

/* Whole panels have code of their own: known strides save some one step in twenty. */
static void int8_some(const es_int8_rows *rows, const es_panel *panel, float *out)
{
    if (panel->tokens == ES_PANEL_TOKENS) int8_of(rows, panel, ES_PANEL_TOKENS, false, out);
    else if (panel->tokens <= FEW) int8_of(rows, panel, panel->tokens, true, out);
    else int8_of(rows, panel, panel->tokens, false, out);
}

/* One token alone is VNNI's: its products are exact too, and a tile would be a sixteenth full. */
static void int8_product(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out)
{
    const int32_t whole = whole_panels(panel, panels), step = ES_PANEL_TOKENS * ES_PRODUCT_ROWS;
    es_int8_rows later = *rows;
    later.next = NULL; /* fetched with the first panel */
    if (whole) configure_for(ES_PANEL_TOKENS, 16, 8 / rows->halves);
    for (int32_t p = 0; p < whole; p++) int8_some(p ? &later : rows, panel + p, out + p * step);
    if (whole < panels && panel[whole].tokens > 1) {
        configure_for(panel[whole].tokens, 16, 8 / rows->halves);
        int8_some(whole ? &later : rows, panel + whole, out + whole * step);
    }
    if (panel[0].tokens > 1) _tile_release();
    if (panel[panels - 1].tokens == 1) es_product_int8_vnni(rows, &panel[whole], 1, out + whole * step);
}

void es_products_amx(es_products *products)
{
    products->bf16 = bf16_product;
    products->int8 = int8_product;
    products->step = ES_PANEL_TOKENS;
    products->staying = 1 << 20; /* half of a second-level cache: from the third a tile product takes 40 ns instead of 13 */
}
