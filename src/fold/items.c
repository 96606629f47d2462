/* items.c: item types, and an exponential of our own. */
#include "fold/items.h"

#include <math.h>

const es_item_type es_item_types[ES_ITEM_TYPES] = {ES_ITEM_F64, ES_ITEM_F32, ES_ITEM_F16, ES_ITEM_BF16, ES_ITEM_I32};

size_t es_item_bytes(es_item_type type)
{
    switch (type) {
    case ES_ITEM_F64: return 8;
    case ES_ITEM_F32:
    case ES_ITEM_I32: return 4;
    case ES_ITEM_F16:
    case ES_ITEM_BF16: return 2;
    }
    return 0;
}

es_operator es_operator_of_type(es_item_type type, const es_operator *op)
{
    const size_t bytes = es_item_bytes(type);
    if (bytes == 0) return (es_operator){.name = "an operator over an unknown item type"};
    es_operator made = *op;
    made.item = bytes;
    made.context = &es_item_types[type];
    return made;
}

/* e^x = 2^n · e^r, |r| ≤ ln(2)/2: a Taylor polynomial of degree 13 leaves 4e-18. */
double es_fold_exp(double x)
{
    if (x != x) return x;
    if (x < -745.2) return 0;
    if (x > 709) x = 709;
    const double n = nearbyint(x * 1.4426950408889634074);
    double r = fma(n, -6.93147180369123816490e-01, x); /* the upper 33 bits of ln 2: n · that is exact */
    r = fma(n, -1.90821492927058770002e-10, r);
    double p = 1.0 / 6227020800.0;
    p = fma(p, r, 1.0 / 479001600.0);
    p = fma(p, r, 1.0 / 39916800.0);
    p = fma(p, r, 1.0 / 3628800.0);
    p = fma(p, r, 1.0 / 362880.0);
    p = fma(p, r, 1.0 / 40320.0);
    p = fma(p, r, 1.0 / 5040.0);
    p = fma(p, r, 1.0 / 720.0);
    p = fma(p, r, 1.0 / 120.0);
    p = fma(p, r, 1.0 / 24.0);
    p = fma(p, r, 1.0 / 6.0);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    return ldexp(p, (int)n);
}
