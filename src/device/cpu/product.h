/* product.h: matrix products of the numeric modes bf16, bf16dp and int8.
 *
 * All take 16 weight rows at a time, bf16 and int8 against groups of up to 16 tokens. Weights are the first operand, as they
 * lie in memory (or unpacked once per block of rows); tokens are brought into the form of a panel, or of rows as the weights
 * are. One token and 512 go through the same steps: every output has its own accumulators and walks the inner dimension in
 * the same order.
 *
 *   bf16  x is rounded to bf16. Per 32 inputs: e = Σ w·x of the even ones and o of the odd ones, each a chain of 16 fused
 *         steps from zero; then c = c + (e + o). That is what AMX's tile product computes. Missing inputs of the last 32
 *         are zeros.
 *   bf16dp  x is rounded to bf16. Sixteen accumulators from zero; of each 32 inputs, accumulator j takes inputs 2j and
 *         2j + 1: a = fma(w·x of 2j + 1, a), then a = fma(w·x of 2j, a). That is what one vdpbf16ps of AVX512_BF16 adds, with
 *         weights and tokens both as they lie in memory. Missing inputs of the last 32 are zeros. At the end the
 *         accumulators fold in the fixed tree of kernels.h: j + (j + 8), then + 4, + 2, + 1.
 *   int8  x is quantised in blocks of 32: scale = max|x| / 127, q = round(x · (127 / max|x|)). Integer sums of a block are
 *         exact in any order; then acc = fma(weight scale · x scale, (float)sum, acc), and for weights with an offset
 *         acc = fma(offset · x scale, (float)Σq, acc), blocks in order. Q6_K has two scales and two sums to a block. */
#ifndef ES_CPU_PRODUCT_H
#define ES_CPU_PRODUCT_H

#include "device/dtype.h"

#define ES_PANEL_TOKENS  16
#define ES_PRODUCT_ROWS  16
#define ES_PRODUCT_BLOCK 32
#define ES_FEW_TOKENS    16

/** Up to 16 tokens in the form a product reads. bf16: [blocks·16][tokens][2] uint16; int8: [blocks·8][tokens][4]. */
typedef struct es_panel {
    int32_t tokens;
    int64_t blocks; /**< of 32 inputs */
    const void *data;
    const float *scale; /**< int8: [blocks][tokens] */
    const float *sum;   /**< int8: [blocks][tokens] Σq, exact */
} es_panel;

/** Weight rows as bfloat16, `stride` elements apart. */
typedef struct es_bf16_rows {
    const uint16_t *w;
    int64_t stride;
    int32_t rows; /**< ≤ 16 */
    int64_t blocks;
} es_bf16_rows;

/** Tokens as rows of bfloat16, filled up with zeros to whole blocks. */
typedef struct es_bf16_tokens {
    const uint16_t *x;
    int64_t stride; /**< elements from one token to the next */
    int32_t count;
} es_bf16_tokens;

/** Elements that rows of tokens lie apart beyond their blocks: without, rows of 2^n elements would share few sets of the
 *  first-level cache, with each other and with the weights. */
#define ES_TOKENS_APART 32

/** Mode bf16dp: out[16 t + r] for token t and row r. */
typedef void (*es_product_bf16dp_fn)(const es_bf16_rows *rows, const es_bf16_tokens *tokens, float *out);

/** Weight rows as signed integers: 32 of them at q + row · row_stride + block · block_stride (bytes). */
typedef struct es_int8_rows {
    const int8_t *q;
    int64_t row_stride, block_stride;
    int32_t rows; /**< ≤ 16; rows up to 16 are readable */
    int64_t blocks;
    int32_t halves;      /**< scales to a block: 1 or 2 */
    const float *scale;  /**< [blocks · halves][16] */
    const float *offset; /**< [blocks][16], or NULL; where there are offsets no integer is below zero, and halves is 1 */
    const uint8_t *next; /**< stored rows that come after these, to be fetched meanwhile, or NULL; never read here */
    size_t next_bytes;
    es_dtype type; /**< as stored: how large the integers can be */
} es_int8_rows;

/** Room that an unpacked block of 16 rows takes, for `columns` inputs. */
typedef struct es_unpack_room {
    int8_t *q;     /**< [16][columns] */
    float *scale;  /**< [columns / 16][16] */
    float *offset; /**< [columns / 32][16] */
} es_unpack_room;

typedef void (*es_unpack_fn)(const void *rows, size_t row_bytes, int32_t count, int64_t columns, const es_unpack_room *room,
                             es_int8_rows *out);

/** Sixteen stored rows (each at most 2^26 bytes long) and one token: out[16]; or a few tokens: out[16 t + r]. */
typedef void (*es_one_token_fn)(const void *rows, size_t row_bytes, int64_t columns, const es_panel *panel, float *out);

typedef struct es_products {
    void (*encode_bf16)(const float *const *x, int32_t tokens, int64_t columns, uint16_t *data);
    void (*encode_int8)(const float *const *x, int32_t tokens, int64_t columns, int8_t *data, float *scale, float *sum);
    /** out[(16 p + t) · 16 + r] for token t of panel p and row r. */
    void (*bf16)(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out);
    void (*int8)(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out);
    es_unpack_fn unpack[ES_DTYPES]; /**< NULL where a type has no integer form */
    es_one_token_fn one[ES_DTYPES]; /**< unpack and int8 in one go, bit for bit; NULL where there is none */
    es_one_token_fn few[ES_DTYPES]; /**< the same for two tokens to `most_few`, which is at most ES_FEW_TOKENS */
    int32_t most_few[ES_DTYPES];
    int64_t staying; /**< bytes of encoded tokens that are multiplied with all weights before others are; 0: all of them */
    int32_t step; /**< tokens that cost as much as any fewer of them would, beyond the few: ES_PANEL_TOKENS with tiles, else 1 */
} es_products;

void es_products_reference(es_products *products);
/** The reference of mode bf16dp, and its kernel with AVX512_BF16. */
void es_product_bf16dp_ref(const es_bf16_rows *rows, const es_bf16_tokens *tokens, float *out);
void es_product_bf16dp_avx512bf16(const es_bf16_rows *rows, const es_bf16_tokens *tokens, float *out);
/** Replace entries by faster ones; the caller knows that the machine has them. */
void es_products_avx2(es_products *products);
void es_products_avx512(es_products *products);
void es_products_amx(es_products *products);
/** Fill in `one` and `few`; parts of es_products_avx512(). */
void es_one_token_avx512(es_products *products);
void es_few_tokens_avx512(es_products *products);

/** The products of more than one token, for es_products_avx512(); bf16 wants sixteen rows. */
void es_several_tokens_int8(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out);
void es_several_tokens_bf16(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out);

/** The same with AVX2 alone, for es_products_avx2(): one token as well, and blocks of fewer rows. */
void es_one_token_avx2(es_products *products);
void es_few_tokens_avx2(es_products *products);
void es_one_token_bf16_avx2(const es_bf16_rows *rows, const es_panel *panel, float *out);
void es_several_tokens_int8_avx2(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out);
void es_several_tokens_bf16_avx2(const es_bf16_rows *rows, const es_panel *panel, int32_t panels, float *out);

/** The VNNI product, to which the AMX one hands single tokens. */
void es_product_int8_vnni(const es_int8_rows *rows, const es_panel *panel, int32_t panels, float *out);

#endif
