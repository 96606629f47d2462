/* form.h: the form an answer on the command line must have: a grammar, or a JSON schema, from a file. */
#ifndef ES_CLI_FORM_H
#define ES_CLI_FORM_H

#include "base/error.h"
#include "base/text.h"

/** Read the one file that is named (NULL: not named) and append it as GBNF; neither: `gbnf` stays empty. ES_INVALID when both
 *  are, or with the file's name what is wrong in it; ES_UNSUPPORTED names a keyword of a schema. */
es_status es_form_read(const char *grammar_file, const char *schema_file, es_text *gbnf);

#endif
