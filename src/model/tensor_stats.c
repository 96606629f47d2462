/* tensor_stats.c: one pass over a tensor: summary, histogram and rows, as one operator of the fold library.
 *
 * An item of the fold is a piece: a row, or 8,192 columns of a long one. Its leaf unpacks the piece where it must, takes its
 * summary, counts it into the histogram and notes the row's size in the piece's own slot of a side array, all while it lies in
 * the first-level cache. A block is as many pieces as make 64 Ki numbers, so that the histogram merges seldom. Rows of bf16 and
 * very short rows are summed a block at a time: moments about the mean once for each row would cost more than the row. */
#include "model/tensor_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/load.h"
#include "fold/summary.h"

#define PIECE 8192 /* a multiple of every storage block */
#define BLOCK 65536
#define SHORT 64 /* columns of a short row */
#define FEW_ROWS 8 /* fewer have no median worth the name */

/* From the first to the last class that there is (class_of()). */
typedef struct classes {
    uint32_t first, last;
} classes;

typedef struct partial {
    es_summary summary;
    classes energy, largest; /* of rows that are one piece */
    uint64_t bin[]; /* [ES_STATS_BINS], with a histogram */
} partial;

typedef struct job {
    const es_stats_input *in;
    const es_summary_kernel *kernel;
    int64_t pieces_per_row;
    es_part_size *size; /* [pieces], or NULL: what each leaves for its row */
    bool histogram;
} job;

/* --- the histogram --- */

bool es_stats_bin(int place, int *bin, double *low, double *high)
{
    const int half = ES_STATS_BINS / 2, infinite = 0x7F8; /* exponent 255 */
    const bool negative = place < half;
    const int size = negative ? half - 1 - place : place - half;
    if (size > infinite) return false;
    const double near = (double)es_float_from_bits((uint32_t)size << 20);
    const double far = size == infinite - 1 ? 0x1p128 : (double)es_float_from_bits((uint32_t)(size + 1) << 20);
    *bin = negative ? half + size : size;
    *low = negative ? -far : near;
    *high = negative ? -near : far;
    if (size == infinite) *low = *high = negative ? -INFINITY : INFINITY;
    return true;
}

/* Two tables in turn: equal numbers in a row would wait for each other's increment. */
typedef uint32_t tally[2][ES_STATS_BINS];

static void count_floats(tally t, const float *x, int64_t count)
{
    int64_t i = 0;
    for (; i + 1 < count; i += 2) {
        t[0][es_float_bits(x[i]) >> 20]++;
        t[1][es_float_bits(x[i + 1]) >> 20]++;
    }
    if (i < count) t[0][es_float_bits(x[i]) >> 20]++;
}

static void count_bf16(tally t, const unsigned char *p, int64_t count)
{
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        uint64_t four;
        memcpy(&four, p + 2 * i, sizeof four);
        t[0][four >> 4 & 0xFFF]++;
        t[1][four >> 20 & 0xFFF]++;
        t[0][four >> 36 & 0xFFF]++;
        t[1][four >> 52]++;
    }
    for (; i < count; i++) {
        uint16_t one;
        memcpy(&one, p + 2 * i, sizeof one);
        t[0][one >> 4]++;
    }
}

/* --- one piece --- */

/* Numbers as they are summed and, for the histogram, as floats. */
typedef struct numbers {
    const void *items;
    const float *floats; /* NULL: bf16 as it lies */
} numbers;

typedef struct room {
    float floats[PIECE];
    double doubles[PIECE];
} room;

static numbers bring(const job *j, const unsigned char *from, int64_t count, room *r)
{
    const es_stats_input *in = j->in;
    if (in->unpack) {
        in->decode(from, r->floats, count);
        return (numbers){r->floats, r->floats};
    }
    numbers n = {from, NULL};
    if (in->convert) {
        in->convert(from, count, r->doubles);
        n.items = r->doubles;
    }
    if (!j->histogram || in->type == ES_ITEM_BF16) return n;
    if (in->type == ES_ITEM_F16 && in->decode) in->decode(from, r->floats, count);
    else for (int64_t i = 0; i < count; i++) r->floats[i] = (float)es_item_load(in->type, n.items, i);
    n.floats = r->floats;
    return n;
}

static es_part_size size_of(const es_summary *s)
{
    if (s->count == 0) return (es_part_size){0, 0};
    const double least = fabs(s->min), greatest = fabs(s->max);
    return (es_part_size){s->m2 + (double)s->count * s->mean * s->mean, least > greatest ? least : greatest};
}

