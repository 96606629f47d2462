/* room.c: who has a place and pages: sequences are let in, grow, and are moved out and back.
 *
 * The rules are es_claims_settle()'s (claims.h). What a sequence that is moved out has computed stays in the prefix cache, its
 * recurrent state too, and it waits in front of all that came after it. When it comes back it goes on from there; only what
 * somebody needed meanwhile is computed again, from the nearest state before it. Same tokens, same bits. */
#include "engine/engine.h"

/* What a sequence could go on from. The last token is always computed: its logits are wanted. */
static es_prefix_hit find_prefix(es_engine *engine, es_sequence *s)
{
    int64_t limit = s->count - 1;
    if (es_sequence_reads_prompt(s) && s->logits_next < limit) limit = s->logits_next;
    if ((engine->no_cache && !s->moves) || limit <= 0) return (es_prefix_hit){.tail_page = -1, .slot = -1};
    return es_prefix_find(engine->prefix, s->tokens, limit, s->pages);
}

/* A state and the pages that the hit does not bring. */
static bool take_rest(es_engine *engine, es_sequence *s, int64_t full)
{
    if (!es_prefix_take_slot(engine->prefix, &s->slot)) return false;
    if (es_prefix_take_pages(engine->prefix, s->page_count - full, s->pages + full)) return true;
    es_pages_drop(&engine->slots, &s->slot, 1);
    s->slot = -1;
    return false;
}

/* Memory for a sequence, as much as possible from what was computed before. False: there is not enough yet. */
static bool take_memory(es_engine *engine, es_sequence *s)
{
    s->page_count = es_sequence_pages(s, engine->info.page);
    s->computed = 0;
    es_prefix_hit hit = find_prefix(engine, s);
    /* What is to be copied must survive the search for room. */
    if (hit.tail_page >= 0) es_pages_hold(&engine->pages, hit.tail_page);
    if (hit.slot >= 0) es_pages_hold(&engine->slots, hit.slot);
    bool taken = take_rest(engine, s, hit.full);
    if (taken) {
        es_status status = ES_OK;
        if (hit.tail_page >= 0) status = es_network_copy_page(&engine->network, hit.tail_page, s->pages[hit.full]);
        if (status == ES_OK && hit.slot >= 0) status = es_network_copy_state(&engine->network, hit.slot, s->slot);
        if (status == ES_OK) s->computed = hit.position;
    } else {
        es_pages_drop(&engine->pages, s->pages, hit.full);
    }
    if (hit.tail_page >= 0) es_pages_drop(&engine->pages, &hit.tail_page, 1);
    if (hit.slot >= 0) es_pages_drop(&engine->slots, &hit.slot, 1);
    /* The page to copy from may have been one too many: then without what could have been reused. */
    if (!taken && s->page_count <= engine->pages.total - engine->pages.pinned) taken = take_rest(engine, s, 0);
    if (!taken) s->page_count = 0;
    return taken;
}

void es_engine_count_memory(es_engine *engine)
{
    atomic_store(&engine->counters.pages_used, engine->pages.total - engine->pages.free_count);
    atomic_store(&engine->counters.pages_held, engine->pages.pinned);
    atomic_store(&engine->counters.states_used, engine->slots.total - engine->slots.free_count);
}

void es_engine_release_memory(es_engine *engine, es_sequence *s)
{
    if (!s->admitted) return;
    es_pages_unpin(&engine->pages, s->pages, s->page_count);
    es_pages_drop(&engine->pages, s->pages, s->page_count);
    if (s->slot >= 0) es_pages_drop(&engine->slots, &s->slot, 1);
    s->slot = -1;
    s->page_count = 0;
    s->admitted = s->paused = false;
    es_engine_count_memory(engine);
}

/* Numbers are given in order of arrival. */
void es_engine_wait_again(es_engine *engine, es_sequence *s)
{
    es_sequence **at = &engine->waiting;
    while (*at && (*at)->id < s->id) at = &(*at)->next;
    s->next = *at;
    *at = s;
    if (!s->next) engine->waiting_tail = &s->next;
    atomic_fetch_add(&engine->counters.waiting, 1);
}

static void give_up_place(es_engine *engine, es_sequence *s)
{
    es_engine_keep(engine, s);
    es_engine_release_memory(engine, s);
    es_engine_leave(engine, s);
    s->computed = 0;
    s->moves++;
    atomic_fetch_add(&engine->counters.preemptions, 1);
    if (s->request.progress) es_sequence_send(s, &(es_event){.kind = ES_EVENT_MOVED, .text = ""});
}

static void move_out(es_engine *engine, es_sequence *s)
{
    give_up_place(engine, s);
    es_engine_wait_again(engine, s);
}

static void put_aside(es_engine *engine, es_sequence *s)
{
    s->next = engine->set_aside;
    engine->set_aside = s;
}

