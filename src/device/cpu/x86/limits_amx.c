/* limits_amx.c: the most tile products. Four accumulators, no loads: what the tile unit does when it is fed for nothing. */
#include <immintrin.h>

#include "device/cpu/limits.h"

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

static void whole_tiles(void)
{
    tile_config config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.bytes[t] = 64, config.rows[t] = 16;
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

double es_limit_bf16_amx(int64_t rounds)
{
    whole_tiles();
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return (double)rounds * 4 * 16 * 16 * 32 * 2;
}

double es_limit_int8_amx(int64_t rounds)
{
    whole_tiles();
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return (double)rounds * 4 * 16 * 16 * 64 * 2;
}
