/* plan.cu: a recorded program as a list of launches.
 *
 * Prepared once: weights are packed, every activation that a product reads in bfloat16 gets a shadow, which whoever writes the
 * activation fills, and a product whose two results only meet in a SwiGLU becomes one launch with it. Chains of operations that
 * one kernel can do for a few tokens have both: that launch, and behind it those that it stands for when they are few. */
#include "device/cuda/cuda.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/** What a launch is: an operation as recorded, a product, the filling of a shadow that its writer could not fill; or a chain of
 *  operations in one kernel. */
typedef enum launch_kind {
    LAUNCH_OP,
    LAUNCH_PRODUCT,
    LAUNCH_SHADOW,
    LAUNCH_DELTA,   /* prepare, scan and finish of single tokens */
    LAUNCH_ROUTE,   /* norm, router, choice and grouping of few tokens */
    LAUNCH_COMBINE, /* the sum of experts and the next norm */
    LAUNCH_NOTHING, /* a chain that could not be one after all */
} launch_kind;

struct es_cuda_launch {
    launch_kind kind;
    es_op op;
    es_cuda_matrix table; /* embed */
    es_cuda_product product;
    int32_t first, parts; /* of the product: parts of one type */
    bool f32;
    bool outputs_only;
    int32_t per_row; /* rows of a launch for each row of the step */
    int32_t shadow;  /* filled by this launch; −1: none */
    int32_t filler;  /* of a product: the launch that filled the shadow that it reads; −1: it reads none */
    bool turnable;   /* whoever reads the shadow that this launch fills can read it turned */
    bool bare;       /* and nobody reads the floats beside it */
    es_cuda_decode attend[ES_CUDA_ATTENDS];
    int64_t stride, width; /* of what LAUNCH_SHADOW reads */
    void *room;            /* of its own, on the device */
    const es_op *chain;    /* the operations of a chain; the last one's shadow is `shadow` */
    int32_t covers;        /* launches behind it that it stands for */
    bool rides;            /* of few tokens another launch does it, too */
    int32_t rider_shadow;  /* what such another fills; −1: nothing */
};

typedef struct preparing {
    es_cuda *cuda;
    es_cuda_plan *plan;
    int32_t capacity;
    bool fresh[ES_CUDA_SHADOWS]; /* the shadow holds what the activation holds */
    int32_t filler[ES_CUDA_SHADOWS]; /* the launch that it has it from */
    int32_t reads;                   /* the one that the product at hand reads */
    const int32_t *starts_order; /* of the experts */
    es_status status;
} preparing;

static bool in_bf16(const es_cuda *cuda)
{
    return cuda->options.numeric == ES_NUMERIC_BF16;
}

static es_cuda_launch *add(preparing *p, es_cuda_launch launch)
{
    es_cuda_plan *plan = p->plan;
    if (plan->launches == p->capacity) {
        const int32_t capacity = p->capacity ? 2 * p->capacity : 256;
        es_cuda_launch *grown = (es_cuda_launch *)realloc(plan->launch, (size_t)capacity * sizeof *grown);
        if (!grown) {
            p->status = es_cuda_fail(ES_NO_MEMORY, "no memory for a list of %d launches", capacity);
            return NULL;
        }
        plan->launch = grown;
        p->capacity = capacity;
    }
    plan->launch[plan->launches] = launch;
    return &plan->launch[plan->launches++];
}

/* --- weights --- */

static es_status fill_randomly(es_cuda *cuda, es_buffer *buffer, es_dtype type)
{
    const es_dtype_info *info = es_dtype_get_info(type);
    cuda->random_state += 0x632BE59BD9B4E019u;
    es_cuda_random(cuda->stream, buffer->data, type, (int64_t)(buffer->bytes / (size_t)info->block_bytes), cuda->random_state,
                   0.02f);
    buffer->hollow = false;
    return es_cuda_check(cudaGetLastError(), "random weights");
}

/* Rows of packed weights begin at multiples of 16 bytes. */
static int64_t pitch_of(int64_t row_bytes)
{
    return (row_bytes + 15) / 16 * 16;
}

static es_status pack(es_cuda *cuda, es_buffer *buffer, es_dtype type, int64_t row_bytes)
{
    unsigned char *packed;
    const int64_t rows = (int64_t)buffer->bytes / row_bytes;
    ES_TRY(es_cuda_check(cudaMalloc((void **)&packed, (size_t)(rows * pitch_of(row_bytes)) + ES_CUDA_TAIL),
                         "memory to pack weights"));
    es_cuda_pack(cuda->stream, buffer->data, packed, type, row_bytes, pitch_of(row_bytes), rows);
    const es_status status = es_cuda_check(cudaStreamSynchronize(cuda->stream), "packing weights");
    if (status != ES_OK) {
        cudaFree(packed);
        return status;
    }
    cudaFree(buffer->data);
    buffer->data = packed;
    buffer->packed = true;
    return ES_OK;
}

