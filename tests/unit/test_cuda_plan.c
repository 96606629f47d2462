/* Attention plans for GPUs, walked on the host: every partition is folded once, and whatever the blocks publish merges in
 * the one tree. Cards that are not here are planned for as well: 16 multiprocessors, or one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "device/cuda/attn_plan.h"
#include "share/plan.h"

#define MOST_NODES 16384

/* A node stands for the bits of its subtree: a hash that depends on the order of merging. */
typedef struct node {
    int32_t start, height;
    uint64_t bits;
} node;

static uint64_t mix(uint64_t a, uint64_t b)
{
    const uint64_t x = (a ^ 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u + b * 31;
    return x ^ (x >> 29);
}

static bool are_siblings(const node *a, const node *b)
{
    return a->height == b->height && ((a->start >> a->height) & 1) == 0 && b->start == a->start + (1 << a->height);
}

static int32_t push(node *stack, int32_t count, node n)
{
    stack[count++] = n;
    while (count > 1 && are_siblings(&stack[count - 2], &stack[count - 1])) {
        stack[count - 2].bits = mix(stack[count - 2].bits, stack[count - 1].bits);
        stack[count - 2].height++;
        count--;
    }
    return count;
}

static uint64_t finish(const node *stack, int32_t count)
{
    uint64_t bits = stack[count - 1].bits;
    for (int32_t i = count - 2; i >= 0; i--) bits = mix(stack[i].bits, bits);
    return bits;
}

/* What one worker alone would get. */
static uint64_t whole(int32_t partitions)
{
    node stack[64];
    int32_t count = 0;
    for (int32_t p = 0; p < partitions; p++) count = push(stack, count, (node){p, 0, mix(7, (uint64_t)p)});
    return finish(stack, count);
}

/* As the kernel finishes a shared item: merges level by level, each into its left one; those of a level touch nothing twice.
 */
static uint64_t finish_split(const es_cuda_attn_split *split, const int32_t *schedule, const node *published)
{
    static uint64_t bits[ES_CUDA_ATTN_MOST_NODES];
    static int32_t touched[ES_CUDA_ATTN_MOST_NODES];
    const int32_t *begin = schedule + split->schedule, *pair = begin + split->levels + 1;
    assert_in_range(split->nodes, 2, ES_CUDA_ATTN_MOST_NODES);
    assert_int_equal(begin[split->levels], split->nodes - 1);
    for (int32_t i = 0; i < split->nodes; i++) bits[i] = published[split->node + i].bits, touched[i] = -1;
    for (int32_t level = 0; level < split->levels; level++)
        for (int32_t i = begin[level]; i < begin[level + 1]; i++) {
            const int32_t left = pair[i] & 0xFFFF, right = pair[i] >> 16;
            assert_true(left < right && right < split->nodes && touched[left] < level && touched[right] < level);
            touched[left] = touched[right] = level;
            bits[left] = mix(bits[left], bits[right]);
        }
    return bits[0];
}

/* As it finishes one whose nodes are even: in the tree of their index, without a schedule. */
static uint64_t finish_even(const es_cuda_attn_split *split, const node *published)
{
    static uint64_t bits[ES_CUDA_ATTN_MOST_NODES];
    for (int32_t i = 0; i < split->nodes; i++) bits[i] = published[split->node + i].bits;
    for (int32_t step = 1; step < split->nodes; step *= 2)
        for (int32_t i = 0; i + step < split->nodes; i += 2 * step) bits[i] = mix(bits[i], bits[i + step]);
    return bits[0];
}

typedef struct walk {
    uint64_t answer[512];
    int32_t seen[512]; /* pieces of split items */
    int32_t items, units;
    node slot[MOST_NODES];
} walk;

static void walk_piece(walk *w, const es_cuda_attn_piece *piece, int32_t keys_most)
{
    node stack[64];
    int32_t count = 0;
    assert_true(piece->from < piece->to && es_cuda_attn_begin(piece) < es_cuda_attn_end(piece));
    for (int32_t p = piece->from; p < piece->to; p++) {
        count = push(stack, count, (node){p, 0, mix(7, (uint64_t)p)});
        assert_true((int64_t)p * piece->chain * ES_CUDA_ATTN_STEP < keys_most);
    }
    w->units += es_cuda_attn_end(piece) - es_cuda_attn_begin(piece);
    if (piece->split < 0) {
        assert_int_equal(piece->from, 0);
        assert_true(finish(stack, count) ==
                    whole((piece->start + piece->tokens - 1) / (piece->chain * ES_CUDA_ATTN_STEP) + 1));
        return;
    }
    assert_int_equal(count, piece->nodes);
    memcpy(&w->slot[piece->node], stack, (size_t)count * sizeof *stack);
    assert_int_equal(w->seen[piece->split]++, piece->part);
}

/* Walks a plan as the blocks would; returns the largest share, in steps. */
static int32_t check_plan(const es_cuda_attn_plan *plan, int32_t keys_most)
{
    static walk w;
    memset(&w, 0, sizeof w);
    const es_cuda_attn_block *block = (const es_cuda_attn_block *)(plan + 1);
    const es_cuda_attn_piece *more = (const es_cuda_attn_piece *)(block + plan->blocks);
    const es_cuda_attn_split *split = (const es_cuda_attn_split *)(more + plan->more);
    const int32_t *schedule = (const int32_t *)(split + plan->splits);
    int32_t partitions[512] = {0}, largest = 0;
    for (int32_t b = 0; b < plan->blocks; b++) {
        const int32_t before = w.units;
        int32_t splits = 0;
        if (block[b].first.from == block[b].first.to) continue;
        for (int32_t i = block[b].next - 1; i < block[b].last; i++) {
            const es_cuda_attn_piece *piece = i < block[b].next ? &block[b].first : &more[i];
            walk_piece(&w, piece, keys_most);
            splits += piece->split >= 0;
            assert_int_equal(piece->even, piece->split >= 0 && split[piece->split].even);
            if (piece->split >= 0 && piece->to > partitions[piece->split]) partitions[piece->split] = piece->to;
        }
        assert_in_range(splits, 0, 2); /* what the workspace counts on */
        if (w.units - before > largest) largest = w.units - before;
    }
    for (int32_t s = 0; s < plan->splits; s++) {
        assert_int_equal(w.seen[s], split[s].parts);
        assert_true(finish_split(&split[s], schedule, w.slot) == whole(partitions[s]));
        if (split[s].even) assert_true(finish_even(&split[s], w.slot) == whole(partitions[s]));
    }
    assert_int_equal(w.units, plan->units);
    return largest;
}

/* A block's first copies read page numbers that the plan carries. */
static void check_pages(const es_cuda_attn_plan *plan, const int32_t *pages)
{
    const es_cuda_attn_block *block = (const es_cuda_attn_block *)(plan + 1);
    for (int32_t b = 0; b < plan->blocks; b++) {
        const es_cuda_attn_piece *piece = &block[b].first;
        const int32_t first = es_cuda_attn_begin(piece) * ES_CUDA_ATTN_STEP;
        for (int32_t i = first;
             piece->from < piece->to && i < first + ES_CUDA_ATTN_STEP && i < piece->start + piece->tokens; i++)
            assert_int_equal(block[b].page[i / plan->page - first / plan->page], pages[piece->first_page + i / plan->page]);
    }
}

static int32_t plan_and_check(const es_cuda_attn_shape *shape, const es_cuda_attn_span *span, int32_t spans, int32_t blocks,
                              int32_t unit)
{
    es_cuda_attn_limits limits = {.blocks = blocks, .spans = spans};
    for (int32_t s = 0; s < spans; s++) {
        limits.rows += span[s].rows;
        if (span[s].start + span[s].rows > limits.context) limits.context = span[s].start + span[s].rows;
    }
    int32_t most_pages = 0;
    for (int32_t i = 0; i < spans; i++) {
        const int32_t last = span[i].first_page + (span[i].start + span[i].rows - 1) / shape->page;
        if (last >= most_pages) most_pages = last + 1;
    }
    int32_t *pages = malloc((size_t)most_pages * sizeof *pages);
    for (int32_t i = 0; i < most_pages; i++) pages[i] = 3 * i + 1;
    void *scratch = malloc((size_t)es_cuda_attn_items(shape, &limits) * sizeof(es_plan_item));
    const size_t most = es_cuda_attn_plan_bytes(shape, &limits);
    es_cuda_attn_plan *plan = malloc(most);
    const size_t bytes = es_cuda_attn_plan_write(shape, span, spans, pages, blocks, unit, scratch, plan);
    assert_in_range(bytes, sizeof *plan, most);
    assert_in_range(plan->nodes, 0, es_cuda_attn_nodes(shape, &limits));
    const int32_t largest = check_plan(plan, limits.context);
    check_pages(plan, pages);
    if (unit == 0) assert_int_equal(plan->splits, 0);
    free(plan), free(scratch), free(pages);
    return largest;
}

static const es_cuda_attn_shape hybrid = {.query_heads = 16, .kv_heads = 2, .head_dim = 256, .page = 64, .row_tile = 8};

static void any_plan_merges_in_the_one_tree(void **state)
{
    (void)state;
    const int32_t lengths[] = {1, 127, 128, 129, 1000, 8192, 100000, 102400}, counts[] = {1, 2, 16, 60, 131, 132, 264};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t j = 0; j < sizeof counts / sizeof *counts; j++)
            for (int32_t unit = 0; unit <= 8; unit = unit ? unit * 2 : 1) {
                const es_cuda_attn_span span = {.rows = 1, .start = lengths[i] - 1};
                plan_and_check(&hybrid, &span, 1, counts[j], unit);
            }
}

