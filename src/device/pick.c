/* pick.c: see pick.h. */
#include "device/pick.h"

#include "device/cpu/math.h"

int32_t es_pick_best(const float *logits, int32_t from, int32_t to)
{
    uint32_t most = 0;
    int32_t best = -1;
    for (int32_t i = from; i < to; i++) {
        const uint32_t order = es_pick_order(es_bits_of_float(logits[i]));
        if (order > most) most = order, best = i;
    }
    return best;
}

bool es_pick_is_greater(float a, float b)
{
    return es_pick_order(es_bits_of_float(a)) > es_pick_order(es_bits_of_float(b));
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

void es_pick_weigh(const float *logits, int32_t from, int32_t to, const es_pick *how, float most, es_pick_tally *tally)
{
    *tally = (es_pick_tally){0};
    for (int32_t i = from; i < to; i++) {
        const float p = p_of(how, most, logits[i]);
        const uint64_t weight = p > 0 ? es_pick_weight(p) : 0;
        if (weight == 0) continue;
        tally->weight[bin_of(p)] += weight;
        tally->count[bin_of(p)]++;
        tally->total += weight;
    }
}

int32_t es_pick_cut(const es_pick_tally *tally, int32_t parts, const es_pick *how, uint64_t *total)
{
    *total = 0;
    for (int32_t i = 0; i < parts; i++) *total += tally[i].total;
    const uint64_t needed = how->share < 1 ? (uint64_t)(how->share * (double)*total) : UINT64_MAX;
    uint64_t weight = 0;
    int64_t count = 0;
    for (int32_t bin = ES_PICK_BINS - 1; bin > 0; bin--) {
        for (int32_t i = 0; i < parts; i++) {
            weight += tally[i].weight[bin];
            count += tally[i].count[bin];
        }
        if (how->top ? count >= how->top : weight > needed) return bin;
    }
    return 0;
}

void es_pick_gather(const float *logits, int32_t from, int32_t to, const es_pick *how, float most, int32_t cut, int32_t room,
                    es_candidate *candidate, int32_t *count)
{
    for (int32_t i = from; i < to; i++) {
        const float p = p_of(how, most, logits[i]);
        if (!(p >= how->least) || !(p > 0) || es_pick_weight(p) == 0 || bin_of(p) < cut) continue;
        const int32_t at = __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
        if (at < room) candidate[at] = (es_candidate){p, i};
    }
}

void es_pick_row(const float *logits, int32_t vocabulary, const es_pick *how, int32_t room, es_candidate *candidate,
                 es_picked *picked)
{
    es_pick_tally tally;
    picked->best = es_pick_best(logits, 0, vocabulary);
    picked->most = picked->best < 0 ? -INFINITY : logits[picked->best];
    picked->total = 0;
    picked->count = picked->unused = 0;
    if (picked->best < 0 || how->inverse_temperature == 0) return;
    es_pick_weigh(logits, 0, vocabulary, how, picked->most, &tally);
    const int32_t cut = es_pick_cut(&tally, 1, how, &picked->total);
    es_pick_gather(logits, 0, vocabulary, how, picked->most, cut, room, candidate, &picked->count);
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
