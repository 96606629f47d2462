/* fuzz_npy.c: any bytes as a .npy file: refused, or an array that lies inside them. */
#include <stdlib.h>

#include "model/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    es_npy npy;
    if (es_npy_parse("fuzz", data, size, &npy) != ES_OK) return 0;
    if (npy.data < data || npy.items < 0 || (size_t)npy.items * (size_t)npy.bytes > size - (size_t)(npy.data - data)) abort();
    return 0;
}
