/* attn_finish.cuh: the second pass over the items that several blocks shared: their published nodes become one, in the tree.
 *
 * A task is a slice of 32 channels of one query row. All nodes' records of a block's tasks are fetched into shared memory, as
 * many tasks at once as fit, and then merged level by level as the plan's schedule says: groups of eight lanes, four channels
 * each, do one merge at a time, and merges of a level are independent. Which block does what changes nothing.
 *
 * Code that runs once a launch is fetched once a launch: loops are not unrolled here. */
#ifndef ES_CUDA_ATTN_FINISH_CUH
#define ES_CUDA_ATTN_FINISH_CUH

#include "device/cuda/attn_pipe.cuh"
#include "device/cuda/attn_state.cuh"

/* Nodes' records that fit at once, and the shared memory they and a schedule take. */
#define ES_ATTN_FINISH_ROOM ES_CUDA_ATTN_MOST_NODES

static inline __host__ __device__ int es_attn_finish_bytes(void)
{
    return ES_ATTN_FINISH_ROOM * ES_ATTN_RECORD * (int)sizeof(float) + (ES_CUDA_ATTN_MOST_NODES + 64) * (int)sizeof(int32_t);
}

static __device__ __forceinline__ bool es_attn_is_there(float x)
{
    return __float_as_uint(x) != ES_ATTN_NOTHING;
}

/* Asks for a record: sixteen bytes of o a lane, and m and l by the first. */
static __device__ __forceinline__ void es_attn_fetch(float *to, const float *from)
{
    const int lane = threadIdx.x & 7;
    es_fetch_16(to + lane * 4, from + lane * 4);
    if (lane == 0) es_fetch_16(to + ES_ATTN_SLICE, from + ES_ATTN_SLICE);
}

/* Clears a record behind its only reader. */
static __device__ __forceinline__ void es_attn_forget(float *from)
{
    const uint32_t none = ES_ATTN_NOTHING, lane = threadIdx.x & 7;
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(from + lane * 4), "r"(none) : "memory");
    if (lane == 0)
        asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(from + ES_ATTN_SLICE), "r"(none) : "memory");
}

/* Fetches a record again until all of it is there, then clears it behind its only reader. Channels beyond a head's end are
 * never written, nor waited for. */
static __device__ __forceinline__ void es_attn_settle(float *to, float *from, int channels)
{
    const int lane = threadIdx.x & 7;
    const uint32_t group = 0xFFu << (threadIdx.x & 24);
    for (;;) {
        const float4 o = *(const float4 *)(to + lane * 4);
        const bool there = es_attn_is_there(to[ES_ATTN_SLICE]) && es_attn_is_there(to[ES_ATTN_SLICE + 1]) &&
                           (lane * 4 >= channels || (es_attn_is_there(o.x) && es_attn_is_there(o.y) && es_attn_is_there(o.z) &&
                                                     es_attn_is_there(o.w)));
        if (__all_sync(group, there)) break;
        es_attn_fetch(to, from);
        es_fetched();
        __syncwarp(group);
    }
    es_attn_forget(from);
}

/* left ← left ⊕ right, by eight lanes. */
static __device__ __forceinline__ void es_attn_merge_records(float *left, const float *right, bool mine)
{
    const int lane = threadIdx.x & 7;
    float m = 0, l = 0;
    float4 o = make_float4(0, 0, 0, 0);
    if (mine) {
        m = left[ES_ATTN_SLICE], l = left[ES_ATTN_SLICE + 1];
        const es_attn_merging how = es_attn_merge(m, l, right[ES_ATTN_SLICE], right[ES_ATTN_SLICE + 1]);
        const float4 a = *(const float4 *)(left + lane * 4), b = *(const float4 *)(right + lane * 4);
        o = make_float4(es_attn_merged(how, a.x, b.x), es_attn_merged(how, a.y, b.y), es_attn_merged(how, a.z, b.z),
                        es_attn_merged(how, a.w, b.w));
    }
    __syncwarp(); /* all have read m and l */
    if (mine) *(float4 *)(left + lane * 4) = o;
    if (mine && lane == 0) left[ES_ATTN_SLICE] = m, left[ES_ATTN_SLICE + 1] = l;
}

