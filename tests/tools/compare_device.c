/* compare_device [first [last]], or three numbers and more: the GPU's operations against the CPU's, one line each; the number of failures is the exit
 * code. */
#include <stdio.h>
#include <stdlib.h>

#include "device/compare.h"

static int compare(int index)
{
    es_compare_row row;
    const es_status status = es_compare_run(ES_DEVICE_CUDA, index, &row);
    printf("%3d %-14s %-5s %-4s %s worst %.2e of %.0e %s\n", index, row.operation, row.type ? row.type : "",
           es_numeric_name(row.numeric), status == ES_OK && row.equal ? "ok  " : "FAIL", row.worst, row.tolerance,
           status == ES_OK ? row.difference : es_error_message());
    fflush(stdout);
    return status != ES_OK || !row.equal;
}

int main(int argc, char **argv)
{
    int failures = 0;
    const int first = argc > 1 ? atoi(argv[1]) : 0, last = argc > 2 ? atoi(argv[2]) : es_compare_count();
    for (int i = 1; i < argc && argc > 3; i++) failures += compare(atoi(argv[i]));
    for (int i = first; i < last && argc <= 3; i++) failures += compare(i);
    return failures;
}
