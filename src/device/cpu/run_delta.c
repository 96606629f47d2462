/* run_delta.c: Gated DeltaNet on the CPU: convolution, gates, the recurrence over the state, and the gated norm.
 *
 * All of it is shared out by heads (and by columns of a head's state), each worker taking a head through all rows of a span:
 * the state of 64 columns stays in the first-level cache while the tokens pass. */
#include "device/cpu/cpu.h"
#include "device/cpu/math.h"

static int64_t channels_of(const es_delta_shape *s)
{
    return 2 * (int64_t)s->key_heads * s->key_dim + (int64_t)s->value_heads * s->value_dim;
}

/* The input of channel group `c` at row `row` of the span: earlier rows come from the state, or count as zero. */
static const float *conv_input(const es_op_delta_prepare *op, const es_span *span, int32_t row, int64_t c,
                               const float *zeros)
{
    const int64_t channels = channels_of(&op->shape);
    if (row >= 0) return es_cpu_floats(op->x) + (span->first_row + row) * channels + c;
    if (span->start == 0) return zeros;
    const int taps = ES_CONV_TAPS - 1;
    return es_cpu_floats(op->conv_state) + ((int64_t)span->slot * taps + taps + row) * channels + c;
}

enum { FETCH_ROWS = 6 };

/* n numbers to be read, and n to be written. */
static void fetch_row(const float *in, const float *out, int32_t n)
{
    for (int32_t i = 0; i < n; i += 16) {
        __builtin_prefetch(in + i);
        __builtin_prefetch(out + i, 1);
    }
}

/* One head's channels [c, c + n) over a span: convolve, unit length for q and k, then keep the last three inputs. */
static void convolve_head(es_cpu *cpu, const es_op_delta_prepare *op, const es_span *span, int64_t c, int32_t n, bool unit,
                          float scale)
{
    static const float zeros[ES_DELTA_MOST_HEAD_DIM];
    const int64_t channels = channels_of(&op->shape);
    const float *w = es_cpu_floats(op->conv) + c;
    for (int32_t t = 0; t < span->rows; t++) {
        float *out = es_cpu_floats(op->out) + (span->first_row + t) * channels + c;
        /* Rows lie kilobytes apart: no prefetcher of the machine foresees the next page. */
        if (t + FETCH_ROWS < span->rows) fetch_row(conv_input(op, span, t + FETCH_ROWS, c, zeros), out + FETCH_ROWS * channels, n);
        cpu->kernels.conv_silu(conv_input(op, span, t - 3, c, zeros), conv_input(op, span, t - 2, c, zeros),
                               conv_input(op, span, t - 1, c, zeros), conv_input(op, span, t, c, zeros), w,
                               channels, out, n);
        if (unit) cpu->kernels.unit_length(out, out, n, 1e-6f, scale);
    }
    /* Oldest first: a state row that is still needed moves down before it is overwritten. */
    const int taps = ES_CONV_TAPS - 1;
    for (int i = 0; i < taps; i++) {
        float *keep = es_cpu_floats(op->conv_state) + ((int64_t)span->slot * taps + i) * channels + c;
        memmove(keep, conv_input(op, span, span->rows - taps + i, c, zeros), (size_t)n * sizeof *keep);
    }
}

/* decay = e^g with g = −exp(A_log) · softplus(a + dt_bias); β = σ(b). */
static void gates_of_row(const es_op_delta_prepare *op, int64_t row)
{
    const int32_t heads = op->shape.value_heads;
    const float *a = es_cpu_floats(op->a) + row * heads, *b = es_cpu_floats(op->b) + row * heads;
    const float *gain = es_cpu_floats(op->a_gain), *bias = es_cpu_floats(op->dt_bias);
    float *gates = es_cpu_floats(op->gates) + row * heads * 2;
    for (int32_t h = 0; h < heads; h++) {
        gates[2 * h] = es_exp(gain[h] * es_softplus(a[h] + bias[h]));
        gates[2 * h + 1] = es_sigmoid(b[h]);
    }
}

