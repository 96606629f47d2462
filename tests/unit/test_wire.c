/* What crosses between two processes arrives as it was sent, and nothing that arrives is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "serve/wire.h"

static es_wire_message take_whole(const es_text *text)
{
    es_wire_message m;
    assert_int_equal(es_wire_take(text->data, text->bytes, &m), text->bytes);
    return m;
}

static void on_event(void *user, const es_event *event)
{
    (void)user, (void)event;
}

static void a_request_arrives_whole(void **state)
{
    (void)state;
    const es_token prompt[] = {1, 2, 3}, ends[] = {9};
    const es_logit_bias bias[] = {
        {4, -1.5f},
        {5, 100  }
    };
    const char *const stop[] = {"\n\n", "", "END"};
    const es_request sent = {
        .prompt = prompt,
        .prompt_count = 3,
        .max_tokens = -1,
        .sampling = {.temperature = 0.5f, .seed = 77, .choice = 3},
        .bias = bias,
        .bias_count = 2,
        .stop_tokens = ends,
        .stop_token_count = 1,
        .stop = stop,
        .stop_count = 3,
        .grammar = "root ::= \"a\"",
        .grammar_bytes = 12,
        .grammar_after = "</think>",
        .grammar_optional = true,
        .ignore_eos = true,
        .logprobs = true,
        .top_logprobs = 5,
        .progress = true,
        .prompt_logprobs = true,
        .pooling = ES_POOLING_LAST,
        .on_event = on_event,
        .logits_from = 7,
        .user = &state
    };
    es_text text = {0};
    assert_true(es_wire_put_submit(&text, UINT64_MAX - 5, &sent));
    const es_wire_message m = take_whole(&text);
    assert_int_equal(m.kind, ES_WIRE_SUBMIT);
    assert_true(m.key == UINT64_MAX - 5);
    const es_request *got = &m.request;
    assert_int_equal(got->prompt_count, 3);
    assert_memory_equal(got->prompt, prompt, sizeof prompt);
    assert_int_equal(got->max_tokens, -1);
    assert_memory_equal(&got->sampling, &sent.sampling, sizeof sent.sampling);
    assert_int_equal(got->bias_count, 2);
    assert_memory_equal(got->bias, bias, sizeof bias);
    assert_int_equal(got->stop_token_count, 1);
    assert_int_equal(got->stop_tokens[0], 9);
    assert_int_equal(got->stop_count, 3);
    for (size_t i = 0; i < 3; i++) assert_string_equal(m.strings[i], stop[i]);
    assert_int_equal(got->grammar_bytes, 12);
    assert_memory_equal(got->grammar, sent.grammar, 12);
    assert_string_equal(got->grammar_after, "</think>");
    assert_true(got->grammar_optional && got->ignore_eos && got->logprobs && got->progress && !got->keep_special);
    assert_int_equal(got->top_logprobs, 5);
    assert_int_equal(got->logits_from, 7);
    assert_true(got->prompt_logprobs);
    assert_int_equal(got->pooling, ES_POOLING_LAST);
    es_text_free(&text);
    /* what is not there is not there, which is another thing than empty */
    const es_request bare = {.prompt = prompt, .prompt_count = 1, .stop_tokens = ends};
    assert_true(es_wire_put_submit(&text, 1, &bare));
    const es_wire_message n = take_whole(&text);
    assert_null(n.request.grammar);
    assert_null(n.request.grammar_after);
    assert_null(n.request.bias);
    assert_non_null(n.request.stop_tokens);
    /* a pointer of another process means nothing here */
    assert_null(got->on_event);
    assert_null(got->user);
    es_text_free(&text);
}

static void an_event_arrives_whole(void **state)
{
    (void)state;
    const es_token_logprob top[] = {
        {1, -0.5f},
        {2, -3   }
    };
    const float embedding[] = {1, -2, 0.5f};
    const es_event sent = {.kind = ES_EVENT_DONE,
                           .request = 12,
                           .prompt_done = 3,
                           .token = 44,
                           .text = "a\0b",
                           .text_bytes = 3,
                           .logprob = -2,
                           .top = top,
                           .top_count = 2,
                           .finish = ES_FINISH_LENGTH,
                           .stop_string = "END",
                           .embedding = embedding,
                           .embedding_count = 3,
                           .prompt_tokens = 5,
                           .cached_tokens = 4,
                           .completion_tokens = 6,
                           .prompt_seconds = 0.5,
                           .completion_seconds = 1.5,
                           .status = ES_INTERNAL,
                           .message = "why"};
    es_text text = {0};
    assert_true(es_wire_put_event(&text, &sent));
    const es_wire_message m = take_whole(&text);
    assert_int_equal(m.kind, ES_WIRE_EVENT);
    const es_event *got = &m.event;
    assert_true(got->kind == ES_EVENT_DONE && got->request == 12 && got->prompt_done == 3 && got->token == 44);
    assert_int_equal(got->text_bytes, 3);
    assert_memory_equal(got->text, "a\0b", 3);
    assert_int_equal(got->top_count, 2);
    assert_memory_equal(got->top, top, sizeof top);
    assert_true(got->logprob == -2 && got->finish == ES_FINISH_LENGTH && got->prompt_tokens == 5 && got->cached_tokens == 4);
    assert_true(got->completion_tokens == 6 && got->prompt_seconds == 0.5 && got->completion_seconds == 1.5);
    assert_int_equal(got->status, ES_INTERNAL);
    assert_string_equal(got->stop_string, "END");
    assert_string_equal(got->message, "why");
    assert_int_equal(got->embedding_count, 3);
    assert_memory_equal(got->embedding, embedding, sizeof embedding);
    es_text_free(&text);
}

