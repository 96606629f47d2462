/* sampler.c: see sampler.h. Weights of tokens are integers (device/pick.h), so their sums have no order; ties go to the lowest
 * token. Tokens are drawn in order of likelihood: how many others there are changes nothing. */
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

es_sampling es_sampling_defaults(void)
{
    return (es_sampling){.top_p = 1.0f, .repetition_penalty = 1.0f, .repetition_window = -1};
}

es_status es_sampling_check(const es_sampling *s)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return es_fail(ES_INVALID, "temperature: %g is not between 0 and 100", (double)s->temperature);
    if (s->top_k < 0) return es_fail(ES_INVALID, "top_k: %d is negative", s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1)) return es_fail(ES_INVALID, "top_p: %g is not above 0 and at most 1", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1)) return es_fail(ES_INVALID, "min_p: %g is not between 0 and 1", (double)s->min_p);
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= 100))
        return es_fail(ES_INVALID, "repetition_penalty: %g is not above 0 and at most 100", (double)s->repetition_penalty);
    if (!(fabsf(s->frequency_penalty) <= 100))
        return es_fail(ES_INVALID, "frequency_penalty: %g is not between -100 and 100", (double)s->frequency_penalty);
    if (!(fabsf(s->presence_penalty) <= 100))
        return es_fail(ES_INVALID, "presence_penalty: %g is not between -100 and 100", (double)s->presence_penalty);
    return ES_OK;
}

es_status es_sampler_open(int32_t vocabulary, es_sampler *sampler)
{
    const size_t n = (size_t)vocabulary;
    *sampler = (es_sampler){vocabulary, malloc(n * sizeof(float)), calloc(n, sizeof(int32_t)),
                            malloc(n * sizeof(es_candidate))};
    if (sampler->logits && sampler->count && sampler->candidate) return ES_OK;
    es_sampler_close(sampler);
    return es_fail(ES_NO_MEMORY, "no memory for a sampler over %d tokens", vocabulary);
}

void es_sampler_close(es_sampler *sampler)
{
    free(sampler->logits);
    free(sampler->count);
    free(sampler->candidate);
    *sampler = (es_sampler){0};
}

/* Divides positive and multiplies negative logits of tokens in the window, each once. */
static void penalise_repetition(es_sampler *s, const es_sample_input *in)
{
    const float penalty = in->sampling->repetition_penalty;
    const int32_t window = in->sampling->repetition_window;
    if (penalty == 1.0f) return;
    const int64_t first = window >= 0 && window < in->history_count ? in->history_count - window : 0;
    for (int64_t i = first; i < in->history_count; i++) {
        const es_token token = in->history[i];
        if (s->count[token]++) continue;
        s->logits[token] = s->logits[token] > 0 ? s->logits[token] / penalty : s->logits[token] * penalty;
    }
    for (int64_t i = first; i < in->history_count; i++) s->count[in->history[i]] = 0;
}

/* Tokens of the answer lose presence once and frequency for each occurrence. */
static void penalise_presence(es_sampler *s, const es_sample_input *in)
{
    const float frequency = in->sampling->frequency_penalty, presence = in->sampling->presence_penalty;
    if (frequency == 0.0f && presence == 0.0f) return;
    for (int64_t i = in->prompt_count; i < in->history_count; i++) s->count[in->history[i]]++;
    for (int64_t i = in->prompt_count; i < in->history_count; i++) {
        const es_token token = in->history[i];
        if (s->count[token] == 0) continue;
        s->logits[token] -= (float)s->count[token] * frequency + presence;
        s->count[token] = 0;
    }
}

static void adjust(es_sampler *s, const es_sample_input *in)
{
    memcpy(s->logits, in->logits, (size_t)s->vocabulary * sizeof *s->logits);
    penalise_repetition(s, in);
    penalise_presence(s, in);
    for (size_t i = 0; i < in->bias_count; i++)
        s->logits[in->bias[i].token] = in->bias[i].bias <= -100 ? -INFINITY : s->logits[in->bias[i].token] + in->bias[i].bias;
    for (int32_t i = 0; in->allowed && i < s->vocabulary; i++) {
        if (i % 8 == 0 && in->allowed[i / 8] == 0xFF) i += 7;
        else if (!(in->allowed[i / 8] >> (i % 8) & 1)) s->logits[i] = -INFINITY;
    }
}

static es_token arg_max(const float *logits, int32_t n)
{
    es_token best = ES_NO_TOKEN;
    for (int32_t i = 0; i < n; i++)
        if (logits[i] > -INFINITY && (best == ES_NO_TOKEN || logits[i] > logits[best])) best = i;
    return best;
}

