/* Masks: exactly those tokens are allowed that the grammar can go on with, in every state, within fixed memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "text/grammar_matcher.h"
#include "text/grammar_schema.h"
#include "text/tokenizer_source.h"

typedef struct fixture {
    es_tokenizer *tokenizer;
    es_token_trie *trie;
    es_matcher *matcher, *other;
    es_token size;
    uint8_t *mask, *again;
    uint32_t draws;
} fixture;

/* A vocabulary with what makes masks hard: all bytes but one, words, blanks, quotes, escapes, halves of characters, a stop
 * token, a special one, a token twice, and one that needs the byte that nothing writes alone (the letter z). */
static const char *const words[] = {
    "the",
    " the",
    "ab",
    "abc",
    "abcd",
    "abcabcabc",
    " a",
    "  ",
    "    ",
    "\n\n",
    "\",",
    "\":",
    "\"}",
    "\\n",
    "\\\"",
    "\\u",
    "a\"",
    "a\", \"",
    "true",
    "null",
    "12",
    "123",
    "0.",
    "-1",
    "{\"",
    "[]",
    "]]",
    "}}",
    "\xC3\xA4",
    "\xC3",
    "\xE4\xB8",
    "\xE4\xB8\xAD",
    "a\xC3",
    "\xF0\x9F\x98\x80x",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "zab",
    "z\"",
    "\x7F",
    "</think>",
    "longer words of several letters",
    "AB",
    "ABCDEFGH",
    "ABCD1",
    "ABCDE_",
    "AB-1",
    "AB\"",
    "ABCDEF\xC3\xA4",
    " XYZ",
    "12345678",
    "\"a",
    "\": \"",
    ", \"",
    "\t\t",
    "-",
    "e+",
    "\xB8\xAD",
    "\xAD\"",
};

static void add_token(es_token_source *tokens, int32_t *count, const char *text, size_t bytes, es_token_kind kind)
{
    static char texts[1024][128];
    es_text out = {0};
    for (size_t i = 0; i < bytes && kind == ES_TOKEN_NORMAL; i++) { /* in the alphabet of vocabulary files */
        const int byte = (unsigned char)text[i];
        int next = 256, code = byte;
        for (int b = 0; b <= byte; b++) {
            const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            code = prints ? b : next++;
        }
        es_text_put_codepoint(&out, (unsigned)code);
    }
    if (kind != ES_TOKEN_NORMAL) es_text_append(&out, text, bytes);
    assert_true(out.bytes < sizeof texts[0]);
    memcpy(texts[*count], out.data, out.bytes + 1);
    tokens[*count] = (es_token_source){.text = texts[*count], .bytes = out.bytes, .kind = kind};
    ++*count;
    es_text_free(&out);
}

