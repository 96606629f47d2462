/* read_pass.c: the bitwise sum of all 64-bit words: as little arithmetic as makes the reading necessary. */
#include "cli/read_pass.h"

#include <string.h>

#include "evenshare/fold.h"

static void words_identity(const void *context, void *partial)
{
    (void)context;
    *(uint64_t *)partial = 0;
}

static void words_merge(const void *context, void *left, const void *right)
{
    (void)context;
    *(uint64_t *)left ^= *(const uint64_t *)right;
}

static void words_block(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)context, (void)first;
    const unsigned char *p = items;
    uint64_t lane[16] = {0}, word[16];
    for (int64_t i = 0; i + 16 <= count; i += 16) {
        memcpy(word, p + i * 8, sizeof word);
        for (int k = 0; k < 16; k++) lane[k] ^= word[k];
    }
    uint64_t all = 0;
    for (int k = 0; k < 16; k++) all ^= lane[k];
    *(uint64_t *)partial = all;
}

es_status es_read_pass(es_team *team, const void *data, size_t bytes)
{
    const es_operator op = {.name = "read", .item = 8, .partial = 8, .answer = 8, .block = 16384, .identity = words_identity,
                            .merge = words_merge, .fold_block = words_block};
    const es_source source = es_source_array(data, 8, (int64_t)(bytes / 8));
    uint64_t all;
    return es_fold(team, &op, &source, NULL, &all);
}
