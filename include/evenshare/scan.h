/* evenshare/scan.h: every prefix of a fold.
 *
 *   es_scan(team, &sum, &numbers, ES_SCAN_INCLUSIVE, NULL, out, sizeof *out);   // out[i] = numbers[0] ⊕ … ⊕ numbers[i]
 *   es_scan(team, &sum, &numbers, ES_SCAN_EXCLUSIVE, NULL, out, sizeof *out);   // out[i] = numbers[0] ⊕ … ⊕ numbers[i − 1]
 *
 * The order depends on the count and the operator only, as in fold.h, so the bits do not depend on who did the work. It is
 * another order than a fold's, though: where ⊕ rounds, the last prefix may differ from es_fold() in its last bits. Items are
 * folded by leaf and merge, one by one; each is read twice. */
#ifndef EVENSHARE_SCAN_H
#define EVENSHARE_SCAN_H

#include "evenshare/fold.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum es_scan_kind {
    ES_SCAN_INCLUSIVE, /**< answer i covers items 0 … i */
    ES_SCAN_EXCLUSIVE, /**< answer i covers items 0 … i − 1: the first is the initial partial, or the identity */
} es_scan_kind;

/** Write source->count answers, `stride` bytes apart, from `out` on. `initial` as in es_fold(). In place is fine where out is
 *  the source's data and the strides are equal; otherwise they must not overlap. */
es_status es_scan(es_team *team, const es_operator *op, const es_source *source, es_scan_kind kind, const void *initial,
                  void *out, ptrdiff_t stride);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
