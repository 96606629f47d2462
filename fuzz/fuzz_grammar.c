/* Grammars in GBNF, and texts read by them: the text follows the grammar behind a zero byte. What is taken must never be a
 * dead end: as long as a text is no sentence, some byte may follow. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { STEPS = 24, MOST_BYTES = 4096 };

/* Goes on by the first byte that may come, counted from `from` on. False: none may. */
static bool go_on(es_matcher *matcher, unsigned from, es_status *status)
{
    for (unsigned i = 0; i < 256; i++) {
        const char byte = (char)(from + i);
        *status = es_matcher_take_bytes(matcher, &byte, 1);
        if (*status != ES_INVALID) return *status == ES_OK;
    }
    return false;
}

static void read_text(es_matcher *matcher, const es_grammar *grammar, const char *text, size_t bytes)
{
    es_status status = es_matcher_start(matcher, grammar);
    if (status == ES_OK && es_matcher_take_bytes(matcher, text, bytes) == ES_INVALID)
        status = es_matcher_start(matcher, grammar);
    for (unsigned step = 0; step < STEPS && status == ES_OK && es_matcher_can_go_on(matcher); step++)
        if (!go_on(matcher, step * 37 + (unsigned)bytes, &status) && status == ES_INVALID) abort();
    if (status == ES_OK && !es_matcher_can_go_on(matcher) && !es_matcher_is_complete(matcher)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static es_matcher *matcher;
    if (!matcher && es_matcher_open(NULL, &matcher) != ES_OK) abort();
    if (bytes > MOST_BYTES) return 0;
    const uint8_t *zero = bytes ? memchr(data, 0, bytes) : NULL;
    const size_t grammar_bytes = zero ? (size_t)(zero - data) : bytes;
    char *text = malloc(grammar_bytes + 1); /* exactly as long as it is, so that a sanitizer sees what reads too far */
    char *copy = grammar_bytes ? realloc(text, grammar_bytes) : text;
    if (!copy) abort();
    if (grammar_bytes) memcpy(copy, data, grammar_bytes);
    es_grammar *grammar;
    if (es_grammar_compile(copy, grammar_bytes, NULL, bytes % 2, &grammar) == ES_OK) {
        read_text(matcher, grammar, zero ? (const char *)zero + 1 : "", zero ? bytes - grammar_bytes - 1 : 0);
        es_grammar_close(grammar);
    }
    free(copy);
    return 0;
}
