/* Calls of the API: what is read, what is refused, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "fake_backend.h"
#include "serve/call.h"
#include "text/grammar.h"

static fake_backend fake;
static es_backend backend;

static es_api_context context_of(bool strict)
{
    return (es_api_context){.backend = &backend, .alias = "fake", .strict = strict};
}

static int open_fake(void **state)
{
    (void)state;
    backend = fake_open(&fake);
    return 0;
}

static bool parse(es_call_kind kind, bool strict, const char *body, es_call *call, es_api_error *error)
{
    const es_api_context context = context_of(strict);
    return es_call_parse(&context, kind, body, strlen(body), call, error);
}

static void a_chat_with_everything_is_understood(void **state)
{
    (void)state;
    static const char body[] =
        "{\"model\":\"any\",\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},{\"role\":\"user\",\"content\":"
        "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"temperature\":0,\"top_p\":0.5,\"top_k\":-1,"
        "\"min_p\":0.1,\"seed\":-3,\"stop\":[\"x\",\"y\"],\"max_completion_tokens\":7,\"max_tokens\":9,"
        "\"n\":3,\"logprobs\":true,"
        "\"top_logprobs\":2,\"logit_bias\":{\"97\":-100,\"0\":5},\"frequency_penalty\":-2,\"presence_penalty\":2,"
        "\"repeat_penalty\":1.5,\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true},"
        "\"chat_template_kwargs\":{\"enable_thinking\":true},\"response_format\":{\"type\":\"text\"},\"user\":\"u\","
        "\"metadata\":{},\"logprobs_mode\":1,\"new thing\":2}";
    es_call call;
    es_api_error error = {0};
    if (!parse(ES_CALL_CHAT, false, body, &call, &error)) print_error("%s\n", error.message);
    assert_int_equal(call.prompt_count, 1);
    char prompt[200];
    for (size_t i = 0; i < call.prompts[0].count; i++) prompt[i] = (char)call.prompts[0].tokens[i];
    prompt[call.prompts[0].count] = '\0';
    assert_string_equal(prompt, "[system]be brief\n[user]a\nb\n[assistant]!f\n[tools]\n[think]\n");
    const es_request request = es_call_request(&call, 2);
    assert_true(request.sampling.temperature == 0 && request.sampling.top_p == 0.5f && request.sampling.top_k == 0);
    assert_true(request.sampling.repetition_penalty == 1.5f && request.sampling.frequency_penalty == -2);
    assert_int_equal(request.sampling.seed, (uint64_t)-3);
    assert_int_equal(request.sampling.choice, 2);
    assert_int_equal(request.max_tokens, 7);
    assert_int_equal(request.stop_count, 2);
    assert_string_equal(request.stop[1], "y");
    assert_int_equal(request.bias_count, 2);
    assert_int_equal(request.bias[0].token, 97);
    assert_true(request.logprobs && request.top_logprobs == 2 && request.ignore_eos && call.stream && call.include_usage);
    assert_string_equal(call.ignored.data, "logprobs_mode");
    es_call_free(&call);
}

/* The switch that templates know follows the effort, unless the caller sets it. */
static void efforts_turn_thinking_on_and_off(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        bool thinks;
    } rows[] = {
        {"", false},
        {",\"reasoning_effort\":\"low\"", true},
        {",\"reasoning_effort\":\"none\"", false},
        {",\"chat_template_kwargs\":{\"reasoning_effort\":\"high\"}", true},
        {",\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{\"enable_thinking\":false}", false},
        {",\"enable_thinking\":true", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[300];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]%s}", rows[i].more);
        es_call call;
        es_api_error error;
        assert_true(parse(ES_CALL_CHAT, true, body, &call, &error));
        assert_int_equal(call.prompts[0].count, strlen("[user]x\n") + (rows[i].thinks ? strlen("[think]\n") : 0));
        es_call_free(&call);
    }
}

static void expect_prompt(es_call_kind kind, const char *body, const char *prompt)
{
    es_call call;
    es_api_error error = {0};
    if (!parse(kind, true, body, &call, &error)) fail_msg("%s", error.message);
    char text[400];
    for (size_t i = 0; i < call.prompts[0].count; i++) text[i] = (char)call.prompts[0].tokens[i];
    text[call.prompts[0].count] = '\0';
    assert_string_equal(text, prompt);
    es_call_free(&call);
}