/* Splits of one sequence's plan that say they are even, each of `nodes` nodes where that is known. */
static int32_t count_even(int32_t keys, int32_t blocks, int32_t unit, int32_t nodes)
{
    const es_cuda_attn_span span = {.rows = 1, .start = keys - 1};
    es_cuda_attn_plan *plan = malloc(1 << 20);
    void *scratch = malloc(1 << 16);
    int32_t even = 0;
    assert_true(es_cuda_attn_plan_write(&hybrid, &span, 1, NULL, blocks, unit, scratch, plan));
    const es_cuda_attn_block *block = (const es_cuda_attn_block *)(plan + 1);
    const es_cuda_attn_split *split =
        (const es_cuda_attn_split *)((const es_cuda_attn_piece *)(block + plan->blocks) + plan->more);
    for (int32_t s = 0; s < plan->splits; s++) {
        if (nodes) assert_int_equal(split[s].nodes, nodes);
        even += split[s].even;
    }
    free(plan), free(scratch);
    return even;
}

/* One partition a block, as with 8,192 keys on 132 blocks; 8,100 have a shorter last one. */
static void nodes_of_one_height_say_so(void **state)
{
    (void)state;
    assert_int_equal(count_even(8192, 132, ES_CUDA_ATTN_AUTO, 64), 2);
    assert_int_equal(count_even(8100, 132, ES_CUDA_ATTN_AUTO, 64), 2);
    assert_int_equal(count_even(4096, 132, ES_CUDA_ATTN_AUTO, 32), 2);
    assert_int_equal(count_even(32768, 132, ES_CUDA_ATTN_AUTO, 64), 2);
    assert_int_equal(count_even(8192, 40, 1, 0), 0);     /* pieces of three and four partitions */
    assert_int_equal(count_even(8192, 64, 2, 32), 2);    /* two slices a block */
    assert_int_equal(count_even(8192, 32, 4, 16), 2);    /* four */
    assert_int_equal(count_even(16383, 264, 1, 128), 0); /* too many nodes */
}