/* A weight as kernels read it; the first time its memory is filled (random weights) and packed. */
static es_cuda_matrix matrix_of(preparing *p, const es_weight *w)
{
    es_buffer *buffer = w->at.buffer;
    const int64_t row_bytes = (int64_t)es_dtype_bytes(w->type, w->cols), offset = (int64_t)w->at.offset;
    const bool planes = w->type == ES_Q8_0 || w->type == ES_Q6_K, whole = w->cols % ES_CUDA_COLUMNS == 0;
    if (p->status == ES_OK && buffer->hollow) p->status = fill_randomly(p->cuda, buffer, w->type);
    if (p->status == ES_OK && planes && whole && in_bf16(p->cuda) && !buffer->packed &&
        (int64_t)buffer->bytes % row_bytes == 0 && offset % row_bytes == 0)
        p->status = pack(p->cuda, buffer, w->type, row_bytes);
    const unsigned char *data = buffer->data;
    if (buffer->packed)
        return (es_cuda_matrix){
            data + offset / row_bytes * pitch_of(row_bytes), pitch_of(row_bytes), w->type, true, true, (int32_t)w->rows};
    const bool fast = whole && !planes && row_bytes % 16 == 0 && offset % 16 == 0;
    return (es_cuda_matrix){data + offset, row_bytes, w->type, false, fast, (int32_t)w->rows};
}

/* --- shadows --- */

/* The shadow of an activation that is so many columns wide; layers of different widths share some. */
static int32_t find_shadow(const es_cuda *cuda, const float *of, int64_t width)
{
    for (int i = 0; i < cuda->shadows; i++)
        if (cuda->shadow[i].of == of && cuda->shadow[i].width == width) return i;
    return -1;
}

/* Room for every row that the activation's buffer has room for; zeros stand behind a row's width. */
static es_status add_shadow(es_cuda *cuda, es_slice x, int64_t x_stride, int64_t columns)
{
    const float *of = es_cuda_floats(x);
    if (find_shadow(cuda, of, columns) >= 0) return ES_OK;
    if (cuda->shadows == ES_CUDA_SHADOWS) return es_cuda_fail(ES_INTERNAL, "more than %d inputs of products", ES_CUDA_SHADOWS);
    es_cuda_shadow s = {of, NULL, columns, es_cuda_padded(columns)};
    const int64_t rows = (int64_t)((x.buffer->bytes - x.offset) / sizeof(float)) / x_stride;
    const size_t bytes = (size_t)(rows * s.stride) * sizeof(uint16_t);
    ES_TRY(es_cuda_check(cudaMalloc((void **)&s.data, bytes + ES_CUDA_TAIL), "bfloat16 activations"));
    ES_TRY(es_cuda_check(cudaMemsetAsync(s.data, 0, bytes, cuda->stream), "bfloat16 activations"));
    cuda->base.info.workspace += bytes;
    cuda->shadow[cuda->shadows++] = s;
    return ES_OK;
}

static bool has_bf16_part(const es_matmul_part *part, int32_t parts)
{
    for (int32_t i = 0; i < parts; i++)
        if (part[i].weight.type != ES_F32) return true;
    return false;
}

static es_status collect_shadows(es_cuda *cuda, const es_program *program)
{
    for (int32_t i = 0; i < program->count && in_bf16(cuda); i++) {
        const es_op *op = &program->op[i];
        const es_op_matmul *m = &op->as.matmul;
        const es_op_moe_product *e = &op->as.moe_product;
        if (op->kind == ES_OP_MATMUL && has_bf16_part(m->part, m->parts))
            ES_TRY(add_shadow(cuda, m->x, m->x_stride, m->part[0].weight.cols));
        if (op->kind == ES_OP_MOE_PRODUCT && has_bf16_part(e->part, e->parts))
            ES_TRY(add_shadow(cuda, e->x, e->x_stride, e->part[0].weight.cols));
    }
    return ES_OK;
}

/* Whoever writes an activation makes all its shadows stale. */
static void spoils(preparing *p, es_slice out)
{
    for (int i = 0; i < p->cuda->shadows; i++)
        if (p->cuda->shadow[i].of == es_cuda_floats(out)) p->fresh[i] = false;
}

/* The shadow that the launch to be added next, writing `width` columns of `out`, fills, or −1. */
static int32_t fills(preparing *p, es_slice out, int64_t width)
{
    const int32_t s = find_shadow(p->cuda, es_cuda_floats(out), width);
    spoils(p, out);
    if (s >= 0) p->fresh[s] = true, p->filler[s] = p->plan->launches;
    return s;
}

/* A launch fills it turned only if all that read it are products of all rows with dense weights. */
static void need_shadow(preparing *p, es_slice x, int64_t x_stride, int64_t width, bool outputs_only, int32_t per_row,
                        es_cuda_product *product)
{
    const int32_t s = find_shadow(p->cuda, es_cuda_floats(x), width);
    if (!p->fresh[s]) {
        p->filler[s] = p->plan->launches;
        add(p, (es_cuda_launch){.kind = LAUNCH_SHADOW,
                                .product = {.x = es_cuda_floats(x)},
                                .outputs_only = outputs_only,
                                .per_row = per_row,
                                .shadow = s,
                                .turnable = true,
                                .stride = x_stride,
                                .width = width});
    }
    if (p->status != ES_OK) return;
    p->fresh[s] = true;
    p->reads = p->filler[s];
    if (outputs_only || product->order || width % ES_SHADOW_GROUP != 0) p->plan->launch[p->reads].turnable = false;
    product->x16 = p->cuda->shadow[s].data;
    product->x16_stride = p->cuda->shadow[s].stride;
}

