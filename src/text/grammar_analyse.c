/* grammar_analyse.c: what a matcher must know beforehand, so that it never stands where it cannot go on.
 *
 * A state's height is the number of rules that must be opened on the shallowest way from it to its rule's end. A state from
 * which no way leads there has none, and a matcher never enters it; nor does it enter one that is too high for the depth that
 * is left. So whatever it has entered can be finished. Everything here is linear in the size of the grammar: each state gets
 * its answer once, and tells those that waited for it. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar_internal.h"
#include "text/token_trie.h"

#define NOBODY UINT32_MAX

/* Who asks whom: for each state the states whose answer depends on it. */
typedef struct askers {
    uint32_t *first; /* [states + 1] */
    uint32_t *state; /* [first[states]] */
} askers;

/* Calls back for each state that `number` depends on. */
#define FOR_EACH_ASKED(grammar, number, asked, statement)                                                                     \
    do {                                                                                                                      \
        const es_gram_state *at_ = &(grammar)->states[number];                                                                \
        const bool edges_ = at_->kind == ES_STATE_BYTES || at_->kind == ES_STATE_SPLIT;                                       \
        const bool calls_ = at_->kind == ES_STATE_CALL || at_->kind == ES_STATE_REPEAT;                                       \
        for (uint32_t i_ = 0; i_ < (edges_ ? at_->count : calls_ ? 2 : 0); i_++) {                                            \
            const uint32_t asked = edges_ ? (grammar)->edges[at_->first + i_].target                                          \
                                   : i_   ? at_->target                                                                       \
                                          : (grammar)->rules[at_->rule].start;                                                  \
            statement;                                                                                                        \
        }                                                                                                                     \
    } while (0)

static es_status find_askers(const es_grammar *g, askers *a)
{
    a->first = calloc((size_t)g->state_count + 2, sizeof *a->first);
    if (!a->first) return es_fail(ES_NO_MEMORY, "no memory for a grammar");
    for (uint32_t s = 0; s < g->state_count; s++) FOR_EACH_ASKED(g, s, asked, a->first[asked + 2]++);
    for (uint32_t s = 0; s < g->state_count; s++) a->first[s + 2] += a->first[s + 1];
    a->state = malloc(((size_t)a->first[g->state_count + 1] + 1) * sizeof *a->state);
    if (!a->state) return es_fail(ES_NO_MEMORY, "no memory for a grammar");
    for (uint32_t s = 0; s < g->state_count; s++) FOR_EACH_ASKED(g, s, asked, a->state[a->first[asked + 1]++] = s);
    return ES_OK; /* first[s] … first[s + 1] now hold those that ask s */
}

/* ---- which rules can be empty ---- */

static bool is_empty(const es_grammar *g, const bool *empty, uint32_t number)
{
    const es_gram_state *s = &g->states[number];
    switch ((es_gram_state_kind)s->kind) {
    case ES_STATE_END: return true;
    case ES_STATE_SPLIT:
        for (uint32_t i = 0; i < s->count; i++)
            if (empty[g->edges[s->first + i].target]) return true;
        return false;
    case ES_STATE_CALL: return empty[s->target] && empty[g->rules[s->rule].start];
    case ES_STATE_REPEAT: return empty[s->target] && (s->min == 0 || empty[g->rules[s->rule].start]);
    case ES_STATE_BYTES:
    case ES_STATE_ACCEPT: break;
    }
    return false;
}

/* A split may have very many targets: it is told by the one that is empty, and need not look at the others. */
static void find_nullable(es_grammar *g, const askers *a, bool *empty, uint32_t *queue)
{
    uint32_t head = 0, tail = 0;
    for (uint32_t s = 0; s < g->state_count; s++)
        if (g->states[s].kind == ES_STATE_END) empty[queue[tail++] = s] = true;
    while (head < tail) {
        const uint32_t s = queue[head++];
        for (uint32_t i = a->first[s]; i < a->first[s + 1]; i++) {
            const uint32_t asker = a->state[i];
            if (empty[asker] || !(g->states[asker].kind == ES_STATE_SPLIT || is_empty(g, empty, asker))) continue;
            empty[queue[tail++] = asker] = true;
        }
    }
    for (uint32_t r = 0; r < g->rule_count; r++) g->rules[r].nullable = empty[g->rules[r].start];
    for (uint32_t s = 0; s < g->state_count; s++) /* an empty unit counts as often as it is asked to */
        if (g->states[s].kind == ES_STATE_REPEAT && g->rules[g->states[s].rule].nullable) g->states[s].min = 0;
}

