/* network.c: binds a model to a device and records what a step does. */
#include "model/network.h"

#include <stdlib.h>

#define FLOAT sizeof(float)

es_matmul_part es_layer_part(es_weight weight, es_slice out, int64_t stride)
{
    return (es_matmul_part){.weight = weight, .out = out, .out_stride = stride};
}

void es_layer_matmul(es_network *network, es_slice x, int64_t x_stride, int32_t parts, const es_matmul_part *part)
{
    es_op op = {ES_OP_MATMUL, .as.matmul = {.x = x, .x_stride = x_stride, .parts = parts}};
    for (int32_t p = 0; p < parts; p++) op.as.matmul.part[p] = part[p];
    es_program_add(&network->body, op);
}

void es_layer_residual(es_network *network, es_slice y, es_weight weight)
{
    es_matmul_part part = es_layer_part(weight, network->act.x, network->model->config.hidden);
    part.accumulate = true;
    es_layer_matmul(network, y, weight.cols, 1, &part);
}

es_status es_layer_norm(es_network *network, es_role role)
{
    const es_config *c = &network->model->config;
    es_slice weight;
    const float plus = c->family->norm_plus_one && !c->from_gguf ? 1.0f : 0.0f;
    ES_TRY(es_loader_vector(&network->loader, role, c->hidden, plus, &weight));
    es_program_add(&network->body, (es_op){ES_OP_RMSNORM, .as.rmsnorm = {
        .x = network->act.x, .weight = weight, .out = network->act.h, .width = c->hidden, .eps = c->eps}});
    return ES_OK;
}

/* One list of what the activations are and how wide; it allocates them, or only adds them up. */
typedef struct wanted {
    es_slice *slice;
    int64_t width;
} wanted;

static int list_activations(const es_config *c, es_activations *a, wanted *list)
{
    int n = 0;
    const int64_t D = c->head_dim, Q = c->query_heads * D, KV = c->kv_heads * D, H = c->hidden;
    list[n++] = (wanted){&a->x, H};
    list[n++] = (wanted){&a->h, H};
    int64_t width = c->ffn > c->shared_ffn ? c->ffn : c->shared_ffn;
    list[n++] = (wanted){&a->gate, width};
    list[n++] = (wanted){&a->up, width};
    if (c->attention_layers) {
        list[n++] = (wanted){&a->rope, 2 * (int64_t)c->rope_pairs};
        list[n++] = (wanted){&a->q_raw, c->family->attention_gate ? 2 * Q : Q};
        list[n++] = (wanted){&a->k_raw, KV};
        list[n++] = (wanted){&a->v_raw, KV};
        list[n++] = (wanted){&a->q, Q};
        list[n++] = (wanted){&a->context, Q};
    }
    if (c->delta_layers) {
        const int64_t heads = c->delta.value_heads, values = heads * c->delta.value_dim;
        list[n++] = (wanted){&a->qkv, es_delta_channels(&c->delta)};
        list[n++] = (wanted){&a->convolved, es_delta_channels(&c->delta)};
        list[n++] = (wanted){&a->z, values};
        list[n++] = (wanted){&a->delta, values};
        list[n++] = (wanted){&a->a, heads};
        list[n++] = (wanted){&a->b, heads};
        list[n++] = (wanted){&a->gates, 2 * heads};
    }
    if (c->family->moe) {
        const int64_t used = c->experts_used;
        list[n++] = (wanted){&a->router, c->experts};
        list[n++] = (wanted){&a->ids, used};
        list[n++] = (wanted){&a->weights, used};
        list[n++] = (wanted){&a->order, used};
        list[n++] = (wanted){&a->expert_gate, used * c->expert_ffn};
        list[n++] = (wanted){&a->expert_up, used * c->expert_ffn};
        list[n++] = (wanted){&a->expert_out, used * H};
        list[n++] = (wanted){&a->shared, H};
        list[n++] = (wanted){&a->shared_gate, 1};
    }
    return n;
}
#define MOST_ACTIVATIONS 32

