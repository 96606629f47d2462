/* Answers that follow a grammar, by the engine: whole or cut, from the beginning or behind a mark, one or several at once, and
 * the same when a matcher is lent to somebody else between two tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "engine/constraint.h"
#include "evenshare/engine.h"
#include "model/model.h"

static const char question[] = "The code of the red door is 4719. What is the code of the red door?";

typedef struct answer {
    es_text text;
    es_finish finish;
    es_status status;
    int64_t tokens;
} answer;

static es_model *model;
static es_engine *engine;

static void on_event(void *user, const es_event *event)
{
    answer *a = user;
    es_text_append(&a->text, event->text, event->text_bytes);
    if (event->kind == ES_EVENT_DONE) a->finish = event->finish, a->tokens = event->completion_tokens;
    if (event->kind == ES_EVENT_ERROR) a->status = event->status;
}

static int open_engine(void **state)
{
    (void)state;
    const char *path = es_model_default_path();
    if (!path || access(path, R_OK) != 0) return 0; /* each test says that it is left out */
    const es_engine_options options = {.threads = 2, .parallel = 3, .context = 1024};
    if (es_model_open(NULL, &model) != ES_OK || es_engine_open(model, &options, &engine) != ES_OK)
        fail_msg("%s", es_error_message());
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    es_engine_close(engine);
    es_model_close(model);
    return 0;
}

