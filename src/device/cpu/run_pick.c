/* run_pick.c: which tokens of a row of logits can be chosen.
 *
 * Many rows are shared out whole. A few would leave most workers waiting for a quarter of a million numbers: all read one row
 * together, each a slice of the vocabulary, in three passes (the greatest, the weights, the candidates) between which they meet.
 * Greatest logits are compared as integers and weights are sums of integers: slices change no bit (pick.h). */
#include <math.h>

#include "device/cpu/cpu.h"

enum { LEAST_SLICE = 2048 }; /* tokens for each worker, where a row is read together */

/* The greatest of what each worker found, the lowest token of several. */
static int32_t best_of(const es_cpu *cpu, const float *logits, int turn)
{
    int32_t best = -1;
    for (int w = 0; w < es_pool_workers(cpu->pool); w++) {
        const int32_t other = cpu->worker[w].best[turn];
        if (other >= 0 && (best < 0 || es_pick_is_greater(logits[other], logits[best]))) best = other;
    }
    return best;
}

/* One row, by all. Who is at the next row's best may have others behind that still read this one's: rows take turns. */
static void pick_together(es_cpu *cpu, const es_op_pick *op, int64_t row, int turn, int worker)
{
    const es_pick *how = &cpu->batch->pick[row];
    const float *logits = es_cpu_floats(op->logits) + row * op->vocabulary;
    es_picked *picked = (es_picked *)(void *)es_cpu_floats(op->out) + row;
    const es_range slice = es_cpu_share(cpu, op->vocabulary, worker);
    const int32_t from = (int32_t)slice.begin, to = (int32_t)slice.end;

    cpu->worker[worker].best[turn] = es_pick_best(logits, from, to);
    es_pool_meet(cpu->pool);
    const int32_t best = best_of(cpu, logits, turn);
    const float most = best < 0 ? -INFINITY : logits[best];
    if (worker == 0) {
        picked->best = best, picked->most = most, picked->total = 0;
        picked->count = picked->unused = 0;
    }
    if (best < 0 || how->inverse_temperature == 0) return;
    es_pick_weigh(logits, from, to, how, most, &cpu->tally[worker]);
    es_pool_meet(cpu->pool);
    uint64_t total;
    const int32_t cut = es_pick_cut(cpu->tally, es_pool_workers(cpu->pool), how, &total);
    if (worker == 0) picked->total = total;
    es_pick_gather(logits, from, to, how, most, cut, ES_PICK_MOST, picked->candidate, &picked->count);
}

void es_cpu_pick(es_cpu *cpu, const es_op_pick *op, int worker)
{
    const int32_t workers = es_pool_workers(cpu->pool), outputs = cpu->batch->outputs;
    const es_pick *pick = cpu->batch->pick;
    if (workers > 1 && 2 * outputs <= workers && op->vocabulary / workers >= LEAST_SLICE) {
        for (int32_t row = 0, turn = 0; row < outputs; row++) {
            if (!pick[row].wanted) continue;
            pick_together(cpu, op, row, turn, worker);
            turn = !turn;
        }
        return;
    }
    const es_range share = es_cpu_share(cpu, outputs, worker);
    es_picked *picked = (es_picked *)(void *)es_cpu_floats(op->out);
    for (int64_t row = share.begin; row < share.end; row++)
        if (pick[row].wanted)
            es_pick_row(es_cpu_floats(op->logits) + row * op->vocabulary, op->vocabulary, &pick[row], ES_PICK_MOST,
                        picked[row].candidate, &picked[row]);
}
