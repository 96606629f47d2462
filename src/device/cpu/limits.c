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
    for (int k = 0; k < ES_LIMIT_KINDS; k++) loops->peak[k].by = "";
#if defined(__x86_64__)
    es_kernels kernels;
    es_limit_loop *peak = loops->peak;
    if (es_kernels_select("avx2", &kernels) == ES_OK) {
        peak[ES_LIMIT_F32] = peak[ES_LIMIT_BF16] = peak[ES_LIMIT_BF16DP] =
            (es_limit_loop){es_limit_fma_avx2, "AVX2 fused steps"};
        peak[ES_LIMIT_INT8] = (es_limit_loop){es_limit_int8_avx2, "AVX2 byte products"};
        loops->read = es_limit_read_avx2;
    }
    if (es_kernels_select("avx512", &kernels) == ES_OK) {
        peak[ES_LIMIT_F32] = peak[ES_LIMIT_BF16] = peak[ES_LIMIT_BF16DP] =
            (es_limit_loop){es_limit_fma_avx512, "AVX-512 fused steps"};
        loops->read = es_limit_read_avx512;
    }
    if (es_kernels_select("avx512vnni", &kernels) == ES_OK)
        peak[ES_LIMIT_INT8] = (es_limit_loop){es_limit_int8_avx512vnni, "VNNI"};
    if (es_kernels_select("avx512bf16", &kernels) == ES_OK)
        peak[ES_LIMIT_BF16DP] = (es_limit_loop){es_limit_bf16_avx512bf16, "AVX-512 bfloat16 dot products"};
    if (es_kernels_select("amx", &kernels) == ES_OK) {
        peak[ES_LIMIT_BF16] = (es_limit_loop){es_limit_bf16_amx, "AMX tiles"};
        peak[ES_LIMIT_INT8] = (es_limit_loop){es_limit_int8_amx, "AMX tiles"};
    }
#endif
}
