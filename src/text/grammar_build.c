/* grammar_build.c: from a tree for each rule to states.
 *
 * Everything is built from its end to its beginning: who builds a part is told which state comes after it. Characters become
 * their UTF-8 bytes here, so that from now on there are only bytes, and a token may end in the middle of a character. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar_internal.h"

#define LOOK_STEPS    64
#define MOST_PARTINGS 512 /* words that begin with each other */

typedef struct builder {
    const es_gram_tree *tree;
    const uint8_t *writable;
    es_gram_list states, edges, rules; /* edges hold bytes until classes are known */
} builder;

typedef struct byte_range {
    uint8_t first, last;
} byte_range;

static es_status too_large(void)
{
    return es_fail(ES_INVALID, "grammar: too large: more than %d states or %d rules and repetitions", ES_GRAMMAR_STATES_MAX,
                   ES_GRAMMAR_RULES_MAX);
}

static es_status add_state(builder *b, es_gram_state state, uint32_t *number)
{
    es_gram_state *place = es_gram_reserve(&b->states, 1, sizeof *place);
    if (!place) return too_large();
    *place = state;
    *number = b->states.count++;
    return ES_OK;
}

static es_status add_edge(builder *b, es_gram_edge edge)
{
    es_gram_edge *place = es_gram_reserve(&b->edges, 1, sizeof *place);
    if (!place) return too_large();
    *place = edge;
    b->edges.count++;
    return ES_OK;
}

static bool can_write(const builder *b, int byte)
{
    return !b->writable || (b->writable[byte / 8] >> (byte % 8) & 1);
}

/* Edges for those bytes of a range that can be written. */
static es_status add_bytes(builder *b, byte_range range, uint32_t target)
{
    for (int from = range.first; from <= range.last; from++) {
        if (!can_write(b, from)) continue;
        int to = from;
        while (to < range.last && can_write(b, to + 1)) to++;
        ES_TRY(add_edge(b, (es_gram_edge){(uint8_t)from, (uint8_t)to, target}));
        from = to;
    }
    return ES_OK;
}

/* A state whose edges are those added since there were `first`. */
static es_status close_state(builder *b, uint8_t kind, uint32_t first, uint32_t *number)
{
    return add_state(b, (es_gram_state){.kind = kind, .first = first, .count = b->edges.count - first}, number);
}

static es_status build_literal(builder *b, const es_gram_node *node, uint32_t after, uint32_t *start)
{
    *start = after;
    if (node->count == 0) return ES_OK; /* there may be no bytes of literals at all */
    const unsigned char *text = (const unsigned char *)b->tree->literals.data + node->first;
    for (uint32_t i = node->count; i-- > 0;) {
        const uint32_t first = b->edges.count;
        ES_TRY(add_bytes(b, (byte_range){text[i], text[i]}, *start));
        ES_TRY(close_state(b, ES_STATE_BYTES, first, start));
    }
    return ES_OK;
}

/* ---- classes ---- */

static int utf8_length(uint32_t codepoint)
{
    return codepoint < 0x80 ? 1 : codepoint < 0x800 ? 2 : codepoint < 0x10000 ? 3 : 4;
}

static void utf8_write(uint32_t codepoint, int length, uint8_t *bytes)
{
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = length - 1; i > 0; i--) {
        bytes[i] = (uint8_t)(0x80 | (codepoint & 0x3F));
        codepoint >>= 6;
    }
    bytes[0] = (uint8_t)(lead[length] | codepoint);
}

/* One class: the ways its characters can be written, as chains of ranges of bytes. */
typedef struct class_builder {
    builder *b;
    uint32_t after;
    es_gram_list firsts; /* es_gram_edge of the state that the class begins with */
    struct {
        byte_range range;
        uint32_t target, state;
    } made[64]; /* chains end alike: those states are shared */
    int made_count;
} class_builder;

