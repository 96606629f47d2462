/* Same bits: whatever the plan, the answer is one.
 *
 * A subject is a model (a family with weights of one type) in one numeric mode with one type of keys and values. Its history of
 * tokens is computed under a first plan, and the hashes of its logits, row by row, and of its sampled answer are the baseline: one
 * hash per (model, mode, type, tokens).
 * Every other plan must give the same: any instruction set, number of threads, chunk, company, walk over the keys, page, with a
 * part of the prompt found in the cache, and when it is moved out for an older sequence and comes back.
 *
 * The product of all axes has millions of combinations. In CI the matrix is pruned to rows in which every pair of values occurs
 * together (covering.h); ES_LONG=1 takes every triple, and longer histories; ES_LONG=whole takes the product, which takes days,
 * or each Nth of it with ES_LONG=whole/N; a large prime N keeps no step with any axis.
 *
 * A new axis is a value in `enum axis`, its number of values in count_values(), a word in describe(), and what engine_of() or
 * run_row() make of it; what it does not go together with, allowed() says. */
#include "evenshare/engine.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

#include "covering.h"
#include "device/cpu/kernels.h"
#include "engine/sampler.h"
#include "oracle.h"
#include "retyped.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FEW_ROWS 6 /* sanitizers look for races and wild reads; the bits are the release build's affair */
#else
#define FEW_ROWS 0
#endif
#define MOST_TOKENS 4096
#define ANSWER 16
#define MOST_TOP 20

enum axis { FAMILY, WEIGHTS, MODE, KV, SET, THREADS, CHUNK, COMPANY, ATTENTION, PAGE, CACHE, PLACE, AXES };

static const int threads_of[] = {1, 2, 3, 7}, chunk_of[] = {1, 5, 64, 300, MOST_TOKENS}, company_of[] = {0, 1, 7, 31},
                 page_of[] = {16, 32, 64, 128, 256, 512};
static const char *const attention_of[] = {"auto", "V1", "V2"}, *const cache_of[] = {"cold", "cached"},
                  *const place_of[] = {"stays", "moved out"};
static const char *set_of[8]; /* those that this machine has; the first is the best */
static int sets;
static int dots;              /* the first so many of them have a kernel of their own for mode bf16dp */

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
enum { TYPES = ES_Q6_K + 1, MODES = 4, KV_TYPES = 3 };
static const es_kv_type kv_of[KV_TYPES] = {ES_KV_AUTO, ES_KV_Q8_0, ES_KV_F16}; /* the first is the mode's own */
static int modes = MODES; /* a GPU (ES_DEVICE=cuda) has no int8, bf16dp, q8_0 or f16 cache, and one instruction set: its own */
static int kv_types = KV_TYPES;
#define GPU_SET "gpu"

/* What a history gives: a hash for each row of logits, and one for each token of the answer. */
typedef struct outcome {
    int64_t first, rows, tokens, cached; /* rows are those of positions first, first + 1, ... */
    uint64_t row[MOST_TOKENS], token[ANSWER];
    es_token answer[ANSWER];
    int done, errors;
} outcome;

typedef struct subject {
    es_retyped *model;
    outcome *baseline[MODES][KV_TYPES];
} subject;

static subject subjects[ES_RETYPED_FAMILIES][TYPES];
static es_tensor_set *prompts;
static const int32_t *ids;      /* [MOST_TOKENS] the history of all subjects */
static enum { PAIRS, TRIPLES, WHOLE } how;
static int64_t every = 1;       /* of the product's combinations */

static int64_t context_of_all(void)
{
    return how == PAIRS ? 1024 : MOST_TOKENS + 256; /* memory that is touched must be cleared, for 32 sequences */
}

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

/* Company: other sequences that stand in the queue before the subject. A quarter of them leaves after each step that brings
 * logits of the subject, all but the last; when the subject's prompt is half done a new one comes in. */
typedef struct company {
    es_engine *engine;
    uint64_t id[33], step;
    int count, left, most; /* most: sequences that ran in one step with the subject */
    int64_t half;          /* the subject's row at which a new one comes */
    atomic_bool complete;  /* everybody is in the queue, the subject too */
} company;

