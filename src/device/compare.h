/* compare.h: operations on another device, compared with the CPU's reference kernels.
 *
 *   for (int i = 0; i < es_compare_count(); i++) {
 *       es_compare_row row;
 *       es_compare_run(ES_DEVICE_CUDA, i, &row);      // say in a child with a deadline
 *   }
 *
 * A row is one operation (or a few that only make sense together) in one numeric mode, and of one weight type where it has
 * one. Both devices get the same random inputs, several steps of several sequences; outputs may differ by what another order
 * of sums explains, relative to the largest output. Where the device promises the same bits, the rows of a batch are also
 * computed one by one, and must not differ at all. */
#ifndef ES_DEVICE_COMPARE_H
#define ES_DEVICE_COMPARE_H

#include "device/device.h"

typedef struct es_compare_row {
    const char *operation; /**< "matmul" */
    const char *type;      /**< weight type, or NULL */
    es_numeric numeric;
    double worst; /**< largest difference over the largest reference */
    double tolerance;
    bool equal;           /**< within the tolerance, and the same bits in company and alone */
    char difference[160]; /**< the first difference, in words */
} es_compare_row;

/** How many rows there are. */
int es_compare_count(void);
/** Which row this is, without running it: fills operation, type and numeric. */
void es_compare_name(int index, es_compare_row *row);
/** Run one. A difference is no failure; a device that cannot be opened is. */
es_status es_compare_run(es_device_kind kind, int index, es_compare_row *row);

#endif
