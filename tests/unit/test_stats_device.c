/* Statistics on a GPU give what the CPU gives: counts, extremes and histograms exactly, moments to the CPU's own tolerance; and
 * the same bits from any grid. Without a GPU a sentence says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/random_blocks.h"
#include "evenshare/team.h"
#include "model/tensor_stats.h"

static es_stats_gpu *gpu;

static int open_gpu(void **state)
{
    (void)state;
    if (es_stats_gpu_open(&gpu) != ES_OK) {
        gpu = NULL;
        if (!es_error_message() || !*es_error_message()) return -1; /* a refusal says why */
    }
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    es_stats_gpu_close(gpu);
    return 0;
}

static void expect_near(double got, double wanted, double scale)
{
    if (!(fabs(got - wanted) <= scale)) fail_msg("%.17g instead of %.17g (within %g)", got, wanted, scale);
}

static void expect_alike(const es_tensor_stats *got, const es_tensor_stats *wanted)
{
    const es_summary *g = &got->summary, *w = &wanted->summary;
    assert_int_equal(g->count, w->count);
    assert_int_equal(g->zeros, w->zeros);
    assert_int_equal(g->nans, w->nans);
    assert_int_equal(g->plus_infs, w->plus_infs);
    assert_int_equal(g->minus_infs, w->minus_infs);
    assert_true(g->min == w->min && g->max == w->max);
    const double deviation = es_summary_deviation(w), size = fabs(w->mean) + deviation;
    expect_near(g->mean, w->mean, 1e-6 * size);
    expect_near(es_summary_deviation(g), deviation, 1e-6 * deviation);
    expect_near(es_summary_skewness(g), es_summary_skewness(w), 1e-5);
    expect_near(es_summary_kurtosis(g), es_summary_kurtosis(w), 1e-5 * (es_summary_kurtosis(w) + 3));
    for (int place = 0; place < ES_STATS_BINS; place++) { /* NaN counts once, whatever its bits */
        int bin;
        double low, high;
        if (es_stats_bin(place, &bin, &low, &high)) assert_int_equal(got->histogram[bin], wanted->histogram[bin]);
    }
    expect_near(got->median_rms, wanted->median_rms, 0.01 * wanted->median_rms);
    assert_true(got->median_largest == wanted->median_largest);
    assert_int_equal(got->zero_rows_at_end, wanted->zero_rows_at_end);
    assert_int_equal(got->outlier_rows, wanted->outlier_rows);
}

static es_tensor_stats compute(const es_stats_input *in, es_stats_gpu *on, int32_t blocks)
{
    es_tensor_stats stats;
    const es_status status =
        es_tensor_stats_compute(NULL, in, &(es_stats_options){.histogram = true, .gpu = on, .blocks = blocks}, &stats);
    if (status != ES_OK) fail_msg("%s", es_error_message());
    return stats;
}

static void compare(const es_stats_input *in)
{
    es_tensor_stats wanted = compute(in, NULL, 0), got = compute(in, gpu, 0);
    expect_alike(&got, &wanted);
    static const int32_t grids[] = {1, 7, 133, 1000};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        es_tensor_stats again = compute(in, gpu, grids[i]);
        assert_memory_equal(&again.summary, &got.summary, sizeof got.summary);
        es_tensor_stats_free(&again);
    }
    es_tensor_stats_free(&wanted);
    es_tensor_stats_free(&got);
}

/* Plain numbers, with what is not finite, and a last row of zeros. */
static void put_plain(es_dtype type, unsigned char *data, int64_t rows, int64_t columns, uint64_t seed)
{
    es_bits bits = {seed};
    es_random_blocks(&bits, type, rows * columns, 0.02f, data);
    const size_t size = es_dtype_bytes(type, 1);
    const uint32_t odd[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0x80000000, 0x00012345};
    for (size_t i = 0; i < sizeof odd / sizeof *odd && (int64_t)i < columns && rows > 1; i++) {
        const uint16_t upper = (uint16_t)(odd[i] >> 16), half[] = {0x7C00, 0xFC00, 0x7E00, 0x8000, 0x0123};
        if (type == ES_F32) memcpy(data + i * size, &odd[i], size);
        else memcpy(data + i * size, type == ES_BF16 ? &upper : &half[i], size);
    }
    if (rows > 4) memset(data + (size_t)((rows - 1) * columns) * size, 0, (size_t)columns * size);
}

/* Rows of one piece and of several, chunks of whole and of parts of rows. */
static void every_type_and_shape(void **state)
{
    static const int64_t shapes[][2] = {{1, 256}, {3, 512}, {64, 1024}, {9, 8448}, {1, 33557504}, {4200, 4096}};
    (void)state;
    if (!gpu) skip();
    es_kernels kernels;
    assert_int_equal(es_kernels_select(NULL, &kernels), ES_OK);
    for (int type = 0; type < ES_DTYPES; type++) {
        if (type == ES_I32) continue;
        const es_dtype_info *info = es_dtype_get_info((es_dtype)type);
        const bool plain = info->block == 1;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int64_t rows = shapes[i][0], columns = shapes[i][1];
            if (rows * columns > 1 << 20 && type != ES_BF16 && type != ES_Q4_K) continue;
            unsigned char *data = malloc(es_dtype_bytes((es_dtype)type, rows * columns));
            assert_non_null(data);
            es_bits bits = {77 + i};
            if (plain) put_plain((es_dtype)type, data, rows, columns, 99 + i);
            else es_random_blocks(&bits, (es_dtype)type, rows * columns / info->block, 0.02f, data);
            es_tensor tensor = {.type = (es_dtype)type, .rank = 2, .data = data};
            tensor.shape[0] = rows, tensor.shape[1] = columns;
            const es_stats_input in = es_stats_of_tensor(&tensor, &kernels);
            compare(&in);
            free(data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type_and_shape)};
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
