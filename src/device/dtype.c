/* dtype.c: the one table of storage types; see dtype.h. */
#include "device/dtype.h"

#include <string.h>

static const es_dtype_info infos[ES_DTYPES] = {
    /*              name   block bytes  ggml_type */
    [ES_F32]  = {"F32",  1,   4,   0},
    [ES_F16]  = {"F16",  1,   2,   1},
    [ES_BF16] = {"BF16", 1,   2,   30},
    [ES_Q8_0] = {"Q8_0", 32,  34,  8},
    [ES_Q4_0] = {"Q4_0", 32,  18,  2},
    [ES_Q4_1] = {"Q4_1", 32,  20,  3},
    [ES_Q5_0] = {"Q5_0", 32,  22,  6},
    [ES_Q5_1] = {"Q5_1", 32,  24,  7},
    [ES_Q4_K] = {"Q4_K", 256, 144, 12},
    [ES_Q5_K] = {"Q5_K", 256, 176, 13},
    [ES_Q6_K] = {"Q6_K", 256, 210, 14},
    [ES_I32]  = {"I32",  1,   4,   26},
};

const es_dtype_info *es_dtype_get_info(es_dtype type)
{
    return &infos[type];
}

size_t es_dtype_bytes(es_dtype type, int64_t elements)
{
    const es_dtype_info *info = &infos[type];
    if (elements < 0 || elements % info->block != 0) return SIZE_MAX;
    const uint64_t blocks = (uint64_t)(elements / info->block);
    if (blocks > (SIZE_MAX - 1) / (size_t)info->block_bytes) return SIZE_MAX;
    return (size_t)blocks * (size_t)info->block_bytes;
}

bool es_dtype_from_gguf(uint32_t gguf_type, es_dtype *type)
{
    for (int i = 0; i < ES_DTYPES; i++) {
        if (infos[i].gguf_type < 0 || (uint32_t)infos[i].gguf_type != gguf_type) continue;
        *type = (es_dtype)i;
        return true;
    }
    return false;
}

bool es_dtype_from_name(const char *name, es_dtype *type)
{
    for (int i = 0; i < ES_DTYPES; i++) {
        if (strcmp(infos[i].name, name) != 0) continue;
        *type = (es_dtype)i;
        return true;
    }
    return false;
}
