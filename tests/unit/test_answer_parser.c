/* What a model writes is taken apart the same way however it comes in, and nothing of it is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/text.h"
#include "text/answer_parser.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"exact\":{\"type\":\"boolean\"},"
    "\"at\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}},\"where\":{\"$ref\":\"#/$defs/Place\"},"
    "\"maybe\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]},\"level\":{\"enum\":[1,2,\"high\"]},"
    "\"ratio\":{\"type\":[\"number\",\"null\"]}},"
    "\"$defs\":{\"Place\":{\"type\":\"object\"}}}}},"
    "{\"name\":\"stop\"}]";

/* "R:reasoning|C:content|F:name|A:arguments|E", neighbours of one kind joined */
typedef struct transcript {
    es_text text;
    int last;
} transcript;

static void on_part(void *user, es_part part, const char *text, size_t bytes)
{
    transcript *t = user;
    static const char letters[] = "RCFAE";
    if (part != ES_PART_CALL_END) assert_true(bytes > 0);
    if (t->last != (int)part || part == ES_PART_CALL)
        es_text_printf(&t->text, "%s%c", t->text.bytes ? "|" : "", letters[part]);
    if (t->last != (int)part && part != ES_PART_CALL_END) es_text_putc(&t->text, ':');
    t->last = (int)part;
    es_text_append(&t->text, text, bytes);
}

/* The text in pieces of the given sizes, the last one repeated. */
static char *take_apart(es_answer_format format, const char *text, size_t first, size_t then)
{
    transcript t = {.last = -1};
    json_t *tools = json_loads(tools_json, 0, NULL);
    assert_non_null(tools);
    es_answer_parser *parser;
    assert_int_equal(es_answer_parser_open(format, tools, on_part, &t, &parser), ES_OK);
    json_decref(tools);
    const size_t bytes = strlen(text);
    for (size_t at = 0, n = first; at < bytes; at += n, n = then) {
        if (n > bytes - at) n = bytes - at;
        assert_int_equal(es_answer_parser_add(parser, text + at, n), ES_OK);
    }
    assert_int_equal(es_answer_parser_finish(parser), ES_OK);
    es_answer_parser_close(parser);
    if (!t.text.data) es_text_putc(&t.text, '-');
    return t.text.data;
}

/* Whole, cut in two at every byte, and byte by byte: always the same. */
static void check(es_answer_format format, const char *text, const char *expected)
{
    const size_t bytes = strlen(text);
    for (size_t cut = 1; cut <= bytes + 1; cut++) {
        char *seen = cut <= bytes ? take_apart(format, text, cut, bytes) : take_apart(format, text, 1, 1);
        if (strcmp(seen, expected) != 0) print_error("%s\ncut at %zu of %zu\n", text, cut, bytes);
        assert_string_equal(seen, expected);
        free(seen);
    }
}

static const es_answer_format thinking = {.reasoning = ES_REASONING_THINK, .tools = ES_TOOLS_XML, .in_reasoning = true},
                              qwen = {.reasoning = ES_REASONING_THINK, .tools = ES_TOOLS_XML}, xml = {.tools = ES_TOOLS_XML},
                              hermes = {.tools = ES_TOOLS_HERMES}, llama = {.tools = ES_TOOLS_LLAMA}, plain = {.tools = ES_TOOLS_NONE};

static void reasoning_is_split_from_the_answer(void **state)
{
    (void)state;
    check(qwen, "<think>\nhm,\nhm\n</think>\n\nYes.\n", "R:hm,\nhm|C:Yes.\n");
    check(qwen, "  <think>hm</think>Yes", "R:hm|C:Yes");
    check(qwen, "\n\nYes <think>no</think>", "C:\n\nYes <think>no</think>");
    check(qwen, "<think></think>\n", "-");
    check(qwen, "<think>\n\n</think>\n\nYes", "C:Yes");
    check(qwen, "<thinking>", "C:<thinking>");
    check(qwen, "<thi", "C:<thi");
    check(thinking, "hm </thin \n</think> \nYes", "R:hm </thin|C:Yes");
    check(thinking, "\nhm, and no end\n", "R:hm, and no end");
    check(thinking, "hm</think", "R:hm</think");
    check(plain, "<think>x</think><tool_call>{\"name\":\"stop\"}</tool_call>",
          "C:<think>x</think><tool_call>{\"name\":\"stop\"}</tool_call>");
}

