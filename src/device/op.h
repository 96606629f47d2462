/* op.h: the operations a device offers, as data.
 *
 * A model is recorded once, when an engine opens, as a list of operations over buffers of one device. A step submits that
 * list together with an es_batch, which says what is different each time: how many rows there are, which tokens, at which
 * positions, of which sequences. No layer dereferences a tensor, and a device may turn the list into whatever it likes
 * (worker threads walk it; a GPU captures it as a graph).
 *
 * Words: a row is one token of one sequence in this step. A span is the run of rows that belongs to one sequence. T counts
 * rows, H is the model's width, D a head's. Activations are float32 and row-major: [T][stride]. */
#ifndef ES_DEVICE_OP_H
#define ES_DEVICE_OP_H

#include "device/dtype.h"

/** Memory of a device. What is inside depends on the device; only the device looks. */
typedef struct es_buffer es_buffer;

/** A place in a buffer. */
typedef struct es_slice {
    es_buffer *buffer; /**< NULL: nothing there */
    size_t offset;     /**< bytes */
} es_slice;

/** A matrix of weights [rows][cols], rows one after the other. */
typedef struct es_weight {
    es_slice at;
    es_dtype type;
    int64_t rows, cols;
} es_weight;

/** One sequence's rows in a step. */
typedef struct es_span {
    int32_t first_row, rows;
    int64_t start;        /**< position of the first row = tokens of the sequence computed before this step */
    int32_t slot;         /**< its place in the recurrent-state buffers; read as zero when start is 0 */
    const int32_t *pages; /**< block table: page of positions [i·page, (i+1)·page) */
} es_span;

/** How the token of one output row will be chosen, as far as that says which tokens can be. A token's p is e^((its logit − the
 *  greatest) · inverse_temperature), its weight p in units of 2^-40, rounded down: sums of integers have no order. */
typedef struct es_pick {
    double share;              /**< the likeliest tokens that hold more than this share of all weight are candidates; 1: all */
    float inverse_temperature; /**< 0: nothing but the likeliest token is wanted */
    float least;               /**< what has a smaller p is no candidate */
    int32_t top;               /**< not 0: this many of the likeliest are candidates, whatever `share` says */
    int32_t wanted;            /**< 0: nothing is picked from this row: all of its logits are read */
} es_pick;

/** What one step works on. */
typedef struct es_batch {
    int32_t rows, spans, outputs;
    const int32_t *tokens;     /**< [rows] */
    const es_span *span;       /**< [spans], covering the rows in order */
    const int32_t *output_row; /**< [outputs] rows whose logits are wanted, ascending */
    const es_pick *pick;       /**< [outputs] for ES_OP_PICK; NULL: it does nothing */
} es_batch;

typedef enum es_op_kind {
    ES_OP_EMBED,        /**< out[t] = table[token[t]] */
    ES_OP_ROPE_TABLE,   /**< cos and sin of every row's position */
    ES_OP_RMSNORM,      /**< out[t] = x[t] · rsqrt(mean(x[t]²) + eps) · w */
    ES_OP_MATMUL,       /**< up to four products with one input */
    ES_OP_SWIGLU,       /**< out = silu(gate) · up */
    ES_OP_ATTN_PREPARE, /**< norm, rotate and scale q; norm and rotate k; write k and v into the cache */
    ES_OP_ATTN,         /**< the fold over the cache */
    ES_OP_ATTN_MERGE,   /**< finishes the sequences that ES_OP_ATTN left to several workers */
    ES_OP_DELTA_PREPARE,/**< causal convolution, SiLU, unit-length q and k, decay and beta */
    ES_OP_DELTA_SCAN,   /**< the recurrence over the state */
    ES_OP_DELTA_FINISH, /**< norm · silu(z) */
    ES_OP_MOE_ROUTE,    /**< softmax, top-k, weights */
    ES_OP_MOE_GROUP,    /**< which rows go to which expert */
    ES_OP_MOE_PRODUCT,  /**< one product of every chosen expert */
    ES_OP_MOE_COMBINE,  /**< x += Σ weight · expert, in order of rank, and the shared expert */
    ES_OP_PICK,         /**< the few tokens of each output row that can be chosen */
    ES_OP_KINDS
} es_op_kind;

