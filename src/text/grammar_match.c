/* grammar_match.c: how a matcher moves: see grammar_matcher.h.
 *
 * A set is made in two parts. First, from where the byte led: what follows without a byte, and back out of the rules that end
 * here. Then the rules that may begin here are opened, callers before those they call, so that when a rule is opened it is
 * known who all wait for it. The order exists because no rule begins with itself. */
#include <string.h>

#include "base/memory.h"
#include "text/grammar_matcher.h"

es_status es_match_fail_full(void)
{
    return es_fail(ES_UNSUPPORTED, "the grammar is too ambiguous: the text so far can be read in too many ways");
}

/* What a call may cost is bounded, however ambiguous the grammar: others wait for the same step. */
static void spend(es_matcher *m, uint32_t steps)
{
    m->work += steps;
    if (m->work > ES_MATCH_WORK) m->full = true;
}

static uint32_t mix(uint32_t hash, uint32_t value)
{
    hash = (hash ^ value) * 0x9E3779B1u;
    return hash ^ hash >> 15;
}

/* ---- returns ---- */

static bool comes_first(const es_match_entry *a, const es_match_entry *b)
{
    if (a->state != b->state) return a->state < b->state;
    if (a->count != b->count) return a->count < b->count;
    return a->behind < b->behind;
}

static bool is_same(const es_match_entry *a, const es_match_entry *b)
{
    return a->state == b->state && a->count == b->count && a->behind == b->behind;
}

/* The number of the return with these entries: sorted, none twice. */
static uint32_t intern_return(es_matcher *m, const es_match_entry *entries, uint32_t count)
{
    uint32_t hash = count, depth = 0;
    for (uint32_t i = 0; i < count; i++) {
        hash = mix(mix(mix(hash, entries[i].state), entries[i].count), entries[i].behind);
        const uint32_t below = m->returns[entries[i].behind].depth + 1;
        if (below > depth) depth = below;
    }
    uint32_t slot = hash % (2 * ES_MATCH_RETURNS);
    for (; m->return_slots[slot]; slot = (slot + 1) % (2 * ES_MATCH_RETURNS)) {
        const es_match_return *known = &m->returns[m->return_slots[slot] - 1];
        if (known->hash != hash || known->count != count) continue;
        uint32_t i = 0;
        while (i < count && is_same(&m->entries[known->first + i], &entries[i])) i++;
        if (i == count) return m->return_slots[slot] - 1;
    }
    if (m->return_count == ES_MATCH_RETURNS || count > ES_MATCH_ENTRIES - m->entry_count) {
        m->full = true;
        return 0;
    }
    memcpy(&m->entries[m->entry_count], entries, count * sizeof *entries);
    m->returns[m->return_count] = (es_match_return){m->entry_count, count, hash, depth};
    m->entry_count += count;
    m->return_slots[slot] = m->return_count + 1;
    return m->return_count++;
}

static void sort_entries(es_match_entry *list, uint32_t count)
{
    uint32_t gap = 1;
    while (gap < count / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (uint32_t i = gap; i < count; i++) {
            const es_match_entry moved = list[i];
            uint32_t at = i;
            for (; at >= gap && comes_first(&moved, &list[at - gap]); at -= gap) list[at] = list[at - gap];
            list[at] = moved;
        }
}

/* The return of the first `count` gathered entries, in any order. */
static uint32_t intern_gathered(es_matcher *m, uint32_t count)
{
    uint32_t kept = 0;
    spend(m, count);
    sort_entries(m->gathered, count);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || !is_same(&m->gathered[i], &m->gathered[kept - 1])) m->gathered[kept++] = m->gathered[i];
    return intern_return(m, m->gathered, kept);
}

static void gather(es_matcher *m, const es_match_entry *entries, uint32_t count, uint32_t *gathered)
{
    if (count > ES_MATCH_ENTRIES - *gathered) {
        m->full = true;
        return;
    }
    memcpy(m->gathered + *gathered, entries, count * sizeof *entries);
    *gathered += count;
}

static void gather_return(es_matcher *m, uint32_t number, uint32_t *gathered)
{
    gather(m, &m->entries[m->returns[number].first], m->returns[number].count, gathered);
}