size_t es_network_activation_bytes(const es_config *c, const es_network_sizes *sizes)
{
    es_activations unused;
    wanted list[MOST_ACTIVATIONS];
    const int n = list_activations(c, &unused, list);
    int64_t floats = (int64_t)sizes->outputs * (c->hidden + (int64_t)c->vocabulary) + c->experts + 1;
    for (int i = 0; i < n; i++) floats += list[i].width * sizes->rows;
    return (size_t)floats * FLOAT + (size_t)sizes->outputs * sizeof(es_picked);
}

size_t es_network_page_bytes(const es_config *c, int32_t page, es_kv_type type)
{
    const es_attn_shape shape = {c->query_heads, c->kv_heads, c->head_dim, page};
    return 2 * (size_t)c->attention_layers * es_kv_page_bytes(&shape, type);
}

size_t es_network_slot_bytes(const es_config *c)
{
    const es_delta_shape *s = &c->delta;
    const size_t state = (size_t)s->value_heads * (size_t)s->key_dim * (size_t)s->value_dim;
    return (size_t)c->delta_layers * (state + (ES_CONV_TAPS - 1) * (size_t)es_delta_channels(s)) * FLOAT;
}

static es_status allocate(es_network *network)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const es_network_sizes *sizes = &network->sizes;
    wanted list[MOST_ACTIVATIONS];
    const int n = list_activations(c, &network->act, list);
    for (int i = 0; i < n; i++) ES_TRY(es_loader_scratch(l, list[i].width * sizes->rows, FLOAT, list[i].slice));
    ES_TRY(es_loader_scratch(l, c->experts + 1, FLOAT, &network->act.starts));
    ES_TRY(es_loader_scratch(l, (int64_t)sizes->outputs * c->hidden, FLOAT, &network->act.normed));
    ES_TRY(es_loader_scratch(l, (int64_t)sizes->outputs * c->vocabulary, FLOAT, &network->logits));
    ES_TRY(es_loader_scratch(l, sizes->outputs, sizeof(es_picked), &network->picked));

    const es_attn_shape shape = {c->query_heads, c->kv_heads, c->head_dim, sizes->page};
    for (int32_t i = 0; i < 2 * c->attention_layers; i++)
        ES_TRY(es_loader_scratch(l, sizes->pages, es_kv_page_bytes(&shape, sizes->kv_type), &network->kv[i]));
    for (int32_t i = 0; i < c->delta_layers; i++) {
        const int64_t state = (int64_t)c->delta.value_heads * c->delta.key_dim * c->delta.value_dim;
        ES_TRY(es_loader_scratch(l, (ES_CONV_TAPS - 1) * es_delta_channels(&c->delta) * sizes->slots, FLOAT,
                                 &network->conv_state[i]));
        ES_TRY(es_loader_scratch(l, state * sizes->slots, FLOAT, &network->delta_state[i]));
    }
    return ES_OK;
}

/* The rotary table: factors of a `rope_freqs` tensor (Llama 3.1 in GGUF) divide the frequencies. */
static es_status record_rope(es_network *network)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    float *frequency = malloc((size_t)c->rope_pairs * FLOAT), *factor = NULL, scale;
    if (!frequency) return es_fail(ES_NO_MEMORY, "no memory for rotary frequencies");
    es_rope_frequencies(c, frequency, &scale);
    es_status status = ES_OK;
    if (es_loader_find(l, (es_role){NULL, "rope_freqs.weight"}))
        status = es_loader_read(l, (es_role){NULL, "rope_freqs.weight"}, c->rope_pairs, &factor);
    if (factor)
        for (int32_t i = 0; i < c->rope_pairs; i++) frequency[i] = frequency[i] / factor[i];
    es_slice slice = {0};
    if (status == ES_OK) status = es_loader_values(l, frequency, c->rope_pairs, &slice);
    es_program_add(&network->body, (es_op){ES_OP_ROPE_TABLE, .as.rope_table = {
        .frequency = slice, .pairs = c->rope_pairs, .scale = scale, .out = network->act.rope}});
    free(factor);
    free(frequency);
    return status;
}

