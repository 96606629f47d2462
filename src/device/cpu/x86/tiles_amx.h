/* tiles_amx.h: the shapes of AMX's eight tiles. Included by the files that use them.
 *
 * gcc 12's _tile_loadconfig tells the compiler of 8 of the 64 bytes it reads, and its tile loads and stores name no memory
 * at all: stores before them could be dropped or moved. Hence the barriers, and the configuration in volatile assembly. */
#ifndef ES_CPU_TILES_AMX_H
#define ES_CPU_TILES_AMX_H

#include <immintrin.h>
#include <stdint.h>

#define BARRIER() __asm__ volatile("" ::: "memory")

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a tile's row */
    uint8_t rows[16];
} tile_config;

/* Costs as much as some twenty products. */
static inline void configure(const tile_config *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*config) : "memory");
}

static inline void shape_tile(tile_config *config, int tile, int rows, int bytes)
{
    config->rows[tile] = (uint8_t)rows;
    config->bytes[tile] = (uint16_t)bytes;
}

#endif