/* Who waits in either. */
static uint32_t join(es_matcher *m, uint32_t a, uint32_t b)
{
    uint32_t gathered = 0;
    if (a == b) return a;
    gather_return(m, a, &gathered);
    gather_return(m, b, &gathered);
    return intern_gathered(m, gathered);
}

/* ---- places ---- */

static void visit(es_matcher *m, uint32_t state, uint32_t count, uint32_t wait)
{
    const uint32_t height = m->grammar->states[state].height;
    if (height == ES_HEIGHT_NEVER || m->returns[wait].depth + height > ES_GRAMMAR_DEPTH_MAX || m->full) return;
    uint32_t slot = mix(mix(0, state), count) % (2 * ES_MATCH_PLACES);
    while (m->place_slots[slot]) {
        es_match_place *place = &m->places[m->place_slots[slot] - 1];
        if (place->state == state && place->count == count) {
            const uint32_t all = join(m, place->wait, wait);
            if (all == place->wait) return;
            place->wait = all;
            if (!place->queued) m->queue[m->queue_count++ % ES_MATCH_PLACES] = m->place_slots[slot] - 1;
            place->queued = true;
            return;
        }
        slot = (slot + 1) % (2 * ES_MATCH_PLACES);
    }
    if (m->place_count == ES_MATCH_PLACES) {
        m->full = true;
        return;
    }
    m->places[m->place_count] = (es_match_place){state, count, wait, 0, true, false};
    m->place_slots[slot] = m->place_count + 1;
    m->queue[m->queue_count++ % ES_MATCH_PLACES] = m->place_count++;
}

static void clear_places(es_matcher *m)
{
    for (uint32_t i = 0; i < m->place_count && m->full; i++) /* those not opened for want of room */
        if (m->places[i].listed) m->callers[m->grammar->states[m->places[i].state].rule] = 0;
    if (m->place_count > ES_MATCH_PLACES / 16) {
        memset(m->place_slots, 0, 2 * ES_MATCH_PLACES * sizeof *m->place_slots);
    } else {
        for (uint32_t i = 0; i < m->place_count; i++) { /* every slot of a probe's way is some place's own */
            uint32_t slot = mix(mix(0, m->places[i].state), m->places[i].count) % (2 * ES_MATCH_PLACES);
            while (m->place_slots[slot] != i + 1) slot = (slot + 1) % (2 * ES_MATCH_PLACES);
            m->places[i].queued = false;
            m->queue[i] = slot;
        }
        for (uint32_t i = 0; i < m->place_count; i++) m->place_slots[m->queue[i]] = 0;
    }
    m->place_count = m->queue_head = m->queue_count = 0;
    m->accept = false;
}

static void call(es_matcher *m, es_match_place *place)
{
    const uint32_t rule = m->grammar->states[place->state].rule, order = m->grammar->rules[rule].order;
    m->pending[order / 64] |= UINT64_C(1) << (order % 64);
    if (place->listed) return;
    place->listed = true;
    place->next = m->callers[rule];
    m->callers[rule] = (uint32_t)(place - m->places) + 1;
}

static bool may_repeat(const es_gram_state *state, uint32_t count)
{
    return state->max == ES_GRAM_NO_END || count < state->max;
}

/* Past its minimum an endless repetition need not be counted on. */
static uint32_t count_on(const es_gram_state *state, uint32_t count)
{
    return state->max == ES_GRAM_NO_END && count >= state->min ? state->min : count + 1;
}

