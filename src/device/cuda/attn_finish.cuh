/* attn_finish.cuh: the second pass over the items that several blocks shared: their published nodes become one, in the tree.
 * Every published word is read by one thread, once.
 *
 * A task is 32 channels of one query row. Eight lanes of four channels make a group; each group takes the nodes of one or
 * two of the item's 32 equal subtrees, whose places the plan lists, and then the groups merge in the binary tree of their
 * index. A node that is larger than a subtree stands alone in the first subtree it covers; a subtree without nodes changes
 * nothing: the merges are the same whoever published what. */
#ifndef ES_CUDA_ATTN_FINISH_CUH
#define ES_CUDA_ATTN_FINISH_CUH

#include "device/cuda/attn_pipe.cuh"
#include "device/cuda/attn_state.cuh"

/* One row's partial, four channels of it. */
typedef struct es_attn_four {
    float m, l;
    float4 o;
} es_attn_four;

static __device__ __forceinline__ void es_attn_merge_four(es_attn_four &left, const es_attn_four &right)
{
    const es_attn_merging how = es_attn_merge(left.m, left.l, right.m, right.l);
    left.o.x = es_attn_merged(how, left.o.x, right.o.x);
    left.o.y = es_attn_merged(how, left.o.y, right.o.y);
    left.o.z = es_attn_merged(how, left.o.z, right.o.z);
    left.o.w = es_attn_merged(how, left.o.w, right.o.w);
}

/* A subtree in the making: at most one node of each height waits, in shared memory, for its right sibling. */
typedef struct es_attn_subtree {
    float4 *o;    /* [heights][threads that finish: there may be more in the block] */
    float2 *ml;   /* likewise */
    uint32_t have;
} es_attn_subtree;

template <int THREADS>
static __device__ __forceinline__ void es_attn_add(es_attn_subtree &tree, es_attn_four node, int32_t place, int top)
{
    int height = place & 31, index = (place >> 5) >> height;
    if (height > top) height = top; /* alone in its subtree */
    for (; height < top && (index & 1) && (tree.have >> height & 1); height++, index >>= 1) {
        const int at = height * THREADS + threadIdx.x;
        es_attn_four left = {tree.ml[at].x, tree.ml[at].y, tree.o[at]};
        es_attn_merge_four(left, node);
        node = left;
        tree.have &= ~(1u << height);
    }
    const int at = height * THREADS + threadIdx.x;
    tree.ml[at] = make_float2(node.m, node.l);
    tree.o[at] = node.o;
    tree.have |= 1u << height;
}

/* The right edge of the subtree: nodes of falling height, merged from the right. */
template <int THREADS>
static __device__ __forceinline__ bool es_attn_close(es_attn_subtree &tree, es_attn_four &sum)
{
    bool there = false;
    for (uint32_t rest = tree.have; rest; rest &= rest - 1) {
        const int at = (__ffs(rest) - 1) * THREADS + threadIdx.x;
        es_attn_four left = {tree.ml[at].x, tree.ml[at].y, tree.o[at]};
        if (there) es_attn_merge_four(left, sum);
        sum = left;
        there = true;
    }
    tree.have = 0;
    return there;
}

/* Reads four channels of a node, as soon as they are there, and clears them behind itself. */
static __device__ __forceinline__ bool es_attn_look(const es_attn_args &a, int64_t row, int slice, int channel, es_attn_four &node)
{
    const float2 *ml = a.node_ml + row * es_attn_slices(a.head_dim) + slice;
    uint32_t m, l, o[4] = {0, 0, 0, 0};
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(m), "=r"(l) : "l"(ml) : "memory");
    if (channel < a.head_dim)
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3]) : "l"(a.node_o + row * a.head_dim + channel) : "memory");
    node.m = __uint_as_float(m), node.l = __uint_as_float(l);
    node.o = make_float4(__uint_as_float(o[0]), __uint_as_float(o[1]), __uint_as_float(o[2]), __uint_as_float(o[3]));
    return m != ES_ATTN_NOTHING && l != ES_ATTN_NOTHING && o[0] != ES_ATTN_NOTHING && o[1] != ES_ATTN_NOTHING &&
           o[2] != ES_ATTN_NOTHING && o[3] != ES_ATTN_NOTHING;
}