/* What belongs to one turn of the assistant is one message to the template, however an API cuts it up. */
static void other_apis_are_chats_in_other_words(void **state)
{
    (void)state;
    expect_prompt(ES_CALL_RESPONSE,
                  "{\"instructions\":\"I\",\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
                  "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]},"
                  "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\"}]},"
                  "{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"},"
                  "{\"type\":\"function_call\",\"call_id\":\"2\",\"name\":\"g\",\"arguments\":\"{}\"},"
                  "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"r\"}],"
                  "\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"reasoning\":{\"effort\":\"high\"}}",
                  "[system]I\n[user]a\n[assistant]b~t!f!g\n[tool]r\n[tools]\n[think]\n");
    expect_prompt(ES_CALL_MESSAGE,
                  "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"I\"}],\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                  "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"\"},"
                  "{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{}}]},"
                  "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"},{\"type\":\"tool_result\",\"tool_use_id\":\"1\"}]}],"
                  "\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"thinking\":{\"type\":\"adaptive\"}}",
                  "[system]I\n[user]a\n[assistant]b~t!f\n[tool]\n[user]c\n[tools]\n[think]\n");
}

/* The fake template ends a message with a line break: what is continued ends before it. */
static void an_answer_that_has_begun_is_continued(void **state)
{
    (void)state;
    expect_prompt(ES_CALL_CHAT,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"end \\n\"}],"
                  "\"continue_final_message\":true}",
                  "[user]a\n[assistant]end");
    expect_prompt(ES_CALL_MESSAGE,
                  "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"So\"}]}",
                  "[user]a\n[assistant]So");
}

/* Whether a template reads lists of parts is found out by trying; those that do get them as they were sent. */
static void parts_stay_apart_for_templates_that_read_them(void **state)
{
    (void)state;
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                               "{\"type\":\"text\",\"text\":\"b\"}]}]}";
    for (int reads = 0; reads <= 1; reads++) {
        fake.reads_parts = reads;
        es_api_context context = context_of(false);
        context.content_parts = es_chat_template_reads_parts(&backend);
        assert_int_equal(context.content_parts, reads);
        es_call call;
        es_api_error error;
        assert_true(es_call_parse(&context, ES_CALL_CHAT, body, sizeof body - 1, &call, &error));
        /* "[user]ab\n" or "[user]a\nb\n" */
        assert_int_equal(call.prompts[0].count, reads ? 9 : 10);
        es_call_free(&call);
    }
}

static void the_models_recommendation_is_the_default(void **state)
{
    (void)state;
    es_call call;
    es_api_error error;
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":null}";
    assert_true(parse(ES_CALL_CHAT, false, body, &call, &error));
    assert_true(call.request.sampling.temperature == 0.7f);
    assert_int_equal(call.request.max_tokens, -1);
    es_call_free(&call);
}

static void prompts_come_in_four_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        size_t prompts, tokens;
    } cases[] = {
        {"{\"prompt\":\"abc\"}", 1, 3},
        {"{\"prompt\":[\"abc\",\"defg\"]}", 2, 4},
        {"{\"prompt\":[1,2,255]}", 1, 3},
        {"{\"prompt\":[[1],[2,3]],\"n\":2}", 2, 2},
        {"{\"prompt\":\"a\",\"best_of\":1,\"echo\":false,\"suffix\":null,\"max_tokens\":0}", 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_call call;
        es_api_error error;
        assert_true(parse(ES_CALL_COMPLETION, true, cases[i].body, &call, &error));
        assert_int_equal(call.prompt_count, cases[i].prompts);
        assert_int_equal(call.prompts[call.prompt_count - 1].count, cases[i].tokens);
        es_call_free(&call);
    }
}

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

