/* cpu.c: the host's cores as a device. Opening it allocates every workspace; submitting a program only runs it. */
#include "device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

#define ALIGNMENT 64

static es_cpu *cpu_of(es_device *device)
{
    return (es_cpu *)(void *)device;
}

static void close_cpu(es_device *device)
{
    es_cpu *cpu = cpu_of(device);
    es_pool_close(cpu->pool);
    es_own_weights_close(&cpu->own);
    free(cpu->arena);
    free(cpu->worker);
    free(cpu);
}

static es_status new_buffer(unsigned char *data, size_t bytes, bool owned, es_buffer **buffer)
{
    es_buffer *b = malloc(sizeof *b);
    if (!b) return es_fail(ES_NO_MEMORY, "no memory for a buffer's record");
    *b = (es_buffer){data, bytes, owned};
    *buffer = b;
    return ES_OK;
}

/* Caches are mapped, so that the kernel can give huge pages and clears them only as they are used. */
#define MAPPED_FROM ((size_t)4 << 20)

static void free_data(unsigned char *data, size_t bytes)
{
    if (bytes >= MAPPED_FROM)
        es_memory_unmap(data, bytes);
    else
        free(data);
}

static es_status alloc_buffer(es_device *device, size_t bytes, es_buffer **buffer)
{
    (void)device;
    if (bytes > SIZE_MAX / 2) return es_fail(ES_NO_MEMORY, "no memory for a buffer of %zu bytes", bytes);
    const size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    unsigned char *data = bytes >= MAPPED_FROM ? es_memory_map(bytes) : aligned_alloc(ALIGNMENT, rounded);
    if (!data) return es_fail(ES_NO_MEMORY, "no memory for a buffer of %zu bytes", bytes);
    if (bytes < MAPPED_FROM) memset(data, 0, rounded);
    const es_status status = new_buffer(data, bytes, true, buffer);
    if (status != ES_OK) free_data(data, bytes);
    return status;
}

static es_status import_buffer(es_device *device, const void *host, size_t bytes, es_buffer **buffer)
{
    es_cpu *cpu = cpu_of(device);
    unsigned char *data = (unsigned char *)(uintptr_t)host;
    if (cpu->options.copy_weights && bytes) data = es_own_weights_place(&cpu->own, host, bytes);
    if (bytes && !data)
        return es_fail(ES_NO_MEMORY, "no memory for a copy of %zu bytes of weights; --weights mapped reads them where they are", bytes);
    return new_buffer(data, bytes, false, buffer);
}

static void release_buffer(es_device *device, es_buffer *buffer)
{
    (void)device;
    if (buffer->owned) free_data(buffer->data, buffer->bytes);
    free(buffer);
}

static es_status check_range(const es_buffer *buffer, size_t offset, size_t bytes)
{
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return es_fail(ES_INTERNAL, "bytes %zu to %zu of a buffer of %zu", offset, offset + bytes, buffer->bytes);
    return ES_OK;
}

static es_status write_buffer(es_device *device, es_buffer *buffer, size_t offset, const void *host, size_t bytes)
{
    (void)device;
    ES_TRY(check_range(buffer, offset, bytes));
    if (bytes) memcpy(buffer->data + offset, host, bytes);
    return ES_OK;
}

static es_status read_buffer(es_device *device, const es_buffer *buffer, size_t offset, void *host, size_t bytes)
{
    (void)device;
    ES_TRY(check_range(buffer, offset, bytes));
    if (bytes) memcpy(host, buffer->data + offset, bytes);
    return ES_OK;
}

static es_status copy_buffer(es_device *device, es_buffer *buffer, size_t from, size_t to, size_t bytes)
{
    (void)device;
    ES_TRY(check_range(buffer, from, bytes));
    ES_TRY(check_range(buffer, to, bytes));
    memcpy(buffer->data + to, buffer->data + from, bytes);
    return ES_OK;
}

static void populate_buffer(es_device *device, es_buffer *buffer, size_t offset, size_t bytes)
{
    (void)device;
    if (buffer->owned && buffer->bytes >= MAPPED_FROM && check_range(buffer, offset, bytes) == ES_OK)
        es_memory_populate(buffer->data + offset, bytes);
}

static const void *peek_buffer(es_device *device, const es_buffer *buffer, size_t offset, size_t bytes)
{
    (void)device;
    return check_range(buffer, offset, bytes) == ES_OK ? buffer->data + offset : NULL;
}

