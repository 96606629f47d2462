/* compare.c: see compare.h. compare_cases.c has the operations. */
#include "device/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/compare_case.h"

/* A stream of numbers that any machine repeats: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t draw(es_compare *c)
{
    uint64_t z = c->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

float es_compare_between(es_compare *c, float low, float high)
{
    return low + (high - low) * (float)(draw(c) >> 40) * 0x1p-24f;
}

void es_compare_fail(es_compare *c, es_status status)
{
    if (c->status == ES_OK) c->status = status;
}

int es_compare_bytes(es_compare *c, const void *data, size_t bytes)
{
    if (c->status != ES_OK) return 0;
    if (c->buffers == ES_COMPARE_BUFFERS) {
        es_compare_fail(c, es_fail(ES_INTERNAL, "a comparison of more than %d buffers", ES_COMPARE_BUFFERS));
        return 0;
    }
    for (int d = 0; d < 2 && c->status == ES_OK; d++) {
        es_status status = es_device_alloc(c->device[d], bytes, &c->buffer[d][c->buffers]);
        if (status == ES_OK && data) status = es_device_write(c->device[d], c->buffer[d][c->buffers], 0, data, bytes);
        es_compare_fail(c, status);
    }
    return c->buffers++;
}

static int floats(es_compare *c, int64_t count, float low, float high, bool random)
{
    float *values = malloc((size_t)count * sizeof *values);
    if (!values) {
        es_compare_fail(c, es_fail(ES_NO_MEMORY, "no memory for %lld numbers", (long long)count));
        return 0;
    }
    for (int64_t i = 0; i < count; i++) values[i] = random ? es_compare_between(c, low, high) : low;
    const int buffer = es_compare_bytes(c, values, (size_t)count * sizeof *values);
    free(values);
    return buffer;
}

int es_compare_floats(es_compare *c, int64_t count, float low, float high)
{
    return floats(c, count, low, high, true);
}

/* Outputs begin as something that no kernel writes. */
int es_compare_room(es_compare *c, int64_t count)
{
    return floats(c, count, -7e29f, 0, false);
}

int es_compare_zeros(es_compare *c, size_t bytes)
{
    return es_compare_bytes(c, NULL, bytes);
}

es_slice es_compare_slice(const es_compare *c, int device, int buffer)
{
    return (es_slice){c->buffer[device][buffer], 0};
}

void es_compare_step(es_compare *c, const es_batch *batch)
{
    for (int d = 0; d < 2 && c->status == ES_OK; d++) {
        es_program program = {0};
        c->record(c, d, &program);
        if (program.failed) es_compare_fail(c, es_fail(ES_NO_MEMORY, "no memory for a program"));
        if (c->status == ES_OK) es_compare_fail(c, es_device_submit(c->device[d], &program, batch));
        es_program_free(&program);
    }
}

static float *read_back(es_compare *c, int device, int buffer, int64_t count)
{
    float *values = malloc((size_t)count * sizeof *values);
    if (!values)
        es_compare_fail(c, es_fail(ES_NO_MEMORY, "no memory for %lld numbers", (long long)count));
    else
        es_compare_fail(
            c, es_device_read(c->device[device], c->buffer[device][buffer], 0, values, (size_t)count * sizeof *values));
    return values;
}

void es_compare_outputs(es_compare *c, const char *what, int buffer, int64_t count)
{
    if (c->status != ES_OK) return;
    float *expected = read_back(c, 0, buffer, count), *got = read_back(c, 1, buffer, count);
    double most = 1e-30;
    for (int64_t i = 0; i < count && c->status == ES_OK; i++)
        if (fabs((double)expected[i]) > most && expected[i] > -1e29f) most = fabs((double)expected[i]);
    for (int64_t i = 0; i < count && c->status == ES_OK; i++) {
        const double off = fabs((double)expected[i] - (double)got[i]) / most;
        if (off <= c->row->worst) continue;
        c->row->worst = isfinite(off) ? off : INFINITY;
        if (off <= c->row->tolerance) continue;
        if (c->row->equal)
            snprintf(c->row->difference, sizeof c->row->difference, "%s: element %lld is %g, the CPU's %g (largest %g)", what,
                     (long long)i, (double)got[i], (double)expected[i], most);
        c->row->equal = false;
    }
    free(expected);
    free(got);
}

uint32_t *es_compare_bits(es_compare *c, int buffer, int64_t count)
{
    return c->status == ES_OK ? (uint32_t *)(void *)read_back(c, 1, buffer, count) : NULL;
}

void es_compare_same(es_compare *c, const char *what, const uint32_t *a, const uint32_t *b, int64_t count)
{
    for (int64_t i = 0; a && b && i < count && c->row->equal; i++) {
        if (a[i] == b[i]) continue;
        c->row->equal = false;
        snprintf(c->row->difference, sizeof c->row->difference,
                 "%s: element %lld has other bits in other company (%08x, %08x)", what, (long long)i, a[i], b[i]);
    }
}

static es_status open_devices(es_compare *c, es_device_kind kind)
{
    es_device_options o = c->options;
    /* Every kernel of the CPU equals the reference, or is not trusted. */
    ES_TRY(es_device_open_cpu(&o, &c->device[0]));
    return es_device_open(kind, &o, &c->device[1]);
}

void es_compare_release(es_compare *c, int keep)
{
    for (; c->buffers > keep; c->buffers--)
        for (int d = 0; d < 2; d++) {
            es_buffer **last = &c->buffer[d][c->buffers - 1];
            if (*last) es_device_release(c->device[d], *last);
            *last = NULL;
        }
}

static void close_devices(es_compare *c)
{
    es_compare_release(c, 0);
    for (int d = 0; d < 2; d++) es_device_close(c->device[d]);
}

es_status es_compare_run(es_device_kind kind, int index, es_compare_row *row)
{
    es_compare c = {.row = row, .status = ES_OK, .state = (uint64_t)index << 32};
    es_compare_name(index, row);
    row->worst = 0;
    row->equal = true;
    row->difference[0] = '\0';
    const es_compare_fn run = es_compare_prepare(index, &c);
    if (!run) return es_fail(ES_INVALID, "comparison %d: there are %d", index, es_compare_count());
    es_compare_fail(&c, open_devices(&c, kind));
    if (c.status == ES_OK) run(&c);
    close_devices(&c);
    return c.status;
}
