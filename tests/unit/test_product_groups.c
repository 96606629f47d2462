/* A product of many tokens may take them in groups, and be joined with the SwiGLU behind it: neither changes a bit. Held against
 * steps too short for groups, and against the two operations in programs of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "device/device.h"
#include "device/random_blocks.h"

enum { TOKENS = 300, COLUMNS = 512, ROWS = 40, FEW = 50 }; /* rows: the last unit is not whole */

typedef struct fixture {
    es_device *device;
    es_buffer *x, *weights, *sums, *gated;
} fixture;

static unsigned char weights[2 * ROWS * COLUMNS * 4];
static float x[TOKENS * COLUMNS], sums[2 * TOKENS * ROWS], gated[TOKENS * ROWS];

static es_op product_of(const fixture *f, es_dtype type, int64_t first)
{
    es_op op = {.kind = ES_OP_MATMUL, .as.matmul = {.x = {f->x, (size_t)first * COLUMNS * sizeof *x}, .x_stride = COLUMNS, .parts = 2}};
    for (int p = 0; p < 2; p++)
        op.as.matmul.part[p] = (es_matmul_part){
            .weight = {{f->weights, (size_t)p * es_dtype_bytes(type, ROWS * COLUMNS)}, type, ROWS, COLUMNS},
            .out = {f->sums, (size_t)(p * TOKENS + first) * ROWS * sizeof *sums}, .out_stride = ROWS};
    return op;
}

static es_op swiglu_of(const fixture *f, int64_t first)
{
    const size_t row = ROWS * sizeof *sums;
    return (es_op){.kind = ES_OP_SWIGLU,
                   .as.swiglu = {{f->sums, (size_t)first * row}, {f->sums, (size_t)(TOKENS + first) * row},
                                 {f->gated, (size_t)first * row}, ROWS, ROWS, 1}};
}

static void open_fixture(fixture *f, const char *set, es_numeric numeric, int threads)
{
    const es_device_options options = {.threads = threads, .rows = TOKENS, .spans = 1, .context = TOKENS, .columns = COLUMNS,
                                       .numeric = numeric, .instruction_set = set};
    *f = (fixture){0};
    assert_int_equal(es_device_open_cpu(&options, &f->device), ES_OK);
    assert_int_equal(es_device_import(f->device, x, sizeof x, &f->x), ES_OK);
    assert_int_equal(es_device_import(f->device, weights, sizeof weights, &f->weights), ES_OK);
    assert_int_equal(es_device_import(f->device, sums, sizeof sums, &f->sums), ES_OK);
    assert_int_equal(es_device_import(f->device, gated, sizeof gated, &f->gated), ES_OK);
}

static void close_fixture(fixture *f)
{
    es_device_release(f->device, f->x);
    es_device_release(f->device, f->weights);
    es_device_release(f->device, f->sums);
    es_device_release(f->device, f->gated);
    es_device_close(f->device);
}

/* Runs `count` operations as one program over `rows` tokens. */
static void run(const fixture *f, const es_op *op, int count, int32_t rows)
{
    static const int32_t tokens[TOKENS];
    const es_span span = {.rows = rows};
    const es_batch batch = {.rows = rows, .spans = 1, .tokens = tokens, .span = &span};
    es_program program = {0};
    for (int i = 0; i < count; i++) es_program_add(&program, op[i]);
    assert_false(program.failed);
    assert_int_equal(es_device_submit(f->device, &program, &batch), ES_OK);
    es_program_free(&program);
}

static void check(const char *set, es_numeric numeric, es_dtype type, int threads)
{
    static float wanted_sums[2 * TOKENS * ROWS], wanted[TOKENS * ROWS];
    fixture f;
    es_bits bits = {5};
    es_random_blocks(&bits, type, 2 * ROWS * COLUMNS / es_dtype_get_info(type)->block, 0.1f, weights);
    es_random_blocks(&bits, ES_F32, TOKENS * COLUMNS, 1.0f, (unsigned char *)x);
    open_fixture(&f, set, numeric, threads);
    for (int32_t t = 0; t < TOKENS; t += FEW) { /* few tokens, and each operation alone */
        const es_op product = product_of(&f, type, t), swiglu = swiglu_of(&f, t);
        run(&f, &product, 1, FEW);
        run(&f, &swiglu, 1, FEW);
    }
    memcpy(wanted_sums, sums, sizeof sums);
    memcpy(wanted, gated, sizeof gated);
    memset(sums, 0, sizeof sums);
    memset(gated, 0, sizeof gated);
    const es_op both[2] = {product_of(&f, type, 0), swiglu_of(&f, 0)};
    run(&f, both, 1, TOKENS);
    assert_memory_equal(sums, wanted_sums, sizeof sums);
    run(&f, both, 2, TOKENS);
    assert_memory_equal(gated, wanted, sizeof gated);
    close_fixture(&f);
}

static void groups_and_joining_change_no_bit(void **state)
{
    (void)state;
    const char *const sets[] = {"reference", NULL};
    for (int s = 0; s < 2; s++)
        for (int threads = 1; threads <= 3; threads += 2) {
            check(sets[s], ES_NUMERIC_BF16, ES_BF16, threads);
            check(sets[s], ES_NUMERIC_INT8, ES_Q8_0, threads);
            check(sets[s], ES_NUMERIC_INT8, ES_Q4_K, threads);
            check(sets[s], ES_NUMERIC_F32, ES_F32, threads);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_and_joining_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