static es_status record_head(es_network *network, es_weight embedding)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    const es_activations *a = &network->act;
    es_slice norm;
    es_weight output = embedding;
    l->layer = -1;
    const float plus = c->family->norm_plus_one && !c->from_gguf ? 1.0f : 0.0f;
    ES_TRY(es_loader_vector(l, (es_role){"norm.weight", "output_norm.weight"}, c->hidden, plus, &norm));
    const es_role role = {"/lm_head.weight", "output.weight"};
    if (!c->tied && (es_loader_find(l, role) || !c->from_gguf))
        ES_TRY(es_loader_matrix(l, role, c->vocabulary, c->hidden, &output));
    const es_op final = {ES_OP_RMSNORM, .as.rmsnorm = {
        .x = a->x, .weight = norm, .out = a->normed, .width = c->hidden, .eps = c->eps, .outputs_only = true}};
    es_program_add(&network->head, final);
    es_program_add(&network->norm, final);
    es_op logits = {ES_OP_MATMUL, .as.matmul = {.x = a->normed, .x_stride = c->hidden, .outputs_only = true, .parts = 1}};
    logits.as.matmul.part[0] = es_layer_part(output, network->logits, c->vocabulary);
    es_program_add(&network->head, logits);
    es_program_add(&network->head, (es_op){ES_OP_PICK, .as.pick = {
        .logits = network->logits, .vocabulary = c->vocabulary, .most_rows = network->sizes.outputs, .out = network->picked}});
    return ES_OK;
}

static es_status record(es_network *network)
{
    es_loader *l = &network->loader;
    const es_config *c = &network->model->config;
    es_weight embedding;
    l->layer = -1;
    ES_TRY(es_loader_matrix(l, (es_role){"embed_tokens.weight", "token_embd.weight"}, c->vocabulary, c->hidden, &embedding));
    es_program_add(&network->body, (es_op){ES_OP_EMBED, .as.embed = {.table = embedding, .out = network->act.x}});
    if (c->attention_layers) ES_TRY(record_rope(network));
    for (int32_t i = 0, attention = 0, delta = 0; i < c->layers; i++) {
        l->layer = i;
        ES_TRY(es_layer_norm(network, (es_role){"input_layernorm.weight", "attn_norm.weight"}));
        if (c->attention[i])
            ES_TRY(es_layer_attention(network, i, attention++));
        else
            ES_TRY(es_layer_delta(network, i, delta++));
        const char *after = c->family->hybrid ? "post_attention_norm.weight" : "ffn_norm.weight";
        ES_TRY(es_layer_norm(network, (es_role){"post_attention_layernorm.weight", after}));
        ES_TRY(c->sparse[i] ? es_layer_experts(network, i) : es_layer_dense(network, i));
    }
    ES_TRY(record_head(network, embedding));
    if (network->body.failed || network->head.failed || network->norm.failed) return es_fail(ES_NO_MEMORY, "no memory to record the model");
    return ES_OK;
}

static es_status start(es_network *network, const es_model *model, es_device *device, const es_network_sizes *sizes)
{
    const es_config *c = &model->config;
    *network = (es_network){.model = model, .device = device, .sizes = *sizes, .loader = {.model = model, .device = device}};
    network->kv = calloc(2 * (size_t)c->attention_layers + 1, sizeof *network->kv);
    network->conv_state = calloc((size_t)c->delta_layers + 1, sizeof *network->conv_state);
    network->delta_state = calloc((size_t)c->delta_layers + 1, sizeof *network->delta_state);
    if (!network->kv || !network->conv_state || !network->delta_state)
        return es_fail(ES_NO_MEMORY, "no memory for the list of caches");
    return ES_OK;
}

es_status es_network_open(const es_model *model, es_device *device, const es_network_sizes *sizes, es_network *network)
{
    es_status status = start(network, model, device, sizes);
    if (status == ES_OK) status = allocate(network);
    if (status == ES_OK) status = record(network);
    if (status != ES_OK) es_network_close(network);
    return status;
}

es_status es_network_check(const es_model *model, es_loader *counts)
{
    es_network network;
    const es_network_sizes none = {.page = 64};
    es_status status = start(&network, model, NULL, &none);
    if (status == ES_OK) status = record(&network);
    *counts = network.loader;
    counts->owned = NULL;
    counts->owned_count = 0;
    es_network_close(&network);
    return status;
}

void es_network_close(es_network *network)
{
    for (size_t i = 0; i < network->loader.owned_count; i++)
        es_device_release(network->device, network->loader.owned[i]);
    for (size_t i = 0; i < network->expert_place_count; i++) free(network->expert_places[i]);
    free(network->loader.owned);
    free(network->expert_places);
    free(network->kv);
    free(network->conv_state);
    free(network->delta_state);
    es_program_free(&network->body);
    es_program_free(&network->head);
    es_program_free(&network->norm);
    *network = (es_network){0};
}

