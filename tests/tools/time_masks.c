/* time_masks.c: what a mask costs, over a vocabulary of any size.
 *
 *   time_masks TOKENIZER.json
 *
 * Answers of a few typical forms are walked through token by token (always the longest token that the answer goes on with), as
 * a model would write them, by a matcher that knows nothing of them yet. That is done several times; for each mask the
 * shortest time counts, since the others say what else the machine did. The slowest mask is named by the text behind which it
 * stands. Under `valgrind --tool=callgrind --toggle-collect=es_matcher_mask` the instructions of all masks can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "text/grammar.h"
#include "text/grammar_schema.h"
#include "text/tokenizer_source.h"

enum { MOST_STEPS = 4096, LONGEST = 32, RUNS = 5 };

typedef struct form {
    const char *name, *schema, *grammar, *text;
} form;

static const form forms[] = {
    {"record",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":130},\"email\":{\"type\":\"string\",\"format\":\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":"
     "[\"new\",\"vip\",\"late\"]}},\"note\":{\"type\":\"string\",\"maxLength\":200}},\"required\":[\"name\",\"age\",\"note\"]"
     "}",                                                          NULL,
     "{\"name\": \"Ada Lovelace of the Analytical Society\", \"age\": 36, \"email\": \"ada@example.org\", \"tags\": [\"new\", "
     "\"vip\"], "
     "\"note\": \"She wrote the first program for a machine that was never finished, and saw further than its maker did.\"}" },
    {"any JSON",    "{\"type\":\"object\"}",                       NULL,
     "{\"title\": \"A walk by the sea\", \"scores\": [1, 2.5, -3e4], \"nested\": {\"ok\": true, \"none\": null, \"text\": "
     "\"\\u00e4 line\\nand another one, rather longer than the first\"}, \"list\": [[], {}, \"x\"]}"                         },
    {"recursive",
     "{\"$ref\":\"#/$defs/"
     "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"op\":{\"enum\":[\"add\",\"mul\"]},\"left\":"
     "{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"number\"}]},\"right\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":"
     "\"number\"}]}},\"required\":[\"op\",\"left\",\"right\"]}}}", NULL,
     "{\"op\": \"add\", \"left\": {\"op\": \"mul\", \"left\": 2, \"right\": {\"op\": \"add\", \"left\": 1.5, \"right\": 7}}, "
     "\"right\": -4}"                                                                                                        },
    {"lines",       NULL,                                          "root ::= (\"- \" [^\\n]+ \"\\n\")+",
     "- the quick brown fox jumps over the lazy dog\n- and then it rests a while under the old tree\n- until evening comes\n"},
    {"identifiers", NULL,                                          "root ::= word (\" \" word)* \";\"\nword ::= [a-zA-Z_] [a-zA-Z0-9_]{0,30}",
     "the_quick brown fox jumps over the lazy dog and then it rests a while;"                                                },
};

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void report(const form *f, double *took, int count, size_t slowest)
{
    qsort(took, (size_t)count, sizeof *took, compare);
    printf("%-12s %5d %10.4f %10.4f %10.4f   ...%.*s\n", f->name, count, took[count / 2] * 1e3, took[count * 95 / 100] * 1e3,
           took[count - 1] * 1e3, slowest > 24 ? 24 : (int)slowest, f->text + (slowest > 24 ? slowest - 24 : 0));
}

/* The longest token that the text goes on with. */
static es_token next_token(const es_tokenizer *tokenizer, const char *text)
{
    char piece[LONGEST + 1];
    for (size_t n = strlen(text) < LONGEST ? strlen(text) : LONGEST; n > 0; n--) {
        memcpy(piece, text, n);
        piece[n] = '\0';
        const es_token token = es_tokenizer_find(tokenizer, piece);
        if (token != ES_NO_TOKEN) return token;
    }
    return ES_NO_TOKEN;
}

