/* choose.c: which device serves, and what it offers. */
#include "device/cuda/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/verdict.h"

/* Every operation was compared on this very card, by this very library, and is right. */
static bool has_trusted_gpu(void)
{
    es_verdicts *v;
    if (es_verdicts_open_gpu(&v) != ES_OK) return false;
    const bool trusted = es_verdicts_load(v) == ES_OK && es_verdicts_all_trusted(v);
    free(v);
    return trusted;
}

es_device_kind es_device_resolve(es_device_kind kind)
{
    const char *asked = getenv("ES_DEVICE");
    if (kind != ES_DEVICE_AUTO) return kind;
    if (asked && strcmp(asked, "cuda") == 0) return ES_DEVICE_CUDA;
    if (asked && strcmp(asked, "cpu") == 0) return ES_DEVICE_CPU;
    return has_trusted_gpu() ? ES_DEVICE_CUDA : ES_DEVICE_CPU;
}

es_status es_device_open(es_device_kind kind, const es_device_options *options, es_device **device)
{
    if (kind != ES_DEVICE_CUDA) return es_device_open_cpu(options, device);
    const es_kv_type own = es_kv_type_resolve(ES_KV_AUTO, options->numeric);
    if (options->kv_type != ES_KV_AUTO && options->kv_type != own)
        return es_fail(ES_UNSUPPORTED, "a GPU keeps keys and values as %s in numeric mode %s; --kv-type %s needs --device cpu",
                       es_kv_type_name(own), es_numeric_name(options->numeric), es_kv_type_name(options->kv_type));
    return es_device_open_cuda(options, device);
}

static es_status first_gpu(es_cuda_gpu *gpu)
{
    const es_cuda_api *api;
    int count;
    ES_TRY(es_cuda_load(&api));
    return api->look(gpu, 1, &count);
}

es_numeric es_device_numeric(es_device_kind kind, es_dtype weights)
{
    es_cuda_gpu gpu;
    if (kind != ES_DEVICE_CUDA) return es_device_best_numeric(weights);
    return weights != ES_F32 && first_gpu(&gpu) == ES_OK && gpu.code >= 80 ? ES_NUMERIC_BF16 : ES_NUMERIC_F32;
}

bool es_device_copies_weights(es_device_kind kind, es_weights asked, size_t bytes)
{
    if (asked != ES_WEIGHTS_AUTO || kind == ES_DEVICE_CUDA) return asked == ES_WEIGHTS_COPIED && kind != ES_DEVICE_CUDA;
    return bytes <= es_memory_available() / 2;
}

es_status es_device_memory(es_device_kind kind, size_t *bytes)
{
    es_cuda_gpu gpu;
    *bytes = es_memory_limit();
    if (kind != ES_DEVICE_CUDA) return ES_OK;
    ES_TRY(first_gpu(&gpu));
    *bytes = gpu.available;
    return ES_OK;
}
