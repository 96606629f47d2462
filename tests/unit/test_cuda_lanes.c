/* The lane logic of the CUDA kernels, walked in C for warps of 32 and of 64 lanes: a warp's width changes neither a sum's order
 * nor an entry's place. Cards with warps of 64 are compiled for, not run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/cuda/lanes.h"

enum { THREADS = 128, EXPERTS = 11, ENTRIES = 531 };

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* What es_group_sum() leaves in every lane of a block whose warps have `warp` lanes. */
static void sum_groups(float *v, int warp)
{
    for (int step = ES_GROUP / 2; step > 0; step /= 2) {
        float before[THREADS];
        memcpy(before, v, sizeof before);
        for (int t = 0; t < THREADS; t++) {
            const int partner = t / warp * warp + es_lane_partner(t % warp, step);
            assert_int_equal(partner / ES_GROUP, t / ES_GROUP); /* nothing crosses to another group */
            v[t] = v[t] + before[partner];
        }
    }
}

static void sums_do_not_depend_on_the_warp(void **state)
{
    (void)state;
    float a[THREADS], b[THREADS];
    uint32_t seed = 1;
    for (int t = 0; t < THREADS; t++) a[t] = b[t] = (float)draw(&seed) * 1e-3f;
    sum_groups(a, 32);
    sum_groups(b, 64);
    assert_memory_equal(a, b, sizeof a);
    for (int t = 0; t < THREADS; t++) assert_true(a[t] == a[t / ES_GROUP * ES_GROUP]); /* every lane has the same */
}

/* What __match_any_sync() gives lane `t`: the lanes of its warp with its key. */
static uint64_t match(const int *key, int t, int warp)
{
    uint64_t alike = 0;
    for (int l = 0; l < warp; l++)
        if (key[t / warp * warp + l] == key[t]) alike |= UINT64_C(1) << l;
    return alike;
}

/* group_kernel(): count, prefix, place. */
static void group_entries(const int *ids, int warp, int *order)
{
    enum { GROUPS = THREADS / ES_GROUP };
    int counts[GROUPS][EXPERTS] = {{0}}, starts[EXPERTS + 1] = {0};
    const int share = ((ENTRIES + GROUPS - 1) / GROUPS + ES_GROUP - 1) / ES_GROUP * ES_GROUP;
    for (int pass = 0; pass < 2; pass++) {
        for (int step = 0; step < share; step += ES_GROUP) {
            int id[THREADS], key[THREADS];
            for (int t = 0; t < THREADS; t++) {
                const int i = t / ES_GROUP * share + step + t % ES_GROUP;
                id[t] = i < ENTRIES && step + t % ES_GROUP < share ? ids[i] : EXPERTS;
                key[t] = es_lane_key(id[t], t / ES_GROUP);
            }
            int rank[THREADS], before[THREADS];
            uint32_t who[THREADS];
            for (int t = 0; t < THREADS; t++) {
                who[t] = es_lane_slice(match(key, t, warp), t, warp);
                rank[t] = es_lane_rank(who[t], t % ES_GROUP);
                before[t] = id[t] < EXPERTS ? counts[t / ES_GROUP][id[t]] : 0;
            }
            for (int t = 0; t < THREADS; t++) {
                if (id[t] == EXPERTS) continue;
                if (pass == 1) order[starts[id[t]] + before[t] + rank[t]] = t / ES_GROUP * share + step + t % ES_GROUP;
                if (rank[t] == 0) counts[t / ES_GROUP][id[t]] = before[t] + __builtin_popcount(who[t]);
            }
        }
        for (int e = 0; e < EXPERTS && pass == 0; e++) {
            int all = 0;
            for (int g = 0; g < GROUPS; g++) {
                const int count = counts[g][e];
                counts[g][e] = all;
                all += count;
            }
            starts[e + 1] = starts[e] + all;
        }
    }
}

static void entries_stand_by_expert_and_in_order(void **state)
{
    (void)state;
    int ids[ENTRIES], order[2][ENTRIES];
    uint32_t seed = 7;
    for (int i = 0; i < ENTRIES; i++) ids[i] = (int)(draw(&seed) % EXPERTS);
    for (int w = 0; w < 2; w++) {
        memset(order[w], 0xFF, sizeof order[w]);
        group_entries(ids, w ? 64 : 32, order[w]);
        for (int i = 0; i < ENTRIES; i++) assert_in_range(order[w][i], 0, ENTRIES - 1);
        for (int i = 1; i < ENTRIES; i++) {
            const int a = order[w][i - 1], b = order[w][i];
            assert_true(ids[a] < ids[b] || (ids[a] == ids[b] && a < b));
        }
    }
    assert_memory_equal(order[0], order[1], sizeof order[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_the_warp),
        cmocka_unit_test(entries_stand_by_expert_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
