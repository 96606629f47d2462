/* network.h: a model bound to a device: its weights, its activations, its caches, and the recorded programs.
 *
 *   es_network network;
 *   es_network_open(model, device, &sizes, &network);
 *   es_device_submit(device, &network.body, &batch);      // every row of the step, through all layers
 *   es_device_submit(device, &network.head, &batch);      // logits of the batch's output rows
 *   es_device_submit(device, &network.norm, &batch);      // or only their final states, in network.act.normed
 *   es_device_peek(device, network.logits.buffer, ...);
 */
#ifndef ES_MODEL_NETWORK_H
#define ES_MODEL_NETWORK_H

#include "model/loader.h"

/** Ceilings of a step and of the caches. */
typedef struct es_network_sizes {
    int32_t rows;    /**< most rows in a step */
    int32_t outputs; /**< most output rows in one run of the head */
    int32_t slots;   /**< places for recurrent state */
    int64_t pages;   /**< KV pages */
    int32_t page;    /**< tokens per page */
    es_numeric numeric;
    es_kv_type kv_type; /**< resolved */
} es_network_sizes;

/** Activations that layers share: each is overwritten by the next layer. [T] rows each. */
typedef struct es_activations {
    es_slice x, h;                                  /**< [hidden]: the residual stream, and its norm */
    es_slice rope;                                  /**< [rope_pairs][2] */
    es_slice q_raw, k_raw, v_raw, q, context;       /**< attention */
    es_slice qkv, z, a, b, convolved, gates, delta; /**< DeltaNet */
    es_slice gate, up;                              /**< [ffn], and the shared expert's */
    es_slice router, ids, weights, starts, order;   /**< experts */
    es_slice expert_gate, expert_up, expert_out, shared, shared_gate;
    es_slice normed;                                /**< [outputs][hidden]: final states */
} es_activations;

typedef struct es_network {
    const es_model *model;
    es_device *device;
    es_network_sizes sizes;
    es_loader loader;           /**< owns every buffer */
    es_activations act;
    es_program body, head, norm;
    es_slice logits;            /**< [outputs][vocabulary] */
    es_slice *kv;               /**< [attention layers][k, v]: [pages][kv_heads][page][head_dim] each, laid out by the device */
    es_slice picked;            /**< es_picked [outputs] */
    es_slice *conv_state;       /**< [delta layers]: [slots][3][channels] */
    es_slice *delta_state;      /**< [delta layers]: [slots][value_heads][key_dim][value_dim] */
    es_slice **expert_places;   /**< arrays handed to operations */
    size_t expert_place_count;
} es_network;

/** Bind and record. Everything is allocated here. */
es_status es_network_open(const es_model *model, es_device *device, const es_network_sizes *sizes, es_network *network);
void es_network_close(es_network *network);
/** The same walk without a device: checks every tensor and counts (loader->parameters, bytes, columns). */
es_status es_network_check(const es_model *model, es_loader *counts);

/** Copy a KV page of every attention layer, or the recurrent state of every DeltaNet layer, to another number. */
es_status es_network_copy_page(es_network *network, int32_t from, int32_t to);
es_status es_network_copy_state(es_network *network, int32_t from, int32_t to);

/** Have the machine give one part (a layer's) of a KV page or a state its memory before it is first written:
 *  es_device_populate(). False where there is no such part. On any thread. */
bool es_network_populate_page(es_network *network, int32_t page, int32_t part);
bool es_network_populate_state(es_network *network, int32_t slot, int32_t part);

/** The bytes of a KV page or a state, of all layers one after the other, to and from the host: es_network_page_bytes() or
 *  es_network_slot_bytes() of them. */
es_status es_network_read_page(es_network *network, int32_t page, void *host);
es_status es_network_write_page(es_network *network, int32_t page, const void *host);
es_status es_network_read_state(es_network *network, int32_t slot, void *host);
es_status es_network_write_state(es_network *network, int32_t slot, const void *host);

/** Bytes that a network's activations, one page of all layers, and one state slot take. */
size_t es_network_activation_bytes(const es_config *config, const es_network_sizes *sizes);
size_t es_network_page_bytes(const es_config *config, int32_t page, es_kv_type type);
size_t es_network_slot_bytes(const es_config *config);

/* One file per kind of layer: each records its operations, x += mixer(norm(x)) or x += mlp(norm(x)). */
es_status es_layer_attention(es_network *network, int32_t layer, int32_t index);
es_status es_layer_delta(es_network *network, int32_t layer, int32_t index);
es_status es_layer_dense(es_network *network, int32_t layer);
es_status es_layer_experts(es_network *network, int32_t layer);

/** Record h = rmsnorm(x) with the current layer's weight of that role. */
es_status es_layer_norm(es_network *network, es_role role);
/** One part of a product into `out`, rows `stride` floats apart. */
es_matmul_part es_layer_part(es_weight weight, es_slice out, int64_t stride);
/** Record out = W·x for up to four parts. */
void es_layer_matmul(es_network *network, es_slice x, int64_t x_stride, int32_t parts, const es_matmul_part *part);
/** Record x += W·y, the residual. */
void es_layer_residual(es_network *network, es_slice y, es_weight weight);
/** Channels of the DeltaNet convolution. */
int64_t es_delta_channels(const es_delta_shape *shape);

#endif