/* How often an operation names a buffer. */
static int names(const es_op *op, const es_buffer *buffer)
{
    int count = 0;
    for (size_t at = offsetof(es_op, as); at + sizeof buffer <= sizeof *op; at += sizeof buffer)
        count += memcmp((const char *)op + at, &buffer, sizeof buffer) == 0;
    return count;
}

/* Nobody but products that read its shadow names the buffer that operation `writer` of the program has written, until another
 * writes it anew: its floats need not be there. Whatever else somebody does with it could be reading. */
static bool is_shadow_enough(const preparing *p, const es_op *writer, es_slice written, int64_t width)
{
    const es_buffer *buffer = written.buffer;
    for (const es_op *op = writer + 1; op < p->plan->op + p->plan->count; op++) {
        const es_op_matmul *m = &op->as.matmul;
        const int count = names(op, buffer);
        const es_buffer *out = op->kind == ES_OP_RMSNORM        ? op->as.rmsnorm.out.buffer
                               : op->kind == ES_OP_DELTA_FINISH ? op->as.delta_finish.out.buffer
                               : op->kind == ES_OP_ATTN         ? op->as.attn.out.buffer
                                                                : NULL;
        if (count == 0) continue;
        if (count == 1 && out == buffer) return true;
        if (op->kind != ES_OP_MATMUL || count > 1 || m->outputs_only) return false;
        if (m->part[0].out.buffer == buffer && !m->part[0].accumulate) return true;
        if (m->x.buffer != buffer || m->x.offset != written.offset || m->part[0].weight.cols != width) return false;
        for (int32_t k = 0; k < m->parts; k++)
            if (m->part[k].weight.type == ES_F32) return false;
    }
    return false;
}

/* --- products --- */

static es_cuda_part part_of(preparing *p, const es_matmul_part *m)
{
    spoils(p, m->out);
    return (es_cuda_part){.w = matrix_of(p, &m->weight),
                          .bias = es_cuda_floats(m->bias),
                          .out = es_cuda_floats(m->out),
                          .out_stride = m->out_stride,
                          .accumulate = m->accumulate};
}

/* Loaders are chosen for a launch as a whole: neighbours of one type go together. */
static bool same_loader(const es_cuda_matrix *a, const es_cuda_matrix *b)
{
    return a->type == b->type && a->fast == b->fast;
}

static void add_product(preparing *p, const es_cuda_product *product, bool outputs_only, int32_t per_row, int32_t shadow)
{
    for (int32_t i = 0; i < product->parts;) {
        const es_cuda_matrix *w = &product->part[i].w;
        const bool f32 = !in_bf16(p->cuda) || w->type == ES_F32;
        int32_t parts = 1;
        while (i + parts < product->parts && same_loader(w, &product->part[i + parts].w)) parts++;
        add(p, (es_cuda_launch){.kind = LAUNCH_PRODUCT,
                                .product = *product,
                                .first = i,
                                .parts = parts,
                                .f32 = f32,
                                .outputs_only = outputs_only,
                                .per_row = per_row,
                                .shadow = shadow,
                                .filler = p->reads});
        i += parts;
    }
}

/* Gate and up, and nothing but a SwiGLU of them behind: one launch. */
static bool is_swiglu(const preparing *p, const es_cuda_product *product, const es_op *next)
{
    if (!next || next->kind != ES_OP_SWIGLU || !in_bf16(p->cuda) || product->parts < 2) return false;
    const es_op_swiglu *s = &next->as.swiglu;
    const es_cuda_part *g = &product->part[0], *u = &product->part[1];
    return g->out == es_cuda_floats(s->gate) && u->out == es_cuda_floats(s->up) && g->out == es_cuda_floats(s->out) &&
           g->w.rows == s->width && u->w.rows == s->width && g->out_stride == s->stride && !g->bias && !u->bias &&
           g->w.type != ES_F32 && same_loader(&g->w, &u->w);
}

/* True: the SwiGLU behind is part of it. Further parts (a shared expert's gate) are a launch of their own. */
static bool add_swiglu(preparing *p, es_cuda_product *product, const es_op *next, int32_t per_row)
{
    if (!is_swiglu(p, product, next)) return false;
    es_cuda_product rest = *product;
    rest.parts = product->parts - 2;
    for (int32_t i = 0; i < rest.parts; i++) rest.part[i] = product->part[i + 2];
    if (rest.parts) add_product(p, &rest, false, per_row, -1);
    product->parts = 2;
    product->swiglu = true;
    const int32_t s = fills(p, next->as.swiglu.out, next->as.swiglu.width);
    add(p, (es_cuda_launch){.kind = LAUNCH_PRODUCT,
                            .product = *product,
                            .first = 0,
                            .parts = 2,
                            .per_row = per_row,
                            .shadow = s,
                            .filler = p->reads,
                            .turnable = true,
                            .bare = is_shadow_enough(p, next, next->as.swiglu.out, next->as.swiglu.width)});
    return true;
}

