/* form.c: see form.h. */
#include "cli/form.h"

#include "cli/input.h"
#include "text/grammar.h"
#include "text/grammar_schema.h"

static es_status add_schema(const char *file, const es_text *text, es_text *gbnf)
{
    json_error_t error;
    json_t *schema = json_loadb(text->data ? text->data : "", text->bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!schema)
        return es_fail(ES_INVALID, "%s is not valid JSON: %s (line %d, column %d)", file, error.text, error.line,
                       error.column);
    es_grammar_add_json(gbnf);
    const es_status status = es_grammar_add_schema(gbnf, "root", file, schema);
    json_decref(schema);
    return status;
}

es_status es_form_read(const char *grammar_file, const char *schema_file, es_text *gbnf)
{
    es_text text = {0};
    es_grammar *grammar;
    if (grammar_file && schema_file)
        return es_fail(ES_INVALID, "--grammar-file and --json-schema both say what the answer must look like; give one");
    if (!grammar_file && !schema_file) return ES_OK;
    es_status status = es_read_input(grammar_file ? grammar_file : schema_file, &text);
    if (status == ES_OK && schema_file)
        status = add_schema(schema_file, &text, gbnf);
    else if (status == ES_OK)
        es_text_append(gbnf, text.data ? text.data : "", text.bytes);
    if (status == ES_OK && gbnf->failed) status = es_fail(ES_NO_MEMORY, "no memory for a grammar");
    if (status == ES_OK) status = es_grammar_compile(gbnf->data ? gbnf->data : "", gbnf->bytes, NULL, 0, &grammar);
    if (status == ES_OK)
        es_grammar_close(grammar);
    else if (grammar_file)
        es_fail_within(status, "%s", grammar_file);
    es_text_free(&text);
    return status;
}