static void the_rest_arrives_too(void **state)
{
    (void)state;
    const es_wire_hello hello = {
        .engine = {.threads = 2,
                   .parallel = 4,
                   .context = 4096,
                   .numeric = ES_NUMERIC_INT8,
                   .kv_type = ES_KV_Q8_0,
                   .step_budget = 0.02,
                   .checkpoints = 9,
                   .device = "cpu",
                   .instruction_set = "avx2",
                   .fingerprint = "f"},
        .model = "m",
        .vocabulary = 300
    };
    const es_engine_stats stats = {.steps = 3, .running = 2, .last_step_seconds = 0.25};
    es_text text = {0};
    assert_true(es_wire_put_hello(&text, &hello));
    es_wire_message m = take_whole(&text);
    assert_int_equal(m.kind, ES_WIRE_HELLO);
    assert_true(m.hello.engine.parallel == 4 && m.hello.engine.context == 4096 && m.hello.vocabulary == 300);
    assert_true(m.hello.engine.numeric == ES_NUMERIC_INT8 && m.hello.engine.kv_type == ES_KV_Q8_0 && m.hello.engine.checkpoints == 9);
    assert_string_equal(m.hello.engine.instruction_set, "avx2");
    assert_string_equal(m.hello.model, "m");
    es_text_clear(&text);
    assert_true(es_wire_put_stats(&text, &stats));
    m = take_whole(&text);
    assert_memory_equal(&m.stats, &stats, sizeof stats);
    es_text_clear(&text);
    assert_true(es_wire_put_failed(&text, ES_NO_MEMORY, "too small"));
    m = take_whole(&text);
    assert_true(m.kind == ES_WIRE_FAILED && m.failed.status == ES_NO_MEMORY);
    assert_string_equal(m.failed.message, "too small");
    es_text_clear(&text);
    assert_true(es_wire_put_key(&text, ES_WIRE_CANCEL, 8));
    m = take_whole(&text);
    assert_true(m.kind == ES_WIRE_CANCEL && m.key == 8);
    es_text_free(&text);
}

/* Cut anywhere it is "not yet"; with any byte of it changed it is refused or read within its bounds (the sanitizer watches).
 */
static void nothing_is_believed(void **state)
{
    (void)state;
    const es_token prompt[] = {1, 2, 3};
    const char *const stop[] = {"one", "two"};
    const es_request request = {.prompt = prompt, .prompt_count = 3, .stop = stop, .stop_count = 2};
    es_text text = {0};
    assert_true(es_wire_put_submit(&text, 1, &request));
    es_wire_message m;
    for (size_t cut = 0; cut < text.bytes; cut++) {
        char *part = malloc(cut + 1);
        memcpy(part, text.data, cut);
        assert_int_equal(es_wire_take(part, cut, &m), 0);
        free(part);
    }
    size_t refused = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        char *changed = malloc(text.bytes);
        memcpy(changed, text.data, text.bytes);
        changed[i] = (char)~changed[i];
        const ptrdiff_t used = es_wire_take(changed, text.bytes, &m);
        refused += used == -1;
        if (used > 0)
            for (size_t s = 0; s < m.request.stop_count; s++) assert_in_range(strlen(m.request.stop[s]), 0, 3);
        free(changed);
    }
    assert_in_range(refused, 40, text.bytes);
    es_text_free(&text);
}

static void too_much_is_not_sent(void **state)
{
    (void)state;
    const size_t count = ES_WIRE_MOST / sizeof(es_token);
    es_token *prompt = calloc(count, sizeof *prompt);
    const es_request request = {.prompt = prompt, .prompt_count = count};
    es_text text = {0};
    assert_true(es_wire_put_key(&text, ES_WIRE_CANCEL, 1));
    const size_t before = text.bytes;
    assert_false(es_wire_put_submit(&text, 1, &request));
    assert_int_equal(text.bytes, before);
    assert_false(text.failed);
    es_text_free(&text);
    free(prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_arrives_whole), cmocka_unit_test(an_event_arrives_whole),
        cmocka_unit_test(the_rest_arrives_too),    cmocka_unit_test(nothing_is_believed),
        cmocka_unit_test(too_much_is_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
