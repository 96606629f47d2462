/* kernels.h: what the CPU computes with, as one table per numeric mode.
 *
 * The reference functions (ref/) are plain C and define every bit. The vector ones (x86/) must equal them bit for bit, and
 * es_kernels_check() is the harness that says whether they do. es_kernels_select() fills in a table by run-time dispatch;
 * everything above calls through it and does not know which instruction set answers.
 *
 * Sums over the inner dimension run in 16 virtual lanes: element i goes to lane i mod 16, each lane adds in order with fused
 * steps, a last incomplete group is filled with zeros, and the lanes fold in a fixed tree (es_fold_lanes). */
#ifndef ES_CPU_KERNELS_H
#define ES_CPU_KERNELS_H

#include "device/cpu/decode.h"
#include "device/cpu/product.h"
#include "evenshare/engine.h"

/** Keys in one fold of attention: one new maximum each. */
#define ES_ATTN_TILE 64
/** Keys whose channels lie side by side in the cache: K is [head_dim][16] per block, V is [16][head_dim]. */
#define ES_ATTN_BLOCK 16
#define ES_ATTN_TILE_BLOCKS (ES_ATTN_TILE / ES_ATTN_BLOCK)
/** Weight rows, tokens and columns done together by one call of `dot`, at most: what it reads again and again stays in the
 *  first-level cache, and the sums in the second. Columns are cut at multiples of this, which every block size divides. */
#define ES_DOT_ROWS 16
#define ES_DOT_TOKENS 128
#define ES_DOT_COLUMNS 512
#define ES_DOT_LANES 16
/** State columns that one call of `delta_scan` takes at most, and the most key channels. */
#define ES_DELTA_COLUMNS 64
#define ES_DELTA_KEY_DIM 256
/** The most channels of a DeltaNet head, key or value. */
#define ES_DELTA_MOST_HEAD_DIM 1024

/** A piece of a product: some columns of some weight rows, times the same columns of some tokens. */
typedef struct es_dot_tile {
    const float *w;         /**< row r at + r · w_stride, [columns] */
    int64_t w_stride;
    const float *const *x;  /**< token t at x[t] + x_offset, [columns] */
    int64_t x_offset;
    int32_t rows, tokens, columns;
    bool first;             /**< the sums count as zero */
    float *lanes;           /**< [tokens][16 rows][16] sums, column i in lane i mod 16; read and written */
} es_dot_tile;

/** One tile of keys for query rows that share a KV head. */
typedef struct es_attn_tile {
    const float *const *q;               /**< [rows] pointers to [head_dim], scaled */
    const int32_t *valid;                /**< [rows] how many keys of the tile the row may see; ≤ 0: none */
    int32_t rows, head_dim;
    const float *k[ES_ATTN_TILE_BLOCKS]; /**< blocks [head_dim][16]; read only where some row's `valid` reaches */
    const float *v[ES_ATTN_TILE_BLOCKS]; /**< blocks [16][head_dim] */
    const uint16_t *k16[ES_ATTN_TILE_BLOCKS]; /**< bfloat16, [head_dim / 2][16][2]; or binary16, [head_dim][16] */
    const uint16_t *v16[ES_ATTN_TILE_BLOCKS]; /**< bfloat16, [8][head_dim][2]; or binary16, [16][head_dim] */
    float *m;                            /**< [rows] running maximum, −inf at first */
    float *l;                            /**< [rows][16] running sums of exponentials, key j in lane j mod 16 */
    float *o;                            /**< [rows][head_dim] running output */
    float *p;                            /**< [rows][64] scratch */
    const void *next_k[ES_ATTN_TILE_BLOCKS]; /**< the blocks that come after these, worth fetching early; or NULL */
} es_attn_tile;

/** Channels of a head that share a scale where keys and values are q8_0, and bytes of a block of sixteen keys (or values). */
#define ES_ATTN_Q8_GROUP 32
static inline int64_t es_attn_q8_block_bytes(int32_t head_dim)
{
    return (int64_t)ES_ATTN_BLOCK * (head_dim + head_dim / ES_ATTN_Q8_GROUP * (int64_t)sizeof(uint16_t));
}

