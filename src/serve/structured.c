/* structured.c: answers that must have a certain form: response_format, and the names other servers have for the same.
 *
 * All of them become GBNF (text/grammar.h) in call->grammar. It is compiled here once, to find what is wrong with it while the
 * client can still be told; the engine compiles it again for the vocabulary it knows. */
#include <string.h>

#include "serve/call.h"
#include "serve/strict_json.h"
#include "text/grammar.h"
#include "text/grammar_compose.h"
#include "text/grammar_schema.h"

enum { CHOICES_MAX = 1024 };

typedef bool (*put_fn)(const json_t *value, const char *name, es_text *gbnf, es_api_error *error);

static bool refuse_status(es_api_error *error, const char *name, es_status status)
{
    es_api_refuse_status(error, status);
    strncpy(error->param, name, sizeof error->param - 1);
    return false;
}

static void put_any_object(es_text *gbnf)
{
    es_grammar_add_json(gbnf);
    es_text_puts(gbnf, "root ::= json-object\n");
}

static bool put_schema(const json_t *value, const char *name, es_text *gbnf, es_api_error *error)
{
    json_t *parsed = NULL;
    if (json_is_string(value)) { /* vLLM takes a schema as a string of JSON too */
        if (es_json_parse_object(json_string_value(value), json_string_length(value), &parsed) != ES_OK)
            return es_api_refuse(error, name, "%s is a string that is no JSON object", name);
        value = parsed;
    }
    es_grammar_add_json(gbnf);
    const es_status status = es_grammar_add_schema(gbnf, "root", name, value);
    json_decref(parsed);
    return status == ES_OK || refuse_status(error, name, status);
}

static bool put_grammar(const json_t *value, const char *name, es_text *gbnf, es_api_error *error)
{
    es_grammar *grammar; /* read by itself first: what is wrong with it is told of as it was sent */
    if (!json_is_string(value)) return es_api_refuse(error, name, "%s must be a string of GBNF", name);
    const es_status status = es_grammar_compile(json_string_value(value), json_string_length(value), NULL, 0, &grammar);
    if (status != ES_OK) return refuse_status(error, name, status);
    es_grammar_close(grammar);
    es_text_append(gbnf, json_string_value(value), json_string_length(value));
    return true;
}

static bool put_regex(const json_t *value, const char *name, es_text *gbnf, es_api_error *error)
{
    if (!json_is_string(value)) return es_api_refuse(error, name, "%s must be a string", name);
    const es_status status = es_grammar_add_pattern(gbnf, "root", name, json_string_value(value), json_string_length(value));
    return status == ES_OK || refuse_status(error, name, status);
}

static bool put_choice(const json_t *value, const char *name, es_text *gbnf, es_api_error *error)
{
    const size_t count = json_array_size(value);
    if (count == 0 || count > CHOICES_MAX)
        return es_api_refuse(error, name, "%s must be an array of 1 to %d strings", name, CHOICES_MAX);
    es_text_puts(gbnf, "root ::= ");
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(value, i);
        if (!json_is_string(one)) return es_api_refuse(error, name, "%s must be an array of strings", name);
        es_text_puts(gbnf, i ? " | " : "");
        es_grammar_add_literal(gbnf, json_string_value(one), json_string_length(one));
    }
    es_text_putc(gbnf, '\n');
    return true;
}

static bool put_object(const json_t *value, const char *name, es_text *gbnf, es_api_error *error)
{
    if (json_is_false(value)) return true;
    if (!json_is_true(value)) return es_api_refuse(error, name, "%s must be true or false", name);
    put_any_object(gbnf);
    return true;
}

/* {"type": "json_schema", "json_schema": {"name", "schema", "strict"}}; strict or not, the schema is followed. */
static bool put_named_schema(json_t *format, es_text *gbnf, es_api_error *error)
{
    json_t *named = es_json_member(format, "json_schema");
    json_t *schema = es_json_member(named, "schema");
    if (!schema)
        return es_api_refuse(error, "response_format",
                             "response_format of type json_schema needs json_schema.schema, a JSON schema");
    const es_status status =
        (es_grammar_add_json(gbnf), es_grammar_add_schema(gbnf, "root", "response_format.json_schema.schema", schema));
    return status == ES_OK || refuse_status(error, "response_format", status);
}