static es_status share_state(class_builder *c, byte_range range, uint32_t target, uint32_t *state)
{
    for (int i = 0; i < c->made_count; i++) {
        if (c->made[i].range.first != range.first || c->made[i].range.last != range.last || c->made[i].target != target)
            continue;
        *state = c->made[i].state;
        return ES_OK;
    }
    const uint32_t first = c->b->edges.count;
    ES_TRY(add_bytes(c->b, range, target));
    ES_TRY(close_state(c->b, ES_STATE_BYTES, first, state));
    if (c->made_count < (int)(sizeof c->made / sizeof *c->made)) {
        c->made[c->made_count].range = range;
        c->made[c->made_count].target = target;
        c->made[c->made_count++].state = *state;
    }
    return ES_OK;
}

/* Characters of one length whose bytes are, place by place, all of what lies between those of `from` and `to`. */
static es_status add_chain(class_builder *c, const uint8_t *from, const uint8_t *to, int length)
{
    uint32_t state = c->after;
    for (int i = length - 1; i > 0; i--) ES_TRY(share_state(c, (byte_range){from[i], to[i]}, state, &state));
    es_gram_edge *place = es_gram_reserve(&c->firsts, 1, sizeof *place);
    if (!place) return too_large();
    *place = (es_gram_edge){from[0], to[0], state};
    c->firsts.count++;
    return ES_OK;
}

/* Cut a range of characters of one length until each part is such a rectangle. */
static es_status add_rectangles(class_builder *c, uint32_t from, uint32_t to, int length)
{
    for (int i = 1; i < length; i++) {
        const uint32_t low = (1u << (6 * i)) - 1; /* what the last i bytes hold */
        if ((from & ~low) == (to & ~low)) continue;
        if (from & low) {
            ES_TRY(add_rectangles(c, from, from | low, length));
            return add_rectangles(c, (from | low) + 1, to, length);
        }
        if ((to & low) != low) {
            ES_TRY(add_rectangles(c, from, (to & ~low) - 1, length));
            return add_rectangles(c, to & ~low, to, length);
        }
    }
    uint8_t first[4], last[4];
    utf8_write(from, length, first);
    utf8_write(to, length, last);
    return add_chain(c, first, last, length);
}

static es_status add_characters(class_builder *c, uint32_t from, uint32_t to)
{
    static const es_gram_range lengths[] = {
        {0,       0x7F    },
        {0x80,    0x7FF   },
        {0x800,   0xD7FF  },
        {0xE000,  0xFFFF  },
        {0x10000, 0x10FFFF}
    };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const uint32_t first = from > lengths[i].first ? from : lengths[i].first;
        const uint32_t last = to < lengths[i].last ? to : lengths[i].last;
        if (first <= last) ES_TRY(add_rectangles(c, first, last, utf8_length(first)));
    }
    return ES_OK;
}

static es_status build_class(builder *b, const es_gram_node *node, uint32_t after, uint32_t *start)
{
    const es_gram_range *ranges = (const es_gram_range *)b->tree->ranges.data + node->first;
    class_builder c = {.b = b, .after = after, .firsts.limit = ES_GRAMMAR_STATES_MAX};
    es_status status = ES_OK;
    for (uint32_t i = 0; i < node->count && status == ES_OK; i++) status = add_characters(&c, ranges[i].first, ranges[i].last);
    const uint32_t first = b->edges.count;
    const es_gram_edge *firsts = c.firsts.data;
    for (uint32_t i = 0; i < c.firsts.count && status == ES_OK; i++)
        status = add_bytes(b, (byte_range){firsts[i].first, firsts[i].last}, firsts[i].target);
    free(c.firsts.data);
    return status == ES_OK ? close_state(b, ES_STATE_BYTES, first, start) : status;
}

/* ---- what a repetition repeats ---- */

/* Characters that most of a vocabulary is made of: see token_trie.h. */
static const es_gram_range ordinary[] = {
    {0x20,   0x21    },
    {0x23,   0x5B    },
    {0x5D,   0x7E    },
    {0x80,   0xD7FF  },
    {0xE000, 0x10FFFF}
};

