/* bench_operations.h: where the time of a step goes, operation by operation. */
#ifndef ES_CLI_BENCH_OPERATIONS_H
#define ES_CLI_BENCH_OPERATIONS_H

#include <jansson.h>

#include "device/device.h"

enum { ES_BENCH_MOST_OPERATIONS = 64 };

/** Operations that are told apart: by kind, and products by what they multiply. */
typedef struct es_bench_operation {
    es_op_kind kind;
    int64_t inputs, outputs; /**< of a product; else 0 */
    es_dtype type;           /**< of its first weights */
    int64_t times;
    double seconds;
} es_bench_operation;

typedef struct es_bench_operations {
    es_bench_operation each[ES_BENCH_MOST_OPERATIONS];
    int count;
} es_bench_operations;

/** Adds to *operations whatever a device that is opened with this does. */
es_op_watch es_bench_watch(es_bench_operations *operations);
/** Lines of a table, those that took longest first: of `runs` steps, all together. Sorts them. */
void es_bench_operations_print(es_bench_operations *operations, int runs);
/** The same as a list of objects; NULL without memory. */
json_t *es_bench_operations_json(es_bench_operations *operations, int runs);

#endif
