/* oracle.h: the oracle models of tests/data for the tests: their references, and a prompt's logits from an engine. */
#ifndef ES_TESTS_ORACLE_H
#define ES_TESTS_ORACLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "evenshare/engine.h"
#include "model/tensor_file.h"

#define ES_ORACLE_FOLDER ES_SOURCE_DIR "/tests/data/oracle"
#define ES_ORACLE_VOCABULARY 512

typedef struct es_oracle_family {
    const char *name;
    bool hybrid;      /**< has Gated DeltaNet layers, and a float64 evaluation beside its float32 reference */
    bool not_greedy;  /**< the reference's greedy.tokens are not the likeliest by its own logits: see test_oracle.c */
} es_oracle_family;

static const es_oracle_family es_oracle_families[] = {
    {"qwen3_5", true, false}, {"qwen3_5_moe", true, true}, {"qwen3_next", true, false}, {"qwen3", false, false},
    {"qwen3_moe", false, false}, {"qwen2", false, false}, {"llama", false, false},
};
#define ES_ORACLE_FAMILIES (sizeof es_oracle_families / sizeof *es_oracle_families)

/* Sanitizers look for races and wild reads, ten to thirty times as slowly: there each kind of model and of setting is run, and the
 * bits of all of them are the release build's affair. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ES_ORACLE_SANITIZED 1
static const int es_oracle_lengths[] = {1, 3, 7, 63, 64, 65, 130, 300}; /* 4,096 tokens take minutes there */
#else
#define ES_ORACLE_SANITIZED 0
static const int es_oracle_lengths[] = {1, 3, 7, 63, 64, 65, 130, 300, 4096};
#endif
#define ES_ORACLE_LENGTHS (sizeof es_oracle_lengths / sizeof *es_oracle_lengths)

/** The reference of one length: token numbers, and the logits of the last `positions` positions. */
typedef struct es_oracle_case {
    int32_t length, positions;
    const int32_t *ids;
    const float *logits;
} es_oracle_case;

static inline es_tensor_set *es_oracle_open(const char *family, const char *file)
{
    char path[512];
    es_tensor_set *set = NULL;
    snprintf(path, sizeof path, "%s/%s/%s.safetensors", ES_ORACLE_FOLDER, family, file);
    if (es_safetensors_open(path, &set) != ES_OK) fail_msg("%s: %s", family, es_error_message());
    return set;
}

/** The logits of one length in reference.safetensors or exact.safetensors; ids is NULL where the file has none. */
static inline es_oracle_case es_oracle_get(const es_tensor_set *set, int length)
{
    static const char *const suffixes[] = {"logits", "last8_logits", "last4_logits"};
    char name[64];
    snprintf(name, sizeof name, "len%d.ids", length);
    const es_tensor *ids = es_tensor_find(set, name), *logits = NULL;
    for (int i = 0; i < 3 && !logits; i++) {
        snprintf(name, sizeof name, "len%d.%s", length, suffixes[i]);
        logits = es_tensor_find(set, name);
    }
    if (!logits || logits->shape[1] != ES_ORACLE_VOCABULARY) fail_msg("no logits of length %d", length);
    return (es_oracle_case){length, (int32_t)logits->shape[0], ids ? ids->data : NULL, logits->data};
}

static inline es_model *es_oracle_model(const char *family)
{
    char path[512];
    es_model *model = NULL;
    snprintf(path, sizeof path, "%s/%s", ES_ORACLE_FOLDER, family);
    if (es_model_open(path, &model) != ES_OK) fail_msg("%s: %s", family, es_error_message());
    return model;
}

/** An engine whose every sequence holds 4,224 tokens unless the options say otherwise. */
static inline es_engine *es_oracle_engine(const es_model *model, es_engine_options options)
{
    if (options.numeric == ES_NUMERIC_AUTO) options.numeric = ES_NUMERIC_F32; /* the references are float32's */
    es_engine *engine = NULL;
    if (options.context == 0) options.context = 4224;
    if (es_engine_open(model, &options, &engine) != ES_OK) fail_msg("%s", es_error_message());
    return engine;
}

/** What a request left behind: a prompt's logits from position `from` on, and the answer's tokens. */
typedef struct es_oracle_answer {
    float *logits;          /**< [positions][vocabulary], or NULL */
    int64_t from, positions;
    int32_t *tokens;        /**< [most_tokens], or NULL */
    float *logprobs;        /**< [most_tokens], or NULL */
    int64_t count, most_tokens;
    int done, errors;
} es_oracle_answer;

static inline void es_oracle_on_logits(void *user, int64_t position, const float *logits, int32_t vocabulary)
{
    es_oracle_answer *a = user;
    memcpy(a->logits + (position - a->from) * vocabulary, logits, (size_t)vocabulary * sizeof *logits);
    a->positions++;
}

static inline void es_oracle_on_event(void *user, const es_event *event)
{
    es_oracle_answer *a = user;
    if (event->kind == ES_EVENT_TOKEN && a->count < a->most_tokens) {
        if (a->tokens) a->tokens[a->count] = event->token;
        if (a->logprobs) a->logprobs[a->count] = event->logprob;
        a->count++;
    }
    a->done += event->kind == ES_EVENT_DONE;
    a->errors += event->kind == ES_EVENT_ERROR;
}

/** A greedy request that fills in `answer`; max_tokens is answer->most_tokens. */
static inline es_request es_oracle_request(const int32_t *ids, int64_t count, es_oracle_answer *answer)
{
    return (es_request){.prompt = ids, .prompt_count = (size_t)count, .max_tokens = answer->most_tokens,
                        .sampling = es_sampling_defaults(), .ignore_eos = true, .logprobs = answer->logprobs != NULL,
                        .on_event = es_oracle_on_event, .on_logits = answer->logits ? es_oracle_on_logits : NULL,
                        .logits_from = answer->from, .user = answer};
}

static inline uint64_t es_oracle_submit(es_engine *engine, const es_request *request)
{
    uint64_t id = 0;
    if (es_engine_submit(engine, request, &id) != ES_OK) fail_msg("%s", es_error_message());
    return id;
}

/** The logits of a prompt's last `positions` positions; the caller's (free()). */
static inline float *es_oracle_logits(es_engine *engine, const int32_t *ids, int64_t count, int64_t positions)
{
    es_oracle_answer a = {.from = count - positions};
    a.logits = malloc((size_t)positions * ES_ORACLE_VOCABULARY * sizeof *a.logits);
    if (!a.logits) fail_msg("no memory for %d rows of logits", (int)positions);
    const es_request request = es_oracle_request(ids, count, &a);
    es_engine_wait(engine, es_oracle_submit(engine, &request));
    assert_int_equal(a.errors, 0);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.positions, positions);
    return a.logits;
}

#endif
