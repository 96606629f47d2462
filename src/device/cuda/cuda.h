/* cuda.h: the inside of the CUDA device: its memory, its staging area, and how operations become launches.
 *
 * A program is prepared once, when it is first submitted: weights are brought into the layout that kernels read, inputs of
 * products get a bfloat16 shadow, and neighbours that can be one kernel are joined. Then a step is: copy the batch into one
 * device block, launch. Batches that consist of single tokens are replayed as graphs, one for each number of them. */
#ifndef ES_CUDA_CUDA_H
#define ES_CUDA_CUDA_H

#include <cuda_runtime.h>

#include "device/cuda/attn_decode.h"
#include "device/cuda/plugin.h"
#include "device/cuda/shadow.h"

/** Tokens of a partition: the leaves of attention's merge tree, and keys of a tile inside it. */
#define ES_CUDA_PARTITION 128
#define ES_CUDA_TILE      64
/** Weight rows that one block of the products works on, and the pieces that the inner dimension is cut into at most. */
#define ES_CUDA_TILE_ROWS 16
#define ES_CUDA_SEGMENTS  8
/** Columns of shadows are filled up with zeros to a multiple of this. */
#define ES_CUDA_COLUMNS 64
/** Entries of one expert that a block multiplies at once. */
#define ES_CUDA_EXPERT_TOKENS 8
#define ES_CUDA_EXPERT_MANY   32
#define ES_CUDA_MOST_EXPERTS  1024
/** Tokens of a step up to which launches are joined that then need few blocks, and experts that such a launch chooses among. */
#define ES_CUDA_FEW         8
#define ES_CUDA_FEW_EXPERTS 512
/** Tokens from which on products take the tiles of product_many.cu, and bytes of decoded weights that it works on at once. */
#define ES_CUDA_MANY_TOKENS 65
#define ES_CUDA_PANEL       ((size_t)64 << 20)
/** Bytes behind every allocation that vector loads may read. */
#define ES_CUDA_TAIL 64

struct es_buffer {
    unsigned char *data;
    size_t bytes;
    const void *host;       /**< where it was imported from; NULL: allocated */
    int uses;               /**< imports of the same memory share one copy */
    bool packed;            /**< weights are in the kernels' layout (pack.cu) */
    bool hollow;            /**< imported without being copied: it is filled with random weights when their type is known */
    struct es_buffer *next; /**< of the imported ones */
};

/** A span as kernels read it. */
typedef struct es_cuda_span {
    int64_t start;
    int32_t first_row, rows, slot, unused;
} es_cuda_span;

/** The batch in device memory: fixed places, rewritten before each step. */
typedef struct es_cuda_batch {
    const int32_t *token, *row_span, *output_row; /* [rows] */
    const es_pick *pick;                          /* [rows], of outputs */
    const int64_t *row_position;                  /* [rows] */
    const es_cuda_span *span;                     /* [spans] */
    const int32_t *pages;                         /* [spans][page_stride] */
    int32_t page_stride;
} es_cuda_batch;

/** A matrix as kernels read it. */
typedef struct es_cuda_matrix {
    const unsigned char *data;
    int64_t row_bytes;
    es_dtype type;
    bool packed; /**< Q8_0 and Q6_K: planes instead of blocks */
    bool fast;   /**< whole groups of columns at aligned places: the vector loaders can read it */
    int32_t rows;
} es_cuda_matrix;

/** One product of a launch: one matrix, dense or of experts. */
typedef struct es_cuda_part {
    es_cuda_matrix w;
    const float *bias;
    float *out;
    es_cuda_shade shadow; /**< bfloat16 copy of `out` */
    int64_t out_stride, expert_stride;
    const unsigned char *const *expert; /**< [experts] places, or NULL: expert_stride */
    bool accumulate;
} es_cuda_part;