template <int THREADS> static __device__ __forceinline__ void es_attn_finish_meet(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

/* Tasks of an item. */
static __device__ __forceinline__ int es_attn_tasks(const es_attn_args &a, const es_cuda_attn_split &split)
{
    return split.tokens * a.group * es_attn_slices(a.head_dim);
}

/* Tasks first, first + step, ... (count of them) of an item at once, by all THREADS threads that come to named barrier 1. */
template <int THREADS>
static __device__ __forceinline__ void es_attn_finish_some(const es_attn_args &a, const es_cuda_attn_split &split,
                                                           const int32_t *schedule, int first, int step, int count,
                                                           float *records)
{
    constexpr int GROUPS = THREADS / 8;
    const int group = threadIdx.x >> 3, slices = es_attn_slices(a.head_dim);
    const int all = count * split.nodes; /* records, task after task */
    const float per_task = 1.0f / split.nodes;
#pragma unroll 4
    for (int i = group; i < all; i += GROUPS) {
        const int t = (int)((i + 0.5f) * per_task), task = first + t * step; /* exact: both are small */
        es_attn_fetch(records + i * ES_ATTN_RECORD,
                      es_attn_record(a, split.node + i - t * split.nodes, task / slices, task % slices));
    }
    es_fetched();
    __syncwarp();
#pragma unroll 2
    for (int i = group; i < all; i += GROUPS) {
        const int t = (int)((i + 0.5f) * per_task), task = first + t * step, slice = task % slices;
        es_attn_settle(records + i * ES_ATTN_RECORD,
                       es_attn_record(a, split.node + i - t * split.nodes, task / slices, slice),
                       a.head_dim - slice * ES_ATTN_SLICE);
    }
    es_attn_finish_meet<THREADS>();
    const int32_t *pairs = schedule + split.levels + 1;
#pragma unroll 1
    for (int level = 0; level < split.levels; level++) {
        const int begin = schedule[level], merges = schedule[level + 1] - begin, work = merges * count;
        const float inverse = 1.0f / merges;
#pragma unroll 1
        for (int i = group & ~3; i < work; i += GROUPS) { /* the four groups of a warp stay together */
            const int mine = i + (group & 3), task = (int)((mine + 0.5f) * inverse); /* exact: both are small */
            const bool there = mine < work;
            const int pair = there ? pairs[begin + mine - task * merges] : 0;
            float *at = records + task * split.nodes * ES_ATTN_RECORD;
            es_attn_merge_records(at + (pair & 0xFFFF) * ES_ATTN_RECORD, at + (pair >> 16) * ES_ATTN_RECORD, there);
        }
        es_attn_finish_meet<THREADS>();
    }
#pragma unroll 1
    for (int i = group; i < count; i += GROUPS) {
        const int task = first + i * step, channel = task % slices * ES_ATTN_SLICE + (threadIdx.x & 7) * 4;
        const float *root = records + i * split.nodes * ES_ATTN_RECORD;
        if (channel < a.head_dim)
            es_attn_write_four(a, split.kv_head, split.first_row, task / slices, channel,
                               *(const float4 *)(root + channel % ES_ATTN_SLICE), es_attn_inverse(root[ES_ATTN_SLICE + 1]));
    }
    es_attn_finish_meet<THREADS>();
}

/* ---- few nodes of one height: in registers ---- */

/* A record as eight lanes hold it, four channels each. */
typedef struct es_attn_held {
    float m, l;
    float4 o;
} es_attn_held;

static __device__ __forceinline__ void es_attn_join(es_attn_held &left, const es_attn_held &right)
{
    const es_attn_merging how = es_attn_merge(left.m, left.l, right.m, right.l);
    left.o = make_float4(es_attn_merged(how, left.o.x, right.o.x), es_attn_merged(how, left.o.y, right.o.y),
                         es_attn_merged(how, left.o.z, right.o.z), es_attn_merged(how, left.o.w, right.o.w));
}

/* Eight records that a warp holds become one: two of each group of lanes, then groups with their neighbours. Group `at` of a
 * task has records 2·at and 2·at + 1, and record i stands for the nodes from i · each on; where there are none, nothing is
 * merged. */
static __device__ __forceinline__ void es_attn_join_warp(es_attn_held &x, const es_attn_held &y, int at, int each, int nodes)
{
    if ((2 * at + 1) * each < nodes) es_attn_join(x, y);
#pragma unroll 1
    for (int step = 1; step < 4; step *= 2) {
        const uint32_t all = 0xFFFFFFFFu;
        es_attn_held left, right;
        right.m = __shfl_xor_sync(all, x.m, step * 8), right.l = __shfl_xor_sync(all, x.l, step * 8);
        right.o.x = __shfl_xor_sync(all, x.o.x, step * 8), right.o.y = __shfl_xor_sync(all, x.o.y, step * 8);
        right.o.z = __shfl_xor_sync(all, x.o.z, step * 8), right.o.w = __shfl_xor_sync(all, x.o.w, step * 8);
        left = at & step ? right : x;
        if (at & step) right = x;
        if (((at | step) & ~(step - 1)) * 2 * each < nodes) es_attn_join(left, right);
        x = left;
    }
}

static __device__ __forceinline__ bool es_attn_take(es_attn_held &x, const float *from)
{
    const int lane = threadIdx.x & 7;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.o.x), "=f"(x.o.y), "=f"(x.o.z), "=f"(x.o.w)
                 : "l"(from + lane * 4)
                 : "memory");
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.m), "=f"(x.l) : "l"(from + ES_ATTN_SLICE) : "memory");
    return es_attn_is_there(x.m) && es_attn_is_there(x.l) && es_attn_is_there(x.o.x) && es_attn_is_there(x.o.y) &&
           es_attn_is_there(x.o.z) && es_attn_is_there(x.o.w);
}

