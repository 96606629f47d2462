/* limits.c: which loops run here. */
#include "device/cpu/limits.h"

#include <string.h>

#include "device/cpu/kernels.h"

uint64_t es_limit_read_plain(const void *data, size_t bytes)
{
    uint64_t sum[8] = {0}, word[8], all = 0;
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(word, (const unsigned char *)data + i, sizeof word);
        for (int k = 0; k < 8; k++) sum[k] ^= word[k];
    }
    for (int k = 0; k < 8; k++) all ^= sum[k];
    return all;
}

void es_limit_loops_select(es_limit_loops *loops)
{
    *loops = (es_limit_loops){.read = es_limit_read_plain};
#if defined(__x86_64__)
    es_kernels kernels;
    if (es_kernels_select("avx2", &kernels) == ES_OK) loops->fma = es_limit_fma_avx2;
    if (es_kernels_select("avx512", &kernels) == ES_OK) loops->fma = es_limit_fma_avx512, loops->read = es_limit_read_avx512;
    if (es_kernels_select("amx", &kernels) == ES_OK) loops->bf16 = es_limit_bf16_amx, loops->int8 = es_limit_int8_amx;
#endif
}
