/* check_matmul.c: the harness's rows for whole products, from stored weights to sums, as a step runs them on a device. */
#include <string.h>

#include "device/cpu/check_case.h"
#include "device/device.h"

enum { MOST_TOKENS = ES_DOT_TOKENS + 3, TIMED_TOKENS = 64, COLUMNS = 2048, TIMED_BYTES = 32 << 20, PIECE_ROWS = 64, REFERENCE_ROWS = 64 };

typedef struct product {
    es_device *device[2];
    es_buffer *x[2], *weights[2], *out[2];
    es_program program[2];
    es_batch batch;
    es_span span;
    int32_t tokens[MOST_TOKENS];
} product;

static void run_product(const es_kernels *kernels, void *arguments, int side)
{
    (void)kernels; /* the device of that side has them */
    product *p = arguments;
    p->batch.span = &p->span;
    p->batch.tokens = p->tokens;
    es_device_submit(p->device[side], &p->program[side], &p->batch);
}

static void close_product(product *p)
{
    for (int side = 0; side < 2; side++) {
        if (!p->device[side]) continue;
        if (p->x[side]) es_device_release(p->device[side], p->x[side]);
        if (p->weights[side]) es_device_release(p->device[side], p->weights[side]);
        if (p->out[side]) es_device_release(p->device[side], p->out[side]);
        es_program_free(&p->program[side]);
        es_device_close(p->device[side]);
    }
}

static es_status open_side(product *p, int side, const char *instruction_set, int threads, const es_weight *weights,
                           const unsigned char *data, const float *x, const es_case_output *out)
{
    const int32_t tokens = p->batch.rows;
    const es_device_options options = {.threads = threads, .rows = tokens, .spans = 1, .context = tokens,
                                       .columns = weights->cols, .numeric = ES_NUMERIC_F32,
                                       .instruction_set = instruction_set};
    ES_TRY(es_device_open_cpu(&options, &p->device[side]));
    es_device *device = p->device[side];
    ES_TRY(es_device_import(device, x, (size_t)(tokens * weights->cols) * sizeof *x, &p->x[side]));
    ES_TRY(es_device_import(device, data, es_dtype_bytes(weights->type, weights->rows * weights->cols), &p->weights[side]));
    ES_TRY(es_device_import(device, out->side[side], (size_t)(tokens * weights->rows) * sizeof *x, &p->out[side]));
    es_op_matmul op = {.x = {p->x[side], 0}, .x_stride = weights->cols, .parts = 1};
    op.part[0] = (es_matmul_part){.weight = *weights, .out = {p->out[side], 0}, .out_stride = weights->rows};
    op.part[0].weight.at = (es_slice){p->weights[side], 0};
    es_program_add(&p->program[side], (es_op){.kind = ES_OP_MATMUL, .as.matmul = op});
    return p->program[side].failed ? es_fail(ES_NO_MEMORY, "no memory for a program of one operation") : ES_OK;
}

/* Opens one device for each side that is named. On failure the case has its status. */
static void open_product(es_case *c, product *p, const es_weight *weights, int32_t tokens, const unsigned char *data,
                         const char *const instruction_sets[2])
{
    *p = (product){.batch = {.rows = tokens, .spans = 1}, .span = {.rows = tokens}};
    const float *x = es_case_input(c, tokens * weights->cols, ES_VALUES_PLAIN);
    const es_case_output *out = es_case_new_output(c, "out", tokens * weights->rows, NULL);
    for (int side = 0; side < 2 && c->status == ES_OK; side++)
        if (instruction_sets[side])
            c->status = open_side(p, side, instruction_sets[side], c->threads, weights, data, x, out);
}

static void compare_product(es_case *c, es_dtype type, int32_t rows, int32_t columns, int32_t tokens)
{
    const es_weight weights = {.type = type, .rows = rows, .cols = columns};
    const char *const sets[2] = {c->candidate->instruction_set, c->reference.instruction_set};
    product p;
    open_product(c, &p, &weights, tokens, es_case_weights(c, type, (int64_t)rows * columns), sets);
    es_case_run(c, run_product, &p, "%d by %d, %d tokens", rows, columns, tokens);
    close_product(&p);
}

/* Rows of weights that repeat: as many as asked, quickly made. */
static unsigned char *repeated_weights(es_case *c, es_dtype type, int64_t rows)
{
    const int64_t row_bytes = (int64_t)es_dtype_bytes(type, COLUMNS);
    const unsigned char *piece = es_case_weights(c, type, (int64_t)PIECE_ROWS * COLUMNS);
    unsigned char *data = es_case_alloc(c, rows * row_bytes);
    for (int64_t r = 0; data && r < rows; r++)
        memcpy(data + r * row_bytes, piece + r % PIECE_ROWS * row_bytes, (size_t)row_bytes);
    return data;
}

/* One side alone: the reference is timed on few rows. */
static es_case_seconds time_side(es_case *c, es_dtype type, int64_t rows, int32_t tokens, int side)
{
    const es_weight weights = {.type = type, .rows = rows, .cols = COLUMNS};
    const char *const sets[2] = {side == 0 ? c->candidate->instruction_set : NULL,
                                 side == 1 ? c->reference.instruction_set : NULL};
    product p;
    open_product(c, &p, &weights, tokens, repeated_weights(c, type, rows), sets);
    es_case_seconds seconds = {0};
    if (c->status == ES_OK) seconds = es_case_time(c->candidate, run_product, &p, side);
    close_product(&p);
    es_case_end(c);
    return seconds;
}

static void time_product(es_case *c, es_dtype type, int64_t rows, int32_t tokens, const char *shape)
{
    if (!c->timed) return;
    es_check_row *row = c->row;
    row->shape = shape;
    row->bytes = (double)es_dtype_bytes(type, rows * COLUMNS);
    row->flops = 2.0 * (double)rows * COLUMNS * tokens;
    const es_case_seconds seconds = time_side(c, type, rows, tokens, 0);
    row->seconds = seconds.median;
    row->best_seconds = seconds.best;
    row->reference_seconds = time_side(c, type, REFERENCE_ROWS, tokens, 1).median * (double)rows / REFERENCE_ROWS;
}

/* One token: reading the weights is what it costs. */
void es_check_matvec(es_case *c, es_dtype type)
{
    const int32_t block = es_dtype_get_info(type)->block;
    compare_product(c, type, 37, block == 1 ? 777 : 3 * block, 1);
    compare_product(c, type, 16, 2 * 256, 1);
    const int64_t rows = TIMED_BYTES / (int64_t)es_dtype_bytes(type, COLUMNS) / ES_DOT_ROWS * ES_DOT_ROWS;
    time_product(c, type, rows, 1, "1 token, 2048 columns, 32 MiB");
}

void es_check_matmul(es_case *c, es_dtype type)
{
    const int32_t block = es_dtype_get_info(type)->block;
    for (int32_t tokens = 2; tokens <= 13; tokens++) compare_product(c, type, 37, block == 1 ? 333 : 5 * block, tokens);
    compare_product(c, type, 21, 1024, TIMED_TOKENS);
    compare_product(c, type, 17, 768, MOST_TOKENS); /* more than one piece of tokens */
    time_product(c, type, 1024, TIMED_TOKENS, "64 tokens, 1024 by 2048");
}
