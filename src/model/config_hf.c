/* config_hf.c: a model's shape from a Hugging Face config.json. */
#include <math.h>
#include <string.h>

#include "model/config.h"

/* A reader of one JSON object that remembers the first thing that was wrong. */
typedef struct reader {
    const json_t *object;
    const char *where;
    es_status status;
} reader;

static bool present(const reader *r, const char *key)
{
    const json_t *v = json_object_get(r->object, key);
    return v && !json_is_null(v);
}

static int64_t integer_or(reader *r, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(r->object, key);
    if (!v || json_is_null(v)) return otherwise;
    if (json_is_integer(v)) return json_integer_value(v);
    if (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)) && fabs(json_real_value(v)) < 1e15)
        return (int64_t)json_real_value(v);
    if (r->status == ES_OK) r->status = es_fail(ES_BAD_FILE, "%s: \"%s\" is not a whole number", r->where, key);
    return otherwise;
}

static int32_t size_or(reader *r, const char *key, int32_t otherwise)
{
    const int64_t v = integer_or(r, key, otherwise);
    if (v >= INT32_MIN && v <= INT32_MAX) return (int32_t)v;
    if (r->status == ES_OK) r->status = es_fail(ES_BAD_FILE, "%s: \"%s\" is %" PRId64 ", too large", r->where, key, v);
    return otherwise;
}

static int32_t size_of(reader *r, const char *key)
{
    if (!present(r, key) && r->status == ES_OK) r->status = es_fail(ES_BAD_FILE, "%s: \"%s\" is missing", r->where, key);
    return size_or(r, key, 0);
}

static double number_or(reader *r, const char *key, double otherwise)
{
    const json_t *v = json_object_get(r->object, key);
    if (!v || json_is_null(v)) return otherwise;
    if (json_is_number(v)) return json_number_value(v);
    if (r->status == ES_OK) r->status = es_fail(ES_BAD_FILE, "%s: \"%s\" is not a number", r->where, key);
    return otherwise;
}

static bool boolean_or(reader *r, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(r->object, key);
    if (!v || json_is_null(v)) return otherwise;
    if (json_is_boolean(v)) return json_is_true(v);
    if (r->status == ES_OK) r->status = es_fail(ES_BAD_FILE, "%s: \"%s\" is not true or false", r->where, key);
    return otherwise;
}

static const char *string_or(reader *r, const char *key, const char *otherwise)
{
    const json_t *v = json_object_get(r->object, key);
    if (!v || json_is_null(v)) return otherwise;
    if (json_is_string(v)) return json_string_value(v);
    if (r->status == ES_OK) r->status = es_fail(ES_BAD_FILE, "%s: \"%s\" is not a string", r->where, key);
    return otherwise;
}

/* `rope_parameters` holds everything in newer files; older ones have `rope_theta` beside `rope_scaling`. */
static es_status read_rope(reader *top, es_config *c)
{
    const json_t *object = json_object_get(top->object, "rope_parameters");
    if (!json_is_object(object)) object = json_object_get(top->object, "rope_scaling");
    reader r = {json_is_object(object) ? object : NULL, top->where, ES_OK};
    es_rope_config *rope = &c->rope;
    rope->theta = number_or(&r, "rope_theta", number_or(top, "rope_theta", 10000));
    rope->factor = number_or(&r, "factor", 1);
    rope->truncate = boolean_or(&r, "truncate", true);
    rope->original_context = number_or(&r, "original_max_position_embeddings",
                                       number_or(top, "original_max_position_embeddings", (double)c->context));
    rope->low_freq_factor = number_or(&r, "low_freq_factor", 1);
    rope->high_freq_factor = number_or(&r, "high_freq_factor", 4);
    rope->beta_fast = number_or(&r, "beta_fast", 32);
    rope->beta_slow = number_or(&r, "beta_slow", 1);
    rope->attention_factor = number_or(&r, "attention_factor", -1);
    rope->mscale = number_or(&r, "mscale", 0);
    rope->mscale_all_dim = number_or(&r, "mscale_all_dim", 0);
    const char *kind = string_or(&r, "rope_type", string_or(&r, "type", "default"));
    const double partial = number_or(&r, "partial_rotary_factor",
                                     number_or(top, "partial_rotary_factor", c->family->partial_rotary));
    ES_TRY(r.status);
    ES_TRY(top->status);
    if (strcmp(kind, "default") == 0 || strcmp(kind, "mrope") == 0)
        rope->kind = ES_ROPE_DEFAULT;
    else if (strcmp(kind, "linear") == 0)
        rope->kind = ES_ROPE_LINEAR;
    else if (strcmp(kind, "llama3") == 0)
        rope->kind = ES_ROPE_LLAMA3;
    else if (strcmp(kind, "yarn") == 0)
        rope->kind = ES_ROPE_YARN;
    else
        return es_fail(ES_UNSUPPORTED, "%s: RoPE scaling \"%s\" is not supported (default, linear, llama3 and yarn are)",
                       top->where, kind);
    if (!(partial > 0 && partial <= 1)) return es_fail(ES_BAD_FILE, "%s: partial_rotary_factor is %g", top->where, partial);
    c->rope_pairs = (int32_t)(c->head_dim * partial) / 2;
    return ES_OK;
}

