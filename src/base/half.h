/* half.h: 16-bit floating-point numbers, by integer arithmetic.
 *
 * No instruction and no rounding mode takes part, so the results are the same on every machine and under flush-to-zero. NaNs
 * come out quiet, as the conversion instructions make them; everything else is exact (to float) or rounded to nearest, ties to
 * even (from float). */
#ifndef ES_BASE_HALF_H
#define ES_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float es_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t es_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/** The largest number of IEEE binary16. */
#define ES_HALF_MOST 65504.0f

/** IEEE binary16 to float: exact, subnormals included. */
static inline float es_half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    if (exponent == 0x1F) return es_float_from_bits(sign | 0x7F800000 | fraction << 13 | (fraction ? 0x400000 : 0));
    if (exponent != 0) return es_float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    if (fraction == 0) return es_float_from_bits(sign);
    const uint32_t shift = (uint32_t)__builtin_clz(fraction) - 21; /* brings the leading one to bit 10 */
    return es_float_from_bits(sign | (113 - shift) << 23 | (fraction << shift & 0x3FF) << 13);
}

/** bfloat16 to float: exact. */
static inline float es_bfloat_to_float(uint16_t bfloat)
{
    return es_float_from_bits((uint32_t)bfloat << 16);
}

/** Float to bfloat16, to nearest, ties to even; past the largest it is infinite. */
static inline uint16_t es_float_to_bfloat(float value)
{
    const uint32_t bits = es_float_bits(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/** Float to IEEE binary16, to nearest, ties to even; past the largest it is infinite. */
static inline uint16_t es_float_to_half(float value)
{
    const uint32_t bits = es_float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    if (size > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (size >> 13 & 0x1FF));
    if (size >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65,520, halfway between the largest and the next, and up */
    if (size >= 0x38800000) {                                 /* 2^-14, the least normal, and up */
        const uint32_t rebased = size - (112u << 23);
        return (uint16_t)(sign | (rebased + 0xFFF + (rebased >> 13 & 1)) >> 13);
    }
    if (size <= 0x33000000) return (uint16_t)sign; /* 2^-25, halfway to the least subnormal, and down */
    const uint32_t shift = 126 - (size >> 23), whole = (size & 0x7FFFFF) | 0x800000; /* shift is 14 to 24 */
    const uint32_t rest = whole & ((1u << shift) - 1), tie = 1u << (shift - 1), kept = whole >> shift;
    return (uint16_t)(sign | (kept + (rest > tie || (rest == tie && (kept & 1)))));
}

#endif
