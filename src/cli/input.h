/* input.h: what people and files give a command to read. */
#ifndef ES_CLI_INPUT_H
#define ES_CLI_INPUT_H

#include "base/error.h"
#include "base/text.h"
#include "evenshare/tokenizer.h"

/** A whole file, or standard input for "-", of at most 1 GiB; appends to `out`. */
es_status es_read_input(const char *path, es_text *out);

/** Token numbers parted by white space or commas, each from 0 to `vocabulary` − 1. *tokens is the caller's (free()).
 *  ES_INVALID names the line of what is no such number. */
es_status es_parse_ids(const char *name, const es_text *text, int32_t vocabulary, es_token **tokens, size_t *count);

#endif
