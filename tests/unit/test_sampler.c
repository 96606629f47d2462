/* The token that is chosen is a function of the logits and the request alone: whether a device picked candidates or the host
 * went through the row, in whatever order those were listed, and it is the one that the definition gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "device/cpu/math.h"
#include "engine/sampler.h"

enum { VOCABULARY = 20011 };

typedef struct fixture {
    es_sampler sampler;
    float logits[VOCABULARY];
    es_picked picked;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    return f ? es_sampler_open(VOCABULARY, &f->sampler) : -1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    es_sampler_close(&f->sampler);
    free(f);
    return 0;
}

/* Peaked as a model's are, or flat; with ties, NaN and −∞ among them. */
static void fill(fixture *f, uint64_t seed, double spread)
{
    for (int32_t i = 0; i < VOCABULARY; i++) {
        const double u = es_random_unit(seed, 0, (uint64_t)i, 0), v = es_random_unit(seed, 0, (uint64_t)i, 1);
        f->logits[i] = (float)(round(sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v) * spread * 64) / 64);
        if (i % 977 == 3) f->logits[i] = NAN;
        if (i % 613 == 5) f->logits[i] = -INFINITY;
    }
}

static es_sampling sampling(float temperature, int32_t top_k, float top_p, float min_p, uint64_t seed)
{
    es_sampling s = es_sampling_defaults();
    s.temperature = temperature, s.top_k = top_k, s.top_p = top_p, s.min_p = min_p, s.seed = seed;
    return s;
}

static int by_likelihood(const void *a, const void *b)
{
    return es_pick_comes_before(*(const es_candidate *)a, *(const es_candidate *)b) ? -1 : 1;
}

/* The definition, with all tokens sorted. */
static es_token defined(const fixture *f, const es_sampling *how, int64_t position)
{
    static es_candidate all[VOCABULARY];
    float most = -INFINITY;
    es_token best = -1;
    int32_t n = 0;
    for (int32_t i = 0; i < VOCABULARY; i++)
        if (f->logits[i] > most) most = f->logits[i], best = i;
    if (how->temperature == 0) return best;
    uint64_t total = 0, sum = 0;
    for (int32_t i = 0; i < VOCABULARY; i++) {
        const es_candidate c = {es_exp((f->logits[i] - most) * (1.0f / how->temperature)), i};
        if (!(c.p > 0) || (uint64_t)(c.p * 0x1p40f) == 0) continue;
        total += (uint64_t)(c.p * 0x1p40f);
        all[n++] = c;
    }
    qsort(all, (size_t)n, sizeof *all, by_likelihood);
    while (n > 0 && all[n - 1].p < how->min_p) n--;
    if (how->top_k > 0 && how->top_k < n) n = how->top_k;
    if (how->top_k > 0) total = 0;
    for (int32_t i = 0; how->top_k > 0 && i < n; i++) total += (uint64_t)(all[i].p * 0x1p40f);
    if (how->top_p < 1) {
        int32_t kept = 0;
        while (kept < n && (kept == 0 || sum < (uint64_t)((double)how->top_p * (double)total)))
            sum += (uint64_t)(all[kept++].p * 0x1p40f);
        n = kept;
    } else {
        for (int32_t i = 0; i < n; i++) sum += (uint64_t)(all[i].p * 0x1p40f);
    }
    uint64_t left = (uint64_t)(es_random_unit(how->seed, how->choice, (uint64_t)position, 0) * (double)sum);
    for (int32_t i = 0; i < n; i++) {
        if (left < (uint64_t)(all[i].p * 0x1p40f)) return all[i].token;
        left -= (uint64_t)(all[i].p * 0x1p40f);
    }
    return all[n - 1].token;
}

/* Lists come in no order: here, the last first. */
static void turn_around(es_picked *picked)
{
    for (int32_t i = 0, j = picked->count - 1; i < j; i++, j--) {
        const es_candidate c = picked->candidate[i];
        picked->candidate[i] = picked->candidate[j];
        picked->candidate[j] = c;
    }
}

/* Returns whether the list was long enough, so that the row itself need not be read. */
static bool compare(fixture *f, const es_sampling *how, int64_t position)
{
    es_token history[1] = {0};
    es_sample_input in = {.sampling = how, .history = history, .history_count = position, .prompt_count = position,
                          .top_logprobs = -1};
    es_pick pick;
    es_sample from_row, from_picked;
    assert_true(es_sampler_plan(&in, &pick));
    in.logits = f->logits;
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &from_row), ES_OK);
    assert_int_equal(from_row.token, defined(f, how, position));
    memset(&f->picked, 0xA5, sizeof f->picked);
    es_pick_row(f->logits, VOCABULARY, &pick, ES_PICK_MOST, f->picked.candidate, &f->picked);
    const bool enough = f->picked.count <= ES_PICK_MOST;
    if (enough) turn_around(&f->picked);
    in.picked = &f->picked;
    if (enough) in.logits = NULL;
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &from_picked), ES_OK);
    assert_int_equal(from_picked.token, from_row.token);
    return enough;
}

