/* pi.c: π by throwing darts, with a generator that is a function of the dart's number.
 *
 *   ./example_pi [darts] [threads]
 *
 * No stream of random numbers is handed from one dart to the next: dart i is computed from i alone. Whichever thread throws
 * it, it lands in the same place, so that the digits are the same for any number of threads. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "evenshare/fold.h"

/* A mixing function (splitmix64's): its outputs for 0, 1, 2, … pass for random. */
static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static double unit(uint64_t random)
{
    return (double)(random >> 11) * 0x1p-53;
}

static void none(const void *context, void *partial)
{
    (void)context;
    *(int64_t *)partial = 0;
}

static void throw_darts(const void *context, const void *items, int64_t first, int64_t count, void *partial)
{
    (void)items; /* there are none: the number of the dart is all there is */
    const uint64_t seed = *(const uint64_t *)context;
    int64_t hits = 0;
    for (int64_t i = first; i < first + count; i++) {
        const uint64_t key = mix(seed) + 2 * (uint64_t)i;
        const double x = unit(mix(key)), y = unit(mix(key + 1));
        hits += x * x + y * y < 1;
    }
    *(int64_t *)partial = hits;
}

static void add(const void *context, void *left, const void *right)
{
    (void)context;
    *(int64_t *)left += *(const int64_t *)right;
}

int main(int argc, char **argv)
{
    const int64_t darts = argc > 1 ? atoll(argv[1]) : 100000000;
    const uint64_t seed = 42;
    const es_operator op = {.name = "darts", .partial = sizeof(int64_t), .answer = sizeof(int64_t), .block = 65536,
                            .context = &seed, .identity = none, .merge = add, .fold_block = throw_darts};
    const es_source numbers = es_source_counting(darts);
    es_team *team;
    int64_t hits;
    if (es_team_open(argc > 2 ? atoi(argv[2]) : 0, &team) != ES_OK || es_fold(team, &op, &numbers, NULL, &hits) != ES_OK) {
        fprintf(stderr, "%s\n", es_error_message());
        return 1;
    }
    es_team_close(team);
    printf("%.10f from %" PRId64 " darts\n", darts > 0 ? 4.0 * (double)hits / (double)darts : 0, darts);
    return 0;
}