static void calls_in_the_xml_like_form_are_typed_by_their_schema(void **state)
{
    (void)state;
    check(thinking,
          "look it up\n</think>\n\nLet me "
          "see.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nNew\n\"York\"\n</parameter>\n"
          "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
          "R:look it up|C:Let me see.|F:weather|A:{\"city\":\"New\\n\\\"York\\\"\",\"days\":3}|E");
    check(xml,
          "<tool_call><function=weather><parameter=city>5</parameter><parameter=days>5.0</parameter><parameter=exact>True</"
          "parameter>"
          "<parameter=at>[1, 2.50]</parameter><parameter=where>\n{\"x\": null}\n</parameter><parameter=maybe>null</parameter>"
          "<parameter=level>high</parameter><parameter=ratio>1e3</parameter><parameter=other>7</parameter></function></"
          "tool_call>",
          "F:weather|A:{\"city\":\"5\",\"days\":5,\"exact\":true,\"at\":[1, 2.50],\"where\":{\"x\": null},\"maybe\":null,"
          "\"level\":\"high\",\"ratio\":1e3,\"other\":\"7\"}|E");
    check(xml,
          "<tool_call>\n<function=weather>\n<parameter=days>\nsoon\n</parameter>\n<parameter=maybe>\n\"null\"\n</parameter>\n"
          "<parameter=ratio>\n\n</parameter>\n<parameter=city>\n\n</parameter>\n</function>\n</tool_call>",
          "F:weather|A:{\"days\":\"soon\",\"maybe\":\"\\\"null\\\"\",\"ratio\":\"\",\"city\":\"\"}|E");
    check(
        xml,
        "<tool_call>\n<function=stop>\n</function>\n</tool_call>\n<tool_call>\n<function=nobody's>\n</function>\n</tool_call>",
        "F:stop|A:{}|E|F:nobody's|A:{}|E");
    /* without the outer mark only a tool's name makes it a call; without </function> the outer one ends it */
    check(xml, "so\n<function=stop>\n</function> and <function=none>\n</function>",
          "C:so|F:stop|A:{}|E|C:and <function=none>\n</function>");
    check(xml, "<tool_call><function=weather><parameter=city>\nX\n</parameter>\n</tool_call>!",
          "F:weather|A:{\"city\":\"X\"}|E|C:!");
}

/* What is no tag where one could stand belongs to the value: a file may hold anything. */
static void values_may_look_like_marks(void **state)
{
    (void)state;
    check(xml,
          "<tool_call>\n<function=weather>\n<parameter=city>\n<a></parameter> or "
          "</function>\n<parameter=city>\n</parameter>\n<parameter=city>x"
          "</parameter>\n</function>\n</tool_call>",
          "F:weather|A:{\"city\":\"<a></parameter> or </function>\\n<parameter=city>\\n</parameter>\\n<parameter=city>x\"}|E");
    check(xml, "<tool_call><function=weather><parameter=days>[</parameter>]</parameter></function></tool_call>",
          "F:weather|A:{\"days\":\"[</parameter>]\"}|E");
    check(xml, "<tool_call><function=weather><parameter=city>\r\na\r\nb\r\n</parameter></function></tool_call>",
          "F:weather|A:{\"city\":\"a\\r\\nb\"}|E");
}

static void a_call_that_is_cut_off_stays_cut_off(void **state)
{
    (void)state;
    check(xml, "<tool_call>\n<function=weather>\n<parameter=city>\nNew Yo\n", "F:weather|A:{\"city\":\"New Yo\\n|E");
    check(xml, "<tool_call>\n<function=weather>\n<parameter=days>\n12", "F:weather|A:{\"days\":12|E");
    check(xml, "<tool_call>\n<function=weather>\n<parameter=city>", "F:weather|A:{\"city\":\"|E");
    check(xml, "<tool_call>\n<function=weather>\n<parameter=ci", "C:<tool_call>\n<function=weather>\n<parameter=ci");
}

