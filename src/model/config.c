/* config.c: the checks that make a configuration trustworthy, whatever file it came from. */
#include "model/config.h"

#include "device/cpu/kernels.h"

/* Far above any published model, far below what would overflow a product of three of them in 64 bits. */
#define MOST_WIDTH (1 << 20)
#define MOST_VOCABULARY (1 << 24)
#define MOST_CONTEXT (1ll << 31)

static es_status in_range(const char *where, const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most) return ES_OK;
    return es_fail(ES_BAD_FILE, "%s: %s is %" PRId64 "; between %" PRId64 " and %" PRId64 " is possible", where, name, value,
                   least, most);
}

static es_status check_delta(const es_config *c, const char *where)
{
    const es_delta_shape *d = &c->delta;
    ES_TRY(in_range(where, "DeltaNet key heads", d->key_heads, 1, 4096));
    ES_TRY(in_range(where, "DeltaNet value heads", d->value_heads, 1, 4096));
    ES_TRY(in_range(where, "DeltaNet key channels", d->key_dim, 1, ES_DELTA_KEY_DIM));
    ES_TRY(in_range(where, "DeltaNet value channels", d->value_dim, 1, ES_DELTA_MOST_HEAD_DIM));
    if (d->value_heads % d->key_heads != 0)
        return es_fail(ES_BAD_FILE, "%s: %d DeltaNet value heads are not a multiple of %d key heads", where, d->value_heads,
                       d->key_heads);
    return ES_OK;
}

static es_status check_attention(const es_config *c, const char *where)
{
    ES_TRY(in_range(where, "attention heads", c->query_heads, 1, 65536));
    ES_TRY(in_range(where, "key-value heads", c->kv_heads, 1, c->query_heads));
    ES_TRY(in_range(where, "head dimension", c->head_dim, 2, 1024));
    ES_TRY(in_range(where, "rotated channels", 2 * (int64_t)c->rope_pairs, 2, c->head_dim));
    if (c->query_heads % c->kv_heads != 0)
        return es_fail(ES_BAD_FILE, "%s: %d attention heads are not a multiple of %d key-value heads", where, c->query_heads,
                       c->kv_heads);
    if (!(c->rope.theta > 1) || !(c->rope.factor > 0))
        return es_fail(ES_BAD_FILE, "%s: RoPE base %g with factor %g is not possible", where, c->rope.theta, c->rope.factor);
    return ES_OK;
}

static es_status check_experts(const es_config *c, const char *where)
{
    ES_TRY(in_range(where, "experts", c->experts, 1, 65536));
    ES_TRY(in_range(where, "experts per token", c->experts_used, 1, c->experts < 64 ? c->experts : 64));
    ES_TRY(in_range(where, "expert width", c->expert_ffn, 1, MOST_WIDTH));
    if (c->family->shared_expert) ES_TRY(in_range(where, "shared expert width", c->shared_ffn, 1, MOST_WIDTH));
    return ES_OK;
}

es_status es_config_check(es_config *c, const char *where)
{
    ES_TRY(in_range(where, "layers", c->layers, 1, ES_MOST_LAYERS));
    ES_TRY(in_range(where, "hidden size", c->hidden, 1, MOST_WIDTH));
    ES_TRY(in_range(where, "vocabulary", c->vocabulary, 1, MOST_VOCABULARY));
    ES_TRY(in_range(where, "context length", c->context, 1, MOST_CONTEXT));
    if (!(c->eps > 0 && c->eps < 1)) return es_fail(ES_BAD_FILE, "%s: norm epsilon %g is not possible", where, (double)c->eps);
    bool dense = false, sparse = false;
    c->attention_layers = c->delta_layers = 0;
    for (int32_t i = 0; i < c->layers; i++) {
        if (c->attention[i])
            c->attention_layers++;
        else
            c->delta_layers++;
        if (c->sparse[i])
            sparse = true;
        else
            dense = true;
    }
    if (c->delta_layers && !c->family->hybrid)
        return es_fail(ES_UNSUPPORTED, "%s: layers without full attention in family %s", where, c->family->name);
    ES_TRY(check_attention(c, where)); /* hybrids without any attention layer exist only as broken files */
    if (c->delta_layers) ES_TRY(check_delta(c, where));
    if (sparse) ES_TRY(check_experts(c, where));
    if (dense) ES_TRY(in_range(where, "feed-forward width", c->ffn, 1, MOST_WIDTH));
    return ES_OK;
}