typedef struct run {
    outcome *out;
    company *others;
} run;

/* Nobody goes on before all are there: what they computed alone would show nothing, and take time. */
static void on_guest_event(void *user, const es_event *event)
{
    company *c = user;
    while (event->kind == ES_EVENT_TOKEN && !atomic_load(&c->complete)) sched_yield();
}

static void invite(company *c)
{
    es_request request = {.prompt = ids + 7 * c->count + 1, .max_tokens = context_of_all() / 2 - 32, .ignore_eos = true, .user = c,
                          .prompt_count = c->count < 2 ? (size_t)(21 - 7 * c->count) : 1,
                          .sampling = es_sampling_defaults(), .on_event = on_guest_event};
    request.sampling.temperature = 1.5f;
    request.sampling.seed = (uint64_t)c->count;
    c->id[c->count] = es_oracle_submit(c->engine, &request);
    c->count++;
}

static void leave(company *c)
{
    const es_engine_stats stats = es_engine_get_stats(c->engine);
    if (stats.running > c->most) c->most = stats.running;
    if (stats.steps == c->step && c->left) return;
    c->step = stats.steps;
    for (int go = (c->count - c->left + 2) / 4; go > 0; go--) es_engine_cancel(c->engine, c->id[c->left++]);
}

static void on_logits(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    run *r = user;
    if (position == r->out->first + r->out->rows && position < MOST_TOKENS)
        r->out->row[r->out->rows++] = mix(2, logits, (size_t)vocabulary * sizeof *logits);
    else
        r->out->errors++;
    if (!r->others) return;
    leave(r->others);
    if (position == r->others->half) invite(r->others);
}

static void on_event(void *user, const es_event *event)
{
    run *r = user;
    outcome *o = r->out;
    if (event->kind == ES_EVENT_TOKEN && o->tokens < ANSWER) {
        o->answer[o->tokens] = event->token;
        o->token[o->tokens++] = hash_choice(event->token, event->logprob, event->top, event->top_count);
        if (r->others) leave(r->others);
    }
    o->done += event->kind == ES_EVENT_DONE;
    if (event->kind == ES_EVENT_DONE) o->cached = event->cached_tokens;
    o->errors += event->kind == ES_EVENT_ERROR;
}

static es_request request_of(int64_t first, int64_t length, run *r)
{
    es_request request = {.prompt = ids, .prompt_count = (size_t)length, .max_tokens = ANSWER, .ignore_eos = true,
                          .sampling = es_sampling_defaults(), .logprobs = true, .top_logprobs = MOST_TOP,
                          .on_event = on_event, .on_logits = on_logits, .logits_from = first, .user = r};
    request.sampling.temperature = 0.9f;
    request.sampling.top_k = 50;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = 20;
    return request;
}

static void run_history(es_engine *engine, int64_t first, int64_t length, company *others, outcome *out)
{
    run r = {.out = out, .others = others};
    memset(out, 0, sizeof *out);
    out->first = first;
    const es_request request = request_of(first, length, &r);
    const uint64_t id = es_oracle_submit(engine, &request);
    if (others) atomic_store(&others->complete, true);
    es_engine_wait(engine, id);
    /* The others end before anything is compared: a failed comparison leaves frames that they write to. */
    for (int i = 0; others && i < others->count; i++) es_engine_cancel(engine, others->id[i]);
    for (int i = 0; others && i < others->count; i++) es_engine_wait(engine, others->id[i]);
    assert_int_equal(out->errors, 0);
    assert_int_equal(out->done, 1);
    assert_int_equal(out->rows, length - first);
    assert_int_equal(out->tokens, ANSWER);
}

static const subject *subject_of(int family, int type)
{
    subject *s = &subjects[family][type];
    if (!s->model) s->model = es_retyped_open(family, (es_dtype)type);
    return s;
}

static void describe(const int *row, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s, %s, mode %s, keys and values %s; %s, %d threads, chunk %d, %d others, %s, page %d, %s, %s", es_retyped_families[row[FAMILY]],
             es_dtype_get_info((es_dtype)row[WEIGHTS])->name, es_numeric_name((es_numeric)(ES_NUMERIC_F32 + row[MODE])),
             es_kv_type_name(kv_of[row[KV]]), set_of[row[SET]], threads_of[row[THREADS]], chunk_of[row[CHUNK]],
             company_of[row[COMPANY]], attention_of[row[ATTENTION]], page_of[row[PAGE]], cache_of[row[CACHE]], place_of[row[PLACE]]);
}