static bool class_is_ordinary(const es_gram_tree *tree, const es_gram_node *node)
{
    const es_gram_range *ranges = (const es_gram_range *)tree->ranges.data + node->first;
    for (size_t i = 0; i < sizeof ordinary / sizeof *ordinary; i++) {
        bool covered = false;
        for (uint32_t r = 0; r < node->count && !covered; r++)
            covered = ranges[r].first <= ordinary[i].first && ranges[r].last >= ordinary[i].last;
        if (!covered) return false;
    }
    return true;
}

/* Is every ordinary character one way to write this part? Looks at `*steps` nodes at most. */
static bool is_ordinary(const es_gram_tree *tree, uint32_t number, int *steps)
{
    const es_gram_node *nodes = tree->nodes.data, *node = nodes + number;
    if (--*steps < 0) return false;
    switch ((es_gram_kind)node->kind) {
    case ES_GRAM_CLASS: return class_is_ordinary(tree, node);
    case ES_GRAM_REF: return is_ordinary(tree, ((const es_gram_rule *)tree->rules.data)[node->first].body, steps);
    case ES_GRAM_SEQUENCE: return node->child && !nodes[node->child].next && is_ordinary(tree, node->child, steps);
    case ES_GRAM_ALTERNATIVES:
        for (uint32_t child = node->child; child; child = nodes[child].next)
            if (*steps < 0 || is_ordinary(tree, child, steps)) return *steps >= 0;
        return false;
    case ES_GRAM_LITERAL:
    case ES_GRAM_REPEAT: break;
    }
    return false;
}

static es_status build(builder *b, uint32_t number, uint32_t after, uint32_t *start);

/* A rule of its own for what is repeated, so that the matcher can count. */
static es_status build_counted(builder *b, const es_gram_node *node, bool plain, uint32_t after, uint32_t *start)
{
    es_gram_routine *place = es_gram_reserve(&b->rules, 1, sizeof *place);
    if (!place) return too_large();
    const uint32_t rule = b->rules.count++;
    uint32_t end = 0, first = 0;
    ES_TRY(add_state(b, (es_gram_state){.kind = ES_STATE_END, .rule = rule}, &end));
    ES_TRY(build(b, node->child, end, &first));
    ((es_gram_routine *)b->rules.data)[rule] = (es_gram_routine){.start = first};
    return add_state(
        b,
        (es_gram_state){
            .kind = ES_STATE_REPEAT, .ordinary = plain, .target = after, .rule = rule, .min = node->min, .max = node->max},
        start);
}

static es_status build_repeat(builder *b, const es_gram_node *node, uint32_t after, uint32_t *start)
{
    int steps = LOOK_STEPS;
    const bool plain = is_ordinary(b->tree, node->child, &steps);
    if (node->max == 0) {
        *start = after;
        return ES_OK;
    }
    if (node->max == 1 && node->min == 1) return build(b, node->child, after, start);
    if (node->max == 1) {
        uint32_t body = 0;
        ES_TRY(build(b, node->child, after, &body));
        const uint32_t first = b->edges.count;
        ES_TRY(add_edge(b, (es_gram_edge){.target = body}));
        ES_TRY(add_edge(b, (es_gram_edge){.target = after}));
        return close_state(b, ES_STATE_SPLIT, first, start);
    }
    if (node->max != ES_GRAM_NO_END || node->min > 1 || plain) return build_counted(b, node, plain, after, start);
    /* x* and x+: a loop; its state must be there before its body is */
    uint32_t loop = 0, body = 0;
    ES_TRY(add_state(b, (es_gram_state){.kind = ES_STATE_SPLIT}, &loop));
    ES_TRY(build(b, node->child, loop, &body));
    const uint32_t first = b->edges.count;
    ES_TRY(add_edge(b, (es_gram_edge){.target = body}));
    ES_TRY(add_edge(b, (es_gram_edge){.target = after}));
    es_gram_state *state = (es_gram_state *)b->states.data + loop;
    state->first = first;
    state->count = 2;
    *start = node->min ? body : loop;
    return ES_OK;
}

