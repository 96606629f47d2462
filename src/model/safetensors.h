/* safetensors.h: the parser behind es_safetensors_open(), over a buffer, so that it can be fuzzed. Internal. */
#ifndef ES_MODEL_SAFETENSORS_H
#define ES_MODEL_SAFETENSORS_H

#include "model/tensor_set.h"

/** Add the tensors of the file image `data` to `set` (not sealed yet). `path` is for messages; tensors point into `data`. */
es_status es_safetensors_parse(es_tensor_set *set, const char *path, const unsigned char *data, size_t bytes);

#endif
