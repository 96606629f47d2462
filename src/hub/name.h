/* name.h: models by name, "hf:ORG/NAME[:FILE]", and which names of files are fit for a disk.
 *
 * A name comes from a user, a file's name from a server: both end up in a path, so both are held to a short alphabet. */
#ifndef ES_HUB_NAME_H
#define ES_HUB_NAME_H

#include "base/error.h"

enum { ES_HUB_PART = 97, ES_HUB_FILE = 201 };

typedef struct es_hub_name {
    char org[ES_HUB_PART], repo[ES_HUB_PART];
    char file[ES_HUB_FILE]; /**< a file's name or a quantisation ("Q4_K_M"); "" = the usual choice */
} es_hub_name;

/** True for what begins with "hf:". */
bool es_hub_is_name(const char *text);
/** ES_INVALID, with a sentence, for anything that is no such name. */
es_status es_hub_name_parse(const char *text, es_hub_name *name);

/** True when a file of this name may be kept: letters, digits, '.', '_', '-' and '+', no leading dot, no folder, and an
 *  extension that a model's files have (.gguf, .safetensors, .json, .jinja, .txt, .model) or a licence's name. */
bool es_hub_file_is_fit(const char *file);

#endif
