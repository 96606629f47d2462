/* Chat templates: what they render, how they fail, and that a hostile one ends within its limits. The comparison with jinja2
 * itself is in tests/py/test_template_expressions.py and test_chat_template.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/chat_template.h"

#define NOW 1785585600 /* 2026-08-01 12:00 UTC */

static es_status render_bytes(const char *source, size_t bytes, const char *variables, const es_template_limits *limits,
                              es_text *out)
{
    es_chat_template *chat = NULL;
    json_error_t error;
    json_t *json = json_loads(variables ? variables : "{}", JSON_REJECT_DUPLICATES, &error);
    assert_non_null(json);
    es_status status = es_chat_template_parse("T", source, bytes, &chat);
    if (status == ES_OK) status = es_chat_template_render(chat, json, NOW, limits, out);
    es_chat_template_free(chat);
    json_decref(json);
    return status;
}

static es_status render(const char *source, const char *variables, const es_template_limits *limits, es_text *out)
{
    return render_bytes(source, strlen(source), variables, limits, out);
}

static const char CHAT[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"},"
                           " {\"role\": \"user\", \"content\": \"Gr\\u00fc\\u00dfe\"}], \"add_generation_prompt\": true,"
                           " \"n\": 3, \"x\": 0.1, \"none\": null, \"d\": {\"b\": 1, \"a\": [true, null, \"q\\\"\"]}}";

static void templates_render_as_jinja2_renders_them(void **state)
{
    (void)state;
    static const struct {
        const char *source, *expected;
    } cases[] = {
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
         "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGr\xC3\xBC\xC3\x9F"
         "e<|im_end|>\n<|im_start|>assistant\n"},
        {"{{ d|tojson }}", "{\"b\": 1, \"a\": [true, null, \"q\\\"\"]}"},
        {"{{ d }}", "{'b': 1, 'a': [True, None, 'q\"']}"},
        {"{{ d|tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": [\n    true,\n    null,\n    \"q\\\"\"\n  ]\n}"},
        {"{{ messages[1].content[::-1] }}{{ messages[1].content|length }}", "e\xC3\x9F\xC3\xBCrG5"},
        {"  {% if n > 2 %}\n  yes\n  {% endif %}\nno\n", "  yes\nno"},
        {"a {%- if n -%} b {%- endif %} c", "ab c"},
        {"{{ x + 0.2 }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }}", "0.30000000000000004 3 2 3.5 64"},
        {"{{ none }}|{{ nosuch }}|{{ nosuch is defined }}|{{ true }}", "None||False|True"},
        {"{% set ns = namespace(i=0) %}{% for m in messages %}{% set ns.i = ns.i + loop.index %}{% endfor %}{{ ns.i }}", "3"},
        {"{% macro f(a, b='y') %}{{ a }}{{ b }}{% endmacro %}{{ f('x') }}{{ f(b=1, a=2) }}", "xy21"},
        {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
         "0134"},
        {"{{ messages|map(attribute='role')|join(', ') }}", "system, user"},
        {"{{ strftime_now('%d %b %Y') }}", "01 Aug 2026"},
        {"{% generation %}{{ n }}{% endgeneration %}", "3"},
        {"{{ 'a' if n is odd else 'b' }}{{ not n }}{{ 1 < n <= 3 }}{{ 'e' in 'hello' and n not in [1] }}", "aFalseTrueTrue"},
        {"{{ '</think>x'.split('</think>')[-1].lstrip('x') ~ [1, 'b'] ~ (1,) }}", "[1, 'b'](1,)"},
        {"{% raw %}{{ n }}{% endraw %}{# gone #}", "{{ n }}"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_text out = {0};
        if (render(cases[i].source, CHAT, NULL, &out) != ES_OK) fail_msg("%s: %s", cases[i].source, es_error_message());
        assert_string_equal(out.data ? out.data : "", cases[i].expected);
        es_text_free(&out);
    }
}

static void errors_name_the_template_and_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        es_status status;
        const char *message;
    } cases[] = {
        {"\n{{ raise_exception('Roles must alternate') }}", ES_INVALID, "template T line 2: Roles must alternate"},
        {"a\n\n{{ nosuch.x }}", ES_INVALID, "template T line 3: 'nosuch' is undefined"},
        {"{{ 1 + 'a' }}", ES_INVALID, "template T line 1: + can not be used between a int and a str"},
        {"{{ 9223372036854775807 + 1 }}", ES_INVALID, "template T line 1: a whole number does not fit in 64 bits"},
        {"{{ [].append(1) }}", ES_INVALID, "template T line 1: 'append' is undefined"},
        {"\n{% if x %}", ES_BAD_FILE,
         "template T line 2: expected {% elif %} or {% else %} or {% endif %}, found the end of the template"},
        {"{{ 'a }}", ES_BAD_FILE, "template T line 1: the string is never closed by '"},
        {"{{ 1 2 }}", ES_BAD_FILE, "template T line 1: expected }}, found a number"},
        {"{% include 'secret' %}", ES_UNSUPPORTED, "template T line 1: {% include %} is not supported in a chat template"},
        {"{% import 'x' as y %}", ES_UNSUPPORTED, "template T line 1: {% import %} is not supported in a chat template"},
        {"{{ x|nosuch }}", ES_UNSUPPORTED, "template T line 1: there is no filter named 'nosuch' here"},
        {"{{ 99999999999999999999 }}", ES_BAD_FILE,
         "template T line 1: the number 99999999999999999999 does not fit in 64 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_text out = {0};
        assert_int_equal(render(cases[i].source, NULL, NULL, &out), cases[i].status);
        assert_string_equal(es_error_message(), cases[i].message);
        assert_null(out.data); /* nothing of a failed rendering is seen */
        es_text_free(&out);
    }
}

static void hostile_templates_end_within_their_limits(void **state)
{
    (void)state;
    static const struct {
        const char *source, *says;
    } cases[] = {
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "more steps"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"},
        {"{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}", "nested too deeply"},
        {"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
         "more text"},
        {"{{ 'x' * 1000000000000 }}", "more"},
        {"{{ [0] * 1000000000000 }}", "more"},
        {"{{ 'x'.center(1000000000000) }}", "more"},
        {"{{ '%1000000000d' % 1 }}", "more"},
        {"{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "more"},
        {"{% set ns = namespace(l=[0]) %}{% for i in range(600) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
         "nested too deeply"},
        {"{% set ns = namespace(l=[0]) %}{% for i in range(600) %}{% set ns.l = [ns.l] %}{% endfor %}"
         "{{ ns.l == ns.l }}{{ ns.l|tojson }}",
         "nested too deeply"},
        {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "nested too deeply"},
        {"{% set a = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}"
         "{{ a | replace('', a) | replace('', a) | replace('', a) | replace('', a) }}", "more"},
    };
    const es_template_limits limits = {.steps = 1000000, .output = (size_t)4 << 20, .depth = 200};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_text out = {0};
        if (render(cases[i].source, NULL, &limits, &out) != ES_INVALID) fail_msg("%s: was let through", cases[i].source);
        if (!strstr(es_error_message(), cases[i].says)) fail_msg("%s: %s", cases[i].source, es_error_message());
        es_text_free(&out);
    }
}

static void a_generous_depth_still_spares_the_stack(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{{ [1]|map('string')|join ~ f(*[x], **{}) }}{% endmacro %}{{ f(1) }}",
        "{% macro f() %}{% call g() %}{% endcall %}{% endmacro %}"
        "{% macro g() %}{% filter upper %}{{ caller() }}{{ f() }}{% endfilter %}{% endmacro %}{{ f() }}",
    };
    const es_template_limits limits = {.depth = 1000000000};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        es_text out = {0};
        assert_int_equal(render(sources[i], NULL, &limits, &out), ES_INVALID);
        assert_non_null(strstr(es_error_message(), "nested too deeply"));
        es_text_free(&out);
    }
}

