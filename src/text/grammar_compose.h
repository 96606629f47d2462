/* grammar_compose.h: grammars put together out of others.
 *
 *   es_text gbnf = {0};
 *   es_grammar_add_prefixed(&gbnf, "form-", form, form_bytes);    // its root is the rule "form-root" now
 *   es_text_puts(&gbnf, "root ::= call | form-root\ncall ::= ...\n");
 *
 * A grammar that comes with a request may have any names; with a prefix they cannot be those that are used around it. Nothing
 * here fails but for memory, which gbnf->failed tells. */
#ifndef ES_TEXT_GRAMMAR_COMPOSE_H
#define ES_TEXT_GRAMMAR_COMPOSE_H

#include "base/text.h"

/** Append a grammar, each of its names with `prefix` before it. What is no GBNF stays none. */
void es_grammar_add_prefixed(es_text *gbnf, const char *prefix, const char *text, size_t bytes);

/** Append the rule `name` for any text that `mark` does not occur in; rules "name-..." beside it. `mark` is ASCII, at least two
 *  characters without quotes, brackets or backslashes, and its first occurs in it once. */
void es_grammar_add_text_without(es_text *gbnf, const char *name, const char *mark);

/** Replace the grammar by one of texts that may begin with reasoning, "<think>...</think>", which the model opens itself, and go
 *  on as before. */
void es_grammar_allow_thinking(es_text *gbnf);

#endif
