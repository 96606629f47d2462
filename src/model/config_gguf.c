/* config_gguf.c: a model's shape from GGUF metadata. */
#include <math.h>
#include <string.h>

#include "model/config.h"

static es_status need_size(const es_gguf *gguf, const char *where, const char *key, int32_t *value)
{
    int64_t v;
    if (!es_gguf_integer(gguf, key, &v) || v < 0 || v > INT32_MAX)
        return es_fail(ES_BAD_FILE, "%s: the metadata lack a usable \"%s\"", where, key);
    *value = (int32_t)v;
    return ES_OK;
}

static int32_t size_or(const es_gguf *gguf, const char *key, int32_t otherwise)
{
    int64_t v;
    return es_gguf_integer(gguf, key, &v) && v >= 0 && v <= INT32_MAX ? (int32_t)v : otherwise;
}

static double number_or(const es_gguf *gguf, const char *key, double otherwise)
{
    double v;
    return es_gguf_number(gguf, key, &v) ? v : otherwise;
}

static es_status read_rope(const es_gguf *gguf, const char *where, es_config *c)
{
    es_rope_config *rope = &c->rope;
    es_gguf_string kind = {"none", 4};
    es_gguf_text(gguf, "%s.rope.scaling.type", &kind);
    rope->theta = number_or(gguf, "%s.rope.freq_base", 10000);
    rope->factor = number_or(gguf, "%s.rope.scaling.factor", 1);
    rope->original_context = number_or(gguf, "%s.rope.scaling.original_context_length", (double)c->context);
    rope->beta_fast = number_or(gguf, "%s.rope.scaling.yarn_beta_fast", 32);
    rope->beta_slow = number_or(gguf, "%s.rope.scaling.yarn_beta_slow", 1);
    /* GGUF's factor multiplies YaRN's own. */
    rope->attention_factor = number_or(gguf, "%s.rope.scaling.attn_factor", 1) * (1 + 0.1 * log(rope->factor > 1 ? rope->factor : 1));
    rope->truncate = true;
    c->rope_pairs = size_or(gguf, "%s.rope.dimension_count", (int32_t)(c->head_dim * c->family->partial_rotary)) / 2;
    if (kind.bytes == 4 && memcmp(kind.data, "none", 4) == 0)
        rope->kind = ES_ROPE_DEFAULT;
    else if (kind.bytes == 6 && memcmp(kind.data, "linear", 6) == 0)
        rope->kind = ES_ROPE_LINEAR;
    else if (kind.bytes == 4 && memcmp(kind.data, "yarn", 4) == 0)
        rope->kind = ES_ROPE_YARN;
    else
        return es_fail(ES_UNSUPPORTED, "%s: RoPE scaling \"%.*s\" is not supported (none, linear and yarn are)", where,
                       (int)(kind.bytes < 64 ? kind.bytes : 64), kind.data);
    return ES_OK;
}

static es_status read_layer_kinds(const es_gguf *gguf, const char *where, es_config *c)
{
    const int32_t interval = size_or(gguf, "%s.full_attention_interval", 4);
    const int64_t listed = es_gguf_array_length(gguf, "%s.attention.recurrent_layers");
    if (listed >= 0 && listed < c->layers)
        return es_fail(ES_BAD_FILE, "%s: attention.recurrent_layers lists %" PRId64 " of %d layers", where, listed, c->layers);
    for (int32_t i = 0; i < c->layers; i++) {
        bool recurrent = false;
        int64_t number = 0;
        if (!c->family->hybrid)
            c->attention[i] = true;
        else if (listed < 0)
            c->attention[i] = interval > 0 && (i + 1) % interval == 0;
        else if (es_gguf_array_boolean(gguf, "%s.attention.recurrent_layers", i, &recurrent))
            c->attention[i] = !recurrent;
        else if (es_gguf_array_integer(gguf, "%s.attention.recurrent_layers", i, &number))
            c->attention[i] = number == 0;
        c->sparse[i] = c->family->moe;
    }
    return ES_OK;
}

static es_status read_delta(const es_gguf *gguf, const char *where, es_config *c)
{
    es_delta_shape *d = &c->delta;
    int32_t inner, taps;
    ES_TRY(need_size(gguf, where, "%s.ssm.conv_kernel", &taps));
    ES_TRY(need_size(gguf, where, "%s.ssm.state_size", &d->key_dim));
    ES_TRY(need_size(gguf, where, "%s.ssm.group_count", &d->key_heads));
    ES_TRY(need_size(gguf, where, "%s.ssm.time_step_rank", &d->value_heads));
    ES_TRY(need_size(gguf, where, "%s.ssm.inner_size", &inner));
    if (taps != ES_CONV_TAPS)
        return es_fail(ES_UNSUPPORTED, "%s: a convolution of %d taps; %d are supported", where, taps, ES_CONV_TAPS);
    if (d->value_heads < 1 || inner % d->value_heads != 0)
        return es_fail(ES_BAD_FILE, "%s: ssm.inner_size %d is not a multiple of %d value heads", where, inner, d->value_heads);
    d->value_dim = inner / d->value_heads;
    d->tiled = c->family->gguf_tiled_heads;
    return ES_OK;
}

