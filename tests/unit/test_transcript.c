/* test_transcript.c: what `check` makes of a server's bytes, and its statistics. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "check/transcript.h"

#define HEAD "\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\""
#define ROLE \
    "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
#define WORD(w) "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" w "\"},\"finish_reason\":null}]}\n\n"
#define LAST "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
#define USAGE \
    "data: {" HEAD ",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9," \
    "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n"
#define DONE "data: [DONE]\n\n"

static es_transcript read_stream(const char *stream, size_t step)
{
    es_transcript t;
    es_transcript_init(&t, true);
    const size_t n = strlen(stream);
    for (size_t i = 0; i < n; i += step) es_transcript_feed(&t, stream + i, n - i < step ? n - i : step, (double)i);
    es_transcript_end(&t);
    return t;
}

static void a_stream_reads_the_same_however_it_is_cut(void **state)
{
    (void)state;
    static const char stream[] = ": waiting\n\n" ROLE WORD("Hel") WORD("lo") LAST USAGE DONE;
    for (size_t step = 1; step < sizeof stream; step += step < 20 ? 1 : 37) {
        es_transcript t = read_stream(stream, step);
        assert_string_equal(t.fault, "");
        assert_string_equal(t.text.data, "Hello");
        assert_string_equal(t.finish, "length");
        assert_int_equal(t.times.count, 2);
        assert_int_equal(t.chunks, 4);
        assert_int_equal(t.comments, 1);
        assert_int_equal(t.dones, 1);
        assert_int_equal(t.prompt_tokens, 7);
        assert_int_equal(t.completion_tokens, 2);
        assert_int_equal(t.cached_tokens, 3);
        es_transcript_free(&t);
    }
}

static void every_line_end_is_one(void **state)
{
    (void)state;
    static const char stream[] = ROLE WORD("a") LAST DONE;
    char other[2 * sizeof stream];
    for (int kind = 0; kind < 2; kind++) {
        size_t n = 0;
        for (const char *c = stream; *c; c++) {
            if (*c == '\n') other[n++] = '\r';
            if (*c != '\n' || kind == 0) other[n++] = *c;
        }
        other[n] = 0;
        for (size_t step = 1; step < 9; step++) {
            es_transcript t = read_stream(other, step);
            assert_string_equal(t.fault, "");
            assert_string_equal(t.text.data, "a");
            es_transcript_free(&t);
        }
    }
}

static void each_broken_shape_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *stream, *word; /* that the fault has */
    } rows[] = {
        {"", "no chunk"},
        {ROLE WORD("a") DONE, "finish_reason"},
        {ROLE WORD("a") LAST, "[DONE]"},
        {WORD("a") LAST DONE, "role"},
        {ROLE WORD("a") LAST LAST DONE, "more than one finish_reason"},
        {ROLE WORD("a") LAST WORD("b") DONE, "after the finish_reason"},
        {ROLE WORD("a") LAST DONE WORD("b"), "after [DONE]"},
        {ROLE WORD("a") USAGE LAST DONE, "usage comes before"},
        {ROLE WORD("a") LAST USAGE USAGE DONE, "more than one chunk with usage"},
        {ROLE "data: {oops\n\n" LAST DONE, "not a JSON object"},
        {ROLE "data: 17\n\n" LAST DONE, "not a JSON object"},
        {ROLE "data: {}\n\n" LAST DONE, "without choices"},
        {ROLE "hello\n\n" LAST DONE, "no field"},
        {ROLE WORD("a") LAST DONE "data: x", "inside an event"},
        {ROLE "data: {\"error\":{\"message\":\"5 x\",\"code\":\"bad thing\"}}\n\n", "code \"bad_thing\""},
        {"data: {\"id\":\"c1\",\"object\":\"other\",\"created\":1,\"model\":\"m\",\"choices\":"
         "[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"
         LAST DONE, "chat.completion.chunk"},
        {ROLE "data: {\"id\":\"c2\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
              "\"choices\":[{\"delta\":{}}]}\n\n"
         LAST DONE, "id changes"},
        {ROLE LAST "data: {" HEAD ",\"choices\":[],\"usage\":"
                   "{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":8}}\n\n" DONE,
         "add up"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        es_transcript t = read_stream(rows[i].stream, 64);
        if (!strstr(t.fault, rows[i].word)) fail_msg("row %zu: \"%s\" does not have \"%s\"", i, t.fault, rows[i].word);
        es_transcript_free(&t);
    }
}

static es_transcript read_whole(const char *body)
{
    es_transcript t;
    es_transcript_init(&t, true);
    es_transcript_whole(&t, body, strlen(body));
    return t;
}

static void whole_replies_and_errors_are_read(void **state)
{
    (void)state;
    es_transcript t = read_whole("{\"id\":\"a\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\",\"choices\":"
                                 "[{\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"logprobs\":{\"content\":[{\"logprob\":-0.5}]},"
                                 "\"finish_reason\":\"stop\"}],\"usage\":"
                                 "{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}");
    assert_string_equal(t.fault, "");
    assert_string_equal(t.text.data, "Hi");
    assert_int_equal(t.logprobs.count, 1);
    assert_int_equal(t.cached_tokens, -1);
    es_transcript_free(&t);
    t = read_whole("{\"error\":{\"message\":\"you have 9 tokens\",\"code\":\"context_length_exceeded\"}}");
    assert_true(t.error && t.error_message && t.error_numbers);
    assert_string_equal(t.error_code, "context_length_exceeded");
    es_transcript_free(&t);
    static const char *const bad[] = {"",
                                      "[]", "{}", "{\"choices\":7}", "{\"error\":\"x\"}", "{\"choices\":[{\"message\":3}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t = read_whole(bad[i]);
        assert_true(t.fault[0] && !t.error);
        es_transcript_free(&t);
    }
}

static void quantiles_and_gaps_are_exact(void **state)
{
    (void)state;
    es_numbers n = {0}, gaps = {0}, at = {0};
    assert_true(isnan(es_numbers_quantile(&n, 0.5)) && isnan(es_numbers_max(&n)));
    static const double times[] = {0, 1, 2, 10, 11, 12};
    for (size_t i = 0; i < 6; i++) es_numbers_add(&n, times[i]);
    assert_true(es_numbers_quantile(&n, 0) == 0 && es_numbers_quantile(&n, 1) == 12 && es_numbers_quantile(&n, 0.5) == 6);
    assert_true(es_numbers_quantile(&n, 0.1) == 0.5 && es_numbers_max(&n) == 12);
    es_numbers_gaps(&n, 3, 4, &gaps, &at); /* inside the long one: what stood still then is seen */
    assert_int_equal(gaps.count, 1);
    assert_true(gaps.item[0] == 8 && at.item[0] == 10);
    gaps.count = 0;
    es_numbers_gaps(&n, 2, 10, &gaps, NULL); /* neighbours that only touch are left out */
    assert_int_equal(gaps.count, 1);
    es_numbers_free(&n);
    es_numbers_free(&gaps);
    es_numbers_free(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_reads_the_same_however_it_is_cut), cmocka_unit_test(every_line_end_is_one),
        cmocka_unit_test(each_broken_shape_is_named),                cmocka_unit_test(whole_replies_and_errors_are_read),
        cmocka_unit_test(quantiles_and_gaps_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
