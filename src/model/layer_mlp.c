/* layer_mlp.c: the dense SwiGLU layer and the mixture of experts.
 *
 *   dense:    x += W_down (silu(W_gate h) · W_up h)
 *   experts:  p = softmax(W_router h); the k likeliest; x += Σ p_e · expert_e(h) + σ(w·h) · shared(h) */
#include "model/network.h"

#include <stdlib.h>

static void record_swiglu(es_network *network, es_slice gate, es_slice up, int32_t width, int32_t per_row)
{
    es_program_add(&network->body, (es_op){ES_OP_SWIGLU, .as.swiglu = {
        .gate = gate, .up = up, .out = gate, .stride = width, .width = width, .per_row = per_row}});
}

es_status es_layer_dense(es_network *network, int32_t layer)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const es_activations *a = &network->act;
    l->layer = layer;
    es_weight gate, up, down;
    ES_TRY(es_loader_matrix(l, (es_role){"mlp.gate_proj.weight", "ffn_gate.weight"}, c->ffn, c->hidden, &gate));
    ES_TRY(es_loader_matrix(l, (es_role){"mlp.up_proj.weight", "ffn_up.weight"}, c->ffn, c->hidden, &up));
    ES_TRY(es_loader_matrix(l, (es_role){"mlp.down_proj.weight", "ffn_down.weight"}, c->hidden, c->ffn, &down));
    const es_matmul_part in[2] = {es_layer_part(gate, a->gate, c->ffn), es_layer_part(up, a->up, c->ffn)};
    es_layer_matmul(network, a->h, c->hidden, 2, in);
    record_swiglu(network, a->gate, a->up, c->ffn, 1);
    es_layer_residual(network, a->gate, down);
    return ES_OK;
}

/* Arrays of expert places outlive the recording: the network keeps them. */
static es_status keep_places(es_network *network, es_slice *places)
{
    if (!places) return ES_OK;
    es_slice **grown = realloc(network->expert_places, (network->expert_place_count + 1) * sizeof(es_slice *));
    if (!grown) {
        free(places);
        return es_fail(ES_NO_MEMORY, "no memory for the places of experts");
    }
    network->expert_places = grown;
    network->expert_places[network->expert_place_count++] = places;
    return ES_OK;
}

typedef struct expert_weights {
    es_expert_weight gate, up, down;
} expert_weights;

static es_status load_experts(es_network *network, expert_weights *w)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const int64_t I = c->expert_ffn, H = c->hidden;
    const es_role both = {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"};
    const bool fused = es_loader_find(l, both) != NULL;
    es_status status = es_loader_experts(l, fused ? both : (es_role){NULL, "ffn_gate_exps.weight"}, 0, fused ? 2 * I : I,
                                         (es_role){"gate_proj.weight", NULL}, I, H, &w->gate);
    const es_status kept_gate = keep_places(network, w->gate.each);
    if (status != ES_OK) return status;
    ES_TRY(kept_gate);
    status = es_loader_experts(l, fused ? both : (es_role){NULL, "ffn_up_exps.weight"}, fused ? I : 0, fused ? 2 * I : I,
                               (es_role){"up_proj.weight", NULL}, I, H, &w->up);
    const es_status kept_up = keep_places(network, w->up.each);
    if (status != ES_OK) return status;
    ES_TRY(kept_up);
    status = es_loader_experts(l, (es_role){"mlp.experts.down_proj", "ffn_down_exps.weight"}, 0, H,
                               (es_role){"down_proj.weight", NULL}, H, I, &w->down);
    const es_status kept_down = keep_places(network, w->down.each);
    return status != ES_OK ? status : kept_down;
}

static es_op_moe_product expert_product(const es_network *network, es_slice x, int64_t x_stride, bool gather)
{
    const es_config *c = &network->model->config;
    return (es_op_moe_product){.x = x, .x_stride = x_stride, .gather = gather, .experts = c->experts, .used = c->experts_used,
                               .starts = network->act.starts, .order = network->act.order};
}