/* Whoever is set aside counts as waiting, and keeps its number: it comes back in front of all that came after it. */
void es_engine_set_aside(es_engine *engine)
{
    for (es_sequence **at = &engine->set_aside; *at;) {
        es_sequence *s = *at;
        if (atomic_load(&s->asked_to_pause)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        atomic_fetch_sub(&engine->counters.waiting, 1);
        es_engine_wait_again(engine, s);
    }
    for (es_sequence **at = &engine->waiting; *at;) {
        es_sequence *s = *at;
        if (!atomic_load(&s->asked_to_pause)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (!*at) engine->waiting_tail = at;
        put_aside(engine, s);
    }
    for (int32_t i = engine->running_count - 1; i >= 0; i--) {
        es_sequence *s = engine->running[i];
        if (!atomic_load(&s->asked_to_pause)) continue;
        give_up_place(engine, s);
        atomic_fetch_add(&engine->counters.waiting, 1);
        put_aside(engine, s);
    }
}

/* The first of the waiting gets a place, among the running in order of age. False: its memory is not there after all. */
static bool let_in(es_engine *engine)
{
    es_sequence *s = engine->waiting;
    if (!take_memory(engine, s)) return false;
    es_pages_pin(&engine->pages, s->pages, s->page_count);
    s->admitted = true;
    s->resumed = s->kept_at = s->computed;
    engine->waiting = s->next;
    if (!engine->waiting) engine->waiting_tail = &engine->waiting;
    s->next = NULL;
    atomic_fetch_sub(&engine->counters.waiting, 1);
    int32_t at = engine->running_count++;
    for (; at > 0 && engine->running[at - 1]->id > s->id; at--) engine->running[at] = engine->running[at - 1];
    engine->running[at] = s;
    if (s->moves) {
        es_sequence_send_progress(s);
        return true;
    }
    s->started_at = es_clock_now(&engine->clock);
    s->cached = s->computed;
    atomic_fetch_add(&engine->counters.cached_tokens, (uint64_t)s->cached);
    if (!engine->no_cache) atomic_fetch_add(s->cached ? &engine->counters.cache_hits : &engine->counters.cache_misses, 1);
    return true;
}

/* Pages without a pin that a waiting sequence would take. Whether it fits without the cache is asked first: it is cheap. */
static int64_t need_of_waiting(es_engine *engine, es_sequence *s)
{
    int64_t need = es_sequence_pages(s, engine->info.page);
    if (need <= engine->pages.total - engine->pages.pinned) return need;
    const es_prefix_hit hit = find_prefix(engine, s);
    for (int64_t i = 0; i < hit.full; i++) need -= engine->pages.pins[s->pages[i]] > 0;
    es_pages_drop(&engine->pages, s->pages, hit.full);
    return need;
}

/* Its next row needs a page that it does not have. */
static bool must_grow(const es_engine *engine, const es_sequence *s)
{
    return s->page_count < s->page_capacity && s->computed == s->page_count * engine->info.page;
}

/* All that run and the first of the waiting, in order of age. Returns how many; *waiting is the latter's index, or −1. */
static int32_t list_claims(es_engine *engine, int32_t *waiting)
{
    int32_t n = 0;
    *waiting = -1;
    for (int32_t i = 0; i <= engine->running_count; i++) {
        const es_sequence *s = i < engine->running_count ? engine->running[i] : NULL;
        if (*waiting < 0 && engine->waiting && (!s || engine->waiting->id < s->id)) {
            *waiting = n;
            engine->claims[n++] = (es_claim){.need = need_of_waiting(engine, engine->waiting)};
        }
        if (s)
            engine->claims[n++] = (es_claim){
                .need = must_grow(engine, s), .held = s->page_count, .running = true, .promised = s->count <= s->promised};
    }
    return n;
}

/* The youngest first, so that the places of the others stay what they were. */
static void move_out_chosen(es_engine *engine, int32_t count, int32_t waiting)
{
    for (int32_t i = count - 1; i >= 0; i--)
        if (engine->claims[i].verdict == ES_CLAIM_MOVED_OUT)
            move_out(engine, engine->running[i - (waiting >= 0 && i > waiting)]);
}

static void grow_or_pause(es_engine *engine, int32_t count, int32_t waiting)
{
    for (int32_t i = 0; i < count; i++) {
        if (i == waiting) continue;
        es_sequence *s = engine->running[i - (waiting >= 0 && i > waiting)];
        s->paused = engine->claims[i].verdict == ES_CLAIM_WAITS;
        if (s->paused || !must_grow(engine, s)) continue;
        s->paused = !es_prefix_take_pages(engine->prefix, 1, &s->pages[s->page_count]);
        if (!s->paused) es_pages_pin(&engine->pages, &s->pages[s->page_count++], 1);
    }
}

void es_engine_make_room(es_engine *engine)
{
    for (bool again = true; again;) {
        int32_t waiting;
        const int32_t count = list_claims(engine, &waiting);
        const int64_t free_pages = engine->pages.total - engine->pages.pinned;
        if (es_claims_settle(engine->claims, count, free_pages, engine->info.parallel - engine->running_count) > 0) {
            move_out_chosen(engine, count, waiting); /* what that frees was an estimate: pages may be shared */
            continue;
        }
        grow_or_pause(engine, count, waiting);
        again = waiting >= 0 && engine->claims[waiting].verdict == ES_CLAIM_GRANTED && let_in(engine);
    }
    atomic_store(&engine->counters.running, engine->running_count);
    es_engine_count_memory(engine);
}