/* What a caller did wrong is said with the parameter's name, and nothing that changes an answer is ignored. */
static void nonsense_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        es_call_kind kind;
        const char *param, *body;
    } cases[] = {
        {ES_CALL_CHAT, "", "[]"},
        {ES_CALL_CHAT, "messages", "{}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":\"hello\"}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[1]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"content\":\"x\"}]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"role\":\"user\"}]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"role\":\"user\",\"content\":5}]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}"},
        {ES_CALL_CHAT, "messages", "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[1]}]}"},
        {ES_CALL_CHAT, "messages", "{" HELLO ",\"chat_template_kwargs\":{\"refuse\":true}}"},
        {ES_CALL_CHAT, "chat_template_kwargs", "{" HELLO ",\"chat_template_kwargs\":{\"messages\":[]}}"},
        {ES_CALL_CHAT, "chat_template", "{" HELLO ",\"chat_template\":\"{{ x }}\"}"},
        {ES_CALL_CHAT, "tools", "{" HELLO ",\"tools\":{}}"},
        {ES_CALL_CHAT, "tools", "{" HELLO ",\"tools\":[1]}"},
        {ES_CALL_CHAT, "reasoning_effort", "{" HELLO ",\"reasoning_effort\":3}"},
        {ES_CALL_CHAT, "tool_choice", "{" HELLO ",\"tool_choice\":\"required\"}"},
        {ES_CALL_CHAT, "tool_choice", "{" HELLO ",\"tool_choice\":\"any\"}"},
        {ES_CALL_CHAT, "tool_choice", "{" HELLO ",\"tool_choice\":\"required\",\"tools\":[{\"function\":{\"name\":\"f\"}}]}"},
        {ES_CALL_CHAT, "response_format", "{" HELLO ",\"response_format\":{\"type\":\"xml\"}}"},
        {ES_CALL_CHAT, "response_format", "{" HELLO ",\"response_format\":\"json\"}"},
        {ES_CALL_CHAT, "response_format", "{" HELLO ",\"response_format\":{\"type\":\"json_schema\"}}"},
        {ES_CALL_CHAT, "response_format", "{" HELLO ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":"
                                          "{\"not\":{}}}}}"},
        {ES_CALL_CHAT, "grammar", "{" HELLO ",\"grammar\":\"root ::= x\"}"},
        {ES_CALL_CHAT, "grammar", "{" HELLO ",\"grammar\":\"root ::= root\"}"},
        {ES_CALL_CHAT, "json_schema", "{" HELLO ",\"json_schema\":{\"type\":\"thing\"}}"},
        {ES_CALL_CHAT, "json_schema", "{" HELLO ",\"json_schema\":{},\"response_format\":{\"type\":\"json_object\"}}"},
        {ES_CALL_CHAT, "messages", "{" HELLO ",\"continue_final_message\":true}"},
        {ES_CALL_CHAT, "continue_final_message", "{" HELLO ",\"continue_final_message\":1}"},
        {ES_CALL_CHAT, "guided_json", "{" HELLO ",\"guided_json\":\"{\"}"},
        {ES_CALL_CHAT, "guided_regex", "{" HELLO ",\"guided_regex\":\"(?=x)\"}"},
        {ES_CALL_COMPLETION, "guided_choice", "{\"prompt\":\"x\",\"guided_choice\":[1]}"},
        {ES_CALL_CHAT, "structured_outputs", "{" HELLO ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}"},
        {ES_CALL_CHAT, "structured_outputs", "{" HELLO ",\"structured_outputs\":{\"lark\":\"a\"}}"},
        {ES_CALL_CHAT, "functions", "{" HELLO ",\"functions\":[{}]}"},
        {ES_CALL_CHAT, "model", "{" HELLO ",\"model\":7}"},
        {ES_CALL_CHAT, "temperature", "{" HELLO ",\"temperature\":-0.1}"},
        {ES_CALL_CHAT, "temperature", "{" HELLO ",\"temperature\":\"hot\"}"},
        {ES_CALL_CHAT, "top_p", "{" HELLO ",\"top_p\":1.1}"},
        {ES_CALL_CHAT, "top_k", "{" HELLO ",\"top_k\":1.5}"},
        {ES_CALL_CHAT, "min_p", "{" HELLO ",\"min_p\":2}"},
        {ES_CALL_CHAT, "presence_penalty", "{" HELLO ",\"presence_penalty\":3}"},
        {ES_CALL_CHAT, "repetition_penalty", "{" HELLO ",\"repetition_penalty\":0}"},
        {ES_CALL_CHAT, "seed", "{" HELLO ",\"seed\":\"x\"}"},
        {ES_CALL_CHAT, "stop", "{" HELLO ",\"stop\":\"\"}"},
        {ES_CALL_CHAT, "stop", "{" HELLO ",\"stop\":[1]}"},
        {ES_CALL_CHAT, "stop", "{" HELLO ",\"stop\":[\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
                               "\"1\",\"1\",\"1\",\"1\",\"1\"]}"},
        {ES_CALL_CHAT, "max_tokens", "{" HELLO ",\"max_tokens\":0}"},
        {ES_CALL_CHAT, "max_tokens", "{" HELLO ",\"max_tokens\":-2}"},
        {ES_CALL_CHAT, "n", "{" HELLO ",\"n\":0}"},
        {ES_CALL_CHAT, "n", "{" HELLO ",\"n\":1000}"},
        {ES_CALL_CHAT, "top_logprobs", "{" HELLO ",\"top_logprobs\":2}"},
        {ES_CALL_CHAT, "top_logprobs", "{" HELLO ",\"logprobs\":true,\"top_logprobs\":21}"},
        {ES_CALL_CHAT, "logprobs", "{" HELLO ",\"logprobs\":3}"},
        {ES_CALL_CHAT, "logit_bias", "{" HELLO ",\"logit_bias\":{\"hello\":1}}"},
        {ES_CALL_CHAT, "logit_bias", "{" HELLO ",\"logit_bias\":{\"256\":1}}"},
        {ES_CALL_CHAT, "logit_bias", "{" HELLO ",\"logit_bias\":{\"1\":101}}"},
        {ES_CALL_CHAT, "logit_bias", "{" HELLO ",\"logit_bias\":[1]}"},
        {ES_CALL_CHAT, "stream", "{" HELLO ",\"stream\":\"yes\"}"},
        {ES_CALL_CHAT, "stream_options", "{" HELLO ",\"stream_options\":{\"include_usage\":true}}"},
        {ES_CALL_CHAT, "ignore_eos", "{" HELLO ",\"ignore_eos\":1}"},
        {ES_CALL_RESPONSE, "input", "{}"},
        {ES_CALL_RESPONSE, "input", "{\"input\":[{\"type\":\"computer_call\"}]}"},
        {ES_CALL_RESPONSE, "input", "{\"input\":[{\"type\":\"function_call\"}]}"},
        {ES_CALL_RESPONSE, "instructions", "{\"input\":\"x\",\"instructions\":[]}"},
        {ES_CALL_RESPONSE, "conversation", "{\"input\":\"x\",\"conversation\":\"c\"}"},
        {ES_CALL_MESSAGE, "max_tokens", "{" HELLO "}"},
        {ES_CALL_MESSAGE, "messages", "{\"max_tokens\":1}"},
        {ES_CALL_MESSAGE, "messages", "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}"},
        {ES_CALL_MESSAGE, "messages", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\"}]}]}"},
        {ES_CALL_MESSAGE, "thinking", "{" HELLO ",\"max_tokens\":1,\"thinking\":{\"type\":\"hard\"}}"},
        {ES_CALL_MESSAGE, "tool_choice", "{" HELLO ",\"max_tokens\":1,\"tool_choice\":{\"type\":\"tool\"}}"},
        {ES_CALL_COMPLETION, "prompt", "{}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":\"\"}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":[]}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":[[]]}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":[256]}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":[-1]}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":[1.5]}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":[\"a\",1]}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":{}}"},
        {ES_CALL_COMPLETION, "prompt", "{\"prompt\":[[1],[2],[3]],\"n\":128}"},
        {ES_CALL_COMPLETION, "echo", "{\"prompt\":\"a\",\"echo\":1}"},
        {ES_CALL_COMPLETION, "suffix", "{\"prompt\":\"a\",\"suffix\":\"b\"}"},
        {ES_CALL_COMPLETION, "best_of", "{\"prompt\":\"a\",\"best_of\":2}"},
        {ES_CALL_COMPLETION, "grammar", "{\"prompt\":\"a\",\"grammar\":\"root ::= x\"}"},
        {ES_CALL_COMPLETION, "logprobs", "{\"prompt\":\"a\",\"logprobs\":21}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        es_call call;
        es_api_error error = {0};
        const bool parsed = parse(cases[i].kind, false, cases[i].body, &call, &error);
        if (parsed || strcmp(error.param, cases[i].param) != 0) print_error("%s: %s\n", cases[i].body, error.message);
        assert_false(parsed);
        assert_string_equal(error.param, cases[i].param);
        assert_int_equal(error.status, 400);
        assert_string_equal(error.type, "invalid_request_error");
        assert_true(strlen(error.message) > 10);
    }
}

