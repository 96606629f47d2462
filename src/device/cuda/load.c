/* load.c: finds the CUDA library at run time.
 *
 * The program links nothing of CUDA: without the library, or without a driver, it is whole, and says in a sentence why a GPU
 * cannot be had. */
#include "device/cuda/load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libevenshare_cuda.so"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const es_cuda_api *loaded;

/* The folder of the program's file, with a slash; "" when it cannot be told. */
static void own_folder(char *folder, size_t room)
{
    const ssize_t bytes = readlink("/proc/self/exe", folder, room - 1);
    folder[bytes > 0 ? bytes : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
    else
        folder[0] = '\0';
}

/* Beside the program, in the library folder of the same installation, or in the folder above (test programs). */
es_status es_cuda_find(char *path, size_t room)
{
    static const char *const places[] = {"", "../lib/", "../lib/x86_64-linux-gnu/", "../"};
    const char *named = getenv("ES_CUDA_LIBRARY");
    char folder[512];
    own_folder(folder, sizeof folder);
    if (named) {
        snprintf(path, room, "%s", named);
        return ES_OK;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places && folder[0]; i++) {
        snprintf(path, room, "%s%s" LIBRARY, folder, places[i]);
        if (access(path, F_OK) == 0) return ES_OK;
    }
    return es_fail(ES_UNSUPPORTED,
                   "there is no " LIBRARY " beside the program (%s): build evenshare where CUDA's nvcc is, or set "
                   "ES_CUDA_LIBRARY",
                   folder);
}

static es_status load(void)
{
    static const es_cuda_host host = {es_error_record};
    char path[640];
    ES_TRY(es_cuda_find(path, sizeof path));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return es_fail(ES_UNSUPPORTED, "the CUDA library cannot be opened: %s", why ? why : path);
    }
    es_cuda_get_api_fn get;
    void *symbol = dlsym(library, "es_cuda_get_api");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from an object to a function */
    const es_cuda_api *api = symbol ? get(&host) : NULL;
    if (!api || api->op_bytes != sizeof(es_op) || api->options_bytes != sizeof(es_device_options) ||
        api->batch_bytes != sizeof(es_batch) || strcmp(api->version, ES_VERSION) != 0) {
        dlclose(library);
        return es_fail(ES_UNSUPPORTED, "%s belongs to another build of evenshare: build and install both together", path);
    }
    loaded = api; /* never closed: devices live in it */
    return ES_OK;
}

es_status es_cuda_load(const es_cuda_api **api)
{
    pthread_mutex_lock(&lock);
    const es_status status = loaded ? ES_OK : load();
    *api = loaded;
    pthread_mutex_unlock(&lock);
    return status;
}

es_status es_device_open_cuda(const es_device_options *options, es_device **device)
{
    const es_cuda_api *api;
    ES_TRY(es_cuda_load(&api));
    return api->open(options, device);
}