static void add_expert_part(es_op_moe_product *op, const es_expert_weight *w, es_slice out, int64_t stride)
{
    op->part[op->parts] = es_layer_part(w->weight, out, stride);
    op->expert_stride[op->parts] = w->stride;
    op->expert[op->parts] = w->each;
    op->parts++;
}

static es_status record_shared(es_network *network, es_op_moe_combine *combine)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const es_activations *a = &network->act;
    es_weight gate, up, down;
    ES_TRY(es_loader_matrix(l, (es_role){"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"}, c->shared_ffn,
                            c->hidden, &gate));
    ES_TRY(es_loader_matrix(l, (es_role){"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"}, c->shared_ffn, c->hidden,
                            &up));
    ES_TRY(es_loader_matrix(l, (es_role){"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"}, c->hidden,
                            c->shared_ffn, &down));
    const es_matmul_part in[2] = {es_layer_part(gate, a->gate, c->shared_ffn), es_layer_part(up, a->up, c->shared_ffn)};
    es_layer_matmul(network, a->h, c->hidden, 2, in);
    record_swiglu(network, a->gate, a->up, c->shared_ffn, 1);
    const es_matmul_part out = es_layer_part(down, a->shared, c->hidden);
    es_layer_matmul(network, a->gate, c->shared_ffn, 1, &out);
    combine->shared = a->shared;
    combine->shared_gate = a->shared_gate;
    return ES_OK;
}

es_status es_layer_experts(es_network *network, int32_t layer)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const es_activations *a = &network->act;
    l->layer = layer;
    es_weight router;
    expert_weights w = {0};
    ES_TRY(es_loader_matrix(l, (es_role){"mlp.gate.weight", "ffn_gate_inp.weight"}, c->experts, c->hidden, &router));
    ES_TRY(load_experts(network, &w));

    /* How much of the shared expert there is comes with the router: both read the same input, and both are small. */
    es_matmul_part route[2] = {es_layer_part(router, a->router, c->experts)};
    if (c->family->shared_expert) {
        es_weight how_much;
        ES_TRY(es_loader_matrix(l, (es_role){"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"}, 1, c->hidden,
                                &how_much));
        route[1] = es_layer_part(how_much, a->shared_gate, 1);
    }
    es_layer_matmul(network, a->h, c->hidden, c->family->shared_expert ? 2 : 1, route);
    es_program_add(&network->body, (es_op){ES_OP_MOE_ROUTE, .as.moe_route = {
        .logits = a->router, .experts = c->experts, .used = c->experts_used, .renormalise = c->renormalise,
        .scale = c->expert_scale, .ids = a->ids, .weights = a->weights}});
    es_program_add(&network->body, (es_op){ES_OP_MOE_GROUP, .as.moe_group = {
        .ids = a->ids, .experts = c->experts, .used = c->experts_used, .starts = a->starts, .order = a->order}});
    es_op_moe_product in = expert_product(network, a->h, c->hidden, true);
    add_expert_part(&in, &w.gate, a->expert_gate, c->expert_ffn);
    add_expert_part(&in, &w.up, a->expert_up, c->expert_ffn);
    es_program_add(&network->body, (es_op){ES_OP_MOE_PRODUCT, .as.moe_product = in});
    record_swiglu(network, a->expert_gate, a->expert_up, c->expert_ffn, c->experts_used);
    es_op_moe_product out = expert_product(network, a->expert_gate, c->expert_ffn, false);
    add_expert_part(&out, &w.down, a->expert_out, c->hidden);
    es_program_add(&network->body, (es_op){ES_OP_MOE_PRODUCT, .as.moe_product = out});
    es_op_moe_combine combine = {.y = a->expert_out, .weights = a->weights, .used = c->experts_used, .width = c->hidden,
                                 .x = a->x};
    if (c->family->shared_expert) ES_TRY(record_shared(network, &combine));
    es_program_add(&network->body, (es_op){ES_OP_MOE_COMBINE, .as.moe_combine = combine});
    return ES_OK;
}