/* Whatever a client calls it, it becomes a grammar that the request carries. */
static void forms_of_answers_become_grammars(void **state)
{
    static const char *const asked[][2] = {
        {"\"response_format\":{\"type\":\"json_object\"}", "root ::= json-object\n"},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,\"schema\":{\"const\":7}}}",
         "root ::= \"7\"\n"},
        {"\"grammar\":\"root ::= [a-z]+\"", "root ::= [a-z]+"},
        {"\"json_schema\":{\"type\":\"string\"}", "root ::= json-string\n"},
        {"\"guided_json\":\"{\\\"const\\\":null}\"", "root ::= \"null\"\n"},
        {"\"guided_regex\":\"ab?\"", "root ::= (\"\" \"a\" \"b\"? )\n"},
        {"\"guided_choice\":[\"a\",\"b\\\"\"]", "root ::= \"a\" | \"b\\\"\"\n"},
        {"\"structured_outputs\":{\"choice\":[\"a\"],\"json\":null}", "root ::= \"a\"\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char body[512];
        es_call call;
        es_api_error error;
        snprintf(body, sizeof body, "{\"prompt\":\"x\",%s}", asked[i][0]);
        if (!parse(ES_CALL_COMPLETION, true, body, &call, &error)) fail_msg("%s: %s", body, error.message);
        const es_request request = es_call_request(&call, 0);
        assert_non_null(request.grammar);
        assert_int_equal(request.grammar_bytes, strlen(request.grammar));
        assert_null(request.grammar_after);
        if (!strstr(request.grammar, asked[i][1])) fail_msg("%s became %s", asked[i][0], request.grammar);
        es_call_free(&call);
    }
}

