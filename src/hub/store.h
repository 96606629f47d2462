/* store.h: models that were pulled, on this machine's disk.
 *
 * $ES_MODELS, or $XDG_DATA_HOME/evenshare/models, or ~/.local/share/evenshare/models holds ORG/NAME/ with the model's files
 * and `evenshare.json`, the record of what was fetched, from where, under which licence. Only what a record names counts as
 * pulled; what an unfinished pull left is no model yet. */
#ifndef ES_HUB_STORE_H
#define ES_HUB_STORE_H

#include "hub/listing.h"

/** The folder of all models; free() it. ES_NOT_FOUND when neither variable nor home is set. */
es_status es_hub_root(char **path);
/** The folder of one; free() it. It may not exist. */
es_status es_hub_folder(const es_hub_name *name, char **path);

/** The record in `folder`. ES_NOT_FOUND when there is none. The listing's files are all `wanted`. */
es_status es_hub_record_read(const char *folder, es_hub_listing *listing);
/** Write it, adding the wanted files of `listing` to those of an earlier record. */
es_status es_hub_record_write(const char *folder, const es_hub_name *name, const es_hub_listing *listing);

/** What to open for a name: the .gguf (the first part of a split one) or the folder; free() it. ES_NOT_FOUND, with the command
 *  that gets it, when it was not pulled. */
es_status es_hub_find(const es_hub_name *name, char **path);

/** visit() for every model that was pulled, in order of names. */
es_status es_hub_each(void (*visit)(void *user, const es_hub_name *name, const es_hub_listing *listing), void *user);

/** Remove the files that the name picks, or all of the model's when it names no file; `bytes` says how many that were. */
es_status es_hub_remove(const es_hub_name *name, int64_t *bytes);

#endif