static bool norm_joins(const es_op_rmsnorm *norm, const es_op *next)
{
    const es_op_matmul *product = &next->as.matmul;
    return next->kind == ES_OP_MATMUL && es_cpu_same_place(norm->out, product->x) && product->x_stride == norm->width &&
           norm->outputs_only == product->outputs_only;
}

static bool scan_joins(const es_cpu *cpu, const es_op_delta_scan *scan, const es_op *next)
{
    return next->kind == ES_OP_DELTA_FINISH && es_cpu_same_place(scan->out, next->as.delta_finish.x) &&
           es_cpu_delta_joins(cpu, &scan->shape);
}

/* How many operations from `op` on, of `left`, are run as one, at whose end workers meet once. */
static int32_t joined(const es_cpu *cpu, const es_op *op, int32_t left)
{
    const es_op *next = op + 1;
    if (left < 2) return 1;
    switch (op->kind) {
    case ES_OP_EMBED: return next->kind == ES_OP_ROPE_TABLE ? 2 : 1; /* neither reads what the other writes */
    case ES_OP_RMSNORM: return norm_joins(&op->as.rmsnorm, next) ? 1 + joined(cpu, next, left - 1) : 1;
    case ES_OP_MATMUL: return next->kind == ES_OP_SWIGLU && es_cpu_matmul_gates(&op->as.matmul, &next->as.swiglu) ? 2 : 1;
    case ES_OP_DELTA_SCAN: return scan_joins(cpu, &op->as.delta_scan, next) ? 2 : 1;
    default: return 1;
    }
}

static void run_op(es_cpu *cpu, const es_op *op, int worker)
{
    switch (op->kind) {
    case ES_OP_EMBED: es_cpu_embed(cpu, &op->as.embed, worker); break;
    case ES_OP_ROPE_TABLE: es_cpu_rope_table(cpu, &op->as.rope_table, worker); break;
    case ES_OP_RMSNORM: es_cpu_rmsnorm(cpu, &op->as.rmsnorm, worker); break;
    case ES_OP_MATMUL: es_cpu_matmul(cpu, &op->as.matmul, NULL, NULL, worker); break;
    case ES_OP_SWIGLU: es_cpu_swiglu(cpu, &op->as.swiglu, worker); break;
    case ES_OP_ATTN_PREPARE: es_cpu_attn_prepare(cpu, &op->as.attn_prepare, worker); break;
    case ES_OP_ATTN: es_cpu_attn(cpu, &op->as.attn, worker); break;
    case ES_OP_ATTN_MERGE: es_cpu_attn_merge(cpu, &op->as.attn, worker); break;
    case ES_OP_DELTA_PREPARE: es_cpu_delta_prepare(cpu, &op->as.delta_prepare, worker); break;
    case ES_OP_DELTA_SCAN: es_cpu_delta_scan(cpu, &op->as.delta_scan, NULL, worker); break;
    case ES_OP_DELTA_FINISH: es_cpu_delta_finish(cpu, &op->as.delta_finish, worker); break;
    case ES_OP_MOE_ROUTE: es_cpu_moe_route(cpu, &op->as.moe_route, worker); break;
    case ES_OP_MOE_GROUP: es_cpu_moe_group(cpu, &op->as.moe_group, worker); break;
    case ES_OP_MOE_PRODUCT: es_cpu_moe_product(cpu, &op->as.moe_product, worker); break;
    case ES_OP_MOE_COMBINE: es_cpu_moe_combine(cpu, &op->as.moe_combine, worker); break;
    case ES_OP_PICK: es_cpu_pick(cpu, &op->as.pick, worker); break;
    case ES_OP_KINDS: break;
    }
}

/* `count` of them as one. */
static void run_joined(es_cpu *cpu, const es_op *op, int32_t count, int worker)
{
    const es_op *last = op + count - 1;
    switch (op->kind) {
    case ES_OP_RMSNORM:
        es_cpu_matmul(cpu, &op[1].as.matmul, &op->as.rmsnorm, count == 3 ? &last->as.swiglu : NULL, worker);
        break;
    case ES_OP_MATMUL: es_cpu_matmul(cpu, &op->as.matmul, NULL, &last->as.swiglu, worker); break;
    case ES_OP_DELTA_SCAN: es_cpu_delta_scan(cpu, &op->as.delta_scan, &last->as.delta_finish, worker); break;
    default:
        for (int32_t i = 0; i < count; i++) run_op(cpu, op + i, worker);
        break;
    }
}

