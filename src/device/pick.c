/* pick.c: see pick.h. */
#include "device/pick.h"

#include "device/cpu/math.h"

static void find_best(const float *logits, int32_t n, es_picked *picked)
{
    uint32_t most = 0;
    picked->best = -1;
    picked->most = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t order = es_pick_order(es_bits_of_float(logits[i]));
        if (order > most) most = order, picked->best = i;
    }
    if (picked->best >= 0) picked->most = logits[picked->best];
}

/* 0 where the weight is; then p need not be known. */
static float p_of(const es_pick *how, float most, float logit)
{
    const float x = (logit - most) * how->inverse_temperature;
    return x > ES_PICK_LIGHT ? es_exp(x) : 0.0f;
}

static int32_t bin_of(float p)
{
    return (int32_t)(es_bits_of_float(p) >> ES_PICK_SHIFT) - ES_PICK_FIRST_BIN;
}

typedef struct tally {
    uint64_t weight[ES_PICK_BINS];
    int32_t count[ES_PICK_BINS];
} tally;

/* The lowest bin whose tokens can be needed. */
static int32_t cut_of(const tally *t, const es_pick *how, uint64_t total)
{
    const uint64_t needed = how->share < 1 ? (uint64_t)(how->share * (double)total) : UINT64_MAX;
    uint64_t weight = 0;
    int64_t count = 0;
    for (int32_t bin = ES_PICK_BINS - 1; bin > 0; bin--) {
        weight += t->weight[bin];
        count += t->count[bin];
        if (how->top ? count >= how->top : weight > needed) return bin;
    }
    return 0;
}

void es_pick_row(const float *logits, int32_t vocabulary, const es_pick *how, int32_t room, es_candidate *candidate,
                 es_picked *picked)
{
    tally t = {0};
    find_best(logits, vocabulary, picked);
    picked->total = 0;
    picked->count = picked->unused = 0;
    if (picked->best < 0 || how->inverse_temperature == 0) return;
    for (int32_t i = 0; i < vocabulary; i++) {
        const float p = p_of(how, picked->most, logits[i]);
        const uint64_t weight = p > 0 ? es_pick_weight(p) : 0;
        if (weight == 0) continue;
        t.weight[bin_of(p)] += weight;
        t.count[bin_of(p)]++;
        picked->total += weight;
    }
    const int32_t cut = cut_of(&t, how, picked->total);
    for (int32_t i = 0; i < vocabulary; i++) {
        const float p = p_of(how, picked->most, logits[i]);
        if (!(p >= how->least) || !(p > 0) || es_pick_weight(p) == 0 || bin_of(p) < cut) continue;
        if (picked->count < room) candidate[picked->count] = (es_candidate){p, i};
        picked->count++;
    }
}

/* A heap whose root comes last. The C library's qsort would allocate. */
static void sift_down(es_candidate *heap, int32_t n, int32_t at)
{
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && es_pick_comes_before(heap[child], heap[child + 1])) child++;
        if (!es_pick_comes_before(heap[at], heap[child])) return;
        const es_candidate moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

void es_pick_sort(es_candidate *list, int32_t n)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--) sift_down(list, n, i);
    for (int32_t end = n - 1; end > 0; end--) {
        const es_candidate last = list[0];
        list[0] = list[end];
        list[end] = last;
        sift_down(list, end, 0);
    }
}