static void ragged_batches_are_shared_out_evenly(void **state)
{
    (void)state;
    es_cuda_attn_span span[64];
    const int32_t lengths[] = {100, 100000, 3000, 700, 25000, 128, 64000, 9999};
    int32_t units = 0;
    for (int32_t s = 0; s < 64; s++) {
        span[s] = (es_cuda_attn_span){.first_row = s, .rows = 1, .start = lengths[s % 8] - 1, .first_page = s * 2000};
        units += 2 * ((lengths[s % 8] + 127) / 128);
    }
    for (int32_t blocks = 1; blocks <= 264; blocks += 13)
        assert_in_range(plan_and_check(&hybrid, span, 64, blocks, 1), units / blocks,
                        units / blocks + 2 + ES_CUDA_ATTN_MOST_CHAIN);
    /* A small card of 16 multiprocessors: 100,000 tokens, whose units of 512 and 1,024 docs/plan.md works out. */
    const es_cuda_attn_span one = {.rows = 1, .start = 99999};
    const es_cuda_attn_shape single = {.query_heads = 8, .kv_heads = 1, .head_dim = 128, .page = 16, .row_tile = 8};
    assert_int_equal(plan_and_check(&single, &one, 1, 16, 4), 13 * 4);
    assert_int_equal(plan_and_check(&single, &one, 1, 16, 8), 7 * 8);
    assert_int_equal(plan_and_check(&single, &one, 1, 16, 0), 782);
}

