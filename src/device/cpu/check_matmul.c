/* check_matmul.c: the harness's rows for whole products, from stored weights to sums, as a step runs them on a device.
 *
 * What they are compared with knows no device, no pieces and no blocks: a row is decoded whole and multiplied with one token
 * after the other. So these rows prove the path as well as the kernels. */
#include <string.h>

#include "device/cpu/check_case.h"
#include "device/device.h"

enum { MOST_TOKENS = ES_DOT_TOKENS + 3, TIMED_TOKENS = 64 };
enum { COLUMNS = 2048, TIMED_BYTES = 32 << 20, PIECE_ROWS = 64, REFERENCE_ROWS = 64 };

typedef struct product {
    es_weight weights;
    const unsigned char *data;
    const float *x;            /* [tokens][cols] */
    const es_case_output *out; /* [tokens][rows] */
    float *row;                /* [cols], decoded */
    es_device *device;
    es_buffer *x_buffer, *weights_buffer, *out_buffer;
    es_program program;
    es_batch batch;
    es_span span;
    int32_t tokens[MOST_TOKENS];
} product;

static void run_plainly(const es_kernels *kernels, const product *p, float *out)
{
    const es_weight *w = &p->weights;
    const size_t row_bytes = es_dtype_bytes(w->type, w->cols);
    for (int64_t r = 0; r < w->rows; r++) {
        kernels->decode[w->type](p->data + (size_t)r * row_bytes, p->row, w->cols);
        for (int32_t t = 0; t < p->batch.rows; t++) {
            float lanes[ES_DOT_LANES];
            const float *x = p->x + t * w->cols;
            const es_dot_tile tile = {.w = p->row, .x = &x, .rows = 1, .tokens = 1, .columns = (int32_t)w->cols, .first = true,
                                      .lanes = lanes};
            kernels->dot(&tile);
            kernels->fold(lanes, 1, 1, &out[t * w->rows + r]);
        }
    }
}

static void run_product(const es_kernels *kernels, void *arguments, int side)
{
    product *p = arguments;
    p->batch.span = &p->span;
    p->batch.tokens = p->tokens;
    if (side == 1) run_plainly(kernels, p, p->out->side[1]);
    else es_device_submit(p->device, &p->program, &p->batch); /* the device has the kernels under test */
}

static void close_product(product *p)
{
    if (!p->device) return;
    if (p->x_buffer) es_device_release(p->device, p->x_buffer);
    if (p->weights_buffer) es_device_release(p->device, p->weights_buffer);
    if (p->out_buffer) es_device_release(p->device, p->out_buffer);
    es_program_free(&p->program);
    es_device_close(p->device);
}

static es_status open_device(product *p, const char *instruction_set, int threads)
{
    const es_weight *w = &p->weights;
    const int32_t tokens = p->batch.rows;
    const es_device_options options = {.threads = threads, .rows = tokens, .spans = 1, .context = tokens, .columns = w->cols,
                                       .numeric = ES_NUMERIC_F32, .instruction_set = instruction_set};
    ES_TRY(es_device_open_cpu(&options, &p->device));
    ES_TRY(es_device_import(p->device, p->x, (size_t)(tokens * w->cols) * sizeof(float), &p->x_buffer));
    ES_TRY(es_device_import(p->device, p->data, es_dtype_bytes(w->type, w->rows * w->cols), &p->weights_buffer));
    ES_TRY(es_device_import(p->device, p->out->side[0], (size_t)(tokens * w->rows) * sizeof(float), &p->out_buffer));
    es_op_matmul op = {.x = {p->x_buffer, 0}, .x_stride = w->cols, .parts = 1};
    op.part[0] = (es_matmul_part){.weight = *w, .out = {p->out_buffer, 0}, .out_stride = w->rows};
    op.part[0].weight.at = (es_slice){p->weights_buffer, 0};
    es_program_add(&p->program, (es_op){.kind = ES_OP_MATMUL, .as.matmul = op});
    return p->program.failed ? es_fail(ES_NO_MEMORY, "no memory for a program of one operation") : ES_OK;
}

/* On failure the case has its status. */
static void open_product(es_case *c, product *p, es_dtype type, int64_t rows, int64_t columns, int32_t tokens,
                         const unsigned char *data)
{
    *p = (product){.weights = {.type = type, .rows = rows, .cols = columns}, .data = data,
                   .batch = {.rows = tokens, .spans = 1}, .span = {.rows = tokens}};
    p->x = es_case_input(c, tokens * columns, ES_VALUES_PLAIN);
    p->row = es_case_input(c, columns, ES_VALUES_PLAIN);
    p->out = es_case_new_output(c, "out", tokens * rows, NULL);
    if (c->status == ES_OK) c->status = open_device(p, c->candidate->instruction_set, c->threads);
}

static void compare_product(es_case *c, es_dtype type, int32_t rows, int32_t columns, int32_t tokens)
{
    product p;
    open_product(c, &p, type, rows, columns, tokens, es_case_weights(c, type, (int64_t)rows * columns));
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
    product p;
    open_product(c, &p, type, rows, COLUMNS, tokens, repeated_weights(c, type, rows));
    es_case_seconds seconds = {0};
    if (c->status == ES_OK) seconds = es_case_time(side ? &c->reference : c->candidate, run_product, &p, side);
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
