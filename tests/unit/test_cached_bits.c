/* The prefix cache never changes an answer: what was found gives the same bits as what was computed, for a hybrid model (whose
 * recurrent state must have been kept) and a classic one, with pages that the prompts end in the middle of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "evenshare/engine.h"
#include "oracle.h"

#define ANSWER 12
#define MOST 700
#define TURN    (ES_ORACLE_SANITIZED ? 100 : 300)
#define RETRIED (ES_ORACLE_SANITIZED ? 200 : MOST)
#define CONTEXT (ES_ORACLE_SANITIZED ? 160 : 320)
#define ROUNDS  (ES_ORACLE_SANITIZED ? 8 : 24)

typedef struct reply {
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
    int64_t count, cached;
    int done, errors;
    es_finish finish;
} reply;

static void on_event(void *user, const es_event *event)
{
    reply *r = user;
    if (event->kind == ES_EVENT_TOKEN && r->count < ANSWER) {
        r->tokens[r->count] = event->token;
        r->logprobs[r->count++] = event->logprob;
    }
    if (event->kind == ES_EVENT_ERROR) r->errors++;
    if (event->kind == ES_EVENT_DONE) {
        r->done++;
        r->cached = event->cached_tokens;
        r->finish = event->finish;
    }
}

static reply ask(es_engine *engine, const int32_t *ids, int64_t count)
{
    reply r = {0};
    const es_request request = {.prompt = ids, .prompt_count = (size_t)count, .max_tokens = ANSWER, .ignore_eos = true,
                                .sampling = es_sampling_defaults(), .logprobs = true, .on_event = on_event, .user = &r};
    es_engine_wait(engine, es_oracle_submit(engine, &request));
    assert_int_equal(r.done, 1);
    assert_int_equal(r.count, ANSWER);
    return r;
}

static void assert_same(const reply *a, const reply *b)
{
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
    assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs);
}

/* A conversation: the same prompt again, the next turn, an edit in the middle; against an engine that remembers nothing. */
static void converse(const char *family, int page)
{
    es_model *model = es_oracle_model(family);
    es_tensor_set *set = es_oracle_open(family, "reference");
    es_engine *warm = es_oracle_engine(model, (es_engine_options){.threads = 2, .parallel = 2, .page = page, .chunk = 50});
    es_engine *cold = es_oracle_engine(model, (es_engine_options){.threads = 2, .parallel = 2, .page = page, .no_cache = true});
    const es_oracle_case source = es_oracle_get(set, 4096);
    int32_t ids[MOST];
    memcpy(ids, source.ids, sizeof ids);

    const reply first = ask(warm, ids, TURN), truth = ask(cold, ids, TURN);
    assert_same(&first, &truth);
    assert_int_equal(first.cached, 0);
    assert_int_equal(truth.cached, 0);
    const reply again = ask(warm, ids, TURN);
    assert_same(&again, &truth);
    /* A classic model goes on at the last full page (or at a tail that was kept): here that loses less than a page. */
    assert_true(again.cached < TURN && again.cached > (es_model_get_info(model)->state_bytes ? TURN - 2 : TURN - 1 - page));

    /* The next turn: the answer, then more. Everything but the answer's last token was computed. */
    memcpy(ids + TURN, first.tokens, sizeof first.tokens);
    const reply next = ask(warm, ids, TURN + 100), next_truth = ask(cold, ids, TURN + 100);
    assert_same(&next, &next_truth);
    assert_int_equal(next.cached, TURN + ANSWER - 1);

    /* An edit: what came before it is still there, as far as a state was kept. */
    ids[TURN + 50] = (ids[TURN + 50] + 1) % 512;
    const reply edited = ask(warm, ids, TURN + 100), edited_truth = ask(cold, ids, TURN + 100);
    assert_same(&edited, &edited_truth);
    assert_true(edited.cached >= TURN + ANSWER - 1 && edited.cached <= TURN + 50);

    const es_engine_stats stats = es_engine_get_stats(warm);
    assert_int_equal(stats.cached_tokens, again.cached + next.cached + edited.cached);
    es_engine_close(warm);
    es_engine_close(cold);
    es_tensor_set_close(set);
    es_model_close(model);
}

static void a_hit_gives_the_same_bits_as_a_miss(void **state)
{
    (void)state;
    converse("qwen3_5_moe", 64);
    converse("qwen3", 16);
    if (ES_ORACLE_SANITIZED) return;
    converse("qwen3_5", 16);
    converse("llama", 128);
}

/* Who gives up once a turn of the prompt is done. */
typedef struct impatient {
    reply reply;
    es_engine *engine;
} impatient;

static void on_progress(void *user, const es_event *event)
{
    impatient *i = user;
    on_event(&i->reply, event);
    if (event->kind == ES_EVENT_PROGRESS && event->prompt_done >= TURN) es_engine_cancel(i->engine, event->request);
}

/* A client that gave up and comes back: the prompt goes on where it was. */
static void a_retry_goes_on_where_the_prompt_was(void **state)
{
    (void)state;
    const char *const families[] = {"qwen3_5", "qwen2"};
    for (int f = 0; f < 2; f++) {
        es_model *model = es_oracle_model(families[f]);
        es_tensor_set *set = es_oracle_open(families[f], "reference");
        es_engine *engine = es_oracle_engine(model, (es_engine_options){.threads = 2, .parallel = 2, .chunk = 16, .step_budget = -1});
        es_engine *cold = es_oracle_engine(model, (es_engine_options){.threads = 2, .parallel = 1, .no_cache = true});
        const es_oracle_case source = es_oracle_get(set, 4096);
        impatient gone = {.engine = engine};
        const es_request request = {.prompt = source.ids, .prompt_count = RETRIED, .max_tokens = ANSWER, .ignore_eos = true, .progress = true,
                                    .sampling = es_sampling_defaults(), .on_event = on_progress, .user = &gone};
        es_engine_wait(engine, es_oracle_submit(engine, &request));
        assert_int_equal(gone.reply.finish, ES_FINISH_CANCELLED);
        const reply back = ask(engine, source.ids, RETRIED), truth = ask(cold, source.ids, RETRIED);
        assert_true(back.cached >= TURN && back.cached < RETRIED);
        assert_same(&back, &truth);
        es_engine_close(engine);
        es_engine_close(cold);
        es_tensor_set_close(set);
        es_model_close(model);
    }
}

/* Far more conversations than the pools can remember: old ones go, answers stay right, nothing is lost. */
static void more_than_fits_is_forgotten_not_wrong(void **state)
{
    (void)state;
    es_model *model = es_oracle_model("qwen3_5");
    es_tensor_set *set = es_oracle_open("qwen3_5", "reference");
    es_engine *small = es_oracle_engine(model, (es_engine_options){.threads = 1, .parallel = 2, .context = CONTEXT, .page = 16, .cache = 2u << 20});
    es_engine *cold = es_oracle_engine(model, (es_engine_options){.threads = 1, .parallel = 1, .context = CONTEXT, .no_cache = true});
    const es_oracle_case source = es_oracle_get(set, 4096);
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t length = 40 + round * 11 % (CONTEXT - 60);
        const reply r = ask(small, source.ids + round * 13 % 5 * 300, length), truth = ask(cold, source.ids + round * 13 % 5 * 300, length);
        assert_same(&r, &truth);
    }
    es_engine_close(small);
    es_engine_close(cold);
    es_tensor_set_close(set);
    es_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_gives_the_same_bits_as_a_miss),
        cmocka_unit_test(a_retry_goes_on_where_the_prompt_was),
        cmocka_unit_test(more_than_fits_is_forgotten_not_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
