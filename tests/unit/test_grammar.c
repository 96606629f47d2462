/* Grammars: what a text may look like is exactly what its grammar says, byte by byte and token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "text/grammar.h"

typedef struct example {
    const char *grammar;
    const char *yes[8], *no[8]; /* whole sentences; texts that are neither sentences nor, at their last byte, beginnings */
} example;

static const example examples[] = {
    {"root ::= (\"ab\" | \"abcd\" | \"abce\" | \"b\" | \"ab\" | \"bcde\") \"!\"",
     {"ab!", "abcd!", "abce!", "b!", "bcde!"},
     {"abc!", "a!", "abcd\x01", "c", "bc!"}                                                                                                                                       },
    {"root ::= \"abc\"",                                                                             {"abc"},                                               {"abd", "b", "abcd"}  },
    {"root ::= \"a\" | \"ab\" | \"b\" \"c\"?",                                                       {"a", "ab", "b", "bc"},                                {"abb", "c", "bcc"}   },
    {"root ::= [a-c]* \"!\"",                                                                        {"!", "a!", "abcabc!"},                                {"d", "a!!"}          },
    {"root ::= [^a-c]",
     {"d", "\xC3\xA9", "\xF0\x9F\x98\x80", "\n"},
     {"a", "b", "c", "dd", "\x80", "\xC0", "\xED\xA0", "\xF4\x90"}                                                                                                                },
    {"root ::= .{2,3}",                                                                              {"\xE4\xB8\xAD\xE6\x96\x87", "abc"},                   {"abcd"}              },
    {"root ::= [\xC3\xA4\xC3\xB6\\u00FC\\x41]+ # umlauts\n",                                         {"\xC3\xA4\xC3\xBC", "A"},                             {"\xC3\xA5", "B"}     },
    {"# comment\nroot ::=\n  item (\",\" # comment in a group\n item)*\nitem ::= [0-9]+ |\n  \"x\"",
     {"1", "12,x,3"},
     {"y", "x1", "1,,"}                                                                                                                                                           },
    {"root ::= (\"ab\"){3}",                                                                         {"ababab"},                                            {"abababa", "aba\x01"}},
    {"root ::= \"ab\"{2,}",                                                                          {"abab", "ababab"},                                    {"b", "aba\x01"}      },
    {"root ::= (\"a\"?){3} \"b\"",                                                                   {"b", "ab", "aaab"},                                   {"aaaa", "c"}         },
    {"root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | \"1\"",
     {"1", "[]", "[[1,[]],1]"},
     {"]", "[,", "[1]]", "11"}                                                                                                                                                    },
    {"root ::= x\nx ::= \"a\" x \"b\" | \"a\" x \"c\" | \"x\"",                                      {"x", "aaaxbcb", "aaxcc"},                             {"b", "axd", "axbb"}  },
    {"root ::= list\nlist ::= \"a\" list | \"\"",                                                    {"", "a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, {"b", "ab"}           },
    {"root ::= a b c\na ::= \"x\"?\nb ::= a a\nc ::= \"y\" | b",                                     {"", "x", "xxxxx", "xxxy", "y"},                       {"xxxxxx", "yy"}      },
    {"root ::= dead | \"ok\"\ndead ::= \"d\" dead",                                                  {"ok"},                                                {"d"}                 },
    {"root ::= \"\\\"\\\\\\n\\t\\r\\[\\]\"",                                                         {"\"\\\n\t\r[]"},                                      {"\\\""}              },
};

static bool takes(es_matcher *matcher, const es_grammar *grammar, const char *text, bool *complete)
{
    assert_int_equal(es_matcher_start(matcher, grammar), ES_OK);
    const bool taken = es_matcher_take_bytes(matcher, text, strlen(text)) == ES_OK;
    *complete = taken && es_matcher_is_complete(matcher);
    return taken;
}

static es_grammar *compile(const char *text)
{
    es_grammar *grammar = NULL;
    if (es_grammar_compile(text, strlen(text), NULL, 0, &grammar) != ES_OK) fail_msg("%s: %s", text, es_error_message());
    return grammar;
}

static void a_grammar_takes_its_sentences_and_no_others(void **state)
{
    (void)state;
    es_matcher *matcher;
    assert_int_equal(es_matcher_open(NULL, &matcher), ES_OK);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        es_grammar *grammar = compile(examples[i].grammar);
        bool complete;
        for (int y = 0; y < 8 && examples[i].yes[y]; y++) {
            const char *text = examples[i].yes[y];
            if (!takes(matcher, grammar, text, &complete) || !complete) fail_msg("%s refuses %s", examples[i].grammar, text);
            for (size_t cut = 0; cut < strlen(text); cut++) { /* every beginning can go on */
                assert_int_equal(es_matcher_start(matcher, grammar), ES_OK);
                assert_int_equal(es_matcher_take_bytes(matcher, text, cut), ES_OK);
                assert_true(es_matcher_can_go_on(matcher));
            }
        }
        for (int n = 0; n < 8 && examples[i].no[n]; n++)
            if (takes(matcher, grammar, examples[i].no[n], &complete))
                fail_msg("%s takes %s", examples[i].grammar, examples[i].no[n]);
        es_grammar_close(grammar);
    }
    es_matcher_close(matcher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_takes_its_sentences_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