static void cuts_get_coarser_where_an_item_would_have_too_many_nodes(void **state)
{
    (void)state;
    const es_cuda_attn_shape single = {.query_heads = 8, .kv_heads = 1, .head_dim = 128, .page = 64, .row_tile = 8};
    const es_cuda_attn_span span = {.rows = 1, .start = 999999};
    for (int32_t unit = 1; unit <= 2; unit++) plan_and_check(&single, &span, 1, 528, unit);
    plan_and_check(&single, &span, 1, 528, ES_CUDA_ATTN_AUTO);
}

static void prompts_are_tiles_of_query_rows(void **state)
{
    (void)state;
    const es_cuda_attn_shape wide = {.query_heads = 16, .kv_heads = 4, .head_dim = 256, .page = 16, .row_tile = 32};
    const es_cuda_attn_span span[3] = {
        {0,   100, 5000, 0  },
        {100, 1,   70,   400},
        {101, 37,  0,    500}
    };
    for (int32_t blocks = 1; blocks < 40; blocks += 7) plan_and_check(&wide, span, 3, blocks, 1);
}

/* How long partitions are depends on how many keys a token sees, and on nothing else: not on the tile that it is in. */
static void check_chains(const es_cuda_attn_plan *plan, int32_t kv_heads, int32_t *longest)
{
    const es_cuda_attn_block *block = (const es_cuda_attn_block *)(plan + 1);
    const es_cuda_attn_piece *more = (const es_cuda_attn_piece *)(block + plan->blocks);
    for (int32_t b = 0; b < plan->blocks; b++)
        for (int32_t i = block[b].next - 1; block[b].first.tokens && i < block[b].last; i++) {
            const es_cuda_attn_piece *piece = i < block[b].next ? &block[b].first : &more[i];
            for (int32_t token = 0; token < piece->tokens; token++)
                assert_int_equal(es_cuda_attn_chain(kv_heads, piece->start + token + 1), piece->chain);
            if (piece->chain > *longest) *longest = piece->chain;
        }
}