static void deep_nesting_is_refused_while_reading(void **state)
{
    (void)state;
    static const char *const pieces[] = {"(", "[", "{0:", "not ", "-", "{{ x if x else ", "{% if x %}",
                                         "{% for a in x %}", "a.b(", "x|f("};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        es_text source = {0}, out = {0};
        if (pieces[i][1] != '%' && pieces[i][1] != '{') es_text_puts(&source, "{{ ");
        for (int k = 0; k < 30000; k++) es_text_puts(&source, pieces[i]);
        assert_int_not_equal(render(source.data, "{\"x\": [1]}", NULL, &out), ES_OK);
        es_text_free(&source);
        es_text_free(&out);
    }
    /* What is long but not nested, or only nested to the left, must not exhaust the stack either. */
    static const char *const chains[] = {".a", "[0]", "|list", " + 1", " ~ 1", " and 1", " is defined if x"};
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        es_text source = {0}, out = {0};
        es_text_puts(&source, "{{ x");
        for (int k = 0; k < 30000; k++) es_text_puts(&source, chains[i]);
        es_text_puts(&source, " }}");
        (void)render(source.data, "{\"x\": [1]}", NULL, &out);
        es_text_free(&source);
        es_text_free(&out);
    }
}

static void variables_may_be_deep_or_odd(void **state)
{
    (void)state;
    es_text variables = {0}, out = {0};
    es_text_puts(&variables, "{\"x\": ");
    for (int i = 0; i < 1000; i++) es_text_putc(&variables, '[');
    for (int i = 0; i < 1000; i++) es_text_putc(&variables, ']');
    es_text_putc(&variables, '}');
    assert_int_equal(render("{{ x }}", variables.data, NULL, &out), ES_INVALID);
    assert_int_equal(render("{{ loop }}{{ range is callable }}", "{\"loop\": 1, \"range\": 2, \"\": 3}", NULL, &out), ES_OK);
    assert_string_equal(out.data, "1False");
    es_text_free(&out);
    json_t *list = json_array();
    es_chat_template *chat = NULL;
    assert_int_equal(es_chat_template_parse("T", "x", 1, &chat), ES_OK);
    assert_int_equal(es_chat_template_render(chat, list, NOW, NULL, &out), ES_INVALID);
    es_chat_template_free(chat);
    json_decref(list);
    es_text_free(&variables);
}

