/* run_matmul.c: matrix products, shared out by weight rows.
 *
 * A unit is 16 weight rows times all rows of the step. Which arithmetic a product uses is decided by the numeric mode and the
 * type of its weights alone; whichever it is, a token's result does not depend on how many tokens there are: one accumulator
 * per output, over the whole inner dimension, in the order of the mode's contract.
 *
 *   mode f32   weight rows are decoded to float32, sums run in 16 lanes (kernels.h)
 *   mode bf16  F32 weights as in f32; all others as bfloat16 (product.h)
 *   mode bf16dp  the same, in its own order of sums (product.h)
 *   mode int8  F32 weights as in f32; F16 and BF16 as bfloat16; quantised ones as integers (product.h)
 *
 * For all but f32 the tokens are first encoded into panels or rows: by every worker for itself while they are few (cheaper than
 * meeting), by all together when they are many. */
#include "device/cpu/cpu.h"

#include "base/half.h"

enum { FORM_F32 = 1, FORM_BF16 = 2, FORM_INT8 = 4, FORM_BF16DP = 8 };
enum { STORE_AHEAD = 16 };             /* tokens */
enum { PIECES = 32 };                  /* of a worker's share */
enum { SLICES = 4 };                   /* of many tokens */
enum { LEAST_GROUP = 4 };              /* panels of a group of tokens */
enum { ENCODED_COLUMNS = 512 };        /* at least that one worker encodes at once */
enum { MOST_ONE_TOKEN_ROW = 1 << 26 }; /* bytes: places in sixteen rows fit 32 bits */

static unsigned form_of(const es_cpu *cpu, es_dtype type)
{
    if (cpu->options.numeric == ES_NUMERIC_F32 || type == ES_F32) return FORM_F32;
    if (cpu->options.numeric == ES_NUMERIC_BF16DP) return FORM_BF16DP;
    if (cpu->options.numeric == ES_NUMERIC_BF16 || type == ES_F16 || type == ES_BF16) return FORM_BF16;
    return FORM_INT8;
}

static int64_t blocks_of_columns(int64_t columns)
{
    return (columns + ES_PRODUCT_BLOCK - 1) / ES_PRODUCT_BLOCK;
}

/* Panels of 16 tokens stand one after the other in the room; this one is group `g`. */
static void lay_panel(const es_panel_room *room, unsigned form, int32_t g, int32_t tokens, int64_t blocks, es_panel *panel)
{
    const int64_t before = (int64_t)g * ES_PANEL_TOKENS * blocks;
    *panel = (es_panel){.tokens = tokens, .blocks = blocks};
    if (form == FORM_BF16) {
        panel->data = room->bf16 + before * ES_PRODUCT_BLOCK;
        return;
    }
    panel->data = room->int8 + before * ES_PRODUCT_BLOCK;
    panel->scale = room->scale + before;
    panel->sum = room->sum + before;
}

/* Lays out where tokens will be once they are encoded, in every form. */
static void lay_out(unsigned forms, const es_panel_room *room, const float *const *x, int32_t tokens, int64_t columns,
                    es_cpu_input *input)
{
    const int64_t blocks = blocks_of_columns(columns);
    input->x = x;
    input->tokens = tokens;
    input->panels = (tokens + ES_PANEL_TOKENS - 1) / ES_PANEL_TOKENS;
    input->unpacked = NULL;
    input->dp = (es_bf16_tokens){room->bf16, blocks * ES_PRODUCT_BLOCK + ES_TOKENS_APART, tokens};
    for (int32_t g = 0; g < input->panels; g++) {
        const int32_t left = tokens - g * ES_PANEL_TOKENS, some = left < ES_PANEL_TOKENS ? left : ES_PANEL_TOKENS;
        if (forms & FORM_BF16) lay_panel(room, FORM_BF16, g, some, blocks, &input->bf16[g]);
        if (forms & FORM_INT8) lay_panel(room, FORM_INT8, g, some, blocks, &input->int8[g]);
    }
}