/* Clears what the eight lanes of a group have read; the m and l that they share come last, from one of them. */
static __device__ __forceinline__ void es_attn_clear_node(const es_attn_args &a, int64_t row, int slice, int channel)
{
    const uint32_t none = ES_ATTN_NOTHING;
    if (channel < a.head_dim)
        asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(a.node_o + row * a.head_dim + channel), "r"(none)
                     : "memory");
    if (channel % ES_ATTN_TASK == 0)
        asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %1};" ::"l"(a.node_ml + row * es_attn_slices(a.head_dim) + slice),
                     "r"(none)
                     : "memory");
}

/* Folds the nodes of one subtree; false when it has none. `loose` takes them one after the other. Nodes are read several at a
 * time, so that their latencies overlap: fewer where registers are few (FEW). All eight lanes of the group are here together. */
template <int THREADS, bool LOOSE, bool FEW>
static __device__ __forceinline__ bool es_attn_fold_subtree(const es_attn_args &a, int32_t from, int32_t to, int row, int slice,
                                                            int top, const int32_t *place, es_attn_subtree &tree, es_attn_four &sum)
{
    constexpr int AHEAD = FEW ? 4 : 8;
    const int channel = slice * ES_ATTN_TASK + (threadIdx.x & 7) * 4;
    const uint32_t group = 0xFFu << (threadIdx.x & 24);
    bool there = false;
    for (int32_t first = from; first < to; first += AHEAD) {
        es_attn_four node[AHEAD];
        int32_t where[AHEAD];
        bool all;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) where[i] = first + i < to ? place[first + i] : 0;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (first + i < to) all &= es_attn_look(a, (int64_t)(first + i) * a.row_tile + row, slice, channel, node[i]);
        } while (!__all_sync(group, all));
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (first + i < to) es_attn_clear_node(a, (int64_t)(first + i) * a.row_tile + row, slice, channel);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i >= to) break;
            if (!LOOSE) es_attn_add<THREADS>(tree, node[i], where[i], top);
            else if (there) es_attn_merge_four(sum, node[i]);
            else sum = node[i];
            there = true;
        }
    }
    return LOOSE ? there : es_attn_close<THREADS>(tree, sum);
}

static __device__ __forceinline__ es_attn_four es_attn_from_lane(const es_attn_four &mine, int lane)
{
    es_attn_four other;
    other.m = __shfl_sync(0xffffffffu, mine.m, lane), other.l = __shfl_sync(0xffffffffu, mine.l, lane);
    other.o.x = __shfl_sync(0xffffffffu, mine.o.x, lane), other.o.y = __shfl_sync(0xffffffffu, mine.o.y, lane);
    other.o.z = __shfl_sync(0xffffffffu, mine.o.z, lane), other.o.w = __shfl_sync(0xffffffffu, mine.o.w, lane);
    return other;
}

/* left ← left ⊕ right, where either may be missing. */
static __device__ __forceinline__ void es_attn_join(es_attn_four &left, bool &there, const es_attn_four &right, bool right_there)
{
    if (right_there && there) es_attn_merge_four(left, right);
    else if (right_there) left = right;
    there |= right_there;
}

/* The four groups of a warp merge pairwise; the result is lanes 0 to 7's, what the others hold counts for nothing. */
static __device__ __forceinline__ void es_attn_join_groups(es_attn_four &sum, bool &there, int lane)
{
    for (int step = 8; step < 32; step *= 2) {
        const es_attn_four right = es_attn_from_lane(sum, (lane + step) & 31);
        const bool right_there = __shfl_sync(0xffffffffu, (int)there, (lane + step) & 31);
        es_attn_join(sum, there, right, right_there);
    }
}

/* Bytes of shared memory that a finish by `threads` threads needs. */
static inline __host__ __device__ int es_attn_finish_bytes(int threads, int top)
{
    return (top + 1) * threads * (int)(sizeof(float4) + sizeof(float2)) + threads / 32 * 8 * (int)sizeof(es_attn_four) + threads;
}

/* Height of the tree above a subtree's leaves, for an item of so many partitions. */
static inline __host__ __device__ int es_attn_subtree_height(int64_t partitions)
{
    int top = 0;
    while (((int64_t)ES_CUDA_ATTN_GROUPS << top) < partitions) top++;
    return top;
}