static bool is_adjusted(const es_sample_input *in)
{
    const es_sampling *how = in->sampling;
    return how->repetition_penalty != 1.0f || how->frequency_penalty != 0.0f || how->presence_penalty != 0.0f ||
           in->bias_count > 0 || in->allowed;
}

static double random_share(const es_sample_input *in)
{
    return es_random_unit(in->sampling->seed, in->sampling->choice, (uint64_t)in->history_count, 0);
}

bool es_sampler_plan(const es_sample_input *in, es_pick *pick)
{
    const es_sampling *how = in->sampling;
    *pick = (es_pick){.share = 1, .wanted = 1, .least = how->min_p, .top = how->top_k};
    if (how->temperature > 0) pick->inverse_temperature = 1.0f / how->temperature;
    if (how->top_p < 1) pick->share = (double)how->top_p;
    else if (how->min_p == 0 && how->top_k == 0) pick->share = random_share(in); /* the draw ends there */
    return !is_adjusted(in) && in->top_logprobs < 0;
}

/* The token at share `u` of the first tokens' weight, in order of likelihood; `all` of them, or those that top-k and top-p
 * keep. */
static es_token draw(const es_sample_input *in, es_candidate *list, int32_t n, uint64_t all)
{
    const es_sampling *how = in->sampling;
    es_pick_sort(list, n);
    uint64_t total = all, sum = 0;
    if (how->top_k > 0) {
        if (n > how->top_k) n = how->top_k;
        total = 0;
        for (int32_t i = 0; i < n; i++) total += es_pick_weight(list[i].p);
    }
    if (how->top_p < 1) {
        const uint64_t enough = (uint64_t)((double)how->top_p * (double)total);
        int32_t kept = 0;
        while (kept < n && (kept == 0 || sum < enough)) sum += es_pick_weight(list[kept++].p);
        n = kept;
        total = sum;
    } else if (how->min_p > 0 && how->top_k == 0) {
        total = 0;
        for (int32_t i = 0; i < n; i++) total += es_pick_weight(list[i].p);
    }
    uint64_t left = (uint64_t)(random_share(in) * (double)total);
    for (int32_t i = 0; i < n; i++) {
        const uint64_t weight = es_pick_weight(list[i].p);
        if (left < weight) return list[i].token;
        left -= weight;
    }
    return list[n - 1].token;
}

/* Log-probabilities come from the model's own logits: before penalties, bias and temperature. */
void es_sampler_report(const es_sampler *s, const float *logits, es_token token, int top, es_sample *sample)
{
    *sample = (es_sample){.token = token};
    const es_token best = arg_max(logits, s->vocabulary);
    if (best == ES_NO_TOKEN) return;
    double total = 0;
    for (int32_t i = 0; i < s->vocabulary; i++)
        if (logits[i] > -INFINITY) total += exp((double)logits[i] - (double)logits[best]);
    const double log_total = (double)logits[best] + log(total);
    sample->logprob = (float)((double)logits[sample->token] - log_total);
    for (int32_t i = 0; i < s->vocabulary; i++) {
        int at = sample->top_count;
        while (at > 0 && logits[i] > logits[sample->top[at - 1].token]) at--;
        if (at == top || !(logits[i] > -INFINITY)) continue;
        if (sample->top_count < top) sample->top_count++;
        memmove(&sample->top[at + 1], &sample->top[at], (size_t)(sample->top_count - 1 - at) * sizeof *sample->top);
        sample->top[at].token = i;
    }
    for (int i = 0; i < sample->top_count; i++)
        sample->top[i].logprob = (float)((double)logits[sample->top[i].token] - log_total);
}

/* Without a device's pick, or where its list is too short, the whole row is gone through, into a list with room for all. */
es_status es_sampler_choose(es_sampler *s, const es_sample_input *in, es_sample *sample)
{
    es_pick how;
    es_picked here, *picked = in->picked;
    es_candidate *list = picked ? picked->candidate : NULL;
    *sample = (es_sample){0};
    if (!es_sampler_plan(in, &how) || !picked || picked->count > ES_PICK_MOST) {
        if (is_adjusted(in)) adjust(s, in);
        list = s->candidate;
        picked = &here;
        es_pick_row(is_adjusted(in) ? s->logits : in->logits, s->vocabulary, &how, s->vocabulary, list, picked);
    }
    if (picked->best < 0 && in->allowed && in->bias_count)
        return es_fail(ES_INVALID, "no token can be chosen: logit_bias bans all that the answer's form allows here");
    if (picked->best < 0) return es_fail(ES_INTERNAL, "no token can be chosen: every logit is NaN or banned");
    sample->token = picked->count > 0 ? draw(in, list, picked->count, picked->total) : picked->best;
    if (in->top_logprobs >= 0) es_sampler_report(s, in->logits, sample->token, in->top_logprobs, sample);
    return ES_OK;
}