static bool add_matmul(preparing *p, const es_op_matmul *m, const es_op *next)
{
    es_cuda_product product = {
        .parts = m->parts, .columns = (int32_t)m->part[0].weight.cols, .x = es_cuda_floats(m->x), .x_stride = m->x_stride};
    p->reads = -1;
    if (in_bf16(p->cuda) && has_bf16_part(m->part, m->parts))
        need_shadow(p, m->x, m->x_stride, product.columns, m->outputs_only, 1, &product);
    for (int32_t i = 0; i < m->parts; i++) product.part[i] = part_of(p, &m->part[i]);
    if (p->status != ES_OK) return false;
    if (!m->outputs_only && add_swiglu(p, &product, next, 1)) return true;
    add_product(p, &product, m->outputs_only, 1, -1);
    return false;
}

/* Places of experts that do not lie one after the other, as pointers on the device. */
static const unsigned char *const *place_experts(preparing *p, const es_op_moe_product *m, int32_t part)
{
    const size_t bytes = (size_t)m->experts * sizeof(unsigned char *);
    const unsigned char **host = (const unsigned char **)malloc(bytes), **device = NULL;
    if (!host) p->status = es_cuda_fail(ES_NO_MEMORY, "no memory for the places of %d experts", m->experts);
    for (int32_t e = 0; e < m->experts && p->status == ES_OK; e++) {
        es_weight w = m->part[part].weight;
        w.at = m->expert[part][e];
        host[e] = matrix_of(p, &w).data;
    }
    if (p->status == ES_OK) p->status = es_cuda_check(cudaMalloc((void **)&device, bytes), "places of experts");
    if (p->status == ES_OK)
        p->status = es_cuda_check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "places of experts");
    if (device && p->plan->owned_count < ES_CUDA_OWNED) p->plan->owned[p->plan->owned_count++] = device;
    free(host);
    return device;
}

static bool add_experts(preparing *p, const es_op_moe_product *m, const es_op *next)
{
    const es_cuda *cuda = p->cuda;
    es_cuda_product product = {.parts = m->parts,
                               .columns = (int32_t)m->part[0].weight.cols,
                               .x = es_cuda_floats(m->x),
                               .x_stride = m->x_stride,
                               .order = (const int32_t *)(const void *)es_cuda_floats(m->order),
                               .tile_expert = cuda->tile_expert,
                               .tile_first = cuda->tile_first,
                               .tile_count = cuda->tile_count,
                               .tiles = cuda->tiles,
                               .used = m->used,
                               .experts = m->experts,
                               .gather = m->gather};
    p->reads = -1;
    if (in_bf16(cuda) && has_bf16_part(m->part, m->parts))
        need_shadow(p, m->x, m->x_stride, product.columns, false, m->gather ? 1 : m->used, &product);
    for (int32_t i = 0; i < m->parts; i++) {
        product.part[i] = part_of(p, &m->part[i]);
        const int64_t row_bytes = (int64_t)es_dtype_bytes(m->part[i].weight.type, m->part[i].weight.cols);
        product.part[i].expert_stride = m->expert_stride[i] / row_bytes * product.part[i].w.row_bytes;
        if (m->expert[i]) product.part[i].expert = place_experts(p, m, i);
        if (product.part[i].expert_stride % 16 != 0) product.part[i].w.fast = false;
    }
    if (p->status != ES_OK) return false;
    if (add_swiglu(p, &product, next, m->used)) return true;
    add_product(p, &product, false, m->used, -1);
    return false;
}

/* --- all operations --- */

/* Device memory that goes with the plan. */
static void *own(preparing *p, size_t bytes, const char *what)
{
    void *room = NULL;
    if (p->plan->owned_count == ES_CUDA_OWNED)
        p->status = es_cuda_fail(ES_INTERNAL, "a program needs more than %d pieces of memory", ES_CUDA_OWNED);
    if (p->status == ES_OK) p->status = es_cuda_check(cudaMalloc(&room, bytes), what);
    if (room) p->plan->owned[p->plan->owned_count++] = room;
    return room;
}

/* The shadow that a launch fills. */
static es_cuda_shade shade_of(const es_cuda *cuda, const es_cuda_launch *l, bool turned)
{
    if (l->shadow < 0) return (es_cuda_shade){NULL, 0, false};
    return (es_cuda_shade){cuda->shadow[l->shadow].data, cuda->shadow[l->shadow].stride, turned};
}

static void prepare_attention(preparing *p, const es_op *op, es_cuda_launch *launch)
{
    if (p->status == ES_OK)
        p->status = es_cuda_attend_prepare(p->cuda, &op->as.attn, shade_of(p->cuda, launch, false), launch->attend);
    p->plan->attends = true;
}

