/* own_weights.c: weights copied out of their file, into memory that can lie in huge pages.
 *
 * A decode step reads every weight once, from end to end. Out of a mapped file that means 4 KiB pages: an address to look up and
 * the machine's prefetchers stopped at every one of them, which costs a quarter to a third of the memory's speed. Small tensors
 * share large pieces, since a huge page has 2 MiB. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/cpu/cpu.h"

#define PIECE ((size_t)64 << 20) /* bytes; mapped, and used up from the start */
#define ALIGNMENT 64

static bool add_piece(es_own_weights *own, size_t least)
{
    es_own_piece *piece = realloc(own->piece, (size_t)(own->pieces + 1) * sizeof *piece);
    if (!piece) return false;
    own->piece = piece;
    const size_t bytes = least > PIECE ? least : PIECE;
    unsigned char *data = es_memory_map(bytes);
    if (!data) return false;
    own->piece[own->pieces++] = (es_own_piece){data, bytes};
    own->used = 0;
    return true;
}

unsigned char *es_own_weights_place(es_own_weights *own, const void *host, size_t bytes)
{
    const size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (whole < bytes) return NULL;
    const es_own_piece *last = own->pieces ? &own->piece[own->pieces - 1] : NULL;
    if ((!last || whole > last->bytes - own->used) && !add_piece(own, whole)) return NULL;
    unsigned char *data = own->piece[own->pieces - 1].data + own->used;
    own->used += whole;
    memcpy(data, host, bytes);
    return data;
}

void es_own_weights_close(es_own_weights *own)
{
    for (int32_t i = 0; i < own->pieces; i++) es_memory_unmap(own->piece[i].data, own->piece[i].bytes);
    free(own->piece);
    *own = (es_own_weights){0};
}
