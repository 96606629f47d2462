/* claims.c: see claims.h. */
#include "engine/claims.h"

static bool may_go(const es_claim *c)
{
    return c->running && !c->promised && c->verdict != ES_CLAIM_MOVED_OUT;
}

static bool suffices(const es_claim *c, int64_t pages, int32_t places)
{
    return pages >= c->need && (c->running || places > 0);
}

/* Moves out younger claims than `index`, the youngest first, until it has what it needs; none, where all of them together
 * would not do. Returns how many. */
static int32_t make_room(es_claim *claims, int32_t count, int32_t index, int64_t *pages, int32_t *places)
{
    const es_claim *c = &claims[index];
    int64_t most_pages = *pages;
    int32_t most_places = *places, moved = 0;
    for (int32_t i = index + 1; i < count; i++)
        if (may_go(&claims[i])) most_pages += claims[i].held, most_places++;
    if (!suffices(c, most_pages, most_places)) return 0;
    for (int32_t i = count - 1; i > index && !suffices(c, *pages, *places); i--) {
        if (!may_go(&claims[i])) continue;
        claims[i].verdict = ES_CLAIM_MOVED_OUT;
        *pages += claims[i].held, ++*places;
        moved++;
    }
    return moved;
}

int32_t es_claims_settle(es_claim *claims, int32_t count, int64_t free_pages, int32_t free_places)
{
    int32_t moved = 0;
    bool blocked = false;
    for (int32_t i = 0; i < count; i++) claims[i].verdict = ES_CLAIM_GRANTED;
    for (int32_t i = 0; i < count; i++) {
        es_claim *c = &claims[i];
        if (c->verdict == ES_CLAIM_MOVED_OUT) blocked = true; /* it comes before all that are younger */
        if (c->verdict == ES_CLAIM_MOVED_OUT || (c->running && c->need == 0)) continue;
        if (!blocked && !suffices(c, free_pages, free_places)) moved += make_room(claims, count, i, &free_pages, &free_places);
        if (blocked || !suffices(c, free_pages, free_places)) {
            c->verdict = ES_CLAIM_WAITS;
            blocked = true;
            continue;
        }
        free_pages -= c->need;
        free_places -= !c->running;
    }
    return moved;
}
