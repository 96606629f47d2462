/* rope.c: from a RoPE configuration to the angle per position of each rotated pair. */
#include "model/config.h"

#include <math.h>

#define PI 3.14159265358979323846

/* Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between interpolated. */
static double smooth_llama3(const es_rope_config *rope, double f)
{
    const double wavelength = 2 * PI / f;
    if (wavelength < rope->original_context / rope->high_freq_factor) return f;
    if (wavelength > rope->original_context / rope->low_freq_factor) return f / rope->factor;
    const double smooth = (rope->original_context / wavelength - rope->low_freq_factor) /
                          (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * f / rope->factor + smooth * f;
}

/* YaRN: the pair that turns `turns` times over the original context. */
static double pair_of_turns(const es_rope_config *rope, double turns, double dim)
{
    return dim * log(rope->original_context / (turns * 2 * PI)) / (2 * log(rope->theta));
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static double blend_yarn(const es_rope_config *rope, double f, int32_t pair, int32_t pairs)
{
    const double dim = 2.0 * pairs;
    double low = pair_of_turns(rope, rope->beta_fast, dim), high = pair_of_turns(rope, rope->beta_slow, dim);
    if (rope->truncate) low = floor(low), high = ceil(high);
    if (low < 0) low = 0;
    if (high > dim - 1) high = dim - 1;
    if (low == high) high += 0.001;
    double ramp = (pair - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return f / rope->factor * ramp + f * (1 - ramp);
}

void es_rope_frequencies(const es_config *config, float *frequency, float *scale)
{
    const es_rope_config *rope = &config->rope;
    const int32_t pairs = config->rope_pairs;
    for (int32_t i = 0; i < pairs; i++) {
        const double f = (float)(1.0 / (float)pow(rope->theta, (double)((float)(2 * i) / (float)(2 * pairs))));
        switch (rope->kind) {
        case ES_ROPE_DEFAULT: frequency[i] = (float)f; break;
        case ES_ROPE_LINEAR: frequency[i] = (float)(f / rope->factor); break;
        case ES_ROPE_LLAMA3: frequency[i] = (float)smooth_llama3(rope, f); break;
        case ES_ROPE_YARN: frequency[i] = (float)blend_yarn(rope, f, i, pairs); break;
        }
    }
    *scale = 1.0f;
    if (rope->kind != ES_ROPE_YARN) return;
    if (rope->attention_factor >= 0)
        *scale = (float)rope->attention_factor;
    else if (rope->mscale > 0 && rope->mscale_all_dim > 0)
        *scale = (float)(yarn_mscale(rope->factor, rope->mscale) / yarn_mscale(rope->factor, rope->mscale_all_dim));
    else
        *scale = (float)yarn_mscale(rope->factor, 1);
}