/* True when the operation behind is part of this one's launch. */
static bool add_op(preparing *p, const es_op *op, const es_op *next)
{
    es_cuda_launch launch = {.kind = LAUNCH_OP, .op = *op, .per_row = 1, .shadow = -1, .filler = -1, .turnable = true};
    int64_t width;
    switch (op->kind) {
    case ES_OP_MATMUL: return add_matmul(p, &op->as.matmul, next);
    case ES_OP_MOE_PRODUCT: return add_experts(p, &op->as.moe_product, next);
    case ES_OP_EMBED:
        launch.table = matrix_of(p, &op->as.embed.table);
        spoils(p, op->as.embed.out);
        break;
    case ES_OP_RMSNORM:
        launch.outputs_only = op->as.rmsnorm.outputs_only;
        launch.shadow = fills(p, op->as.rmsnorm.out, op->as.rmsnorm.width);
        launch.bare = !launch.outputs_only && is_shadow_enough(p, op, op->as.rmsnorm.out, op->as.rmsnorm.width);
        break;
    case ES_OP_SWIGLU: launch.shadow = fills(p, op->as.swiglu.out, op->as.swiglu.width); break;
    case ES_OP_ATTN:
        launch.shadow = fills(p, op->as.attn.out, (int64_t)op->as.attn.shape.query_heads * op->as.attn.shape.head_dim);
        prepare_attention(p, op, &launch);
        break;
    case ES_OP_ATTN_MERGE: return false; /* ES_OP_ATTN leaves nothing to it */
    case ES_OP_DELTA_SCAN: spoils(p, op->as.delta_scan.out); break;
    case ES_OP_DELTA_FINISH:
        width = (int64_t)op->as.delta_finish.shape.value_heads * op->as.delta_finish.shape.value_dim;
        launch.shadow = fills(p, op->as.delta_finish.out, width);
        launch.bare = is_shadow_enough(p, op, op->as.delta_finish.out, width);
        break;
    case ES_OP_MOE_COMBINE: spoils(p, op->as.moe_combine.x); break;
    case ES_OP_PICK:
        launch.outputs_only = true;
        launch.room = own(p, es_cuda_pick_room(op->as.pick.most_rows), "picking tokens");
        break;
    case ES_OP_ROPE_TABLE:
    case ES_OP_ATTN_PREPARE:
    case ES_OP_DELTA_PREPARE:
    case ES_OP_MOE_ROUTE:
    case ES_OP_MOE_GROUP:
    case ES_OP_KINDS: break;
    }
    add(p, launch);
    return false;
}

/* --- chains --- */

static bool same_place(es_slice a, es_slice b)
{
    return a.buffer == b.buffer && a.offset == b.offset;
}

static bool is_delta(const es_op *op, int32_t left)
{
    if (left < 3 || op[0].kind != ES_OP_DELTA_PREPARE || op[1].kind != ES_OP_DELTA_SCAN || op[2].kind != ES_OP_DELTA_FINISH)
        return false;
    const es_op_delta_prepare *before = &op[0].as.delta_prepare;
    const es_op_delta_scan *scan = &op[1].as.delta_scan;
    return same_place(before->out, scan->x) && same_place(before->gates, scan->gates) &&
           same_place(scan->out, op[2].as.delta_finish.x) && es_cuda_delta_can_step(&scan->shape);
}

static bool is_route(const es_op *op, int32_t left)
{
    if (left < 4 || op[0].kind != ES_OP_RMSNORM || op[1].kind != ES_OP_MATMUL || op[2].kind != ES_OP_MOE_ROUTE ||
        op[3].kind != ES_OP_MOE_GROUP)
        return false;
    const es_op_rmsnorm *norm = &op[0].as.rmsnorm;
    const es_op_matmul *m = &op[1].as.matmul;
    const es_op_moe_route *route = &op[2].as.moe_route;
    bool plain = m->parts <= 2 && m->part[0].out_stride == route->experts;
    for (int32_t i = 0; i < m->parts; i++)
        plain = plain && m->part[i].weight.type == ES_F32 && !m->part[i].bias.buffer && !m->part[i].accumulate;
    return plain && !norm->outputs_only && !m->outputs_only && same_place(norm->out, m->x) && m->x_stride == norm->width &&
           same_place(m->part[0].out, route->logits) && same_place(route->ids, op[3].as.moe_group.ids) &&
           es_cuda_moe_few_fits(norm, route);
}

static bool is_combine(const es_op *op, int32_t left)
{
    return left >= 2 && op[0].kind == ES_OP_MOE_COMBINE && op[1].kind == ES_OP_RMSNORM && !op[1].as.rmsnorm.outputs_only &&
           same_place(op[0].as.moe_combine.x, op[1].as.rmsnorm.x) && op[0].as.moe_combine.width == op[1].as.rmsnorm.width &&
           es_cuda_moe_can_norm(&op[1].as.rmsnorm);
}