/* Encodes columns [from, to) of group g, `from` a multiple of a block. Room is written here, and only read as panels. */
static void encode_group(const es_cpu *cpu, unsigned forms, const es_cpu_input *input, int32_t g, int64_t from, int64_t to)
{
    const int32_t first = g * ES_PANEL_TOKENS, left = input->tokens - first, some = left < ES_PANEL_TOKENS ? left : ES_PANEL_TOKENS;
    const es_products *products = &cpu->kernels.products;
    const float *x[ES_PANEL_TOKENS];
    for (int32_t t = 0; t < some; t++) x[t] = input->x[first + t] + from;
    for (int32_t t = 0; forms & FORM_BF16DP && t < some; t++)
        products->encode_bf16(x + t, 1, to - from, (uint16_t *)(uintptr_t)(input->dp.x + (first + t) * input->dp.stride + from));
    if (forms & FORM_BF16) products->encode_bf16(x, some, to - from, (uint16_t *)(uintptr_t)input->bf16[g].data + from * some);
    if (forms & FORM_INT8) {
        const es_panel *panel = &input->int8[g];
        const int64_t scales = from / ES_PRODUCT_BLOCK * some;
        products->encode_int8(x, some, to - from, (int8_t *)(uintptr_t)panel->data + from * some,
                              (float *)(uintptr_t)panel->scale + scales, (float *)(uintptr_t)panel->sum + scales);
    }
}

static void encode_all(const es_cpu *cpu, unsigned forms, const es_cpu_input *input, int64_t columns)
{
    for (int32_t g = 0; g < input->panels; g++) encode_group(cpu, forms, input, g, 0, columns);
}

void es_cpu_encode_own(es_cpu *cpu, es_dtype const *types, int32_t parts, const float *const *x, int32_t tokens,
                       int64_t columns, int worker)
{
    unsigned forms = 0;
    for (int32_t p = 0; p < parts; p++) forms |= form_of(cpu, types[p]);
    es_cpu_worker *me = &cpu->worker[worker];
    lay_out(forms, &me->room, x, tokens, columns, &me->input);
    encode_all(cpu, forms, &me->input, columns);
}

/* The columns [from, from + columns) of a block as floats: where they are, or decoded into the worker's panel. */
static void find_weights(const es_cpu *cpu, const es_cpu_block *block, int64_t from, float *panel, es_dot_tile *tile)
{
    /* Rows of many columns lie a power of two apart as often as not, and then share few sets of the first-level cache: what is
     * read more than once is copied too. */
    if (block->type == ES_F32 && tile->tokens < 4 && (uintptr_t)block->data % sizeof(float) == 0) {
        tile->w = (const float *)(const void *)block->data + from;
        tile->w_stride = block->columns;
        return;
    }
    const size_t row_bytes = es_dtype_bytes(block->type, block->columns), skip = es_dtype_bytes(block->type, from);
    for (int32_t r = 0; r < block->count; r++)
        cpu->kernels.decode[block->type](block->data + (size_t)r * row_bytes + skip, panel + r * ES_DOT_COLUMNS,
                                         tile->columns);
    tile->w = panel;
    tile->w_stride = ES_DOT_COLUMNS;
}

/* Columns pass in pieces of 512: the sixteen weight rows' piece stays in the first-level cache and serves up to 128 tokens. */
static void product_f32(es_cpu *cpu, const es_cpu_block *block, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const es_cpu_input *in = &me->input;
    for (int32_t t = 0; t < in->tokens; t += ES_DOT_TOKENS) {
        es_dot_tile tile = {.x = in->x + t, .rows = block->count, .lanes = me->sums,
                            .tokens = in->tokens - t < ES_DOT_TOKENS ? in->tokens - t : ES_DOT_TOKENS};
        for (int64_t from = 0; from < block->columns; from += ES_DOT_COLUMNS) {
            tile.columns = (int32_t)(block->columns - from < ES_DOT_COLUMNS ? block->columns - from : ES_DOT_COLUMNS);
            tile.x_offset = from;
            tile.first = from == 0;
            find_weights(cpu, block, from, me->panel, &tile);
            cpu->kernels.dot(&tile);
        }
        cpu->kernels.fold(me->sums, block->count, tile.tokens, me->product + t * ES_DOT_ROWS);
    }
}