static es_status read_experts(const es_gguf *gguf, const char *where, es_config *c)
{
    ES_TRY(need_size(gguf, where, "%s.expert_count", &c->experts));
    ES_TRY(need_size(gguf, where, "%s.expert_used_count", &c->experts_used));
    ES_TRY(need_size(gguf, where, "%s.expert_feed_forward_length", &c->expert_ffn));
    if (c->family->shared_expert) ES_TRY(need_size(gguf, where, "%s.expert_shared_feed_forward_length", &c->shared_ffn));
    c->renormalise = true;
    bool renormalise;
    if (es_gguf_boolean(gguf, "%s.expert_weights_norm", &renormalise)) c->renormalise = renormalise;
    c->expert_scale = (float)number_or(gguf, "%s.expert_weights_scale", 1.0);
    if (c->expert_scale == 0.0f) c->expert_scale = 1.0f; /* written as 0 where it means "none" */
    return ES_OK;
}

/* llama.cpp's numbers; another one (4: a score, by a matrix of its own) is no embedding. */
static es_pooling read_pooling(const es_gguf *gguf)
{
    static const es_pooling numbers[] = {ES_POOLING_NONE, ES_POOLING_MEAN, ES_POOLING_CLS, ES_POOLING_LAST};
    const int32_t number = size_or(gguf, "%s.pooling_type", 0);
    return number < (int32_t)(sizeof numbers / sizeof *numbers) ? numbers[number] : ES_POOLING_NONE;
}

es_status es_config_from_gguf(const es_gguf *gguf, const char *where, es_config *config)
{
    es_gguf_string architecture;
    if (!es_gguf_text(gguf, "general.architecture", &architecture))
        return es_fail(ES_BAD_FILE, "%s: the metadata lack general.architecture", where);
    es_config c = {.family = es_family_of_gguf(architecture.data, architecture.bytes), .from_gguf = true, .expert_scale = 1.0f};
    if (!c.family)
        return es_fail(ES_UNSUPPORTED, "%s: architecture \"%.*s\" is not supported; %s are", where,
                       (int)(architecture.bytes < 64 ? architecture.bytes : 64), architecture.data, es_family_list());
    ES_TRY(need_size(gguf, where, "%s.block_count", &c.layers));
    ES_TRY(need_size(gguf, where, "%s.embedding_length", &c.hidden));
    ES_TRY(need_size(gguf, where, "%s.attention.head_count", &c.query_heads));
    c.kv_heads = size_or(gguf, "%s.attention.head_count_kv", c.query_heads);
    c.head_dim = size_or(gguf, "%s.attention.key_length", c.query_heads > 0 ? c.hidden / c.query_heads : 0);
    if (size_or(gguf, "%s.attention.value_length", c.head_dim) != c.head_dim)
        return es_fail(ES_UNSUPPORTED, "%s: keys and values of different width", where);
    c.layers -= size_or(gguf, "%s.nextn_predict_layers", 0); /* MTP blocks stand at the end and are not used */
    c.context = size_or(gguf, "%s.context_length", 2048);
    c.ffn = size_or(gguf, "%s.feed_forward_length", 0);
    c.eps = (float)number_or(gguf, "%s.attention.layer_norm_rms_epsilon", 1e-6);
    if (c.layers < 1 || c.layers > ES_MOST_LAYERS)
        return es_fail(ES_BAD_FILE, "%s: %d layers; 1 to %d are possible", where, c.layers, ES_MOST_LAYERS);
    const es_tensor *embedding = es_tensor_find(es_gguf_tensors(gguf), "token_embd.weight");
    if (!embedding || embedding->rank != 2 || embedding->shape[0] > INT32_MAX)
        return es_fail(ES_BAD_FILE, "%s: there is no usable tensor token_embd.weight", where);
    c.vocabulary = (int32_t)embedding->shape[0];
    c.tied = !es_tensor_find(es_gguf_tensors(gguf), "output.weight");
    ES_TRY(read_rope(gguf, where, &c));
    c.pooling = read_pooling(gguf);
    ES_TRY(read_layer_kinds(gguf, where, &c));
    if (c.family->hybrid) ES_TRY(read_delta(gguf, where, &c));
    if (c.family->moe) ES_TRY(read_experts(gguf, where, &c));
    ES_TRY(es_config_check(&c, where));
    *config = c;
    return ES_OK;
}
