/* summary_raw_body.h: powers about 0 of BF16 items, written once for every width: what es_raw_powers asks for, bit by bit. The
 * including file defines vectors of FLOATS floats (F) and of as many pairs of 16-bit numbers (I), and the few functions used
 * here.
 *
 * A line of 32 items is loaded once. Its even items become floats by a shift, its odd ones by a mask; extremes and zeros are
 * taken from the 16-bit numbers as they lie, 32 at a time. */
#define PARTS (ES_RAW_LANES / FLOATS) /* vectors that make up the lanes */
#define GROUP_BYTES (ES_RAW_LINES * ES_RAW_LINE * 2)

/* What is kept beside the sums: the greatest patterns of 16 bits, read with and without a sign. */
typedef struct ends {
    I high, low;
    int64_t zeros;
} ends;

/* Sums over a group, for FLOATS of the lanes. */
static inline __attribute__((always_inline)) void add_group(const unsigned char *p, F sum[4], ends *e)
{
    F s1 = set_f(0), s2 = s1, even3 = s1, odd3 = s1, even4 = s1, odd4 = s1;
#pragma GCC unroll 4
    for (int line = 0; line < ES_RAW_LINES; line++) {
        const I both = load_items(p + line * ES_RAW_LINE * 2);
        const F x = even_items(both), y = odd_items(both), x2 = mul_f(x, x), y2 = mul_f(y, y);
        s1 = add_f(s1, add_f(x, y));
        s2 = add_f(s2, add_f(x2, y2));
        even3 = fma_f(x2, x, even3);
        odd3 = fma_f(y2, y, odd3);
        even4 = fma_f(x2, x2, even4);
        odd4 = fma_f(y2, y2, odd4);
        e->high = max_signed(e->high, both);
        e->low = max_unsigned(e->low, both);
        e->zeros += count_zero_items(both);
    }
    sum[0] = s1, sum[1] = s2, sum[2] = add_f(even3, odd3), sum[3] = add_f(even4, odd4);
}

/* The greatest of 16-bit numbers without sign: the instruction finds the least, so the order is turned round. */
static inline int greatest(I x)
{
    const __m256i all = greater_half(x);
    const __m128i half = _mm_max_epu16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    return 0xFFFF - (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)))) & 0xFFFF);
}

/* From eight lanes to four, as doubles. */
static inline __m256d four_lanes(F unit[PARTS][4], int k)
{
    const __m256 eight = eight_lanes(unit, k);
    return _mm256_cvtps_pd(_mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}

/* The lanes of a unit fold in halves: from 16 to 4 in float32 (Σ x in float64), then in float64, all four sums at once. The
 * result's order is Σ x, Σ x³, Σ x², Σ x⁴. */
static inline __m256d fold_unit(F unit[PARTS][4])
{
    const __m256d one = four_doubles(unit), two = four_lanes(unit, 1), three = four_lanes(unit, 2), four = four_lanes(unit, 3);
    const __m256d a = _mm256_add_pd(_mm256_permute2f128_pd(one, two, 0x20), _mm256_permute2f128_pd(one, two, 0x31));
    const __m256d b = _mm256_add_pd(_mm256_permute2f128_pd(three, four, 0x20), _mm256_permute2f128_pd(three, four, 0x31));
    return _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
}

/* Sums over one part, in fold_unit()'s order. */
static inline __m256d add_part(const unsigned char *p, int64_t count, ends *e)
{
    const int64_t rest = count % ES_RAW_GROUP, whole = count / ES_RAW_GROUP, groups = whole + (rest > 0);
    unsigned char last[GROUP_BYTES];
    if (rest > 0) {
        memset(last, 0, sizeof last);
        memcpy(last, p + whole * GROUP_BYTES, (size_t)rest * 2);
        e->zeros -= ES_RAW_GROUP - rest;
    }
    __m256d total = _mm256_setzero_pd();
    for (int64_t first = 0; first < groups; first += ES_RAW_GROUPS) {
        F sum[ES_RAW_GROUPS][PARTS][4], unit[PARTS][4];
        for (int g = 0; g < ES_RAW_GROUPS; g++) {
            const int64_t group = first + g;
            const unsigned char *from = group < whole ? p + group * GROUP_BYTES : last;
            for (int part = 0; part < PARTS; part++) {
                if (group < groups) add_group(from + part * FLOATS * 4, sum[g][part], e);
                else sum[g][part][0] = sum[g][part][1] = sum[g][part][2] = sum[g][part][3] = set_f(0);
            }
        }
        for (int part = 0; part < PARTS; part++)
            for (int k = 0; k < 4; k++)
                unit[part][k] = add_f(add_f(sum[0][part][k], sum[1][part][k]), add_f(sum[2][part][k], sum[3][part][k]));
        total = _mm256_add_pd(total, fold_unit(unit));
    }
    return total;
}

static inline bool raw_powers(const void *items, int64_t parts, int64_t count, size_t stride, es_raw_powers *sum,
                              es_part_size *size)
{
    const unsigned char *p = items;
    const I no_sign = magnitude_bits();
    ends all = {zero_items(), zero_items(), 0};
    __m256d total = _mm256_setzero_pd();
    for (int64_t i = 0; i < parts; i++) {
        ends here = {zero_items(), zero_items(), 0};
        const __m256d s = add_part(p + (size_t)i * stride, count, &here);
        const int largest = greatest(max_unsigned(here.high, and_items(here.low, no_sign)));
        if (!es_raw_is_good(largest)) return false;
        total = _mm256_add_pd(total, s);
        all.high = max_signed(all.high, here.high), all.low = max_unsigned(all.low, here.low);
        all.zeros += here.zeros;
        size[i] = (es_part_size){_mm_cvtsd_f64(_mm256_extractf128_pd(s, 1)), (double)es_bfloat_to_float((uint16_t)largest)};
    }
    double s[4];
    _mm256_storeu_pd(s, total);
    *sum = (es_raw_powers){s[0], s[2], s[1], s[3], all.zeros, greatest(all.high), greatest(all.low)};
    return true;
}
