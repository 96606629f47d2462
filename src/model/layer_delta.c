/* layer_delta.c: Gated DeltaNet.
 *
 *   q|k|v, z, b, a = W h;   q|k|v ← silu(conv₄(q|k|v));   q, k ← unit length;   q ← q · dk^-½
 *   β = σ(b);   g = −exp(A_log) · softplus(a + dt_bias)
 *   S ← e^g S;   δ = β (v − Sᵀk);   S ← S + k⊗δ;   o = Sᵀq;   x += W_o (norm(o) · silu(z)) */
#include <math.h>
#include <stdlib.h>

#include "model/network.h"

int64_t es_delta_channels(const es_delta_shape *s)
{
    return 2 * (int64_t)s->key_heads * s->key_dim + (int64_t)s->value_heads * s->value_dim;
}

typedef struct projections {
    es_weight qkv, z, a, b;
} projections;

/* Fused rows stand per key head as [q, k, r·v, r·z] and [r·b, r·a]; they are put in order of kind. */
static es_status load_fused(es_loader *l, const es_delta_shape *s, int64_t hidden, projections *p)
{
    const int64_t r = s->value_heads / s->key_heads, dk = s->key_dim, dv = s->value_dim;
    const int64_t key_rows = s->key_heads * dk, value_rows = s->value_heads * dv, group = 2 * dk + 2 * r * dv;
    const int64_t rows = 2 * key_rows + 2 * value_rows;
    int64_t *source = malloc((size_t)rows * sizeof *source);
    if (!source) return es_fail(ES_NO_MEMORY, "no memory to reorder a projection");
    for (int64_t h = 0; h < s->key_heads; h++) {
        for (int64_t i = 0; i < dk; i++) {
            source[h * dk + i] = h * group + i;
            source[key_rows + h * dk + i] = h * group + dk + i;
        }
        for (int64_t i = 0; i < r * dv; i++) {
            source[2 * key_rows + h * r * dv + i] = h * group + 2 * dk + i;
            source[2 * key_rows + value_rows + h * r * dv + i] = h * group + 2 * dk + r * dv + i;
        }
    }
    const es_status status = es_loader_permuted(l, (es_role){"linear_attn.in_proj_qkvz.weight", "ssm_in.weight"}, source, rows,
                                                hidden, &p->qkv);
    free(source);
    if (status != ES_OK) return status;
    p->z = p->qkv;
    p->qkv.rows = 2 * key_rows + value_rows;
    p->z.rows = value_rows;
    p->z.at.offset += (size_t)p->qkv.rows * es_dtype_bytes(p->qkv.type, hidden);
    return ES_OK;
}

static es_status load_fused_ba(es_loader *l, const es_delta_shape *s, int64_t hidden, projections *p)
{
    const int64_t r = s->value_heads / s->key_heads, rows = 2 * (int64_t)s->value_heads;
    int64_t *source = malloc((size_t)rows * sizeof *source);
    if (!source) return es_fail(ES_NO_MEMORY, "no memory to reorder a projection");
    for (int64_t v = 0; v < s->value_heads; v++) {
        source[v] = v / r * 2 * r + v % r;
        source[s->value_heads + v] = source[v] + r;
    }
    const es_status status = es_loader_permuted(l, (es_role){"linear_attn.in_proj_ba.weight", "ssm_ba.weight"}, source, rows,
                                                hidden, &p->b);
    free(source);
    if (status != ES_OK) return status;
    p->a = p->b;
    p->b.rows = p->a.rows = s->value_heads;
    p->a.at.offset += (size_t)s->value_heads * es_dtype_bytes(p->b.type, hidden);
    return ES_OK;
}

static es_status load_projections(es_loader *l, const es_config *c, projections *p)
{
    const es_delta_shape *s = &c->delta;
    const int64_t values = (int64_t)s->value_heads * s->value_dim;
    if (es_loader_find(l, (es_role){"linear_attn.in_proj_qkvz.weight", "ssm_in.weight"})) {
        ES_TRY(load_fused(l, s, c->hidden, p));
    } else {
        ES_TRY(es_loader_matrix(l, (es_role){"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"}, es_delta_channels(s),
                                c->hidden, &p->qkv));
        ES_TRY(es_loader_matrix(l, (es_role){"linear_attn.in_proj_z.weight", "attn_gate.weight"}, values, c->hidden, &p->z));
    }
    if (es_loader_find(l, (es_role){"linear_attn.in_proj_ba.weight", "ssm_ba.weight"}))
        return load_fused_ba(l, s, c->hidden, p);
    ES_TRY(es_loader_matrix(l, (es_role){"linear_attn.in_proj_b.weight", "ssm_beta.weight"}, s->value_heads, c->hidden, &p->b));
    return es_loader_matrix(l, (es_role){"linear_attn.in_proj_a.weight", "ssm_alpha.weight"}, s->value_heads, c->hidden, &p->a);
}