static void calls_in_json_are_read(void **state)
{
    (void)state;
    check(hermes,
          "Sure.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a}\\\"b\", \"at\": [0.1]}}\n</tool_call>\n",
          "C:Sure.|F:weather|A:{\"city\": \"a}\\\"b\", \"at\": [0.1]}|E");
    check(hermes,
          "<tool_call>{\"arguments\":\"{\\\"city\\\":1}\",\"name\":\"x\"}</tool_call><tool_call>{\"name\":\"y\"}</tool_call>",
          "F:x|A:{\"city\":1}|E|F:y|A:{}|E");
    check(hermes,
          "<tool_call>{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"x\",\"arguments\":null}}</tool_call>",
          "F:x|A:{}|E");
    check(llama,
          "{\"name\": \"weather\", \"parameters\": {\"city\": \"X\"}}; {\"type\":\"function\",\"name\": \"stop\", "
          "\"parameters\": {}}",
          "F:weather|A:{\"city\": \"X\"}|E|F:stop|A:{}|E");
    check(llama, "<|python_tag|>{\"name\": \"any\", \"parameters\": {}}", "F:any|A:{}|E");
    check(llama, "I look. <|python_tag|> {\"function\": \"stop\", \"parameters\": {}}\n<|python_tag|>print(1)",
          "C:I look.|F:stop|A:{}|E|C:<|python_tag|>print(1)");
}

/* Behind the brace of its arguments it is a call, whatever comes. */
static void a_call_in_json_that_goes_wrong_is_cut_off_there(void **state)
{
    (void)state;
    check(hermes, "<tool_call>{\"name\":\"x\",\"arguments\":{\"a\":\"b", "F:x|A:{\"a\":\"b|E");
    check(hermes, "<tool_call>\n{\"name\": \"x\", \"arguments\": {\"a\": }}\n</tool_call>", "F:x|A:{\"a\": |E|C:}}\n</tool_call>");
    check(hermes, "<tool_call>\n{\"name\": \"x\", \"arguments\": {\"a\": [{}]}\n</tool_call>\nso", "F:x|A:{\"a\": [{}]}|E|C:so");
    check(hermes, "<tool_call>\n{\"name\": \"x\", \"arguments\": {}, \"id\": {\"arguments\": {}}}\n</tool_call>\nso", "F:x|A:{}|E|C:so");
    check(llama, "{\"name\": \"stop\", \"parameters\": {}", "F:stop|A:{}|E");
    check(llama, "{\"name\": \"stop\", \"parameters\" : { \"a\" : 1", "F:stop|A:{ \"a\" : 1|E");
}

static void what_is_no_call_is_content_byte_for_byte(void **state)
{
    (void)state;
    static const char *const tagged[] = {
        "<tool_call>",
        "a <tool_call> b",
        " \n<tool_call>\n\n",
        "<tool_call>\n{\"name\": \"x\", \"arguments\": [}]}\n</tool_call>",
        "<tool_call>\n{\"arguments\": {\"a\": }, \"name\": \"x\"}\n</tool_call>",
        "<tool_call>\n{\"x\": \"name\", \"arguments\": {\"a\": }}\n</tool_call>",
        "<tool_call>\n{\"name\": \"x\", \"n\\\"arguments\": {\"a\": }}\n</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>",
        "<tool_call>{\"name\": \"x\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"x\", \"arguments\": \"{\"}</tool_call>",
        "<tool_call>{\"name\":\"x\",\"arguments\":",
        "<tool_call>\n<function=>\n</function>",
        "<tool_call><function=a\nb></function>",
        "<tool_call><function=f>text</function></tool_call>",
        "<tool_call><function=f><parameter=x",
        "</tool_call>",
        "x < y",
        "ends with <tool_ca",
        "spaces \n\n  ",
        "<tool_call>                                                                          {\"name\":\"x\"}</tool_call>",
        "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"
        "\n\n\n\n\n\n\n\n\n\n\n\n",
    };
    for (size_t i = 0; i < sizeof tagged / sizeof *tagged; i++) {
        char expected[300];
        snprintf(expected, sizeof expected, "C:%s", tagged[i]);
        check(xml, tagged[i], expected);
        check(hermes, tagged[i], expected);
    }
    static const char *const bare[] = {
        "{\"answer\": 1}",
        "{\"name\": \"nobody\", \"parameters\": {}}",
        "{\"name\": \"stop\"}",
        "{",
        "{\"na",
        "{}",
        " {\"name\": \"stop\", ]",
        "text {\"name\": \"stop\", \"parameters\": {}}",
        "<|python_tag|>x = {}",
        "<|python",
        "{\"name\": \"stop\", \"parameters\": ",
    };
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        char expected[300];
        snprintf(expected, sizeof expected, "C:%s", bare[i]);
        check(llama, bare[i], expected);
    }
    /* and a call behind it is still found */
    check(xml, "<tool_call>{,}<tool_call>{\"name\":\"x\"}", "C:<tool_call>{,}|F:x|A:{}|E");
}

typedef struct arrival {
    const char *text, *seen; /* what comes, and all that has come out then */
} arrival;

