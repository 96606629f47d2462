/* math.h: the elementary functions of numeric mode f32, in plain C.
 *
 * Libraries disagree about the last bit of exp(); the same-bits promise cannot. These are our own polynomials, written with
 * explicit fused steps, and the vector kernels repeat them step by step. Accuracy, in units of the last place: exp 1, sigmoid
 * and silu 3, softplus 4 (tests/unit/test_kernels.c measures them); below −88.37 sigmoid and silu are 0 instead of 1e-37. */
#ifndef ES_CPU_MATH_H
#define ES_CPU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/** Sums run over this many virtual lanes, whatever the machine's vectors are. */
#define ES_LANES 16

/* exp(x) = 2^n · e^r with n = round(x / ln 2) and |r| ≤ ln(2)/2: a Taylor polynomial of degree 7 leaves 5e-9. */
#define ES_EXP_LOG2E 1.44269504088896341f
#define ES_EXP_LN2_HIGH 0.693145751953125f       /* 12 bits: n · high is exact */
#define ES_EXP_LN2_LOW 1.42860682030941723e-6f
#define ES_EXP_ROUND 12582912.0f                 /* 1.5 · 2^23: adding it rounds to an integer */
#define ES_EXP_LOWEST (-87.33f)                  /* below: 0 */
#define ES_EXP_HIGHEST 88.37f                    /* above: infinity */
#define ES_EXP_C2 0.5f
#define ES_EXP_C3 0.166666666666666667f
#define ES_EXP_C4 0.0416666666666666667f
#define ES_EXP_C5 0.00833333333333333333f
#define ES_EXP_C6 0.00138888888888888889f
#define ES_EXP_C7 0.000198412698412698413f

static inline float es_float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t es_bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float es_exp(float x)
{
    if (x < ES_EXP_LOWEST) return 0.0f;
    if (x > ES_EXP_HIGHEST) return INFINITY;
    if (x != x) return x;
    const float t = fmaf(x, ES_EXP_LOG2E, ES_EXP_ROUND);
    const float n = t - ES_EXP_ROUND;
    float r = fmaf(n, -ES_EXP_LN2_HIGH, x);
    r = fmaf(n, -ES_EXP_LN2_LOW, r);
    float p = ES_EXP_C7;
    p = fmaf(p, r, ES_EXP_C6);
    p = fmaf(p, r, ES_EXP_C5);
    p = fmaf(p, r, ES_EXP_C4);
    p = fmaf(p, r, ES_EXP_C3);
    p = fmaf(p, r, ES_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* The low bits of t hold n: shifting them into the exponent gives 2^n. */
    return p * es_float_of_bits((es_bits_of_float(t) << 23) + 0x3F800000u);
}

static inline float es_sigmoid(float x)
{
    return 1.0f / (1.0f + es_exp(-x));
}

static inline float es_silu(float x)
{
    return x / (1.0f + es_exp(-x));
}

/* log(1 + e^x) = max(x, 0) + log1p(y), y = e^−|x|; log1p(y) = 2·atanh(s), s = y / (2 + y) ≤ 1/3. */
static inline float es_softplus(float x)
{
    const float y = es_exp(x > 0 ? -x : x);
    const float s = y / (2.0f + y), s2 = s * s;
    float p = 1.0f / 17;
    for (int odd = 15; odd >= 1; odd -= 2) p = fmaf(p, s2, 1.0f / (float)odd);
    return (x > 0 ? x : 0.0f) + 2.0f * s * p;
}

/* cos and sin of a float32 angle, computed in float64: reduction by multiples of π/2 in two parts is good to 1e-10 for
 * angles below 1e6 (a position times a frequency of at most 1), and the polynomials to 1e-14 on |r| ≤ π/4. */
static inline void es_cos_sin(float angle, float *cosine, float *sine)
{
    const double half_pi_high = 1.57079632679489655800, half_pi_low = 6.12323399573676603587e-17;
    const double x = (double)angle;
    const double n = floor(x * 0.636619772367581343076 + 0.5);
    const double r = (x - n * half_pi_high) - n * half_pi_low, r2 = r * r;
    double s = -1.0 / 1307674368000.0, c = -1.0 / 87178291200.0;
    s = s * r2 + 1.0 / 6227020800.0, c = c * r2 + 1.0 / 479001600.0;
    s = s * r2 - 1.0 / 39916800.0, c = c * r2 - 1.0 / 3628800.0;
    s = s * r2 + 1.0 / 362880.0, c = c * r2 + 1.0 / 40320.0;
    s = s * r2 - 1.0 / 5040.0, c = c * r2 - 1.0 / 720.0;
    s = s * r2 + 1.0 / 120.0, c = c * r2 + 1.0 / 24.0;
    s = s * r2 - 1.0 / 6.0, c = c * r2 - 0.5;
    s = s * r2 * r + r, c = c * r2 + 1.0;
    const int quadrant = (int)((int64_t)n & 3);
    const double cos_of[4] = {c, -s, -c, s}, sin_of[4] = {s, c, -s, -c};
    *cosine = (float)cos_of[quadrant];
    *sine = (float)sin_of[quadrant];
}

/** The fixed tree in which 16 lanes become one: halves are added, four times. Overwrites the lanes. */
static inline float es_fold_lanes(float lane[ES_LANES])
{
    for (int width = ES_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) lane[i] = lane[i] + lane[i + width];
    return lane[0];
}

#endif