static int open_fixture(void **state)
{
    static fixture f;
    static es_token_source tokens[1024];
    int32_t count = 0;
    f = (fixture){.draws = 0};
    for (int byte = 0; byte < 256; byte++) {
        const char one = (char)byte;
        if (byte != 'z') add_token(tokens, &count, &one, 1, ES_TOKEN_NORMAL);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        add_token(tokens, &count, words[i], strlen(words[i]), ES_TOKEN_NORMAL);
    for (int i = 0; i < 300; i++) { /* pairs, so that there are many ordinary ones */
        const char pair[] = {(char)('a' + i % 20), (char)('a' + i / 20 % 20), ' '};
        add_token(tokens, &count, pair, i % 3 ? 2 : 3, ES_TOKEN_NORMAL);
    }
    add_token(tokens, &count, "<|end|>", 7, ES_TOKEN_CONTROL);
    const es_tokenizer_source source = {
        .where = "test", .tokens = tokens, .size = count, .split = ES_SPLIT_GPT2, .bos = ES_NO_TOKEN, .eos = count - 1};
    if (es_tokenizer_build(&source, &f.tokenizer) != ES_OK) fail_msg("%s", es_error_message());
    const es_token stops[] = {count - 1, 300};
    assert_int_equal(es_token_trie_open(f.tokenizer, stops, 2, count + 5, &f.trie), ES_OK);
    assert_int_equal(es_matcher_open(f.trie, &f.matcher), ES_OK);
    assert_int_equal(es_matcher_open(f.trie, &f.other), ES_OK);
    f.size = count;
    f.mask = calloc(1, (size_t)count / 8 + 2);
    f.again = calloc(1, (size_t)count / 8 + 2);
    *state = &f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    es_matcher_close(f->matcher);
    es_matcher_close(f->other);
    es_token_trie_close(f->trie);
    es_tokenizer_close(f->tokenizer);
    free(f->mask);
    free(f->again);
    return 0;
}

static es_grammar *compile(const fixture *f, const char *text)
{
    es_grammar *grammar = NULL;
    es_text gbnf = {0};
    if (*text == '{') {
        json_t *schema = json_loads(text, 0, NULL);
        es_grammar_add_json(&gbnf);
        assert_int_equal(es_grammar_add_schema(&gbnf, "root", "schema", schema), ES_OK);
        json_decref(schema);
    } else {
        es_text_puts(&gbnf, text);
    }
    if (es_grammar_compile(gbnf.data, gbnf.bytes, es_token_trie_writable(f->trie), 0, &grammar) != ES_OK)
        fail_msg("%s: %s", text, es_error_message());
    es_text_free(&gbnf);
    return grammar;
}

static bool is_set(const uint8_t *mask, es_token token)
{
    return mask[token / 8] >> (token % 8) & 1;
}

/* A random one of those allowed. */
static es_token draw(fixture *f)
{
    es_token chosen = ES_NO_TOKEN;
    int seen = 0;
    for (es_token t = 0; t < f->size; t++)
        if (is_set(f->mask, t) && es_random_unit(1, 0, f->draws++, 0) * ++seen < 1) chosen = t;
    return chosen;
}

/* Each token tried on its own: the matcher is put back behind the text after it. */
static void check_mask(fixture *f, const char *grammar, const es_text *text)
{
    const uint32_t set = f->matcher->set;
    for (es_token t = 0; t < f->size; t++) {
        size_t bytes;
        const char *piece = es_tokenizer_piece(f->tokenizer, t, &bytes);
        const bool never = es_tokenizer_is_special(f->tokenizer, t) || t == 300;
        const bool takes = !never && es_matcher_take_bytes(f->matcher, piece, bytes) == ES_OK;
        f->matcher->set = set;
        if (takes != is_set(f->mask, t))
            fail_msg("%s: behind '%s' the token '%.*s' is %s", grammar, text->data ? text->data : "", (int)bytes, piece,
                     takes ? "forbidden, and may come" : "allowed, and may not come");
    }
    for (es_token t = f->size; t < f->size + 5; t++) assert_false(is_set(f->mask, t));
}

/* As if memory had become short; and what is no longer in use is spoilt. */
static void forget(es_matcher *m)
{
    es_match_make_room(m, true);
    memset(m->returns + m->return_count, 0x5A, (ES_MATCH_RETURNS - m->return_count) * sizeof *m->returns);
    memset(m->entries + m->entry_count, 0x5A, (ES_MATCH_ENTRIES - m->entry_count) * sizeof *m->entries);
    memset(m->items + m->item_count, 0x5A, (ES_MATCH_ITEMS - m->item_count) * sizeof *m->items);
}

static void walk(fixture *f, const char *grammar_text, int steps, bool check)
{
    es_grammar *grammar = compile(f, grammar_text);
    es_text text = {0};
    assert_int_equal(es_matcher_start(f->matcher, grammar), ES_OK);
    for (int i = 0; i < steps && es_matcher_can_go_on(f->matcher); i++) {
        assert_int_equal(es_matcher_mask(f->matcher, f->mask), ES_OK);
        if (check) check_mask(f, grammar_text, &text);
        if (i % 16 == 15) forget(f->matcher);
        const es_token token = draw(f);
        if (token == ES_NO_TOKEN) fail_msg("%s: nothing is allowed behind '%s'", grammar_text, text.data);
        size_t bytes;
        const char *piece = es_tokenizer_piece(f->tokenizer, token, &bytes);
        es_text_append(&text, piece, bytes);
        assert_int_equal(es_matcher_take(f->matcher, token), ES_OK);
    }
    /* A matcher that reads it all at once stands at the same place. */
    assert_int_equal(es_matcher_mask(f->matcher, f->mask), ES_OK);
    assert_int_equal(es_matcher_start(f->other, grammar), ES_OK);
    if (text.bytes) assert_int_equal(es_matcher_take_bytes(f->other, text.data, text.bytes), ES_OK);
    assert_int_equal(es_matcher_mask(f->other, f->again), ES_OK);
    assert_memory_equal(f->mask, f->again, (size_t)f->size / 8 + 1);
    assert_int_equal(es_matcher_is_complete(f->matcher), es_matcher_is_complete(f->other));
    es_text_free(&text);
    es_grammar_close(grammar);
}

static void a_mask_allows_exactly_what_can_follow(void **state)
{
    static const char *const grammars[] = {
        "{\"type\": \"object\"}",
        "{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 5}",
        "{\"type\": \"string\", \"maxLength\": 30}",
        "{\"anyOf\": [{\"enum\": [\"abc\", \"the\", \"abcabcabcabc\"]}, {\"type\": \"string\", \"maxLength\": 4}, {\"type\": "
        "\"integer\"}]}",
        "{\"type\": \"string\", \"pattern\": \"^ab.{0,3}a\\\"?$\"}",
        "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}",
        "{\"properties\": {\"a\": {\"type\": \"number\", \"minimum\": -1.5}, \"ab\": {\"type\": \"string\"}}, "
        "\"additionalProperties\": true}",
        "root ::= [^\\n]+ \"\\n\" | .{2,4} \"abc\"",
        "root ::= (\"a\" [^\\\"] | [^a] .)*",
        "root ::= [A-Z_] [A-Z0-9_]{0,6} (\" \" [A-Z]+)* \";\"",
        "root ::= ([A-Z]* \"-\" [0-9]{2,4})+",
        "root ::= [A-Z] ([A-Z]{0,3} | [A-Z]{2,7} \"1\") [A-Za-y \xC3\xA4]*",
        "root ::= \"[\" root* \"]\" | [^\\\\\\\"]{0,20} \"the\"",
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++)
        for (int run = 0; run < 2; run++) walk(f, grammars[i], 15, true);
}

static void long_answers_fit_a_matchers_memory(void **state)
{
    static const char *const grammars[] = {
        "root ::= ([a-y]{1,40} \" \")+",
        "root ::= \"[\" root root \"]\" | \"a\" root | \"b\"",
        "{\"type\": \"object\"}",
        "root ::= (\"x\" | \"y\" root \"y\" | \"y\" root \"q\" | [a-c]{2,9})+ \".\"",
        "{\"type\": \"array\", \"items\": {\"type\": \"string\", \"maxLength\": 300}}",
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) walk(f, grammars[i], 600, false);
}

/* So deep and no deeper; and from the deepest place there is a way back. */
static void depth_is_bounded_and_never_a_dead_end(void **state)
{
    fixture *f = *state;
    es_grammar *grammar =
        compile(f, "root ::= \"[\" (root \",\"?){0,9} tail | \"(\" root+ \")\"\ntail ::= close\nclose ::= \"]\"");
    int depth = 0;
    assert_int_equal(es_matcher_start(f->matcher, grammar), ES_OK);
    while (es_matcher_take_bytes(f->matcher, "[", 1) == ES_OK) {
        depth++;
        if (depth % 8) continue;
        assert_int_equal(es_matcher_take_bytes(f->matcher, "(((!", 4), ES_INVALID); /* leaves behind what was tried */
        if (depth % 24 == 0) forget(f->matcher);
    }
    assert_in_range(depth, 50, ES_GRAMMAR_DEPTH_MAX);
    for (int i = 0; i < depth; i++) {
        assert_false(es_matcher_is_complete(f->matcher));
        assert_int_equal(es_matcher_take_bytes(f->matcher, "]", 1), ES_OK);
    }
    assert_true(es_matcher_is_complete(f->matcher));
    es_grammar_close(grammar);
}

/* A byte that the vocabulary cannot write is done without, and where that cannot be the grammar is refused. */
static void what_no_token_writes_is_never_needed(void **state)
{
    fixture *f = *state;
    static const char needed[] = "root ::= \"a\" [z]";
    es_grammar *grammar;
    assert_int_equal(es_grammar_compile(needed, sizeof needed - 1, es_token_trie_writable(f->trie), 0, &grammar), ES_INVALID);
    grammar = compile(f, "root ::= \"a\" [y-z] \"b\"");
    assert_int_equal(es_matcher_start(f->matcher, grammar), ES_OK);
    assert_int_equal(es_matcher_take_bytes(f->matcher, "az", 2), ES_INVALID);
    assert_int_equal(es_matcher_take_bytes(f->matcher, "ayb", 3), ES_OK);
    es_grammar_close(grammar);
}

/* However many ways there are to read a text, memory is what it was; if it does not do, that is said. */
static void ambiguity_is_bounded(void **state)
{
    static const char *const grammars[] = {
        "root ::= (\"a\" | \"a\" root \"a\" | root2)+\nroot2 ::= \"a\" root \"b\" | \"a\" root2 \"a\"? | \"a\"",
        "root ::= ([a-y]{0,1000} [a-y]{0,1000} [a-y]{0,1000}){1000}",
        "root ::= (a a a a)*\na ::= (\"a\"? \"aa\"? \"aaa\"?){0,500} | \"a\" a a",
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        es_grammar *grammar = compile(f, grammars[i]);
        es_status status = es_matcher_start(f->matcher, grammar);
        for (int step = 0; step < 60 && status == ES_OK; step++) {
            status = es_matcher_mask(f->matcher, f->mask);
            if (status == ES_OK) status = es_matcher_take_bytes(f->matcher, "a", 1);
        }
        assert_true(status == ES_OK || status == ES_UNSUPPORTED);
        es_grammar_close(grammar);
    }
    es_text rules = {0}; /* much to do for each byte of a token: it is broken off */
    es_text_puts(&rules, "root ::= ([a-y] e){0,1000}\ne ::=");
    for (int i = 0; i < 8000; i++) es_text_puts(&rules, " \"\"?");
    es_grammar *grammar = compile(f, rules.data);
    assert_int_equal(es_matcher_start(f->matcher, grammar), ES_OK);
    assert_int_equal(es_matcher_mask(f->matcher, f->mask), ES_UNSUPPORTED);
    assert_true(f->matcher->work < 1 << 20);
    es_grammar_close(grammar);
    es_text_free(&rules);
    es_text many = {0}; /* more ways at once than there is room for, behind the first byte */
    es_text_puts(&many, "root ::= \"a\" (");
    for (int i = 0; i < ES_MATCH_PLACES + 10; i++) es_text_printf(&many, "%s\"b%d\" [x]", i ? " | " : "", i);
    es_text_puts(&many, ")");
    grammar = compile(f, many.data);
    assert_int_equal(es_matcher_start(f->matcher, grammar), ES_OK);
    assert_int_equal(es_matcher_mask(f->matcher, f->mask), ES_UNSUPPORTED);
    assert_int_equal(es_matcher_take_bytes(f->matcher, "ab1", 3), ES_UNSUPPORTED);
    es_grammar_close(grammar);
    es_text_free(&many);
}

static void newlines_may_come_before_if_asked_for(void **state)
{
    static const char text[] = "root ::= \"a\"";
    fixture *f = *state;
    es_grammar *grammar;
    assert_int_equal(es_grammar_compile(text, sizeof text - 1, NULL, ES_GRAMMAR_LINES_BEFORE, &grammar), ES_OK);
    static const char *const yes[] = {"a", "\na", "\n\na"}, *const no[] = {"\n\n\na", " a", "aa"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(es_matcher_start(f->matcher, grammar), ES_OK);
        assert_int_equal(es_matcher_take_bytes(f->matcher, yes[i], strlen(yes[i])), ES_OK);
        assert_true(es_matcher_is_complete(f->matcher));
        assert_int_equal(es_matcher_start(f->matcher, grammar), ES_OK);
        assert_int_equal(es_matcher_take_bytes(f->matcher, no[i], strlen(no[i])), ES_INVALID);
    }
    es_grammar_close(grammar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_allows_exactly_what_can_follow),
        cmocka_unit_test(long_answers_fit_a_matchers_memory),
        cmocka_unit_test(depth_is_bounded_and_never_a_dead_end),
        cmocka_unit_test(what_no_token_writes_is_never_needed),
        cmocka_unit_test(ambiguity_is_bounded),
        cmocka_unit_test(newlines_may_come_before_if_asked_for),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