/* Zeroed device memory that goes with the plan: kernels that count in it leave zeros. */
static void *own_zeros(preparing *p, size_t bytes, const char *what)
{
    void *room = own(p, bytes, what);
    if (room && p->status == ES_OK) p->status = es_cuda_check(cudaMemsetAsync(room, 0, bytes, p->cuda->stream), what);
    return room;
}

/* `count` operations, and in front of their launches the one that stands for all. */
static int32_t add_covering(preparing *p, launch_kind kind, const es_op *op, int32_t count)
{
    const int32_t at = p->plan->launches;
    add(p, (es_cuda_launch){.kind = kind, .per_row = 1, .shadow = -1, .filler = -1, .chain = op});
    for (int32_t i = 0; i < count && p->status == ES_OK; i++) add_op(p, &op[i], i + 1 < count ? &op[i + 1] : NULL);
    if (p->status != ES_OK) return count;
    es_cuda_launch *l = &p->plan->launch[at];
    l->covers = p->plan->launches - at - 1;
    if (kind == LAUNCH_DELTA) {
        l->shadow = p->plan->launch[p->plan->launches - 1].shadow;
        l->room = own_zeros(p, es_cuda_delta_step_room(&op->as.delta_prepare.shape, p->cuda->options.spans), "counters");
    } else if (kind == LAUNCH_COMBINE) {
        l->shadow = p->plan->launch[at + 2].shadow;
    } else {
        const es_cuda_launch *router = &p->plan->launch[at + 2];
        l->shadow = p->plan->launch[at + 1].shadow;
        l->product = router->product;
        if (l->covers != 4 || router->kind != LAUNCH_PRODUCT || router->parts != router->product.parts ||
            !es_cuda_product_in_fours(&l->product, 0, l->product.parts))
            l->kind = LAUNCH_NOTHING;
        else
            l->room = own_zeros(p, sizeof(unsigned), "counters");
    }
    return count;
}

/* How many operations from here on are a chain; 0: none. */
static int32_t add_chain(preparing *p, const es_op *op, int32_t left)
{
    if (is_delta(op, left)) return add_covering(p, LAUNCH_DELTA, op, 3);
    if (is_route(op, left)) return add_covering(p, LAUNCH_ROUTE, op, 4);
    if (is_combine(op, left)) return add_covering(p, LAUNCH_COMBINE, op, 2);
    return 0;
}

/* The dense product that can go along with the experts' at launch `at`: the next one that does not go along with another, if it
 * has the same form. Nothing else may stand between, for it could write what the product reads. */
static es_cuda_launch *find_rider(es_cuda_plan *plan, int32_t at)
{
    const es_cuda_product *e = &plan->launch[at].product;
    for (int32_t i = at + 1; i < plan->launches; i++) {
        es_cuda_launch *l = &plan->launch[i];
        const es_cuda_product *d = &l->product;
        if (l->kind != LAUNCH_PRODUCT) return NULL;
        if (d->order || l->rides) continue;
        const bool alike = !l->f32 && !l->outputs_only && d->swiglu == e->swiglu && l->first == 0 && l->parts == d->parts &&
                           d->parts == e->parts && d->columns == e->columns && d->x16_stride == e->x16_stride &&
                           same_loader(&d->part[0].w, &e->part[0].w) && d->part[0].w.rows <= e->part[0].w.rows;
        return alike ? l : NULL;
    }
    return NULL;
}

/* What a shared expert multiplies goes along with what the others do: it reads what they read, or what went along before. */
static void add_riders(preparing *p)
{
    for (int32_t i = 0; i < p->plan->launches; i++) {
        es_cuda_launch *experts = &p->plan->launch[i];
        if (experts->kind != LAUNCH_PRODUCT || !experts->product.order || experts->f32 || experts->first != 0 ||
            experts->parts != experts->product.parts || experts->parts != (experts->product.swiglu ? 2 : 1))
            continue;
        es_cuda_launch *rider = find_rider(p->plan, i);
        if (!rider) continue;
        es_cuda_product *e = &experts->product;
        for (int32_t k = 0; k < rider->parts; k++) e->part[2 + k] = rider->product.part[k];
        e->rider_x16 = rider->product.x16;
        experts->rider_shadow = rider->shadow;
        rider->rides = true;
    }
}

static es_status check_op(const es_op *op)
{
    if (op->kind == ES_OP_MOE_ROUTE && (op->as.moe_route.experts > 1024 || op->as.moe_route.used > 64))
        return es_cuda_fail(ES_UNSUPPORTED, "%d experts, %d of them used: a GPU's kernels take 1024 and 64 at most",
                            op->as.moe_route.experts, op->as.moe_route.used);
    if (op->kind == ES_OP_DELTA_SCAN && (op->as.delta_scan.shape.key_dim > 256 || op->as.delta_scan.shape.value_dim > 1024))
        return es_cuda_fail(ES_UNSUPPORTED, "DeltaNet heads of %d x %d channels: a GPU's kernels take 256 x 1024 at most",
                            op->as.delta_scan.shape.key_dim, op->as.delta_scan.shape.value_dim);
    return ES_OK;
}