typedef struct es_op_embed {
    es_weight table;
    es_slice out; /**< [T][cols] */
} es_op_embed;

/** frequency[i] is the angle per position of pair i; `scale` multiplies cos and sin (yarn's attention factor). */
typedef struct es_op_rope_table {
    es_slice frequency; /**< [pairs] float32 */
    int32_t pairs;
    float scale;
    es_slice out;       /**< [T][pairs][cos, sin] */
} es_op_rope_table;

typedef struct es_op_rmsnorm {
    es_slice x, weight, out; /**< [T][width], [width], [T or outputs][width] */
    int32_t width;
    float eps;
    bool outputs_only;       /**< read only the batch's output rows, and pack them */
} es_op_rmsnorm;

#define ES_MATMUL_PARTS 4

typedef struct es_matmul_part {
    es_weight weight;
    es_slice bias;      /**< [rows] float32, or nothing */
    es_slice out;       /**< [T][out_stride] */
    int64_t out_stride; /**< floats between rows */
    bool accumulate;    /**< add to what is there (the residual stream) */
} es_matmul_part;

typedef struct es_op_matmul {
    es_slice x; /**< [T][x_stride] */
    int64_t x_stride;
    bool outputs_only; /**< T counts the batch's outputs */
    int32_t parts;
    es_matmul_part part[ES_MATMUL_PARTS];
} es_op_matmul;

/** Behind the product that makes gate and up, a device may leave these unwritten: nobody else reads them. */
typedef struct es_op_swiglu {
    es_slice gate, up, out; /**< [N][width] each, rows `stride` floats apart */
    int64_t stride;
    int32_t width;
    int32_t per_row; /**< N = T · per_row */
} es_op_swiglu;

/** Shape of attention in one layer. Query head h reads KV head h / (query_heads / kv_heads). */
typedef struct es_attn_shape {
    int32_t query_heads, kv_heads, head_dim, page;
} es_attn_shape;

typedef struct es_op_attn_prepare {
    es_attn_shape shape;
    es_slice q;          /**< [T][q_stride]; head h starts at h · q_head_stride */
    es_slice k, v;       /**< [T][kv_stride] */
    int64_t q_stride, q_head_stride, kv_stride;
    es_slice q_norm, k_norm; /**< [head_dim], or nothing */
    float eps;
    es_slice rope;       /**< what ES_OP_ROPE_TABLE wrote */
    int32_t rope_pairs;  /**< pairs rotated: the first 2·pairs channels of a head */
    bool interleaved;    /**< pairs are (2i, 2i+1) instead of (i, i + pairs) */
    float scale;         /**< multiplied into q */
    es_slice q_out;      /**< [T][query_heads][head_dim] */
    es_slice k_cache, v_cache; /**< this layer's pages */
} es_op_attn_prepare;

typedef struct es_op_attn {
    es_attn_shape shape;
    es_slice q;                /**< [T][query_heads][head_dim], scaled */
    es_slice k_cache, v_cache;
    es_slice gate;             /**< out · σ(gate), or nothing; head h at h · gate_head_stride */
    int64_t gate_stride, gate_head_stride;
    es_slice out;              /**< [T][query_heads · head_dim] */
} es_op_attn;

/** Gated DeltaNet in one layer. Channels are q of all key heads, k of all key heads, v of all value heads. */
typedef struct es_delta_shape {
    int32_t key_heads, value_heads, key_dim, value_dim;
    bool tiled; /**< value head h reads key head h mod key_heads, instead of h / (value_heads / key_heads) */
} es_delta_shape;

#define ES_CONV_TAPS 4

typedef struct es_op_delta_prepare {
    es_delta_shape shape;
    es_slice x;          /**< [T][channels] */
    es_slice conv;       /**< [channels][4] */
    es_slice conv_state; /**< [slots][channels][3], oldest first */
    es_slice a, b;       /**< [T][value_heads] */
    es_slice a_gain;     /**< [value_heads]: −exp(A_log) */
    es_slice dt_bias;    /**< [value_heads] */
    es_slice out;        /**< [T][channels] */
    es_slice gates;      /**< [T][value_heads][decay, beta] */
} es_op_delta_prepare;