static void picked_candidates_give_the_token_of_the_whole_row(void **state)
{
    static const struct {
        float temperature;
        int32_t top_k;
        float top_p, min_p;
    } ways[] = {{0, 0, 1, 0},       {1, 0, 1, 0},        {0.7f, 0, 0.95f, 0}, {1, 40, 1, 0},    {0.6f, 20, 0.95f, 0},
                {1, 0, 1, 0.05f},   {1.3f, 0, 0.9f, 0.1f}, {1, 1, 1, 0},        {2, 300, 0.5f, 0}, {1, 20011, 0.9f, 0},
                {0.01f, 0, 0.5f, 0}, {1, 50, 1, 0.2f},    {1, 0, 0.0001f, 0},  {100, 0, 1, 0}};
    static const double spreads[] = {3, 1, 0.1, 12};
    fixture *f = *state;
    int enough = 0, all = 0;
    for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            fill(f, seed * 100 + s, spreads[s]);
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                const es_sampling how = sampling(ways[w].temperature, ways[w].top_k, ways[w].top_p, ways[w].min_p, seed);
                for (int64_t position = 1; position < 6; position++) enough += compare(f, &how, position), all++;
            }
        }
    assert_true(enough > all / 2 && enough < all); /* both ways were taken */
}

/* A mask, a penalty, a bias, or log-probabilities: the row is wanted whole. */
static void what_changes_or_reports_a_row_wants_it_whole(void **state)
{
    fixture *f = *state;
    const es_token history[] = {7, 9};
    const es_logit_bias bias = {9, 100};
    uint8_t allowed[VOCABULARY / 8 + 1] = {0};
    es_pick pick;
    es_sample sample;
    fill(f, 5, 3);
    f->logits[7] = 90, f->logits[9] = 89;
    es_sampling how = sampling(0, 0, 1, 0, 1);
    es_sample_input in = {.logits = f->logits, .sampling = &how, .history = history, .history_count = 2, .prompt_count = 1,
                          .top_logprobs = -1};
    assert_true(es_sampler_plan(&in, &pick));
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
    assert_int_equal(sample.token, 7);

    in.bias = &bias, in.bias_count = 1;
    assert_false(es_sampler_plan(&in, &pick));
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
    assert_int_equal(sample.token, 9);
    in.bias_count = 0;

    in.allowed = allowed;
    allowed[11 / 8] = 1 << 11 % 8;
    assert_false(es_sampler_plan(&in, &pick));
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
    assert_int_equal(sample.token, 11);
    in.allowed = NULL;

    how.repetition_penalty = 3;
    how.repetition_window = 2;
    assert_false(es_sampler_plan(&in, &pick));
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
    assert_int_equal(sample.token, 7); /* 30 against 29.67 */
    how.repetition_penalty = 1;
    how.presence_penalty = 2; /* of the answer: token 9 */
    assert_false(es_sampler_plan(&in, &pick));
    how.presence_penalty = 0;

    in.top_logprobs = 2;
    assert_false(es_sampler_plan(&in, &pick));
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
    assert_int_equal(sample.top_count, 2);
    assert_int_equal(sample.top[1].token, 9);
}

static void ties_and_odd_rows(void **state)
{
    fixture *f = *state;
    es_sample sample;
    es_sampling how = sampling(0, 0, 1, 0, 1);
    es_sample_input in = {.logits = f->logits, .sampling = &how, .top_logprobs = -1};
    for (int32_t i = 0; i < VOCABULARY; i++) f->logits[i] = i % 2 ? NAN : -INFINITY;
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_INTERNAL);
    f->logits[900] = 0.0f, f->logits[800] = -0.0f, f->logits[850] = -1e-42f;
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
    assert_int_equal(sample.token, 800);
    how.temperature = 1;
    f->logits[12345] = INFINITY; /* a broken model must not become a wild index */
    assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
    assert_int_equal(sample.token, 12345);
}

/* Draws follow the probabilities. */
static void draws_are_as_likely_as_they_should_be(void **state)
{
    fixture *f = *state;
    int seen[3] = {0};
    for (int32_t i = 0; i < VOCABULARY; i++) f->logits[i] = -INFINITY;
    f->logits[3] = logf(0.2f), f->logits[100] = logf(0.5f), f->logits[20000] = logf(0.3f);
    for (uint64_t seed = 0; seed < 4000; seed++) {
        const es_sampling how = sampling(1, 0, 1, 0, seed);
        const es_sample_input in = {.logits = f->logits, .sampling = &how, .top_logprobs = -1};
        es_sample sample;
        assert_int_equal(es_sampler_choose(&f->sampler, &in, &sample), ES_OK);
        seen[sample.token == 3 ? 0 : sample.token == 100 ? 1 : 2]++;
    }
    assert_true(abs(seen[0] - 800) < 130 && abs(seen[1] - 2000) < 160 && abs(seen[2] - 1200) < 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(picked_candidates_give_the_token_of_the_whole_row, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_changes_or_reports_a_row_wants_it_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ties_and_odd_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(draws_are_as_likely_as_they_should_be, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