/* A row rounded to bfloat16, and filled up with zeros. */
static void round_row(const es_cpu *cpu, const es_cpu_block *block, int32_t row, int64_t padded, float *panel, uint16_t *w)
{
    const unsigned char *data = block->data + (size_t)row * es_dtype_bytes(block->type, block->columns);
    for (int64_t from = 0; from < block->columns; from += ES_DOT_COLUMNS) {
        const int64_t some = block->columns - from < ES_DOT_COLUMNS ? block->columns - from : ES_DOT_COLUMNS;
        cpu->kernels.decode[block->type](data + es_dtype_bytes(block->type, from), panel, some);
        for (int64_t i = 0; i < some; i++) w[from + i] = es_float_to_bfloat(panel[i]);
    }
    for (int64_t i = block->columns; i < padded; i++) w[i] = 0;
}

static void product_bf16(es_cpu *cpu, const es_cpu_block *block, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const int64_t blocks = blocks_of_columns(block->columns), padded = blocks * ES_PRODUCT_BLOCK;
    es_bf16_rows rows = {(const uint16_t *)(const void *)block->data, block->columns, block->count, blocks};
    if (block->type != ES_BF16 || padded != block->columns || (uintptr_t)block->data % 2 != 0) {
        /* Not as it lies: rounded from the decoded values. */
        uint16_t *w = (uint16_t *)(void *)me->unpack.q;
        for (int32_t r = 0; r < block->count; r++) round_row(cpu, block, r, padded, me->panel, w + r * padded);
        rows.w = w;
        rows.stride = padded;
    }
    if (cpu->options.numeric == ES_NUMERIC_BF16DP) cpu->kernels.product_bf16dp(&rows, &me->input.dp, me->product);
    else cpu->kernels.products.bf16(&rows, me->input.bf16, me->input.panels, me->product);
}

static void product_int8(es_cpu *cpu, const es_cpu_block *block, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const size_t row_bytes = es_dtype_bytes(block->type, block->columns);
    const es_products *products = &cpu->kernels.products;
    const int32_t tokens = me->input.tokens;
    const es_one_token_fn one = tokens == 1                                   ? products->one[block->type]
                                : tokens <= products->most_few[block->type] ? products->few[block->type]
                                                                            : NULL;
    if (one && block->count == ES_PRODUCT_ROWS && row_bytes <= MOST_ONE_TOKEN_ROW) {
        one(block->data, row_bytes, block->columns, me->input.int8, me->product);
        return;
    }
    es_int8_rows *rows = &me->input.rows;
    if (me->input.unpacked != block->data) {
        products->unpack[block->type](block->data, row_bytes, block->count, block->columns, &me->unpack, rows);
        rows->next_bytes = (size_t)block->count * row_bytes;
        rows->next = block->data + rows->next_bytes;
        me->input.unpacked = block->data;
    }
    products->int8(rows, me->input.int8, me->input.panels, me->product);
}

void es_cpu_product_block(es_cpu *cpu, const es_cpu_block *block, int worker)
{
    switch (form_of(cpu, block->type)) {
    case FORM_F32: product_f32(cpu, block, worker); break;
    case FORM_BF16:
    case FORM_BF16DP: product_bf16(cpu, block, worker); break;
    default: product_int8(cpu, block, worker); break;
    }
}

/* One token's sums of sixteen rows: loops of known length become vectors. */
static inline void store_sixteen(const float *restrict sum, const float *restrict bias, bool accumulate, float *restrict out)
{
    float value[ES_DOT_ROWS];
    for (int r = 0; r < ES_DOT_ROWS; r++) value[r] = sum[r];
    if (bias)
        for (int r = 0; r < ES_DOT_ROWS; r++) value[r] = value[r] + bias[r];
    if (accumulate)
        for (int r = 0; r < ES_DOT_ROWS; r++) value[r] = out[r] + value[r];
    for (int r = 0; r < ES_DOT_ROWS; r++) out[r] = value[r];
}

