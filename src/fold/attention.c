/* attention.c: the attention partial {m, l, o[dim]} as an operator over scores and vectors.
 *
 *   m = max(ma, mb);  l = la·e^(ma − m) + lb·e^(mb − m);  o likewise;  finish o / l
 *
 * This is the definition, for small sizes and for tests; the engine folds keys in tiles, with kernels of its own. */
#include <math.h>

#include "fold/items.h"

/* The partial: float[2 + dim]. */
enum { MAX, SUM, OUTPUT };

static int32_t dim_of(const void *context)
{
    return ((const es_attention_fold *)context)->dim;
}

static void attention_identity(const void *context, void *partial)
{
    float *p = partial;
    p[MAX] = -INFINITY;
    p[SUM] = 0;
    for (int32_t d = 0; d < dim_of(context); d++) p[OUTPUT + d] = 0;
}

static void attention_leaf(const void *context, const void *item, int64_t index, void *partial)
{
    (void)index;
    float *p = partial, score;
    memcpy(&score, item, sizeof score);
    if (score == -INFINITY) {
        attention_identity(context, partial);
        return;
    }
    p[MAX] = score;
    p[SUM] = 1;
    memcpy(p + OUTPUT, (const unsigned char *)item + sizeof score, (size_t)dim_of(context) * sizeof *p);
}

/* e^(m − max); equal infinities count as equal, NaN stays NaN. */
static float factor(float m, float max)
{
    return m == max ? 1.0f : (float)es_fold_exp((double)m - (double)max);
}

static void attention_merge(const void *context, void *left, const void *right)
{
    const int32_t dim = dim_of(context);
    float *l = left;
    const float *r = right;
    if (r[MAX] == -INFINITY) return;
    if (l[MAX] == -INFINITY) {
        memcpy(l, r, ((size_t)OUTPUT + (size_t)dim) * sizeof *l);
        return;
    }
    const float max = isnan(l[MAX]) || isnan(r[MAX]) ? NAN : l[MAX] > r[MAX] ? l[MAX] : r[MAX];
    const float a = factor(l[MAX], max), b = factor(r[MAX], max);
    l[MAX] = max;
    for (int32_t d = SUM; d < OUTPUT + dim; d++) l[d] = fmaf(l[d], a, r[d] * b);
}

static void attention_finish(const void *context, const void *partial, void *answer)
{
    const float *p = partial;
    float *out = answer;
    for (int32_t d = 0; d < dim_of(context); d++) out[d] = p[MAX] == -INFINITY ? 0 : p[OUTPUT + d] / p[SUM];
}

es_operator es_operator_attention(const es_attention_fold *shape)
{
    if (shape->dim < 1) return (es_operator){.name = "attention over vectors of no channels"};
    const size_t dim = (size_t)shape->dim;
    return (es_operator){.name = "attention", .item = (1 + dim) * sizeof(float), .partial = (OUTPUT + dim) * sizeof(float),
                         .answer = dim * sizeof(float), .context = shape, .identity = attention_identity,
                         .leaf = attention_leaf, .merge = attention_merge, .finish = attention_finish};
}
