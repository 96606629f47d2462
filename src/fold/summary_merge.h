/* summary_merge.h: two summaries as one, step by step: the host's fold and the device's give the same bits, since both compile
 * this. */
#ifndef ES_FOLD_SUMMARY_MERGE_H
#define ES_FOLD_SUMMARY_MERGE_H

#include "evenshare/operators.h"

#ifdef __CUDACC__
#define ES_SUMMARY_FN static __host__ __device__ inline
#else
#define ES_SUMMARY_FN static inline
#endif

/* δ = μb − μa, n = na + nb; the formulas stand in docs/folds.md. Multiplications are grouped so that nothing overflows for
 * counts up to 2^63: shares a = na/n and b = nb/n instead of counts. */
ES_SUMMARY_FN void es_moments_join(es_summary *l, const es_summary *r)
{
    const double na = (double)l->count, nb = (double)r->count, n = na + nb;
    const double a = na / n, b = nb / n, delta = r->mean - l->mean, d2 = delta * delta;
    const double m2 = l->m2 + r->m2 + d2 * a * nb;
    const double m3 = l->m3 + r->m3 + d2 * delta * a * nb * (a - b) + 3 * delta * (a * r->m2 - b * l->m2);
    const double m4 = l->m4 + r->m4 + d2 * d2 * a * nb * (a * a - a * b + b * b) +
                      6 * d2 * (a * a * r->m2 + b * b * l->m2) + 4 * delta * (a * r->m3 - b * l->m3);
    l->mean += delta * b;
    l->m2 = m2, l->m3 = m3, l->m4 = m4;
}

/** left ← left ⊕ right. */
ES_SUMMARY_FN void es_summary_join(es_summary *l, const es_summary *r)
{
    if (r->count > 0) {
        if (l->count > 0) es_moments_join(l, r);
        else l->mean = r->mean, l->m2 = r->m2, l->m3 = r->m3, l->m4 = r->m4;
        l->min = r->min < l->min ? r->min : l->min;
        l->max = r->max > l->max ? r->max : l->max;
        l->count += r->count;
    }
    l->zeros += r->zeros, l->nans += r->nans, l->plus_infs += r->plus_infs, l->minus_infs += r->minus_infs;
}

#endif