/* Channels of head h of a span: of the queries, the keys, or the values. */
static void prepare_unit(es_cpu *cpu, const es_op_delta_prepare *op, const es_span *span, int64_t h)
{
    const es_delta_shape *s = &op->shape;
    const int64_t values = 2 * (int64_t)s->key_heads * s->key_dim;
    if (h < 2 * s->key_heads)
        convolve_head(cpu, op, span, h * s->key_dim, s->key_dim, true, h < s->key_heads ? 1.0f / sqrtf((float)s->key_dim) : 1.0f);
    else
        convolve_head(cpu, op, span, values + (h - 2 * s->key_heads) * s->value_dim, s->value_dim, false, 1.0f);
}

void es_cpu_delta_prepare(es_cpu *cpu, const es_op_delta_prepare *op, int worker)
{
    const es_batch *batch = cpu->batch;
    const int64_t heads = 2 * (int64_t)op->shape.key_heads + op->shape.value_heads;
    const es_range rows = es_cpu_share(cpu, batch->rows, worker);
    for (int64_t row = rows.begin; row < rows.end; row++) gates_of_row(op, row);
    es_take take = es_pool_take(cpu->pool, batch->spans * heads, ES_TAKE_PIECES, worker);
    for (es_range one; es_take_next(&take, &one);)
        for (int64_t unit = one.begin; unit < one.end; unit++) prepare_unit(cpu, op, &batch->span[unit / heads], unit % heads);
}

/* Rows of a sequence for which the state passes through the first-level cache once. */
static bool few_rows(const es_cpu *cpu)
{
    return cpu->batch->rows < 4 * cpu->batch->spans;
}

/* Units of the scan are columns of one head's state, over all rows of a span: 64, or half as many where that leaves too few units for
 * the workers to come out even; a column costs a little more then. */
static int32_t columns_of(const es_cpu *cpu, const es_delta_shape *s)
{
    const int64_t units = (int64_t)cpu->batch->spans * s->value_heads * ((s->value_dim + ES_DELTA_COLUMNS - 1) / ES_DELTA_COLUMNS);
    return few_rows(cpu) || units >= 8 * es_pool_workers(cpu->pool) ? ES_DELTA_COLUMNS : ES_DELTA_COLUMNS / 2;
}

static int64_t tiles_of(const es_cpu *cpu, const es_delta_shape *s)
{
    const int32_t columns = columns_of(cpu, s);
    return (s->value_dim + columns - 1) / columns;
}

typedef struct scan_place {
    const es_span *span;
    int32_t head, column;
} scan_place;

static scan_place place_of(const es_cpu *cpu, const es_delta_shape *s, int64_t unit)
{
    const int64_t tiles = tiles_of(cpu, s);
    return (scan_place){&cpu->batch->span[unit / (s->value_heads * tiles)], (int32_t)(unit / tiles % s->value_heads),
                        (int32_t)(unit % tiles) * columns_of(cpu, s)};
}

static float *state_of(const es_op_delta_scan *op, scan_place at)
{
    const es_delta_shape *s = &op->shape;
    return es_cpu_floats(op->state) + ((int64_t)at.span->slot * s->value_heads + at.head) * s->key_dim * s->value_dim + at.column;
}