/* Adds the bias and stores or accumulates the block's sums, those of tokens `first` and on. */
static void store_block(const es_cpu *cpu, const es_matmul_part *part, int64_t row, int32_t count, int32_t first, int worker)
{
    const int32_t tokens = cpu->worker[worker].input.tokens;
    const float *product = cpu->worker[worker].product, *bias = es_cpu_floats(part->bias);
    for (int32_t t = 0; t < tokens; t++) {
        float *out = es_cpu_floats(part->out) + (int64_t)(first + t) * part->out_stride + row;
        if (count == ES_DOT_ROWS) {
            /* Tokens lie far apart: each is a line of its own, which no prefetcher of the machine foresees. */
            if (t + STORE_AHEAD < tokens) __builtin_prefetch(out + STORE_AHEAD * part->out_stride, 1);
            store_sixteen(product + t * ES_DOT_ROWS, bias ? bias + row : NULL, part->accumulate, out);
            continue;
        }
        for (int32_t r = 0; r < count; r++) {
            float sum = product[t * ES_DOT_ROWS + r];
            if (bias) sum = sum + bias[row + r];
            out[r] = part->accumulate ? out[r] + sum : sum;
        }
    }
}

static int64_t blocks_of(const es_matmul_part *part)
{
    return (part->weight.rows + ES_DOT_ROWS - 1) / ES_DOT_ROWS;
}

/* A few rows, each normed by every worker for itself: cheaper than meeting. Others may read the norm's output later: each row of
 * it is written by one worker, and the other workers keep theirs apart. */
static void norm_own(es_cpu *cpu, const es_op_rmsnorm *norm, int32_t tokens, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const es_range mine = es_cpu_share(cpu, tokens, worker);
    for (int32_t t = 0; t < tokens; t++) {
        float *out = t >= mine.begin && t < mine.end ? es_cpu_floats(norm->out) + (int64_t)t * norm->width
                                                     : me->normed + (int64_t)t * norm->width;
        es_cpu_norm_row(cpu, norm, t, out);
        me->rows[t] = out;
    }
}

/* Columns of a group of tokens that one worker encodes: all, or as many as leave each worker some four units; not so few that
 * reading rows piece by piece costs more than it gains. */
static int64_t columns_at_once(const es_cpu *cpu, int32_t groups, int64_t columns)
{
    const int64_t wanted = (4 * es_pool_workers(cpu->pool) - 1) / groups + 1, least = ENCODED_COLUMNS;
    const int64_t some = (columns / wanted + least - 1) / least * least;
    return some < least ? least : some;
}

/* Many tokens, encoded by all workers together. A unit is a group of them, whose norm comes first where there is one; without, and
 * where groups are few, some columns of a group. */
static void encode_together(es_cpu *cpu, unsigned forms, const es_op_rmsnorm *norm, int64_t columns, int worker)
{
    const es_cpu_input *input = &cpu->worker[worker].input;
    const int64_t most = norm ? columns : columns_at_once(cpu, input->panels, columns), pieces = (columns - 1) / most + 1;
    es_take take = es_pool_take(cpu->pool, input->panels * pieces, ES_TAKE_SINGLY, worker);
    for (es_range one; es_take_next(&take, &one);) {
        const int32_t g = (int32_t)(one.begin / pieces), first = g * ES_PANEL_TOKENS;
        const int64_t from = one.begin % pieces * most, to = columns - from < most ? columns : from + most;
        for (int32_t t = first; norm && t < first + ES_PANEL_TOKENS && t < input->tokens; t++)
            es_cpu_norm_row(cpu, norm, t, es_cpu_floats(norm->out) + (int64_t)t * norm->width);
        encode_group(cpu, forms, input, g, from, to);
    }
    es_pool_meet(cpu->pool);
}

/* Leaves the step's rows in this worker's `input`, in every form that the operation's weights need; normed first by `norm`,
 * where there is one. */
