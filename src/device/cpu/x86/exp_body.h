/* exp_body.h: es_exp() of math.h over sixteen lanes, step by step the same. Included after a vector header, by every kernel that
 * needs it: a polynomial written twice would sooner or later be two. */
#ifndef ES_CPU_EXP_BODY_H
#define ES_CPU_EXP_BODY_H

#include "device/cpu/math.h"

static inline __attribute__((always_inline)) v16 v_exp(v16 x)
{
    const v16 t = v_fma(x, v_set(ES_EXP_LOG2E), v_set(ES_EXP_ROUND));
    const v16 n = v_sub(t, v_set(ES_EXP_ROUND));
    v16 r = v_fma(n, v_set(-ES_EXP_LN2_HIGH), x);
    r = v_fma(n, v_set(-ES_EXP_LN2_LOW), r);
    v16 p = v_set(ES_EXP_C7);
    p = v_fma(p, r, v_set(ES_EXP_C6));
    p = v_fma(p, r, v_set(ES_EXP_C5));
    p = v_fma(p, r, v_set(ES_EXP_C4));
    p = v_fma(p, r, v_set(ES_EXP_C3));
    p = v_fma(p, r, v_set(ES_EXP_C2));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    return v_clamp_exp(v_mul(p, v_power_of_two(t)), x, ES_EXP_LOWEST, ES_EXP_HIGHEST);
}

#endif
