/* sample_grammar.c: texts that a schema's grammar allows, chosen at random token by token under the default model's masks.
 *
 *   sample_grammar COUNT < schemas      one JSON schema a line; for each a line: a JSON array of texts, or {"refused": "why"}
 *   sample_grammar --gbnf < schema      its grammar
 *
 * What matters is that every token is one the mask allows; the choice leans towards an end once a text is long. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "evenshare/model.h"
#include "text/grammar.h"
#include "text/grammar_schema.h"

enum { LONG = 40, LONGEST = 20000 };

typedef struct sampler {
    const es_tokenizer *tokenizer;
    es_token_trie *trie;
    es_matcher *matcher;
    uint8_t *mask;
    uint32_t draws;
} sampler;

static double draw(sampler *s)
{
    return es_random_unit(42, 0, s->draws++, 0);
}

static bool is_allowed(const sampler *s, es_token token)
{
    return s->mask[token / 8] >> (token % 8) & 1;
}

/* A random allowed token; once the text is long mostly one that closes something, else at least a short one. */
static es_token choose(sampler *s, int tokens)
{
    es_token chosen = ES_NO_TOKEN;
    int best = 0, seen = 0;
    const bool close = draw(s) < 0.6;
    for (es_token token = 0; token < es_tokenizer_size(s->tokenizer); token++) {
        size_t bytes;
        if (!is_allowed(s, token)) continue;
        const char *text = es_tokenizer_piece(s->tokenizer, token, &bytes);
        const int rank = tokens < LONG || bytes != 1 ? 1 : close && strchr("\"}]", *text) ? 3 : 2;
        if (rank > best) best = rank, seen = 0;
        if (rank == best && draw(s) * ++seen < 1) chosen = token;
    }
    return chosen;
}

/* False with a message when a promise of grammar.h was broken. */
static bool sample(sampler *s, const es_grammar *grammar, es_text *text)
{
    es_text_clear(text);
    if (es_matcher_start(s->matcher, grammar) != ES_OK) return false;
    for (int tokens = 0; tokens < LONGEST; tokens++) {
        const bool complete = es_matcher_is_complete(s->matcher);
        if (complete && (tokens >= LONG || draw(s) < 0.3 || !es_matcher_can_go_on(s->matcher))) return true;
        if (es_matcher_mask(s->matcher, s->mask) != ES_OK) return false;
        const es_token token = choose(s, tokens);
        if (token == ES_NO_TOKEN) {
            fprintf(stderr, "nothing is allowed behind: %s\n", text->data ? text->data : "");
            return false;
        }
        size_t bytes;
        const char *piece = es_tokenizer_piece(s->tokenizer, token, &bytes);
        if (es_matcher_take(s->matcher, token) != ES_OK) {
            fprintf(stderr, "the mask allows a token that the matcher does not take behind: %s\n",
                    text->data ? text->data : "");
            return false;
        }
        es_text_append(text, piece, bytes);
    }
    fprintf(stderr, "no end after: %.200s\n", text->data);
    return false;
}

static es_status convert(const char *line, es_text *gbnf)
{
    json_error_t error;
    json_t *schema = json_loads(line, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!schema) return es_fail(ES_INVALID, "no JSON: %s", error.text);
    es_text_clear(gbnf);
    es_grammar_add_json(gbnf);
    const es_status status = es_grammar_add_schema(gbnf, "root", "schema", schema);
    json_decref(schema);
    return status;
}

static int one_line(sampler *s, const char *line, int count, es_text *gbnf)
{
    es_grammar *grammar;
    es_text text = {0};
    json_t *answer = json_array();
    es_status status = convert(line, gbnf);
    if (status == ES_OK) status = es_grammar_compile(gbnf->data, gbnf->bytes, es_token_trie_writable(s->trie), 0, &grammar);
    if (status != ES_OK) {
        json_decref(answer);
        answer = json_pack("{s:s}", "refused", es_error_message());
    }
    bool kept = true;
    for (int i = 0; status == ES_OK && i < count && kept; i++) {
        kept = sample(s, grammar, &text);
        json_array_append_new(answer, json_stringn(text.data ? text.data : "", text.bytes));
    }
    if (!kept) fprintf(stderr, "%s\n", line);
    if (status == ES_OK) es_grammar_close(grammar);
    json_dumpf(answer, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(answer);
    es_text_free(&text);
    return kept ? 0 : 1;
}

int main(int argc, char **argv)
{
    static char line[1 << 20];
    es_text gbnf = {0};
    es_model *model;
    sampler s = {0};
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "--gbnf") == 0) {
        const size_t n = fread(line, 1, sizeof line - 1, stdin);
        line[n] = '\0';
        if (convert(line, &gbnf) == ES_OK)
            puts(gbnf.data);
        else
            printf("%s\n", es_error_message());
        return 0;
    }
    if (es_model_open(NULL, &model) != ES_OK) return fprintf(stderr, "%s\n", es_error_message()), 2;
    const int32_t vocabulary = es_model_get_info(model)->vocabulary;
    size_t stop_count;
    const es_token *stops = es_model_stop_tokens(model, &stop_count);
    s.tokenizer = es_model_tokenizer(model);
    s.mask = malloc((size_t)vocabulary / 8 + 1);
    if (!s.mask || es_token_trie_open(s.tokenizer, stops, stop_count, vocabulary, &s.trie) != ES_OK ||
        es_matcher_open(s.trie, &s.matcher) != ES_OK)
        return 2;
    while (fgets(line, sizeof line, stdin)) failed |= one_line(&s, line, argc > 1 ? atoi(argv[1]) : 3, &gbnf);
    es_matcher_close(s.matcher);
    es_token_trie_close(s.trie);
    es_model_close(model);
    free(s.mask);
    es_text_free(&gbnf);
    return failed;
}
