/* price_of_bits.c: what the same-bits promise costs, measured: each kernel of ours beside the best that we could write without it, over
 * the same buffers, in turn.
 *
 *   build/release/price_of_bits [runs]
 *
 * Attention of one token: ours folds partitions of 128 keys and merges them in the tree of their index; without the promise each
 * worker folds an even share of all keys (to sixteen) in one go, and merges it into its head's result when it comes. Products: ours
 * as the numeric modes say; without the promise each row has accumulators of its own in all lanes, which are added once, at the
 * end. Prints a table; needs AVX-512 with VNNI and BF16. Results are compared, so that nobody is fast by computing something else. */
#include <immintrin.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "device/cpu/blocks.h"
#include "device/cpu/cpu.h"
#include "device/random_blocks.h"

enum { MOST_RUNS = 1000, PAGE = 64, MOST_HEADS = 8 };

static void die(const char *what)
{
    fprintf(stderr, "price_of_bits: %s: %s\n", what, es_error_message());
    exit(1);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Two functions in turn: the median of each one's times, and of the ratios of neighbours. */
typedef struct pair_of_times {
    double ours, free, ratio;
} pair_of_times;

static pair_of_times time_both(void (*ours)(void *), void (*other)(void *), void *argument, int runs, int repeats)
{
    const es_clock clock = es_clock_monotonic();
    double a[MOST_RUNS], b[MOST_RUNS], ratio[MOST_RUNS];
    ours(argument), other(argument);
    for (int i = 0; i < runs; i++) {
        const uint64_t start = es_clock_now(&clock);
        for (int k = 0; k < repeats; k++) ours(argument);
        const uint64_t middle = es_clock_now(&clock);
        for (int k = 0; k < repeats; k++) other(argument);
        a[i] = (double)(middle - start) * 1e-9 / repeats;
        b[i] = (double)(es_clock_now(&clock) - middle) * 1e-9 / repeats;
        ratio[i] = a[i] / b[i];
    }
    qsort(a, (size_t)runs, sizeof *a, compare_doubles);
    qsort(b, (size_t)runs, sizeof *b, compare_doubles);
    qsort(ratio, (size_t)runs, sizeof *ratio, compare_doubles);
    return (pair_of_times){a[runs / 2], b[runs / 2], ratio[runs / 2]};
}

static void put_row(const char *what, pair_of_times t, double apart)
{
    printf("%-52s %10.1f us %10.1f us %+7.1f %%   %.1e\n", what, t.ours * 1e6, t.free * 1e6, 100 * (t.ratio - 1), apart);
    fflush(stdout);
}

/* --- attention of one token --- */

typedef struct attention {
    es_attn_shape shape;
    int64_t keys;
    es_device *device;
    es_kernels kernels;
    es_buffer *q, *out, *cache[2];
    es_program program;
    es_batch batch;
    es_span span;
    int32_t *page, token;
    es_pool *pool;
    float *mine;                     /* [heads][dim] what the other way gives */
    float *head_m, *head_l, *head_o; /* [query heads], merged as they come */
    atomic_flag lock[MOST_HEADS];
} attention;

static void with_promise(void *argument)
{
    attention *a = argument;
    if (es_device_submit(a->device, &a->program, &a->batch) != ES_OK) die("attention");
}

/* Folds keys [from, to) of a head, from a multiple of sixteen on, as one run. */
static void fold_range(const attention *a, int32_t head, int64_t from, int64_t to, float *m, float *l, float *o)
{
    const int32_t group = a->shape.query_heads / a->shape.kv_heads, dim = a->shape.head_dim;
    const uint16_t *k = es_device_peek(a->device, a->cache[0], 0, 0), *v = es_device_peek(a->device, a->cache[1], 0, 0);
    const float *q = es_device_peek(a->device, a->q, 0, 0), *rows[ES_ATTN_ROWS];
    float lanes[ES_ATTN_ROWS * ES_DOT_LANES] = {0}, p[ES_ATTN_ROWS * ES_ATTN_TILE];
    int32_t valid[ES_ATTN_ROWS];
    memset(o, 0, (size_t)group * (size_t)dim * sizeof *o);
    for (int32_t r = 0; r < group; r++) m[r] = -INFINITY, rows[r] = q + (int64_t)(head * group + r) * dim;
    es_attn_tile tile = {.q = rows, .valid = valid, .rows = group, .head_dim = dim, .m = m, .l = lanes, .o = o, .p = p};
    for (int64_t key = from; key < to; key += ES_ATTN_TILE) {
        for (int b = 0; b < ES_ATTN_TILE_BLOCKS; b++) {
            const int64_t at = key + b * ES_ATTN_BLOCK, page = at / PAGE * a->shape.kv_heads + head;
            const int64_t place = (page * PAGE + at % PAGE) * dim;
            const int64_t next = ((at + ES_ATTN_TILE) / PAGE * a->shape.kv_heads + head) * PAGE + (at + ES_ATTN_TILE) % PAGE;
            if (at >= to) break;
            tile.k16[b] = k + place, tile.v16[b] = v + place;
            tile.next_k[b] = at + ES_ATTN_TILE < to ? k + next * dim : NULL;
        }
        for (int32_t r = 0; r < group; r++) valid[r] = to - key < ES_ATTN_TILE ? (int32_t)(to - key) : ES_ATTN_TILE;
        a->kernels.attn_tile_bf16(&tile);
    }
    for (int32_t r = 0; r < group; r++) {
        l[r] = 0;
        for (int i = 0; i < ES_DOT_LANES; i++) l[r] += lanes[r * ES_DOT_LANES + i];
    }
}

static void even_job(void *argument, int worker)
{
    attention *a = argument;
    const unsigned saved = es_float_mode_enter();
    const int32_t group = a->shape.query_heads / a->shape.kv_heads, dim = a->shape.head_dim;
    const int64_t blocks = (a->keys + ES_ATTN_BLOCK - 1) / ES_ATTN_BLOCK, all = blocks * a->shape.kv_heads;
    const int workers = es_pool_workers(a->pool);
    float m[ES_ATTN_ROWS], l[ES_ATTN_ROWS], o[ES_ATTN_ROWS * 256];
    for (int64_t at = all * worker / workers, end = all * (worker + 1) / workers; at < end;) {
        const int32_t head = (int32_t)(at / blocks);
        const int64_t first = at % blocks, some = end - at < blocks - first ? end - at : blocks - first;
        const int64_t last = (first + some) * ES_ATTN_BLOCK;
        fold_range(a, head, first * ES_ATTN_BLOCK, last < a->keys ? last : a->keys, m, l, o);
        while (atomic_flag_test_and_set_explicit(&a->lock[head], memory_order_acquire)) _mm_pause();
        for (int32_t r = 0; r < group; r++) {
            const int32_t h = head * group + r;
            a->kernels.attn_merge(&a->head_m[h], &a->head_l[h], a->head_o + (int64_t)h * dim, m[r], l[r], o + (int64_t)r * dim, dim);
        }
        atomic_flag_clear_explicit(&a->lock[head], memory_order_release);
        at += some;
    }
    es_pool_meet(a->pool);
    if (worker == 0)
        for (int32_t h = 0; h < a->shape.query_heads; h++) {
            a->kernels.scale_gate(a->head_o + (int64_t)h * dim, 1.0f / a->head_l[h], NULL, a->mine + (int64_t)h * dim, dim);
            a->head_m[h] = -INFINITY;
        }
    es_float_mode_leave(saved);
}

static void without_promise(void *argument)
{
    attention *a = argument;
    es_pool_run(a->pool, even_job, a);
}

static es_buffer *room(es_device *device, size_t bytes, int type, uint64_t seed)
{
    es_buffer *buffer = NULL;
    unsigned char *data = malloc(bytes);
    es_bits bits = {seed};
    if (!data || es_device_alloc(device, bytes, &buffer) != ES_OK) die("memory");
    es_random_kv(&bits, type == 32 ? ES_KV_F32 : ES_KV_BF16, bytes, 1.0f, data);
    if (es_device_write(device, buffer, 0, data, bytes) != ES_OK) die("memory");
    free(data);
    return buffer;
}

static void measure_attention(int32_t kv_heads, int64_t keys, int runs)
{
    const int32_t heads = 4 * kv_heads, dim = 256;
    attention a = {.shape = {heads, kv_heads, dim, PAGE}, .keys = keys};
    const es_device_options options = {.rows = 1, .spans = 1, .context = keys, .columns = heads * dim, .attn = a.shape,
                                       .numeric = ES_NUMERIC_BF16};
    if (es_device_open_cpu(&options, &a.device) != ES_OK || es_kernels_select(NULL, &a.kernels) != ES_OK) die("the CPU");
    if (es_pool_open(0, &a.pool) != ES_OK) die("workers");
    const int64_t pages = (keys + PAGE - 1) / PAGE;
    const size_t row = (size_t)heads * (size_t)dim * sizeof(float), cache = es_kv_page_bytes(&a.shape, ES_KV_BF16) * (size_t)pages;
    a.q = room(a.device, row, 32, 1), a.out = room(a.device, row, 32, 2);
    a.cache[0] = room(a.device, cache, 16, 3), a.cache[1] = room(a.device, cache, 16, 4);
    a.page = calloc((size_t)pages, sizeof *a.page);
    a.mine = calloc(1, row), a.head_o = calloc(1, row);
    a.head_m = calloc((size_t)heads, sizeof *a.head_m), a.head_l = calloc((size_t)heads, sizeof *a.head_l);
    if (!a.page || !a.mine || !a.head_o || !a.head_m || !a.head_l) die("memory");
    for (int64_t i = 0; i < pages; i++) a.page[i] = (int32_t)i;
    for (int32_t h = 0; h < heads; h++) a.head_m[h] = -INFINITY;
    a.span = (es_span){.rows = 1, .start = keys - 1, .pages = a.page};
    a.batch = (es_batch){.rows = 1, .spans = 1, .tokens = &a.token, .span = &a.span};
    es_op op = {ES_OP_ATTN, .as.attn = {.shape = a.shape, .q = {a.q, 0}, .k_cache = {a.cache[0], 0}, .v_cache = {a.cache[1], 0},
                                        .out = {a.out, 0}}};
    es_program_add(&a.program, op);
    op.kind = ES_OP_ATTN_MERGE;
    es_program_add(&a.program, op);
    const pair_of_times t = time_both(with_promise, without_promise, &a, runs, keys < 5000 ? 20 : 1);
    const float *out = es_device_peek(a.device, a.out, 0, row);
    double apart = 0;
    for (int32_t i = 0; i < heads * dim; i++) apart = fmax(apart, fabs((double)out[i] - (double)a.mine[i]));
    char what[96];
    snprintf(what, sizeof what, "attention, %d/%d/%d, %" PRId64 " keys", heads, kv_heads, dim, keys);
    put_row(what, t, apart);
    es_buffer *const all[] = {a.q, a.out, a.cache[0], a.cache[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) es_device_release(a.device, all[i]);
    es_program_free(&a.program);
    es_pool_close(a.pool);
    es_device_close(a.device);
    free(a.page), free(a.mine), free(a.head_o), free(a.head_m), free(a.head_l);
}

/* --- products --- */

enum { COLUMNS = 1024, PAIRS = COLUMNS / 64, MOST_TOKENS = 8, AHEAD = 16 };
#define FREE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx2,fma,f16c")))
#define INLINE FREE static inline __attribute__((always_inline))

typedef struct product {
    int64_t rows;
    int32_t tokens;
    es_dtype type;
    bool dp; /* BF16 in mode bf16dp */
    const unsigned char *w;
    es_kernels kernels;
    es_panel panel;
    es_bf16_tokens bf16;
    es_unpack_room unpack;
    float *out, *mine; /* [rows / 16][16 tokens][16 rows]; [rows][tokens] */
    /* The tokens for 64 inputs at a time: integers, −128 times the sums of four, scales of sixteen lanes. */
    __m512i x[MOST_TOKENS][PAIRS], start[MOST_TOKENS][PAIRS];
    __m512 scale[MOST_TOKENS][PAIRS];
} product;

static void product_with_promise(void *argument)
{
    product *p = argument;
    const unsigned saved = es_float_mode_enter();
    const size_t row_bytes = es_dtype_bytes(p->type, COLUMNS);
    for (int64_t r = 0; r < p->rows; r += 16) {
        const unsigned char *w = p->w + (size_t)r * row_bytes;
        float *out = p->out + r * 16;
        if (p->type == ES_Q8_0 && p->tokens == 1) {
            p->kernels.products.one[ES_Q8_0](w, row_bytes, COLUMNS, &p->panel, out);
        } else if (p->type == ES_Q8_0) {
            es_int8_rows rows;
            p->kernels.products.unpack[ES_Q8_0](w, row_bytes, 16, COLUMNS, &p->unpack, &rows);
            rows.next = r + 16 < p->rows ? w + 16 * row_bytes : NULL;
            rows.next_bytes = 16 * row_bytes;
            p->kernels.products.int8(&rows, &p->panel, 1, out);
        } else {
            const es_bf16_rows rows = {(const uint16_t *)(const void *)w, COLUMNS, 16, COLUMNS / 32};
            if (p->dp) p->kernels.product_bf16dp(&rows, &p->bf16, out);
            else p->kernels.products.bf16(&rows, &p->panel, 1, out);
        }
    }
    es_float_mode_leave(saved);
}

INLINE void free_q8_0(const product *p, int64_t row, const int R, const int T)
{
    const es_block_q8_0 *w = (const es_block_q8_0 *)(const void *)p->w + row * (COLUMNS / 32);
    __m512 acc[4][MOST_TOKENS];
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) acc[r][t] = _mm512_setzero_ps();
    for (int i = 0; i < PAIRS; i++)
        for (int r = 0; r < R; r++) {
            const es_block_q8_0 *b = w + r * (COLUMNS / 32) + 2 * i;
            _mm_prefetch((const char *)(b + AHEAD * (COLUMNS / 32)), _MM_HINT_T1);
            uint16_t d[2];
            memcpy(&d[0], b[0].d, 2), memcpy(&d[1], b[1].d, 2);
            const __m512i q = _mm512_xor_si512(_mm512_set1_epi8((char)0x80),
                                               _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)b[0].q)),
                                                                  _mm256_loadu_si256((const void *)b[1].q), 1));
            const __m512 scale = _mm512_cvtph_ps(_mm256_set_m128i(_mm_set1_epi16((short)d[1]), _mm_set1_epi16((short)d[0])));
            for (int t = 0; t < T; t++)
                acc[r][t] = _mm512_fmadd_ps(_mm512_mul_ps(scale, p->scale[t][i]),
                                            _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(p->start[t][i], q, p->x[t][i])), acc[r][t]);
        }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) p->mine[(row + r) * T + t] = _mm512_reduce_add_ps(acc[r][t]);
}

