/* Same bits: whatever the plan, the answer is one.
 *
 * For each oracle family one history of tokens is computed under a first plan, and its logits, row by row, are the baseline.
 * Then one thing after another is changed that only decides who does the work and when: how the prompt is cut, how many
 * workers there are, who walks the keys, company, page size, instruction set, where the prompt ends, being moved out and coming
 * back. Not a bit may change, in any row, nor in the sixteen sampled tokens behind the prompt, their log-probabilities and those of the twenty likeliest.
 *
 * All of it once for each numeric mode, which is the one thing that may change an answer. (int8 works on quantised weights,
 * which these models do not have; tests/py/test_oracle_gguf.py makes some.)
 *
 * ES_LONG=1 runs every family to 4,096 tokens under every plan, and three dozen drawn combinations of plans besides. A new
 * axis is a test more at the end of this file. */
#include "evenshare/engine.h"

#include <inttypes.h>

#include "engine/sampler.h"
#include "oracle.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHORT_TOKENS 160 /* sanitizers look for races and wild reads; the bits are the release build's affair */
#define SHORT_FAMILIES 1
#else
#define SHORT_TOKENS 700
#define SHORT_FAMILIES ES_ORACLE_FAMILIES
#endif
#define LONG_TOKENS 4096
#define SLOW_TOKENS 150
#define ANSWER 16
#define MOST_TOP 20

/* What a history of one family gives: a hash for each row of logits, and one for each token of the answer. */
typedef struct outcome {
    int64_t rows, tokens;
    uint64_t row[LONG_TOKENS + ANSWER], token[ANSWER];
    es_token answer[ANSWER];
    int done, errors;
} outcome;

/* One family's model, its history, and what the first plan made of it. */
typedef struct subject {
    const char *family;
    es_model *model;
    es_tensor_set *set;
    const int32_t *ids;
    int32_t length; /* of the history */
    outcome baseline;
} subject;

/* Who does the work and when. */
typedef struct plan {
    es_engine_options options;
    const char *instruction_set; /* NULL: the best there is */
    bool company;
    bool slow;                   /* without ES_LONG only the first rows are computed */
} plan;

static subject subjects[ES_ORACLE_FAMILIES];
static size_t families;
static bool whole; /* ES_LONG */
static es_numeric numeric;

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    uint32_t word;
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, (const unsigned char *)data + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash;
}

static uint64_t hash_choice(es_token token, float logprob, const es_token_logprob *top, int count)
{
    uint64_t hash = mix(mix(1, &token, sizeof token), &logprob, sizeof logprob);
    for (int i = 0; i < count; i++) hash = mix(mix(hash, &top[i].token, sizeof top[i].token), &top[i].logprob, sizeof(float));
    return hash;
}

/* Company: three other sequences. Two stand in the queue before the subject; when the subject is half done one of them is
 * cancelled and a third comes in. */
typedef struct company {
    es_engine *engine;
    const subject *of;
    es_oracle_answer answer[3];
    uint64_t id[3];
    int count;
    int64_t half;      /* the subject's row at which things change */
    int64_t met;       /* tokens that the others had been given when the subject ended */
} company;

typedef struct run {
    outcome *out;
    company *others;
} run;

static void invite(company *c, int32_t first, int64_t length, int64_t tokens)
{
    c->answer[c->count] = (es_oracle_answer){.most_tokens = tokens};
    es_request request = es_oracle_request(c->of->ids + first, length, &c->answer[c->count]);
    request.sampling.temperature = 1.5f;
    request.sampling.seed = (uint64_t)c->count;
    c->id[c->count] = es_oracle_submit(c->engine, &request);
    c->count++;
}

static void on_logits(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    run *r = user;
    if (position == r->out->rows && position < LONG_TOKENS + ANSWER)
        r->out->row[r->out->rows++] = mix(2, logits, (size_t)vocabulary * sizeof *logits);
    else
        r->out->errors++;
    if (r->others && position == r->others->half) {
        es_engine_cancel(r->others->engine, r->others->id[0]);
        invite(r->others, 5, r->others->of->length / 3 + 1, 100);
    }
}

