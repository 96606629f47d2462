/* claims.h: who gets KV pages when there are fewer than everybody would like.
 *
 * A sequence starts with pages for its prompt and for what it was promised: its max_tokens, or where it has none a first few
 * thousand. Those are safe. An answer that goes on beyond asks for a page at a time, and may have to make room:
 *
 *   - claims are settled in order of age; while an older one waits, no younger one gets anything;
 *   - pages that no sequence holds come first (what the prefix cache keeps is given up for them);
 *   - then younger sequences that are beyond their promise are moved out, the youngest first;
 *   - who gets nothing waits where it is, keeping its pages, until an older one needs them.
 *
 * Hence the oldest sequence never waits for anything but pages promised to others: as many steps at most as the longest such
 * promise has left. And nobody is moved out for a younger one.
 *
 *   for (;;) {
 *       ...fill in claims, oldest first...
 *       if (es_claims_settle(claims, count, free_pages, free_places) == 0) break;
 *       ...move out whoever the verdict says; how much that frees was an estimate, so settle again...
 *   }
 *   ...grant, pause...
 *
 * Pure arithmetic, so that a test can run thousands of workloads on it. */
#ifndef ES_ENGINE_CLAIMS_H
#define ES_ENGINE_CLAIMS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum es_verdict {
    ES_CLAIM_GRANTED,   /**< it has what it needs, or may take it */
    ES_CLAIM_WAITS,     /**< it stays where it is and does nothing */
    ES_CLAIM_MOVED_OUT, /**< it gives up its place and its pages */
} es_verdict;

typedef struct es_claim {
    int64_t need;       /**< pages that it wants now; 0: none */
    int64_t held;       /**< pages that it has: moving it out frees at most these */
    bool running;       /**< it has a place; who has none wants one */
    bool promised;      /**< inside its promise: not to be moved out */
    es_verdict verdict; /**< out */
} es_claim;

/** Settle claims that stand in order of age, with so many pages and places left. Returns how many are to be moved out. */
int32_t es_claims_settle(es_claim *claims, int32_t count, int64_t free_pages, int32_t free_places);

#endif