/* The question as the model's chat template has it. */
static es_token *render(size_t *count)
{
    char *text, variables[300];
    es_token *tokens;
    snprintf(variables, sizeof variables, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", question);
    assert_int_equal(es_model_render_chat(model, variables, &text), ES_OK);
    assert_int_equal(es_tokenizer_encode(es_model_tokenizer(model), text, strlen(text), ES_ENCODE_SPECIAL, &tokens, count),
                     ES_OK);
    free(text);
    return tokens;
}

/* Asks with several choices at once, and waits for all. */
static void ask(const char *grammar, const char *after, float temperature, int64_t max_tokens, answer *answers, int count)
{
    size_t prompt_count;
    es_token *prompt = render(&prompt_count);
    uint64_t ids[8];
    for (int i = 0; i < count; i++) {
        es_request r = es_request_defaults(model);
        r.prompt = prompt, r.prompt_count = prompt_count, r.max_tokens = max_tokens;
        r.sampling = es_sampling_defaults();
        r.sampling.temperature = temperature, r.sampling.choice = (uint32_t)i;
        r.grammar = grammar, r.grammar_bytes = strlen(grammar), r.grammar_after = after;
        r.on_event = on_event, r.user = &answers[i];
        answers[i] = (answer){.status = ES_OK};
        if (es_engine_submit(engine, &r, &ids[i]) != ES_OK) fail_msg("%s", es_error_message());
    }
    for (int i = 0; i < count; i++) es_engine_wait(engine, ids[i]);
    free(prompt);
}

/* `before` may be followed by up to two newlines where the grammar begins behind a mark. */
static void expect(const char *grammar, const char *after, int64_t max_tokens, const char *before, const char *text,
                   es_finish finish)
{
    answer a;
    ask(grammar, after, 0, max_tokens, &a, 1);
    assert_int_equal(a.status, ES_OK);
    const char *got = a.text.data ? a.text.data : "";
    if (strncmp(got, before, strlen(before)) != 0) fail_msg("'%s' does not begin with '%s'", got, before);
    got += strlen(before);
    for (int i = 0; after && i < 2 && *got == '\n'; i++) got++;
    assert_string_equal(got, text);
    assert_int_equal(a.finish, finish);
    es_text_free(&a.text);
}

static void an_answer_follows_its_grammar(void **state)
{
    (void)state;
    if (!engine) skip();
    expect("root ::= \"My answer: \" [0-9]{4} \"!\"", NULL, 100, "", "My answer: 4719!", ES_FINISH_STOP);
    expect("root ::= \"x\"{1000}", NULL, 3, "", "xxx", ES_FINISH_LENGTH);
    expect("root ::= \"\"", NULL, 10, "", "", ES_FINISH_STOP);
}

static void a_grammar_can_begin_behind_a_mark(void **state)
{
    (void)state;
    if (!engine) skip();
    static const char usual[] = "The code of the red";
    expect("root ::= \"blue\" | \"9\"{2}", "red", 100, usual, "99", ES_FINISH_STOP);
    expect("root ::= \" so be it\"", "red", 100, usual, " so be it", ES_FINISH_STOP);
    expect("root ::= \" d\" \"o\"{2}", "code of the red", 100, usual, " doo", ES_FINISH_STOP);
    expect("root ::= \"x\"", "never written", 5, usual, "", ES_FINISH_LENGTH);
}

static void choices_follow_it_side_by_side(void **state)
{
    (void)state;
    if (!engine) skip();
    answer a[6];
    ask("root ::= item (\", \" item){2,4}\nitem ::= [a-z]{3,8}", NULL, 1.5f, 200, a, 6);
    int differ = 0;
    for (int i = 0; i < 6; i++) {
        int commas = 0;
        assert_int_equal(a[i].status, ES_OK);
        assert_int_equal(a[i].finish, ES_FINISH_STOP);
        for (const char *c = a[i].text.data; *c; c++) commas += *c == ',';
        assert_in_range(commas, 2, 4);
        assert_int_equal(strspn(a[i].text.data, "abcdefghijklmnopqrstuvwxyz, "), a[i].text.bytes);
        differ += strcmp(a[i].text.data, a[0].text.data) != 0;
    }
    assert_true(differ > 0);
    for (int i = 0; i < 6; i++) es_text_free(&a[i].text);
}

static void what_is_no_grammar_is_refused_when_it_is_submitted(void **state)
{
    (void)state;
    if (!engine) skip();
    size_t count;
    uint64_t id;
    es_token *prompt = render(&count);
    es_request r = es_request_defaults(model);
    r.prompt = prompt, r.prompt_count = count, r.grammar = "root ::= ", r.grammar_bytes = 5;
    assert_int_equal(es_engine_submit(engine, &r, &id), ES_INVALID);
    r.grammar_bytes = 9, r.grammar_after = "";
    assert_int_equal(es_engine_submit(engine, &r, &id), ES_INVALID);
    free(prompt);
}

static es_sequence *open_sequence(es_constraints *c, uint64_t id, const char *grammar, const char *after)
{
    static const es_token prompt[] = {5};
    const es_sequence_limits limits = {.model = model, .context = 1024, .page = 64, .has_pages = true};
    es_request r = es_request_defaults(model);
    es_sequence *s;
    r.prompt = prompt, r.prompt_count = 1, r.max_tokens = 500;
    r.grammar = grammar, r.grammar_bytes = strlen(grammar), r.grammar_after = after;
    if (es_sequence_open(&r, &limits, &s) != ES_OK || es_constraint_compile(c, &r, s) != ES_OK)
        fail_msg("%s", es_error_message());
    s->id = id;
    return s;
}

/* The next token of a text, one byte long; what the constraint says of it. */
static void write_byte(es_constraints *c, es_sequence *s, char byte, bool fits)
{
    const char text[2] = {byte, '\0'};
    const es_token token = es_tokenizer_find(es_model_tokenizer(model), text);
    es_allowed allowed;
    bool over;
    assert_true(token >= 0);
    assert_int_equal(es_constraint_allow(c, s, &allowed), ES_OK);
    assert_int_equal(allowed.mask[token / 8] >> (token % 8) & 1, fits);
    if (!fits) return;
    assert_int_equal(es_constraint_take(c, s, token, &over), ES_OK);
    s->tokens[s->count++] = token;
}

static void a_lent_matcher_finds_its_place_again(void **state)
{
    (void)state;
    if (!engine) skip();
    static const char one[] = "[12,[3,[],4]]", two[] = "say:((a)(b))";
    es_constraints c;
    es_constraints_open(model, 1, &c); /* one matcher for two */
    es_sequence *a = open_sequence(&c, 7, "root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= [0-9]+ | root", NULL);
    es_sequence *b = open_sequence(&c, 8, "root ::= \"(\" ([a-z] | root)* \")\"", "say:");
    for (size_t i = 0; i < sizeof one - 1 || i < sizeof two - 1; i++) {
        if (i < sizeof one - 1) {
            write_byte(&c, a, ';', false);
            write_byte(&c, a, one[i], true);
        }
        if (i < sizeof two - 1) {
            if (i >= 4) write_byte(&c, b, '9', false);
            write_byte(&c, b, two[i], true);
        }
    }
    es_allowed allowed;
    assert_int_equal(es_constraint_allow(&c, a, &allowed), ES_OK);
    assert_true(allowed.over && allowed.may_stop);
    assert_int_equal(es_constraint_allow(&c, b, &allowed), ES_OK);
    assert_true(allowed.over && allowed.may_stop);
    es_sequence_close(a);
    es_sequence_close(b);
    es_constraints_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_follows_its_grammar),
        cmocka_unit_test(a_grammar_can_begin_behind_a_mark),
        cmocka_unit_test(choices_follow_it_side_by_side),
        cmocka_unit_test(what_is_no_grammar_is_refused_when_it_is_submitted),
        cmocka_unit_test(a_lent_matcher_finds_its_place_again),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