/** Up to four products of the same input. */
typedef struct es_cuda_product {
    es_cuda_part part[ES_MATMUL_PARTS];
    int32_t parts;
    int32_t columns;
    const float *x;      /**< [tokens][x_stride] */
    const uint16_t *x16; /**< [tokens][x16_stride] shadow */
    int64_t x_stride, x16_stride;
    bool turned; /**< the shadow is: only product_wide.cu reads it */
    int32_t tokens;
    bool swiglu; /**< part[0] ← silu(part[0]) · part[1] */
    /* experts: token i is entry order[i] of expert e, its input row order[i] / used (gather) or order[i] */
    const int32_t *order, *tile_expert, *tile_first, *tile_count, *tiles;
    int32_t used, experts;
    bool gather;
    /* a dense product of as many columns that goes along with the experts' (the shared expert's): its parts are part[2] on */
    const uint16_t *rider_x16; /**< rows x16_stride apart; NULL: there is none */
    int32_t rider_tokens;
} es_cuda_product;

typedef struct es_cuda_launch es_cuda_launch;
typedef struct es_cuda_plan es_cuda_plan;

/** Captured steps: one for each (plan, rows, outputs), with and without picks. */
typedef struct es_cuda_graph {
    const es_cuda_plan *plan;
    int32_t rows, outputs;
    bool picks;
    uint64_t kernels;
    cudaGraphExec_t exec;
} es_cuda_graph;
enum { ES_CUDA_GRAPHS = 160, ES_CUDA_PLANS = 8 };

/** A bfloat16 shadow of an activation that products read. */
typedef struct es_cuda_shadow {
    const float *of;
    uint16_t *data;
    int64_t width, stride; /**< elements */
} es_cuda_shadow;
enum { ES_CUDA_SHADOWS = 24, ES_CUDA_OWNED = 512 };

/** A program as launches. `program` and its operations are the key: a changed program is another one. */
struct es_cuda_plan {
    const es_program *program;
    es_op *op; /**< a copy */
    int32_t count;
    es_cuda_launch *launch;
    int32_t launches;
    bool attends;                     /**< it has attention: a step needs plans */
    const void *owned[ES_CUDA_OWNED]; /**< device memory: places of experts, room for picks */
    int owned_count;
};

/** Attention of the spans with few, and of those with many query rows. */
enum { ES_CUDA_ATTENDS = 2 };
typedef struct es_cuda_attending {
    es_cuda_attn_shape shape;
    es_cuda_attn_limits limits;
    es_cuda_attn_span *span; /**< of the current step */
    int32_t spans;
    void *scratch, *host, *plan; /**< the plan: pinned on the host, and on the device */
    void *workspace;             /**< partial results */
    size_t room;
} es_cuda_attending;

typedef struct es_cuda {
    es_device base;
    es_device_options options;
    es_cuda_gpu gpu;
    char set[32];      /**< "sm_90" */
    bool tensor_cores; /**< bfloat16 matrix instructions are there */
    bool tuned_attention;
    es_cuda_attending attending[ES_CUDA_ATTENDS];
    bool no_graphs; /**< ES_CUDA_GRAPHS=0: every step is launched, for debuggers */
    cudaStream_t stream;
    es_buffer *imported;

    unsigned char *staging, *block; /**< the batch: pinned on the host, and on the device */
    size_t block_bytes;
    es_cuda_batch batch; /**< device pointers into the block */
    es_cuda_batch host;  /**< the same places in the staging area */
    int32_t *tile_expert, *tile_first, *tile_count, *tiles;

    es_cuda_shadow shadow[ES_CUDA_SHADOWS];
    int shadows;
    es_cuda_plan plan[ES_CUDA_PLANS];
    int plans;
    es_cuda_graph graph[ES_CUDA_GRAPHS];
    int graphs;

    size_t few_shared;   /**< shared memory that es_cuda_moe_few() may take */
    uint16_t *panel;     /**< decoded weights of products of many tokens */
    bool wide;           /**< this card multiplies many tokens by product_wide.cu */
    void *wide_room;     /**< sums that its workers hand on */
    unsigned char *peek; /**< pinned */
    size_t peek_bytes;
    uint64_t random_state;
} es_cuda;

/** Launch kernels so that each starts while the one before drains (sm_90); ES_CUDA_OVERLAP=0 in the environment: one after the
 *  other. Changes no bit. */
extern bool es_cuda_overlap;
/** Kernels launched (or captured) so far: what `bench` reports. */
extern uint64_t es_cuda_launched;

