/* compare_case.h: how a row of the comparison is written: one function that records its operations for a device, and one that
 * makes buffers, steps, and compares. */
#ifndef ES_DEVICE_COMPARE_CASE_H
#define ES_DEVICE_COMPARE_CASE_H

#include "device/compare.h"

enum { ES_COMPARE_BUFFERS = 48 };

typedef struct es_compare es_compare;
typedef void (*es_compare_fn)(es_compare *c);

struct es_compare {
    es_compare_row *row;
    es_dtype type;
    es_device_options options;
    es_device *device[2]; /**< the CPU's reference kernels; the device in question */
    es_buffer *buffer[2][ES_COMPARE_BUFFERS];
    int buffers;
    void (*record)(es_compare *c, int device, es_program *program);
    int b[32];        /**< the row's own numbers of buffers */
    int64_t shape[8]; /**< and sizes */
    uint64_t state;   /**< of the random numbers */
    es_status status;
};

/** Fill in options for row `index`; NULL past the end. */
es_compare_fn es_compare_prepare(int index, es_compare *c);

float es_compare_between(es_compare *c, float low, float high);
/** Buffers on both devices, of the same contents: bytes, random floats, floats that no kernel writes, zeros. */
int es_compare_bytes(es_compare *c, const void *data, size_t bytes);
int es_compare_floats(es_compare *c, int64_t count, float low, float high);
int es_compare_room(es_compare *c, int64_t count);
int es_compare_zeros(es_compare *c, size_t bytes);
es_slice es_compare_slice(const es_compare *c, int device, int buffer);
/** Record on both devices, and submit. */
void es_compare_step(es_compare *c, const es_batch *batch);
/** Compare `count` floats of a buffer. */
void es_compare_outputs(es_compare *c, const char *what, int buffer, int64_t count);
/** The device's floats as bits (free()), and the comparison of two of those. */
uint32_t *es_compare_bits(es_compare *c, int buffer, int64_t count);
void es_compare_same(es_compare *c, const char *what, const uint32_t *a, const uint32_t *b, int64_t count);
/** Release the buffers made since there were `keep`. */
void es_compare_release(es_compare *c, int keep);
void es_compare_fail(es_compare *c, es_status status);
#define SLICE(name) es_compare_slice(c, d, c->b[name])

enum { MOST_ROWS = 320, MOST_SPANS = 8, PAGE = 16, CONTEXT = 1024, VOCABULARY = 64 };

/* A step of several sequences. Sequence s has pages s·PAGES … in reverse, so that a page's number says nothing about its place. */
typedef struct es_compare_steps {
    int32_t tokens[MOST_ROWS], outputs[MOST_ROWS], pages[MOST_SPANS][CONTEXT / PAGE];
    es_span span[MOST_SPANS];
    es_batch batch;
} es_compare_steps;

/** Empty it. */
void es_compare_start(es_compare_steps *s);
/** Add `rows` tokens of sequence q that follow `start` others; its last row is an output. */
void es_compare_span(es_compare_steps *s, int32_t q, int64_t start, int32_t rows);

/** compare_picks.c: the row "pick". */
void es_compare_picks(es_compare *c);

#endif