static void on_event(void *user, const es_event *event)
{
    run *r = user;
    outcome *o = r->out;
    if (event->kind == ES_EVENT_TOKEN && o->tokens < ANSWER) {
        o->answer[o->tokens] = event->token;
        o->token[o->tokens++] = hash_choice(event->token, event->logprob, event->top, event->top_count);
    }
    if (event->kind == ES_EVENT_DONE) {
        o->done++;
        if (r->others) r->others->met = r->others->answer[1].count + r->others->answer[2].count;
    }
    o->errors += event->kind == ES_EVENT_ERROR;
}

static es_request request_of(const int32_t *ids, int64_t length, run *r)
{
    es_request request = {.prompt = ids, .prompt_count = (size_t)length, .max_tokens = ANSWER, .ignore_eos = true,
                          .sampling = es_sampling_defaults(), .logprobs = true, .top_logprobs = MOST_TOP,
                          .on_event = on_event, .on_logits = on_logits, .user = r};
    request.sampling.temperature = 0.9f;
    request.sampling.top_k = 50;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = 20;
    return request;
}

static void run_history(es_engine *engine, const int32_t *ids, int64_t length, company *others, outcome *out)
{
    run r = {.out = out, .others = others};
    memset(out, 0, sizeof *out);
    const es_request request = request_of(ids, length, &r);
    es_engine_wait(engine, es_oracle_submit(engine, &request));
    assert_int_equal(out->errors, 0);
    assert_int_equal(out->done, 1);
    assert_int_equal(out->rows, length);
    assert_int_equal(out->tokens, ANSWER);
}

/* NULL when this machine lacks the plan's instruction set. */
static es_engine *engine_of(const subject *s, const plan *p)
{
    es_engine_options options = p->options;
    es_engine *engine = NULL;
    if (options.threads == 0) options.threads = 2;
    if (options.parallel == 0) options.parallel = p->company ? 4 : 1;
    if (options.context == 0) options.context = LONG_TOKENS + 128;
    options.numeric = numeric;
    if (p->instruction_set) setenv("ES_INSTRUCTION_SET", p->instruction_set, 1);
    const es_status status = es_engine_open(s->model, &options, &engine);
    unsetenv("ES_INSTRUCTION_SET");
    if (status == ES_UNSUPPORTED && p->instruction_set) return NULL;
    if (status != ES_OK) fail_msg("%s: %s", s->family, es_error_message());
    if (p->instruction_set) assert_string_equal(es_engine_get_info(engine)->instruction_set, p->instruction_set);
    return engine;
}

static void describe(const plan *p, char *text, size_t bytes)
{
    static const char *const attention[] = {"auto", "V1", "V2"};
    snprintf(text, bytes, "chunk %d, threads %d, %s, page %d, %s%s", p->options.chunk, p->options.threads,
             attention[p->options.attention], p->options.page, p->instruction_set ? p->instruction_set : "best instructions",
             p->company ? ", in company" : "");
}

/* Rows of `got` must be the baseline's first rows; its answer too, when it is of the whole history. */
static void compare(const subject *s, const plan *p, const outcome *got)
{
    char text[160];
    describe(p, text, sizeof text);
    int64_t differ = 0, first = -1;
    for (int64_t i = 0; i < got->rows; i++)
        if (got->row[i] != s->baseline.row[i]) {
            if (first < 0) first = i;
            differ++;
        }
    if (differ) fail_msg("%s: %d of %d rows of logits are others, the first at position %d: %s", s->family, (int)differ,
                         (int)got->rows, (int)first, text);
    if (got->rows < s->baseline.rows) return;
    for (int64_t i = 0; i < got->tokens; i++)
        if (got->token[i] != s->baseline.token[i])
            fail_msg("%s: token %d of the answer is another or as likely otherwise: %s", s->family, (int)i, text);
}

/* The others end before anything is compared: a failed comparison leaves this frame, which they write to. */
static void check_in_company(const subject *s, const plan *p, es_engine *engine)
{
    outcome *got = malloc(2 * sizeof *got);
    assert_non_null(got);
    company c = {.engine = engine, .of = s, .half = s->length / 2};
    invite(&c, 1, s->length / 2 + 1, 4000 - s->length / 2 - 1);
    invite(&c, 3, 37, s->length < 1900 ? ANSWER + 2 * s->length : 4000);
    run_history(engine, s->ids, s->length, &c, &got[0]);
    for (int i = 0; i < c.count; i++) es_engine_cancel(engine, c.id[i]);
    for (int i = 0; i < c.count; i++) es_engine_wait(engine, c.id[i]);
    assert_true(c.met > 0); /* or else it was no company */
    /* Alone again, in pages and states that others have left behind. */
    run_history(engine, s->ids, s->length, NULL, &got[1]);
    compare(s, p, &got[0]);
    compare(s, p, &got[1]);
    free(got);
}