/* ---- heights ---- */

typedef struct levels {
    uint32_t head[ES_GRAMMAR_DEPTH_MAX + 1];
    uint32_t *next; /* [states] */
} levels;

static void put_level(es_grammar *g, levels *l, uint32_t state, uint32_t height)
{
    if (height > ES_GRAMMAR_DEPTH_MAX) return;
    g->states[state].height = height;
    l->next[state] = l->head[height];
    l->head[height] = state;
}

/* The height of a call once both that it depends on have theirs; ES_HEIGHT_NEVER before. */
static uint32_t height_of_call(const es_grammar *g, const es_gram_state *s)
{
    const uint32_t after = g->states[s->target].height, body = g->states[g->rules[s->rule].start].height;
    if (s->kind == ES_STATE_REPEAT && s->min == 0) return after;
    if (after == ES_HEIGHT_NEVER || body == ES_HEIGHT_NEVER) return ES_HEIGHT_NEVER;
    return body + 1 > after ? body + 1 : after;
}

/* Lowest first: the first way that is found to a state's end is the shallowest. */
static void find_heights(es_grammar *g, const askers *a, uint32_t *next)
{
    levels l = {.next = next};
    for (uint32_t h = 0; h <= ES_GRAMMAR_DEPTH_MAX; h++) l.head[h] = NOBODY;
    for (uint32_t s = 0; s < g->state_count; s++) {
        g->states[s].height = ES_HEIGHT_NEVER;
        if (g->states[s].kind == ES_STATE_END || g->states[s].kind == ES_STATE_ACCEPT) put_level(g, &l, s, 0);
    }
    for (uint32_t h = 0; h <= ES_GRAMMAR_DEPTH_MAX; h++)
        while (l.head[h] != NOBODY) {
            const uint32_t s = l.head[h];
            l.head[h] = next[s];
            for (uint32_t i = a->first[s]; i < a->first[s + 1]; i++) {
                const uint32_t asker = a->state[i];
                const es_gram_state *state = &g->states[asker];
                if (state->height != ES_HEIGHT_NEVER) continue;
                const bool edges = state->kind == ES_STATE_BYTES || state->kind == ES_STATE_SPLIT;
                put_level(g, &l, asker, edges ? h : height_of_call(g, state));
            }
        }
}

/* ---- the order of rules ---- */

/* All calls that rule `r` may make before it reads a byte, as pairs (caller, called); `seen` holds r + 1 for states looked at.
 */
static es_status find_first_calls(const es_grammar *g, uint32_t r, uint32_t *seen, uint32_t *stack, es_gram_list *calls)
{
    uint32_t depth = 0;
    stack[depth++] = g->rules[r].start;
    while (depth) {
        const uint32_t number = stack[--depth];
        const es_gram_state *s = &g->states[number];
        if (seen[number] == r + 1) continue;
        seen[number] = r + 1;
        if (s->kind == ES_STATE_SPLIT)
            for (uint32_t i = 0; i < s->count; i++)
                if (seen[g->edges[s->first + i].target] != r + 1) stack[depth++] = g->edges[s->first + i].target;
        if (s->kind != ES_STATE_CALL && s->kind != ES_STATE_REPEAT) continue;
        uint32_t *pair = es_gram_reserve(calls, 2, sizeof *pair);
        if (!pair) return es_fail(ES_INVALID, "grammar: too many rules call each other");
        pair[0] = r, pair[1] = s->rule;
        calls->count += 2;
        if (g->rules[s->rule].nullable || (s->kind == ES_STATE_REPEAT && s->min == 0)) stack[depth++] = s->target;
    }
    return ES_OK;
}