static void what_can_never_fit_is_refused_with_the_numbers(void **state)
{
    (void)state;
    es_call call;
    es_api_error error;
    assert_false(parse(ES_CALL_CHAT, false, "{" HELLO ",\"max_tokens\":4090}", &call, &error));
    assert_string_equal(error.code, "context_length_exceeded");
    assert_int_equal(error.status, 400);
    assert_non_null(strstr(error.message, "4096"));
    assert_non_null(strstr(error.message, "4090"));
    assert_true(parse(ES_CALL_CHAT, false, "{" HELLO ",\"max_tokens\":4088}", &call, &error));
    es_call_free(&call);
}

static void strict_servers_refuse_what_they_do_not_know(void **state)
{
    (void)state;
    es_call call;
    es_api_error error;
    assert_false(parse(ES_CALL_CHAT, true, "{" HELLO ",\"model\":\"other\"}", &call, &error));
    assert_int_equal(error.status, 404);
    assert_string_equal(error.code, "model_not_found");
    assert_false(parse(ES_CALL_CHAT, true, "{" HELLO ",\"model\":\"fake\",\"frobnicate\":1}", &call, &error));
    assert_string_equal(error.param, "frobnicate");
    assert_true(parse(ES_CALL_CHAT, true, "{" HELLO ",\"model\":\"fake\"}", &call, &error));
    es_call_free(&call);
}

static void a_model_without_a_tokenizer_takes_numbers(void **state)
{
    (void)state;
    es_call call;
    es_api_error error;
    fake.info.has_tokenizer = fake.info.has_chat = false;
    assert_false(parse(ES_CALL_CHAT, false, "{" HELLO "}", &call, &error));
    assert_false(parse(ES_CALL_COMPLETION, false, "{\"prompt\":\"a\"}", &call, &error));
    assert_true(parse(ES_CALL_COMPLETION, false, "{\"prompt\":[1]}", &call, &error));
    es_call_free(&call);
}

static void errors_have_openais_shape(void **state)
{
    (void)state;
    es_api_error error;
    es_text out = {0};
    es_api_refuse(&error, "n", "no \"%s\"", "x\xff");
    es_api_error_write(&error, &out);
    assert_string_equal(out.data, "{\"error\":{\"message\":\"no \\\"x\xEF\xBF\xBD\\\"\",\"type\":\"invalid_request_error\","
                                  "\"param\":\"n\",\"code\":null}}\n");
    es_text_free(&out);
}

/* Whether a text is one that the grammar of a forced call allows from end to end. */
static bool follows(const es_call *call, const char *text)
{
    es_grammar *grammar;
    es_matcher *matcher;
    assert_int_equal(es_grammar_compile(call->grammar.data, call->grammar.bytes, NULL, 0, &grammar), ES_OK);
    assert_int_equal(es_matcher_open(NULL, &matcher), ES_OK);
    assert_int_equal(es_matcher_start(matcher, grammar), ES_OK);
    const bool whole = es_matcher_take_bytes(matcher, text, strlen(text)) == ES_OK && es_matcher_is_complete(matcher);
    es_matcher_close(matcher);
    es_grammar_close(grammar);
    return whole;
}

typedef struct parts {
    es_text text;
    int last;
} parts;

static void put_part(void *user, es_part part, const char *text, size_t bytes)
{
    static const char *const between[] = {"R:", "C:", "F:", "", ";"};
    parts *seen = user;
    if (seen->last != (int)part) es_text_puts(&seen->text, between[part]);
    seen->last = (int)part;
    es_text_append(&seen->text, text, bytes);
    if (part == ES_PART_CALL) es_text_putc(&seen->text, ' ');
}

/* The parts that a text is read as by a call's own parser, byte by byte. */
static void expect_parts(const es_call *call, const char *text, const char *expected)
{
    es_answer_parser *parser;
    parts seen = {.last = -1};
    assert_int_equal(es_answer_parser_open(call->format, call->tools, put_part, &seen, &parser), ES_OK);
    for (const char *byte = text; *byte; byte++) assert_int_equal(es_answer_parser_add(parser, byte, 1), ES_OK);
    assert_int_equal(es_answer_parser_finish(parser), ES_OK);
    assert_string_equal(seen.text.data, expected);
    es_answer_parser_close(parser);
    es_text_free(&seen.text);
}

static bool parse_forced(es_tool_form form, const char *tools, const char *choice, es_call *call, es_api_error *error)
{
    es_api_context context = context_of(true);
    context.format.tools = form;
    es_text body = {0};
    es_text_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[%s],\"tool_choice\":%s}", tools, choice);
    const bool parsed = es_call_parse(&context, ES_CALL_CHAT, body.data, body.bytes, call, error);
    es_text_free(&body);
    return parsed;
}