static void check_plan(const subject *s, const plan *p)
{
    es_engine *engine = engine_of(s, p);
    if (!engine) {
        print_message("this machine has no %s: left out\n", p->instruction_set);
        return;
    }
    if (p->company) {
        check_in_company(s, p, engine);
    } else {
        outcome *got = malloc(sizeof *got);
        assert_non_null(got);
        run_history(engine, s->ids, p->slow && !whole ? SLOW_TOKENS : s->length, NULL, got);
        compare(s, p, got);
        free(got);
    }
    es_engine_close(engine);
}

static void check_plans(const plan *plans, size_t count)
{
    for (size_t f = 0; f < families; f++)
        for (size_t i = 0; i < count; i++) check_plan(&subjects[f], &plans[i]);
}

static void the_same_for_any_chunk(void **state)
{
    (void)state;
    const plan plans[] = {{.options = {.chunk = 1, .threads = 1}}, {.options = {.chunk = 3, .threads = 1}},
                          {.options.chunk = 1, .slow = true}, {.options.chunk = 64}, {.options.chunk = 100},
                          {.options.chunk = LONG_TOKENS}};
    check_plans(plans, sizeof plans / sizeof *plans);
}

static void the_same_for_any_number_of_threads(void **state)
{
    (void)state;
    const plan plans[] = {{.options.threads = 1}, {.options.threads = 3}, {.options.threads = 7}};
    check_plans(plans, sizeof plans / sizeof *plans);
}

static void the_same_whoever_walks_the_keys(void **state)
{
    (void)state;
    const plan plans[] = {{.options = {.attention = ES_ATTENTION_V1}}, {.options = {.attention = ES_ATTENTION_V2}},
                          {.options = {.attention = ES_ATTENTION_V1, .threads = 3}},
                          {.options = {.attention = ES_ATTENTION_V2, .threads = 3}},
                          {.options = {.attention = ES_ATTENTION_V2, .threads = 7, .chunk = 64}}};
    check_plans(plans, sizeof plans / sizeof *plans);
}

static void the_same_for_any_page(void **state)
{
    (void)state;
    const plan plans[] = {{.options.page = 16}, {.options.page = 512}};
    check_plans(plans, sizeof plans / sizeof *plans);
}

static void the_same_for_any_instruction_set(void **state)
{
    (void)state;
    const bool slow = numeric != ES_NUMERIC_F32; /* there the smaller sets have no products of their own */
    const plan plans[] = {{.instruction_set = "reference", .slow = true}, {.instruction_set = "avx2", .slow = slow},
                          {.instruction_set = "avx512", .slow = slow}, {.instruction_set = "avx512vnni"},
                          {.instruction_set = "amx"}};
    check_plans(plans, sizeof plans / sizeof *plans);
}

static void the_same_in_any_company(void **state)
{
    (void)state;
    const plan plans[] = {{.company = true}, {.company = true, .options = {.attention = ES_ATTENTION_V2, .chunk = 64}}};
    check_plans(plans, sizeof plans / sizeof *plans);
}

/* An elder that started before the subject and goes on until it has moved it out and taken two pages more. */
typedef struct elder {
    es_engine *engine;
    uint64_t id;
    int64_t tokens, since; /* all of them; those since the subject was moved out */
    int done;
} elder;

static void on_elder_event(void *user, const es_event *event)
{
    elder *e = user;
    e->done += event->kind == ES_EVENT_DONE;
    if (event->kind != ES_EVENT_TOKEN) return;
    e->tokens++;
    if (es_engine_get_stats(e->engine).preemptions && ++e->since == 40) es_engine_cancel(e->engine, e->id);
}

/* The subject's own length is not told, so that it has to ask for pages; sixteen tokens are enough. */
typedef struct crowded {
    run run;
    es_engine *engine;
    uint64_t id;
} crowded;

static void on_crowded_logits(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    on_logits(&((crowded *)user)->run, position, logits, vocabulary);
}