static void prepare_input(es_cpu *cpu, const es_op_matmul *op, const es_op_rmsnorm *norm, int32_t tokens, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const int64_t columns = op->part[0].weight.cols;
    unsigned forms = 0;
    for (int32_t p = 0; p < op->parts; p++) forms |= form_of(cpu, op->part[p].weight.type);
    for (int32_t t = 0; t < tokens; t++) me->rows[t] = es_cpu_floats(op->x) + t * op->x_stride;
    if (forms != FORM_F32 && tokens > ES_PANEL_TOKENS) {
        lay_out(forms, &cpu->room, me->rows, tokens, columns, &me->input);
        encode_together(cpu, forms, norm, columns, worker);
        return;
    }
    if (norm && tokens <= ES_PANEL_TOKENS) {
        norm_own(cpu, norm, tokens, worker);
    } else if (norm) {
        es_cpu_rmsnorm(cpu, norm, worker);
        es_pool_meet(cpu->pool);
    }
    lay_out(forms, &me->room, me->rows, tokens, columns, &me->input);
    encode_all(cpu, forms, &me->input, columns);
}

/* One block of a part's weights, `row` rows from the first. */
static es_cpu_block block_at(const es_matmul_part *part, int64_t row)
{
    const es_weight *w = &part->weight;
    return (es_cpu_block){
        .data = w->at.buffer->data + w->at.offset + (size_t)row * es_dtype_bytes(w->type, w->cols),
        .type = w->type, .columns = w->cols, .count = w->rows - row < ES_DOT_ROWS ? (int32_t)(w->rows - row) : ES_DOT_ROWS,
    };
}

/* Sixteen rows of gate and of up, which pass through SwiGLU before they are stored: of a prompt of 512 tokens some 15 MB of each
 * layer would be written and read again. */
static void run_gated(es_cpu *cpu, const es_op_matmul *op, const es_op_swiglu *gated, es_range blocks, int32_t first, int worker)
{
    es_cpu_worker *me = &cpu->worker[worker];
    const es_matmul_part to = {.weight = op->part[0].weight, .out = gated->out, .out_stride = gated->stride};
    for (int64_t b = blocks.begin; b < blocks.end; b++) {
        const int64_t row = b * ES_DOT_ROWS;
        const es_cpu_block gate = block_at(&op->part[0], row), up = block_at(&op->part[1], row);
        es_cpu_product_block(cpu, &gate, worker);
        float *const sums = me->product;
        me->product = me->gated;
        es_cpu_product_block(cpu, &up, worker);
        cpu->kernels.swiglu(sums, me->product, me->product, me->input.tokens * ES_DOT_ROWS);
        store_block(cpu, &to, row, gate.count, first, worker);
        me->gated = me->product;
        me->product = sums;
    }
}

/* Blocks [from, to) of sixteen weight rows, counted through the operation's parts, or through gate's, times tokens `first` and on
 * of the worker's input. */
static void run_blocks(es_cpu *cpu, const es_op_matmul *op, const es_op_swiglu *gated, es_range blocks, int32_t first, int worker)
{
    if (gated) {
        run_gated(cpu, op, gated, blocks, first, worker);
        return;
    }
    int64_t before = 0;
    for (int32_t p = 0; p < op->parts; p++) {
        const es_matmul_part *part = &op->part[p];
        const int64_t end = before + blocks_of(part);
        const int64_t from = blocks.begin > before ? blocks.begin : before, to = blocks.end < end ? blocks.end : end;
        for (int64_t b = from; b < to; b++) {
            const int64_t row = (b - before) * ES_DOT_ROWS;
            const es_cpu_block block = block_at(part, row);
            es_cpu_product_block(cpu, &block, worker);
            store_block(cpu, part, row, block.count, first, worker);
        }
        before = end;
    }
}

/* Blocks [from, to) times one of `groups` groups of the tokens: whole panels. */
static void run_group(es_cpu *cpu, const es_op_matmul *op, const es_op_swiglu *gated, es_range blocks, int32_t group, int32_t groups,
                      int worker)
{
    es_cpu_input *input = &cpu->worker[worker].input;
    const es_cpu_input all = *input;
    const int32_t from = all.panels * group / groups, to = all.panels * (group + 1) / groups, first = from * ES_PANEL_TOKENS;
    input->x += first;
    input->bf16 += from;
    input->int8 += from;
    input->panels = to - from;
    input->tokens = to == all.panels ? all.tokens - first : input->panels * ES_PANEL_TOKENS;
    input->dp.x += first * all.dp.stride;
    input->dp.count = input->tokens;
    run_blocks(cpu, op, gated, blocks, first, worker);
    input->x = all.x, input->bf16 = all.bf16, input->int8 = all.int8, input->dp = all.dp;
    input->panels = all.panels, input->tokens = all.tokens;
}

