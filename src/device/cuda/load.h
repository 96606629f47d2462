/* load.h: the CUDA library as the program sees it. */
#ifndef ES_CUDA_LOAD_H
#define ES_CUDA_LOAD_H

#include "device/cuda/plugin.h"

/** Open libevenshare_cuda.so, once: $ES_CUDA_LIBRARY, or beside the program, or where libraries are. ES_UNSUPPORTED, with what
 *  to do, where it is not built or of another build. Thread-safe. */
es_status es_cuda_load(const es_cuda_api **api);

/** Where the library is, without opening it; ES_UNSUPPORTED where it is not. */
es_status es_cuda_find(char *path, size_t room);

#endif