/* One task of a split item, by all THREADS threads of a block (or those that come to named barrier 1). */
template <int THREADS, bool LOOSE, bool FEW>
static __device__ __forceinline__ void es_attn_finish_task(const es_attn_args &a, const es_cuda_attn_split &split,
                                                           const int32_t *place, int row, int slice, char *scratch)
{
    constexpr int EACH = ES_CUDA_ATTN_GROUPS * 8 / THREADS, WARPS = THREADS / 32;
    const int tid = threadIdx.x, lane = tid & 31, group = tid >> 3;
    const int channel = slice * ES_ATTN_TASK + (tid & 7) * 4;
    const int top = split.top;
    es_attn_subtree tree = {(float4 *)scratch, (float2 *)((float4 *)scratch + (top + 1) * THREADS), 0};
    es_attn_four *shared = (es_attn_four *)(tree.ml + (top + 1) * THREADS);
    bool *shared_there = (bool *)(shared + WARPS * 8);

    es_attn_four sum = {-INFINITY, 0, make_float4(0, 0, 0, 0)};
    bool there = es_attn_fold_subtree<THREADS, LOOSE, FEW>(a, split.group[group * EACH], split.group[group * EACH + 1], row, slice, top, place,
                                                      tree, sum);
    if (EACH == 2) {
        es_attn_four right = sum;
        const bool right_there = es_attn_fold_subtree<THREADS, LOOSE, FEW>(a, split.group[group * EACH + 1], split.group[group * EACH + 2], row,
                                                             slice, top, place, tree, right);
        es_attn_join(sum, there, right, right_there);
    }
    __syncwarp();
    es_attn_join_groups(sum, there, lane);
    if (lane < 8) shared[(tid >> 5) * 8 + lane] = sum, shared_there[(tid >> 5) * 8 + lane] = there;
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    if (tid < 32) { /* the warps' sums: pairs first where there are eight, then as above */
        const int at = (lane >> 3) * (WARPS / 4) * 8 + (lane & 7);
        sum = shared[at], there = shared_there[at];
        if (WARPS == 8) es_attn_join(sum, there, shared[at + 8], shared_there[at + 8]);
        __syncwarp();
        es_attn_join_groups(sum, there, lane);
    }
    if (tid < 8) {
        const float inverse = es_attn_inverse(sum.l);
        const float o[4] = {sum.o.x, sum.o.y, sum.o.z, sum.o.w};
        for (int i = 0; i < 4; i++)
            if (channel + i < a.head_dim) es_attn_write(a, split.kv_head, split.first_row, row, channel + i, o[i], inverse);
    }
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

/* Tasks of an item: slices of its rows. */
static __device__ __forceinline__ int es_attn_tasks(const es_attn_args &a, const es_cuda_attn_split &split)
{
    return split.tokens * a.group * es_attn_slices(a.head_dim);
}

template <int THREADS, bool LOOSE, bool FEW>
static __device__ __forceinline__ void es_attn_finish_tasks(const es_attn_args &a, const es_cuda_attn_split &split,
                                                            const int32_t *place, int first, int step, char *scratch)
{
    const int slices = es_attn_slices(a.head_dim), tasks = es_attn_tasks(a, split);
    for (int task = first; task < tasks; task += step)
        es_attn_finish_task<THREADS, LOOSE, FEW>(a, split, place, task / slices, task % slices, scratch);
}

static __device__ __forceinline__ const es_cuda_attn_split *es_attn_splits(const es_cuda_attn_plan *plan)
{
    const es_cuda_attn_block *block = (const es_cuda_attn_block *)(plan + 1);
    return (const es_cuda_attn_split *)((const es_cuda_attn_piece *)(block + plan->blocks) + plan->more);
}

static __device__ __forceinline__ const int32_t *es_attn_places(const es_cuda_attn_plan *plan)
{
    return (const int32_t *)(es_attn_splits(plan) + plan->splits);
}

/* The finish as a kernel of its own, which starts while the blocks of the first one drain. */
template <bool LOOSE>
static __global__ void __launch_bounds__(256) es_attn_finish_kernel(const __grid_constant__ es_attn_args a)
{
    extern __shared__ __align__(16) char scratch[];
    es_wait_for_previous();
    const es_cuda_attn_split *splits = es_attn_splits(a.plan);
    const int32_t *place = es_attn_places(a.plan);
    int before = 0, next = blockIdx.x;
    for (int s = 0; s < a.plan->splits; s++) {
        const int tasks = es_attn_tasks(a, splits[s]), last = next + (before + tasks - next + (int)gridDim.x - 1) / (int)gridDim.x * (int)gridDim.x;
        if (next < before + tasks) {
            es_attn_finish_tasks<256, LOOSE, false>(a, splits[s], place, next - before, gridDim.x, scratch);
            next = last;
        }
        before += tasks;
    }
}

#endif