INLINE void free_bf16(const product *p, int64_t row, const int R, const int T)
{
    const uint16_t *w = (const uint16_t *)(const void *)p->w + row * COLUMNS;
    __m512 acc[4][MOST_TOKENS];
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) acc[r][t] = _mm512_setzero_ps();
    for (int i = 0; i < COLUMNS; i += 32)
        for (int r = 0; r < R; r++) {
            const __m512bh q = (__m512bh)_mm512_loadu_si512(w + r * COLUMNS + i);
            _mm_prefetch((const char *)(w + (r + AHEAD) * COLUMNS + i), _MM_HINT_T1);
            for (int t = 0; t < T; t++)
                acc[r][t] = _mm512_dpbf16_ps(acc[r][t], q, (__m512bh)_mm512_loadu_si512(p->bf16.x + t * p->bf16.stride + i));
        }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) p->mine[(row + r) * T + t] = _mm512_reduce_add_ps(acc[r][t]);
}

FREE static void product_without_promise(void *argument)
{
    const product *p = argument;
    const unsigned saved = es_float_mode_enter();
    if (p->type == ES_Q8_0 && p->tokens == 1)
        for (int64_t r = 0; r < p->rows; r += 4) free_q8_0(p, r, 4, 1);
    else if (p->type == ES_Q8_0)
        for (int64_t r = 0; r < p->rows; r += 2) free_q8_0(p, r, 2, 8);
    else if (p->tokens == 1)
        for (int64_t r = 0; r < p->rows; r += 4) free_bf16(p, r, 4, 1);
    else
        for (int64_t r = 0; r < p->rows; r += 2) free_bf16(p, r, 2, 8);
    es_float_mode_leave(saved);
}