/* Channels of one row, as a task has them, to where results go. */
static __device__ __forceinline__ void es_attn_write_held(const es_attn_args &a, const es_cuda_attn_split &split, int task,
                                                          const es_attn_held &x)
{
    const int slices = es_attn_slices(a.head_dim);
    es_attn_write_four(a, split.kv_head, split.first_row, task / slices, task % slices * ES_ATTN_SLICE + (threadIdx.x & 7) * 4,
                       x.o, es_attn_inverse(x.l));
}

/* Tasks first, first + step, ... of an even item, all at once: whole warps for each task, a group of lanes for two nodes. */
template <int THREADS>
static __device__ __forceinline__ void es_attn_finish_even(const es_attn_args &a, const es_cuda_attn_split &split, int first,
                                                           int step, char *scratch)
{
    const int lane = threadIdx.x & 7, group = threadIdx.x >> 3, warp = threadIdx.x >> 5, nodes = split.nodes;
    const int tasks = es_attn_tasks(a, split), slices = es_attn_slices(a.head_dim);
    const int log = nodes <= 8 ? 3 : 32 - __clz(nodes - 1), task = first + (2 * group >> log) * step;
    const int at = group & ((1 << (log - 1)) - 1), mine = task < tasks ? nodes : 0;
    float *from = es_attn_record(a, split.node + 2 * at, task / slices, task % slices);
    float *from2 = from + (int64_t)a.row_tile * slices * ES_ATTN_RECORD; /* the same of the next node */
    es_attn_held x = {}, y = {};
    bool there;
    do {
        there = 2 * at >= mine || es_attn_take(x, from);
        there = (2 * at + 1 >= mine || es_attn_take(y, from2)) && there;
    } while (!__all_sync(0xFFFFFFFFu, there));
    if (2 * at < mine) es_attn_forget(from);
    if (2 * at + 1 < mine) es_attn_forget(from2);
    es_attn_join_warp(x, y, at, 1, mine);
    if (log == 3) { /* each warp has a task of its own */
        if (mine && group % 4 == 0) es_attn_write_held(a, split, task, x);
        return;
    }
    float4 *room = (float4 *)scratch;
    if (group % 4 == 0) {
        room[warp * 9 + lane] = x.o;
        if (lane == 0) room[warp * 9 + 8] = make_float4(x.m, x.l, 0, 0);
    }
    es_attn_finish_meet<THREADS>();
    if (warp == 0) {
        const int i = min(2 * group, THREADS / 32 - 2); /* past the last warp's record: for nobody */
        const int own = first + (2 * group >> (log - 3)) * step, place = group & ((1 << (log - 4)) - 1);
        const int all = own < tasks && i == 2 * group ? nodes : 0;
        const float4 s = room[i * 9 + 8], t = room[i * 9 + 17];
        x = {s.x, s.y, room[i * 9 + lane]}, y = {t.x, t.y, room[i * 9 + 9 + lane]};
        es_attn_join_warp(x, y, place, 8, all);
        if (all && place == 0) es_attn_write_held(a, split, own, x);
    }
    es_attn_finish_meet<THREADS>();
}