static void a_tile_ends_where_longer_partitions_begin(void **state)
{
    (void)state;
    assert_int_equal(es_cuda_attn_chain(4, 8191), 1);
    assert_int_equal(es_cuda_attn_chain(4, 8192), 2);
    assert_int_equal(es_cuda_attn_chain(4, 16384), 4);
    assert_int_equal(es_cuda_attn_chain(4, 1000000), ES_CUDA_ATTN_MOST_CHAIN);
    const es_cuda_attn_shape shape = {.query_heads = 32, .kv_heads = 16, .head_dim = 64, .page = 64, .row_tile = 128};
    es_cuda_attn_plan *plan = malloc(1 << 20);
    void *scratch = malloc(1 << 16);
    int32_t longest = 0;
    for (int32_t start = 1900; start < 9000; start += 97) {
        const es_cuda_attn_span span = {.rows = 300, .start = start};
        plan_and_check(&shape, &span, 1, 132, 1);
        assert_true(es_cuda_attn_plan_write(&shape, &span, 1, NULL, 132, ES_CUDA_ATTN_AUTO, scratch, plan));
        check_chains(plan, shape.kv_heads, &longest);
    }
    assert_int_equal(longest, ES_CUDA_ATTN_MOST_CHAIN);
    free(plan), free(scratch);
}

/* A prompt's items stay whole while the blocks have about as much each, and are shared where they are too few. */
static void a_prompt_is_dealt_out_whole(void **state)
{
    (void)state;
    const es_cuda_attn_shape shape = {.query_heads = 16, .kv_heads = 4, .head_dim = 256, .page = 64, .row_tile = 128};
    const int32_t starts[] = {0, 2048, 100352};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const es_cuda_attn_span prompt = {.rows = 2048, .start = starts[i]};
        int32_t steps = 0;
        for (int32_t token = 31; token < 2048; token += 32) steps += 4 * ((starts[i] + token) / ES_CUDA_ATTN_STEP + 1);
        assert_in_range(plan_and_check(&shape, &prompt, 1, 132, ES_CUDA_ATTN_AUTO), steps / 132, steps / 132 * 5 / 4);
        assert_int_equal(plan_and_check(&shape, &prompt, 1, 132, ES_CUDA_ATTN_AUTO),
                         plan_and_check(&shape, &prompt, 1, 132, 0));
    }
    const es_cuda_attn_span few = {.rows = 64, .start = 100352};
    const int32_t whole = plan_and_check(&shape, &few, 1, 132, 0);
    assert_int_equal(whole, 785);
    assert_in_range(plan_and_check(&shape, &few, 1, 132, ES_CUDA_ATTN_AUTO), 8 * 785 / 132, 8 * 785 / 132 + 16);
}

static void impossible_shapes_are_refused(void **state)
{
    (void)state;
    char scratch[64], plan[64];
    const es_cuda_attn_span span = {.rows = 1, .start = 5}, empty = {.rows = 0}, before = {.rows = 1, .start = -1};
    es_cuda_attn_shape shape = hybrid;
    shape.row_tile = 4; /* a group of 8 */
    assert_int_equal(es_cuda_attn_plan_write(&shape, &span, 1, NULL, 4, 1, scratch, plan), 0);
    shape = hybrid, shape.kv_heads = 3;
    assert_int_equal(es_cuda_attn_plan_write(&shape, &span, 1, NULL, 4, 1, scratch, plan), 0);
    shape = hybrid, shape.page = 24;
    assert_int_equal(es_cuda_attn_plan_write(&shape, &span, 1, NULL, 4, 1, scratch, plan), 0);
    assert_int_equal(es_cuda_attn_plan_write(&hybrid, &span, 1, NULL, 0, 1, scratch, plan), 0);
    assert_int_equal(es_cuda_attn_plan_write(&hybrid, &empty, 1, NULL, 4, 1, scratch, plan), 0);
    assert_int_equal(es_cuda_attn_plan_write(&hybrid, &before, 1, NULL, 4, 1, scratch, plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_plan_merges_in_the_one_tree),
        cmocka_unit_test(nodes_of_one_height_say_so),
        cmocka_unit_test(ragged_batches_are_shared_out_evenly),
        cmocka_unit_test(cuts_get_coarser_where_an_item_would_have_too_many_nodes),
        cmocka_unit_test(prompts_are_tiles_of_query_rows),
        cmocka_unit_test(a_tile_ends_where_longer_partitions_begin),
        cmocka_unit_test(a_prompt_is_dealt_out_whole),
        cmocka_unit_test(impossible_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