/** One tile of keys and values in 8 bits, for query rows that share a KV head; head_dim is a multiple of 32. A block of keys is
 *  [head_dim / 4][16 keys][4 channels] bytes, each 128 more than the key's integer, then scales [head_dim / 32][16 keys] in
 *  binary16; a block of values [head_dim / 32][4][32 channels][4 keys] integers, then scales as before. */
typedef struct es_attn_tile_q8 {
    const int8_t *q;                       /**< [rows][head_dim] integers of the queries */
    const float *q_scale;                  /**< [rows][head_dim / 32] */
    const int32_t *q_zero;                 /**< [rows][head_dim / 32] −128 times the sum of the group's integers */
    const int32_t *valid;                  /**< [rows] how many keys of the tile the row may see; ≤ 0: none */
    int32_t rows, head_dim;
    const uint8_t *k[ES_ATTN_TILE_BLOCKS]; /**< read only where some row's `valid` reaches */
    const uint8_t *v[ES_ATTN_TILE_BLOCKS];
    const uint8_t *next_k[ES_ATTN_TILE_BLOCKS]; /**< the blocks that come after these, worth fetching early; or NULL */
    float *m;                              /**< [rows] running maximum, −inf at first */
    float *l;                              /**< [rows][16] running sums of exponentials, key j in lane j mod 16 */
    float *o;                              /**< [rows][head_dim] running output */
    float *p;                              /**< [rows][64] scratch */
} es_attn_tile_q8;

/** A column tile of one head's state over the rows of a span. */
typedef struct es_delta_tile {
    float *state;        /**< [key_dim] rows of `columns`, state_stride floats apart; read and written */
    int64_t state_stride;
    const float *next;   /**< the state of the tile that comes after this, worth fetching early; or NULL */
    bool fresh;          /**< the state counts as zero */
    int32_t key_dim, columns, rows;
    const float *q, *k, *v; /**< row t at + t · x_stride; q, k [key_dim], v [columns] */
    int64_t x_stride;
    const float *gates;  /**< row t: decay, beta at + t · gate_stride */
    int64_t gate_stride;
    float *out;          /**< row t at + t · out_stride, [columns] */
    int64_t out_stride;
} es_delta_tile;

/** What computes the products of modes bf16 and int8; each is faster than those before it. */
typedef enum es_products_by { ES_PRODUCTS_BY_REFERENCE, ES_PRODUCTS_BY_VECTORS, ES_PRODUCTS_BY_TILES } es_products_by;