static void expand(es_matcher *m, es_match_place *place)
{
    const es_grammar *g = m->grammar;
    const es_gram_state *state = &g->states[place->state];
    switch ((es_gram_state_kind)state->kind) {
    case ES_STATE_BYTES: break;
    case ES_STATE_SPLIT:
        spend(m, state->count);
        for (uint32_t i = 0; i < state->count; i++) visit(m, g->edges[state->first + i].target, 0, place->wait);
        break;
    case ES_STATE_CALL:
        call(m, place);
        if (g->rules[state->rule].nullable) visit(m, state->target, 0, place->wait);
        break;
    case ES_STATE_REPEAT:
        if (may_repeat(state, place->count)) call(m, place);
        if (place->count >= state->min) visit(m, state->target, 0, place->wait);
        break;
    case ES_STATE_END: {
        const es_match_return ended = m->returns[place->wait];
        spend(m, ended.count);
        for (uint32_t i = 0; i < ended.count && !m->starting; i++) {
            const es_match_entry *entry = &m->entries[ended.first + i];
            visit(m, entry->state, entry->count, entry->behind);
        }
        break;
    }
    case ES_STATE_ACCEPT: m->accept = true; break;
    }
}

static void expand_all(es_matcher *m)
{
    while (m->queue_head != m->queue_count && !m->full) {
        es_match_place *place = &m->places[m->queue[m->queue_head++ % ES_MATCH_PLACES]];
        place->queued = false;
        spend(m, 1);
        expand(m, place);
    }
}

/* A repetition that need not happen may be too deep to happen. */
static bool has_depth(const es_matcher *m, const es_match_place *place)
{
    const es_grammar *g = m->grammar;
    const uint32_t body = g->states[g->rules[g->states[place->state].rule].start].height;
    return body != ES_HEIGHT_NEVER && m->returns[place->wait].depth + 1 + body <= ES_GRAMMAR_DEPTH_MAX;
}

/* Everybody who calls the rule waits for it. A call that is the last thing its own rule does has nobody wait but those who
 * wait for that rule: so lists written as recursion need no more memory the longer they are. */
static void open_rule(es_matcher *m, uint32_t rule)
{
    const es_grammar *g = m->grammar;
    uint32_t gathered = 0;
    for (uint32_t at = m->callers[rule]; at; at = m->places[at - 1].next) {
        const es_match_place *place = &m->places[at - 1];
        const es_gram_state *state = &g->states[place->state];
        if (!has_depth(m, place)) continue;
        if (state->kind == ES_STATE_REPEAT)
            gather(m, &(es_match_entry){place->state, count_on(state, place->count), place->wait}, 1, &gathered);
        else if (g->states[state->target].kind == ES_STATE_END)
            gather_return(m, place->wait, &gathered);
        else
            gather(m, &(es_match_entry){state->target, 0, place->wait}, 1, &gathered);
    }
    m->callers[rule] = 0;
    if (gathered == 0) return; /* too deep for each of them */
    visit(m, g->rules[rule].start, 0, intern_gathered(m, gathered));
    expand_all(m);
}

static void open_rules(es_matcher *m)
{
    m->starting = true;
    for (uint32_t word = 0; word * 64 < m->grammar->rule_count; word++)
        while (m->pending[word] && !m->full) { /* those it opens come later in order */
            const uint32_t order = word * 64 + (uint32_t)__builtin_ctzll(m->pending[word]);
            m->pending[word] &= m->pending[word] - 1;
            open_rule(m, m->grammar->by_order[order]);
        }
    m->starting = false;
    if (m->full) memset(m->pending, 0, ES_GRAMMAR_RULES_MAX / 8);
}

/* ---- sets ---- */

/* What the set says about runs of characters: see es_match_set. */
static void describe_run(const es_matcher *m, es_match_set *set)
{
    const es_gram_state *states = m->grammar->states;
    uint32_t only = 0, repeats = 0;
    for (uint32_t i = 0; i < m->place_count; i++) {
        const es_match_place *place = &m->places[i];
        const es_gram_state *state = &states[place->state];
        if (state->kind != ES_STATE_REPEAT || !(state->ordinary || state->kinds) || !may_repeat(state, place->count) ||
            !has_depth(m, place))
            continue;
        const uint32_t left = state->max == ES_GRAM_NO_END ? UINT32_MAX : state->max - place->count;
        if (state->kinds && left > set->most) {
            set->most = left;
            set->kinds = state->kinds;
        }
        if (!state->ordinary) continue;
        if (left > set->run) set->run = left;
        only = place->state;
        repeats++;
    }
    set->closed = repeats == 1 && states[only].closed;
    for (uint32_t i = 0; i < set->count && set->closed; i++) {
        const es_match_item *item = &m->items[set->first + i];
        const es_match_return *wait = &m->returns[item->wait];
        set->closed = states[item->state].closed || (wait->count == 1 && m->entries[wait->first].state == only);
    }
}