typedef struct es_op_delta_scan {
    es_delta_shape shape;
    es_slice x;     /**< [T][channels], from prepare */
    es_slice gates; /**< [T][value_heads][decay, beta] */
    es_slice state; /**< [slots][value_heads][key_dim][value_dim] */
    es_slice out;   /**< [T][value_heads][value_dim] */
} es_op_delta_scan;

typedef struct es_op_delta_finish {
    es_delta_shape shape;
    es_slice x, z, weight; /**< [T][value_heads][value_dim] twice, [value_dim] */
    float eps;
    es_slice out;
} es_op_delta_finish;

typedef struct es_op_moe_route {
    es_slice logits;  /**< [T][experts] */
    int32_t experts, used;
    bool renormalise; /**< the chosen weights sum to 1 */
    float scale;      /**< multiplies the weights */
    es_slice ids;     /**< [T][used] int32, likeliest first, ties to the lowest */
    es_slice weights; /**< [T][used] */
} es_op_moe_route;

typedef struct es_op_moe_group {
    es_slice ids;    /**< [T][used] */
    int32_t experts, used;
    es_slice starts; /**< [experts + 1] int32: where each expert's entries start */
    es_slice order;  /**< [T · used] int32: entries t · used + rank, by expert, then by t */
} es_op_moe_group;

/** For every expert e and each of its entries i: out[i] = W_e · x, where x is row i / used (gather) or row i. Parts as in a
 *  matmul; part p of expert e starts at weight row e · expert_rows. */
typedef struct es_op_moe_product {
    es_slice x;
    int64_t x_stride;
    bool gather;
    int32_t experts, used;
    es_slice starts, order;
    int32_t parts;
    es_matmul_part part[2];   /**< weight.rows counts one expert's rows */
    int64_t expert_stride[2]; /**< bytes from one expert's matrix to the next */
    const es_slice *expert[2];/**< or, where the experts do not lie one after the other, each one's place [experts] */
} es_op_moe_product;

typedef struct es_op_moe_combine {
    es_slice y;       /**< [T · used][width] */
    es_slice weights; /**< [T][used] */
    int32_t used, width;
    es_slice shared;      /**< [T][width], or nothing */
    es_slice shared_gate; /**< [T][1] logits: shared · σ(gate), or nothing */
    es_slice x;           /**< [T][width], added to */
} es_op_moe_combine;

/** Most candidates that are listed. */
#define ES_PICK_MOST 256

typedef struct es_candidate {
    float p;
    int32_t token;
} es_candidate;

/** What ES_OP_PICK leaves of a row: the bits depend on the logits alone, the order of candidates on nothing. */
typedef struct es_picked {
    uint64_t total; /**< weight of all tokens */
    float most;     /**< the greatest logit */
    int32_t best;   /**< its token, the lowest of several; −1: every logit is NaN or −∞ */
    int32_t count;  /**< candidates there are; more than ES_PICK_MOST: those listed are not all */
    int32_t unused;
    es_candidate candidate[ES_PICK_MOST];
} es_picked;

typedef struct es_op_pick {
    es_slice logits; /**< [outputs][vocabulary] */
    int32_t vocabulary, most_rows; /**< outputs of a step at most */
    es_slice out;    /**< es_picked [outputs] */
} es_op_pick;

typedef struct es_op {
    es_op_kind kind;
    union {
        es_op_embed embed;
        es_op_rope_table rope_table;
        es_op_rmsnorm rmsnorm;
        es_op_matmul matmul;
        es_op_swiglu swiglu;
        es_op_attn_prepare attn_prepare;
        es_op_attn attn; /* ATTN and ATTN_MERGE */
        es_op_delta_prepare delta_prepare;
        es_op_delta_scan delta_scan;
        es_op_delta_finish delta_finish;
        es_op_moe_route moe_route;
        es_op_moe_group moe_group;
        es_op_moe_product moe_product;
        es_op_moe_combine moe_combine;
        es_op_pick pick;
    } as;
} es_op;

/** A recorded list of operations, executed in order. */
typedef struct es_program {
    es_op *op;
    int32_t count, capacity;
    bool failed; /**< an append found no memory; checked once at the end of recording */
} es_program;

/** Append one operation. */
void es_program_add(es_program *program, es_op op);
void es_program_free(es_program *program);
const char *es_op_name(es_op_kind kind);

#endif