/* `pages`: no more than these, for two sequences; 0: what everybody may need. */
static es_engine *engine_with(const int *row, int64_t pages)
{
    es_engine_options options = {
        .threads = threads_of[row[THREADS]], .parallel = company_of[row[COMPANY]] + 1,
        /* What goes on in the middle of a cached page copies it: that page is there besides those of the sequence. */
        .context = context_of_all() + (row[CACHE] ? page_of[row[PAGE]] : 0),
        .chunk = chunk_of[row[CHUNK]], .page = page_of[row[PAGE]], .no_cache = row[CACHE] == 0, .step_budget = -1,
        .numeric = (es_numeric)(ES_NUMERIC_F32 + row[MODE]), .kv_type = kv_of[row[KV]],
        .attention = (es_attention)row[ATTENTION],
    };
    if (pages) {
        options.pages = pages, options.context = pages * options.page;
        options.parallel = 2, options.reserve = 1;
    }
    if (options.chunk > context_of_all()) options.chunk = (int)context_of_all(); /* as good as all of it */
    char text[256];
    es_engine *engine = NULL;
    describe(row, text, sizeof text);
    setenv("ES_INSTRUCTION_SET", set_of[row[SET]], 1);
    const es_status status = es_engine_open(subject_of(row[FAMILY], row[WEIGHTS])->model->model, &options, &engine);
    unsetenv("ES_INSTRUCTION_SET");
    if (status != ES_OK) fail_msg("%s: %s", text, es_error_message());
    return engine;
}

static es_engine *engine_of(const int *row)
{
    return engine_with(row, 0);
}

/* The first plan: the best instructions, one thread, alone, a chunk of 64, nothing found in a cache. */
static const outcome *baseline_of(const int *row, int64_t length)
{
    const int first[AXES] = {[FAMILY] = row[FAMILY], [WEIGHTS] = row[WEIGHTS], [MODE] = row[MODE], [KV] = row[KV], [CHUNK] = 2, [PAGE] = 2};
    outcome **b = &subjects[row[FAMILY]][row[WEIGHTS]].baseline[row[MODE]][row[KV]];
    if (*b && (*b)->rows >= length) return *b;
    if (!*b) *b = malloc(sizeof **b);
    assert_non_null(*b);
    es_engine *engine = engine_of(first);
    run_history(engine, 0, length, NULL, *b);
    es_engine_close(engine);
    return *b;
}

/* Rows of `got` must be the baseline's of the same positions; its answer too, where both are of one length. */
static void compare(const int *row, const outcome *base, const outcome *got, int64_t length)
{
    char text[256];
    int64_t differ = 0, first = -1;
    describe(row, text, sizeof text);
    for (int64_t i = 0; i < got->rows; i++)
        if (got->row[i] != base->row[got->first + i]) {
            if (first < 0) first = got->first + i;
            differ++;
        }
    if (differ) fail_msg("%d of %d rows of logits are others, the first at position %d: %s", (int)differ, (int)got->rows,
                         (int)first, text);
    for (int64_t i = 0; i < got->tokens && length == base->rows; i++)
        if (got->token[i] != base->token[i])
            fail_msg("token %d of the answer is another or as likely otherwise: %s", (int)i, text);
}

/* Two thirds of the prompt are computed before, by another request, and found in the cache. */
static void prime(es_engine *engine, int64_t tokens)
{
    es_oracle_answer unused = {0};
    const es_request request = es_oracle_request(ids, tokens, &unused);
    es_engine_wait(engine, es_oracle_submit(engine, &request));
    assert_int_equal(unused.done, 1);
}

/* An elder that started before the subject and goes on until it has moved it out and taken two pages more. */
typedef struct elder {
    es_engine *engine;
    uint64_t id;
    int64_t since; /* tokens since the subject was moved out */
    int done;
} elder;