/* ---- the rest ---- */

static es_status build_sequence(builder *b, uint32_t child, uint32_t after, uint32_t *start)
{
    const es_gram_node *nodes = b->tree->nodes.data;
    uint32_t count = 0;
    *start = after;
    for (uint32_t at = child; at; at = nodes[at].next) count++;
    if (count == 0) return ES_OK;
    uint32_t *parts = malloc(count * sizeof *parts);
    if (!parts) return es_fail(ES_NO_MEMORY, "no memory for a grammar");
    for (uint32_t at = child, i = 0; at; at = nodes[at].next) parts[i++] = at;
    es_status status = ES_OK;
    for (uint32_t i = count; i-- > 0 && status == ES_OK;) status = build(b, parts[i], *start, start);
    free(parts);
    return status;
}

/* ---- a choice between literals ---- */

typedef struct word {
    const unsigned char *text;
    uint32_t bytes;
} word;

static int compare_words(const void *a, const void *b)
{
    const word *left = a, *right = b;
    const uint32_t common = left->bytes < right->bytes ? left->bytes : right->bytes;
    const int order = memcmp(left->text, right->text, common);
    return order ? order : (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

/* The words of a choice, sorted; *count 0 if it is none between literals. The caller frees *words. */
static es_status gather_words(const builder *b, uint32_t child, word **words, uint32_t *count)
{
    const es_gram_node *nodes = b->tree->nodes.data;
    uint32_t n = 0;
    *count = 0;
    for (uint32_t at = child; at; at = nodes[at].next, n++) {
        const uint32_t only = nodes[at].child;
        if (!only || nodes[only].next || nodes[only].kind != ES_GRAM_LITERAL || nodes[only].count == 0) return ES_OK;
    }
    *words = malloc(n * sizeof **words);
    if (!*words) return es_fail(ES_NO_MEMORY, "no memory for a grammar");
    for (uint32_t at = child; at; at = nodes[at].next) {
        const es_gram_node *literal = &nodes[nodes[at].child];
        (*words)[(*count)++] = (word){(const unsigned char *)b->tree->literals.data + literal->first, literal->count};
    }
    qsort(*words, *count, sizeof **words, compare_words);
    return ES_OK;
}

static es_status build_words(builder *b, const word *words, uint32_t count, uint32_t at, int depth, uint32_t after,
                             uint32_t *start);

/* Words that are alike up to `at` and in the byte there: that byte and all that follows which they have in common. */
static es_status build_branch(builder *b, const word *words, uint32_t count, uint32_t at, int depth, uint32_t after,
                              uint32_t *target)
{
    const word *first = &words[0], *last = &words[count - 1];
    uint32_t alike = at + 1;
    while (alike < first->bytes && alike < last->bytes && first->text[alike] == last->text[alike]) alike++;
    ES_TRY(build_words(b, words, count, alike, depth + 1, after, target));
    for (uint32_t i = alike; i-- > at + 1;) {
        const uint32_t edge = b->edges.count;
        ES_TRY(add_bytes(b, (byte_range){first->text[i], first->text[i]}, *target));
        ES_TRY(close_state(b, ES_STATE_BYTES, edge, target));
    }
    return ES_OK;
}

/* Sorted words that are alike up to `at`, as a tree: a state for each place where they part. */
static es_status build_words(builder *b, const word *words, uint32_t count, uint32_t at, int depth, uint32_t after,
                             uint32_t *start)
{
    uint32_t targets[256], ended = 0, from = 0;
    if (depth > MOST_PARTINGS) return es_fail(ES_INVALID, "grammar: too many literals begin with each other");
    while (ended < count && words[ended].bytes == at) ended++;
    bool parts[256] = {false};
    for (from = ended; from < count;) {
        const unsigned char byte = words[from].text[at];
        uint32_t end = from;
        while (end < count && words[end].text[at] == byte) end++;
        ES_TRY(build_branch(b, words + from, end - from, at, depth, after, &targets[byte]));
        parts[byte] = true;
        from = end;
    }
    *start = after;
    if (ended == count) return ES_OK;
    uint32_t first = b->edges.count, bytes = 0;
    for (int byte = 0; byte < 256; byte++)
        if (parts[byte]) ES_TRY(add_bytes(b, (byte_range){(uint8_t)byte, (uint8_t)byte}, targets[byte]));
    ES_TRY(close_state(b, ES_STATE_BYTES, first, &bytes));
    *start = bytes;
    if (ended == 0) return ES_OK;
    first = b->edges.count; /* or the choice ends here */
    ES_TRY(add_edge(b, (es_gram_edge){.target = bytes}));
    ES_TRY(add_edge(b, (es_gram_edge){.target = after}));
    return close_state(b, ES_STATE_SPLIT, first, start);
}

static es_status build_alternatives(builder *b, uint32_t child, uint32_t after, uint32_t *start)
{
    const es_gram_node *nodes = b->tree->nodes.data;
    if (child && !nodes[child].next) return build(b, child, after, start);
    word *words = NULL;
    uint32_t word_count;
    ES_TRY(gather_words(b, child, &words, &word_count));
    if (word_count) {
        const es_status built = build_words(b, words, word_count, 0, 0, after, start);
        free(words);
        return built;
    }
    es_gram_list targets = {.limit = ES_GRAMMAR_STATES_MAX};
    es_status status = ES_OK;
    for (uint32_t at = child; at && status == ES_OK; at = nodes[at].next) {
        uint32_t *place = es_gram_reserve(&targets, 1, sizeof *place);
        status = place ? build(b, at, after, place) : too_large();
        targets.count++;
    }
    const uint32_t first = b->edges.count;
    for (uint32_t i = 0; i < targets.count && status == ES_OK; i++)
        status = add_edge(b, (es_gram_edge){.target = ((uint32_t *)targets.data)[i]});
    free(targets.data);
    return status == ES_OK ? close_state(b, ES_STATE_SPLIT, first, start) : status;
}

static es_status build(builder *b, uint32_t number, uint32_t after, uint32_t *start)
{
    const es_gram_node *node = (const es_gram_node *)b->tree->nodes.data + number;
    switch ((es_gram_kind)node->kind) {
    case ES_GRAM_LITERAL: return build_literal(b, node, after, start);
    case ES_GRAM_CLASS: return build_class(b, node, after, start);
    case ES_GRAM_REF: return add_state(b, (es_gram_state){.kind = ES_STATE_CALL, .rule = node->first, .target = after}, start);
    case ES_GRAM_SEQUENCE: return build_sequence(b, node->child, after, start);
    case ES_GRAM_ALTERNATIVES: return build_alternatives(b, node->child, after, start);
    case ES_GRAM_REPEAT: return build_repeat(b, node, after, start);
    }
    return es_fail(ES_INTERNAL, "a grammar's node has no kind");
}

static es_status build_rules(builder *b)
{
    const es_gram_rule *rules = b->tree->rules.data;
    const uint32_t count = b->tree->rules.count;
    es_gram_routine *place = es_gram_reserve(&b->rules, count, sizeof *place);
    if (!place) return too_large();
    memset(place, 0, count * sizeof *place);
    b->rules.count = count; /* repetitions come behind the named ones */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t end = 0, start = 0;
        ES_TRY(add_state(b, (es_gram_state){.kind = ES_STATE_END, .rule = i}, &end));
        ES_TRY(build(b, rules[i].body, end, &start));
        ((es_gram_routine *)b->rules.data)[i].start = start;
    }
    return ES_OK;
}

/* A rule that calls the root behind up to two newlines, and stands in its place. */
static es_status build_lines_before(builder *b, uint32_t *root)
{
    es_gram_routine *place = es_gram_reserve(&b->rules, 1, sizeof *place);
    if (!place) return too_large();
    const uint32_t rule = b->rules.count++;
    uint32_t end = 0, call = 0, start;
    ES_TRY(add_state(b, (es_gram_state){.kind = ES_STATE_END, .rule = rule}, &end));
    ES_TRY(add_state(b, (es_gram_state){.kind = ES_STATE_CALL, .rule = *root, .target = end}, &call));
    start = call;
    for (int i = 0; i < 2; i++) {
        uint32_t first = b->edges.count, line = 0;
        ES_TRY(add_bytes(b, (byte_range){'\n', '\n'}, start));
        ES_TRY(close_state(b, ES_STATE_BYTES, first, &line));
        first = b->edges.count;
        ES_TRY(add_edge(b, (es_gram_edge){.target = line}));
        ES_TRY(add_edge(b, (es_gram_edge){.target = call}));
        ES_TRY(close_state(b, ES_STATE_SPLIT, first, &start));
    }
    ((es_gram_routine *)b->rules.data)[rule] = (es_gram_routine){.start = start};
    *root = rule;
    return ES_OK;
}

/* Bytes that all edges treat alike become one class; the edges speak of classes from here on. */
static void find_classes(builder *b, es_grammar *grammar)
{
    bool begins[257] = {true};
    es_gram_edge *edges = b->edges.data;
    const es_gram_state *states = b->states.data;
    for (uint32_t s = 0; s < b->states.count; s++)
        for (uint32_t i = 0; states[s].kind == ES_STATE_BYTES && i < states[s].count; i++) {
            const es_gram_edge *edge = &edges[states[s].first + i];
            begins[edge->first] = begins[edge->last + 1] = true;
        }
    uint32_t class = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (byte && begins[byte]) class ++;
        grammar->class_of[byte] = (uint8_t) class;
    }
    for (uint32_t i = 0; i < b->edges.count; i++) {
        edges[i].first = grammar->class_of[edges[i].first];
        edges[i].last = grammar->class_of[edges[i].last];
    }
}