#define TOOL_F                                                                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":"                      \
    "\"string\"},\"n\":{\"type\":\"integer\"},\"e\":{\"$ref\":\"#/$defs/E\"},\"o\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},"            \
    "{\"type\":\"null\"}]},\"d\":{\"type\":\"string\",\"format\":\"date\"}},\"required\":[\"s\"],\"$defs\":{\"E\":{\"enum\":[\"a\",3]}}}}}"
#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
#define CALL_OF(name, inside) "<tool_call>\n<function=" name ">\n" inside "</function>\n</tool_call>"

/* A forced call can only be written in a way that is read back as one, and with arguments that follow the schema. */
static void a_forced_call_is_written_as_it_is_read(void **state)
{
    (void)state;
    static const struct {
        es_tool_form form;
        const char *choice, *text, *parts; /* NULL: it must not be possible */
    } rows[] = {
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "x")), "F:f {\"s\":\"x\"};"},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "<b> </p>\n<</parameter</b>") P("n", "-5") P("e", "3") P("o", "null") P("d", "2024-02-28")),
         "F:f {\"s\":\"<b> </p>\\n<</parameter</b>\",\"n\":-5,\"e\":3,\"o\":null,\"d\":\"2024-02-28\"};"},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "x") P("e", "a") P("o", "hm")) "\n" CALL_OF("g", ""),
         "F:f {\"s\":\"x\",\"e\":\"a\",\"o\":\"hm\"};F:g {};"},
        {ES_TOOLS_XML, "\"required\"", "hello", NULL},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", ""), NULL},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "a</parameter>b")), NULL},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "</par</parameter>b")), NULL},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "x") P("n", "five")), NULL},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "x") P("o", "long")), NULL},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("f", P("s", "x") P("d", "soon")), NULL},
        {ES_TOOLS_XML, "\"required\"", CALL_OF("h", ""), NULL},
        {ES_TOOLS_XML, "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", CALL_OF("g", ""), "F:g {};"},
        {ES_TOOLS_XML, "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", CALL_OF("f", P("s", "x")), NULL},
        {ES_TOOLS_XML, "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", CALL_OF("g", "") "\n" CALL_OF("g", ""), NULL},
        {ES_TOOLS_HERMES, "\"required\"", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}\n</tool_call>", "F:f {\"s\": \"x\"};"},
        {ES_TOOLS_HERMES, "\"required\"", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", NULL},
        {ES_TOOLS_LLAMA, "\"required\"", "{\"name\": \"g\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {\"s\": \"\"}}",
         "F:g {};F:f {\"s\": \"\"};"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        es_call call;
        es_api_error error = {0};
        if (!parse_forced(rows[i].form, TOOL_F ",{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", rows[i].choice, &call, &error))
            fail_msg("%s", error.message);
        const bool possible = follows(&call, rows[i].text);
        if (possible != (rows[i].parts != NULL)) print_error("%s\n", rows[i].text);
        assert_int_equal(possible, rows[i].parts != NULL);
        if (possible) expect_parts(&call, rows[i].text, rows[i].parts);
        es_call_free(&call);
    }
}

#define FORM_A                                                                                                                     \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"       \
    "\"string\"}},\"required\":[\"a\"]}}}"
#define HERMES_CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}\n</tool_call>"

static void parse_formed(es_answer_format format, const char *more, es_call *call)
{
    es_api_context context = context_of(true);
    es_api_error error = {0};
    es_text body = {0};
    context.format = format;
    es_text_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}", more);
    if (!es_call_parse(&context, ES_CALL_CHAT, body.data, body.bytes, call, &error)) fail_msg("%s", error.message);
    es_text_free(&body);
}