/** es_fail() of the library: the sentence is recorded in the program. */
es_status es_cuda_fail(es_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** The failure of a call of the runtime; ES_OK for cudaSuccess. */
es_status es_cuda_check(cudaError_t error, const char *what);

static inline float *es_cuda_floats(es_slice s)
{
    return s.buffer ? (float *)(void *)(s.buffer->data + s.offset) : NULL;
}

/** Bytes of one page of bfloat16 keys. */
static inline size_t es_cuda_page_bytes(const es_attn_shape *a)
{
    return (size_t)a->kv_heads * (size_t)a->page * (size_t)a->head_dim * sizeof(uint16_t);
}

static inline int64_t es_cuda_padded(int64_t columns)
{
    return (columns + ES_CUDA_COLUMNS - 1) / ES_CUDA_COLUMNS * ES_CUDA_COLUMNS;
}

/* Kernels by file: each function launches on `stream`; shapes are those of op.h. */

/* rows.cu */
void es_cuda_embed(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_cuda_matrix *table, int64_t cols,
                   float *out);
void es_cuda_rope_table(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_rope_table *op);
void es_cuda_rmsnorm(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_rmsnorm *op, es_cuda_shade shadow,
                     bool bare); /* bare: nothing but the shadow is wanted */
void es_cuda_swiglu(cudaStream_t stream, int32_t rows, const es_op_swiglu *op, es_cuda_shade shadow);
void es_cuda_shadow_fill(cudaStream_t stream, int32_t rows, const float *x, int64_t x_stride, int64_t width,
                         es_cuda_shade shadow);
void es_cuda_attn_prepare(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_attn_prepare *op, bool bf16);

/* pack.cu */
void es_cuda_pack(cudaStream_t stream, const unsigned char *from, unsigned char *to, es_dtype type, int64_t row_bytes,
                  int64_t pitch, int64_t rows);
void es_cuda_random(cudaStream_t stream, unsigned char *to, es_dtype type, int64_t blocks, uint64_t seed, float spread);

/* product.cu */
void es_cuda_product_f32(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts);
void es_cuda_product_bf16(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, bool few);
es_status es_cuda_product_setup(void);
/** Whether a float32 product goes through whole groups of four: a matter of shapes. */
bool es_cuda_product_in_fours(const es_cuda_product *p, int32_t first, int32_t parts);
/* panel.cu: rows [first, first + rows) of `columns` columns, in bfloat16, `padded` elements apart, zeros behind the columns.
 */
void es_cuda_panel(cudaStream_t stream, const es_cuda_matrix *w, int first, int rows, int columns, int padded, uint16_t *to);
/* product_many.cu: `room` holds decoded weights, ES_CUDA_PANEL bytes. */
void es_cuda_product_many(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, uint16_t *room,
                          size_t room_bytes);
/* `limit`: shared memory that a block of the card can have. */
es_status es_cuda_product_many_setup(size_t limit);
/* What is compiled for sm_90a runs on this card. */
static inline bool es_cuda_is_hopper(const es_cuda_gpu *gpu)
{
    return gpu->major == 9 && gpu->minor == 0 && gpu->code == 90;
}
/* product_wide.cu: the same of a turned shadow; `sums` is es_cuda_product_wide_room() bytes, zeros before the first call.
 * `there` says whether this card and its driver can. */
es_status es_cuda_product_wide(cudaStream_t stream, const es_cuda_product *p, int32_t first, int32_t parts, uint16_t *room,
                               size_t room_bytes, void *sums);
es_status es_cuda_product_wide_setup(const es_cuda_gpu *gpu, bool *there);
size_t es_cuda_product_wide_room(void);
/** Let at most so many clusters work, as on a smaller card; 0: all. For tests: it changes no bit. */
void es_cuda_product_wide_limit(int clusters);

/* attention.cu */
es_status es_cuda_attn_setup(const es_device_options *options, size_t shared_limit);
void es_cuda_attn_plain(cudaStream_t stream, const es_cuda *cuda, int32_t rows, const es_op_attn *op, es_cuda_shade shadow);

/* attend.cu */
es_status es_cuda_attend_open(es_cuda *cuda);
void es_cuda_attend_close(es_cuda *cuda);
/** The calls of one layer. */
es_status es_cuda_attend_prepare(es_cuda *cuda, const es_op_attn *op, es_cuda_shade shadow,
                                 es_cuda_decode calls[ES_CUDA_ATTENDS]);
/** Plan a step, and send the plans. */
es_status es_cuda_attend_stage(es_cuda *cuda, const es_batch *batch);
es_status es_cuda_attend_launch(const es_cuda *cuda, const es_cuda_decode calls[ES_CUDA_ATTENDS], bool turned);

/* delta.cu */
void es_cuda_delta_prepare(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, int32_t spans, bool single,
                           const es_op_delta_prepare *op);
void es_cuda_delta_scan(cudaStream_t stream, const es_cuda_batch *b, int32_t spans, const es_op_delta_scan *op);
void es_cuda_delta_finish(cudaStream_t stream, int32_t rows, const es_op_delta_finish *op, es_cuda_shade shadow, bool bare);

/** All three for spans of a single row in one launch, where the dimensions allow it; `room` is es_cuda_delta_step_room() bytes of
 *  zeros. Leaves nothing in the buffers between them. */
bool es_cuda_delta_can_step(const es_delta_shape *shape);
size_t es_cuda_delta_step_room(const es_delta_shape *shape, int32_t spans);
void es_cuda_delta_step(cudaStream_t stream, const es_cuda_batch *b, int32_t spans, const es_op_delta_prepare *before,
                        const es_op_delta_scan *op, const es_op_delta_finish *after, es_cuda_shade shadow, void *room);

/* moe_few.cu: norm, router (all float32, in fours), choice and grouping of up to ES_CUDA_FEW rows in one launch; `room` is four
 * bytes of zeros. */
bool es_cuda_moe_few_fits(const es_op_rmsnorm *norm, const es_op_moe_route *route);
size_t es_cuda_moe_few_shared(int32_t rows, int32_t width);
es_status es_cuda_moe_few_setup(size_t limit, size_t *room);
void es_cuda_moe_few(cudaStream_t stream, int32_t rows, const es_op_rmsnorm *norm, const es_cuda_product *p,
                     const es_op_moe_route *route, const es_op_moe_group *op, const es_cuda *cuda,
                     es_cuda_shade shadow, void *room);

/* moe.cu */
void es_cuda_moe_route(cudaStream_t stream, int32_t rows, const es_op_moe_route *op);
void es_cuda_moe_group(cudaStream_t stream, int32_t rows, const es_op_moe_group *op, const es_cuda *cuda);
es_status es_cuda_moe_setup(void);
int32_t es_cuda_expert_width(int32_t rows, int32_t used, int32_t experts);
void es_cuda_moe_combine(cudaStream_t stream, int32_t rows, const es_op_moe_combine *op);
/** The same, and the norm of its sum. */
bool es_cuda_moe_can_norm(const es_op_rmsnorm *norm);
void es_cuda_moe_combine_norm(cudaStream_t stream, int32_t rows, const es_op_moe_combine *op, const es_op_rmsnorm *norm,
                              es_cuda_shade shadow);

/* pick.cu: `room` is es_cuda_pick_room(most rows) bytes. */
size_t es_cuda_pick_room(int32_t rows);
void es_cuda_pick(cudaStream_t stream, const es_cuda_batch *b, int32_t rows, const es_op_pick *op, void *room);

/* limits.cu */
es_status es_cuda_measure_limits(const es_cuda_gpu *gpu, es_cuda_limits *limits);

/* stats.cu: what plugin.h says of them. */
es_status es_cuda_stats_open(es_cuda_stats **stats);
es_status es_cuda_stats_run(es_cuda_stats *stats, const es_cuda_stats_job *job);
void es_cuda_stats_close(es_cuda_stats *stats);

/* plan.cu */
es_status es_cuda_plan_find(es_cuda *cuda, const es_program *program, es_cuda_plan **plan);
void es_cuda_plan_free(es_cuda_plan *plan);
/** Drop all plans, graphs and shadows (cuda.cu). */
void es_cuda_forget(es_cuda *cuda);
/** Put a plan's launches for a batch of this shape on the stream. */
es_status es_cuda_plan_launch(es_cuda *cuda, const es_cuda_plan *plan, const es_batch *batch, bool single);

#endif
