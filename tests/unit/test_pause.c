/* A request that is paused gives up its place, and goes on later as if nothing had been: same tokens, same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "evenshare/engine.h"
#include "oracle.h"

enum { ANSWER = 60, PROMPT = 130 };

typedef struct reply {
    es_engine *engine;
    pthread_mutex_t lock;
    uint64_t id;
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
    int64_t count, pause_at;
    int ends;
    es_finish finish;
} reply;

/* Pauses itself where the test says so. */
static void on_event(void *user, const es_event *event)
{
    reply *r = user;
    pthread_mutex_lock(&r->lock);
    if (event->kind == ES_EVENT_TOKEN && r->count < ANSWER) {
        r->tokens[r->count] = event->token;
        r->logprobs[r->count++] = event->logprob;
        if (r->count == r->pause_at) es_engine_pause(r->engine, event->request, true);
    }
    if (event->kind == ES_EVENT_DONE || event->kind == ES_EVENT_ERROR) {
        r->ends++;
        r->finish = event->finish;
    }
    pthread_mutex_unlock(&r->lock);
}

static void submit(es_engine *engine, const int32_t *ids, int64_t pause_at, reply *r)
{
    *r = (reply){.engine = engine, .pause_at = pause_at};
    pthread_mutex_init(&r->lock, NULL);
    const es_request request = {.prompt = ids,
                                .prompt_count = PROMPT,
                                .max_tokens = ANSWER,
                                .ignore_eos = true,
                                .sampling = es_sampling_defaults(),
                                .logprobs = true,
                                .on_event = on_event,
                                .user = r};
    r->id = es_oracle_submit(engine, &request);
}

static int64_t count_of(reply *r)
{
    pthread_mutex_lock(&r->lock);
    const int64_t count = r->count;
    pthread_mutex_unlock(&r->lock);
    return count;
}

static void wait_until_paused(es_engine *engine, reply *r)
{
    while (count_of(r) < r->pause_at) usleep(500);
    while (es_engine_get_stats(engine).running > 0) usleep(500);
}

static void pause_and_go_on(const char *family)
{
    es_model *model = es_oracle_model(family);
    es_tensor_set *set = es_oracle_open(family, "reference");
    es_engine *engine = es_oracle_engine(model, (es_engine_options){.threads = 1, .parallel = 1, .page = 16, .chunk = 50});
    const es_oracle_case source = es_oracle_get(set, 300);
    static reply truth, paused, other;
    submit(engine, source.ids, 0, &truth);
    es_engine_wait(engine, truth.id);
    assert_int_equal(truth.count, ANSWER);

    /* the only place goes to somebody else meanwhile */
    submit(engine, source.ids, 7, &paused);
    wait_until_paused(engine, &paused);
    submit(engine, source.ids + 100, 0, &other);
    es_engine_wait(engine, other.id);
    assert_int_equal(other.count, ANSWER);
    assert_int_equal(paused.count, 7);
    assert_int_equal(es_engine_get_stats(engine).waiting, 1);

    /* and on, and once more */
    pthread_mutex_lock(&paused.lock);
    paused.pause_at = 30;
    pthread_mutex_unlock(&paused.lock);
    es_engine_pause(engine, paused.id, false);
    wait_until_paused(engine, &paused);
    assert_int_equal(paused.count, 30);
    es_engine_pause(engine, paused.id, false);
    es_engine_wait(engine, paused.id);
    assert_int_equal(paused.ends, 1);
    assert_int_equal(paused.finish, ES_FINISH_LENGTH);
    assert_memory_equal(paused.tokens, truth.tokens, sizeof truth.tokens);
    assert_memory_equal(paused.logprobs, truth.logprobs, sizeof truth.logprobs);

    /* one that is set aside can be cancelled, and ends when the engine closes */
    submit(engine, source.ids, 5, &paused);
    wait_until_paused(engine, &paused);
    es_engine_cancel(engine, paused.id);
    es_engine_wait(engine, paused.id);
    assert_int_equal(paused.ends, 1);
    assert_int_equal(paused.finish, ES_FINISH_CANCELLED);
    submit(engine, source.ids, 5, &paused);
    wait_until_paused(engine, &paused);
    const es_engine_stats stats = es_engine_get_stats(engine);
    assert_int_equal(stats.waiting, 1);
    assert_int_equal(stats.pages_held, 0);
    es_engine_close(engine);
    assert_int_equal(paused.ends, 1);
    es_tensor_set_close(set);
    es_model_close(model);
}

static void a_classic_model_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    pause_and_go_on("llama");
}

static void a_hybrid_model_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    pause_and_go_on("qwen3_5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_classic_model_goes_on_with_the_same_bits),
        cmocka_unit_test(a_hybrid_model_goes_on_with_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
