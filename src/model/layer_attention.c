/* layer_attention.c: full attention with grouped query heads.
 *
 *   q, gate, k, v = W h;   q = rope(norm(q)) · D^-½;   k = rope(norm(k));   K, V ← k, v
 *   x += W_o (softmax(q Kᵀ) V · σ(gate)) */
#include <math.h>

#include "model/network.h"

es_status es_layer_attention(es_network *network, int32_t layer, int32_t index)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const es_family *family = c->family;
    const es_activations *a = &network->act;
    const int64_t D = c->head_dim, H = c->hidden, Q = c->query_heads * D, KV = c->kv_heads * D;
    const int64_t q_head = family->attention_gate ? 2 * D : D, q_rows = c->query_heads * q_head;
    const float plus = family->norm_plus_one && !c->from_gguf ? 1.0f : 0.0f;
    l->layer = layer;

    es_weight wq, wk, wv, wo;
    es_slice bq = {0}, bk = {0}, bv = {0}, nq = {0}, nk = {0};
    ES_TRY(es_loader_matrix(l, (es_role){"self_attn.q_proj.weight", "attn_q.weight"}, q_rows, H, &wq));
    ES_TRY(es_loader_matrix(l, (es_role){"self_attn.k_proj.weight", "attn_k.weight"}, KV, H, &wk));
    ES_TRY(es_loader_matrix(l, (es_role){"self_attn.v_proj.weight", "attn_v.weight"}, KV, H, &wv));
    ES_TRY(es_loader_matrix(l, (es_role){"self_attn.o_proj.weight", "attn_output.weight"}, H, Q, &wo));
    ES_TRY(es_loader_optional(l, (es_role){"self_attn.q_proj.bias", "attn_q.bias"}, q_rows, &bq));
    ES_TRY(es_loader_optional(l, (es_role){"self_attn.k_proj.bias", "attn_k.bias"}, KV, &bk));
    ES_TRY(es_loader_optional(l, (es_role){"self_attn.v_proj.bias", "attn_v.bias"}, KV, &bv));
    if (es_loader_find(l, (es_role){"self_attn.o_proj.bias", "attn_output.bias"}))
        return es_fail(ES_UNSUPPORTED, "%s: layer %d has a bias after attention, which is not supported",
                       network->model->path, layer);
    if (family->qk_norm) {
        ES_TRY(es_loader_vector(l, (es_role){"self_attn.q_norm.weight", "attn_q_norm.weight"}, D, plus, &nq));
        ES_TRY(es_loader_vector(l, (es_role){"self_attn.k_norm.weight", "attn_k_norm.weight"}, D, plus, &nk));
    }

    const es_attn_shape shape = {c->query_heads, c->kv_heads, c->head_dim, network->sizes.page};
    const es_slice k_cache = network->kv[2 * index], v_cache = network->kv[2 * index + 1];
    es_matmul_part qkv[3] = {es_layer_part(wq, a->q_raw, q_rows), es_layer_part(wk, a->k_raw, KV),
                             es_layer_part(wv, a->v_raw, KV)};
    qkv[0].bias = bq, qkv[1].bias = bk, qkv[2].bias = bv;
    es_layer_matmul(network, a->h, H, 3, qkv);
    es_program_add(&network->body, (es_op){ES_OP_ATTN_PREPARE, .as.attn_prepare = {
        .shape = shape, .q = a->q_raw, .k = a->k_raw, .v = a->v_raw,
        .q_stride = q_rows, .q_head_stride = q_head, .kv_stride = KV,
        .q_norm = nq, .k_norm = nk, .eps = c->eps,
        .rope = a->rope, .rope_pairs = c->rope_pairs, .interleaved = c->from_gguf && family->gguf_interleaved_rope,
        .scale = 1.0f / sqrtf((float)D), .q_out = a->q, .k_cache = k_cache, .v_cache = v_cache}});
    es_op attn = {ES_OP_ATTN, .as.attn = {.shape = shape, .q = a->q, .k_cache = k_cache, .v_cache = v_cache, .out = a->context}};
    if (family->attention_gate) {
        attn.as.attn.gate = (es_slice){a->q_raw.buffer, a->q_raw.offset + (size_t)D * sizeof(float)};
        attn.as.attn.gate_stride = q_rows;
        attn.as.attn.gate_head_stride = q_head;
    }
    es_program_add(&network->body, attn);
    attn.kind = ES_OP_ATTN_MERGE;
    es_program_add(&network->body, attn);
    es_layer_residual(network, a->context, wo);
    return ES_OK;
}
