/* digest.c: see digest.h. */
#include "hub/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t k256[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_big(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void block_sha256(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = load_big(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t s1 = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
        const uint32_t s0 = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
        const uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k256[i] + w[i];
        const uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

static void block_sha1(uint32_t h[5], const unsigned char *p)
{
    static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++) w[i] = load_big(p + 4 * i);
    for (int i = 16; i < 80; i++) w[i] = rotate_right(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 31);
    for (int i = 0; i < 80; i++) {
        const uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
        const uint32_t t = rotate_right(a, 27) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = rotate_right(b, 2);
        b = a;
        a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

void es_digest_begin(es_digest *digest, bool sha1)
{
    static const uint32_t of_sha1[8] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    static const uint32_t of_sha256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(digest->state, sha1 ? of_sha1 : of_sha256, sizeof digest->state);
    digest->bytes = 0;
    digest->sha1 = sha1;
}

static void take_block(es_digest *digest, const unsigned char *block)
{
    if (digest->sha1)
        block_sha1(digest->state, block);
    else
        block_sha256(digest->state, block);
}

void es_digest_add(es_digest *digest, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    size_t held = digest->bytes % 64;
    digest->bytes += bytes;
    while (bytes) {
        if (held == 0 && bytes >= 64) {
            take_block(digest, p);
            p += 64;
            bytes -= 64;
            continue;
        }
        const size_t n = bytes < 64 - held ? bytes : 64 - held;
        memcpy(digest->block + held, p, n);
        held += n;
        p += n;
        bytes -= n;
        if (held == 64) {
            take_block(digest, digest->block);
            held = 0;
        }
    }
}

void es_digest_end(es_digest *digest, char hex[ES_DIGEST_HEX])
{
    const uint64_t bits = digest->bytes * 8;
    unsigned char tail[8];
    for (int i = 0; i < 8; i++) tail[i] = (unsigned char)(bits >> (56 - 8 * i));
    es_digest_add(digest, "\x80", 1);
    while (digest->bytes % 64 != 56) es_digest_add(digest, "", 1);
    es_digest_add(digest, tail, 8);
    for (int i = 0; i < (digest->sha1 ? 5 : 8); i++) snprintf(hex + 8 * i, 9, "%08" PRIx32, digest->state[i]);
}

es_status es_digest_file(const char *path, es_digest_kind kind, char hex[ES_DIGEST_HEX],
                         void (*progress)(void *user, int64_t bytes), void *user)
{
    enum { ROOM = 1 << 20 };
    FILE *file = fopen(path, "rb");
    struct stat what;
    if (!file || fstat(fileno(file), &what) != 0) {
        if (file) fclose(file);
        return es_fail(ES_NOT_FOUND, "%s cannot be read", path);
    }
    unsigned char *room = malloc(ROOM);
    es_digest digest;
    es_digest_begin(&digest, kind == ES_DIGEST_GIT_BLOB);
    if (kind == ES_DIGEST_GIT_BLOB) {
        char head[40];
        const int n = snprintf(head, sizeof head, "blob %" PRId64, (int64_t)what.st_size);
        es_digest_add(&digest, head, (size_t)n + 1);
    }
    int64_t done = 0;
    for (size_t n; room && (n = fread(room, 1, ROOM, file)) > 0;) {
        es_digest_add(&digest, room, n);
        done += (int64_t)n;
        if (progress) progress(user, done);
    }
    const bool bad = !room || ferror(file);
    free(room);
    fclose(file);
    if (bad) return es_fail(ES_IO, "%s could not be read to its end", path);
    es_digest_end(&digest, hex);
    return ES_OK;
}
