/* hash.c: see hash.h. */
#include "base/hash.h"

#include <string.h>

static uint64_t mix(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return lane ^ lane >> 32;
}

uint64_t es_hash(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t lane[4] = {seed, seed + 1, seed + 2, seed + 3}, word[4], hash = seed ^ bytes;
    size_t left = bytes;
    for (; left >= sizeof word; at += sizeof word, left -= sizeof word) {
        memcpy(word, at, sizeof word);
        for (int i = 0; i < 4; i++) lane[i] = mix(lane[i], word[i]);
    }
    memset(word, 0, sizeof word);
    if (left) memcpy(word, at, left);
    for (int i = 0; i < 4; i++) hash = mix(hash, mix(lane[i], word[i]));
    return hash;
}
