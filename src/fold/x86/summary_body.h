/* summary_body.h: the powers of one block, written once for every width. The including file defines vectors of WIDTH doubles
 * (D), floats (F), and the few functions used here. */
#define GROUPS (ES_FOLD_LANES / WIDTH) /* vectors that make up the 16 lanes */

/* Lanes leave the registers once per block; the last incomplete group and the fixed tree are plain C, as in the reference. */
typedef struct lanes {
    double s1[ES_FOLD_LANES], s2[ES_FOLD_LANES], s3[ES_FOLD_LANES], s4[ES_FOLD_LANES];
} lanes;

static inline bool close_block(lanes *l, es_item_type type, const void *items, int64_t from, int64_t count, es_powers *out)
{
    for (int64_t i = from; i < count; i++) {
        const double x = es_item_load(type, items, i), d = x - out->pivot, d2 = d * d;
        const int lane = (int)(i - from);
        l->s1[lane] += d;
        l->s2[lane] += d2;
        l->s3[lane] = __builtin_fma(d2, d, l->s3[lane]);
        l->s4[lane] = __builtin_fma(d2, d2, l->s4[lane]);
        out->min = x < out->min ? x : out->min;
        out->max = x > out->max ? x : out->max;
        out->zeros += x == 0;
    }
    out->count = count;
    out->s1 = es_fold_lanes_f64(l->s1), out->s2 = es_fold_lanes_f64(l->s2);
    out->s3 = es_fold_lanes_f64(l->s3), out->s4 = es_fold_lanes_f64(l->s4);
    return __builtin_isfinite(out->s1);
}

/* Arithmetic keeps the processor from looking far ahead by itself: without this, reading and computing take turns. It may run
 * past the end of the items: fetching never faults. */
#define AHEAD 4096 /* bytes */
static inline void fetch_ahead(const unsigned char *p, int bytes)
{
    for (int line = 0; line < bytes; line += 64) __builtin_prefetch((const void *)((uintptr_t)p + AHEAD + (uintptr_t)line));
}

/* x − pivot and its powers, added to one vector of lanes. */
#define ADD_POWERS(g, x)                          \
    do {                                          \
        const D d = sub_d(x, pivot), q = mul_d(d, d); \
        s1[g] = add_d(s1[g], d);                  \
        s2[g] = add_d(s2[g], q);                  \
        s3[g] = fma_d(q, d, s3[g]);               \
        s4[g] = fma_d(q, q, s4[g]);               \
    } while (0)

/* Least, greatest and zeros are taken from the floats, which cost half as much as doubles; in a block without NaN no order
 * can change them. */
#define POWERS_OF_FLOATS(name, type, load)                                                    \
    static bool name(const void *items, int64_t count, es_powers *out)                        \
    {                                                                                         \
        const unsigned char *p = items;                                                       \
        const size_t item = es_item_bytes(type);                                              \
        *out = (es_powers){.pivot = es_item_load(type, items, 0)};                            \
        const D pivot = set_d(out->pivot);                                                    \
        D s1[GROUPS], s2[GROUPS], s3[GROUPS], s4[GROUPS];                                     \
        for (int g = 0; g < GROUPS; g++) s1[g] = s2[g] = s3[g] = s4[g] = set_d(0);            \
        F low = set_f((float)out->pivot), high = low;                                         \
        int64_t i = 0, zeros = 0;                                                             \
        for (; i + ES_FOLD_LANES <= count; i += ES_FOLD_LANES) {                              \
            fetch_ahead(p + (size_t)i * item, ES_FOLD_LANES * 4);                             \
            for (int g = 0; g < GROUPS; g += 2) {                                             \
                const F x = load(p + (size_t)(i + g * WIDTH) * item);                         \
                low = min_f(x, low);                                                          \
                high = max_f(x, high);                                                        \
                zeros += count_zeros_f(x);                                                    \
                ADD_POWERS(g, low_half(x));                                                   \
                ADD_POWERS(g + 1, high_half(x));                                              \
            }                                                                                 \
        }                                                                                     \
        lanes l;                                                                              \
        for (int g = 0; g < GROUPS; g++) {                                                    \
            store_d(l.s1 + g * WIDTH, s1[g]), store_d(l.s2 + g * WIDTH, s2[g]);               \
            store_d(l.s3 + g * WIDTH, s3[g]), store_d(l.s4 + g * WIDTH, s4[g]);               \
        }                                                                                     \
        out->min = least_f(low), out->max = greatest_f(high), out->zeros = zeros;             \
        return close_block(&l, type, items, i, count, out);                                   \
    }

POWERS_OF_FLOATS(powers_f32, ES_ITEM_F32, load_f32)
POWERS_OF_FLOATS(powers_f16, ES_ITEM_F16, load_f16)
POWERS_OF_FLOATS(powers_bf16, ES_ITEM_BF16, load_bf16)

static bool powers_f64(const void *items, int64_t count, es_powers *out)
{
    const unsigned char *p = items;
    *out = (es_powers){.pivot = es_item_load(ES_ITEM_F64, items, 0)};
    const D pivot = set_d(out->pivot);
    D s1[GROUPS], s2[GROUPS], s3[GROUPS], s4[GROUPS], low = pivot, high = pivot;
    for (int g = 0; g < GROUPS; g++) s1[g] = s2[g] = s3[g] = s4[g] = set_d(0);
    int64_t i = 0, zeros = 0;
    for (; i + ES_FOLD_LANES <= count; i += ES_FOLD_LANES) {
        fetch_ahead(p + (size_t)i * 8, ES_FOLD_LANES * 8);
        for (int g = 0; g < GROUPS; g++) {
            const D x = load_d(p + (size_t)(i + g * WIDTH) * 8);
            low = min_d(x, low);
            high = max_d(x, high);
            zeros += count_zeros_d(x);
            ADD_POWERS(g, x);
        }
    }
    lanes l;
    for (int g = 0; g < GROUPS; g++) {
        store_d(l.s1 + g * WIDTH, s1[g]), store_d(l.s2 + g * WIDTH, s2[g]);
        store_d(l.s3 + g * WIDTH, s3[g]), store_d(l.s4 + g * WIDTH, s4[g]);
    }
    out->zeros = zeros;
    double ends[2][WIDTH];
    store_d(ends[0], low), store_d(ends[1], high);
    out->min = ends[0][0], out->max = ends[1][0];
    for (int g = 1; g < WIDTH; g++) {
        out->min = ends[0][g] < out->min ? ends[0][g] : out->min;
        out->max = ends[1][g] > out->max ? ends[1][g] : out->max;
    }
    return close_block(&l, ES_ITEM_F64, items, i, count, out);
}

static es_powers_fn powers_of(es_item_type type)
{
    switch (type) {
    case ES_ITEM_F64: return powers_f64;
    case ES_ITEM_F32: return powers_f32;
    case ES_ITEM_F16: return powers_f16;
    case ES_ITEM_BF16: return powers_bf16;
    case ES_ITEM_I32: break;
    }
    return NULL;
}