/* Where one layer keeps a page or state, and how much of it. */
typedef struct place {
    es_buffer *buffer;
    size_t offset, bytes;
} place;

static place page_place(const es_network *network, int32_t layer, int32_t page)
{
    const es_config *c = &network->model->config;
    const es_attn_shape shape = {c->query_heads, c->kv_heads, c->head_dim, network->sizes.page};
    const size_t bytes = es_kv_page_bytes(&shape, network->sizes.kv_type);
    return (place){network->kv[layer].buffer, (size_t)page * bytes, bytes};
}

/* Even numbers: what the convolution remembers; odd ones: the recurrent state. */
static place state_place(const es_network *network, int32_t part, int32_t slot)
{
    const es_delta_shape *s = &network->model->config.delta;
    const size_t conv = (ES_CONV_TAPS - 1) * (size_t)es_delta_channels(s) * FLOAT;
    const size_t state = (size_t)s->value_heads * (size_t)s->key_dim * (size_t)s->value_dim * FLOAT;
    const size_t bytes = part % 2 ? state : conv;
    return (place){(part % 2 ? network->delta_state : network->conv_state)[part / 2].buffer, (size_t)slot * bytes, bytes};
}

es_status es_network_copy_page(es_network *network, int32_t from, int32_t to)
{
    for (int32_t i = 0; i < 2 * network->model->config.attention_layers; i++) {
        const place a = page_place(network, i, from), b = page_place(network, i, to);
        ES_TRY(es_device_copy(network->device, a.buffer, a.offset, b.offset, a.bytes));
    }
    return ES_OK;
}

es_status es_network_copy_state(es_network *network, int32_t from, int32_t to)
{
    for (int32_t i = 0; i < 2 * network->model->config.delta_layers; i++) {
        const place a = state_place(network, i, from), b = state_place(network, i, to);
        ES_TRY(es_device_copy(network->device, a.buffer, a.offset, b.offset, a.bytes));
    }
    return ES_OK;
}

typedef place place_fn(const es_network *network, int32_t part, int32_t number);

static es_status read_parts(es_network *network, place_fn *of, int32_t parts, int32_t number, unsigned char *host)
{
    for (int32_t i = 0; i < parts; i++) {
        const place p = of(network, i, number);
        ES_TRY(es_device_read(network->device, p.buffer, p.offset, host, p.bytes));
        host += p.bytes;
    }
    return ES_OK;
}

static es_status write_parts(es_network *network, place_fn *of, int32_t parts, int32_t number, const unsigned char *host)
{
    for (int32_t i = 0; i < parts; i++) {
        const place p = of(network, i, number);
        ES_TRY(es_device_write(network->device, p.buffer, p.offset, host, p.bytes));
        host += p.bytes;
    }
    return ES_OK;
}

static bool populate_part(es_network *network, place_fn *of, int32_t parts, int32_t number, int32_t part)
{
    if (part >= parts) return false;
    const place p = of(network, part, number);
    es_device_populate(network->device, p.buffer, p.offset, p.bytes);
    return true;
}

bool es_network_populate_page(es_network *network, int32_t page, int32_t part)
{
    return populate_part(network, page_place, 2 * network->model->config.attention_layers, page, part);
}

bool es_network_populate_state(es_network *network, int32_t slot, int32_t part)
{
    return populate_part(network, state_place, 2 * network->model->config.delta_layers, slot, part);
}

es_status es_network_read_page(es_network *network, int32_t page, void *host)
{
    return read_parts(network, page_place, 2 * network->model->config.attention_layers, page, host);
}

es_status es_network_write_page(es_network *network, int32_t page, const void *host)
{
    return write_parts(network, page_place, 2 * network->model->config.attention_layers, page, host);
}

es_status es_network_read_state(es_network *network, int32_t slot, void *host)
{
    return read_parts(network, state_place, 2 * network->model->config.delta_layers, slot, host);
}

es_status es_network_write_state(es_network *network, int32_t slot, const void *host)
{
    return write_parts(network, state_place, 2 * network->model->config.delta_layers, slot, host);
}
