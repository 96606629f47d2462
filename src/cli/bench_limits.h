/* bench_limits.h: what this machine can do at best, measured before anything is compared with it. */
#ifndef ES_CLI_BENCH_LIMITS_H
#define ES_CLI_BENCH_LIMITS_H

#include <jansson.h>

#include "base/error.h"
#include "device/cpu/limits.h"
#include "evenshare/engine.h"

/** All of it, with `threads` workers; takes about a second. */
es_status es_bench_limits(int threads, es_limits *limits);
/** The same of a resolved kind of device: a GPU's workers are its multiprocessors. */
es_status es_bench_limits_of(es_device_kind kind, int threads, es_limits *limits);
/** The arithmetic of attention over keys and values of a type: that of bfloat16 is AMX tiles where there are some. */
es_limit_kind es_limit_of_attention(es_kv_type type);
/** "f32", "bf16", "bf16dp", "int8". */
const char *es_limit_name(es_limit_kind kind);
json_t *es_bench_limits_json(const es_limits *limits);
void es_bench_limits_print(const es_limits *limits);

#endif
