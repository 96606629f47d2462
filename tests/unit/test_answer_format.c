/* The form of reasoning and calls is found by what a template writes. The templates here do it as families of models do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/answer_format.h"
#include "text/chat_template.h"

#define LOOP(body) "{% for message in messages %}<{{ message.role }}>" body "{% endfor %}"
#define CONTENT    "{{ message.content }}"

static es_status render(void *self, const char *variables_json, char **text)
{
    es_text out = {0};
    json_t *variables = json_loads(variables_json, 0, NULL);
    assert_non_null(variables);
    es_text_puts(&out, "");
    const es_status status = es_chat_template_render(self, variables, 0, NULL, &out);
    json_decref(variables);
    if (status != ES_OK) es_text_free(&out);
    *text = out.data;
    return status;
}

static es_answer_format find(const char *source)
{
    es_chat_template *chat;
    assert_int_equal(es_chat_template_parse("test", source, strlen(source), &chat), ES_OK);
    const es_answer_format format = es_answer_format_find(render, chat);
    es_chat_template_free(chat);
    return format;
}

static void calls_are_known_by_what_the_template_writes(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        es_tool_form form;
    } rows[] = {
        {LOOP(CONTENT),                                                                                                           ES_TOOLS_NONE},
        {"{% for tool in tools %}{{ tool | tojson }}{% endfor %}like <tool_call><function=f></function></tool_call>" LOOP(
             CONTENT),
         ES_TOOLS_NONE                                                                                                                         },
        {LOOP(CONTENT "{% for call in message.tool_calls %}<tool_call>\n<function={{ call.function.name }}>\n{% for k, v in "
                      "call.function.arguments | items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor "
                      "%}</function>\n</tool_call>"
                      "{% endfor %}"),
         ES_TOOLS_XML                                                                                                                          },
        {"{{ tools | tojson }} answer with <tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>" LOOP(
             CONTENT
             "{% for call in message.tool_calls %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"),
         ES_TOOLS_HERMES                                                                                                                       },
        {"{% for t in tools %}{{ t | tojson }}{% endfor %}{\"name\": function name, \"parameters\": dictionary}" LOOP(
             "{% if message.tool_calls %}{\"name\": \"{{ message.tool_calls[0].function.name }}\", \"parameters\": "
             "{{ message.tool_calls[0].function.arguments | tojson }}}{% else %}" CONTENT "{% endif %}"),
         ES_TOOLS_LLAMA                                                                                                                        },
 /* wants arguments as a string, and fails without */
        {LOOP("{% for call in message.tool_calls or [] %}<tool_call>{\"name\": \"{{ call.function.name }}\", \"arguments\": "
              "{{ call.function.arguments + '' }}}</tool_call>{% endfor %}"),
         ES_TOOLS_HERMES                                                                                                                       },
        {"{{ raise_exception('no') }}",                                                                                           ES_TOOLS_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(find(rows[i].source).tools, rows[i].form);
}

static void reasoning_is_known_by_what_the_template_writes(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        es_reasoning_form form;
    } rows[] = {
        {LOOP(CONTENT),                                                                                               ES_REASONING_NONE },
        {LOOP(CONTENT) "{% if add_generation_prompt %}<assistant><think>\n{% endif %}",                               ES_REASONING_THINK},
        {LOOP(CONTENT) "{% if add_generation_prompt and enable_thinking is false %}<think></think>{% endif %}",
         ES_REASONING_NONE                                                                                                              },
        {LOOP("{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}" CONTENT),
         ES_REASONING_THINK                                                                                                             },
        {LOOP("{{ message.content.split('</think>')[-1] }}"),                                                         ES_REASONING_THINK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(find(rows[i].source).reasoning, rows[i].form);
}

static void a_prompt_that_opens_the_reasoning_is_noticed(void **state)
{
    (void)state;
    assert_true(es_answer_prompt_reasons("<assistant><think>\n"));
    assert_true(es_answer_prompt_reasons("<think>"));
    assert_false(es_answer_prompt_reasons("<assistant><think>\n\n</think>\n\n"));
    assert_false(es_answer_prompt_reasons("think>"));
    assert_false(es_answer_prompt_reasons(""));
}

static void names_of_forms_are_those_of_other_servers_too(void **state)
{
    (void)state;
    es_tool_form tools = ES_TOOLS_LLAMA;
    assert_int_equal(es_tool_form_parse("auto", &tools), ES_OK);
    assert_int_equal(tools, ES_TOOLS_LLAMA);
    assert_int_equal(es_tool_form_parse("qwen3_coder", &tools), ES_OK);
    assert_int_equal(tools, ES_TOOLS_XML);
    assert_int_equal(es_tool_form_parse("none", &tools), ES_OK);
    assert_int_equal(tools, ES_TOOLS_NONE);
    assert_int_equal(es_tool_form_parse("smoke", &tools), ES_INVALID);
    es_reasoning_form reasoning = ES_REASONING_NONE;
    assert_int_equal(es_reasoning_form_parse("deepseek_r1", &reasoning), ES_OK);
    assert_int_equal(reasoning, ES_REASONING_THINK);
    assert_int_equal(es_reasoning_form_parse("smoke", &reasoning), ES_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_known_by_what_the_template_writes),
        cmocka_unit_test(reasoning_is_known_by_what_the_template_writes),
        cmocka_unit_test(a_prompt_that_opens_the_reasoning_is_noticed),
        cmocka_unit_test(names_of_forms_are_those_of_other_servers_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