/* A block of whole rows of bf16 as one sum; false when that will not do. */
static bool sum_rows(const job *j, int64_t first, int64_t count, es_summary *sum)
{
    const es_stats_input *in = j->in;
    es_part_size few[FEW_ROWS];
    if (j->pieces_per_row > 1 || (!j->size && count > FEW_ROWS)) return false;
    return es_summary_parts(j->kernel, in->data + (size_t)first * in->row_bytes, count, in->columns, in->row_bytes, sum,
                            j->size ? j->size + first : few);
}

/* A block of rows so short that each alone would cost more than its numbers: summed as if they were one. */
static bool sum_short_rows(const job *j, int64_t first, int64_t count, es_summary *sum)
{
    const es_stats_input *in = j->in;
    if (in->columns > SHORT || in->unpack || in->convert) return false;
    const unsigned char *from = in->data + (size_t)first * in->row_bytes;
    const int64_t items = count * in->columns;
    for (int64_t i = 0; i < items; i += PIECE) {
        es_summary s;
        es_summary_block(j->kernel, from + (size_t)i * es_item_bytes(in->type), items - i < PIECE ? items - i : PIECE, &s);
        es_summary_merge(sum, &s);
    }
    for (int64_t r = 0; j->size && r < count; r++) {
        es_part_size size = {0, 0};
        for (int64_t c = 0; c < in->columns; c++) {
            const double x = es_item_load(in->type, from, r * in->columns + c);
            if (!isfinite(x)) continue;
            size.energy += x * x;
            size.largest = fabs(x) > size.largest ? fabs(x) : size.largest;
        }
        j->size[first + r] = size;
    }
    return true;
}

/* One piece: its summary is merged into *sum, unless that is NULL, and its numbers counted. */
static void do_piece(const job *j, int64_t piece, es_summary *sum, tally t, room *r)
{
    const es_stats_input *in = j->in;
    const int64_t row = piece / j->pieces_per_row, column = piece % j->pieces_per_row * PIECE;
    const int64_t count = in->columns - column < PIECE ? in->columns - column : PIECE;
    const unsigned char *from = in->data + (size_t)row * in->row_bytes + (size_t)(column / in->block * in->block_bytes);
    const numbers n = bring(j, from, count, r);
    if (sum) {
        es_summary s;
        es_summary_block(j->kernel, n.items, count, &s);
        if (j->size) j->size[piece] = size_of(&s);
        es_summary_merge(sum, &s);
    }
    if (!j->histogram) return;
    if (n.floats) count_floats(t, n.floats, count);
    else count_bf16(t, n.items, count);
}

/* --- classes of rows by size --- */

/* The upper bits of a double that is not negative: exponent and seven bits of the fraction. */
static uint32_t class_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint32_t)(bits >> 45) & 0x3FFFF;
}