void es_cuda_plan_free(es_cuda_plan *plan)
{
    for (int i = 0; i < plan->owned_count; i++) cudaFree((void *)plan->owned[i]);
    free(plan->launch);
    free(plan->op);
    *plan = (es_cuda_plan){0};
}

static es_status prepare(es_cuda *cuda, const es_program *program, es_cuda_plan *plan)
{
    preparing p = {.cuda = cuda, .plan = plan, .status = ES_OK};
    const size_t bytes = (size_t)program->count * sizeof(es_op);
    *plan = (es_cuda_plan){.program = program, .count = program->count};
    plan->op = (es_op *)malloc(bytes ? bytes : 1);
    if (!plan->op) return es_cuda_fail(ES_NO_MEMORY, "no memory for a program of %d operations", program->count);
    memcpy(plan->op, program->op, bytes);
    ES_TRY(collect_shadows(cuda, program));
    for (int32_t i = 0; i < program->count && p.status == ES_OK; i++) p.status = check_op(&program->op[i]);
    for (int32_t i = 0; i < program->count && p.status == ES_OK;) {
        const es_op *op = &plan->op[i]; /* the copy stays: chains point to it */
        const int32_t chained = add_chain(&p, op, program->count - i);
        i += chained;
        if (chained == 0) i += 1 + (add_op(&p, op, i + 1 < program->count ? op + 1 : NULL) ? 1 : 0);
    }
    if (p.status == ES_OK) add_riders(&p);
    return p.status == ES_OK ? es_cuda_check(cudaStreamSynchronize(cuda->stream), "preparing a program") : p.status;
}

es_status es_cuda_plan_find(es_cuda *cuda, const es_program *program, es_cuda_plan **found)
{
    for (int i = 0; i < cuda->plans; i++) {
        es_cuda_plan *plan = &cuda->plan[i];
        if (plan->program == program && plan->count == program->count &&
            memcmp(plan->op, program->op, (size_t)program->count * sizeof(es_op)) == 0) {
            *found = plan;
            return ES_OK;
        }
    }
    if (cuda->plans == ES_CUDA_PLANS) es_cuda_forget(cuda);
    es_cuda_plan *plan = &cuda->plan[cuda->plans];
    const es_status status = prepare(cuda, program, plan);
    if (status != ES_OK) {
        es_cuda_plan_free(plan);
        return status;
    }
    cuda->plans++;
    *found = plan;
    return ES_OK;
}

/* --- launching --- */

/* Whether a launch fills its shadow turned in a step of so many rows; −1: no launch. */
static bool is_turned(const es_cuda *cuda, const es_cuda_plan *plan, int32_t launch, const es_batch *batch)
{
    return launch >= 0 && cuda->wide && plan->launch[launch].turnable && batch->rows >= ES_CUDA_MANY_TOKENS;
}

static es_status launch_op(es_cuda *cuda, const es_cuda_launch *l, int32_t rows, const es_batch *batch, bool single,
                           bool turned)
{
    const es_op *op = &l->op;
    const es_cuda_batch *b = &cuda->batch;
    cudaStream_t stream = cuda->stream;
    const es_cuda_shade shadow = shade_of(cuda, l, turned);
    const bool bare = l->bare && turned && shadow.data;
    switch (op->kind) {
    case ES_OP_EMBED:
        es_cuda_embed(stream, b, rows, &l->table, op->as.embed.table.cols, es_cuda_floats(op->as.embed.out));
        break;
    case ES_OP_ROPE_TABLE: es_cuda_rope_table(stream, b, rows, &op->as.rope_table); break;
    case ES_OP_RMSNORM: es_cuda_rmsnorm(stream, b, rows, &op->as.rmsnorm, shadow, bare); break;
    case ES_OP_SWIGLU: es_cuda_swiglu(stream, rows, &op->as.swiglu, shadow); break;
    case ES_OP_ATTN_PREPARE: es_cuda_attn_prepare(stream, b, rows, &op->as.attn_prepare, in_bf16(cuda)); break;
    case ES_OP_ATTN:
        if (cuda->tuned_attention) return es_cuda_attend_launch(cuda, l->attend, turned);
        es_cuda_attn_plain(stream, cuda, rows, &op->as.attn, shadow);
        break;
    case ES_OP_DELTA_PREPARE: es_cuda_delta_prepare(stream, b, rows, batch->spans, single, &op->as.delta_prepare); break;
    case ES_OP_DELTA_SCAN: es_cuda_delta_scan(stream, b, batch->spans, &op->as.delta_scan); break;
    case ES_OP_DELTA_FINISH: es_cuda_delta_finish(stream, rows, &op->as.delta_finish, shadow, bare); break;
    case ES_OP_MOE_ROUTE: es_cuda_moe_route(stream, rows, &op->as.moe_route); break;
    case ES_OP_MOE_GROUP: es_cuda_moe_group(stream, rows, &op->as.moe_group, cuda); break;
    case ES_OP_MOE_COMBINE: es_cuda_moe_combine(stream, rows, &op->as.moe_combine); break;
    case ES_OP_PICK:
        if (batch->pick) es_cuda_pick(stream, b, rows, &op->as.pick, l->room);
        break;
    case ES_OP_ATTN_MERGE:
    case ES_OP_MATMUL:
    case ES_OP_MOE_PRODUCT:
    case ES_OP_KINDS: break;
    }
    return ES_OK;
}

