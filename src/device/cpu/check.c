/* check.c: the rows of the harness. See check.h for what it promises and check_case.h for how a row is written. */
#include "device/cpu/check.h"

#include <string.h>

#include "device/cpu/check_case.h"

static const struct {
    const char *operation;
    es_check_fn check;
    bool typed; /* one row for each weight type */
} operations[] = {
    {"decode", es_check_decode, true},
    {"dot", es_check_dot, false},
    {"rmsnorm", es_check_rmsnorm, false},
    {"unit_length", es_check_unit_length, false},
    {"gated_norm", es_check_gated_norm, false},
    {"swiglu", es_check_swiglu, false},
    {"axpy", es_check_axpy, false},
    {"scale_gate", es_check_scale_gate, false},
    {"conv_silu", es_check_conv_silu, false},
    {"attn_tile", es_check_attn_tile, false},
    {"attn_decode", es_check_attn_decode, false},
    {"attn_merge", es_check_attn_merge, false},
    {"delta_scan", es_check_delta_scan, false},
    {"delta_step", es_check_delta_step, false},
    {"matvec", es_check_matvec, true},
    {"matmul", es_check_matmul, true},
};
enum { OPERATIONS = sizeof operations / sizeof *operations, TYPES = ES_DTYPES - 1 }; /* I32 is no weight */
_Static_assert((int)ES_I32 == (int)TYPES, "weight types come first");

int es_check_count(void)
{
    int count = 0;
    for (int i = 0; i < OPERATIONS; i++) count += operations[i].typed ? TYPES : 1;
    return count;
}

static bool find_row(int index, int *operation, es_dtype *type)
{
    for (int i = 0; i < OPERATIONS && index >= 0; i++) {
        const int rows = operations[i].typed ? TYPES : 1;
        if (index < rows) {
            *operation = i;
            *type = (es_dtype)index;
            return true;
        }
        index -= rows;
    }
    return false;
}

void es_check_name(int index, const char **operation, const char **type)
{
    int i;
    es_dtype weights;
    *operation = *type = NULL;
    if (!find_row(index, &i, &weights)) return;
    *operation = operations[i].operation;
    if (operations[i].typed) *type = es_dtype_get_info(weights)->name;
}

es_status es_check_run(const es_kernels *candidate, int index, const es_check_options *options, es_check_row *row)
{
    int i;
    es_dtype type;
    if (!find_row(index, &i, &type)) return es_fail(ES_INVALID, "kernel check %d: there are %d", index, es_check_count());
    *row = (es_check_row){.numeric = ES_NUMERIC_F32, .instruction_set = candidate->instruction_set, .equal = true};
    es_check_name(index, &row->operation, &row->type);
    es_case c = {.candidate = candidate, .row = row, .timed = options->timed,
                 .threads = options->threads ? options->threads : 1, .draw = (uint32_t)index << 20};
    es_kernels_reference(&c.reference);
    row->reference = c.reference.instruction_set;
    const unsigned saved = es_float_mode_enter();
    operations[i].check(&c, type);
    es_float_mode_leave(saved);
    es_case_end(&c);
    return c.status;
}

es_status es_kernels_check(const es_kernels *candidate, const es_check_options *options, es_check_row_fn on_row, void *user)
{
    for (int i = 0; i < es_check_count(); i++) {
        es_check_row row;
        ES_TRY(es_check_run(candidate, i, options, &row));
        on_row(&row, user);
    }
    return ES_OK;
}