static double least_of_class(uint32_t class)
{
    const uint64_t bits = (uint64_t)class << 45;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static const classes no_classes = {UINT32_MAX, 0};

static void widen(classes *c, classes by)
{
    c->first = by.first < c->first ? by.first : c->first;
    c->last = by.last > c->last ? by.last : c->last;
}

static void widen_by_rows(classes *energy, classes *largest, const es_part_size *row, int64_t count)
{
    for (int64_t r = 0; r < count; r++) {
        const uint32_t e = class_of(row[r].energy), l = class_of(row[r].largest);
        widen(energy, (classes){e, e}), widen(largest, (classes){l, l});
    }
}

/* --- the operator --- */

static void stats_identity(const void *context, void *out)
{
    const job *j = context;
    partial *p = out;
    p->summary = (es_summary){.min = INFINITY, .max = -INFINITY};
    p->energy = p->largest = no_classes;
    if (j->histogram) memset(p->bin, 0, ES_STATS_BINS * sizeof *p->bin);
}

static void stats_block(const void *context, const void *items, int64_t first, int64_t count, void *out)
{
    (void)items;
    const job *j = context;
    partial *p = out;
    room r;
    tally t;
    stats_identity(context, out);
    if (j->histogram) memset(t, 0, sizeof t);
    const bool summed = sum_short_rows(j, first, count, &p->summary) || sum_rows(j, first, count, &p->summary);
    if (!summed || j->histogram)
        for (int64_t i = first; i < first + count; i++) do_piece(j, i, summed ? NULL : &p->summary, t, &r);
    if (j->size && j->pieces_per_row == 1) widen_by_rows(&p->energy, &p->largest, j->size + first, count);
    if (j->histogram)
        for (int b = 0; b < ES_STATS_BINS; b++) p->bin[b] = (uint64_t)t[0][b] + t[1][b];
}

static void stats_merge(const void *context, void *left, const void *right)
{
    partial *l = left;
    const partial *r = right;
    es_summary_merge(&l->summary, &r->summary);
    widen(&l->energy, r->energy), widen(&l->largest, r->largest);
    if (!((const job *)context)->histogram) return;
    for (int b = 0; b < ES_STATS_BINS; b++) l->bin[b] += r->bin[b];
}

/* --- rows --- */

/* The class of the median, given how many rows are of each. */
static double median_of(const classes *c, const uint32_t *rows, int64_t count)
{
    int64_t before = 0;
    uint32_t at = 0;
    while (at < c->last - c->first && before + rows[at] <= count / 2) before += rows[at++];
    return least_of_class(c->first + at);
}

/* The medians of rows' energies and largest magnitudes to within 1/128, by counting classes: no sorting, and no order to depend
 * on. Rows of a tensor are much alike, so a table of the classes that there are is short. */
static es_status find_medians(const es_part_size *row, int64_t count, classes energy, classes largest, es_part_size *median)
{
    const size_t energies = energy.last - energy.first + 1, magnitudes = largest.last - largest.first + 1;
    uint32_t *of_energy = calloc(energies + magnitudes, sizeof *of_energy);
    if (!of_energy) return es_fail(ES_NO_MEMORY, "no memory for the medians of %" PRId64 " rows", count);
    uint32_t *of_largest = of_energy + energies;
    for (int64_t r = 0; r < count; r++) {
        of_energy[class_of(row[r].energy) - energy.first]++;
        of_largest[class_of(row[r].largest) - largest.first]++;
    }
    *median = (es_part_size){median_of(&energy, of_energy, count), median_of(&largest, of_largest, count)};
    free(of_energy);
    return ES_OK;
}

static void note_outlier(es_tensor_stats *stats, es_outlier_row candidate)
{
    stats->outlier_rows++;
    int at = ES_STATS_OUTLIERS;
    while (at > 0 && candidate.ratio > stats->outlier[at - 1].ratio) at--;
    if (at == ES_STATS_OUTLIERS) return;
    memmove(&stats->outlier[at + 1], &stats->outlier[at], (size_t)(ES_STATS_OUTLIERS - 1 - at) * sizeof candidate);
    stats->outlier[at] = candidate;
}

/* Pieces become rows, in place. */
static void join_pieces(es_part_size *size, int64_t rows, int64_t pieces_per_row)
{
    for (int64_t r = 0; r < rows; r++) {
        es_part_size sum = {0, 0};
        for (int64_t p = r * pieces_per_row; p < (r + 1) * pieces_per_row; p++) {
            sum.energy += size[p].energy;
            sum.largest = size[p].largest > sum.largest ? size[p].largest : sum.largest;
        }
        size[r] = sum;
    }
}

/* Rows are compared with their median. Nearly all are ordinary, and take neither a root nor a division. */
static void find_outliers(const es_part_size *row, int64_t rows, double columns, double median_energy, es_tensor_stats *stats)
{
    const double ordinary = 0.99 * ES_STATS_OUTLIER_RMS * ES_STATS_OUTLIER_RMS * median_energy;
    const double ordinary_largest = 0.99 * ES_STATS_OUTLIER_LARGEST * stats->median_largest;
    for (int64_t r = 0; r < rows; r++) {
        if (row[r].energy < ordinary && row[r].largest < ordinary_largest) continue;
        const double rms = sqrt(row[r].energy / columns);
        const double by_rms = stats->median_rms > 0 ? rms / stats->median_rms : 0;
        const double by_largest = stats->median_largest > 0 ? row[r].largest / stats->median_largest : 0;
        if (by_rms < ES_STATS_OUTLIER_RMS && by_largest < ES_STATS_OUTLIER_LARGEST) continue;
        note_outlier(stats, (es_outlier_row){r, rms, row[r].largest, by_rms > by_largest ? by_rms : by_largest});
    }
}

static es_status look_at_rows(const job *j, classes energy, classes largest, es_tensor_stats *stats)
{
    const es_part_size *row = j->size;
    const int64_t rows = j->in->rows;
    const double columns = (double)j->in->columns;
    if (j->pieces_per_row > 1) {
        join_pieces(j->size, rows, j->pieces_per_row);
        widen_by_rows(&energy, &largest, row, rows);
    }
    int64_t last = rows;
    while (last > 0 && row[last - 1].largest == 0) last--;
    if (last > 0) stats->zero_rows_at_end = rows - last;
    es_part_size median;
    ES_TRY(find_medians(row, rows, energy, largest, &median));
    stats->median_rms = sqrt(median.energy / columns), stats->median_largest = median.largest;
    const double ordinary = ES_STATS_OUTLIER_RMS * ES_STATS_OUTLIER_RMS * median.energy;
    const bool alike = least_of_class(energy.last + 1) < 0.99 * ordinary &&
                       least_of_class(largest.last + 1) < 0.99 * ES_STATS_OUTLIER_LARGEST * median.largest;
    if (!alike) find_outliers(row, rows, columns, median.energy, stats);
    return ES_OK;
}

static es_status compute(es_team *team, job *j, es_tensor_stats *stats)
{
    const es_stats_input *in = j->in;
    const int64_t pieces = in->rows * j->pieces_per_row, each = in->columns < PIECE ? in->columns : PIECE;
    const size_t bytes = sizeof(partial) + (j->histogram ? ES_STATS_BINS * sizeof(uint64_t) : 0);
    const es_operator op = {.name = "tensor statistics", .partial = bytes, .answer = bytes,
                            .block = each > 0 && each < BLOCK ? BLOCK / each : 1, .context = j, .identity = stats_identity,
                            .merge = stats_merge, .fold_block = stats_block};
    const es_source source = es_source_counting(pieces);
    partial *answer = malloc(bytes);
    if (!answer) return es_fail(ES_NO_MEMORY, "no memory for a histogram");
    es_status status = es_fold(team, &op, &source, NULL, answer);
    if (status == ES_OK) {
        stats->summary = answer->summary;
        if (j->histogram) memcpy(stats->histogram, answer->bin, ES_STATS_BINS * sizeof(uint64_t));
        if (j->size) status = look_at_rows(j, answer->energy, answer->largest, stats);
    }
    free(answer);
    return status;
}

/* --- on a GPU --- */

struct es_stats_gpu {
    const es_cuda_api *api;
    es_cuda_stats *stats;
};

es_status es_stats_gpu_open(es_stats_gpu **out)
{
    const es_cuda_api *api;
    ES_TRY(es_cuda_load(&api));
    es_stats_gpu *gpu = malloc(sizeof *gpu);
    if (!gpu) return es_fail(ES_NO_MEMORY, "no memory for the GPU's record");
    gpu->api = api;
    const es_status status = api->stats_open(&gpu->stats);
    if (status != ES_OK) free(gpu);
    else *out = gpu;
    return status;
}

void es_stats_gpu_close(es_stats_gpu *gpu)
{
    if (gpu) gpu->api->stats_close(gpu->stats);
    free(gpu);
}

static bool is_for_gpu(const es_stats_input *in, const es_stats_options *options)
{
    return options->gpu && in->stored < ES_DTYPES && in->stored != ES_I32;
}

static es_status compute_on_gpu(const es_stats_options *options, job *j, es_tensor_stats *stats)
{
    const es_stats_input *in = j->in;
    const es_cuda_stats_job call = {.data = in->data, .type = in->stored, .rows = in->rows, .columns = in->columns,
                                    .piece = PIECE, .blocks = options->blocks, .summary = &stats->summary,
                                    .bin = stats->histogram, .size = (es_cuda_piece *)(void *)j->size};
    _Static_assert(sizeof(es_cuda_piece) == sizeof(es_part_size), "a piece is what the fold library calls a part");
    ES_TRY(options->gpu->api->stats_run(options->gpu->stats, &call));
    if (!j->size) return ES_OK;
    classes energy = no_classes, largest = no_classes;
    if (j->pieces_per_row == 1) widen_by_rows(&energy, &largest, j->size, in->rows);
    return look_at_rows(j, energy, largest, stats);
}

es_status es_tensor_stats_compute(es_team *team, const es_stats_input *input, const es_stats_options *options,
                                  es_tensor_stats *stats)
{
    *stats = (es_tensor_stats){.rows = input->rows, .columns = input->columns};
    job j = {.in = input, .kernel = es_summary_kernel_best(input->type), .histogram = options->histogram,
             .pieces_per_row = input->columns ? (input->columns - 1) / PIECE + 1 : 0};
    const int64_t pieces = input->rows * j.pieces_per_row;
    if (j.histogram) stats->histogram = calloc(ES_STATS_BINS, sizeof *stats->histogram);
    if (input->rows >= FEW_ROWS && pieces > 0) j.size = malloc((size_t)pieces * sizeof *j.size);
    es_status status = ES_OK;
    if ((j.histogram && !stats->histogram) || (input->rows >= FEW_ROWS && pieces > 0 && !j.size))
        status = es_fail(ES_NO_MEMORY, "no memory for the figures of %" PRId64 " rows", input->rows);
    if (status == ES_OK)
        status = is_for_gpu(input, options) ? compute_on_gpu(options, &j, stats) : compute(team, &j, stats);
    free(j.size);
    if (status != ES_OK) es_tensor_stats_free(stats);
    return status;
}

void es_tensor_stats_free(es_tensor_stats *stats)
{
    free(stats->histogram);
    *stats = (es_tensor_stats){0};
}

/* --- inputs --- */

es_stats_input es_stats_of_tensor(const es_tensor *tensor, const es_kernels *kernels)
{
    const es_dtype_info *info = es_dtype_get_info(tensor->type);
    es_stats_input in = {.data = tensor->data, .rows = 1, .columns = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1,
                         .block = info->block, .block_bytes = info->block_bytes, .stored = tensor->type,
                         .decode = kernels->decode[tensor->type]};
    for (int i = 0; i + 1 < tensor->rank; i++) in.rows *= tensor->shape[i];
    in.row_bytes = (size_t)(in.columns / info->block) * (size_t)info->block_bytes;
    switch (tensor->type) {
    case ES_F32: in.type = ES_ITEM_F32; break;
    case ES_F16: in.type = ES_ITEM_F16; break;
    case ES_BF16: in.type = ES_ITEM_BF16; break;
    case ES_I32: in.type = ES_ITEM_I32; break;
    default: in.type = ES_ITEM_F32, in.unpack = true;
    }
    return in;
}

#define CONVERT(name, type)                                                        \
    static void name(const unsigned char *from, int64_t count, double *out)        \
    {                                                                              \
        for (int64_t i = 0; i < count; i++) {                                      \
            type x;                                                                \
            memcpy(&x, from + (size_t)i * sizeof x, sizeof x);                     \
            out[i] = (double)x;                                                    \
        }                                                                          \
    }
CONVERT(from_i8, int8_t)
CONVERT(from_i16, int16_t)
CONVERT(from_i32, int32_t)
CONVERT(from_i64, int64_t)
CONVERT(from_u8, uint8_t)
CONVERT(from_u16, uint16_t)
CONVERT(from_u32, uint32_t)
CONVERT(from_u64, uint64_t)

es_stats_input es_stats_of_npy(const es_npy *npy, const es_kernels *kernels)
{
    es_stats_input in = {.data = npy->data, .rows = 1, .columns = 1, .block = 1, .block_bytes = npy->bytes,
                         .stored = ES_DTYPES, .type = ES_ITEM_F64};
    if (npy->rank > 0) in.columns = npy->shape[npy->fortran ? 0 : npy->rank - 1];
    in.rows = in.columns > 0 ? npy->items / in.columns : 0;
    in.row_bytes = (size_t)in.columns * (size_t)npy->bytes;
    const int size = npy->bytes == 1 ? 0 : npy->bytes == 2 ? 1 : npy->bytes == 4 ? 2 : 3;
    static void (*const is[])(const unsigned char *, int64_t, double *) = {from_i8, from_i16, from_i32, from_i64};
    static void (*const us[])(const unsigned char *, int64_t, double *) = {from_u8, from_u16, from_u32, from_u64};
    if (npy->kind == 'i') in.convert = is[size];
    else if (npy->kind != 'f') in.convert = us[size];
    else if (npy->bytes == 2) in.type = ES_ITEM_F16, in.stored = ES_F16, in.decode = kernels->decode[ES_F16];
    else if (npy->bytes == 4) in.type = ES_ITEM_F32, in.stored = ES_F32;
    return in;
}