/* In how many groups tokens are multiplied, each with all weights. Every unit reads all of its tokens, and where tiles are
 * faster than the third-level cache these must stay in the second. */
static int32_t groups_of(const es_cpu *cpu, const es_op_matmul *op, int32_t tokens)
{
    const es_products *products = &cpu->kernels.products;
    const unsigned form = form_of(cpu, op->part[0].weight.type);
    if (!products->staying || form == FORM_F32 || form == FORM_BF16DP) return 1;
    const int64_t bytes = tokens * op->part[0].weight.cols * (form == FORM_BF16 ? 2 : 1);
    const int64_t groups = (bytes - 1) / products->staying + 1, most = tokens / (LEAST_GROUP * ES_PANEL_TOKENS);
    return (int32_t)(groups < most ? groups : most > 1 ? most : 1);
}

/* Group after group: a worker's share is as few of them as possible. */
static void run_grouped(es_cpu *cpu, const es_op_matmul *op, const es_op_swiglu *gated, int64_t blocks, int32_t groups, int worker)
{
    es_take take = es_pool_take(cpu->pool, blocks * groups, PIECES, worker);
    for (es_range piece; es_take_next(&take, &piece);)
        while (piece.begin < piece.end) {
            const int64_t group = piece.begin / blocks, end = (group + 1) * blocks < piece.end ? (group + 1) * blocks : piece.end;
            run_group(cpu, op, gated, (es_range){piece.begin - group * blocks, end - group * blocks}, (int32_t)group, groups, worker);
            piece.begin = end;
        }
}

bool es_cpu_matmul_gates(const es_op_matmul *op, const es_op_swiglu *gated)
{
    if (op->parts != 2 || gated->per_row != 1 || op->outputs_only) return false;
    const es_slice read[2] = {gated->gate, gated->up};
    for (int p = 0; p < 2; p++) {
        const es_matmul_part *part = &op->part[p];
        if (part->accumulate || part->bias.buffer || part->weight.rows != gated->width || part->out_stride != gated->stride ||
            !es_cpu_same_place(part->out, read[p]))
            return false;
    }
    return true;
}

void es_cpu_matmul(es_cpu *cpu, const es_op_matmul *op, const es_op_rmsnorm *norm, const es_op_swiglu *gated, int worker)
{
    const int32_t tokens = op->outputs_only ? cpu->batch->outputs : cpu->batch->rows;
    if (tokens == 0) return;
    prepare_input(cpu, op, norm, tokens, worker); /* before anyone may leave: workers meet in it */
    int64_t blocks = 0;
    for (int32_t p = 0; p < (gated ? 1 : op->parts); p++) blocks += blocks_of(&op->part[p]);
    const int32_t groups = groups_of(cpu, op, tokens);
    if (groups > 1) {
        run_grouped(cpu, op, gated, blocks, groups, worker);
        return;
    }
    const bool sliced = tokens >= 2 * SLICES * ES_PANEL_TOKENS;
    es_take take = sliced ? es_pool_take_whole(cpu->pool, blocks, SLICES, worker) : es_pool_take(cpu->pool, blocks, PIECES, worker);
    for (es_range piece; es_take_next(&take, &piece);) {
        if (!sliced) run_blocks(cpu, op, gated, piece, 0, worker);
        else if (piece.end - piece.begin == SLICES) run_blocks(cpu, op, gated, (es_range){piece.begin / SLICES, piece.end / SLICES}, 0, worker);
        else
            run_group(cpu, op, gated, (es_range){piece.begin / SLICES, piece.begin / SLICES + 1}, (int32_t)(piece.begin % SLICES),
                      SLICES, worker);
    }
}
