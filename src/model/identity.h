/* identity.h: which model this is, whatever its file is called: for keys of what was computed with it. */
#ifndef ES_MODEL_IDENTITY_H
#define ES_MODEL_IDENTITY_H

#include "model/model.h"

/** A hash of everything that decides a logit: the configuration, each tensor's name, type, shape and samples of its bytes, and
 *  the file's size and time of change (a folder's, of a folder). Two models that share it are one. */
uint64_t es_model_identity(const es_model *model);

#endif