/* A rule on a circle of calls: going back along calls for long enough ends on one. */
static es_status refuse_circle(const es_gram_tree *tree, const es_grammar *g, const uint32_t *pairs, uint32_t count,
                               const uint32_t *waiting, uint32_t *caller)
{
    uint32_t at = NOBODY;
    for (uint32_t r = 0; r < g->rule_count; r++) caller[r] = NOBODY;
    for (uint32_t i = 0; i < count; i += 2) {
        if (!waiting[pairs[i]] || !waiting[pairs[i + 1]]) continue;
        at = pairs[i + 1];
        caller[at] = pairs[i];
    }
    for (uint32_t i = 0; i < g->rule_count && at != NOBODY; i++) at = caller[at];
    while (at != NOBODY && at >= tree->rules.count) at = caller[at]; /* repetitions have no name, but a rule called them */
    const es_gram_rule *rule = (const es_gram_rule *)tree->rules.data + (at == NOBODY ? tree->root : at);
    return es_gram_fail(tree, rule->where,
                        "the rule %.*s begins with itself (left recursion); put something before it, or write "
                        "a repetition",
                        (int)(rule->name_bytes < 99 ? rule->name_bytes : 99), rule->name);
}

/* Callers before those they call: waiting[r] counts callers that have no place yet. */
static es_status order_rules(const es_gram_tree *tree, es_grammar *g, const es_gram_list *calls, uint32_t *work)
{
    const uint32_t *pairs = calls->data, rules = g->rule_count;
    uint32_t *waiting = work, *first = work + rules, *called = first + rules + 2, done = 0;
    for (uint32_t i = 0; i < calls->count; i += 2) waiting[pairs[i + 1]]++, first[pairs[i] + 2]++;
    for (uint32_t r = 0; r < rules; r++) first[r + 2] += first[r + 1];
    for (uint32_t i = 0; i < calls->count; i += 2) called[first[pairs[i] + 1]++] = pairs[i + 1];
    for (uint32_t r = 0; r < rules; r++)
        if (waiting[r] == 0) g->by_order[done++] = r;
    for (uint32_t head = 0; head < done; head++) {
        const uint32_t r = g->by_order[head];
        g->rules[r].order = head;
        for (uint32_t i = first[r]; i < first[r + 1]; i++)
            if (--waiting[called[i]] == 0) g->by_order[done++] = called[i];
    }
    return done == rules ? ES_OK : refuse_circle(tree, g, pairs, calls->count, waiting, first);
}

static es_status find_order(const es_gram_tree *tree, es_grammar *g, uint32_t *seen, uint32_t *stack)
{
    es_gram_list calls = {.limit = 8 * ES_GRAMMAR_STATES_MAX};
    memset(seen, 0, g->state_count * sizeof *seen);
    es_status status = ES_OK;
    for (uint32_t r = 0; r < g->rule_count && status == ES_OK; r++) status = find_first_calls(g, r, seen, stack, &calls);
    uint32_t *work = calloc(2 * (size_t)g->rule_count + 2 + calls.count, sizeof *work);
    g->by_order = calloc((size_t)g->rule_count + 1, sizeof *g->by_order);
    if (status == ES_OK && (!work || !g->by_order)) status = es_fail(ES_NO_MEMORY, "no memory for a grammar");
    if (status == ES_OK) status = order_rules(tree, g, &calls, work);
    free(calls.data);
    free(work);
    return status;
}

/* ---- what may follow a run of ordinary characters ---- */

static bool is_ordinary_byte(int byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F;
}