static void on_crowded_event(void *user, const es_event *event)
{
    crowded *c = user;
    on_event(&c->run, event);
    if (event->kind == ES_EVENT_TOKEN && c->run.out->tokens == ANSWER) es_engine_cancel(c->engine, event->request);
}

static void check_crowded(const subject *s, plan p, int32_t length)
{
    outcome *got = calloc(1, sizeof *got);
    assert_non_null(got);
    p.options.page = 16;
    p.options.parallel = 2;
    p.options.reserve = 1;
    p.options.pages = (length + 1 + 15) / 16 + 7; /* what both start with, and not a page more */
    p.options.context = p.options.pages * 16;
    es_engine *engine = engine_of(s, &p);
    elder e = {.engine = engine};
    es_request request = {.prompt = s->ids + 7, .prompt_count = 100, .max_tokens = -1, .ignore_eos = true,
                          .sampling = es_sampling_defaults(), .on_event = on_elder_event, .user = &e};
    e.id = es_oracle_submit(engine, &request);
    crowded c = {.run.out = got, .engine = engine};
    request = request_of(s->ids, length, &c.run);
    request.max_tokens = -1;
    request.on_event = on_crowded_event;
    request.on_logits = on_crowded_logits;
    request.user = &c;
    es_engine_wait(engine, es_oracle_submit(engine, &request));
    es_engine_wait(engine, e.id);
    const es_engine_stats stats = es_engine_get_stats(engine);
    es_engine_close(engine);
    assert_int_equal(got->errors, 0);
    assert_int_equal(got->done, 1);
    assert_int_equal(got->rows, length);
    assert_int_equal(got->tokens, ANSWER);
    assert_int_equal(e.done, 1);
    assert_true(stats.preemptions > 0 && stats.recomputed_tokens > 0); /* or else it was not crowded */
    compare(s, &p, got);
    free(got);
}

static void the_same_when_moved_out(void **state)
{
    (void)state;
    const plan plans[] = {{.options.threads = 2}, {.options = {.chunk = 33, .threads = 3}}, {.options.no_cache = true}};
    for (size_t f = 0; f < families; f++)
        for (size_t i = 0; i < (whole || f < 2 ? sizeof plans / sizeof *plans : 1); i++)
            check_crowded(&subjects[f], plans[i], subjects[f].length);
}

/* Where a prompt ends changes nothing before its end: lengths around every edge there is (tile, page, partition, block). */
static void the_same_wherever_the_prompt_ends(void **state)
{
    (void)state;
    static const int lengths[] = {1, 2, 3, 4, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513,
                                  1024, 2049};
    outcome *got = malloc(sizeof *got);
    assert_non_null(got);
    const plan p = {.options.threads = 2};
    for (size_t f = 0; f < families; f++) {
        const subject *s = &subjects[f];
        es_engine *engine = engine_of(s, &p);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths && lengths[i] < s->length; i++) {
            run_history(engine, s->ids, lengths[i], NULL, got);
            compare(s, &p, got);
        }
        es_engine_close(engine);
    }
    free(got);
}

/* A generated token's logits, seen through its choice, are those that a prompt with the same history gives. */
typedef struct replay {
    es_sampler sampler;
    const es_request *request; /* of the answer */
    const int32_t *history;
    int64_t prompt;
    uint64_t token[ANSWER];
    int count;
} replay;

static void choose_again(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    (void)vocabulary;
    replay *r = user;
    const es_sample_input input = {.logits = logits, .sampling = &r->request->sampling, .history = r->history,
                                   .history_count = position + 1, .prompt_count = r->prompt, .top_logprobs = MOST_TOP};
    es_sample sample;
    if (es_sampler_choose(&r->sampler, &input, &sample) == ES_OK && r->count < ANSWER)
        r->token[r->count++] = hash_choice(sample.token, sample.logprob, sample.top, sample.top_count);
}