static void on_elder_event(void *user, const es_event *event)
{
    elder *e = user;
    e->done += event->kind == ES_EVENT_DONE;
    if (event->kind != ES_EVENT_TOKEN) return;
    if (es_engine_get_stats(e->engine).preemptions && ++e->since == 40) es_engine_cancel(e->engine, e->id);
}

/* The subject's own length is not told, so that it has to ask for pages; sixteen tokens are enough. */
typedef struct newcomer {
    run run;
    es_engine *engine;
} newcomer;

static void on_crowded_logits(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    on_logits(&((newcomer *)user)->run, position, logits, vocabulary);
}

static void on_crowded_event(void *user, const es_event *event)
{
    newcomer *c = user;
    on_event(&c->run, event);
    if (event->kind == ES_EVENT_TOKEN && c->run.out->tokens == ANSWER) es_engine_cancel(c->engine, event->request);
}

/* Whether the subject was moved out and back. It is not where the elder, on a busy machine, takes the pages before the subject
 * has been submitted at all. */
static bool crowd(const int *row, int64_t length, outcome *got)
{
    memset(got, 0, sizeof *got);
    es_engine *engine = engine_with(row, (length + 1 + 15) / 16 + 7); /* what both start with, and not a page more */
    elder e = {.engine = engine};
    es_request request = {.prompt = ids + 7, .prompt_count = 100, .max_tokens = -1, .ignore_eos = true,
                          .sampling = es_sampling_defaults(), .on_event = on_elder_event, .user = &e};
    e.id = es_oracle_submit(engine, &request);
    newcomer c = {.run.out = got, .engine = engine};
    request = request_of(0, length, &c.run);
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
    return stats.preemptions > 0 && stats.recomputed_tokens > 0;
}

static void run_crowded(const int *row, int64_t length)
{
    const outcome *base = baseline_of(row, length);
    outcome *got = malloc(sizeof *got);
    assert_non_null(got);
    bool crowded = false;
    for (int i = 0; i < 100 && !crowded; i++) {
        crowded = crowd(row, length, got);
        compare(row, base, got, length);
    }
    assert_true(crowded);
    free(got);
}

static void run_row(const int *row, int64_t length)
{
    if (row[PLACE]) {
        run_crowded(row, length);
        return;
    }
    const outcome *base = baseline_of(row, length);
    const int64_t first = row[CACHE] ? length * 2 / 3 : 0;
    outcome *got = malloc(sizeof *got);
    assert_non_null(got);
    es_engine *engine = engine_of(row);
    company others = {.engine = engine, .half = first + (length - first) / 2};
    if (first) prime(engine, first);
    for (int i = 0; i < company_of[row[COMPANY]]; i++) invite(&others);
    run_history(engine, first, length, others.count ? &others : NULL, got);
    es_engine_close(engine);
    compare(row, base, got, length);
    const int most = company_of[row[COMPANY]] ? company_of[row[COMPANY]] + 1 : 0;
    char text[256];
    describe(row, text, sizeof text);
    if (others.most != most) fail_msg("%d sequences in a step instead of %d: %s", others.most, most, text);
    if ((got->cached > 0) != (first > 0)) fail_msg("%d tokens came from the cache: %s", (int)got->cached, text);
    free(got);
}

/* Whether products are plain C's, of all that is chosen so far: with the reference, and in mode bf16dp where no instruction is
 * for it. */
static bool is_plain(const int *value)
{
    const bool dot = value[MODE] == ES_NUMERIC_BF16DP - ES_NUMERIC_F32;
    if (value[SET] < 0) return dot && dots == 0;
    return strcmp(set_of[value[SET]], "reference") == 0 || (dot && value[SET] >= dots);
}

/* Long enough for partitions to be cut and merged, where that does not take thousands of steps; short for the reference. */
static int64_t length_of(const int *row, int64_t number)
{
    const bool slow = is_plain(row), few = chunk_of[row[CHUNK]] < 64;
    const bool split = threads_of[row[THREADS]] > 2 && attention_of[row[ATTENTION]] != attention_of[1]; /* a long item is shared */
    if (how != PAIRS) return slow || few ? 300 : number % 16 == 0 ? MOST_TOKENS - ANSWER : number % 4 == 0 ? 1100 : 300;
    return slow ? 36 : split && !few ? 640 : 140;
}

