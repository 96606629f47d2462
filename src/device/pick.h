/* pick.h: which tokens of a row of logits can be chosen: what ES_OP_PICK means, in plain C.
 *
 *   es_picked picked;
 *   es_pick_row(logits, vocabulary, &pick, ES_PICK_MOST, picked.candidate, &picked);
 *
 * A device reads a row of a quarter of a million numbers where it lies and leaves a few; the engine's sampler goes on from
 * those, and, where a row was changed on the host first (penalties, masks), from what this very function gives. Every
 * comparison is between integers or equal floats, every sum is of integers: so a GPU gives the same bits. */
#ifndef ES_DEVICE_PICK_H
#define ES_DEVICE_PICK_H

#include "device/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Units of a weight, and below which exponent (of e) it is 0 for certain. */
#define ES_PICK_UNIT  0x1p40f
#define ES_PICK_LIGHT (-28.0f)
/** Weights are counted by the upper bits of p, sixteen bins to a power of two, from 2^-40 to 1. */
#define ES_PICK_SHIFT     19
#define ES_PICK_FIRST_BIN ((127 - 40) << (23 - ES_PICK_SHIFT))
#define ES_PICK_BINS      ((40 << (23 - ES_PICK_SHIFT)) + 1)

#ifdef __CUDACC__
#define ES_PICK_BOTH __host__ __device__
#else
#define ES_PICK_BOTH
#endif

/** Floats in ascending order as integers; 0 for NaN and −∞, which no choice considers. −0 is +0. */
ES_PICK_BOTH static inline uint32_t es_pick_order(uint32_t bits)
{
    if (bits << 1 > 0xFF000000u || bits == 0xFF800000u) return 0;
    if (bits == 0x80000000u) bits = 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/** Likelier first, then the lower token. */
static inline bool es_pick_comes_before(es_candidate a, es_candidate b)
{
    return a.p > b.p || (a.p == b.p && a.token < b.token);
}

/** The weight of a p. */
static inline uint64_t es_pick_weight(float p)
{
    return (uint64_t)(p * ES_PICK_UNIT);
}

/** How much weight tokens have, and how many they are, by the upper bits of their p. */
typedef struct es_pick_tally {
    uint64_t total, weight[ES_PICK_BINS];
    int32_t count[ES_PICK_BINS];
} es_pick_tally;

/* What es_pick_row() does, in parts of the row: one after the other for all parts, or by several workers who meet in between. */

/** The greatest logit's token among [from, to), the lowest of several; −1: every one is NaN or −∞. */
int32_t es_pick_best(const float *logits, int32_t from, int32_t to);
bool es_pick_is_greater(float a, float b);
/** The weights of tokens [from, to); `most` is the greatest logit of the row. */
void es_pick_weigh(const float *logits, int32_t from, int32_t to, const es_pick *how, float most, es_pick_tally *tally);
/** The lowest bin whose tokens can be candidates, by the tallies of all parts, and the weight of all tokens. */
int32_t es_pick_cut(const es_pick_tally *tally, int32_t parts, const es_pick *how, uint64_t *total);
/** Adds to the candidates those of [from, to); `count` may be added to by several threads at once. */
void es_pick_gather(const float *logits, int32_t from, int32_t to, const es_pick *how, float most, int32_t cut, int32_t room,
                    es_candidate *candidate, int32_t *count);

/** At most `room` candidates are written, in no order; picked->candidate is not touched unless it is `candidate`. */
void es_pick_row(const float *logits, int32_t vocabulary, const es_pick *how, int32_t room, es_candidate *candidate,
                 es_picked *picked);
/** All of them, likeliest first. */
void es_pick_sort(es_candidate *candidate, int32_t count);

#ifdef __cplusplus
}
#endif
#endif
