/* More answers than the pages can hold: sequences are moved out and come back, and not a bit of any answer changes. */
#include "evenshare/engine.h"

#include <unistd.h>

#include "oracle.h"

#define CONTEXT   (ES_ORACLE_SANITIZED ? 192 : 400)
#define PROMPT    90
#define SEQUENCES 4
#define PAGES     (CONTEXT / 16 + 9)

typedef struct reply {
    int32_t tokens[CONTEXT];
    float logprobs[CONTEXT];
    es_oracle_answer answer;
    int64_t place; /* the how-manieth to end */
    int64_t *ended;
} reply;

static void on_event(void *user, const es_event *event)
{
    reply *r = user;
    es_oracle_on_event(&r->answer, event);
    if (event->kind == ES_EVENT_DONE && r->ended) r->place = ++*r->ended;
}

/* An answer without max_tokens that goes on until the context is full. */
static uint64_t ask(es_engine *engine, const int32_t *ids, int64_t count, int64_t *ended, reply *r)
{
    *r = (reply){.ended = ended};
    r->answer = (es_oracle_answer){.tokens = r->tokens, .logprobs = r->logprobs, .most_tokens = CONTEXT};
    es_request request = es_oracle_request(ids, count, &r->answer);
    request.max_tokens = -1;
    request.on_event = on_event;
    request.user = r;
    request.sampling.temperature = 0.8f;
    request.sampling.repetition_penalty = 1.1f;
    request.sampling.repetition_window = -1;
    request.sampling.seed = (uint64_t)ids[0];
    return es_oracle_submit(engine, &request);
}

static void same_bits(const char *family, bool no_cache, int64_t reserve)
{
    static reply got[SEQUENCES], truth;
    es_model *model = es_oracle_model(family);
    es_tensor_set *set = es_oracle_open(family, "reference");
    const int32_t *ids = es_oracle_get(set, 4096).ids;
    const es_engine_options small = {
        .threads = 1, .parallel = 3, .page = 16, .pages = PAGES, .context = CONTEXT, .reserve = reserve, .no_cache = no_cache};
    const es_engine_options alone = {.threads = 1, .parallel = 1, .context = CONTEXT, .no_cache = true};
    es_engine *engine = es_oracle_engine(model, small), *cold = es_oracle_engine(model, alone);
    uint64_t id[SEQUENCES];
    int64_t ended = 0;
    for (int i = 0; i < SEQUENCES; i++) id[i] = ask(engine, ids + 97 * i, PROMPT + 5 * i, &ended, &got[i]);
    for (int i = 0; i < SEQUENCES; i++) es_engine_wait(engine, id[i]);
    const es_engine_stats stats = es_engine_get_stats(engine);
    print_message("%-12s moved out %d times, %d tokens computed anew\n", family, (int)stats.preemptions,
                  (int)stats.recomputed_tokens);
    for (int i = 0; i < SEQUENCES; i++) {
        es_engine_wait(cold, ask(cold, ids + 97 * i, PROMPT + 5 * i, NULL, &truth));
        assert_int_equal(got[i].answer.done, 1);
        assert_int_equal(got[i].answer.errors, 0);
        assert_int_equal(got[i].answer.count, CONTEXT - PROMPT - 5 * i);
        assert_memory_equal(got[i].tokens, truth.tokens, sizeof truth.tokens);
        assert_memory_equal(got[i].logprobs, truth.logprobs, sizeof truth.logprobs);
    }
    assert_true(stats.preemptions >= 2);
    assert_true(stats.recomputed_tokens > 0);
    assert_int_equal(got[0].place, 1); /* the oldest */
    assert_int_equal(es_engine_get_stats(engine).pages_held, 0);
    es_engine_close(engine);
    es_engine_close(cold);
    es_tensor_set_close(set);
    es_model_close(model);
}

static void a_sequence_moved_out_comes_back_the_same(void **state)
{
    (void)state;
    same_bits("qwen3_5_moe", true, 1);
    same_bits("llama", false, 40);
    if (ES_ORACLE_SANITIZED) return;
    same_bits("qwen3_5", false, 8);
    same_bits("qwen3", true, 8);
}

/* What was promised with max_tokens is safe, even from an older one that wants more than it was promised: that one waits. */
static void what_was_promised_is_not_taken(void **state)
{
    (void)state;
    static reply got[SEQUENCES];
    es_model *model = es_oracle_model("qwen3_5");
    es_tensor_set *set = es_oracle_open("qwen3_5", "reference");
    const int32_t *ids = es_oracle_get(set, 4096).ids;
    const es_engine_options small = {
        .threads = 1, .parallel = 3, .page = 16, .pages = PAGES, .context = CONTEXT, .reserve = 1};
    es_engine *engine = es_oracle_engine(model, small);
    uint64_t id[SEQUENCES];
    id[0] = ask(engine, ids, PROMPT, NULL, &got[0]);
    for (int i = 1; i < SEQUENCES; i++) {
        got[i] = (reply){.answer.most_tokens = CONTEXT / 2 + i};
        es_request request = es_oracle_request(ids + 31 * i, PROMPT, &got[i].answer);
        id[i] = es_oracle_submit(engine, &request);
    }
    for (int i = 0; i < SEQUENCES; i++) es_engine_wait(engine, id[i]);
    assert_int_equal(got[0].answer.count, CONTEXT - PROMPT);
    for (int i = 1; i < SEQUENCES; i++) assert_int_equal(got[i].answer.count, CONTEXT / 2 + i);
    assert_int_equal(es_engine_get_stats(engine).preemptions, 0);
    es_engine_close(engine);
    es_tensor_set_close(set);
    es_model_close(model);
}

/* Cancelled wherever they are, running, paused or moved out: each has one last event, and no page is lost. */
static void cancelled_while_moved_out(void **state)
{
    (void)state;
    static reply got[SEQUENCES];
    es_model *model = es_oracle_model("qwen3_5");
    es_tensor_set *set = es_oracle_open("qwen3_5", "reference");
    const int32_t *ids = es_oracle_get(set, 4096).ids;
    es_engine *engine = es_oracle_engine(
        model, (es_engine_options){.threads = 1, .parallel = 3, .page = 16, .pages = PAGES, .context = CONTEXT, .reserve = 8});
    for (int round = 0; round < (ES_ORACLE_SANITIZED ? 2 : 4); round++) {
        uint64_t id[SEQUENCES];
        const uint64_t before = es_engine_get_stats(engine).preemptions;
        for (int i = 0; i < SEQUENCES; i++) id[i] = ask(engine, ids + 97 * i, PROMPT + 5 * i, NULL, &got[i]);
        while (es_engine_get_stats(engine).preemptions == before) usleep(200); /* leaves the core to the engine */
        for (int i = 0; i < SEQUENCES; i++) es_engine_cancel(engine, id[(i + round) % SEQUENCES]);
        for (int i = 0; i < SEQUENCES; i++) es_engine_wait(engine, id[i]);
        for (int i = 0; i < SEQUENCES; i++) assert_int_equal(got[i].answer.done + got[i].answer.errors, 1);
        assert_int_equal(es_engine_get_stats(engine).pages_held, 0);
    }
    es_engine_close(engine);
    es_tensor_set_close(set);
    es_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_moved_out_comes_back_the_same),
        cmocka_unit_test(what_was_promised_is_not_taken),
        cmocka_unit_test(cancelled_while_moved_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