/* Tiles of experts: at most one for each entry, and at most one partly filled for each expert. */
static int32_t most_tiles(int32_t entries, int32_t experts, int32_t width)
{
    const int32_t full = entries / width + experts;
    return entries < full ? entries : full;
}

static es_status launch_product(es_cuda *cuda, const es_cuda_launch *l, int32_t rows, bool reads_turned, bool turned)
{
    es_cuda_product product = l->product;
    bool few = rows <= 8;
    product.tokens = rows;
    product.turned = reads_turned;
    if (product.swiglu) product.part[0].shadow = shade_of(cuda, l, turned);
    if (product.swiglu && l->bare && turned && reads_turned && product.part[0].shadow.data) product.part[0].out = NULL;
    if (product.order) {
        const int32_t width = es_cuda_expert_width(rows, product.used, product.experts);
        product.tokens = most_tiles(rows * product.used, product.experts, width);
        few = width == ES_CUDA_EXPERT_TOKENS;
    }
    product.rider_tokens = rows;
    if (rows > ES_CUDA_FEW) product.rider_x16 = NULL;
    if (product.rider_x16 && l->rider_shadow >= 0)
        product.part[2].shadow = (es_cuda_shade){cuda->shadow[l->rider_shadow].data, cuda->shadow[l->rider_shadow].stride, false};
    if (!l->f32 && product.turned)
        return es_cuda_product_wide(cuda->stream, &product, l->first, l->parts, cuda->panel, ES_CUDA_PANEL, cuda->wide_room);
    if (l->f32)
        es_cuda_product_f32(cuda->stream, &product, l->first, l->parts);
    else if (cuda->panel && !product.order && rows >= ES_CUDA_MANY_TOKENS)
        es_cuda_product_many(cuda->stream, &product, l->first, l->parts, cuda->panel, ES_CUDA_PANEL);
    else
        es_cuda_product_bf16(cuda->stream, &product, l->first, l->parts, few);
    return ES_OK;
}

/* True when the chain was launched as one: what it covers is done. */
static bool launch_chain(es_cuda *cuda, const es_cuda_launch *l, int32_t rows, const es_batch *batch, bool single, bool turned)
{
    const es_op *op = l->chain;
    const es_cuda_shade shadow = shade_of(cuda, l, turned);
    if (l->kind == LAUNCH_COMBINE) {
        es_cuda_moe_combine_norm(cuda->stream, rows, &op[0].as.moe_combine, &op[1].as.rmsnorm, shadow);
        return true;
    }
    /* A block takes most of a multiprocessor's registers: past one for each, several small kernels overlap better. */
    if (l->kind == LAUNCH_DELTA && single &&
        batch->spans * op->as.delta_prepare.shape.value_heads <= cuda->gpu.multiprocessors) {
        es_cuda_delta_step(cuda->stream, &cuda->batch, batch->spans, &op[0].as.delta_prepare, &op[1].as.delta_scan,
                           &op[2].as.delta_finish, shadow, l->room);
        return true;
    }
    if (l->kind != LAUNCH_ROUTE || rows > ES_CUDA_FEW ||
        es_cuda_moe_few_shared(rows, op[0].as.rmsnorm.width) > cuda->few_shared)
        return false;
    es_cuda_moe_few(cuda->stream, rows, &op[0].as.rmsnorm, &l->product, &op[2].as.moe_route, &op[3].as.moe_group, cuda,
                    shade_of(cuda, l, false), l->room);
    return true;
}

es_status es_cuda_plan_launch(es_cuda *cuda, const es_cuda_plan *plan, const es_batch *batch, bool single)
{
    for (int32_t i = 0; i < plan->launches; i++) {
        const es_cuda_launch *l = &plan->launch[i];
        const int32_t rows = l->outputs_only ? batch->outputs : batch->rows;
        if (rows == 0 || (l->rides && rows <= ES_CUDA_FEW)) continue;
        const bool turned = is_turned(cuda, plan, i, batch);
        if (l->chain) {
            if (launch_chain(cuda, l, rows, batch, single, is_turned(cuda, plan, i + l->covers, batch))) i += l->covers;
        } else if (l->kind == LAUNCH_PRODUCT) {
            ES_TRY(launch_product(cuda, l, rows, is_turned(cuda, plan, l->filler, batch), turned));
        } else if (l->kind == LAUNCH_SHADOW) {
            es_cuda_shadow_fill(cuda->stream, rows * l->per_row, l->product.x, l->stride, l->width, shade_of(cuda, l, turned));
        } else {
            ES_TRY(launch_op(cuda, l, rows, batch, single, turned));
        }
    }
    return ES_OK;
}