static void sources_must_be_text(void **state)
{
    (void)state;
    es_text out = {0};
    assert_int_equal(render_bytes("a\xFF", 2, NULL, NULL, &out), ES_BAD_FILE);
    assert_int_equal(render_bytes("a\xE4\xB8", 3, NULL, NULL, &out), ES_BAD_FILE);
    assert_int_equal(render_bytes("a\0b{{ '\0' }}", 12, NULL, NULL, &out), ES_OK);
    assert_int_equal(out.bytes, 4);
    assert_memory_equal(out.data, "a\0b\0", 4);
    es_text_free(&out);
    char *big = calloc(1, (2u << 20) + 1);
    assert_non_null(big);
    memset(big, 'x', 2u << 20);
    assert_int_equal(render(big, NULL, NULL, &out), ES_BAD_FILE);
    free(big);
}

static void the_text_is_appended(void **state)
{
    (void)state;
    es_text out = {0};
    es_text_puts(&out, "before ");
    assert_int_equal(render("{{ 1 }}", NULL, NULL, &out), ES_OK);
    assert_string_equal(out.data, "before 1");
    es_text_free(&out);
    es_text small = {.limit = 2};
    assert_int_equal(render("{{ 100 }}", NULL, NULL, &small), ES_NO_MEMORY);
    es_text_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_jinja2_renders_them),
        cmocka_unit_test(errors_name_the_template_and_the_line),
        cmocka_unit_test(hostile_templates_end_within_their_limits),
        cmocka_unit_test(a_generous_depth_still_spares_the_stack),
        cmocka_unit_test(deep_nesting_is_refused_while_reading),
        cmocka_unit_test(variables_may_be_deep_or_odd),
        cmocka_unit_test(sources_must_be_text),
        cmocka_unit_test(the_text_is_appended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