/* Nothing was left to several workers: nobody need meet for it. */
static bool is_idle(const es_cpu *cpu, const es_op *op)
{
    return (op->kind == ES_OP_ATTN_MERGE && !cpu->attn_merges) || (op->kind == ES_OP_PICK && !cpu->batch->pick);
}

/* Says what took the time since `began`, and returns the time. */
static uint64_t tell(const es_op_watch *watch, const es_op *op, int32_t count, uint64_t began)
{
    const es_clock clock = es_clock_monotonic();
    const uint64_t now = es_clock_now(&clock);
    watch->tell(watch->user, count > 1 && op->kind == ES_OP_RMSNORM ? op + 1 : op, (double)(now - began) * 1e-9);
    return now;
}

static void step_job(void *argument, int worker)
{
    es_cpu *cpu = argument;
    const es_op_watch *watch = worker == 0 && cpu->options.watch.tell ? &cpu->options.watch : NULL;
    const es_clock clock = es_clock_monotonic();
    uint64_t began = watch ? es_clock_now(&clock) : 0;
    const unsigned saved = es_float_mode_enter();
    const es_op *op = cpu->program->op;
    for (int32_t left = cpu->program->count, count; left > 0; left -= count, op += count) {
        count = joined(cpu, op, left);
        if (is_idle(cpu, op)) continue;
        if (count > 1) run_joined(cpu, op, count, worker);
        else run_op(cpu, op, worker);
        es_pool_meet(cpu->pool);
        if (watch) began = tell(watch, op, count, began);
    }
    es_float_mode_leave(saved);
}

static es_status submit_program(es_device *device, const es_program *program, const es_batch *batch)
{
    es_cpu *cpu = cpu_of(device);
    if (batch->rows > cpu->options.rows || batch->spans > cpu->options.spans || batch->outputs > cpu->options.rows)
        return es_fail(ES_INTERNAL, "a step of %d rows in %d spans; the device was opened for %d in %d", batch->rows,
                       batch->spans, cpu->options.rows, cpu->options.spans);
    cpu->program = program;
    cpu->batch = batch;
    for (int32_t s = 0; s < batch->spans; s++)
        for (int32_t r = 0; r < batch->span[s].rows; r++) {
            cpu->row_position[batch->span[s].first_row + r] = batch->span[s].start + r;
            cpu->row_span[batch->span[s].first_row + r] = s;
        }
    es_cpu_attn_plan(cpu);
    es_pool_run(cpu->pool, step_job, cpu);
    cpu->base.info.meetings = es_pool_meetings(cpu->pool);
    return ES_OK;
}

/* Workspaces are cut from one allocation: a first pass with no base counts the bytes, a second hands out the places. */
typedef struct cutter {
    unsigned char *base;
    size_t used;
    bool overflow;
} cutter;