static bool put_format(const json_t *value, const char *name, es_text *gbnf, es_api_error *error)
{
    json_t *format = (json_t *)value, *schema = es_json_member(format, "schema");
    const char *type = json_string_value(es_json_member(format, "type"));
    if (type && strcmp(type, "text") == 0) return true;
    if (type && strcmp(type, "json_schema") == 0) return put_named_schema(format, gbnf, error);
    if (type && strcmp(type, "json_object") == 0 && schema) return put_schema(schema, name, gbnf, error); /* llama.cpp */
    if (!type || strcmp(type, "json_object") != 0)
        return es_api_refuse(error, name,
                             "response_format must be an object whose type is \"text\", \"json_object\" or \"json_schema\"");
    put_any_object(gbnf);
    return true;
}

/* vLLM's newer way to say the guided_* ones. */
static bool put_outputs(const json_t *value, const char *name, es_text *gbnf, es_api_error *error)
{
    static const struct {
        const char *name;
        put_fn put;
    } kinds[] = {
        {"json",        put_schema },
        {"regex",       put_regex  },
        {"choice",      put_choice },
        {"grammar",     put_grammar},
        {"json_object", put_object }
    };
    const char *key;
    json_t *member;
    if (!json_is_object(value)) return es_api_refuse(error, name, "%s must be an object", name);
    json_object_foreach((json_t *)value, key, member)
    {
        put_fn put = NULL;
        if (json_is_null(member)) continue;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strcmp(kinds[i].name, key) == 0) put = kinds[i].put;
        if (!put)
            return es_api_refuse(error, name, "%s knows json, regex, choice, grammar and json_object, not \"%.40s\"", name,
                                 key);
        if (gbnf->bytes)
            return es_api_refuse(error, name, "%s can hold one of json, regex, choice, grammar, json_object only", name);
        if (!put(member, name, gbnf, error)) return false;
    }
    return true;
}

bool es_structured_parse(json_t *root, es_call *call, es_api_error *error)
{
    static const struct {
        const char *name;
        put_fn put;
    } parameters[] = {
        {"response_format",    put_format },
        {"grammar",            put_grammar},
        {"json_schema",        put_schema },
        {"guided_json",        put_schema },
        {"guided_regex",       put_regex  },
        {"guided_choice",      put_choice },
        {"guided_grammar",     put_grammar},
        {"structured_outputs", put_outputs},
    };
    const char *before = NULL;
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        const char *name = parameters[i].name;
        const json_t *value = es_json_member(root, name);
        es_text gbnf = {0};
        if (!value || (json_is_string(value) && json_string_length(value) == 0)) continue;
        const bool put = parameters[i].put(value, name, &gbnf, error);
        if (put && gbnf.bytes && before) {
            es_text_free(&gbnf);
            return es_api_refuse(error, name, "%s and %s both say what the answer must look like; send one of them", before,
                                 name);
        }
        if (!put || !gbnf.bytes) {
            es_text_free(&gbnf);
            if (!put) return false;
            continue;
        }
        call->grammar = gbnf;
        call->grammar_name = before = name;
    }
    return true;
}

/* Whether a matcher has room for as many ways to begin. Closes the grammar. */
static es_status try_start(es_grammar *grammar)
{
    es_matcher *matcher = NULL;
    es_status status = es_matcher_open(NULL, &matcher);
    if (status == ES_OK) status = es_matcher_start(matcher, grammar);
    es_matcher_close(matcher);
    es_grammar_close(grammar);
    return status;
}

bool es_structured_finish(es_call *call, es_api_error *error)
{
    es_grammar *grammar;
    if (!call->grammar.bytes) return true;
    if (call->may_think) es_grammar_allow_thinking(&call->grammar);
    if (call->grammar.failed) return es_api_refuse_status(error, es_fail(ES_NO_MEMORY, "no memory for a grammar"));
    es_status status = es_grammar_compile(call->grammar.data, call->grammar.bytes, NULL, 0, &grammar);
    if (status == ES_OK) status = try_start(grammar);
    if (status != ES_OK) return refuse_status(error, call->grammar_name, status);
    call->request.grammar_bytes = call->grammar.bytes;
    if (call->kind != ES_CALL_COMPLETION && call->format.in_reasoning) call->request.grammar_after = "</think>";
    return true;
}
