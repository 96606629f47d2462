/* verdict_gpu.c: the key of a GPU's verdicts: the card and its driver as the driver's files name them, and the library's
 * bytes. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda/load.h"
#include "device/machine.h"
#include "device/verdict.h"

/* FNV-1a of a file; 0 when it cannot be read. */
static uint64_t hash_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    unsigned char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;)
        for (size_t i = 0; i < n; i++) hash = (hash ^ piece[i]) * UINT64_C(0x100000001B3);
    fclose(file);
    return hash;
}

es_status es_verdicts_open_gpu(es_verdicts **verdicts)
{
    es_machine machine;
    es_machine_look(&machine);
    if (machine.gpus == 0) return es_fail(ES_NOT_FOUND, "no NVIDIA driver is loaded that lists a GPU");
    char path[640], own[sizeof(((es_verdicts *)NULL)->build)];
    ES_TRY(es_cuda_find(path, sizeof path));
    ES_TRY(es_verdicts_open(verdicts));
    es_verdicts *v = *verdicts;
    snprintf(v->device, sizeof v->device, "%s", machine.gpu[0]);
    snprintf(v->driver, sizeof v->driver, "%s", machine.gpu_driver);
    snprintf(own, sizeof own, "%s", v->build);
    snprintf(v->build, sizeof v->build, "%.40s-%016" PRIx64, own, hash_file(path));
    return ES_OK;
}

bool es_verdicts_all_trusted(const es_verdicts *v)
{
    for (int i = 0; i < v->count; i++)
        if (v->row[i].verdict != ES_VERDICT_TRUSTED) return false;
    return v->count > 0 && !v->device_hung;
}