/* Walks through the text once, keeping the shortest times; false when a mask does not allow it. */
static bool walk(const form *f, const es_tokenizer *tokenizer, es_matcher *matcher, uint8_t *mask, double *took, size_t *where,
                 int *count)
{
    const es_clock clock = es_clock_monotonic();
    int steps = 0;
    for (const char *at = f->text; *at; steps++) {
        const es_token token = next_token(tokenizer, at);
        size_t bytes = 0;
        const uint64_t begin = es_clock_now(&clock);
        if (es_matcher_mask(matcher, mask) != ES_OK) return false;
        const double now = (double)(es_clock_now(&clock) - begin) * 1e-9;
        if (steps >= *count || now < took[steps]) took[steps] = now;
        where[steps] = (size_t)(at - f->text);
        if (token == ES_NO_TOKEN || !(mask[token / 8] >> (token % 8) & 1) || es_matcher_take(matcher, token) != ES_OK)
            return false;
        if (!es_tokenizer_piece(tokenizer, token, &bytes)) return false;
        at += bytes;
    }
    *count = steps;
    return es_matcher_is_complete(matcher);
}

static es_status time_form(const form *f, const es_tokenizer *tokenizer, es_matcher *matcher, const es_grammar *grammar,
                           uint8_t *mask)
{
    static double took[MOST_STEPS];
    static size_t where[MOST_STEPS];
    int count = 0;
    for (int run = 0; run < RUNS; run++) {
        ES_TRY(es_matcher_start(matcher, grammar));
        if (!walk(f, tokenizer, matcher, mask, took, where, &count))
            return es_fail(ES_INTERNAL, "%s: its text is not allowed", f->name);
    }
    int slowest = 0;
    for (int i = 1; i < count; i++)
        if (took[i] > took[slowest]) slowest = i;
    report(f, took, count, where[slowest]);
    return ES_OK;
}

static es_status compile(const form *f, const es_token_trie *trie, es_grammar **grammar)
{
    es_text gbnf = {0};
    es_status status = ES_OK;
    if (f->schema) {
        json_t *schema = json_loads(f->schema, 0, NULL);
        es_grammar_add_json(&gbnf);
        status = es_grammar_add_schema(&gbnf, "root", "schema", schema);
        json_decref(schema);
    } else {
        es_text_puts(&gbnf, f->grammar);
    }
    const es_clock clock = es_clock_monotonic();
    const uint64_t begin = es_clock_now(&clock);
    if (status == ES_OK) status = es_grammar_compile(gbnf.data, gbnf.bytes, es_token_trie_writable(trie), 0, grammar);
    if (status == ES_OK) printf("%-12s compiled in %.3f ms\n", f->name, (double)(es_clock_now(&clock) - begin) * 1e-6);
    es_text_free(&gbnf);
    return status;
}

static es_status run(const es_tokenizer *tokenizer, es_token_trie *trie, es_matcher *matcher)
{
    uint8_t *mask = calloc(1, (size_t)es_tokenizer_size(tokenizer) / 8 + 1);
    es_status status = mask ? ES_OK : es_fail(ES_NO_MEMORY, "no memory for a mask");
    puts("form         masks  median ms     p95 ms     max ms   slowest behind");
    for (size_t i = 0; i < sizeof forms / sizeof *forms && status == ES_OK; i++) {
        es_grammar *grammar;
        status = compile(&forms[i], trie, &grammar);
        if (status != ES_OK) break;
        status = time_form(&forms[i], tokenizer, matcher, grammar, mask);
        es_grammar_close(grammar);
    }
    free(mask);
    return status;
}

int main(int argc, char **argv)
{
    es_tokenizer *tokenizer = NULL;
    es_token_trie *trie = NULL;
    es_matcher *matcher = NULL;
    if (argc != 2) return fputs("Usage: time_masks TOKENIZER.json\n", stderr), 2;
    const es_clock clock = es_clock_monotonic();
    es_status status = es_tokenizer_open_json(argv[1], NULL, &tokenizer);
    const uint64_t begin = es_clock_now(&clock);
    if (status == ES_OK) status = es_token_trie_open(tokenizer, NULL, 0, es_tokenizer_size(tokenizer), &trie);
    if (status == ES_OK)
        printf("%d tokens, their tree built in %.1f ms\n", (int)es_tokenizer_size(tokenizer),
               (double)(es_clock_now(&clock) - begin) * 1e-6);
    if (status == ES_OK) status = es_matcher_open(trie, &matcher);
    if (status == ES_OK) status = run(tokenizer, trie, matcher);
    if (status != ES_OK) fprintf(stderr, "error: %s\n", es_error_message());
    es_matcher_close(matcher);
    es_token_trie_close(trie);
    es_tokenizer_close(tokenizer);
    return es_status_exit_code(status);
}
