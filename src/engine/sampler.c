/* sampler.c: see sampler.h. Sums run in float64 in a fixed order, ties go to the lowest token. */
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "device/cpu/math.h"

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

/* Likelier first, then lower token. */
static bool comes_before(es_candidate a, es_candidate b)
{
    return a.p > b.p || (a.p == b.p && a.token < b.token);
}

/* A heap whose root comes last. The C library's qsort would allocate. */
static void sift_down(es_candidate *heap, int32_t n, int32_t at)
{
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && comes_before(heap[child], heap[child + 1])) child++;
        if (!comes_before(heap[at], heap[child])) return;
        const es_candidate moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static void make_heap(es_candidate *heap, int32_t n)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--) sift_down(heap, n, i);
}

static void sort_candidates(es_candidate *list, int32_t n)
{
    make_heap(list, n);
    for (int32_t end = n - 1; end > 0; end--) {
        const es_candidate last = list[0];
        list[0] = list[end];
        list[end] = last;
        sift_down(list, end, 0);
    }
}

/* Candidates with p ≥ least, at most k of them (the first in order); unsorted. */
static int32_t gather(es_sampler *s, float most, float inverse_temperature, float least, int32_t k)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->vocabulary; i++) {
        const es_candidate c = {es_exp((s->logits[i] - most) * inverse_temperature), i};
        if (!(c.p >= least) || c.p == 0.0f) continue;
        if (n < k) {
            s->candidate[n++] = c;
            if (n == k) make_heap(s->candidate, n);
        } else if (comes_before(c, s->candidate[0])) {
            s->candidate[0] = c;
            sift_down(s->candidate, n, 0);
        }
    }
    return n;
}

static double mass_of(const es_sampler *s, float most, float inverse_temperature)
{
    double total = 0;
    for (int32_t i = 0; i < s->vocabulary; i++) {
        const float p = es_exp((s->logits[i] - most) * inverse_temperature);
        if (p > 0) total += (double)p;
    }
    return total;
}

static es_token draw(es_sampler *s, const es_sample_input *in, float most)
{
    const es_sampling *how = in->sampling;
    const float inverse = 1.0f / how->temperature;
    const int32_t k = how->top_k > 0 && how->top_k < s->vocabulary ? how->top_k : s->vocabulary;
    /* Without top-k, tokens below (1 − top_p)·total / vocabulary cannot all together reach into the likeliest top_p:
     * leaving them out early keeps the sort short. The likeliest token has p = 1. */
    float least = how->min_p;
    if (k == s->vocabulary && how->top_p < 1) {
        const float floor = (float)((1 - (double)how->top_p) * mass_of(s, most, inverse) / s->vocabulary);
        if (floor > least) least = floor;
    }
    int32_t n = gather(s, most, inverse, least, k);
    double total = k == s->vocabulary && how->top_p < 1 ? mass_of(s, most, inverse) : 0;
    if (how->top_p < 1) {
        sort_candidates(s->candidate, n);
        if (total == 0)
            for (int32_t i = 0; i < n; i++) total += (double)s->candidate[i].p;
        double sum = 0;
        int32_t kept = 0;
        while (kept < n && sum < (double)how->top_p * total) sum += (double)s->candidate[kept++].p;
        n = kept > 0 ? kept : 1;
    } else if (k < s->vocabulary) {
        sort_candidates(s->candidate, n); /* a heap's order depends on how it was filled */
    }
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)s->candidate[i].p;
    double left = es_random_unit(how->seed, how->choice, (uint64_t)in->history_count, 0) * sum;
    for (int32_t i = 0; i < n; i++) {
        left -= (double)s->candidate[i].p;
        if (left < 0) return s->candidate[i].token;
    }
    return s->candidate[n - 1].token;
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

es_status es_sampler_choose(es_sampler *s, const es_sample_input *in, es_sample *sample)
{
    *sample = (es_sample){0};
    adjust(s, in);
    const es_token best = arg_max(s->logits, s->vocabulary);
    if (best == ES_NO_TOKEN && in->allowed && in->bias_count)
        return es_fail(ES_INVALID, "no token can be chosen: logit_bias bans all that the answer's form allows here");
    if (best == ES_NO_TOKEN)
        return es_fail(ES_INTERNAL, "no token can be chosen: every logit is NaN or banned");
    sample->token = in->sampling->temperature > 0 ? draw(s, in, s->logits[best]) : best;
    if (in->top_logprobs >= 0) es_sampler_report(s, in->logits, sample->token, in->top_logprobs, sample);
    return ES_OK;
}
