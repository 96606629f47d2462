/* check.h: the one harness that says whether a kernel computes what its reference computes, and how fast.
 *
 *   es_kernels kernels;
 *   es_kernels_select("avx512", &kernels);
 *   es_kernels_check(&kernels, &(es_check_options){.timed = true}, on_row, user);
 *
 *   for (int i = 0; i < es_check_count(); i++)               // or one at a time, say in a child with a deadline
 *       es_check_run(&kernels, i, &(es_check_options){0}, &row);
 *
 * A row is one kernel (of one weight type, where it has one). It gets random inputs of many sizes, whole vectors and not,
 * zeros of both signs, subnormals, the very big and the very small; every output must equal the reference's bit by bit (a NaN
 * for a NaN), and nothing outside may be written. What must not be read is filled with NaNs or is not there at all. */
#ifndef ES_CPU_CHECK_H
#define ES_CPU_CHECK_H

#include "device/cpu/kernels.h"

typedef struct es_check_row {
    const char *operation;           /**< "dot" */
    const char *type;                /**< weight type "Q4_K"; NULL where there is none */
    const char *shape;               /**< what was timed: "64 tokens, 1024 x 4096" */
    es_numeric numeric;
    const char *instruction_set;     /**< of the kernel under test */
    const char *reference;           /**< of what it was compared with */
    bool equal;
    char difference[192];            /**< the first difference, in words; "" when equal */
    int64_t cases;                   /**< inputs compared */
    double seconds, reference_seconds; /**< of one call on the timed shape, the median of several; 0 when not timed */
    double best_seconds;             /**< the shortest of several: what the machine can do when nobody else uses it */
    double bytes, flops;             /**< that the timed call moves from or to memory at least, and computes; 0: not counted */
} es_check_row;

typedef struct es_check_options {
    bool timed;
    int threads; /**< of the rows that run a whole product; 0 = 1 */
} es_check_options;

/** How many rows there are; the same on every machine. */
int es_check_count(void);
/** Which kernel row `index` is about, without running it: operation and weight type (NULL where there is none). */
void es_check_name(int index, const char **operation, const char **type);
/** Run one row. A difference is no failure: it is what the row says. Fails for want of memory, or for a wrong index. */
es_status es_check_run(const es_kernels *candidate, int index, const es_check_options *options, es_check_row *row);

typedef void (*es_check_row_fn)(const es_check_row *row, void *user);
/** Run all rows, one after the other. */
es_status es_kernels_check(const es_kernels *candidate, const es_check_options *options, es_check_row_fn on_row, void *user);

#endif