static es_status read_layer_kinds(reader *r, es_config *c)
{
    const json_t *types = json_object_get(r->object, "layer_types");
    if (types && !json_is_null(types) && (!json_is_array(types) || json_array_size(types) != (size_t)c->layers))
        return es_fail(ES_BAD_FILE, "%s: \"layer_types\" does not list the %d layers", r->where, c->layers);
    const int32_t interval = size_or(r, "full_attention_interval", 4);
    for (int32_t i = 0; i < c->layers; i++) {
        if (!json_is_array(types)) {
            c->attention[i] = !c->family->hybrid || (interval > 0 && (i + 1) % interval == 0);
            continue;
        }
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type && strcmp(type, "full_attention") == 0)
            c->attention[i] = true;
        else if (!type || strcmp(type, "linear_attention") != 0)
            return es_fail(ES_UNSUPPORTED, "%s: layer %d is of type \"%s\"; full_attention and linear_attention are supported",
                           r->where, i, type ? type : "?");
    }
    return ES_OK;
}

static es_status read_experts(reader *r, es_config *c)
{
    c->experts = size_or(r, "num_experts", size_or(r, "num_local_experts", 0));
    c->experts_used = size_of(r, "num_experts_per_tok");
    c->expert_ffn = size_of(r, "moe_intermediate_size");
    if (c->family->shared_expert) c->shared_ffn = size_of(r, "shared_expert_intermediate_size");
    c->renormalise = c->family->renormalise || boolean_or(r, "norm_topk_prob", c->family->hybrid);
    const int32_t step = size_or(r, "decoder_sparse_step", 1);
    for (int32_t i = 0; i < c->layers; i++) c->sparse[i] = step > 0 && (i + 1) % step == 0;
    const json_t *dense = json_object_get(r->object, "mlp_only_layers");
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_int_t layer = json_integer_value(json_array_get(dense, i));
        if (layer >= 0 && layer < c->layers) c->sparse[layer] = false;
    }
    return ES_OK;
}

static es_status read_delta(reader *r, es_config *c)
{
    c->delta = (es_delta_shape){.key_heads = size_of(r, "linear_num_key_heads"), .value_heads = size_of(r, "linear_num_value_heads"),
                                .key_dim = size_of(r, "linear_key_head_dim"), .value_dim = size_of(r, "linear_value_head_dim")};
    const int32_t taps = size_or(r, "linear_conv_kernel_dim", ES_CONV_TAPS);
    ES_TRY(r->status);
    if (taps != ES_CONV_TAPS)
        return es_fail(ES_UNSUPPORTED, "%s: a convolution of %d taps; %d are supported", r->where, taps, ES_CONV_TAPS);
    return ES_OK;
}

static es_status refuse_variants(reader *r)
{
    const char *activation = string_or(r, "hidden_act", "silu");
    if (strcmp(activation, "silu") != 0)
        return es_fail(ES_UNSUPPORTED, "%s: activation \"%s\"; silu is supported", r->where, activation);
    if (boolean_or(r, "use_sliding_window", false))
        return es_fail(ES_UNSUPPORTED, "%s: sliding-window attention is not supported", r->where);
    if (boolean_or(r, "mlp_bias", false)) return es_fail(ES_UNSUPPORTED, "%s: biases in the MLP are not supported", r->where);
    if (json_object_get(r->object, "quantization_config") && !json_is_null(json_object_get(r->object, "quantization_config")))
        return es_fail(ES_UNSUPPORTED, "%s: pre-quantised safetensors (quantization_config) are not supported; BF16, F16 and F32 are, "
                       "or a GGUF of the model", r->where);
    return r->status;
}

es_status es_config_from_hf(const json_t *root, const char *where, es_config *config)
{
    if (!json_is_object(root)) return es_fail(ES_BAD_FILE, "%s: is not a JSON object", where);
    const json_t *text = json_object_get(root, "text_config");
    reader top = {root, where, ES_OK}, r = {json_is_object(text) ? text : root, where, ES_OK};
    const char *type = string_or(&r, "model_type", string_or(&top, "model_type", "?"));
    es_config c = {.family = es_family_of_hf(type), .expert_scale = 1.0f};
    if (!c.family)
        return es_fail(ES_UNSUPPORTED, "%s: model type \"%s\" is not supported; %s are", where, type, es_family_list());
    ES_TRY(refuse_variants(&r));
    c.layers = size_of(&r, "num_hidden_layers");
    c.hidden = size_of(&r, "hidden_size");
    c.vocabulary = size_of(&r, "vocab_size");
    c.context = integer_or(&r, "max_position_embeddings", 2048);
    c.eps = (float)number_or(&r, "rms_norm_eps", 1e-6);
    c.query_heads = size_of(&r, "num_attention_heads");
    c.kv_heads = size_or(&r, "num_key_value_heads", c.query_heads);
    c.head_dim = size_or(&r, "head_dim", c.query_heads > 0 ? c.hidden / c.query_heads : 0);
    c.ffn = size_or(&r, "intermediate_size", 0);
    c.tied = boolean_or(&r, "tie_word_embeddings", boolean_or(&top, "tie_word_embeddings", false));
    ES_TRY(r.status);
    if (c.layers < 1 || c.layers > ES_MOST_LAYERS)
        return es_fail(ES_BAD_FILE, "%s: %d layers; 1 to %d are possible", where, c.layers, ES_MOST_LAYERS);
    ES_TRY(read_rope(&r, &c));
    ES_TRY(read_layer_kinds(&r, &c));
    if (c.family->hybrid) ES_TRY(read_delta(&r, &c));
    if (c.family->moe) ES_TRY(read_experts(&r, &c));
    ES_TRY(r.status);
    ES_TRY(top.status);
    ES_TRY(es_config_check(&c, where));
    *config = c;
    return ES_OK;
}
