/* Same bits: every kernel of every instruction set that this machine has equals its reference, for every weight type. And the
 * reference itself: its elementary functions are near the true ones, its attention fold is a softmax. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "device/cpu/check.h"
#include "device/cpu/math.h"

static void report(const es_check_row *row, void *user)
{
    int *different = user;
    if (row->equal && row->cases > 0) return;
    (*different)++;
    print_error("%s %s %s: %s (%lld cases)\n", row->instruction_set, row->operation, row->type ? row->type : "",
                row->difference, (long long)row->cases);
}

static void compare_set(const char *name)
{
    es_kernels kernels;
    const es_status status = es_kernels_select(name, &kernels);
    if (status == ES_UNSUPPORTED) skip();
    assert_int_equal(status, ES_OK);
    assert_string_equal(kernels.instruction_set, name);
    int different = 0;
    assert_int_equal(es_kernels_check(&kernels, &(es_check_options){.threads = 2}, report, &different), ES_OK);
    assert_int_equal(different, 0);
}

static void avx2_equals_the_reference(void **state)
{
    (void)state;
    compare_set("avx2");
}

static void avx512_equals_the_reference(void **state)
{
    (void)state;
    compare_set("avx512");
}

static void avx512vnni_equals_the_reference(void **state)
{
    (void)state;
    compare_set("avx512vnni");
}

static void avx512bf16_equals_the_reference(void **state)
{
    (void)state;
    compare_set("avx512bf16");
}

static void amx_equals_the_reference(void **state)
{
    (void)state;
    compare_set("amx");
}

/* A harness that could not find a fault would prove nothing. */
static void axpy_wrong_by_one_bit(float a, const float *x, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
    if (n == 33) y[32] = nextafterf(y[32], 1e9f);
}

static void swiglu_too_long(const float *gate, const float *up, float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++) out[i] = es_silu(gate[i]) * up[i];
    out[n] = 0;
}

static void scale_gate_unfinished(const float *x, float a, const float *gate, float *out, int32_t n)
{
    for (int32_t i = 0; i < n - 1; i++) out[i] = gate ? (x[i] * a) * es_sigmoid(gate[i]) : x[i] * a;
}

static void count_different(const es_check_row *row, void *user)
{
    int *found = user;
    if (row->equal) return;
    assert_true(row->difference[0] != 0);
    if (strcmp(row->operation, "axpy") == 0 && strstr(row->difference, "33 elements: out[32]")) found[0]++;
    else if (strcmp(row->operation, "swiglu") == 0 && strstr(row->difference, "outside")) found[1]++;
    else if (strcmp(row->operation, "scale_gate") == 0) found[2]++;
    else found[3]++;
}

