/* check_case.h: what the files of the harness share: random inputs, guarded outputs, comparison and timing.
 *
 * A case is a set of inputs, a set of outputs held twice (for the kernel and for the reference) and a function that runs
 * either. Memory lives until the case ends; after a failed allocation es_case_run() does nothing, and the row fails. */
#ifndef ES_CPU_CHECK_CASE_H
#define ES_CPU_CHECK_CASE_H

#include "base/random.h"
#include "device/cpu/check.h"

enum { ES_CASE_BLOCKS = 72, ES_CASE_OUTPUTS = 4, ES_CASE_GUARD = 32 };

typedef enum es_case_values {
    ES_VALUES_PLAIN,   /* −2 to 2 */
    ES_VALUES_SPECIAL, /* among them zeros of both signs, subnormals, 1e-30, 1e30 */
    ES_VALUES_UNIT,    /* 0 to 1 */
    ES_VALUES_TINY,    /* below 1e-25: products of two are flushed to a zero of either sign */
    ES_VALUES_WIDE,    /* −100 to 100: exponentials under- and overflow */
} es_case_values;

/** An output, for the kernel [0] and for the reference [1]; guards before and after. */
typedef struct es_case_output {
    const char *name;
    float *side[2];
    int64_t floats;
} es_case_output;

typedef struct es_case {
    const es_kernels *candidate;
    es_kernels reference;
    es_check_row *row;
    bool timed;
    int threads;
    uint32_t draw; /* of the random numbers */
    es_status status;
    void *block[ES_CASE_BLOCKS];
    int blocks;
    es_case_output output[ES_CASE_OUTPUTS];
    int outputs;
} es_case;

/** Runs the kernel under test (side 0) or the reference (side 1) on the outputs of that side. */
typedef void (*es_case_fn)(const es_kernels *kernels, void *arguments, int side);

/** Exactly `bytes`, so that an address checker sees a read past the end. NULL when there is none. */
void *es_case_alloc(es_case *c, int64_t bytes);
float *es_case_input(es_case *c, int64_t floats, es_case_values values);
/** Random bytes; random numbers. */
void es_case_fill_bytes(es_case *c, void *to, int64_t bytes);
void es_case_fill(es_case *c, float *to, int64_t floats, es_case_values values);
/** A whole number in [0, below). */
int32_t es_case_draw(es_case *c, int32_t below);
/** An output of both sides, holding `initial` (NULL: a pattern that no kernel computes). */
const es_case_output *es_case_new_output(es_case *c, const char *name, int64_t floats, const float *initial);

/** Run both sides, compare all outputs, free everything. The words say which case it was, should it differ. */
void es_case_run(es_case *c, es_case_fn run, void *arguments, const char *format, ...) __attribute__((format(printf, 4, 5)));
/** The same, then time it when the row is timed. */
void es_case_run_timed(es_case *c, es_case_fn run, void *arguments, const char *shape, double bytes, double flops);
typedef struct es_case_seconds {
    double median, best;
} es_case_seconds;
/** How long one call takes. */
es_case_seconds es_case_time(const es_kernels *kernels, es_case_fn run, void *arguments, int side);
void es_case_end(es_case *c);

/** A matrix of weights with sane scales, as a file would hold it. NULL when there is no memory. */
unsigned char *es_case_weights(es_case *c, es_dtype type, int64_t elements);

/* One function per row kind, in the check_*.c files. */
typedef void (*es_check_fn)(es_case *c, es_dtype type);
void es_check_decode(es_case *c, es_dtype type);
void es_check_dot(es_case *c, es_dtype type);
void es_check_rmsnorm(es_case *c, es_dtype type);
void es_check_unit_length(es_case *c, es_dtype type);
void es_check_gated_norm(es_case *c, es_dtype type);
void es_check_swiglu(es_case *c, es_dtype type);
void es_check_axpy(es_case *c, es_dtype type);
void es_check_scale_gate(es_case *c, es_dtype type);
void es_check_conv_silu(es_case *c, es_dtype type);
void es_check_attn_tile(es_case *c, es_dtype type);
void es_check_attn_decode(es_case *c, es_dtype type);
void es_check_attn_tile_f16(es_case *c, es_dtype type);
void es_check_attn_decode_f16(es_case *c, es_dtype type);
void es_check_encode_f16(es_case *c, es_dtype type);
void es_check_attn_merge(es_case *c, es_dtype type);
void es_check_delta_scan(es_case *c, es_dtype type);
void es_check_delta_step(es_case *c, es_dtype type);
void es_check_attn_tile_bf16(es_case *c, es_dtype type);
void es_check_attn_tile_q8(es_case *c, es_dtype type);
void es_check_attn_decode_q8(es_case *c, es_dtype type);
void es_check_product_bf16(es_case *c, es_dtype type);
void es_check_product_bf16dp(es_case *c, es_dtype type);
void es_check_product_int8(es_case *c, es_dtype type);
void es_check_one_token(es_case *c, es_dtype type);
void es_check_matvec(es_case *c, es_dtype type);
void es_check_matmul(es_case *c, es_dtype type);

#endif
