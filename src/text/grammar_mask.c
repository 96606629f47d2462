/* grammar_mask.c: which tokens may come next.
 *
 * The tree of the vocabulary and the automaton are walked together. What keeps it short: where a byte cannot come everything
 * below is skipped; steps are looked up (grammar_matcher.h); and inside a run of ordinary characters, such as a JSON string,
 * the large tree of ordinary tokens is not walked at all (token_trie.h). A mask that took long all the same is kept. */
#include <string.h>

#include "text/grammar_matcher.h"

enum { WORTH_KEEPING = 2048 }; /* nodes looked at */

/* Returns the nodes looked at. */
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