/* The tokens of int8 as the other way reads them. */
FREE static void lay_out(product *p)
{
    const __m512i ones = _mm512_set1_epi8(1);
    const int8_t *x = p->panel.data;
    for (int32_t t = 0; t < p->tokens; t++)
        for (int i = 0; i < PAIRS; i++) {
            int8_t q[64];
            float scale[16];
            for (int k = 0; k < 64; k++) q[k] = x[((2 * i * 8 + k / 4) * p->tokens + t) * 4 + k % 4];
            for (int k = 0; k < 16; k++) scale[k] = p->panel.scale[(2 * i + k / 8) * p->tokens + t];
            p->x[t][i] = _mm512_loadu_si512(q);
            p->start[t][i] = _mm512_mullo_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, p->x[t][i]), _mm512_set1_epi32(-128));
            p->scale[t][i] = _mm512_loadu_ps(scale);
        }
}

static void *get(size_t bytes)
{
    void *place = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!place) die("memory");
    memset(place, 0, bytes);
    return place;
}

static void measure_product(es_dtype type, bool dp, int32_t tokens, int64_t rows, int runs)
{
    product *p = get(sizeof *p);
    *p = (product){.rows = rows, .tokens = tokens, .type = type, .dp = dp};
    if (es_kernels_select(NULL, &p->kernels) != ES_OK) die("kernels");
    const es_dtype_info *info = es_dtype_get_info(type);
    es_bits bits = {5};
    unsigned char *w = get(es_dtype_bytes(type, (rows + AHEAD) * COLUMNS));
    es_random_blocks(&bits, type, rows * COLUMNS / info->block, 0.02f, w);
    p->w = w;
    float *x = get(MOST_TOKENS * COLUMNS * sizeof *x), *scale = get(4096), *sum = get(4096);
    const float *row[MOST_TOKENS];
    for (int i = 0; i < MOST_TOKENS * COLUMNS; i++) x[i] = es_bits_between(&bits, -1, 1);
    for (int t = 0; t < MOST_TOKENS; t++) row[t] = x + t * COLUMNS;
    void *data = get(16 * COLUMNS * 2);
    uint16_t *bf16 = get(MOST_TOKENS * (COLUMNS + ES_TOKENS_APART) * 2);
    p->panel = (es_panel){tokens, COLUMNS / 32, data, scale, sum};
    p->bf16 = (es_bf16_tokens){bf16, COLUMNS + ES_TOKENS_APART, tokens};
    for (int t = 0; t < tokens; t++) p->kernels.products.encode_bf16(row + t, 1, COLUMNS, bf16 + t * p->bf16.stride);
    if (type == ES_Q8_0) p->kernels.products.encode_int8(row, tokens, COLUMNS, data, scale, sum), lay_out(p);
    else p->kernels.products.encode_bf16(row, tokens, COLUMNS, data);
    p->unpack = (es_unpack_room){get(16 * COLUMNS * 2), get(COLUMNS * 4), get(COLUMNS * 4)};
    p->out = get((size_t)rows * 16 * sizeof(float)), p->mine = get((size_t)rows * (size_t)tokens * sizeof(float));
    const pair_of_times t = time_both(product_with_promise, product_without_promise, p, runs, rows < 1000 ? 50 : 1);
    double apart = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int32_t k = 0; k < tokens; k++)
            apart = fmax(apart, fabs((double)p->out[r / 16 * 256 + k * 16 + r % 16] - (double)p->mine[r * tokens + k]));
    char what[96];
    const char *name = type == ES_Q8_0 ? "Q8_0 int8" : dp ? "BF16 bf16dp" : "BF16 bf16";
    snprintf(what, sizeof what, "product, %s, %d token%s, %" PRId64 " x %d (%s)", name, tokens,
             tokens > 1 ? "s" : "", rows, COLUMNS, rows < 1000 ? "cached" : "memory");
    put_row(what, t, apart);
    free(w), free(x), free(scale), free(sum), free(data), free(bf16), free(p->unpack.q), free(p->unpack.scale);
    free(p->unpack.offset), free(p->out), free(p->mine), free(p);
}

int main(int argc, char **argv)
{
    const int runs = argc > 1 && atoi(argv[1]) > 0 && atoi(argv[1]) <= MOST_RUNS ? atoi(argv[1]) : 15;
    if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512bf16")) {
        fprintf(stderr, "price_of_bits: this machine lacks AVX-512 with VNNI and BF16\n");
        return 1;
    }
    printf("%-52s %13s %13s %9s   %s\n", "", "ours", "without", "price", "apart");
    for (int32_t kv_heads = 1; kv_heads <= 2; kv_heads++) {
        measure_attention(kv_heads, 1024, runs);
        measure_attention(kv_heads, 16384, runs);
        measure_attention(kv_heads, 100000, runs);
    }
    for (int64_t rows = 256; rows <= 65536; rows *= 256)
        for (int32_t tokens = 1; tokens <= 8; tokens += 7) {
            measure_product(ES_Q8_0, false, tokens, rows, runs);
            measure_product(ES_BF16, false, tokens, rows, runs);
            measure_product(ES_BF16, true, tokens, rows, runs);
        }
    return 0;
}