/* Who is moved out has one elder for company, and pages small enough that the elder soon wants more of them. In CI plain C is
 * spared the two larger models, and sanitizers are spared both. */
static bool allowed(const int *value)
{
    const bool plain = is_plain(value), large = value[FAMILY] >= (int)ES_ORACLE_FAMILIES;
    if (how == PAIRS && (FEW_ROWS ? plain || large : plain && large)) return false;
    return value[PLACE] <= 0 || (value[PAGE] <= 0 && value[COMPANY] <= 0);
}

static void count_values(int *values)
{
    const int all[AXES] = {ES_RETYPED_FAMILIES, TYPES, modes, kv_types, sets, COUNT(threads_of), COUNT(chunk_of), COUNT(company_of),
                           COUNT(attention_of), COUNT(page_of), COUNT(cache_of), COUNT(place_of)};
    memcpy(values, all, sizeof all);
}

static int64_t run_covering(void)
{
    int row[ES_COVER_AXES];
    int64_t rows = 0;
    es_covering c = {.axes = AXES, .strength = how == TRIPLES ? 3 : 2, .allowed = allowed, .dear = is_plain};
    count_values(c.values);
    assert_true(es_covering_open(&c));
    while (es_covering_next(&c, row) && (!FEW_ROWS || rows < FEW_ROWS)) run_row(row, length_of(row, rows++));
    es_covering_close(&c);
    return rows;
}

static int64_t run_product(int64_t product)
{
    int values[AXES], row[AXES];
    int64_t rows = 0;
    count_values(values);
    for (int64_t n = 0; n < product; n += every) {
        int64_t rest = n;
        for (int a = AXES - 1; a >= 0; a--) row[a] = (int)(rest % values[a]), rest /= values[a];
        if (!allowed(row)) continue;
        run_row(row, length_of(row, rows++));
    }
    return rows;
}

static void one_hash_for_every_plan(void **state)
{
    (void)state;
    int values[AXES], models = 0;
    int64_t product = 1;
    uint64_t all = 3;
    count_values(values);
    for (int a = 0; a < AXES; a++) product *= values[a];
    const int64_t rows = how == WHOLE ? run_product(product) : run_covering();
    for (int f = 0; f < ES_RETYPED_FAMILIES; f++)
        for (int t = 0; t < TYPES; t++)
            for (int m = 0; m < MODES * KV_TYPES; m++) {
                const outcome *b = subjects[f][t].baseline[m / KV_TYPES][m % KV_TYPES];
                if (!b) continue;
                const uint64_t hash = mix(mix(3, b->row, (size_t)b->rows * sizeof *b->row), b->token, sizeof b->token);
                all = mix(all, &hash, sizeof hash);
                models++;
                if (how != PAIRS)
                    print_message("%-12s %-5s %-4s %-4s %5d tokens and %d more: %016" PRIx64 "\n", es_retyped_families[f],
                                  es_dtype_get_info((es_dtype)t)->name,
                                  es_numeric_name((es_numeric)(ES_NUMERIC_F32 + m / KV_TYPES)), es_kv_type_name(kv_of[m % KV_TYPES]),
                                  (int)b->rows, ANSWER, hash);
            }
    static const char *const what[] = {"every pair of values", "every triple of values", "the product, or a part of it"};
    print_message("%d combinations of %lld in all (%s), %d models in a mode, hash of all %016" PRIx64 "\n", (int)rows,
                  (long long)product, what[how], models, all);
}

