/* grammar_mask.c: which tokens may come next.
 *
 * The tree of the vocabulary and the automaton are walked together. What keeps it short: where a byte cannot come everything
 * below is skipped; steps are looked up (grammar_matcher.h); inside a run of ordinary characters, such as a JSON string, the
 * large tree of ordinary tokens is not walked at all (token_trie.h); and where everything below a node is of kinds that may come for
 * so long, such as the letters of a name, its tokens are taken as they are listed. A mask that took long all the same is kept. */
#include <string.h>

#include "text/grammar_matcher.h"

enum { WORTH_KEEPING = 2048 }; /* nodes looked at */

/* Kinds of bytes each of which leads from a set back to it. */
static uint8_t find_loops(es_matcher *m, uint32_t set)
{
    uint8_t strays = ES_TRIE_OTHER;
    for (int byte = ' '; byte <= 'z' && !m->full; byte++) {
        const uint8_t kind = es_trie_kind((unsigned char)byte);
        if (!(strays & kind) && es_match_next(m, set, (uint8_t)byte) != set) strays |= kind;
    }
    return (uint8_t)~strays;
}

/* Whether from here on all that stands below a node may come. */
static bool takes_all_below(es_matcher *m, uint32_t number, const es_trie_node *node)
{
    es_match_set *set = &m->sets[number];
    if (!(node->kinds & ~set->kinds) && node->height <= set->most) return true;
    if (!set->looked && !(node->kinds & ES_TRIE_OTHER)) {
        set->loops = find_loops(m, number);
        set->looked = !m->full;
    }
    return !(node->kinds & ~set->loops) && !m->full;
}

/* Returns the nodes looked at, and what else cost as much. */
static uint32_t walk_tree(es_matcher *m, const es_trie_tree *tree, uint8_t *mask)
{
    const es_trie_node *nodes = tree->nodes;
    uint16_t *path = m->path;
    uint32_t looked = 0;
    path[0] = (uint16_t)m->set;
    for (uint32_t i = 0; i < tree->count && !m->full; looked++) {
        const es_trie_node *node = &nodes[i];
        const uint32_t next = es_match_next(m, path[node->depth], node->byte);
        if (next == ES_SET_DEAD) {
            i = node->skip;
            continue;
        }
        path[node->depth + 1] = (uint16_t)next;
        if (node->token >= 0) mask[node->token / 8] |= (uint8_t)(1 << (node->token % 8));
        i++;
        if (node->skip == i || !takes_all_below(m, next, node)) continue;
        const es_trie_node *behind = &nodes[node->skip];
        const uint32_t end = behind->first - (behind->token >= 0);
        looked += (end - node->first) / 8; /* which cost about as much */
        for (uint32_t t = node->first; t < end; t++) mask[tree->tokens[t] / 8] |= (uint8_t)(1 << (tree->tokens[t] % 8));
        i = node->skip;
    }
    return looked;
}

/* Ordinary tokens of at most `run` characters. */
static void allow_run(const es_token_trie *trie, uint32_t run, uint8_t *mask)
{
    if (run >= trie->longest) {
        memcpy(mask, trie->level[0], trie->mask_bytes);
    } else if (run > 0) {
        memcpy(mask, trie->level[run < ES_TRIE_LEVELS ? run : ES_TRIE_LEVELS], trie->mask_bytes);
        for (uint32_t i = 0; i < trie->longer_count && trie->longer[i].characters <= run; i++)
            mask[trie->longer[i].token / 8] |= (uint8_t)(1 << (trie->longer[i].token % 8));
    } else {
        memset(mask, 0, trie->mask_bytes);
    }
}

static uint32_t compute(es_matcher *m, uint8_t *mask)
{
    const es_token_trie *trie = m->trie;
    const es_match_set set = m->sets[m->set];
    allow_run(trie, set.run, mask);
    const bool all = set.run >= trie->longest || set.closed; /* of the ordinary ones */
    return (all ? 0 : walk_tree(m, &trie->ordinary, mask)) + walk_tree(m, &trie->rest, mask);
}

static void keep_mask(es_matcher *m, const uint8_t *mask)
{
    const uint32_t slot = m->next_mask++ % ES_MATCH_MASKS;
    m->mask_owner[slot] = m->set;
    memcpy(m->masks + slot * m->trie->mask_bytes, mask, m->trie->mask_bytes);
}

es_status es_matcher_mask(es_matcher *m, uint8_t *mask)
{
    m->work = 0;
    es_match_make_room(m, false);
    for (uint32_t slot = 0; slot < ES_MATCH_MASKS; slot++)
        if (m->mask_owner[slot] == m->set) {
            memcpy(mask, m->masks + slot * m->trie->mask_bytes, m->trie->mask_bytes);
            return ES_OK;
        }
    uint32_t looked = compute(m, mask);
    if (es_match_wants_room(m)) {
        es_match_make_room(m, true);
        looked = compute(m, mask);
    }
    if (m->full) return es_match_fail_full();
    if (looked >= WORTH_KEEPING) keep_mask(m, mask);
    return ES_OK;
}