/* [channels][4] becomes [4][channels], so that channels lie side by side. */
static es_status load_conv(es_loader *l, int64_t channels, es_slice *slice)
{
    float *w, *turned = malloc((size_t)channels * ES_CONV_TAPS * sizeof *turned);
    if (!turned) return es_fail(ES_NO_MEMORY, "no memory for a convolution");
    es_status status = es_loader_read(l, (es_role){"linear_attn.conv1d.weight", "ssm_conv1d.weight"}, channels * ES_CONV_TAPS, &w);
    if (status == ES_OK) {
        for (int64_t i = 0; i < channels; i++)
            for (int64_t t = 0; t < ES_CONV_TAPS; t++) turned[t * channels + i] = w[i * ES_CONV_TAPS + t];
        status = es_loader_values(l, turned, channels * ES_CONV_TAPS, slice);
        free(w);
    }
    free(turned);
    return status;
}

/* −exp(A_log); GGUF stores it like this already. */
static es_status load_gain(es_loader *l, const es_config *c, es_slice *slice)
{
    float *gain;
    ES_TRY(es_loader_read(l, (es_role){"linear_attn.A_log", "ssm_a"}, c->delta.value_heads, &gain));
    if (!c->from_gguf)
        for (int32_t h = 0; h < c->delta.value_heads; h++) gain[h] = -expf(gain[h]);
    const es_status status = es_loader_values(l, gain, c->delta.value_heads, slice);
    free(gain);
    return status;
}

es_status es_layer_delta(es_network *network, int32_t layer, int32_t index)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const es_delta_shape *s = &c->delta;
    const es_activations *a = &network->act;
    const int64_t channels = es_delta_channels(s), values = (int64_t)s->value_heads * s->value_dim;
    l->layer = layer;

    projections p;
    es_weight wo;
    es_slice conv, gain, dt_bias, norm;
    ES_TRY(load_projections(l, c, &p));
    ES_TRY(load_conv(l, channels, &conv));
    ES_TRY(load_gain(l, c, &gain));
    ES_TRY(es_loader_vector(l, (es_role){"linear_attn.dt_bias", "ssm_dt.bias"}, s->value_heads, 0, &dt_bias));
    ES_TRY(es_loader_vector(l, (es_role){"linear_attn.norm.weight", "ssm_norm.weight"}, s->value_dim, 0, &norm));
    ES_TRY(es_loader_matrix(l, (es_role){"linear_attn.out_proj.weight", "ssm_out.weight"}, c->hidden, values, &wo));

    const es_matmul_part in[4] = {es_layer_part(p.qkv, a->qkv, channels), es_layer_part(p.z, a->z, values),
                                  es_layer_part(p.a, a->a, s->value_heads), es_layer_part(p.b, a->b, s->value_heads)};
    es_layer_matmul(network, a->h, c->hidden, 4, in);
    es_program_add(&network->body, (es_op){ES_OP_DELTA_PREPARE, .as.delta_prepare = {
        .shape = *s, .x = a->qkv, .conv = conv, .conv_state = network->conv_state[index], .a = a->a, .b = a->b,
        .a_gain = gain, .dt_bias = dt_bias, .out = a->convolved, .gates = a->gates}});
    es_program_add(&network->body, (es_op){ES_OP_DELTA_SCAN, .as.delta_scan = {
        .shape = *s, .x = a->convolved, .gates = a->gates, .state = network->delta_state[index], .out = a->delta}});
    es_program_add(&network->body, (es_op){ES_OP_DELTA_FINISH, .as.delta_finish = {
        .shape = *s, .x = a->delta, .z = a->z, .weight = norm, .eps = c->eps, .out = a->delta}});
    es_layer_residual(network, a->delta, wo);
    return ES_OK;
}