es_status es_gram_build(const es_gram_tree *tree, const uint8_t *writable, unsigned flags, es_grammar *grammar)
{
    builder b = {.tree = tree,
                 .writable = writable,
                 .states.limit = ES_GRAMMAR_STATES_MAX,
                 .edges.limit = 4 * ES_GRAMMAR_STATES_MAX,
                 .rules.limit = ES_GRAMMAR_RULES_MAX};
    es_status status = build_rules(&b);
    grammar->root = tree->root;
    if (status == ES_OK && flags & ES_GRAMMAR_LINES_BEFORE) status = build_lines_before(&b, &grammar->root);
    if (status == ES_OK) status = add_state(&b, (es_gram_state){.kind = ES_STATE_ACCEPT}, &grammar->accept);
    if (status == ES_OK) find_classes(&b, grammar);
    grammar->states = b.states.data;
    grammar->edges = b.edges.data;
    grammar->rules = b.rules.data;
    grammar->state_count = b.states.count;
    grammar->edge_count = b.edges.count;
    grammar->rule_count = b.rules.count;
    return status;
}

es_status es_grammar_compile(const char *text, size_t bytes, const uint8_t *writable, unsigned flags, es_grammar **out)
{
    es_gram_tree tree;
    es_grammar *grammar = calloc(1, sizeof *grammar);
    if (!grammar) return es_fail(ES_NO_MEMORY, "no memory for a grammar");
    es_status status = es_gram_parse(text, bytes, &tree);
    if (status == ES_OK) status = es_gram_build(&tree, writable, flags, grammar);
    if (status == ES_OK) status = es_gram_analyse(&tree, grammar);
    es_gram_tree_free(&tree);
    if (status != ES_OK) {
        es_grammar_close(grammar);
        return status;
    }
    *out = grammar;
    return ES_OK;
}

void es_grammar_close(es_grammar *grammar)
{
    if (!grammar) return;
    free(grammar->states);
    free(grammar->edges);
    free(grammar->rules);
    free(grammar->by_order);
    free(grammar);
}
