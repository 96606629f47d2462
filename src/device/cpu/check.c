/* check.c: the rows of the harness. See check.h for what it promises and check_case.h for how a row is written. */
#include "device/cpu/check.h"

#include <string.h>

#include "device/cpu/check_case.h"

static const struct {
    const char *operation;
    es_check_fn check;
    es_dtype first; /* one row for each of `types` weight types from this one on */
    int types;      /* 0: one row, of no type */
} operations[] = {
    {"decode", es_check_decode, ES_F32, ES_DTYPES - 1},
    {"dot", es_check_dot, ES_F32, 0},
    {"rmsnorm", es_check_rmsnorm, ES_F32, 0},
    {"unit_length", es_check_unit_length, ES_F32, 0},
    {"gated_norm", es_check_gated_norm, ES_F32, 0},
    {"swiglu", es_check_swiglu, ES_F32, 0},
    {"axpy", es_check_axpy, ES_F32, 0},
    {"scale_gate", es_check_scale_gate, ES_F32, 0},
    {"conv_silu", es_check_conv_silu, ES_F32, 0},
    {"attn_tile", es_check_attn_tile, ES_F32, 0},
    {"attn_decode", es_check_attn_decode, ES_F32, 0},
    {"attn_tile_f16", es_check_attn_tile_f16, ES_F32, 0},
    {"attn_decode_f16", es_check_attn_decode_f16, ES_F32, 0},
    {"encode_f16", es_check_encode_f16, ES_F32, 0},
    {"attn_merge", es_check_attn_merge, ES_F32, 0},
    {"delta_scan", es_check_delta_scan, ES_F32, 0},
    {"delta_step", es_check_delta_step, ES_F32, 0},
    {"attn_tile_bf16", es_check_attn_tile_bf16, ES_F32, 0},
    {"attn_tile_q8", es_check_attn_tile_q8, ES_F32, 0},
    {"attn_decode_q8", es_check_attn_decode_q8, ES_F32, 0},
    {"product_bf16", es_check_product_bf16, ES_F32, 0},
    {"product_bf16dp", es_check_product_bf16dp, ES_F32, 0},
    {"product_int8", es_check_product_int8, ES_Q8_0, ES_Q6_K - ES_Q8_0 + 1},
    {"one_token", es_check_one_token, ES_Q8_0, ES_Q6_K - ES_Q8_0 + 1},
    {"matvec", es_check_matvec, ES_F32, ES_DTYPES - 1},
    {"matmul", es_check_matmul, ES_F32, ES_DTYPES - 1},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };
_Static_assert(ES_F32 == 0 && ES_I32 == ES_DTYPES - 1, "weight types come first, and I32 is none");

int es_check_count(void)
{
    int count = 0;
    for (int i = 0; i < OPERATIONS; i++) count += operations[i].types ? operations[i].types : 1;
    return count;
}

static bool find_row(int index, int *operation, es_dtype *type)
{
    for (int i = 0; i < OPERATIONS && index >= 0; i++) {
        const int rows = operations[i].types ? operations[i].types : 1;
        if (index < rows) {
            *operation = i;
            *type = (es_dtype)((int)operations[i].first + index);
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
    if (operations[i].types) *type = es_dtype_get_info(weights)->name;
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
