/* Schemas as grammars: what a grammar allows, its schema allows; what a schema says and nobody here understands is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "text/grammar.h"
#include "text/grammar_schema.h"

typedef struct example {
    const char *schema;
    const char *yes[8], *no[10];
} example;

static const example examples[] = {
    {"true",                                                                                                                 {"1", "\"a\"", "{\"a\": [1, {}]}", "null", "-1.5e3"},                                          {"", "01", "{", "[1,]", "nul", "1."}},
    {"{\"type\": \"object\"}",
     {"{}", "{ }", "{\"a\":1}", "{\n  \"a\": {\"b\": []}\n}"},
     {"[]", "1", "{\"a\"}", "{\"a\":1,}", "{a:1}"}                                                                                                                                                                                                              },
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"\xC3\xA4\xF0\x9F\x98\x80\xE4\xB8\xAD\"", "\"\\n\\u00e4\""},
     {"\"a\"", "\"abcd\"", "\"a\nb\"", "\"\\ud83d\"", "\"\\x41\"", "\"a\\\""}                                                                                                                                                                                   },
    {"{\"type\": [\"integer\", \"null\"]}",
     {"0", "-7", "null", "123456789012345"},
     {"1.0", "00", "-", "1234567890123456", "true"}                                                                                                                                                                                                             },
    {"{\"type\": \"integer\", \"minimum\": 7, \"maximum\": 1203}",
     {"7", "9", "10", "99", "999", "1000", "1199", "1203"},
     {"6", "1204", "1300", "07", "-7", "2000", "10000", "1"}                                                                                                                                                                                                    },
    {"{\"type\": \"integer\", \"exclusiveMinimum\": -12, \"exclusiveMaximum\": 3}",
     {"-11", "-9", "-1", "0", "2"},
     {"-12", "-20", "3", "-0", "10", "-100"}                                                                                                                                                                                                                    },
    {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 0, \"maximum\": 30}",
     {"0", "7", "14", "28"},
     {"1", "35", "6", "-7"}                                                                                                                                                                                                                                     },
    {"{\"type\": \"number\", \"minimum\": 1.25, \"exclusiveMaximum\": 3.5}",
     {"1.25", "1.250", "1.3", "2", "2.0001", "3", "3.4999", "3.49"},
     {"1.2", "1", "3.5", "3.50", "4", "1.24", "0", "-2", "3.51", "12"}                                                                                                                                                                                          },
    {"{\"type\": \"number\", \"exclusiveMinimum\": -0.5, \"maximum\": 0.125}",
     {"-0.49", "0", "0.1", "0.125", "-0.001", "0.12", "0.09"},
     {"-0.5", "-0.50", "0.13", "1", "-1", "0.1251", "-0.51", "0.2"}                                                                                                                                                                                             },
    {"{\"type\": \"number\", \"minimum\": 0}",                                                                               {"0", "12.5", "0.001", "123456789.125"},                                                       {"-1", "-0.5", ".5", "1.", "-"}     },
    {"{\"enum\": [1, \"a\", null, [true, {\"k\": 1.5}]]}",
     {"1", "\"a\"", "null", "[true, {\"k\": 1.5}]"},
     {"2", "\"b\"", "[]", "true"}                                                                                                                                                                                                                               },
    {"{\"const\": \"it's \\\"so\\\"\"}",                                                                                     {"\"it's \\\"so\\\"\""},                                                                       {"\"it's\"", "1"}                   },
    {"{\"type\": \"string\", \"enum\": [\"a\", 1, \"bb\"], \"maxLength\": 1}",                                               {"\"a\""},                                                                                     {"1", "\"bb\""}                     },
    {"{\"type\": \"string\", \"pattern\": \"^[A-Z]{2}-\\\\d+$\"}",
     {"\"AB-1\"", "\"XY-0042\""},
     {"\"A-1\"", "\"AB-\"", "\"AB-1x\"", "\"xAB-1\""}                                                                                                                                                                                                           },
    {"{\"type\": \"string\", \"pattern\": \"b{2}|^c\"}",                                                                     {"\"abba\"", "\"bb\"", "\"cx\""},                                                              {"\"aba\"", "\"xc\"", "\"b\""}      },
    {"{\"type\": \"string\", \"pattern\": \"^[^a]\\\"\\\\\\\\[\\\\n]$\"}",
     {"\"b\\\"\\\\\\n\""},
     {"\"a", "\"b\"", "\"b\\\"\\\\n"}                                                                                                                                                                                                                           },
    {"{\"type\": \"string\", \"pattern\": \"^[a-z]+$\", \"minLength\": 2, \"maxLength\": 4}",
     {"\"ab\"", "\"abcd\""},
     {"\"a\"", "\"abcde\"", "\"A\""}                                                                                                                                                                                                                            },
    {"{\"type\": \"string\", \"pattern\": \"^(x|yz)(ab)*c?$\", \"minLength\": 4, \"maxLength\": 7}",
     {"\"yzababc\"", "\"xabab\""},
     {"\"x\"", "\"xab\"", "\"xababab\"", "\"yz\""}                                                                                                                                                                                                              },
    {"{\"type\": \"string\", \"pattern\": \"^[0-9]{3}$\", \"maxLength\": 3}",                                                {"\"123\""},                                                                                   {"\"12\"", "\"1234\""}              },
    {"{\"type\": \"string\", \"format\": \"date\", \"minLength\": 10}",                                                      {"\"2024-02-28\""},                                                                            {"\"2024-02-30\""}                  },
    {"{\"type\": \"string\", \"format\": \"date\"}",
     {"\"2024-02-28\"", "\"1999-12-31\""},
     {"\"2024-02-30\"", "\"2024-13-01\"", "\"2024-1-1"}                                                                                                                                                                                                         },
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 3}",
     {"[1]", "[ 1, 2 ]", "[1,2,3]"},
     {"[]", "[1,2,3,4]", "[null]", "[1,]", "[,1]"}                                                                                                                                                                                                              },
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, {\"const\": 2}], \"items\": {\"const\": 3}, \"minItems\": 1}",
     {"[1]", "[1,2]", "[1,2,3,3]"},
     {"[]", "[2]", "[1,3]", "[1,2,2]"}                                                                                                                                                                                                                          },
    {"{\"type\": \"array\", \"uniqueItems\": true, \"minItems\": 1, \"maxItems\": 2, \"items\": {\"type\": \"string\", "
     "\"enum\": [\"a\", \"b\", \"c\"]}}",                                                                               {"[\"a\"]", "[\"a\", \"c\"]", "[\"b\",\"c\"]"},
     {"[]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"c\"]", "[\"d\"]"}                                                                                                                                                                                                  },
    {"{\"type\": \"integer\", \"multipleOf\": 7}",
     {"0", "7", "-14", "700", "100000000000005"},
     {"1", "-1", "07", "8", "-0", "7000000000000000"}                                                                                                                                                                                                           },
    {"{\"type\": \"integer\", \"multipleOf\": 25, \"minimum\": 0}",                                                          {"0", "25", "1075"},                                                                           {"-25", "10", "26"}                 },
    {"{\"type\": \"array\", \"maxItems\": 0}",                                                                               {"[]", "[ ]"},                                                                                 {"[1]"}                             },
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}, \"c\": {\"const\": 3}}, "
     "\"required\": [\"b\"]}",                                                                                          {"{\"b\": 2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{ \"a\": 1, \"b\": 2, \"c\": 3 }"},
     {"{}", "{\"a\":1}", "{\"b\":2,\"a\":1}", "{,", "{\"b\":2,}", "{\"b\":2,\"d\":1}", "{\"b\":1}", "{\"a\":1 ,\"b\":2}"}                                                                                                                                       },
    {"{\"type\": \"object\", \"properties\": {\"ab\": {\"const\": 1}, \"abc\": {\"const\": 2}}, \"additionalProperties\": "
     "{\"const\": 0}}",                                                                                                 {"{}", "{\"ab\":1}", "{\"a\":0}", "{\"ab\":1,\"abd\":0,\"x\":0}", "{\"\":0}", "{\"abcd\":0}"},
     {"{\"ab\":0}", "{\"abc\":0}", "{\"a\":1}", "{\"x\":0,\"ab\":1}", "{\"\\u0061\":0}"}                                                                                                                                                                        },
    {"{\"type\": \"object\", \"properties\": {\"a\": true, \"b\": true, \"c\": true}, \"minProperties\": 2, "
     "\"maxProperties\": 2}",                                                                                           {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"}                                                                                                                                                                                              },
    {"{\"type\": \"object\", \"required\": [\"z\"]}",                                                                        {"{\"z\": [1]}"},                                                                              {"{}", "{\"y\":1}"}                 },
    {"{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"n\": {\"anyOf\": [{\"$ref\": "
     "\"#/$defs/n\"}, {\"type\": \"null\"}]}}, \"required\": [\"n\"], \"additionalProperties\": false}}}",              {"{\"n\":null}", "{\"n\":{\"n\":{\"n\":null}}}"},
     {"{}", "{\"n\":1}", "null"}                                                                                                                                                                                                                                },
    {"{\"allOf\": [{\"type\": \"integer\", \"minimum\": 3}, {\"maximum\": 5}, {\"type\": \"number\"}]}",
     {"3", "4", "5"},
     {"2", "6", "4.5"}                                                                                                                                                                                                                                          },
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"string\"}}, \"anyOf\": "
     "[{\"required\": [\"a\"]}, {\"required\": [\"b\"]}]}",                                                             {"{\"a\":1}", "{\"b\":\"x\"}", "{\"a\":1,\"b\":\"x\"}"},
     {"{}", "{\"b\":1}"}                                                                                                                                                                                                                                        },
    {"{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"a\"}, \"v\": {\"type\": \"integer\"}}, "
     "\"required\": [\"k\", \"v\"]}, {\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"b\"}}, \"required\": "
     "[\"k\"]}]}",                                                                                                      {"{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"a\"}", "{\"k\":\"b\",\"v\":1}", "{\"k\":\"c\"}"}                                                                                                                                                                                                },
    {"{\"type\": \"string\", \"nullable\": true, \"title\": \"T\", \"x-order\": 3, \"examples\": [1]}",
     {"null", "\"\""},
     {"1"}                                                                                                                                                                                                                                                      },
    {"{\"$ref\": \"#/definitions/a~1b\", \"definitions\": {\"a/b\": {\"enum\": [7]}}}",                                      {"7"},                                                                                         {"8"}                               },
    {"{\"not\": {\"type\": [\"string\", \"integer\"]}}", {"null", "true", "[]", "{}"}, {"\"a\"", "1", "1.5"}},
    {"{\"type\": \"string\", \"not\": {\"enum\": [\"ab\", \"b\", 5]}}", {"\"\"", "\"a\"", "\"abc\"", "\"c\""}, {"\"ab\"", "\"b\"", "5", "6"}},
    {"{\"enum\": [1, 2, \"a\", \"b\", [1], [2]], \"not\": {\"enum\": [2, \"b\", [1]]}}", {"1", "\"a\"", "[2]"}, {"2", "\"b\"", "[1]"}},
    {"{\"type\": [\"boolean\", \"integer\"], \"not\": {\"anyOf\": [{\"const\": true}, {\"minimum\": 5}]}}", {"4", "-1"}, {"true", "false", "5"}},
    {"{\"type\": \"boolean\", \"not\": {\"const\": true}}", {"false"}, {"true"}},
    {"{\"type\": \"string\", \"not\": {\"minLength\": 2}}", {"\"\"", "\"a\""}, {"\"ab\""}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"not\": {\"maxItems\": 1}}", {"[1,2]", "[1,2,3]"}, {"[]", "[1]"}},
    {"{\"type\": \"integer\", \"not\": {\"minimum\": 3, \"exclusiveMinimum\": true}}", {"3", "-7"}, {"4"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [1, 2]}, \"b\": {\"type\": \"null\"}}, \"not\": {\"required\": [\"a\", \"b\"]}}",
     {"{}", "{\"a\":1}", "{\"b\":null}"},
     {"{\"a\":1,\"b\":null}"}},
    {"{\"type\": \"object\", \"properties\": {\"c\": {\"enum\": [\"x\", \"y\", \"z\"]}, \"v\": {\"type\": [\"integer\", \"null\"]}}, \"required\": [\"c\"], "
     "\"if\": {\"properties\": {\"c\": {\"const\": \"x\"}}}, \"then\": {\"required\": [\"v\"]}, \"else\": {\"properties\": {\"v\": {\"type\": \"null\"}}}}",
     {"{\"c\":\"x\",\"v\":1}", "{\"c\":\"x\",\"v\":null}", "{\"c\":\"y\"}", "{\"c\":\"z\",\"v\":null}"},
     {"{\"c\":\"x\"}", "{\"c\":\"y\",\"v\":1}", "{\"c\":\"q\"}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}, \"dependentRequired\": {\"a\": [\"b\"]}}",
     {"{}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"type\": \"integer\"}}, \"dependentSchemas\": {\"a\": {\"properties\": "
     "{\"b\": {\"minimum\": 5}}}}}",
     {"{}", "{\"b\":2}", "{\"a\":1,\"b\":7}", "{\"a\":1}"},
     {"{\"a\":1,\"b\":2}"}},
    {"{\"type\": \"array\", \"items\": {\"enum\": [1, 2, \"a\"]}, \"contains\": {\"type\": \"integer\"}, \"minContains\": 2, \"maxContains\": 2}",
     {"[1,2]", "[2,2,\"a\"]"},
     {"[]", "[1]", "[1,\"a\"]", "[1,2,1]"}},
    {"{\"oneOf\": [{\"type\": \"integer\", \"minimum\": 0}, {\"type\": \"integer\", \"maximum\": 10}]}", {"-1", "11", "12"}, {"0", "5", "10"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"uniqueItems\": true}", {"[]", "[true]", "[false,true]"}, {"[true,true]", "[1]"}},
    {"{\"type\": \"integer\", \"multipleOf\": 0.01, \"minimum\": 3, \"maximum\": 12}", {"3", "12"}, {"2", "3.5", "13"}},
};

static es_status compile(const char *text, es_grammar **grammar)
{
    es_text gbnf = {0};
    json_t *schema = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!schema) fail_msg("no JSON: %s", text);
    es_grammar_add_json(&gbnf);
    es_status status = es_grammar_add_schema(&gbnf, "root", "schema", schema);
    if (status == ES_OK) status = es_grammar_compile(gbnf.data, gbnf.bytes, NULL, 0, grammar);
    es_text_free(&gbnf);
    json_decref(schema);
    return status;
}

static bool is_sentence(es_matcher *matcher, const es_grammar *grammar, const char *text)
{
    assert_int_equal(es_matcher_start(matcher, grammar), ES_OK);
    return es_matcher_take_bytes(matcher, text, strlen(text)) == ES_OK && es_matcher_is_complete(matcher);
}

static void a_schema_allows_these_texts_and_not_those(void **state)
{
    (void)state;
    es_matcher *matcher;
    assert_int_equal(es_matcher_open(NULL, &matcher), ES_OK);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        es_grammar *grammar;
        if (compile(examples[i].schema, &grammar) != ES_OK) fail_msg("%s: %s", examples[i].schema, es_error_message());
        for (int y = 0; y < 8 && examples[i].yes[y]; y++)
            if (!is_sentence(matcher, grammar, examples[i].yes[y]))
                fail_msg("%s refuses %s", examples[i].schema, examples[i].yes[y]);
        for (int n = 0; n < 10 && examples[i].no[n]; n++)
            if (is_sentence(matcher, grammar, examples[i].no[n]))
                fail_msg("%s takes %s", examples[i].schema, examples[i].no[n]);
        es_grammar_close(grammar);
    }
    es_matcher_close(matcher);
}

static void what_is_not_understood_is_refused_by_name(void **state)
{
    static const char *const refused[][3] = {
        {"{\"not\": {}}",                                                     "\"not\"",                "schema:"                   },
        {"{\"properties\": {\"a\": {\"items\": {\"if\": {}, \"then\": {}}}}}", "\"if\"",             "schema.properties.a.items:"},
        {"{\"not\": {\"pattern\": \"a\"}}",                                 "\"not\"",                "schema:"                   },
        {"{\"contains\": {}, \"maxContains\": 1}",                          "\"maxContains\"",        "schema:"                   },
        {"{\"type\": \"number\", \"multipleOf\": 0.01}",                    "\"multipleOf\"",         "schema:"                   },
        {"{\"anyOf\": [true, {\"patternProperties\": {}}]}",                  "\"patternProperties\"",  "schema.anyOf[1]:"          },
        {"{\"type\": \"array\", \"uniqueItems\": true}",                      "\"uniqueItems\"",        "schema:"                   },
        {"{\"type\": \"string\", \"format\": \"regex\"}",                     "\"regex\"",              "schema:"                   },
        {"{\"type\": \"string\", \"pattern\": \"(?=a)\"}",                    "looking ahead",          "schema:"                   },
        {"{\"$ref\": \"http://example.com/x\"}",                              "\"$ref\"",               "schema:"                   },
        {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}",    "\"oneOf\"",              "schema:"                   },
        {"{\"type\": \"string\", \"pattern\": \"^a*b*$\", \"maxLength\": 3}", "\"pattern\"",            "schema:"                   },
        {"{\"type\": \"string\", \"pattern\": \"a\", \"maxLength\": 3}",      "\"pattern\"",            "schema:"                   },
        {"{\"\\u0001unlisted\": []}",                                        "unlisted",               "schema:"                   },
        {"{\"madeUp\": 1}",                                                   "\"madeUp\"",             "schema:"                   },
        {"{\"type\": \"thing\"}",                                             "\"type\"",               "schema:"                   },
        {"{\"$ref\": \"#/nowhere\"}",                                         "leads nowhere",          "schema:"                   },
        {"{\"properties\": {\"a\": 5}}",                                      "must be an object",      "schema.properties.a:"      },
        {"{\"minLength\": -1}",                                               "\"minLength\"",          "schema:"                   },
        {"{\"allOf\": [{\"pattern\": \"a\"}, {\"pattern\": \"b\"}]}",         "\"pattern\"",            "schema"                    },
        {"{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 4}",           "no text can ever match", "grammar:"                  },
        {"false",                                                             "no text can ever match", "grammar:"                  },
        {"{\"$ref\": \"#\"}",                                                 "left recursion",         "grammar"                   },
        {"{\"allOf\": [{\"$ref\": \"#\"}, {\"type\": \"object\"}]}",          "without end",            "schema"                    },
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        es_grammar *grammar;
        if (compile(refused[i][0], &grammar) == ES_OK) fail_msg("%s is taken", refused[i][0]);
        if (!strstr(es_error_message(), refused[i][1]) || !strstr(es_error_message(), refused[i][2]))
            fail_msg("%s: the message names neither %s nor %s: %s", refused[i][0], refused[i][1], refused[i][2],
                     es_error_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schema_allows_these_texts_and_not_those),
        cmocka_unit_test(what_is_not_understood_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