typedef struct es_kernels {
    es_decode_fn decode[ES_DTYPES];

    /** lanes[t][r] += the products of columns i, lane i mod 16, in order. A whole product calls it for one piece of columns
     *  after the other; where they are cut (at multiples of 16) no sum can see. */
    void (*dot)(const es_dot_tile *tile);

    /** out[t · 16 + r] = the sixteen lanes of each sum as one, for r < rows ≤ 16 and t < tokens. */
    void (*fold)(const float *lanes, int32_t rows, int32_t tokens, float *out);

    /** out = x · (1 / sqrt(Σx²/n + eps)) · w. In place is fine. */
    void (*rmsnorm)(const float *x, const float *w, float *out, int32_t n, float eps);

    /** out = x · (1 / sqrt(Σx² + eps)) · scale. */
    void (*unit_length)(const float *x, float *out, int32_t n, float eps, float scale);

    /** out = rmsnorm(x, w) · silu(z). */
    void (*gated_norm)(const float *x, const float *w, const float *z, float *out, int32_t n, float eps);

    /** out = silu(gate) · up. */
    void (*swiglu)(const float *gate, const float *up, float *out, int32_t n);

    /** y = fma(a, x, y). */
    void (*axpy)(float a, const float *x, float *y, int32_t n);

    /** out = x · a · σ(gate); without the last factor when gate is NULL. */
    void (*scale_gate)(const float *x, float a, const float *gate, float *out, int32_t n);

    /** Causal convolution over four rows, then SiLU: out = silu(((w0·x0 + w1·x1) + w2·x2) + w3·x3), fused from the second
     *  product on; w is [4] rows `w_stride` apart. */
    void (*conv_silu)(const float *x0, const float *x1, const float *x2, const float *x3, const float *w, int64_t w_stride,
                      float *out, int32_t n);

    void (*attn_tile)(const es_attn_tile *tile);

    /** The same over keys and values in binary16 (k16, v16), each widened to float32, which is exact: the same steps. */
    void (*attn_tile_f16)(const es_attn_tile *tile);

    /** out = x in binary16, to nearest, ties to even. What is past ±65,504, the largest number, is that, infinity too: an
     *  infinite value would turn a whole sequence's outputs to NaN. A NaN stays one. */
    void (*encode_f16)(const float *x, uint16_t *out, int32_t n);

    /** The same over bfloat16 keys and values (k16, v16), q already rounded to bfloat16. Sums run as AMX tiles do: per 32
     *  channels (or keys) an even and an odd chain from zero, then c = c + (e + o); p = e^(s − m) is rounded to bfloat16. */
    void (*attn_tile_bf16)(const es_attn_tile *tile);

    /** The same over keys and values in 8 bits (q8_0), in integers:
     *    score    s = Σ over groups of 32 channels, in order, by fma: (q scale · k scale) · (Σ of 32 products of integers)
     *    tile     t = max s, with +0 for a zero; p = e^(s − t), NaN counting as 0; the tile's own l: key j in lane j mod 16
     *    values   per group: S = the largest scale of the keys that the row sees; w = p · (v scale · (32767 / S)), rounded to
     *             an integer; Σ w · v of integers
     *    fold     m' = max(m, t), c = e^(m − m'), a = e^(t − m'); l ← fma(a, tile's l, c·l),
     *             o ← fma(a · (S / 32767), Σ w·v, c·o) */
    void (*attn_tile_q8)(const es_attn_tile_q8 *tile);

    /** The attention operator: (m, l, o) ← (m, l, o) ⊕ (m2, l2, o2), o of n floats. An empty side (m = −inf) gives the
     *  other, bit for bit. */
    void (*attn_merge)(float *m, float *l, float *o, float m2, float l2, const float *o2, int32_t n);

    void (*delta_scan)(const es_delta_tile *tile);

    es_products products; /**< of modes bf16 and int8 */

    /** Of mode bf16dp; its tokens are encoded by products.encode_bf16(), one after the other. */
    es_product_bf16dp_fn product_bf16dp;

    es_products_by products_by; /**< what computes `products` */

    const char *instruction_set;
} es_kernels;

/** The reference of attn_tile_bf16, in a file of its own. */
void es_attn_tile_bf16_ref(const es_attn_tile *tile);

/** The reference of attn_tile_q8. */
void es_attn_tile_q8_ref(const es_attn_tile_q8 *tile);

/** The plain-C functions of a mode. */
void es_kernels_reference(es_kernels *kernels);

/** Replace entries by faster ones, where this machine can run them. Nothing happens on other processors. */
void es_kernels_avx2(es_kernels *kernels);
void es_kernels_avx512(es_kernels *kernels);
void es_attn_bf16_avx2(es_kernels *kernels);
void es_attn_bf16_avx512(es_kernels *kernels);
void es_attn_bf16_amx(es_kernels *kernels);
void es_attn_q8_avx2(es_kernels *kernels);
void es_attn_q8_avx512(es_kernels *kernels);

/** The best table up to `highest` ("amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "reference"; NULL:
 *  $ES_INSTRUCTION_SET, else the best). ES_INVALID for another name, ES_UNSUPPORTED for one that this machine does not have. */
es_status es_kernels_select(const char *highest, es_kernels *kernels);

/** Whether AMX tiles work here: asked of the kernel once per process (it must permit them before threads start), then tried
 *  in a child process, since a machine can show the CPU flag and still trap. */
bool es_amx_usable(void);

/** Treat denormals as zero on this thread, as the modes demand; returns the control word for es_float_mode_leave(). */
unsigned es_float_mode_enter(void);
void es_float_mode_leave(unsigned saved);

#endif