/* With tools beside it a form is one of two ways to answer; what chooses between them says which are left. */
static void a_form_and_tools_leave_the_choice_to_the_model(void **state)
{
    (void)state;
    static const es_answer_format xml = {.tools = ES_TOOLS_XML}, hermes = {.tools = ES_TOOLS_HERMES}, llama = {.tools = ES_TOOLS_LLAMA},
                                  none = {.tools = ES_TOOLS_NONE};
    static const char tools[] = FORM_A ",\"tools\":[" TOOL_F "]", off[] = FORM_A ",\"tools\":[" TOOL_F "],\"tool_choice\":\"none\"",
                      must[] = FORM_A ",\"tools\":[" TOOL_F "],\"tool_choice\":\"required\"",
                      one[] = FORM_A ",\"tools\":[" TOOL_F "],\"parallel_tool_calls\":false",
                      grammar[] = "\"grammar\":\"root ::= call{1,2} # [x\\ncall ::= [\\\\]<] \\\"a \\\\\\\"b\\\" tool-0\\ntool-0 ::= \\\"!\\\"\","
                                  "\"tools\":[" TOOL_F "]";
    static const struct {
        const es_answer_format *format;
        const char *more, *text, *parts; /* NULL: it must not be possible */
    } rows[] = {
        {&xml, tools, "{\"a\":\"x\"}", "C:{\"a\":\"x\"}"},
        {&xml, tools, "{\"a\":\"" "<tool_call><function=f><parameter=s>x</parameter></function>" "\"}",
         "C:{\"a\":\"" "<tool_call><function=f><parameter=s>x</parameter></function>" "\"}"},
        {&xml, tools, CALL_OF("f", P("s", "x")), "F:f {\"s\":\"x\"};"},
        {&xml, tools, CALL_OF("f", P("s", "x")) "\n" CALL_OF("f", P("s", "y")), "F:f {\"s\":\"x\"};F:f {\"s\":\"y\"};"},
        {&xml, one, CALL_OF("f", P("s", "x")) "\n" CALL_OF("f", P("s", "y")), NULL},
        {&xml, tools, CALL_OF("f", ""), NULL},
        {&xml, tools, "hello", NULL},
        {&xml, tools, "{\"a\":5}", NULL},
        {&xml, off, "{\"a\":\"x\"}", "C:{\"a\":\"x\"}"},
        {&xml, off, CALL_OF("f", P("s", "x")), NULL},
        {&xml, must, "{\"a\":\"x\"}", NULL},
        {&xml, must, CALL_OF("f", P("s", "x")), "F:f {\"s\":\"x\"};"},
        {&hermes, tools, "{\"a\":\"x\"}", "C:{\"a\":\"x\"}"},
        {&hermes, tools, HERMES_CALL, "F:f {\"s\": \"x\"};"},
        {&hermes, tools, HERMES_CALL "\n" HERMES_CALL, "F:f {\"s\": \"x\"};F:f {\"s\": \"x\"};"},
        {&llama, tools, "{\"a\":\"x\"}", "C:{\"a\":\"x\"}"},
        {&llama, tools, "{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}", "F:f {\"s\": \"x\"};"},
        {&none, tools, "{\"a\":\"x\"}", "C:{\"a\":\"x\"}"},
        /* names of the grammar's own that are those around it; quotes and brackets in literals and classes */
        {&hermes, grammar, "]a \"b!<a \"b!", "C:]a \"b!<a \"b!"},
        {&hermes, grammar, HERMES_CALL, "F:f {\"s\": \"x\"};"},
        {&hermes, grammar, "]a \"b", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        es_call call;
        parse_formed(*rows[i].format, rows[i].more, &call);
        if (follows(&call, rows[i].text) != (rows[i].parts != NULL)) fail_msg("%zu: %s", i, rows[i].text);
        if (rows[i].parts) expect_parts(&call, rows[i].text, rows[i].parts);
        es_call_free(&call);
    }
}

/* A model that opens its reasoning itself may do so before a form, unless it is told not to think. */
static void a_form_stands_behind_reasoning_that_the_model_opens(void **state)
{
    (void)state;
    static const es_answer_format thinks = {.reasoning = ES_REASONING_THINK, .tools = ES_TOOLS_HERMES}, never = {.tools = ES_TOOLS_HERMES};
    static const char off[] = ",\"chat_template_kwargs\":{\"enable_thinking\":false}";
    static const struct {
        const es_answer_format *format;
        const char *more, *text, *parts; /* NULL: it must not be possible */
    } rows[] = {
        {&thinks, "", "{\"a\":\"x\"}", "C:{\"a\":\"x\"}"},
        {&thinks, "", "<think>\nhm</think>\n\n{\"a\":\"x\"}", "R:hmC:{\"a\":\"x\"}"},
        {&thinks, "", "<think>a < </thin{}</think>{\"a\":\"x\"}", "R:a < </thin{}C:{\"a\":\"x\"}"},
        {&thinks, "", "<think>hm", NULL},
        {&thinks, "", "<think>hm</think>so", NULL},
        {&thinks, off, "<think>hm</think>{\"a\":\"x\"}", NULL},
        {&thinks, off, "{\"a\":\"x\"}", "C:{\"a\":\"x\"}"},
        {&never, "", "<think>hm</think>{\"a\":\"x\"}", NULL},
        {&thinks, ",\"tools\":[" TOOL_F "]", "<think>hm</think>\n" HERMES_CALL, "R:hmF:f {\"s\": \"x\"};"},
        {&thinks, ",\"tools\":[" TOOL_F "]", "<think>hm</think>\n{\"a\":\"<tool_call>{}\"}", "R:hmC:{\"a\":\"<tool_call>{}\"}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        es_call call;
        char more[2000];
        snprintf(more, sizeof more, "%s%s", FORM_A, rows[i].more);
        parse_formed(*rows[i].format, more, &call);
        if (follows(&call, rows[i].text) != (rows[i].parts != NULL)) fail_msg("%zu: %s", i, rows[i].text);
        if (rows[i].parts) expect_parts(&call, rows[i].text, rows[i].parts);
        es_call_free(&call);
    }
}

static void what_cannot_be_forced_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *tools, *choice, *param, *word;
    } rows[] = {
        {"{\"function\":{\"name\":\"f\"}}", "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", "tool_choice", "\"g\""},
        {"{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"minProperties\":1}}}", "\"required\"", "tools", "minProperties"},
        {"{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"required\":[\"x\"]}}}", "\"required\"", "tools", "x"},
        {"{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"patternProperties\":{}}}}}}", "\"required\"",
         "tools", "patternProperties"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        es_call call;
        es_api_error error = {0};
        assert_false(parse_forced(ES_TOOLS_XML, rows[i].tools, rows[i].choice, &call, &error));
        if (strcmp(error.param, rows[i].param) != 0 || !strstr(error.message, rows[i].word)) print_error("%s\n", error.message);
        assert_string_equal(error.param, rows[i].param);
        assert_non_null(strstr(error.message, rows[i].word));
    }
}

/* Where the model was made for them; each wrong word by its name. */
static void embeddings_are_asked_for_by_name(void **state)
{
    (void)state;
    es_api_context context = context_of(true);
    es_call call;
    es_api_error error;
    static const char one[] = "{\"input\":[\"ab\",\"c\"],\"dimensions\":3,\"encoding_format\":\"base64\",\"user\":\"u\"}";
    assert_false(es_call_parse(&context, ES_CALL_EMBEDDING, one, sizeof one - 1, &call, &error));
    assert_int_equal(error.status, 501);
    context.pooling = ES_POOLING_MEAN;
    fake.info.hidden = 4;
    assert_true(es_call_parse(&context, ES_CALL_EMBEDDING, one, sizeof one - 1, &call, &error));
    const es_request request = es_call_request(&call, 1);
    assert_true(request.pooling == ES_POOLING_MEAN && request.max_tokens == 0 && request.prompt_count == 1);
    assert_true(call.prompt_count == 2 && call.dimensions == 3 && call.base64);
    es_call_free(&call);
    static const char *const wrong[][2] = {
        {"input", "{}"},
        {"input", "{\"input\":{}}"},
        {"input", "{\"input\":[256]}"},
        {"input", "{\"input\":\"\"}"},
        {"dimensions", "{\"input\":\"a\",\"dimensions\":5}"},
        {"encoding_format", "{\"input\":\"a\",\"encoding_format\":7}"},
        {"max_tokens", "{\"input\":\"a\",\"max_tokens\":7}"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(es_call_parse(&context, ES_CALL_EMBEDDING, wrong[i][1], strlen(wrong[i][1]), &call, &error));
        assert_string_equal(error.param, wrong[i][0]);
        assert_int_equal(error.status, 400);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_chat_with_everything_is_understood, open_fake),
        cmocka_unit_test_setup(efforts_turn_thinking_on_and_off, open_fake),
        cmocka_unit_test_setup(other_apis_are_chats_in_other_words, open_fake),
        cmocka_unit_test_setup(a_forced_call_is_written_as_it_is_read, open_fake),
        cmocka_unit_test_setup(what_cannot_be_forced_is_refused_by_name, open_fake),
        cmocka_unit_test_setup(a_form_and_tools_leave_the_choice_to_the_model, open_fake),
        cmocka_unit_test_setup(a_form_stands_behind_reasoning_that_the_model_opens, open_fake),
        cmocka_unit_test_setup(an_answer_that_has_begun_is_continued, open_fake),
        cmocka_unit_test_setup(parts_stay_apart_for_templates_that_read_them, open_fake),
        cmocka_unit_test_setup(the_models_recommendation_is_the_default, open_fake),
        cmocka_unit_test_setup(prompts_come_in_four_shapes, open_fake),
        cmocka_unit_test_setup(embeddings_are_asked_for_by_name, open_fake),
        cmocka_unit_test_setup(nonsense_is_refused_by_name, open_fake),
        cmocka_unit_test_setup(forms_of_answers_become_grammars, open_fake),
        cmocka_unit_test_setup(what_can_never_fit_is_refused_with_the_numbers, open_fake),
        cmocka_unit_test_setup(strict_servers_refuse_what_they_do_not_know, open_fake),
        cmocka_unit_test_setup(a_model_without_a_tokenizer_takes_numbers, open_fake),
        cmocka_unit_test_setup(errors_have_openais_shape, open_fake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
