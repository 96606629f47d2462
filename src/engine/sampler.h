/* sampler.h: from a row of logits to a token.
 *
 * Order: penalties, logit bias (and a mask of allowed tokens), then greedy choice, or temperature, top-k, top-p, min-p and a
 * draw. The draw is a pure function of (seed, choice, position), so company, batching and preemption cannot change it.
 *
 *   es_pick pick;
 *   if (es_sampler_plan(&input, &pick)) ...ES_OP_PICK leaves `picked` on the device, which is all that the host reads...
 *   es_sampler_choose(&sampler, &input, &sample);      // from input.picked, or from input.logits: the same token */
#ifndef ES_ENGINE_SAMPLER_H
#define ES_ENGINE_SAMPLER_H

#include "base/error.h"
#include "device/pick.h"
#include "evenshare/engine.h"

/** Scratch for one engine: allocated once, used by one thread. */
typedef struct es_sampler {
    int32_t vocabulary;
    float *logits;           /**< [vocabulary] a copy that penalties may change */
    int32_t *count;          /**< [vocabulary] zeros between calls */
    es_candidate *candidate; /**< [vocabulary] */
} es_sampler;

/** What one choice is made from. */
typedef struct es_sample_input {
    const float *logits;          /**< [vocabulary]; NULL where `picked` is enough */
    es_picked *picked;            /**< what a device picked for es_sampler_plan(), or NULL; its candidates are sorted in place */
    const es_sampling *sampling;
    const es_logit_bias *bias;
    size_t bias_count;
    const es_token *history;      /**< prompt and answer so far */
    int64_t history_count, prompt_count;
    const uint8_t *allowed;       /**< bit i mod 8 of byte i / 8: token i may come; NULL: all may */
    int top_logprobs;             /**< how many of the likeliest to report; −1: no log-probability at all */
} es_sample_input;

#define ES_MOST_TOP_LOGPROBS 20

typedef struct es_sample {
    es_token token;
    float logprob;
    es_token_logprob top[ES_MOST_TOP_LOGPROBS];
    int top_count;
} es_sample;

es_status es_sampler_open(int32_t vocabulary, es_sampler *sampler);
void es_sampler_close(es_sampler *sampler);
/** What a device may pick from this input's logits (which are not read). False: they are changed or reported first, on the host,
 *  and a row is needed whole. */
bool es_sampler_plan(const es_sample_input *input, es_pick *pick);
/** Choose. ES_INTERNAL when every logit is NaN or banned. Allocates nothing. */
es_status es_sampler_choose(es_sampler *sampler, const es_sample_input *input, es_sample *sample);
/** Report how likely `token` is by these logits [vocabulary], and the `top` likeliest tokens, most likely first. */
void es_sampler_report(const es_sampler *sampler, const float *logits, es_token token, int top, es_sample *sample);
/** ES_INVALID with the parameter's name when a value is out of its range. */
es_status es_sampling_check(const es_sampling *sampling);

#endif