static void expect_arrivals(es_answer_format format, const arrival *rows, size_t count)
{
    transcript t = {.last = -1};
    json_t *tools = json_loads(tools_json, 0, NULL);
    es_answer_parser *parser;
    assert_int_equal(es_answer_parser_open(format, tools, on_part, &t, &parser), ES_OK);
    json_decref(tools);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(es_answer_parser_add(parser, rows[i].text, strlen(rows[i].text)), ES_OK);
        assert_string_equal(t.text.data ? t.text.data : "", rows[i].seen);
    }
    es_answer_parser_close(parser);
    es_text_free(&t.text);
}

/* Whatever can be sent on is sent on at once. */
static void nothing_waits_longer_than_it_must(void **state)
{
    (void)state;
    static const arrival in_xml[] = {
        {"hm",                                              "R:hm"                                         },
        {"m </th",                                          "R:hmm"                                        },
        {"ink>Yes",                                         "R:hmm|C:Yes"                                  },
        {". <tool_call><function=weather><parameter=city>", "R:hmm|C:Yes.|F:weather|A:{\"city\":"          },
        {"New ",                                            "R:hmm|C:Yes.|F:weather|A:{\"city\":\"New "    },
        {"York",                                            "R:hmm|C:Yes.|F:weather|A:{\"city\":\"New York"},
    };
    static const arrival in_json[] = {
        {"<tool_call>\n{\"name\": \"wea", ""                                               },
        {"ther\", \"arguments\": ",      ""                                               },
        {"{",                            "F:weather|A:{"                                  },
        {"\"city\": \"New ",             "F:weather|A:{\"city\": \"New "                  },
        {"York\"",                       "F:weather|A:{\"city\": \"New York\""             },
        {"}",                            "F:weather|A:{\"city\": \"New York\"}"            },
        {"}\n",                          "F:weather|A:{\"city\": \"New York\"}|E"          },
        {"</tool_call>\n.",              "F:weather|A:{\"city\": \"New York\"}|E|C:."      },
    };
    static const arrival bare[] = {
        {"{\"name\": \"nobody\", \"parameters\": {\"a\"", ""},
        {": 1}}.", "C:{\"name\": \"nobody\", \"parameters\": {\"a\": 1}}."},
    };
    expect_arrivals(thinking, in_xml, sizeof in_xml / sizeof *in_xml);
    expect_arrivals(hermes, in_json, sizeof in_json / sizeof *in_json);
    expect_arrivals(llama, bare, sizeof bare / sizeof *bare);
}

/* Where calls stand alone, what does not begin with one holds none. */
static void calls_that_stand_alone_are_not_looked_for_in_content(void **state)
{
    (void)state;
    es_answer_format alone[] = {xml, hermes, llama, thinking};
    for (size_t i = 0; i < 4; i++) alone[i].calls_alone = true;
    static const char inside[] = "{\"a\":\"<tool_call><function=stop></function></tool_call><|python_tag|>{}\"}";
    char expected[200];
    snprintf(expected, sizeof expected, "C:%s", inside);
    for (size_t i = 0; i < 3; i++) check(alone[i], inside, expected);
    check(alone[0], "\n<tool_call><function=stop></function></tool_call>\n<tool_call>{\"name\":\"x\"}</tool_call>", "F:stop|A:{}|E|F:x|A:{}|E");
    check(alone[1], "x <tool_call>{\"name\":\"x\"}</tool_call>", "C:x <tool_call>{\"name\":\"x\"}</tool_call>");
    check(alone[2], "{\"name\": \"stop\", \"parameters\": {}}", "F:stop|A:{}|E");
    check(alone[3], "hm</think>\n\n<tool_call>{\"name\":\"x\"}</tool_call>", "R:hm|F:x|A:{}|E");
    check(alone[3], "hm</think>\n\n{<function=stop></function>}", "R:hm|C:{<function=stop></function>}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasoning_is_split_from_the_answer),
        cmocka_unit_test(calls_in_the_xml_like_form_are_typed_by_their_schema),
        cmocka_unit_test(values_may_look_like_marks),
        cmocka_unit_test(a_call_that_is_cut_off_stays_cut_off),
        cmocka_unit_test(calls_in_json_are_read),
        cmocka_unit_test(what_is_no_call_is_content_byte_for_byte),
        cmocka_unit_test(nothing_waits_longer_than_it_must),
        cmocka_unit_test(a_call_in_json_that_goes_wrong_is_cut_off_there),
        cmocka_unit_test(calls_that_stand_alone_are_not_looked_for_in_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