/* Where a prompt ends changes nothing before its end: lengths around every edge there is (tile, page, partition, block). */
static void the_same_wherever_the_prompt_ends(void **state)
{
    (void)state;
    static const int lengths[] = {1, 2, 3, 4, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513,
                                  1024, 2049};
    const int64_t most = FEW_ROWS ? 130 : how == PAIRS ? 514 : 2050;
    outcome *got = malloc(sizeof *got);
    assert_non_null(got);
    for (int f = 0; f < (FEW_ROWS ? 1 : (int)ES_ORACLE_FAMILIES); f += how == PAIRS ? 3 : 1) {
        const int row[AXES] = {[FAMILY] = f, [THREADS] = 1, [CHUNK] = 3, [PAGE] = 2, [WEIGHTS] = f % 2 ? ES_F32 : ES_Q4_1,
                               [MODE] = f % modes, [KV] = f / 3 % kv_types};
        const outcome *base = baseline_of(row, most);
        es_engine *engine = engine_of(row);
        for (int i = 0; i < COUNT(lengths) && lengths[i] < most; i++) {
            run_history(engine, 0, lengths[i], NULL, got);
            compare(row, base, got, lengths[i]);
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

static void replay_answer(const int *row, int64_t length)
{
    const outcome *base = baseline_of(row, length);
    length = base->rows;
    int32_t *history = malloc(((size_t)length + ANSWER) * sizeof *history);
    assert_non_null(history);
    memcpy(history, ids, (size_t)length * sizeof *history);
    memcpy(history + length, base->answer, ANSWER * sizeof *history);
    run unused = {0};
    const es_request answered = request_of(0, length, &unused);
    replay r = {.request = &answered, .history = history, .prompt = length};
    assert_int_equal(es_sampler_open(es_model_get_info(subject_of(row[FAMILY], row[WEIGHTS])->model->model)->vocabulary, &r.sampler),
                     ES_OK);
    es_engine *engine = engine_of(row);
    const es_request again = {.prompt = history, .prompt_count = (size_t)length + ANSWER - 1, .user = &r,
                              .sampling = es_sampling_defaults(), .on_logits = choose_again, .logits_from = length - 1};
    es_engine_wait(engine, es_oracle_submit(engine, &again));
    assert_int_equal(r.count, ANSWER);
    for (int i = 0; i < ANSWER; i++)
        if (r.token[i] != base->token[i])
            fail_msg("%s: token %d of the answer is not what its history as a prompt gives", es_retyped_families[row[FAMILY]], i);
    es_engine_close(engine);
    es_sampler_close(&r.sampler);
    free(history);
}

static void decoding_equals_prefill(void **state)
{
    (void)state;
    for (int i = 0; i < (FEW_ROWS ? 1 : ES_RETYPED_FAMILIES * modes); i += how == PAIRS ? modes + 1 : 1) {
        const int row[AXES] = {[FAMILY] = i / modes, [MODE] = i % modes, [WEIGHTS] = (i * 5 + 3) % TYPES, [THREADS] = 1,
                               [CHUNK] = 3, [PAGE] = 2, [KV] = i / (modes + 1) % kv_types};
        replay_answer(row, how == PAIRS ? 150 : 1100);
    }
}

static int open_all(void **state)
{
    (void)state;
    const char *asked = getenv("ES_LONG"), *part = asked ? strchr(asked, '/') : NULL;
    how = !asked ? PAIRS : strncmp(asked, "whole", 5) == 0 ? WHOLE : TRIPLES;
    if (part && atoll(part + 1) > 0) every = atoll(part + 1);
    static const char *const known[] = {"amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "reference"};
    const char *device = getenv("ES_DEVICE");
    if (device && strcmp(device, "cuda") == 0) set_of[sets++] = GPU_SET, modes = 2, kv_types = 1;
    for (int i = 0; i < COUNT(known) && modes == MODES; i++) {
        es_kernels kernels;
        if (es_kernels_select(known[i], &kernels) == ES_OK) {
            set_of[sets++] = known[i];
            dots += kernels.product_bf16dp != es_product_bf16dp_ref;
        } else {
            print_message("this machine has no %s: left out\n", known[i]);
        }
    }
    prompts = es_oracle_open("qwen3_5", "reference");
    ids = es_oracle_get(prompts, MOST_TOKENS).ids;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int f = 0; f < ES_RETYPED_FAMILIES; f++)
        for (int t = 0; t < TYPES; t++) {
            es_retyped_close(subjects[f][t].model);
            for (int m = 0; m < MODES * KV_TYPES; m++) free(subjects[f][t].baseline[m / KV_TYPES][m % KV_TYPES]);
        }
    es_tensor_set_close(prompts);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_hash_for_every_plan),
        cmocka_unit_test(the_same_wherever_the_prompt_ends),
        cmocka_unit_test(decoding_equals_prefill),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