/* All tasks first, first + step, ... of an item. `schedule`: the plan's. */
template <int THREADS>
static __device__ __forceinline__ void es_attn_finish_tasks(const es_attn_args &a, const es_cuda_attn_split &split,
                                                            const int32_t *schedule, int first, int step, char *scratch)
{
    float *records = (float *)scratch;
    int32_t *merges = (int32_t *)(records + ES_ATTN_FINISH_ROOM * ES_ATTN_RECORD);
    const int tasks = es_attn_tasks(a, split), room = ES_ATTN_FINISH_ROOM / split.nodes;
    for (int i = threadIdx.x; i < split.levels + split.nodes; i += THREADS)
        es_fetch_4(merges + i, schedule + split.schedule + i);
#pragma unroll 1
    for (int task = first; task < tasks; task += step * room) {
        const int left = (tasks - 1 - task) / step + 1;
        es_attn_finish_some<THREADS>(a, split, merges, task, step, left < room ? left : room, records);
    }
    es_fetched();
}

static __device__ __forceinline__ const es_cuda_attn_split *es_attn_splits(const es_cuda_attn_plan *plan)
{
    const es_cuda_attn_block *block = (const es_cuda_attn_block *)(plan + 1);
    return (const es_cuda_attn_split *)((const es_cuda_attn_piece *)(block + plan->blocks) + plan->more);
}

static __device__ __forceinline__ const int32_t *es_attn_schedule(const es_cuda_attn_plan *plan)
{
    return (const int32_t *)(es_attn_splits(plan) + plan->splits);
}

/* The finish as a kernel of its own, which starts while the blocks of the first one drain. */
#define ES_ATTN_SECOND_THREADS 256

static __global__ void __launch_bounds__(ES_ATTN_SECOND_THREADS) es_attn_finish_kernel(const __grid_constant__ es_attn_args a)
{
    extern __shared__ __align__(16) char scratch[];
    es_wait_for_previous();
    const es_cuda_attn_split *splits = es_attn_splits(a.plan);
    const int32_t *schedule = es_attn_schedule(a.plan);
    int before = 0, next = blockIdx.x; /* tasks of all items, dealt out in turn */
    for (int s = 0; s < a.plan->splits; s++) {
        const int end = before + es_attn_tasks(a, splits[s]);
        if (next < end) {
            es_attn_finish_tasks<ES_ATTN_SECOND_THREADS>(a, splits[s], schedule, next - before, gridDim.x, scratch);
            next += (end - next + (int)gridDim.x - 1) / (int)gridDim.x * (int)gridDim.x;
        }
        before = end;
    }
}

#endif