/* `next`: the state of the tile that comes after, or NULL. */
static void scan_tile(es_cpu *cpu, const es_op_delta_scan *op, scan_place at, const float *next)
{
    const es_delta_shape *s = &op->shape;
    const es_span *span = at.span;
    const int32_t head = at.head, column = at.column, columns = columns_of(cpu, s);
    const int64_t channels = channels_of(s), row = span->first_row;
    const int32_t key_head = s->tiled ? head % s->key_heads : head / (s->value_heads / s->key_heads);
    const float *x = es_cpu_floats(op->x) + row * channels;
    const es_delta_tile tile = {
        .state = state_of(op, at),
        .state_stride = s->value_dim,
        .next = next,
        .fresh = span->start == 0,
        .key_dim = s->key_dim,
        .columns = s->value_dim - column < columns ? s->value_dim - column : columns,
        .rows = span->rows,
        .q = x + (int64_t)key_head * s->key_dim,
        .k = x + ((int64_t)s->key_heads + key_head) * s->key_dim,
        .v = x + 2 * (int64_t)s->key_heads * s->key_dim + (int64_t)head * s->value_dim + column,
        .x_stride = channels,
        .gates = es_cpu_floats(op->gates) + (row * s->value_heads + head) * 2,
        .gate_stride = 2 * (int64_t)s->value_heads,
        .out = es_cpu_floats(op->out) + (row * s->value_heads + head) * s->value_dim + column,
        .out_stride = (int64_t)s->value_heads * s->value_dim,
    };
    /* Columns that are no whole vectors are the reference's. */
    (s->value_dim % ES_LANES ? &cpu->reference : &cpu->kernels)->delta_scan(&tile);
}

/* Unit r · value_heads + h of the gated norm: head h of row r. */
static void finish_unit(es_cpu *cpu, const es_op_delta_finish *op, int64_t unit)
{
    const int32_t n = op->shape.value_dim;
    const int64_t at = unit * n;
    cpu->kernels.gated_norm(es_cpu_floats(op->x) + at, es_cpu_floats(op->weight), es_cpu_floats(op->z) + at,
                            es_cpu_floats(op->out) + at, n, op->eps);
}

/* Whole heads leave at most one worker in eight idle at the end, or come out even while they take a moment. */
bool es_cpu_delta_joins(const es_cpu *cpu, const es_delta_shape *shape)
{
    const int64_t heads = (int64_t)cpu->batch->spans * shape->value_heads, workers = es_pool_workers(cpu->pool);
    return heads >= 4 * workers || (few_rows(cpu) && heads % workers == 0);
}

/* A tile of one head of one span; behind a head's last tile, its norms. */
static void scan_unit(es_cpu *cpu, const es_op_delta_scan *op, const es_op_delta_finish *finish, int64_t unit)
{
    const es_delta_shape *s = &op->shape;
    const int64_t tiles = tiles_of(cpu, s), units = cpu->batch->spans * s->value_heads * tiles;
    const scan_place at = place_of(cpu, s, unit);
    scan_tile(cpu, op, at, unit + 1 < units ? state_of(op, place_of(cpu, s, unit + 1)) : NULL);
    for (int32_t r = 0; finish && (unit + 1) % tiles == 0 && r < at.span->rows; r++) {
        const int64_t row = at.span->first_row + r, ahead = ((row + FETCH_ROWS) * s->value_heads + at.head) * s->value_dim;
        if (r + FETCH_ROWS < at.span->rows)
            fetch_row(es_cpu_floats(finish->z) + ahead, es_cpu_floats(finish->out) + ahead, s->value_dim);
        finish_unit(cpu, finish, row * s->value_heads + at.head);
    }
}

void es_cpu_delta_scan(es_cpu *cpu, const es_op_delta_scan *op, const es_op_delta_finish *finish, int worker)
{
    const es_delta_shape *s = &op->shape;
    const es_batch *batch = cpu->batch;
    const int64_t tiles = tiles_of(cpu, s), together = finish ? tiles : 1;
    const int64_t units = batch->spans * s->value_heads * tiles / together;
    es_take take = es_pool_take(cpu->pool, units, ES_TAKE_SINGLY, worker);
    for (es_range piece; es_take_next(&take, &piece);)
        for (int64_t unit = piece.begin * together; unit < piece.end * together; unit++) scan_unit(cpu, op, finish, unit);
}

void es_cpu_delta_finish(es_cpu *cpu, const es_op_delta_finish *op, int worker)
{
    es_take take = es_pool_take(cpu->pool, (int64_t)cpu->batch->rows * op->shape.value_heads, ES_TAKE_PIECES, worker);
    for (es_range some; es_take_next(&take, &some);)
        for (int64_t unit = some.begin; unit < some.end; unit++) finish_unit(cpu, op, unit);
}
