/* JSON schemas as grammars: whatever the schema, its rules can be compiled or are refused in words; and what they allow is
 * JSON, as far as a walk along them gets. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar.h"
#include "text/grammar_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { STEPS = 200, MOST_BYTES = 4096 };

/* One more byte: one that closes something if there is such, else any, counted from `from` on. */
static bool go_on(es_matcher *matcher, unsigned from, char *byte)
{
    static const char closing[] = "\"}]0";
    for (unsigned i = 0; i < 260; i++) {
        *byte = i < 4 ? closing[i] : (char)(from + i);
        const es_status status = es_matcher_take_bytes(matcher, byte, 1);
        if (status != ES_INVALID) return status == ES_OK;
    }
    abort(); /* a dead end */
}

static void walk(es_matcher *matcher, const es_grammar *grammar, unsigned seed)
{
    char text[STEPS];
    size_t written = 0;
    if (es_matcher_start(matcher, grammar) != ES_OK) return;
    while (written < STEPS && !es_matcher_is_complete(matcher))
        if (!go_on(matcher, seed++ * 31, &text[written++])) return;
    if (!es_matcher_is_complete(matcher)) return;
    json_t *value = json_loadb(text, written, JSON_DECODE_ANY, NULL);
    if (!value) abort();
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static es_matcher *matcher;
    if (!matcher && es_matcher_open(NULL, &matcher) != ES_OK) abort();
    if (bytes > MOST_BYTES) return 0;
    json_t *schema = json_loadb((const char *)data, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!schema) return 0;
    es_text gbnf = {0};
    es_grammar *grammar;
    es_grammar_add_json(&gbnf);
    es_status status = es_grammar_add_schema(&gbnf, "root", "schema", schema);
    if (status == ES_OK) status = es_grammar_compile(gbnf.data, gbnf.bytes, NULL, 0, &grammar);
    if (status == ES_OK) {
        walk(matcher, grammar, (unsigned)bytes);
        es_grammar_close(grammar);
    } else if (status != ES_INVALID && status != ES_UNSUPPORTED) {
        abort();
    }
    es_text_free(&gbnf);
    json_decref(schema);
    return 0;
}
