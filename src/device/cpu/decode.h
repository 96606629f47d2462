/* decode.h: stored numbers to float32.
 *
 *   es_decode_fn decode = es_decode_ref(ES_Q4_K);
 *   decode(tensor->data, row, columns);
 *
 * Every function for a type gives the same bits (a NaN for a NaN): products and sums are rounded one by one, never fused, in
 * the order that the Python package `gguf` uses. (Every product here has at most 22 significant bits, so it is exact and a
 * fused step would give the same bits; nothing relies on that.)
 * Neither flush-to-zero nor denormals-are-zero changes a result. */
#ifndef ES_DEVICE_CPU_DECODE_H
#define ES_DEVICE_CPU_DECODE_H

#include "device/dtype.h"

/** Decode `elements` (a multiple of the type's block) from `blocks` (any alignment) to `out`. They must not overlap. */
typedef void (*es_decode_fn)(const void *blocks, float *out, int64_t elements);

/** The function for a type in plain C; NULL for a type that is no weight (I32). */
es_decode_fn es_decode_ref(es_dtype type);

/** The same for an instruction set (AVX2 with FMA and F16C; AVX-512 F, BW, DQ and VL). Exist on x86-64 only; calling what they
 *  return needs a processor that has it. */
es_decode_fn es_decode_avx2(es_dtype type);
es_decode_fn es_decode_avx512(es_dtype type);

#endif