static void the_harness_finds_faults(void **state)
{
    (void)state;
    es_kernels kernels;
    es_kernels_reference(&kernels);
    kernels.axpy = axpy_wrong_by_one_bit;
    kernels.swiglu = swiglu_too_long;
    kernels.scale_gate = scale_gate_unfinished;
    int found[4] = {0};
    assert_int_equal(es_kernels_check(&kernels, &(es_check_options){0}, count_different, found), ES_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(found[i], i < 3);
    es_check_row row;
    assert_int_equal(es_check_run(&kernels, es_check_count(), &(es_check_options){0}, &row), ES_INVALID);
    assert_int_equal(es_check_run(&kernels, -1, &(es_check_options){0}, &row), ES_INVALID);
}

/* The distance of `got` from the true value, in units of the last place of the float nearest to the truth. */
static double ulps(float got, double truth)
{
    int exponent;
    frexp(truth, &exponent);
    const double unit = ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
    return fabs((double)got - truth) / unit;
}

typedef struct elementary {
    const char *name;
    float (*ours)(float);
    double (*truth)(double);
    float low, high;
    double most; /* ulps */
} elementary;

static double true_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double true_silu(double x)
{
    return x / (1 + exp(-x));
}

static double true_softplus(double x)
{
    return log1p(exp(-fabs(x))) + (x > 0 ? x : 0);
}

static void elementary_functions_are_near_the_true_ones(void **state)
{
    (void)state;
    static const elementary rows[] = {
        {"exp", es_exp, exp, -87.3f, 88.3f, 1},
        {"sigmoid", es_sigmoid, true_sigmoid, -86, 88, 3},
        {"silu", es_silu, true_silu, -86, 88, 3},
        {"softplus", es_softplus, true_softplus, -80, 88, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const elementary *f = &rows[i];
        double worst = 0;
        float at = 0;
        enum { STEPS = 2000000 };
        for (int s = 0; s <= STEPS; s++) {
            /* Evenly over the range, and a hundredth of it more closely around zero. */
            const float x = (s % 2 ? 1.0f : 0.01f) * (f->low + (f->high - f->low) * ((float)s / STEPS));
            const double d = ulps(f->ours(x), f->truth((double)x));
            if (d > worst) worst = d, at = x;
        }
        print_message("%-10s at most %.2f ulp (at %g)\n", f->name, worst, (double)at);
        assert_true(worst <= f->most);
    }
    assert_true(es_exp(-1e30f) == 0.0f && es_exp(-INFINITY) == 0.0f && es_exp(0.0f) == 1.0f && es_exp(-0.0f) == 1.0f);
    assert_true(es_exp(1e30f) == INFINITY && isnan(es_exp(NAN)));
    assert_true(es_sigmoid(-INFINITY) == 0.0f && es_sigmoid(INFINITY) == 1.0f && es_sigmoid(0.0f) == 0.5f);
    assert_true(es_silu(0.0f) == 0.0f && fabsf(es_silu(-200.0f)) == 0.0f && es_silu(200.0f) == 200.0f);
    assert_true(es_softplus(200.0f) == 200.0f && es_softplus(-200.0f) == 0.0f);
}

/* In absolute terms: near their zeros, cos and sin of a large angle have an error that the reduction leaves, below 2e-10. */
static void angles_up_to_a_million_are_rounded_once(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t i = 0; i < 2000000; i++) {
        const double unit = es_random_unit(3, 1, i, 0);
        const float angle = (float)(unit * (i % 3 == 0 ? 1e6 : i % 3 == 1 ? 1e3 : 7));
        float c, s;
        es_cos_sin(angle, &c, &s);
        const double dc = fabs((double)c - cos((double)angle)), ds = fabs((double)s - sin((double)angle));
        if (dc > worst) worst = dc;
        if (ds > worst) worst = ds;
    }
    print_message("cos_sin    at most %.4g off (half a unit below 1 is %.4g)\n", worst, 0x1p-25);
    assert_true(worst <= 0x1p-25 + 2e-10);
}

enum { DIM = 32, KEYS = 448, LEAF = 128 };

typedef struct partial {
    float m, l, o[DIM];
} partial;

typedef struct attention {
    float q[DIM], k[KEYS][DIM], v[KEYS][DIM];
    float k_block[KEYS * DIM];
} attention;

static attention *new_attention(void)
{
    attention *a = malloc(sizeof *a);
    assert_non_null(a);
    for (uint32_t d = 0; d < DIM; d++) a->q[d] = (float)(es_random_unit(5, 0, d, 0) * 4 - 2);
    for (uint32_t j = 0; j < KEYS; j++)
        for (uint32_t d = 0; d < DIM; d++) {
            a->k[j][d] = (float)(es_random_unit(5, 1, j, d) * 4 - 2);
            a->v[j][d] = (float)(es_random_unit(5, 2, j, d) * 4 - 2);
            a->k_block[(j / 16 * DIM + d) * 16 + j % 16] = a->k[j][d];
        }
    return a;
}

/* A leaf of the tree: the keys [from, to), tile by tile. */
static partial fold_leaf(const es_kernels *kernels, const attention *a, int32_t from, int32_t to)
{
    partial leaf = {.m = -INFINITY};
    float lanes[ES_LANES] = {0}, p[ES_ATTN_TILE];
    const float *q = a->q;
    for (int32_t key = from; key < to; key += ES_ATTN_TILE) {
        const int32_t valid = to - key < ES_ATTN_TILE ? to - key : ES_ATTN_TILE;
        es_attn_tile tile = {.q = &q, .valid = &valid, .rows = 1, .head_dim = DIM,
                             .m = &leaf.m, .l = lanes, .o = leaf.o, .p = p};
        for (int32_t b = 0; b * 16 < valid; b++) {
            tile.k[b] = a->k_block + (int64_t)(key + b * 16) * DIM;
            tile.v[b] = a->v[key + b * 16];
        }
        kernels->attn_tile(&tile);
    }
    leaf.l = es_fold_lanes(lanes);
    return leaf;
}

static void merge(const es_kernels *kernels, partial *left, const partial *right)
{
    kernels->attn_merge(&left->m, &left->l, left->o, right->m, right->l, right->o, DIM);
}

static void the_tree_of_partials_is_a_softmax(void **state)
{
    (void)state;
    attention *a = new_attention();
    static const char *const sets[] = {"reference", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        es_kernels kernels;
        if (es_kernels_select(sets[i], &kernels) != ES_OK) continue;
        for (int32_t keys = 1; keys <= KEYS; keys += keys < 70 ? 1 : 27) {
            partial leaf[4];
            for (int32_t h = 0; h < 4; h++) {
                const int32_t end = (h + 1) * LEAF < keys ? (h + 1) * LEAF : keys;
                leaf[h] = fold_leaf(&kernels, a, h * LEAF, end);
            }
            merge(&kernels, &leaf[0], &leaf[1]);
            merge(&kernels, &leaf[2], &leaf[3]);
            merge(&kernels, &leaf[0], &leaf[2]);

            double score[KEYS], most = -INFINITY, sum = 0, out[DIM] = {0};
            for (int32_t j = 0; j < keys; j++) {
                score[j] = 0;
                for (int d = 0; d < DIM; d++) score[j] += (double)a->q[d] * (double)a->k[j][d];
                if (score[j] > most) most = score[j];
            }
            for (int32_t j = 0; j < keys; j++) {
                sum += exp(score[j] - most);
                for (int d = 0; d < DIM; d++) out[d] += exp(score[j] - most) * (double)a->v[j][d];
            }
            for (int d = 0; d < DIM; d++) assert_true(fabs((double)(leaf[0].o[d] / leaf[0].l) - out[d] / sum) < 2e-5);
        }
    }
    free(a);
}

static void an_empty_partial_changes_no_bit(void **state)
{
    (void)state;
    attention *a = new_attention();
    static const char *const sets[] = {"reference", "avx2", "avx512"};
    for (int i = 0; i < 3; i++) {
        es_kernels kernels;
        if (es_kernels_select(sets[i], &kernels) != ES_OK) continue;
        const partial some = fold_leaf(&kernels, a, 0, 100), nothing = fold_leaf(&kernels, a, 0, 0);
        assert_true(nothing.m == -INFINITY && nothing.l == 0.0f);
        for (int d = 0; d < DIM; d++) assert_true(nothing.o[d] == 0.0f);
        partial left = some, right = nothing, both = nothing;
        merge(&kernels, &left, &nothing);
        merge(&kernels, &right, &some);
        merge(&kernels, &both, &nothing);
        assert_memory_equal(&left, &some, sizeof some);
        assert_memory_equal(&right, &some, sizeof some);
        assert_memory_equal(&both, &nothing, sizeof nothing);
    }
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx2_equals_the_reference),
        cmocka_unit_test(avx512_equals_the_reference),
        cmocka_unit_test(avx512vnni_equals_the_reference),
        cmocka_unit_test(avx512bf16_equals_the_reference),
        cmocka_unit_test(amx_equals_the_reference),
        cmocka_unit_test(the_harness_finds_faults),
        cmocka_unit_test(elementary_functions_are_near_the_true_ones),
        cmocka_unit_test(angles_up_to_a_million_are_rounded_once),
        cmocka_unit_test(the_tree_of_partials_is_a_softmax),
        cmocka_unit_test(an_empty_partial_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
