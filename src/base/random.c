/* random.c: Philox 4x32-10; see random.h for the source. */
#include "base/random.h"

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u /* golden ratio */
#define PHILOX_W1 0xBB67AE85u /* sqrt(3) − 1 */

es_philox_block es_philox(const uint32_t key[2], const uint32_t counter[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += PHILOX_W0, k1 += PHILOX_W1;
    }
    return (es_philox_block){{c0, c1, c2, c3}};
}

double es_random_unit(uint64_t seed, uint32_t stream, uint64_t position, uint32_t draw)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream, draw};
    const es_philox_block b = es_philox(key, counter);
    const uint64_t bits = ((uint64_t)b.word[0] << 32 | b.word[1]) >> 11;
    return (double)bits * 0x1p-53;
}
