/* added.c: the trie of added tokens, and the conditions their matches must meet. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

es_status es_added_open(es_added_set *set, size_t count, size_t bytes)
{
    *set = (es_added_set){0};
    if (bytes >= INT32_MAX || count >= INT32_MAX)
        return es_fail(ES_UNSUPPORTED, "%zu bytes of added tokens are too many", bytes);
    set->token_of_node = malloc((bytes + 1) * sizeof *set->token_of_node);
    set->tokens = calloc(count + 1, sizeof *set->tokens);
    if (!set->token_of_node || !set->tokens || !es_pair_table_open(&set->edges, bytes)) {
        es_added_close(set);
        return es_fail(ES_NO_MEMORY, "no memory for %zu added tokens", count);
    }
    set->token_of_node[0] = -1;
    set->nodes = 1;
    set->node_limit = (int32_t)bytes + 1;
    return ES_OK;
}

void es_added_close(es_added_set *set)
{
    es_pair_table_close(&set->edges);
    free(set->token_of_node);
    free(set->tokens);
    *set = (es_added_set){0};
}

bool es_added_add(es_added_set *set, const char *text, size_t bytes, const es_added_token *token)
{
    if (bytes == 0) return true;
    int32_t node = 0;
    for (size_t i = 0; i < bytes; i++) {
        const uint64_t key = es_pair_key(node, (unsigned char)text[i]);
        const es_pair_slot *edge = es_pair_table_find(&set->edges, key);
        if (edge) {
            node = edge->first;
            continue;
        }
        if (set->nodes == set->node_limit) return false;
        es_pair_table_add(&set->edges, key, set->nodes, 0);
        node = set->nodes++;
        set->token_of_node[node] = -1;
    }
    set->first[(unsigned char)text[0]] = true;
    if (set->token_of_node[node] >= 0) return true;
    set->token_of_node[node] = set->count;
    set->tokens[set->count++] = *token;
    return true;
}

/* The longest token that begins at `at`: its index and end, or −1. */
static int32_t longest(const es_added_set *set, const unsigned char *text, size_t bytes, size_t at, size_t *end)
{
    int32_t node = 0, found = -1;
    for (size_t i = at; i < bytes; i++) {
        const es_pair_slot *edge = es_pair_table_find(&set->edges, es_pair_key(node, text[i]));
        if (!edge) break;
        node = edge->first;
        if (set->token_of_node[node] >= 0) found = set->token_of_node[node], *end = i + 1;
    }
    return found;
}

/* The beginning of the character that ends before `at`. */
static size_t step_back(const unsigned char *text, size_t at, uint32_t *codepoint)
{
    for (size_t n = 1; n <= 4 && n <= at; n++)
        if ((text[at - n] & 0xC0) != 0x80) return es_utf8_step(text + at - n, n, codepoint) == (int)n ? at - n : at;
    return at;
}

static bool word_before(const unsigned char *text, size_t at)
{
    uint32_t c = 0;
    return step_back(text, at, &c) < at && es_char_is_word(c);
}

static bool word_after(const unsigned char *text, size_t bytes, size_t at)
{
    uint32_t c = 0;
    return at < bytes && es_utf8_step(text + at, bytes - at, &c) > 0 && es_char_is_word(c);
}

bool es_added_next(const es_added_set *set, const unsigned char *text, size_t bytes, bool specials, size_t *scan, size_t floor,
                   es_added_match *match)
{
    if (set->count == 0) return false;
    for (size_t at = *scan; at < bytes; at++) {
        size_t end = at;
        const int32_t index = set->first[text[at]] ? longest(set, text, bytes, at, &end) : -1;
        if (index < 0) continue;

        const es_added_token *token = &set->tokens[index];
        const bool whole = !token->single_word || !(word_before(text, at) || word_after(text, bytes, end));
        if ((token->special && !specials) || !whole) {
            at = end - 1;
            continue;
        }
        *scan = end;
        *match = (es_added_match){.begin = at, .end = end, .token = token->token};
        uint32_t c = 0;
        if (token->lstrip) {
            for (size_t b; match->begin > floor && (b = step_back(text, match->begin, &c)) < match->begin; match->begin = b)
                if (!(es_char_class(c) & ES_CHAR_SPACE)) break;
            if (match->begin < floor) match->begin = floor;
        }
        if (token->rstrip) {
            for (size_t length; es_char_at(text, bytes, match->end, &length) & ES_CHAR_SPACE;) match->end += length;
        }
        return true;
    }
    return false;
}