static void sort_items(es_match_item *list, uint32_t count)
{
    uint32_t gap = 1;
    while (gap < count / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (uint32_t i = gap; i < count; i++) {
            const es_match_item moved = list[i];
            uint32_t at = i;
            for (; at >= gap && moved.state < list[at - gap].state; at -= gap) list[at] = list[at - gap];
            list[at] = moved;
        }
}

static uint32_t find_set(const es_matcher *m, const es_match_set *set, uint32_t *slot)
{
    for (; m->set_slots[*slot]; *slot = (*slot + 1) % (2 * ES_MATCH_SETS)) {
        const es_match_set *known = &m->sets[m->set_slots[*slot] - 1];
        if (known->hash == set->hash && known->count == set->count && known->accept == set->accept &&
            memcmp(&m->items[known->first], &m->items[set->first], set->count * sizeof *m->items) == 0)
            return m->set_slots[*slot] - 1;
    }
    return ES_SET_UNKNOWN;
}

/* The set whose items are the `count` behind the last that belongs to one. */
static uint32_t intern_set(es_matcher *m, uint32_t count, bool accept)
{
    es_match_set set = {.first = m->item_count, .count = count, .accept = accept, .hash = mix(count, accept)};
    sort_items(&m->items[set.first], count);
    for (uint32_t i = 0; i < count; i++)
        set.hash = mix(mix(set.hash, m->items[set.first + i].state), m->items[set.first + i].wait);
    uint32_t slot = set.hash % (2 * ES_MATCH_SETS);
    const uint32_t known = find_set(m, &set, &slot);
    if (known != ES_SET_UNKNOWN) return known;
    if (m->set_count == ES_MATCH_SETS) {
        m->full = true;
        return ES_SET_DEAD;
    }
    describe_run(m, &set);
    m->item_count += count;
    m->sets[m->set_count] = set;
    memset(&m->row[m->set_count * 256], 0, 256 * sizeof *m->row);
    m->set_slots[slot] = m->set_count + 1;
    return m->set_count++;
}

/* From what has been visited to a set. */
static uint32_t make_set(es_matcher *m)
{
    uint32_t count = 0, made = ES_SET_DEAD;
    expand_all(m);
    open_rules(m);
    for (uint32_t i = 0; i < m->place_count && !m->full; i++) {
        const es_match_place *place = &m->places[i];
        if (m->grammar->states[place->state].kind != ES_STATE_BYTES) continue;
        if (count == ES_MATCH_ITEMS - m->item_count)
            m->full = true;
        else
            m->items[m->item_count + count++] = (es_match_item){place->state, place->wait};
    }
    if (!m->full && (count || m->accept)) made = intern_set(m, count, m->accept);
    clear_places(m);
    return made;
}

uint32_t es_match_step(es_matcher *m, uint32_t number, uint8_t byte)
{
    const es_grammar *g = m->grammar;
    const uint32_t class = g->class_of[byte];
    const es_match_set set = m->sets[number];
    for (uint32_t i = 0; i < set.count; i++) {
        const es_match_item item = m->items[set.first + i];
        const es_gram_state *state = &g->states[item.state];
        spend(m, 1 + state->count / 4);
        for (uint32_t e = 0; e < state->count && !m->full; e++) {
            const es_gram_edge *edge = &g->edges[state->first + e];
            if (class >= edge->first && class <= edge->last) visit(m, edge->target, 0, item.wait);
        }
    }
    const uint32_t next = make_set(m);
    if (m->full) return ES_SET_DEAD;
    for (int alike = byte; alike < 256 && g->class_of[alike] == class; alike++) m->row[number * 256 + alike] = (uint16_t)next;
    for (int alike = byte; alike >= 0 && g->class_of[alike] == class; alike--) m->row[number * 256 + alike] = (uint16_t)next;
    return next;
}

/* ---- room ---- */

/* Returns that the present set needs, renumbered in their old order; those behind a return always have smaller numbers. */
static void keep_returns(es_matcher *m)
{
    const es_match_set *set = &m->sets[m->set];
    uint32_t kept = 1, entries = 0;
    memset(m->renumber, 0, m->return_count * sizeof *m->renumber);
    for (uint32_t i = 0; i < set->count; i++) m->renumber[m->items[set->first + i].wait] = 1;
    for (uint32_t r = m->return_count; r-- > 1;)
        for (uint32_t i = 0; m->renumber[r] && i < m->returns[r].count; i++)
            m->renumber[m->entries[m->returns[r].first + i].behind] = 1;
    m->renumber[0] = 0;
    memset(m->return_slots, 0, 2 * ES_MATCH_RETURNS * sizeof *m->return_slots);
    for (uint32_t r = 1; r < m->return_count; r++) {
        if (!m->renumber[r]) continue;
        es_match_return moved = m->returns[r];
        moved.hash = moved.count;
        for (uint32_t i = 0; i < moved.count; i++) {
            es_match_entry entry = m->entries[moved.first + i];
            entry.behind = m->renumber[entry.behind];
            moved.hash = mix(mix(mix(moved.hash, entry.state), entry.count), entry.behind);
            m->entries[entries + i] = entry;
        }
        moved.first = entries;
        entries += moved.count;
        uint32_t slot = moved.hash % (2 * ES_MATCH_RETURNS);
        while (m->return_slots[slot]) slot = (slot + 1) % (2 * ES_MATCH_RETURNS);
        m->return_slots[slot] = kept + 1;
        m->returns[kept] = moved;
        m->renumber[r] = kept++;
    }
    m->return_count = kept;
    m->entry_count = entries;
}

static void forget_sets(es_matcher *m)
{
    m->set_count = ES_SET_FIRST;
    m->item_count = 0;
    memset(m->set_slots, 0, 2 * ES_MATCH_SETS * sizeof *m->set_slots);
    memset(m->mask_owner, 0, sizeof m->mask_owner);
}

void es_match_make_room(es_matcher *m, bool at_once)
{
    m->full = false;
    if (!at_once && m->return_count < ES_MATCH_RETURNS / 4 * 3 && m->entry_count < ES_MATCH_ENTRIES / 4 * 3 &&
        m->set_count < ES_MATCH_SETS / 4 * 3 && m->item_count < ES_MATCH_ITEMS / 4 * 3)
        return;
    keep_returns(m);
    es_match_set set = m->sets[m->set];
    memmove(m->items, &m->items[set.first], set.count * sizeof *m->items);
    for (uint32_t i = 0; i < set.count; i++) m->items[i].wait = m->renumber[m->items[i].wait];
    forget_sets(m);
    set.first = 0;
    set.hash = mix(set.count, set.accept);
    for (uint32_t i = 0; i < set.count; i++) set.hash = mix(mix(set.hash, m->items[i].state), m->items[i].wait);
    m->set = m->set_count++;
    m->sets[m->set] = set;
    m->item_count = set.count;
    m->set_slots[set.hash % (2 * ES_MATCH_SETS)] = m->set + 1;
    memset(&m->row[m->set * 256], 0, 256 * sizeof *m->row);
}

/* ---- life ---- */

/* Hands out parts of one block; with no block yet it only counts. */
static void *carve(unsigned char *base, size_t *used, size_t count, size_t size)
{
    void *place = base ? base + *used : NULL;
    *used += (count * size + 63) / 64 * 64;
    return place;
}

static size_t lay_out(es_matcher *m, unsigned char *base, size_t mask_bytes)
{
    size_t used = 0;
    carve(base, &used, 1, sizeof *m);
    m->returns = carve(base, &used, ES_MATCH_RETURNS, sizeof *m->returns);
    m->entries = carve(base, &used, ES_MATCH_ENTRIES, sizeof *m->entries);
    m->sets = carve(base, &used, ES_MATCH_SETS, sizeof *m->sets);
    m->items = carve(base, &used, ES_MATCH_ITEMS, sizeof *m->items);
    m->return_slots = carve(base, &used, 2 * ES_MATCH_RETURNS, sizeof *m->return_slots);
    m->set_slots = carve(base, &used, 2 * ES_MATCH_SETS, sizeof *m->set_slots);
    m->row = carve(base, &used, (size_t)ES_MATCH_SETS * 256, sizeof *m->row);
    m->places = carve(base, &used, ES_MATCH_PLACES, sizeof *m->places);
    m->place_slots = carve(base, &used, 2 * ES_MATCH_PLACES, sizeof *m->place_slots);
    m->queue = carve(base, &used, ES_MATCH_PLACES, sizeof *m->queue);
    m->pending = carve(base, &used, ES_GRAMMAR_RULES_MAX / 64, sizeof *m->pending);
    m->callers = carve(base, &used, ES_GRAMMAR_RULES_MAX, sizeof *m->callers);
    m->gathered = carve(base, &used, ES_MATCH_ENTRIES, sizeof *m->gathered);
    m->renumber = carve(base, &used, ES_MATCH_RETURNS, sizeof *m->renumber);
    m->masks = carve(base, &used, ES_MATCH_MASKS, mask_bytes);
    return used;
}

size_t es_matcher_bytes(const es_token_trie *trie)
{
    es_matcher nowhere;
    return lay_out(&nowhere, NULL, trie ? trie->mask_bytes : 0);
}

es_status es_matcher_open(const es_token_trie *trie, es_matcher **matcher)
{
    const size_t bytes = es_matcher_bytes(trie);
    es_matcher *m = es_memory_map(bytes);
    if (!m) return es_fail(ES_NO_MEMORY, "no memory for a grammar's matcher (%zu bytes)", bytes);
    m->trie = trie;
    m->mapped = bytes;
    lay_out(m, (unsigned char *)m, trie ? trie->mask_bytes : 0);
    *matcher = m;
    return ES_OK;
}

void es_matcher_close(es_matcher *matcher)
{
    if (matcher) es_memory_unmap(matcher, matcher->mapped);
}

es_status es_matcher_start(es_matcher *m, const es_grammar *grammar)
{
    m->grammar = grammar;
    m->full = false;
    m->work = 0;
    m->return_count = 1;
    m->returns[0] = (es_match_return){0};
    m->entry_count = 0;
    memset(m->return_slots, 0, 2 * ES_MATCH_RETURNS * sizeof *m->return_slots);
    forget_sets(m);
    m->gathered[0] = (es_match_entry){grammar->accept, 0, 0};
    const uint32_t wait = intern_gathered(m, 1);
    const es_gram_routine *root = &grammar->rules[grammar->root];
    visit(m, root->start, 0, wait);
    m->starting = true;
    expand_all(m);
    m->accept = root->nullable;
    m->set = make_set(m);
    return m->full ? es_match_fail_full() : ES_OK;
}

static uint32_t walk(es_matcher *m, uint32_t set, const unsigned char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && set != ES_SET_DEAD; i++) set = es_match_next(m, set, text[i]);
    return set;
}

es_status es_matcher_take_bytes(es_matcher *m, const char *text, size_t bytes)
{
    m->work = 0;
    es_match_make_room(m, false);
    uint32_t next = walk(m, m->set, (const unsigned char *)text, bytes);
    if (es_match_wants_room(m)) {
        es_match_make_room(m, true);
        next = walk(m, m->set, (const unsigned char *)text, bytes);
    }
    if (m->full) return es_match_fail_full();
    if (next == ES_SET_DEAD) return es_fail(ES_INVALID, "the grammar does not allow this text here");
    m->set = next;
    return ES_OK;
}

es_status es_matcher_take(es_matcher *m, es_token token)
{
    size_t bytes = 0;
    const char *text = es_tokenizer_piece(m->trie->tokenizer, token, &bytes);
    if (!text) return es_fail(ES_INVALID, "there is no token %d", (int)token);
    return es_matcher_take_bytes(m, text, bytes);
}

bool es_matcher_is_complete(const es_matcher *m)
{
    return m->sets[m->set].accept;
}

bool es_matcher_can_go_on(const es_matcher *m)
{
    return m->sets[m->set].count > 0;
}
