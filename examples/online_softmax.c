/* online_softmax.c: attention over keys that are made up as they are read: one pass, no row of scores in memory.
 *
 *   ./example_online_softmax [keys] [threads]
 *
 * Items are a score and a vector; the partial is {running maximum, sum of exponentials, weighted sum of vectors}. Two partials
 * merge by scaling the one with the lower maximum, so that nothing overflows however large the scores are. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "evenshare/operators.h"

enum { DIM = 4 };

/* Key i scores up to 1,000: e^1000 is far past what a double holds. Every seventh is masked. */
static void make_keys(const void *context, int64_t first, int64_t count, void *items)
{
    (void)context;
    float *item = items;
    for (int64_t i = first; i < first + count; i++, item += 1 + DIM) {
        item[0] = i % 7 == 0 ? -INFINITY : 1000 - (float)(i * 2654435761u % 1000) / 50;
        for (int d = 0; d < DIM; d++) item[1 + d] = (float)((i + d) % 10);
    }
}

int main(int argc, char **argv)
{
    const int64_t keys = argc > 1 ? atoll(argv[1]) : 1000000;
    const es_attention_fold shape = {DIM};
    const es_operator attention = es_operator_attention(&shape);
    const es_source source = es_source_generator(make_keys, NULL, (1 + DIM) * sizeof(float), keys);
    es_team *team;
    float out[DIM];
    if (es_team_open(argc > 2 ? atoi(argv[2]) : 0, &team) != ES_OK ||
        es_fold(team, &attention, &source, NULL, out) != ES_OK) {
        fprintf(stderr, "%s\n", es_error_message());
        return 1;
    }
    es_team_close(team);
    printf("%" PRId64 " keys:", keys);
    for (int d = 0; d < DIM; d++) printf(" %.9g", (double)out[d]);
    putchar('\n');
    return 0;
}