/* BYTES: none of its edges takes a byte of an ordinary character. */
static void mark_closed_bytes(es_grammar *g)
{
    bool ordinary[256] = {false};
    for (int byte = 0; byte < 256; byte++) ordinary[g->class_of[byte]] |= is_ordinary_byte(byte);
    for (uint32_t s = 0; s < g->state_count; s++) {
        es_gram_state *state = &g->states[s];
        state->closed = state->kind == ES_STATE_BYTES;
        for (uint32_t i = 0; state->kind == ES_STATE_BYTES && i < state->count; i++) {
            const es_gram_edge *edge = &g->edges[state->first + i];
            for (uint32_t class = edge->first; class <= edge->last; class ++) state->closed &= !ordinary[class];
        }
    }
}

/* REPEAT: what follows is such a state, or several of them to choose from. */
static void mark_closed_repeats(es_grammar *g)
{
    for (uint32_t s = 0; s < g->state_count; s++) {
        es_gram_state *state = &g->states[s];
        if (state->kind != ES_STATE_REPEAT || !state->ordinary) continue;
        const es_gram_state *after = &g->states[state->target];
        state->closed = after->kind == ES_STATE_BYTES ? after->closed : after->kind == ES_STATE_SPLIT;
        for (uint32_t i = 0; after->kind == ES_STATE_SPLIT && i < after->count && i < 16; i++)
            state->closed &= g->states[g->edges[after->first + i].target].kind == ES_STATE_BYTES &&
                             g->states[g->edges[after->first + i].target].closed && after->count <= 16;
    }
}

/* Whether a byte leads from a state to the end of its rule. */
static bool ends_with_byte(const es_grammar *g, const es_gram_state *state, int byte)
{
    for (uint32_t i = 0; state->kind == ES_STATE_BYTES && i < state->count; i++) {
        const es_gram_edge *edge = &g->edges[state->first + i];
        if (g->class_of[byte] >= edge->first && g->class_of[byte] <= edge->last && g->states[edge->target].kind == ES_STATE_END) return true;
    }
    return false;
}

/* REPEAT: the kinds of bytes that are units of it. Rules of this sort are as many as repetitions, and their first states short. */
static void mark_kinds(es_grammar *g)
{
    for (uint32_t s = 0; s < g->state_count; s++) {
        es_gram_state *state = &g->states[s];
        if (state->kind != ES_STATE_REPEAT) continue;
        const es_gram_state *unit = &g->states[g->rules[state->rule].start];
        uint8_t strays = ES_TRIE_OTHER;
        for (int byte = ' '; byte <= 'z' && unit->kind == ES_STATE_BYTES; byte++) {
            const uint8_t kind = es_trie_kind((unsigned char)byte);
            if (!(strays & kind) && !ends_with_byte(g, unit, byte)) strays |= kind;
        }
        if (unit->kind == ES_STATE_BYTES) state->kinds = (uint8_t)~strays;
    }
}

static es_status analyse(const es_gram_tree *tree, es_grammar *g, askers *a, bool *empty, uint32_t *one, uint32_t *two)
{
    ES_TRY(find_askers(g, a));
    find_nullable(g, a, empty, one);
    find_heights(g, a, one);
    mark_closed_bytes(g);
    mark_closed_repeats(g);
    mark_kinds(g);
    ES_TRY(find_order(tree, g, one, two));
    if (g->states[g->rules[g->root].start].height != ES_HEIGHT_NEVER) return ES_OK;
    return es_fail(ES_INVALID,
                   "grammar: no text can ever match it: its rules never end, are nested deeper than %d, or need "
                   "characters that the model's vocabulary cannot write",
                   ES_GRAMMAR_DEPTH_MAX);
}

es_status es_gram_analyse(const es_gram_tree *tree, es_grammar *g)
{
    askers a = {0};
    bool *empty = calloc(g->state_count, sizeof *empty);
    uint32_t *one = malloc(g->state_count * sizeof *one);
    uint32_t *two = malloc(((size_t)g->state_count + g->edge_count + 1) * sizeof *two); /* a stack to which edges push */
    const es_status status =
        empty && one && two ? analyse(tree, g, &a, empty, one, two) : es_fail(ES_NO_MEMORY, "no memory for a grammar");
    free(a.first);
    free(a.state);
    free(empty);
    free(one);
    free(two);
    return status;
}