static void *cut(cutter *c, int64_t count, size_t size)
{
    const size_t n = (size_t)count;
    if (count < 0 || (size && n > (SIZE_MAX / 2 - c->used) / size)) {
        c->overflow = true;
        return NULL;
    }
    void *place = c->base ? c->base + c->used : NULL;
    c->used += (n * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return place;
}

static void cut_stack(cutter *c, const es_cpu *cpu, int32_t rows, es_cpu_worker *me)
{
    me->stack = cut(c, cpu->nodes, sizeof *me->stack);
    for (int32_t n = 0; n < cpu->nodes; n++) {
        float *m = cut(c, rows, sizeof *m), *l = cut(c, rows, sizeof *l);
        float *o = cut(c, (int64_t)rows * cpu->options.attn.head_dim, sizeof *o);
        if (me->stack) me->stack[n].m = m, me->stack[n].l = l, me->stack[n].o = o;
    }
}

static void cut_room(cutter *c, const es_cpu *cpu, int32_t tokens, es_panel_room *room)
{
    const int64_t rounded = (tokens + ES_PANEL_TOKENS - 1) / ES_PANEL_TOKENS * ES_PANEL_TOKENS;
    const int64_t blocks = (cpu->options.columns + ES_PRODUCT_BLOCK - 1) / ES_PRODUCT_BLOCK * rounded;
    room->bf16 = cut(c, blocks * ES_PRODUCT_BLOCK + rounded * ES_TOKENS_APART, sizeof *room->bf16);
    room->int8 = cut(c, blocks * ES_PRODUCT_BLOCK, sizeof *room->int8);
    room->scale = cut(c, blocks, sizeof *room->scale);
    room->sum = cut(c, blocks, sizeof *room->sum);
}

/* What the modes other than f32 need besides. */
static void cut_products(cutter *c, const es_cpu *cpu, es_cpu_worker *me)
{
    const es_device_options *o = &cpu->options;
    const int64_t padded = (o->columns + ES_PRODUCT_BLOCK - 1) / ES_PRODUCT_BLOCK * ES_PRODUCT_BLOCK;
    const int64_t panels = (o->rows > ES_CPU_OWN_TOKENS ? o->rows : ES_CPU_OWN_TOKENS) / ES_PANEL_TOKENS + 1;
    me->input.bf16 = cut(c, panels, sizeof *me->input.bf16);
    me->input.int8 = cut(c, panels, sizeof *me->input.int8);
    if (o->numeric == ES_NUMERIC_F32) return;
    me->unpack.q = cut(c, ES_PRODUCT_ROWS * padded, sizeof(uint16_t));
    me->unpack.scale = cut(c, padded, sizeof(float)); /* two scales for each 32 inputs of 16 rows */
    me->unpack.offset = cut(c, padded, sizeof(float));
    cut_room(c, cpu, ES_CPU_OWN_TOKENS, &me->room);
}

static void cut_query(cutter *c, int32_t rows, int32_t dim, es_query_room *query)
{
    const int64_t groups = (int64_t)rows * (dim / ES_ATTN_Q8_GROUP);
    query->q = cut(c, (int64_t)rows * dim, sizeof *query->q);
    query->scale = cut(c, groups, sizeof *query->scale);
    query->zero = cut(c, groups, sizeof *query->zero);
}

static void cut_all(cutter *c, es_cpu *cpu)
{
    const es_device_options *o = &cpu->options;
    const int32_t group = o->attn.head_dim ? o->attn.query_heads / o->attn.kv_heads : 0;
    const int32_t rows = group > ES_ATTN_ROWS ? group : ES_ATTN_ROWS;
    const int32_t pointers = o->rows > rows ? o->rows : rows;
    cpu->row_position = cut(c, o->rows, sizeof *cpu->row_position);
    cpu->row_span = cut(c, o->rows, sizeof *cpu->row_span);
    cpu->item = cut(c, cpu->item_capacity, sizeof *cpu->item);
    cpu->task = cut(c, cpu->task_capacity, sizeof *cpu->task);
    cpu->published = cut(c, cpu->published_rows * (o->attn.head_dim + 2), sizeof *cpu->published);
    if (o->numeric != ES_NUMERIC_F32) cut_room(c, cpu, o->rows, &cpu->room);
    cpu->tally = cut(c, o->threads, sizeof *cpu->tally);
    for (int w = 0; w < o->threads; w++) {
        es_cpu_worker *me = &cpu->worker[w];
        cut_products(c, cpu, me);
        me->panel = cut(c, ES_DOT_ROWS * ES_DOT_COLUMNS, sizeof *me->panel);
        me->sums = cut(c, ES_DOT_TOKENS * ES_DOT_ROWS * ES_DOT_LANES, sizeof *me->sums);
        me->rows = cut(c, pointers, sizeof *me->rows);
        me->product = cut(c, (int64_t)pointers * ES_DOT_ROWS, sizeof *me->product);
        me->gated = cut(c, (int64_t)pointers * ES_DOT_ROWS, sizeof *me->gated);
        me->normed = cut(c, ES_PANEL_TOKENS * o->columns, sizeof *me->normed);
        if (!group) continue;
        me->p = cut(c, rows * ES_ATTN_TILE, sizeof *me->p);
        me->lanes = cut(c, rows * 16, sizeof *me->lanes);
        if (o->kv_type == ES_KV_Q8_0) cut_query(c, rows, o->attn.head_dim, &me->query);
        cut_stack(c, cpu, rows, me);
    }
}

static es_status check_options(const es_device_options *o)
{
    const es_attn_shape *a = &o->attn;
    if (a->head_dim) {
        if (a->head_dim > ES_ATTN_MOST_HEAD_DIM || a->kv_heads < 1 || a->query_heads % a->kv_heads != 0)
            return es_fail(ES_UNSUPPORTED, "attention with %d query heads, %d KV heads of %d channels", a->query_heads,
                           a->kv_heads, a->head_dim);
        if (a->query_heads / a->kv_heads > ES_ATTN_ROWS)
            return es_fail(ES_UNSUPPORTED, "attention with %d query heads to a KV head; at most %d are supported",
                           a->query_heads / a->kv_heads, ES_ATTN_ROWS);
        const es_kv_type type = es_kv_type_resolve(o->kv_type, o->numeric);
        if ((type == ES_KV_BF16 && a->head_dim % 2 != 0) || (type == ES_KV_Q8_0 && a->head_dim % ES_ATTN_Q8_GROUP != 0))
            return es_fail(ES_UNSUPPORTED, "keys and values as %s of heads with %d channels, no multiple of %d; use --kv-type f32",
                           es_kv_type_name(type), a->head_dim, type == ES_KV_BF16 ? 2 : ES_ATTN_Q8_GROUP);
        if (a->page < ES_ATTN_BLOCK || a->page > 512 || (a->page & (a->page - 1)))
            return es_fail(ES_INVALID, "page: %d is not a power of two from 16 to 512", a->page);
    }
    return ES_OK;
}

/* A node for each height of the tree over the longest sequence, and one in the making. */
static int32_t nodes_for(int64_t context)
{
    int32_t height = 0;
    while (((int64_t)ES_ATTN_PARTITION << height) < context) height++;
    return height + 2;
}

static es_status build(es_cpu *cpu, const es_device_options *options)
{
    const int threads = es_pool_workers(cpu->pool);
    const es_attn_shape *a = &options->attn;
    cpu->options = *options;
    cpu->options.threads = threads;
    cpu->options.kv_type = es_kv_type_resolve(options->kv_type, options->numeric);
    cpu->nodes = nodes_for(options->context);
    if (a->head_dim) {
        cpu->kv_block = (int64_t)es_kv_page_bytes(a, cpu->options.kv_type) / (a->kv_heads * (a->page / ES_ATTN_BLOCK));
        const int32_t group = a->query_heads / a->kv_heads, tile = ES_ATTN_ROWS / group;
        cpu->item_capacity = a->kv_heads * (options->rows / tile + options->spans + 1);
        cpu->task_capacity = cpu->item_capacity + ES_ATTN_PIECES * threads;
        cpu->published_rows = threads > 1 ? (int64_t)threads * 2 * cpu->nodes * ES_ATTN_ROWS : 0;
    }
    cpu->worker = calloc((size_t)threads, sizeof *cpu->worker);
    if (!cpu->worker) return es_fail(ES_NO_MEMORY, "no memory for %d workers", threads);
    cutter c = {0};
    cut_all(&c, cpu);
    cpu->arena = c.overflow ? NULL : aligned_alloc(ALIGNMENT, c.used + ALIGNMENT);
    if (!cpu->arena) return es_fail(ES_NO_MEMORY, "no memory for workspaces of %zu bytes; use a smaller --chunk", c.used);
    memset(cpu->arena, 0, c.used);
    c = (cutter){.base = cpu->arena};
    cut_all(&c, cpu);
    const bool tiled = options->numeric == ES_NUMERIC_INT8 || options->numeric == ES_NUMERIC_BF16;
    cpu->base.info = (es_device_info){.name = "cpu", .instruction_set = cpu->kernels.instruction_set, .numeric = options->numeric,
                                      .threads = threads, .workspace = c.used, .row_step = tiled ? cpu->kernels.products.step : 1};
    return ES_OK;
}

static const es_device_ops cpu_ops = {close_cpu, alloc_buffer, import_buffer, release_buffer,
                                      write_buffer, read_buffer, peek_buffer, copy_buffer, submit_program, populate_buffer};

es_status es_device_open_cpu(const es_device_options *options, es_device **device)
{
    ES_TRY(check_options(options));
    es_kernels kernels;
    ES_TRY(es_kernels_select(options->instruction_set, &kernels));
    es_cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return es_fail(ES_NO_MEMORY, "no memory for the CPU device");
    cpu->base.ops = &cpu_ops;
    cpu->kernels = kernels;
    /* Heads that are no whole vectors are the reference's. */
    es_kernels_reference(&cpu->reference);
    if (options->attn.head_dim % 16 != 0) {
        cpu->kernels.attn_tile = cpu->reference.attn_tile;
        cpu->kernels.attn_tile_f16 = cpu->reference.attn_tile_f16;
        cpu->kernels.attn_tile_bf16 = cpu->reference.attn_tile_bf16;
    }
    es_status status = es_pool_open(options->threads, &cpu->pool);
    if (status == ES_OK) status = build(cpu, options);
    if (status == ES_OK) status = es_cpu_attn_measure(cpu);
    if (status != ES_OK) {
        close_cpu(&cpu->base);
        return status;
    }
    *device = &cpu->base;
    return ES_OK;
}