static void decoding_equals_prefill(void **state)
{
    (void)state;
    for (size_t f = 0; f < families; f++) {
        const subject *s = &subjects[f];
        int32_t *history = malloc(((size_t)s->length + ANSWER) * sizeof *history);
        assert_non_null(history);
        memcpy(history, s->ids, (size_t)s->length * sizeof *history);
        memcpy(history + s->length, s->baseline.answer, ANSWER * sizeof *history);
        run unused = {0};
        const es_request answered = request_of(s->ids, s->length, &unused);
        replay r = {.request = &answered, .history = history, .prompt = s->length};
        assert_int_equal(es_sampler_open(ES_ORACLE_VOCABULARY, &r.sampler), ES_OK);
        es_engine *engine = engine_of(s, &(plan){0});
        const es_request again = {.prompt = history, .prompt_count = (size_t)s->length + ANSWER - 1, .user = &r,
                                  .sampling = es_sampling_defaults(), .on_logits = choose_again, .logits_from = s->length - 1};
        es_engine_wait(engine, es_oracle_submit(engine, &again));
        assert_int_equal(r.count, ANSWER);
        for (int i = 0; i < ANSWER; i++)
            if (r.token[i] != s->baseline.token[i])
                fail_msg("%s: token %d of the answer is not what its history as a prompt gives", s->family, i);
        es_engine_close(engine);
        es_sampler_close(&r.sampler);
        free(history);
    }
}

/* Axes together: combinations drawn from a fixed stream. */
static void the_same_for_drawn_combinations(void **state)
{
    (void)state;
    static const int chunks[] = {1, 33, 64, 100, 256, LONG_TOKENS}, threads[] = {1, 2, 3, 7}, pages[] = {16, 32, 64, 128, 512};
    static const char *const sets[] = {NULL, NULL, NULL, "avx2", "avx512"};
    const bool any_set = whole || numeric == ES_NUMERIC_F32;
    uint64_t draw = 1;
    for (int i = 0; i < (whole ? 36 : 7); i++) {
        draw = mix(draw, &i, sizeof i);
        const plan p = {.options = {.chunk = chunks[draw % 6], .threads = threads[draw / 8 % 4], .page = pages[draw / 32 % 5],
                                    .attention = (es_attention)(draw / 256 % 3)},
                        .instruction_set = any_set ? sets[draw / 1024 % 5] : NULL, .company = draw / 8192 % 2 == 0};
        for (size_t f = 0; f < families; f++)
            if (whole || f == (size_t)i % families) check_plan(&subjects[f], &p);
    }
}

static int open_subjects(void **state)
{
    (void)state;
    whole = getenv("ES_LONG") != NULL;
    families = whole ? ES_ORACLE_FAMILIES : numeric == ES_NUMERIC_F32 ? SHORT_FAMILIES : 1;
    for (size_t f = 0; f < families; f++) {
        subject *s = &subjects[f];
        s->family = es_oracle_families[f].name;
        s->model = es_oracle_model(s->family);
        s->set = es_oracle_open(s->family, "reference");
        s->ids = es_oracle_get(s->set, LONG_TOKENS).ids;
        s->length = whole ? LONG_TOKENS : SHORT_TOKENS;
        es_engine *engine = engine_of(s, &(plan){0});
        run_history(engine, s->ids, s->length, NULL, &s->baseline);
        es_engine_close(engine);
        print_message("%-12s %s, %d tokens and %d more: %016" PRIx64 "\n", s->family, es_numeric_name(numeric), s->length,
                      ANSWER,
                      mix(mix(3, s->baseline.row, (size_t)s->length * sizeof(uint64_t)), s->baseline.token,
                          sizeof s->baseline.token));
    }
    return 0;
}

static int close_subjects(void **state)
{
    (void)state;
    for (size_t f = 0; f < families; f++) {
        es_tensor_set_close(subjects[f].set);
        es_model_close(subjects[f].model);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_for_any_chunk),
        cmocka_unit_test(the_same_for_any_number_of_threads),
        cmocka_unit_test(the_same_whoever_walks_the_keys),
        cmocka_unit_test(the_same_for_any_page),
        cmocka_unit_test(the_same_for_any_instruction_set),
        cmocka_unit_test(the_same_in_any_company),
        cmocka_unit_test(the_same_when_moved_out),
        cmocka_unit_test(the_same_wherever_the_prompt_ends),
        cmocka_unit_test(decoding_equals_prefill),
        cmocka_unit_test(the_same_for_drawn_combinations),
    };
    int failed = 0;
    for (numeric = ES_NUMERIC_F32; numeric <= ES_NUMERIC_BF16; numeric++)
        failed += cmocka_run_group_tests_name(es_numeric_name(numeric), tests, open_subjects, close_subjects);
    return failed;
}
